//! A ledger engine that keeps everything in memory: what the contract means, in its plainest form.
//!
//! Appends are durable at once, unless a test holds them back ([`MemoryEngine::hold`]). It never forgets on its own;
//! [`MemoryEngine::crash`] drops what was not durable, as a restart would; of an open [`Durability::Bypass`] ledger it
//! drops everything.
//!
//! Always true: one lock guards all; it is never held over an await.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures_util::FutureExt;
use tokio::sync::watch;

use pharos_types::{EntryId, LedgerId};

use crate::{
    AppendError, BoxFuture, CreateError, CreateOptions, DeleteError, Durability, LedgerEngine, LedgerWriter,
    NewEntry, OpenError, ReadEntry, ReadError, Readable, Sealed, StorageFault, Tail, follow_tail,
};

/// The largest entry taken, in bytes.
pub const ENTRY_BYTES_MAX: usize = 16 << 20;

/// The engine. Clones share the ledgers.
#[derive(Clone, Debug, Default)]
pub struct MemoryEngine {
    world: Arc<Mutex<World>>,
}

#[derive(Debug, Default)]
struct World {
    ledgers: BTreeMap<LedgerId, Ledger>,
    ledger_next: u64,
    /// While set, appends stay queued: the durable tail stands still.
    held: bool,
    /// While set, appends are refused.
    overloaded: bool,
    full: bool,
    poisoned: Option<Arc<StorageFault>>,
}

#[derive(Debug)]
struct Ledger {
    durability: Durability,
    entries: Vec<Bytes>,
    /// Entries `0..durable` are readable and survive a crash.
    durable: u64,
    status: Status,
    tail: watch::Sender<Tail>,
    /// Entries that a test declared damaged.
    damaged: Vec<EntryId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Open,
    /// Sealed by its own writer.
    Closed,
    /// Sealed by a recovery.
    Fenced,
}

impl MemoryEngine {
    /// An empty engine.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// From now on appends stay queued until [`release`](Self::release).
    pub fn hold(&self) {
        self.lock().held = true;
    }

    /// Makes everything queued durable, and appends durable at once again.
    pub fn release(&self) {
        let mut world = self.lock();
        world.held = false;
        world.ledgers.values_mut().for_each(Ledger::make_durable);
    }

    /// Sets whether appends are refused temporarily, as by an overloaded engine.
    pub fn overload(&self, is_overloaded: bool) {
        self.lock().overloaded = is_overloaded;
    }

    /// Sets whether appends and new ledgers are refused for lack of space.
    pub fn fill(&self, is_full: bool) {
        self.lock().full = is_full;
    }

    /// Fails as a device would: no write ever succeeds again, reads go on.
    pub fn poison(&self, fault: &Arc<StorageFault>) {
        let mut world = self.lock();
        world.poisoned.get_or_insert_with(|| Arc::clone(fault));
        for ledger in world.ledgers.values().filter(|l| l.status == Status::Open) {
            ledger
                .tail
                .send_modify(|tail| tail.failed = Some(Arc::clone(fault)));
        }
    }

    /// Reads of this entry answer [`ReadError::Damaged`] from now on.
    pub fn damage(&self, ledger: LedgerId, entry: EntryId) {
        if let Some(ledger) = self.lock().ledgers.get_mut(&ledger) {
            ledger.damaged.push(entry);
        }
    }

    /// The engine as a restart after a crash finds it: entries that were not durable are gone, no writer is left,
    /// a poisoned engine is well again. The old handle's writers do not reach the new engine.
    #[must_use]
    pub fn crash(&self) -> Self {
        let world = self.lock();
        let ledgers = world
            .ledgers
            .iter()
            .map(|(id, l)| (*id, l.after_crash()))
            .collect();
        Self {
            world: Arc::new(Mutex::new(World {
                ledgers,
                ledger_next: world.ledger_next,
                held: false,
                overloaded: false,
                full: false,
                poisoned: None,
            })),
        }
    }

    fn lock(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn create_now(&self, options: &CreateOptions) -> Result<Arc<dyn LedgerWriter>, CreateError> {
        let mut world = self.lock();
        if let Some(fault) = &world.poisoned {
            return Err(CreateError::Poisoned(Arc::clone(fault)));
        }
        if world.full {
            return Err(CreateError::NoSpace);
        }
        let id = LedgerId(world.ledger_next);
        world.ledger_next += 1;
        let ledger = Ledger::new(options.durability);
        let tail = ledger.tail.subscribe();
        world.ledgers.insert(id, ledger);
        drop(world);
        Ok(Arc::new(Writer {
            id,
            engine: self.clone(),
            tail,
        }))
    }

    fn recover_now(&self, id: LedgerId) -> Result<Sealed, OpenError> {
        let mut world = self.lock();
        let poisoned = world.poisoned.clone();
        let ledger = world.ledgers.get_mut(&id).ok_or(OpenError::NoSuchLedger(id))?;
        if ledger.status == Status::Open {
            if let Some(fault) = poisoned {
                return Err(OpenError::Fault(fault));
            }
            // Also what a test holds back is there, as it could be on a disk: the old writer may be told so.
            ledger.make_durable();
            ledger.seal_as(Status::Fenced);
        }
        Ok(ledger.sealed())
    }

    /// `end`: where reading ends in a ledger.
    fn read_now(
        &self,
        id: LedgerId,
        first: EntryId,
        (entries_max, bytes_max): (usize, usize),
        end: impl Fn(&Ledger) -> u64,
    ) -> Result<Vec<ReadEntry>, ReadError> {
        let world = self.lock();
        let ledger = world.ledgers.get(&id).ok_or(ReadError::NoSuchLedger(id))?;
        let mut found = Vec::new();
        let mut bytes = 0usize;
        for entry in first.0..end(ledger) {
            let payload = ledger.payload(entry);
            bytes = bytes.saturating_add(payload.len());
            if !found.is_empty() && (found.len() >= entries_max || bytes > bytes_max) {
                break;
            }
            if ledger.damaged.contains(&EntryId(entry)) {
                if found.is_empty() {
                    return Err(ReadError::Damaged {
                        ledger: id,
                        entry: EntryId(entry),
                        file: "memory".to_owned(),
                        byte_offset: 0,
                    });
                }
                break;
            }
            found.push(ReadEntry {
                id: EntryId(entry),
                payload,
            });
        }
        Ok(found)
    }

    /// Returns the readable part, and the tail if there may be more.
    fn readable(&self, id: LedgerId) -> Result<(Readable, Option<watch::Receiver<Tail>>), ReadError> {
        let world = self.lock();
        let ledger = world.ledgers.get(&id).ok_or(ReadError::NoSuchLedger(id))?;
        let is_sealed = ledger.status != Status::Open;
        let readable = Readable {
            entries: ledger.durable,
            is_sealed,
        };
        Ok((readable, (!is_sealed).then(|| ledger.tail.subscribe())))
    }

    fn delete_now(&self, id: LedgerId) -> Result<(), DeleteError> {
        let mut world = self.lock();
        if !world.ledgers.contains_key(&id) {
            return Ok(());
        }
        if let Some(fault) = &world.poisoned {
            return Err(DeleteError::Poisoned(Arc::clone(fault)));
        }
        world.ledgers.remove(&id);
        Ok(())
    }
}

impl Ledger {
    fn new(durability: Durability) -> Self {
        Self {
            durability,
            entries: Vec::new(),
            durable: 0,
            status: Status::Open,
            tail: watch::channel(Tail::default()).0,
            damaged: Vec::new(),
        }
    }

    fn make_durable(&mut self) {
        let end = self.entries.len() as u64;
        if self.durable < end {
            self.durable = end;
            self.tail.send_modify(|tail| tail.durable = end);
        }
    }

    /// Nothing follows; who follows it hears of that.
    fn seal_as(&mut self, status: Status) {
        self.status = status;
        self.tail.send_modify(|_| ());
    }

    fn payload(&self, entry: u64) -> Bytes {
        let index = usize::try_from(entry).unwrap_or(usize::MAX);
        self.entries.get(index).cloned().unwrap_or_default()
    }

    fn sealed(&self) -> Sealed {
        Sealed {
            entry_count: self.entries.len() as u64,
            bytes: self.entries.iter().map(|e| e.len() as u64).sum(),
        }
    }

    fn after_crash(&self) -> Self {
        let lost = self.durability == Durability::Bypass && self.status == Status::Open;
        let durable = if lost { 0 } else { self.durable };
        let kept = usize::try_from(durable).unwrap_or(usize::MAX);
        Self {
            durability: self.durability,
            entries: self.entries.iter().take(kept).cloned().collect(),
            durable,
            status: self.status,
            tail: watch::channel(Tail::default()).0,
            damaged: self.damaged.clone(),
        }
    }
}

impl LedgerEngine for MemoryEngine {
    fn create(&self, options: CreateOptions) -> BoxFuture<'_, Result<Arc<dyn LedgerWriter>, CreateError>> {
        async move { self.create_now(&options) }.boxed()
    }

    fn recover(&self, ledger: LedgerId) -> BoxFuture<'_, Result<Sealed, OpenError>> {
        async move { self.recover_now(ledger) }.boxed()
    }

    fn read(
        &self,
        ledger: LedgerId,
        first: EntryId,
        entries_max: usize,
        bytes_max: usize,
    ) -> BoxFuture<'_, Result<Vec<ReadEntry>, ReadError>> {
        async move {
            let max = (entries_max, bytes_max);
            self.read_now(ledger, first, max, |ledger| ledger.durable)
        }
        .boxed()
    }

    fn read_unconfirmed(
        &self,
        ledger: LedgerId,
        first: EntryId,
        entries_max: usize,
        bytes_max: usize,
    ) -> BoxFuture<'_, Result<Vec<ReadEntry>, ReadError>> {
        async move {
            // A recovery keeps what a test holds back.
            let max = (entries_max, bytes_max);
            self.read_now(ledger, first, max, |ledger| ledger.entries.len() as u64)
        }
        .boxed()
    }

    fn follow(&self, ledger: LedgerId, beyond: Option<u64>) -> BoxFuture<'_, Result<Readable, ReadError>> {
        follow_tail(beyond, move || self.readable(ledger)).boxed()
    }

    fn delete(&self, ledger: LedgerId) -> BoxFuture<'_, Result<(), DeleteError>> {
        async move { self.delete_now(ledger) }.boxed()
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<LedgerId>, ReadError>> {
        async { Ok(self.lock().ledgers.keys().copied().collect()) }.boxed()
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        async {
            self.release();
            self.poison(&StorageFault::new("memory engine", "was shut down"));
        }
        .boxed()
    }
}

struct Writer {
    id: LedgerId,
    engine: MemoryEngine,
    tail: watch::Receiver<Tail>,
}

impl Writer {
    /// Runs `act` on the ledger while this writer may still write to it.
    fn while_open<T>(&self, act: impl FnOnce(&mut Ledger, bool) -> T) -> Result<T, AppendError> {
        let mut world = self.engine.lock();
        let (held, poisoned) = (world.held, world.poisoned.clone());
        let ledger = self.id;
        let Some(open) = world.ledgers.get_mut(&ledger) else {
            return Err(AppendError::Fenced { ledger });
        };
        match (open.status, poisoned) {
            (Status::Closed, _) => Err(AppendError::Closed { ledger }),
            (Status::Fenced, _) => Err(AppendError::Fenced { ledger }),
            (Status::Open, Some(fault)) => Err(AppendError::Poisoned(fault)),
            (Status::Open, None) => Ok(act(open, held)),
        }
    }
}

impl LedgerWriter for Writer {
    fn id(&self) -> LedgerId {
        self.id
    }

    fn append_entry(&self, entry: NewEntry) -> Result<EntryId, AppendError> {
        let payload = entry.payload;
        if payload.len() > ENTRY_BYTES_MAX {
            return Err(AppendError::TooLarge {
                bytes: payload.len(),
                bytes_max: ENTRY_BYTES_MAX,
            });
        }
        if self.engine.lock().full {
            return Err(AppendError::NoSpace { ledger: self.id });
        }
        if self.engine.lock().overloaded {
            return Err(AppendError::Overloaded {
                ledger: self.id,
                bytes_max: 0,
            });
        }
        self.while_open(|ledger, held| {
            let entry = EntryId(ledger.entries.len() as u64);
            ledger.entries.push(payload);
            if !held {
                ledger.make_durable();
            }
            entry
        })
    }

    fn tail(&self) -> watch::Receiver<Tail> {
        self.tail.clone()
    }

    fn close(&self) -> BoxFuture<'_, Result<(), AppendError>> {
        async {
            let mut tail = self.tail.clone();
            loop {
                let sealed = self.while_open(|ledger, _| {
                    let all = ledger.durable == ledger.entries.len() as u64;
                    if all {
                        ledger.seal_as(Status::Closed);
                    }
                    all
                });
                match sealed {
                    Ok(true) | Err(AppendError::Closed { .. }) => return Ok(()),
                    Err(error) => return Err(error),
                    Ok(false) => {}
                }
                let ledger = self.id;
                tail.changed().await.map_err(|_| AppendError::Fenced { ledger })?;
            }
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::{self, Subject};

    #[derive(Default)]
    struct Memory(MemoryEngine);

    impl Subject for Memory {
        fn engine(&self) -> Arc<dyn LedgerEngine> {
            Arc::new(self.0.clone())
        }

        fn crash(&mut self) -> BoxFuture<'_, ()> {
            self.0 = self.0.crash();
            async {}.boxed()
        }

        fn poison(&mut self) -> bool {
            self.0.poison(&StorageFault::new("test", "sync failed"));
            true
        }
    }

    #[test]
    fn the_memory_engine_keeps_the_laws() {
        conformance::run_all(Memory::default);
    }

    #[test]
    fn what_is_held_back_is_not_readable_and_lost_by_a_crash() {
        let engine = MemoryEngine::new();
        let writer = engine.create_now(&CreateOptions::default()).unwrap();
        engine.hold();
        writer.append(Bytes::from_static(b"a")).unwrap();
        assert_eq!(writer.tail().borrow().durable, 0);
        assert!(
            engine
                .read_now(writer.id(), EntryId(0), (9, 99), |ledger| ledger.durable)
                .unwrap()
                .is_empty()
        );
        assert_eq!(engine.crash().recover_now(writer.id()).unwrap().entry_count, 0);
        engine.release();
        assert_eq!(writer.tail().borrow().durable, 1);
        assert_eq!(engine.crash().recover_now(writer.id()).unwrap().entry_count, 1);
    }
}
