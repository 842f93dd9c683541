//! Reading entries back.
//!
//! ```text
//!  in memory (write cache) ─► at once, in the caller
//!  in the read cache       ─► at once, in the caller
//!  else                    ─► the directory's queue ─► its one thread: one device read at a time, paced
//! ```
//! One read in flight per device and not more than 128 KiB each: that is what a journal on the same device does not
//! notice. While nothing is journaled, reads are longer and not paced.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;

use pharos_ledger::{ReadEntry, ReadError, StorageFault};
use pharos_runtime::clock;
use pharos_types::EntryId;

use crate::ledgers::{Ledger, LedgerState};
use crate::logs::LogFile;
use crate::shared::Shared;
use crate::stats::bump;

pub(crate) mod extents;
pub(crate) mod job;
pub(crate) mod queue;

use extents::EXTENT_BYTES;
use job::{Need, ReadJob, Span};

/// How long after the last group a journal counts as active, in nanoseconds.
const ACTIVE_NANOS: u64 = 100_000_000;

/// Extents read at once while no journal is active.
const EXTENTS_MAX: u32 = 8;

/// Runs that one job looks at; the call goes on with the rest.
const SPANS_MAX: usize = 16;

/// What is to be done for a read call now.
pub(crate) enum Plan {
    /// Entries from memory; the call may go on behind them.
    Memory(Vec<ReadEntry>),
    /// To be read from the logs of this directory.
    Cold(u16, ReadJob),
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
) -> Result<Plan, ReadError> {
    let state = ledger.lock();
    if state.deleted {
        return Err(ReadError::NoSuchLedger(ledger.id));
    }
    if first >= state.end {
        return Ok(Plan::End);
    }
    let found = from_memory(&state, first, entries_max, bytes_max);
    if !found.is_empty() {
        return Ok(Plan::Memory(found));
    }
    let spans = spans(shared, ledger, &state, first, entries_max);
    if spans.is_empty() {
        bump(&shared.counters.damaged_reads, 1);
        return Err(hidden(shared, ledger, &state, first));
    }
    let job = ReadJob::new(ledger.id, first, spans, entries_max, bytes_max);
    Ok(Plan::Cold(ledger.dir, job))
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
        let (entry, at) = run.nearest(next);
        spans.push_back(Span {
            file: Arc::clone(&log.file),
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

/// Goes on with a job as far as the read cache has what it needs.
pub(crate) fn run_cached(shared: &Shared, job: &mut ReadJob) -> Need {
    loop {
        let need = job.need();
        let Need::Extent {
            file, number, end, ..
        } = &need
        else {
            return need;
        };
        let Some(extent) = shared.extents.get((file.dir, file.id, *number), *end) else {
            return need;
        };
        bump(&shared.counters.read_cache_hits, 1);
        job.take(*number, &extent);
    }
}

/// Does a whole job in the caller, device reads included.
pub(crate) fn run_inline(shared: &Shared, mut job: ReadJob) -> queue::Answer {
    loop {
        match run_cached(shared, &mut job) {
            Need::Done(answer) => return note(shared, answer),
            need => read_device(shared, &mut job, need, 1),
        }
    }
}

/// A directory's reader thread: runs until the queue is stopped.
pub(crate) fn run(shared: &Shared, dir: usize) {
    let reads = &shared.dirs[dir].reads;
    let mut pacer = Pacer::default();
    while let Some(mut queued) = reads.next() {
        let turn = catch_unwind(AssertUnwindSafe(|| {
            let need = run_cached(shared, &mut queued.job);
            match need {
                Need::Done(answer) => Some(answer),
                need => {
                    let extents = pacer.before_read(shared);
                    let before = shared.counters.read_bytes.load(Ordering::Relaxed);
                    read_device(shared, &mut queued.job, need, extents);
                    let after = shared.counters.read_bytes.load(Ordering::Relaxed);
                    pacer.after_read(shared, after.saturating_sub(before));
                    None
                }
            }
        }));
        // A bug met by one read must not end the thread that serves all others.
        let turn =
            turn.unwrap_or_else(|_| Some(Err(ReadError::Fault(StorageFault::new("read", "panicked")))));
        match turn {
            // A caller that gave up does not mind.
            Some(answer) => {
                let _ = queued.answer.send(note(shared, answer));
            }
            None => reads.give_back(queued),
        }
    }
}

fn note(shared: &Shared, answer: queue::Answer) -> queue::Answer {
    if let Err(error @ ReadError::Damaged { .. }) = &answer {
        bump(&shared.counters.damaged_reads, 1);
        tracing::error!(%error, "an entry cannot be read");
    }
    answer
}

/// Reads an extent, and up to `extents` of them when the run goes on, into the cache; the job goes on in the first.
fn read_device(shared: &Shared, job: &mut ReadJob, need: Need, extents: u32) {
    let Need::Extent {
        file,
        number,
        end,
        further,
    } = need
    else {
        return;
    };
    let start = u64::from(number) * EXTENT_BYTES;
    let log_end = shared
        .logs(usize::from(file.dir))
        .by_id
        .get(&file.id)
        .map_or(0, |log| log.end);
    let count = (further + 1).clamp(1, extents);
    let want = (u64::from(count) * EXTENT_BYTES)
        .min(log_end.saturating_sub(start))
        .max(end);
    let bytes = match read(shared, &file, start, want.next_multiple_of(4096) as usize) {
        Ok(bytes) => bytes,
        Err(error) => {
            let what = format!("read at {start} of {}", file.path.display());
            job.fail(ReadError::Fault(StorageFault::new(what, error)));
            return;
        }
    };
    if (bytes.len() as u64) < end {
        // The file is shorter than it was; what is missing reads as what no record looks like.
        let mut padded = bytes.to_vec();
        padded.resize(end as usize, 0);
        job.take(number, &Bytes::from(padded));
        return;
    }
    for (n, at) in (0..).zip((0..bytes.len()).step_by(EXTENT_BYTES as usize)) {
        let extent = bytes.slice(at..bytes.len().min(at + EXTENT_BYTES as usize));
        shared.extents.put((file.dir, file.id, number + n), extent);
    }
    job.take(number, &bytes.slice(..bytes.len().min(EXTENT_BYTES as usize)));
}

fn read(shared: &Shared, file: &LogFile, start: u64, bytes: usize) -> std::io::Result<Bytes> {
    let mut buf = shared.extents.buffer(bytes);
    let count = file.file.read_at(&mut buf.bytes_mut()[..bytes], start)?;
    bump(&shared.counters.reads, 1);
    bump(&shared.counters.read_bytes, count as u64);
    Ok(shared.extents.share(buf, count))
}

/// Holds reads back while a journal is active.
#[derive(Debug, Default)]
struct Pacer {
    /// When the next read may begin, on the monotonic clock.
    next: u64,
}

impl Pacer {
    /// Waits for its turn; says how many extents may be read at once.
    fn before_read(&self, shared: &Shared) -> u32 {
        if !is_journal_active(shared) {
            return EXTENTS_MAX;
        }
        let early = self.next.saturating_sub(clock::now().0);
        if early > 0 {
            bump(&shared.counters.read_paced_nanos, early);
            std::thread::sleep(Duration::from_nanos(early));
        }
        1
    }

    fn after_read(&mut self, shared: &Shared, bytes: u64) {
        let rate = shared.options.read_bytes_per_s;
        if let Some(pause) = bytes.saturating_mul(1_000_000_000).checked_div(rate) {
            // What was not used is not saved up, except for the time of the read itself.
            let from = self.next.max(clock::now().0.saturating_sub(pause));
            self.next = from + pause;
        }
    }
}

fn is_journal_active(shared: &Shared) -> bool {
    let last = shared.last_group.load(Ordering::Relaxed);
    last > 0 && clock::now().0.saturating_sub(last) < ACTIVE_NANOS
}

/// What a read call has found so far and still wants.
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

    /// What may still be asked for: entries and bytes.
    pub(crate) fn left(&self) -> (usize, usize) {
        (
            self.entries_max.saturating_sub(self.found.len()),
            self.bytes_max.saturating_sub(self.bytes),
        )
    }

    /// Adds what was found; `true` when that is enough.
    pub(crate) fn add(&mut self, entries: Vec<ReadEntry>) -> bool {
        if entries.is_empty() {
            return true;
        }
        for entry in entries {
            let bytes = self.bytes.saturating_add(entry.payload.len());
            if !self.found.is_empty() && (self.found.len() >= self.entries_max || bytes > self.bytes_max) {
                return true;
            }
            self.bytes = bytes;
            self.next = entry.id.0 + 1;
            self.found.push(entry);
        }
        self.found.len() >= self.entries_max || self.bytes >= self.bytes_max
    }

    /// The answer, given how the call ended.
    pub(crate) fn end(self, error: Option<ReadError>) -> queue::Answer {
        match error {
            Some(error) if self.found.is_empty() => Err(error),
            _ => Ok(self.found),
        }
    }
}
