//! Reading entries back: plain threads, a bounded queue, one device read for neighbouring records.
//!
//! Every record is checked on every read: it must be the one that was asked for, and whole. What fails the check is
//! looked up again (it may have been moved meanwhile) before it is called damaged.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use pharos_ledger::{ReadEntry, ReadError, StorageFault};
use pharos_types::{EntryId, LedgerId};

use crate::format::record::{RECORD_HEADER_BYTES, RecordHeader, record_bytes};
use crate::ledgers::Location;
use crate::segments::SegmentFile;
use crate::shared::Shared;
use crate::stats::bump;

/// Other ledgers' bytes between two records that are still read through, instead of reading twice.
const GAP_BYTES_MAX: u64 = 16 << 10;

/// How often an entry that moves away under the reader is looked up again.
const LOOKUPS_MAX: usize = 4;

type Answer = Result<Vec<ReadEntry>, ReadError>;

/// What one read call wants, by location.
#[derive(Debug)]
pub(crate) struct ReadJob {
    pub(crate) ledger: LedgerId,
    /// The id of the first entry; the locations are those of this one and the ones after it.
    pub(crate) first: u64,
    pub(crate) locations: Vec<Location>,
}

#[derive(Debug)]
struct Queued {
    job: ReadJob,
    answer: oneshot::Sender<Answer>,
    /// The place in the queue, given back when the read is done.
    _slot: OwnedSemaphorePermit,
}

/// Reads that wait for a thread.
#[derive(Debug)]
pub(crate) struct ReadQueue {
    /// Its permits are what bounds `jobs`.
    slots: Arc<Semaphore>,
    jobs: Mutex<VecDeque<Queued>>,
    bell: Condvar,
}

impl ReadQueue {
    pub(crate) fn new(slots: usize) -> Self {
        Self {
            slots: Arc::new(Semaphore::new(slots)),
            jobs: Mutex::default(),
            bell: Condvar::new(),
        }
    }

    /// Runs a read on one of the threads.
    ///
    /// Cancel safety: dropping it drops the answer; the read may still happen.
    pub(crate) async fn submit(&self, job: ReadJob) -> Answer {
        let stopped = || ReadError::Fault(StorageFault::new("read", "storage was shut down"));
        let slot = Arc::clone(&self.slots)
            .acquire_owned()
            .await
            .map_err(|_| stopped())?;
        let (answer, answered) = oneshot::channel();
        let queued = Queued {
            job,
            answer,
            _slot: slot,
        };
        self.jobs
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push_back(queued);
        self.bell.notify_one();
        answered.await.map_err(|_| stopped())?
    }

    /// Lets the threads end; what waits is answered with a fault.
    pub(crate) fn stop(&self) {
        self.slots.close();
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.bell.notify_all();
    }

    fn next(&self) -> Option<Queued> {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if self.slots.is_closed() {
                jobs.clear();
                return None;
            }
            if let Some(job) = jobs.pop_front() {
                return Some(job);
            }
            jobs = self.bell.wait(jobs).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A reader thread: runs until the queue is stopped.
pub(crate) fn run(shared: &Shared) {
    while let Some(queued) = shared.reads.next() {
        let answer = catch_unwind(AssertUnwindSafe(|| run_job(shared, &queued.job)));
        // A bug met by one read must not end the thread that serves all others.
        let answer = answer.unwrap_or_else(|_| Err(ReadError::Fault(StorageFault::new("read", "panicked"))));
        // A caller that gave up does not mind.
        let _ = queued.answer.send(answer);
    }
}

/// Reads what the job names. Entries before a damaged one are returned; a damaged first one is the error.
pub(crate) fn run_job(shared: &Shared, job: &ReadJob) -> Answer {
    let mut found = Vec::with_capacity(job.locations.len());
    let mut rest = job.locations.as_slice();
    while !rest.is_empty() {
        let count = together(rest, shared.options.read_bytes_max as u64);
        let (run, after) = rest.split_at(count);
        let first = job.first + found.len() as u64;
        read_run(shared, job.ledger, first, run, &mut found);
        // Short of its end: the next entry needs a closer look.
        let done = found.len() as u64 - (first - job.first);
        if (done as usize) < run.len() {
            let entry = first + done;
            match read_carefully(shared, job.ledger, entry, run[done as usize]) {
                Ok(payload) => found.push(ReadEntry {
                    id: EntryId(entry),
                    payload,
                }),
                Err(error) if found.is_empty() => return Err(error),
                Err(_) => break,
            }
            rest = &job.locations[found.len()..];
        } else {
            rest = after;
        }
    }
    Ok(found)
}

/// How many of the first locations one device read should bring.
fn together(locations: &[Location], bytes_max: u64) -> usize {
    let Some(first) = locations.first() else { return 0 };
    let start = u64::from(first.byte_offset);
    let mut end = start + record_bytes(first.body_bytes()) as u64;
    let follows = |next: &&Location| {
        let at = u64::from(next.byte_offset);
        let next_end = at + record_bytes(next.body_bytes()) as u64;
        let near = next.segment == first.segment && at >= end && at - end <= GAP_BYTES_MAX;
        let fits = near && next_end - start <= bytes_max;
        if fits {
            end = next_end;
        }
        fits
    };
    1 + locations.iter().skip(1).take_while(follows).count()
}

/// Reads neighbouring records with one device read and adds them to `found`, up to the first that fails.
fn read_run(shared: &Shared, ledger: LedgerId, first: u64, run: &[Location], found: &mut Vec<ReadEntry>) {
    let (Some(begin), Some(end)) = (run.first(), run.last()) else {
        return;
    };
    if begin.is_nowhere() {
        return;
    }
    let Some(file) = shared.segments().file(begin.segment) else {
        return;
    };
    let start = u64::from(begin.byte_offset);
    let span = u64::from(end.byte_offset) - start + record_bytes(end.body_bytes()) as u64;
    let Ok(bytes) = file.read_span(start, span as usize) else {
        return;
    };
    bump(&shared.counters.reads, 1);
    bump(&shared.counters.read_bytes, span);
    let wanted: usize = run.iter().map(|location| location.body_bytes()).sum();
    // Slices keep the whole buffer alive, so they are only handed out where most of it was wanted.
    let share = wanted as u64 * 2 >= span.max(4096);
    for (entry, location) in (first..).zip(run) {
        let from = (u64::from(location.byte_offset) - start) as usize;
        let record = bytes.slice(from..from + record_bytes(location.body_bytes()));
        let Some(payload) = check_record(&record, file.salt, ledger, entry, *location) else {
            return;
        };
        found.push(ReadEntry {
            id: EntryId(entry),
            payload: if share {
                payload
            } else {
                Bytes::copy_from_slice(&payload)
            },
        });
    }
}

/// The payload in `record`, when it is whole and is the entry that was meant.
pub(crate) fn check_record(
    record: &Bytes,
    salt: u32,
    ledger: LedgerId,
    entry: u64,
    location: Location,
) -> Option<Bytes> {
    let header = RecordHeader::decode(record, salt)?;
    let meant = header.kind.is_entry()
        && header.ledger == ledger.0
        && header.value == entry
        && header.body_bytes as usize == location.body_bytes();
    if !meant {
        return None;
    }
    let body_bytes = header.body(record)?.len();
    Some(record.slice(RECORD_HEADER_BYTES..RECORD_HEADER_BYTES + body_bytes))
}

/// Reads one entry that a plain read did not bring, following it when it moves.
fn read_carefully(shared: &Shared, id: LedgerId, entry: u64, at: Location) -> Result<Bytes, ReadError> {
    let mut location = at;
    for _ in 0..LOOKUPS_MAX {
        let failure = match try_read(shared, id, entry, location) {
            Ok(payload) => return Ok(payload),
            Err(failure) => failure,
        };
        let ledger = shared.ledgers.get(id).ok_or(ReadError::NoSuchLedger(id))?;
        let state = ledger.lock();
        let now = usize::try_from(entry)
            .ok()
            .and_then(|e| state.index.get(e))
            .copied();
        match now {
            Some(now) if now != location => location = now,
            Some(_) => {
                bump(&shared.counters.damaged_reads, 1);
                tracing::error!(error = %failure, "an entry cannot be read");
                return Err(failure);
            }
            None => return Err(ReadError::NoSuchLedger(id)),
        }
    }
    Err(ReadError::Fault(StorageFault::new(
        format!("read entry {entry} of ledger {id}"),
        "it keeps moving",
    )))
}

fn try_read(shared: &Shared, ledger: LedgerId, entry: u64, location: Location) -> Result<Bytes, ReadError> {
    let damaged = |file: String| ReadError::Damaged {
        ledger,
        entry: EntryId(entry),
        file,
        byte_offset: u64::from(location.byte_offset),
    };
    if location.is_nowhere() {
        return Err(hidden(shared, ledger, entry));
    }
    let Some(file) = shared.segments().file(location.segment) else {
        return Err(damaged(crate::segments::file_name(location.segment)));
    };
    let read = read_record(&file, location);
    bump(&shared.counters.reads, 1);
    let record = read.map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => damaged(file.path.display().to_string()),
        _ => {
            let what = format!("read at {} of {}", location.byte_offset, file.path.display());
            ReadError::Fault(StorageFault::new(what, error))
        }
    })?;
    let payload = check_record(&record, file.salt, ledger, entry, location);
    payload.ok_or_else(|| damaged(file.path.display().to_string()))
}

fn read_record(file: &SegmentFile, location: Location) -> std::io::Result<Bytes> {
    file.read_span(
        u64::from(location.byte_offset),
        record_bytes(location.body_bytes()),
    )
}

/// The error for an entry whose record damage has hidden: the first damage after the entry before it.
fn hidden(shared: &Shared, ledger: LedgerId, entry: u64) -> ReadError {
    let before = shared.ledgers.get(ledger).and_then(|found| {
        let state = found.lock();
        let known = state.index.iter().take(usize::try_from(entry).ok()?);
        known.rev().find(|l| !l.is_nowhere()).copied()
    });
    let from = before.map_or((0, 0), |l| (l.segment, u64::from(l.byte_offset)));
    let segments = shared.segments();
    let damages = segments.by_id.iter().flat_map(|(id, s)| {
        s.damages
            .iter()
            .map(move |damage| ((*id, damage.byte_offset), s.file.path.display()))
    });
    let place = damages.filter(|(at, _)| *at > from).min_by_key(|(at, _)| *at);
    let (file, byte_offset) = place.map_or_else(
        || (format!("{} (a segment is missing)", shared.dir.display()), 0),
        |((_, byte_offset), path)| (path.to_string(), byte_offset),
    );
    ReadError::Damaged {
        ledger,
        entry: EntryId(entry),
        file,
        byte_offset,
    }
}
