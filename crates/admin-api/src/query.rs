//! What stands behind the `?` of requests. What a type does not name is ignored.

use serde::Deserialize;

/// Of a removal.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ForceQuery {
    /// Whether what still uses the thing goes with it.
    #[serde(default)]
    pub force: bool,
}

/// Of unloading a bundle.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct UnloadBundleQuery {
    /// The broker that is to have it, `host:port` of its HTTP server.
    #[serde(default)]
    pub destination_broker: Option<String>,
}

/// Of writing down where a bookie stands.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BookieRackQuery {
    /// The group that it is in; `default` if nothing is said.
    #[serde(default)]
    pub group: Option<String>,
}

/// Of cutting a bundle.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SplitBundleQuery {
    /// Whether all parts but the first go to other brokers, in turn, where there are others.
    #[serde(default)]
    pub unload: bool,
    /// Where it is cut: `range_equally_divide` (if nothing is said), `topic_count_equally_divide`,
    /// `flow_or_qps_equally_divide`, or `specified_positions_divide` at the positions in the body.
    #[serde(default)]
    pub split_algorithm_name: Option<String>,
}

/// Of transactions.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct CoordinatorQuery {
    /// Of this coordinator only.
    #[serde(default)]
    pub coordinator_id: Option<u64>,
}

/// Of a namespace's list of topics.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NamespaceTopicsQuery {
    /// `PERSISTENT` (if nothing is said), `NON_PERSISTENT` or `ALL`.
    #[serde(default)]
    pub mode: Option<String>,
    /// Whether those that the broker keeps for itself are listed as well.
    #[serde(default)]
    pub include_system_topic: bool,
}

/// Of a list of topics of one domain.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct TopicsQuery {
    /// Whether those that the broker keeps for itself are listed as well.
    #[serde(default)]
    pub include_system_topic: bool,
}

/// Of a topic's number of partitions.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct PartitionsQuery {
    /// Whether a topic that is not there is made, where clients may make topics.
    #[serde(default)]
    pub check_allow_auto_creation: bool,
}

/// Of making a partitioned topic.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct CreatePartitionedQuery {
    /// Whether only the metadata is made, and the partitions when they are used.
    #[serde(default)]
    pub create_local_topic_only: bool,
}

/// Of removing a property.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PropertyQuery {
    /// Its name.
    pub key: String,
}

/// Of a topic's stats.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct StatsQuery {
    /// Of a partitioned topic: whether those of each partition are shown beside the sum.
    #[serde(default = "yes")]
    pub per_partition: bool,
    /// Count the backlog exactly rather than from counters.
    #[serde(default)]
    pub get_precise_backlog: bool,
    /// Fill `backlogSize` of subscriptions.
    #[serde(default = "yes")]
    pub subscription_backlog_size: bool,
    /// Fill the publish time of the oldest message in each backlog; costs a read per subscription.
    #[serde(default)]
    pub get_earliest_time_in_backlog: bool,
    /// Leave `publishers` empty.
    #[serde(default)]
    pub exclude_publishers: bool,
    /// Leave `consumers` of every subscription empty.
    #[serde(default)]
    pub exclude_consumers: bool,
}

fn yes() -> bool {
    true
}

/// Of a topic's ledgers and cursors.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InternalStatsQuery {
    /// With the engine's own description of each ledger.
    #[serde(default)]
    pub metadata: bool,
}

/// Of a policy of a namespace.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AppliedQuery {
    /// What holds rather than what is set here.
    #[serde(default)]
    pub applied: bool,
}

/// Of a policy of a topic that is read.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct TopicPolicyQuery {
    /// What holds, of the topic, its namespace or the broker, rather than what is set here.
    #[serde(default)]
    pub applied: bool,
    /// The copy that holds in all clusters.
    #[serde(default)]
    pub is_global: bool,
}

/// Of a policy of a topic that is set or removed.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ScopeQuery {
    /// The copy that holds in all clusters.
    #[serde(default)]
    pub is_global: bool,
}

/// Of a policy of a topic that is set: two of them come here instead of in the body.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SetTopicPolicyQuery {
    /// The value, of the policy of this name.
    #[serde(rename = "messageTTL")]
    pub message_ttl: Option<i64>,
    /// The value, of the policy of this name.
    #[serde(rename = "subscriptionExpirationTime")]
    pub subscription_expiration_time: Option<i64>,
    /// The copy that holds in all clusters.
    #[serde(rename = "isGlobal", default)]
    pub is_global: bool,
}

/// Which backlog quota of a namespace.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct QuotaQuery {
    /// `destination_storage` (if nothing is said) or `message_age`.
    pub backlog_quota_type: Option<String>,
}

/// Which backlog quota of a topic.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct TopicQuotaQuery {
    /// `destination_storage` (if nothing is said) or `message_age`.
    pub backlog_quota_type: Option<String>,
    /// The copy that holds in all clusters.
    #[serde(default)]
    pub is_global: bool,
}

/// Which message of a topic.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ExamineQuery {
    /// `earliest` to count forwards, `latest` (if nothing is said) backwards.
    #[serde(default)]
    pub initial_position: Option<String>,
    /// Which one, from 1.
    #[serde(default)]
    pub message_position: Option<u64>,
}

/// Of making a subscription.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CreateSubscriptionQuery {
    /// Whether other clusters are told how far it is.
    #[serde(default)]
    pub replicated: bool,
}

/// Of a broadcast subscription's consumers.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BroadcastQuery {
    /// List every consumer by name as well.
    #[serde(default)]
    pub consumers: bool,
    /// How many of those furthest behind; 10 if nothing is said, at most 1000.
    pub slowest: Option<usize>,
}

/// Of a lookup.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct LookupQuery {
    /// Through which advertised listener the client came; there is one, and it has no name.
    #[serde(default)]
    pub listener_name: Option<String>,
}
