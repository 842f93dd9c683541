//! The laws of the ledger contract on this engine: on a real directory, and on a file system that loses what was not
//! synced.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;

use pharos_ledger::conformance::{self, Subject};
use pharos_ledger::{BoxFuture, LedgerEngine};
use pharos_runtime::fs::FaultFs;
use pharos_storage::{IoMode, Options, Preallocate, Storage};

/// Crashes by copying the directory as it is on disk, without the running engine's help.
struct OnDisk {
    storage: Arc<Storage>,
    options: Options,
    dirs: Vec<tempfile::TempDir>,
}

impl OnDisk {
    fn new(options: Options) -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self {
            storage: Storage::open(dir.path(), options.clone()).unwrap(),
            options,
            dirs: vec![dir],
        }
    }
}

impl Subject for OnDisk {
    fn engine(&self) -> Arc<dyn LedgerEngine> {
        Arc::clone(&self.storage) as Arc<dyn LedgerEngine>
    }

    fn crash(&mut self) -> BoxFuture<'_, ()> {
        let copy = tempfile::tempdir().unwrap();
        copy_files(self.dirs.last().unwrap().path(), copy.path());
        self.storage = Storage::open(copy.path(), self.options.clone()).unwrap();
        self.dirs.push(copy);
        async {}.boxed()
    }
}

/// The journals first: what they lack is then in the logs. And the checkpoint before the logs, which only grow.
fn copy_files(from: &Path, to: &Path) {
    for (dir, first) in [("journal", "VERSION"), ("ledgers", "CHECKPOINT")] {
        let (from, to) = (from.join(dir), to.join(dir));
        std::fs::create_dir_all(&to).unwrap();
        let mut names: Vec<_> = std::fs::read_dir(&from)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort_by_key(|name| name != first);
        for name in names {
            // Files may be renamed or removed in the meantime; those are not part of what is durable.
            let copied = std::fs::copy(from.join(&name), to.join(&name));
            assert!(
                copied.is_ok() || !from.join(&name).exists(),
                "copy {name:?}: {copied:?}"
            );
        }
    }
}

struct OnFaults {
    fs: FaultFs,
    storage: Arc<Storage>,
    options: Options,
}

impl OnFaults {
    fn new(seed: u64, options: Options) -> Self {
        let fs = FaultFs::new(seed);
        Self {
            storage: Storage::open_with(fs.mount(), &dir(), options.clone()).unwrap(),
            fs,
            options,
        }
    }
}

fn dir() -> PathBuf {
    PathBuf::from("/store")
}

impl Subject for OnFaults {
    fn engine(&self) -> Arc<dyn LedgerEngine> {
        Arc::clone(&self.storage) as Arc<dyn LedgerEngine>
    }

    fn crash(&mut self) -> BoxFuture<'_, ()> {
        self.fs.crash();
        self.storage = Storage::open_with(self.fs.mount(), &dir(), self.options.clone()).unwrap();
        async {}.boxed()
    }

    fn takes_large_entries(&self) -> bool {
        false
    }

    fn poison(&mut self) -> bool {
        self.fs.fail_sync_in(0);
        true
    }
}

/// Small files, so that the suite also rolls, but large enough for the largest entry.
fn options() -> Options {
    Options {
        segment_bytes_first: 1 << 20,
        segment_bytes: 20 << 20,
        preallocate: Preallocate::Reserve,
        sync_interval: Duration::from_millis(20),
        idle_mark_after: Duration::from_millis(5),
        ..Options::default()
    }
}

#[test]
fn the_laws_hold_on_a_directory_with_direct_io() {
    conformance::run_all(|| OnDisk::new(options()));
}

#[test]
fn the_laws_hold_on_a_directory_through_the_page_cache() {
    let options = Options {
        io: IoMode::Buffered,
        preallocate: Preallocate::ZeroFill,
        ..options()
    };
    conformance::run_all(|| OnDisk::new(options.clone()));
}

#[test]
fn the_laws_hold_when_almost_nothing_fits_in_memory() {
    let options = Options {
        write_cache_bytes: 4 << 10,
        read_cache_bytes: 0,
        entry_log_bytes: 256 << 10,
        ..options()
    };
    conformance::run_all(|| OnDisk::new(options.clone()));
}

/// `more` further journals and ledger directories.
fn several(options: &Options, more: usize) -> Options {
    let dirs = |name: &str| {
        let numbered = (0..=more).map(|n| dir().join(format!("{name}{n}")));
        numbered.collect()
    };
    Options {
        journal_dirs: dirs("journal"),
        ledger_dirs: dirs("ledgers"),
        ..options.clone()
    }
}

#[test]
fn the_laws_hold_when_crashes_lose_what_was_not_synced() {
    let small = Options {
        segment_bytes_first: 16 << 10,
        segment_bytes: 64 << 10,
        entry_bytes_max: 16 << 10,
        block_bytes: 512,
        write_cache_bytes: 64 << 10,
        entry_log_bytes: 64 << 10,
        ..options()
    };
    for seed in 0..20 {
        let tiny = Options {
            write_cache_bytes: if seed % 2 == 0 { 2 << 10 } else { 64 << 10 },
            read_cache_bytes: if seed % 3 == 0 { 0 } else { 64 << 10 },
            ..several(&small, seed as usize % 3)
        };
        conformance::run_all(|| OnFaults::new(seed, tiny.clone()));
    }
}
