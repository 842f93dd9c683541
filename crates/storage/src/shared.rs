//! State shared by all parts of an open store.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use pharos_ledger::StorageFault;
use pharos_runtime::Nanos;
use pharos_runtime::fs::{Fs, FsLock, OpenHow};
use pharos_runtime::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use pharos_runtime::sync::{Condvar, Mutex, MutexGuard};
use pharos_storage_format::checkpoint::Mark;
use pharos_storage_format::file::SegmentFile;
use pharos_storage_format::runs::Run;
use pharos_storage_format::superblock::Superblock;
use pharos_types::LedgerId;

use crate::cache::{Cache, JournalProgress};
use crate::journal::segments::Segments;
use crate::ledgers::{Ledger, Ledgers};
use crate::logs::Logs;
use crate::options::{IoMode, Options};
use crate::queue::Queue;
use crate::read::extents::Extents;
use crate::read::flights::Flights;
use crate::read::pace::Pacer;
use crate::read::places::Places;
use crate::read::queue::ReadQueue;
use crate::reserve::Reserve;
use crate::stats::Counters;

/// State of a journal that all threads may read.
#[derive(Debug)]
pub(crate) struct JournalShared {
    pub(crate) dir: PathBuf,
    pub(crate) superblock: Superblock,
    pub(crate) queue: Queue,
    segments: Mutex<Segments>,
    supply: Mutex<Supply>,
    /// The journal stands still until the next segment comes.
    pub(crate) supply_urgent: AtomicBool,
    /// Room for deletions on a full device.
    pub(crate) reserve: Reserve,
    /// The journal has facts to write and no room but that.
    pub(crate) reserve_wanted: AtomicBool,
    /// Wakes the preparer.
    pub(crate) bell: Bell,
    /// True if it will never write again.
    pub(crate) stopped: AtomicBool,
}

/// The next segment: what the journal wants and what the preparer has ready.
#[derive(Debug, Default)]
pub(crate) struct Supply {
    pub(crate) prepared: Option<Prepared>,
    /// The size of the segment to prepare, in bytes.
    pub(crate) wanted: Option<u64>,
    /// The id of the next segment to prepare.
    pub(crate) segment_next: u32,
    /// Files of old segments, to be written again. All ids that their contents carry are below `segment_next`.
    pub(crate) spares: VecDeque<Spare>,
}

impl Supply {
    /// True if some spare has at least this many bytes.
    pub(crate) fn has_spare(&self, bytes: u64) -> bool {
        self.spares.iter().any(|spare| spare.bytes >= bytes)
    }

    /// Takes a spare of at least so many bytes.
    pub(crate) fn take_spare(&mut self, bytes: u64) -> Option<Spare> {
        let at = self.spares.iter().position(|spare| spare.bytes >= bytes)?;
        self.spares.remove(at)
    }
}

/// The file of an old segment that nothing needs any more.
#[derive(Debug)]
pub(crate) struct Spare {
    pub(crate) path: PathBuf,
    /// Its length.
    pub(crate) bytes: u64,
}

/// A file full of room, under its final name, without a header.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) file: Arc<SegmentFile>,
    pub(crate) bytes: u64,
    /// True if it was the reserve: for facts, and a little that helps to get to them.
    pub(crate) is_reserve: bool,
}

/// Directory of entry logs.
#[derive(Debug)]
pub(crate) struct LedgerDir {
    pub(crate) path: PathBuf,
    pub(crate) superblock: Superblock,
    logs: Mutex<Logs>,
    /// Room for flushes and checkpoints on a full device.
    pub(crate) reserve: Reserve,
    pub(crate) reads: ReadQueue,
    pub(crate) flights: Flights,
    pub(crate) pacer: Pacer,
    pub(crate) places: Places,
}

/// Time after its last use until a large buffer for a device is freed. Its memory costs milliseconds when it is used
/// for the first time.
pub(crate) const BUFFERS_KEPT: Duration = Duration::from_secs(60);

/// Time of the next look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// There may be more to do.
    Again,
    /// Look again at the wake-up signal, or after this long.
    Wait(Option<Duration>),
    /// Never.
    Stopped,
}

impl Pace {
    /// Whichever of the two comes first; what is not `Wait` is first, of two such the first.
    pub(crate) fn sooner(self, other: Self) -> Self {
        match (self, other) {
            (Self::Wait(Some(one)), Self::Wait(Some(other))) => Self::Wait(Some(one.min(other))),
            (Self::Wait(None), other) | (other, Self::Wait(None)) => other,
            (one, _) => one,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) options: Options,
    pub(crate) store_id: u64,
    pub(crate) journals: Vec<JournalShared>,
    pub(crate) dirs: Vec<LedgerDir>,
    pub(crate) ledgers: Ledgers,
    /// The id of the next ledger.
    pub(crate) ledger_next: AtomicU64,
    pub(crate) cache: Cache,
    /// Up to where each journal is covered by a durable checkpoint.
    checkpointed: Mutex<Vec<JournalProgress>>,
    /// The number of the last durable checkpoint.
    generation: AtomicU64,
    /// Ledgers whose seal waits for a checkpoint.
    parked: Mutex<Vec<Arc<Ledger>>>,
    pub(crate) flush_bell: Bell,
    /// A journal waits for the other half of the write cache.
    pub(crate) flush_wanted: AtomicBool,
    /// Time of a journal's last urgent write, on the monotonic clock, and the number of groups with urgent entries.
    pub(crate) last_urgent: AtomicU64,
    pub(crate) urgent_groups: AtomicU64,
    pub(crate) extents: Extents,
    pub(crate) counters: Counters,
    /// Damages found at the start.
    pub(crate) damages: AtomicU64,
    /// Indexes that the start had to make again.
    pub(crate) indexes_rebuilt: AtomicU64,
    /// Bytes of journal groups that the start replayed.
    pub(crate) replayed_bytes: AtomicU64,
    poison: OnceLock<Arc<StorageFault>>,
    /// By part of the store what keeps it from going on at the moment.
    troubles: Mutex<BTreeMap<Part, Trouble>>,
    /// The store is asked to end.
    pub(crate) stop_wanted: AtomicBool,
    /// Preparers' threads that have not ended.
    pub(crate) preparers: AtomicUsize,
    /// Everything is stopped and the directories are free.
    pub(crate) stopped: watch::Sender<bool>,
    locks: Mutex<Vec<Box<dyn FsLock>>>,
}

/// A directory as it was found: where, and what its `VERSION` says.
#[derive(Clone, Debug)]
pub(crate) struct FoundDir {
    pub(crate) path: PathBuf,
    pub(crate) superblock: Superblock,
}

/// A part of the store that may have to wait for something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    /// A journal's preparer, by its number.
    Preparer(usize),
    Flusher,
}

/// Fault that a part of the store waits for.
#[derive(Debug)]
struct Trouble {
    fault: Arc<StorageFault>,
    /// Time of the last log line about it.
    told_at: Nanos,
}

/// A trouble that lasts is told in the log this often.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// Everything that [`Shared`] starts from.
pub(crate) struct Parts {
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) options: Options,
    pub(crate) journals: Vec<FoundDir>,
    pub(crate) dirs: Vec<FoundDir>,
    pub(crate) logs: Vec<Logs>,
    pub(crate) marks: Vec<Mark>,
    pub(crate) ledgers: Ledgers,
    pub(crate) ledger_next: u64,
    /// The number of the checkpoint found.
    pub(crate) generation: u64,
    pub(crate) locks: Vec<Box<dyn FsLock>>,
}

impl Shared {
    pub(crate) fn new(parts: Parts) -> Self {
        let options = &parts.options;
        let journal = |found: FoundDir| JournalShared {
            dir: found.path,
            superblock: found.superblock,
            queue: Queue::new(options.queue_bytes_max),
            segments: Mutex::default(),
            supply: Mutex::default(),
            supply_urgent: AtomicBool::new(false),
            reserve: Reserve::default(),
            reserve_wanted: AtomicBool::new(false),
            bell: Bell::default(),
            stopped: AtomicBool::new(false),
        };
        let dir = |(found, logs): (FoundDir, Logs)| LedgerDir {
            path: found.path,
            superblock: found.superblock,
            logs: Mutex::new(logs),
            reserve: Reserve::default(),
            reads: ReadQueue::new(options.read_queue),
            flights: Flights::default(),
            pacer: Pacer::default(),
            places: Places::default(),
        };
        let progress = |mark: &Mark| JournalProgress {
            mark: *mark,
            written: 0,
        };
        let store_id = parts.dirs.first().map_or(0, |dir| dir.superblock.store_id);
        Self {
            store_id,
            journals: parts.journals.into_iter().map(journal).collect(),
            dirs: parts.dirs.into_iter().zip(parts.logs).map(dir).collect(),
            ledgers: parts.ledgers,
            ledger_next: AtomicU64::new(parts.ledger_next),
            cache: Cache::new(options.write_cache_bytes, &parts.marks),
            checkpointed: Mutex::new(parts.marks.iter().map(progress).collect()),
            generation: AtomicU64::new(parts.generation),
            parked: Mutex::default(),
            flush_bell: Bell::default(),
            flush_wanted: AtomicBool::new(false),
            last_urgent: AtomicU64::new(0),
            urgent_groups: AtomicU64::new(0),
            extents: Extents::new(options.read_cache_bytes),
            counters: Counters::default(),
            damages: AtomicU64::new(0),
            indexes_rebuilt: AtomicU64::new(0),
            replayed_bytes: AtomicU64::new(0),
            poison: OnceLock::new(),
            troubles: Mutex::default(),
            stop_wanted: AtomicBool::new(false),
            preparers: AtomicUsize::new(0),
            stopped: watch::channel(false).0,
            locks: Mutex::new(parts.locks),
            fs: parts.fs,
            options: parts.options,
        }
    }

    /// The journal and the directory of a new ledger. Mixed, because ids of the same kind of ledger often differ by two.
    pub(crate) fn places(&self, ledger: LedgerId) -> (u16, u16) {
        let mixed = ledger.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let journal = mixed % self.journals.len().max(1) as u64;
        let dir = (mixed >> 16) % self.dirs.len().max(1) as u64;
        (journal as u16, dir as u16)
    }

    /// The journal that takes a ledger's facts and appends.
    pub(crate) fn journal_of(&self, ledger: &Ledger) -> &JournalShared {
        // After a start with fewer journals any will do: what the ledger had in the other one was found and is kept.
        &self.journals[usize::from(ledger.journal) % self.journals.len()]
    }

    pub(crate) fn logs(&self, dir: usize) -> MutexGuard<'_, Logs> {
        self.dirs[dir].logs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn parked(&self) -> MutexGuard<'_, Vec<Arc<Ledger>>> {
        self.parked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Up to where a journal is covered by a durable checkpoint.
    pub(crate) fn checkpointed(&self, journal: usize) -> JournalProgress {
        let all = self.checkpointed.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(journal).copied().unwrap_or_default()
    }

    pub(crate) fn all_checkpointed(&self) -> Vec<JournalProgress> {
        self.checkpointed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The number of the last durable checkpoint.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Checkpoint `generation` is durable.
    pub(crate) fn set_generation(&self, generation: u64) {
        self.generation.store(generation, Ordering::Release);
    }

    /// A checkpoint with these marks is durable.
    pub(crate) fn set_checkpointed(&self, progress: Vec<JournalProgress>) {
        *self.checkpointed.lock().unwrap_or_else(PoisonError::into_inner) = progress;
        for journal in &self.journals {
            journal.bell.ring();
        }
    }

    pub(crate) fn checkpointed_bytes(&self, journal: usize) -> u64 {
        self.checkpointed(journal).written
    }

    /// True if some journal has more data than it should that no checkpoint covers.
    pub(crate) fn is_journal_long(&self) -> bool {
        let published = self.cache.progress();
        let checkpointed = self.all_checkpointed();
        published
            .iter()
            .zip(&checkpointed)
            .any(|(p, c)| p.written.saturating_sub(c.written) >= self.options.journal_bytes_max)
    }

    pub(crate) fn block_bytes(&self) -> usize {
        let journal = self.journals.first();
        journal.map_or(4096, |journal| journal.superblock.block_bytes as usize)
    }

    /// Returns the options for opening files: direct only where the block size allows it.
    pub(crate) fn open_how(&self, block_bytes: u32) -> OpenHow {
        open_how(&self.options, block_bytes)
    }

    /// Records of these runs are needed no more.
    pub(crate) fn release_runs<'a>(&self, dir: u16, runs: impl Iterator<Item = &'a Run>) {
        let mut logs = self.logs(usize::from(dir));
        for run in runs {
            logs.release(run.log, run.bytes());
        }
    }

    /// Journals that wait for something look again.
    pub(crate) fn ring_journals(&self) {
        for journal in &self.journals {
            journal.queue.ring();
        }
    }

    /// Returns the fault because of which nothing is written any more, if there is one.
    pub(crate) fn poison(&self) -> Option<&Arc<StorageFault>> {
        self.poison.get()
    }

    /// From now on nothing is written. The first reason wins; every caller that waits for a tail is told.
    pub(crate) fn set_poison(&self, fault: Arc<StorageFault>) {
        if self.poison.set(Arc::clone(&fault)).is_err() {
            return;
        }
        tracing::error!(%fault, "storage accepts no more writes");
        for journal in &self.journals {
            journal.queue.close(&fault);
        }
        for ledger in self.ledgers.all() {
            ledger.lock().on_failed(&fault);
        }
        self.ring_all();
    }

    /// A part of the store met something that passes, and tries again.
    pub(crate) fn note_trouble(&self, part: Part, fault: &Arc<StorageFault>, now: Nanos) {
        let mut troubles = self.troubles.lock().unwrap_or_else(PoisonError::into_inner);
        let every = TOLD_EVERY.as_nanos() as u64;
        let is_news = troubles
            .get(&part)
            .is_none_or(|known| now.since(known.told_at) >= every);
        if is_news {
            tracing::warn!(%fault, "storage has to wait, and tries again");
            let fault = Arc::clone(fault);
            troubles.insert(part, Trouble { fault, told_at: now });
        }
    }

    /// A part of the store goes on.
    pub(crate) fn end_trouble(&self, part: Part) {
        let mut troubles = self.troubles.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(trouble) = troubles.remove(&part) {
            tracing::info!(was = %trouble.fault, "storage goes on");
        }
    }

    /// Returns the reason why appends are refused or wait now: a final fault, no room, or a transient fault. `None`:
    /// they are accepted.
    pub(crate) fn why_not_ready(&self) -> Option<Arc<StorageFault>> {
        if let Some(fault) = self.poison() {
            return Some(Arc::clone(fault));
        }
        let full = |journal: &&JournalShared| journal.queue.refuses_for_space();
        if let Some(journal) = self.journals.iter().find(full) {
            let what = match journal.queue.lacks_flush_space() {
                true => "write entry logs".to_owned(),
                false => format!("make room in {}", journal.dir.display()),
            };
            return Some(StorageFault::transient(what, "no space left on the device"));
        }
        let troubles = self.troubles.lock().unwrap_or_else(PoisonError::into_inner);
        troubles.values().next().map(|trouble| Arc::clone(&trouble.fault))
    }

    /// Every thread that sleeps looks around.
    pub(crate) fn ring_all(&self) {
        for journal in &self.journals {
            journal.queue.ring();
            journal.bell.ring();
        }
        self.flush_bell.ring();
    }

    /// A journal will never write again.
    pub(crate) fn on_journal_stopped(&self, number: usize) {
        if let Some(journal) = self.journals.get(number) {
            journal.stopped.store(true, Ordering::Release);
        }
        self.cache.abandon(number);
        self.ring_all();
    }

    /// A preparer's thread has ended.
    pub(crate) fn on_preparer_stopped(&self) {
        self.preparers.fetch_sub(1, Ordering::AcqRel);
        self.flush_bell.ring();
    }

    /// The end was asked for and the journals are finished; the others are to finish too.
    pub(crate) fn is_stopping(&self) -> bool {
        let finished = |journal: &JournalShared| journal.stopped.load(Ordering::Acquire);
        self.stop_wanted.load(Ordering::Acquire) && self.journals.iter().all(finished)
    }

    /// Lets others open the directories.
    pub(crate) fn unlock_dirs(&self) {
        self.locks.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.stopped.send_replace(true);
    }
}

impl JournalShared {
    pub(crate) fn segments(&self) -> MutexGuard<'_, Segments> {
        self.segments.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if there is a reserve to continue in.
    pub(crate) fn has_reserve(&self, options: &Options) -> bool {
        options.journal_reserve_bytes > 0 && self.reserve.is_whole()
    }

    /// Length of the file of a segment in use or prepared; 0 when it is neither.
    pub(crate) fn segment_bytes(&self, id: u32) -> u64 {
        if let Some(segment) = self.segments().by_id.get(&id) {
            return segment.file_bytes;
        }
        let supply = self.supply();
        let prepared = supply.prepared.as_ref().filter(|prepared| prepared.file.id == id);
        prepared.map_or(0, |prepared| prepared.bytes)
    }

    pub(crate) fn supply(&self) -> MutexGuard<'_, Supply> {
        self.supply.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the options for opening files: direct only where the block size allows it.
pub(crate) fn open_how(options: &Options, block_bytes: u32) -> OpenHow {
    OpenHow::CREATE.direct(options.io == IoMode::Direct && block_bytes == 4096)
}

/// Wakes one sleeping thread; a ring while it is awake is kept.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    rung: Mutex<bool>,
    bell: Condvar,
}

impl Bell {
    pub(crate) fn ring(&self) {
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.bell.notify_one();
    }

    /// Waits for a ring, at most `timeout` (`None`: for ever).
    pub(crate) fn wait(&self, timeout: Option<Duration>) {
        let mut rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        if !*rung {
            rung = match timeout {
                None => self.bell.wait(rung).unwrap_or_else(PoisonError::into_inner),
                Some(timeout) => {
                    let waited = self.bell.wait_timeout(rung, timeout);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        *rung = false;
    }
}
