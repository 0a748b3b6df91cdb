//! Which of the oldest waiting requests go into one round.

use std::collections::BTreeMap;

use crate::ids::OperationId;
use crate::paths::PathSet;

/// A waiting row as the claim reads it, oldest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// `merge_batch_request.id`.
    pub row: u64,
    pub operation: OperationId,
    pub bytes: u64,
    pub waited_s: i64,
}

/// Limits of one claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClaimLimits {
    pub max_requests: usize,
    pub max_bytes: u64,
}

/// Takes candidates in order, up to the limits. The first is always taken. A candidate that touches a
/// path of an earlier one, taken or passed over, waits: what was asked later is also merged later.
pub fn choose(candidates: Vec<Candidate>, paths: &BTreeMap<OperationId, Vec<String>>, limits: ClaimLimits) -> Vec<Candidate> {
    let mut taken: Vec<Candidate> = Vec::new();
    let mut bytes = 0_u64;
    let mut reserved = PathSet::default();
    for candidate in candidates {
        if taken.len() >= limits.max_requests {
            break;
        }
        let touched = paths.get(&candidate.operation).map(Vec::as_slice).unwrap_or_default();
        let is_free = touched.iter().all(|path| !reserved.touches(path));
        for path in touched {
            reserved.insert(path);
        }
        if !is_free {
            continue;
        }
        let total = bytes.saturating_add(candidate.bytes);
        if !taken.is_empty() && total > limits.max_bytes {
            break;
        }
        bytes = total;
        taken.push(candidate);
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    fn world(requests: &[(u64, &[&str])]) -> (Vec<Candidate>, BTreeMap<OperationId, Vec<String>>) {
        let mut paths = BTreeMap::new();
        let candidates = requests
            .iter()
            .enumerate()
            .map(|(at, (bytes, touched))| {
                let operation = OperationId::new();
                paths.insert(operation.clone(), touched.iter().map(|path| (*path).to_owned()).collect());
                Candidate { row: at as u64, operation, bytes: *bytes, waited_s: 0 }
            })
            .collect();
        (candidates, paths)
    }

    fn chosen(requests: &[(u64, &[&str])], max_requests: usize, max_bytes: u64) -> Vec<u64> {
        let (candidates, paths) = world(requests);
        choose(candidates, &paths, ClaimLimits { max_requests, max_bytes }).into_iter().map(|taken| taken.row).collect()
    }

    #[test]
    fn a_request_that_touches_an_earlier_ones_path_waits() {
        assert_eq!(chosen(&[(1, &["a/b"]), (1, &["a/b"]), (1, &["a/b/c"]), (1, &["a/bc"]), (1, &["a"])], 10, 100), [0, 3]);
    }

    #[test]
    fn a_request_does_not_overtake_one_that_was_passed_over() {
        assert_eq!(chosen(&[(1, &["p"]), (1, &["p", "q"]), (1, &["q"])], 10, 100), [0]);
    }

    #[test]
    fn the_first_is_taken_whatever_its_size_and_the_limits_hold_after_it() {
        assert_eq!(chosen(&[(500, &["a"]), (1, &["b"])], 10, 100), [0]);
        assert_eq!(chosen(&[(60, &["a"]), (40, &["b"]), (1, &["c"])], 10, 100), [0, 1]);
        assert_eq!(chosen(&[(1, &["a"]), (1, &["b"]), (1, &["c"])], 2, 100), [0, 1]);
    }
}
