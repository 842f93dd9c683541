//! Rolling: a new cursor ledger that begins with a snapshot takes the old one's place.

use std::sync::Arc;

use bytes::Bytes;
use pharos_ledger::{BoxFuture, CreateError, FaultKind, LedgerWriter};

use super::CursorLog;
use super::commit::Target;
use crate::error::{CommitError, InfoError};

/// A step that failed is tried again after this.
const RETRY_MS: u64 = 1_000;

/// The cursor of which the ledger is said to be, where Pulsar's tools look.
const CURSOR_LOG: &str = "pharos.cursors";

/// Progress of a roll.
pub(super) enum Roll {
    Idle,
    Creating,
    /// The snapshot is queued; changes go to both ledgers.
    Copying {
        target: Target,
        is_naming: bool,
    },
}

impl Roll {
    pub(super) fn target(&self) -> Option<&Target> {
        if let Self::Copying { target, .. } = self {
            Some(target)
        } else {
            None
        }
    }

    pub(super) fn target_mut(&mut self) -> Option<&mut Target> {
        if let Self::Copying { target, .. } = self {
            Some(target)
        } else {
            None
        }
    }
}

/// The result of one step; give it to [`CursorLog::on_maintenance`] unseen.
pub struct RollDone(Done);

enum Done {
    Created(Result<Arc<dyn LedgerWriter>, CreateError>),
    Named(Result<(), CommitError>),
    Retired,
}

/// Result of a step.
#[derive(Debug)]
pub enum RollEvent {
    /// Nothing that others need to know.
    Nothing,
    /// The log is in a new ledger.
    Rolled,
    /// The step failed and will be tried again; worth a log line.
    Retrying(CommitError),
    /// The cursor log is finished: reopen the topic.
    Failed(CommitError),
}

impl CursorLog {
    /// The next slow step to run, if there is one; to be called and given back as
    /// [`ManagedLedger::take_maintenance`](crate::ManagedLedger::take_maintenance) is: after commits, after each step and about once a second.
    ///
    /// Cancel safety: a future that is dropped unfinished stalls its step; reopen then.
    pub fn take_maintenance(&mut self, now_ms: u64) -> Option<BoxFuture<'static, RollDone>> {
        self.flush();
        if self.is_failed() || now_ms < self.retry_at_ms {
            return None;
        }
        if let Some(step) = self.retire() {
            return Some(step);
        }
        let is_due = self.is_roll_due();
        // What the engine has not taken would be waited for in vain.
        let is_flushed = self.targets().all(|target| target.queued_bytes == 0);
        match &mut self.roll {
            Roll::Idle if is_due => {
                self.roll = Roll::Creating;
                let engine = Arc::clone(&self.engine);
                let options = self.options.create_options(&self.info, CURSOR_LOG);
                Some(Box::pin(async move {
                    RollDone(Done::Created(engine.create(options).await))
                }))
            }
            Roll::Copying {
                is_naming: is_naming @ false,
                ..
            } if is_flushed => {
                *is_naming = true;
                Some(self.name_copy())
            }
            Roll::Idle | Roll::Creating | Roll::Copying { .. } => None,
        }
    }

    /// Takes the result of a step.
    pub fn on_maintenance(&mut self, done: RollDone, now_ms: u64) -> RollEvent {
        match done.0 {
            Done::Created(Ok(writer)) => {
                self.begin_copy(writer);
                RollEvent::Nothing
            }
            Done::Created(Err(error)) => {
                self.roll = Roll::Idle;
                self.retry_at_ms = now_ms + RETRY_MS;
                let error = CommitError::from(error);
                self.tell_waiting(&error);
                RollEvent::Retrying(error)
            }
            Done::Named(Ok(())) => self.on_named(),
            Done::Named(Err(error)) => self.on_not_named(error, now_ms),
            Done::Retired => RollEvent::Nothing,
        }
    }

    /// There is no ledger for what was queued, and another try comes later: each caller that waits hears of that now.
    fn tell_waiting(&mut self, error: &CommitError) {
        for waiter in self.waiting.drain(..).chain(self.waiting_copy.drain(..)) {
            // Who gave up waiting does not mind.
            let _ = waiter.send(Err(error.clone()));
        }
    }

    /// True if the log has grown enough, or has no ledger for queued records.
    pub(super) fn is_roll_due(&self) -> bool {
        let Some(primary) = &self.primary else {
            return self.is_unwritten;
        };
        self.is_unwritten
            || primary.bytes
                > self
                    .options
                    .roll_bytes_min
                    .max(self.snapshot_bytes * self.options.roll_factor)
    }

    /// Step 2. The open chunk belongs before the snapshot: to the old ledger only.
    fn begin_copy(&mut self, writer: Arc<dyn LedgerWriter>) {
        self.seal_chunk();
        let mut target = Target::new(writer);
        for entry in self.mirror.snapshot(self.options.entry_bytes) {
            target.push(Bytes::from(entry));
        }
        self.snapshot_bytes = target.bytes;
        self.is_cut_off = std::mem::take(&mut self.is_unwritten);
        self.waiting_copy.append(&mut self.waiting);
        self.roll = Roll::Copying {
            target,
            is_naming: false,
        };
        self.flush();
    }

    /// Step 3. Both ledgers must be durable as far as they are now: tickets given out before wait for the old one. It is still
    /// written until the naming is heard of, so it is deleted by a step of its own.
    fn name_copy(&self) -> BoxFuture<'static, RollDone> {
        let places: Vec<_> = self.targets().map(Target::all).collect();
        let info = Arc::clone(&self.info);
        let copy = self.roll.target().map(|target| target.writer.id());
        Box::pin(async move {
            let named = async {
                for place in places {
                    place.reached().await?;
                }
                let cursor_ledger = copy.map(|copy| copy.0);
                let name = |info: &mut crate::info::ManagedLedgerInfo| {
                    let before = std::mem::replace(&mut info.cursor_ledger, cursor_ledger);
                    if let Some(before) = before.filter(|before| Some(*before) != cursor_ledger) {
                        info.give_up(before);
                    }
                };
                Ok(info.update(name).await?)
            };
            RollDone(Done::Named(named.await))
        })
    }

    /// Step 4: the old ledger goes, once no caller waits for anything in it any more.
    fn retire(&mut self) -> Option<BoxFuture<'static, RollDone>> {
        let (old, place) = self.retired.take()?;
        let (engine, info) = (Arc::clone(&self.engine), Arc::clone(&self.info));
        Some(Box::pin(async move {
            if let Some(place) = place {
                // A ledger that failed is deleted all the same.
                let _ = place.reached().await;
            }
            // What cannot be deleted now, the next opening or start does: it is noted.
            if engine.delete(old).await.is_ok() {
                info.note_deleted(old);
            }
            RollDone(Done::Retired)
        }))
    }

    fn on_named(&mut self) -> RollEvent {
        let Roll::Copying { target, .. } = std::mem::replace(&mut self.roll, Roll::Idle) else {
            return RollEvent::Nothing;
        };
        let old = self.named.replace(target.writer.id());
        self.retired = old.map(|old| (old, self.primary.as_ref().map(Target::all)));
        for ticket in self.waiting_copy.drain(..) {
            // Who gave up waiting is not told.
            let _ = ticket.send(Ok(target.all()));
        }
        self.primary = Some(target);
        self.is_cut_off = false;
        RollEvent::Rolled
    }

    /// Handles a failure to name the new ledger. If the store failed, the outcome is unknown: the roll stays as it
    /// is, with both ledgers written, until the store answers.
    fn on_not_named(&mut self, error: CommitError, now_ms: u64) -> RollEvent {
        if let (CommitError::Info(info), Roll::Copying { is_naming, .. }) = (&error, &mut self.roll)
            && info.kind() != FaultKind::Fenced
            && !matches!(info, InfoError::Malformed { .. })
        {
            *is_naming = false;
            self.retry_at_ms = now_ms + RETRY_MS;
            // A store that failed for good would be waited for for ever.
            self.tell_waiting(&error);
            return RollEvent::Retrying(error);
        }
        self.fail(error.clone());
        RollEvent::Failed(error)
    }
}
