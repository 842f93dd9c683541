//! Errors, one enum per operation.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{SessionEnd, Version};

/// A device, file system or backend failure, shared by everyone it hits.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {cause}")]
pub struct Fault {
    /// Operation that failed.
    pub what: &'static str,
    /// The system's answer.
    pub cause: String,
}

impl Fault {
    /// A fault met while doing `what`.
    pub fn new(what: &'static str, cause: impl std::fmt::Display) -> Arc<Self> {
        Arc::new(Self {
            what,
            cause: cause.to_string(),
        })
    }
}

/// Reason why a store could not be opened.
#[derive(Debug, Clone, thiserror::Error)]
pub enum OpenError {
    /// Another process, or this one, has it open.
    #[error("metadata store {path} is in use")]
    InUse {
        /// The file.
        path: String,
    },
    /// The store was written by another release.
    #[error("metadata store {path} has format {found}, this release reads {known}")]
    UnknownFormat {
        /// The file.
        path: String,
        /// Its format number.
        found: u64,
        /// The number this release writes.
        known: u64,
    },
    /// Something in it was answered once and cannot be read any more.
    #[error("metadata store is damaged: {} at {byte_offset}: {what}", .file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// Offset in the file.
        byte_offset: u64,
        /// Description of the defect.
        what: String,
    },
    /// The store does not belong to the ledgers that it was opened beside, or is in a different state.
    #[error("{why}; {} says so. Put the right one back; storage.accept_metadata opens it all the same", .witness.display())]
    NotOfTheseLedgers {
        /// The file beside the ledgers that knows their metadata store.
        witness: PathBuf,
        /// Kind of mismatch.
        why: Mismatch,
    },
    /// The store cannot be read or written.
    #[error("cannot open metadata store")]
    Fault(#[source] Arc<Fault>),
}

impl OpenError {
    pub(crate) fn io(what: &'static str, path: &Path, error: &std::io::Error) -> Self {
        Self::Fault(Fault::new(what, format!("{}: {error}", path.display())))
    }

    pub(crate) fn copy(path: &Path, error: &impl std::fmt::Display) -> Self {
        Self::Fault(Fault::new(
            "write metadata store",
            format!("{}: {error}", path.display()),
        ))
    }
}

/// Reason why a metadata store does not belong to the ledgers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// There is none, or only one of an older release.
    #[error("the metadata store of these ledgers is missing")]
    Missing,
    /// The store has another id.
    #[error("this metadata store belongs to other ledgers")]
    Foreign,
    /// The store is older than it was, as a backup is.
    #[error("this metadata store is older than the ledgers")]
    Older,
    /// The store was opened beside a newer state of these ledgers.
    #[error("the ledgers are older than their metadata store")]
    LedgersOlder,
    /// The store was opened beside ledgers, and these have no witness of a store.
    #[error("this metadata store belongs to ledgers, and these know of no metadata store")]
    NoWitness,
}

/// Reason why a read failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ReadError {
    /// Invalid key; a bug of the caller or a name that should have been refused earlier.
    #[error("{0:?} is not a metadata key")]
    InvalidKey(String),
    /// The backend failed or was shut down.
    #[error("cannot read metadata")]
    Fault(#[source] Arc<Fault>),
}

/// Reason why a put or delete did not happen, or may not have.
#[derive(Debug, Clone, thiserror::Error)]
pub enum WriteError {
    /// Invalid key.
    #[error("{0:?} is not a metadata key")]
    InvalidKey(String),
    /// The value is too large for every backend.
    #[error("metadata value of {bytes} bytes is larger than {bytes_max}")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// The expectation does not hold; nothing was written.
    #[error("metadata key {key} was changed by someone else")]
    Conflict {
        /// The key.
        key: String,
        /// Current version of the key.
        current: Option<Version>,
    },
    /// The device is full; nothing was written. What needs less room than before is accepted all the same.
    #[error("no room for metadata")]
    NoSpace(#[source] Arc<Fault>),
    /// The backend failed or was shut down; whether the write happened is unknown. Unless the store says that it no longer
    /// accepts writes ([`crate::MetadataStore::fault`]), the next one may succeed.
    #[error("cannot write metadata")]
    Fault(#[source] Arc<Fault>),
}

/// Reason why a session was not opened or renewed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SessionError {
    /// The session is over, and its keys are gone. Open another one and create them again, after checking who has
    /// them now.
    #[error("metadata session ended: {0}")]
    Ended(SessionEnd),
    /// The backend failed or was shut down. An open session may still be renewed until its time is over.
    #[error("cannot reach the metadata store")]
    Fault(#[source] Arc<Fault>),
}

/// Reason why a put of an ephemeral key did not happen, or may not have.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SessionWriteError {
    /// The session is over; nothing was written.
    #[error("metadata session ended: {0}")]
    Ended(SessionEnd),
    /// As any other write. [`WriteError::Conflict`] also when the key is there and is not of this session, whatever was expected.
    #[error(transparent)]
    Write(#[from] WriteError),
}
