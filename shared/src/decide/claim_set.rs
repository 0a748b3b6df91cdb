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
    /// The batch whose content failed with this member in it, and how many suspects a claim may take.
    pub suspect: Option<Suspect>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Suspect {
    pub of: u64,
    pub peer_limit: u64,
}

/// Files of one round: the forge is asked for a hundred at a time, within the time of one invocation.
const FILES_MAX: usize = 2_000;

/// Limits of one claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClaimLimits {
    pub max_requests: usize,
    pub max_bytes: u64,
}

/// The members of one round: suspects of one batch, or only fresh requests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chosen {
    pub members: Vec<Candidate>,
    pub suspect_of: Option<u64>,
}

/// Takes candidates in order, up to the limits; the first of its kind is always taken. Suspects and fresh
/// requests take turns: a bisection neither stops the others nor waits for them.
///
/// A candidate that touches a path of an earlier one, taken or passed over, of whichever kind, waits: what
/// was asked later is also merged later.
pub fn choose(
    candidates: &[Candidate],
    paths: &BTreeMap<OperationId, Vec<String>>,
    limits: ClaimLimits,
    last_was_suspects: bool,
) -> Chosen {
    let suspects = candidates.iter().find_map(|one| one.suspect).map(|suspect| suspect.of);
    let turns = if last_was_suspects { [None, suspects] } else { [suspects, None] };
    // The oldest of all is of one kind or the other and nothing is in its way, so one of the two turns takes it.
    let taken = turns.map(|kind| Chosen { members: take(candidates, paths, limits, kind), suspect_of: kind });
    taken.into_iter().find(|chosen| !chosen.members.is_empty()).unwrap_or_default()
}

fn take(candidates: &[Candidate], paths: &BTreeMap<OperationId, Vec<String>>, limits: ClaimLimits, kind: Option<u64>) -> Vec<Candidate> {
    let is_wanted = |one: &Candidate| one.suspect.map(|suspect| suspect.of) == kind;
    let peer_limit = candidates.iter().filter(|one| is_wanted(one)).filter_map(|one| one.suspect).map(|suspect| suspect.peer_limit).min();
    let max_requests = limits.max_requests.min(peer_limit.map_or(usize::MAX, |limit| limit as usize));
    let mut taken: Vec<Candidate> = Vec::new();
    let (mut bytes, mut files) = (0_u64, 0);
    let mut reserved = PathSet::default();
    for candidate in candidates {
        if taken.len() >= max_requests {
            break;
        }
        let touched = paths.get(&candidate.operation).map(Vec::as_slice).unwrap_or_default();
        let is_free = touched.iter().all(|path| !reserved.touches(path));
        for path in touched {
            reserved.insert(path);
        }
        if !is_free || !is_wanted(candidate) {
            continue;
        }
        let total = bytes.saturating_add(candidate.bytes);
        if !taken.is_empty() && (total > limits.max_bytes || files + touched.len() > FILES_MAX) {
            break;
        }
        bytes = total;
        files += touched.len();
        taken.push(candidate.clone());
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
                Candidate { row: at as u64, operation, bytes: *bytes, waited_s: 0, suspect: None }
            })
            .collect();
        (candidates, paths)
    }

    fn chosen(requests: &[(u64, &[&str])], max_requests: usize, max_bytes: u64) -> Vec<u64> {
        let (candidates, paths) = world(requests);
        choose(&candidates, &paths, ClaimLimits { max_requests, max_bytes }, false).members.into_iter().map(|taken| taken.row).collect()
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

    const WIDE: ClaimLimits = ClaimLimits { max_requests: 100, max_bytes: 1000 };

    fn mixed() -> (Vec<Candidate>, BTreeMap<OperationId, Vec<String>>) {
        let (mut candidates, paths) = world(&[(1, &["a"]), (1, &["b"]), (1, &["c"]), (1, &["d"]), (1, &["b"]), (1, &["e"])]);
        candidates[1].suspect = Some(Suspect { of: 7, peer_limit: 2 });
        candidates[2].suspect = Some(Suspect { of: 7, peer_limit: 2 });
        candidates[3].suspect = Some(Suspect { of: 9, peer_limit: 1 });
        (candidates, paths)
    }

    fn rows(chosen: &Chosen) -> Vec<u64> {
        chosen.members.iter().map(|one| one.row).collect()
    }

    #[test]
    fn suspects_of_one_batch_and_fresh_requests_take_turns() {
        let (candidates, paths) = mixed();
        let suspects = choose(&candidates, &paths, WIDE, false);
        assert_eq!((rows(&suspects), suspects.suspect_of), (vec![1, 2], Some(7)));
        // Row 4 waits for the suspect that wants the same path and was there first.
        let fresh = choose(&candidates, &paths, WIDE, true);
        assert_eq!((rows(&fresh), fresh.suspect_of), (vec![0, 5], None));
    }

    #[test]
    fn no_claim_takes_more_suspects_than_the_smallest_peer_limit() {
        let (mut candidates, paths) = mixed();
        candidates[2].suspect = Some(Suspect { of: 7, peer_limit: 1 });
        assert_eq!(rows(&choose(&candidates, &paths, WIDE, false)), [1]);
    }

    #[test]
    fn where_only_one_kind_can_go_it_goes_whosever_turn_it_is() {
        let (candidates, paths) = mixed();
        assert_eq!(rows(&choose(&candidates[1..3], &paths, WIDE, true)), [1, 2]);
        assert_eq!(rows(&choose(&candidates[..1], &paths, WIDE, false)), [0]);
        let (mut blocked, paths) = world(&[(1, &["a"]), (1, &["a"])]);
        blocked[1].suspect = Some(Suspect { of: 7, peer_limit: 1 });
        assert_eq!(rows(&choose(&blocked, &paths, WIDE, false)), [0], "the suspect waits for the older fresh request");
    }
}
