//! The cursor log over the in-memory engine and store: its verbs, its rolls, crashes between any two steps.

use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use pharos_ledger::BoxFuture;
use pharos_ledger::memory::MemoryEngine;
use pharos_metadata::Memory;
use pharos_types::Ordinal;

use super::mirror::Replay;
use super::record::SNAPSHOT;
use super::*;
use crate::cursor::Malformed;
use crate::{ManagedLedger, OpenMode, Options, orphans};

mod lacking;
mod model;
mod system;

const NAME: &str = "public/default/persistent/t";

struct World {
    engine: MemoryEngine,
    metadata: Arc<Memory>,
    options: CursorLogOptions,
    topic: ManagedLedger,
    log: CursorLog,
    steps: FuturesUnordered<BoxFuture<'static, RollDone>>,
    now_ms: u64,
}

fn run<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("nothing in memory waits")
}

fn tiny() -> CursorLogOptions {
    CursorLogOptions {
        roll_bytes_min: 60,
        roll_factor: 1,
        entry_bytes: 40,
        queue_bytes_max: 120,
        ..CursorLogOptions::default()
    }
}

fn open_topic(engine: &MemoryEngine, metadata: &Arc<Memory>) -> ManagedLedger {
    let (engine, metadata) = (Arc::new(engine.clone()), Arc::clone(metadata));
    run(ManagedLedger::open(
        NAME,
        engine,
        metadata,
        Options::default(),
        OpenMode::Create,
        0,
    ))
    .unwrap()
}

impl World {
    fn new(options: CursorLogOptions) -> Self {
        let (engine, metadata) = (MemoryEngine::new(), Arc::new(Memory::new()));
        let mut topic = open_topic(&engine, &metadata);
        for _ in 0..100 {
            topic.append(Bytes::from("x")).unwrap();
        }
        let log = run(CursorLog::open(&topic, options.clone(), 0)).unwrap();
        Self {
            engine,
            metadata,
            options,
            topic,
            log,
            steps: FuturesUnordered::new(),
            now_ms: 0,
        }
    }

    fn reopen(&mut self, engine: MemoryEngine) {
        self.steps.clear();
        self.engine = engine;
        self.topic = open_topic(&self.engine, &self.metadata);
        self.log = run(CursorLog::open(&self.topic, self.options.clone(), self.now_ms)).unwrap();
    }

    fn crash(&mut self) {
        self.reopen(self.engine.crash());
    }

    fn maintain(&mut self) -> usize {
        let mut rolled = 0;
        loop {
            while let Some(step) = self.log.take_maintenance(self.now_ms) {
                self.steps.push(step);
            }
            let Some(Some(done)) = self.steps.next().now_or_never() else {
                return rolled;
            };
            let event = self.log.on_maintenance(done, self.now_ms);
            rolled += usize::from(matches!(event, RollEvent::Rolled));
        }
    }

    fn commit(&mut self) {
        let ticket = self.log.commit();
        self.maintain();
        run(ticket.durable()).unwrap();
    }

    fn subscribe(&mut self, name: &str, acks: AckState) -> (SubscriptionId, Slot) {
        let subscription = self.log.subscription_free();
        let properties = BTreeMap::from([("pharos.subscription".to_owned(), "broadcast".to_owned())]);
        let name = name.to_owned();
        let created = Record::SubscriptionCreated {
            subscription,
            name,
            kind: 7,
            properties,
            facts: vec![1, 2],
        };
        self.log.queue(created).unwrap();
        (subscription, self.join(subscription, "", acks))
    }

    fn join(&mut self, subscription: SubscriptionId, consumer: &str, acks: AckState) -> Slot {
        let (slot, consumer) = (self.log.slot_free(), consumer.to_owned());
        let created = Record::CursorCreated {
            slot,
            subscription,
            consumer,
            facts: vec![3],
            acks,
        };
        self.log.queue(created).unwrap();
        slot
    }

    fn state(
        &self,
    ) -> (
        BTreeMap<SubscriptionId, Box<Subscription>>,
        BTreeMap<Slot, Cursor>,
    ) {
        (self.log.subscriptions().clone(), self.log.cursors().clone())
    }
}

fn with_holes() -> AckState {
    let mut acks = AckState::new(Ordinal(10));
    acks.ack(Ordinal(20));
    acks.ack_batch(Ordinal(30), &[0b101]);
    acks
}

#[test]
fn cursors_come_back_with_all_they_are() {
    let mut world = World::new(CursorLogOptions::default());
    let (subscription, main) = world.subscribe("a", with_holes());
    let slot = world.join(subscription, "vehicle-1", AckState::new(Ordinal(5)));
    world.commit();
    world
        .log
        .queue(Record::CursorMoved {
            slot,
            acks: AckState::new(Ordinal(9)),
        })
        .unwrap();
    world
        .log
        .queue(Record::CursorMoved {
            slot: main,
            acks: AckState::new(Ordinal(50)),
        })
        .unwrap();
    world
        .log
        .queue(Record::CursorMoved {
            slot: main,
            acks: AckState::new(Ordinal(40)),
        })
        .unwrap();
    world
        .log
        .queue(Record::CursorFacts {
            slot,
            facts: vec![9; 9],
        })
        .unwrap();
    let gone = world.join(subscription, "vehicle-2", AckState::default());
    world.log.queue(Record::CursorRemoved { slot: gone }).unwrap();
    let (other, _) = world.subscribe("b", AckState::default());
    world
        .log
        .queue(Record::SubscriptionRemoved { subscription: other })
        .unwrap();
    let (properties, facts) = (BTreeMap::from([("k".to_owned(), "v".to_owned())]), vec![8]);
    world
        .log
        .queue(Record::SubscriptionChanged {
            subscription,
            kind: 1,
            properties,
            facts,
        })
        .unwrap();
    world.commit();
    let before = world.state();
    assert_eq!((before.0.len(), before.1.len()), (1, 2));
    assert_eq!(world.log.acks(main).unwrap().acked_to(), Ordinal(40));
    world.crash();
    assert_eq!(world.state(), before);
    let idle = std::mem::replace(
        &mut world.log,
        run(CursorLog::open(&world.topic, tiny(), 0)).unwrap(),
    );
    run(idle.close(0)).unwrap();
    world.reopen(world.engine.clone());
    assert_eq!(world.state(), before);
}

#[test]
fn a_topic_without_cursors_has_no_cursor_ledger() {
    let mut world = World::new(CursorLogOptions::default());
    run(world.log.commit().durable()).unwrap();
    assert_eq!(world.maintain(), 0);
    assert_eq!(run(world.engine.list()).unwrap().len(), 1);
}

#[test]
fn a_commit_is_not_durable_before_the_ledger_is_named() {
    let mut world = World::new(CursorLogOptions::default());
    world.subscribe("a", AckState::default());
    world.metadata.fail_writes(Some("test"));
    let ticket = world.log.commit();
    world.maintain();
    // The store may have failed for good: who waits is told, with every try.
    let error = run(ticket.durable()).unwrap_err();
    assert!(error.is_transient(), "{error}");
    let ticket = world.log.commit();
    world.now_ms += 1_000;
    assert_eq!(world.maintain(), 0);
    assert!(run(ticket.durable()).unwrap_err().is_transient());
    world.metadata.fail_writes(None);
    let ticket = world.log.commit();
    assert_eq!(world.maintain(), 0, "too early to retry");
    let mut ticket = Box::pin(ticket.durable());
    assert!(ticket.as_mut().now_or_never().is_none());
    world.now_ms += 1_000;
    assert_eq!(world.maintain(), 1);
    run(ticket).unwrap();
    world.crash();
    assert_eq!(world.log.cursors().len(), 1);
}

#[test]
fn queued_records_do_not_survive_and_committed_ones_wait_for_the_device() {
    let mut world = World::new(CursorLogOptions::default());
    let (_, slot) = world.subscribe("a", AckState::default());
    world.commit();
    world.engine.hold();
    world
        .log
        .queue(Record::CursorMoved {
            slot,
            acks: AckState::new(Ordinal(3)),
        })
        .unwrap();
    let ticket = world.log.commit();
    assert!(ticket.durable().now_or_never().is_none());
    world.crash();
    assert_eq!(world.log.acks(slot), Some(&AckState::default()));
}

#[test]
fn a_caller_that_waits_for_a_full_device_is_told_and_the_records_are_stored_when_it_has_room() {
    for is_first in [true, false] {
        let mut world = World::new(CursorLogOptions::default());
        if !is_first {
            world.subscribe("before", AckState::default());
            world.commit();
        }
        world.engine.fill(true);
        let (subscription, _) = world.subscribe("a", AckState::default());
        let ticket = world.log.commit();
        world.maintain();
        let error = ticket.durable().now_or_never().unwrap().unwrap_err();
        assert!(error.is_transient(), "{error}");
        world.engine.fill(false);
        world.now_ms += 10_000;
        world.maintain();
        world.commit();
        world.crash();
        assert!(world.log.subscription(subscription).is_some());
    }
}

#[test]
fn the_log_rolls_and_the_old_ledger_goes() {
    let mut world = World::new(tiny());
    let (_, slot) = world.subscribe("a", AckState::default());
    world.commit();
    for to in 1..200 {
        world
            .log
            .queue(Record::CursorMoved {
                slot,
                acks: AckState::new(Ordinal(to.min(100))),
            })
            .unwrap();
        world.commit();
    }
    assert_eq!(
        run(world.engine.list()).unwrap().len(),
        2,
        "the topic's and the cursors' ledger"
    );
    let before = world.state();
    world.crash();
    assert_eq!(world.state(), before);
    assert!(run(orphans(&world.engine, &*world.metadata)).unwrap().is_empty());
}

#[test]
fn what_lies_beyond_a_recovered_end_is_forgotten_for_good() {
    let mut world = World::new(CursorLogOptions::default());
    let mut acks = AckState::new(Ordinal(99));
    acks.ack(Ordinal(150));
    let (_, slot) = world.subscribe("a", acks);
    let (_, ahead) = world.subscribe("b", AckState::new(Ordinal(120)));
    world.commit();
    world.crash();
    assert_eq!(world.log.acks(slot), Some(&AckState::new(Ordinal(99))));
    assert_eq!(world.log.acks(ahead), Some(&AckState::new(Ordinal(100))));
    for _ in 0..100 {
        world.topic.append(Bytes::from("new")).unwrap();
    }
    world.crash();
    assert_eq!(world.topic.end(), Ordinal(200));
    assert!(!world.log.acks(slot).unwrap().is_acked(Ordinal(150)));
    assert_eq!(world.log.acks(ahead), Some(&AckState::new(Ordinal(100))));
}

#[test]
fn bugs_of_the_caller_are_refused_and_change_nothing() {
    let mut world = World::new(CursorLogOptions::default());
    let (subscription, slot) = world.subscribe("a", AckState::default());
    let before = world.state();
    let cursor = |slot, subscription| Record::CursorCreated {
        slot,
        subscription,
        consumer: String::new(),
        facts: Vec::new(),
        acks: AckState::default(),
    };
    assert!(matches!(
        world.log.queue(cursor(slot, subscription)),
        Err(QueueError::InUse)
    ));
    let unknown = SubscriptionId(99);
    assert!(matches!(
        world.log.queue(cursor(Slot(9), unknown)),
        Err(QueueError::NoSubscription(_))
    ));
    let moved = Record::CursorMoved {
        slot: Slot(9),
        acks: AckState::default(),
    };
    assert!(matches!(world.log.queue(moved), Err(QueueError::NoCursor(_))));
    let large = Record::CursorFacts {
        slot,
        facts: vec![0; RECORD_BYTES_MAX + 1],
    };
    assert!(matches!(world.log.queue(large), Err(QueueError::TooLarge { .. })));
    assert_eq!(world.state(), before);
}

#[test]
fn an_engine_that_fails_is_told_to_everyone() {
    let mut world = World::new(CursorLogOptions::default());
    let (_, slot) = world.subscribe("a", AckState::default());
    world.commit();
    world.engine.hold();
    let moved = || Record::CursorMoved {
        slot,
        acks: AckState::new(Ordinal(1)),
    };
    world.log.queue(moved()).unwrap();
    let ticket = world.log.commit();
    world.engine.poison(&StorageFault::new("test", "sync failed"));
    assert!(matches!(run(ticket.durable()), Err(CommitError::Failed(_))));
    world.log.queue(moved()).unwrap();
    assert!(run(world.log.commit().durable()).is_err());
    assert!(matches!(world.log.queue(moved()), Err(QueueError::Failed(_))));
}

#[test]
fn an_engine_that_takes_nothing_for_long_gets_all_of_it_later() {
    let mut world = World::new(tiny());
    let (subscription, slot) = world.subscribe("a", AckState::default());
    world.commit();
    world.engine.overload(true);
    for to in 1..=90 {
        let acks = AckState::new(Ordinal(to));
        world.log.queue(Record::CursorMoved { slot, acks }).unwrap();
        drop(world.log.commit());
        world.maintain();
    }
    let joined = world.join(subscription, "late", AckState::new(Ordinal(7)));
    assert!(world.log.queued_bytes() < 400, "what is queued has an end");
    let ticket = world.log.commit();
    let mut ticket = Box::pin(ticket.durable());
    assert!(ticket.as_mut().now_or_never().is_none());
    assert!(world.log.is_behind(), "the records are queued again");
    world.engine.overload(false);
    world.now_ms += 1_000;
    world.maintain();
    run(ticket).unwrap();
    assert!(!world.log.is_behind());
    let before = world.state();
    world.crash();
    assert_eq!(world.state(), before);
    assert_eq!(world.log.acks(slot), Some(&AckState::new(Ordinal(90))));
    assert_eq!(world.log.acks(joined), Some(&AckState::new(Ordinal(7))));
}

#[test]
fn a_second_owner_s_log_wins() {
    let mut world = World::new(CursorLogOptions::default());
    let (_, slot) = world.subscribe("a", AckState::default());
    world.commit();
    let topic = open_topic(&world.engine, &world.metadata);
    let mut second = run(CursorLog::open(&topic, CursorLogOptions::default(), 0)).unwrap();
    world
        .log
        .queue(Record::CursorMoved {
            slot,
            acks: AckState::new(Ordinal(1)),
        })
        .unwrap();
    assert!(run(world.log.commit().durable()).is_err());
    second
        .queue(Record::CursorMoved {
            slot,
            acks: AckState::new(Ordinal(2)),
        })
        .unwrap();
    let ticket = second.commit();
    run(second.close(0)).unwrap();
    run(ticket.durable()).unwrap();
    world.reopen(world.engine.clone());
    assert_eq!(world.log.acks(slot), Some(&AckState::new(Ordinal(2))));
}

#[test]
fn a_hundred_thousand_cursors_are_few_entries() {
    const COUNT: u32 = 100_000;
    let mut world = World::new(CursorLogOptions::default());
    let (subscription, _) = world.subscribe("notices", AckState::default());
    for vehicle in 0..COUNT {
        world.join(
            subscription,
            &format!("vehicle-{vehicle:06}"),
            AckState::new(Ordinal(1)),
        );
    }
    world.commit();
    for round in 2..10 {
        for slot in 1..=COUNT {
            let acks = AckState::new(Ordinal(round));
            world
                .log
                .queue(Record::CursorMoved {
                    slot: Slot(slot),
                    acks,
                })
                .unwrap();
        }
        world.commit();
    }
    let primary = world.log.primary.as_ref().unwrap();
    assert!(primary.bytes < 8 * 600_000 + 4_000_000, "{} bytes", primary.bytes);
    let before = world.state();
    world.crash();
    assert_eq!(world.state(), before);
}

#[test]
fn removed_slots_are_used_again() {
    let mut world = World::new(CursorLogOptions::default());
    let (subscription, _) = world.subscribe("a", AckState::default());
    let slots: Vec<_> = (0..3)
        .map(|_| world.join(subscription, "c", AckState::default()))
        .collect();
    world.log.queue(Record::CursorRemoved { slot: slots[1] }).unwrap();
    assert_eq!(world.join(subscription, "d", AckState::default()), slots[1]);
    assert_eq!(world.log.slot_free(), Slot(slots[2].0 + 1));
}

#[test]
fn what_is_not_a_cursor_ledger_is_refused() {
    let entry = |bytes: &[u8]| Replay::default().on_entry(bytes);
    assert_eq!(entry(&[]), Err(Malformed("a byte is missing")));
    assert!(entry(&[2, 1, 9, 0, 0]).is_err(), "another version");
    assert!(entry(&CHANGES).is_err(), "changes before a snapshot");
    assert!(
        entry(&[SNAPSHOT[0], SNAPSHOT[1], 9, 1, 0]).is_err(),
        "counts differ"
    );
    assert!(entry(&[SNAPSHOT[0], SNAPSHOT[1], 99, 0]).is_err(), "unknown kind");
    let last_id = [
        SNAPSHOT[0],
        SNAPSHOT[1],
        1,
        0xff,
        0xff,
        0xff,
        0xff,
        0x0f,
        1,
        b's',
        0,
        0,
        0,
    ];
    assert_eq!(entry(&last_id), Err(Malformed("the last id is never given out")));
    assert!(entry(&[SNAPSHOT[0], SNAPSHOT[1], 9, 0, 0]).is_ok());
}
