//! Limits of the devices, measured right before a case in the directories that its broker will use.
//!
//! Writes are like those of a journal: sequential, into a file whose blocks exist, past the page cache, each followed
//! by a sync. Reads are 1 MiB, past the page cache, one at a time. The files are removed afterwards.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use pharos_runtime::fs::{AlignedBuf, Fs as _, FsFile, OpenHow, RealFs};

use crate::clock;
use crate::histogram::Latencies;
use crate::proto::payload::pattern;

use super::load::Load;

/// Bytes of one read, and of one write while the file is made.
const BLOCK: usize = 1 << 20;
/// Largest group that is tried.
const GROUP_MAX: usize = 16 << 20;
/// Bytes of one small write.
const SMALL: usize = 4096;
/// Between small writes to a device that has little to do.
const REST: Duration = Duration::from_millis(10);

/// Measured limits.
#[derive(Clone, Debug, Default)]
pub(super) struct Limits {
    /// Synced sequential writes, MB a second, all directories at once.
    pub(super) sync_mb_s: f64,
    /// Duration of one such write and sync.
    pub(super) sync: Latencies,
    /// Duration of a write of 4 KiB and its sync, in the first directory, without other load.
    pub(super) small: Latencies,
    /// The same after 10 ms without use of the file, the device and the core. A file system may have more to write
    /// then: the file's change time, which it keeps to a few milliseconds.
    pub(super) rested: Latencies,
    /// Sequential reads, MB a second, first directory.
    pub(super) read_mb_s: f64,
    /// True if the page cache was bypassed; some file systems do not support that.
    pub(super) direct: bool,
}

/// A file that goes when it is dropped.
struct ProbeFile {
    file: Arc<dyn FsFile>,
    path: PathBuf,
    bytes: u64,
}

impl ProbeFile {
    /// Makes a file of about `bytes`, written once from end to end.
    fn make(dir: &Path, bytes: u64) -> anyhow::Result<Self> {
        let path = dir.join("pharos-bench-probe");
        let file = RealFs
            .open(&path, OpenHow::CREATE.direct(true))
            .with_context(|| format!("cannot make {}", path.display()))?;
        let blocks = bytes.div_ceil(BLOCK as u64);
        let probe = Self {
            file,
            path,
            bytes: blocks * BLOCK as u64,
        };
        let mut buf = filled(BLOCK);
        for block in 0..blocks {
            // No two blocks alike: a device that saves equal ones once would look too fast.
            if let Some(head) = buf.bytes_mut().first_chunk_mut::<8>() {
                *head = block.to_be_bytes();
            }
            probe
                .file
                .write_all_at(buf.bytes(), block * BLOCK as u64)
                .with_context(|| format!("cannot fill {}", probe.path.display()))?;
        }
        probe.file.sync_data()?;
        Ok(probe)
    }

    /// Writes and syncs for `length`; bytes a second and the time of each.
    fn write_synced(&self, write: usize, length: Duration) -> anyhow::Result<(f64, Latencies)> {
        let buf = filled(write);
        let mut latencies = Latencies::default();
        let places = (self.bytes / write as u64).max(1);
        let from_ns = clock::monotonic_ns();
        let end_ns = from_ns + length.as_nanos() as u64;
        let (mut at, mut now) = (0u64, from_ns);
        while now < end_ns {
            self.file.write_all_at(buf.bytes(), at % places * write as u64)?;
            self.file.sync_data()?;
            at += 1;
            let done = clock::monotonic_ns();
            latencies.record(done - now, 1);
            now = done;
        }
        Ok((rate(at * write as u64, now - from_ns), latencies))
    }

    /// Measures the same with `rest` before each write; only the writes and syncs are timed.
    fn write_rested(&self, write: usize, rest: Duration, length: Duration) -> anyhow::Result<Latencies> {
        let buf = filled(write);
        let mut latencies = Latencies::default();
        let places = (self.bytes / write as u64).max(1);
        let end_ns = clock::monotonic_ns() + length.as_nanos() as u64;
        let mut at = 0;
        while clock::monotonic_ns() < end_ns {
            std::thread::sleep(rest);
            let from_ns = clock::monotonic_ns();
            self.file.write_all_at(buf.bytes(), at % places * write as u64)?;
            self.file.sync_data()?;
            latencies.record(clock::monotonic_ns() - from_ns, 1);
            at += 1;
        }
        Ok(latencies)
    }

    /// Reads from the beginning for `length`, at most once to the end; bytes a second.
    fn read(&self, length: Duration) -> anyhow::Result<f64> {
        let mut buf = AlignedBuf::reusable(BLOCK);
        let from_ns = clock::monotonic_ns();
        let end_ns = from_ns + length.as_nanos() as u64;
        let mut at = 0;
        while at < self.bytes && clock::monotonic_ns() < end_ns {
            at += self.file.read_at(buf.bytes_mut(), at)? as u64;
        }
        Ok(rate(at, clock::monotonic_ns() - from_ns))
    }
}

impl Drop for ProbeFile {
    fn drop(&mut self) {
        // It lies in a directory that is removed as a whole.
        let _ = RealFs.remove(&self.path);
    }
}

/// Measures the devices behind `journals` (where the broker writes first) and `data` (where it reads).
pub(super) fn measure(load: &Load, data: &Path, journals: &[PathBuf]) -> anyhow::Result<Limits> {
    let (length, bytes) = (load.probe.0, load.probe_size.0);
    let write = load.probe_write.0 as usize;
    let files = make_all(journals, bytes)?;
    let mut limits = Limits::default();
    if let Some(first) = files.first() {
        limits.direct = first.file.is_direct();
        (_, limits.small) = first.write_synced(SMALL, length / 2)?;
        limits.rested = first.write_rested(SMALL, REST, length)?;
    }
    (limits.sync_mb_s, limits.sync) = together(&files, write, length)?;
    drop(files);
    let file = ProbeFile::make(data, bytes)?;
    limits.read_mb_s = file.read(length)? / 1e6;
    Ok(limits)
}

/// Returns the throughput of synced writes of about `bytes` on the devices of `journals`, in MB a second. The size is
/// rounded up to whole blocks.
pub(super) fn groups(load: &Load, journals: &[PathBuf], bytes: f64) -> anyhow::Result<f64> {
    let write = (bytes as usize).next_multiple_of(SMALL).clamp(SMALL, GROUP_MAX);
    let size = load.probe_size.0.max(write as u64);
    Ok(together(&make_all(journals, size)?, write, load.probe.0)?.0)
}

fn make_all(dirs: &[PathBuf], bytes: u64) -> anyhow::Result<Vec<ProbeFile>> {
    let each = bytes / (dirs.len() as u64).max(1);
    dirs.iter().map(|dir| ProbeFile::make(dir, each)).collect()
}

/// Writes to all files at once; the sum of their MB a second, and the time of each write.
fn together(files: &[ProbeFile], write: usize, length: Duration) -> anyhow::Result<(f64, Latencies)> {
    let results: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = files
            .iter()
            .map(|file| scope.spawn(move || file.write_synced(write, length)))
            .collect();
        threads
            .into_iter()
            .map(std::thread::ScopedJoinHandle::join)
            .collect()
    });
    let (mut mb_s, mut all) = (0.0, Latencies::default());
    for result in results {
        let (rate, latencies) = result.map_err(|_| anyhow::anyhow!("a probe thread ended badly"))??;
        mb_s += rate / 1e6;
        all.merge(&latencies);
    }
    Ok((mb_s, all))
}

fn filled(bytes: usize) -> AlignedBuf {
    let mut buf = AlignedBuf::reusable(bytes);
    buf.bytes_mut().copy_from_slice(&pattern(bytes));
    buf
}

fn rate(bytes: u64, ns: u64) -> f64 {
    bytes as f64 / (ns.max(1) as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::values::{Size, Span};

    #[test]
    fn limits_are_found_and_nothing_is_left() {
        let dir = tempfile::tempdir().expect("a directory");
        let load = Load {
            probe: Span(Duration::from_millis(20)),
            probe_size: Size(4 << 20),
            ..Load::default()
        };
        let other = dir.path().join("other");
        std::fs::create_dir(&other).expect("made");
        let limits = measure(&load, dir.path(), &[dir.path().to_owned(), other.clone()]).expect("measures");
        assert!(limits.sync_mb_s > 0.0 && limits.read_mb_s > 0.0);
        assert!(limits.small.count() > 0 && limits.sync.count() > 0 && limits.rested.count() > 0);
        let left = |dir: &Path| std::fs::read_dir(dir).expect("reads").count();
        assert_eq!((left(dir.path()), left(&other)), (1, 0));
    }
}
