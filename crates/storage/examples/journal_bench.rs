//! Benchmark of the journal on this machine's disk.
//!
//! ```text
//! cargo run --release -p pharos-storage --example journal_bench -- [--dir DIR] [--seconds N] [--buffered] [--reserve] [--paths]
//! ```
//! For several entry sizes: the latency of one append and its sync with one in flight, and the throughput with many.
//! `--paths` measures instead how a group best reaches the device: through the page cache and fdatasync, direct and
//! fdatasync, or direct with every write synced by itself; it is why the engine does the second. Then how fast the
//! entries are read back, how long a start takes, and the memory of an idle store.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a tool for people")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use pharos_ledger::{CreateOptions, LedgerEngine, LedgerWriter};
use pharos_runtime::fs::AlignedBuf;
use pharos_runtime::{Histogram, clock};
use pharos_storage::{IoMode, Options, Preallocate, Storage};
use pharos_types::{EntryId, LedgerId};

struct Args {
    dir: PathBuf,
    seconds: u64,
    options: Options,
    paths: bool,
}

fn args() -> Args {
    let mut args = Args {
        dir: PathBuf::from("."),
        seconds: 2,
        options: Options::default(),
        paths: false,
    };
    let mut given = std::env::args().skip(1);
    while let Some(arg) = given.next() {
        match arg.as_str() {
            "--dir" => args.dir = given.next().expect("--dir takes a directory").into(),
            "--seconds" => args.seconds = given.next().expect("--seconds takes a number").parse().unwrap(),
            "--buffered" => args.options.io = IoMode::Buffered,
            "--paths" => args.paths = true,
            "--reserve" => args.options.preallocate = Preallocate::Reserve,
            "--linger-us" => {
                let micros = given.next().expect("--linger-us takes a number").parse().unwrap();
                args.options.linger = Duration::from_micros(micros);
            }
            other => panic!("unknown argument {other}"),
        }
    }
    args
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let args = args();
    let dir = tempfile::Builder::new()
        .prefix("journal-bench-")
        .tempdir_in(&args.dir)
        .unwrap();
    if args.paths {
        write_paths(dir.path(), args.seconds);
        return;
    }
    let start = clock::now();
    let storage = Storage::open(dir.path(), args.options.clone()).unwrap();
    println!("{:?}, {:?}", args.options.io, args.options.preallocate);
    println!("start of an empty store: {:.1} ms", millis_since(start));
    println!("idle memory: {:.1} MB", resident_mb());
    let mut ledgers = Vec::new();
    for kib in [1, 4, 30, 64, 256, 1024] {
        let payload = Bytes::from(vec![0x5a; kib << 10]);
        let writer = storage.create(CreateOptions::default()).await.unwrap();
        latency(&*writer, &payload, args.seconds).await;
        throughput(&storage, &*writer, &payload, args.seconds).await;
        writer.close().await.unwrap();
        ledgers.push(writer.id());
    }
    read_back(&storage, &ledgers).await;
    let stats = storage.stats();
    println!("{stats:?}");
    println!(
        "memory with {} entries indexed: {:.1} MB",
        stats.entries,
        resident_mb()
    );
    storage.shutdown().await;
    drop(storage);
    restart(dir.path(), &args.options).await;
}

/// Measures the latency of an append with its sync, with one in flight.
async fn latency(writer: &dyn LedgerWriter, payload: &Bytes, seconds: u64) {
    let mut histogram = Histogram::default();
    let mut tail = writer.tail();
    let start = clock::now();
    while clock::now().since(start) < seconds * 1_000_000_000 {
        let begin = clock::now();
        let entry = writer.append(payload.clone()).unwrap();
        tail.wait_for(|tail| tail.durable > entry.0).await.unwrap();
        histogram.record(clock::now().since(begin));
    }
    println!(
        "{:>5} KiB one in flight: p50 {:>6.0} us  p99 {:>6.0} us  max {:>7.0} us  ({} appends)",
        payload.len() >> 10,
        histogram.quantile_seconds(0.5) * 1e6,
        histogram.quantile_seconds(0.99) * 1e6,
        histogram.max_seconds() * 1e6,
        histogram.count()
    );
}

/// Up to 16 MiB in flight.
async fn throughput(storage: &Arc<Storage>, writer: &dyn LedgerWriter, payload: &Bytes, seconds: u64) {
    let window = ((16 << 20) / payload.len()) as u64;
    let mut tail = writer.tail();
    let before = storage.stats();
    let start = clock::now();
    let cpu = cpu_seconds();
    let mut last = 0;
    while clock::now().since(start) < seconds * 1_000_000_000 {
        let durable = tail.borrow_and_update().durable;
        while last < durable + window {
            last = writer.append(payload.clone()).unwrap().0 + 1;
        }
        tail.changed().await.unwrap();
    }
    tail.wait_for(|tail| tail.durable >= last).await.unwrap();
    let elapsed = clock::now().since(start) as f64 / 1e9;
    let after = storage.stats();
    let bytes = (after.payload_bytes - before.payload_bytes) as f64;
    println!(
        "{:>5} KiB many in flight: {:>6.0} MB/s  {:>8.0} entries/s  {:>6.0} groups/s  {:.2} CPU s/GB",
        payload.len() >> 10,
        bytes / elapsed / 1e6,
        (after.entries - before.entries) as f64 / elapsed,
        (after.groups - before.groups) as f64 / elapsed,
        (cpu_seconds() - cpu) / (bytes / 1e9)
    );
}

async fn read_back(storage: &Arc<Storage>, ledgers: &[LedgerId]) {
    let start = clock::now();
    let mut bytes = 0;
    for ledger in ledgers {
        let count = storage.recover(*ledger).await.unwrap().entry_count;
        let mut next = 0;
        while next < count && clock::now().since(start) < 10_000_000_000 {
            let found = storage.read(*ledger, EntryId(next), 1000, 1 << 20).await.unwrap();
            next += found.len() as u64;
            bytes += found.iter().map(|entry| entry.payload.len()).sum::<usize>();
        }
    }
    let elapsed = clock::now().since(start) as f64 / 1e9;
    println!(
        "read back: {:.0} MB/s ({} MB)",
        bytes as f64 / elapsed / 1e6,
        bytes / 1_000_000
    );
}

async fn restart(dir: &Path, options: &Options) {
    let start = clock::now();
    let storage = Storage::open(dir, options.clone()).unwrap();
    println!("start of this store: {:.1} ms", millis_since(start));
    let ledgers = storage.list().await.unwrap();
    for ledger in ledgers {
        storage.delete(ledger).await.unwrap();
    }
    storage.shutdown().await;
}

fn millis_since(start: pharos_runtime::Nanos) -> f64 {
    clock::now().since(start) as f64 / 1e6
}

fn resident_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|l| l.trim().trim_end_matches(" kB").parse::<f64>().ok());
    kib.unwrap_or(0.0) / 1024.0
}

/// CPU time of this process so far.
fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Measures the ways to write the bytes of a group to the device, each with the call that makes them durable.
fn write_paths(dir: &Path, seconds: u64) {
    use rustix::fs::OFlags;
    let ways = [
        ("page cache, fdatasync", OFlags::empty(), true),
        ("direct, fdatasync", OFlags::DIRECT, true),
        ("direct, each write synced", OFlags::DIRECT | OFlags::DSYNC, false),
    ];
    for kib in [4, 64, 256, 1024] {
        for (name, flags, sync) in ways {
            let path = dir.join("write-path");
            write_path(&path, kib << 10, flags, sync, seconds, name);
            std::fs::remove_file(path).unwrap();
        }
    }
}

/// Writes groups of one size one after the other into a file that was filled with zeros before.
fn write_path(path: &Path, bytes: usize, flags: rustix::fs::OFlags, sync: bool, seconds: u64, name: &str) {
    use std::os::unix::fs::{FileExt, OpenOptionsExt};
    const FILE_BYTES: u64 = 256 << 20;
    let zeros = vec![0; 1 << 20];
    let filled = std::fs::File::create(path).unwrap();
    for at in (0..FILE_BYTES).step_by(1 << 20) {
        filled.write_all_at(&zeros, at).unwrap();
    }
    filled.sync_all().unwrap();
    let file = std::fs::OpenOptions::new()
        .write(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
        .unwrap();
    let mut group = AlignedBuf::reusable(bytes);
    group.bytes_mut().fill(0x5a);
    let mut histogram = Histogram::default();
    let (start, cpu) = (clock::now(), cpu_seconds());
    let mut at = 0;
    while clock::now().since(start) < seconds * 1_000_000_000 {
        let begin = clock::now();
        file.write_all_at(group.bytes(), at).unwrap();
        if sync {
            file.sync_data().unwrap();
        }
        histogram.record(clock::now().since(begin));
        at = (at + bytes as u64) % FILE_BYTES;
    }
    let elapsed = clock::now().since(start) as f64 / 1e9;
    let written = (histogram.count() * bytes as u64) as f64;
    println!(
        "{:>5} KiB {name:<26}: p50 {:>6.0} us  p99 {:>6.0} us  {:>6.0} MB/s  {:.2} CPU s/GB",
        bytes >> 10,
        histogram.quantile_seconds(0.5) * 1e6,
        histogram.quantile_seconds(0.99) * 1e6,
        written / elapsed / 1e6,
        (cpu_seconds() - cpu) / (written / 1e9)
    );
}
