//! Errors, one enum per operation.

use std::sync::Arc;

use pharos_ledger::{FaultKind, StorageFault};
use pharos_types::{LedgerId, Position};

pub use crate::info::InfoError;

/// Reason why a managed ledger could not be opened.
#[derive(Debug, Clone, thiserror::Error)]
pub enum OpenError {
    /// The managed ledger does not exist and was not to be created.
    #[error("no managed ledger {0}")]
    NotFound(String),
    /// Others kept changing its info meanwhile; one of us should not own it.
    #[error("managed ledger {0} is being opened elsewhere")]
    Contended(String),
    /// The managed ledger is a shadow and was opened as an ordinary one, or the other way round.
    #[error("managed ledger {name} is {what}")]
    NotSuch {
        /// The managed ledger.
        name: String,
        /// Its actual kind.
        what: String,
    },
    /// The source of a shadow was deleted, or deleted and made anew.
    #[error("{0}, whose shadow this is, was deleted; delete the shadow, too")]
    SourceGone(String),
    /// A ledger of the source cannot be looked at.
    #[error("cannot follow the source")]
    Follow(#[source] pharos_ledger::ReadError),
    /// Its info cannot be read or written.
    #[error("cannot open the managed ledger's info")]
    Info(#[from] InfoError),
    /// A ledger cannot be recovered; retry later.
    #[error("cannot recover a ledger of the managed ledger")]
    Recover(#[from] pharos_ledger::OpenError),
    /// No ledger to write to can be created.
    #[error("cannot create a ledger for the managed ledger")]
    Create(#[from] pharos_ledger::CreateError),
    /// The cursor ledger cannot be read.
    #[error("cannot read the cursor ledger")]
    ReadCursors(#[from] pharos_ledger::ReadError),
    /// The cursor ledger holds what this release does not understand.
    #[error("cursor ledger {ledger}, entry {entry}")]
    CursorRecord {
        /// The ledger.
        ledger: LedgerId,
        /// The entry.
        entry: u64,
        /// Defect of the record.
        #[source]
        cause: crate::cursor::Malformed,
    },
    /// The compacted ledger cannot be looked at; retry later.
    #[error("cannot read the compacted ledger {ledger}")]
    Compacted {
        /// The ledger.
        ledger: LedgerId,
        /// Cause.
        #[source]
        cause: pharos_ledger::ReadError,
    },
    /// The cursor state could not be written back.
    #[error("cannot write the cursor ledger")]
    WriteCursors(#[from] CommitError),
}

/// Reason why an append was refused. The entry has no position and was not queued.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AppendError {
    /// Another owner took over; reopen the managed ledger, do not retry here.
    #[error("managed ledger is fenced")]
    Fenced,
    /// The managed ledger is terminated: it never takes entries again.
    #[error("managed ledger is terminated")]
    Terminated,
    /// The managed ledger is a shadow: entries are appended to its source.
    #[error("managed ledger is the shadow of another")]
    Shadow,
    /// The entry is empty or too large.
    #[error("entry of {bytes} bytes; 1 to {bytes_max} are taken")]
    BadSize {
        /// Its size.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// The device has no room; retry when there is some.
    #[error("no space left")]
    NoSpace,
    /// More is queued than is taken, because callers did not bound what they have in flight; retry after the durable end moved.
    #[error("too much is queued")]
    Overloaded,
    /// The log failed; entries not yet durable may be lost. Final: reopen the managed ledger.
    #[error("managed ledger has failed")]
    Failed(#[source] Arc<StorageFault>),
}

impl AppendError {
    /// True if the managed ledger takes no more entries: close it, and open it again if the cause passes.
    #[must_use]
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Fenced | Self::Failed(_))
    }

    /// Severity for the owner. After a transient error the same append may succeed later; after a final one, once the
    /// managed ledger was opened again.
    #[must_use]
    pub fn kind(&self) -> FaultKind {
        match self {
            Self::Fenced => FaultKind::Fenced,
            Self::NoSpace | Self::Overloaded => FaultKind::Transient,
            Self::Failed(fault) => fault.kind(),
            Self::Terminated | Self::Shadow | Self::BadSize { .. } => FaultKind::Lasting,
        }
    }
}

/// The fault that a refusal amounts to.
pub(crate) fn fault_of(what: &str, error: &pharos_ledger::AppendError) -> Arc<StorageFault> {
    StorageFault::of(error.kind(), what, error)
}

/// Reason why the durable end will not move any more.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DurableError {
    /// The log failed. Entries beyond the last durable end were not acknowledged and may be lost.
    #[error("managed ledger has failed")]
    Failed(#[source] Arc<StorageFault>),
    /// The managed ledger was closed or dropped.
    #[error("managed ledger was closed")]
    Closed,
}

impl DurableError {
    /// Severity for the owner. If it is transient, opening the managed ledger again may succeed.
    #[must_use]
    pub fn kind(&self) -> FaultKind {
        match self {
            Self::Failed(fault) => fault.kind(),
            Self::Closed => FaultKind::Lasting,
        }
    }
}

/// Reason why entries could not be read.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ReadError {
    /// The ledger was trimmed meanwhile: go on at the managed ledger's first entry.
    #[error("ledger {0} was trimmed")]
    Trimmed(LedgerId),
    /// The chain went on beyond the reader's table: take a new one and read again.
    #[error("the reader's table of ledgers is old")]
    StaleTable,
    /// An entry below the durable end is not there: the store lost it.
    #[error("entry {0} is missing")]
    Missing(Position),
    /// The engine cannot read it.
    #[error("cannot read from the ledger")]
    Engine(#[source] pharos_ledger::ReadError),
    /// Its copy in an object store cannot be read, and there is no other.
    #[error("cannot read the offloaded ledger")]
    Offload(#[source] pharos_ledger::offload::OffloadError),
}

impl ReadError {
    /// True if the entry itself is lost: damaged or missing in the ledger and in every copy. Unlike a device failure,
    /// this is permanent.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        use pharos_ledger::ReadError as Refused;
        match self {
            Self::Engine(error) => matches!(error, Refused::Damaged { .. } | Refused::NoSuchLedger(_)),
            Self::Missing(_) | Self::Offload(_) => self.is_lasting(),
            Self::Trimmed(_) | Self::StaleTable => false,
        }
    }

    /// True if another read would fail the same way: the entry is lost, or its device has failed for good.
    #[must_use]
    pub fn is_lasting(&self) -> bool {
        use pharos_ledger::offload::OffloadError;
        match self {
            Self::Trimmed(_) | Self::StaleTable => false,
            Self::Missing(_) => true,
            Self::Engine(error) => !error.is_transient(),
            Self::Offload(error) => {
                matches!(error, OffloadError::Missing { .. } | OffloadError::Damaged { .. })
            }
        }
    }
}

/// Reason why a managed ledger could not be closed. Opening it again recovers what this left undone.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CloseError {
    /// Its last entries may not be durable.
    #[error("cannot close the ledger")]
    Ledger(#[from] pharos_ledger::AppendError),
    /// Its end could not be recorded.
    #[error("cannot record the closed ledger")]
    Info(#[from] InfoError),
}

/// Reason why a managed ledger could not be deleted.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DeleteError {
    /// Its info cannot be read or removed: it still exists, or may.
    #[error("cannot delete the managed ledger's info")]
    Info(#[from] InfoError),
    /// The managed ledger is deleted, but some of its ledgers still exist; another call deletes them, or the clean-up
    /// at start.
    #[error("cannot delete a ledger of the managed ledger")]
    Ledger(#[from] pharos_ledger::DeleteError),
}

/// Reason why a group of cursor records did not become durable.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CommitError {
    /// The cursor ledger failed; final: reopen the topic.
    #[error("cursor log has failed")]
    Failed(#[source] Arc<StorageFault>),
    /// The engine refused the records.
    #[error("cannot append to the cursor ledger")]
    Append(#[from] pharos_ledger::AppendError),
    /// No cursor ledger can be created.
    #[error("cannot create a cursor ledger")]
    Create(#[from] pharos_ledger::CreateError),
    /// The new cursor ledger cannot be named.
    #[error("cannot name the cursor ledger")]
    Info(#[from] InfoError),
    /// The engine takes no more at this moment, so an opening or closing gave up; try again.
    #[error("too much is queued in the engine")]
    Overloaded,
    /// The device has no room. What was queued is stored when it has.
    #[error("no space left to store it")]
    NoSpace,
    /// The cursor log was dropped first.
    #[error("cursor log was closed")]
    Closed,
}

impl CommitError {
    /// True if the cursor log resumes by itself, and stores the queued records, once the cause is gone.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::NoSpace | Self::Overloaded | Self::Info(InfoError::Write(_)) => true,
            Self::Create(error) => error.is_transient(),
            Self::Failed(_) | Self::Append(_) | Self::Info(_) | Self::Closed => false,
        }
    }

    /// Severity for the owner. If it is transient, opening the topic again may succeed.
    #[must_use]
    pub fn kind(&self) -> FaultKind {
        match self {
            Self::Failed(fault) => fault.kind(),
            Self::Append(error) => error.kind(),
            Self::Create(error) => error.kind(),
            Self::Info(error) => error.kind(),
            Self::Overloaded | Self::NoSpace => FaultKind::Transient,
            Self::Closed => FaultKind::Lasting,
        }
    }
}
