//! The broker itself: whether it is well, its metrics, and regular work that is wanted now.

use std::sync::Arc;

use pharos_catalog::BundleRange;
use pharos_cluster::{HandoverError, LoadReport, Owner, OwnershipError};
use pharos_types::NamespaceName;
use tokio::sync::Semaphore;

use crate::bookies::BookieStore;
use crate::error::AdminError;
use crate::homes::Homes;
use crate::meters::Meters;
use crate::snapshot::{MetricFamily, MetricsSnapshot};
use crate::{health, metrics};

/// Metrics of the crates below the broker.
pub type FamilySource = Box<dyn Fn() -> Vec<MetricFamily> + Send + Sync>;

/// Reason why the stores below do not accept writes now.
pub type HealthSource = Box<dyn Fn() -> Option<String> + Send + Sync>;

/// Health and metrics of the stores below, available without waiting.
pub struct Stores {
    /// More families for the metrics page; asked for each page.
    pub families: FamilySource,
    /// Health: the reason if they do not accept writes.
    pub health: HealthSource,
    /// Access to bookies, if ledgers are on them.
    pub bookies: Option<BookieStore>,
}

/// The broker itself. What is always true of such types: [the crate](crate).
#[derive(Clone)]
pub struct BrokerAdmin {
    pub(crate) homes: Homes,
    pub(crate) meters: Arc<Meters>,
    stores: Option<Arc<Stores>>,
    /// Limit of one bundle split at a time.
    splits: Arc<Semaphore>,
}

impl BrokerAdmin {
    pub(crate) fn new(homes: Homes, meters: Arc<Meters>, stores: Option<Arc<Stores>>) -> Self {
        Self {
            homes,
            meters,
            stores,
            splits: Arc::new(Semaphore::new(1)),
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

    /// Returns the reason why the broker is not ready: it is stopping, or storage or metadata refuse writes,
    /// permanently or for the moment. `None`: it is ready.
    #[must_use]
    pub fn why_not_ready(&self) -> Option<String> {
        if self.homes.broker.shared.shutdown.is_triggered() {
            return Some("the broker is stopping".to_owned());
        }
        self.stores.as_ref().and_then(|stores| (stores.health)())
    }

    /// True if the broker called `to` owns the bundle `<tenant>/<namespace>/<range>`.
    ///
    /// # Errors
    /// `BundleElsewhere`: a third broker owns it.
    pub fn has_bundle(&self, bundle: &str, to: Option<&str>) -> Result<bool, AdminError> {
        match self.homes.broker.shared.placement.owner_of_bundle(bundle) {
            Owner::Other(owner) if to == Some(owner.broker_id()) => Ok(true),
            Owner::Other(addresses) => Err(AdminError::BundleElsewhere {
                bundle: bundle.to_owned(),
                addresses,
            }),
            Owner::Us | Owner::Unowned => Ok(false),
        }
    }

    /// The broker that leads, as `host:port` and URL of its HTTP server: `Ok(None)` when there is no other than this one.
    ///
    /// # Errors
    /// `NotFound`: none leads at the moment.
    pub fn leader(&self) -> Result<Option<(String, String)>, AdminError> {
        let placement = &self.homes.broker.shared.placement;
        if placement.brokers().is_none() {
            return Ok(None);
        }
        let no_leader = || AdminError::NotFound("no broker leads at the moment".to_owned());
        let leader = placement.leader().ok_or_else(no_leader)?;
        Ok(Some((leader.broker_id().to_owned(), leader.http_url.clone())))
    }

    /// True if this broker owns the bundle `<tenant>/<namespace>/<range>`.
    #[must_use]
    pub fn owns_bundle(&self, bundle: &str) -> bool {
        self.homes.broker.shared.placement.owner_of_bundle(bundle) == Owner::Us
    }

    /// Cuts a bundle of this broker at `borders`, which are inside of it; nothing of it is closed. Says the new bundles. The namespace has at
    /// most `bundles_max` then.
    ///
    /// The parts are this broker's before any broker knows of them, so no other takes one. The key of the whole stays until this broker
    /// stops: a broker that has yet to hear of the cut finds the owner by it.
    ///
    /// # Errors
    /// `BundleElsewhere`; `Conflict`: it was cut meanwhile; `Unavailable`: try again.
    pub async fn split(
        &self,
        namespace: &NamespaceName,
        bundle: &BundleRange,
        borders: &[u32],
        bundles_max: u32,
    ) -> Result<Vec<String>, AdminError> {
        let stopping = |_| AdminError::Unavailable("the broker is stopping".to_owned());
        let _turn = self.splits.acquire().await.map_err(stopping)?;
        let placement = &self.homes.broker.shared.placement;
        let unavailable = |error: OwnershipError| AdminError::Unavailable(error.to_string());
        let parts = bundle.cut_at(borders);
        for part in std::iter::once(bundle).chain(&parts) {
            let part = format!("{namespace}/{part}");
            match placement.take_bundle(&part).await.map_err(unavailable)? {
                Owner::Us => {}
                Owner::Other(addresses) => {
                    return Err(AdminError::BundleElsewhere {
                        bundle: part,
                        addresses,
                    });
                }
                Owner::Unowned => return Err(AdminError::Unavailable(format!("{part} has no owner"))),
            }
        }
        bundle
            .cut(self.homes.catalog(), namespace, borders, bundles_max)
            .await?;
        Ok(parts.iter().map(ToString::to_string).collect())
    }

    /// Hands a bundle of this broker over to the one called `to`, `host:port`; its clients are told.
    ///
    /// # Errors
    /// `Precondition`: there is no such broker, or this one does not own the bundle. `Conflict`: it is under way. `Unavailable`: try again.
    pub async fn hand_over(&self, bundle: String, to: String) -> Result<(), AdminError> {
        let done = self.homes.broker.hand_over(bundle, to).await;
        done.map_err(|error| {
            let reason = error.to_string();
            match error {
                HandoverError::HasIt(_)
                | HandoverError::Alone
                | HandoverError::NotOurs
                | HandoverError::NoSuchBroker(_) => AdminError::Precondition(reason),
                HandoverError::UnderWay => AdminError::Conflict(reason),
                HandoverError::NotTaken(_) | HandoverError::Store(_) => AdminError::Unavailable(reason),
            }
        })
    }

    /// The brokers that are there, as `host:port` of their HTTP servers; `None` when there can be no other.
    #[must_use]
    pub fn brokers(&self) -> Option<Vec<String>> {
        self.homes.broker.shared.placement.brokers()
    }

    /// Returns the load report that this broker published last.
    ///
    /// # Errors
    /// `NotFound`: the broker is standalone, or has published none yet.
    pub fn load_report(&self) -> Result<LoadReport, AdminError> {
        let report = self.homes.broker.shared.placement.load_report();
        let none = || AdminError::NotFound("this broker tells no other of its load".to_owned());
        report.ok_or_else(none)
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
