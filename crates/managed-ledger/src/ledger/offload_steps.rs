//! The slow steps of offloading, as futures that borrow nothing.

use std::sync::Arc;

use pharos_ledger::offload::{LedgerOffloader, OffloadError, OffloadSource, OffloadTarget, OffloadedLedger};
use pharos_ledger::{BoxFuture, LedgerEngine};
use pharos_types::LedgerId;
use tokio::sync::watch;

use super::maintain::{MaintenanceDone, MaintenanceError};
use super::offload::Ground;
use crate::info::InfoHandle;

/// Action of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Copies a ledger.
    Offload(LedgerId, OffloadTarget),
    /// Deletes the engine's copy of an offloaded ledger.
    DeleteLocal(OffloadedLedger),
    /// The last part of it, which the engine did not do.
    DeleteAgain(LedgerId),
    /// Deletes objects that will not be read, and the row that speaks of them.
    Clean(OffloadedLedger),
}

impl Work {
    /// The ledger that is copied.
    pub(super) fn ledger(&self) -> Option<LedgerId> {
        match self {
            Self::Offload(ledger, _) => Some(*ledger),
            Self::DeleteLocal(_) | Self::DeleteAgain(_) | Self::Clean(_) => None,
        }
    }

    /// The attempt that is dealt with, when it has an id already.
    pub(super) fn object(&self) -> Option<&OffloadedLedger> {
        match self {
            Self::DeleteLocal(object) | Self::Clean(object) => Some(object),
            Self::Offload(..) | Self::DeleteAgain(_) => None,
        }
    }
}

/// The result of a step.
pub(crate) struct OffloadDone {
    pub(super) work: Work,
    pub(super) outcome: Result<(), MaintenanceError>,
}

/// State needed by all steps.
struct Hands {
    engine: Arc<dyn LedgerEngine>,
    info: Arc<InfoHandle>,
    offloader: Arc<dyn LedgerOffloader>,
    now_ms: u64,
    stop: watch::Receiver<bool>,
}

/// The future that does `work`.
pub(super) fn run(
    work: Work,
    offloader: Arc<dyn LedgerOffloader>,
    stop: watch::Receiver<bool>,
    ground: Ground<'_>,
) -> BoxFuture<'static, MaintenanceDone> {
    let hands = Hands {
        engine: Arc::clone(ground.engine),
        info: Arc::clone(ground.info),
        offloader,
        now_ms: ground.now_ms,
        stop,
    };
    let row = work.ledger().and_then(|id| ground.chain.row(id));
    let source = row.map(|row| OffloadSource {
        engine: Arc::clone(ground.engine),
        entries: row.entries,
        bytes: row.bytes,
        closed_at_ms: row.closed_at_ms.unwrap_or_default(),
        name: Arc::clone(ground.name),
    });
    let deleted = work.object().and_then(|object| ground.chain.row(object.ledger));
    let entries = deleted.map(|row| row.entries);
    Box::pin(async move {
        let outcome = match (&work, source) {
            (Work::Offload(ledger, target), Some(source)) => {
                hands.offload(*ledger, target.clone(), source).await
            }
            // Trimmed since it was planned.
            (Work::Offload(..), None) => Ok(()),
            (Work::DeleteLocal(object), _) => match entries {
                Some(entries) => hands.delete_local(object, entries).await,
                None => Ok(()),
            },
            (Work::DeleteAgain(ledger), _) => hands.delete_from_engine(*ledger).await,
            (Work::Clean(object), _) => hands.clean(object).await,
        };
        MaintenanceDone::of_offload(OffloadDone { work, outcome })
    })
}

impl Hands {
    /// Steps 1 to 3 of the module's list.
    async fn offload(
        mut self,
        ledger: LedgerId,
        target: OffloadTarget,
        source: OffloadSource,
    ) -> Result<(), MaintenanceError> {
        let object = OffloadedLedger {
            id: self.offloader.new_id(),
            ledger,
            target,
        };
        let now_ms = self.now_ms;
        self.info
            .update(|info| info.begin_offload(&object, now_ms))
            .await?;
        let copying = self.offloader.offload(object.clone(), source);
        let copied = self.unless_stopped(copying).await;
        if let Err(error) = copied {
            // Best effort: the row alone says enough for the clean-up, whatever its state.
            let abandon = |info: &mut crate::info::ManagedLedgerInfo| {
                info.abandon_offload(object.id);
            };
            let _ = self.info.update(abandon).await;
            return Err(error.into());
        }
        // When this fails the outcome is not known: the objects stay until the store says which it was.
        let complete = |info: &mut crate::info::ManagedLedgerInfo| info.complete_offload(object.id, now_ms);
        Ok(self.info.update(complete).await?)
    }

    /// Waits for the object store, unless the managed ledger closes first. An interrupted step is found again by its
    /// row.
    async fn unless_stopped(
        &mut self,
        work: BoxFuture<'static, Result<(), OffloadError>>,
    ) -> Result<(), OffloadError> {
        tokio::select! {
            biased;
            outcome = work => outcome,
            _ = self.stop.wait_for(|stop| *stop) => Err(OffloadError::Stopped),
        }
    }

    /// Steps 4 and 5.
    async fn delete_local(mut self, object: &OffloadedLedger, entries: u64) -> Result<(), MaintenanceError> {
        let checking = self.offloader.check(object.clone(), entries);
        self.unless_stopped(checking).await?;
        let mut may_go = false;
        self.info
            .update(|info| may_go = info.delete_local(object.id))
            .await?;
        match may_go {
            true => self.delete_from_engine(object.ledger).await,
            false => Ok(()),
        }
    }

    async fn delete_from_engine(self, ledger: LedgerId) -> Result<(), MaintenanceError> {
        Ok(self.engine.delete(ledger).await?)
    }

    /// First the info says that the objects will not be read, then they go, then the row.
    async fn clean(mut self, object: &OffloadedLedger) -> Result<(), MaintenanceError> {
        let mut is_garbage = false;
        self.info
            .update(|info| is_garbage = info.abandon_offload(object.id))
            .await?;
        if !is_garbage {
            return Ok(());
        }
        let deleting = self.offloader.delete(object.clone());
        self.unless_stopped(deleting).await?;
        Ok(self.info.update(|info| info.forget_offload(object.id)).await?)
    }
}
