//! The verbs of administration, carried out by the running broker.
//!
//! Owned by the admin front door; called from its threads. Each verb goes to the topic's home shard and does its work
//! there; numbers of cursors that are lent to listeners come from one more round over all shards, and are put
//! together here, off the shards. Work on a shard per call grows with subscriptions, never with messages; between calls
//! nothing is done.

mod broadcast;
mod errors;
mod gather;
mod health;
mod internals;
mod look;
mod meters;
mod metrics;
mod offload;
mod partitioned;
mod stats;
mod subscriptions;
mod topics;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;

use pharos_admin_api::{
    AnalyzeBacklogResult, BroadcastDetails, ManagedLedgerInfo, OffloadProcessStatus,
    PersistentTopicInternalStats, TopicStats,
};
use pharos_cluster::BrokerAddresses;
use pharos_types::{Domain, Position, SubscriptionName, TopicName};

use crate::admin::{
    AdminBackend, AdminError, AdminResult, BroadcastQuery, ExamineFrom, LastMessage, MetricFamily,
    MetricsSnapshot, Place, StatsFlags, StoredEntry,
};
use crate::broker::Broker;
use crate::error::TopicError;
use crate::ids::ShardId;
use crate::placement::Placed;
use crate::topic::{Access, Topic, Upkeep};
use meters::Meters;
use pharos_catalog::Catalog;

/// What crates below the broker say of themselves for the metrics page.
pub type FamilySource = Box<dyn Fn() -> Vec<MetricFamily> + Send + Sync>;

/// Why the stores below do not take writes now.
pub type HealthSource = Box<dyn Fn() -> Option<String> + Send + Sync>;

/// The verbs over a running broker.
pub struct Backend {
    broker: Broker,
    meters: Meters,
    families: Option<FamilySource>,
    health: Option<HealthSource>,
}

impl Backend {
    /// The verbs over `broker`.
    #[expect(clippy::new_ret_no_self, reason = "nobody needs more than the verbs")]
    #[must_use]
    pub fn new(broker: Broker) -> Arc<dyn AdminBackend> {
        Arc::new(Self {
            broker,
            meters: Meters::default(),
            families: None,
            health: None,
        })
    }

    /// As [`new`](Self::new), with more families for the metrics page; `families` is called for each page and must not
    /// wait. `health` says why the stores do not take writes now, if that is so; the same goes for it.
    #[must_use]
    pub fn with_stores(
        broker: Broker,
        families: FamilySource,
        health: HealthSource,
    ) -> Arc<dyn AdminBackend> {
        Arc::new(Self {
            broker,
            meters: Meters::default(),
            families: Some(families),
            health: Some(health),
        })
    }

    /// Does something with a stored topic that exists, on its home shard; loads it first when it must.
    async fn at_home<R, W, F>(&self, name: TopicName, work: W) -> Result<R, AdminError>
    where
        R: Send + 'static,
        W: FnOnce(Rc<Topic>) -> F + Send + 'static,
        F: Future<Output = Result<R, AdminError>> + 'static,
    {
        check_stored(&name)?;
        self.at_any_home(name, work).await
    }

    /// As [`at_home`](Self::at_home), for what a non-persistent topic can do as well.
    async fn at_any_home<R, W, F>(&self, name: TopicName, work: W) -> Result<R, AdminError>
    where
        R: Send + 'static,
        W: FnOnce(Rc<Topic>) -> F + Send + 'static,
        F: Future<Output = Result<R, AdminError>> + 'static,
    {
        let home = self.home(&name).await?;
        self.check_exists(&name)?;
        let outcome = self.broker.call(home, move |shard| async move {
            let topic = shard.topic(&name, Access::Existing).await?;
            work(topic).await
        });
        outcome.await?
    }

    /// The shard that serves a topic; takes the topic when no broker has it.
    async fn home(&self, name: &TopicName) -> Result<ShardId, AdminError> {
        match self.broker.shared.placement.claim(name).await {
            Ok(Placed::Here(home)) => Ok(home),
            Ok(Placed::Elsewhere(addresses)) => Err(AdminError::Elsewhere {
                topic: name.clone(),
                addresses,
            }),
            Ok(Placed::Unowned) => Err(TopicError::NotServed(name.to_string()).into()),
            Err(error) => Err(AdminError::Unavailable(error.to_string())),
        }
    }

    /// Refuses what is not there.
    fn check_exists(&self, name: &TopicName) -> Result<(), AdminError> {
        if self.catalog().topic_exists(name) {
            return Ok(());
        }
        Err(AdminError::NotFound(format!("Topic {name} not found")))
    }
}

/// Refuses what needs messages that are stored.
fn check_stored(name: &TopicName) -> Result<(), AdminError> {
    match name.domain() {
        Domain::Persistent => Ok(()),
        Domain::NonPersistent => Err(AdminError::NotAllowed(
            "not possible on a non-persistent topic: it stores nothing".to_owned(),
        )),
    }
}

impl AdminBackend for Backend {
    fn catalog(&self) -> &Catalog {
        &self.broker.shared.catalog
    }

    fn default_offload_policies(&self) -> Option<serde_json::Value> {
        crate::offload::default_of(&self.broker.shared.options.offload.policy)
    }

    fn check_backlog_quotas(&self) -> AdminResult<'_, ()> {
        Box::pin(async move {
            let all = self
                .broker
                .call_all(|shard| async move { shard.look_after_all(Upkeep::Quotas).await });
            all.await?;
            Ok(())
        })
    }

    fn create_topic(&self, topic: TopicName, properties: BTreeMap<String, String>) -> AdminResult<'_, ()> {
        Box::pin(self.create_topic(topic, properties))
    }

    fn create_partitioned(
        &self,
        topic: TopicName,
        partitions: u32,
        properties: BTreeMap<String, String>,
        metadata_only: bool,
    ) -> AdminResult<'_, ()> {
        Box::pin(self.create_partitioned(topic, partitions, properties, metadata_only))
    }

    fn grow_partitioned(&self, topic: TopicName, partitions: u32) -> AdminResult<'_, ()> {
        Box::pin(self.grow_partitioned(topic, partitions))
    }

    fn create_missed_partitions(&self, topic: TopicName) -> AdminResult<'_, ()> {
        Box::pin(async move { Ok(self.catalog().create_missing_partitions(&topic).await?) })
    }

    fn delete_partitioned(&self, topic: TopicName, force: bool) -> AdminResult<'_, ()> {
        Box::pin(self.delete_partitioned(topic, force))
    }

    fn delete_topic(&self, topic: TopicName, force: bool) -> AdminResult<'_, ()> {
        Box::pin(self.delete_topic(topic, force))
    }

    fn stats(&self, topic: TopicName, flags: StatsFlags) -> AdminResult<'_, TopicStats> {
        Box::pin(self.stats(topic, flags))
    }

    fn internal_stats(
        &self,
        topic: TopicName,
        metadata: bool,
    ) -> AdminResult<'_, PersistentTopicInternalStats> {
        Box::pin(self.internal_stats(topic, metadata))
    }

    fn internal_info(&self, topic: TopicName) -> AdminResult<'_, ManagedLedgerInfo> {
        Box::pin(self.internal_info(topic))
    }

    fn serves(&self, topic: &TopicName) -> bool {
        matches!(self.broker.shared.placement.of(topic), Placed::Here(_))
    }

    fn served_by(&self, topic: TopicName) -> AdminResult<'_, Option<Arc<BrokerAddresses>>> {
        Box::pin(async move {
            match self.home(&topic).await {
                Ok(_) => Ok(None),
                Err(AdminError::Elsewhere { addresses, .. }) => Ok(Some(addresses)),
                Err(error) => Err(error),
            }
        })
    }

    fn last_message(&self, topic: TopicName) -> AdminResult<'_, LastMessage> {
        Box::pin(self.last_message(topic))
    }

    fn terminate(&self, topic: TopicName) -> AdminResult<'_, LastMessage> {
        Box::pin(self.terminate(topic))
    }

    fn unload(&self, topic: TopicName) -> AdminResult<'_, ()> {
        Box::pin(self.unload(topic))
    }

    fn trim(&self, topic: TopicName) -> AdminResult<'_, ()> {
        Box::pin(self.at_home(topic, |topic| async move {
            topic.trim_now();
            Ok(())
        }))
    }

    fn offload(&self, topic: TopicName, before: Position) -> AdminResult<'_, ()> {
        Box::pin(self.offload(topic, before))
    }

    fn offload_status(&self, topic: TopicName) -> AdminResult<'_, OffloadProcessStatus> {
        Box::pin(self.offload_status(topic))
    }

    fn check_offload_policies(&self, policies: &serde_json::Value) -> Result<(), AdminError> {
        crate::offload::check(policies, &self.broker.shared.options)
    }

    fn truncate(&self, topic: TopicName) -> AdminResult<'_, ()> {
        Box::pin(self.at_home(topic, |topic| async move { Ok(topic.truncate().await?) }))
    }

    fn subscriptions(&self, topic: TopicName) -> AdminResult<'_, Vec<String>> {
        Box::pin(self.subscriptions(topic))
    }

    fn create_subscription(
        &self,
        topic: TopicName,
        subscription: SubscriptionName,
        place: Place,
        properties: BTreeMap<String, String>,
        replicated: bool,
    ) -> AdminResult<'_, ()> {
        Box::pin(self.create_subscription(topic, subscription, place, properties, replicated))
    }

    fn delete_subscription(
        &self,
        topic: TopicName,
        subscription: SubscriptionName,
        force: bool,
    ) -> AdminResult<'_, ()> {
        Box::pin(self.at_home(topic, move |topic| async move {
            Ok(topic.delete_subscription(&subscription, force).await?)
        }))
    }

    fn reset_to(
        &self,
        topic: TopicName,
        subscription: SubscriptionName,
        place: Place,
    ) -> AdminResult<'_, ()> {
        Box::pin(self.reset_to(topic, subscription, place))
    }

    fn reset_to_time(
        &self,
        topic: TopicName,
        subscription: SubscriptionName,
        timestamp_ms: u64,
    ) -> AdminResult<'_, ()> {
        Box::pin(self.reset_to_time(topic, subscription, timestamp_ms))
    }

    fn skip(&self, topic: TopicName, subscription: SubscriptionName, count: u64) -> AdminResult<'_, ()> {
        Box::pin(self.at_home(topic, move |topic| async move {
            Ok(topic.skip(&subscription, count).await?)
        }))
    }

    fn skip_all(&self, topic: TopicName, subscription: SubscriptionName) -> AdminResult<'_, ()> {
        Box::pin(self.at_home(topic, move |topic| async move {
            let end = topic.durable_end();
            Ok(topic.skip_settled(&subscription, end).await?)
        }))
    }

    fn expire_older(
        &self,
        topic: TopicName,
        subscription: SubscriptionName,
        seconds: u64,
    ) -> AdminResult<'_, ()> {
        Box::pin(self.expire_older(topic, subscription, seconds))
    }

    fn expire_to(
        &self,
        topic: TopicName,
        subscription: SubscriptionName,
        place: Place,
    ) -> AdminResult<'_, ()> {
        Box::pin(self.expire_to(topic, subscription, place))
    }

    fn subscription_properties(
        &self,
        topic: TopicName,
        subscription: SubscriptionName,
    ) -> AdminResult<'_, BTreeMap<String, String>> {
        Box::pin(self.at_home(topic, move |topic| async move {
            Ok(topic
                .subscription_properties(&subscription)?
                .into_iter()
                .collect())
        }))
    }

    fn set_subscription_properties(
        &self,
        topic: TopicName,
        subscription: SubscriptionName,
        properties: BTreeMap<String, String>,
    ) -> AdminResult<'_, ()> {
        Box::pin(self.at_home(topic, move |topic| async move {
            let properties = properties.into_iter().collect();
            Ok(topic
                .set_subscription_properties(&subscription, properties)
                .await?)
        }))
    }

    fn broadcast_details(
        &self,
        topic: TopicName,
        subscription: SubscriptionName,
        query: BroadcastQuery,
    ) -> AdminResult<'_, BroadcastDetails> {
        Box::pin(self.broadcast_details(topic, subscription, query))
    }

    fn analyze_backlog(
        &self,
        topic: TopicName,
        subscription: SubscriptionName,
        from: Option<Place>,
    ) -> AdminResult<'_, AnalyzeBacklogResult> {
        Box::pin(self.analyze_backlog(topic, subscription, from))
    }

    fn backlog_bytes(&self, topic: TopicName, from: Place) -> AdminResult<'_, u64> {
        Box::pin(self.backlog_bytes(topic, from))
    }

    fn peek(
        &self,
        topic: TopicName,
        subscription: SubscriptionName,
        nth: u64,
    ) -> AdminResult<'_, StoredEntry> {
        Box::pin(self.peek(topic, subscription, nth))
    }

    fn examine(&self, topic: TopicName, from: ExamineFrom, nth: u64) -> AdminResult<'_, StoredEntry> {
        Box::pin(self.examine(topic, from, nth))
    }

    fn entry_at(&self, topic: TopicName, position: Position) -> AdminResult<'_, StoredEntry> {
        Box::pin(self.entry_at(topic, position))
    }

    fn message_at_time(&self, topic: TopicName, timestamp_ms: u64) -> AdminResult<'_, LastMessage> {
        Box::pin(self.message_at_time(topic, timestamp_ms))
    }

    fn health(&self) -> AdminResult<'_, ()> {
        Box::pin(self.health())
    }

    fn why_not_ready(&self) -> Option<String> {
        self.why_not_ready_now()
    }

    fn metrics(&self) -> AdminResult<'_, MetricsSnapshot> {
        Box::pin(self.metrics())
    }
}
