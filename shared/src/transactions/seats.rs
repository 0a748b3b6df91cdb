//! Seats of counted targets, given back and retaken last in a settling transaction.

use std::collections::BTreeMap;

use serde_json::json;

use crate::error::StoreError;
use crate::state::BindingStatus;
use crate::tx::Tx;

const READ_COUNTED: &str = "/* seats.read_counted */ \
    SELECT t.target_key, t.capacity IS NOT NULL FROM JSON_TABLE(?, '$[*]' COLUMNS ( \
        target_key VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$.t')) AS j \
    STRAIGHT_JOIN target t FORCE INDEX (PRIMARY) ON t.target_key = j.target_key";

/// A shared lock on an uncounted target, so that no capacity is set while this unit changes its seats.
const PIN_UNCOUNTED: &str = "/* seats.pin_uncounted_target */ \
    SELECT capacity IS NOT NULL FROM target FORCE INDEX (PRIMARY) WHERE target_key = ? LOCK IN SHARE MODE";

/// There is no upper bound: a seat is never refused to what is on the target branch already.
const MOVE_SEATS_OF_COUNTED: &str = "/* seats.move_seats_of_counted_target */ \
    UPDATE target SET used = used + ? - ?, updated_at = CURRENT_TIMESTAMP(6), version = version + 1 \
    WHERE target_key = ? AND capacity IS NOT NULL AND used + ? >= ?";

/// Seats taken and given back, by target.
#[derive(Debug, Default)]
pub struct Change {
    by_target: BTreeMap<String, (u64, u64)>,
}

impl Change {
    /// Notes what one relationship's transition does to its target's seats.
    pub fn note(&mut self, target_key: &str, from: BindingStatus, to: BindingStatus) {
        if from.holds_seat() == to.holds_seat() {
            return;
        }
        let (taken, given_back) = self.by_target.entry(target_key.to_owned()).or_default();
        *(if to.holds_seat() { taken } else { given_back }) += 1;
    }
}

/// Whether every seat was moved, or a capacity came or went meanwhile and the unit must run again.
#[must_use]
#[derive(Debug, PartialEq, Eq)]
pub enum Moved {
    All,
    CapacityChanged,
}

/// Moves seats, summed per target, targets ascending. Call it last: a target is the hot row.
pub async fn apply(tx: &mut Tx<'_>, change: &Change) -> Result<Moved, StoreError> {
    if change.by_target.is_empty() {
        return Ok(Moved::All);
    }
    let keys: Vec<_> = change.by_target.keys().map(|target| json!({ "t": target })).collect();
    let counted: BTreeMap<String, bool> =
        tx.rows::<(String, i64)>(READ_COUNTED, (json!(keys).to_string(),)).await?.into_iter().map(|(key, is)| (key, is == 1)).collect();
    for (target, (taken, given_back)) in &change.by_target {
        let moved = match counted.get(target) {
            Some(true) if tx.write(MOVE_SEATS_OF_COUNTED, (taken, given_back, target, taken, given_back)).await? == 1 => true,
            Some(true) if tx.first::<(i64,)>(PIN_UNCOUNTED, (target,)).await? == Some((1,)) => {
                return Err(StoreError::corrupt(format!("the target {target} counts fewer seats than are given back")));
            }
            Some(true) => false,
            Some(false) => tx.first::<(i64,)>(PIN_UNCOUNTED, (target,)).await? == Some((0,)),
            None => return Err(StoreError::corrupt(format!("the target {target} of a request does not exist"))),
        };
        if !moved {
            return Ok(Moved::CapacityChanged);
        }
    }
    Ok(Moved::All)
}
