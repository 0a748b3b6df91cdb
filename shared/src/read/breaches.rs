//! Where a row that breaks an invariant belongs.

use serde_json::json;

use crate::error::StoreError;
use crate::ids::PartitionKey;
use crate::store::Store;

/// The words of a breach's id are keys of partitions, batches, requests or targets. `REGEXP` keeps a subject
/// that begins with a number from being taken for a batch.
const READ_PARTITIONS_OF: &str = "/* breaches.read_partitions_of */ \
    SELECT DISTINCT CAST(partition_key AS CHAR) FROM ( \
        SELECT p.partition_key FROM JSON_TABLE(?, '$[*]' COLUMNS (word VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin PATH '$')) AS j \
            JOIN merge_partition p ON p.partition_key = j.word \
        UNION ALL SELECT o.partition_key FROM JSON_TABLE(?, '$[*]' COLUMNS (word VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin PATH '$')) AS j \
            JOIN operation o ON o.operation_id = j.word \
        UNION ALL SELECT t.partition_key FROM JSON_TABLE(?, '$[*]' COLUMNS (word VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin PATH '$')) AS j \
            JOIN target t ON t.target_key = j.word \
        UNION ALL SELECT b.partition_key FROM JSON_TABLE(?, '$[*]' COLUMNS (word VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin PATH '$')) AS j \
            JOIN merge_batch b ON b.id = CAST(IF(j.word REGEXP '^[0-9]{1,19}$', j.word, '0') AS UNSIGNED) \
    ) AS found ORDER BY 1";

/// Partitions that the id of a breach leads to; none where it leads to no row.
pub async fn partitions_of(store: &Store, id: &str) -> Result<Vec<PartitionKey>, StoreError> {
    let words = json!(id.split(' ').filter(|word| word.len() <= 255).collect::<Vec<_>>()).to_string();
    let rows = store.rows::<(String,)>(READ_PARTITIONS_OF, (&words, &words, &words, &words)).await?;
    // What is no key of a partition any more leads nowhere.
    Ok(rows.into_iter().filter_map(|(key,)| PartitionKey::parse(key).ok()).collect())
}
