//! System cursors: their nodes say where they stand, and nothing else does.

use std::cell::RefCell;
use std::rc::Rc;

use super::*;
use crate::cursor_log::{NodeError, NodeOwner, NodeTurns, write_nodes};
use crate::mortal::CallEffect;
use crate::pulsar::proto::LongProperty;

const DEDUP: &str = "pulsar.dedup";
const REPLICATOR: &str = "pulsar.repl.west";

fn put(topic: &mut Topic, position: u64, properties: impl IntoIterator<Item = (String, i64)>) {
    put_as(topic, DEDUP, position, properties);
}

fn put_as(topic: &mut Topic, name: &str, position: u64, properties: impl IntoIterator<Item = (String, i64)>) {
    let record = Record::SystemCursorPut {
        name: name.to_owned(),
        position: Ordinal(position),
        properties: properties.into_iter().collect(),
    };
    topic.cursors.queue(record).unwrap();
}

fn place(topic: &Topic, name: &str) -> Option<u64> {
    let cursor = topic.cursors.system_cursors().get(name);
    cursor.map(|cursor| cursor.position.0)
}

fn one(last: i64) -> [(String, i64); 1] {
    [("p".to_owned(), last)]
}

fn stored(topic: &Topic) -> Option<(u64, Vec<(String, i64)>)> {
    let cursor = topic.cursors.system_cursors().get(DEDUP)?;
    Some((cursor.position.0, cursor.properties.clone().into_iter().collect()))
}

fn long(properties: &[(&str, i64)]) -> Vec<LongProperty> {
    let property = |(name, value): &(&str, i64)| LongProperty {
        name: (*name).to_owned(),
        value: *value,
    };
    properties.iter().map(property).collect()
}

#[test]
fn they_are_written_by_the_commit_and_come_back_as_a_broker_of_pulsar_left_them() {
    let mut world = World::new();
    let mut topic = world.open();
    topic.append(10);
    put(&mut topic, 4, one(7));
    assert!(topic.cursors.is_node_due(NodeScope::Made));
    topic.write(NodeScope::Made, 0);
    let node = world.node(DEDUP).unwrap();
    assert_eq!((node.cursors_ledger_id, node.mark_delete_entry_id), (-1, Some(3)));
    assert_eq!(node.properties, long(&[("p", 7)]));
    // What follows soon goes to a ledger, and leaves the node as it is.
    put(&mut topic, 6, one(9));
    topic.write(NodeScope::Made, 5_000);
    let ledger = world.node(DEDUP).unwrap().cursors_ledger_id;
    put(&mut topic, 8, one(11));
    topic.write(NodeScope::Made, 30_000);
    assert_eq!(world.node(DEDUP).unwrap().cursors_ledger_id, ledger);
    let (count, entry) = world.last_entry(ledger);
    assert_eq!(
        (count, entry.entry_id, &*entry.properties),
        (2, 7, &*long(&[("p", 11)]))
    );
    drop(topic);
    // After a crash what was written last holds, and what was not is not there.
    let mut topic = world.open();
    assert_eq!(stored(&topic), Some((8, one(11).to_vec())));
    put(&mut topic, 10, one(13));
    drop(topic);
    let mut topic = world.open();
    assert_eq!(stored(&topic), Some((8, one(11).to_vec())));
    // The ledger was another owner's: the next state goes elsewhere.
    put(&mut topic, 9, one(12));
    topic.write(NodeScope::Made, 60_000);
    assert!(world.is_gone(ledger));
    topic.write(NodeScope::All, 60_000);
    drop(topic);
    let ledger_id = world.java(3, |_| {});
    let entry = CursorEntry {
        ledger_id,
        entry_id: 1,
        properties: long(&[("p", 20), ("q", -1)]),
        ..CursorEntry::default()
    };
    let theirs = world.put_cursor(DEDUP, &[entry]);
    let mut topic = world.open();
    let properties = vec![("p".to_owned(), 20), ("q".to_owned(), -1)];
    assert_eq!(stored(&topic), Some((12, properties)));
    assert!(topic.acks(DEDUP).is_none(), "it is no subscription");
    topic
        .cursors
        .queue(Record::SystemCursorRemoved {
            name: DEDUP.to_owned(),
        })
        .unwrap();
    topic.write(NodeScope::Made, 0);
    assert!(world.node(DEDUP).is_none());
    assert!(world.is_gone(theirs.cursors_ledger_id));
    drop(topic);
    assert_eq!(stored(&world.open()), None);
}

#[test]
fn many_names_go_to_a_ledger_and_not_to_the_node() {
    let mut world = World::new();
    let mut topic = world.open();
    topic.append(2);
    let many = |last| (0..5_000).map(move |number| (format!("producer {number}"), last));
    put(&mut topic, 1, many(3));
    topic.write(NodeScope::Made, 0);
    let node = world.node(DEDUP).unwrap();
    assert!(node.cursors_ledger_id >= 0 && node.properties.is_empty());
    put(&mut topic, 2, many(4));
    topic.write(NodeScope::Made, 0);
    assert_eq!(world.last_entry(node.cursors_ledger_id).1.properties.len(), 5_000);
    topic.write(NodeScope::All, 0);
    drop(topic);
    let (position, names) = stored(&world.open()).unwrap();
    assert_eq!((position, names.len(), names[0].1), (2, 5_000, 4));
}

#[test]
fn an_owner_that_was_replaced_takes_nothing_back() {
    let mut world = World::new();
    let mut old = world.open();
    old.append(10);
    put(&mut old, 4, one(7));
    old.write(NodeScope::Made, 0);
    let is_refused = |topic: &mut Topic| {
        let table = topic.ledger.table();
        let write = topic.cursors.write_nodes(NodeScope::Made, &table, 20_000);
        let done = run(write.unwrap());
        topic.cursors.on_nodes_written(done).unwrap_err().is_fenced()
    };
    // Not the cursor itself,
    let mut gone = world.open();
    old.cursors
        .queue(Record::SystemCursorRemoved {
            name: DEDUP.to_owned(),
        })
        .unwrap();
    assert!(is_refused(&mut old));
    assert!(world.node(DEDUP).is_some());
    // nor what another wrote since.
    let mut new = world.open();
    put(&mut gone, 5, one(8));
    put(&mut new, 8, one(11));
    new.write(NodeScope::Made, 20_000);
    assert!(is_refused(&mut gone));
    assert_eq!(world.node(DEDUP).unwrap().properties, long(&[("p", 11)]));
}

#[test]
fn a_replicator_goes_on_where_the_other_broker_left_it() {
    let mut world = World::new();
    let mut topic = world.open();
    topic.append(10);
    put_as(&mut topic, REPLICATOR, 4, []);
    topic.write(NodeScope::All, 0);
    let node = world.node(REPLICATOR).unwrap();
    assert_eq!((node.cursors_ledger_id, node.mark_delete_entry_id), (-1, Some(3)));
    drop(topic);
    let ledger_id = world.java(5, |_| {});
    // Pulsar's replicators acknowledge one by one; it died before it wrote the node.
    let entries = [0, 1, 2].map(|entry_id| CursorEntry {
        ledger_id,
        entry_id,
        ranges: vec![MessageRange {
            lower: at(ledger_id, entry_id + 1),
            upper: at(ledger_id, entry_id + 2),
        }],
        ..CursorEntry::default()
    });
    let theirs = world.put_cursor(REPLICATOR, &entries);
    let mut topic = world.open();
    assert_eq!(
        place(&topic, REPLICATOR),
        Some(13),
        "without what it has beyond a gap"
    );
    assert_eq!(
        world.node(REPLICATOR),
        Some(theirs.clone()),
        "what it says stays until it moves"
    );
    assert!(topic.cursors.subscriptions().is_empty());
    put_as(&mut topic, REPLICATOR, 15, []);
    topic.write(NodeScope::Made, 60_000);
    let node = world.node(REPLICATOR).unwrap();
    assert_eq!((node.cursors_ledger_id, node.mark_delete_entry_id), (-1, Some(4)));
    assert!(world.is_gone(theirs.cursors_ledger_id));
    drop(topic);
    assert_eq!(place(&world.open(), REPLICATOR), Some(15));
}

#[test]
fn an_owner_that_was_replaced_neither_moves_nor_removes_a_replicator_s_cursor() {
    let removed = Record::SystemCursorRemoved {
        name: REPLICATOR.to_owned(),
    };
    for is_in_ledger in [false, true] {
        let mut world = World::new();
        let mut old = world.open();
        old.append(10);
        put_as(&mut old, REPLICATOR, 2, []);
        old.write(NodeScope::Made, 0);
        if is_in_ledger {
            put_as(&mut old, REPLICATOR, 3, []);
            old.write(NodeScope::Made, 1);
        }
        // It has written nothing yet.
        let new = world.open();
        let before = world.node(REPLICATOR).unwrap();
        let place_before = place(&new, REPLICATOR);
        for change in [None, Some(removed.clone())] {
            match change {
                None => put_as(&mut old, REPLICATOR, 9, []),
                Some(record) => old.cursors.queue(record).unwrap(),
            }
            let table = old.ledger.table();
            let done = run(old.cursors.write_nodes(NodeScope::Made, &table, 2).unwrap());
            assert!(old.cursors.on_nodes_written(done).is_err());
            assert_eq!(world.node(REPLICATOR), Some(before.clone()));
        }
        assert_eq!(place(&world.open(), REPLICATOR), place_before);
    }
}

#[test]
fn a_topic_that_pulsar_copies_to_a_shadow_is_not_opened() {
    let mut world = World::new();
    drop(world.open());
    world.put_node("pulsar.repl-persistent://a/b/c", &ManagedCursorInfo::default());
    let refused = run(world.open_in(&Life::new())).err().unwrap();
    assert!(format!("{refused:?}").contains("shadow"), "{refused:?}");
}

struct Owner {
    topic: RefCell<Topic>,
    turns: Rc<NodeTurns>,
}

impl NodeOwner for &Owner {
    fn turns(&self) -> Rc<NodeTurns> {
        Rc::clone(&self.turns)
    }

    fn with_log<T>(&self, run: impl FnOnce(&mut CursorLog, LedgerTable, u64) -> T) -> T {
        let mut topic = self.topic.borrow_mut();
        let table = topic.ledger.table();
        run(&mut topic.cursors, table, 0)
    }

    fn on_fenced(&self, error: &NodeError) {
        panic!("{error}");
    }
}

/// Entries trimmed after a commit must not be needed for the state still in the node.
#[test]
fn a_commit_waits_for_a_write_under_way_that_has_what_it_wants() {
    let mut world = World::new();
    let life = Life::new();
    let mut topic = run(world.open_in(&life)).unwrap();
    topic.append(10);
    put(&mut topic, 4, one(7));
    let owner = Owner {
        topic: RefCell::new(topic),
        turns: Rc::default(),
    };
    let key = crate::pulsar::nodes::key(NAME, DEDUP);
    life.hold(&key);
    let (one_caller, other_caller) = (&owner, &owner);
    let mut beside = Box::pin(write_nodes(&one_caller, NodeScope::Moved));
    assert!(beside.as_mut().now_or_never().is_none());
    let mut commit = Box::pin(write_nodes(&other_caller, NodeScope::Made));
    assert!(commit.as_mut().now_or_never().is_none(), "it is not there yet");
    life.fail(Some((&key, CallEffect::Not)));
    life.release();
    assert!(run(beside).is_err());
    life.fail(None);
    run(commit).unwrap();
    assert_eq!(world.node(DEDUP).unwrap().mark_delete_entry_id, Some(3));
}
