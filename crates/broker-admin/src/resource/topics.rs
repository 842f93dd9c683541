//! Topics: whose they are, making, growing, closing, deleting.

use std::collections::BTreeMap;
use std::sync::Arc;

use pharos_cluster::BrokerAddresses;
use pharos_types::TopicName;

use super::{AdminResult, LastMessage, not_implemented};

/// Topics, whole and partitioned. What is always true of such interfaces: [the module](super).
pub trait TopicAdmin: Send + Sync {
    /// Whether this broker serves a topic now. Takes none.
    fn serves(&self, topic: &TopicName) -> bool {
        let _ = topic;
        true
    }

    /// The broker that serves a topic, after taking it if none has it; `None`: this one.
    ///
    /// # Errors
    /// `Unavailable`: it could not be taken now.
    fn served_by(&self, topic: TopicName) -> AdminResult<'_, Option<Arc<BrokerAddresses>>> {
        drop(topic);
        Box::pin(async { Ok(None) })
    }

    /// Creates a topic that is no partitioned one.
    ///
    /// # Errors
    /// `Conflict`: it, or a partitioned topic of that name, exists. `Precondition`: a partition name that does not
    /// fit the metadata. `NotFound`: no such namespace.
    fn create_topic(&self, topic: TopicName, properties: BTreeMap<String, String>) -> AdminResult<'_, ()>;

    /// Creates a partitioned topic and, unless `metadata_only`, its partitions.
    ///
    /// # Errors
    /// `Conflict`: exists. `NotAcceptable`: count out of range. `NotFound`: no such namespace.
    fn create_partitioned(
        &self,
        topic: TopicName,
        partitions: u32,
        properties: BTreeMap<String, String>,
        metadata_only: bool,
    ) -> AdminResult<'_, ()>;

    /// Grows a partitioned topic. Subscriptions of the existing partitions are created on the new ones at the earliest
    /// position, so that nothing is missed.
    ///
    /// # Errors
    /// `Conflict`: not partitioned. `Unprocessable`: fewer than now.
    fn grow_partitioned(&self, topic: TopicName, partitions: u32) -> AdminResult<'_, ()>;

    /// Creates the partitions that metadata speaks of and that do not exist.
    fn create_missed_partitions(&self, topic: TopicName) -> AdminResult<'_, ()>;

    /// Deletes a partitioned topic: its partitions, then its metadata, schemas and policies.
    ///
    /// # Errors
    /// `NotFound`; `Precondition` when there are producers or consumers and not `force`.
    fn delete_partitioned(&self, topic: TopicName, force: bool) -> AdminResult<'_, ()>;

    /// Deletes a topic with its subscriptions, schemas and data. `force` disconnects who is on it.
    ///
    /// # Errors
    /// `NotFound`; `Precondition` when there are producers or subscriptions in use and not `force`.
    fn delete_topic(&self, topic: TopicName, force: bool) -> AdminResult<'_, ()>;

    /// Refuses appends from now on; says the last message.
    fn terminate(&self, topic: TopicName) -> AdminResult<'_, LastMessage>;

    /// Disconnects clients and forgets the loaded topic; it loads again when asked for.
    fn unload(&self, topic: TopicName) -> AdminResult<'_, ()>;

    /// Deletes ledgers that are not needed, now.
    ///
    /// # Errors
    /// `NotAllowed` on a non-persistent topic.
    fn trim(&self, topic: TopicName) -> AdminResult<'_, ()>;

    /// Moves every subscription to the end and deletes closed ledgers.
    fn truncate(&self, topic: TopicName) -> AdminResult<'_, ()> {
        drop(topic);
        not_implemented("truncate")
    }
}
