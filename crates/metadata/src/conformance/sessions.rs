//! The laws of sessions and ephemeral keys.
//!
//! A law never waits for a clock: it asks for sessions of a certain time and lets that pass with the `pass` of the backend under test,
//! which for a remote one is a sleep.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::put;
use crate::{
    Event, Expect, MetadataStore, Session, SessionEnd, SessionError, SessionWriteError, Version, Watch,
    WriteError,
};

/// Runs every law of sessions, each below its own path, with sessions that last `time`. `pass` lets time pass for the sessions of
/// `store`.
pub async fn all_of_sessions(store: &dyn MetadataStore, time: Duration, pass: &dyn Fn(Duration)) {
    ephemeral_keys_are_keys(store, time).await;
    ephemeral_keys_go_when_their_session_is_closed(store, time).await;
    a_session_that_is_not_renewed_ends(store, time, pass).await;
    a_session_that_is_renewed_lives(store, time, pass).await;
    a_key_belongs_to_one_session(store, time).await;
    a_key_stays_ephemeral_through_every_change(store, time).await;
    one_of_many_takes_over(store, time, pass).await;
}

async fn open(store: &dyn MetadataStore, time: Duration) -> Arc<dyn Session> {
    store.open_session(time).await.unwrap()
}

async fn put_of(session: &dyn Session, key: &str, value: &str) -> Version {
    let value = Bytes::from(value.to_owned());
    session.put(key, value, Expect::Any).await.unwrap()
}

/// Version found by a put of an ephemeral key that met a conflict.
fn refused(outcome: Result<Version, SessionWriteError>) -> Option<Version> {
    match outcome {
        Err(SessionWriteError::Write(WriteError::Conflict { current, .. })) => current,
        other => panic!("expected a conflict, got {other:?}"),
    }
}

/// Waits until `key` is told to be gone.
async fn told_gone(watch: &mut Watch, key: &str) {
    loop {
        match watch.next().await.unwrap() {
            Event::Deleted { key: gone } if &*gone == key => return,
            Event::Lagged => panic!("the watch lagged"),
            _ => {}
        }
    }
}

/// Reads, lists, watches, versions and expectations are those of any key.
async fn ephemeral_keys_are_keys(store: &dyn MetadataStore, time: Duration) {
    let session = open(store, time).await;
    assert_eq!(session.timeout(), time);
    let mut watch = store.watch("ephemeral/plain/");
    put(store, "ephemeral/plain/a", "1").await;
    let first = put_of(&*session, "ephemeral/plain/b", "2").await;
    put(store, "ephemeral/plain/c", "3").await;
    assert_eq!(
        refused(
            session
                .put("ephemeral/plain/b", Bytes::new(), Expect::Absent)
                .await
        ),
        Some(first)
    );
    let value = Bytes::from("22");
    let second = session
        .put("ephemeral/plain/b", value, Expect::Version(first))
        .await;
    let second = second.unwrap();
    assert!(second > first);
    let found = store.get("ephemeral/plain/b").await.unwrap().unwrap();
    assert_eq!((found.value.as_ref(), found.version), (b"22".as_ref(), second));
    let keys = store.list("ephemeral/plain/").await.unwrap();
    assert_eq!(
        keys,
        ["ephemeral/plain/a", "ephemeral/plain/b", "ephemeral/plain/c"]
    );
    assert_eq!(store.scan("ephemeral/plain/").await.unwrap()[1].version, second);
    for key in ["a", "b", "c", "b"] {
        let event = watch.next().await.unwrap();
        let Event::Put { key: put, .. } = event else {
            panic!("expected a put, got {event:?}");
        };
        assert_eq!(*put, format!("ephemeral/plain/{key}"));
    }
    let bad = session.put("/a", Bytes::new(), Expect::Any).await;
    assert!(matches!(
        bad,
        Err(SessionWriteError::Write(WriteError::InvalidKey(_)))
    ));
    session.close().await;
}

/// After `close` returns, the session's ephemeral keys are gone; those of others and its plain keys remain.
async fn ephemeral_keys_go_when_their_session_is_closed(store: &dyn MetadataStore, time: Duration) {
    let (session, other) = (open(store, time).await, open(store, time).await);
    assert_ne!(session.id(), other.id());
    let version = put_of(&*session, "ephemeral/closed/a", "a").await;
    put_of(&*session, "ephemeral/closed/b", "b").await;
    put_of(&*other, "ephemeral/closed/c", "c").await;
    put(store, "ephemeral/closed/d", "d").await;
    let mut watch = store.watch("ephemeral/closed/a");
    session.close().await;
    session.close().await;
    assert_eq!(session.ended().await, SessionEnd::Closed);
    let keys = store.list("ephemeral/closed/").await.unwrap();
    assert_eq!(keys, ["ephemeral/closed/c", "ephemeral/closed/d"]);
    told_gone(&mut watch, "ephemeral/closed/a").await;
    let late = session.put("ephemeral/closed/a", Bytes::new(), Expect::Any).await;
    assert!(
        matches!(late, Err(SessionWriteError::Ended(SessionEnd::Closed))),
        "{late:?}"
    );
    let late = session.renew().await;
    assert!(
        matches!(late, Err(SessionError::Ended(SessionEnd::Closed))),
        "{late:?}"
    );
    other.renew().await.unwrap();
    let again = put_of(&*other, "ephemeral/closed/a", "again").await;
    assert!(again > version, "a version came back");
    other.close().await;
    assert_eq!(
        store.list("ephemeral/closed/").await.unwrap(),
        ["ephemeral/closed/d"]
    );
}

/// Its keys go, watches are told, and it is told; whether anyone holds it does not matter.
async fn a_session_that_is_not_renewed_ends(
    store: &dyn MetadataStore,
    time: Duration,
    pass: &dyn Fn(Duration),
) {
    let mut watch = store.watch("ephemeral/expired/");
    let (session, left) = (open(store, time).await, open(store, time).await);
    put_of(&*session, "ephemeral/expired/a", "a").await;
    put_of(&*left, "ephemeral/expired/b", "b").await;
    drop(left);
    assert!(store.get("ephemeral/expired/b").await.unwrap().is_some());
    pass(time);
    assert_eq!(session.ended().await, SessionEnd::Expired);
    assert_eq!(store.get("ephemeral/expired/a").await.unwrap(), None);
    told_gone(&mut watch, "ephemeral/expired/a").await;
    told_gone(&mut watch, "ephemeral/expired/b").await;
    assert!(store.list("ephemeral/expired/").await.unwrap().is_empty());
    let late = session
        .put("ephemeral/expired/a", Bytes::new(), Expect::Any)
        .await;
    assert!(
        matches!(late, Err(SessionWriteError::Ended(SessionEnd::Expired))),
        "{late:?}"
    );
    let late = session.renew().await;
    assert!(
        matches!(late, Err(SessionError::Ended(SessionEnd::Expired))),
        "{late:?}"
    );
    session.close().await;
    assert_eq!(session.ended().await, SessionEnd::Expired);
}

/// However long.
async fn a_session_that_is_renewed_lives(store: &dyn MetadataStore, time: Duration, pass: &dyn Fn(Duration)) {
    let (session, witness) = (open(store, time).await, open(store, time).await);
    let version = put_of(&*session, "ephemeral/renewed", "a").await;
    for _ in 0..4 {
        pass(time * 2 / 3);
        session.renew().await.unwrap();
    }
    assert_eq!(witness.ended().await, SessionEnd::Expired);
    let found = store.get("ephemeral/renewed").await.unwrap().unwrap();
    assert_eq!(found.version, version);
    put_of(&*session, "ephemeral/renewed", "b").await;
    session.close().await;
}

/// A put of an ephemeral key takes no key away, neither from another session nor from those without one.
async fn a_key_belongs_to_one_session(store: &dyn MetadataStore, time: Duration) {
    let (one, two) = (open(store, time).await, open(store, time).await);
    let version = put_of(&*one, "ephemeral/owned/a", "one").await;
    for expect in [Expect::Any, Expect::Absent, Expect::Version(version)] {
        let put = two.put("ephemeral/owned/a", Bytes::from("two"), expect).await;
        assert_eq!(refused(put), Some(version));
    }
    let plain = put(store, "ephemeral/owned/b", "plain").await;
    let outcome = one.put("ephemeral/owned/b", Bytes::new(), Expect::Any).await;
    assert_eq!(refused(outcome), Some(plain));
    assert!(
        store
            .delete("ephemeral/owned/a", Expect::Version(version))
            .await
            .unwrap()
    );
    put_of(&*two, "ephemeral/owned/a", "two").await;
    one.close().await;
    assert_eq!(
        store
            .get("ephemeral/owned/a")
            .await
            .unwrap()
            .unwrap()
            .value
            .as_ref(),
        b"two"
    );
    two.close().await;
    assert_eq!(
        store.list("ephemeral/owned/").await.unwrap(),
        ["ephemeral/owned/b"]
    );
}

/// A plain put of an ephemeral key changes its value, not whose it is; deleted and put again it is a plain one.
async fn a_key_stays_ephemeral_through_every_change(store: &dyn MetadataStore, time: Duration) {
    let session = open(store, time).await;
    let first = put_of(&*session, "ephemeral/changed/a", "1").await;
    let value = Bytes::from("2");
    let second = store
        .put("ephemeral/changed/a", value, Expect::Version(first))
        .await;
    assert_eq!(
        refused(
            session
                .put("ephemeral/changed/a", Bytes::new(), Expect::Version(first))
                .await
        ),
        Some(second.unwrap())
    );
    put_of(&*session, "ephemeral/changed/a", "3").await;
    put_of(&*session, "ephemeral/changed/b", "1").await;
    store.delete("ephemeral/changed/b", Expect::Any).await.unwrap();
    put(store, "ephemeral/changed/b", "plain").await;
    session.close().await;
    assert_eq!(
        store.list("ephemeral/changed/").await.unwrap(),
        ["ephemeral/changed/b"]
    );
}

/// Ownership passes on: all watchers try, and exactly one succeeds.
async fn one_of_many_takes_over(store: &dyn MetadataStore, time: Duration, pass: &dyn Fn(Duration)) {
    let key = "ephemeral/taken";
    let first = open(store, time).await;
    put_of(&*first, key, "first").await;
    pass(time / 2);
    let next = [
        open(store, time).await,
        open(store, time).await,
        open(store, time).await,
    ];
    let mut watch = store.watch(key);
    pass(time / 2);
    told_gone(&mut watch, key).await;
    let [a, b, c] = next
        .each_ref()
        .map(|session| session.put(key, Bytes::from(session.id().to_string()), Expect::Absent));
    let (a, b, c) = tokio::join!(a, b, c);
    let won: Vec<_> = next
        .iter()
        .zip([a, b, c])
        .filter_map(|(session, put)| put.is_ok().then(|| session.id().to_string()))
        .collect();
    let found = store.get(key).await.unwrap().unwrap();
    assert_eq!(won, [std::str::from_utf8(&found.value).unwrap()]);
    for session in next {
        session.close().await;
    }
    assert_eq!(store.get(key).await.unwrap(), None);
}

/// Nothing hangs and no holder goes on believing: sessions end when the store is shut down.
pub async fn sessions_end_with_the_store(store: &dyn MetadataStore, time: Duration) {
    let session = open(store, time).await;
    put_of(&*session, "last", "1").await;
    store.shutdown().await;
    assert_eq!(session.ended().await, SessionEnd::StoreEnded);
    assert!(session.put("last", Bytes::new(), Expect::Any).await.is_err());
    assert!(session.renew().await.is_err());
    session.close().await;
    assert!(matches!(
        store.open_session(time).await,
        Err(SessionError::Fault(_))
    ));
}
