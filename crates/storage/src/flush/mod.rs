//! The flusher: from the write cache to the entry logs, the checkpoint, and old logs.
//!
//! ```text
//!  idle ─► swap ─► write (ledger by ledger, sorted) ─► finish: synced, indexed ─► install: runs in, memory out
//!    ▲                                                                                │
//!    └── old logs, compaction ◄── journals may be trimmed ◄── checkpoint ◄────────────┘
//! ```
//! One thread calls [`Flusher::step`] in a loop ([`run`]); tests call it themselves, so that anything can happen between
//! two steps. It is the only writer of entry logs, indexes and checkpoints.
//!
//! The order matters; a crash between any two steps finds every entry in a journal behind its mark or in a log:
//! 1. data of the logs synced, 2. their indexes, 3. the names of new files,
//! 4. the checkpoint under a temporary name synced, renamed, the directory synced,
//! 5. only now journal segments go, and logs that were emptied by copying.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use pharos_ledger::StorageFault;
use pharos_runtime::fs::is_no_space;
use pharos_runtime::{Nanos, clock};
use pharos_types::LedgerId;

use crate::cache::{Progress, Swapped};
use crate::format::index_batch::IndexRun;
use crate::ledgers::Ledger;
use crate::runs::Run;
use crate::shared::{Pace, Shared};
use crate::stats::bump;

mod checkpoint;
mod compact;
mod finish;
pub(crate) mod gc;
mod log_writer;

pub(crate) use checkpoint::store as store_checkpoint;
use log_writer::LogWriter;

use log_writer::Written;

/// How much less of a core than others the flusher gets while they compete for it, on the system's scale.
const NICENESS: i32 = 5;

/// Entries whose memory is given back between two pauses, and how long those are.
const FREED_ENTRIES: usize = 256;
const BREATH: Duration = Duration::from_micros(500);

/// How long to wait before trying again what found no room.
const RETRY: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(crate) struct Flusher {
    shared: Arc<Shared>,
    /// By directory.
    writers: Vec<LogWriter>,
    work: Option<Work>,
    /// Ledgers whose entries are flushed and whose seal the next checkpoint brings.
    sealing: Vec<Arc<Ledger>>,
    /// Something waits for a checkpoint although nothing is to be flushed.
    checkpoint_wanted: bool,
    compaction: compact::Compactor,
    retry_at: Option<Nanos>,
    finished: bool,
}

/// One half on its way to the logs.
#[derive(Debug)]
struct Work {
    epoch: u64,
    bytes: u64,
    progress: Vec<Progress>,
    touched: Vec<Arc<Ledger>>,
    stage: Stage,
    /// What is still to be pushed, by directory.
    todo: Vec<VecDeque<Arc<Ledger>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Write,
    Finish,
    Checkpoint,
}

/// What went wrong in a step.
enum Trouble {
    NoSpace,
    Fault(Arc<StorageFault>),
}

impl Trouble {
    fn of(what: String, error: io::Error) -> Self {
        if is_no_space(&error) {
            Self::NoSpace
        } else {
            Self::Fault(StorageFault::new(what, error))
        }
    }
}

impl Flusher {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let writers = (0..shared.dirs.len())
            .map(|dir| LogWriter::new(Arc::clone(&shared), dir))
            .collect();
        Self {
            shared,
            writers,
            work: None,
            sealing: Vec::new(),
            checkpoint_wanted: false,
            compaction: compact::Compactor::default(),
            retry_at: None,
            finished: false,
        }
    }

    /// From now on writes are held to the rates of the options; the time for that is slept.
    fn pace_writes(&mut self) {
        for writer in &mut self.writers {
            writer.bytes_per_s = self.shared.options.flush_bytes_per_s;
        }
    }

    /// Does one thing, the most urgent first.
    pub(crate) fn step(&mut self, now: Nanos) -> Pace {
        if self.finished {
            return Pace::Stopped;
        }
        if self.shared.poison().is_some() {
            return self.step_poisoned();
        }
        if let Some(at) = self.retry_at {
            if now < at && !self.shared.is_stopping() {
                return self.step_without_room(now, at);
            }
            self.retry_at = None;
        }
        match self.try_step(now) {
            Ok(pace) => pace,
            Err(Trouble::Fault(fault)) => {
                self.shared.set_poison(fault);
                Pace::Again
            }
            Err(Trouble::NoSpace) => self.on_no_space(now),
        }
    }

    fn try_step(&mut self, now: Nanos) -> Result<Pace, Trouble> {
        if let Some(work) = self.work.take() {
            self.work = self.advance(work)?;
            if self.work.is_none() {
                self.set_no_space(false);
            }
            return Ok(Pace::Again);
        }
        if self.shared.is_stopping() {
            return self.step_to_end();
        }
        if self.is_flush_due(now) {
            self.begin();
            return Ok(Pace::Again);
        }
        if self.checkpoint_wanted {
            self.write_checkpoint(self.shared.all_checkpointed(), false)?;
            return Ok(Pace::Again);
        }
        if self.remove_one_log() {
            return Ok(Pace::Again);
        }
        let compaction = self.step_compaction(now)?;
        if compaction == Pace::Again {
            return Ok(Pace::Again);
        }
        for writer in &mut self.writers {
            writer.rest();
        }
        Ok(sooner(compaction, Pace::Wait(self.until_flush(now))))
    }

    fn is_flush_due(&self, now: Nanos) -> bool {
        let shared = &self.shared;
        shared.cache.is_nearly_full()
            || shared.flush_wanted.load(Ordering::Acquire)
            || !shared.parked().is_empty()
            || self.until_flush(now) == Some(Duration::ZERO)
            || shared.is_journal_long()
    }

    /// How long until the oldest entry in memory is old enough.
    fn until_flush(&self, now: Nanos) -> Option<Duration> {
        let since = self.shared.cache.fill().since?;
        let age = Duration::from_nanos(now.since(since));
        Some(self.shared.options.flush_interval.saturating_sub(age))
    }

    fn begin(&mut self) {
        let Some(swapped) = self.shared.cache.swap() else {
            return;
        };
        self.shared.flush_wanted.store(false, Ordering::Release);
        self.shared.ring_journals();
        let Swapped {
            epoch,
            progress,
            touched,
            bytes,
        } = swapped;
        let mut work = Work {
            epoch,
            bytes,
            progress,
            touched,
            stage: Stage::Write,
            todo: Vec::new(),
        };
        work.touched.sort_unstable_by_key(|ledger| ledger.id);
        self.fill_todo(&mut work);
        self.work = Some(work);
    }

    fn fill_todo(&self, work: &mut Work) {
        work.todo = vec![VecDeque::new(); self.writers.len()];
        for ledger in &work.touched {
            if let Some(todo) = work.todo.get_mut(usize::from(ledger.dir)) {
                todo.push_back(Arc::clone(ledger));
            }
        }
    }

    /// One step of a flush. On an error the work is kept, to be done again from the start.
    fn advance(&mut self, mut work: Work) -> Result<Option<Work>, Trouble> {
        match self.try_advance(&mut work) {
            Ok(true) => Ok(None),
            Ok(false) => Ok(Some(work)),
            Err(trouble) => {
                if work.stage != Stage::Checkpoint {
                    self.writers.iter_mut().for_each(LogWriter::abort);
                    work.stage = Stage::Write;
                    self.fill_todo(&mut work);
                }
                self.work = Some(work);
                Err(trouble)
            }
        }
    }

    /// `true`: the flush is done.
    fn try_advance(&mut self, work: &mut Work) -> Result<bool, Trouble> {
        match work.stage {
            Stage::Write => {
                if !self.write_some(work)? {
                    work.stage = Stage::Finish;
                }
                Ok(false)
            }
            Stage::Finish => {
                self.finish_logs(work)?;
                work.stage = Stage::Checkpoint;
                Ok(false)
            }
            Stage::Checkpoint => {
                self.write_checkpoint(work.progress.clone(), false)?;
                Ok(true)
            }
        }
    }

    /// Pushes one ledger's entries of each directory. `false`: nothing was left.
    fn write_some(&mut self, work: &mut Work) -> Result<bool, Trouble> {
        let shared = &self.shared;
        let epoch = work.epoch;
        let one = |dir: usize, writer: &mut LogWriter, todo: &mut VecDeque<Arc<Ledger>>| {
            let Some(ledger) = todo.pop_front() else {
                return Ok(false);
            };
            push_ledger(writer, &ledger, epoch).map_err(|error| {
                let path = shared.dirs[dir].path.display();
                Trouble::of(format!("write an entry log in {path}"), error)
            })?;
            Ok(true)
        };
        let mut any = false;
        let dirs = self.writers.iter_mut().zip(&mut work.todo).enumerate();
        for (dir, (writer, todo)) in dirs {
            any |= one(dir, writer, todo)?;
        }
        Ok(any)
    }

    fn finish_logs(&mut self, work: &mut Work) -> Result<(), Trouble> {
        let mut written: HashMap<LedgerId, Vec<Written>> = HashMap::new();
        let mut bytes = 0;
        for (dir, writer) in self.writers.iter_mut().enumerate() {
            let found = writer.finish().map_err(|error| {
                let path = self.shared.dirs[dir].path.display();
                Trouble::of(format!("finish an entry log in {path}"), error)
            })?;
            for one in found {
                bytes += u64::from(one.run.end - one.run.start);
                written.entry(LedgerId(one.run.ledger)).or_default().push(one);
            }
        }
        let mut freed = 0;
        for ledger in &work.touched {
            let runs = written.remove(&ledger.id).unwrap_or_default();
            freed += install(&self.shared, ledger, work.epoch, runs);
            if freed >= FREED_ENTRIES {
                freed = 0;
                self.breathe();
            }
        }
        work.touched.clear();
        self.shared.cache.finish_flush();
        self.shared.ring_journals();
        bump(&self.shared.counters.flushes, u64::from(work.bytes > 0));
        bump(&self.shared.counters.flushed_bytes, bytes);
        self.collect_seals();
        Ok(())
    }

    /// Lets others at the memory: giving back a hundred thousand small pieces in one go keeps everybody else from asking for
    /// any, for tens of milliseconds. Not when appends are about to wait for the room.
    fn breathe(&self) {
        if !self.shared.is_stopping() && !self.shared.cache.is_nearly_full() {
            std::thread::sleep(BREATH);
        }
    }

    /// Of the ledgers whose seal waits: those whose entries are all in the logs.
    fn collect_seals(&mut self) {
        let parked = std::mem::take(&mut *self.shared.parked());
        for ledger in parked {
            let mut state = ledger.lock();
            if state.deleted || state.sealed.is_some() {
                continue;
            }
            let flushed = state.flushed >= state.entry_next;
            state.seal_by_checkpoint = flushed;
            drop(state);
            if flushed {
                self.sealing.push(ledger);
            } else {
                self.shared.parked().push(ledger);
            }
        }
    }

    fn set_no_space(&self, no_space: bool) {
        for journal in &self.shared.journals {
            journal.queue.set_no_flush_space(no_space);
        }
    }

    fn on_no_space(&mut self, now: Nanos) -> Pace {
        if self.shared.is_stopping() {
            return self.give_up();
        }
        let refused = self.shared.journals.iter().any(|j| j.queue.refuses_for_space());
        if self.work.is_some() && !refused {
            tracing::warn!("no space left for entry logs: appends are refused until there is");
        }
        self.set_no_space(self.work.is_some());
        self.retry_at = Some(Nanos(now.0 + RETRY.as_nanos() as u64));
        Pace::Again
    }

    /// While there is no room for more, old logs still go.
    fn step_without_room(&mut self, now: Nanos, retry_at: Nanos) -> Pace {
        if self.remove_one_log() {
            self.retry_at = None;
            return Pace::Again;
        }
        Pace::Wait(Some(Duration::from_nanos(retry_at.since(now).max(1))))
    }
}

/// Pushes what a ledger has in one half, unless it was deleted meanwhile.
fn push_ledger(writer: &mut LogWriter, ledger: &Ledger, epoch: u64) -> io::Result<()> {
    for number in 0.. {
        // Piece by piece, so that appends and reads never wait long for the lock.
        let piece = {
            let state = ledger.lock();
            state.chunks[(epoch & 1) as usize].pieces.get(number).cloned()
        };
        let Some(piece) = piece else { break };
        for (entry, cached) in (piece.first..).zip(&piece.entries) {
            writer.push(ledger.id.0, entry, &cached.payload, cached.crc)?;
        }
    }
    Ok(())
}

/// A ledger's entries of one half are durable in the logs: they are read from there now. Returns how many left memory.
fn install(shared: &Shared, ledger: &Ledger, epoch: u64, runs: Vec<Written>) -> usize {
    let chunk = {
        let mut state = ledger.lock();
        if state.deleted {
            return 0;
        }
        add_runs(
            shared,
            ledger.dir,
            &mut state.runs,
            runs.iter().map(|w| (w.log, &w.run)),
        );
        let bytes: u64 = runs.iter().map(|written| written.run.payload_bytes).sum();
        let chunk = std::mem::take(&mut state.chunks[(epoch & 1) as usize]);
        if let Some(piece) = chunk.pieces.last() {
            state.flushed = piece.end();
        }
        state.flushed_bytes += bytes;
        state.named_by = shared.generation() + 1;
        chunk
    };
    shared.cache.release(epoch, chunk.cost);
    // The entries themselves go here, without any lock.
    chunk.pieces.iter().map(|piece| piece.entries.len()).sum()
}

/// Adds runs of a locked ledger and counts them as live, and what they replace as dead.
pub(crate) fn add_runs<'a>(
    shared: &Shared,
    dir: u16,
    known: &mut crate::runs::Runs,
    runs: impl Iterator<Item = (u32, &'a IndexRun)>,
) {
    let mut logs = shared.logs(usize::from(dir));
    for (log, run) in runs {
        let run = Run::new(log, run);
        if let Some(log) = logs.by_id.get_mut(&log) {
            log.live_bytes += run.bytes();
        }
        for old in known.insert(run) {
            logs.release(old.log, old.bytes());
        }
    }
}

fn sooner(one: Pace, other: Pace) -> Pace {
    match (one, other) {
        (Pace::Wait(Some(one)), Pace::Wait(Some(other))) => Pace::Wait(Some(one.min(other))),
        (Pace::Wait(None), other) | (other, Pace::Wait(None)) => other,
        (one, _) => one,
    }
}

/// The flusher's thread.
pub(crate) fn run(mut flusher: Flusher) {
    // Nobody waits for it as long as the other half has room, and everybody for the threads whose cores it would take.
    crate::shared::yield_to_others("pharos-flush", NICENESS);
    flusher.pace_writes();
    let shared = Arc::clone(&flusher.shared);
    loop {
        match flusher.step(clock::now()) {
            Pace::Again => {}
            Pace::Wait(timeout) => shared.flush_bell.wait(timeout),
            Pace::Stopped => break,
        }
    }
}
