//! Reading entries back.
//!
//! ```text
//!  in memory (write cache)                   ─► at once, in the caller
//!  a small read of what is in the read cache ─► at once, in the caller
//!  else ─► the directory's queue ─► its threads: some read, the others walk through what they read
//! ```
//! How a device is read depends on what the journals do, see [`pace`]: beside a busy one, one read is in flight per device
//! and not more than 128 KiB each, which is what a journal on the same device does not notice.
//!
//! Always true: what a caller is given is either a copy or a slice of a piece of which it wanted at least half an extent, and
//! of a long one a whole extent, so that memory kept is at most about four times the bytes of the entries kept.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use pharos_ledger::{ReadEntry, ReadError, StorageFault};
use pharos_storage_format::file::LogFile;
use pharos_types::EntryId;

use crate::ledgers::{Ledger, LedgerState};
use crate::shared::{LedgerDir, Shared};
use crate::stats::bump;

mod ahead;
mod carries;
pub(crate) mod extents;
pub(crate) mod flights;
pub(crate) mod job;
pub(crate) mod pace;
pub(crate) mod places;
pub(crate) mod pool;
pub(crate) mod queue;
mod spent;
mod stage;

use extents::{EXTENT_BYTES, Extents};
use job::{Found, Need, ReadJob, Span};
use pace::{Beside, EXTENTS_MAX};
pub(crate) use queue::Answer;
use queue::Next;

/// Threads that read each directory.
pub(crate) const THREADS: usize = 4;

/// Runs that one job looks at; the call goes on with the rest.
const SPANS_MAX: usize = 16;

/// Next action for a read call.
pub(crate) enum ReadPlan {
    /// Entries from memory; the call may go on behind them.
    Memory(Found),
    /// To be read from the logs of this directory.
    Cold(u16, Box<ReadJob>),
    /// Nothing is there.
    End,
}

/// Decides where the entries from `first` on are.
pub(crate) fn plan(
    shared: &Shared,
    ledger: &Ledger,
    first: u64,
    entries_max: usize,
    bytes_max: usize,
) -> Result<ReadPlan, ReadError> {
    let state = ledger.lock();
    if state.deleted {
        return Err(ReadError::NoSuchLedger(ledger.id));
    }
    if first >= state.end {
        return Ok(ReadPlan::End);
    }
    let found = from_memory(&state, first, entries_max, bytes_max);
    if !found.is_empty() {
        return Ok(ReadPlan::Memory(Found {
            entries: found,
            is_full: false,
        }));
    }
    let spans = spans(shared, ledger, &state, first, entries_max);
    if spans.is_empty() {
        bump(&shared.counters.damaged_reads, 1);
        return Err(hidden(shared, ledger, &state, first));
    }
    let job = ReadJob::new(
        ledger.id,
        first,
        spans,
        entries_max,
        bytes_max,
        shared.extents.pool(),
    );
    Ok(ReadPlan::Cold(ledger.dir, Box::new(job)))
}

fn from_memory(state: &LedgerState, first: u64, entries_max: usize, bytes_max: usize) -> Vec<ReadEntry> {
    let mut found = Vec::new();
    let mut bytes = 0usize;
    for entry in first..state.end {
        let Some(cached) = state.cached(entry) else { break };
        bytes = bytes.saturating_add(cached.payload.len());
        if !found.is_empty() && (found.len() >= entries_max || bytes > bytes_max) {
            break;
        }
        found.push(ReadEntry {
            id: EntryId(entry),
            payload: cached.payload.clone(),
        });
    }
    found
}

fn spans(
    shared: &Shared,
    ledger: &Ledger,
    state: &LedgerState,
    first: u64,
    entries_max: usize,
) -> VecDeque<Span> {
    let logs = shared.logs(usize::from(ledger.dir));
    let mut spans = VecDeque::new();
    let mut next = first;
    let limit = first.saturating_add(entries_max as u64);
    while spans.len() < SPANS_MAX && next < limit {
        let Some(run) = state.runs.find(next) else { break };
        let Some(log) = logs.by_id.get(&run.log) else {
            break;
        };
        let (entry, at) = match shared.dirs[usize::from(ledger.dir)]
            .places
            .get(ledger.id, next, run.log)
        {
            Some(at) if (run.start..run.end).contains(&at) => (next, at),
            _ => run.nearest(next),
        };
        spans.push_back(Span {
            file: Arc::clone(&log.file),
            start: u64::from(run.start),
            at: u64::from(at),
            entry,
            end: u64::from(run.end),
            end_entry: run.end_entry(),
        });
        next = run.end_entry();
    }
    spans
}

/// The error for an entry that damage has hidden.
fn hidden(shared: &Shared, ledger: &Ledger, state: &LedgerState, entry: u64) -> ReadError {
    let (file, byte_offset) = state.hidden_by.as_ref().map_or_else(
        || {
            let dir = shared.dirs[usize::from(ledger.dir)].path.display();
            (format!("{dir} (lost to damage found at a start)"), 0)
        },
        |damage| (damage.file.clone(), damage.byte_offset),
    );
    ReadError::Damaged {
        ledger: ledger.id,
        entry: EntryId(entry),
        file,
        byte_offset,
    }
}

/// Pieces that were just read.
#[derive(Debug, Default)]
struct Fresh {
    dir: u16,
    log: u32,
    pieces: pace::Read,
}

impl Fresh {
    /// As [`Extents::get`].
    fn get(&self, (dir, log, number): extents::Key, end: u64) -> Option<(u32, Bytes)> {
        let reaches = |(first, piece): &&(u32, Bytes)| extents::reaches(*first, piece, number, end);
        let here = (dir, log) == (self.dir, self.log);
        here.then(|| self.pieces.iter().find(reaches).cloned())?
    }
}

/// Goes on with a job as far as the read cache has what it needs.
pub(crate) fn run_cached(shared: &Shared, job: &mut ReadJob) -> Need {
    job.resume(&shared.extents);
    go_on(shared, job, &Fresh::default())
}

/// Goes on with a job as far as there is what it needs, here or in the read cache.
fn go_on(shared: &Shared, job: &mut ReadJob, fresh: &Fresh) -> Need {
    loop {
        let need = job.need();
        let Need::Extent {
            file, number, end, ..
        } = &need
        else {
            if let Some((dir, place)) = job.place() {
                shared.dirs[usize::from(dir)].places.put(place);
            }
            return need;
        };
        let key = (file.dir, file.id, *number);
        let (first, piece) = match fresh.get(key, *end) {
            Some(found) => found,
            None => match shared.extents.get(key, *end) {
                Some(found) => {
                    bump(&shared.counters.read_cache_hits, 1);
                    found
                }
                None => return need,
            },
        };
        for (number, bytes) in job.take(first, &piece) {
            shared.extents.handed_out((key.0, key.1, number), bytes);
        }
    }
}

/// Does a whole job in the caller, device reads included.
pub(crate) fn run_inline(shared: &Shared, mut job: ReadJob) -> Answer {
    let mut need = run_cached(shared, &mut job);
    loop {
        match need {
            Need::Done(answer) => return note(shared, answer),
            wanted => {
                let found = read_device(shared, &wanted, 1);
                let fresh = arrived(shared, &mut job, wanted, found);
                need = go_on(shared, &mut job, &fresh);
            }
        }
    }
}

/// Runs a reader thread of a directory until the queue is stopped. While one walks through what it read, the other
/// one reads; when there is nothing to do, it reads ahead for the last job's reader.
pub(crate) fn run(shared: &Shared, dir: usize) {
    pharos_runtime::stand_back();
    let dir = &shared.dirs[dir];
    let mut ahead = ahead::Reader::default();
    loop {
        let patience = (!ahead.is_idle()).then_some(Duration::ZERO);
        let mut queued = match dir.reads.next(patience) {
            Next::Job(queued) => queued,
            Next::Nothing => {
                let step = catch_unwind(AssertUnwindSafe(|| ahead.step(shared, dir)));
                if step.is_err() {
                    ahead = ahead::Reader::default();
                }
                continue;
            }
            Next::Stopped => return,
        };
        let answer = catch_unwind(AssertUnwindSafe(|| turn(shared, dir, &mut queued.job)));
        // A bug met by one read must not end the thread that serves all others.
        let answer =
            answer.unwrap_or_else(|_| Some(Err(ReadError::Fault(StorageFault::new("read", "panicked")))));
        match answer {
            Some(answer) => {
                queued.job.leave(&shared.extents);
                ahead.begin(shared, &queued.job);
                // A caller that gave up does not mind.
                let _ = queued.answer.send(note(shared, answer));
            }
            None => dir.reads.give_back(*queued),
        }
    }
}

/// Goes on with a job, with one device read at most.
fn turn(shared: &Shared, dir: &LedgerDir, job: &mut ReadJob) -> Option<Answer> {
    job.among_many(dir.reads.depth() >= THREADS);
    loop {
        let need = run_cached(shared, job);
        let Need::Extent {
            file, number, end, ..
        } = &need
        else {
            let Need::Done(answer) = need else { return None };
            return Some(answer);
        };
        let key = (file.dir, file.id, *number);
        let wanted = need.extents(room_ahead(&shared.extents, dir.reads.depth()));
        let wanted = shared.extents.missing(key, wanted.min(EXTENTS_MAX));
        let Some(flight) = dir.flights.begin(file.id, *number, wanted) else {
            continue;
        };
        // It may have landed in between.
        if shared.extents.get(key, *end).is_some() {
            continue;
        }
        if job.end_early() {
            continue;
        }
        let found = dir.pacer.read(&beside(shared), |allowed| {
            read_device(shared, &need, flight.count().min(allowed))
        });
        let fresh = arrived(shared, job, need, found);
        drop(flight);
        return match go_on(shared, job, &fresh) {
            Need::Done(answer) => Some(answer),
            Need::Extent { .. } => None,
        };
    }
}

/// Returns the inputs for the pace of reads.
fn beside(shared: &Shared) -> Beside<'_> {
    Beside {
        groups: &shared.urgent_groups,
        syncs: &shared.counters.syncs,
        last_group: &shared.last_urgent,
        paced_nanos: &shared.counters.read_paced_nanos,
        bytes_per_s: shared.options.read_bytes_per_s,
    }
}

/// Returns the number of extents that a read may bring although fewer were asked for: so many that all waiting jobs
/// find theirs still in the cache.
fn room_ahead(extents: &Extents, waiting: usize) -> u32 {
    let each = extents.room() / (waiting as u64 + 1);
    u32::try_from(each / EXTENT_BYTES).unwrap_or(EXTENTS_MAX)
}

fn note(shared: &Shared, answer: Answer) -> Answer {
    if let Err(error @ ReadError::Damaged { .. }) = &answer {
        bump(&shared.counters.damaged_reads, 1);
        tracing::error!(%error, "an entry cannot be read");
    }
    answer
}

/// Reads so many extents, fewer at the end of a log.
fn read_device(shared: &Shared, need: &Need, extents: u32) -> io::Result<pace::Read> {
    let Need::Extent {
        file,
        number,
        end,
        inside,
        ..
    } = need
    else {
        return Ok(pace::Read::new());
    };
    let start = u64::from(*number) * EXTENT_BYTES;
    let log_end = end_of_log(shared, file);
    let want = (u64::from(extents.max(1)) * EXTENT_BYTES)
        .min(log_end.saturating_sub(start))
        .max(*end);
    stage::read(shared, file, *number, want, inside)
}

/// Puts what was read into the cache. The job fails where the device did.
fn arrived(shared: &Shared, job: &mut ReadJob, need: Need, found: io::Result<pace::Read>) -> Fresh {
    let Need::Extent {
        file, number, end, ..
    } = need
    else {
        return Fresh::default();
    };
    let mut fresh = Fresh {
        dir: file.dir,
        log: file.id,
        ..Fresh::default()
    };
    match found {
        Ok(found) => fresh.pieces = found,
        Err(error) => {
            let start = u64::from(number) * EXTENT_BYTES;
            let what = format!("read at {start} of {}", file.path.display());
            job.fail(ReadError::Fault(StorageFault::new(what, error)));
            return fresh;
        }
    }
    for (number, piece) in &fresh.pieces {
        shared.extents.put((file.dir, file.id, *number), piece.clone());
    }
    // The file is shorter than it was: what is missing reads as what no record looks like.
    let first = fresh
        .pieces
        .first()
        .map(|(_, piece)| piece.clone())
        .unwrap_or_default();
    if (first.len() as u64) < end {
        let mut padded = first.to_vec();
        padded.resize(end as usize, 0);
        fresh.pieces = std::iter::once((number, Bytes::from(padded))).collect();
    }
    fresh
}

/// Returns the end of the readable part of the log.
fn end_of_log(shared: &Shared, file: &LogFile) -> u64 {
    let logs = shared.logs(usize::from(file.dir));
    logs.by_id.get(&file.id).map_or(0, |log| log.end)
}

/// Progress of a read call: the entries found so far, and those still wanted.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) next: u64,
    entries_max: usize,
    bytes_max: usize,
    found: Vec<ReadEntry>,
    bytes: usize,
}

impl Wanted {
    pub(crate) fn new(first: u64, entries_max: usize, bytes_max: usize) -> Self {
        Self {
            next: first,
            entries_max,
            bytes_max,
            found: Vec::new(),
            bytes: 0,
        }
    }

    /// Returns the limits that are left: entries and bytes.
    pub(crate) fn left(&self) -> (usize, usize) {
        (
            self.entries_max.saturating_sub(self.found.len()),
            self.bytes_max.saturating_sub(self.bytes),
        )
    }

    /// Adds what was found; `true` when that is enough.
    pub(crate) fn add(&mut self, found: Found) -> bool {
        if found.entries.is_empty() {
            return true;
        }
        for entry in found.entries {
            let bytes = self.bytes.saturating_add(entry.payload.len());
            if !self.found.is_empty() && (self.found.len() >= self.entries_max || bytes > self.bytes_max) {
                return true;
            }
            self.bytes = bytes;
            self.next = entry.id.0 + 1;
            self.found.push(entry);
        }
        found.is_full || self.found.len() >= self.entries_max || self.bytes >= self.bytes_max
    }

    /// The answer, given how the call ended.
    pub(crate) fn end(self, error: Option<ReadError>) -> Result<Vec<ReadEntry>, ReadError> {
        match error {
            Some(error) if self.found.is_empty() => Err(error),
            _ => Ok(self.found),
        }
    }
}
