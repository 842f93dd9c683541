//! Both backends keep the laws; the embedded one also keeps its promises over restarts and crashes.

#![expect(clippy::unwrap_used, reason = "a test that fails panics")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pharos_metadata::{
    Embedded, Expect, Memory, MetadataStore, OpenError, Options, ReadError, SessionEnd, WriteError,
    conformance,
};

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(future)
}

fn open(path: &Path) -> Embedded {
    Embedded::open(path, &Options::default()).unwrap()
}

#[test]
fn memory_keeps_the_laws() {
    run(async {
        conformance::all(&Memory::new()).await;
        conformance::after_shutdown_calls_fail(&Memory::new()).await;
        let store = Memory::new();
        conformance::all_of_sessions(&store, Duration::from_mins(1), &|time| store.pass(time)).await;
        conformance::sessions_end_with_the_store(&store, Duration::from_mins(1)).await;
    });
}

#[test]
fn embedded_keeps_the_laws() {
    let dir = tempfile::tempdir().unwrap();
    run(async {
        conformance::all(&open(&dir.path().join("a"))).await;
        conformance::after_shutdown_calls_fail(&open(&dir.path().join("b"))).await;
        let store = open(&dir.path().join("c"));
        conformance::all_of_sessions(&store, Duration::from_mins(1), &|time| store.pass(time)).await;
        conformance::sessions_end_with_the_store(&store, Duration::from_mins(1)).await;
    });
}

#[test]
fn a_session_of_the_embedded_store_ends_by_the_clock() {
    let dir = tempfile::tempdir().unwrap();
    run(async {
        let store = open(dir.path());
        let session = store.open_session(Duration::from_millis(30)).await.unwrap();
        session.put("a", Bytes::new(), Expect::Absent).await.unwrap();
        assert_eq!(session.ended().await, SessionEnd::Expired);
        assert_eq!(store.get("a").await.unwrap(), None);
    });
}

#[test]
fn ephemeral_keys_do_not_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let lives = [true, false, true];
    for (life, closes) in lives.into_iter().enumerate() {
        run(async {
            let store = open(dir.path());
            let keys = store.list("").await.unwrap();
            assert_eq!(keys.len(), life, "{keys:?}");
            assert!(keys.iter().all(|key| key.starts_with("plain/")), "{keys:?}");
            let session = store.open_session(Duration::from_mins(60)).await.unwrap();
            session
                .put("ephemeral/a", Bytes::from("x"), Expect::Absent)
                .await
                .unwrap();
            // Changed by another writer it is still in no file.
            store
                .put("ephemeral/a", Bytes::from("y"), Expect::Any)
                .await
                .unwrap();
            let plain = format!("plain/{life}");
            store.put(&plain, Bytes::from("z"), Expect::Absent).await.unwrap();
            if closes {
                store.shutdown().await;
            }
            drop(store);
            assert_eq!(session.ended().await, SessionEnd::StoreEnded);
        });
    }
    let fs = pharos_runtime::fs::RealFs;
    let look = Embedded::look(&fs, dir.path(), None, None).unwrap().unwrap();
    let keys: Vec<_> = look.items.iter().map(|item| item.key.as_str()).collect();
    assert_eq!(keys, ["plain/0", "plain/1", "plain/2"]);
}

#[test]
fn a_faulty_memory_store_refuses_writes_and_heals() {
    run(async {
        let store = Memory::new();
        store.fail_writes(Some("on demand"));
        let put = store.put("a", Bytes::new(), Expect::Any).await;
        assert!(matches!(put, Err(WriteError::Fault(_))));
        store.fail_writes(None);
        assert_eq!(store.get("a").await.unwrap(), None);
        store.put("a", Bytes::new(), Expect::Any).await.unwrap();
    });
}

#[test]
fn a_reopened_store_has_everything_and_goes_on_counting() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("metadata");
    let versions = run(async {
        let store = open(&path);
        let first = store
            .put("a/1", Bytes::from("one"), Expect::Absent)
            .await
            .unwrap();
        let second = store
            .put("a/2", Bytes::from("two"), Expect::Absent)
            .await
            .unwrap();
        store.delete("a/2", Expect::Version(second)).await.unwrap();
        let third = store
            .put("a/3", Bytes::from("three"), Expect::Absent)
            .await
            .unwrap();
        store.shutdown().await;
        [first, third]
    });
    run(async {
        let store = open(&path);
        let items = store.scan("a/").await.unwrap();
        let found: Vec<_> = items
            .iter()
            .map(|item| (item.key.as_str(), item.version))
            .collect();
        assert_eq!(found, [("a/1", versions[0]), ("a/3", versions[1])]);
        let next = store
            .put("a/1", Bytes::from("1"), Expect::Version(versions[0]))
            .await
            .unwrap();
        assert!(next > versions[1]);
        store.shutdown().await;
    });
}

#[test]
fn a_dropped_store_can_be_opened_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("metadata");
    for round in 0..5u8 {
        run(async {
            let store = open(&path);
            let found = store.get("round").await.unwrap().map(|found| found.value[0]);
            assert_eq!(found, round.checked_sub(1));
            store
                .put("round", Bytes::from(vec![round]), Expect::Any)
                .await
                .unwrap();
        });
    }
}

#[test]
fn ten_thousand_creations_are_few_commits() {
    let dir = tempfile::tempdir().unwrap();
    run(async {
        let store = Arc::new(open(&dir.path().join("metadata")));
        let creations = (0..10_000).map(|topic| {
            let key = format!("managed-ledgers/public/default/persistent/t-{topic}");
            store.put(&key, Bytes::from(vec![7; 100]), Expect::Absent)
        });
        for version in futures_util::future::join_all(creations).await {
            version.unwrap();
        }
        assert_eq!(store.list("managed-ledgers/").await.unwrap().len(), 10_000);
        store.shutdown().await;
    });
}

#[test]
fn one_process_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("metadata");
    let _first = open(&path);
    assert!(matches!(
        Embedded::open(&path, &Options::default()),
        Err(OpenError::InUse { .. })
    ));
}

#[test]
fn an_invalid_key_is_told_apart_from_a_fault() {
    run(async {
        let store = Memory::new();
        assert!(matches!(store.get("a//b").await, Err(ReadError::InvalidKey(_))));
    });
}

#[test]
fn foreign_bytes_are_an_error_and_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("metadata");
    std::fs::create_dir(&path).unwrap();
    let foreign = b"not a store at all, but the only copy of something";
    for copy in ["copy-1", "copy-2"] {
        std::fs::write(path.join(copy), foreign).unwrap();
    }
    let opened = Embedded::open(&path, &Options::default());
    assert!(matches!(opened, Err(OpenError::Damaged { .. })), "{opened:?}");
    for copy in ["copy-1", "copy-2"] {
        assert_eq!(std::fs::read(path.join(copy)).unwrap(), foreign);
    }
}
