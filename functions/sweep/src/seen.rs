//! Tells in the log what waits, runs and is late: the template makes CloudWatch metrics of these lines.

use shared::StoreError;
use shared::read::status::status;
use shared::store::Store;

/// A batch that fails is withdrawn and asked about each minute: one that has not ended after this long waits for a person.
const FAILING_S_MAX: u64 = 30 * 60;

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
        if let Some(batch) = &partition.active_batch
            && let Some(code) = &batch.fail_code
            && batch.progress_age_s > FAILING_S_MAX
        {
            tracing::error!(event = "alarm", alarm = "failing_too_long", batch = %batch.batch_id, code, failing_s = batch.progress_age_s);
        }
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
