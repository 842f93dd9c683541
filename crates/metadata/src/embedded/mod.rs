//! The store in a directory of its own: everything in memory, two copies of it on the device, one thread that writes.
//!
//! ```text
//!  put, delete ─► bounded queue ─► metadata-write: drain, one group to both copies ─► answer all, tell watches
//!  get, list, scan ─► memory
//! ```
//! Group commit makes ten thousand topic creations cost tens of groups, not ten thousand. Why two copies:
//! `docs/adr/0008-metadata-in-our-own-log.md`; what is in them: `docs/formats/metadata.md`.
//!
//! Ephemeral keys are among the keys in memory and in no file, so none survives the process, however it ends. Their changes go
//! through the same queue, and the thread that writes ends the sessions that are due between two groups.
//!
//! Owned by `node`, which shuts it down last. Always true: an answer `Ok` follows the sync of both copies, and only then is the
//! change seen. A write that failed leaves no trace and the next one may succeed; a sync that failed is final: later writes fail
//! with the same fault until restart, reads go on.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use pharos_runtime::fs::{Fs, RealFs};
use tokio::sync::watch;

mod copy;
mod decode;
mod format;
#[cfg(feature = "test-util")]
pub mod fuzzing;
mod log;
mod look;
mod manual;
mod migrate;
mod queue;
mod recover;
mod redb;
mod state;
mod survey;
mod witness;
mod writer;

pub use decode::{Part, decode};
pub use look::Look;
pub use manual::Manual;
pub use survey::Flaw;
pub use witness::{Beside, MatchesLedgers};

use log::Log;
use queue::Queue;
use recover::Recovered;
use state::Contents;
use witness::Witness;
use writer::{Parts as WriterParts, Writer};

use crate::key::check_read;
use crate::watch::Watchers;
use crate::{
    BoxFuture, Expect, Fault, Item, MetadataStore, OpenError, ReadError, Session, SessionError,
    SessionWriteError, Version, Versioned, Watch, WriteError,
};

/// The file that is locked while a store has the directory open.
const LOCK: &str = "LOCK";

/// File options of the store.
#[derive(Clone, Debug)]
pub struct Options {
    /// Room that each copy keeps for what must go on when the device is full, in bytes. At least 16 KiB; default 512 KiB.
    pub reserve_bytes: u64,
    /// The file of a store of format 1. It is taken over when the directory holds no store yet, and renamed.
    pub format_1: Option<PathBuf>,
    /// The ledgers that it must belong to; `None`: it is opened by itself, and says nothing about ledgers.
    pub beside: Option<Beside>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            reserve_bytes: 512 << 10,
            format_1: None,
            beside: None,
        }
    }
}

/// A [`MetadataStore`] in one directory. Dropping it finishes what is queued, like `shutdown`, but blocks.
#[derive(Debug)]
pub struct Embedded {
    dir: PathBuf,
    shared: Arc<Shared>,
    /// Sessions keep it as well.
    queue: Arc<Queue>,
    watchers: Arc<Watchers>,
    matches: Option<MatchesLedgers>,
    /// Closed when the writer is gone.
    ended: watch::Receiver<()>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// State shared by the store and its writer.
#[derive(Debug, Default)]
struct Shared {
    /// The lock is held for one read, or to apply a group that is durable.
    state: RwLock<Contents>,
    /// Reason why nothing is written any more.
    fault: Mutex<Option<Arc<Fault>>>,
}

impl Shared {
    fn read(&self) -> RwLockReadGuard<'_, Contents> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Contents> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn fault(&self) -> Option<Arc<Fault>> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The first reason stays.
    fn fail(&self, fault: Arc<Fault>) {
        let mut slot = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        slot.get_or_insert(fault);
    }
}

/// A store and its writer, before it is decided who runs it.
struct Parts {
    store: Embedded,
    writer: Writer,
}

impl Embedded {
    /// Opens or creates the store in the directory `dir`, which is made when it is not there. Blocks for some milliseconds.
    ///
    /// # Errors
    /// [`OpenError::InUse`] when someone has it open; [`OpenError::UnknownFormat`] for another release's; `Damaged` when
    /// something that was answered is in neither copy.
    pub fn open(dir: &Path, options: &Options) -> Result<Self, OpenError> {
        Self::open_with(Arc::new(RealFs), dir, options)
    }

    /// As [`open`](Self::open), on this file system.
    ///
    /// # Errors
    /// As there.
    pub fn open_with(fs: Arc<dyn Fs>, dir: &Path, options: &Options) -> Result<Self, OpenError> {
        let Parts { mut store, writer } = Self::open_parts(&*fs, dir, options)?;
        let thread = std::thread::Builder::new()
            .name("metadata-write".to_owned())
            .stack_size(512 << 10);
        let thread = thread.spawn(move || writer.run());
        let thread = thread.map_err(|error| OpenError::io("start a thread for", dir, &error))?;
        store.thread = Mutex::new(Some(thread));
        Ok(store)
    }

    fn open_parts(fs: &dyn Fs, dir: &Path, options: &Options) -> Result<Parts, OpenError> {
        let reserve = options.reserve_bytes.max(16 << 10);
        let io = |what: &'static str| move |error| OpenError::io(what, dir, &error);
        fs.create_dir_all(dir).map_err(io("create"))?;
        let lock = fs.lock(&dir.join(LOCK)).map_err(io("lock"))?;
        let lock = lock.ok_or_else(|| OpenError::InUse {
            path: dir.display().to_string(),
        })?;
        // Names that are seen may not be durable yet.
        fs.sync_dir(dir).map_err(io("sync"))?;
        if let Some(parent) = dir.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            fs.sync_dir(parent).map_err(io("sync"))?;
        }
        let found = recover::read(fs, dir)?;
        let is_new = found.is_none();
        let recovered = migrate::take_over(fs, options.format_1.as_deref(), found)?;
        if let Some(recovered) = recovered.as_ref().filter(|_| is_new) {
            let keys = recovered.state.len();
            tracing::info!(keys, "taking over the metadata of an older release");
        }
        let judged = options.beside.as_ref();
        let judged = judged.map(|beside| witness::judge(fs, beside, recovered.as_ref(), is_new));
        let judged = judged.transpose()?;
        let mut recovered = recovered.unwrap_or_else(new_store);
        if let Some(judged) = &judged {
            recovered.ledgers_from = judged.ledgers_from;
        }
        for flaw in &recovered.flaws {
            tell(flaw);
        }
        let mut log = Log::open(fs, dir, &recovered, reserve)?;
        if let Some(file) = &options.format_1 {
            migrate::finish(fs, file)?;
        }
        let witness = match options.beside.as_ref().zip(judged) {
            Some((beside, judged)) => Some(bind(fs, beside, &judged, &mut log, &recovered)?),
            None => None,
        };
        let matches = witness.as_ref().map(|_| MatchesLedgers {
            from: log.ledgers_from,
        });
        let shared = Arc::new(Shared {
            state: RwLock::new(recovered.state),
            fault: Mutex::default(),
        });
        let watchers = Arc::new(Watchers::new());
        let (queue, writes) = Queue::new();
        let (ending, ended) = watch::channel(());
        let writer = Writer::new(WriterParts {
            queue: writes,
            sessions: Arc::clone(&queue.sessions),
            watchers: Arc::clone(&watchers),
            shared: Arc::clone(&shared),
            log,
            witness,
            _lock: lock,
            _ended: ending,
        });
        let store = Self {
            dir: dir.to_owned(),
            shared,
            queue: Arc::new(queue),
            watchers,
            matches,
            ended,
            thread: Mutex::default(),
        };
        Ok(Parts { store, writer })
    }

    /// Proof that this is the store of the ledgers it was opened beside; `None` when it was opened by itself.
    #[must_use]
    pub fn matches_ledgers(&self) -> Option<MatchesLedgers> {
        self.matches
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.dir
    }

    fn read<T>(&self, read: impl FnOnce(&Contents) -> T) -> Result<T, ReadError> {
        match self.queue.is_open() {
            true => Ok(read(&self.shared.read())),
            false => Err(ReadError::Fault(ended())),
        }
    }

    /// Lets `time` pass for sessions, at once: for tests, which wait for no clock.
    #[cfg(feature = "test-util")]
    pub fn pass(&self, time: Duration) {
        self.queue.sessions.pass(time);
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.queue.close();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the metadata thread panicked");
        }
        self.watchers.end();
    }
}

impl MetadataStore for Embedded {
    fn get(&self, key: &str) -> BoxFuture<'_, Result<Option<Versioned>, ReadError>> {
        let key = key.to_owned();
        Box::pin(async move {
            check_read(&key)?;
            self.read(|state| state.versioned(&key))
        })
    }

    fn put(&self, key: &str, value: Bytes, expect: Expect) -> BoxFuture<'_, Result<Version, WriteError>> {
        let key = key.to_owned();
        Box::pin(async move { Ok(plain(self.queue.change(key, Some(value), expect, None).await)?.0) })
    }

    fn delete(&self, key: &str, expect: Expect) -> BoxFuture<'_, Result<bool, WriteError>> {
        let key = key.to_owned();
        Box::pin(async move { Ok(plain(self.queue.change(key, None, expect, None).await)?.1) })
    }

    fn list(&self, prefix: &str) -> BoxFuture<'_, Result<Vec<String>, ReadError>> {
        let prefix = prefix.to_owned();
        Box::pin(async move { self.read(|state| state.list(&prefix)) })
    }

    fn scan(&self, prefix: &str) -> BoxFuture<'_, Result<Vec<Item>, ReadError>> {
        let prefix = prefix.to_owned();
        Box::pin(async move { self.read(|state| state.scan(&prefix)) })
    }

    fn watch(&self, prefix: &str) -> Watch {
        self.watchers.watch(prefix)
    }

    /// The directory is locked, and a process has one broker.
    fn has_other_writers(&self) -> bool {
        false
    }

    fn open_session(&self, timeout: Duration) -> BoxFuture<'_, Result<Arc<dyn Session>, SessionError>> {
        Box::pin(async move { self.queue.open_session(timeout) })
    }

    fn fault(&self) -> Option<Arc<Fault>> {
        self.shared.fault()
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.queue.close();
            // An error says that the writer is gone.
            while self.ended.clone().changed().await.is_ok() {}
            self.watchers.end();
        })
    }
}

/// Makes store and ledgers know each other, in this order: the witness is there, the store says the next epoch, the witness says
/// it. So a crash leaves the store at most one ahead, and never behind.
fn bind(
    fs: &dyn Fs,
    beside: &Beside,
    judged: &witness::Judged,
    log: &mut Log,
    recovered: &Recovered,
) -> Result<Witness, OpenError> {
    if judged.accepted {
        tracing::warn!(
            witness = %beside.witness.display(),
            "storage.accept_metadata: opening a metadata store that is not the one of these ledgers; ledgers below {} are kept",
            judged.ledgers_from
        );
    }
    let failed = |error: copy::CopyError| OpenError::copy(&beside.witness, &error);
    let number = recovered.state.number;
    let mut witness = Witness::open(fs, &beside.witness, judged, log.store_id, number).map_err(failed)?;
    let epoch = match judged.accepted {
        true => witness.next_epoch().max(log.epoch + 1),
        false => witness.next_epoch(),
    };
    log.say(epoch, judged.ledgers_from).map_err(failed)?;
    witness.say(epoch, number).map_err(failed)?;
    Ok(witness)
}

fn tell(flaw: &Flaw) {
    let (file, at, what) = (flaw.file.display(), flaw.byte_offset, &flaw.what);
    if flaw.by_crash {
        tracing::info!(%file, at, what, "a copy of the metadata was not finished; it is written again");
    } else {
        tracing::error!(%file, at, what, "a copy of the metadata is damaged; the other one has everything; it is written again");
    }
}

/// A plain change is of no session, so none can be over.
fn plain<T>(outcome: Result<T, SessionWriteError>) -> Result<T, WriteError> {
    outcome.map_err(|error| match error {
        SessionWriteError::Write(error) => error,
        SessionWriteError::Ended(_) => WriteError::Fault(ended()),
    })
}

fn ended() -> Arc<Fault> {
    Fault::new("use the metadata store", "it was shut down")
}

/// A store that holds nothing yet, with an id of its own.
fn new_store() -> Recovered {
    Recovered {
        state: Contents::default(),
        // The standard library's hasher is seeded by the system, which is all the randomness this needs.
        store_id: RandomState::new().build_hasher().finish(),
        generation: 0,
        epoch: 0,
        ledgers_from: 0,
        copies: Vec::new(),
        flaws: Vec::new(),
    }
}
