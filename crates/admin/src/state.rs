//! State shared by all handlers.

use std::sync::Arc;

use pharos_auth::Access;
use pharos_broker_admin::{
    BookieAdmin, BrokerAdmin, CompactionAdmin, MessageAdmin, OffloadAdmin, Resources, StatsAdmin,
    SubscriptionAdmin, TopicAdmin,
};
use pharos_catalog::{BundleDivision, Catalog};
use pharos_cluster::Listeners;
use pharos_coordinators::Transactions;
use pharos_identity::Authentication;
use tokio::sync::Semaphore;

use crate::owner_link::BrokerClient;
use crate::request_rate::RequestRates;

/// Settings and parts of the admin server.
#[derive(Clone, Debug)]
pub struct AdminOptions {
    /// Authorization.
    pub access: Access,
    /// Authentication.
    pub authentication: Authentication,
    /// Request rate limits.
    pub request_rates: RequestRates,
    /// TLS client for partitions at other brokers.
    pub broker_client: Option<BrokerClient>,
    /// Names by which this machine may be asked over loopback, besides its own.
    pub allowed_hosts: Vec<String>,
    /// Name of this cluster.
    pub cluster_name: String,
    /// `pulsar://host:port` as clients reach it.
    pub broker_url: String,
    /// `pulsar+ssl://host:port`, if it speaks TLS.
    pub broker_url_tls: Option<String>,
    /// Further addresses by the name of a listener.
    pub listeners: Listeners,
    /// `http://host:port` as clients reach it.
    pub http_url: String,
    /// `https://host:port`, if it speaks TLS.
    pub http_url_tls: Option<String>,
    /// The longest message that clients may send, in bytes.
    pub message_bytes_max: u32,
    /// Settings in force as key and value, for `…/brokers/configuration/runtime`.
    pub settings: Vec<(String, String)>,
    /// URL of the metadata store: `embedded`, or `zk:host:port/path`.
    pub metadata_store_url: String,
    /// Path of the ledgers' metadata in it.
    pub ledgers_root_path: String,
    /// True if the metrics page lists topics.
    pub topic_metrics: bool,
    /// True if a namespace may be deleted together with its topics.
    pub force_delete_namespace: bool,
    /// True if a tenant may be deleted together with its namespaces; a tenant with namespaces needs the namespace
    /// setting too.
    pub force_delete_tenant: bool,
    /// Transaction coordinators, if transactions are on.
    pub transactions: Option<Arc<Transactions>>,
    /// WebSocket server, if it is on.
    pub web_socket: Option<pharos_websocket::WebSocketDoor>,
    /// Origins of web pages that may open them, besides this server's own.
    pub web_socket_origins: Vec<String>,
    /// Default split algorithm of a bundle.
    pub bundle_division: BundleDivision,
}

impl AdminOptions {
    /// `host:port` of the HTTP door, which names a broker among brokers.
    #[must_use]
    pub fn broker_id(&self) -> &str {
        self.http_url
            .split_once("://")
            .map_or(self.http_url.as_str(), |(_, rest)| rest)
    }
}

/// The server's state: what can be administered, by resource, the stored facts, and what it says about itself. Cheap to clone.
#[derive(Clone)]
pub struct Admin {
    pub(crate) topics: TopicAdmin,
    pub(crate) stats: StatsAdmin,
    pub(crate) subscriptions: SubscriptionAdmin,
    pub(crate) messages: MessageAdmin,
    pub(crate) offload: OffloadAdmin,
    pub(crate) compaction: CompactionAdmin,
    pub(crate) brokers: BrokerAdmin,
    pub(crate) bookies: BookieAdmin,
    /// Stored facts.
    pub(crate) catalog: Catalog,
    /// About itself.
    pub(crate) options: Arc<AdminOptions>,
    /// Permit to write the metrics page: one request at a time.
    pub(crate) metrics_turn: Arc<Semaphore>,
}

impl Admin {
    /// A front door to what `resources` administer.
    #[must_use]
    pub fn new(resources: Resources, options: AdminOptions) -> Self {
        Self {
            topics: resources.topics,
            stats: resources.stats,
            subscriptions: resources.subscriptions,
            messages: resources.messages,
            offload: resources.offload,
            compaction: resources.compaction,
            brokers: resources.brokers,
            bookies: resources.bookies,
            catalog: resources.catalog,
            options: Arc::new(options),
            metrics_turn: Arc::new(Semaphore::new(1)),
        }
    }
}
