//! The offloader: the contract over object stores, on threads of its own.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pharos_ledger::offload::{
    LedgerOffloader, OffloadError, OffloadId, OffloadSource, OffloadTarget, OffloadedLedger,
};
use pharos_ledger::{BoxFuture, ReadEntry};
use pharos_runtime::Pool;
use pharos_types::EntryId;
use tokio::sync::{Notify, Semaphore, oneshot};

use crate::drivers;
use crate::options::Options;
use crate::read::Reads;
use crate::stats::{Counters, Stats};
use crate::store::Store;
use crate::upload::Upload;

/// Threads on which requests are made and checksums computed.
const THREADS: usize = 2;

/// Copies ledgers to object stores and reads them there. See the contract for what holds.
pub struct Offloader {
    shared: Arc<Shared>,
    pool: Pool,
}

struct Shared {
    options: Options,
    /// The stores that were used so far.
    stores: Mutex<HashMap<OffloadTarget, Store>>,
    reads: Reads,
    uploads: Semaphore,
    attempts: Attempts,
    counters: Counters,
}

/// The attempts under way. One that was called off ends soon, not at once, and may write something until then.
#[derive(Default)]
struct Attempts {
    running: Mutex<BTreeSet<OffloadId>>,
    ended: Notify,
}

/// An attempt under way, until it is dropped.
struct Attempt(Arc<Shared>, OffloadId);

impl Attempts {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<OffloadId>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resolves when an attempt is not under way any more.
    ///
    /// Cancel safety: nothing is lost.
    async fn end_of(&self, id: OffloadId) {
        loop {
            let ended = self.ended.notified();
            tokio::pin!(ended);
            // From here on no word of an end is missed.
            ended.as_mut().enable();
            if !self.lock().contains(&id) {
                return;
            }
            ended.await;
        }
    }
}

impl Attempt {
    fn begin(shared: &Arc<Shared>, id: OffloadId) -> Self {
        shared.attempts.lock().insert(id);
        Self(shared.clone(), id)
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let attempts = &self.0.attempts;
        attempts.lock().remove(&self.1);
        attempts.ended.notify_waiters();
    }
}

impl Offloader {
    /// Starts the threads. Nothing is asked of any store yet.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn start(options: Options) -> io::Result<Self> {
        let shared = Shared {
            stores: Mutex::default(),
            reads: Reads::new(&options),
            uploads: Semaphore::new(options.uploads_max.max(1)),
            attempts: Attempts::default(),
            counters: Counters::default(),
            options,
        };
        Ok(Self {
            shared: Arc::new(shared),
            pool: Pool::start("pharos-offload", THREADS)?,
        })
    }

    /// Counters since the start.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats {
            buffered_bytes: self.shared.reads.buffered_bytes() as u64,
            ..self.shared.counters.stats()
        }
    }

    /// Runs work on the pool; `Stopped` when it is gone.
    fn run<T, F, W>(&self, work: W) -> BoxFuture<'static, Result<T, OffloadError>>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, OffloadError>> + Send + 'static,
        W: FnOnce(Arc<Shared>) -> F,
    {
        let running = self.pool.run(work(self.shared.clone()));
        Box::pin(async move { running.await.unwrap_or(Err(OffloadError::Stopped)) })
    }
}

impl fmt::Debug for Offloader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Offloader")
            .field("options", &self.shared.options)
            .finish_non_exhaustive()
    }
}

impl LedgerOffloader for Offloader {
    fn new_id(&self) -> OffloadId {
        OffloadId(uuid::Uuid::new_v4().as_u128())
    }

    fn check_target(&self, target: &OffloadTarget) -> Result<(), OffloadError> {
        drivers::check(target, &self.shared.options)
    }

    fn offload(
        &self,
        object: OffloadedLedger,
        source: OffloadSource,
    ) -> BoxFuture<'static, Result<(), OffloadError>> {
        // Lives in the future that is given out: when that is dropped, the work hears of it.
        let (wanted, unwanted) = oneshot::channel::<()>();
        // From here on a deletion waits for it.
        let attempt = Attempt::begin(&self.shared, object.id);
        let running = self.run(|shared| async move {
            let _attempt = attempt;
            shared.offload(object, source, unwanted).await
        });
        Box::pin(async move {
            let _wanted = wanted;
            running.await
        })
    }

    fn check(&self, object: OffloadedLedger, entries: u64) -> BoxFuture<'static, Result<(), OffloadError>> {
        self.run(|shared| async move {
            let store = shared.store(&object.target)?;
            shared
                .reads
                .check(&store, &object, entries, &shared.counters)
                .await
        })
    }

    fn read(
        &self,
        object: OffloadedLedger,
        first: EntryId,
        entries_max: usize,
        bytes_max: usize,
    ) -> BoxFuture<'static, Result<Vec<ReadEntry>, OffloadError>> {
        self.run(move |shared| async move {
            let store = shared.store(&object.target)?;
            let limits = (entries_max.max(1), bytes_max);
            shared
                .reads
                .read(&store, &object, first, limits, &shared.counters)
                .await
        })
    }

    fn delete(&self, object: OffloadedLedger) -> BoxFuture<'static, Result<(), OffloadError>> {
        self.run(|shared| async move {
            shared.reads.forget(object.id);
            let deleted = shared.delete(&object).await;
            shared.counters.deleted(deleted.is_ok());
            deleted
        })
    }
}

impl Shared {
    async fn offload(
        &self,
        object: OffloadedLedger,
        source: OffloadSource,
        unwanted: oneshot::Receiver<()>,
    ) -> Result<(), OffloadError> {
        self.counters.uploading.fetch_add(1, Ordering::Relaxed);
        let outcome = self.offload_one(&object, &source, unwanted).await;
        self.counters.uploading.fetch_sub(1, Ordering::Relaxed);
        self.counters.attempt_done(outcome.is_ok());
        outcome
    }

    async fn offload_one(
        &self,
        object: &OffloadedLedger,
        source: &OffloadSource,
        mut unwanted: oneshot::Receiver<()>,
    ) -> Result<(), OffloadError> {
        drivers::check(&object.target, &self.options)?;
        let store = self.store(&object.target)?;
        let permit = tokio::select! {
            biased;
            permit = self.uploads.acquire() => permit,
            _ = &mut unwanted => return Err(OffloadError::Stopped),
        };
        let _permit = permit.map_err(|_| OffloadError::Stopped)?;
        let mut upload = Upload::new(&store, object, &self.counters);
        // Dropping the copy half way is what `abort` is for: it says what was sent is not wanted.
        let outcome = tokio::select! {
            biased;
            outcome = upload.run(source, self.options.block_bytes) => outcome,
            _ = unwanted => Err(OffloadError::Stopped),
        };
        if outcome.is_err() {
            upload.abort().await;
        }
        outcome
    }

    async fn delete(&self, object: &OffloadedLedger) -> Result<(), OffloadError> {
        self.attempts.end_of(object.id).await;
        let store = self.store(&object.target)?;
        // The index first: data without an index is what an unfinished attempt looks like, never the other way round.
        store.delete(&[object.index_name(), object.data_name()]).await
    }

    /// The store of a target, made on first use.
    fn store(&self, target: &OffloadTarget) -> Result<Store, OffloadError> {
        let known = |stores: &HashMap<OffloadTarget, Store>| stores.get(target).cloned();
        let lock = || self.stores.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(store) = known(&lock()) {
            return Ok(store);
        }
        let store = Store::new(drivers::open(target, &self.options)?, target.clone());
        lock().entry(target.clone()).or_insert_with(|| store.clone());
        Ok(store)
    }
}
