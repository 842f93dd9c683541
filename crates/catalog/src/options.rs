//! Options of the catalog at start, including the broker's level of the policies.

use std::sync::Arc;

use pharos_metadata::MetadataLayout;
use pharos_types::NamespaceName;

use super::changed_settings::ChangeableSettings;
use super::policy::BrokerPolicies;

/// Settings of a [`super::Catalog`].
#[derive(Clone, Debug)]
pub struct CatalogOptions {
    /// `clusterName`; made on a fresh store and the replication cluster of the first namespaces.
    pub cluster_name: String,
    /// `webServiceUrl` of the cluster made on a fresh store, such as `http://127.0.0.1:8080`; empty when unknown.
    pub web_service_url: String,
    /// `serviceUrlTls` of the same, such as `https://127.0.0.1:8443`; empty when there is none.
    pub web_service_url_tls: String,
    /// `brokerServiceUrl` of the same, such as `pulsar://127.0.0.1:6650`; empty when unknown.
    pub broker_service_url: String,
    /// `brokerServiceUrlTls` of the same, such as `pulsar+ssl://127.0.0.1:6651`; empty when there is none.
    pub broker_service_url_tls: String,
    /// Layout of the stored facts, in names and format. Default: Pharos's own.
    pub layout: MetadataLayout,
    /// Effective values of each policy if neither a topic nor its namespace sets it, as long as nothing was changed
    /// at run time.
    pub policies: BrokerPolicies,
    /// Settings that can be changed while brokers run. Default: none.
    pub changeable: Option<Arc<dyn ChangeableSettings>>,
    /// `maxNumPartitionsPerPartitionedTopic`; 0 is no limit. Default 0.
    pub max_num_partitions: u32,
    /// Topics of a tenant; 0 is no limit. Default 0.
    pub max_topics_per_tenant: u32,
    /// `enableBrokerSideSubscriptionPatternEvaluation`. Default true.
    pub evaluate_patterns: bool,
    /// `subscriptionPatternMaxLength`, in UTF-16 code units as clients count them. Default 50.
    pub pattern_max_length: usize,
    /// Largest topic pattern once compiled, in bytes. Default 64 KiB.
    pub pattern_max_compiled_bytes: usize,
    /// `defaultNumberOfNamespaceBundles`, at least 1. Default 4.
    pub default_num_bundles: u32,
    /// The namespace of the heartbeat topic, `pulsar/<host:port>`. It exists without being stored, and the rules for
    /// partition names do not hold in it.
    pub heartbeat_namespace: Option<NamespaceName>,
}

impl CatalogOptions {
    /// True if it is the namespace of the broker's own heartbeat.
    pub(super) fn is_heartbeat(&self, name: &NamespaceName) -> bool {
        self.heartbeat_namespace.as_ref() == Some(name)
    }
}

impl Default for CatalogOptions {
    fn default() -> Self {
        Self {
            cluster_name: "standalone".into(),
            web_service_url: String::new(),
            web_service_url_tls: String::new(),
            broker_service_url: String::new(),
            broker_service_url_tls: String::new(),
            layout: MetadataLayout::Pharos,
            policies: BrokerPolicies::default(),
            changeable: None,
            max_num_partitions: 0,
            max_topics_per_tenant: 0,
            evaluate_patterns: true,
            pattern_max_length: 50,
            pattern_max_compiled_bytes: 64 << 10,
            default_num_bundles: 4,
            heartbeat_namespace: None,
        }
    }
}
