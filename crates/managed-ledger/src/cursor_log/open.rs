//! Opening and closing a cursor log.

use std::sync::Arc;

use pharos_ledger::{BoxFuture, LedgerEngine};
use pharos_types::{EntryId, LedgerId, Ordinal};
use tokio::sync::watch;

use super::mirror::{Mirror, Replay};
use super::nodes;
use super::roll::{Roll, RollEvent};
use super::{CursorLog, CursorLogOptions};
use crate::ManagedLedger;
use crate::cursor::Malformed;
use crate::error::{CommitError, OpenError};
use crate::pulsar::compaction;

/// Bytes per read of a replay.
const READ_BYTES: usize = 4 << 20;

impl CursorLog {
    /// Opens the cursors of a managed ledger that was just opened: before its first append. The future borrows nothing.
    ///
    /// Every state is fitted to the log: what a cursor knows beyond the recovered end is forgotten (entries that never became
    /// durable in the topic will have other content next time), and what was trimmed counts as acknowledged. When
    /// something had to be forgotten, that is durable before this returns, so that it cannot come back after another crash
    /// and acknowledge entries unseen.
    ///
    /// # Errors
    /// [`OpenError`]. Nothing was lost; opening the topic again is fine.
    pub fn open(
        ledger: &ManagedLedger,
        options: CursorLogOptions,
        now_ms: u64,
    ) -> BoxFuture<'static, Result<Self, OpenError>> {
        let (engine, info) = (Arc::clone(ledger.engine()), Arc::clone(ledger.info()));
        let (first, end, table) = (ledger.first(), ledger.end(), ledger.table());
        Box::pin(async move {
            let named = info.seen().cursor_ledger.map(LedgerId);
            let mut mirror = match named {
                Some(named) => replay(&*engine, named).await?,
                None => Mirror::default(),
            };
            compaction::settle(&*engine, &info, &table, end).await?;
            // A cursor may stand in what was compacted, before the first entry of the log.
            let is_compacted = info.seen().compaction.is_some_and(|it| it.ledger.is_some());
            let lowest = if is_compacted { Ordinal(0) } else { first };
            let is_fitted = mirror.fit_to(lowest, end);
            let (nodes, is_taken) =
                nodes::take(&*engine, &info, &mut mirror, options.node_kind, (&table, end)).await?;
            let mut log = Self {
                engine,
                info,
                options,
                mirror,
                chunk: Vec::new(),
                primary: None,
                named,
                roll: Roll::Idle,
                retired: None,
                is_unwritten: is_fitted || is_taken,
                is_cut_off: false,
                waiting: Vec::new(),
                waiting_copy: Vec::new(),
                snapshot_bytes: 0,
                retry_at_ms: 0,
                nodes,
                failure: watch::Sender::new(None),
            };
            log.run_steps(now_ms).await?;
            Ok(log)
        })
    }

    /// Makes everything queued durable and closes the ledger, for an orderly unload. Steps that were taken must have been given
    /// back.
    ///
    /// # Errors
    /// [`CommitError`]; opening again recovers.
    pub fn close(mut self, now_ms: u64) -> BoxFuture<'static, Result<(), CommitError>> {
        Box::pin(async move {
            self.retry_at_ms = 0;
            let ticket = self.commit();
            self.run_steps(now_ms).await?;
            ticket.durable().await?;
            match &self.primary {
                Some(primary) => Ok(primary.writer.close().await?),
                None => Ok(()),
            }
        })
    }

    /// Runs steps until none is left; the first failure ends it, and so does an engine that takes no more at the moment.
    async fn run_steps(&mut self, now_ms: u64) -> Result<(), CommitError> {
        while let Some(step) = self.take_maintenance(now_ms) {
            let done = step.await;
            match self.on_maintenance(done, now_ms) {
                RollEvent::Nothing | RollEvent::Rolled => {}
                RollEvent::Retrying(error) | RollEvent::Failed(error) => return Err(error),
            }
        }
        if matches!(self.roll, Roll::Idle) {
            Ok(())
        } else {
            Err(CommitError::Overloaded)
        }
    }
}

/// Reads a cursor ledger from its beginning. Recovers it first: an older owner can then commit nothing more.
async fn replay(engine: &dyn LedgerEngine, ledger: LedgerId) -> Result<Mirror, OpenError> {
    let count = engine.recover(ledger).await?.entry_count;
    let mut replay = Replay::default();
    let mut next = 0;
    while next < count {
        let entries = engine.read(ledger, EntryId(next), 64, READ_BYTES).await?;
        let malformed = |entry, cause| OpenError::CursorRecord { ledger, entry, cause };
        if entries.is_empty() {
            return Err(malformed(next, Malformed("entry is missing")));
        }
        for entry in entries {
            replay
                .on_entry(&entry.payload)
                .map_err(|cause| malformed(entry.id.0, cause))?;
            next = entry.id.0 + 1;
        }
    }
    if !replay.is_snapshot_whole {
        let cause = Malformed("snapshot has no end");
        return Err(OpenError::CursorRecord {
            ledger,
            entry: count,
            cause,
        });
    }
    Ok(replay.mirror)
}
