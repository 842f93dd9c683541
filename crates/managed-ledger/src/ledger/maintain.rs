//! The slow steps of a managed ledger, as futures that its owner runs.

use std::sync::Arc;
use std::time::Duration;

use pharos_ledger::{BoxFuture, FaultKind};
use pharos_metadata::MetadataLayout;
use pharos_types::{LedgerId, Position};

use super::ManagedLedger;
use super::appending::Failure;
use super::offload::{OffloadDone, OffloadWork};
use super::rollover::NewLedger;
use super::steps::{Job, recorded};
use crate::info::{InfoHandle, LedgerInfo};
use crate::table::LedgerRow;

/// The pause before another try to record the end of a ledger.
const RECORD_PAUSE: Duration = Duration::from_secs(1);

/// The result of one maintenance future; give it to [`ManagedLedger::on_maintenance`] unseen.
pub struct MaintenanceDone(Done);

enum Done {
    Prepared(Result<NewLedger, MaintenanceError>),
    Closed(Result<(), MaintenanceError>),
    Job(Job, Result<(), MaintenanceError>),
    Terminated(Result<(), MaintenanceError>),
    Offload(OffloadDone),
}

impl MaintenanceDone {
    pub(super) fn of_offload(done: OffloadDone) -> Self {
        Self(Done::Offload(done))
    }
}

/// Result of a maintenance step.
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
    /// The managed ledger is terminated, durably, with this last position.
    Terminated(Option<Position>),
    /// The step failed and will be tried again; worth a log line.
    Retrying(MaintenanceError),
    /// The managed ledger is finished: close it and open it again.
    Failed(MaintenanceError),
}

/// Reason why a maintenance step failed.
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
    /// Severity for the owner. If it is transient the step, or after a failure the next opening, may succeed later.
    #[must_use]
    pub fn kind(&self) -> FaultKind {
        match self {
            Self::Create(error) => error.kind(),
            Self::Append(error) => error.kind(),
            Self::Delete(error) => error.kind(),
            Self::Info(error) => error.kind(),
            Self::Offload(_) => FaultKind::Transient,
        }
    }
}

impl ManagedLedger {
    /// True if entries wait for an engine that accepted nothing, or a step for its pause to end. Nothing else signals
    /// either, so [`take_maintenance`](Self::take_maintenance) must be called again soon.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        let waits = !self.appending.is_all_queued() && !self.appending.is_turning();
        !self.appending.has_failed() && (waits || self.steps.is_pausing(self.now_ms))
    }

    /// The next slow step to run, if there is one. Call it in a loop after appends, after each finished step, now and then for
    /// what comes of age, and soon again while it [is behind](Self::is_behind); several steps may run at the same time. Each must
    /// be given back to [`on_maintenance`](Self::on_maintenance).
    ///
    /// `now_ms`: milliseconds since 1970, for ages.
    ///
    /// Cancel safety: a future that is dropped unfinished stalls its step; reopen then.
    pub fn take_maintenance(&mut self, now_ms: u64) -> Option<BoxFuture<'static, MaintenanceDone>> {
        self.now_ms = self.now_ms.max(now_ms);
        self.cache.on_tick(self.now_ms, self.options.cache_age_ms);
        if self.appending.has_failed() || self.is_shadow() {
            return None;
        }
        self.appending.flush_waiting();
        let (current, end) = (self.chain.last(), self.chain.end());
        self.rollover
            .ask_when_idle(current, end, &self.options, self.now_ms);
        Upkeep(self).turn_when_due();
        if let Some(full) = self.appending.take_full() {
            let record = record_before_going_on(self.chain.rows(), &self.info, self.now_ms);
            return Some(Box::pin(async move {
                let closed = async {
                    full.close().await?;
                    record.await
                };
                MaintenanceDone(Done::Closed(closed.await))
            }));
        }
        let (ground, offload) = OffloadWork::of(self).ground(now_ms);
        if let Some(step) = offload.take_step(ground) {
            return Some(step);
        }
        if self.steps.is_pausing(self.now_ms) {
            return None;
        }
        if let Some(job) = self.steps.take() {
            let (engine, info) = (Arc::clone(&self.engine), Arc::clone(&self.info));
            return Some(Box::pin(async move {
                let outcome = job.run(engine, &info).await;
                MaintenanceDone(Done::Job(job, outcome))
            }));
        }
        if Upkeep(self).is_next_wanted() {
            self.rollover.prepare();
            return Some(Upkeep(self).prepare());
        }
        Upkeep(self).terminate_when_quiet()
    }

    /// Takes the result of a step.
    pub fn on_maintenance(&mut self, done: MaintenanceDone, now_ms: u64) -> MaintenanceEvent {
        self.now_ms = self.now_ms.max(now_ms);
        match done.0 {
            Done::Prepared(Ok(ledger)) => {
                self.rollover.on_prepared(Some(ledger));
                MaintenanceEvent::Nothing
            }
            Done::Prepared(Err(error)) => {
                self.rollover.on_prepared(None);
                Upkeep(self).on_failed_step(error)
            }
            Done::Closed(Ok(())) => Upkeep(self).on_closed(),
            Done::Closed(Err(error)) => {
                match &error {
                    MaintenanceError::Append(error) => self.appending.on_not_closed(error),
                    _ => self.appending.fail(Failure::Fenced),
                }
                MaintenanceEvent::Failed(error)
            }
            Done::Job(Job::Trim { delete, .. }, Ok(())) => MaintenanceEvent::Trimmed(delete),
            Done::Job(Job::Record(_), Ok(())) => MaintenanceEvent::Nothing,
            Done::Job(job, Err(error)) => {
                self.steps.add(job);
                Upkeep(self).on_failed_step(error)
            }
            Done::Offload(done) => {
                let (ground, offload) = OffloadWork::of(self).ground(now_ms);
                let event = offload.on_step(done, ground);
                if let MaintenanceEvent::Failed(_) = event {
                    self.appending.fail(Failure::Fenced);
                }
                event
            }
            Done::Terminated(Ok(())) => Upkeep(self).on_terminated(),
            Done::Terminated(Err(error)) => {
                self.appending.on_not_ended();
                Upkeep(self).on_failed_step(error)
            }
        }
    }

    /// Asks for a rollover at the next chance, whatever the limits say, unless the ledger is empty.
    pub fn ask_rollover(&mut self) {
        self.rollover.ask(self.chain.last());
    }
}

/// The steps of a rollover and of an end, and what each comes to (see the module of [`ManagedLedger`]).
pub(super) struct Upkeep<'a>(pub(super) &'a mut ManagedLedger);

impl Upkeep<'_> {
    /// Step 2, once the current ledger is full, old enough, or asked to end, and has all that has a position in it: what waits
    /// would follow into the next one.
    pub(super) fn turn_when_due(&mut self) {
        if self.0.appending.is_turning() || !self.0.rollover.is_ready() || !self.0.appending.is_all_queued() {
            return;
        }
        let due = self
            .growing()
            .is_some_and(|row| self.0.rollover.is_due(row, &self.0.options, self.0.now_ms));
        if due && let Some(writer) = self.0.rollover.take_next(self.0.now_ms) {
            self.0.chain.begin(writer.id());
            self.0.appending.turn_to(writer);
        }
    }

    /// The ledger that takes entries, and will until it is full.
    fn growing(&self) -> Option<&LedgerRow> {
        let grows = self.0.appending.has_writer() && !self.0.appending.is_terminated();
        self.0.chain.last().filter(|_| grows)
    }

    fn is_next_wanted(&self) -> bool {
        !self.0.appending.is_turning()
            && self.growing().is_some_and(|row| {
                self.0
                    .rollover
                    .is_next_wanted(row, &self.0.options, self.0.now_ms)
            })
    }

    /// Step 1: create the next ledger and name it, in this order: a named ledger always exists.
    fn prepare(&self) -> BoxFuture<'static, MaintenanceDone> {
        let (engine, info) = (Arc::clone(&self.0.engine), Arc::clone(&self.0.info));
        let keeping = self.0.options.keeping();
        let options = self.0.options.create_options(&self.0.name);
        Box::pin(async move {
            let prepared = async {
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
                    if error.kind() == FaultKind::Fenced {
                        let _ = engine.delete(writer.id()).await;
                    }
                    return Err(error.into());
                }
                Ok(NewLedger { writer, keeping })
            };
            MaintenanceDone(Done::Prepared(prepared.await))
        })
    }

    /// Step 3: everything before is durable, so what waited may follow. Step 4 is queued.
    fn on_closed(&mut self) -> MaintenanceEvent {
        if !self.0.appending.on_closed() {
            return MaintenanceEvent::Nothing;
        }
        let Some((closed, first)) = self.0.chain.close_before_last(self.0.now_ms) else {
            return MaintenanceEvent::Nothing;
        };
        self.0.steps.add(Job::Record(recorded(&closed)));
        self.0.appending.go_on_from(first);
        MaintenanceEvent::RolledOver
    }

    fn on_failed_step(&mut self, error: MaintenanceError) -> MaintenanceEvent {
        if let MaintenanceError::Info(info) = &error
            && info.kind() == FaultKind::Fenced
        {
            self.0.appending.fail(Failure::Fenced);
            return MaintenanceEvent::Failed(error);
        }
        self.0.steps.pause(self.0.now_ms);
        MaintenanceEvent::Retrying(error)
    }

    /// Closes the last ledger for good, once no rollover is under way.
    fn terminate_when_quiet(&mut self) -> Option<BoxFuture<'static, MaintenanceDone>> {
        if self.0.rollover.is_preparing() {
            return None;
        }
        let last = recorded(&LedgerRow {
            closed_at_ms: Some(self.0.now_ms),
            ..*self.0.chain.last()?
        });
        let writer = self.0.appending.take_last()?;
        let spare = self.0.rollover.spare();
        let (engine, info) = (Arc::clone(&self.0.engine), Arc::clone(&self.0.info));
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
        self.0.rollover.end();
        self.0.appending.on_ended(self.0.chain.end());
        self.0.chain.end_for_good(self.0.now_ms);
        MaintenanceEvent::Terminated(self.0.last_position())
    }
}

/// Step 4 before the end of step 3, where the next owner may be a broker of Pulsar: it recovers the last ledger of the info only, so
/// nothing is appended to the next one before the info says that this one is closed. A store that does not answer is waited for.
fn record_before_going_on(
    rows: &[LedgerRow],
    info: &Arc<InfoHandle>,
    now_ms: u64,
) -> BoxFuture<'static, Result<(), MaintenanceError>> {
    let [.., full, _] = rows else {
        return Box::pin(async { Ok(()) });
    };
    let closed = recorded(&LedgerRow {
        closed_at_ms: Some(now_ms),
        ..*full
    });
    let info = Arc::clone(info);
    Box::pin(async move {
        while info.layout() == MetadataLayout::Pulsar {
            match super::steps::record(&info, closed).await {
                Err(error) if error.kind() != FaultKind::Fenced => {
                    tracing::warn!(name = info.name(), %error, "the end of a ledger is recorded later");
                    tokio::time::sleep(RECORD_PAUSE).await;
                }
                outcome => return outcome,
            }
        }
        Ok(())
    })
}
