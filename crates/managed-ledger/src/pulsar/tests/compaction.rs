//! Topic compaction in Pulsar's format: by Pharos, by a broker of Pulsar, and by interrupted runs.

use super::*;
use crate::mortal::CallEffect;
use crate::pulsar::proto::{EntryPlace, LongProperty};
use crate::{CompactedEntry, CompactedLedgers, CompactedView, CompactedWriter, CompactionError};
use futures_util::future::LocalBoxFuture;
use pharos_types::Position;

const CURSOR: &str = "__compaction";

/// Result of a run.
type Finished = Result<CompactedView, CompactionError>;

async fn begin(topic: &Topic, keep: &[u64]) -> Result<CompactedWriter, CompactionError> {
    let mut writer = CompactedLedgers::of(&topic.ledger).begin().await?;
    let before = CompactedLedgers::of(&topic.ledger).view();
    let before = before.map_or(Vec::new(), |view| all(&view));
    for ordinal in keep.iter().copied() {
        let known = before.iter().find(|(known, ..)| *known == ordinal);
        let position = known.map(|(_, position, _)| *position);
        writer
            .push(&CompactedEntry {
                ordinal: Ordinal(ordinal),
                position: position.or(topic.ledger.position_of(Ordinal(ordinal))).unwrap(),
                last_index: None,
                payload: Bytes::from(format!("e{ordinal}")),
            })
            .await?;
    }
    Ok(writer)
}

fn compact(topic: &Topic, keep: &[u64]) -> CompactedView {
    let writer = run(begin(topic, keep)).unwrap();
    run(writer.finish(topic.ledger.end(), 7)).unwrap()
}

fn all(view: &CompactedView) -> Vec<(u64, Position, String)> {
    let entries = run(view.read(0, 100, 1 << 20)).unwrap();
    let text = |payload: &[u8]| String::from_utf8(payload.to_vec()).unwrap();
    entries
        .into_iter()
        .map(|entry| (entry.ordinal.0, entry.position, text(&entry.payload)))
        .collect()
}

fn payloads(view: &CompactedView) -> Vec<String> {
    all(view).into_iter().map(|(_, _, payload)| payload).collect()
}

fn view(topic: &Topic) -> Option<CompactedView> {
    CompactedLedgers::of(&topic.ledger).view()
}

/// The ledger that the node names.
fn named(world: &World) -> Option<i64> {
    let node = world.node(CURSOR)?;
    let property = node
        .properties
        .iter()
        .find(|one| one.name == "CompactedTopicLedger");
    Some(property?.value)
}

fn naming(ledger: i64) -> Vec<LongProperty> {
    vec![LongProperty {
        name: "CompactedTopicLedger".to_owned(),
        value: ledger,
    }]
}

fn exists(world: &World, ledger: u64) -> bool {
    run(world.engine.list()).unwrap().contains(&LedgerId(ledger))
}

/// An entry as a broker of Pulsar writes it.
fn of_java(ledger_id: u64, entry_id: u64, payload: &str) -> Bytes {
    let id = EntryPlace {
        ledger_id,
        entry_id,
        partition: Some(-1),
    };
    let id = id.encode_to_vec();
    let mut entry = u32::try_from(id.len()).unwrap().to_be_bytes().to_vec();
    entry.extend_from_slice(&id);
    entry.extend_from_slice(&u32::try_from(payload.len()).unwrap().to_be_bytes());
    entry.extend_from_slice(payload.as_bytes());
    entry.into()
}

/// A compacted ledger that a broker of Pulsar wrote.
fn java_compacts(world: &World, entries: &[(u64, u64)]) -> u64 {
    let writer = run(world.engine.create(CreateOptions::default())).unwrap();
    for (ledger, entry) in entries {
        writer
            .append(of_java(*ledger, *entry, &format!("{ledger}:{entry}")))
            .unwrap();
    }
    run(writer.close()).unwrap();
    writer.id().0
}

/// Three ledgers of five entries, and one that is written.
fn three_ledgers(world: &mut World) -> Topic {
    let mut topic = world.open();
    for _ in 0..3 {
        topic.append(5);
        topic.ledger.ask_rollover();
        topic.maintain(1_000);
    }
    topic
}

#[test]
fn a_run_names_its_ledger_in_the_node_and_entries_come_back_where_they_were() {
    let mut world = World::new();
    let mut topic = three_ledgers(&mut world);
    assert!(view(&topic).is_none());
    let first = compact(&topic, &[1, 6, 12]);
    let ledgers: Vec<u64> = topic.ledger.ledgers().iter().map(|row| row.id.0).collect();
    assert_eq!(named(&world), Some(i64::try_from(first.ledger().0).unwrap()));
    let node = world.node(CURSOR).unwrap();
    assert_eq!(
        (node.mark_delete_ledger_id, node.mark_delete_entry_id),
        (Some(i64::try_from(ledgers[2]).unwrap()), Some(4))
    );
    let bytes = run(world.engine.read(first.ledger(), EntryId(1), 1, 1 << 20)).unwrap();
    let id = EntryPlace {
        ledger_id: ledgers[1],
        entry_id: 1,
        partition: None,
    };
    assert_eq!(bytes[0].payload[4..][..id.encoded_len()], id.encode_to_vec());
    assert!(bytes[0].payload.ends_with(b"\0\0\0\x02e6"));
    let was = all(&first);
    assert_eq!(
        was[1],
        (6, Position::new(ledgers[1], 1), "e6".to_owned()),
        "{was:?}"
    );
    // The log goes from the horizon on; what was compacted stays, at no lower a place.
    topic.ledger.trim(Ordinal(15), Retention::NONE, 1_000);
    topic.maintain(1_000);
    assert_eq!(all(&view(&topic).unwrap()), was);
    let slot = topic.subscribe("reads it", 0, Ordinal(3));
    topic.acknowledge(slot, |acks| acks.ack_range(Ordinal(5), Ordinal(7)));
    topic.write(NodeScope::All, 0);
    drop(topic);
    let topic = world.open();
    let again = view(&topic).unwrap();
    assert_eq!(
        (again.ledger(), again.horizon(), again.entries()),
        (first.ledger(), Ordinal(15), 3)
    );
    let is = all(&again);
    for (was, is) in was.iter().zip(&is) {
        assert_eq!((&was.1, &was.2), (&is.1, &is.2));
        assert!(was.0 <= is.0 && is.0 < 15, "{was:?} {is:?}");
    }
    assert!(is.is_sorted());
    assert_eq!(run(again.place_of(is[1].1)).unwrap(), Ordinal(is[1].0));
    assert_eq!(
        topic.acks("reads it").unwrap().acked_to(),
        Ordinal(3),
        "it may stand before the log"
    );
    // The next run reads this one, keeps the places in what it writes, and takes its place.
    let second = compact(&topic, &[is[0].0, is[2].0]);
    assert_eq!(all(&second)[1].0, is[2].0);
    assert!(!exists(&world, first.ledger().0));
    run(CompactedLedgers::of(&topic.ledger).forget()).unwrap();
    assert!(view(&topic).is_none() && world.node(CURSOR).is_none());
    assert!(!exists(&world, second.ledger().0));
}

#[test]
fn what_a_broker_of_pulsar_compacted_is_taken_over_with_entries_that_are_nowhere_else() {
    let mut world = World::new();
    // Two ledgers that are gone, and two that are there; Pharos never had the topic.
    let ledger = |count: u64| {
        let writer = run(world.engine.create(CreateOptions::default())).unwrap();
        for _ in 0..count {
            writer.append(Bytes::from("x")).unwrap();
        }
        run(writer.close()).unwrap();
        writer.id().0
    };
    let ids: Vec<u64> = (0..4).map(|_| ledger(6)).collect();
    for gone in &ids[..2] {
        run(world.engine.delete(LedgerId(*gone))).unwrap();
    }
    let row = |id: u64| proto::StoredLedger {
        ledger_id: i64::try_from(id).unwrap(),
        entries: Some(6),
        size: Some(6),
        timestamp: Some(5),
        ..proto::StoredLedger::default()
    };
    let stored = proto::StoredInfo {
        ledgers: ids[2..].iter().map(|id| row(*id)).collect(),
        ..proto::StoredInfo::default()
    };
    let value = Bytes::from(stored.encode_to_vec());
    run(world.metadata.put(&key_of(NAME), value, Expect::Any)).unwrap();
    let places = [(ids[0], 1), (ids[0], 5), (ids[1], 0), (ids[2], 3), (ids[3], 2)];
    let compacted = java_compacts(&world, &places);
    // A run was under way: the cursor was set back, and keeps the name.
    let entry = CursorEntry {
        ledger_id: i64::try_from(ids[0]).unwrap(),
        entry_id: 0,
        properties: naming(i64::try_from(compacted).unwrap()),
        ..CursorEntry::default()
    };
    let theirs = world.put_cursor(CURSOR, &[entry]);
    let topic = world.open();
    let taken = view(&topic).unwrap();
    let first = topic.ledger.first().0;
    let is = all(&taken);
    assert_eq!(
        is.iter().map(|(ordinal, ..)| *ordinal).collect::<Vec<_>>(),
        [first - 6, first - 2, first - 1, first + 3, first + 8]
    );
    assert_eq!(taken.horizon(), Ordinal(first + 9));
    assert_eq!(is[1].2, format!("{}:5", ids[0]));
    let node = world.node(CURSOR).unwrap();
    assert_eq!(
        (node.cursors_ledger_id, named(&world)),
        (-1, Some(i64::try_from(compacted).unwrap()))
    );
    assert!(world.is_gone(theirs.cursors_ledger_id));
    assert_eq!(topic.cursors.held(), None);
}

#[test]
fn a_compacted_ledger_that_is_gone_or_damaged_is_refused_by_name() {
    let mut world = World::new();
    for _ in 0..5 {
        run(world.engine.create(CreateOptions::default())).unwrap();
    }
    let mut topic = world.open();
    topic.append(3);
    topic.commit(0);
    drop(topic);
    let ledger = world.stored().ledgers[0].ledger_id.cast_unsigned();
    let foreign = java_compacts(&world, &[(ledger, 1), (ledger + 1_000, 0)]);
    let out_of_order = java_compacts(&world, &[(3, 0), (2, 0), (ledger, 1)]);
    let other = run(world.engine.create(CreateOptions::default())).unwrap();
    other.append(Bytes::from("no entry of one")).unwrap();
    for (named, why) in [
        (9_999, "it is gone"),
        (foreign, "its last entry is none of the topic"),
        (out_of_order, "out of order"),
        (other.id().0, "an entry is not readable"),
    ] {
        let node = ManagedCursorInfo {
            cursors_ledger_id: -1,
            mark_delete_ledger_id: Some(i64::try_from(ledger).unwrap()),
            mark_delete_entry_id: Some(1),
            properties: naming(i64::try_from(named).unwrap()),
            ..ManagedCursorInfo::default()
        };
        world.put_node(CURSOR, &node);
        let refused = run(world.open_in(&Life::new())).err().unwrap();
        let said = format!("{refused:?}");
        assert!(
            said.contains(&format!("compacted ledger {named}")) && said.contains(why),
            "{said}"
        );
    }
}

#[test]
fn a_broker_of_pulsar_that_compacts_meanwhile_is_followed() {
    let mut world = World::new();
    let topic = three_ledgers(&mut world);
    let ours = compact(&topic, &[1, 12]);
    drop(topic);
    let ledger = world.java(4, |_| {}).cast_unsigned();
    let ledgers: Vec<u64> = world
        .stored()
        .ledgers
        .iter()
        .map(|row| row.ledger_id.cast_unsigned())
        .collect();
    let theirs = java_compacts(&world, &[(ledgers[0], 1), (ledger, 2)]);
    let mut node = world.node(CURSOR).unwrap();
    node.mark_delete_ledger_id = Some(i64::try_from(ledger).unwrap());
    node.mark_delete_entry_id = Some(3);
    node.properties = naming(i64::try_from(theirs).unwrap());
    world.put_node(CURSOR, &node);
    let topic = world.open();
    let is = view(&topic).unwrap();
    assert_eq!((is.ledger().0, is.horizon()), (theirs, Ordinal(19)));
    assert_eq!(all(&is).iter().map(|one| one.0).collect::<Vec<_>>(), [1, 17]);
    assert!(!exists(&world, ours.ledger().0));
    drop(topic);
    // One that deleted the cursor gave up what was compacted.
    run(world
        .metadata
        .delete(&super::super::nodes::key(NAME, CURSOR), Expect::Any))
    .unwrap();
    assert!(view(&world.open()).is_none());
    assert!(!exists(&world, theirs));
}

/// The order of the module: wherever a process dies, what is named is whole, and nothing that is not stays for long.
#[test]
fn a_run_that_dies_anywhere_leaves_the_one_before_or_the_new_one() {
    for death in [CallEffect::Not, CallEffect::Happens] {
        let mut ends = 0;
        for nth in 0.. {
            let mut world = World::new();
            let topic = three_ledgers(&mut world);
            let before = compact(&topic, &[1, 6]);
            drop(topic);
            let life = Life::new();
            let topic = run(world.open_in(&life)).unwrap();
            life.dies_after(nth, death);
            let whole = async {
                let writer = begin(&topic, &[1, 12]).await.unwrap();
                writer.finish(topic.ledger.end(), 9).await.unwrap();
            };
            let is_over = whole.now_or_never().is_some();
            drop(topic);
            let topic = world.open();
            let left = view(&topic).unwrap();
            match left.ledger() == before.ledger() {
                true => assert_eq!(payloads(&left), ["e1", "e6"]),
                false => {
                    assert_eq!(payloads(&left), ["e1", "e12"]);
                    ends += 1;
                }
            }
            // It can be compacted again, and then only what is named is there.
            let last = compact(&topic, &[6]);
            let known: Vec<u64> = topic.ledger.ledgers().iter().map(|row| row.id.0).collect();
            let of_compaction: Vec<LedgerId> = run(world.engine.list())
                .unwrap()
                .into_iter()
                .filter(|ledger| is_compacted(&world, *ledger) && !known.contains(&ledger.0))
                .collect();
            assert_eq!(of_compaction, [last.ledger()], "{death:?} after {nth}");
            if is_over {
                assert!(nth > 3 && ends > 1, "it died {nth} times, {ends} at its end");
                break;
            }
        }
    }
}

/// True if a ledger has entries of a compacted ledger.
fn is_compacted(world: &World, ledger: LedgerId) -> bool {
    let entries = run(world.engine.read(ledger, EntryId(0), 1, 1 << 20)).unwrap_or_default();
    entries
        .first()
        .is_some_and(|entry| crate::pulsar::compacted::split(entry.payload.clone()).is_some())
}

/// A run that has read the node, and proved that the topic is its own, and stands still before it puts the node; and what was compacted
/// before it.
fn before_the_put(world: &mut World) -> (Life, CompactedView, LocalBoxFuture<'static, Finished>) {
    drop(three_ledgers(world));
    let life = Life::new();
    let topic = run(world.open_in(&life)).unwrap();
    let before = compact(&topic, &[1]);
    let writer = run(begin(&topic, &[1, 12])).unwrap();
    life.hold(&super::super::nodes::key(NAME, CURSOR));
    let mut finish = async move {
        let _open = topic;
        writer.finish(Ordinal(15), 9).await
    }
    .boxed_local();
    assert!((&mut finish).now_or_never().is_none());
    assert!(life.is_holding());
    (life, before, finish)
}

/// A broker that lost the topic at any step of a run never overwrites the name written by its successor, Pharos or
/// Pulsar.
#[test]
fn a_run_names_nothing_over_who_took_the_topic_over() {
    for by_java in [false, true] {
        // It writes: its ledger is gone, or it is found out before it names it.
        let mut world = World::new();
        let topic = three_ledgers(&mut world);
        let before = compact(&topic, &[1]);
        let writer = run(begin(&topic, &[1, 12])).unwrap();
        let next = taken_over(&mut world, by_java, &[2, 3]);
        assert!(run(writer.finish(Ordinal(15), 9)).is_err());
        assert_eq!(named(&world), Some(next));
        assert_ne!(next, i64::try_from(before.ledger().0).unwrap());

        // It has read the node, and proved that the topic is its own, and stands still before it puts the node.
        let mut world = World::new();
        let (life, before, finish) = before_the_put(&mut world);
        let next = taken_over(&mut world, by_java, &[2, 3]);
        life.release();
        let refused = run(finish).err().unwrap();
        assert!(matches!(refused, CompactionError::Info(_)), "{refused:?}");
        assert_eq!(named(&world), Some(next), "by_java {by_java}");
        assert_ne!(next, i64::try_from(before.ledger().0).unwrap());
        let topic = world.open();
        assert_eq!(view(&topic).unwrap().ledger().0.cast_signed(), next);
    }
}

/// Another broker opens the topic and compacts it. Answers with the ledger that it names.
fn taken_over(world: &mut World, by_java: bool, keep: &[u64]) -> i64 {
    if !by_java {
        let topic = world.open();
        return compact(&topic, keep).ledger().0.cast_signed();
    }
    world.java(1, |_| {});
    let first = world.stored().ledgers[0].ledger_id.cast_unsigned();
    let places: Vec<(u64, u64)> = keep.iter().map(|entry| (first, *entry)).collect();
    let theirs = java_compacts(world, &places).cast_signed();
    let mut node = world.node(CURSOR).unwrap();
    node.properties = naming(theirs);
    world.put_node(CURSOR, &node);
    theirs
}

/// The one that took over did not compact yet: the name is not put over what it read, and what it reads stays.
#[test]
fn a_run_of_who_lost_the_topic_changes_nothing_for_a_successor_that_only_reads() {
    let mut world = World::new();
    let (life, before, finish) = before_the_put(&mut world);
    let next = world.open();
    life.release();
    assert!(run(finish).is_err());
    assert_eq!(named(&world), Some(before.ledger().0.cast_signed()));
    assert_eq!(payloads(&view(&next).unwrap()), ["e1"]);
    drop(next);
    assert_eq!(payloads(&view(&world.open()).unwrap()), ["e1"]);
}

/// If the outcome of the naming is unknown, the next run finds it out.
#[test]
fn a_name_of_which_the_store_did_not_tell_is_found_by_the_next_run() {
    for effect in [CallEffect::Not, CallEffect::Happens] {
        let mut world = World::new();
        drop(three_ledgers(&mut world));
        let life = Life::new();
        let topic = run(world.open_in(&life)).unwrap();
        let first = compact(&topic, &[1]);
        let key = super::super::nodes::key(NAME, CURSOR);
        life.fail(Some((&key, effect)));
        let writer = run(begin(&topic, &[1, 12])).unwrap();
        let told = run(writer.finish(Ordinal(15), 9));
        life.fail(None);
        if effect == CallEffect::Not {
            assert!(told.is_err());
            assert_eq!(payloads(&view(&topic).unwrap()), ["e1"], "it is read as before");
        }
        let second = compact(&topic, &[1, 6]);
        assert_eq!(named(&world), Some(second.ledger().0.cast_signed()));
        drop(topic);
        let topic = world.open();
        assert_eq!(payloads(&view(&topic).unwrap()), ["e1", "e6"]);
        assert!(!exists(&world, first.ledger().0));
    }
}
