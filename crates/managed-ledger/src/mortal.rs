//! Stores under a process that can be told to stand still, to fail, or to die with it at any of their effects; for tests.
//!
//! Engine and metadata store count what they are asked to change. After the fatal effect nothing ever answers again, as a process
//! that was killed hears of nothing; what it had stored is there for the next [`Life`].

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use pharos_ledger::{
    BoxFuture, CreateError, CreateOptions, DeleteError, LedgerEngine, LedgerWriter, OpenError, ReadEntry,
    Readable, Sealed,
};
use pharos_metadata::{Expect, Fault, Item, MetadataStore, Version, Versioned, Watch, WriteError};
use pharos_types::{EntryId, LedgerId};
use tokio::sync::watch;

/// Fate of the effect at which the process dies, or that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallEffect {
    /// The effect does not happen.
    Not,
    /// The effect happens, and no caller learns of it.
    Happens,
    /// The first half of an effect of two is done; for a single effect, as `Happens`.
    Half,
}

/// Run of the process. Clones are the same run.
#[derive(Clone)]
pub struct Life(Arc<Run>);

struct Run {
    /// Effects until the fatal one.
    left: AtomicUsize,
    death: Mutex<CallEffect>,
    is_dead: watch::Sender<bool>,
    /// Writes of keys that begin so stand still.
    held: watch::Sender<Option<String>>,
    is_holding: AtomicBool,
    /// Writes of keys that begin so fail.
    failing: Mutex<Option<(String, CallEffect)>>,
}

impl Life {
    /// A run that does not end.
    #[must_use]
    pub fn new() -> Self {
        Self::dying(usize::MAX / 2, CallEffect::Not)
    }

    /// A run that ends at the effect after `nth` others.
    #[must_use]
    pub fn dying(nth: usize, death: CallEffect) -> Self {
        Self(Arc::new(Run {
            left: AtomicUsize::new(nth),
            death: Mutex::new(death),
            is_dead: watch::Sender::new(false),
            held: watch::Sender::new(None),
            is_holding: AtomicBool::new(false),
            failing: Mutex::new(None),
        }))
    }

    /// From now on it ends at the effect after `nth` others.
    pub fn dies_after(&self, nth: usize, death: CallEffect) {
        *self.0.death.lock().unwrap_or_else(PoisonError::into_inner) = death;
        self.0.left.store(nth, Ordering::SeqCst);
    }

    /// Resolves when it has ended.
    pub async fn death(&self) {
        // The sender is ours.
        let _ = self.0.is_dead.subscribe().wait_for(|dead| *dead).await;
    }

    /// Writes of keys that begin so stand still until [`Self::release`].
    pub fn hold(&self, keys: &str) {
        self.0.held.send_replace(Some(keys.to_owned()));
    }

    /// True if a write is held.
    #[must_use]
    pub fn is_holding(&self) -> bool {
        self.0.is_holding.load(Ordering::SeqCst)
    }

    /// Lets what stands still go on.
    pub fn release(&self) {
        self.0.held.send_replace(None);
        self.0.is_holding.store(false, Ordering::SeqCst);
    }

    /// Writes of keys that begin so fail from now on; `None` heals.
    pub fn fail(&self, keys: Option<(&str, CallEffect)>) {
        let failing = keys.map(|(keys, effect)| (keys.to_owned(), effect));
        *self.0.failing.lock().unwrap_or_else(PoisonError::into_inner) = failing;
    }

    /// An engine that dies with it.
    #[must_use]
    pub fn engine(&self, inner: Arc<dyn LedgerEngine>) -> Arc<dyn LedgerEngine> {
        Arc::new(MortalEngine(inner, self.clone()))
    }

    /// A metadata store that dies with it.
    #[must_use]
    pub fn store(&self, inner: Arc<dyn MetadataStore>) -> Arc<dyn MetadataStore> {
        Arc::new(MortalStore(inner, self.clone()))
    }

    /// Runs one external effect, which may be the last.
    pub async fn effect<T>(&self, effect: impl Future<Output = T>) -> T {
        self.effect_in_two(effect, None::<std::future::Ready<()>>).await
    }

    /// Runs one external effect in two halves; `half` is the part done if the process dies halfway.
    pub async fn effect_in_two<T>(
        &self,
        effect: impl Future<Output = T>,
        half: Option<impl Future<Output = ()>>,
    ) -> T {
        if *self.0.is_dead.borrow() {
            return std::future::pending().await;
        }
        if self.0.left.fetch_sub(1, Ordering::SeqCst) > 0 {
            return effect.await;
        }
        let death = *self.0.death.lock().unwrap_or_else(PoisonError::into_inner);
        match (death, half) {
            (CallEffect::Not, _) => {}
            (CallEffect::Half, Some(half)) => half.await,
            (CallEffect::Happens | CallEffect::Half, _) => drop(effect.await),
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
        // The sender is ours.
        let _ = held.wait_for(|keys| !begins(keys)).await;
        let failing = self
            .0
            .failing
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        match failing {
            Some((keys, effect)) if key.starts_with(&keys) => {
                if effect != CallEffect::Not {
                    let _ = write.await;
                }
                Err(WriteError::Fault(Fault::new("write", "out of order")))
            }
            _ => self.effect(write).await,
        }
    }
}

impl Default for Life {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Life")
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

    fn read_unconfirmed(
        &self,
        ledger: LedgerId,
        first: EntryId,
        entries_max: usize,
        bytes_max: usize,
    ) -> BoxFuture<'_, Result<Vec<ReadEntry>, pharos_ledger::ReadError>> {
        self.0.read_unconfirmed(ledger, first, entries_max, bytes_max)
    }

    fn follow(
        &self,
        ledger: LedgerId,
        beyond: Option<u64>,
    ) -> BoxFuture<'_, Result<Readable, pharos_ledger::ReadError>> {
        self.0.follow(ledger, beyond)
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

struct MortalStore(Arc<dyn MetadataStore>, Life);

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
