//! Subscriptions of a topic: making, moving, emptying, deleting, and who listens on a broadcast one.

use std::collections::BTreeMap;

use pharos_admin_api::{AnalyzeBacklogResult, BroadcastDetails};
use pharos_types::{SubscriptionName, TopicName};

use super::{AdminResult, BroadcastQuery, Place, not_implemented};

/// Subscriptions of a topic. What is always true of such interfaces: [the module](super).
pub trait SubscriptionAdmin: Send + Sync {
    /// Names of the topic's durable subscriptions.
    fn subscriptions(&self, topic: TopicName) -> AdminResult<'_, Vec<String>>;

    /// Creates a durable subscription at a place.
    ///
    /// # Errors
    /// `Conflict`: exists. `NotFound`: no such topic. `NotAllowed`: non-persistent.
    fn create_subscription(
        &self,
        topic: TopicName,
        subscription: SubscriptionName,
        place: Place,
        properties: BTreeMap<String, String>,
        replicated: bool,
    ) -> AdminResult<'_, ()>;

    /// Deletes a subscription; `force` disconnects its consumers.
    ///
    /// # Errors
    /// `NotFound`; `Precondition` when consumers are connected and not `force`.
    fn delete_subscription(
        &self,
        topic: TopicName,
        subscription: SubscriptionName,
        force: bool,
    ) -> AdminResult<'_, ()>;

    /// Moves a subscription to a place; consumers are disconnected and come back.
    ///
    /// # Errors
    /// `NotFound`; `Precondition` when the place does not exist; `NotAllowed` on a non-persistent topic.
    fn reset_to(&self, topic: TopicName, subscription: SubscriptionName, place: Place)
    -> AdminResult<'_, ()>;

    /// Moves a subscription to the first message published at or after a time in milliseconds since 1970.
    fn reset_to_time(
        &self,
        topic: TopicName,
        subscription: SubscriptionName,
        timestamp_ms: u64,
    ) -> AdminResult<'_, ()>;

    /// Acknowledges the next `count` entries of the backlog.
    fn skip(&self, topic: TopicName, subscription: SubscriptionName, count: u64) -> AdminResult<'_, ()>;

    /// Acknowledges the whole backlog.
    fn skip_all(&self, topic: TopicName, subscription: SubscriptionName) -> AdminResult<'_, ()>;

    /// Acknowledges what is older than `seconds`.
    fn expire_older(
        &self,
        topic: TopicName,
        subscription: SubscriptionName,
        seconds: u64,
    ) -> AdminResult<'_, ()>;

    /// Acknowledges everything up to a place.
    fn expire_to(
        &self,
        topic: TopicName,
        subscription: SubscriptionName,
        place: Place,
    ) -> AdminResult<'_, ()>;

    /// Properties of a subscription.
    fn subscription_properties(
        &self,
        topic: TopicName,
        subscription: SubscriptionName,
    ) -> AdminResult<'_, BTreeMap<String, String>>;

    /// Replaces the properties of a subscription.
    fn set_subscription_properties(
        &self,
        topic: TopicName,
        subscription: SubscriptionName,
        properties: BTreeMap<String, String>,
    ) -> AdminResult<'_, ()>;

    /// Consumers of a broadcast subscription.
    ///
    /// # Errors
    /// `NotFound`; `Precondition` when the subscription is of another kind.
    fn broadcast_details(
        &self,
        topic: TopicName,
        subscription: SubscriptionName,
        query: BroadcastQuery,
    ) -> AdminResult<'_, BroadcastDetails>;

    /// Reads through a backlog and counts.
    fn analyze_backlog(
        &self,
        topic: TopicName,
        subscription: SubscriptionName,
        from: Option<Place>,
    ) -> AdminResult<'_, AnalyzeBacklogResult> {
        drop((topic, subscription, from));
        not_implemented("analyzing a backlog")
    }
}
