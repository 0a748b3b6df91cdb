//! The target of an admission: the hot row, held first, by a seat or by a shared lock.

use crate::error::StoreError;
use crate::ids::PartitionKey;
use crate::request::Request;
use crate::state::Action;
use crate::transactions::admit::AdmitOutcome;
use crate::tx::{Inserted, Tx};

const READ_TARGET: &str = "/* admit.read_target */ SELECT partition_key, capacity, closed_at IS NOT NULL FROM target WHERE target_key = ?";

const READ_DEFAULT_PARTITION: &str = "/* admit.read_default_partition */ SELECT 1 FROM merge_partition WHERE partition_key = 'default'";

const INSERT_UNKNOWN_TARGET: &str =
    "/* admit.insert_unknown_target */ INSERT INTO target (target_key, partition_key) VALUES (?, 'default')";

/// No capacity may be set, and the partition may not change, while this admission is open.
const PIN_TARGET: &str = "/* admit.pin_target */ \
    SELECT partition_key, capacity, closed_at IS NOT NULL FROM target FORCE INDEX (PRIMARY) WHERE target_key = ? LOCK IN SHARE MODE";

const TAKE_FREE_SEAT: &str = "/* admit.take_free_seat */ \
    UPDATE target SET used = used + 1, updated_at = CURRENT_TIMESTAMP(6), version = version + 1 \
    WHERE target_key = ? AND partition_key = ? AND capacity IS NOT NULL AND used < capacity AND closed_at IS NULL";

const READ_SEATS: &str = "/* admit.read_seats */ SELECT capacity, used, closed_at IS NOT NULL FROM target WHERE target_key = ?";

pub(super) struct HeldTarget {
    pub partition: PartitionKey,
}

pub(super) enum Hold {
    Held(HeldTarget),
    Refused(AdmitOutcome),
    /// The target changed between two looks: run the unit again.
    Changed,
}

type Columns = (String, Option<u64>, i64);

/// Takes a seat for a grant of a counted target; otherwise pins the row as it is.
pub(super) async fn hold(tx: &mut Tx<'_>, request: &Request, strict: bool) -> Result<Hold, StoreError> {
    let Some((partition, capacity, closed)) = tx.first::<Columns>(READ_TARGET, (&request.target,)).await? else {
        return create(tx, request, strict).await;
    };
    // A closed target takes no new grant; what it holds can still be revoked.
    if closed == 1 && request.action == Action::Grant {
        return Ok(Hold::Refused(AdmitOutcome::TargetClosed));
    }
    if capacity.is_some() && request.action == Action::Grant {
        return take_seat(tx, request, partition).await;
    }
    // A revoke changes no seat at admission, but its partition must hold still all the same.
    match tx.first::<Columns>(PIN_TARGET, (&request.target,)).await? {
        Some((pinned, still, _)) if pinned == partition && still.is_some() == capacity.is_some() => held(partition),
        _ => Ok(Hold::Changed),
    }
}

async fn create(tx: &mut Tx<'_>, request: &Request, strict: bool) -> Result<Hold, StoreError> {
    if tx.first::<(i64,)>(READ_DEFAULT_PARTITION, ()).await?.is_none() {
        return Ok(Hold::Refused(AdmitOutcome::PartitionNotConfigured));
    }
    if strict {
        return Ok(Hold::Refused(AdmitOutcome::UnknownTarget));
    }
    match tx.insert_new(INSERT_UNKNOWN_TARGET, (&request.target,)).await? {
        Inserted::New(_) => Ok(Hold::Held(HeldTarget { partition: PartitionKey::default_partition() })),
        Inserted::Duplicate(_) => Ok(Hold::Changed),
    }
}

async fn take_seat(tx: &mut Tx<'_>, request: &Request, partition: String) -> Result<Hold, StoreError> {
    if tx.write(TAKE_FREE_SEAT, (&request.target, &partition)).await? == 1 {
        return held(partition);
    }
    match tx.first::<(Option<u64>, u64, i64)>(READ_SEATS, (&request.target,)).await? {
        Some((_, _, 1)) => Ok(Hold::Refused(AdmitOutcome::TargetClosed)),
        Some((Some(capacity), used, _)) if used >= capacity => Ok(Hold::Refused(AdmitOutcome::SeatsExhausted { capacity, used })),
        _ => Ok(Hold::Changed),
    }
}

fn held(partition: String) -> Result<Hold, StoreError> {
    let partition = PartitionKey::parse(partition).map_err(|why| StoreError::corrupt(why.to_string()))?;
    Ok(Hold::Held(HeldTarget { partition }))
}
