//! Isolates the members whose content fails: halves, and halves again, until one alone is convicted.

/// How many of the suspects of a batch that failed by its content may be claimed together next.
///
/// `members`: how many the batch had, at least two. `attempts`: content failures this member has seen, this one
/// included; at `attempts_max` it is tried alone at once.
pub fn peer_limit(members: usize, attempts: u64, attempts_max: u64) -> u64 {
    if attempts >= attempts_max { 1 } else { members.div_ceil(2).max(1) as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halving_reaches_one_within_the_attempts_that_a_partition_must_allow() {
        for max_requests in 1_usize..=1000 {
            let attempts_max = (max_requests as f64).log2().ceil() as u64 + 1;
            let (mut members, mut attempts) = (max_requests, 0);
            while members > 1 {
                attempts += 1;
                assert!(attempts < attempts_max, "{max_requests} is halved without reaching the limit");
                members = peer_limit(members, attempts, attempts_max) as usize;
            }
        }
    }

    #[test]
    fn whoever_has_failed_too_often_is_tried_alone() {
        assert_eq!((peer_limit(64, 1, 8), peer_limit(64, 8, 8), peer_limit(3, 1, 8)), (32, 1, 2));
    }
}
