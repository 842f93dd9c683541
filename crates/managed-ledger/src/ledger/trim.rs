//! Trimming: whole closed ledgers go once every cursor is past them and retention does not keep them.
//!
//! Order: first the info gives them up, then the engine deletes them. A crash in between leaves ledgers that the next opening or
//! [`crate::Leftovers`] deletes; the other order would leave names of ledgers that are gone.

use pharos_ledger::LedgerEngine;
use pharos_types::{LedgerId, Ordinal};

use super::ManagedLedger;
use super::maintain::MaintenanceError;
use super::steps::Job;
use crate::info::InfoHandle;
use crate::options::Retention;

impl ManagedLedger {
    /// Gives up the oldest ledgers whose entries all lie below `acked_below` and which `retention` does not keep; never the
    /// current one. Returns their ids: reads no longer find them, and [`take_maintenance`](Self::take_maintenance) has the
    /// step that deletes them.
    ///
    /// `acked_below`: the lowest `acked_to` of all durable cursors, or [`end`](Self::end) when there is none.
    pub fn trim(&mut self, acked_below: Ordinal, retention: Retention, now_ms: u64) -> Vec<LedgerId> {
        if self.is_shadow() {
            return Vec::new(); // They are the source's.
        }
        let delete = self.chain.trim(acked_below, retention, now_ms);
        if let (Some(row), false) = (self.ledgers().first(), delete.is_empty()) {
            let (keep, first) = (row.id, row.first);
            let delete = delete.clone();
            self.steps.add(Job::Trim { keep, first, delete });
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
