//! Waiting for a state instead of for a time: the deadline only ends a test that would never end.

use std::future::Future;
use std::time::{Duration, Instant};

/// Far above what any state takes on a slow machine.
pub const DEADLINE: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Looks until `look` finds something.
///
/// # Panics
/// When the deadline passes, naming what was awaited.
pub async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(started.elapsed() < DEADLINE, "{what} did not come about within {} s", DEADLINE.as_secs());
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Awaits something that must end by itself.
///
/// # Panics
/// When the deadline passes, naming what was awaited.
pub async fn within<T>(what: &str, doing: impl Future<Output = T>) -> T {
    match tokio::time::timeout(DEADLINE, doing).await {
        Ok(done) => done,
        Err(_) => panic!("{what} did not come about within {} s", DEADLINE.as_secs()),
    }
}
