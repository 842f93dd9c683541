//! The flusher: from the write cache to the entry logs, the checkpoint, and old logs.
//!
//! ```text
//!                ┌► share: write (ledger by ledger, sorted) ─► finish: synced, indexed ─► install: runs in, memory out ─┐
//!  idle ─► swap ─┼► share …                                                                                             ─┤
//!    ▲           └► share …                                                                                             ─┤
//!    └── old logs, compaction ◄── journals may be trimmed ◄── checkpoint ◄──────────────────────────── all are done ─────┘
//! ```
//! One thread calls [`Flusher::step`] in a loop ([`run`]); tests call it themselves, so that anything can happen between
//! two steps. It is the only writer of entry logs, indexes and checkpoints. A half is written, finished and installed in
//! shares, one for each ledger directory ([`share`]). With several directories each share runs on a thread of its own while the
//! flusher's thread waits for all of them; the rest is done by that thread alone. How fast a share goes depends on how
//! soon an append will wait for it ([`pacer`]).
//!
//! The order matters (1 to 3 within a share); a crash between any two steps finds every entry in a journal behind its mark
//! or in a log:
//! 1. data of the logs synced, 2. their indexes, 3. the names of new files,
//! 4. the checkpoint under a temporary name synced, renamed, the directory synced,
//! 5. only now journal segments go, and logs that were emptied by copying.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use pharos_ledger::StorageFault;
use pharos_runtime::fs::{is_no_space, is_transient};
use pharos_runtime::sync::thread;
use pharos_runtime::{Nanos, clock};
use pharos_storage_format::file::LogFile;
use pharos_storage_format::index_batch::IndexRun;
use pharos_storage_format::runs::{Run, Runs};

use crate::cache::{JournalProgress, Swapped};
use crate::ledgers::Ledger;
use crate::removals::Removals;
use crate::shared::{BUFFERS_KEPT, Pace, Part, Shared};
use crate::stats::bump;

mod checkpoint;
mod compact;
mod finish;
pub(crate) mod gc;
mod log_writer;
mod pacer;
mod room;
mod share;

pub(crate) use checkpoint::store as store_checkpoint;
use log_writer::LogWriter;
use pacer::Rests;
use share::Share;

/// After so long without a new entry the write cache gives its memory back, however young the entries are.
const QUIET: Duration = Duration::from_secs(15);
/// Steps for other things that the flusher takes between two flushes, although the next one is due: under load it always is.
const TURNS: u8 = 8;
/// With less than this in it that can wait for the flush interval: a checkpoint costs more than the memory.
const QUIET_BYTES_MIN: u64 = 4 << 20;

#[derive(Debug)]
pub(crate) struct Flusher {
    shared: Arc<Shared>,
    /// By directory.
    writers: Vec<LogWriter>,
    work: Option<Work>,
    /// Time of its last work.
    worked_at: Nanos,
    /// Ledgers whose entries are flushed and whose seal the next checkpoint brings.
    sealing: Vec<Arc<Ledger>>,
    /// Something waits for a checkpoint although nothing is to be flushed.
    checkpoint_wanted: bool,
    compaction: compact::Compactor,
    /// Steps for other things that are left before the next flush.
    turns: u8,
    removals: Removals<LogFile>,
    retry_at: Option<Nanos>,
    /// Reserves that are not there are looked after then.
    reserve_at: Nanos,
    /// Number of tries of the end that met a transient error.
    end_tries: u32,
    /// True if it has a thread to itself, which may sleep.
    is_alone: bool,
    /// Directories are flushed by threads of their own.
    is_parallel: bool,
    finished: bool,
}

/// Half of the write cache on its way to the logs.
#[derive(Debug)]
struct Work {
    bytes: u64,
    progress: Vec<JournalProgress>,
    /// By directory.
    shares: Vec<Share>,
    /// All shares are done; the checkpoint is left.
    settled: bool,
}

/// Failure of a step.
enum Trouble {
    NoSpace,
    /// Transient failure: the same step is tried again later.
    Later(Arc<StorageFault>),
    Fault(Arc<StorageFault>),
}

impl Trouble {
    fn of(what: String, error: io::Error) -> Self {
        if is_no_space(&error) {
            Self::NoSpace
        } else if is_transient(&error) {
            Self::Later(StorageFault::transient(what, error))
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
            worked_at: Nanos::default(),
            sealing: Vec::new(),
            checkpoint_wanted: false,
            compaction: compact::Compactor::default(),
            turns: 0,
            removals: Removals::default(),
            retry_at: None,
            reserve_at: Nanos::default(),
            end_tries: 0,
            is_alone: false,
            is_parallel: false,
            finished: false,
        }
    }

    /// Marks that it has a thread to itself from now on: writes are held to the rate of the options, and a flush that
    /// no append waits for rests between its pieces; the time for that is slept.
    fn run_alone(&mut self) {
        self.is_alone = true;
        self.is_parallel = true;
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
            Ok(pace) => {
                self.shared.end_trouble(Part::Flusher);
                pace
            }
            Err(Trouble::Later(fault)) => self.on_refused(&fault, now),
            Err(Trouble::Fault(fault)) => {
                self.shared.set_poison(fault);
                Pace::Again
            }
            Err(Trouble::NoSpace) => self.on_no_space(now),
        }
    }

    fn try_step(&mut self, now: Nanos) -> Result<Pace, Trouble> {
        let removals = self.step_removals(now);
        let reads = self.shared.extents.age(now);
        if let Some(work) = self.work.take() {
            self.worked_at = now;
            self.work = self.advance(work)?;
            if self.work.is_none() {
                self.turns = TURNS;
                if self.are_reserves_whole() {
                    self.set_no_space(false);
                }
            }
            return Ok(Pace::Again);
        }
        if self.shared.is_stopping() {
            return self.step_to_end(now);
        }
        if self.is_flush_due(now) {
            if !self.take_turn(now)? {
                self.begin(now);
            }
            return Ok(Pace::Again);
        }
        if self.checkpoint_wanted {
            self.write_checkpoint(self.shared.all_checkpointed(), false)?;
            return Ok(Pace::Again);
        }
        if self.remove_one_log(now) {
            return Ok(Pace::Again);
        }
        let reserves = self.keep_reserves(now)?;
        if reserves == Pace::Again {
            return Ok(Pace::Again);
        }
        let compaction = self.step_compaction(now)?;
        if compaction == Pace::Again {
            return Ok(Pace::Again);
        }
        let compaction = compaction.sooner(reserves);
        let pace = compaction.sooner(Pace::Wait(removals)).sooner(self.rest(now));
        let pace = pace.sooner(Pace::Wait(Some(reads)));
        Ok(pace.sooner(Pace::Wait(self.until_flush(now))))
    }

    /// A step of what gives room back, although a flush is due; `false`: there is none, or there were enough since the last flush.
    /// Where room is short the flush comes first, since it frees the journals; so it does when a step fails for what passes.
    fn take_turn(&mut self, now: Nanos) -> Result<bool, Trouble> {
        let left = std::mem::take(&mut self.turns);
        if left == 0 || self.checkpoint_wanted || self.is_refused() {
            return Ok(false);
        }
        let did = self.remove_one_log(now)
            || match self.step_compaction(now) {
                Ok(pace) => pace == Pace::Again,
                Err(Trouble::NoSpace | Trouble::Later(_)) => false,
                Err(fault) => return Err(fault),
            };
        if did {
            self.turns = left - 1;
        }
        Ok(did)
    }

    /// Makes what is left of removed logs shorter, when it is time; says how long until the next step.
    fn step_removals(&mut self, now: Nanos) -> Option<Duration> {
        let shared = &self.shared;
        let is_short = shared
            .journals
            .iter()
            .any(|journal| journal.queue.refuses_for_space());
        if is_short {
            self.removals.finish(&*shared.fs);
        }
        self.removals.step(&*shared.fs, &shared.options, now)
    }

    /// Gives the buffers for writing back, some time after they were needed.
    fn rest(&mut self, now: Nanos) -> Pace {
        if !self.writers.iter().any(LogWriter::has_buffer) {
            return Pace::Wait(None);
        }
        let idle = Duration::from_nanos(now.since(self.worked_at));
        let left = BUFFERS_KEPT.saturating_sub(idle);
        if !left.is_zero() {
            return Pace::Wait(Some(left));
        }
        for writer in &mut self.writers {
            writer.rest();
        }
        Pace::Wait(None)
    }

    fn is_flush_due(&self, now: Nanos) -> bool {
        let shared = &self.shared;
        // What is only promised to a group that is being written is not here to be flushed: no flush would make more room.
        (shared.cache.fill().bytes > 0 && shared.cache.is_nearly_full())
            || shared.flush_wanted.load(Ordering::Acquire)
            || !shared.parked().is_empty()
            || self.until_flush(now) == Some(Duration::ZERO)
            || shared.is_journal_long()
            || self.would_free_segments()
    }

    /// Returns the time until the next flush: when the oldest entry in memory is old enough, or when so much memory
    /// has received no new entry for so long that it is given back. Before that it is the time of the next look.
    fn until_flush(&self, now: Nanos) -> Option<Duration> {
        let fill = self.shared.cache.fill();
        let age = Duration::from_nanos(now.since(fill.since?));
        let quiet = Duration::from_nanos(now.since(fill.last));
        let left = self.shared.options.flush_interval.saturating_sub(age);
        let until_quiet = match QUIET.saturating_sub(quiet) {
            Duration::ZERO if fill.bytes < QUIET_BYTES_MIN => QUIET,
            until_quiet => until_quiet,
        };
        Some(left.min(until_quiet))
    }

    fn begin(&mut self, now: Nanos) {
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
            since,
        } = swapped;
        let took = Duration::from_nanos(since.map_or(0, |since| now.since(since)));
        let rests = match pacer::is_slow(bytes, took, self.shared.cache.half_bytes()) {
            _ if !self.is_alone => Rests::None,
            true => Rests::Long,
            false => Rests::Short,
        };
        self.work = Some(Work {
            bytes,
            progress,
            shares: self.shares(epoch, touched, rests, now),
            settled: false,
        });
    }

    /// Returns each directory's share of a half.
    fn shares(&self, epoch: u64, touched: Vec<Arc<Ledger>>, rests: Rests, began: Nanos) -> Vec<Share> {
        let mut by_dir = vec![Vec::new(); self.writers.len()];
        for ledger in touched {
            if let Some(ledgers) = by_dir.get_mut(usize::from(ledger.dir)) {
                ledgers.push(ledger);
            }
        }
        let share = |ledgers| Share::new(&self.shared, epoch, ledgers, rests, began);
        by_dir.into_iter().map(share).collect()
    }

    /// Runs a step of a flush. On an error the work is kept; the part that failed begins again.
    fn advance(&mut self, mut work: Work) -> Result<Option<Work>, Trouble> {
        match self.try_advance(&mut work) {
            Ok(true) => Ok(None),
            Ok(false) => Ok(Some(work)),
            Err(trouble) => {
                self.work = Some(work);
                Err(trouble)
            }
        }
    }

    /// `true`: the flush is done.
    fn try_advance(&mut self, work: &mut Work) -> Result<bool, Trouble> {
        if work.settled {
            self.write_checkpoint(work.progress.clone(), false)?;
            return Ok(true);
        }
        match work.shares.iter().filter(|share| !share.is_done()).count() {
            0 => self.settle(work),
            1 => self.step_shares(work)?,
            _ if self.is_parallel => self.run_shares(work)?,
            _ => self.step_shares(work)?,
        }
        Ok(false)
    }

    /// All directories at once, each to its end on a thread of its own: a slow device holds up its own ledgers only. The
    /// memory of the others is free before it is done; the checkpoint and the next swap wait for all.
    fn run_shares(&mut self, work: &mut Work) -> Result<(), Trouble> {
        let shared = &self.shared;
        let undone = self.writers.iter_mut().zip(&mut work.shares);
        let undone = undone.filter(|(_, share)| !share.is_done());
        let run = |writer, share: &mut Share| {
            let ran = share.run(writer);
            if let Err(Trouble::Fault(fault)) = &ran {
                // At once, so that no other thread writes any more.
                shared.set_poison(Arc::clone(fault));
            }
            ran
        };
        let joined: Vec<_> = thread::scope(|scope| {
            let start =
                |(writer, share)| thread::spawn_scoped(scope, "pharos-flush", move || run(writer, share));
            let threads: Vec<_> = undone.map(start).collect();
            let join =
                |thread: io::Result<thread::ScopedJoinHandle<'_, _>>| thread.map(|thread| thread.join());
            threads.into_iter().map(join).collect()
        });
        let mut all = Ok(());
        for one in joined {
            match one {
                Ok(Ok(ran)) => all = worse(all, ran),
                Ok(Err(panic)) => std::panic::resume_unwind(panic),
                Err(error) => {
                    tracing::warn!(%error, "no thread for each ledger directory: they are flushed by one from now on");
                    self.is_parallel = false;
                }
            }
        }
        all
    }

    /// Runs a step of each directory. A directory without room does not keep the others from going on.
    fn step_shares(&mut self, work: &mut Work) -> Result<(), Trouble> {
        let mut stepped = Ok(());
        for (writer, share) in self.writers.iter_mut().zip(&mut work.shares) {
            if !share.is_done() {
                stepped = worse(stepped, share.step(writer));
            }
        }
        stepped
    }

    /// All of a half is in the logs and out of memory.
    fn settle(&mut self, work: &mut Work) {
        work.settled = true;
        self.shared.cache.finish_flush();
        self.shared.ring_journals();
        bump(&self.shared.counters.flushes, u64::from(work.bytes > 0));
        self.collect_seals();
    }

    /// Collects the ledgers whose seal waits and whose entries are all in the logs.
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
}

/// Adds runs of a locked ledger and counts them as live, and what they replace as dead.
pub(crate) fn add_runs<'a>(
    shared: &Shared,
    dir: u16,
    known: &mut Runs,
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

/// Returns the worse of two outcomes: a fault, then a lack of room.
fn worse(one: Result<(), Trouble>, other: Result<(), Trouble>) -> Result<(), Trouble> {
    match (&one, &other) {
        (Ok(()), _) | (Err(Trouble::NoSpace | Trouble::Later(_)), Err(Trouble::Fault(_))) => other,
        _ => one,
    }
}

/// The flusher's thread.
pub(crate) fn run(mut flusher: Flusher) {
    flusher.run_alone();
    let shared = Arc::clone(&flusher.shared);
    loop {
        match flusher.step(clock::now()) {
            Pace::Again => {}
            Pace::Wait(timeout) => shared.flush_bell.wait(timeout),
            Pace::Stopped => break,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use pharos_runtime::fs::FaultFs;

    use super::*;
    use crate::storage::Parts;
    use crate::{Options, Storage};

    #[test]
    fn room_that_is_promised_and_not_used_yet_is_not_flushed() {
        let (dir, fs) = (Path::new("/store"), FaultFs::new(1));
        let parts = Storage::open_parts(fs.mount(), dir, Options::default(), true).unwrap();
        let Parts {
            storage, mut flusher, ..
        } = parts;
        let cache = &flusher.shared.clone().cache;
        cache.reserve(cache.half_bytes());
        let now = clock::now();
        let rounds = (0..100).take_while(|_| flusher.step(now) == Pace::Again);
        assert!(rounds.count() < 100, "it flushes nothing again and again");
        drop(storage);
    }
}
