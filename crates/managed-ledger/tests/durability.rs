//! The durability of a topic may change while it is loaded, and may be lower than its subscriptions expect.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::FutureExt;
use pharos_ledger::memory::MemoryEngine;
use pharos_ledger::{
    Affinity, BoxFuture, CreateError, CreateOptions, DeleteError, Durability, LedgerEngine, LedgerWriter,
    OpenError, ReadEntry, ReadError, Readable, Replication, Sealed,
};
use pharos_managed_ledger::cursor_log::{CursorLogOptions, Record, SubscriptionId};
use pharos_managed_ledger::{AckState, CursorLog, ManagedLedger, OpenMode, Options};
use pharos_metadata::{Memory, MetadataStore};
use pharos_types::{EntryId, LedgerId, Ordinal};

const NAME: &str = "public/default/persistent/t";

fn run<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("nothing in memory waits")
}

/// On how many machines a ledger was to be, and on which.
type Copies = (Option<Replication>, Option<Affinity>);

/// An engine in memory that remembers how durable each ledger was to be, and forgets the end of one when asked: what a
/// power cut does to entries that the operating system had and the device had not.
#[derive(Clone)]
struct Engine {
    memory: MemoryEngine,
    made: Arc<Mutex<HashMap<LedgerId, Durability>>>,
    /// Copies requested for each ledger.
    copies: Arc<Mutex<HashMap<LedgerId, Copies>>>,
    /// Entries of open ledgers that a crash leaves.
    left: Arc<Mutex<Option<u64>>>,
}

impl Engine {
    fn new() -> Self {
        Self {
            memory: MemoryEngine::new(),
            made: Arc::default(),
            copies: Arc::default(),
            left: Arc::default(),
        }
    }

    fn durability(&self, ledger: LedgerId) -> Durability {
        self.made.lock().unwrap()[&ledger]
    }
}

impl LedgerEngine for Engine {
    fn create(&self, options: CreateOptions) -> BoxFuture<'_, Result<Arc<dyn LedgerWriter>, CreateError>> {
        let (durability, copies) = (
            options.durability,
            (options.replication, options.affinity.clone()),
        );
        Box::pin(async move {
            let writer = self.memory.create(options).await?;
            self.copies.lock().unwrap().insert(writer.id(), copies);
            self.made.lock().unwrap().insert(writer.id(), durability);
            Ok(writer)
        })
    }

    fn recover(&self, ledger: LedgerId) -> BoxFuture<'_, Result<Sealed, OpenError>> {
        Box::pin(async move {
            let sealed = self.memory.recover(ledger).await?;
            let left = *self.left.lock().unwrap();
            Ok(match (left, self.durability(ledger)) {
                (Some(left), Durability::Async) => Sealed {
                    entry_count: sealed.entry_count.min(left),
                    bytes: sealed.bytes,
                },
                _ => sealed,
            })
        })
    }

    fn read(
        &self,
        ledger: LedgerId,
        first: EntryId,
        entries_max: usize,
        bytes_max: usize,
    ) -> BoxFuture<'_, Result<Vec<ReadEntry>, ReadError>> {
        self.memory.read(ledger, first, entries_max, bytes_max)
    }

    fn follow(&self, ledger: LedgerId, beyond: Option<u64>) -> BoxFuture<'_, Result<Readable, ReadError>> {
        self.memory.follow(ledger, beyond)
    }

    fn delete(&self, ledger: LedgerId) -> BoxFuture<'_, Result<(), DeleteError>> {
        self.memory.delete(ledger)
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<LedgerId>, ReadError>> {
        self.memory.list()
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        self.memory.shutdown()
    }
}

fn open(engine: &Engine, metadata: &Arc<Memory>, durability: Durability) -> ManagedLedger {
    let options = Options {
        durability,
        ..Options::default()
    };
    let metadata: Arc<dyn MetadataStore> = Arc::<Memory>::clone(metadata);
    let engine = Arc::new(engine.clone());
    run(ManagedLedger::open(
        NAME,
        engine,
        metadata,
        options,
        OpenMode::Create,
        0,
    ))
    .unwrap()
}

fn open_cursors(log: &ManagedLedger) -> CursorLog {
    run(CursorLog::open(log, CursorLogOptions::default(), 0)).unwrap()
}

fn maintain(log: &mut ManagedLedger) {
    while let Some(step) = log.take_maintenance(0) {
        log.on_maintenance(run(step), 0);
    }
}

fn maintain_cursors(log: &mut CursorLog) {
    while let Some(step) = log.take_maintenance(0) {
        log.on_maintenance(run(step), 0);
    }
}

fn append(log: &mut ManagedLedger, count: u64) {
    for _ in 0..count {
        log.append(Bytes::from("entry")).unwrap();
    }
    maintain(log);
}

#[test]
fn a_change_of_copies_begins_a_new_ledger_and_holds_for_cursors() {
    let (engine, metadata) = (Engine::new(), Arc::new(Memory::new()));
    let mut log = open(&engine, &metadata, Durability::Sync);
    let copies = |ensemble, write_quorum, ack_quorum| {
        Some(Replication {
            ensemble,
            write_quorum,
            ack_quorum,
        })
    };
    append(&mut log, 3);
    let group = Arc::new(Affinity {
        primary: vec!["fast".to_owned()],
        secondary: Vec::new(),
    });
    let wanted = [
        (copies(3, 3, 2), None),
        (copies(3, 2, 2), None),
        (copies(3, 2, 2), Some(group)),
    ];
    for (replication, affinity) in wanted.clone() {
        let before = engine.copies.lock().unwrap().len();
        log.set_copies(replication, affinity.clone());
        maintain(&mut log);
        append(&mut log, 3);
        let made = engine.copies.lock().unwrap().clone();
        assert_eq!(made.len(), before + 1, "one ledger, and no other after it");
        let newest = made.keys().max().unwrap();
        assert_eq!(made[newest], (replication, affinity.as_deref().cloned()));
    }
    let mut cursors = open_cursors(&log);
    cursors.set_copies(log.replication(), log.affinity());
    let created = Record::SubscriptionCreated {
        subscription: SubscriptionId(0),
        name: "s".to_owned(),
        kind: 0,
        properties: Default::default(),
        facts: Vec::new(),
    };
    cursors.queue(created).unwrap();
    let ticket = cursors.commit();
    maintain_cursors(&mut cursors);
    run(ticket.durable()).unwrap();
    let made = engine.copies.lock().unwrap().clone();
    let (replication, affinity) = &wanted[2];
    assert_eq!(
        made[made.keys().max().unwrap()],
        (*replication, affinity.as_deref().cloned())
    );
}

#[test]
fn a_change_begins_a_new_ledger_at_once_also_when_the_last_one_is_empty() {
    let (engine, metadata) = (Engine::new(), Arc::new(Memory::new()));
    let mut log = open(&engine, &metadata, Durability::Sync);
    log.set_durability(Durability::Async);
    maintain(&mut log);
    assert_eq!(log.durability(), Durability::Async);
    append(&mut log, 5);
    // Back and forth before anything is appended: what counts is the last word.
    for durability in [Durability::Sync, Durability::Async, Durability::Sync] {
        log.set_durability(durability);
        maintain(&mut log);
    }
    append(&mut log, 5);
    log.set_durability(Durability::Sync);
    maintain(&mut log);
    let with_entries: Vec<_> = log.ledgers().iter().filter(|row| row.entries > 0).collect();
    let made: Vec<_> = with_entries.iter().map(|row| engine.durability(row.id)).collect();
    assert_eq!(made, [Durability::Async, Durability::Sync]);
    assert_eq!(log.durable_end(), Ordinal(10));
    let read = run(log.read(Ordinal(3), 100, 1 << 20)).unwrap();
    assert_eq!(read[0].ordinal, Ordinal(3));
    // Ledgers that turned out to be empty leave with the next opening.
    drop(log);
    let log = open(&engine, &metadata, Durability::Sync);
    assert_eq!(
        log.ledgers().iter().map(|row| row.entries).collect::<Vec<_>>(),
        [5, 5, 0]
    );
    assert_eq!(log.end(), Ordinal(10));
}

#[test]
fn cursors_are_synced_whatever_their_topic_is() {
    for durability in [Durability::Async, Durability::Bypass] {
        let (engine, metadata) = (Engine::new(), Arc::new(Memory::new()));
        let log = open(&engine, &metadata, durability);
        let mut cursors = open_cursors(&log);
        let created = Record::SubscriptionCreated {
            subscription: SubscriptionId(0),
            name: "s".to_owned(),
            kind: 0,
            properties: Default::default(),
            facts: Vec::new(),
        };
        cursors.queue(created).unwrap();
        let ticket = cursors.commit();
        maintain_cursors(&mut cursors);
        run(ticket.durable()).unwrap();
        let topic = log.ledgers().last().unwrap().id;
        let made = engine.made.lock().unwrap().clone();
        let cursor_ledgers: Vec<_> = made.iter().filter(|(id, _)| **id != topic).collect();
        assert_eq!(made[&topic], durability);
        assert_eq!(cursor_ledgers.len(), 1);
        assert_eq!(*cursor_ledgers[0].1, Durability::Sync);
    }
}

#[test]
fn cursors_never_stand_beyond_the_recovered_end() {
    let (engine, metadata) = (Engine::new(), Arc::new(Memory::new()));
    let mut log = open(&engine, &metadata, Durability::Async);
    // The cursors are on the device, the messages are not.
    let mut cursors = open_cursors(&log);
    append(&mut log, 100);
    let subscription = SubscriptionId(0);
    let name = Record::SubscriptionCreated {
        subscription,
        name: "s".to_owned(),
        kind: 0,
        properties: Default::default(),
        facts: Vec::new(),
    };
    cursors.queue(name).unwrap();
    let slot = cursors.slot_free();
    let mut acks = AckState::new(Ordinal(60));
    acks.ack(Ordinal(80));
    let created = Record::CursorCreated {
        slot,
        subscription,
        consumer: String::new(),
        facts: Vec::new(),
        acks,
    };
    cursors.queue(created).unwrap();
    let ticket = cursors.commit();
    maintain_cursors(&mut cursors);
    run(ticket.durable()).unwrap();
    drop((log, cursors));

    *engine.left.lock().unwrap() = Some(40);
    let mut log = open(&engine, &metadata, Durability::Async);
    *engine.left.lock().unwrap() = None;
    assert_eq!(log.end(), Ordinal(40), "the end was lost");
    let cursors = open_cursors(&log);
    let acks = &cursors.cursor(slot).unwrap().acks;
    assert_eq!(acks.acked_to(), Ordinal(40));
    append(&mut log, 60);
    // Also after another start nothing of it counts as acknowledged.
    drop((log, cursors));
    let log = open(&engine, &metadata, Durability::Async);
    let cursors = open_cursors(&log);
    let acks = &cursors.cursor(slot).unwrap().acks;
    assert_eq!((acks.acked_to(), acks.backlog(log.end())), (Ordinal(40), 60));
    assert!(!acks.is_acked(Ordinal(80)));
}
