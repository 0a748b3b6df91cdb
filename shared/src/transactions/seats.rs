//! Seats of counted targets, released last in a settling transaction.

use std::collections::BTreeMap;

use serde_json::json;

use crate::error::StoreError;
use crate::tx::Tx;

const READ_COUNTED: &str = "/* seats.read_counted */ \
    SELECT t.target_key, t.capacity IS NOT NULL FROM JSON_TABLE(?, '$[*]' COLUMNS ( \
        target_key VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$.t')) AS j \
    STRAIGHT_JOIN target t FORCE INDEX (PRIMARY) ON t.target_key = j.target_key";

/// A shared lock on an uncounted target, so that no capacity is set while this unit changes its seats.
const PIN_UNCOUNTED: &str = "/* seats.pin_uncounted_target */ \
    SELECT capacity IS NOT NULL FROM target FORCE INDEX (PRIMARY) WHERE target_key = ? LOCK IN SHARE MODE";

const RELEASE_COUNTED: &str = "/* seats.release_counted_target */ \
    UPDATE target SET used = used - ?, updated_at = CURRENT_TIMESTAMP(6), version = version + 1 \
    WHERE target_key = ? AND capacity IS NOT NULL AND used >= ?";

/// Whether every seat was released, or a capacity came or went meanwhile and the unit must run again.
#[must_use]
#[derive(Debug, PartialEq, Eq)]
pub enum Released {
    All,
    CapacityChanged,
}

/// Gives back seats, summed per target, targets ascending. Call it last: a target is the hot row.
pub async fn release(tx: &mut Tx<'_>, seats: &BTreeMap<String, u64>) -> Result<Released, StoreError> {
    if seats.is_empty() {
        return Ok(Released::All);
    }
    let keys: Vec<_> = seats.keys().map(|target| json!({ "t": target })).collect();
    let counted: BTreeMap<String, bool> = tx
        .rows::<(String, i64)>(READ_COUNTED, (serde_json::Value::Array(keys).to_string(),))
        .await?
        .into_iter()
        .map(|(key, is)| (key, is == 1))
        .collect();
    for (target, seats) in seats {
        match counted.get(target) {
            Some(true) if tx.write(RELEASE_COUNTED, (seats, target, seats)).await? == 1 => {}
            Some(true) => return Ok(Released::CapacityChanged),
            Some(false) => {
                if tx.first::<(i64,)>(PIN_UNCOUNTED, (target,)).await? != Some((0,)) {
                    return Ok(Released::CapacityChanged);
                }
            }
            None => return Err(StoreError::corrupt(format!("the target {target} of a request does not exist"))),
        }
    }
    Ok(Released::All)
}
