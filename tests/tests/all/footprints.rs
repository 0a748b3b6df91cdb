//! The locking rules: which rows a unit locks, through which index, and in which order of tables.

use muster_tests::course::Command;
use muster_tests::probes::{Footprint, Lock};

/// The house order, histories being one place. Admission alone begins with its target.
const HOUSE_ORDER: [&[&str]; 8] = [
    &["merge_partition"],
    &["merge_batch"],
    &["merge_batch_request"],
    &["operation"],
    &["binding"],
    &["merge_batch_member", "binding_history", "audit_record"],
    &["outbox"],
    &["target"],
];

/// Locks of a command that does all of its work.
async fn footprint(command: Command) -> Vec<Lock> {
    let state = command.prepare().await;
    let footprint = Footprint::new(state.world.session().await);
    let store = state.world.store_probed(footprint.clone());
    command.run(store, &state, "first").await.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let seen = footprint.seen();
    assert!(!seen.is_empty(), "{command:?} locks nothing");
    seen
}

/// Tables in the order of their first lock, an intention to insert included.
fn tables(seen: &[Lock]) -> Vec<&str> {
    let mut tables: Vec<&str> = Vec::new();
    for lock in seen {
        if !tables.contains(&lock.table.as_str()) {
            tables.push(&lock.table);
        }
    }
    tables
}

#[tokio::test]
async fn every_unit_locks_tables_in_the_house_order() {
    for command in Command::ALL {
        let seen = footprint(command).await;
        let tables = tables(&seen);
        if command == Command::Admit {
            assert_eq!(tables.first(), Some(&"target"), "{tables:?}");
            let existing = seen.iter().filter(|lock| lock.index.is_some()).all(|lock| lock.table == "target");
            assert!(existing, "an admission of a new relationship locks no other row that is there: {seen:?}");
            continue;
        }
        let place =
            |table: &&str| HOUSE_ORDER.iter().position(|place| place.contains(table)).unwrap_or_else(|| panic!("{table} has no place"));
        assert!(tables.iter().map(place).is_sorted(), "{command:?}: {tables:?}");
    }
}

#[tokio::test]
async fn every_claim_and_every_settlement_takes_the_gate_first_and_nobody_else_does() {
    for command in Command::ALL {
        let seen = footprint(command).await;
        let first = tables(&seen)[0];
        match command {
            Command::Admit | Command::WithdrawMember | Command::WithdrawWaiting | Command::Recover | Command::CloseFailed => {
                // Not even an intention lock: neither gate nor batch.
                assert!(
                    seen.iter().all(|lock| !["merge_partition", "merge_batch"].contains(&lock.table.as_str())),
                    "{command:?}: {seen:?}"
                );
            }
            _ => assert_eq!(first, "merge_partition", "{command:?}: {seen:?}"),
        }
    }
}

#[tokio::test]
async fn existing_rows_are_locked_through_primary_and_no_gap_is() {
    for command in Command::ALL {
        for lock in footprint(command).await {
            // The slot's key is asked for a duplicate, and remembers the entry of a batch that has just settled.
            let is_slot = command == Command::Claim && lock.index.as_deref() == Some("uk_active_slot");
            if lock.index.is_none() || is_slot {
                continue;
            }
            assert_eq!(lock.index.as_deref(), Some("PRIMARY"), "{command:?}: {lock:?}");
            assert!(["X,REC_NOT_GAP", "S,REC_NOT_GAP"].contains(&lock.mode.as_str()), "{command:?}: {lock:?}");
        }
    }
}

#[tokio::test]
async fn seats_change_last() {
    for command in [Command::FailRejecting, Command::RecordRender, Command::WithdrawWaiting, Command::CloseFailed] {
        let seen = footprint(command).await;
        assert_eq!(tables(&seen).last(), Some(&"target"), "{command:?}: {seen:?}");
    }
}
