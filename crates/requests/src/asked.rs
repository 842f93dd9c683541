//! Requests of a protocol handler to the broker for a caller, and their results.

use std::sync::Arc;

use pharos_auth::Denied;
use pharos_catalog::PatternError;
use pharos_catalog::schema::{SchemaError, SchemaInfo};
use pharos_cluster::BrokerAddresses;
use pharos_types::{SubscriptionName, TopicName};

use crate::consumer::{SubscribeRequest, Subscribed};
use crate::error::{ProducerError, SubscribeError, TopicError};
use crate::producer::ProducerRequest;

/// Reason why an action was not done.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Refused<E: std::error::Error> {
    /// The caller may not do it. Nothing was done.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// The action failed.
    #[error(transparent)]
    Failed(E),
}

/// Reason why a producer could not be created.
#[derive(Debug, thiserror::Error)]
pub enum ProduceError {
    /// The topic cannot be had.
    #[error(transparent)]
    Topic(#[from] TopicError),
    /// Its schema does not fit.
    #[error(transparent)]
    Schema(SchemaError),
    /// The subscription that it brings cannot be created.
    #[error(transparent)]
    Subscription(SubscribeError),
    /// The topic does not let it in.
    #[error(transparent)]
    Producer(ProducerError),
    /// The caller left meanwhile.
    #[error("the connection was closed while the producer came")]
    Left,
}

/// Reason why a consumer could not be created.
#[derive(Debug, thiserror::Error)]
pub enum ConsumeError {
    /// The topic cannot be had.
    #[error(transparent)]
    Topic(#[from] TopicError),
    /// Its schema does not fit.
    #[error(transparent)]
    Schema(SchemaError),
    /// The topic does not let it in.
    #[error(transparent)]
    Consumer(SubscribeError),
    /// The caller left meanwhile.
    #[error("the connection was closed while the consumer came")]
    Left,
}

/// Reason why a schema could not be added.
#[derive(Debug, thiserror::Error)]
pub enum AddSchemaError {
    /// There is no such topic.
    #[error("topic {0} not found")]
    NoTopic(TopicName),
    /// The schema is incompatible or invalid.
    #[error(transparent)]
    Schema(SchemaError),
}

/// Why topics could not be listed or watched.
#[derive(Debug, thiserror::Error)]
pub enum ListTopicsError {
    /// The pattern cannot be used.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// The broker stops.
    #[error("topics are not listed: the broker is stopping")]
    Stopping,
}

/// Result of a request to create a consumer.
#[derive(Debug)]
pub enum Consumed {
    /// The consumer is attached here.
    Here(Box<Subscribed>),
    /// The consumer belongs at another broker, which has the carrier of its name.
    Elsewhere(Arc<BrokerAddresses>),
}

/// A wish to produce, with what comes along.
#[derive(Clone, Debug)]
pub struct Produce {
    /// The producer.
    pub request: ProducerRequest,
    /// The schema that it brings.
    pub schema: Option<SchemaInfo>,
    /// The subscription to create with it, at the first entry.
    pub subscription: Option<SubscriptionName>,
}

/// A wish to consume, with what comes along.
#[derive(Clone, Debug)]
pub struct Consume {
    /// The consumer.
    pub request: SubscribeRequest,
    /// The schema that it brings.
    pub schema: Option<SchemaInfo>,
    /// True if the topic may be created, where that is allowed.
    pub may_create_topic: bool,
}
