//! Time that a journal waits for more entries before it writes the next group.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pharos_ledger::{CreateOptions, LedgerEngine, LedgerWriter};
use pharos_runtime::fs::FaultFs;
use pharos_storage::manual::Manual;
use pharos_storage::{IoMode, Options};

const LINGER: Duration = Duration::from_micros(600);

fn store() -> (Manual, [Arc<dyn LedgerWriter>; 2]) {
    let options = Options {
        block_bytes: 512,
        io: IoMode::Buffered,
        segment_bytes_first: 16 << 10,
        segment_bytes: 32 << 10,
        entry_bytes_max: 8 << 10,
        write_cache_bytes: 1 << 20,
        linger: LINGER,
        ..Options::default()
    };
    let mut manual = Manual::open(FaultFs::new(1).mount(), Path::new("/store"), options).unwrap();
    let storage = Arc::clone(&manual.storage);
    let writers = [(); 2].map(|()| manual.run(storage.create(CreateOptions::default())).unwrap());
    (manual, writers)
}

/// Appends an entry to each of these in one group; how long the next one waits then.
fn pause_after(manual: &mut Manual, writers: &[&Arc<dyn LedgerWriter>]) -> Duration {
    for writer in writers {
        writer.append("news".into()).unwrap();
    }
    manual.settle();
    assert!(writers.iter().all(|writer| writer.tail().borrow().durable > 0));
    manual.pause(0)
}

#[test]
fn the_longer_the_more_are_woken_and_not_at_all_alone() {
    let (mut manual, [news, sport]) = store();
    assert_eq!(pause_after(&mut manual, &[&news]), Duration::ZERO);
    assert_eq!(pause_after(&mut manual, &[&news, &news, &news]), LINGER / 2);
    assert_eq!(pause_after(&mut manual, &[&news, &sport]), LINGER);
    manual.pass(400_000);
    assert_eq!(manual.pause(0), LINGER - Duration::from_micros(400));
    manual.pass(400_000);
    assert_eq!(manual.pause(0), Duration::ZERO);
    assert_eq!(pause_after(&mut manual, &[&sport]), Duration::ZERO);
}
