//! Ends of a managed ledger: termination, closing, deletion.

use std::sync::Arc;

use bytes::Bytes;
use pharos_ledger::{BoxFuture, LedgerEngine};
use pharos_metadata::{Expect, MetadataLayout, MetadataStore, WriteError};
use pharos_types::LedgerId;
use prost::Message as _;

use super::ManagedLedger;
use super::offload::OffloadWork;
use super::steps::recorded;
use crate::error::{CloseError, DeleteError};
use crate::info::{self, InfoError, LedgerInfo};
use crate::leftovers;
use crate::offload_garbage;
use crate::pulsar::{compaction, nodes};
use crate::table::LedgerRow;

impl ManagedLedger {
    /// Refuses appends from now on, for ever. Durable when [`MaintenanceEvent::Terminated`](super::MaintenanceEvent::Terminated)
    /// comes, which says the last position. Doing it again changes nothing.
    pub fn terminate(&mut self) {
        self.appending.ask_end();
    }

    /// Closes for an orderly unload: everything appended becomes durable and the next opening has nothing to recover. Without
    /// it (a drop, a crash) nothing durable is lost either.
    ///
    /// # Errors
    /// [`CloseError`]; opening again recovers.
    ///
    /// Cancel safety: as for a drop.
    pub fn close(mut self) -> BoxFuture<'static, Result<(), CloseError>> {
        OffloadWork::of(&mut self).stop();
        self.cache.clear();
        Box::pin(async move {
            match self.appending.close().await? {
                true => self.record_close().await,
                false => Ok(()),
            }
        })
    }

    /// Records the ends of the last ledgers and drops the empty ones from the chain.
    async fn record_close(&self) -> Result<(), CloseError> {
        let closed_at_ms = Some(self.now_ms);
        let close = |row: &LedgerRow| match row.closed_at_ms {
            Some(_) => recorded(row),
            None => recorded(&LedgerRow { closed_at_ms, ..*row }),
        };
        // Steps that were under way may have recorded some of these; recording them again is the same.
        let closed: Vec<LedgerInfo> = self.ledgers().iter().rev().take(3).map(close).collect();
        let mut empty: Vec<u64> = closed
            .iter()
            .filter(|row| row.entries == 0)
            .map(|row| row.ledger_id)
            .collect();
        empty.extend(self.rollover.spare().map(|spare| spare.0));
        let change = |info: &mut info::ManagedLedgerInfo| {
            for closed in &closed {
                if let Some(row) = info.row_mut(closed.ledger_id) {
                    *row = *closed;
                }
            }
            info.ledgers.retain(|row| !empty.contains(&row.ledger_id));
            empty.iter().for_each(|ledger| info.give_up(*ledger));
        };
        self.info.update(change).await?;
        for ledger in empty {
            // What cannot be deleted now is noted, and the next opening does it.
            let _ = self.engine.delete(LedgerId(ledger)).await;
        }
        Ok(())
    }
}

/// True if a managed ledger of this name exists.
///
/// # Errors
/// [`InfoError`].
pub async fn exists(name: &str, metadata: &dyn MetadataStore) -> Result<bool, InfoError> {
    Ok(metadata.get(&info::key_of(name)).await?.is_some())
}

/// Gives up the cursor log of a managed ledger that is not open: it opens without cursors next time. For an operator whose
/// cursor ledger is damaged and who cannot get it back. Returns the ledger that was named; `None` when none was.
///
/// # Errors
/// [`InfoError`]; `Gone` when there is no such managed ledger.
pub async fn forget_cursors(name: &str, metadata: &dyn MetadataStore) -> Result<Option<LedgerId>, InfoError> {
    loop {
        let Some((mut info, version)) = info::load(metadata, name, MetadataLayout::Pharos).await? else {
            return Err(InfoError::Gone(name.to_owned()));
        };
        let Some(forgotten) = info.cursor_ledger.take() else {
            return Ok(None);
        };
        let value = Bytes::from(info.encode_to_vec());
        match metadata
            .put(&info::key_of(name), value, Expect::Version(version))
            .await
        {
            Ok(_) => return Ok(Some(LedgerId(forgotten))),
            Err(WriteError::Conflict { .. }) => {}
            Err(error) => return Err(InfoError::Write(error)),
        }
    }
}

/// Deletes a managed ledger with its cursors, for good. Its owner must have closed or dropped it. Returns whether it was
/// there.
///
/// A note of its ledgers comes first, then the info goes, in one step, then they do: a crash or an error leaves either
/// everything, or what another call of [`delete_as`] deletes, or [`Leftovers`](crate::Leftovers).
///
/// # Errors
/// [`DeleteError`].
pub async fn delete(
    name: &str,
    engine: Arc<dyn LedgerEngine>,
    metadata: &dyn MetadataStore,
) -> Result<bool, DeleteError> {
    delete_as(MetadataLayout::Pharos, LedgerId(u64::MAX), name, engine, metadata).await
}

/// As [`delete`], in a layout; in Pulsar's with the nodes and ledgers of all cursors, and with what a node says is compacted. Of one that
/// is gone it deletes the ledgers that an earlier call left, those from `condemned_from` on, as for
/// [`Options`](crate::Options::condemned_from).
///
/// # Errors
/// [`DeleteError`].
pub async fn delete_as(
    layout: MetadataLayout,
    condemned_from: LedgerId,
    name: &str,
    engine: Arc<dyn LedgerEngine>,
    metadata: &dyn MetadataStore,
) -> Result<bool, DeleteError> {
    loop {
        let Some((mut info, version)) = info::load(metadata, name, layout).await? else {
            leftovers::work_off(&*engine, metadata, name, condemned_from).await?;
            return Ok(false);
        };
        let cursors = match layout {
            MetadataLayout::Pharos => Vec::new(),
            MetadataLayout::Pulsar => nodes::of(metadata, name).await?,
        };
        let ledgers = cursors
            .iter()
            .flat_map(|cursor| compaction::ledgers_in(&cursor.value));
        ledgers.for_each(|ledger| info.give_up(ledger));
        offload_garbage::note(metadata, name, &info).await?;
        let note = leftovers::note(metadata, name, &info).await?;
        // A node is not gone while it has others below it.
        for cursor in cursors {
            metadata
                .delete(&cursor.key, Expect::Any)
                .await
                .map_err(InfoError::Write)?;
        }
        match metadata
            .delete(&info::key_of(name), Expect::Version(version))
            .await
        {
            Ok(_) => {
                for ledger in info.ledger_ids().chain(info.dead_ids()) {
                    engine.delete(LedgerId(ledger)).await?;
                }
                if let Some(note) = note {
                    // One that stays is worked off at the next start: nothing is left to do for it.
                    let _ = metadata.delete(&note, Expect::Any).await;
                }
                return Ok(true);
            }
            Err(WriteError::Conflict { .. }) => {}
            Err(error) => return Err(InfoError::Write(error).into()),
        }
    }
}
