//! Managed ledger over the in-memory engine and store: its operations one by one. Random histories are in `model`.

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use pharos_ledger::{FaultKind, StorageFault, memory::MemoryEngine};
use pharos_metadata::{Memory, MetadataStore};
use pharos_types::{EntryId, LedgerId};

use super::*;
use crate::error::{AppendError, DurableError, OpenError, ReadError};
use crate::options::Retention;
use crate::{Lookup, orphans};
mod handover;
mod model;
mod shadow;

const NAME: &str = "public/default/persistent/t";

/// A managed ledger with its world, driven by hand.
struct World {
    engine: MemoryEngine,
    metadata: Arc<Memory>,
    options: Options,
    log: ManagedLedger,
    steps: FuturesUnordered<BoxFuture<'static, MaintenanceDone>>,
    now_ms: u64,
}

fn small() -> Options {
    Options {
        ledger_entries_max: 3,
        ledger_age_ms_min: 0,
        ..Options::default()
    }
}

fn run<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("nothing in memory waits")
}

fn open(engine: &MemoryEngine, metadata: &Arc<Memory>, options: &Options, now_ms: u64) -> ManagedLedger {
    let (engine, metadata) = (Arc::new(engine.clone()), Arc::clone(metadata));
    let opened = ManagedLedger::open(NAME, engine, metadata, options.clone(), OpenMode::Create, now_ms);
    run(opened).unwrap()
}

impl World {
    fn new(options: Options) -> Self {
        let (engine, metadata) = (MemoryEngine::new(), Arc::new(Memory::new()));
        let log = open(&engine, &metadata, &options, 1_000);
        Self {
            engine,
            metadata,
            options,
            log,
            steps: FuturesUnordered::new(),
            now_ms: 1_000,
        }
    }

    fn append(&mut self, payload: &str) -> Appended {
        self.log.append(Bytes::from(payload.to_owned())).unwrap()
    }

    /// Appends `count` entries that say their ordinal, with maintenance after each.
    fn append_many(&mut self, count: u64) {
        for _ in 0..count {
            let payload = self.log.end().0.to_string();
            self.append(&payload);
            self.maintain();
        }
    }

    /// Runs every step there is. Steps that wait for the engine stay.
    fn maintain(&mut self) -> Vec<MaintenanceEvent> {
        let mut events = Vec::new();
        loop {
            while let Some(step) = self.log.take_maintenance(self.now_ms) {
                self.steps.push(step);
            }
            let Some(Some(done)) = self.steps.next().now_or_never() else {
                return events;
            };
            events.push(self.log.on_maintenance(done, self.now_ms));
        }
    }

    /// As a kill and restart.
    fn crash(&mut self) {
        self.steps.clear();
        self.engine = self.engine.crash();
        self.log = open(&self.engine, &self.metadata, &self.options, self.now_ms);
    }

    fn payloads(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut at = self.log.first();
        while at < self.log.durable_end() {
            let entries = run(self.log.read(at, 2, 1 << 20)).unwrap();
            for entry in entries {
                assert_eq!(entry.ordinal, at);
                assert_eq!(self.log.position_of(at), Some(entry.position));
                assert_eq!(self.log.ordinal_of(entry.position), Lookup::Exact(at));
                found.push(String::from_utf8(entry.payload.to_vec()).unwrap());
                at = at.next();
            }
        }
        found
    }

    fn existing(&self) -> Vec<LedgerId> {
        run(self.engine.list()).unwrap()
    }
}

#[test]
fn entries_come_back_over_rollovers_and_restarts() {
    let mut world = World::new(small());
    world.append_many(10);
    let ledgers = world.log.ledgers().len();
    assert!(ledgers >= 3, "{ledgers} ledgers");
    let expected: Vec<_> = (0..10).map(|ordinal| ordinal.to_string()).collect();
    assert_eq!(world.payloads(), expected);
    world.crash();
    assert_eq!(world.payloads(), expected);
    assert_eq!(world.log.end(), Ordinal(10));
    let log = std::mem::replace(
        &mut world.log,
        open(&MemoryEngine::new(), &Arc::default(), &small(), 0),
    );
    run(log.close()).unwrap();
    world.crash();
    assert_eq!(world.payloads(), expected);
    assert_eq!(world.append("next").ordinal, Ordinal(10));
}

#[test]
fn a_log_of_another_engine_is_refused() {
    let mut world = World::new(small());
    for number in 0..10 {
        world.append(&number.to_string());
        world.maintain();
    }
    let other = MemoryEngine::new();
    let log = std::mem::replace(
        &mut world.log,
        open(&MemoryEngine::new(), &Arc::default(), &small(), 0),
    );
    run(log.close()).unwrap();
    let (engine, metadata) = (Arc::new(other.clone()), Arc::clone(&world.metadata));
    let mode = OpenMode::Create;
    let opened = run(ManagedLedger::open(NAME, engine, metadata, small(), mode, 0));
    assert!(matches!(
        opened,
        Err(OpenError::Info(crate::error::InfoError::Malformed { .. }))
    ));
    assert!(run(other.list()).unwrap().is_empty(), "nothing is left behind");
}

#[test]
fn idle_reopenings_leave_no_ledgers_behind() {
    let mut world = World::new(small());
    for round in 0..5 {
        world.crash();
        if round % 2 == 0 {
            let log = std::mem::replace(
                &mut world.log,
                open(&MemoryEngine::new(), &Arc::default(), &small(), 0),
            );
            run(log.close()).unwrap();
            assert!(world.existing().is_empty());
            world.log = open(&world.engine, &world.metadata, &world.options, 0);
        }
        assert_eq!(world.existing().len(), 1);
    }
}

#[test]
fn missing_is_told_apart_and_deletion_takes_everything() {
    let mut world = World::new(small());
    world.append_many(7);
    assert!(run(exists(NAME, &*world.metadata)).unwrap());
    let engine: Arc<dyn LedgerEngine> = Arc::new(world.engine.clone());
    assert!(run(delete(NAME, Arc::clone(&engine), &*world.metadata)).unwrap());
    assert!(!run(delete(NAME, Arc::clone(&engine), &*world.metadata)).unwrap());
    assert!(!run(exists(NAME, &*world.metadata)).unwrap());
    assert!(world.existing().is_empty());
    let options = Options::default();
    let metadata: Arc<dyn MetadataStore> = world.metadata.clone();
    let opened = run(ManagedLedger::open(
        NAME,
        engine,
        metadata,
        options,
        OpenMode::Existing,
        0,
    ));
    assert!(matches!(opened.err(), Some(OpenError::NotFound(name)) if name == NAME));
}

#[test]
fn a_handover_keeps_later_entries_behind_earlier_ones() {
    let mut world = World::new(small());
    world.append_many(2);
    world.engine.hold();
    for payload in ["2", "3", "4"] {
        world.append(payload);
        world.maintain();
    }
    // The old ledger cannot be closed yet: its entries wait, and those behind it are not even queued.
    assert_eq!(
        (world.log.durable_end(), world.log.end()),
        (Ordinal(2), Ordinal(5))
    );
    assert_eq!(world.log.ledgers().len(), 2);
    let new_ledger = world.log.ledgers()[1].id;
    assert_eq!(
        world.log.position_of(Ordinal(4)),
        Some(Position {
            ledger: new_ledger,
            entry: EntryId(1)
        })
    );
    let mut crashed = World {
        engine: world.engine.crash(),
        steps: FuturesUnordered::new(),
        ..World::new(small())
    };
    crashed.metadata = Arc::clone(&world.metadata);
    // Held entries may be found by recovery, but never one without those before it.
    crashed.log = open(&crashed.engine, &crashed.metadata, &small(), 0);
    let survivors = crashed.payloads();
    assert_eq!(survivors, ["0", "1", "2", "3", "4"][..survivors.len()]);
    assert!(survivors.len() >= 2);
}

#[test]
fn a_waiter_is_woken_by_the_tail_and_by_the_next_ledger() {
    let mut world = World::new(small());
    world.engine.hold();
    world.append("0");
    let mut watch = world.log.durable_watch();
    let mut waiting = Box::pin(watch.reaches(Ordinal(6)));
    assert!(waiting.as_mut().now_or_never().is_none());
    world.engine.release();
    assert!(
        waiting.as_mut().now_or_never().is_none(),
        "woken, and goes on waiting"
    );
    for payload in ["1", "2", "3", "4", "5", "6"] {
        world.append(payload);
        world.maintain();
    }
    run(waiting).unwrap();
}

#[test]
fn a_failed_device_is_told_to_watchers_and_appenders() {
    let mut world = World::new(small());
    world.append_many(1);
    let mut watch = world.log.durable_watch();
    world.engine.hold();
    world.append("lost");
    world.engine.poison(&StorageFault::new("test", "sync failed"));
    assert!(matches!(run(watch.changed()), Err(DurableError::Failed(_))));
    assert!(matches!(
        world.log.append(Bytes::from("x")),
        Err(AppendError::Failed(_))
    ));
    assert_eq!(world.payloads(), ["0"]);
    drop(world.log);
    assert!(run(watch.changed()).is_err());
}

#[test]
fn a_second_owner_fences_the_first() {
    let mut world = World::new(small());
    world.append_many(2);
    let mut second = open(&world.engine, &world.metadata, &world.options, 5);
    // No failure that passes: to open the log again would take it from its owner.
    let late = world.log.append(Bytes::from("late")).unwrap_err();
    let told = run(world.log.durable_watch().changed()).unwrap_err();
    assert_eq!([late.kind(), told.kind()], [FaultKind::Fenced; 2]);
    assert!(world.maintain().is_empty());
    assert_eq!(second.append(Bytes::from("2")).unwrap().ordinal, Ordinal(2));
    let set = run(world.log.set_properties(vec![("a".into(), Some("b".into()))]));
    assert_eq!(set.unwrap_err().kind(), FaultKind::Fenced);
    run(second.set_properties(vec![("a".into(), Some("b".into()))])).unwrap();
}

#[test]
fn a_metadata_fault_delays_a_rollover_but_no_append() {
    let mut world = World::new(small());
    world.metadata.fail_writes(Some("test"));
    world.append_many(8);
    assert_eq!(world.log.ledgers().len(), 1);
    assert_eq!(world.log.durable_end(), Ordinal(8));
    world.metadata.fail_writes(None);
    assert!(world.maintain().is_empty(), "too early to retry");
    world.now_ms += 1_000;
    world.maintain();
    assert_eq!(world.log.ledgers().len(), 2);
    world.crash();
    assert_eq!(world.payloads().len(), 8);
}

#[test]
fn age_rolls_over_what_is_not_empty() {
    let options = Options {
        ledger_age_ms_max: 5_000,
        ledger_age_ms_min: 0,
        ..Options::default()
    };
    let mut world = World::new(options);
    world.now_ms += 6_000;
    world.maintain();
    assert_eq!(world.log.ledgers().len(), 1, "an empty ledger stays");
    world.append("a");
    world.maintain();
    assert_eq!(world.log.ledgers().len(), 2);
    world.append("b");
    world.now_ms += 4_000;
    world.maintain();
    assert_eq!(world.log.ledgers().len(), 2);
}

#[test]
fn the_minimum_age_holds_a_full_ledger_back_unless_asked() {
    let mut world = World::new(Options {
        ledger_age_ms_min: 60_000,
        ..small()
    });
    world.append_many(10);
    assert_eq!(world.log.ledgers().len(), 1);
    world.log.ask_rollover();
    world.maintain();
    assert_eq!(world.log.ledgers().len(), 2);
    world.append_many(4);
    world.now_ms += 60_000;
    world.maintain();
    assert_eq!(world.log.ledgers().len(), 3);
}

#[test]
fn trimming_obeys_cursors_and_retention() {
    let mut world = World::new(small());
    world.append_many(10);
    let rows = world.log.ledgers().to_vec();
    assert!(
        world
            .log
            .trim(Ordinal(rows[0].end().0 - 1), Retention::NONE, world.now_ms)
            .is_empty()
    );
    let keep_all = Retention {
        time_ms: None,
        bytes: None,
    };
    assert!(world.log.trim(world.log.end(), keep_all, world.now_ms).is_empty());
    let ten_s = Retention {
        time_ms: Some(10_000),
        bytes: None,
    };
    assert!(
        world
            .log
            .trim(world.log.end(), ten_s, world.now_ms + 10_000)
            .is_empty()
    );
    // Ten bytes in all: keeping seven lets the first three entries go.
    let seven_bytes = Retention {
        time_ms: None,
        bytes: Some(7),
    };
    assert_eq!(
        world.log.trim(world.log.end(), seven_bytes, world.now_ms),
        [rows[0].id]
    );
    assert_eq!(world.log.first(), rows[1].first);
    assert_eq!(world.log.position_of(Ordinal(0)), None);
    assert_eq!(
        run(world.log.read(Ordinal(0), 1, 1)).unwrap()[0].ordinal,
        rows[1].first
    );
    assert!(matches!(world.maintain().as_slice(), [MaintenanceEvent::Trimmed(ids)] if ids == &[rows[0].id]));
    assert_eq!(
        world
            .log
            .trim(world.log.end(), Retention::NONE, world.now_ms)
            .len(),
        rows.len() - 2
    );
    world.maintain();
    assert_eq!(world.log.ledgers().len(), 1);
    // The current one, and the one prepared to follow it.
    assert_eq!(world.existing()[0], world.log.ledgers()[0].id);
    assert_eq!(world.existing().len(), 2);
    let (first, end) = (world.log.first(), world.log.end());
    world.crash();
    assert_eq!((world.log.first(), world.log.end()), (first, end));
}

#[test]
fn a_reader_with_an_old_table_is_told_so() {
    let mut world = World::new(small());
    world.append_many(2);
    let reader = world.log.reader();
    assert_eq!(
        run(reader.read(Ordinal(0), world.log.durable_end(), 9, 99))
            .unwrap()
            .len(),
        2
    );
    world.append_many(6);
    let end = world.log.durable_end();
    assert!(world.log.table().version() > reader.table().version());
    assert!(matches!(
        run(reader.read(Ordinal(7), end, 9, 99)),
        Err(ReadError::StaleTable)
    ));
    world.log.trim(end, Retention::NONE, world.now_ms);
    world.maintain();
    assert!(matches!(
        run(reader.read(Ordinal(0), end, 9, 99)),
        Err(ReadError::Trimmed(_))
    ));
}

#[test]
fn a_bounded_read_ends_where_it_is_told_and_never_beyond_the_durable_end() {
    let mut world = World::new(small());
    world.append_many(5);
    let ordinals = |log: &ManagedLedger, from: u64, to: ReadTo| -> Vec<u64> {
        let found = run(log.read_to(Ordinal(from), 10, usize::MAX, to)).unwrap();
        found.iter().map(|entry| entry.ordinal.0).collect()
    };
    let cached = |log: &ManagedLedger, from: u64, to: ReadTo| {
        let found = log.cached(Ordinal(from), 10, usize::MAX, to);
        found.map(|found| found.last().map(|entry| entry.ordinal.0))
    };
    let durable = world.log.durable_end();
    assert_eq!(durable, Ordinal(5));
    assert_eq!(ordinals(&world.log, 1, ReadTo::Before(Ordinal(2))), [1]);
    assert_eq!(cached(&world.log, 1, ReadTo::Before(Ordinal(2))), Some(Some(1)));
    assert_eq!(cached(&world.log, 2, ReadTo::Before(Ordinal(2))), None);
    assert_eq!(cached(&world.log, 0, ReadTo::Before(Ordinal(99))), Some(Some(4)));
    assert!(ordinals(&world.log, 2, ReadTo::Before(Ordinal(2))).is_empty());
    // The same from the engine: nothing is cached after a crash.
    world.crash();
    assert_eq!(ordinals(&world.log, 1, ReadTo::Before(Ordinal(2))), [1]);
    assert!(ordinals(&world.log, 2, ReadTo::Before(Ordinal(2))).is_empty());
    assert!(ordinals(&world.log, 5, ReadTo::Before(Ordinal(99))).is_empty());
}

#[test]
fn damage_is_reported_where_it_is() {
    let mut world = World::new(Options {
        cache_bytes_max: 0,
        ..small()
    });
    world.append_many(3);
    let id = world.log.ledgers()[0].id;
    world.engine.damage(id, EntryId(1));
    assert_eq!(run(world.log.read(Ordinal(0), 9, 99)).unwrap().len(), 1);
    let damaged = run(world.log.read(Ordinal(1), 9, 99));
    assert!(matches!(
        damaged,
        Err(ReadError::Engine(pharos_ledger::ReadError::Damaged { .. }))
    ));
}

#[test]
fn a_search_finds_the_first_entry_that_fits() {
    let mut world = World::new(small());
    for _ in 0..20 {
        let payload = format!("{:03}", world.log.end().0);
        world.append(&payload);
        world.maintain();
    }
    for wanted in 0..22 {
        let bound = format!("{wanted:03}");
        let found = run(world
            .log
            .find_first(move |payload| payload.as_ref() >= bound.as_bytes()))
        .unwrap();
        assert_eq!(found, Ordinal(wanted.min(20)));
    }
}

#[test]
fn a_search_goes_on_around_damage() {
    let mut world = World::new(Options {
        cache_bytes_max: 0,
        ..small()
    });
    for _ in 0..20 {
        let payload = format!("{:03}", world.log.end().0);
        world.append(&payload);
        world.maintain();
    }
    for damaged in [0, 5, 6, 10, 19] {
        let at = world.log.table().position_of(Ordinal(damaged)).unwrap();
        world.engine.damage(at.ledger, at.entry);
    }
    for (wanted, place) in [
        (0, 0),
        (4, 4),
        (5, 5),
        (7, 5),
        (8, 8),
        (11, 10),
        (12, 12),
        (20, 19),
    ] {
        let bound = Bytes::from(format!("{wanted:03}"));
        let found = run(world.log.find_first(move |payload| *payload >= bound)).unwrap();
        assert_eq!(found, Ordinal(place), "{wanted}");
    }
}

#[test]
fn a_terminated_log_says_its_last_position_for_ever() {
    let mut world = World::new(small());
    world.append_many(5);
    let last = world.log.last_position();
    world.log.terminate();
    assert!(matches!(
        world.log.append(Bytes::from("x")),
        Err(AppendError::Terminated)
    ));
    let mut watch = world.log.durable_watch();
    let events = world.maintain();
    assert!(
        events
            .iter()
            .any(|event| matches!(event, MaintenanceEvent::Terminated(at) if *at == last))
    );
    assert!(watch.changed().now_or_never().is_none());
    world.crash();
    assert!(world.log.is_terminated());
    assert_eq!((world.log.last_position(), world.payloads().len()), (last, 5));
    assert!(matches!(
        world.log.append(Bytes::from("x")),
        Err(AppendError::Terminated)
    ));
    assert!(run(orphans(&world.engine, &*world.metadata)).unwrap().is_empty());
}

#[test]
fn properties_survive() {
    let mut world = World::new(small());
    run(world.log.set_properties(vec![
        ("epoch".into(), Some("7".into())),
        ("x".into(), Some("y".into())),
    ]))
    .unwrap();
    run(world.log.set_properties(vec![("x".into(), None)])).unwrap();
    world.append_many(7);
    world.crash();
    assert_eq!(
        world.log.properties().into_iter().collect::<Vec<_>>(),
        [("epoch".to_owned(), "7".to_owned())]
    );
    assert_eq!(world.log.created_ms(), 1_000);
}

#[test]
fn sizes_out_of_range_are_refused_before_a_position_is_given() {
    let mut world = World::new(Options {
        entry_bytes_max: 4,
        ..small()
    });
    for payload in ["", "12345"] {
        let refused = world.log.append(Bytes::from(payload));
        assert!(matches!(refused, Err(AppendError::BadSize { bytes_max: 4, .. })));
    }
    assert_eq!(world.append("1234").ordinal, Ordinal(0));
}

#[test]
fn ledgers_that_nothing_names_are_found() {
    let mut world = World::new(small());
    world.append_many(5);
    let stray = run(world.engine.create(pharos_ledger::CreateOptions::default())).unwrap();
    assert_eq!(
        run(orphans(&world.engine, &*world.metadata)).unwrap(),
        [stray.id()]
    );
    run(world.metadata.put(
        "managed-ledgers/other",
        Bytes::from("\x08\x63"),
        pharos_metadata::Expect::Any,
    ))
    .unwrap();
    assert!(
        run(orphans(&world.engine, &*world.metadata)).is_err(),
        "an info of another release hides orphans"
    );
}
