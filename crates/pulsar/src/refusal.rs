//! The one place where the broker's errors become the protocol's codes.

use pharos_broker::error::{CursorError, ProducerError, PublishError, SubscribeError, TopicError};
use pharos_wire::answer::Refusal;
use pharos_wire::proto::ServerError;

/// Why a topic could not be had.
pub(crate) fn of_topic(error: &TopicError) -> Refusal {
    let code = match error {
        TopicError::NotFound(_) | TopicError::NoNamespace(_) => ServerError::TopicNotFound,
        TopicError::NotAllowed(_) | TopicError::InUse => ServerError::NotAllowedError,
        TopicError::Closing(_) | TopicError::Gone(_) => ServerError::ServiceNotReady,
        TopicError::Metadata(_) => ServerError::MetadataError,
        TopicError::Storage(_) => ServerError::PersistenceError,
    };
    Refusal::new(code, error.to_string())
}

/// Why a producer was refused.
pub(crate) fn of_producer(error: &ProducerError) -> Refusal {
    let code = match error {
        ProducerError::Topic(topic) => return of_topic(topic),
        ProducerError::Encryption(_) => ServerError::MetadataError,
        ProducerError::Busy(_) => ServerError::ProducerBusy,
        ProducerError::QuotaHold(_) => ServerError::ProducerBlockedQuotaExceededError,
        ProducerError::QuotaException(_) => ServerError::ProducerBlockedQuotaExceededException,
        ProducerError::Fenced(_) => ServerError::ProducerFenced,
        ProducerError::Terminated(_) => ServerError::TopicTerminatedError,
        ProducerError::Schema(_) => ServerError::IncompatibleSchema,
        ProducerError::Storage(_) => ServerError::PersistenceError,
    };
    Refusal::new(code, error.to_string())
}

/// Why a send failed.
pub(crate) fn of_publish(error: &PublishError) -> Refusal {
    let code = match error {
        PublishError::Terminated => ServerError::TopicTerminatedError,
        PublishError::NotAllowed(_) => ServerError::NotAllowedError,
        PublishError::NotEncrypted => ServerError::MetadataError,
        PublishError::Storage(_) | PublishError::NoSpace | PublishError::Closed => {
            ServerError::PersistenceError
        }
    };
    Refusal::new(code, error.to_string())
}

/// Why a consumer was refused.
pub(crate) fn of_subscribe(error: &SubscribeError) -> Refusal {
    let code = match error {
        SubscribeError::Topic(topic) => return of_topic(topic),
        SubscribeError::Busy(_) => ServerError::ConsumerBusy,
        SubscribeError::NotAllowed(_) => ServerError::NotAllowedError,
        SubscribeError::Assign(_) => ServerError::ConsumerAssignError,
        SubscribeError::NotFound(_) => ServerError::SubscriptionNotFound,
        SubscribeError::Schema(_) => ServerError::IncompatibleSchema,
        SubscribeError::Storage(_) => ServerError::PersistenceError,
    };
    Refusal::new(code, error.to_string())
}

/// Why an operation of a consumer failed.
pub(crate) fn of_cursor(error: &CursorError) -> Refusal {
    let code = match error {
        CursorError::Topic(topic) => return of_topic(topic),
        CursorError::NoSubscription(_) | CursorError::NoConsumer | CursorError::Busy(_) => {
            ServerError::MetadataError
        }
        CursorError::Exists(_) | CursorError::NotAllowed(_) => ServerError::NotAllowedError,
        CursorError::Read(_) => ServerError::UnknownError,
        CursorError::Storage(_) => ServerError::PersistenceError,
    };
    Refusal::new(code, error.to_string())
}
