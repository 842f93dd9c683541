//! Memory of the store some time after the last append.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use pharos_ledger::{CreateOptions, LedgerEngine};
use pharos_runtime::fs::FaultFs;
use pharos_storage::manual::Manual;
use pharos_storage::{IoMode, Options};

const ENTRY_BYTES: usize = 64 << 10;
const SECOND: u64 = 1_000_000_000;

/// Appends so many entries, one a second; the bytes in the write cache after each of the next `seconds`.
fn bytes_after(entries: usize, seconds: usize) -> Vec<u64> {
    let options = Options {
        io: IoMode::Buffered,
        entry_bytes_max: ENTRY_BYTES,
        write_cache_bytes: 64 << 20,
        flush_interval: Duration::from_secs(3600),
        ..Options::default()
    };
    let mut manual = Manual::open(FaultFs::new(1).mount(), Path::new("/store"), options).unwrap();
    let storage = Arc::clone(&manual.storage);
    let writer = manual.run(storage.create(CreateOptions::default())).unwrap();
    let held = |manual: &mut Manual| {
        manual.pass(SECOND);
        manual.settle();
        storage.stats().cache_bytes
    };
    for _ in 0..entries {
        writer.append(Bytes::from(vec![7; ENTRY_BYTES])).unwrap();
        manual.settle();
        assert!(held(&mut manual) > 0, "flushed while it was in use");
    }
    (0..seconds).map(|_| held(&mut manual)).collect()
}

#[test]
fn the_write_cache_gives_much_memory_back_when_it_is_quiet() {
    let held = bytes_after(100, 20);
    assert!(held[0] >= 100 * ENTRY_BYTES as u64);
    assert_eq!(held.last(), Some(&0), "{held:?}");
}

#[test]
fn for_a_little_memory_it_waits_for_the_flush_interval() {
    assert!(bytes_after(3, 120).iter().all(|held| *held > 0));
}
