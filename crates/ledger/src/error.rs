//! Errors of ledgers, one enum per operation.

use std::sync::Arc;

use pharos_types::{EntryId, LedgerId};

/// Meaning of a failure for the writer of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// For want of something that others will give back: what failed may be begun anew, and works once the cause is gone.
    Transient,
    /// Another owner took the log over. Its writer is finished with it: to begin anew would take it away from that owner, so
    /// who owns it is asked first.
    Fenced,
    /// The engine takes no more writes until it is opened again, or never what it was given.
    Lasting,
}

/// A device, file system or engine failure, shared by everyone it hits.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {cause}")]
pub struct StorageFault {
    /// Operation that failed, with file and byte offset if there is one.
    pub what: String,
    /// The system's answer.
    pub cause: String,
    kind: FaultKind,
}

impl StorageFault {
    /// A fault met while doing `what`: a device or an engine that should not be written to any more.
    pub fn new(what: impl Into<String>, cause: impl std::fmt::Display) -> Arc<Self> {
        Self::of(FaultKind::Lasting, what, cause)
    }

    /// A refusal met while doing `what`, for want of something that others will give back: room, files, memory.
    pub fn transient(what: impl Into<String>, cause: impl std::fmt::Display) -> Arc<Self> {
        Self::of(FaultKind::Transient, what, cause)
    }

    /// Fault of the operation `what`: another owner recovered or deleted the ledger.
    pub fn fenced(what: impl Into<String>, cause: impl std::fmt::Display) -> Arc<Self> {
        Self::of(FaultKind::Fenced, what, cause)
    }

    /// A fault of this kind met while doing `what`.
    pub fn of(kind: FaultKind, what: impl Into<String>, cause: impl std::fmt::Display) -> Arc<Self> {
        Arc::new(Self {
            what: what.into(),
            cause: cause.to_string(),
            kind,
        })
    }

    /// Returns the meaning of the fault for the writer.
    #[must_use]
    pub fn kind(&self) -> FaultKind {
        self.kind
    }

    /// True if the engine continues: the failed operation may be started again (a ledger recovered, another one
    /// created) and works once the cause is gone. Otherwise the engine accepts no more writes until it is opened
    /// again, or [the ledger has another owner](Self::is_fenced).
    #[must_use]
    pub fn is_transient(&self) -> bool {
        self.kind == FaultKind::Transient
    }

    /// True if another owner took the ledger. The engine continues, and a recovery would succeed; but a recovery
    /// without a check of the ledger's ownership first takes the ledger away from its owner.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        self.kind == FaultKind::Fenced
    }
}

/// Reason why an append or close was refused.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AppendError {
    /// Another writer took over; reopen the managed ledger, do not retry here.
    #[error("ledger {ledger} is fenced")]
    Fenced {
        /// The ledger.
        ledger: LedgerId,
    },
    /// The writer was closed.
    #[error("ledger {ledger} is closed")]
    Closed {
        /// The ledger.
        ledger: LedgerId,
    },
    /// The entry is larger than an engine takes.
    #[error("entry of {bytes} bytes is larger than {bytes_max}")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// The device has no room; retry when there is some.
    #[error("no space left for ledger {ledger}")]
    NoSpace {
        /// The ledger.
        ledger: LedgerId,
    },
    /// More is queued than the engine takes, because callers together did not bound what they have in flight; retry
    /// after the tail moved.
    #[error("ledger {ledger}: {bytes_max} bytes are queued already")]
    Overloaded {
        /// The ledger.
        ledger: LedgerId,
        /// Maximum size of the engine's queue, for all ledgers together, in bytes.
        bytes_max: usize,
    },
    /// The store no longer accepts writes; reads go on. Final until restart.
    #[error("storage no longer accepts writes")]
    Poisoned(#[source] Arc<StorageFault>),
    /// The appends queued for this ledger waited too long for something that the store lacks, and are given up: they
    /// were never acknowledged and are not in the ledger. The ledger accepts no more; recover it and continue in
    /// another.
    #[error("ledger {ledger} was given up")]
    GivenUp {
        /// The ledger.
        ledger: LedgerId,
        /// Fault that the store reported.
        #[source]
        fault: Arc<StorageFault>,
    },
}

impl AppendError {
    /// Returns the meaning of the error for the writer. After `GivenUp` the same append may succeed in another
    /// ledger. A ledger that its writer did not close and that is closed was recovered by another owner, so `Closed`
    /// counts as fenced.
    #[must_use]
    pub fn kind(&self) -> FaultKind {
        match self {
            Self::NoSpace { .. } | Self::Overloaded { .. } => FaultKind::Transient,
            Self::Poisoned(fault) | Self::GivenUp { fault, .. } => fault.kind(),
            Self::Fenced { .. } | Self::Closed { .. } => FaultKind::Fenced,
            Self::TooLarge { .. } => FaultKind::Lasting,
        }
    }

    /// True if the cause is transient: the same append may succeed later.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        self.kind() == FaultKind::Transient
    }
}

/// Reason why a ledger could not be created.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CreateError {
    /// The store no longer accepts writes.
    #[error("storage no longer accepts writes")]
    Poisoned(#[source] Arc<StorageFault>),
    /// The device has no room.
    #[error("no space left to create a ledger")]
    NoSpace,
}

impl CreateError {
    /// Returns the meaning of the error for the writer.
    #[must_use]
    pub fn kind(&self) -> FaultKind {
        match self {
            Self::NoSpace => FaultKind::Transient,
            Self::Poisoned(fault) => fault.kind(),
        }
    }

    /// True if the cause is transient: the same call may succeed later.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        self.kind() == FaultKind::Transient
    }
}

/// Reason why a ledger could not be recovered.
#[derive(Debug, Clone, thiserror::Error)]
pub enum OpenError {
    /// The ledger is not known.
    #[error("no ledger {0}")]
    NoSuchLedger(LedgerId),
    /// Its end cannot be told now.
    #[error("cannot recover the ledger")]
    Fault(#[source] Arc<StorageFault>),
}

impl OpenError {
    /// True if the cause is transient: the same call may succeed later.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Fault(fault) if fault.is_transient())
    }
}

/// Reason why entries could not be read.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ReadError {
    /// The ledger is not known, or it was deleted.
    #[error("no ledger {0}")]
    NoSuchLedger(LedgerId),
    /// The entry is there but its bytes are not what was written.
    #[error("entry {entry} of ledger {ledger} is damaged in {file} at {byte_offset}")]
    Damaged {
        /// The ledger.
        ledger: LedgerId,
        /// The entry.
        entry: EntryId,
        /// The file that holds it.
        file: String,
        /// Byte offset in the file at which its record begins.
        byte_offset: u64,
    },
    /// The device failed.
    #[error("cannot read")]
    Fault(#[source] Arc<StorageFault>),
}

impl ReadError {
    /// True if the cause is transient: the same read may succeed later.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Fault(fault) if fault.is_transient())
    }
}

/// Reason why a ledger could not be deleted.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DeleteError {
    /// The store no longer accepts writes.
    #[error("storage no longer accepts writes")]
    Poisoned(#[source] Arc<StorageFault>),
    /// Even the space reserved for deletions is full. The ledger is unchanged.
    #[error("no space left to note the deletion of a ledger")]
    NoSpace,
}

impl DeleteError {
    /// Returns the meaning of the error for the writer.
    #[must_use]
    pub fn kind(&self) -> FaultKind {
        match self {
            Self::NoSpace => FaultKind::Transient,
            Self::Poisoned(fault) => fault.kind(),
        }
    }

    /// True if the cause is transient: the same call may succeed later.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        self.kind() == FaultKind::Transient
    }
}
