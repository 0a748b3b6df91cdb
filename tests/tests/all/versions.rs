//! Every row that a unit changes gets a new version: so that a state that was left and entered again is another one.

use std::collections::BTreeMap;

use muster_tests::World;
use muster_tests::course::Command;

/// Tables with a version, and their primary keys.
const VERSIONED: [(&str, &str); 6] = [
    ("merge_partition", "partition_key"),
    ("merge_batch", "id"),
    ("merge_batch_request", "id"),
    ("operation", "operation_id"),
    ("binding", "CONCAT_WS(' ', subject_id, target_key)"),
    ("target", "target_key"),
];

/// Of every row: its version, and all of it but that.
async fn rows(world: &World) -> BTreeMap<String, (u64, String)> {
    let mut all = BTreeMap::new();
    for (table, key) in VERSIONED {
        let columns: String = world
            .scalar(
                "SELECT GROUP_CONCAT('IFNULL(HEX(', column_name, '), ''-'')' ORDER BY ordinal_position) FROM information_schema.columns \
                 WHERE table_schema = DATABASE() AND table_name = ? AND column_name <> 'version'",
                (table,),
            )
            .await;
        let sql = format!("SELECT CONCAT('{table} ', {key}), version, CONCAT_WS(' ', {columns}) FROM {table}");
        all.extend(world.rows::<(String, u64, String)>(&sql, ()).await.into_iter().map(|(key, version, rest)| (key, (version, rest))));
    }
    all
}

#[tokio::test]
async fn every_guarded_write_raises_the_version() {
    let mut changed = 0;
    for command in Command::ALL {
        let state = command.prepare().await;
        let before = rows(&state.world).await;
        command.run(state.world.store(), &state, "first").await.unwrap_or_else(|error| panic!("{command:?}: {error}"));
        for (key, (version, now)) in rows(&state.world).await {
            let Some((old_version, old)) = before.get(&key) else { continue };
            if now != *old {
                changed += 1;
                assert!(version > *old_version, "{command:?} changed {key} and left its version at {version}");
            }
        }
    }
    assert!(changed > 40, "only {changed} rows were changed");
}
