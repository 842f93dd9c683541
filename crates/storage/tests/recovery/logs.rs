//! The entry logs, their indexes and the checkpoint.

use futures_util::FutureExt;

use pharos_ledger::{Durability, LedgerEngine, ReadError};
use pharos_runtime::fs::{FaultFs, OpenHow};
use pharos_storage::manual::Manual;
use pharos_storage::{OpenStoreError, Options};
use pharos_types::{EntryId, LedgerId};

use crate::{Store, checkpoint, dir, index, ledgers, log, options, payload, segment};

/// Two ledgers with six entries of 100 bytes each, flushed in two halves.
fn flushed() -> (FaultFs, [LedgerId; 2]) {
    let mut store = Store::new();
    let writers = [store.create(), store.create()];
    for _ in 0..2 {
        for writer in &writers {
            for _ in 0..3 {
                store.append(&**writer, 100);
            }
        }
        store.flush();
    }
    (store.kill(), writers.map(|writer| writer.id()))
}

fn holds_all(store: &mut Store, ids: [LedgerId; 2]) {
    for id in ids {
        for entry in 0..6 {
            assert_eq!(store.read(id, entry).unwrap().unwrap(), payload(id, entry, 100));
        }
        assert_eq!(store.recover(id).unwrap().entry_count, 6);
    }
}

/// Returns the offset of an entry's record in the first log.
fn record_of(fs: &FaultFs, id: LedgerId, entry: u64) -> usize {
    let content = fs.bytes_of(&log(0)).unwrap();
    let wanted = payload(id, entry, 100);
    let at = content.windows(100).position(|window| window == wanted);
    at.unwrap() - 32
}

#[test]
fn flushed_entries_are_read_from_the_log_and_the_journal_is_trimmed() {
    let mut store = Store::new();
    let (id, count) = store.fill_segments(3);
    store.flush();
    assert_eq!(store.manual.storage.stats().segments, 1);
    assert!(store.fs.bytes_of(&segment(1)).is_none());
    let before = store.manual.storage.stats().reads;
    let storage = std::sync::Arc::clone(&store.manual.storage);
    let found = store
        .manual
        .run(storage.read(id, EntryId(0), usize::MAX, usize::MAX))
        .unwrap();
    assert_eq!(found.len() as u64, count);
    assert!(store.manual.storage.stats().reads > before);
    for (entry, found) in (0..).zip(found) {
        assert_eq!(found.payload, payload(id, entry, 900));
    }
    assert_eq!(store.restart().recover(id).unwrap().entry_count, count);
}

#[test]
fn entries_of_one_ledger_are_together_in_the_log() {
    let mut store = Store::new();
    let writers = [store.create(), store.create()];
    for _ in 0..4 {
        for writer in &writers {
            store.append(&**writer, 100);
        }
    }
    store.flush();
    for writer in &writers {
        let places: Vec<usize> = (0..4)
            .map(|entry| record_of(&store.fs, writer.id(), entry))
            .collect();
        assert!(places.windows(2).all(|two| two[1] - two[0] == 136), "{places:?}");
    }
}

#[test]
fn a_damaged_record_in_a_log_hides_one_entry() {
    let (fs, ids) = flushed();
    for (id, lost) in [(ids[0], 0), (ids[0], 1), (ids[1], 2), (ids[1], 4), (ids[1], 5)] {
        for hurt in [10, 28, 40] {
            let fs = fs.snapshot();
            let at = record_of(&fs, id, lost);
            fs.flip(&log(0), at + hurt, 1);
            let mut store = Store::open(fs);
            for other in ids {
                for entry in 0..6 {
                    let read = store.read(other, entry);
                    if (other, entry) != (id, lost) {
                        assert_eq!(
                            read.unwrap().unwrap(),
                            payload(other, entry, 100),
                            "entry {entry}"
                        );
                        continue;
                    }
                    let Err(ReadError::Damaged {
                        entry,
                        file,
                        byte_offset,
                        ..
                    }) = read
                    else {
                        panic!("{read:?}");
                    };
                    assert_eq!((entry.0, byte_offset), (lost, at as u64));
                    assert!(file.ends_with("00000000.log"), "{file}");
                }
            }
            assert!(store.manual.storage.stats().damaged_reads > 0);
        }
    }
}

#[test]
fn a_lost_or_damaged_index_is_made_again_from_the_log() {
    let (fs, ids) = flushed();
    for hurt in [None, Some(5), Some(60), Some(100)] {
        let fs = fs.snapshot();
        match hurt {
            None => fs.mount().remove(&index(0)).unwrap(),
            Some(at) => assert!(fs.flip(&index(0), at, 1)),
        }
        let mut store = Store::open(fs);
        assert_eq!(store.damages(), 0);
        assert_eq!(store.manual.storage.stats().indexes_rebuilt, 1);
        holds_all(&mut store, ids);
        // Once a checkpoint knows its length, the new one is as good as the old.
        store.create();
        store.manual.pass(1);
        let mut store = store.restart();
        assert_eq!(store.damages(), 0);
        holds_all(&mut store, ids);
    }
}

#[test]
fn a_lost_log_is_reported_entry_by_entry() {
    let (fs, ids) = flushed();
    fs.mount().remove(&log(0)).unwrap();
    let mut store = Store::open(fs);
    assert_eq!(store.damages(), 12);
    for id in ids {
        assert!(matches!(store.read(id, 3), Err(ReadError::Damaged { .. })));
        assert_eq!(store.recover(id).unwrap().entry_count, 6);
    }
    let writer = store.create();
    store.append(&*writer, 100);
}

#[test]
fn what_a_flush_did_not_finish_is_cut() {
    let (fs, ids) = flushed();
    for path in [log(0), index(0)] {
        let file = fs.mount().open(&path, OpenHow::WRITE).unwrap();
        let end = file.len().unwrap();
        file.write_all_at(&[7; 5000], end).unwrap();
    }
    for path in [log(9), index(9), ledgers().join("CHECKPOINT.tmp")] {
        fs.mount().open(&path, OpenHow::CREATE).unwrap();
    }
    let mut store = Store::open(fs);
    assert_eq!(store.damages(), 0);
    holds_all(&mut store, ids);
    let names = store.fs.mount().list(&ledgers()).unwrap();
    assert_eq!(names, ["00000000.idx", "00000000.log", "CHECKPOINT", "VERSION"]);
    let writer = store.create();
    store.append(&*writer, 100);
    store.flush();
    assert!(store.fs.bytes_of(&log(10)).is_some(), "ids are not used again");
}

#[test]
fn one_copy_of_the_checkpoint_is_enough_and_none_is_refused() {
    let (fs, ids) = flushed();
    let half = fs.bytes_of(&checkpoint()).unwrap().len() / 2;
    for at in [30, half + 30] {
        let fs = fs.snapshot();
        fs.flip(&checkpoint(), at, 1);
        holds_all(&mut Store::open(fs), ids);
    }
    for at in [30, half + 30] {
        fs.flip(&checkpoint(), at, 1);
    }
    let error = Manual::open(fs.mount(), &dir(), options()).err().unwrap();
    assert!(matches!(error, OpenStoreError::Damaged(_)), "{error}");
    fs.restart();
    fs.mount().remove(&checkpoint()).unwrap();
    let error = Manual::open(fs.mount(), &dir(), options()).err().unwrap();
    assert!(matches!(error, OpenStoreError::WrongDirectory { .. }), "{error}");
}

#[test]
fn what_is_deleted_before_a_flush_is_never_written() {
    let mut store = Store::new();
    let (gone, kept) = (store.create(), store.create());
    for _ in 0..10 {
        store.append(&*gone, 2000);
    }
    store.append(&*kept, 100);
    store.delete(gone.id());
    let stats = store.manual.storage.stats();
    assert!(stats.cache_bytes < 500, "freed at once: {stats:?}");
    store.flush();
    let stats = store.manual.storage.stats();
    assert!(
        stats.trimmed_bytes > 20_000 && stats.flushed_bytes < 500,
        "{stats:?}"
    );
}

#[test]
fn a_crash_leaves_the_flushed_prefix_of_a_bypass_ledger() {
    let mut store = Store::new();
    let writer = store.create_with(Durability::Bypass);
    let id = writer.id();
    for _ in 0..3 {
        store.append(&*writer, 100);
    }
    store.flush();
    for _ in 0..3 {
        store.append(&*writer, 100);
    }
    assert_eq!(store.read(id, 5).unwrap().unwrap(), payload(id, 5, 100));
    let mut store = store.restart();
    assert_eq!(store.damages(), 0);
    assert_eq!(store.recover(id).unwrap().entry_count, 3);
    assert_eq!(store.restart().recover(id).unwrap().entry_count, 3);
}

#[test]
fn a_mostly_dead_log_is_emptied_and_its_entries_stay() {
    let mut store = Store::new();
    let (kept, gone) = (store.create(), store.create());
    store.append(&*kept, 400);
    while store.manual.storage.stats().logs < 2 {
        for _ in 0..20 {
            store.append(&*gone, 2000);
        }
        store.flush();
    }
    store.append(&*kept, 400);
    store.delete(gone.id());
    assert!(store.fs.bytes_of(&log(0)).is_some());
    store.manual.pass(3600 * 1_000_000_000);
    store.manual.settle();
    assert!(store.manual.storage.stats().bytes_moved > 0);
    assert!(store.fs.bytes_of(&log(0)).is_none(), "the emptied log is gone");
    for _ in 0..2 {
        for entry in 0..2 {
            assert_eq!(
                store.read(kept.id(), entry).unwrap().unwrap(),
                payload(kept.id(), entry, 400)
            );
        }
        assert_eq!(store.list(), [kept.id()]);
        store = store.restart();
    }
    assert_eq!(store.recover(kept.id()).unwrap().entry_count, 2);
}

#[test]
fn small_logs_of_many_restarts_are_merged() {
    let fs = FaultFs::new(1);
    let large = || Options {
        entry_log_bytes: 1 << 20,
        ..options()
    };
    let mut ids = Vec::new();
    let mut most = 0;
    for _ in 0..20 {
        let mut store = Store::open_with(fs.clone(), large());
        let writer = store.create();
        store.append(&*writer, 100);
        store.flush();
        most = most.max(store.manual.storage.stats().logs);
        ids.push(writer.id());
        store.kill();
    }
    assert!((5..12).contains(&most), "{most} logs");
    let mut store = Store::open_with(fs, large());
    for id in ids {
        assert_eq!(store.read(id, 0).unwrap().unwrap(), payload(id, 0, 100));
    }
}

#[test]
fn large_entries_cross_extents() {
    let mut store = Store::open_with(
        FaultFs::new(1),
        Options {
            entry_bytes_max: 1 << 20,
            segment_bytes_first: 1 << 20,
            segment_bytes: 8 << 20,
            write_cache_bytes: 8 << 20,
            entry_log_bytes: 16 << 20,
            ..options()
        },
    );
    let writer = store.create();
    let sizes = [
        1,
        300_000,
        5,
        131_072 - 32,
        131_072,
        7,
        1 << 20,
        40,
        262_144 - 64,
        100,
    ];
    for bytes in sizes {
        store.append(&*writer, bytes);
    }
    store.flush();
    let id = writer.id();
    for (entry, bytes) in (0..).zip(sizes) {
        let found = store.read(id, entry).unwrap().unwrap();
        assert!(
            found == payload(id, entry, bytes),
            "entry {entry} of {bytes} bytes"
        );
    }
    let storage = std::sync::Arc::clone(&store.manual.storage);
    let found = store
        .manual
        .run(storage.read(id, EntryId(0), 100, usize::MAX))
        .unwrap();
    assert_eq!(found.len(), sizes.len());
}

#[tokio::test]
async fn entries_do_not_stay_in_memory_beyond_their_time() {
    let real = tempfile::tempdir().unwrap();
    let options = Options {
        flush_interval: std::time::Duration::from_millis(20),
        ..Options::default()
    };
    let storage = pharos_storage::Storage::open(real.path(), options).unwrap();
    let writer = storage
        .create(pharos_ledger::CreateOptions::default())
        .await
        .unwrap();
    for flushes in 1..4 {
        let entry = writer.append("x".into()).unwrap();
        writer
            .tail()
            .wait_for(|tail| tail.durable > entry.0)
            .await
            .unwrap();
        // Nothing else happens that would wake the flusher.
        while storage.stats().flushes < flushes {
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
    }
    storage.shutdown().await;
}

#[test]
fn a_bypass_ledger_is_sealed_only_once_a_checkpoint_names_its_entries() {
    let mut lost = 0;
    for seed in 0..20 {
        let mut store = Store::open(FaultFs::new(seed));
        let writer = store.create_with(Durability::Bypass);
        let id = writer.id();
        store.append(&*writer, 100);
        store.manual.pass(61_000_000_000);
        let checkpoints = store.manual.storage.stats().checkpoints;
        while store.manual.storage.stats().flushes == 0 {
            store.manual.step_flusher();
        }
        // The entry is in a log and the log is synced, but the checkpoint does not know how far the log goes.
        assert_eq!(store.manual.storage.stats().checkpoints, checkpoints);
        let mut closed = Box::pin(writer.close());
        for _ in 0..5 {
            assert!(closed.as_mut().now_or_never().is_none(), "sealed too early");
            store.manual.step_journal(0);
        }
        drop(closed);
        store.fs.crash();
        let mut store = Store::open(store.fs);
        assert_eq!(store.damages(), 0, "seed {seed}");
        lost += u32::from(store.read(id, 0).unwrap().is_none());
    }
    assert!(lost > 0, "a crash there takes the entry");
}

#[test]
fn a_log_is_emptied_at_the_rate_it_may_be() {
    const RATE: u64 = 1 << 20;
    const ROUND: u64 = 1 << 20;
    const LEDGER: u64 = 200 * (2000 + 32);
    let mut store = Store::open_with(
        FaultFs::new(1),
        Options {
            compact_bytes_per_s: RATE,
            write_cache_bytes: 32 << 20,
            entry_log_bytes: 4 << 20,
            minor_compaction_percent: 60,
            ..options()
        },
    );
    let fill = |store: &mut Store| {
        let writer = store.create();
        for entry in 0..200 {
            writer.append(payload(writer.id(), entry, 2000)).unwrap();
        }
        store.manual.settle();
        writer.id()
    };
    let gone: Vec<LedgerId> = (0..6).map(|_| fill(&mut store)).collect();
    let kept: Vec<LedgerId> = (0..6).map(|_| fill(&mut store)).collect();
    store.flush();
    gone.into_iter().for_each(|id| store.delete(id));
    store.manual.settle();
    store.manual.pass(3600 * 1_000_000_000);
    let moved = |store: &mut Store| {
        while store.manual.step_flusher() {}
        store.manual.storage.stats().bytes_moved
    };
    let mut before = moved(&mut store);
    assert!((ROUND..ROUND + LEDGER).contains(&before), "{before} at once");
    // Each round is paid for with time before the next one, to the nanosecond.
    let mut owed = before * 1_000_000_000 / RATE;
    let mut rounds = 1;
    while store.fs.bytes_of(&log(0)).is_some() {
        store.manual.pass(owed - 1);
        assert_eq!(moved(&mut store), before, "too early");
        store.manual.pass(1);
        let now = moved(&mut store);
        assert!(now - before < ROUND + LEDGER, "{} at once", now - before);
        owed = (now - before).max(1) * 1_000_000_000 / RATE;
        before = now;
        rounds += 1;
        assert!(rounds < 20, "it ends");
    }
    assert!(rounds > 1);
    for id in kept {
        assert_eq!(store.read(id, 199).unwrap().unwrap(), payload(id, 199, 2000));
    }
}
