//! What the catalog is told at start; the broker-wide defaults that namespaces may override.

use pharos_types::NamespaceName;

use super::schema::SchemaCompatibilityStrategy;

/// What an automatically created topic is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AutoTopicType {
    /// One plain topic.
    #[default]
    NonPartitioned,
    /// A partitioned topic of `default_num_partitions`.
    Partitioned,
}

/// Settings of a [`super::Catalog`].
#[derive(Clone, Debug)]
pub struct CatalogOptions {
    /// `clusterName`; made on a fresh store and the replication cluster of the first namespaces.
    pub cluster_name: String,
    /// `webServiceUrl` of the cluster made on a fresh store, such as `http://127.0.0.1:8080`; empty when unknown.
    pub web_service_url: String,
    /// `brokerServiceUrl` of the same, such as `pulsar://127.0.0.1:6650`; empty when unknown.
    pub broker_service_url: String,
    /// `allowAutoTopicCreation`: whether a topic is made when a client first asks for it. Default true.
    pub allow_auto_topic_creation: bool,
    /// `allowAutoTopicCreationType`. Default non-partitioned.
    pub auto_topic_type: AutoTopicType,
    /// `defaultNumPartitions`, at least 1. Default 1.
    pub default_num_partitions: u32,
    /// `maxNumPartitionsPerPartitionedTopic`; 0 is no limit. Default 0.
    pub max_num_partitions: u32,
    /// `maxTopicsPerNamespace`, partitions counted one by one; 0 is no limit. Default 0.
    pub max_topics_per_namespace: u32,
    /// `allowAutoSubscriptionCreation`. Default true.
    pub allow_auto_subscription_creation: bool,
    /// `enableBrokerSideSubscriptionPatternEvaluation`. Default true.
    pub evaluate_patterns: bool,
    /// `subscriptionPatternMaxLength`, in UTF-16 code units as clients count them. Default 50.
    pub pattern_max_length: usize,
    /// `defaultNumberOfNamespaceBundles`, at least 1. Default 4.
    pub default_num_bundles: u32,
    /// `schemaCompatibilityStrategy`. Default FULL.
    pub schema_compatibility_strategy: SchemaCompatibilityStrategy,
    /// `isAllowAutoUpdateSchemaEnabled`: whether a producer may bring a new schema. Default true.
    pub allow_auto_update_schema: bool,
    /// `isSchemaValidationEnforced`: whether a producer without a schema is refused on a topic that has one. Default
    /// false.
    pub schema_validation_enforced: bool,
    /// The namespace of the heartbeat topic, `pulsar/<host:port>`. It exists without being stored, and the rules for
    /// partition names do not hold in it.
    pub heartbeat_namespace: Option<NamespaceName>,
}

impl Default for CatalogOptions {
    fn default() -> Self {
        Self {
            cluster_name: "standalone".into(),
            web_service_url: String::new(),
            broker_service_url: String::new(),
            allow_auto_topic_creation: true,
            auto_topic_type: AutoTopicType::NonPartitioned,
            default_num_partitions: 1,
            max_num_partitions: 0,
            max_topics_per_namespace: 0,
            allow_auto_subscription_creation: true,
            evaluate_patterns: true,
            pattern_max_length: 50,
            default_num_bundles: 4,
            schema_compatibility_strategy: SchemaCompatibilityStrategy::Full,
            allow_auto_update_schema: true,
            schema_validation_enforced: false,
            heartbeat_namespace: None,
        }
    }
}
