//! What can go wrong with a ledger, one enum per operation.

use std::sync::Arc;

use pharos_types::{EntryId, LedgerId};

/// What a failure means for the one who writes a log.
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
    /// What was being done, with file and byte offset where there is one.
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

    /// What was being done, `what`, is another one's now: it recovered or deleted the ledger.
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

    /// What it means for the one who writes.
    #[must_use]
    pub fn kind(&self) -> FaultKind {
        self.kind
    }

    /// Whether the engine goes on: what failed may be begun anew (a ledger recovered, another one made) and works once the
    /// cause is gone. Otherwise the engine takes no more writes until it is opened again, or [the ledger has another
    /// owner](Self::is_fenced).
    #[must_use]
    pub fn is_transient(&self) -> bool {
        self.kind == FaultKind::Transient
    }

    /// Whether another one took the ledger. The engine goes on, and so would a recovery; but who begins one without asking first
    /// whose the ledger is now takes it away from its owner.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        self.kind == FaultKind::Fenced
    }
}

/// Why an append or close was refused.
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
        /// How much the engine queues, for all ledgers together.
        bytes_max: usize,
    },
    /// The store no longer accepts writes; reads go on. Final until restart.
    #[error("storage no longer accepts writes")]
    Poisoned(#[source] Arc<StorageFault>),
    /// What was queued for this ledger waited too long for something that the store lacks, and is given up: it was never
    /// acknowledged and is not in the ledger. The ledger takes no more; recover it and go on in another.
    #[error("ledger {ledger} was given up")]
    GivenUp {
        /// The ledger.
        ledger: LedgerId,
        /// What the store lacked.
        #[source]
        fault: Arc<StorageFault>,
    },
}

impl AppendError {
    /// What it means for the one who writes. After `GivenUp` the same append may succeed in another ledger. A ledger that its
    /// writer did not close and that is closed was recovered by another owner, so `Closed` counts as fenced.
    #[must_use]
    pub fn kind(&self) -> FaultKind {
        match self {
            Self::NoSpace { .. } | Self::Overloaded { .. } => FaultKind::Transient,
            Self::Poisoned(fault) | Self::GivenUp { fault, .. } => fault.kind(),
            Self::Fenced { .. } | Self::Closed { .. } => FaultKind::Fenced,
            Self::TooLarge { .. } => FaultKind::Lasting,
        }
    }

    /// Whether the cause passes: the same append may succeed later.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        self.kind() == FaultKind::Transient
    }
}

/// Why a ledger could not be created.
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
    /// What it means for the one who writes.
    #[must_use]
    pub fn kind(&self) -> FaultKind {
        match self {
            Self::NoSpace => FaultKind::Transient,
            Self::Poisoned(fault) => fault.kind(),
        }
    }

    /// Whether the cause passes: the same call may succeed later.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        self.kind() == FaultKind::Transient
    }
}

/// Why a ledger could not be recovered.
#[derive(Debug, Clone, thiserror::Error)]
pub enum OpenError {
    /// It is not known.
    #[error("no ledger {0}")]
    NoSuchLedger(LedgerId),
    /// Its end cannot be told now.
    #[error("cannot recover the ledger")]
    Fault(#[source] Arc<StorageFault>),
}

impl OpenError {
    /// Whether the cause passes: the same call may succeed later.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Fault(fault) if fault.is_transient())
    }
}

/// Why entries could not be read.
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
        /// Where in the file its record begins.
        byte_offset: u64,
    },
    /// The device failed.
    #[error("cannot read")]
    Fault(#[source] Arc<StorageFault>),
}

impl ReadError {
    /// Whether the cause passes: the same read may succeed later.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Fault(fault) if fault.is_transient())
    }
}

/// Why a ledger could not be deleted.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DeleteError {
    /// The store no longer accepts writes.
    #[error("storage no longer accepts writes")]
    Poisoned(#[source] Arc<StorageFault>),
    /// Not even what the engine keeps back for deletions has room left. The ledger is as it was.
    #[error("no space left to note the deletion of a ledger")]
    NoSpace,
}

impl DeleteError {
    /// What it means for the one who writes.
    #[must_use]
    pub fn kind(&self) -> FaultKind {
        match self {
            Self::NoSpace => FaultKind::Transient,
            Self::Poisoned(fault) => fault.kind(),
        }
    }

    /// Whether the cause passes: the same call may succeed later.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        self.kind() == FaultKind::Transient
    }
}
