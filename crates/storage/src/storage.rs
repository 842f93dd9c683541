//! The engine as others see it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use futures_util::FutureExt;
use tokio::sync::{oneshot, watch};

use pharos_ledger::{
    BoxFuture, CreateError, CreateOptions, DeleteError, LedgerEngine, LedgerWriter, OpenError, ReadEntry,
    ReadError, Readable, Sealed, StorageFault, Tail, follow_tail,
};
use pharos_runtime::fs::{Fs, RealFs};
use pharos_runtime::sync::Mutex;
use pharos_runtime::sync::thread::{Builder, JoinHandle};
use pharos_types::{EntryId, LedgerId};

use crate::flush::{self, Flusher};
use crate::journal::prepare::{self, Preparer};
use crate::journal::{self, Journal};
use crate::ledgers::{Ledger, Phase};
use crate::queue::{Op, Refused};
use crate::read::job::{Need, ReadJob};
use crate::read::{self, ReadPlan, Wanted};
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
    pub(crate) journals: Vec<Journal>,
    pub(crate) preparers: Vec<Preparer>,
    pub(crate) flusher: Flusher,
}

impl Storage {
    /// Opens the store in `dir`, which is made when it is not there, and finds out what a crash left.
    ///
    /// Blocks for as long as that takes: at once for a new or cleanly stopped store, otherwise one replay of what the
    /// journals have that no checkpoint covers; the log says how far it is.
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
            journals,
            preparers,
            flusher,
        } = Self::open_parts(fs, dir, options, false)?;
        let shared = &storage.shared;
        let mut threads = Vec::new();
        let mut spawn = |name: &'static str, body: Box<dyn FnOnce() + Send>| {
            let shared = Arc::clone(shared);
            let body = move || run_guarded(&shared, name, body);
            let thread = Builder::new().name(name.to_owned()).spawn(body);
            thread.map(|handle| threads.push(handle))
        };
        let spawn_all = || {
            for (number, journal) in journals.into_iter().enumerate() {
                let stopped = OnDrop(Arc::clone(shared), move |shared: &Shared| {
                    if std::thread::panicking() {
                        // Before the flusher can go on, which may wait for this journal to publish.
                        shared.set_poison(StorageFault::new("pharos-journal", "panicked"));
                    }
                    shared.on_journal_stopped(number);
                });
                let body = move || {
                    let _stopped = stopped;
                    journal::thread::run(journal);
                };
                spawn("pharos-journal", Box::new(body))?;
            }
            for preparer in preparers {
                shared.preparers.fetch_add(1, Ordering::AcqRel);
                let stopped = OnDrop(Arc::clone(shared), Shared::on_preparer_stopped);
                let body = move || {
                    let _stopped = stopped;
                    prepare::run(preparer);
                };
                spawn("pharos-prepare", Box::new(body))?;
            }
            for dir in 0..shared.dirs.len() {
                for _ in 0..read::THREADS {
                    let shared = Arc::clone(shared);
                    spawn("pharos-read", Box::new(move || read::run(&shared, dir)))?;
                }
            }
            spawn("pharos-flush", Box::new(move || flush::run(flusher)))
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
            journals: opened.journals,
            preparers: opened.preparers,
            flusher: opened.flusher,
        })
    }

    /// The id that the next ledger gets: all there are are below.
    #[must_use]
    pub fn next_ledger(&self) -> LedgerId {
        LedgerId(self.shared.ledger_next.load(Ordering::Acquire))
    }

    /// Returns the statistics and the state of the engine.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats::of(&self.shared)
    }

    /// Returns the reason why appends are refused, or wait, at this moment: a final fault, or a transient one
    /// ([`StorageFault::is_transient`]). `None`: they are accepted.
    #[must_use]
    pub fn why_not_ready(&self) -> Option<Arc<StorageFault>> {
        self.shared.why_not_ready()
    }

    /// Files that the engine has open now.
    #[must_use]
    pub fn open_files(&self) -> u64 {
        let segments = |journal: &crate::shared::JournalShared| 1 + journal.segments().by_id.len();
        let journals: usize = self.shared.journals.iter().map(segments).sum();
        // Of the logs being written the index is open too, and each directory has a lock.
        let dirs = 0..self.shared.dirs.len();
        let logs: usize = dirs.map(|dir| 2 + self.shared.logs(dir).by_id.len()).sum();
        (journals + logs) as u64
    }

    fn begin_stop(&self) {
        self.shared.stop_wanted.store(true, Ordering::Release);
        let fault = StorageFault::new("storage", "was shut down");
        for journal in &self.shared.journals {
            // Closed already: poisoned, or stopping.
            journal.queue.push_stop(Arc::clone(&fault));
        }
        self.shared.ring_all();
    }

    fn stop_reads(&self) {
        for dir in &self.shared.dirs {
            dir.reads.stop();
        }
    }

    fn find(&self, ledger: LedgerId) -> Option<Arc<Ledger>> {
        self.shared.ledgers.get(ledger)
    }

    async fn read_entries(
        &self,
        id: LedgerId,
        first: EntryId,
        entries_max: usize,
        bytes_max: usize,
    ) -> Result<Vec<ReadEntry>, ReadError> {
        let mut wanted = Wanted::new(first.0, entries_max.max(1), bytes_max);
        let Some(ledger) = self.find(id) else {
            return Err(ReadError::NoSuchLedger(id));
        };
        loop {
            let (entries_left, bytes_left) = wanted.left();
            let plan = read::plan(&self.shared, &ledger, wanted.next, entries_left, bytes_left);
            let found = match plan {
                Ok(ReadPlan::End) => return wanted.end(None),
                Ok(ReadPlan::Memory(found)) => Ok(found),
                Ok(ReadPlan::Cold(dir, job)) => self.read_cold(dir, job).await,
                Err(error) => Err(error),
            };
            match found {
                Ok(found) => {
                    if wanted.add(found) {
                        return wanted.end(None);
                    }
                }
                Err(error) => return wanted.end(Some(error)),
            }
        }
    }

    /// Returns the readable range, and the tail where there may be more.
    fn readable(&self, id: LedgerId) -> Result<(Readable, Option<watch::Receiver<Tail>>), ReadError> {
        let ledger = self.find(id).ok_or(ReadError::NoSuchLedger(id))?;
        let state = ledger.lock();
        let readable = Readable {
            entries: state.end,
            is_sealed: state.sealed.is_some(),
        };
        let tail = state.tail.as_ref().filter(|_| !readable.is_sealed);
        Ok((readable, tail.map(watch::Sender::subscribe)))
    }

    async fn read_cold(&self, dir: u16, mut job: Box<ReadJob>) -> read::Answer {
        if self.inline {
            return read::run_inline(&self.shared, *job);
        }
        // Walking through a lot of data is for the threads of the directory, also where all of it is in memory.
        if !job.is_large()
            && let Need::Done(answer) = read::run_cached(&self.shared, &mut job)
        {
            return answer;
        }
        self.shared.dirs[usize::from(dir)].reads.submit(*job).await
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
            tracing::error!(ledger = id.0, entries = state.end, %fault, "recovered as what is left of it");
            state.end_unknown = None;
        }
        if matches!(state.phase, Phase::Open | Phase::GivenUp) {
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
            let places = self.shared.places(id);
            let (ledger, tail) = Ledger::new(id, &options, places);
            let (done, answered) = oneshot::channel();
            let op = Op::Create {
                ledger: Arc::clone(&ledger),
                done,
            };
            let pushed = self.shared.journal_of(&ledger).queue.push(op);
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
        self.read_entries(ledger, first, entries_max, bytes_max).boxed()
    }

    fn follow(&self, ledger: LedgerId, beyond: Option<u64>) -> BoxFuture<'_, Result<Readable, ReadError>> {
        follow_tail(beyond, move || self.readable(ledger)).boxed()
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
                let pushed = self.shared.journal_of(&found).queue.push(op);
                pushed.map_err(|(_, fault)| DeleteError::Poisoned(fault))?;
                if state.phase == Phase::Open {
                    state.phase = Phase::Fenced;
                }
            }
            match answered.await {
                Ok(Ok(())) => Ok(()),
                Ok(Err(Refused::Poisoned(fault))) => Err(DeleteError::Poisoned(fault)),
                Ok(Err(Refused::NoSpace)) => Err(DeleteError::NoSpace),
                Err(_) => Err(DeleteError::Poisoned(gone("delete"))),
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
            self.stop_reads();
        }
        .boxed()
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        self.begin_stop();
        self.stop_reads();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            // A thread that panicked has said so; there is nothing to add.
            let _ = thread.join();
        }
        if self.inline {
            self.shared.unlock_dirs();
        }
    }
}

/// Runs a thread of the store. A bug that panics in it stops the store instead of leaving callers waiting for ever.
fn run_guarded(shared: &Shared, name: &'static str, body: Box<dyn FnOnce() + Send>) {
    if catch_unwind(AssertUnwindSafe(body)).is_err() {
        shared.set_poison(StorageFault::new(name, "panicked"));
        // No thread is left to answer what is queued; dropping it tells the callers.
        for journal in &shared.journals {
            drop(journal.queue.take_all());
        }
    }
}

/// Does something at the end of a thread, however that comes.
struct OnDrop<F: Fn(&Shared)>(Arc<Shared>, F);

impl<F: Fn(&Shared)> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.1)(&self.0);
    }
}

fn gone(what: &str) -> Arc<StorageFault> {
    StorageFault::new(what, "storage is gone")
}
