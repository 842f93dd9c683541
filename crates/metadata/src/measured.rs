//! A store that counts what is asked of it, and how long the answers take.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use pharos_runtime::Histogram;
use pharos_runtime::clock::{self, Nanos};

use crate::{
    BoxFuture, Expect, Fault, Item, MetadataStore, ReadError, Session, SessionError, Version, Versioned,
    Watch, WriteError,
};

/// Kind and outcome of a request. A conflict is an answer that Pulsar counts as a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreOperation {
    /// `get`, `put` or `del`, in Pulsar's words.
    pub kind: &'static str,
    /// True if the request succeeded.
    pub is_ok: bool,
}

const ASKED: [StoreOperation; 6] = [
    asked("get", true),
    asked("get", false),
    asked("put", true),
    asked("put", false),
    asked("del", true),
    asked("del", false),
];

const fn asked(kind: &'static str, is_ok: bool) -> StoreOperation {
    StoreOperation { kind, is_ok }
}

/// Wraps a store. Requests for single keys are measured, as Pulsar measures them; what goes through a session, a listing or a watch is
/// not.
pub struct Measured {
    store: Arc<dyn MetadataStore>,
    latencies: [Mutex<Histogram>; 6],
    put_bytes: AtomicU64,
}

impl Measured {
    /// Counts from now on.
    #[must_use]
    pub fn new(store: Arc<dyn MetadataStore>) -> Self {
        Self {
            store,
            latencies: Default::default(),
            put_bytes: AtomicU64::new(0),
        }
    }

    /// Latencies of each kind of request.
    #[must_use]
    pub fn latencies(&self) -> Vec<(StoreOperation, Histogram)> {
        let of = |(asked, slot): (StoreOperation, &Mutex<Histogram>)| {
            let latency = slot.lock().unwrap_or_else(PoisonError::into_inner);
            (asked, latency.clone())
        };
        ASKED.into_iter().zip(&self.latencies).map(of).collect()
    }

    /// Bytes of values that were put.
    #[must_use]
    pub fn put_bytes(&self) -> u64 {
        self.put_bytes.load(Ordering::Relaxed)
    }

    fn record(&self, kind: &'static str, is_ok: bool, began: Nanos) {
        let wanted = asked(kind, is_ok);
        let found = ASKED.iter().zip(&self.latencies).find(|(it, _)| **it == wanted);
        if let Some((_, slot)) = found {
            let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
            slot.record(clock::now().since(began));
        }
    }
}

impl MetadataStore for Measured {
    fn get(&self, key: &str) -> BoxFuture<'_, Result<Option<Versioned>, ReadError>> {
        let key = key.to_owned();
        Box::pin(async move {
            let began = clock::now();
            let answer = self.store.get(&key).await;
            self.record("get", answer.is_ok(), began);
            answer
        })
    }

    fn put(&self, key: &str, value: Bytes, expect: Expect) -> BoxFuture<'_, Result<Version, WriteError>> {
        let key = key.to_owned();
        Box::pin(async move {
            let (began, bytes) = (clock::now(), value.len());
            let answer = self.store.put(&key, value, expect).await;
            self.record("put", answer.is_ok(), began);
            if answer.is_ok() {
                let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
                self.put_bytes.fetch_add(bytes, Ordering::Relaxed);
            }
            answer
        })
    }

    fn delete(&self, key: &str, expect: Expect) -> BoxFuture<'_, Result<bool, WriteError>> {
        let key = key.to_owned();
        Box::pin(async move {
            let began = clock::now();
            let answer = self.store.delete(&key, expect).await;
            self.record("del", answer.is_ok(), began);
            answer
        })
    }

    fn sequence(&self, key: &str) -> BoxFuture<'_, Result<u64, WriteError>> {
        self.store.sequence(key)
    }

    fn list(&self, prefix: &str) -> BoxFuture<'_, Result<Vec<String>, ReadError>> {
        self.store.list(prefix)
    }

    fn scan(&self, prefix: &str) -> BoxFuture<'_, Result<Vec<Item>, ReadError>> {
        self.store.scan(prefix)
    }

    fn watch(&self, prefix: &str) -> Watch {
        self.store.watch(prefix)
    }

    fn has_other_writers(&self) -> bool {
        self.store.has_other_writers()
    }

    fn open_session(&self, timeout: Duration) -> BoxFuture<'_, Result<Arc<dyn Session>, SessionError>> {
        self.store.open_session(timeout)
    }

    fn fault(&self) -> Option<Arc<Fault>> {
        self.store.fault()
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        self.store.shutdown()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Memory;

    #[tokio::test]
    async fn requests_are_counted_by_kind_and_outcome() {
        let store = Measured::new(Arc::new(Memory::new()));
        let value = || Bytes::from_static(b"12345");
        assert!(store.put("a/b", value(), Expect::Absent).await.is_ok());
        assert!(store.put("a/b", value(), Expect::Absent).await.is_err());
        assert!(store.get("a/b").await.is_ok_and(|found| found.is_some()));
        assert!(store.get("a/c").await.is_ok_and(|found| found.is_none()));
        assert!(store.delete("a/b", Expect::Any).await.is_ok());
        let counts: Vec<_> = store
            .latencies()
            .into_iter()
            .map(|(asked, latency)| (asked.kind, asked.is_ok, latency.count()))
            .collect();
        let expected = [
            ("get", true, 2),
            ("get", false, 0),
            ("put", true, 1),
            ("put", false, 1),
            ("del", true, 1),
            ("del", false, 0),
        ];
        assert_eq!(counts, expected);
        assert_eq!(store.put_bytes(), 5);
    }
}
