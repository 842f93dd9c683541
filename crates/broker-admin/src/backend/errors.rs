//! Errors of topics and cursors as errors of admin verbs: one exhaustive match per family.

use crate::resource::AdminError;
use pharos_broker::error::{CursorError, Gone, TopicError};

impl From<Gone> for AdminError {
    fn from(gone: Gone) -> Self {
        Self::Unavailable(gone.to_string())
    }
}

impl From<TopicError> for AdminError {
    fn from(error: TopicError) -> Self {
        let reason = error.to_string();
        match error {
            TopicError::NotFound(_) | TopicError::NoNamespace(_) => Self::NotFound(reason),
            TopicError::NotAllowed(_) | TopicError::InUse => Self::Precondition(reason),
            TopicError::Closing(_) | TopicError::NotServed(_) | TopicError::Gone(_) => {
                Self::Unavailable(reason)
            }
            TopicError::Metadata(_) | TopicError::Storage(_) => Self::Internal(reason),
        }
    }
}

impl From<CursorError> for AdminError {
    fn from(error: CursorError) -> Self {
        let reason = error.to_string();
        match error {
            CursorError::Topic(error) => error.into(),
            CursorError::NoSubscription(_) | CursorError::NoConsumer => Self::NotFound(reason),
            CursorError::Exists(_) => Self::Conflict(reason),
            CursorError::Busy(_) => Self::Precondition(reason),
            CursorError::NotAllowed(_) => Self::NotAllowed(reason),
            CursorError::Read(_) | CursorError::Storage(_) => Self::Internal(reason),
        }
    }
}
