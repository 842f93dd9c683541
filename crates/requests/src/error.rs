//! Errors, one enum per operation. Protocol handlers translate them into their protocol's codes.

use std::sync::Arc;

use pharos_ledger::{ReadError, StorageFault};
use pharos_types::TxnId;

/// The other side of a call stopped: the broker is shutting down.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the broker is shutting down")]
pub struct Gone;

/// Reason why a topic is not available.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TopicError {
    /// There is none, and none may be created.
    #[error("topic {0} not found")]
    NotFound(String),
    /// The namespace or tenant does not exist.
    #[error("{0}")]
    NoNamespace(String),
    /// The name and the partitioned metadata disagree, or the kind of topic is not served.
    #[error("{0}")]
    NotAllowed(String),
    /// The topic has producers or consumers.
    #[error("Topic has active producers/subscriptions")]
    InUse,
    /// The topic is being closed or deleted; try again.
    #[error("topic {0} is being closed")]
    Closing(String),
    /// This broker does not serve the topic: the client looks up again. The text is Pulsar's.
    #[error("Namespace bundle for topic ({0}) not served by this instance. Please redo the lookup.")]
    NotServed(String),
    /// Metadata could not be read or written.
    #[error("metadata: {0}")]
    Metadata(String),
    /// Its log could not be opened.
    #[error("storage: {0}")]
    Storage(String),
    /// The broker is stopping.
    #[error(transparent)]
    Gone(#[from] Gone),
}

/// Reason why a producer was refused.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ProducerError {
    /// The topic cannot be had.
    #[error(transparent)]
    Topic(#[from] TopicError),
    /// The name is taken, or an exclusive producer holds the topic.
    #[error("{0}")]
    Busy(String),
    /// The backlog is over its quota; the client tries again until it is not.
    #[error("{0}")]
    QuotaHold(String),
    /// The backlog is over its quota; the client is to fail what it has queued.
    #[error("{0}")]
    QuotaException(String),
    /// The topic takes encrypted messages only.
    #[error("{0}")]
    Encryption(String),
    /// Exclusive access was lost or refused.
    #[error("{0}")]
    Fenced(String),
    /// The topic is terminated.
    #[error("topic {0} is terminated")]
    Terminated(String),
    /// The schema does not fit.
    #[error("{0}")]
    Schema(String),
    /// The topic takes no writes.
    #[error("storage: {0}")]
    Storage(String),
}

/// Reason why a send failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PublishError {
    /// The entry could not be made durable; the topic is closed for writes until it is loaded again.
    #[error("cannot store the message: {0}")]
    Storage(String),
    /// No room on the device; the same send may succeed later.
    #[error("no space left to store the message")]
    NoSpace,
    /// The topic is terminated.
    #[error("topic is terminated")]
    Terminated,
    /// A policy of the topic is against it.
    #[error("{0}")]
    NotAllowed(String),
    /// The topic takes encrypted messages only.
    #[error("Messages must be encrypted")]
    NotEncrypted,
    /// The producer was closed meanwhile.
    #[error("producer is closed")]
    Closed,
}

/// Reason why a consumer was refused.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SubscribeError {
    /// The topic cannot be had.
    #[error(transparent)]
    Topic(#[from] TopicError),
    /// Another consumer holds the subscription, or it is of another kind.
    #[error("{0}")]
    Busy(String),
    /// The combination is not allowed.
    #[error("{0}")]
    NotAllowed(String),
    /// A Key_Shared assignment that cannot be made.
    #[error("{0}")]
    Assign(String),
    /// There is no such subscription and none may be created.
    #[error("subscription {0} not found")]
    NotFound(String),
    /// The schema does not fit.
    #[error("{0}")]
    Schema(String),
    /// The subscription could not be stored.
    #[error("storage: {0}")]
    Storage(String),
}

/// Reason why an operation of an attached consumer, or of an administrator on a subscription, failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CursorError {
    /// The topic cannot be had.
    #[error(transparent)]
    Topic(#[from] TopicError),
    /// No such subscription.
    #[error("subscription {0} not found")]
    NoSubscription(String),
    /// The subscription already exists.
    #[error("subscription {0} already exists")]
    Exists(String),
    /// No such consumer.
    #[error("consumer not found")]
    NoConsumer,
    /// Others are attached.
    #[error("{0}")]
    Busy(String),
    /// The operation is not supported on this kind of subscription.
    #[error("{0}")]
    NotAllowed(String),
    /// The log could not be read.
    #[error("cannot read: {0}")]
    Read(Arc<ReadError>),
    /// The cursor could not be stored.
    #[error("storage: {0}")]
    Storage(String),
}

/// Reason why an acknowledgement in a transaction was refused.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TxnAckError {
    /// The topic cannot be had.
    #[error(transparent)]
    Topic(#[from] TopicError),
    /// No such consumer.
    #[error("consumer not found")]
    NoConsumer,
    /// The transaction is not open, or the subscription was not added to it.
    #[error(
        "transaction {0} is not open for this subscription: it has ended, or the subscription was not added to it"
    )]
    NotFound(TxnId),
    /// Something else has acknowledged it.
    #[error("{0}")]
    Conflict(String),
    /// The acknowledgement is not supported here.
    #[error("{0}")]
    NotAllowed(String),
    /// The acknowledgement could not be stored.
    #[error("storage: {0}")]
    Storage(String),
}

impl From<Gone> for TxnAckError {
    fn from(gone: Gone) -> Self {
        Self::Topic(gone.into())
    }
}

impl From<Gone> for SubscribeError {
    fn from(gone: Gone) -> Self {
        Self::Topic(gone.into())
    }
}

impl From<Gone> for ProducerError {
    fn from(gone: Gone) -> Self {
        Self::Topic(gone.into())
    }
}

impl From<Gone> for CursorError {
    fn from(gone: Gone) -> Self {
        Self::Topic(gone.into())
    }
}

impl From<Arc<StorageFault>> for PublishError {
    fn from(fault: Arc<StorageFault>) -> Self {
        Self::Storage(fault.to_string())
    }
}

impl From<pharos_dispatch::AddConsumerError> for SubscribeError {
    fn from(error: pharos_dispatch::AddConsumerError) -> Self {
        use pharos_dispatch::AddConsumerError as E;
        match error {
            E::ModeMismatch { .. } | E::OrderMismatch { .. } => Self::Busy(error.to_string()),
            E::Assign(reason) => Self::Assign(reason),
            E::DuplicateKey(_) => Self::Storage(error.to_string()),
        }
    }
}

/// Reason why entries that a connection set aside were not read again.
#[derive(Debug, thiserror::Error)]
pub enum ReadAgainError {
    /// The topic was closed, or the entry is damaged: it does not come back.
    #[error("the topic was closed, or the entry is damaged")]
    Closed,
    /// The entries may become readable later.
    #[error("{0}")]
    Failed(String),
}

/// An error with its causes, in one line.
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}
