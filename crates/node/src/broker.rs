//! Starting what is behind the front doors: metadata, storage, broker, Pulsar door.
//!
//! The only place that names the engines; everyone else sees traits. Started from the inside out and stopped the other
//! way round.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;

use pharos_broker::catalog::{AutoTopicType, Catalog, CatalogOptions};
use pharos_broker::{Broker, Threads};
use pharos_ledger::{Durability, LedgerEngine as _};
use pharos_managed_ledger::CacheBudget;
use pharos_metadata::{Embedded, MetadataStore};
use pharos_pulsar::Door;
use pharos_storage::Storage;

use crate::settings::{Limit, Settings, StorageSync, TopicType};

/// What CONNECTED tells clients; nothing parses it.
const SERVER_VERSION: &str = concat!("Pulsar Server-Pharos-", env!("CARGO_PKG_VERSION"));

/// A broker that takes clients.
pub(crate) struct RunningBroker {
    /// The broker, for the admin door.
    pub(crate) broker: Broker,
    /// Where the Pulsar door listens; the real port when 0 was asked for.
    pub(crate) pulsar_address: SocketAddr,
    threads: Threads,
    storage: Arc<Storage>,
    metadata: Arc<dyn MetadataStore>,
}

impl RunningBroker {
    /// Stops accepting, closes clients properly, makes everything durable, releases the data directory.
    pub(crate) async fn stop(self) {
        self.broker.drain().await;
        // Joining threads blocks; nothing else runs on this task now.
        self.threads.stop();
        self.storage.shutdown().await;
        self.metadata.shutdown().await;
    }
}

/// Opens metadata and storage, then the broker, then its Pulsar door.
///
/// # Errors
/// The data directory cannot be used, or the address is taken.
pub(crate) async fn start_broker(settings: &Settings) -> anyhow::Result<RunningBroker> {
    let dir = &settings.data_dir;
    std::fs::create_dir_all(dir)
        .with_context(|| format!("cannot create the data directory {}", dir.display()))?;
    let storage = Storage::open(&dir.join("ledgers"), storage_options(settings))
        .with_context(|| format!("cannot open the ledgers in {}", dir.display()))?;
    let metadata = open_metadata(&dir.join("metadata.redb"))?;
    let catalog = Catalog::open(metadata.clone(), catalog_options(settings))
        .await
        .context("cannot load tenants, namespaces and topics")?;
    let (broker, threads) = pharos_broker::start(
        broker_options(settings),
        catalog,
        storage.clone(),
        metadata.clone(),
    )
    .context("cannot start the data threads")?;
    let door = open_door(&broker, settings)?;
    Ok(RunningBroker {
        broker,
        pulsar_address: door.local_address,
        threads,
        storage,
        metadata,
    })
}

fn open_metadata(path: &Path) -> anyhow::Result<Arc<dyn MetadataStore>> {
    let store = Embedded::open(path, &pharos_metadata::Options::default())
        .with_context(|| format!("cannot open the metadata in {}", path.display()))?;
    Ok(Arc::new(store))
}

fn open_door(broker: &Broker, settings: &Settings) -> anyhow::Result<Arc<Door>> {
    let advertised = Some(settings.advertised_address.clone()).filter(|host| !host.is_empty());
    let options = pharos_pulsar::Options {
        listen: settings.pulsar_listen,
        advertised_address: advertised,
        server_version: SERVER_VERSION.to_owned(),
        keep_alive_interval: settings.protocol.keep_alive_interval,
    };
    pharos_pulsar::open(broker, &options).with_context(|| {
        format!(
            "cannot listen on {} for Pulsar clients; choose another pulsar_listen",
            settings.pulsar_listen
        )
    })
}

fn storage_options(settings: &Settings) -> pharos_storage::Options {
    let defaults = pharos_storage::Options::default();
    pharos_storage::Options {
        segment_bytes: settings.storage.segment_size.0,
        segment_bytes_first: defaults.segment_bytes_first.min(settings.storage.segment_size.0),
        linger: settings.storage.group_commit_wait,
        group_bytes_max: usize::try_from(settings.storage.group_commit_bytes.0).unwrap_or(usize::MAX),
        ..defaults
    }
}

fn catalog_options(settings: &Settings) -> CatalogOptions {
    let topics = &settings.topics;
    CatalogOptions {
        cluster_name: settings.cluster_name.clone(),
        allow_auto_topic_creation: topics.allow_auto_topic_creation,
        auto_topic_type: match topics.allow_auto_topic_creation_type {
            TopicType::NonPartitioned => AutoTopicType::NonPartitioned,
            TopicType::Partitioned => AutoTopicType::Partitioned,
        },
        default_num_partitions: topics.default_num_partitions,
        allow_auto_subscription_creation: topics.allow_auto_subscription_creation,
        ..CatalogOptions::default()
    }
}

fn broker_options(settings: &Settings) -> pharos_broker::Options {
    let (topics, ledger) = (&settings.topics, &settings.ledger);
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let shards = if settings.shards == 0 {
        cores
    } else {
        settings.shards as usize
    };
    let bytes = |limit: &Limit<crate::settings::ByteSize>| limit.as_option().map(|size| size.0);
    pharos_broker::Options {
        cluster_name: settings.cluster_name.clone(),
        shards: u16::try_from(shards).unwrap_or(u16::MAX),
        max_message_size: u32::try_from(settings.protocol.max_message_size.0).unwrap_or(u32::MAX),
        max_unacked_per_consumer: topics.max_unacked_messages_per_consumer,
        max_unacked_per_subscription: topics.max_unacked_messages_per_subscription,
        max_consumer_metadata_bytes: usize::try_from(settings.protocol.max_consumer_metadata_size.0)
            .unwrap_or(usize::MAX),
        delayed_delivery_tick: topics.delayed_delivery_tick_time,
        failover_delay: topics.active_consumer_failover_delay,
        absent_retention: settings.broadcast.absent_retention.as_option().copied(),
        absent_backlog_bytes: bytes(&settings.broadcast.absent_backlog),
        retention_time: ledger.default_retention_time.as_option().copied(),
        retention_bytes: bytes(&ledger.default_retention_size),
        retention_check_interval: ledger.retention_check_interval,
        managed_ledger: pharos_managed_ledger::Options {
            ledger_entries_max: u64::from(ledger.max_entries),
            ledger_bytes_max: ledger.max_size.0,
            ledger_age_ms_max: millis(ledger.max_rollover_time),
            ledger_age_ms_min: millis(ledger.min_rollover_time),
            cache_budget: CacheBudget::new(usize::try_from(ledger.cache_size.0).unwrap_or(usize::MAX)),
            durability: match settings.storage.sync {
                StorageSync::Sync => Durability::Sync,
                StorageSync::Async => Durability::Async,
            },
            ..pharos_managed_ledger::Options::default()
        },
        ..pharos_broker::Options::default()
    }
}

fn millis(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
