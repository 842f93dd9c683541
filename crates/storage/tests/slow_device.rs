//! A ledger directory on a device that stands still holds up its own entries only.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use bytes::Bytes;

use pharos_ledger::{CreateOptions, LedgerEngine, LedgerWriter};
use pharos_runtime::fs::{Fs, FsFile, FsLock, OpenHow, RealFs};
use pharos_storage::{Options, Storage};
use pharos_types::EntryId;

/// Gate for the device's writes: it accepts them while open.
#[derive(Debug, Default)]
struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
    }

    fn pass(&self) {
        let open = self.open.lock().unwrap();
        drop(self.opened.wait_while(open, |open| !*open).unwrap());
    }
}

/// The real file system, but entry logs in directories called `slow` are written only while the gate is open.
#[derive(Debug)]
struct GatedFs(Arc<Gate>);

#[derive(Debug)]
struct GatedFile(Arc<dyn FsFile>, Arc<Gate>);

impl Fs for GatedFs {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        RealFs.create_dir_all(dir)
    }

    fn open(&self, path: &Path, how: OpenHow) -> io::Result<Arc<dyn FsFile>> {
        let file = RealFs.open(path, how)?;
        let is_gated = path.extension().is_some_and(|end| end == "log")
            && path.parent().is_some_and(|dir| dir.ends_with("slow"));
        Ok(if is_gated {
            Arc::new(GatedFile(file, Arc::clone(&self.0)))
        } else {
            file
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealFs.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        RealFs.remove(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        RealFs.list(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        RealFs.sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn FsLock>>> {
        RealFs.lock(path)
    }
}

impl FsFile for GatedFile {
    fn read_at(&self, buf: &mut [u8], byte_offset: u64) -> io::Result<usize> {
        self.0.read_at(buf, byte_offset)
    }

    fn write_all_at(&self, buf: &[u8], byte_offset: u64) -> io::Result<()> {
        self.1.pass();
        self.0.write_all_at(buf, byte_offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.0.set_len(bytes)
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.0.allocate(bytes)
    }

    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn is_direct(&self) -> bool {
        self.0.is_direct()
    }
}

const ENTRY_BYTES: usize = 4096;
const LEDGERS: usize = 16;
/// More than three quarters of a half of the write cache, less than all of it.
const ROUNDS: u64 = 7;
/// Less than three quarters of a half.
const FEW: u64 = 4;

fn payload(ledger: usize, entry: u64) -> Bytes {
    vec![(ledger as u64 * 31 + entry) as u8; ENTRY_BYTES].into()
}

async fn check(storage: &Storage, writers: &[Arc<dyn LedgerWriter>]) {
    for (number, writer) in writers.iter().enumerate() {
        for entry in 0..ROUNDS {
            let found = storage.read(writer.id(), EntryId(entry), 1, 1 << 20).await;
            assert_eq!(found.unwrap()[0].payload, payload(number, entry));
        }
    }
}

#[tokio::test]
async fn a_device_that_stands_still_keeps_only_its_own_ledgers_in_memory() {
    let base = tempfile::tempdir().unwrap();
    let gate = Arc::new(Gate::default());
    let options = Options {
        ledger_dirs: ["slow", "quick"].map(|name| base.path().join(name)).into(),
        segment_bytes_first: 1 << 20,
        segment_bytes: 32 << 20,
        write_cache_bytes: 1 << 20,
        read_cache_bytes: 0,
        flush_interval: Duration::from_secs(3600),
        ..Options::default()
    };
    let fs = Arc::new(GatedFs(Arc::clone(&gate)));
    let storage = Storage::open_with(fs, base.path(), options.clone()).unwrap();
    let mut writers = Vec::new();
    for _ in 0..LEDGERS {
        writers.push(storage.create(CreateOptions::default()).await.unwrap());
    }
    // Both directories have entries in memory before there are enough for a flush to begin: what a group is about to bring
    // counts already.
    for rounds in [0..FEW, FEW..ROUNDS] {
        for entry in rounds.clone() {
            for (number, writer) in writers.iter().enumerate() {
                writer.append(payload(number, entry)).unwrap();
            }
        }
        for writer in &writers {
            let mut tail = writer.tail();
            tail.wait_for(|tail| tail.durable == rounds.end).await.unwrap();
        }
    }
    // What `quick` has is flushed, read from its log, and gone from memory.
    while storage.stats().flushed_bytes == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let stats = storage.stats();
    assert_eq!(
        stats.flushes, 0,
        "the flush as a whole waits for the other device"
    );
    assert!(stats.cache_bytes > 0, "its entries stay in memory");
    let checkpoints = stats.checkpoints;
    check(&storage, &writers).await;
    assert!(storage.stats().reads > 0, "some were read from a log");
    assert_eq!(storage.stats().checkpoints, checkpoints);
    gate.open();
    while storage.stats().checkpoints == checkpoints {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    check(&storage, &writers).await;
    storage.shutdown().await;
    let storage = Storage::open(base.path(), options).unwrap();
    check(&storage, &writers).await;
    storage.shutdown().await;
}
