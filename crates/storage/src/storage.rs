//! The engine as others see it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use futures_util::FutureExt;
use tokio::sync::oneshot;

use pharos_ledger::{
    BoxFuture, CreateError, CreateOptions, DeleteError, LedgerEngine, LedgerWriter, OpenError, ReadEntry,
    ReadError, Sealed, StorageFault,
};
use pharos_runtime::fs::{Fs, RealFs};
use pharos_types::{EntryId, LedgerId};

use crate::journal::{self, Journal};
use crate::keeper::{self, Keeper};
use crate::ledgers::{Ledger, Phase};
use crate::queue::{Op, Refused};
use crate::reader::{self, ReadJob};
use crate::recovery;
use crate::shared::Shared;
use crate::writer::{Writer, queue_seal};
use crate::{OpenStoreError, Options, Stats};

/// An open store: the embedded [`LedgerEngine`].
///
/// Dropping it finishes what is queued and stops its threads, which may block for as long as the device takes;
/// [`shutdown`](LedgerEngine::shutdown) does the same without blocking and should come first.
#[derive(Debug)]
pub struct Storage {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// No threads: reads run in their callers, and a test steps the rest.
    inline: bool,
}

/// An open store and the parts that its threads would run.
pub(crate) struct Parts {
    pub(crate) storage: Arc<Storage>,
    pub(crate) journal: Journal,
    pub(crate) keeper: Keeper,
}

impl Storage {
    /// Opens the store in `dir`, which is made when it is not there, and finds out what a crash left.
    ///
    /// Blocks for as long as that takes: at once for a new or cleanly stopped store, otherwise one scan of the segment
    /// that was being written.
    ///
    /// # Errors
    /// [`OpenStoreError`]; `Locked` when another process has it open.
    pub fn open(dir: &Path, options: Options) -> Result<Arc<Self>, OpenStoreError> {
        Self::open_with(Arc::new(RealFs), dir, options)
    }

    /// [`open`](Self::open) on another file system.
    ///
    /// # Errors
    /// As for `open`.
    pub fn open_with(fs: Arc<dyn Fs>, dir: &Path, options: Options) -> Result<Arc<Self>, OpenStoreError> {
        let Parts {
            storage,
            journal,
            keeper,
        } = Self::open_parts(fs, dir, options, false)?;
        let mut threads = Vec::new();
        let mut spawn = |name: &'static str, body: Box<dyn FnOnce() + Send>| {
            let shared = Arc::clone(&storage.shared);
            let body = move || run_guarded(&shared, name, body);
            let thread = std::thread::Builder::new().name(name.to_owned()).spawn(body);
            thread.map(|handle| threads.push(handle))
        };
        let spawn_all = || {
            spawn("pharos-journal", Box::new(move || journal::thread::run(journal)))?;
            for _ in 0..storage.shared.options.read_threads {
                let shared = Arc::clone(&storage.shared);
                spawn("pharos-read", Box::new(move || reader::run(&shared)))?;
            }
            spawn("pharos-keeper", Box::new(move || keeper::run(keeper)))
        };
        spawn_all().map_err(OpenStoreError::io("start the threads of", dir))?;
        *storage.threads.lock().unwrap_or_else(PoisonError::into_inner) = threads;
        Ok(storage)
    }

    pub(crate) fn open_parts(
        fs: Arc<dyn Fs>,
        dir: &Path,
        options: Options,
        inline: bool,
    ) -> Result<Parts, OpenStoreError> {
        options.check()?;
        let opened = recovery::open(fs, dir, options)?;
        let storage = Self {
            shared: opened.shared,
            threads: Mutex::default(),
            inline,
        };
        Ok(Parts {
            storage: Arc::new(storage),
            journal: opened.journal,
            keeper: opened.keeper,
        })
    }

    /// What the engine did and how it stands.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared.stats()
    }

    fn begin_stop(&self) {
        let fault = StorageFault::new("storage", "was shut down");
        if !self.shared.queue.push_stop(fault) {
            // Poisoned, or stopping already: the journal does nothing more, the keeper only unlocks.
            if self.shared.poison().is_some() {
                self.shared.stopping.store(true, Ordering::Release);
                self.shared.keeper_bell.ring();
            }
        }
    }

    fn find(&self, ledger: LedgerId) -> Option<Arc<Ledger>> {
        self.shared.ledgers.get(ledger)
    }

    /// The locations of what a read call asks for.
    fn plan(
        &self,
        id: LedgerId,
        first: EntryId,
        entries_max: usize,
        bytes_max: usize,
    ) -> Result<ReadJob, ReadError> {
        let ledger = self.find(id).ok_or(ReadError::NoSuchLedger(id))?;
        let state = ledger.lock();
        let from = usize::try_from(first.0).unwrap_or(usize::MAX);
        let mut locations = Vec::new();
        let mut bytes = 0usize;
        for location in state.index.get(from..).unwrap_or_default() {
            bytes = bytes.saturating_add(location.body_bytes());
            if !locations.is_empty() && (locations.len() >= entries_max || bytes > bytes_max) {
                break;
            }
            locations.push(*location);
        }
        Ok(ReadJob {
            ledger: id,
            first: first.0,
            locations,
        })
    }

    /// Fences, and queues the seal unless it is there.
    fn begin_recovery(&self, id: LedgerId) -> Result<Recovery, OpenError> {
        let ledger = self.find(id).ok_or(OpenError::NoSuchLedger(id))?;
        let mut state = ledger.lock();
        if let Some(sealed) = state.sealed {
            return Ok(Recovery::Done(sealed));
        }
        if let Some(fault) = &state.end_unknown {
            if !self.shared.options.salvage {
                return Err(OpenError::Fault(Arc::clone(fault)));
            }
            tracing::error!(ledger = id.0, entries = state.index.len(), %fault, "recovered as what is left of it");
            state.end_unknown = None;
        }
        if state.phase == Phase::Open {
            state.phase = Phase::Fenced;
        }
        let answered = queue_seal(&self.shared, &ledger, &mut state).map_err(OpenError::Fault)?;
        drop(state);
        Ok(Recovery::Waiting(answered))
    }
}

enum Recovery {
    Done(Sealed),
    Waiting(oneshot::Receiver<Result<Sealed, Arc<StorageFault>>>),
}

impl LedgerEngine for Storage {
    fn create(&self, options: CreateOptions) -> BoxFuture<'_, Result<Arc<dyn LedgerWriter>, CreateError>> {
        async move {
            let id = LedgerId(self.shared.ledger_next.fetch_add(1, Ordering::AcqRel));
            let (ledger, tail) = Ledger::new(id, options.durability);
            let (done, answered) = oneshot::channel();
            let op = Op::Create {
                ledger: Arc::clone(&ledger),
                done,
            };
            let pushed = self.shared.queue.push(op);
            pushed.map_err(|(_, fault)| CreateError::Poisoned(fault))?;
            match answered.await {
                Ok(Ok(())) => {
                    let writer = Writer::new(Arc::clone(&self.shared), ledger, tail);
                    Ok(Arc::new(writer) as Arc<dyn LedgerWriter>)
                }
                Ok(Err(Refused::Poisoned(fault))) => Err(CreateError::Poisoned(fault)),
                Ok(Err(Refused::NoSpace)) => Err(CreateError::NoSpace),
                Err(_) => Err(CreateError::Poisoned(gone("create"))),
            }
        }
        .boxed()
    }

    fn recover(&self, ledger: LedgerId) -> BoxFuture<'_, Result<Sealed, OpenError>> {
        async move {
            match self.begin_recovery(ledger)? {
                Recovery::Done(sealed) => Ok(sealed),
                Recovery::Waiting(answered) => match answered.await {
                    Ok(Ok(sealed)) => Ok(sealed),
                    Ok(Err(_)) if self.find(ledger).is_none() => Err(OpenError::NoSuchLedger(ledger)),
                    Ok(Err(fault)) => Err(OpenError::Fault(fault)),
                    Err(_) => Err(OpenError::Fault(gone("recover"))),
                },
            }
        }
        .boxed()
    }

    fn read(
        &self,
        ledger: LedgerId,
        first: EntryId,
        entries_max: usize,
        bytes_max: usize,
    ) -> BoxFuture<'_, Result<Vec<ReadEntry>, ReadError>> {
        async move {
            let job = self.plan(ledger, first, entries_max, bytes_max)?;
            if job.locations.is_empty() {
                return Ok(Vec::new());
            }
            if self.inline {
                return reader::run_job(&self.shared, &job);
            }
            self.shared.reads.submit(job).await
        }
        .boxed()
    }

    fn delete(&self, ledger: LedgerId) -> BoxFuture<'_, Result<(), DeleteError>> {
        async move {
            let Some(found) = self.find(ledger) else {
                return Ok(());
            };
            let (done, answered) = oneshot::channel();
            {
                // Under the ledger's lock, so that no append is queued behind the deletion.
                let mut state = found.lock();
                let op = Op::Delete {
                    ledger: Arc::clone(&found),
                    done,
                };
                let pushed = self.shared.queue.push(op);
                pushed.map_err(|(_, fault)| DeleteError::Poisoned(fault))?;
                if state.phase == Phase::Open {
                    state.phase = Phase::Fenced;
                }
            }
            match answered.await {
                Ok(Ok(())) => Ok(()),
                Ok(Err(Refused::Poisoned(fault))) => Err(DeleteError::Poisoned(fault)),
                Ok(Err(Refused::NoSpace)) | Err(_) => Err(DeleteError::Poisoned(gone("delete"))),
            }
        }
        .boxed()
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<LedgerId>, ReadError>> {
        async { Ok(self.shared.ledgers.ids()) }.boxed()
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        async {
            self.begin_stop();
            let mut stopped = self.shared.stopped.subscribe();
            // The sender lives as long as we do.
            let _ = stopped.wait_for(|stopped| *stopped).await;
            self.shared.reads.stop();
        }
        .boxed()
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        self.begin_stop();
        self.shared.reads.stop();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            // A thread that panicked has said so; there is nothing to add.
            let _ = thread.join();
        }
        if self.inline {
            self.shared.unlock_dir();
        }
    }
}

/// Runs a thread of the store. A bug that panics in it stops the store instead of leaving callers waiting for ever.
fn run_guarded(shared: &Shared, name: &'static str, body: Box<dyn FnOnce() + Send>) {
    if catch_unwind(AssertUnwindSafe(body)).is_err() {
        shared.set_poison(StorageFault::new(name, "panicked"));
        // Nobody will answer what is queued; dropping it tells the callers.
        drop(shared.queue.take_all());
    }
}

fn gone(what: &str) -> Arc<StorageFault> {
    StorageFault::new(what, "storage is gone")
}
