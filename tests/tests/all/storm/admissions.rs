//! The same keys admitted by four callers each, at the same moment: with one body, or with two.

use std::collections::BTreeMap;

use muster_tests::{admit, grant, key};
use shared::Store;
use shared::transactions::admit::{Admit, AdmitOutcome};

use super::tally::Tally;
use super::{PARTITIONS, all_at_once};

const CALLERS: usize = 4;

/// Of each key one admission is made, and every other caller is told of it, or that the key was used for another body.
pub async fn of_the_same_keys(store: &Store, keys: usize, round: usize, tally: &mut Tally) {
    let name = |number: usize| format!("round-{round}-key-{number}");
    let units = (0..keys * CALLERS).map(|at| {
        let (number, caller) = (at % keys, at / keys);
        // Even keys come with one body, odd ones with two.
        let body = if number.is_multiple_of(2) { 0 } else { caller % 2 };
        let request = grant(&format!("{}-body-{body}", name(number)), PARTITIONS[number % PARTITIONS.len()]);
        Admit { key: key(&name(number)), ..admit(request) }
    });
    let mut admitted = BTreeMap::new();
    let mut told = Vec::new();
    for (unit, outcome) in all_at_once(store, units.collect(), tally).await {
        match outcome {
            AdmitOutcome::Admitted(admission) => {
                let before = admitted.insert(unit.key.to_string(), (admission.operation, unit.request.subject.clone()));
                assert!(before.is_none(), "round {round}: {} was admitted twice", unit.key);
            }
            other => told.push((unit, other)),
        }
    }
    assert_eq!(admitted.len(), keys, "round {round}: a key that nobody was admitted under");
    for (unit, outcome) in told {
        let (operation, subject) = &admitted[&unit.key.to_string()];
        let is_same = unit.request.subject == *subject;
        match outcome {
            AdmitOutcome::Replayed(admission) => assert!(is_same && admission.operation == *operation, "{}: {admission:?}", unit.key),
            AdmitOutcome::KeyReused { operation: named } => assert!(!is_same && named == *operation, "{}: {named}", unit.key),
            other => panic!("round {round}: {} was answered {other:?}", unit.key),
        }
    }
}
