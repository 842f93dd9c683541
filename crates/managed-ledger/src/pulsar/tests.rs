//! Pulsar's form, on bytes that its brokers wrote, and through openings between which such a broker was at it.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use pharos_ledger::memory::MemoryEngine;
use pharos_ledger::{CreateOptions, LedgerEngine};
use pharos_metadata::{Expect, Memory, MetadataLayout, MetadataStore};
use pharos_types::{EntryId, LedgerId, Ordinal};
use prost::Message as _;

use super::cursor::{CursorState, state_of};
use super::proto::{
    self, BatchIndexes, CursorEntry, EntrySet, ManagedCursorInfo, MessageRange, StoredPosition,
};
use super::{info, name, nodes};
use crate::cursor_log::{CursorLogOptions, NodeScope, Record, Slot, SubscriptionId};
use crate::info::key_of;
use crate::ledger::MaintenanceEvent;
use crate::mortal::Life;
use crate::table::{LedgerRow, LedgerTable};
use crate::{AckState, CursorLog, ManagedLedger, OpenError, OpenMode, Options, Retention};

mod compaction;
mod forms;
mod system;

const NAME: &str = "public/default/persistent/t1";

fn run<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("nothing in memory waits")
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u32> = hex.chars().map(|digit| digit.to_digit(16).unwrap()).collect();
    digits
        .chunks(2)
        .map(|pair| u8::try_from(pair[0] * 16 + pair[1]).unwrap())
        .collect()
}

fn at(ledger_id: i64, entry_id: i64) -> StoredPosition {
    StoredPosition { ledger_id, entry_id }
}

/// A cluster in memory, with a topic that Pharos has open now and then.
struct World {
    engine: MemoryEngine,
    metadata: Arc<Memory>,
    now_ms: u64,
}

struct Topic {
    ledger: ManagedLedger,
    cursors: CursorLog,
}

impl World {
    fn new() -> Self {
        Self {
            engine: MemoryEngine::new(),
            metadata: Arc::new(Memory::new()),
            now_ms: 1_000,
        }
    }

    fn open(&mut self) -> Topic {
        run(self.open_in(&Life::new())).unwrap()
    }

    /// Opens it in a process that may die, or be held up.
    async fn open_in(&mut self, life: &Life) -> Result<Topic, OpenError> {
        self.now_ms += 1_000;
        let options = Options {
            layout: MetadataLayout::Pulsar,
            ledger_age_ms_min: 0,
            ..Options::default()
        };
        let engine = life.engine(Arc::new(self.engine.clone()));
        let metadata = life.store(self.metadata.clone());
        let opened = ManagedLedger::open(NAME, engine, metadata, options, OpenMode::Create, self.now_ms);
        let ledger = opened.await?;
        let cursors = CursorLog::open(&ledger, CursorLogOptions::default(), self.now_ms).await?;
        Ok(Topic { ledger, cursors })
    }

    fn stored(&self) -> proto::StoredInfo {
        let found = run(self.metadata.get(&key_of(NAME))).unwrap().unwrap();
        proto::StoredInfo::decode(&*found.value).unwrap()
    }

    fn node(&self, cursor: &str) -> Option<ManagedCursorInfo> {
        let found = run(self.metadata.get(&super::nodes::key(NAME, cursor))).unwrap()?;
        Some(ManagedCursorInfo::decode(&*found.value).unwrap())
    }

    fn put_node(&self, cursor: &str, node: &ManagedCursorInfo) {
        let value = Bytes::from(node.encode_to_vec());
        run(self
            .metadata
            .put(&super::nodes::key(NAME, cursor), value, Expect::Any))
        .unwrap();
    }

    /// A cursor of Pulsar whose state is in a ledger of its own: its node, as it was put.
    fn put_cursor(&self, cursor: &str, entries: &[CursorEntry]) -> ManagedCursorInfo {
        let ledger = run(self.engine.create(CreateOptions::default())).unwrap();
        for entry in entries {
            ledger.append(Bytes::from(entry.encode_to_vec())).unwrap();
        }
        let node = ManagedCursorInfo {
            cursors_ledger_id: i64::try_from(ledger.id().0).unwrap(),
            ..ManagedCursorInfo::default()
        };
        self.put_node(cursor, &node);
        node
    }

    /// Entries of a cursor's ledger, and the last one; does not fence it.
    fn last_entry(&self, ledger: i64) -> (u64, CursorEntry) {
        let ledger = LedgerId(u64::try_from(ledger).unwrap());
        let entries = run(self.engine.read(ledger, EntryId(0), 100, usize::MAX)).unwrap();
        let last = entries.last().unwrap();
        (last.id.0 + 1, CursorEntry::decode(&*last.payload).unwrap())
    }

    fn is_gone(&self, ledger: i64) -> bool {
        let ledger = LedgerId(u64::try_from(ledger).unwrap());
        run(self.engine.read(ledger, EntryId(0), 1, usize::MAX)).is_err()
    }

    /// Opens the topic as a broker of Pulsar does: the last ledger is recovered, a new one is begun, and `count`
    /// entries are appended to it.
    fn java(&mut self, count: u64, change: impl FnOnce(&mut proto::StoredInfo)) -> i64 {
        let mut stored = self.stored();
        if let Some(last) = stored.ledgers.last_mut() {
            let sealed = run(self
                .engine
                .recover(LedgerId(u64::try_from(last.ledger_id).unwrap())))
            .unwrap();
            last.entries = Some(i64::try_from(sealed.entry_count).unwrap());
            last.size = Some(i64::try_from(sealed.bytes).unwrap());
            last.timestamp = Some(5);
        }
        stored.ledgers.retain(|row| row.entries != Some(0));
        let writer = run(self.engine.create(CreateOptions::default())).unwrap();
        for _ in 0..count {
            writer.append(Bytes::from("java")).unwrap();
        }
        let ledger_id = i64::try_from(writer.id().0).unwrap();
        stored.ledgers.push(proto::StoredLedger {
            ledger_id,
            timestamp: Some(0),
            ..proto::StoredLedger::default()
        });
        change(&mut stored);
        let value = Bytes::from(stored.encode_to_vec());
        run(self.metadata.put(&key_of(NAME), value, Expect::Any)).unwrap();
        ledger_id
    }
}

impl Topic {
    fn append(&mut self, count: usize) {
        for _ in 0..count {
            self.ledger.append(Bytes::from("x")).unwrap();
        }
    }

    fn subscribe(&mut self, name: &str, kind: u8, place: Ordinal) -> Slot {
        let (subscription, slot) = (self.cursors.subscription_free(), self.cursors.slot_free());
        let created = Record::SubscriptionCreated {
            subscription,
            name: name.to_owned(),
            kind,
            properties: BTreeMap::from([("k".to_owned(), "v".to_owned())]),
            facts: Vec::new(),
        };
        self.cursors.queue(created).unwrap();
        let cursor = Record::CursorCreated {
            slot,
            subscription,
            consumer: String::new(),
            facts: Vec::new(),
            acks: AckState::new(place),
        };
        self.cursors.queue(cursor).unwrap();
        slot
    }

    fn acknowledge<T>(&mut self, slot: Slot, change: impl FnOnce(&mut AckState) -> T) {
        let mut acks = self.cursors.acks(slot).unwrap().clone();
        change(&mut acks);
        self.cursors.queue(Record::CursorMoved { slot, acks }).unwrap();
    }

    fn commit(&mut self, now_ms: u64) {
        let ticket = self.cursors.commit();
        while let Some(step) = self.cursors.take_maintenance(now_ms) {
            let done = run(step);
            self.cursors.on_maintenance(done, now_ms);
        }
        run(ticket.durable()).unwrap();
    }

    fn write(&mut self, scope: NodeScope, now_ms: u64) {
        self.commit(now_ms);
        let table = self.ledger.table();
        while let Some(write) = self.cursors.write_nodes(scope, &table, now_ms) {
            let done = run(write);
            self.cursors.on_nodes_written(done).unwrap();
        }
        self.commit(now_ms);
    }

    fn acks(&self, name: &str) -> Option<AckState> {
        let all = self.cursors.subscriptions().values();
        let found = all.into_iter().find(|found| &*found.name == name)?;
        self.cursors.acks(*found.slots.first()?).cloned()
    }

    fn slot(&self, name: &str) -> Slot {
        let mut all = self.cursors.subscriptions().values();
        let found = all.find(|found| &*found.name == name).unwrap();
        *found.slots.first().unwrap()
    }

    fn maintain(&mut self, now_ms: u64) {
        while let Some(step) = self.ledger.take_maintenance(now_ms) {
            let done = run(step);
            let event = self.ledger.on_maintenance(done, now_ms);
            assert!(!matches!(event, MaintenanceEvent::Failed(_)), "{event:?}");
        }
    }
}

#[test]
fn positions_go_to_nodes_and_come_back_as_a_broker_of_pulsar_left_them() {
    let mut world = World::new();
    let mut topic = world.open();
    topic.append(10);
    let slot = topic.subscribe("s 1", 0, Ordinal(0));
    topic.subscribe("everyone", 1, Ordinal(0));
    topic.write(NodeScope::Made, 0);
    let made = world.node("s 1").unwrap();
    assert_eq!(
        (made.cursors_ledger_id, made.mark_delete_entry_id),
        (-1, Some(-1))
    );
    assert_eq!(made.cursor_properties.len(), 1);
    assert!(
        world.node("everyone").is_none(),
        "Pulsar has no such subscriptions"
    );
    topic.acknowledge(slot, |acks| {
        acks.ack_cumulative(Ordinal(2));
        acks.ack(Ordinal(5));
    });
    topic.write(NodeScope::Moved, 0);
    assert_eq!(world.node("s 1").unwrap().mark_delete_entry_id, Some(2));
    // A crash: what was acknowledged since is in the log only, and the node as Pharos wrote it.
    topic.acknowledge(slot, |acks| assert!(acks.ack_cumulative(Ordinal(3)).changed()));
    topic.commit(0);
    drop(topic);
    let mut topic = world.open();
    assert_eq!(topic.acks("s 1").unwrap().acked_to(), Ordinal(4));
    topic.write(NodeScope::All, 0);
    drop(topic);
    // A broker of Pulsar appends, moves the cursor in a ledger of its own, makes one subscription, and deletes none.
    let ledger_id = world.java(4, |_| {});
    let cursor_ledger = run(world.engine.create(CreateOptions::default())).unwrap();
    let entry = CursorEntry {
        ledger_id,
        entry_id: 1,
        ..CursorEntry::default()
    };
    cursor_ledger.append(Bytes::from(entry.encode_to_vec())).unwrap();
    let mut node = world.node("s 1").unwrap();
    node.cursors_ledger_id = i64::try_from(cursor_ledger.id().0).unwrap();
    world.put_node("s 1", &node);
    let made = ManagedCursorInfo {
        cursors_ledger_id: -1,
        mark_delete_ledger_id: Some(ledger_id),
        mark_delete_entry_id: Some(-1),
        ..ManagedCursorInfo::default()
    };
    world.put_node("made", &made);
    world.put_node("__compaction", &made);
    let mut topic = world.open();
    assert_eq!(topic.ledger.end(), Ordinal(14));
    assert_eq!(topic.acks("s 1").unwrap().acked_to(), Ordinal(12));
    assert_eq!(topic.acks("made").unwrap().acked_to(), Ordinal(10));
    assert_eq!(topic.acks("everyone").unwrap().acked_to(), Ordinal(0));
    assert_eq!(
        (topic.acks("__compaction"), topic.cursors.held()),
        (None, Some(Ordinal(10)))
    );
    // Its state is in the node again, and the ledger is gone.
    let slot = *topic.cursors.subscriptions()[&SubscriptionId(0)]
        .slots
        .first()
        .unwrap();
    topic.acknowledge(slot, |acks| assert!(acks.ack_cumulative(Ordinal(12)).changed()));
    topic.write(NodeScope::Moved, 0);
    assert_eq!(world.node("s 1").unwrap().cursors_ledger_id, -1);
    assert!(run(world.engine.recover(cursor_ledger.id())).is_err());
    drop(topic);
    // One that a broker of Pulsar deleted is gone; one that Pharos deletes loses its node.
    run(world
        .metadata
        .delete(&super::nodes::key(NAME, "made"), Expect::Any))
    .unwrap();
    let mut topic = world.open();
    assert!(topic.acks("made").is_none());
    let removed = Record::SubscriptionRemoved {
        subscription: SubscriptionId(0),
    };
    topic.cursors.queue(removed).unwrap();
    topic.write(NodeScope::Made, 0);
    assert!(world.node("s 1").is_none());
    drop(topic);
    let engine = Arc::new(world.engine.clone());
    assert!(
        run(crate::delete_as(
            MetadataLayout::Pulsar,
            LedgerId(0),
            NAME,
            engine,
            &*world.metadata
        ))
        .unwrap()
    );
    assert!(run(world.metadata.scan(&key_of(NAME))).unwrap().is_empty());
    assert!(run(world.engine.recover(LedgerId(u64::try_from(ledger_id).unwrap()))).is_err());
}

#[test]
fn parts_of_batches_and_many_holes_go_to_a_ledger_that_the_node_names() {
    let mut world = World::new();
    let mut topic = world.open();
    topic.append(4_000);
    let slot = topic.subscribe("s", 0, Ordinal(0));
    topic.write(NodeScope::Made, 0);
    assert_eq!(world.node("s").unwrap().cursors_ledger_id, -1);
    topic.acknowledge(slot, |acks| acks.ack_batch(Ordinal(3), &[0b101]));
    topic.write(NodeScope::Moved, 0);
    let ledger = world.node("s").unwrap().cursors_ledger_id;
    let (_, entry) = world.last_entry(ledger);
    assert_eq!(entry.batches[0].words, [0b101]);
    // What follows goes there too, and the node stays as it is.
    topic.acknowledge(slot, |acks| acks.ack_cumulative(Ordinal(3)));
    topic.write(NodeScope::Moved, 0);
    assert_eq!(world.node("s").unwrap().cursors_ledger_id, ledger);
    let (count, entry) = world.last_entry(ledger);
    assert_eq!((count, entry.entry_id, entry.batches.len()), (2, 3, 0));
    drop(topic);
    // After a crash that ledger is another owner's to read, so the next state goes to another.
    let mut topic = world.open();
    let slot = topic.slot("s");
    assert_eq!(topic.acks("s").unwrap().acked_to(), Ordinal(4));
    topic.acknowledge(slot, |acks| {
        (0..1_500).for_each(|n| assert!(acks.ack(Ordinal(10 + 2 * n)).changed()));
    });
    topic.write(NodeScope::All, 0);
    let next = world.node("s").unwrap().cursors_ledger_id;
    assert_ne!(next, ledger);
    assert!(world.is_gone(ledger));
    assert_eq!(world.last_entry(next).1.ranges.len(), 1_500);
    drop(topic);
    // As a broker of Pulsar reads it.
    let mut node = world.node("s").unwrap();
    node.last_active = None;
    world.put_node("s", &node);
    let mut topic = world.open();
    let slot = topic.slot("s");
    assert_eq!(topic.acks("s").unwrap().acked_ranges().count(), 1_500);
    topic.acknowledge(slot, |acks| acks.ack_cumulative(Ordinal(3_900)));
    topic.write(NodeScope::All, 0);
    assert_eq!(world.node("s").unwrap().cursors_ledger_id, -1);
    assert!(world.is_gone(next));
    // One that is deleted takes its ledger with it.
    topic.acknowledge(slot, |acks| acks.ack_batch(Ordinal(3_950), &[1]));
    topic.write(NodeScope::Moved, 0);
    let last = world.node("s").unwrap().cursors_ledger_id;
    assert!(last >= 0);
    let subscription = SubscriptionId(0);
    topic
        .cursors
        .queue(Record::SubscriptionRemoved { subscription })
        .unwrap();
    topic.write(NodeScope::Made, 0);
    assert!(world.node("s").is_none());
    assert!(world.is_gone(last));
}

#[test]
fn a_ledger_of_a_cursor_that_another_fenced_is_followed_by_another_one() {
    let mut world = World::new();
    let mut topic = world.open();
    topic.append(10);
    let slot = topic.subscribe("s", 0, Ordinal(0));
    topic.acknowledge(slot, |acks| acks.ack_batch(Ordinal(3), &[0b101]));
    topic.write(NodeScope::Moved, 0);
    let ledger = world.node("s").unwrap().cursors_ledger_id;
    run(world.engine.recover(LedgerId(u64::try_from(ledger).unwrap()))).unwrap();
    topic.acknowledge(slot, |acks| acks.ack_batch(Ordinal(4), &[0b1]));
    let table = topic.ledger.table();
    let done = run(topic.cursors.write_nodes(NodeScope::Moved, &table, 0).unwrap());
    let refused = topic.cursors.on_nodes_written(done).unwrap_err();
    assert!(!refused.is_fenced(), "{refused:?}");
    topic.write(NodeScope::Moved, 0);
    let next = world.node("s").unwrap().cursors_ledger_id;
    assert_ne!(next, ledger);
    assert_eq!(world.last_entry(next).1.batches.len(), 2);
    assert!(world.is_gone(ledger));
}

#[test]
fn ordinals_stay_what_they_are_when_a_broker_of_pulsar_trims_and_appends() {
    let mut world = World::new();
    let mut topic = world.open();
    for _ in 0..3 {
        topic.append(5);
        topic.ledger.ask_rollover();
        topic.maintain(1_000);
    }
    topic.append(2);
    topic.subscribe("everyone", 1, Ordinal(11));
    topic.commit(0);
    assert_eq!(topic.ledger.end(), Ordinal(17));
    drop(topic);
    world.java(3, |stored| drop(stored.ledgers.remove(0)));
    let topic = world.open();
    assert_eq!(
        (topic.ledger.first(), topic.ledger.end()),
        (Ordinal(5), Ordinal(20))
    );
    assert_eq!(topic.acks("everyone").unwrap().acked_to(), Ordinal(11));
    drop(topic);
    // Nothing is left of what Pharos counted by: places that it knows lie before all that is there.
    world.java(3, |stored| drop(stored.ledgers.drain(..stored.ledgers.len() - 1)));
    let topic = world.open();
    assert!(topic.ledger.first() >= Ordinal(20));
    assert_eq!(topic.ledger.first().count_to(topic.ledger.end()), 3);
    assert_eq!(topic.acks("everyone").unwrap().acked_to(), topic.ledger.first());
}

#[test]
fn only_the_last_listed_ledger_is_open_and_an_owner_that_pulsar_replaced_finds_out() {
    let mut world = World::new();
    let mut topic = world.open();
    for _ in 0..4 {
        topic.append(3);
        topic.ledger.ask_rollover();
        while let Some(step) = topic.ledger.take_maintenance(1_000) {
            let done = run(step);
            topic.ledger.on_maintenance(done, 1_000);
            let stored = world.stored();
            let (last, before) = stored.ledgers.split_last().unwrap();
            assert_eq!(last.timestamp, Some(0));
            assert!(
                before
                    .iter()
                    .all(|row| row.timestamp != Some(0) && row.entries == Some(3)),
                "{stored:?}"
            );
        }
    }
    let changed = run(topic
        .ledger
        .set_properties(vec![("own".to_owned(), Some("1".to_owned()))]));
    assert!(changed.is_ok());
    world.java(1, |_| {});
    let refused = run(topic
        .ledger
        .set_properties(vec![("own".to_owned(), Some("2".to_owned()))]));
    assert!(refused.is_err_and(|error| error.kind() == pharos_ledger::FaultKind::Fenced));
    let topic = world.open();
    assert_eq!(
        topic.ledger.properties(),
        BTreeMap::from([("own".to_owned(), "1".to_owned())])
    );
    assert_eq!(topic.ledger.end(), Ordinal(13));
}

#[test]
fn a_topic_that_pulsar_terminated_takes_nothing_more() {
    let mut world = World::new();
    let mut topic = world.open();
    topic.append(2);
    topic.ledger.terminate();
    topic.maintain(1_000);
    let stored = world.stored();
    let last = stored.ledgers.last().unwrap().ledger_id;
    assert_eq!(stored.terminated, Some(at(last, 1)));
    drop(topic);
    let mut topic = world.open();
    assert!(topic.ledger.is_terminated());
    assert!(topic.ledger.append(Bytes::from("x")).is_err());
    assert!(topic.ledger.trim(Ordinal(2), Retention::NONE, 1_000).is_empty());
}

#[test]
fn whether_a_subscription_is_replicated_is_a_number_of_its_node() {
    let mut world = World::new();
    let mut topic = world.open();
    topic.append(3);
    topic.subscribe("s", 0, Ordinal(1));
    let id = *topic.cursors.subscriptions().keys().next().unwrap();
    let change = |topic: &mut Topic, replicated: &[&str]| {
        let replicated = replicated
            .iter()
            .map(|&name| (name.to_owned(), "true".to_owned()));
        let changed = Record::SubscriptionChanged {
            subscription: id,
            kind: 0,
            properties: replicated.chain([("k".to_owned(), "v".to_owned())]).collect(),
            facts: Vec::new(),
        };
        topic.cursors.queue(changed).unwrap();
        topic.write(NodeScope::Made, 0);
    };
    let said = |world: &World| {
        let node = world.node("s").unwrap();
        let keys: Vec<_> = node.cursor_properties.iter().map(|it| it.key.clone()).collect();
        assert_eq!(keys, ["k"]);
        let numbers = node.properties.iter();
        numbers.map(|it| (it.name.clone(), it.value)).collect::<Vec<_>>()
    };
    change(&mut topic, &[nodes::REPLICATED]);
    assert_eq!(said(&world), [("pulsar.replicated.subscription".to_owned(), 1)]);
    change(&mut topic, &[]);
    assert_eq!(said(&world), []);
    // A broker of Pulsar turns it on.
    let mut node = world.node("s").unwrap();
    node.properties.push(proto::LongProperty {
        name: "pulsar.replicated.subscription".to_owned(),
        value: 1,
    });
    world.put_node("s", &node);
    let topic = world.open();
    let found = &topic.cursors.subscriptions()[&id];
    assert!(found.properties.contains_key(nodes::REPLICATED) && found.properties.contains_key("k"));
}
