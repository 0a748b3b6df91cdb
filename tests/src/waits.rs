//! Who waits for a lock right now, as each server tells it.

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Row};

use crate::deadline::until;
use crate::world::World;

/// MySQL keeps a table of it. Not innodb_trx: that is a cache, renewed only when nobody has read it for 100 ms.
const WAITS: &str = "SELECT CAST(l.object_name AS CHAR) FROM performance_schema.data_lock_waits w \
                     JOIN performance_schema.data_locks l ON l.engine_lock_id = w.requesting_engine_lock_id \
                     WHERE l.object_schema = DATABASE()";

/// MariaDB has only that cache, and the report of its monitor.
const MONITOR: &str = "SHOW ENGINE INNODB STATUS";

impl World {
    /// Whether the server is a MariaDB.
    pub async fn is_mariadb(&self) -> bool {
        self.scalar::<String>("SELECT VERSION()", ()).await.contains("MariaDB")
    }

    /// Returns once a transaction on this database waits for a row lock. May be dropped while it looks.
    pub async fn until_somebody_waits_for_a_lock(&self) {
        self.until_waits("a wait for a lock", |_| true).await;
    }

    /// The same, for a lock on a row of this table.
    pub async fn until_somebody_waits_at(&self, table: &str) {
        self.until_waits(&format!("a wait for a lock on a row of {table}"), |waited| waited == table).await;
    }

    async fn until_waits(&self, what: &str, is_it: impl Fn(&str) -> bool) {
        // A session of its own: one whose answer was not awaited can never be used again.
        let mut session = self.session().await;
        let named: Option<(String, String)> = session.query_first("SELECT VERSION(), DATABASE()").await.expect("a server has a name");
        let (version, database) = named.expect("one row");
        let is_mariadb = version.contains("MariaDB");
        until(what, async || {
            let tables = if is_mariadb {
                reported(&mut session, &database).await
            } else {
                session.query(WAITS).await.expect("the waits can be read")
            };
            tables.iter().any(|table: &String| is_it(table)).then_some(())
        })
        .await;
    }
}

/// Tables of this database at whose rows, by the monitor's report, somebody waits.
async fn reported(session: &mut Conn, database: &str) -> Vec<String> {
    let row: Option<Row> = session.query_first(MONITOR).await.expect("the monitor can be read");
    // It quotes statements, whose parameters may be binary.
    let report: Vec<u8> = row.and_then(|mut row| row.take("Status")).expect("a report");
    let report = String::from_utf8_lossy(&report).into_owned();
    waited_for(&report, database)
}

/// Each wait is followed by the lock that is waited for, and that names its table.
fn waited_for(report: &str, database: &str) -> Vec<String> {
    let waits = report.split("TRX HAS BEEN WAITING").skip(1);
    let of_table = format!("table `{database}`.`");
    waits
        .filter_map(|wait| {
            let lock = wait.lines().nth(1)?;
            let (_, rest) = lock.split_once(&of_table)?;
            Some(rest.split_once('`')?.0.to_owned())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::waited_for;

    #[test]
    fn the_monitor_tells_who_waits_in_which_database() {
        let report = "---TRANSACTION 75, ACTIVE 0 sec starting index read\n\
            ------- TRX HAS BEEN WAITING 299510 us FOR THIS LOCK TO BE GRANTED:\n\
            RECORD LOCKS space id 18 page no 3 n bits 320 index PRIMARY of table `t`.`z` trx id 75 lock_mode X waiting\n\
            ---TRANSACTION 76, ACTIVE 0 sec\n\
            ------- TRX HAS BEEN WAITING 5 us FOR THIS LOCK TO BE GRANTED:\n\
            RECORD LOCKS space id 19 page no 3 n bits 320 index PRIMARY of table `u`.`y` trx id 76 lock_mode X waiting\n";
        assert_eq!(waited_for(report, "t"), ["z"]);
        assert_eq!(waited_for(report, "u"), ["y"]);
        assert!(waited_for(report, "v").is_empty());
    }
}
