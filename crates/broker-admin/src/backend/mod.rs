//! The verbs of administration, carried out by the running broker: [`Backend`].
//!
//! Owned by the admin front door; called from its threads. Each verb goes to the topic's home shard and does its work
//! there; numbers of cursors that are handed over to stream consumers come from one more round over all shards, and are put
//! together here, off the shards. Work on a shard per call grows with subscriptions, never with messages; between calls
//! nothing is done. Each file has the verbs of one interface of [`resource`](crate::resource), and what they need.

mod broadcast;
mod errors;
mod gather;
mod health;
mod internals;
mod look;
mod meters;
mod metrics;
mod offload;
mod offload_policies;
mod partitioned;
mod stats;
mod subscriptions;
mod topics;

#[cfg(test)]
mod tests;

use std::future::Future;
use std::sync::Arc;

use pharos_types::{Domain, TopicName};

use crate::resource::{AdminError, AdminResult, BrokerAdmin, MetricFamily, MetricsSnapshot};
use meters::Meters;
use pharos_broker::broker::Broker;
use pharos_broker::error::TopicError;
use pharos_broker::ids::ShardId;
use pharos_broker::manage::TopicHandle;
use pharos_broker::placement::Placed;
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
    #[must_use]
    pub fn new(broker: Broker) -> Arc<Self> {
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
    pub fn with_stores(broker: Broker, families: FamilySource, health: HealthSource) -> Arc<Self> {
        Arc::new(Self {
            broker,
            meters: Meters::default(),
            families: Some(families),
            health: Some(health),
        })
    }

    /// The stored facts.
    #[must_use]
    pub fn catalog(&self) -> &Catalog {
        &self.broker.shared.catalog
    }

    /// Does something with a stored topic that exists, on its home shard; loads it first when it must.
    async fn at_home<R, W, F>(&self, name: TopicName, work: W) -> Result<R, AdminError>
    where
        R: Send + 'static,
        W: FnOnce(TopicHandle) -> F + Send + 'static,
        F: Future<Output = Result<R, AdminError>> + 'static,
    {
        check_stored(&name)?;
        self.at_any_home(name, work).await
    }

    /// As [`at_home`](Self::at_home), for what a non-persistent topic can do as well.
    async fn at_any_home<R, W, F>(&self, name: TopicName, work: W) -> Result<R, AdminError>
    where
        R: Send + 'static,
        W: FnOnce(TopicHandle) -> F + Send + 'static,
        F: Future<Output = Result<R, AdminError>> + 'static,
    {
        let home = self.home(&name).await?;
        self.check_exists(&name)?;
        self.broker.at_home(home, name, work).await
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

impl BrokerAdmin for Backend {
    fn check_backlog_quotas(&self) -> AdminResult<'_, ()> {
        Box::pin(async move { Ok(self.broker.check_backlog_quotas().await?) })
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
