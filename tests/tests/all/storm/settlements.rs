//! What settles, sweeps and orders do to one batch, all at the same moment: it ends once, with the effects of one end.

use muster_tests::deadline::within;
use muster_tests::{World, begin_fail, block, fail, succeed, withdraw};
use shared::ids::{BatchId, OperationId};
use shared::state::FailCause;
use shared::transactions::unblock::Unblock;
use shared::{Guarded, Store};
use tokio::task::JoinHandle;

use super::tally::Tally;

/// What one task of a storm adds to the tally.
type Task = JoinHandle<Tally>;

fn task<G>(store: &Store, units: Vec<G>) -> Task
where
    G: Guarded + Send + 'static,
    G::Outcome: 'static,
{
    let store = store.clone();
    tokio::spawn(async move {
        let mut tally = Tally::default();
        for unit in units {
            let outcome = store.run(&unit).await;
            let _ = tally.judged(unit, outcome);
        }
        tally
    })
}

pub async fn of_one_batch(world: &World, store: &Store, batch: BatchId, round: usize, tally: &mut Tally) {
    let member: String =
        world.scalar("SELECT operation_id FROM merge_batch_member WHERE batch_id = ? ORDER BY position LIMIT 1", (batch.0,)).await;
    let member = OperationId::parse(member).expect("an operation");
    let cause = [FailCause::Infrastructure, FailCause::Content, FailCause::Rejected][round % 3];
    let mut tasks: Vec<Task> = Vec::new();
    for settler in 0..4 {
        let by = format!("settler-{settler}");
        // A merge that is seen, and a sweep that gives up; an operator who orders the opposite in between.
        tasks.push(task(store, vec![succeed(batch, &by)]));
        tasks.push(task(store, vec![begin_fail(batch, cause)]));
        tasks.push(task(store, vec![fail(batch, &by)]));
        tasks.push(task(store, vec![block(batch)]));
        tasks.push(task(store, vec![Unblock { batch }]));
    }
    tasks.push(task(store, vec![withdraw(&member)]));
    for one in tasks {
        tally.add(within("a settlement of a storm", one).await.expect("no panic"));
    }
    // Nobody may have come to end it: it was blocked, or its failing has only begun.
    let ended = "merge_batch WHERE status IN (2, 3) AND id =";
    if world.count(&format!("{ended} {batch}")).await == 0 {
        let mut rest = Tally::default();
        let unit = succeed(batch, "the rest");
        let outcome = store.run(&unit).await;
        let _ = rest.judged(unit, outcome);
        tally.add(rest);
    }
    assert_eq!(world.count(&format!("{ended} {batch}")).await, 1, "round {round}: batch {batch} did not end");
    let ends = format!("outbox WHERE batch_id = {batch} AND operation_id IS NULL AND kind = 'delete_branch'");
    assert_eq!(world.count(&ends).await, 1, "round {round}: batch {batch} ended more than once");
}
