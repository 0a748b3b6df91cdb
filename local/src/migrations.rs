//! The schema of Muster, as the versioned files of `migrations/`, applied forward only.

use anyhow::{Context, Result, bail};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts, Pool};

mod embedded {
    refinery::embed_migrations!("../migrations");
}

/// How long a second migrator waits for the first, in seconds.
const WAIT_FOR_OTHER_MIGRATOR_S: u32 = 120;

/// Applies the migrations that the database of `url` does not have yet, and returns their names in order.
///
/// Safe to run from several processes at once: the second one waits and finds nothing to do.
///
/// # Errors
/// If the database cannot be reached, if an applied migration was changed or is missing here, or if a statement
/// fails. MySQL commits each `CREATE` and `ALTER` by itself, so a migration that failed half-way stays half-applied
/// and is not recorded: the message says which one.
pub async fn apply(url: &str) -> Result<Vec<String>> {
    let options = Opts::from_url(url).context("the database URL is not of the form mysql://user:password@host:port/database")?;
    let database = options.db_name().context("the database URL names no database: add /muster at its end")?.to_owned();
    let mut guard = Conn::new(options.clone()).await.context("the database cannot be reached for the migrations")?;
    let name = format!("muster.migrations.{database}");
    let locked: Option<Option<i64>> = guard
        .exec_first("SELECT GET_LOCK(LEFT(?, 64), ?)", (&name, WAIT_FOR_OTHER_MIGRATOR_S))
        .await
        .context("the lock for the migrations cannot be asked for")?;
    if locked.flatten() != Some(1) {
        bail!(
            "another process has been applying migrations to {database} for {WAIT_FOR_OTHER_MIGRATOR_S} s: \
             look for it with SHOW PROCESSLIST, or try again"
        );
    }
    let mut pool = Pool::new(options);
    let report = embedded::migrations::runner().run_async(&mut pool).await;
    let disconnected = pool.disconnect().await;
    // Closing the session frees the lock, on every path.
    let closed = guard.disconnect().await;
    let report = report.with_context(|| format!("a migration of {database} failed; its statements before the failing one stay applied"))?;
    disconnected.context("the connections of the migrations did not close")?;
    closed.context("the connection that held the lock of the migrations did not close")?;
    Ok(report.applied_migrations().iter().map(ToString::to_string).collect())
}
