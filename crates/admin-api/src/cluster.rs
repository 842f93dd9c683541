//! Clusters, tenants, bundles, brokers, lookup.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What is known about a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterData {
    /// `http://host:port`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_url: Option<String>,
    /// `https://host:port`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_url_tls: Option<String>,
    /// `pulsar://host:port`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broker_service_url: Option<String>,
    /// `pulsar+ssl://host:port`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broker_service_url_tls: Option<String>,
    /// A proxy in front of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy_service_url: Option<String>,
    /// How other clusters authenticate to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authentication_plugin: Option<String>,
    /// With what.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authentication_parameters: Option<String>,
    /// Clusters that may stand in for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer_cluster_names: Option<Vec<String>>,
    /// Whether other clusters speak TLS to it.
    pub broker_client_tls_enabled: bool,
    /// Whether they accept any certificate.
    pub tls_allow_insecure_connection: bool,
    /// Whether keys come from a key store.
    pub broker_client_tls_enabled_with_key_store: bool,
    /// Which listener other clusters use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listener_name: Option<String>,
    /// Other members: `brokerClientTrustCertsFilePath`, `brokerClientCertificateFilePath` and `brokerClientKeyFilePath` are acted on.
    #[serde(flatten)]
    pub other: BTreeMap<String, serde_json::Value>,
}

/// What is stored about a tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct TenantInfo {
    /// Roles that may administer it.
    pub admin_roles: Vec<String>,
    /// Clusters its namespaces may live on.
    pub allowed_clusters: Vec<String>,
}

/// What a role is granted on a topic.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TopicGrant {
    /// The topic.
    pub topic: String,
    /// The role.
    pub role: String,
    /// Its permissions there.
    pub actions: Vec<String>,
}

/// A role whose permissions on a topic are taken away.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TopicRevocation {
    /// The topic.
    pub topic: String,
    /// The role.
    pub role: String,
}

/// How a namespace's hash space is cut.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct BundlesData {
    /// Borders like `0x40000000`, rising, one more than there are bundles. May be left out when creating.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boundaries: Option<Vec<String>>,
    /// Number of bundles.
    pub num_bundles: u32,
}

/// What is stored about a partitioned topic.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct PartitionedTopicMetadata {
    /// Number of partitions; 0 when the topic is not partitioned.
    pub partitions: u32,
    /// Whether it is being deleted.
    pub deleted: bool,
    /// Properties.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub properties: Option<BTreeMap<String, String>>,
}

/// Who serves a topic.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct LookupData {
    /// `pulsar://host:port`.
    pub broker_url: String,
    /// `pulsar+ssl://host:port`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broker_url_tls: Option<String>,
    /// `http://host:port`.
    pub http_url: String,
    /// `https://host:port`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_url_tls: Option<String>,
    /// Same as `brokerUrl`; old clients read it.
    pub native_url: String,
    /// Old name of `brokerUrlTls`, or empty.
    pub broker_url_ssl: String,
}

/// The broker that leads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct BrokerInfo {
    /// `http://host:port`.
    pub service_url: String,
    /// `host:port`.
    pub broker_id: String,
}

/// The bookies that take writes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct BookiesClusterInfo {
    /// Each of them.
    pub bookies: Vec<BookieName>,
}

/// A bookie by its name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct BookieName {
    /// `host:port`, or what else it calls itself.
    pub bookie_id: String,
}

/// Where a bookie stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct BookieInfo {
    /// `/region/rack` or `/rack`.
    pub rack: String,
    /// The name of its machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
}

/// How a broker holds a bundle.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct NamespaceOwnershipStatus {
    /// `primary`, `secondary` or `shared`.
    pub broker_assignment: String,
    /// Whether an isolation policy put it there.
    pub is_controlled: bool,
    /// Whether it is served.
    pub is_active: bool,
}

/// Where the broker keeps its metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct InternalConfigurationData {
    /// Metadata store URL.
    pub metadata_store_url: String,
    /// Metadata store of the configuration; the same.
    pub configuration_metadata_store_url: String,
    /// Old names of the two.
    pub zookeeper_servers: String,
    /// Old name.
    pub configuration_store_servers: String,
    /// Path of ledger metadata.
    pub ledgers_root_path: String,
}
