//! The engine's own threads under a scheduler that explores their interleavings.
//!
//! ```text
//! RUSTFLAGS="--cfg pharos_shuttle" cargo test --target-dir target/shuttle -p pharos-storage --test threads
//! ```
//! Each test is a small history that many schedules run: journals, preparers, flusher, readers and callers are threads of
//! `shuttle`, of which one runs at a time; at each lock, atomic and condition it chooses who is next. Half of the schedules choose
//! at random, half let threads of a random priority run and change that at a few places (PCT). A thread that waits for a word
//! that never comes is a deadlock, also where it waits with a timeout. `PHAROS_THREADS_SCHEDULES=<count>` runs more; a failure
//! prints its schedule.

#![cfg(pharos_shuttle)]
#![expect(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use shuttle::future::block_on;
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, MaxSteps, Runner, thread};

use pharos_ledger::{
    AppendError, CreateOptions, Durability, LedgerEngine, LedgerWriter, OpenError, ReadError,
};
use pharos_runtime::fs::FaultFs;
use pharos_storage::manual::Manual;
use pharos_storage::{IoMode, Options, Preallocate, Storage};
use pharos_types::{EntryId, LedgerId};

/// Schedules of each test in a plain run.
const SCHEDULES: usize = 80;

fn dir() -> PathBuf {
    Path::new("/store").to_owned()
}

/// Options so small that a few entries fill a segment, the write cache and a log.
fn options() -> Options {
    Options {
        block_bytes: 512,
        io: IoMode::Buffered,
        segment_bytes_first: 16 << 10,
        segment_bytes: 16 << 10,
        entry_bytes_max: 2 << 10,
        preallocate: Preallocate::Reserve,
        group_bytes_max: 4 << 10,
        write_cache_bytes: 8 << 10,
        entry_log_bytes: 16 << 10,
        read_cache_bytes: 0,
        linger: Duration::ZERO,
        spare_segments: 1,
        journal_bytes_max: 32 << 10,
        compact_bytes_per_s: u64::MAX,
        ..Options::default()
    }
}

fn explore(body: impl Fn() + Send + Sync + 'static) {
    let wanted = std::env::var("PHAROS_THREADS_SCHEDULES").ok();
    let schedules = wanted.map_or(SCHEDULES, |text| text.parse().expect("a number of schedules"));
    let body = Arc::new(body);
    let run = |scheduler: Box<dyn Scheduler + Send>, max_steps: MaxSteps| {
        let mut config = Config::new();
        config.stack_size = 1 << 20;
        config.max_steps = max_steps;
        let body = Arc::clone(&body);
        Runner::new(scheduler, config).run(move || body());
    };
    run(
        Box::new(RandomScheduler::new(schedules / 2)),
        MaxSteps::FailAfter(2_000_000),
    );
    // Its priorities are not fair: threads that wake each other may keep those of a lower one from running for ever. Such a schedule
    // is given up; a random one finds what never ends.
    run(
        Box::new(PctScheduler::new(5, schedules / 2)),
        MaxSteps::ContinueAfter(2_000_000),
    );
}

/// A store on a disk of its own, with its threads.
fn open(options: Options) -> (FaultFs, Arc<Storage>) {
    let fs = FaultFs::new(thread_rng().r#gen());
    let storage = Storage::open_with(fs.mount(), &dir(), options).unwrap();
    (fs, storage)
}

fn payload(ledger: LedgerId, entry: u64) -> Bytes {
    let byte = (ledger.0 * 31 + entry * 7 + 1) as u8;
    vec![byte; 200 + (entry as usize * 331) % 900].into()
}

fn create(storage: &Arc<Storage>, durability: Durability) -> Arc<dyn LedgerWriter> {
    let options = CreateOptions {
        durability,
        ..CreateOptions::default()
    };
    block_on(storage.create(options)).unwrap()
}

/// Appends so many entries, waiting where the engine is busy. Ends early when it takes no more.
fn append(writer: &dyn LedgerWriter, count: u64) -> Result<(), AppendError> {
    let mut entry = 0;
    while entry < count {
        match writer.append(payload(writer.id(), entry)) {
            Ok(id) => {
                assert_eq!(id.0, entry, "ids are dense");
                entry += 1;
            }
            Err(AppendError::Overloaded { .. }) => thread::yield_now(),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Waits until so many entries are durable, or the writer failed.
fn wait_for(writer: &dyn LedgerWriter, count: u64) {
    let mut tail = writer.tail();
    let _ = block_on(tail.wait_for(|tail| tail.durable >= count || tail.failed.is_some()));
}

/// The store that a power cut leaves has everything that was called durable.
fn check_after_power_cut(fs: &FaultFs, options: Options, durable: &BTreeMap<LedgerId, u64>) {
    fs.crash_losing_all();
    let mut store = Manual::open(fs.mount(), &dir(), options).unwrap();
    assert_eq!(store.storage.stats().damages, 0);
    let storage = Arc::clone(&store.storage);
    for (id, count) in durable {
        for entry in 0..*count {
            let found = store
                .run(storage.read(*id, EntryId(entry), 1, usize::MAX))
                .unwrap();
            assert_eq!(found.len(), 1, "entry {entry} of ledger {id} was durable");
            assert_eq!(found[0].payload, payload(*id, entry));
        }
    }
}

#[test]
fn no_watermark_passes_what_is_synced() {
    explore(|| {
        let options = Options {
            journal_dirs: vec![dir().join("journal0"), dir().join("journal1")],
            ..options()
        };
        let (fs, storage) = open(options.clone());
        let writers: Vec<_> = (0..3).map(|_| create(&storage, Durability::Sync)).collect();
        let appending: Vec<_> = writers
            .iter()
            .cloned()
            .map(|writer| thread::spawn(move || append(&*writer, 8).unwrap()))
            .collect();
        // Somewhere in the middle the power goes, in a copy of the world.
        for _ in 0..thread_rng().gen_range(0..200) {
            thread::yield_now();
        }
        let tails = writers
            .iter()
            .map(|writer| (writer.id(), writer.tail().borrow().durable));
        let durable: BTreeMap<_, _> = tails.collect();
        let cut = fs.snapshot();
        for thread in appending {
            thread.join().unwrap();
        }
        for writer in &writers {
            wait_for(&**writer, 8);
            assert_eq!(writer.tail().borrow().durable, 8);
        }
        drop((writers, storage));
        check_after_power_cut(&cut, options, &durable);
    });
}

#[test]
fn a_fenced_writer_acknowledges_nothing_after_the_recovery() {
    explore(|| {
        let (fs, storage) = open(options());
        let writer = create(&storage, Durability::Sync);
        let id = writer.id();
        let appending = {
            let writer = Arc::clone(&writer);
            thread::spawn(move || append(&*writer, 6))
        };
        for _ in 0..thread_rng().gen_range(0..60) {
            thread::yield_now();
        }
        let sealed = block_on(storage.recover(id)).unwrap();
        let again = block_on(storage.recover(id)).unwrap();
        assert_eq!(again.entry_count, sealed.entry_count, "recovery is final");
        let appended = appending.join().unwrap();
        assert!(
            matches!(appended, Ok(()) | Err(AppendError::Fenced { .. })),
            "{appended:?}"
        );
        assert!(writer.append(payload(id, 9)).is_err());
        assert!(writer.tail().borrow().durable <= sealed.entry_count);
        let behind = block_on(storage.read(id, EntryId(sealed.entry_count), 9, usize::MAX)).unwrap();
        assert!(behind.is_empty());
        drop((writer, storage));
        check_after_power_cut(&fs, options(), &BTreeMap::from([(id, sealed.entry_count)]));
    });
}

#[test]
fn reads_find_what_is_durable_while_it_is_flushed_and_deleted() {
    explore(|| {
        let (_, storage) = open(options());
        let (kept, gone) = (
            create(&storage, Durability::Sync),
            create(&storage, Durability::Sync),
        );
        let threads: Vec<_> = [&kept, &gone]
            .map(Arc::clone)
            .map(|writer| thread::spawn(move || append(&*writer, 10)))
            .into_iter()
            .collect();
        let reader = {
            let (storage, kept) = (Arc::clone(&storage), Arc::clone(&kept));
            let gone = gone.id();
            thread::spawn(move || {
                for _ in 0..6 {
                    let durable = kept.tail().borrow().durable;
                    read_all(&storage, kept.id(), durable);
                    match block_on(storage.read(gone, EntryId(0), 3, usize::MAX)) {
                        Ok(found) => found
                            .iter()
                            .for_each(|e| assert_eq!(e.payload, payload(gone, e.id.0))),
                        Err(error) => assert!(matches!(error, ReadError::NoSuchLedger(_)), "{error:?}"),
                    }
                }
            })
        };
        for _ in 0..thread_rng().gen_range(0..100) {
            thread::yield_now();
        }
        block_on(storage.delete(gone.id())).unwrap();
        let answer = block_on(storage.recover(gone.id()));
        assert!(matches!(answer, Err(OpenError::NoSuchLedger(_))), "{answer:?}");
        for thread in threads {
            let _ = thread.join().unwrap();
        }
        wait_for(&*kept, 10);
        reader.join().unwrap();
        read_all(&storage, kept.id(), 10);
        assert!(!storage.stats().poisoned);
    });
}

fn read_all(storage: &Arc<Storage>, id: LedgerId, durable: u64) {
    let mut next = 0;
    while next < durable {
        let found = block_on(storage.read(id, EntryId(next), 4, usize::MAX)).unwrap();
        assert!(!found.is_empty(), "entry {next} of {durable} durable ones");
        for entry in found {
            assert_eq!(entry.payload, payload(id, entry.id.0));
            next = entry.id.0 + 1;
        }
    }
}

#[test]
fn a_stop_ends_everything_and_forgets_nothing() {
    explore(|| {
        let (fs, storage) = open(options());
        let writer = create(&storage, Durability::Async);
        let id = writer.id();
        let appending = {
            let writer = Arc::clone(&writer);
            thread::spawn(move || append(&*writer, 8).is_ok())
        };
        let others: Vec<_> = (0..2)
            .map(|n| {
                let storage = Arc::clone(&storage);
                thread::spawn(move || match n {
                    0 => {
                        let _ = block_on(storage.read(id, EntryId(0), 9, usize::MAX));
                        let _ = block_on(storage.recover(id));
                    }
                    _ => drop(block_on(storage.create(CreateOptions::default()))),
                })
            })
            .collect();
        for _ in 0..thread_rng().gen_range(0..100) {
            thread::yield_now();
        }
        block_on(storage.shutdown());
        let durable = writer.tail().borrow().durable;
        appending.join().unwrap();
        for other in others {
            other.join().unwrap();
        }
        drop((writer, storage));
        check_after_power_cut(&fs, options(), &BTreeMap::from([(id, durable)]));
    });
}

#[test]
fn a_failed_sync_answers_every_caller() {
    explore(|| {
        let (fs, storage) = open(options());
        let writers: Vec<_> = (0..2).map(|_| create(&storage, Durability::Sync)).collect();
        fs.fail_sync_in(thread_rng().gen_range(0..6));
        let threads: Vec<_> = writers
            .iter()
            .cloned()
            .map(|writer| {
                thread::spawn(move || {
                    let _ = append(&*writer, 8);
                    wait_for(&*writer, 8);
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        let tails = writers
            .iter()
            .map(|writer| (writer.id(), writer.tail().borrow().durable));
        let durable: BTreeMap<_, _> = tails.collect();
        let _ = block_on(storage.create(CreateOptions::default()));
        block_on(storage.shutdown());
        drop((writers, storage));
        check_after_power_cut(&fs, options(), &durable);
    });
}
