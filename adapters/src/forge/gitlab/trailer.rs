//! The line of a commit message that says whose commit it is.

/// Name of the trailer in our commit, merge and squash messages.
pub(super) const TRAILER: &str = "Muster-Batch";

/// Does a line of its own say `Muster-Batch: <token>`, with exactly this token?
pub(super) fn carries(message: &str, token_hex: &str) -> bool {
    let expected = format!("{TRAILER}: {token_hex}");
    message.lines().any(|line| line.trim_end() == expected)
}

#[cfg(test)]
mod tests {
    use super::carries;

    #[test]
    fn only_a_whole_line_with_the_exact_token_counts() {
        assert!(carries("Grant 3 requests\n\nMuster-Batch: 0a1b\n", "0a1b"));
        assert!(carries("Merge\r\n\r\nMuster-Batch: 0a1b\r\nSigned-off-by: x", "0a1b"));
        assert!(!carries("Grant\n\nMuster-Batch: 0a1b2c", "0a1b"));
        assert!(!carries("Grant\n\nsee Muster-Batch: 0a1b", "0a1b"));
        assert!(!carries("Grant\n\n  Muster-Batch: 0a1b", "0a1b"));
        assert!(!carries("Grant", "0a1b"));
    }
}
