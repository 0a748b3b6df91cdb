//! Transactions written by hand, and what happens where two of them meet.

use muster_tests::World;
use muster_tests::deadline::within;
use mysql_async::Conn;
use mysql_async::prelude::Queryable;

pub const DEADLOCK: u16 = 1213;

/// A transaction written by hand.
pub struct Hand(pub Conn);

impl Hand {
    pub async fn open(world: &World) -> Self {
        let mut session = world.session().await;
        // Only a deadlock or a release may end a wait.
        session.query_drop("SET SESSION innodb_lock_wait_timeout = 30").await.expect("a session can be set up");
        session.query_drop("START TRANSACTION").await.expect("a transaction can be begun");
        Self(session)
    }

    pub async fn does(&mut self, sql: &str) -> Result<(), u16> {
        match self.0.query_drop(sql).await {
            Ok(()) => Ok(()),
            Err(mysql_async::Error::Server(error)) => Err(error.code),
            Err(why) => panic!("{sql}: {why}"),
        }
    }

    pub async fn commit(mut self) {
        self.0.query_drop("COMMIT").await.expect("a transaction can be committed");
    }
}

/// `first` stands; `second` runs into it and waits; then `first` goes on. What came of either.
pub async fn meet(world: &World, mut first: Hand, then: &str, second: &str) -> (Result<(), u16>, Result<(), u16>) {
    let mut other = Hand::open(world).await;
    let second = second.to_owned();
    let waiting = tokio::spawn(async move {
        let came = other.does(&second).await;
        other.commit().await;
        came
    });
    world.until_somebody_waits_for_a_lock().await;
    let went = first.does(then).await;
    first.commit().await;
    (went, within("the second", waiting).await.expect("no panic"))
}

/// Does this statement wait for what `holder` holds? Ends the wait, if there is one.
pub async fn waits_for(world: &World, holder: Hand, sql: &str) -> bool {
    let mut other = Hand::open(world).await;
    let sql = sql.to_owned();
    let mut running = tokio::spawn(async move { other.does(&sql).await });
    let waited = tokio::select! {
        ended = &mut running => {
            assert_eq!(ended.expect("no panic"), Ok(()));
            false
        }
        () = world.until_somebody_waits_for_a_lock() => true,
    };
    holder.commit().await;
    if waited {
        assert_eq!(within("the waiting statement", running).await.expect("no panic"), Ok(()));
    }
    waited
}

/// The same as [`waits_for`], but nothing of the holder stays.
pub async fn waits_for_rolled_back(world: &World, mut holder: Hand, sql: &str) -> bool {
    let mut other = Hand::open(world).await;
    let sql = sql.to_owned();
    let mut running = tokio::spawn(async move {
        let came = other.does(&sql).await;
        other.0.query_drop("ROLLBACK").await.expect("it can be rolled back");
        came
    });
    let waited = tokio::select! {
        ended = &mut running => {
            assert_eq!(ended.expect("no panic"), Ok(()));
            false
        }
        () = world.until_somebody_waits_for_a_lock() => true,
    };
    holder.0.query_drop("ROLLBACK").await.expect("it can be rolled back");
    if waited {
        assert_eq!(within("the waiting statement", running).await.expect("no panic"), Ok(()));
    }
    waited
}
