//! Trimming: whole closed ledgers go once every cursor is past them and retention does not keep them.
//!
//! Order: first the info gives them up, then the engine deletes them. A crash in between leaves ledgers that the next opening or
//! [`crate::Leftovers`] deletes; the other order would leave names of ledgers that are gone.

use pharos_ledger::LedgerEngine;
use pharos_types::{LedgerId, Ordinal};

use super::ManagedLedger;
use super::maintain::{Job, MaintenanceError};
use crate::info::InfoHandle;
use crate::options::Retention;

impl ManagedLedger {
    /// Gives up the oldest ledgers whose entries all lie below `acked_below` and which `retention` does not keep; never the
    /// current one. Returns their ids: reads no longer find them, and [`take_maintenance`](Self::take_maintenance) has the
    /// step that deletes them.
    ///
    /// `acked_below`: the lowest `acked_to` of all durable cursors, or [`end`](Self::end) when there is none.
    pub fn trim(&mut self, acked_below: Ordinal, retention: Retention, now_ms: u64) -> Vec<LedgerId> {
        let mut bytes_left: u64 = self.rows.iter().map(|row| row.bytes).sum();
        let mut count = 0;
        let closed = self.rows.len().saturating_sub(1);
        for row in self.rows.iter().take(closed) {
            let Some(closed_at_ms) = row.closed_at_ms else {
                break;
            };
            bytes_left -= row.bytes;
            let age_ms = now_ms.saturating_sub(closed_at_ms);
            let is_old = retention
                .time_ms
                .is_some_and(|kept_ms| kept_ms == 0 || age_ms > kept_ms);
            let is_over_size = retention.bytes.is_some_and(|kept| bytes_left >= kept);
            if row.end() > acked_below || !(is_old || is_over_size) {
                break;
            }
            count += 1;
        }
        let delete: Vec<_> = self.rows.drain(..count).map(|row| row.id).collect();
        if let (Some(row), false) = (self.rows.first(), delete.is_empty()) {
            self.first = row.first;
            self.jobs.push_back(Job::Trim {
                keep: row.id,
                first: row.first,
                delete: delete.clone(),
            });
            self.rebuild_table();
        }
        delete
    }
}

/// Makes a trim durable. May be run again, also after a later one.
pub(super) async fn run(
    engine: &dyn LedgerEngine,
    info: &InfoHandle,
    keep: LedgerId,
    first: Ordinal,
    delete: &[LedgerId],
) -> Result<(), MaintenanceError> {
    let forget = |info: &mut crate::info::ManagedLedgerInfo| {
        info.ledgers.retain(|row| row.ledger_id >= keep.0);
        delete.iter().for_each(|ledger| info.give_up(ledger.0));
        info.first_ordinal = info.first_ordinal.max(first.0);
    };
    info.update(forget).await?;
    for ledger in delete {
        engine.delete(*ledger).await?;
        info.note_deleted(*ledger);
    }
    Ok(())
}
