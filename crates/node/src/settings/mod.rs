//! Every setting of a node: its type, its default, and where the value in force came from.
//!
//! Order, strongest first: flag, environment variable, file, default. One table ([`table::SETTINGS`]) makes the flags,
//! the names of the environment variables, the keys of the file and the reference page, so they cannot drift apart.
//! Unknown keys and unknown `PHAROS_` variables are errors: a misspelt setting must not silently be a default.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

mod aliases;
mod audit;
mod choice;
mod cluster;
mod env;
mod layers;
mod limits;
mod listeners;
mod load_balancer;
mod offload;
mod openid;
mod policies;
mod policies_page;
mod reference;
mod replication;
mod security;
mod setting;
mod storage;
pub mod table;
mod tls;
mod transactions;
mod units;
mod web_socket;

pub(crate) use aliases::{setting_of, translate};
pub use audit::AuditSettings;
pub use choice::{Engine, LogFormat, ReadPriority, ReplicationStart, ServerSideEncryption, StorageIo};
pub use cluster::{BookKeeperUri, ClusterSettings, MetadataUrl};
pub use layers::{Effective, LoadError, Origin, Sources};
pub use limits::LimitSettings;
pub use listeners::{ListenerUrl, ListenerUrlList, Scheme};
pub use load_balancer::LoadBalancerSettings;
pub use offload::OffloadSettings;
pub use openid::OpenIdSettings;
pub use policies::PolicySettings;
pub use policies_page::markdown_policies;
pub use reference::{json_listing, markdown_reference, text_listing};
pub use replication::ReplicationSettings;
pub(crate) use replication::limits as replication_limits;
pub(crate) use security::ProviderKind;
pub use security::{AuthenticationSettings, AuthorizationSettings};
pub use storage::StorageSettings;
pub use tls::{CipherSuites, TlsSettings, TlsVersions};
pub use transactions::TransactionSettings;
pub use units::{ByteSize, Limit, Names, Paths, Secret, Share, Value};
pub use web_socket::WebSocketSettings;

/// All settings with their values.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Where everything durable lives.
    pub data_dir: PathBuf,
    /// Address of the Pulsar protocol.
    pub pulsar_listen: SocketAddr,
    /// Address of the admin API, metrics and status page.
    pub http_listen: SocketAddr,
    /// Host told to clients; empty: worked out from `pulsar_listen`.
    pub advertised_address: String,
    /// Addresses told to clients of listeners.
    pub advertised_listeners: ListenerUrlList,
    /// The listener of other brokers, and of clients that are of none; empty: the first.
    pub internal_listener_name: String,
    /// Further addresses to listen on, for listeners.
    pub bind_addresses: ListenerUrlList,
    /// Names by which the HTTP server may be asked over loopback.
    pub http_allowed_hosts: Names,
    /// Whether other machines may connect although no client is asked who it is.
    pub allow_unauthenticated_listen: bool,
    /// Name of the cluster.
    pub cluster_name: String,
    /// Data threads; 0: one per core.
    pub shards: u32,
    /// Whether processors are kept from sleeping.
    pub keep_cpus_awake: bool,
    /// How long a stop may take.
    pub shutdown_timeout: Duration,
    /// Form of the log.
    pub log_format: LogFormat,
    /// What is logged.
    pub log_level: String,
    /// TLS, and the PROXY protocol.
    pub tls: TlsSettings,
    /// Who a client is.
    pub authentication: AuthenticationSettings,
    /// Access tokens that other issuers sign.
    pub openid: OpenIdSettings,
    /// Who may do what.
    pub authorization: AuthorizationSettings,
    /// The audit log.
    pub audit: AuditSettings,
    /// What an address, a role, a connection and a tenant may have.
    pub limits: LimitSettings,
    /// Pulsar protocol.
    pub protocol: ProtocolSettings,
    /// WebSockets.
    pub web_socket: WebSocketSettings,
    /// Topics and subscriptions.
    pub topics: TopicSettings,
    /// What topics and namespaces may say otherwise.
    pub policies: PolicySettings,
    /// Topic compaction.
    pub topic_compaction: TopicCompactionSettings,
    /// Broadcast subscriptions.
    pub broadcast: BroadcastSettings,
    /// Transactions.
    pub transactions: TransactionSettings,
    /// Replication to other clusters.
    pub replication: ReplicationSettings,
    /// Managed ledgers.
    pub ledger: LedgerSettings,
    /// Where ledgers and metadata are.
    pub cluster: ClusterSettings,
    /// The embedded engine.
    pub storage: StorageSettings,
    /// Tiered storage.
    pub offload: OffloadSettings,
    /// Metrics page.
    pub metrics: MetricsSettings,
}

/// Settings of the Pulsar front door.
#[derive(Clone, Debug, PartialEq)]
pub struct ProtocolSettings {
    /// Largest message.
    pub max_message_size: ByteSize,
    /// Ping period.
    pub keep_alive_interval: Duration,
    /// Largest metadata of a consumer.
    pub max_consumer_metadata_size: ByteSize,
    /// How long an exclusive holder may stay silent when asked whether it lives.
    pub connection_liveness_check_timeout: Duration,
}

/// Settings of topic compaction.
#[derive(Clone, Debug, PartialEq)]
pub struct TopicCompactionSettings {
    /// Whether messages without a key stay.
    pub retain_null_key: bool,
    /// Memory for the keys of one topic.
    pub max_keys_size: ByteSize,
}

/// Settings of topics and subscriptions.
#[derive(Clone, Debug, PartialEq)]
pub struct TopicSettings {
    /// Namespaces deleted together with their topics.
    pub force_delete_namespace_allowed: bool,
    /// Tenants deleted together with their namespaces.
    pub force_delete_tenant_allowed: bool,
    /// Consumers are moved past what is lost.
    pub auto_skip_non_recoverable_data: bool,
    /// Pause before another failover consumer takes over.
    pub active_consumer_failover_delay: Duration,
    /// Key_Shared without sticky ranges: points on a ring rather than one range for each consumer.
    pub key_shared_consistent_hashing: bool,
    /// Points of one consumer on that ring.
    pub key_shared_ring_points: u32,
    /// The broker evaluates topic patterns of clients.
    pub pattern_evaluation: bool,
    /// Longest topic pattern that it evaluates.
    pub pattern_max_length: u32,
    /// Largest one once compiled.
    pub pattern_max_compiled_size: ByteSize,
    /// How long a topic is not used before it is unloaded.
    pub unload_idle_after: Limit<Duration>,
    /// Memory for what was handed out to consumers whose sockets have not taken it.
    pub max_unwritten_size: ByteSize,
}

/// Settings of broadcast subscriptions.
#[derive(Clone, Debug, PartialEq)]
pub struct BroadcastSettings {
    /// How long the place of an absent consumer is kept.
    pub absent_retention: Limit<Duration>,
    /// How much backlog an absent consumer may hold.
    pub absent_backlog: Limit<ByteSize>,
}

/// Settings of managed ledgers.
#[derive(Clone, Debug, PartialEq)]
pub struct LedgerSettings {
    /// Entries after which a new ledger begins.
    pub max_entries: u32,
    /// Bytes after which a new ledger begins.
    pub max_size: ByteSize,
    /// Age after which a new ledger begins.
    pub max_rollover_time: Duration,
    /// Age before which none begins.
    pub min_rollover_time: Duration,
    /// Time without a message after which a new ledger begins; 0 never.
    pub inactive_rollover_time: Duration,
    /// How often ledgers are trimmed.
    pub retention_check_interval: Duration,
    /// Memory for entries at the tails of all topics.
    pub cache_size: ByteSize,
    /// Memory for entries read back for stream consumers and subscriptions that are behind.
    pub catch_up_read_cache_size: ByteSize,
}

/// Settings of the metrics page.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricsSettings {
    /// Whether single topics are shown.
    pub topics: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            data_dir: PathBuf::from("./pharos-data"),
            pulsar_listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 6650)),
            http_listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)),
            advertised_address: String::new(),
            advertised_listeners: ListenerUrlList::default(),
            internal_listener_name: String::new(),
            bind_addresses: ListenerUrlList::default(),
            http_allowed_hosts: Names::default(),
            allow_unauthenticated_listen: false,
            cluster_name: "standalone".into(),
            shards: 0,
            keep_cpus_awake: false,
            shutdown_timeout: Duration::from_secs(10),
            log_format: LogFormat::Auto,
            log_level: "info".into(),
            tls: TlsSettings::default(),
            authentication: AuthenticationSettings::default(),
            openid: OpenIdSettings::default(),
            authorization: AuthorizationSettings::default(),
            audit: AuditSettings::default(),
            limits: LimitSettings::default(),
            protocol: ProtocolSettings {
                max_message_size: ByteSize(5_242_880),
                keep_alive_interval: Duration::from_secs(30),
                max_consumer_metadata_size: ByteSize::kib(1),
                connection_liveness_check_timeout: Duration::from_secs(5),
            },
            web_socket: WebSocketSettings::default(),
            topics: TopicSettings {
                force_delete_namespace_allowed: false,
                force_delete_tenant_allowed: false,
                auto_skip_non_recoverable_data: false,
                active_consumer_failover_delay: Duration::from_secs(1),
                key_shared_consistent_hashing: true,
                key_shared_ring_points: 100,
                pattern_evaluation: true,
                pattern_max_length: 50,
                pattern_max_compiled_size: ByteSize(64 << 10),
                unload_idle_after: Limit::At(Duration::from_secs(600)),
                max_unwritten_size: ByteSize::mib(128),
            },
            policies: PolicySettings::default(),
            topic_compaction: TopicCompactionSettings {
                retain_null_key: false,
                max_keys_size: ByteSize::mib(128),
            },
            broadcast: BroadcastSettings {
                absent_retention: Limit::At(Duration::from_secs(7 * 24 * 3600)),
                absent_backlog: Limit::At(ByteSize::mib(1024)),
            },
            transactions: TransactionSettings::default(),
            replication: ReplicationSettings::default(),
            ledger: LedgerSettings {
                max_entries: 50_000,
                max_size: ByteSize::mib(256),
                max_rollover_time: Duration::from_secs(240 * 60),
                min_rollover_time: Duration::from_secs(10 * 60),
                inactive_rollover_time: Duration::ZERO,
                retention_check_interval: Duration::from_secs(120),
                cache_size: ByteSize::mib(256),
                catch_up_read_cache_size: ByteSize::mib(128),
            },
            cluster: ClusterSettings::default(),
            storage: StorageSettings::default(),
            offload: OffloadSettings::default(),
            metrics: MetricsSettings { topics: true },
        }
    }
}

impl Settings {
    /// A sentence for each two listeners that would have the same address.
    fn same_addresses(&self) -> Vec<String> {
        let listeners = [
            ("pulsar_listen", Some(self.pulsar_listen)),
            ("http_listen", Some(self.http_listen)),
            ("pulsar_listen_tls", self.tls.pulsar_listen),
            ("http_listen_tls", self.tls.http_listen),
        ];
        let mut seen: Vec<(&str, SocketAddr)> = Vec::new();
        let mut faults = Vec::new();
        for (name, address) in listeners {
            let Some(address) = address.filter(|address| address.port() != 0) else {
                continue;
            };
            if let Some((other, _)) = seen.iter().find(|(_, taken)| *taken == address) {
                faults.push(format!("{other} and {name} are the same address"));
            }
            seen.push((name, address));
        }
        faults
    }

    /// The listeners that other machines reach, except those that let no client in without a trusted certificate.
    fn reachable(&self) -> Vec<&'static str> {
        let tls = &self.tls;
        let asks = tls.require_trusted_client_cert_on_connect && !tls.allow_insecure_connection;
        let plain = [
            ("pulsar_listen", Some(self.pulsar_listen)),
            ("http_listen", Some(self.http_listen)),
        ];
        let encrypted = [
            ("pulsar_listen_tls", tls.pulsar_listen),
            ("http_listen_tls", tls.http_listen),
        ];
        let bound = self
            .bind_addresses
            .0
            .iter()
            .filter(|it| !it.scheme.is_tls() || !asks);
        let bound = bound.map(|it| ("bind_addresses", it.socket()));
        let all = plain
            .into_iter()
            .chain(encrypted.into_iter().filter(|_| !asks))
            .chain(bound);
        all.filter(|(_, address)| address.is_some_and(|address| !address.ip().is_loopback()))
            .map(|(name, _)| name)
            .collect()
    }

    /// Checks what one value alone cannot tell. Empty when all is well; else a sentence per fault.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let policies = &self.policies.broker;
        let mut expect = |holds: bool, sentence: &str| {
            if !holds {
                faults.push(sentence.to_owned());
            }
        };
        for fault in self.same_addresses().into_iter().chain(self.listener_faults()) {
            expect(false, &fault);
        }
        let reachable = self.reachable();
        expect(
            reachable.is_empty() || self.authentication.enabled || self.allow_unauthenticated_listen,
            &format!(
                "{} can be reached from other machines, and no client would be asked who it is: set \
                 authentication.enabled, or allow_unauthenticated_listen to let every client that can connect do anything",
                reachable.join(" and ")
            ),
        );
        expect(self.shards <= 1024, "shards is more than 1024");
        expect(
            is_name(&self.cluster_name),
            "cluster_name may hold letters, digits and -=:._ and must not be empty",
        );
        expect(
            !self.advertised_address.contains([':', '/', ' ']),
            "advertised_address is a host name or IPv4 address, without scheme and port",
        );
        let message = self.protocol.max_message_size.0;
        expect(
            (1..=15 << 20).contains(&message),
            "max_message_size must be from 1B to 15MiB",
        );
        expect(
            !self.protocol.keep_alive_interval.is_zero(),
            "keep_alive_interval must not be 0",
        );
        expect(
            policies.auto_topic_creation.partitions > 0,
            "default_num_partitions must not be 0",
        );
        expect(
            !policies.delayed_delivery.tick.is_zero(),
            "delayed_delivery_tick_time must not be 0",
        );
        expect(
            (1..=10_000).contains(&self.topics.key_shared_ring_points),
            "key_shared_ring_points must be from 1 to 10000",
        );
        expect(self.ledger.max_entries > 0, "ledger.max_entries must not be 0");
        expect(self.ledger.max_size.0 > 0, "ledger.max_size must not be 0");
        expect(
            self.ledger.min_rollover_time <= self.ledger.max_rollover_time,
            "ledger.min_rollover_time is longer than ledger.max_rollover_time",
        );
        expect(
            !self.ledger.retention_check_interval.is_zero(),
            "ledger.retention_check_interval must not be 0",
        );
        let filter = crate::logging::filter_of(&self.log_level);
        faults.extend(filter.err().map(|reason| format!("log_level: {reason}")));
        faults.extend(self.policies.faults());
        let mut expect = |holds: bool, sentence: &str| {
            if !holds {
                faults.push(sentence.to_owned());
            }
        };
        self.storage.check(&mut expect);
        expect(
            !policies.persistence.cursor_flush_interval.is_zero(),
            "cursor_flush_interval must not be 0",
        );
        expect(
            self.topics.unload_idle_after != Limit::At(Duration::ZERO),
            "unload_idle_after must not be 0; unlimited keeps topics loaded",
        );
        faults.extend(self.cluster.faults(self));
        faults.extend(self.offload.faults());
        faults.extend(self.tls.faults());
        faults.extend(self.authentication.faults());
        let is_asked = self.authentication.kinds().contains(&ProviderKind::OpenId);
        faults.extend(self.openid.faults(is_asked));
        faults.extend(self.authorization.faults(&self.authentication));
        faults.extend(self.audit.faults());
        faults.extend(self.transactions.faults(self));
        faults.extend(self.replication.faults());
        faults.extend(self.web_socket.faults());
        faults
    }
}

fn is_name(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-=:._".contains(c);
    !text.is_empty() && text.chars().all(fits)
}
