//! Starting what is behind the front doors: metadata, storage, broker, Pulsar server.
//!
//! Started from the inside out and stopped the other way round. Which engine and which metadata store it stands on is decided in
//! [`stores`](crate::stores); everyone else sees traits.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;

use pharos_accounts::unwritten::Unwritten;
use pharos_audit::Audit;
use pharos_auth::Access;
use pharos_broker::{Broker, TenantLimits, Threads};
use pharos_broker_admin::Resources;
use pharos_catalog::policy::{BrokerPolicies, Persistence};
use pharos_catalog::{Catalog, CatalogOptions};
use pharos_cluster::Balancer;
use pharos_coordinators::Transactions;
use pharos_identity::Authentication;
use pharos_ledger::LedgerEngine as _;
use pharos_managed_ledger::CacheBudget;
use pharos_metadata::{Beside as BesideLedgers, Embedded, MetadataLayout};
use pharos_pulsar::{Door, InnerDoor, ListenerOptions, Server};
use pharos_storage::{IoMode, Storage};
use pharos_transport::ConnectionsMax;
use pharos_types::NamespaceName;
use tokio::task::JoinSet;

use crate::changeable::ChangeableAtRuntime;
use crate::files::Files;
use crate::settings::{ByteSize, Engine, Limit, Settings, StorageIo};
use crate::storage_metrics;
use crate::stores::StoresInUse;
use crate::tls::Entrances;

/// Server version in CONNECTED; no client parses it.
const SERVER_VERSION: &str = concat!("Pulsar Server-Pharos-", env!("CARGO_PKG_VERSION"));

/// Addresses under which clients reach this machine.
pub(crate) struct Front {
    /// Host name for clients.
    pub(crate) host: String,
    /// Address of the HTTP server.
    pub(crate) http: SocketAddr,
    /// Address of the HTTP server for TLS.
    pub(crate) http_tls: Option<SocketAddr>,
    /// TLS and PROXY protocol of their connections.
    pub(crate) entrances: Entrances,
}

impl Front {
    /// `https://host:port`, if the HTTP server speaks TLS.
    pub(crate) fn https_url(&self) -> Option<String> {
        let port = self.http_tls?.port();
        Some(format!("https://{}:{port}", self.host))
    }
}

/// A broker that takes clients.
pub(crate) struct RunningBroker {
    /// The broker, for draining it.
    broker: Broker,
    /// Authentication, for every listener.
    pub(crate) authentication: Authentication,
    /// Authorization, for every listener.
    pub(crate) access: Access,
    /// State behind the HTTP server.
    pub(crate) admin: Resources,
    /// The Pulsar server: where it listens, with real ports, and what lookups answer with.
    pub(crate) pulsar: Arc<Server>,
    /// Transaction coordinators, if clients may use transactions.
    pub(crate) transactions: Option<Arc<Transactions>>,
    threads: Threads,
    beside: StoresInUse,
    /// Audit log, if enabled.
    audit: Option<Arc<Audit>>,
    /// Background tasks.
    tasks: JoinSet<()>,
}

impl RunningBroker {
    /// The way in for clients of another door.
    pub(crate) fn inner_door(&self) -> InnerDoor {
        InnerDoor::new(self.pulsar.clone())
    }

    /// The account of bytes that sockets have not taken, for every protocol.
    pub(crate) fn unwritten(&self) -> Arc<Unwritten> {
        self.broker.shared.unwritten.clone()
    }

    /// Stops accepting, closes clients properly, makes everything durable, releases the data directory; among other brokers, hands
    /// the topics over to them before it closes its connections.
    ///
    /// Cancel safety: dropped half way it leaves threads running; the process must exit then.
    pub(crate) async fn stop(mut self) {
        if let Some(ownership) = self.beside.among_others() {
            // Clients look up again as soon as their topic is closed, over connections that are still there.
            ownership.begin_close();
            ownership.give_all().await;
            self.broker.close_topics().await;
            ownership.close().await;
        }
        self.tasks.shutdown().await;
        self.broker.drain().await;
        // Joining threads blocks, and the caller must stay able to give up.
        let threads = self.threads;
        if let Err(error) = tokio::task::spawn_blocking(move || threads.stop()).await {
            tracing::error!(%error, "data threads did not stop properly");
        }
        self.beside.shutdown().await;
        if let Some(audit) = self.audit
            && tokio::task::spawn_blocking(move || audit.stop()).await.is_err()
        {
            tracing::error!("the audit log was not written to its end");
        }
    }
}

/// Opens metadata and storage, then the broker, then its Pulsar server.
///
/// `front`: how clients reach this machine; `files`: who may open how many.
///
/// # Errors
/// The stores cannot be used, or the address is taken.
pub(crate) async fn start_broker(
    settings: &Settings,
    front: &Front,
    files: Files,
) -> anyhow::Result<RunningBroker> {
    let authentication = crate::identity::authentication(settings)?;
    let stores = crate::stores::open(settings).await?;
    let facts = stores.facts(settings).await?;
    let catalog = Catalog::open(facts, catalog_options(settings, front))
        .await
        .context("cannot load tenants, namespaces and topics")?;
    let mut tasks = JoinSet::new();
    let beside = stores.begin(settings, &catalog, &mut tasks).await?;
    let offloader = crate::offload::start(&settings.offload)?;
    let mut options = broker_options(settings);
    options.access = crate::identity::access(settings, &catalog);
    let audit = crate::audit::start(settings)?;
    if let Some(audit) = &audit {
        options.access = options.access.told_to(audit.clone());
    }
    // Pulsar's form of what was offloaded is another one.
    let offloads = settings.cluster.metadata_layout == MetadataLayout::Pharos;
    options.managed_ledger.offloader = offloads.then(|| offloader.clone() as _);
    options.managed_ledger.condemned_from = stores.condemned_from();
    options.transaction_coordinators = crate::transactions::coordinators(settings, &*stores.metadata).await?;
    let access = options.access.clone();
    let (broker, threads) = pharos_broker::start_among(
        options,
        catalog,
        stores.ledgers,
        stores.metadata,
        &pharos_pulsar::PulsarEntries,
        beside.ownership(),
    )
    .context("cannot start the data threads")?;
    // Topics ask them before they take a message in a transaction.
    let transactions = crate::transactions::open(settings, &broker).await?;
    let connections_max = beside.connections_max(files, settings);
    let offered = crate::transactions::offered(settings, &transactions);
    let server = open_server(
        &broker,
        settings,
        front,
        (connections_max, offered.clone()),
        authentication.clone(),
    )?;
    if let Some(ownership) = beside.among_others() {
        ownership.serve(&crate::cluster::addresses(front, &server));
        tasks.spawn(ownership.clone().run());
    }
    let (stood_on, asked, entrances) = (beside.clone(), server.clone(), front.entrances.clone());
    let audited = audit.clone();
    let listed = broker.shared.catalog.clone();
    let families = Box::new(move || {
        let mut families = stood_on.families();
        families.extend(storage_metrics::refused_connections(
            asked.refused_count(),
            asked.refused_of_addresses(),
        ));
        families.extend(storage_metrics::topic_lists(
            listed.topic_lists().compiled_patterns(),
            asked.topic_lists_delayed(),
        ));
        families.extend(crate::offload::families(offloader.stats()));
        families.extend(entrances.families());
        families.extend(
            audited
                .iter()
                .flat_map(|audit| crate::audit::families(audit.stats())),
        );
        families
    });
    let stood_on = beside.clone();
    let stores_say = pharos_broker_admin::Stores {
        families,
        health: Box::new(move || stood_on.why_not_ready()),
        bookies: beside.bookies(),
    };
    let admin = Resources::with_stores(&broker, stores_say);
    if let Some(ownership) = beside.among_others() {
        let addresses = crate::cluster::addresses(front, &server);
        let balancer = Balancer::of(ownership.clone());
        let how = settings.cluster.load_balancer.clone();
        tasks.spawn(crate::balance::run(balancer, admin.clone(), addresses, how));
    }
    Ok(RunningBroker {
        authentication,
        access,
        admin,
        broker,
        pulsar: server,
        transactions: offered.ok(),
        threads,
        beside,
        audit,
        tasks,
    })
}

/// Opens the metadata; `beside`: the ledgers that it must be the metadata of.
pub(crate) fn open_metadata(
    settings: &Settings,
    beside: Option<BesideLedgers>,
) -> anyhow::Result<Arc<Embedded>> {
    let dir = metadata_dir(&settings.data_dir);
    let options = pharos_metadata::Options {
        format_1: Some(metadata_format_1(&settings.data_dir)),
        beside,
        ..pharos_metadata::Options::default()
    };
    let store = Embedded::open(&dir, &options)
        .with_context(|| format!("cannot open the metadata in {}", dir.display()))?;
    Ok(Arc::new(store))
}

/// The ledgers that the metadata must belong to.
pub(crate) async fn beside(settings: &Settings, storage: &Storage) -> anyhow::Result<BesideLedgers> {
    let next_ledger = storage.next_ledger().0;
    let ledgers = storage.list().await.context("cannot list the ledgers")?;
    Ok(BesideLedgers {
        witness: metadata_witness(settings),
        has_ledgers: !ledgers.is_empty(),
        next_ledger,
        accept: settings.storage.accept_metadata,
    })
}

/// The file that says which metadata is that of the ledgers, in the first directory of these.
pub(crate) fn metadata_witness(settings: &Settings) -> PathBuf {
    let first = settings.storage.ledger_dirs.0.first().cloned();
    first
        .unwrap_or_else(|| settings.data_dir.join("ledgers"))
        .join("METADATA")
}

/// Directory of the metadata.
pub(crate) fn metadata_dir(data_dir: &Path) -> PathBuf {
    data_dir.join("metadata")
}

/// Metadata file of releases before this format.
pub(crate) fn metadata_format_1(data_dir: &Path) -> PathBuf {
    data_dir.join("metadata.redb")
}

fn open_server(
    broker: &Broker,
    settings: &Settings,
    front: &Front,
    (connections_max, transactions): (ConnectionsMax, crate::transactions::Offered),
    authentication: Authentication,
) -> anyhow::Result<Arc<Server>> {
    let options = pharos_pulsar::Options {
        listen: settings.pulsar_listen,
        entrance: front.entrances.pulsar.clone(),
        listen_tls: front.entrances.pulsar_tls.clone(),
        listeners: ListenerOptions {
            urls: settings.listeners(),
            internal: settings.internal_listener(),
            doors: doors(settings, front)?,
        },
        advertised_address: Some(front.host.clone()),
        server_version: SERVER_VERSION.to_owned(),
        keep_alive_interval: settings.protocol.keep_alive_interval,
        connections_max,
        transactions,
        per_address: settings.limits.per_address(),
        limits: settings.limits.of_pulsar(),
        authentication,
        credential_check_interval: crate::identity::check_interval(settings),
    };
    pharos_pulsar::open(broker, &options).context(
        "cannot take Pulsar clients; choose another pulsar_listen, pulsar_listen_tls or bind_addresses",
    )
}

/// Further addresses of the Pulsar protocol.
fn doors(settings: &Settings, front: &Front) -> anyhow::Result<Vec<Door>> {
    let mut doors = Vec::new();
    for bound in &settings.bind_addresses.0 {
        doors.push(Door {
            listener: bound.name.clone(),
            address: bound
                .socket()
                .context("bind_addresses has an address that is none")?,
            entrance: front.entrances.of_door(bound.scheme.is_tls())?,
        });
    }
    Ok(doors)
}

/// Options of the storage engine; also for inspecting its files while it does not run.
pub(crate) fn storage_options(settings: &Settings) -> pharos_storage::Options {
    let storage = &settings.storage;
    let defaults = pharos_storage::Options::default();
    pharos_storage::Options {
        segment_bytes: storage.segment_size.0,
        segment_bytes_first: defaults.segment_bytes_first.min(storage.segment_size.0),
        io: match storage.io {
            StorageIo::Direct => IoMode::Direct,
            StorageIo::Buffered => IoMode::Buffered,
        },
        journal_dirs: storage.journal_dirs.0.clone(),
        ledger_dirs: storage.ledger_dirs.0.clone(),
        journal_bytes_max: storage.journal_size.0,
        journal_backups: storage.journal_backups as usize,
        linger: storage.group_commit_wait,
        group_bytes_max: bytes(storage.group_commit_bytes),
        group_entries_max: match storage.group_commit_entries {
            0 => usize::MAX,
            count => count as usize,
        },
        sync_interval: storage.sync_interval,
        queue_bytes_max: bytes(storage.queue_size),
        write_cache_bytes: storage.write_cache_size.0,
        flush_interval: storage.flush_interval,
        flush_bytes_per_s: rate(storage.flush_rate),
        entry_log_bytes: storage.entry_log_size.0,
        read_cache_bytes: storage.read_cache_size.0,
        read_bytes_per_s: rate(storage.read_rate),
        minor_compaction_percent: storage.minor_compaction_threshold.0,
        minor_compaction_interval: storage.minor_compaction_interval,
        major_compaction_percent: storage.major_compaction_threshold.0,
        major_compaction_interval: storage.major_compaction_interval,
        compact_bytes_per_s: storage.compaction_rate.0,
        salvage: storage.salvage,
        ..defaults
    }
}

/// Bytes a second; 0: without limit.
fn rate(limit: Limit<ByteSize>) -> u64 {
    limit.as_option().map_or(0, |size| size.0)
}

/// Broker-level value of each policy.
pub(crate) fn policies(settings: &Settings) -> BrokerPolicies {
    BrokerPolicies {
        offload: crate::offload::policy(&settings.offload),
        persistence: Persistence {
            replication: settings.cluster.replication(),
            ..settings.policies.broker.persistence
        },
        ..settings.policies.in_force()
    }
}

fn catalog_options(settings: &Settings, front: &Front) -> CatalogOptions {
    let host = &front.host;
    let broker_id = format!("{host}:{}", front.http.port());
    // A port that the system will choose is different next time, so there is nothing to remember.
    let url = |scheme: &str, port: u16| match port {
        0 => String::new(),
        port => format!("{scheme}://{host}:{port}"),
    };
    let pulsar_tls = front.entrances.pulsar_tls.as_ref();
    CatalogOptions {
        cluster_name: settings.cluster_name.clone(),
        web_service_url: format!("http://{broker_id}"),
        web_service_url_tls: front.https_url().unwrap_or_default(),
        broker_service_url: url("pulsar", settings.pulsar_listen.port()),
        broker_service_url_tls: pulsar_tls.map_or_else(String::new, |(at, _)| url("pulsar+ssl", at.port())),
        heartbeat_namespace: NamespaceName::new("pulsar", &broker_id).ok(),
        layout: settings.cluster.metadata_layout,
        policies: policies(settings),
        changeable: Some(Arc::new(ChangeableAtRuntime::new(settings))),
        max_num_partitions: settings.policies.max_partitions_per_topic,
        max_topics_per_tenant: settings.limits.max_topics_per_tenant,
        evaluate_patterns: settings.topics.pattern_evaluation,
        pattern_max_length: settings.topics.pattern_max_length as usize,
        pattern_max_compiled_bytes: usize::try_from(settings.topics.pattern_max_compiled_size.0)
            .unwrap_or(usize::MAX),
        ..CatalogOptions::default()
    }
}

fn broker_options(settings: &Settings) -> pharos_broker::Options {
    let (topics, ledger, policies) = (&settings.topics, &settings.ledger, &settings.policies);
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let shards = if settings.shards == 0 {
        cores
    } else {
        settings.shards as usize
    };
    pharos_broker::Options {
        cluster_name: settings.cluster_name.clone(),
        // Set once the catalog is there, which knows the grants.
        access: Access::everyone(),
        shards: u16::try_from(shards).unwrap_or(u16::MAX),
        max_message_size: u32::try_from(settings.protocol.max_message_size.0).unwrap_or(u32::MAX),
        max_consumer_metadata_bytes: bytes(settings.protocol.max_consumer_metadata_size),
        failover_delay: topics.active_consumer_failover_delay,
        key_shared_consistent_hashing: topics.key_shared_consistent_hashing,
        key_shared_ring_points: topics.key_shared_ring_points,
        liveness_timeout: settings.protocol.connection_liveness_check_timeout,
        cursor_flush_interval: policies.broker.persistence.cursor_flush_interval,
        absent_retention: settings.broadcast.absent_retention.as_option().copied(),
        absent_backlog_bytes: settings.broadcast.absent_backlog.as_option().map(|size| size.0),
        retention_check_interval: ledger.retention_check_interval,
        unload_idle_after: topics.unload_idle_after.as_option().copied(),
        skip_lost_entries: topics.auto_skip_non_recoverable_data,
        message_expiry_interval: policies.message_expiry_check_interval,
        backlog_quota_interval: policies.backlog_quota_check_interval,
        inactive_topic_interval: policies.delete_inactive_topics_check_interval,
        delete_inactive_partitioned: policies.delete_inactive_partitioned_topics,
        subscription_expiration_interval: policies.subscription_expiry_check_interval,
        catch_up_read_cache_bytes: bytes(ledger.catch_up_read_cache_size),
        newest_cache_bytes: bytes(ledger.cache_size) / 2,
        compaction_check_interval: policies.compaction_check_interval,
        compaction: pharos_compaction::Options {
            keep_keyless: settings.topic_compaction.retain_null_key,
            keys_bytes_max: bytes(settings.topic_compaction.max_keys_size),
            ..pharos_compaction::Options::default()
        },
        unwritten_bytes_max: topics.max_unwritten_size.0,
        tenants: TenantLimits {
            publish_rate: settings.limits.publish_rate_per_tenant,
            subscriptions: settings.limits.max_subscriptions_per_tenant,
        },
        deduplication: pharos_dedup::SequenceLimits {
            names_max: policies.deduplication_max_producers as usize,
            entries_max: u64::from(policies.deduplication_snapshot_entries),
            gone_ms_max: millis(policies.deduplication_producer_inactivity_timeout),
            bytes_max: match settings.cluster.engine {
                Engine::Embedded => pharos_dedup::SequenceLimits::default().bytes_max,
                // It is one entry of a cursor's ledger, with some bytes more for each name: a bookie takes 5 MiB.
                Engine::BookKeeper => 2 << 20,
            },
        },
        replication: crate::settings::replication_limits(settings, shards),
        // Set once the stores say how many there were.
        transaction_coordinators: 0,
        offload: crate::offload::limits(&settings.offload),
        managed_ledger: pharos_managed_ledger::Options {
            ledger_entries_max: u64::from(ledger.max_entries),
            ledger_bytes_max: ledger.max_size.0,
            ledger_age_ms_max: millis(ledger.max_rollover_time),
            ledger_age_ms_min: millis(ledger.min_rollover_time),
            ledger_idle_ms_max: not_zero(ledger.inactive_rollover_time).map(millis),
            cache_budget: CacheBudget::new(bytes(ledger.cache_size) / 2),
            durability: policies.broker.durability,
            layout: settings.cluster.metadata_layout,
            ..pharos_managed_ledger::Options::default()
        },
    }
}

fn bytes(size: ByteSize) -> usize {
    usize::try_from(size.0).unwrap_or(usize::MAX)
}

/// A time of which 0 stands for none.
fn not_zero(time: std::time::Duration) -> Option<std::time::Duration> {
    (!time.is_zero()).then_some(time)
}

fn millis(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
