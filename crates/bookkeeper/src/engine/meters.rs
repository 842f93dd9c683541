//! Counters and durations of the engine, by operation.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use pharos_runtime::Histogram;
use pharos_runtime::clock::{self, Nanos};

use super::lock;

/// An operation of the engine, as its caller sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// From the append of an entry to its ack quorum.
    Add,
    /// A read of some entries that follow each other.
    Read,
    /// A ledger is made.
    Create,
    /// A ledger is deleted.
    Delete,
    /// A ledger is fenced, and its end found and sealed.
    Recover,
}

impl Operation {
    /// All, in the order in which they are told.
    pub const ALL: [Self; 5] = [Self::Add, Self::Read, Self::Create, Self::Delete, Self::Recover];

    /// BookKeeper's name of it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Add => "ADD_ENTRY",
            Self::Read => "READ_ENTRY",
            Self::Create => "LEDGER_CREATE",
            Self::Delete => "LEDGER_DELETE",
            Self::Recover => "LEDGER_RECOVER",
        }
    }

    fn index(self) -> usize {
        match self {
            Self::Add => 0,
            Self::Read => 1,
            Self::Create => 2,
            Self::Delete => 3,
            Self::Recover => 4,
        }
    }
}

/// Counters of an operation since the start.
#[derive(Clone, Debug)]
pub struct OperationFigures {
    /// The operation.
    pub operation: Operation,
    /// Durations of those that succeeded.
    pub succeeded: Histogram,
    /// Durations of those that failed.
    pub failed: Histogram,
}

/// Counters of the engine since the start.
#[derive(Clone, Debug)]
pub struct Figures {
    /// Counters of each operation.
    pub operations: Vec<OperationFigures>,
    /// Times that bookies of a ledger that is written were exchanged.
    pub ensemble_changes: u64,
    /// Entries that were not stored by a bookie that was asked to, in time or at all.
    pub refused_adds: u64,
    /// Payload bytes that wait for their ack quorum.
    pub pending_bytes: u64,
}

/// The counters. A lock is held for one addition.
#[derive(Default)]
pub(super) struct Meters {
    operations: [Mutex<(Histogram, Histogram)>; 5],
    pub(super) ensemble_changes: AtomicU64,
    pub(super) refused_adds: AtomicU64,
}

impl Meters {
    pub(super) fn record(&self, operation: Operation, began: Nanos, is_ok: bool) {
        self.record_all(operation, [began].into_iter(), is_ok);
    }

    /// Records several operations that end now.
    pub(super) fn record_all(&self, operation: Operation, began: impl Iterator<Item = Nanos>, is_ok: bool) {
        let Some(slot) = self.operations.get(operation.index()) else {
            return;
        };
        let now = clock::now();
        let mut slot = lock(slot);
        let histogram = if is_ok { &mut slot.0 } else { &mut slot.1 };
        for began in began {
            histogram.record(now.since(began));
        }
    }

    pub(super) fn figures(&self, pending_bytes: usize) -> Figures {
        let operations = Operation::ALL.into_iter().zip(&self.operations);
        let operations = operations.map(|(operation, slot)| {
            let (succeeded, failed) = lock(slot).clone();
            OperationFigures {
                operation,
                succeeded,
                failed,
            }
        });
        Figures {
            operations: operations.collect(),
            ensemble_changes: self.ensemble_changes.load(Ordering::Relaxed),
            refused_adds: self.refused_adds.load(Ordering::Relaxed),
            pending_bytes: u64::try_from(pending_bytes).unwrap_or(u64::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_operation_has_its_own_figures() {
        let meters = Meters::default();
        for (at, operation) in Operation::ALL.into_iter().enumerate() {
            assert_eq!(operation.index(), at);
            meters.record(operation, clock::now(), true);
        }
        meters.record(Operation::Delete, clock::now(), false);
        let counts: Vec<_> = meters
            .figures(7)
            .operations
            .iter()
            .map(|it| (it.succeeded.count(), it.failed.count()))
            .collect();
        assert_eq!(counts, [(1, 0), (1, 0), (1, 0), (1, 1), (1, 0)]);
    }
}
