//! Steps on the info and on old ledgers that may be done in any order, and again after a failure.

use std::collections::VecDeque;
use std::sync::Arc;

use pharos_ledger::LedgerEngine;
use pharos_types::{LedgerId, Ordinal};

use super::maintain::MaintenanceError;
use crate::info::{InfoHandle, LedgerInfo};
use crate::table::LedgerRow;

/// Steps that failed are tried again after this.
const RETRY_MS: u64 = 1_000;

/// Maintenance steps to do, in order.
#[derive(Default)]
pub(super) struct Steps {
    jobs: VecDeque<Job>,
    /// After a failure nothing is begun until then.
    retry_at_ms: u64,
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

impl Steps {
    pub(super) fn add(&mut self, job: Job) {
        self.jobs.push_back(job);
    }

    pub(super) fn take(&mut self) -> Option<Job> {
        self.jobs.pop_front()
    }

    pub(super) fn waiting(&self) -> usize {
        self.jobs.len()
    }

    /// A step failed: there is a pause before any other.
    pub(super) fn pause(&mut self, now_ms: u64) {
        self.retry_at_ms = now_ms + RETRY_MS;
    }

    pub(super) fn is_pausing(&self, now_ms: u64) -> bool {
        now_ms < self.retry_at_ms
    }
}

impl Job {
    /// Does it.
    pub(super) async fn run(
        &self,
        engine: Arc<dyn LedgerEngine>,
        info: &InfoHandle,
    ) -> Result<(), MaintenanceError> {
        match self {
            Self::Record(closed) => record(info, *closed).await,
            Self::Trim { keep, first, delete } => {
                super::trim::run(&*engine, info, *keep, *first, delete).await
            }
        }
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

pub(super) async fn record(info: &InfoHandle, closed: LedgerInfo) -> Result<(), MaintenanceError> {
    let change = |info: &mut crate::info::ManagedLedgerInfo| {
        // Trimmed meanwhile: nothing to record.
        if let Some(row) = info.row_mut(closed.ledger_id) {
            *row = closed;
        }
    };
    Ok(info.update(change).await?)
}
