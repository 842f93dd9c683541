//! Writing entry logs: records into a buffer, the buffer to the device in large aligned writes, then the index.
//!
//! ```text
//!  push … push ─► finish:  data synced ─► index synced ─► names synced ─► the log's durable end moves
//!              └► abort:   nothing of it counts; the log gets nothing more
//! ```
//! Always true: nothing before a log's durable end is ever written again.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use pharos_runtime::fs::{AlignedBuf, FsFile, OpenHow};
use pharos_storage_format::file::LogFile;
use pharos_storage_format::index_batch::{IndexBatch, IndexRun, Point};
use pharos_storage_format::log_header::{LOG_DATA_AT, LogHeader};
use pharos_storage_format::names::{INDEX, LOG, file_name};
use pharos_storage_format::record::{Kind, RECORD_HEADER_BYTES, RecordHeader, record_bytes};
use pharos_storage_format::round_up;

use crate::logs::Log;
use crate::shared::Shared;

/// The most that one write hands to the device: half a millisecond of it, which is what the journals' small writes wait
/// behind.
const WRITE_BYTES_MAX: u64 = 1 << 20;

/// A run is not longer than this (one entry may be), so that it can be copied in one go.
const RUN_BYTES_MAX: u32 = 16 << 20;

/// Distance between the points of a run's index, in bytes.
const POINT_BYTES: u32 = 128 << 10;

/// Room that is reserved ahead, in bytes.
const ALLOCATE_BYTES: u64 = 16 << 20;

#[derive(Debug)]
pub(super) struct LogWriter {
    shared: Arc<Shared>,
    dir: usize,
    current: Option<Current>,
    /// Logs that became full since the last `finish`.
    full: Vec<Current>,
    buf: AlignedBuf,
    /// Bytes in `buf`.
    fill: usize,
    run: Option<IndexRun>,
    /// Sleep after each write so that not more than this is written a second; 0: never.
    pub(crate) bytes_per_s: u64,
}

/// A log that is being written.
#[derive(Debug)]
struct Current {
    file: Arc<LogFile>,
    index: Arc<dyn FsFile>,
    /// Offset at which the buffer is written.
    at: u64,
    allocated: u64,
    /// Start of the data that is not in the index yet.
    from: u64,
    index_end: u64,
    runs: Vec<IndexRun>,
    /// Its names are not yet durable.
    new: bool,
}

/// A run that is durable, and in which log.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) log: u32,
    pub(crate) run: IndexRun,
}

impl LogWriter {
    pub(crate) fn new(shared: Arc<Shared>, dir: usize) -> Self {
        Self {
            shared,
            dir,
            current: None,
            full: Vec::new(),
            buf: AlignedBuf::default(),
            fill: 0,
            run: None,
            bytes_per_s: 0,
        }
    }

    /// Adds an entry. Entries of a ledger that follow each other become runs.
    pub(crate) fn push(&mut self, ledger: u64, entry: u64, payload: &[u8], crc: u32) -> io::Result<()> {
        let follows = self.run.as_ref().is_some_and(|run| {
            run.ledger == ledger
                && run.first + u64::from(run.count) == entry
                && run.end - run.start < RUN_BYTES_MAX
        });
        if !follows {
            self.end_run();
        }
        if self.position() >= self.shared.options.entry_log_bytes {
            self.end_run();
            self.roll()?;
        }
        self.buf.reserve(write_bytes(&self.shared));
        if self.current.is_none() {
            self.create()?;
        }
        let start = self.position() as u32;
        let header = RecordHeader {
            kind: Kind::Entry,
            body_bytes: payload.len() as u32,
            body_crc: crc,
            ledger,
            value: entry,
        };
        let salt = self.current.as_ref().map_or(0, |current| current.file.salt);
        let total = record_bytes(payload.len());
        self.put(&header.encode(salt))?;
        self.put(payload)?;
        self.put(&[0; 8][..total - RECORD_HEADER_BYTES - payload.len()])?;
        let run = self.run.get_or_insert_with(|| IndexRun {
            ledger,
            first: entry,
            payload_bytes: 0,
            count: 0,
            start,
            end: start,
            points: Vec::new(),
        });
        let known = run.points.last().map_or(0, |point| point.byte_offset);
        if start - run.start - known >= POINT_BYTES {
            run.points.push(Point {
                entry: run.count,
                byte_offset: start - run.start,
            });
        }
        run.count += 1;
        run.end = start + total as u32;
        run.payload_bytes += payload.len() as u64;
        Ok(())
    }

    /// Reserves room for so many bytes of records, as far as they go into the current log.
    pub(super) fn make_room(&mut self, bytes: u64) -> io::Result<()> {
        self.buf.reserve(write_bytes(&self.shared));
        if self.current.is_none() {
            self.create()?;
        }
        let limit = self.shared.options.entry_log_bytes;
        let end = round_up((self.position() + bytes).min(limit), 4096);
        if let Some(current) = &mut self.current
            && end > current.allocated
        {
            current.file.file.allocate(end)?;
            current.allocated = end;
        }
        Ok(())
    }

    fn end_run(&mut self) {
        if let Some(run) = self.run.take()
            && let Some(current) = &mut self.current
        {
            current.runs.push(run);
        }
    }

    /// Returns the position of the next record.
    fn position(&self) -> u64 {
        self.current
            .as_ref()
            .map_or(0, |current| current.at + self.fill as u64)
    }

    fn put(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let room = &mut self.buf.bytes_mut()[self.fill..];
            let part = room.len().min(bytes.len());
            let (now, later) = bytes.split_at(part);
            room[..part].copy_from_slice(now);
            self.fill += part;
            bytes = later;
            if self.fill == self.buf.capacity() {
                self.write_out()?;
            }
        }
        Ok(())
    }

    /// Writes what is in the buffer, padded with zeros.
    fn write_out(&mut self) -> io::Result<()> {
        let Some(current) = &mut self.current else {
            return Ok(());
        };
        let padded = round_up(self.fill as u64, 4096);
        if padded == 0 {
            return Ok(());
        }
        let end = current.at + padded;
        if end > current.allocated {
            let limit = self.shared.options.entry_log_bytes;
            let ahead = end.max(limit.min(end + ALLOCATE_BYTES.min(limit / 8)));
            let ahead = round_up(ahead, 4096);
            // A few bytes of room may be left where a large step does not fit.
            if current.file.file.allocate(ahead).is_ok() {
                current.allocated = ahead;
            } else {
                current.file.file.allocate(end)?;
                current.allocated = end;
            }
        }
        let bytes = &mut self.buf.bytes_mut()[..padded as usize];
        bytes[self.fill..].fill(0);
        current.file.file.write_all_at(bytes, current.at)?;
        current.at = end;
        self.fill = 0;
        let pause = padded.saturating_mul(1_000_000_000).checked_div(self.bytes_per_s);
        if let Some(nanos) = pause {
            pharos_runtime::sync::thread::sleep(Duration::from_nanos(nanos));
        }
        Ok(())
    }

    fn create(&mut self) -> io::Result<()> {
        let shared = &self.shared;
        let dir = &shared.dirs[self.dir];
        let id = {
            let mut logs = shared.logs(self.dir);
            let id = logs.next;
            logs.next += 1;
            id
        };
        let path = dir.path.join(file_name(id, LOG));
        let salt = dir.superblock.salt(id);
        let file = Arc::new(LogFile {
            dir: self.dir as u16,
            id,
            salt,
            file: shared
                .fs
                .open(&path, shared.open_how(dir.superblock.block_bytes))?,
            path,
        });
        let index = shared
            .fs
            .open(&dir.path.join(file_name(id, INDEX)), OpenHow::CREATE);
        if index.is_err() {
            // Best effort: the next start removes what no checkpoint names.
            let _ = shared.fs.remove(&file.path);
        }
        let index = index?;
        shared
            .logs(self.dir)
            .by_id
            .insert(id, Log::new(Arc::clone(&file)));
        let header = LogHeader {
            salt,
            log: id,
            dir: self.dir as u32,
        };
        let block = &mut self.buf.bytes_mut()[..LOG_DATA_AT as usize];
        block.fill(0);
        header.encode(block);
        self.fill = LOG_DATA_AT as usize;
        self.current = Some(Current {
            file,
            index,
            at: 0,
            allocated: 0,
            from: LOG_DATA_AT,
            index_end: 0,
            runs: Vec::new(),
            new: true,
        });
        if self.fill == self.buf.capacity() {
            self.write_out()?;
        }
        Ok(())
    }

    fn roll(&mut self) -> io::Result<()> {
        self.write_out()?;
        self.full.extend(self.current.take());
        Ok(())
    }

    /// Makes everything pushed durable and says where it is.
    pub(crate) fn finish(&mut self) -> io::Result<Vec<Written>> {
        self.end_run();
        self.write_out()?;
        let mut names = false;
        for current in self.full.iter_mut().chain(&mut self.current) {
            if current.runs.is_empty() {
                continue;
            }
            current.file.file.sync_data()?;
            let batch = IndexBatch {
                data_from: current.from,
                data_to: current.at,
                runs: std::mem::take(&mut current.runs),
            };
            let bytes = batch.encode(current.file.salt, current.file.id);
            current.runs = batch.runs;
            current.index.write_all_at(&bytes, current.index_end)?;
            current.index.sync_data()?;
            current.index_end += bytes.len() as u64;
            names |= std::mem::take(&mut current.new);
        }
        if names {
            self.shared.fs.sync_dir(&self.shared.dirs[self.dir].path)?;
        }
        let mut written = Vec::new();
        let mut logs = self.shared.logs(self.dir);
        for current in self.full.iter_mut().chain(&mut self.current) {
            let id = current.file.id;
            if let Some(log) = logs.by_id.get_mut(&id) {
                log.end = current.at;
                log.index_end = current.index_end;
            }
            current.from = current.at;
            let runs = current.runs.drain(..);
            written.extend(runs.map(|run| Written { log: id, run }));
        }
        drop(logs);
        for current in std::mem::take(&mut self.full) {
            self.close(&current);
        }
        Ok(written)
    }

    /// Forgets what was pushed and not finished.
    pub(crate) fn abort(&mut self) {
        self.run = None;
        self.fill = 0;
        for current in std::mem::take(&mut self.full).iter().chain(&self.current.take()) {
            self.close(current);
        }
    }

    /// A log gets nothing more; room behind its end is given back.
    fn close(&self, current: &Current) {
        let shared = &self.shared;
        let mut logs = shared.logs(self.dir);
        let Some(log) = logs.by_id.get_mut(&current.file.id) else {
            return;
        };
        let end = log.end;
        log.closed = true;
        if end == 0 {
            logs.by_id.remove(&current.file.id);
        }
        drop(logs);
        let done = if end == 0 {
            super::gc::remove_files(shared, &current.file)
        } else {
            current.file.file.set_len(end)
        };
        if let Err(error) = done {
            tracing::debug!(%error, path = %current.file.path.display(), "cannot give back the room of a log");
        }
    }

    /// Ends the current log, when nothing is pushed; the next entry goes to another one.
    pub(crate) fn close_current(&mut self) {
        if self.fill == 0
            && self.full.is_empty()
            && let Some(current) = self.current.take()
        {
            self.close(&current);
        }
    }

    /// The number of its directory.
    pub(super) fn dir(&self) -> usize {
        self.dir
    }

    /// The log that is open, and the bytes in it.
    pub(crate) fn current_log(&self) -> Option<u32> {
        self.current.as_ref().map(|current| current.file.id)
    }

    /// True if there is a buffer to give back.
    pub(crate) fn has_buffer(&self) -> bool {
        self.fill == 0 && self.buf.capacity() > 0
    }

    /// Gives the buffer back.
    pub(crate) fn rest(&mut self) {
        if self.fill == 0 {
            self.buf = AlignedBuf::default();
        }
    }
}

/// Returns the size of a write to the device, in bytes: a small cache gets small writes.
pub(super) fn write_bytes(shared: &Shared) -> usize {
    round_up(shared.options.write_cache_bytes / 16, 4096).clamp(4096, WRITE_BYTES_MAX) as usize
}
