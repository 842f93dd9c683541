//! State of ledgers: their phase, their entries in memory, and the locations of the others.
//!
//! Shared by writers, readers, journal threads and the flusher. Each ledger has one lock, held for a few lines. Lock
//! order: a ledger's state, then a queue, the cache or the logs; never two ledgers at once.
//!
//! Always true: entries `0..end` are readable, and none of them is less durable than the ledger's own rule says. Of
//! these, `0..flushed` are in `runs`, the rest in `chunks`; what is in neither was lost to damage.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};

use tokio::sync::{oneshot, watch};

use pharos_ledger::{AppendError, CreateOptions, Durability, Sealed, StorageFault, Tail};
use pharos_runtime::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use pharos_storage_format::checkpoint::LedgerRow;
use pharos_storage_format::runs::Runs;
use pharos_types::LedgerId;

use crate::chunk::{CachedEntry, Chunk};

/// Phase of a ledger: the writers that may append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Its writer.
    Open,
    /// No writer: it closed the ledger.
    Closed,
    /// No writer: it was recovered or deleted, or found at a start.
    Fenced,
    /// No writer: what was queued for it was given up.
    GivenUp,
}

pub(crate) type SealAnswer = oneshot::Sender<Result<Sealed, Arc<StorageFault>>>;

/// Location of damage that has hidden entries.
#[derive(Clone, Debug)]
pub(crate) struct Damage {
    pub(crate) file: String,
    pub(crate) byte_offset: u64,
}

#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) id: LedgerId,
    pub(crate) durability: Durability,
    /// Its appends are not urgent.
    pub(crate) is_background: bool,
    /// The journal that its appends go to, or went to before the last start.
    pub(crate) journal: u16,
    /// The ledger directory that its entries are flushed to.
    pub(crate) dir: u16,
    state: Mutex<LedgerState>,
}

#[derive(Debug)]
pub(crate) struct LedgerState {
    pub(crate) phase: Phase,
    /// Set once the seal is durable.
    pub(crate) sealed: Option<Sealed>,
    /// A seal is queued; who asks meanwhile waits in `seal_waiters`.
    pub(crate) seal_queued: bool,
    pub(crate) seal_waiters: Vec<SealAnswer>,
    /// The next checkpoint says that it is sealed.
    pub(crate) seal_by_checkpoint: bool,
    /// The deletion is durable.
    pub(crate) deleted: bool,
    /// The id of the next append.
    pub(crate) entry_next: u64,
    /// The readable end.
    pub(crate) end: u64,
    /// Payload bytes of the entries before it.
    pub(crate) bytes: u64,
    /// The two halves of the write cache, by the lowest bit of the epoch.
    pub(crate) chunks: [Chunk; 2],
    /// Entries before this one are in the logs.
    pub(crate) flushed: u64,
    /// Their payload bytes.
    pub(crate) flushed_bytes: u64,
    /// The checkpoint that names all of them, perhaps one that is still to be written.
    pub(crate) named_by: u64,
    pub(crate) runs: Runs,
    /// While a writer may watch.
    pub(crate) tail: Option<watch::Sender<Tail>>,
    /// Reason why its queued entries were given up.
    pub(crate) given_up: Option<Arc<StorageFault>>,
    /// Found at a start: damage may have hidden entries behind the last known one.
    pub(crate) end_unknown: Option<Arc<StorageFault>>,
    /// Found at a start: what has hidden entries in the middle.
    pub(crate) hidden_by: Option<Damage>,
}

impl Ledger {
    /// A ledger about to be created, and its watermark.
    pub(crate) fn new(
        id: LedgerId,
        options: &CreateOptions,
        (journal, dir): (u16, u16),
    ) -> (Arc<Self>, watch::Receiver<Tail>) {
        let (tail, watcher) = watch::channel(Tail::default());
        let mut ledger = Self::with_state(id, options.durability, (journal, dir), Phase::Open, Some(tail));
        ledger.is_background = options.is_background;
        (Arc::new(ledger), watcher)
    }

    /// A ledger found at a start.
    pub(crate) fn found(id: LedgerId, durability: Durability, places: (u16, u16)) -> Self {
        Self::with_state(id, durability, places, Phase::Fenced, None)
    }

    fn with_state(
        id: LedgerId,
        durability: Durability,
        (journal, dir): (u16, u16),
        phase: Phase,
        tail: Option<watch::Sender<Tail>>,
    ) -> Self {
        Self {
            id,
            durability,
            is_background: false,
            journal,
            dir,
            state: Mutex::new(LedgerState {
                phase,
                sealed: None,
                seal_queued: false,
                seal_waiters: Vec::new(),
                seal_by_checkpoint: false,
                deleted: false,
                entry_next: 0,
                end: 0,
                bytes: 0,
                chunks: [Chunk::default(), Chunk::default()],
                flushed: 0,
                flushed_bytes: 0,
                named_by: 0,
                runs: Runs::default(),
                tail,
                given_up: None,
                end_unknown: None,
                hidden_by: None,
            }),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, LedgerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its row in a checkpoint; none once it is deleted.
    pub(crate) fn row(&self) -> Option<LedgerRow> {
        let state = self.lock();
        if state.deleted {
            return None;
        }
        let by_checkpoint = state.seal_by_checkpoint.then(|| state.content());
        // What damage has hidden at the end stays hidden, it does not become a shorter ledger.
        let all = state.chunks.iter().all(Chunk::is_empty);
        Some(LedgerRow {
            id: self.id.0,
            durability: self.durability,
            journal: self.journal,
            dir: self.dir,
            flushed: if all { state.end } else { state.flushed },
            flushed_bytes: state.flushed_bytes,
            sealed: state.sealed.or(by_checkpoint),
            end_unknown: state.end_unknown.is_some(),
        })
    }
}

impl LedgerState {
    /// Returns the reason why the ledger itself refuses an append, if it does.
    pub(crate) fn refusal(&self, ledger: LedgerId) -> Option<AppendError> {
        match self.phase {
            Phase::Open => None,
            Phase::Closed => Some(AppendError::Closed { ledger }),
            Phase::Fenced => Some(AppendError::Fenced { ledger }),
            Phase::GivenUp => Some(match &self.given_up {
                Some(fault) => AppendError::GivenUp {
                    ledger,
                    fault: Arc::clone(fault),
                },
                None => AppendError::Closed { ledger },
            }),
        }
    }

    /// Returns the content of the ledger, for its seal.
    pub(crate) fn content(&self) -> Sealed {
        Sealed {
            entry_count: self.end,
            bytes: self.bytes,
        }
    }

    /// Entries from `first` on are as durable as the ledger's rule says: they can be read.
    pub(crate) fn publish(&mut self, epoch: u64, first: u64, entries: Vec<CachedEntry>) {
        self.end = first + entries.len() as u64;
        self.bytes += entries.iter().map(|e| e.payload.len() as u64).sum::<u64>();
        self.chunks[(epoch & 1) as usize].extend(first, entries);
        let durable = self.end;
        if let Some(tail) = &self.tail {
            // Once failed, always failed: a caller may have acted on it.
            tail.send_if_modified(|tail| {
                let moves = tail.failed.is_none();
                if moves {
                    tail.durable = durable;
                }
                moves
            });
        }
    }

    /// An entry in memory.
    pub(crate) fn cached(&self, entry: u64) -> Option<&CachedEntry> {
        let [one, other] = &self.chunks;
        one.get(entry).or_else(|| other.get(entry))
    }

    /// The last append is durable and the seal as well.
    pub(crate) fn on_sealed(&mut self) {
        let content = self.content();
        self.sealed = Some(content);
        self.seal_queued = false;
        self.seal_by_checkpoint = false;
        self.tail = None;
        for waiter in self.seal_waiters.drain(..) {
            // A waiter that gave up does not mind.
            let _ = waiter.send(Ok(content));
        }
    }

    /// The seal that is queued will not be written; another may be asked for.
    pub(crate) fn on_seal_failed(&mut self, fault: &Arc<StorageFault>) {
        self.seal_queued = false;
        self.seal_by_checkpoint = false;
        for waiter in self.seal_waiters.drain(..) {
            let _ = waiter.send(Err(Arc::clone(fault)));
        }
    }

    /// Gives up what is queued behind the readable end: it will not be written. The ledger accepts no more appends,
    /// and can be recovered.
    pub(crate) fn give_up(&mut self, fault: &Arc<StorageFault>) {
        if self.phase == Phase::Open {
            self.phase = Phase::GivenUp;
        }
        self.entry_next = self.end;
        self.given_up = Some(Arc::clone(fault));
        self.on_failed(fault);
    }

    /// Nothing will ever be written again.
    pub(crate) fn on_failed(&mut self, fault: &Arc<StorageFault>) {
        self.on_seal_failed(fault);
        if let Some(tail) = &self.tail {
            tail.send_modify(|tail| {
                tail.failed.get_or_insert_with(|| Arc::clone(fault));
            });
        }
    }
}

/// All ledgers that exist.
#[derive(Debug, Default)]
pub(crate) struct Ledgers {
    by_id: RwLock<HashMap<LedgerId, Arc<Ledger>>>,
}

impl Ledgers {
    pub(crate) fn new(by_id: HashMap<LedgerId, Arc<Ledger>>) -> Self {
        Self {
            by_id: RwLock::new(by_id),
        }
    }

    pub(crate) fn get(&self, id: LedgerId) -> Option<Arc<Ledger>> {
        self.read().get(&id).cloned()
    }

    pub(crate) fn insert(&self, ledger: Arc<Ledger>) {
        self.write().insert(ledger.id, ledger);
    }

    pub(crate) fn remove(&self, id: LedgerId) {
        self.write().remove(&id);
    }

    pub(crate) fn all(&self) -> Vec<Arc<Ledger>> {
        self.read().values().cloned().collect()
    }

    pub(crate) fn count(&self) -> usize {
        self.read().len()
    }

    pub(crate) fn ids(&self) -> Vec<LedgerId> {
        let mut ids: Vec<LedgerId> = self.read().keys().copied().collect();
        ids.sort_unstable();
        ids
    }

    fn read(&self) -> RwLockReadGuard<'_, HashMap<LedgerId, Arc<Ledger>>> {
        self.by_id.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, HashMap<LedgerId, Arc<Ledger>>> {
        self.by_id.write().unwrap_or_else(PoisonError::into_inner)
    }
}
