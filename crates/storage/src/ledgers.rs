//! What is known about ledgers: their state and where their entries are.
//!
//! Shared by writers, readers, the journal thread and the keeper. Each ledger has one lock, held for a few lines.
//! Lock order: a ledger's state before the queue; a ledger's state and the segments are never held together.
//!
//! Always true: `index.len()` is the readable end. The index never holds an entry that is not durable by the ledger's
//! own rule.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use tokio::sync::{oneshot, watch};

use pharos_ledger::{AppendError, Durability, Sealed, StorageFault, Tail};
use pharos_types::LedgerId;

/// Where an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    /// The segment; [`Location::NOWHERE`] for an entry that damage has hidden.
    pub(crate) segment: u32,
    /// Where its record begins.
    pub(crate) byte_offset: u32,
    /// Bytes of its payload, and the mark of a moved one in the highest bit: three words are all there is per entry.
    length_and_moved: u32,
}

impl Location {
    const MOVED: u32 = 1 << 31;

    /// An entry that must exist but was not found.
    pub(crate) const NOWHERE: Self = Self {
        segment: u32::MAX,
        byte_offset: 0,
        length_and_moved: 0,
    };

    pub(crate) fn new(segment: u32, byte_offset: u32, body_bytes: u32, moved: bool) -> Self {
        Self {
            segment,
            byte_offset,
            length_and_moved: body_bytes | if moved { Self::MOVED } else { 0 },
        }
    }

    pub(crate) fn body_bytes(self) -> usize {
        (self.length_and_moved & !Self::MOVED) as usize
    }

    /// Whether the record is a copy from an older segment.
    pub(crate) fn is_moved(self) -> bool {
        self.length_and_moved & Self::MOVED != 0
    }

    pub(crate) fn is_nowhere(self) -> bool {
        self.segment == u32::MAX
    }
}

/// Who may append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Its writer.
    Open,
    /// Nobody: its writer closed it.
    Closed,
    /// Nobody: it was recovered or deleted, or found at a start.
    Fenced,
}

pub(crate) type SealAnswer = oneshot::Sender<Result<Sealed, Arc<StorageFault>>>;

#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) id: LedgerId,
    pub(crate) durability: Durability,
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
    /// The deletion is durable.
    pub(crate) deleted: bool,
    /// The id of the next append.
    pub(crate) entry_next: u64,
    /// By entry id.
    pub(crate) index: Vec<Location>,
    /// Payload bytes of the entries in the index.
    pub(crate) bytes: u64,
    /// The segment with the current record of the creation.
    pub(crate) created_in: u32,
    /// That record is a copy, so its place says nothing about when the ledger was created.
    pub(crate) created_restated: bool,
    /// The segment with the current record of the seal.
    pub(crate) sealed_in: u32,
    /// While a writer may watch.
    pub(crate) tail: Option<watch::Sender<Tail>>,
    /// Found at a start: damage may have hidden entries behind the last known one.
    pub(crate) end_unknown: Option<Arc<StorageFault>>,
}

impl Ledger {
    /// A ledger about to be created, and its watermark.
    pub(crate) fn new(id: LedgerId, durability: Durability) -> (Arc<Self>, watch::Receiver<Tail>) {
        let (tail, watcher) = watch::channel(Tail::default());
        let ledger = Self::with_state(id, durability, Phase::Open, Some(tail));
        (Arc::new(ledger), watcher)
    }

    /// A ledger found at a start.
    pub(crate) fn found(id: LedgerId, durability: Durability) -> Self {
        Self::with_state(id, durability, Phase::Fenced, None)
    }

    fn with_state(
        id: LedgerId,
        durability: Durability,
        phase: Phase,
        tail: Option<watch::Sender<Tail>>,
    ) -> Self {
        Self {
            id,
            durability,
            state: Mutex::new(LedgerState {
                phase,
                sealed: None,
                seal_queued: false,
                seal_waiters: Vec::new(),
                deleted: false,
                entry_next: 0,
                index: Vec::new(),
                bytes: 0,
                created_in: u32::MAX,
                created_restated: false,
                sealed_in: u32::MAX,
                tail,
                end_unknown: None,
            }),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, LedgerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LedgerState {
    /// Why an append is refused by the ledger itself, if it is.
    pub(crate) fn refusal(&self, ledger: LedgerId) -> Option<AppendError> {
        match self.phase {
            Phase::Open => None,
            Phase::Closed => Some(AppendError::Closed { ledger }),
            Phase::Fenced => Some(AppendError::Fenced { ledger }),
        }
    }

    /// What the ledger holds, for its seal.
    pub(crate) fn content(&self) -> Sealed {
        Sealed {
            entry_count: self.index.len() as u64,
            bytes: self.bytes,
        }
    }

    /// The last append is durable and the seal as well.
    pub(crate) fn on_sealed(&mut self, segment: u32) {
        let content = self.content();
        self.sealed = Some(content);
        self.sealed_in = segment;
        self.seal_queued = false;
        self.tail = None;
        self.index.shrink_to_fit();
        for waiter in self.seal_waiters.drain(..) {
            // A waiter that gave up does not mind.
            let _ = waiter.send(Ok(content));
        }
    }

    /// Nothing will ever be written again.
    pub(crate) fn on_failed(&mut self, fault: &Arc<StorageFault>) {
        self.seal_queued = false;
        for waiter in self.seal_waiters.drain(..) {
            let _ = waiter.send(Err(Arc::clone(fault)));
        }
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
