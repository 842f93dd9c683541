//! Backlogs are read once for all readers, in pieces, and in turns.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;

use pharos_ledger::{CreateOptions, LedgerEngine, LedgerWriter, NewEntry, Tail};
use pharos_storage::{Options, Storage};
use pharos_types::{EntryId, LedgerId};

const ENTRIES: u64 = 2000;
const ENTRY_BYTES: usize = 3000;

fn payload(ledger: LedgerId, entry: u64) -> Bytes {
    let mut bytes = vec![(ledger.0 * 31 + entry) as u8; ENTRY_BYTES];
    bytes[..8].copy_from_slice(&entry.to_le_bytes());
    bytes.into()
}

fn options() -> Options {
    Options {
        segment_bytes_first: 1 << 20,
        segment_bytes: 32 << 20,
        flush_interval: Duration::from_millis(1),
        read_cache_bytes: 16 << 20,
        ..Options::default()
    }
}

/// A store with `count` ledgers of about 6 MB, all of it in the logs only.
async fn flushed(dir: &std::path::Path, count: usize) -> (Arc<Storage>, Vec<LedgerId>) {
    let storage = Storage::open(dir, options()).unwrap();
    let mut writers: Vec<Arc<dyn LedgerWriter>> = Vec::new();
    for _ in 0..count {
        writers.push(storage.create(CreateOptions::default()).await.unwrap());
    }
    for entry in 0..ENTRIES {
        for writer in &writers {
            writer.append(payload(writer.id(), entry)).unwrap();
        }
    }
    for writer in &writers {
        writer.close().await.unwrap();
    }
    while storage.stats().cache_bytes > 0 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    (storage, writers.iter().map(|writer| writer.id()).collect())
}

async fn read_all(storage: &Storage, ledger: LedgerId) {
    let mut next = 0;
    while next < ENTRIES {
        let found = storage.read(ledger, EntryId(next), 100, 200_000).await.unwrap();
        assert!(!found.is_empty());
        for entry in found {
            assert_eq!(entry.id, EntryId(next));
            assert!(entry.payload == payload(ledger, next), "entry {next}");
            next += 1;
        }
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_hundred_readers_of_the_same_backlog_cost_one_device_read() {
    let dir = tempfile::tempdir().unwrap();
    let (storage, ids) = flushed(dir.path(), 1).await;
    let before = storage.stats().read_bytes;
    join_all((0..100).map(|_| read_all(&storage, ids[0]))).await;
    let read = storage.stats().read_bytes - before;
    let data = ENTRIES * ENTRY_BYTES as u64;
    assert!((data..data * 5 / 4).contains(&read), "{read} bytes for {data}");
    assert!(storage.stats().read_cache_bytes <= 16 << 20);
    storage.shutdown().await;
}

#[tokio::test(flavor = "current_thread")]
async fn many_backlogs_are_read_beside_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let (storage, ids) = flushed(dir.path(), 8).await;
    let readers = ids.iter().cycle().take(24);
    join_all(readers.map(|id| read_all(&storage, *id))).await;
    assert!(storage.stats().read_cache_bytes <= 16 << 20);
    assert_eq!(storage.stats().reads_queued, 0);
    storage.shutdown().await;
}

/// Pages that end where a run or a piece ends leave next to nothing in memory that waits for the next page, and what two runs
/// share is read for both: with little cache for many readers most of it is read once all the same.
#[tokio::test(flavor = "current_thread")]
async fn many_backlogs_are_read_hardly_more_than_once_with_a_cache_that_is_small() {
    const LEDGERS: u64 = 24;
    const LARGE_ENTRIES: u64 = 23;
    let large = |ledger: LedgerId, entry: u64| {
        let mut bytes = vec![(ledger.0 * 31 + entry) as u8; 90_000 + (entry * 1009 % 20_000) as usize];
        bytes[..8].copy_from_slice(&entry.to_le_bytes());
        Bytes::from(bytes)
    };
    let dir = tempfile::tempdir().unwrap();
    let options = || Options {
        flush_interval: Duration::from_secs(3600),
        segment_bytes: 128 << 20,
        read_cache_bytes: 12 << 20,
        ..options()
    };
    let storage = Storage::open(dir.path(), options()).unwrap();
    let mut writers = Vec::new();
    for _ in 0..LEDGERS {
        writers.push(storage.create(CreateOptions::default()).await.unwrap());
    }
    let mut data = 0;
    for entry in 0..LARGE_ENTRIES {
        for writer in &writers {
            let payload = large(writer.id(), entry);
            data += payload.len() as u64;
            writer.append(payload).unwrap();
        }
        for writer in &writers {
            let is_there = |tail: &Tail| tail.durable > entry;
            writer.tail().wait_for(is_there).await.unwrap();
        }
    }
    for writer in &writers {
        writer.close().await.unwrap();
    }
    storage.shutdown().await;
    let storage = Storage::open(dir.path(), options()).unwrap();
    let before = storage.stats().read_bytes;
    let read_one = async |(ledger, bytes_max): (LedgerId, usize)| {
        let mut next = 0;
        while next < LARGE_ENTRIES {
            let found = storage.read(ledger, EntryId(next), 1000, bytes_max);
            let found = found.await.unwrap();
            assert!(!found.is_empty());
            for entry in found {
                assert!(entry.payload == large(ledger, next), "entry {next}");
                next += 1;
            }
        }
    };
    let all = || writers.iter().map(|writer| writer.id());
    join_all(all().map(|ledger| read_one((ledger, 1_300_000)))).await;
    let read = storage.stats().read_bytes - before;
    // How little more depends on who has his turn when.
    assert!((data..data / 4 * 5).contains(&read), "{read} bytes for {data}");
    // Pages of any size come to the same.
    let sizes = [1, 150_000, 333_333, 700_000, 1_050_000, 5_000_000];
    join_all(all().zip(sizes.into_iter().cycle()).map(read_one)).await;
    assert!(storage.stats().read_cache_bytes <= 12 << 20);
    storage.shutdown().await;
}

#[tokio::test(flavor = "current_thread")]
async fn a_reader_that_gives_up_disturbs_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let (storage, ids) = flushed(dir.path(), 1).await;
    for first in 0..50 {
        let read = storage.read(ids[0], EntryId(first * 40), 1000, usize::MAX);
        // Dropped after its first poll, while the device reads.
        let _ = tokio::time::timeout(Duration::ZERO, read).await;
    }
    read_all(&storage, ids[0]).await;
    storage.shutdown().await;
}

#[tokio::test(flavor = "current_thread")]
async fn what_follows_a_large_read_is_read_before_it_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let (storage, ids) = flushed(dir.path(), 1).await;
    let before = storage.stats().read_bytes;
    let found = storage.read(ids[0], EntryId(0), 1000, 600_000).await.unwrap();
    assert_eq!(found.len(), 200);
    for _ in 0..10_000 {
        if storage.stats().read_bytes - before > 3_000_000 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(storage.stats().read_bytes - before > 3_000_000);
    read_all(&storage, ids[0]).await;
    let read = storage.stats().read_bytes - before;
    let data = ENTRIES * ENTRY_BYTES as u64;
    assert!((data..data * 5 / 4).contains(&read), "{read} bytes for {data}");
    storage.shutdown().await;
}

#[tokio::test(flavor = "current_thread")]
async fn a_read_that_is_full_looks_at_nothing_more() {
    let dir = tempfile::tempdir().unwrap();
    let options = || Options {
        flush_interval: Duration::from_secs(3600),
        ..options()
    };
    let storage = Storage::open(dir.path(), options()).unwrap();
    let writer = storage.create(CreateOptions::default()).await.unwrap();
    let id = writer.id();
    for entry in 0..30 {
        writer.append(payload(id, entry)).unwrap();
    }
    writer.close().await.unwrap();
    storage.shutdown().await;
    let storage = Storage::open(dir.path(), options()).unwrap();
    // From now on the first extent is in memory, and all entries lie within it, one behind the other.
    assert_eq!(storage.read(id, EntryId(0), 1, 1).await.unwrap().len(), 1);
    for (first, entries_max, bytes_max, expected) in [(0, 100, 10_000, 3), (3, 4, 1 << 20, 4), (7, 1, 1, 1)] {
        let before = storage.stats();
        let found = storage.read(id, EntryId(first), entries_max, bytes_max);
        let found = found.await.unwrap();
        let after = storage.stats();
        assert_eq!(found.len(), expected);
        assert_eq!(after.read_cache_hits - before.read_cache_hits, 1);
        assert_eq!(after.read_bytes, before.read_bytes);
    }
    storage.shutdown().await;
}

#[tokio::test(flavor = "current_thread")]
async fn what_was_read_is_kept_for_others_once_it_shows_that_they_follow() {
    let dir = tempfile::tempdir().unwrap();
    let (storage, ids) = flushed(dir.path(), 1).await;
    let data = ENTRIES * ENTRY_BYTES as u64;
    let mut before = storage.stats().read_bytes;
    let mut costs = Vec::new();
    for _ in 0..4 {
        read_all(&storage, ids[0]).await;
        let now = storage.stats().read_bytes;
        costs.push(now - before);
        before = now;
    }
    assert!((data..data * 5 / 4).contains(&costs[0]), "{costs:?} for {data}");
    assert!(costs[3] < data / 4, "{costs:?} for {data}");
    storage.shutdown().await;
}

/// A checksum of the bytes as they came finds what happened to them in memory before they were written.
#[tokio::test(flavor = "current_thread")]
async fn a_checksum_that_came_with_an_entry_is_the_one_that_is_stored() {
    let dir = tempfile::tempdir().unwrap();
    let storage = Storage::open(dir.path(), options()).unwrap();
    let writer = storage.create(CreateOptions::default()).await.unwrap();
    let id = writer.id();
    for entry in 0..3 {
        let payload = payload(id, entry);
        let was = crc_fast::crc32_iscsi(&payload);
        let crc32c = Some(if entry == 1 { was ^ 1 } else { was });
        writer.append_entry(NewEntry { payload, crc32c }).unwrap();
    }
    writer.close().await.unwrap();
    while storage.stats().cache_bytes > 0 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    for entry in 0..3 {
        let found = storage.read(id, EntryId(entry), 1, usize::MAX).await;
        assert_eq!(found.is_ok(), entry != 1, "{entry}: {found:?}");
    }
    storage.shutdown().await;
}
