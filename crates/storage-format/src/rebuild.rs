//! Making the index of an entry log again from the log itself.

use std::io;

use bytes::Bytes;

use pharos_runtime::fs::{Fs, OpenHow};

use crate::file::LogFile;
use crate::file::read_up_to;
use crate::index_batch::{IndexBatch, IndexRun, Point};
use crate::log_header::LOG_DATA_AT;
use crate::names::INDEX;
use crate::record::{Kind, RECORD_ALIGN, RECORD_HEADER_BYTES, RecordHeader};

/// Size of a read, in bytes.
const CHUNK_BYTES: usize = 1 << 20;

/// As the log writer's.
const POINT_BYTES: u32 = 128 << 10;
const RUN_BYTES_MAX: u32 = 16 << 20;

/// Reads a log's records up to its end, and writes and returns the index that they make. Says also its length.
///
/// # Errors
/// The index cannot be written.
pub fn rebuild(fs: &dyn Fs, log: &LogFile, end: u64) -> io::Result<(Vec<IndexRun>, u64)> {
    let batch = IndexBatch {
        data_from: LOG_DATA_AT,
        data_to: end,
        runs: scan(log, end),
    };
    let bytes = batch.encode(log.salt, log.id);
    let path = log.path.with_extension(INDEX);
    let temporary = path.with_extension("tmp");
    let file = fs.open(&temporary, OpenHow::CREATE)?;
    file.set_len(0)?;
    file.write_all_at(&bytes, 0)?;
    file.sync_data()?;
    fs.rename(&temporary, &path)?;
    if let Some(dir) = path.parent() {
        fs.sync_dir(dir)?;
    }
    Ok((batch.runs, bytes.len() as u64))
}

/// All runs in a log. What is no record is passed over in small steps; a damaged body does not matter here.
#[must_use]
pub fn scan(log: &LogFile, end: u64) -> Vec<IndexRun> {
    let mut runs = Vec::new();
    let mut open: Option<IndexRun> = None;
    let mut chunk = Bytes::new();
    let mut chunk_at = 0;
    let mut at = LOG_DATA_AT;
    // A log may be shorter than it was, or than a damaged checkpoint says; there is nothing to look for behind its end.
    let end = log.file.len().map_or(end, |length| end.min(length));
    while at + RECORD_HEADER_BYTES as u64 <= end {
        let inside = at >= chunk_at && at + RECORD_HEADER_BYTES as u64 <= chunk_at + chunk.len() as u64;
        if !inside {
            // What cannot be read is passed over like any other damage.
            chunk = read_up_to(&*log.file, at, CHUNK_BYTES).unwrap_or_default();
            if chunk.len() < RECORD_HEADER_BYTES {
                chunk = Bytes::from(vec![0; CHUNK_BYTES]);
            }
            chunk_at = at;
        }
        let from = (at - chunk_at) as usize;
        let header = RecordHeader::decode(chunk.get(from..).unwrap_or_default(), log.salt);
        let header = header.filter(|h| h.kind == Kind::Entry && at + h.total_bytes() as u64 <= end);
        let Some(header) = header else {
            runs.extend(open.take());
            at += RECORD_ALIGN as u64;
            continue;
        };
        runs.extend(add(&mut open, &header, at as u32));
        at += header.total_bytes() as u64;
    }
    runs.extend(open);
    runs
}

/// Adds a record to the open run, or begins another one and returns the old.
fn add(open: &mut Option<IndexRun>, header: &RecordHeader, at: u32) -> Option<IndexRun> {
    let follows = |run: &IndexRun| {
        let next = run.first + u64::from(run.count);
        let size = run.end - run.start;
        run.ledger == header.ledger && next == header.value && run.end == at && size < RUN_BYTES_MAX
    };
    let mut closed = None;
    if !open.as_ref().is_some_and(follows) {
        let run = IndexRun {
            ledger: header.ledger,
            first: header.value,
            payload_bytes: 0,
            count: 0,
            start: at,
            end: at,
            points: Vec::new(),
        };
        closed = open.replace(run);
    }
    if let Some(run) = open {
        let known = run.points.last().map_or(0, |point| point.byte_offset);
        if at - run.start - known >= POINT_BYTES {
            run.points.push(Point {
                entry: run.count,
                byte_offset: at - run.start,
            });
        }
        run.count += 1;
        run.end = at + header.total_bytes() as u32;
        run.payload_bytes += u64::from(header.body_bytes);
    }
    closed
}
