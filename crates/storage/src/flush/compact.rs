//! Emptying mostly dead entry logs: what is still needed is copied to the log that is being written.
//!
//! ```text
//!  choose a log ─► run by run: read, check, push ─► finish: durable ─► ledgers name the copy ─► … ─► checkpoint ─► remove
//! ```
//! The old records stay until a checkpoint names the copies, so a crash at any point leaves one good copy of each.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use pharos_runtime::Nanos;
use pharos_storage_format::file::LogFile;
use pharos_storage_format::file::read_up_to;
use pharos_storage_format::log_header::LOG_DATA_AT;
use pharos_storage_format::record::RecordHeader;
use pharos_storage_format::runs::Run;

use super::{Flusher, Trouble, add_runs};
use crate::ledgers::Ledger;
use crate::logs::Log;
use crate::shared::Pace;
use crate::stats::bump;

/// Bytes copied in one round, more when a run is longer.
const ROUND_BYTES: u64 = 1 << 20;

/// Logs this many times smaller than usual are small.
const SMALL_PART: u64 = 16;

/// A log of which no more than this is live, in percent, is not left for the next round of its kind: a ledger that lives long and
/// gets little (a log of cursors) has something in each log, and would hold them all.
const NEARLY_DEAD_PERCENT: u8 = 4;

/// Interval of the search for such logs.
const NEARLY_DEAD_INTERVAL: Duration = Duration::from_secs(15);

/// Interval of the search for logs while a device has no room: copies may be no denser than what they were made of.
const SHORT_INTERVAL: Duration = Duration::from_secs(1);

/// Number of small logs that is too many: they come from restarts and are merged.
const SMALL_LOGS_MAX: usize = 8;

/// Schedule of compaction, and the log that is being emptied.
#[derive(Debug, Default)]
pub(super) struct Compactor {
    active: Option<Compaction>,
    /// Start of the last round of each kind.
    nearly_dead_at: Option<Nanos>,
    /// Start of the last round for lack of room.
    short_at: Option<Nanos>,
    minor_at: Option<Nanos>,
    major_at: Option<Nanos>,
    /// In this round logs below this live share, in percent, are chosen.
    threshold: u8,
    /// By directory: only logs before this one are chosen, so that a round ends, however thinly copies are spread.
    before: Vec<u32>,
}

#[derive(Debug)]
struct Compaction {
    dir: usize,
    file: Arc<LogFile>,
    /// Runs still to be copied, the next one last.
    todo: Vec<(Arc<Ledger>, Run)>,
    /// No further round before this, to keep the rate.
    not_before: Nanos,
}

impl Flusher {
    /// Goes on with a compaction, or looks for a log that deserves one.
    pub(super) fn step_compaction(&mut self, now: Nanos) -> Result<Pace, Trouble> {
        let Some(mut active) = self.compaction.active.take() else {
            let wait = self.set_threshold(now);
            if self.compaction.before.is_empty() {
                let dirs = 0..self.writers.len();
                self.compaction.before = dirs.map(|dir| self.shared.logs(dir).next).collect();
            }
            self.compaction.active = self.find_candidate();
            return Ok(match &self.compaction.active {
                Some(_) => Pace::Again,
                None => {
                    self.compaction.threshold = 0;
                    self.compaction.before.clear();
                    Pace::Wait(wait)
                }
            });
        };
        let early = active.not_before.since(now);
        if early > 0 {
            self.compaction.active = Some(active);
            return Ok(Pace::Wait(Some(Duration::from_nanos(early))));
        }
        if active.todo.is_empty() {
            self.end_compaction(&active);
            return Ok(Pace::Again);
        }
        let copied = self.copy_round(&mut active)?;
        let rate = self.shared.options.compact_bytes_per_s.max(1);
        let pause = copied.saturating_mul(1_000_000_000) / rate;
        active.not_before = Nanos(now.0.saturating_add(pause));
        self.compaction.active = Some(active);
        Ok(Pace::Again)
    }

    /// Decides which logs are chosen now; says how long until that changes.
    fn set_threshold(&mut self, now: Nanos) -> Option<Duration> {
        let options = &self.shared.options;
        let short = self.shared.journals.iter().any(|j| j.queue.refuses_for_space());
        let mut waits = Vec::new();
        if short {
            let again_in = self.compaction.short_at.map_or(0, |at| {
                (SHORT_INTERVAL.as_nanos() as u64).saturating_sub(now.since(at))
            });
            if again_in == 0 {
                self.compaction.short_at = Some(now);
                self.compaction.threshold = options.major_compaction_percent;
            }
            waits.push(Duration::from_nanos(again_in).max(Duration::from_millis(1)));
        }
        let mut kind = |at: &mut Option<Nanos>, interval: Duration, percent: u8, threshold: &mut u8| {
            if interval.is_zero() || percent == 0 {
                return;
            }
            // The first round is a whole interval after the start.
            let since = Duration::from_nanos(now.since(*at.get_or_insert(now)));
            if since >= interval {
                *at = Some(now);
                *threshold = percent.max(*threshold);
            }
            waits.push(interval.saturating_sub(since).max(Duration::from_millis(1)));
        };
        let Compactor {
            nearly_dead_at,
            minor_at,
            major_at,
            threshold,
            ..
        } = &mut self.compaction;
        let (minor, major) = (
            options.minor_compaction_interval,
            options.major_compaction_interval,
        );
        let nearly_dead = options.minor_compaction_percent.min(NEARLY_DEAD_PERCENT);
        kind(
            nearly_dead_at,
            minor.min(NEARLY_DEAD_INTERVAL),
            nearly_dead,
            threshold,
        );
        kind(minor_at, minor, options.minor_compaction_percent, threshold);
        kind(major_at, major, options.major_compaction_percent, threshold);
        waits.into_iter().min()
    }

    fn find_candidate(&self) -> Option<Compaction> {
        let options = &self.shared.options;
        let threshold = u64::from(self.compaction.threshold);
        for dir in 0..self.writers.len() {
            let logs = self.shared.logs(dir);
            let before = self.compaction.before.get(dir).copied().unwrap_or(0);
            let usable = |log: &&Log| log.closed && !log.pinned && log.live_bytes > 0 && log.file.id < before;
            let share =
                |log: &Log| log.live_bytes.saturating_mul(100) / log.end.saturating_sub(LOG_DATA_AT).max(1);
            let lowest = logs.by_id.values().filter(usable).min_by_key(|log| share(log));
            let dead = lowest.filter(|log| share(log) < threshold);
            let small = |log: &&Log| usable(log) && log.end < options.entry_log_bytes / SMALL_PART;
            let many = logs.by_id.values().filter(small).count() >= SMALL_LOGS_MAX;
            let found = dead.or_else(|| logs.by_id.values().find(small).filter(|_| many));
            let file = found.map(|log| Arc::clone(&log.file));
            drop(logs);
            if let Some(file) = file {
                let todo = self.runs_in(&file);
                return Some(Compaction {
                    dir,
                    file,
                    todo,
                    not_before: Nanos::default(),
                });
            }
        }
        None
    }

    fn runs_in(&self, file: &LogFile) -> Vec<(Arc<Ledger>, Run)> {
        let mut ledgers = self.shared.ledgers.all();
        ledgers.retain(|ledger| ledger.dir == file.dir);
        ledgers.sort_unstable_by_key(|ledger| ledger.id);
        let mut todo = Vec::new();
        for ledger in ledgers {
            let state = ledger.lock();
            let here = state.runs.iter().filter(|run| run.log == file.id).cloned();
            todo.extend(here.map(|run| (Arc::clone(&ledger), run)));
        }
        todo.reverse();
        todo
    }

    /// Copies some runs and lets their ledgers name the copies.
    fn copy_round(&mut self, active: &mut Compaction) -> Result<u64, Trouble> {
        let mut copied = 0;
        let mut moved = Vec::new();
        let mut damaged = false;
        while copied < ROUND_BYTES
            && let Some((ledger, run)) = active.todo.pop()
        {
            if ledger.lock().deleted {
                continue;
            }
            let Some(entries) = read_run(&active.file, &ledger, &run) else {
                tracing::error!(
                    ledger = ledger.id.0, first = run.first, entries = run.count,
                    file = %active.file.path.display(), "damaged entries cannot be moved"
                );
                damaged = true;
                continue;
            };
            copied += run.bytes();
            let writer = &mut self.writers[active.dir];
            let pushed = entries
                .iter()
                .try_for_each(|(entry, payload, crc)| writer.push(ledger.id.0, *entry, payload, *crc));
            if let Err(error) = pushed {
                return Err(self.fail_round(active, error));
            }
            moved.push(ledger);
        }
        if damaged && let Some(log) = self.shared.logs(active.dir).by_id.get_mut(&active.file.id) {
            log.pinned = true;
        }
        if moved.is_empty() {
            return Ok(0);
        }
        let written = match self.writers[active.dir].finish() {
            Ok(written) => written,
            Err(error) => return Err(self.fail_round(active, error)),
        };
        moved.dedup_by_key(|ledger| ledger.id);
        for ledger in moved {
            let mut state = ledger.lock();
            if !state.deleted {
                let runs = written.iter().filter(|one| one.run.ledger == ledger.id.0);
                add_runs(
                    &self.shared,
                    ledger.dir,
                    &mut state.runs,
                    runs.map(|w| (w.log, &w.run)),
                );
            }
        }
        bump(&self.shared.counters.bytes_moved, copied);
        if let Some(log) = self.shared.logs(active.dir).by_id.get_mut(&active.file.id) {
            log.moved_before = Some(self.shared.generation() + 1);
        }
        Ok(copied)
    }

    fn fail_round(&mut self, active: &Compaction, error: io::Error) -> Trouble {
        self.writers[active.dir].abort();
        let what = format!("copy entries out of {}", active.file.path.display());
        Trouble::of(what, error)
    }

    fn end_compaction(&mut self, active: &Compaction) {
        let mut logs = self.shared.logs(active.dir);
        let Some(log) = logs.by_id.get_mut(&active.file.id) else {
            return;
        };
        if log.live_bytes > 0 {
            // Whatever is still live cannot be moved; do not try for ever.
            log.pinned = true;
        }
        self.checkpoint_wanted |= log.moved_before.is_some();
    }
}

/// All entries of a run; none when anything in it is not as it was written.
fn read_run(file: &LogFile, ledger: &Ledger, run: &Run) -> Option<Vec<(u64, Bytes, u32)>> {
    let bytes = usize::try_from(run.bytes()).ok()?;
    let data = read_up_to(&*file.file, u64::from(run.start), bytes).ok()?;
    let mut entries = Vec::new();
    let mut at = 0;
    for entry in run.first..run.end_entry() {
        let record = data.get(at..)?;
        let header = RecordHeader::decode(record, file.salt)?;
        if header.ledger != ledger.id.0 || header.value != entry {
            return None;
        }
        let body = header.body(record)?;
        entries.push((entry, data.slice_ref(body), header.body_crc));
        at += header.total_bytes();
    }
    Some(entries)
}
