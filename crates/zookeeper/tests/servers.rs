//! The laws of the `metadata` contract on a real ZooKeeper, which `ZOOKEEPER_ADDRESS` names. Run by tests/bookkeeper/run.sh.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::time::Duration;

use bytes::Bytes;
use pharos_metadata::{Expect, MetadataStore, conformance};
use pharos_zookeeper::{ConnectOptions, ZooKeeper};

fn address() -> String {
    std::env::var("ZOOKEEPER_ADDRESS")
        .expect("no ZOOKEEPER_ADDRESS: this test is run by tests/bookkeeper/run.sh")
}

async fn fresh(address: &str, root: &str) -> ZooKeeper {
    let address = format!("{address}/{root}");
    let store = ZooKeeper::connect(&address, Duration::from_secs(10), ConnectOptions::default())
        .await
        .unwrap();
    // Left by a run before.
    for key in store.list("").await.unwrap().into_iter().rev() {
        store.delete(&key, Expect::Any).await.unwrap();
    }
    store
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(test);
}

#[test]
fn zookeeper_keeps_the_laws() {
    let address = address();
    run(async {
        let root = format!("laws-{}", std::process::id());
        let store = fresh(&address, &root).await;
        conformance::all(&store).await;
        conformance::after_shutdown_calls_fail(&store).await;
    });
}

#[test]
fn sessions_of_zookeeper_keep_the_laws() {
    let address = address();
    run(async {
        let root = format!("sessions-{}", std::process::id());
        let store = fresh(&address, &root).await;
        let time = Duration::from_secs(3);
        conformance::all_of_sessions(&store, time, &std::thread::sleep).await;
        conformance::sessions_end_with_the_store(&store, time).await;
    });
}

#[test]
fn parents_that_were_made_are_no_keys() {
    let address = address();
    run(async {
        let root = format!("parents-{}/below", std::process::id());
        let store = fresh(&address, &root).await;
        store
            .put("a/b/c", Bytes::from("x"), Expect::Absent)
            .await
            .unwrap();
        assert_eq!(store.list("").await.unwrap(), ["a/b/c"]);
        assert!(store.get("a/b").await.unwrap().is_none());
        let version = store.put("a/b", Bytes::from("y"), Expect::Absent).await.unwrap();
        assert_eq!(store.list("").await.unwrap(), ["a/b", "a/b/c"]);
        assert!(store.delete("a/b", Expect::Version(version)).await.unwrap());
        assert_eq!(store.list("").await.unwrap(), ["a/b/c"]);
        assert_eq!(store.get("a/b/c").await.unwrap().unwrap().value, "x");
        store.shutdown().await;
    });
}
