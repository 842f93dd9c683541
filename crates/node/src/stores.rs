//! Stores of a broker: the embedded engine and metadata store of this machine, or those of a cluster.
//!
//! Everything specific to one of the two is decided here: witnesses and clean-up at the start for the embedded
//! engine, which has no other user; ownership for a cluster.

use std::sync::Arc;

use anyhow::Context as _;
use pharos_broker_admin::{BookieStore, MetricFamily};
use pharos_catalog::{Catalog, PulsarFacts};
use pharos_cluster::{Alone, Balancer, BundleOwnership, Ownership};
use pharos_ledger::LedgerEngine;
use pharos_metadata::{MatchesLedgers, MetadataLayout, MetadataStore};
use pharos_storage::Storage;
use pharos_transport::ConnectionsMax;
use pharos_types::LedgerId;
use tokio::task::JoinSet;

use crate::broker::{beside, open_metadata, storage_options};
use crate::cluster::Cluster;
use crate::event_logs::ManagedEventLogs;
use crate::files::Files;
use crate::leftovers::{self, CleanUpCounters};
use crate::settings::{MetadataUrl, Settings};
use crate::storage_metrics;

/// The engine and the metadata store.
pub(crate) struct Stores {
    pub(crate) ledgers: Arc<dyn LedgerEngine>,
    pub(crate) metadata: Arc<dyn MetadataStore>,
    kind: StoresKind,
}

enum StoresKind {
    Embedded {
        storage: Arc<Storage>,
        proof: MatchesLedgers,
    },
    Cluster(Arc<Cluster>),
}

/// Background work of the stores, with its metrics.
#[derive(Clone)]
pub(crate) enum StoresInUse {
    /// The embedded engine, and what is cleaned up in it.
    Embedded(Arc<Storage>, Arc<dyn MetadataStore>, Arc<CleanUpCounters>),
    /// A cluster, and what this broker owns in it.
    Cluster(Arc<Cluster>, Arc<BundleOwnership>),
}

/// Opens what the settings name.
///
/// # Errors
/// The data directory cannot be used, or the servers cannot be reached.
pub(crate) async fn open(settings: &Settings) -> anyhow::Result<Stores> {
    if let MetadataUrl::ZooKeeper(address) = &settings.cluster.metadata {
        let cluster = Cluster::open(&settings.cluster, address).await?;
        return Ok(Stores {
            ledgers: cluster.ledgers.clone(),
            metadata: cluster.metadata.clone(),
            kind: StoresKind::Cluster(cluster),
        });
    }
    let dir = &settings.data_dir;
    std::fs::create_dir_all(dir)
        .with_context(|| format!("cannot create the data directory {}", dir.display()))?;
    let storage = Storage::open(dir, storage_options(settings))
        .with_context(|| format!("cannot open the ledgers in {}", dir.display()))?;
    let metadata = open_metadata(settings, Some(beside(settings, &storage).await?))?;
    let proof = metadata
        .matches_ledgers()
        .context("the metadata was opened without its ledgers")?;
    Ok(Stores {
        ledgers: storage.clone(),
        metadata,
        kind: StoresKind::Embedded { storage, proof },
    })
}

impl Stores {
    /// Metadata store of tenants, namespaces, topics and schemas.
    ///
    /// # Errors
    /// The metadata is of Pulsar's brokers, and some of it cannot be taken over.
    pub(crate) async fn facts(&self, settings: &Settings) -> anyhow::Result<Arc<dyn MetadataStore>> {
        match settings.cluster.metadata_layout {
            MetadataLayout::Pharos => Ok(self.metadata.clone()),
            MetadataLayout::Pulsar => {
                let logs = Arc::new(ManagedEventLogs {
                    ledgers: self.ledgers.clone(),
                    metadata: self.metadata.clone(),
                });
                let facts = PulsarFacts::new(self.metadata.clone(), self.ledgers.clone())
                    .with_events(logs, &settings.cluster_name);
                crate::takeover::check(&facts, settings).await?;
                Ok(Arc::new(facts))
            }
        }
    }

    /// Begins what runs beside the broker, in `tasks`; before any topic is opened.
    ///
    /// # Errors
    /// The stores cannot be read.
    pub(crate) async fn begin(
        &self,
        settings: &Settings,
        catalog: &Catalog,
        tasks: &mut JoinSet<()>,
    ) -> anyhow::Result<StoresInUse> {
        Ok(match &self.kind {
            StoresKind::Embedded { storage, proof } => {
                let counters = leftovers::begin(storage.clone(), self.metadata.clone(), *proof, tasks)
                    .await
                    .context("cannot tell which ledgers an earlier run has deleted")?;
                StoresInUse::Embedded(storage.clone(), self.metadata.clone(), counters)
            }
            StoresKind::Cluster(cluster) => {
                let ownership = cluster.ownership(&settings.cluster, catalog);
                StoresInUse::Cluster(cluster.clone(), ownership)
            }
        })
    }

    /// Ledgers that were given up are deleted from this one on. What a cluster's metadata says was given up, some broker did give up.
    pub(crate) fn condemned_from(&self) -> LedgerId {
        match &self.kind {
            StoresKind::Embedded { proof, .. } => LedgerId(proof.first()),
            StoresKind::Cluster(_) => LedgerId(0),
        }
    }
}

impl StoresInUse {
    /// Ownership of topics.
    pub(crate) fn ownership(&self) -> Arc<dyn Ownership> {
        match self {
            Self::Embedded(..) => Arc::new(Alone::default()),
            Self::Cluster(_, ownership) => ownership.clone(),
        }
    }

    /// Ownership of topics, if there are other brokers.
    pub(crate) fn among_others(&self) -> Option<&Arc<BundleOwnership>> {
        match self {
            Self::Embedded(..) => None,
            Self::Cluster(_, ownership) => Some(ownership),
        }
    }

    /// Connections of the Pulsar server.
    pub(crate) fn connections_max(&self, files: Files, settings: &Settings) -> ConnectionsMax {
        match self {
            Self::Embedded(storage, ..) => files.connections_max(settings, storage),
            Self::Cluster(..) => files.connections_max_without_storage(settings),
        }
    }

    /// For the metrics page.
    pub(crate) fn families(&self) -> Vec<MetricFamily> {
        match self {
            Self::Embedded(storage, _, counters) => {
                let mut families = storage_metrics::families(&storage.stats());
                families.extend(counters.families());
                families
            }
            Self::Cluster(cluster, ownership) => {
                let mut families = cluster.families(ownership);
                families.extend(crate::balance::families(&Balancer::of(ownership.clone())));
                families
            }
        }
    }

    /// The bookies, where ledgers are on bookies.
    pub(crate) fn bookies(&self) -> Option<BookieStore> {
        match self {
            Self::Embedded(..) => None,
            Self::Cluster(cluster, _) => Some(cluster.bookies()),
        }
    }

    /// Reason why the stores accept no writes now.
    pub(crate) fn why_not_ready(&self) -> Option<String> {
        match self {
            Self::Embedded(storage, metadata, _) => {
                let fault = storage.why_not_ready();
                let fault = fault.map(|fault| format!("storage takes no writes: {fault}"));
                fault.or_else(|| {
                    let fault = metadata.fault()?;
                    Some(format!("metadata takes no writes: {fault}"))
                })
            }
            Self::Cluster(cluster, ownership) => cluster.why_not_ready(ownership),
        }
    }

    /// Makes everything durable and lets go of the stores.
    pub(crate) async fn shutdown(&self) {
        match self {
            Self::Embedded(storage, metadata, _) => {
                storage.shutdown().await;
                metadata.shutdown().await;
            }
            Self::Cluster(cluster, _) => cluster.shutdown().await,
        }
    }
}
