//! What GitLab means by a refusal of the commits API: all of them come as 400 with a text.

/// Why a commit was not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CommitRefusal {
    /// An earlier attempt of ours made it, or somebody else did.
    BranchExists,
    /// The same call would help later.
    Passing,
    /// It is about us: our rights, or a rule about who commits and how. No other content would help.
    NotAllowed,
    /// The call contradicts the repository, or is malformed: a mistake of ours.
    Mistaken,
    /// It is about this content: a push rule, a hook, a path that Git or GitLab will not take.
    Content,
}

/// Content is the last guess, because it blames a request: everything that is known to be about something else comes first.
pub(super) fn of_commit(text: &str) -> CommitRefusal {
    let text = text.to_lowercase();
    let any = |needles: &[&str]| needles.iter().any(|needle| text.contains(needle));
    if text.contains("a branch called") && text.contains("already exists") {
        CommitRefusal::BranchExists
    } else if any(&["cannot find start_sha", "please refresh and try again", "cannot lock ref", "reference update"]) || is_passing(&text) {
        CommitRefusal::Passing
    } else if any(&[
        "you are not allowed to push",
        "you are not allowed to create",
        "you cannot push commits for",
        "commit must be signed",
        "commit author's email",
        "committer's email",
        "is not a member of team",
        "committer must be",
    ]) {
        CommitRefusal::NotAllowed
    } else if any(&[
        "a file with this name already exists",
        "a file with this name doesn't exist",
        "the file has changed since",
        "you can only create or edit files when you are on a branch",
        "invalid start_sha",
        "can't pass both start_branch and start_sha",
        "something went wrong when we tried to create",
        "commit message does not follow the pattern",
        "branch name does not follow the pattern",
        "branch name '",
    ]) {
        CommitRefusal::Mistaken
    } else {
        CommitRefusal::Content
    }
}

/// Trouble inside GitLab that comes through as a text: gRPC codes 4, 8, 13 and 14 of its Git storage, time-outs, maintenance.
pub(super) fn is_passing(text: &str) -> bool {
    let text = text.to_lowercase();
    let storage = ["4:", "8:", "13:", "14:"].iter().any(|code| text.starts_with(code));
    let words = [
        "timeout",
        "timed out",
        "deadline exceeded",
        "temporarily",
        "read-only",
        "unavailable",
        "try again",
        "connection refused",
        "failed to connect",
        "internal server error",
        "resource lock",
        "resource exhausted",
    ];
    storage || words.iter().any(|word| text.contains(word))
}

#[cfg(test)]
mod tests {
    use super::CommitRefusal::{BranchExists, Content, Mistaken, NotAllowed, Passing};
    use super::*;

    #[test]
    fn each_text_of_the_commits_api_has_its_meaning() {
        for (text, meaning) in [
            ("A branch called 'muster/p/0a' already exists. Switch to that branch in order to make changes", BranchExists),
            ("Cannot find start_sha 'abc'", Passing),
            ("14:failed to connect to all addresses", Passing),
            ("4:Deadline Exceeded", Passing),
            ("The repository is temporarily read-only. Please try again later.", Passing),
            ("Could not update refs/heads/x. Please refresh and try again.", Passing),
            ("You are not allowed to push into this branch", NotAllowed),
            ("Commit must be signed with a GPG key", NotAllowed),
            ("Commit author's email 'bot@x' does not follow the pattern '@acme'", NotAllowed),
            ("A file with this name already exists", Mistaken),
            ("A file with this name doesn't exist", Mistaken),
            ("You can only create or edit files when you are on a branch", Mistaken),
            ("Invalid start_sha 'x'", Mistaken),
            ("Commit message does not follow the pattern 'JIRA-'", Mistaken),
            ("File name secrets.pem was prohibited by the pattern '\\.pem$'.", Content),
            ("File \"a.bin\" is larger than the allowed size of 1 MiB", Content),
            ("policy: role admin needs a ticket", Content),
            ("A directory with this name already exists", Content),
            ("Path cannot include directory traversal", Content),
        ] {
            assert_eq!(of_commit(text), meaning, "for {text}");
        }
    }
}
