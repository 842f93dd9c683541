//! The rows.
//!
//! ```text
//! /// What it does; this is also the member's documentation and the sentence on the reference page.
//! name: Type = the broker's default, merge rule, Row: check, levels, where it acts;
//! name: Type, broker Other = …     when the broker's level has a type of its own
//! …, merge[off_for_system_topics]  system topics have `Type::default()`
//! ```
//!
//! From each row come a field of [`BrokerPolicies`] and of [`EffectivePolicies`], a method of [`Levels`] that says what holds,
//! and an entry of [`POLICIES`].

use std::time::Duration;

use pharos_admin_api::{
    AutoSubscriptionCreationOverride, DelayedDeliveryPolicies, PublishRate, SubscribeRate,
};
use pharos_ledger::Durability;
use pharos_ledger::offload::OffloadPolicy;
use serde_json::{Map, Value, json};

use super::check::{self, any, count, shape};
use super::dispatch_rate::{self, DispatchRateLimit};
use super::levels::{Levels, broker_alone, durability, each_quota, either, nearest, schema_strategy};
use super::offload::offload;
use super::persistence::{BookieAffinity, Persistence};
use super::replication::ReplicationClusters;
use super::row::{Guard, Row};
use super::value::{
    AutoSubscriptionCreation, AutoTopicCreation, AutoTopicType, BacklogQuotaDefaults, BacklogQuotas,
    DelayedDelivery, InactiveMode, InactiveTopics, Minutes, PublishRateLimit, Retention, Seconds,
    SubscribeRateLimit, SubscriptionTypes, ToJson,
};
use crate::schema::SchemaCompatibilityStrategy;
use crate::{BROADCAST_CARRIERS, BROADCAST_SUBSCRIPTIONS, DURABILITY};

macro_rules! policies {
    ($(
        $(#[doc = $about:literal])+
        $name:ident: $value:ty $(, broker $broker:ty)? = $default:expr, $merge:ident $([$spares:ident])?, $row:expr;
    )+) => {
        /// Broker's default of each policy: effective if neither a topic nor its namespace sets it.
        #[derive(Clone, Debug, PartialEq)]
        pub struct BrokerPolicies {
            $($(#[doc = $about])+ pub $name: policies!(@broker $value $(, $broker)?),)+
        }

        impl Default for BrokerPolicies {
            fn default() -> Self {
                Self { $($name: $default,)+ }
            }
        }

        /// Effective policies of one topic.
        #[derive(Clone, Debug, PartialEq)]
        pub struct EffectivePolicies {
            $($(#[doc = $about])+ pub $name: $value,)+
        }

        impl EffectivePolicies {
            /// Merges what is said. `is_system`: whether limits, quotas and expiry are left out.
            pub(crate) fn of(levels: &Levels<'_>, is_system: bool) -> Self {
                Self { $($name: policies!(@effective levels, is_system, $name $(, $spares)?),)+ }
            }
        }

        impl Levels<'_> {
            $(
                $(#[doc = $about])+
                #[must_use]
                pub fn $name(&self) -> $value {
                    $merge(self, &rows::$name, &self.broker.$name)
                }
            )+
        }

        #[allow(non_upper_case_globals, reason = "a row is found by its field's name")]
        mod rows {
            use super::*;

            $(
                pub(super) static $name: Row = Row {
                    name: stringify!($name),
                    about: concat!($($about),+),
                    applied: policies!(@applied $name $(, $broker)?),
                    spares_system_topics: policies!(@flag $($spares)?),
                    ..$row
                };
            )+
        }

        /// The policies that something acts on, in the order of the reference page.
        pub static POLICIES: &[&Row] = &[$(&rows::$name),+];
    };
    (@broker $value:ty) => { $value };
    (@broker $value:ty, $broker:ty) => { $broker };
    (@applied $name:ident) => { |levels| levels.$name().to_json() };
    (@applied $name:ident, $broker:ty) => { |levels| levels.broker.$name.to_json() };
    (@effective $levels:ident, $is_system:ident, $name:ident) => { $levels.$name() };
    (@effective $levels:ident, $is_system:ident, $name:ident, off_for_system_topics) => {
        if $is_system { Default::default() } else { $levels.$name() }
    };
    (@flag) => { false };
    (@flag off_for_system_topics) => { true };
}

policies! {
    /// Retention of acknowledged data, by time and size; -1 is unlimited. Must be larger than the backlog quotas.
    retention: Retention = Retention { time: Some(Duration::ZERO), bytes: Some(0) }, nearest,
        Row::new("RetentionPolicies", check::retention)
            .settings(&["ledger.default_retention_time", "ledger.default_retention_size"])
            .namespace("retention", "retention_policies")
            .topic("retention")
            .guard(Guard::Quotas)
            .acts("topic/src/retire.rs");

    /// Seconds after which a message counts as acknowledged on every subscription; 0 is never.
    message_ttl: Seconds = Seconds(Duration::ZERO), nearest[off_for_system_topics],
        Row::new("number", count)
            .settings(&["policies.message_ttl"])
            .namespace("messageTTL", "message_ttl_in_seconds")
            .topic("messageTTL")
            .in_query()
            .acts("topic/src/expiry.rs");

    /// Maximum size and age of a backlog, and the action beyond it: one value for `destination_storage` and one for
    /// `message_age`, each resolved by itself.
    backlog_quotas: BacklogQuotas, broker BacklogQuotaDefaults = BacklogQuotaDefaults::default(), each_quota[off_for_system_topics],
        Row::new("BacklogQuota by type", check::backlog_quotas)
            .settings(&["policies.backlog_quota_size", "policies.backlog_quota_time", "policies.backlog_quota_policy"])
            .namespace("backlogQuota", "backlog_quota_map")
            .unset_member(|_| json!({}))
            .topic("backlogQuota")
            .guard(Guard::Quotas)
            .acts("topic/src/quota.rs");

    /// Minutes that a durable subscription lives without consumers; 0 is for ever.
    subscription_expiration: Minutes = Minutes(Duration::ZERO), nearest[off_for_system_topics],
        Row::new("number", count)
            .settings(&["policies.subscription_expiration_time"])
            .namespace("subscriptionExpirationTime", "subscription_expiration_time_minutes")
            .topic("subscriptionExpirationTime")
            .in_query()
            .acts("topic/src/expiry.rs");

    /// Bytes of the log that were not compacted yet at which a topic is compacted; 0 is never.
    compaction_threshold: u64 = 0, nearest[off_for_system_topics],
        Row::new("number", check::size)
            .settings(&["policies.compaction_threshold"])
            .namespace("compactionThreshold", "compaction_threshold")
            .put_on_namespaces()
            .topic("compactionThreshold")
            .acts("topic/src/compaction.rs");

    /// Deletion of unused topics: the condition and the time.
    inactive_topics: InactiveTopics = InactiveTopics {
            delete: true,
            mode: InactiveMode::NoSubscriptions,
            after: Duration::from_secs(60),
        }, nearest[off_for_system_topics],
        Row::new("InactiveTopicPolicies", check::inactive)
            .settings(&[
                "policies.delete_inactive_topics",
                "policies.delete_inactive_topics_mode",
                "policies.delete_inactive_topics_after",
            ])
            .namespace("inactiveTopicPolicies", "inactive_topic_policies")
            .topic("inactiveTopicPolicies")
            .acts("topic/src/inactive.rs");

    /// Producers that a topic may have; 0 is no limit.
    max_producers: u32 = 0, nearest[off_for_system_topics],
        Row::new("number", count)
            .settings(&["policies.max_producers_per_topic"])
            .namespace("maxProducersPerTopic", "max_producers_per_topic")
            .topic("maxProducers")
            .acts("topic/src/limits.rs");

    /// Producers that a topic may have from one address; 0 is no limit.
    max_same_address_producers: u32 = 0, broker_alone[off_for_system_topics],
        Row::new("number", count)
            .settings(&["policies.max_same_address_producers_per_topic"])
            .acts("topic/src/limits.rs");

    /// Consumers that a topic may have; 0 is no limit.
    max_consumers: u32 = 0, nearest[off_for_system_topics],
        Row::new("number", count)
            .settings(&["policies.max_consumers_per_topic"])
            .namespace("maxConsumersPerTopic", "max_consumers_per_topic")
            .topic("maxConsumers")
            .acts("topic/src/limits.rs");

    /// Consumers that a topic may have from one address; 0 is no limit.
    max_same_address_consumers: u32 = 0, broker_alone[off_for_system_topics],
        Row::new("number", count)
            .settings(&["policies.max_same_address_consumers_per_topic"])
            .acts("topic/src/limits.rs");

    /// Consumers that a subscription may have; 0 is no limit.
    max_consumers_per_subscription: u32 = 0, nearest[off_for_system_topics],
        Row::new("number", count)
            .settings(&["policies.max_consumers_per_subscription"])
            .namespace("maxConsumersPerSubscription", "max_consumers_per_subscription")
            .topic("maxConsumersPerSubscription")
            .acts("topic/src/limits.rs");

    /// Durable subscriptions that a topic may have; 0 is no limit.
    max_subscriptions: u32 = 0, nearest[off_for_system_topics],
        Row::new("number", count)
            .settings(&["policies.max_subscriptions_per_topic"])
            .namespace("maxSubscriptionsPerTopic", "max_subscriptions_per_topic")
            .topic("maxSubscriptionsPerTopic")
            .acts("topic/src/limits.rs");

    /// Topics that a namespace may have, partitions counted one by one; 0 is no limit.
    max_topics_per_namespace: u32 = 0, nearest,
        Row::new("number", count)
            .settings(&["policies.max_topics_per_namespace"])
            .namespace("maxTopicsPerNamespace", "max_topics_per_namespace")
            .unset_at_path(|_| json!(0))
            .acts("catalog/src/topics.rs");

    /// Shared and Key_Shared: a consumer with so many unacknowledged messages gets no more; 0 is no limit.
    max_unacked_per_consumer: u32 = 50_000, nearest,
        Row::new("number", count)
            .settings(&["max_unacked_messages_per_consumer"])
            .namespace("maxUnackedMessagesPerConsumer", "max_unacked_messages_per_consumer")
            .topic("maxUnackedMessagesOnConsumer")
            .acts("topic/src/dispatched.rs");

    /// Shared and Key_Shared: a subscription with so many unacknowledged messages stands still; 0 is no limit.
    max_unacked_per_subscription: u32 = 200_000, nearest,
        Row::new("number", count)
            .settings(&["max_unacked_messages_per_subscription"])
            .namespace("maxUnackedMessagesPerSubscription", "max_unacked_messages_per_subscription")
            .topic("maxUnackedMessagesOnSubscription")
            .acts("topic/src/dispatched.rs");

    /// The largest entry in bytes, headers counted; 0 is that of the protocol, `max_message_size`.
    max_entry_bytes: Option<u32> = None, nearest[off_for_system_topics],
        Row::new("number", count)
            .topic("maxMessageSize")
            .acts("topic/src/publish.rs");

    /// Messages and bytes a second that may be published; more wait, and their producers with them.
    publish_rate: PublishRateLimit = PublishRateLimit::default(), nearest[off_for_system_topics],
        Row::new("PublishRate", shape::<PublishRate>)
            .settings(&["policies.max_publish_rate_messages", "policies.max_publish_rate_bytes"])
            .namespace("publishRate", "publishMaxMessageRate")
            .by_cluster()
            .topic("publishRate")
            .acts("topic/src/throttle.rs");

    /// Messages and bytes a period that a topic delivers to all its consumers together, each delivery counted; more wait in the log.
    dispatch_rate: DispatchRateLimit = DispatchRateLimit::default(), nearest[off_for_system_topics],
        Row::new("DispatchRate", dispatch_rate::check)
            .settings(&["policies.max_dispatch_rate_messages", "policies.max_dispatch_rate_bytes"])
            .namespace("dispatchRate", "topicDispatchRate")
            .by_cluster()
            .topic("dispatchRate")
            .acts("topic/src/dispatch_rates.rs");

    /// Dispatch rate of each subscription.
    subscription_dispatch_rate: DispatchRateLimit = DispatchRateLimit::default(), nearest[off_for_system_topics],
        Row::new("DispatchRate", dispatch_rate::check)
            .settings(&["policies.max_dispatch_rate_messages_per_subscription", "policies.max_dispatch_rate_bytes_per_subscription"])
            .namespace("subscriptionDispatchRate", "subscriptionDispatchRate")
            .by_cluster()
            .topic("subscriptionDispatchRate")
            .acts("topic/src/dispatch_rates.rs");

    /// Dispatch rate of replication to each remote cluster.
    replicator_dispatch_rate: DispatchRateLimit = DispatchRateLimit::default(), nearest[off_for_system_topics],
        Row::new("DispatchRate", dispatch_rate::check)
            .settings(&["policies.max_dispatch_rate_messages_per_replicator", "policies.max_dispatch_rate_bytes_per_replicator"])
            .namespace("replicatorDispatchRate", "replicatorDispatchRate")
            .by_cluster()
            .topic("replicatorDispatchRate")
            .acts("topic/src/replication.rs");

    /// The clusters that have the data, this one among them.
    replication: ReplicationClusters = ReplicationClusters::default(), nearest[off_for_system_topics],
        Row::new("list of names", shape::<Vec<String>>)
            .namespace("replication", "replication_clusters")
            .topic("replication")
            .guard(Guard::Clusters)
            .acts("topic/src/replication.rs");

    /// Maximum rate of subscribe requests of one consumer.
    subscribe_rate: SubscribeRateLimit = SubscribeRateLimit::default(), nearest[off_for_system_topics],
        Row::new("SubscribeRate", shape::<SubscribeRate>)
            .namespace("subscribeRate", "clusterSubscribeRate")
            .by_cluster()
            .topic("subscribeRate")
            .acts("topic/src/limits.rs");

    /// Delayed delivery: whether it is enabled, the tick time, and the maximum delay.
    delayed_delivery: DelayedDelivery = DelayedDelivery {
            active: true,
            tick: Duration::from_secs(1),
            strict: false,
            delay_ms_max: None,
        }, nearest,
        Row::new("DelayedDeliveryPolicies", shape::<DelayedDeliveryPolicies>)
            .settings(&["policies.delayed_delivery", "delayed_delivery_tick_time", "delayed_delivery_strict"])
            .namespace("delayedDelivery", "delayed_delivery_policies")
            .topic("delayedDelivery")
            .acts("topic/src/dispatched.rs");

    /// The types of subscription that are served; an empty list says nothing. Broadcast counts as Exclusive.
    subscription_types: SubscriptionTypes = SubscriptionTypes::default(), nearest,
        Row::new("list of names", check::subscription_types)
            .namespace("subscriptionTypesEnabled", "subscription_types_enabled")
            .unset(|_| json!([]))
            .topic("subscriptionTypesEnabled")
            .acts("topic/src/limits.rs");

    /// True if duplicates, by the producer's sequence ids, are acknowledged without being stored again.
    deduplication: bool = false, nearest[off_for_system_topics],
        Row::new("true or false", shape::<bool>)
            .settings(&["policies.deduplication"])
            .namespace("deduplication", "deduplicationEnabled")
            .topic("deduplicationEnabled")
            .acts("topic/src/deduplication.rs");

    /// Seconds after which the state of deduplication is stored, if it changed; 0 is never by time.
    deduplication_snapshot_interval: Seconds = Seconds(Duration::from_secs(120)), nearest,
        Row::new("number", count)
            .settings(&["policies.deduplication_snapshot_interval"])
            .namespace("deduplicationSnapshotInterval", "deduplicationSnapshotIntervalSeconds")
            .topic("deduplicationSnapshotInterval")
            .acts("topic/src/deduplication.rs");

    /// True if only encrypted messages are accepted.
    encryption_required: bool = false, nearest[off_for_system_topics],
        Row::new("true or false", shape::<bool>)
            .namespace("encryptionRequired", "encryption_required")
            .unset(|_| json!(false))
            .acts("topic/src/publish.rs");

    /// Creation of a topic when a client first names it, and its type.
    auto_topic_creation: AutoTopicCreation = AutoTopicCreation {
            allow: true,
            kind: AutoTopicType::NonPartitioned,
            partitions: 1,
        }, nearest,
        Row::new("AutoTopicCreationOverride", check::auto_topic_creation)
            .settings(&["allow_auto_topic_creation", "allow_auto_topic_creation_type", "default_num_partitions"])
            .namespace("autoTopicCreation", "autoTopicCreationOverride")
            .acts("catalog/src/ensure.rs");

    /// Creation of a durable subscription when a consumer first names it.
    auto_subscription_creation: AutoSubscriptionCreation = AutoSubscriptionCreation { allow: true }, nearest,
        Row::new("AutoSubscriptionCreationOverride", shape::<AutoSubscriptionCreationOverride>)
            .settings(&["allow_auto_subscription_creation"])
            .namespace("autoSubscriptionCreation", "autoSubscriptionCreationOverride")
            .topic("autoSubscriptionCreation")
            .acts("catalog/src/namespaces.rs");

    /// Compatibility check for a new schema of the topic. `UNDEFINED` sets nothing.
    schema_compatibility_strategy: SchemaCompatibilityStrategy = SchemaCompatibilityStrategy::Full, schema_strategy,
        Row::new("SchemaCompatibilityStrategy", shape::<SchemaCompatibilityStrategy>)
            .namespace("schemaCompatibilityStrategy", "schema_compatibility_strategy")
            .put_on_namespaces()
            .unset(|_| json!("UNDEFINED"))
            .topic("schemaCompatibilityStrategy")
            .put_on_topics()
            .acts("catalog/src/schema/registry.rs");

    /// True if producers may add new schemas.
    allow_auto_update_schema: bool = true, nearest,
        Row::new("true or false", shape::<bool>)
            .namespace("isAllowAutoUpdateSchema", "is_allow_auto_update_schema")
            .unset(|broker| json!(broker.allow_auto_update_schema))
            .acts("catalog/src/schema/registry.rs");

    /// True if producers without a schema are refused on a topic that has one.
    schema_validation_enforced: bool = false, either,
        Row::new("true or false", shape::<bool>)
            .namespace("schemaValidationEnforced", "schema_validation_enforced")
            .unset(|_| json!(false))
            .knows_applied()
            .topic("schemaValidationEnforced")
            .unset_on_topics(|_| json!(false))
            .idle_on_topics()
            .acts("catalog/src/schema/registry.rs");

    /// Copies of a message on bookies, from the next ledger on; of the embedded engine 1, 1, 1. The rate at which positions are stored is
    /// the broker's: the policy can only name one that is not lower.
    persistence: Persistence = Persistence { cursor_flush_interval: Duration::from_secs(1), replication: None }, nearest,
        Row::new("PersistencePolicies", check::persistence)
            .settings(&[
                "cursor_flush_interval",
                "bookkeeper.ensemble_size",
                "bookkeeper.write_quorum",
                "bookkeeper.ack_quorum",
            ])
            .namespace("persistence", "persistence")
            .topic("persistence")
            .guard(Guard::Copies)
            .acts("topic/src/maintenance.rs");

    /// The groups of bookies that keep a namespace's entries, from the next ledger on; the secondary ones stand in where the primary
    /// ones have too few.
    bookie_affinity: BookieAffinity = None, nearest,
        Row::new("BookieAffinityGroupData", check::bookie_affinity)
            .namespace("persistence/bookieAffinity", "bookieAffinityGroup")
            .guard(Guard::Bookies)
            .acts("topic/src/maintenance.rs");

    /// Offload target of closed ledgers, and the thresholds; each member is resolved by itself.
    offload: OffloadPolicy, broker OffloadPolicy = OffloadPolicy::default(), offload,
        Row::new("OffloadPolicies", check::offload_policies)
            .settings(&[
                "offload.driver",
                "offload.threshold_size",
                "offload.threshold_time",
                "offload.deletion_lag",
                "offload.read_priority",
                "offload.s3_bucket",
                "offload.s3_region",
                "offload.s3_endpoint",
                "offload.filesystem_uri",
            ])
            .namespace("offloadPolicies", "offload_policies")
            .topic("offloadPolicies")
            .guard(Guard::OffloadDrivers)
            .acts("topic/src/offload.rs");

    /// Durability of messages before they are acknowledged: `sync`, `async` or `bypass`.
    durability: Durability = Durability::Sync, durability,
        Row::new("word", any)
            .settings(&["storage.sync"])
            .property(DURABILITY)
            .acts("topic/src/maintenance.rs");
}

/// The older way to say [`Levels::schema_compatibility_strategy`].
pub(super) const OLD_SCHEMA_STRATEGY: &str = "schema_auto_update_compatibility_strategy";

/// Rows without a type of their own: other ways to say what a row above says, what a namespace says of itself, and policies
/// that nothing acts on, which can only be "off".
#[rustfmt::skip]
pub static OTHERS: &[Row] = &[
    Row::named("old_schema_strategy", "Older form of schemaCompatibilityStrategy, which goes before it.", "SchemaAutoUpdateCompatibilityStrategy", check::old_strategy)
        .namespace("schemaAutoUpdateCompatibilityStrategy", OLD_SCHEMA_STRATEGY).put_on_namespaces()
        .acts("catalog/src/policy/levels.rs"),
    Row::named("offload_threshold", "Bytes of closed ledgers that are not offloaded; -1 is off.", "number", shape::<i64>)
        .namespace("offloadThreshold", "offload_threshold").put_on_namespaces().unset(|_| json!(-1))
        .acts("catalog/src/policy/offload.rs"),
    Row::named("offload_threshold_seconds", "Age at which closed ledgers are offloaded; -1 is off.", "number", check::offload_seconds)
        .namespace("offloadThresholdInSeconds", "offload_threshold_in_seconds").put_on_namespaces().unset(|_| json!(-1))
        .acts("catalog/src/policy/offload.rs"),
    Row::named("offload_deletion_lag", "Milliseconds that the broker keeps its own copy of an offloaded ledger.", "number", shape::<i64>)
        .namespace("offloadDeletionLagMs", "offload_deletion_lag_ms").put_on_namespaces()
        .acts("catalog/src/policy/offload.rs"),

    Row::named("allowed_clusters", "The clusters that may have the data; only this one can.", "list of names", shape::<Vec<String>>)
        .namespace("allowedClusters", "allowed_clusters").unset(|_| json!([])).guard(Guard::OwnCluster).idle(),
    Row::named("bundles", "Into how many hash ranges a namespace is cut, and where.", "BundlesData", any)
        .namespace("", "bundles").acts("catalog/src/namespaces.rs"),
    Row::named("properties", "Texts by name; those that begin with `pharos.` are the broker's.", "texts by name", any)
        .namespace("", "properties").unset_member(|_| json!({})).acts("catalog/src/properties.rs"),
    Row::named("broadcast_subscriptions", "Names and patterns of the subscriptions that are broadcast.", "list of names", any)
        .namespace("", BROADCAST_SUBSCRIPTIONS).property(BROADCAST_SUBSCRIPTIONS)
        .acts("catalog/src/policies.rs"),
    Row::named("broadcast_carriers", "Among how many brokers the consumers of each new broadcast subscription are dealt, 1 to 16.", "number", any)
        .namespace("", BROADCAST_CARRIERS).property(BROADCAST_CARRIERS)
        .acts("catalog/src/carriers.rs"),

    Row::named("auth_policies", "Who may do what, once authorization is on.", "AuthPolicies", check::auth_policies)
        .namespace("", "auth_policies")
        .unset_member(|_| json!({"namespace_auth": {}, "destination_auth": {}, "subscription_auth_roles": {}}))
        .acts("auth/src/grants.rs"),
    Row::named("deleted", "Whether the namespace is going.", "true or false", any)
        .namespace("", "deleted").unset_member(|_| json!(false)).idle(),
    Row::named("migrated", "Whether the namespace moved to another cluster.", "true or false", any)
        .namespace("", "migrated").unset_member(|_| json!(false)).idle(),
    Row::named("cluster_dispatch_rate", "Older form of dispatchRate.", "DispatchRate", any)
        .namespace("", "clusterDispatchRate").unset_member(|_| json!({})).idle(),
    Row::named("latency_stats_sample_rate", "Left over in Pulsar.", "numbers by cluster", any)
        .namespace("", "latency_stats_sample_rate").unset_member(|_| json!({})).idle(),
    Row::named("resource_group", "The limits that several namespaces share.", "text", any)
        .namespace("", "resource_group_name").idle(),
    Row::named("topic_property_keys_for_metrics", "Properties of topics that become labels of metrics.", "list of names", any)
        .namespace("", "allowed_topic_property_keys_for_metrics").idle(),

    Row::named("subscription_auth_mode", "Whether subscriptions begin with the role of their consumers, once authorization is on.", "None or Prefix", check::auth_mode)
        .namespace("subscriptionAuthMode", "subscription_auth_mode").unset(|_| json!("None"))
        .acts("auth/src/grants.rs"),
    Row::named("entry_filters", "Plug-ins that look at each message.", "EntryFilters", shape::<Map<String, Value>>)
        .namespace("entryFilters", "entryFilters").topic("entryFilters")
        .applied(|_| Some(json!({"entryFilterNames": ""}))).idle(),
    Row::named("anti_affinity_group", "Namespaces that are kept apart.", "text", shape::<String>)
        .namespace("antiAffinity", "anti_affinity_group").idle(),
    Row::named("pause_on_ack_state_persistent", "Whether dispatchers wait for acknowledgements to be stored.", "true or false", shape::<bool>)
        .namespace("dispatcherPauseOnAckStatePersistent", "dispatcherPauseOnAckStatePersistentEnabled").unset_at_path(|_| json!(false))
        .topic("dispatcherPauseOnAckStatePersistent").unset_on_topics(|_| json!(false)).idle(),
];
