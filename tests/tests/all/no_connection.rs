//! A server that is there and gives no connection: a fault for whoever asks, and nothing is left of it.

use muster_tests::deadline::within;
use muster_tests::probes::{At, Pause};
use muster_tests::steps::{Step, Steps};
use muster_tests::*;
use shared::{Store, StoreError, StoreOptions};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

const INSERT_A: &str = "/* test.insert_a */ INSERT INTO audit_record (dedup_key, action, actor) VALUES ('a', 'test', 'test')";
const INSERT_B: &str = "/* test.insert_b */ INSERT INTO audit_record (dedup_key, action, actor) VALUES ('b', 'test', 'test')";
const PASSWORD: &str = "few-of-a-test-1";
/// The whole packet: what a full server says instead of its greeting.
const TOO_MANY_CONNECTIONS: &[u8] = b"\x17\0\0\0\xff\x10\x04Too many connections";

#[tokio::test]
async fn a_user_whose_connections_are_used_up_is_served_again_when_one_is_free() {
    let world = World::new().await;
    let database: String = world.scalar("SELECT DATABASE()", ()).await;
    let user = format!("{database}_few");
    // Left by an earlier test that was ended.
    world.sql(&format!("DROP USER IF EXISTS '{user}'@'%'"), ()).await;
    world.sql(&format!("CREATE USER '{user}'@'%' IDENTIFIED BY '{PASSWORD}' WITH MAX_USER_CONNECTIONS 1"), ()).await;
    world.sql(&format!("GRANT SELECT, INSERT ON {database}.* TO '{user}'@'%'"), ()).await;
    let (_, address) = world.url().split_once('@').expect("a URL with a user");
    let url = format!("mysql://{user}:{PASSWORD}@{address}");
    let pause = Pause::new("steps", At::BeforeCommit);
    let store = world.store_with(|options| {
        options.url = url;
        options.connections = 2;
        options.probe = Some(pause.clone());
    });
    let holding = tokio::spawn({
        let store = store.clone();
        async move { store.run(&Steps(vec![Step::Write(INSERT_A)])).await }
    });
    pause.reached().await;
    let error = store.run(&Steps(vec![Step::Write(INSERT_B)])).await.expect_err("its one connection is in use");
    assert!(matches!(error, StoreError::Unreachable(_)) && error.is_fault() && error.is_outage(), "{error:?}");
    pause.release();
    assert_eq!(holding.await.expect("no panic").expect("committed"), ["written"]);
    assert_eq!(store.run(&Steps(vec![Step::Write(INSERT_B)])).await.expect("committed"), ["written"]);
    let recorded: Vec<String> = world.rows("SELECT dedup_key FROM audit_record ORDER BY dedup_key", ()).await;
    assert_eq!(recorded, ["a", "b"]);
    world.sql(&format!("DROP USER '{user}'@'%'"), ()).await;
}

#[tokio::test]
async fn a_server_with_too_many_connections_is_a_fault_after_three_tries() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
    let port = listener.local_addr().expect("bound").port();
    let full = tokio::spawn(async move {
        for _ in 0..3 {
            let (mut client, _) = listener.accept().await.expect("a client");
            client.write_all(TOO_MANY_CONNECTIONS).await.expect("the client listens");
        }
    });
    let store = Store::new(StoreOptions::new(format!("mysql://root@127.0.0.1:{port}/x"))).expect("a right address");
    let error = within("the answer", store.run(&Steps(vec![]))).await.expect_err("the server is full");
    assert!(matches!(error, StoreError::Unreachable(_)) && error.is_fault(), "{error:?}");
    within("the three tries", full).await.expect("it was asked three times");
}
