//! The one error that every family of facts shares.

use pharos_metadata::{ReadError, WriteError};

/// The metadata store did not do its part. The fact may or may not have changed when a write failed with a fault.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// The value could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The value could not be written. A conflict means that another process changed it at the same time: try again.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The stored value is not in this release's format.
    #[error("metadata key {key} holds no valid value: {cause}")]
    Damaged {
        /// The key.
        key: String,
        /// Error of the decoder.
        cause: String,
    },
}

pub(super) fn damaged(key: &str, cause: &impl ToString) -> StoreError {
    StoreError::Damaged {
        key: key.to_owned(),
        cause: cause.to_string(),
    }
}
