//! Stores under a broker that can be told to stand still, to fail, or to die with the process at any of their effects.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use pharos_ledger::{
    BoxFuture, CreateError, CreateOptions, DeleteError, LedgerEngine, LedgerWriter, OpenError, ReadEntry,
    Sealed,
};
use pharos_metadata::{Expect, Fault, Item, MetadataStore, Version, Versioned, Watch, WriteError};
use pharos_types::{EntryId, LedgerId};
use tokio::sync::watch;

/// What becomes of the effect at which the process dies, or that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// It does not happen.
    Not,
    /// It happens, and no caller hears of it.
    Happens,
}

/// One run of the process. Clones are the same run.
#[derive(Clone)]
pub(crate) struct Life(Arc<Inner>);

struct Inner {
    /// Effects until the fatal one.
    left: AtomicUsize,
    death: Mutex<Effect>,
    is_dead: watch::Sender<bool>,
    /// Writes of keys that begin so stand still.
    held: watch::Sender<Option<String>>,
    is_holding: AtomicBool,
    /// Writes of keys that begin so fail.
    failing: Mutex<Option<(String, Effect)>>,
}

impl Life {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Inner {
            left: AtomicUsize::new(usize::MAX / 2),
            death: Mutex::new(Effect::Not),
            is_dead: watch::Sender::new(false),
            held: watch::Sender::new(None),
            is_holding: AtomicBool::new(false),
            failing: Mutex::new(None),
        }))
    }

    /// From now on it dies at the effect after `nth` others.
    pub(crate) fn dies_after(&self, nth: usize, death: Effect) {
        *self.0.death.lock().unwrap() = death;
        self.0.left.store(nth, Ordering::SeqCst);
    }

    /// Resolves when it has died.
    pub(crate) async fn death(&self) {
        self.0.is_dead.subscribe().wait_for(|dead| *dead).await.unwrap();
    }

    /// Writes of keys that begin so stand still until [`Self::release`].
    pub(crate) fn hold(&self, keys: &str) {
        self.0.held.send_replace(Some(keys.to_owned()));
    }

    /// Whether a write stands still.
    pub(crate) fn is_holding(&self) -> bool {
        self.0.is_holding.load(Ordering::SeqCst)
    }

    pub(crate) fn release(&self) {
        self.0.held.send_replace(None);
        self.0.is_holding.store(false, Ordering::SeqCst);
    }

    /// Writes of keys that begin so fail from now on; `None` heals.
    pub(crate) fn fail(&self, keys: Option<(&str, Effect)>) {
        *self.0.failing.lock().unwrap() = keys.map(|(keys, effect)| (keys.to_owned(), effect));
    }

    pub(crate) fn engine(&self, inner: impl LedgerEngine + 'static) -> Arc<dyn LedgerEngine> {
        Arc::new(MortalEngine(Arc::new(inner), self.clone()))
    }

    pub(crate) fn store(&self, inner: &Arc<pharos_metadata::Memory>) -> Arc<dyn MetadataStore> {
        Arc::new(MortalStore(inner.clone(), self.clone()))
    }

    async fn effect<T>(&self, effect: impl Future<Output = T>) -> T {
        let is_dead = || *self.0.is_dead.borrow();
        if is_dead() {
            return std::future::pending().await;
        }
        if self.0.left.fetch_sub(1, Ordering::SeqCst) > 0 {
            return effect.await;
        }
        let death = *self.0.death.lock().unwrap();
        if death == Effect::Happens {
            effect.await;
        }
        self.0.is_dead.send_replace(true);
        std::future::pending().await
    }

    async fn write<T>(
        &self,
        key: &str,
        write: impl Future<Output = Result<T, WriteError>>,
    ) -> Result<T, WriteError> {
        let begins = |keys: &Option<String>| keys.as_ref().is_some_and(|keys| key.starts_with(keys));
        let mut held = self.0.held.subscribe();
        if begins(&held.borrow()) {
            self.0.is_holding.store(true, Ordering::SeqCst);
        }
        held.wait_for(|keys| !begins(keys)).await.unwrap();
        let failing = self.0.failing.lock().unwrap().clone();
        match failing {
            Some((keys, effect)) if key.starts_with(&keys) => {
                if effect == Effect::Happens {
                    let _ = write.await;
                }
                Err(WriteError::Fault(Fault::new("write", "out of order")))
            }
            _ => self.effect(write).await,
        }
    }
}

struct MortalEngine(Arc<dyn LedgerEngine>, Life);

impl LedgerEngine for MortalEngine {
    fn create(&self, options: CreateOptions) -> BoxFuture<'_, Result<Arc<dyn LedgerWriter>, CreateError>> {
        Box::pin(self.1.effect(self.0.create(options)))
    }

    fn recover(&self, ledger: LedgerId) -> BoxFuture<'_, Result<Sealed, OpenError>> {
        self.0.recover(ledger)
    }

    fn read(
        &self,
        ledger: LedgerId,
        first: EntryId,
        entries_max: usize,
        bytes_max: usize,
    ) -> BoxFuture<'_, Result<Vec<ReadEntry>, pharos_ledger::ReadError>> {
        self.0.read(ledger, first, entries_max, bytes_max)
    }

    fn delete(&self, ledger: LedgerId) -> BoxFuture<'_, Result<(), DeleteError>> {
        Box::pin(self.1.effect(self.0.delete(ledger)))
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<LedgerId>, pharos_ledger::ReadError>> {
        self.0.list()
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        self.0.shutdown()
    }
}

struct MortalStore(Arc<pharos_metadata::Memory>, Life);

impl MetadataStore for MortalStore {
    fn get(&self, key: &str) -> BoxFuture<'_, Result<Option<Versioned>, pharos_metadata::ReadError>> {
        self.0.get(key)
    }

    fn put(&self, key: &str, value: Bytes, expect: Expect) -> BoxFuture<'_, Result<Version, WriteError>> {
        let key = key.to_owned();
        Box::pin(async move { self.1.write(&key, self.0.put(&key, value, expect)).await })
    }

    fn delete(&self, key: &str, expect: Expect) -> BoxFuture<'_, Result<bool, WriteError>> {
        let key = key.to_owned();
        Box::pin(async move { self.1.write(&key, self.0.delete(&key, expect)).await })
    }

    fn list(&self, prefix: &str) -> BoxFuture<'_, Result<Vec<String>, pharos_metadata::ReadError>> {
        self.0.list(prefix)
    }

    fn scan(&self, prefix: &str) -> BoxFuture<'_, Result<Vec<Item>, pharos_metadata::ReadError>> {
        self.0.scan(prefix)
    }

    fn watch(&self, prefix: &str) -> Watch {
        self.0.watch(prefix)
    }

    fn open_session(
        &self,
        timeout: std::time::Duration,
    ) -> BoxFuture<'_, Result<Arc<dyn pharos_metadata::Session>, pharos_metadata::SessionError>> {
        self.0.open_session(timeout)
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        self.0.shutdown()
    }
}
