//! Triggers of one round, in every partition, all starting together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use muster_tests::claim_of;
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use shared::Store;
use shared::ids::{BatchId, ClaimToken, OperationId};
use shared::transactions::claim::{Claim, ClaimOutcome};

use super::tally::Tally;
use super::{PARTITIONS, ROUND_MAX, Waiting, all_at_once};

/// Starts the triggers, spread over the partitions, and answers the batches that they made.
pub async fn start_together(store: &Store, triggers: usize, round: usize, tally: &mut Tally) -> Vec<BatchId> {
    let units = (0..triggers).map(|number| Claim { token: ClaimToken::random(), ..claim_of(PARTITIONS[number % PARTITIONS.len()], "") });
    let outcomes = all_at_once(store, units.collect(), tally).await;
    let mut claimed: BTreeMap<String, (BatchId, Vec<OperationId>)> = BTreeMap::new();
    for (unit, outcome) in outcomes {
        let partition = unit.partition.to_string();
        match outcome {
            ClaimOutcome::Claimed { batch, members } => {
                let before = claimed.insert(partition.clone(), (batch, members));
                assert!(before.is_none(), "round {round}: {partition} was claimed twice, although nobody settles");
            }
            ClaimOutcome::SlotOccupied { .. } | ClaimOutcome::Contended | ClaimOutcome::NothingToClaim => {}
            other => panic!("round {round}, {partition}: {other:?}"),
        }
    }
    let all: Vec<&OperationId> = claimed.values().flat_map(|(_, members)| members).collect();
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "round {round}: a request is in two batches");
    for (at, partition) in PARTITIONS.iter().enumerate() {
        // Suspects are claimed fewer at a time than a round takes.
        let members = claimed.get(*partition).map_or(0, |(_, members)| members.len());
        let waited = Waiting::of(round, at).count();
        assert!(
            (waited.min(1)..=ROUND_MAX as usize).contains(&members),
            "round {round}: {waited} waited in {partition}, {members} were claimed"
        );
        assert!(waited > 0 || members == 0, "round {round}: nothing waited in {partition}, and {members} were claimed");
    }
    // Those that started together may all have met the gate; who comes later meets the slot.
    let late = claimed.keys().map(|partition| Claim { token: ClaimToken::random(), ..claim_of(partition, "") });
    for (unit, outcome) in all_at_once(store, late.collect(), tally).await {
        let (batch, _) = claimed[unit.partition.as_str()];
        assert_eq!(outcome, ClaimOutcome::SlotOccupied { batch }, "round {round}: a late trigger in {}", unit.partition);
    }
    claimed.into_values().map(|(batch, _)| batch).collect()
}

/// Looks again and again, and answers the most active batches that one partition had at one moment.
pub async fn most_active(mut session: Conn, watching: Arc<AtomicBool>, looked: Arc<AtomicBool>) -> u64 {
    let sql = "SELECT COALESCE(MAX(n), 0) FROM (SELECT COUNT(*) AS n FROM merge_batch WHERE status IN (1, 4) GROUP BY partition_key) AS t";
    let mut most = 0;
    while watching.load(Ordering::SeqCst) {
        let now: Option<u64> = session.query_first(sql).await.expect("the batches can be counted");
        most = most.max(now.unwrap_or(0));
        looked.store(true, Ordering::SeqCst);
        tokio::task::yield_now().await;
    }
    most
}
