//! The laws of [`MetadataStore`], as functions that any backend's tests call with an empty store.

#![expect(clippy::unwrap_used, reason = "a broken law panics")]

use bytes::Bytes;

use crate::{Event, Expect, MetadataStore, VALUE_BYTES_MAX, Version, WriteError};

mod sessions;

pub use sessions::{all_of_sessions, sessions_end_with_the_store};

/// Runs every law, each below its own path.
pub async fn all(store: &dyn MetadataStore) {
    what_was_put_is_read(store).await;
    expectations_guard_writes(store).await;
    versions_never_come_back(store).await;
    prefixes_list_in_order(store).await;
    watches_tell_in_order(store).await;
    a_slow_watch_is_told_to_list_again(store).await;
    bad_keys_and_values_are_refused(store).await;
    numbers_of_a_sequence_are_given_out_once(store).await;
}

async fn put(store: &dyn MetadataStore, key: &str, value: &str) -> Version {
    store
        .put(key, Bytes::from(value.to_owned()), Expect::Any)
        .await
        .unwrap()
}

/// A put is seen by every later read, byte for byte, also when it is empty.
pub async fn what_was_put_is_read(store: &dyn MetadataStore) {
    assert_eq!(store.get("read/a").await.unwrap(), None);
    for value in ["one", "", "three"] {
        let version = put(store, "read/a", value).await;
        let found = store.get("read/a").await.unwrap().unwrap();
        assert_eq!((found.value.as_ref(), found.version), (value.as_bytes(), version));
    }
    assert!(store.delete("read/a", Expect::Any).await.unwrap());
    assert!(!store.delete("read/a", Expect::Any).await.unwrap());
    assert_eq!(store.get("read/a").await.unwrap(), None);
}

/// A write whose expectation does not hold changes nothing and says what is there.
pub async fn expectations_guard_writes(store: &dyn MetadataStore) {
    let refused = |outcome: Result<Version, WriteError>| match outcome {
        Err(WriteError::Conflict { current, .. }) => current,
        other => panic!("expected a conflict, got {other:?}"),
    };
    let (key, value) = ("expect/a", Bytes::from("v"));
    assert_eq!(
        refused(store.put(key, value.clone(), Expect::Version(Version(7))).await),
        None
    );
    let first = store.put(key, value.clone(), Expect::Absent).await.unwrap();
    assert_eq!(
        refused(store.put(key, Bytes::from("x"), Expect::Absent).await),
        Some(first)
    );
    let second = store
        .put(key, value.clone(), Expect::Version(first))
        .await
        .unwrap();
    assert_eq!(
        refused(store.put(key, Bytes::from("x"), Expect::Version(first)).await),
        Some(second)
    );
    assert!(matches!(
        store.delete(key, Expect::Version(first)).await,
        Err(WriteError::Conflict { current: Some(current), .. }) if current == second
    ));
    assert_eq!(store.get(key).await.unwrap().unwrap().value, value);
    assert!(store.delete(key, Expect::Version(second)).await.unwrap());
    assert_eq!(store.get(key).await.unwrap(), None);
}

/// Each put gives a version that the key has not had, also after it was deleted.
pub async fn versions_never_come_back(store: &dyn MetadataStore) {
    let first = put(store, "versions/a", "same").await;
    let second = put(store, "versions/a", "same").await;
    assert!(second > first);
    store.delete("versions/a", Expect::Any).await.unwrap();
    let third = put(store, "versions/a", "same").await;
    assert!(third != first && third != second);
}

/// Prefixes are plain strings and answers are in byte order.
pub async fn prefixes_list_in_order(store: &dyn MetadataStore) {
    for key in [
        "list/b/2", "list/b", "list/b/1", "list/a", "list/bb", "list/c/x", "lisu",
    ] {
        put(store, key, key).await;
    }
    let below = store.list("list/b/").await.unwrap();
    assert_eq!(below, ["list/b/1", "list/b/2"]);
    let all = store.list("list/").await.unwrap();
    assert_eq!(
        all,
        ["list/a", "list/b", "list/b/1", "list/b/2", "list/bb", "list/c/x"]
    );
    let items = store.scan("list/b").await.unwrap();
    assert_eq!(items.len(), 4);
    for item in items {
        assert_eq!(item.key.as_bytes(), item.value);
        assert_eq!(store.get(&item.key).await.unwrap().unwrap().version, item.version);
    }
    assert!(store.list("nothing/").await.unwrap().is_empty());
    assert!(store.list("").await.unwrap().len() >= 7);
}

/// A watch reports its prefix only, in order, from when it was made.
pub async fn watches_tell_in_order(store: &dyn MetadataStore) {
    put(store, "watch/a", "before").await;
    let mut watch = store.watch("watch/");
    put(store, "elsewhere", "x").await;
    let one = put(store, "watch/a", "1").await;
    let two = put(store, "watch/b", "2").await;
    store.delete("watch/a", Expect::Any).await.unwrap();
    store.delete("watch/a", Expect::Any).await.unwrap();
    let refused = store.put("watch/b", Bytes::new(), Expect::Absent).await;
    assert!(refused.is_err());
    let three = put(store, "watch/c", "3").await;
    let expected = [
        Event::Put {
            key: "watch/a".into(),
            version: one,
        },
        Event::Put {
            key: "watch/b".into(),
            version: two,
        },
        Event::Deleted {
            key: "watch/a".into(),
        },
        Event::Put {
            key: "watch/c".into(),
            version: three,
        },
    ];
    for event in expected {
        assert_eq!(watch.next().await, Some(event));
    }
}

/// A watch that is not read holds nothing back and finds out that it missed something.
pub async fn a_slow_watch_is_told_to_list_again(store: &dyn MetadataStore) {
    let mut watch = store.watch("slow/");
    for round in 0..1_000 {
        let keys = [format!("slow/{round}"), format!("slow/x{round}")];
        let puts = keys
            .each_ref()
            .map(|key| store.put(key, Bytes::new(), Expect::Any));
        let [first, second] = puts;
        let (first, second) = tokio::join!(first, second);
        first.and(second).unwrap();
    }
    assert_eq!(watch.next().await, Some(Event::Lagged));
    assert!(matches!(watch.next().await, Some(Event::Put { .. })));
}

/// Every backend refuses keys and values that one backend could not hold.
pub async fn bad_keys_and_values_are_refused(store: &dyn MetadataStore) {
    for key in ["", "/a", "a/", "a//b"] {
        assert!(store.get(key).await.is_err(), "{key}");
        let put = store.put(key, Bytes::new(), Expect::Any).await;
        assert!(matches!(put, Err(WriteError::InvalidKey(_))), "{key}");
        assert!(
            matches!(
                store.delete(key, Expect::Any).await,
                Err(WriteError::InvalidKey(_))
            ),
            "{key}"
        );
    }
    let large = Bytes::from(vec![1; VALUE_BYTES_MAX + 1]);
    assert!(matches!(
        store.put("large", large.clone(), Expect::Any).await,
        Err(WriteError::TooLarge { .. })
    ));
    store.put("large", large.slice(1..), Expect::Any).await.unwrap();
    assert_eq!(
        store.get("large").await.unwrap().unwrap().value.len(),
        VALUE_BYTES_MAX
    );
}

/// From 0 on, rising, for all callers together; sequences do not know of each other.
pub async fn numbers_of_a_sequence_are_given_out_once(store: &dyn MetadataStore) {
    let mut last = store.sequence("sequence/a/ID-").await.unwrap();
    assert_eq!(last, 0);
    for _ in 0..3 {
        let next = store.sequence("sequence/a/ID-").await.unwrap();
        assert!(next > last, "{next} after {last}");
        last = next;
    }
    let ask = || store.sequence("sequence/a/ID-");
    let (a, b, c) = tokio::join!(ask(), ask(), ask());
    let mut given = vec![last, a.unwrap(), b.unwrap(), c.unwrap()];
    given.sort_unstable();
    given.dedup();
    assert_eq!((given.len(), given[0]), (4, last), "{given:?}");
    assert_eq!(store.sequence("sequence/b/ID-").await.unwrap(), 0);
    assert!(matches!(
        store.sequence("/x").await,
        Err(WriteError::InvalidKey(_))
    ));
}

/// After shutdown nothing hangs: calls fail and watches end.
pub async fn after_shutdown_calls_fail(store: &dyn MetadataStore) {
    put(store, "last", "1").await;
    let mut watch = store.watch("");
    put(store, "last", "2").await;
    store.shutdown().await;
    store.shutdown().await;
    assert!(matches!(watch.next().await, Some(Event::Put { .. })));
    assert_eq!(watch.next().await, None);
    assert_eq!(store.watch("").next().await, None);
    assert!(store.get("last").await.is_err());
    assert!(store.list("").await.is_err());
    assert!(matches!(
        store.put("last", Bytes::new(), Expect::Any).await,
        Err(WriteError::Fault(_))
    ));
}
