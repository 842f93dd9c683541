//! Result of a start on prepared directories: every case of the tables in `docs/formats`, full devices, and every
//! byte of a small store flipped in turn.

#![expect(clippy::unwrap_used, reason = "a test")]

mod cases;
mod directory;
mod flips;
mod full;
mod logs;
mod offline;
mod refusals;
mod rooms;
mod space;
mod spares;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use pharos_ledger::{CreateOptions, Durability, LedgerEngine, LedgerWriter, OpenError, ReadError, Sealed};
use pharos_runtime::fs::FaultFs;
use pharos_storage::manual::Manual;
use pharos_storage::{IoMode, Options, Preallocate};
use pharos_types::{EntryId, LedgerId};

pub(crate) fn dir() -> PathBuf {
    Path::new("/store").to_owned()
}

pub(crate) fn journal() -> PathBuf {
    dir().join("journal")
}

pub(crate) fn ledgers() -> PathBuf {
    dir().join("ledgers")
}

/// A journal segment; the first of a store has id 1.
pub(crate) fn segment(id: u32) -> PathBuf {
    journal().join(format!("{id:08x}.seg"))
}

pub(crate) fn log(id: u32) -> PathBuf {
    ledgers().join(format!("{id:08x}.log"))
}

pub(crate) fn index(id: u32) -> PathBuf {
    ledgers().join(format!("{id:08x}.idx"))
}

pub(crate) fn checkpoint() -> PathBuf {
    ledgers().join("CHECKPOINT")
}

/// Blocks of 512 bytes, segments of a few blocks.
pub(crate) fn options() -> Options {
    Options {
        block_bytes: 512,
        io: IoMode::Buffered,
        segment_bytes_first: 16 << 10,
        segment_bytes: 32 << 10,
        entry_bytes_max: 8 << 10,
        preallocate: Preallocate::Reserve,
        // What the reserves are for is tested where they are asked for (`full`).
        journal_reserve_bytes: 0,
        ledger_reserve_bytes: 0,
        compact_bytes_per_s: u64::MAX,
        write_cache_bytes: 1 << 20,
        entry_log_bytes: 64 << 10,
        read_cache_bytes: 0,
        ..Options::default()
    }
}

/// A store without threads on a file system that the test can hurt.
pub(crate) struct Store {
    pub(crate) fs: FaultFs,
    pub(crate) manual: Manual,
}

impl Store {
    pub(crate) fn new() -> Self {
        Self::open(FaultFs::new(1))
    }

    pub(crate) fn open(fs: FaultFs) -> Self {
        Self::open_with(fs, options())
    }

    pub(crate) fn open_with(fs: FaultFs, options: Options) -> Self {
        let manual = Manual::open(fs.mount(), &dir(), options).unwrap();
        Self { fs, manual }
    }

    /// The process dies, everything it wrote is still there, and a new one starts.
    pub(crate) fn restart(self) -> Self {
        let fs = self.kill();
        Self::open(fs)
    }

    /// Everything in memory goes to the logs.
    pub(crate) fn flush(&mut self) {
        self.manual.pass(61_000_000_000);
        self.manual.settle();
        assert_eq!(self.manual.storage.stats().cache_bytes, 0);
    }

    pub(crate) fn kill(self) -> FaultFs {
        self.fs.restart();
        self.fs
    }

    pub(crate) fn stop(mut self) -> FaultFs {
        let storage = Arc::clone(&self.manual.storage);
        self.manual.run(storage.shutdown());
        self.kill()
    }

    pub(crate) fn create(&mut self) -> Arc<dyn LedgerWriter> {
        self.create_with(Durability::Sync)
    }

    pub(crate) fn create_with(&mut self, durability: Durability) -> Arc<dyn LedgerWriter> {
        let storage = Arc::clone(&self.manual.storage);
        self.manual
            .run(storage.create(CreateOptions {
                durability,
                ..CreateOptions::default()
            }))
            .unwrap()
    }

    /// Appends one entry and writes it as a group of its own.
    pub(crate) fn append(&mut self, writer: &dyn LedgerWriter, bytes: usize) -> EntryId {
        let tail = writer.tail();
        let entry = writer
            .append(payload(writer.id(), tail.borrow().durable, bytes))
            .unwrap();
        self.manual.settle();
        assert!(tail.borrow().durable > entry.0);
        entry
    }

    /// A ledger with entries of 900 bytes in several segments of the journal; how many there are.
    pub(crate) fn fill_segments(&mut self, segments: u64) -> (LedgerId, u64) {
        let writer = self.create();
        while self.manual.storage.stats().segments < segments {
            self.append(&*writer, 900);
        }
        let count = writer.tail().borrow().durable;
        (writer.id(), count)
    }

    pub(crate) fn recover(&mut self, id: LedgerId) -> Result<Sealed, OpenError> {
        let storage = Arc::clone(&self.manual.storage);
        self.manual.run(storage.recover(id))
    }

    pub(crate) fn delete(&mut self, id: LedgerId) {
        let storage = Arc::clone(&self.manual.storage);
        self.manual.run(storage.delete(id)).unwrap();
    }

    pub(crate) fn list(&mut self) -> Vec<LedgerId> {
        let storage = Arc::clone(&self.manual.storage);
        self.manual.run(storage.list()).unwrap()
    }

    pub(crate) fn read(&mut self, id: LedgerId, entry: u64) -> Result<Option<Bytes>, ReadError> {
        let storage = Arc::clone(&self.manual.storage);
        let found = self.manual.run(storage.read(id, EntryId(entry), 1, usize::MAX))?;
        Ok(found.into_iter().next().map(|entry| entry.payload))
    }

    pub(crate) fn damages(&self) -> u64 {
        self.manual.storage.stats().damages
    }
}

/// The bytes that entry `entry` of a ledger has in these tests.
pub(crate) fn payload(ledger: LedgerId, entry: u64, bytes: usize) -> Bytes {
    let seed = ledger.0.wrapping_mul(1_000_003).wrapping_add(entry * 7919 + 1);
    (0..bytes as u64)
        .map(|i| (seed.wrapping_mul(i + 3) >> 5) as u8)
        .collect::<Vec<_>>()
        .into()
}
