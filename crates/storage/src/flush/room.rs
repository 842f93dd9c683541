//! Handling of a temporary lack of resources in the flusher: room on a device, or a file.
//!
//! ```text
//!  no room ─► the reserves go, appends are refused ─► the same again ─► still none: every 200 ms again
//!                                                        └► … ─► nothing to do and room: the reserves, then appends
//! ```
//! Always true: while a reserve is not there, appends are refused, so they do not take the room that it was given up
//! for.

use std::sync::Arc;
use std::time::Duration;

use pharos_ledger::StorageFault;
use pharos_runtime::Nanos;
use pharos_runtime::fs::{FsFile, OpenHow};

use super::{Flusher, Trouble};
use crate::shared::{JournalShared, Pace, Part};
use crate::stats::bump;

/// Pause before the next try for what was not available.
const RETRY: Duration = Duration::from_millis(200);

/// Pause where each try costs some changes to the device.
const PAUSE: Duration = Duration::from_secs(1);

/// Number of tries of the end of a store after transient errors: five seconds of them.
const END_TRIES: u32 = 25;

impl Flusher {
    pub(super) fn set_no_space(&self, no_space: bool) {
        for journal in &self.shared.journals {
            if journal.queue.set_no_flush_space(no_space) {
                // The preparer has spares to give up, or may go on.
                journal.bell.ring();
            }
        }
    }

    pub(super) fn is_refused(&self) -> bool {
        let refuses = |journal: &JournalShared| journal.queue.refuses_for_space();
        self.shared.journals.iter().any(refuses)
    }

    /// True if some journal lacks a segment, and has old ones that a flush and a checkpoint would free.
    pub(super) fn would_free_segments(&self) -> bool {
        let shared = &self.shared;
        shared.journals.iter().enumerate().any(|(number, journal)| {
            let sequence = shared.checkpointed(number).mark.sequence;
            let waits = |journal: &JournalShared| {
                let segments = journal.segments();
                segments
                    .by_id
                    .values()
                    .any(|s| s.closed && !s.damaged && !s.stuck && s.sequence > sequence)
            };
            journal.queue.has_no_space() && waits(journal)
        })
    }

    /// A step found no room.
    pub(super) fn on_no_space(&mut self, now: Nanos) -> Pace {
        let is_refused = self.is_refused();
        let is_needed =
            self.work.is_some() || self.checkpoint_wanted || is_refused || self.shared.is_stopping();
        if is_needed && self.give_up_reserves() {
            if !is_refused {
                tracing::warn!("no space left for entry logs: appends are refused until there is");
            }
            self.set_no_space(true);
            return Pace::Again;
        }
        if self.shared.is_stopping() {
            return self.give_up();
        }
        if is_needed {
            if !is_refused {
                tracing::warn!("no space left for entry logs: appends are refused until there is");
            }
            self.set_no_space(true);
        }
        // With the reserves it was still too little. They are kept again until the next try, or others would have the room.
        let kept = self.restore_reserves();
        self.retry_at = Some(later(now, PAUSE));
        match kept {
            Err(Trouble::Fault(fault)) => self.shared.set_poison(fault),
            Ok(()) | Err(Trouble::NoSpace | Trouble::Later(_)) => {}
        }
        Pace::Again
    }

    /// A step met something else that passes.
    pub(super) fn on_refused(&mut self, fault: &Arc<StorageFault>, now: Nanos) -> Pace {
        self.shared.note_trouble(Part::Flusher, fault, now);
        if !self.shared.is_stopping() {
            self.retry_at = Some(later(now, RETRY));
            return Pace::Again;
        }
        self.end_tries += 1;
        if self.end_tries > END_TRIES {
            return self.give_up();
        }
        Pace::Wait(Some(RETRY))
    }

    /// While there is no room for more, old logs still go.
    pub(super) fn step_without_room(&mut self, now: Nanos, retry_at: Nanos) -> Pace {
        let begun = self.remove_one_log(now);
        if self.removals.finish(&*self.shared.fs) || begun {
            self.retry_at = None;
            return Pace::Again;
        }
        Pace::Wait(Some(Duration::from_nanos(retry_at.since(now).max(1))))
    }

    pub(super) fn are_reserves_whole(&self) -> bool {
        self.shared.dirs.iter().all(|dir| dir.reserve.is_whole())
    }

    /// `true`: there was one.
    fn give_up_reserves(&mut self) -> bool {
        if self.shared.options.ledger_reserve_bytes == 0 {
            return false;
        }
        let mut any = false;
        for dir in &self.shared.dirs {
            let given_up = dir.reserve.give_up(&*self.shared.fs, &dir.path);
            bump(&self.shared.counters.reserves_used, u64::from(given_up));
            any |= given_up;
        }
        any
    }

    /// Keeps room back where that is not so; appends may go on once it is so everywhere.
    pub(super) fn keep_reserves(&mut self, now: Nanos) -> Result<Pace, Trouble> {
        if self.are_reserves_whole() {
            // Whatever did not find room does not need it any more.
            if self.shared.journals.iter().any(|j| j.queue.lacks_flush_space()) {
                self.set_no_space(false);
                return Ok(Pace::Again);
            }
            return Ok(Pace::Wait(None));
        }
        if now < self.reserve_at {
            return Ok(Pace::Wait(Some(Duration::from_nanos(self.reserve_at.since(now)))));
        }
        self.reserve_at = later(now, RETRY);
        match self.restore_reserves() {
            Ok(()) => Ok(Pace::Again),
            Err(Trouble::NoSpace) => {
                if !self.is_refused() {
                    tracing::warn!("no space left to keep any back: appends are refused until there is");
                }
                self.set_no_space(true);
                Ok(Pace::Wait(Some(RETRY)))
            }
            Err(trouble) => Err(trouble),
        }
    }

    fn restore_reserves(&self) -> Result<(), Trouble> {
        let bytes = self.shared.options.ledger_reserve_bytes;
        for dir in self.shared.dirs.iter().filter(|dir| !dir.reserve.is_whole()) {
            let fill = |file: &dyn FsFile| {
                file.allocate(bytes)?;
                file.sync_data()
            };
            let kept = dir
                .reserve
                .keep(&*self.shared.fs, &dir.path, OpenHow::CREATE, fill);
            kept.map_err(|error| {
                Trouble::of(
                    format!("keep {bytes} bytes back in {}", dir.path.display()),
                    error,
                )
            })?;
        }
        Ok(())
    }
}

fn later(now: Nanos, pause: Duration) -> Nanos {
    Nanos(now.0 + pause.as_nanos() as u64)
}
