//! A process that can be killed at any of its effects on the world: engine, metadata store and object store count what they are
//! asked to change, and after the fatal one nothing ever answers again.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use pharos_ledger::offload::{
    LedgerOffloader, OffloadError, OffloadId, OffloadSource, OffloadTarget, OffloadedLedger,
};
use pharos_ledger::{
    BoxFuture, CreateError, CreateOptions, DeleteError, LedgerEngine, LedgerWriter, OpenError, ReadEntry,
    Sealed,
};
use pharos_metadata::{Expect, Item, MetadataStore, Version, Versioned, Watch, WriteError};
use pharos_offload::Offloader;
use pharos_types::{EntryId, LedgerId};
use tokio::sync::watch;

/// What becomes of the effect at which the process is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Death {
    /// It does not happen.
    Before,
    /// It happens, and no caller hears of it.
    After,
    /// Of two objects, one is written or deleted; otherwise as `After`.
    Half,
}

/// One run of the process.
#[derive(Clone)]
pub(crate) struct Life {
    left: Arc<AtomicUsize>,
    death: Death,
    ended: Arc<watch::Sender<bool>>,
}

impl fmt::Debug for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Life")
    }
}

impl Life {
    /// It is killed at the effect after `nth` others.
    pub(crate) fn mortal(nth: usize, death: Death) -> Self {
        Self {
            left: Arc::new(AtomicUsize::new(nth)),
            death,
            ended: Arc::new(watch::Sender::new(false)),
        }
    }

    pub(crate) fn immortal() -> Self {
        Self::mortal(usize::MAX >> 1, Death::Before)
    }

    /// Resolves when it was killed.
    pub(crate) async fn ended(&self) {
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
    }

    pub(crate) fn engine(&self, engine: Arc<dyn LedgerEngine>) -> Arc<dyn LedgerEngine> {
        Arc::new(MortalEngine(engine, self.clone()))
    }

    pub(crate) fn metadata(&self, metadata: Arc<dyn MetadataStore>) -> Arc<dyn MetadataStore> {
        Arc::new(MortalStore(metadata, self.clone()))
    }

    pub(crate) fn offloader(&self, offloader: Arc<Offloader>) -> Arc<dyn LedgerOffloader> {
        Arc::new(MortalOffloader(offloader, self.clone()))
    }

    /// Counts an effect; whether it is the fatal one.
    fn is_fatal(&self) -> bool {
        self.left.fetch_sub(1, Ordering::SeqCst) == 0
    }

    async fn dead<T>(&self) -> T {
        self.ended.send_replace(true);
        std::future::pending().await
    }

    async fn effect<T>(&self, effect: impl Future<Output = T>) -> T {
        if *self.ended.borrow() {
            return std::future::pending().await;
        }
        if !self.is_fatal() {
            return effect.await;
        }
        if self.death != Death::Before {
            effect.await;
        }
        self.dead().await
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

struct MortalStore(Arc<dyn MetadataStore>, Life);

impl MetadataStore for MortalStore {
    fn get(&self, key: &str) -> BoxFuture<'_, Result<Option<Versioned>, pharos_metadata::ReadError>> {
        self.0.get(key)
    }

    fn put(&self, key: &str, value: Bytes, expect: Expect) -> BoxFuture<'_, Result<Version, WriteError>> {
        Box::pin(self.1.effect(self.0.put(key, value, expect)))
    }

    fn delete(&self, key: &str, expect: Expect) -> BoxFuture<'_, Result<bool, WriteError>> {
        Box::pin(self.1.effect(self.0.delete(key, expect)))
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

#[derive(Debug)]
struct MortalOffloader(Arc<Offloader>, Life);

impl LedgerOffloader for MortalOffloader {
    fn new_id(&self) -> OffloadId {
        self.0.new_id()
    }

    fn check_target(&self, target: &OffloadTarget) -> Result<(), OffloadError> {
        self.0.check_target(target)
    }

    fn offload(
        &self,
        object: OffloadedLedger,
        source: OffloadSource,
    ) -> BoxFuture<'static, Result<(), OffloadError>> {
        let (life, inner) = (self.1.clone(), self.0.clone());
        Box::pin(async move {
            life.effect(async {
                let done = inner.offload(object.clone(), source).await;
                if life.death == Death::Half && life.left.load(Ordering::SeqCst) > usize::MAX >> 1 {
                    std::fs::remove_file(path_of(&object, &object.index_name()))
                        .expect("it was just written");
                    let staged = path_of(&object, &format!("{}#1", object.data_name()));
                    std::fs::write(staged, b"part of an upload").expect("the folder can be written");
                }
                done
            })
            .await
        })
    }

    fn check(&self, object: OffloadedLedger, entries: u64) -> BoxFuture<'static, Result<(), OffloadError>> {
        self.0.check(object, entries)
    }

    fn read(
        &self,
        object: OffloadedLedger,
        first: EntryId,
        entries_max: usize,
        bytes_max: usize,
    ) -> BoxFuture<'static, Result<Vec<ReadEntry>, OffloadError>> {
        self.0.read(object, first, entries_max, bytes_max)
    }

    fn delete(&self, object: OffloadedLedger) -> BoxFuture<'static, Result<(), OffloadError>> {
        let (life, inner) = (self.1.clone(), self.0.clone());
        Box::pin(async move {
            life.effect(async {
                if life.death == Death::Half && life.left.load(Ordering::SeqCst) > usize::MAX >> 1 {
                    // Gone already is fine: the attempt may have left half only.
                    let _ = std::fs::remove_file(path_of(&object, &object.index_name()));
                    return Ok(());
                }
                inner.delete(object.clone()).await
            })
            .await
        })
    }
}

/// Where an object of a folder is. (After the fatal effect was counted, `left` has wrapped around.)
fn path_of(object: &OffloadedLedger, name: &str) -> std::path::PathBuf {
    let uri = object.target.facts.get("uri").expect("it is a folder");
    std::path::Path::new(uri.trim_start_matches("file://")).join(name)
}
