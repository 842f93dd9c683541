//! The broker itself: whether it is well, its metrics, and regular work that is wanted now.

use std::sync::Arc;

use crate::error::AdminError;
use crate::homes::Homes;
use crate::meters::Meters;
use crate::snapshot::{MetricFamily, MetricsSnapshot};
use crate::{health, metrics};

/// What crates below the broker say of themselves for the metrics page.
pub type FamilySource = Box<dyn Fn() -> Vec<MetricFamily> + Send + Sync>;

/// Why the stores below do not take writes now.
pub type HealthSource = Box<dyn Fn() -> Option<String> + Send + Sync>;

/// What the stores below say of themselves.
pub(crate) struct Stores {
    pub(crate) families: FamilySource,
    pub(crate) health: HealthSource,
}

/// The broker itself. What is always true of such types: [the crate](crate).
#[derive(Clone)]
pub struct BrokerAdmin {
    homes: Homes,
    meters: Arc<Meters>,
    stores: Option<Arc<Stores>>,
}

impl BrokerAdmin {
    pub(crate) fn new(homes: Homes, meters: Arc<Meters>, stores: Option<Arc<Stores>>) -> Self {
        Self {
            homes,
            meters,
            stores,
        }
    }

    /// Measures the backlog of every loaded topic now, and does what its quotas say.
    ///
    /// # Errors
    /// `Unavailable`: the broker stops.
    pub async fn check_backlog_quotas(&self) -> Result<(), AdminError> {
        Ok(self.homes.broker.check_backlog_quotas().await?)
    }

    /// Publishes one message to the heartbeat topic and reads it back.
    ///
    /// # Errors
    /// `Unavailable` with what failed.
    pub async fn health(&self) -> Result<(), AdminError> {
        match self.why_not_ready() {
            Some(reason) => Err(health::unwell(reason)),
            None => health::round_trip(&self.homes).await,
        }
    }

    /// Why the broker does not take work now: it is stopping, or storage or metadata refuse writes, for good or for the moment.
    /// `None`: it does.
    #[must_use]
    pub fn why_not_ready(&self) -> Option<String> {
        if self.homes.broker.shared.shutdown.is_triggered() {
            return Some("the broker is stopping".to_owned());
        }
        self.stores.as_ref().and_then(|stores| (stores.health)())
    }

    /// The brokers that are there, as `host:port` of their HTTP servers; `None` when there can be no other.
    #[must_use]
    pub fn brokers(&self) -> Option<Vec<String>> {
        self.homes.broker.shared.placement.brokers()
    }

    /// Everything that the metrics page shows.
    ///
    /// # Errors
    /// `Unavailable`: the broker stops.
    pub async fn metrics(&self) -> Result<MetricsSnapshot, AdminError> {
        let shards = self.homes.broker.shard_figures().await?;
        let unwritten = &self.homes.broker.shared.unwritten;
        let mut snapshot = metrics::snapshot(shards, &self.meters);
        snapshot.unwritten_bytes = unwritten.held();
        snapshot.set_aside_bytes_total = unwritten.set_aside_total();
        if let Some(stores) = &self.stores {
            snapshot.families = (stores.families)();
        }
        Ok(snapshot)
    }
}
