//! What all parts of one open store share.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use pharos_ledger::StorageFault;
use pharos_runtime::fs::{Fs, FsLock, OpenHow};

use crate::format::superblock::Superblock;
use crate::ledgers::Ledgers;
use crate::options::Options;
use crate::queue::Queue;
use crate::reader::ReadQueue;
use crate::segments::{SegmentFile, Segments};
use crate::stats::{Counters, Stats};

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) dir: PathBuf,
    pub(crate) options: Options,
    pub(crate) superblock: Superblock,
    pub(crate) queue: Queue,
    pub(crate) ledgers: Ledgers,
    /// The id of the next ledger.
    pub(crate) ledger_next: AtomicU64,
    segments: Mutex<Segments>,
    supply: Mutex<Supply>,
    /// The journal stands still until the next segment comes.
    pub(crate) supply_urgent: AtomicBool,
    pub(crate) keeper_bell: Bell,
    pub(crate) reads: ReadQueue,
    pub(crate) counters: Counters,
    /// Damages found at the start.
    pub(crate) damages: AtomicU64,
    poison: OnceLock<Arc<StorageFault>>,
    /// The journal is finished; the keeper and the readers are to stop.
    pub(crate) stopping: AtomicBool,
    /// Everything is stopped and the directory is free.
    pub(crate) stopped: watch::Sender<bool>,
    lock: Mutex<Option<Box<dyn FsLock>>>,
}

/// The next segment: what the journal wants and what the keeper has ready.
#[derive(Debug, Default)]
pub(crate) struct Supply {
    pub(crate) prepared: Option<Prepared>,
    /// The size of the segment to prepare, in bytes.
    pub(crate) wanted: Option<u64>,
    /// The id of the next segment to prepare.
    pub(crate) segment_next: u32,
}

/// A file full of room, under its final name, without a header.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) file: Arc<SegmentFile>,
    pub(crate) bytes: u64,
}

/// Everything that [`Shared`] starts from.
pub(crate) struct Parts {
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) dir: PathBuf,
    pub(crate) options: Options,
    pub(crate) superblock: Superblock,
    pub(crate) ledgers: Ledgers,
    pub(crate) ledger_next: u64,
    pub(crate) segments: Segments,
    pub(crate) segment_next: u32,
    pub(crate) damages: u64,
    pub(crate) lock: Box<dyn FsLock>,
}

impl Shared {
    pub(crate) fn new(parts: Parts) -> Self {
        Self {
            queue: Queue::new(parts.options.queue_bytes_max),
            reads: ReadQueue::new(parts.options.read_queue),
            fs: parts.fs,
            dir: parts.dir,
            options: parts.options,
            superblock: parts.superblock,
            ledgers: parts.ledgers,
            ledger_next: AtomicU64::new(parts.ledger_next),
            segments: Mutex::new(parts.segments),
            supply: Mutex::new(Supply {
                segment_next: parts.segment_next,
                ..Supply::default()
            }),
            supply_urgent: AtomicBool::new(false),
            keeper_bell: Bell::default(),
            counters: Counters::default(),
            damages: AtomicU64::new(parts.damages),
            poison: OnceLock::new(),
            stopping: AtomicBool::new(false),
            stopped: watch::channel(false).0,
            lock: Mutex::new(Some(parts.lock)),
        }
    }

    pub(crate) fn segments(&self) -> MutexGuard<'_, Segments> {
        self.segments.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn supply(&self) -> MutexGuard<'_, Supply> {
        self.supply.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn block_bytes(&self) -> usize {
        self.superblock.block_bytes as usize
    }

    /// How segment files are opened.
    pub(crate) fn segment_how(&self) -> OpenHow {
        open_how(&self.options, self.superblock)
    }

    /// Why nothing is written any more, if that is so.
    pub(crate) fn poison(&self) -> Option<&Arc<StorageFault>> {
        self.poison.get()
    }

    /// From now on nothing is written. The first reason wins; everybody who waits for a tail is told.
    pub(crate) fn set_poison(&self, fault: Arc<StorageFault>) {
        if self.poison.set(Arc::clone(&fault)).is_err() {
            return;
        }
        tracing::error!(%fault, dir = %self.dir.display(), "storage accepts no more writes");
        self.queue.close(&fault);
        for ledger in self.ledgers.all() {
            ledger.lock().on_failed(&fault);
        }
        self.keeper_bell.ring();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Lets others open the directory.
    pub(crate) fn unlock_dir(&self) {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.stopped.send_replace(true);
    }

    pub(crate) fn stats(&self) -> Stats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.counters;
        let (queued, queued_bytes) = self.queue.depth();
        let ledgers = self.ledgers.count() as u64;
        let segments = self.segments();
        Stats {
            bytes_written: get(&counters.bytes_written),
            payload_bytes: get(&counters.payload_bytes),
            entries: get(&counters.entries),
            groups: get(&counters.groups),
            syncs: get(&counters.syncs),
            reads: get(&counters.reads),
            read_bytes: get(&counters.read_bytes),
            segments_removed: get(&counters.segments_removed),
            segments_reused: get(&counters.segments_reused),
            bytes_moved: get(&counters.bytes_moved),
            damaged_reads: get(&counters.damaged_reads),
            segments: segments.by_id.len() as u64,
            used_bytes: segments.by_id.values().map(|s| s.end).sum(),
            live_bytes: segments.by_id.values().map(|s| s.live_bytes).sum(),
            damages: get(&self.damages),
            ledgers,
            queued: queued as u64,
            queued_bytes: queued_bytes as u64,
            no_space: self.queue.has_no_space(),
            poisoned: self.poison().is_some(),
        }
    }
}

/// How segment files are opened: direct only where the block size allows it.
pub(crate) fn open_how(options: &Options, superblock: Superblock) -> OpenHow {
    let direct = options.io == crate::IoMode::Direct && superblock.block_bytes == 4096;
    OpenHow::CREATE.direct(direct)
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
