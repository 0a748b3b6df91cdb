//! Tells in the log what waits, runs and is late: the template makes CloudWatch metrics of these lines.

use shared::StoreError;
use shared::read::status::status;
use shared::store::Store;

/// One `partition_seen` for each partition, one `outbox_seen`. Ages are seconds, and 0 where nothing waits or runs.
pub(crate) async fn tell(store: &Store) -> Result<(), StoreError> {
    let seen = status(store).await?;
    for partition in &seen.partitions {
        tracing::info!(
            event = "partition_seen",
            partition = partition.partition,
            waiting = partition.waiting,
            oldest_waiting_s = partition.oldest_waiting_age_s.unwrap_or(0),
            oldest_active_s = partition.active_batch.as_ref().map_or(0, |batch| batch.age_s),
            paused = partition.paused.is_some(),
        );
    }
    let outbox = seen.outbox;
    tracing::info!(
        event = "outbox_seen",
        undelivered = outbox.undelivered,
        overdue = outbox.overdue,
        lag_s = outbox.lag_s,
        given_up = outbox.given_up
    );
    Ok(())
}
