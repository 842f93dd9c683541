//! The one error that every family of facts shares.

use pharos_metadata::{ReadError, WriteError};

/// The metadata store did not do its part. The fact may or may not have changed when a write failed with a fault.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// It could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// It could not be written. A conflict means that another process changed it at the same time: try again.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// What is stored is not what this release writes.
    #[error("metadata key {key} holds no valid value: {cause}")]
    Damaged {
        /// The key.
        key: String,
        /// What the decoder said.
        cause: String,
    },
}

pub(super) fn damaged(key: &str, cause: &impl ToString) -> StoreError {
    StoreError::Damaged {
        key: key.to_owned(),
        cause: cause.to_string(),
    }
}
