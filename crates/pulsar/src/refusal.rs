//! The one place where the broker's errors become the protocol's codes.

use pharos_auth::Denied;
use pharos_broker::error::{CursorError, ProducerError, PublishError, SubscribeError, TopicError};
use pharos_broker::shard::{AddSchemaError, ConsumeError, ListTopicsError, ProduceError, Refused};
use pharos_catalog::schema::SchemaError;
use pharos_catalog::{PartitionedMetadataError, PatternError};
use pharos_wire::answer::Refusal;
use pharos_wire::proto::ServerError;

/// Returns the refusal of an action; `failed` converts the error of one that was tried.
pub(crate) fn of<E: std::error::Error>(refused: &Refused<E>, failed: impl FnOnce(&E) -> Refusal) -> Refusal {
    match refused {
        Refused::Denied(denied) => of_denied(denied),
        Refused::Failed(error) => failed(error),
    }
}

/// The caller may not do what it asked for.
pub(crate) fn of_denied(denied: &Denied) -> Refusal {
    let code = match denied {
        Denied::NotAuthenticated(_) | Denied::NotAuthorized(_) => ServerError::AuthorizationError,
        Denied::NoTenant => ServerError::TopicNotFound,
    };
    Refusal::new(code, denied.to_string())
}

/// Returns the refusal for a producer that could not be created.
pub(crate) fn of_produce(error: &ProduceError) -> Refusal {
    match error {
        ProduceError::Topic(error) => of_topic(error),
        ProduceError::Schema(error) => of_schema(error),
        ProduceError::Subscription(error) => of_subscribe(error),
        ProduceError::Producer(error) => of_producer(error),
        ProduceError::Left => Refusal::new(ServerError::ServiceNotReady, error.to_string()),
    }
}

/// Returns the refusal for a consumer that could not be created.
pub(crate) fn of_consume(error: &ConsumeError) -> Refusal {
    match error {
        ConsumeError::Topic(error) => of_topic(error),
        ConsumeError::Schema(error) => of_schema(error),
        ConsumeError::Consumer(error) => of_subscribe(error),
        ConsumeError::Left => Refusal::new(ServerError::ServiceNotReady, error.to_string()),
    }
}

/// Returns the refusal for a schema that could not be added.
pub(crate) fn of_add_schema(error: &AddSchemaError) -> Refusal {
    match error {
        AddSchemaError::NoTopic(_) => Refusal::new(ServerError::TopicNotFound, error.to_string()),
        AddSchemaError::Schema(error) => of_schema(error),
    }
}

/// Returns the refusal for a rejected schema.
fn of_schema(error: &SchemaError) -> Refusal {
    let code = match error {
        SchemaError::Store(_) => ServerError::MetadataError,
        SchemaError::Deleting(_) => ServerError::ServiceNotReady,
        _ => ServerError::IncompatibleSchema,
    };
    Refusal::new(code, error.to_string())
}

/// Returns the refusal for a failed lookup of a topic's broker or partitions.
pub(crate) fn of_metadata(error: &PartitionedMetadataError) -> Refusal {
    let code = match error {
        PartitionedMetadataError::TopicNotFound(_)
        | PartitionedMetadataError::NamespaceNotFound
        | PartitionedMetadataError::TenantNotFound => ServerError::TopicNotFound,
        PartitionedMetadataError::NotAllowed(_) => ServerError::NotAllowedError,
        PartitionedMetadataError::OtherCluster(_) | PartitionedMetadataError::Store(_) => {
            ServerError::MetadataError
        }
    };
    Refusal::new(code, error.to_string())
}

/// Why topics cannot be listed or watched.
pub(crate) fn of_list(error: &ListTopicsError) -> Refusal {
    let code = match error {
        ListTopicsError::Pattern(PatternError::Invalid) => ServerError::InvalidTopicName,
        ListTopicsError::Pattern(_) => ServerError::NotAllowedError,
        ListTopicsError::Stopping => ServerError::ServiceNotReady,
    };
    Refusal::new(code, error.to_string())
}

/// Returns the refusal for a topic that is not available.
pub(crate) fn of_topic(error: &TopicError) -> Refusal {
    let code = match error {
        TopicError::NotFound(_) | TopicError::NoNamespace(_) => ServerError::TopicNotFound,
        TopicError::NotAllowed(_) | TopicError::InUse => ServerError::NotAllowedError,
        TopicError::Closing(_) | TopicError::NotServed(_) | TopicError::Gone(_) => {
            ServerError::ServiceNotReady
        }
        TopicError::Metadata(_) => ServerError::MetadataError,
        TopicError::Storage(_) => ServerError::PersistenceError,
    };
    Refusal::new(code, error.to_string())
}

/// Returns the refusal for a rejected producer.
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

/// Returns the refusal for a failed send.
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

/// Returns the refusal for a rejected consumer.
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

/// Returns the refusal for a failed operation of a consumer.
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
