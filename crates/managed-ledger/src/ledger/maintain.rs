//! The slow steps of a managed ledger, as futures that its owner runs.

use std::sync::Arc;

use pharos_ledger::{BoxFuture, CreateOptions, LedgerEngine};
use pharos_types::{LedgerId, Ordinal, Position};

use super::offload::OffloadDone;
use super::{End, Failure, Handover, ManagedLedger, NewLedger, Next};
use crate::error::{fault_of, is_recoverable};
use crate::info::{InfoHandle, LedgerInfo, is_final};
use crate::table::LedgerRow;

/// Steps that failed are tried again after this.
const RETRY_MS: u64 = 1_000;
/// Ledgers of up to this many entries prepare their successor with their first entry, so that small limits are kept.
const SMALL_LEDGER: u64 = 256;

/// The result of one maintenance future; give it to [`ManagedLedger::on_maintenance`] unseen.
pub struct MaintenanceDone(Done);

enum Done {
    Prepared(Result<NewLedger, MaintenanceError>),
    Closed(Result<(), pharos_ledger::AppendError>),
    Job(Job, Result<(), MaintenanceError>),
    Terminated(Result<(), MaintenanceError>),
    Offload(OffloadDone),
}

impl MaintenanceDone {
    pub(super) fn of_offload(done: OffloadDone) -> Self {
        Self(Done::Offload(done))
    }
}

/// What a maintenance step came to.
#[derive(Debug)]
pub enum MaintenanceEvent {
    /// Nothing that others need to know.
    Nothing,
    /// Entries go to a new ledger and the table is new; a good moment to trim.
    RolledOver,
    /// These ledgers are gone from the engine.
    Trimmed(Vec<LedgerId>),
    /// This ledger is in an object store now; it is a good moment to plan again.
    Offloaded(LedgerId),
    /// It is terminated for good, durably, with this last position.
    Terminated(Option<Position>),
    /// The step failed and will be tried again; worth a log line.
    Retrying(MaintenanceError),
    /// The managed ledger is finished: close it and open it again.
    Failed(MaintenanceError),
}

/// Why a maintenance step failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum MaintenanceError {
    /// No next ledger.
    #[error("cannot create the next ledger")]
    Create(#[from] pharos_ledger::CreateError),
    /// The full ledger cannot be closed, or the next one takes nothing.
    #[error("cannot go on to the next ledger")]
    Append(#[from] pharos_ledger::AppendError),
    /// The info cannot be changed.
    #[error("cannot change the managed ledger's info")]
    Info(#[from] crate::info::InfoError),
    /// A trimmed ledger cannot be deleted.
    #[error("cannot delete a trimmed ledger")]
    Delete(#[from] pharos_ledger::DeleteError),
    /// An object cannot be written, looked at or deleted.
    #[error("cannot offload")]
    Offload(#[from] pharos_ledger::offload::OffloadError),
}

impl MaintenanceError {
    /// Whether the cause may pass: the step, or after a failure the next opening, may succeed later.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Create(error) => error.is_transient(),
            Self::Append(error) => is_recoverable(error),
            Self::Delete(error) => error.is_transient(),
            Self::Info(_) | Self::Offload(_) => true,
        }
    }
}

/// A step that can be done at any time, and again.
#[derive(Clone)]
pub(super) enum Job {
    /// Record a closed ledger's end.
    Record(LedgerInfo),
    /// Forget the ledgers before `keep`, then delete them.
    Trim {
        keep: LedgerId,
        first: Ordinal,
        delete: Vec<LedgerId>,
    },
}

impl ManagedLedger {
    /// Whether entries wait for an engine that took nothing, or a step for its pause to be over: nothing else brings word of that,
    /// so [`take_maintenance`](Self::take_maintenance) is to be called again soon.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        let waits = !self.waiting.is_empty() && self.handover.is_none();
        self.failure.is_none() && (waits || self.now_ms < self.retry_at_ms)
    }

    /// The next slow step to run, if there is one. Call it in a loop after appends, after each finished step, now and then for
    /// what comes of age, and soon again while it [is behind](Self::is_behind); several steps may run at the same time. Each must be given back to [`on_maintenance`](Self::on_maintenance).
    ///
    /// `now_ms`: milliseconds since 1970, for ages.
    ///
    /// Cancel safety: a future that is dropped unfinished stalls its step; reopen then.
    pub fn take_maintenance(&mut self, now_ms: u64) -> Option<BoxFuture<'static, MaintenanceDone>> {
        self.now_ms = self.now_ms.max(now_ms);
        self.cache.on_tick(self.now_ms, self.options.cache_age_ms);
        if self.failure.is_some() {
            return None;
        }
        self.flush_waiting();
        self.ask_rollover_when_idle();
        if matches!(self.next, Next::Ready(_)) && self.handover.is_none() && self.is_roll_due() {
            self.begin_handover();
        }
        if let Some(close) = self.close_full_ledger() {
            return Some(close);
        }
        if let Some(step) = self.take_offload_step() {
            return Some(step);
        }
        if self.now_ms < self.retry_at_ms {
            return None;
        }
        if let Some(job) = self.jobs.pop_front() {
            return Some(run_job(job, Arc::clone(&self.engine), Arc::clone(&self.info)));
        }
        if matches!(self.next, Next::None) && self.handover.is_none() && self.is_next_wanted() {
            self.next = Next::Preparing;
            return Some(self.prepare());
        }
        self.terminate_when_quiet()
    }

    /// Takes the result of a step.
    pub fn on_maintenance(&mut self, done: MaintenanceDone, now_ms: u64) -> MaintenanceEvent {
        self.now_ms = self.now_ms.max(now_ms);
        match done.0 {
            Done::Prepared(Ok(ledger)) => {
                self.next = Next::Ready(ledger);
                MaintenanceEvent::Nothing
            }
            Done::Prepared(Err(error)) => {
                self.next = Next::None;
                self.on_failed_step(error)
            }
            Done::Closed(Ok(())) => self.on_closed(),
            Done::Closed(Err(error)) => {
                self.on_refused(&error);
                // A ledger that cannot be closed, for whatever reason, has an end that only recovery can tell.
                self.fail(Failure::Fault(fault_of("close ledger", &error)));
                MaintenanceEvent::Failed(error.into())
            }
            Done::Job(Job::Trim { delete, .. }, Ok(())) => MaintenanceEvent::Trimmed(delete),
            Done::Job(Job::Record(_), Ok(())) => MaintenanceEvent::Nothing,
            Done::Job(job, Err(error)) => {
                self.jobs.push_back(job);
                self.on_failed_step(error)
            }
            Done::Offload(done) => self.on_offload_step(done),
            Done::Terminated(Ok(())) => self.on_terminated(),
            Done::Terminated(Err(error)) => {
                self.end = End::Asked;
                self.on_failed_step(error)
            }
        }
    }

    /// Asks for a rollover at the next chance, whatever the limits say, unless the ledger is empty.
    pub fn ask_rollover(&mut self) {
        self.is_roll_asked = self.rows.last().is_some_and(|row| row.entries > 0);
    }

    /// Asks for a rollover when nothing was appended for long, so that what every cursor has passed can go.
    fn ask_rollover_when_idle(&mut self) {
        let end = self.end();
        if end != self.moved.0 {
            self.moved = (end, self.now_ms);
        }
        let idle_ms = self.now_ms.saturating_sub(self.moved.1);
        if self
            .options
            .ledger_idle_ms_max
            .is_some_and(|most| idle_ms >= most)
        {
            self.ask_rollover();
        }
    }

    /// Whether the current ledger is full, old enough, or asked to end, and has all that has a position in it: what waits
    /// would follow into the next one.
    pub(super) fn is_roll_due(&self) -> bool {
        self.waiting.is_empty() && self.is_full(|limit| limit) && self.end == End::Endless
    }

    /// Whether the current ledger will soon be full.
    fn is_next_wanted(&self) -> bool {
        let nearly = |limit: u64| if limit <= SMALL_LEDGER { 1 } else { limit / 4 * 3 };
        self.is_full(nearly) && self.end == End::Endless
    }

    fn is_full(&self, limit_of: impl Fn(u64) -> u64) -> bool {
        let (Some(row), Some(_), options) = (self.rows.last(), &self.writer, &self.options) else {
            return false;
        };
        if self.durability != options.durability {
            return true;
        }
        let age_ms = self.now_ms.saturating_sub(self.opened_ms);
        let is_full = row.entries >= limit_of(options.ledger_entries_max)
            || row.bytes >= limit_of(options.ledger_bytes_max)
            || age_ms >= options.ledger_age_ms_max;
        row.entries > 0 && (self.is_roll_asked || (is_full && age_ms >= options.ledger_age_ms_min))
    }

    /// Step 1: create the next ledger and name it, in this order: a named ledger always exists.
    fn prepare(&self) -> BoxFuture<'static, MaintenanceDone> {
        let (engine, info) = (Arc::clone(&self.engine), Arc::clone(&self.info));
        let durability = self.options.durability;
        Box::pin(async move {
            let prepared = async {
                let options = CreateOptions {
                    durability,
                    ..CreateOptions::default()
                };
                let writer = engine.create(options).await?;
                let ledger_id = writer.id().0;
                let name = |info: &mut crate::info::ManagedLedgerInfo| {
                    if info.row_mut(ledger_id).is_none() {
                        info.ledgers.push(LedgerInfo {
                            ledger_id,
                            ..LedgerInfo::default()
                        });
                    }
                };
                if let Err(error) = info.update(name).await {
                    // Only when it is certain that nothing names it; otherwise the clean-up at start decides.
                    if is_final(&error) {
                        let _ = engine.delete(writer.id()).await;
                    }
                    return Err(error.into());
                }
                Ok(NewLedger { writer, durability })
            };
            MaintenanceDone(Done::Prepared(prepared.await))
        })
    }

    /// Step 2: entries get positions in the next ledger from now on.
    pub(super) fn begin_handover(&mut self) {
        let Next::Ready(ledger) = std::mem::replace(&mut self.next, Next::None) else {
            return;
        };
        let NewLedger { writer, durability } = ledger;
        let row = LedgerRow {
            id: writer.id(),
            first: self.end(),
            entries: 0,
            bytes: 0,
            closed_at_ms: None,
        };
        self.rows.push(row);
        self.handover = Some(Handover {
            writer,
            is_closing: false,
        });
        self.durability = durability;
        self.opened_ms = self.now_ms;
        self.is_roll_asked = false;
        self.rebuild_table();
    }

    fn close_full_ledger(&mut self) -> Option<BoxFuture<'static, MaintenanceDone>> {
        let handover = self.handover.as_mut().filter(|handover| !handover.is_closing)?;
        handover.is_closing = true;
        let writer = Arc::clone(self.writer.as_ref()?);
        Some(Box::pin(async move {
            MaintenanceDone(Done::Closed(writer.close().await))
        }))
    }

    /// Step 3: everything before is durable, so what waited may follow. Step 4 is queued.
    fn on_closed(&mut self) -> MaintenanceEvent {
        let Some(handover) = self.handover.take() else {
            return MaintenanceEvent::Nothing;
        };
        self.writer = Some(Arc::clone(&handover.writer));
        let [.., closed, open] = self.rows.as_mut_slice() else {
            return MaintenanceEvent::Nothing;
        };
        closed.closed_at_ms = Some(self.now_ms);
        self.jobs.push_back(Job::Record(recorded(closed)));
        let tail = Some(handover.writer.tail());
        let first = open.first;
        self.active
            .send_modify(|active| (active.first, active.tail) = (first, tail));
        self.rebuild_table();
        self.flush_waiting();
        MaintenanceEvent::RolledOver
    }

    fn on_failed_step(&mut self, error: MaintenanceError) -> MaintenanceEvent {
        if let MaintenanceError::Info(info) = &error
            && is_final(info)
        {
            self.fail(Failure::Fenced);
            return MaintenanceEvent::Failed(error);
        }
        self.retry_at_ms = self.now_ms + RETRY_MS;
        MaintenanceEvent::Retrying(error)
    }

    /// Closes the last ledger for good, once no rollover is under way.
    fn terminate_when_quiet(&mut self) -> Option<BoxFuture<'static, MaintenanceDone>> {
        let is_quiet =
            self.handover.is_none() && self.waiting.is_empty() && !matches!(self.next, Next::Preparing);
        if self.end != End::Asked || !is_quiet {
            return None;
        }
        let (writer, row) = (Arc::clone(self.writer.as_ref()?), *self.rows.last()?);
        let spare = match &self.next {
            Next::Ready(spare) => Some(spare.writer.id()),
            Next::None | Next::Preparing => None,
        };
        self.end = End::Closing;
        let (engine, info) = (Arc::clone(&self.engine), Arc::clone(&self.info));
        let last = recorded(&LedgerRow {
            closed_at_ms: Some(self.now_ms),
            ..row
        });
        Some(Box::pin(async move {
            let terminated = async {
                writer.close().await?;
                let change = |info: &mut crate::info::ManagedLedgerInfo| {
                    info.terminated = true;
                    info.ledgers.retain(|row| Some(LedgerId(row.ledger_id)) != spare);
                    if let Some(spare) = spare {
                        info.give_up(spare.0);
                    }
                    if let Some(row) = info.row_mut(last.ledger_id) {
                        *row = last;
                    }
                };
                info.update(change).await?;
                if let Some(spare) = spare
                    && engine.delete(spare).await.is_ok()
                {
                    info.note_deleted(spare);
                }
                Ok(())
            };
            MaintenanceDone(Done::Terminated(terminated.await))
        }))
    }

    fn on_terminated(&mut self) -> MaintenanceEvent {
        self.end = End::Terminated;
        self.writer = None;
        self.next = Next::None;
        if let Some(row) = self.rows.last_mut() {
            row.closed_at_ms = Some(self.now_ms);
        }
        let first = self.end();
        self.active
            .send_modify(|active| (active.first, active.tail) = (first, None));
        self.rebuild_table();
        MaintenanceEvent::Terminated(self.last_position())
    }
}

/// A closed row as the info has it.
pub(super) fn recorded(row: &LedgerRow) -> LedgerInfo {
    LedgerInfo {
        ledger_id: row.id.0,
        entries: row.entries,
        bytes: row.bytes,
        closed_at_ms: row.closed_at_ms,
    }
}

fn run_job(
    job: Job,
    engine: Arc<dyn LedgerEngine>,
    info: Arc<InfoHandle>,
) -> BoxFuture<'static, MaintenanceDone> {
    Box::pin(async move {
        let outcome = match &job {
            Job::Record(closed) => record(&info, *closed).await,
            Job::Trim { keep, first, delete } => {
                super::trim::run(&*engine, &info, *keep, *first, delete).await
            }
        };
        MaintenanceDone(Done::Job(job, outcome))
    })
}

async fn record(info: &InfoHandle, closed: LedgerInfo) -> Result<(), MaintenanceError> {
    let change = |info: &mut crate::info::ManagedLedgerInfo| {
        // Trimmed meanwhile: nothing to record.
        if let Some(row) = info.row_mut(closed.ledger_id) {
            *row = closed;
        }
    };
    Ok(info.update(change).await?)
}
