//! Values of the policies that namespaces and topics have.

use serde::{Deserialize, Serialize};

/// What is kept although it is acknowledged. -1 means without limit, 0 nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct RetentionPolicies {
    /// Minutes.
    #[serde(rename = "retentionTimeInMinutes")]
    pub retention_time_in_minutes: i32,
    /// Mebibytes.
    #[serde(rename = "retentionSizeInMB")]
    pub retention_size_in_mb: i64,
}

/// A limit to the backlog.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct BacklogQuota {
    /// Old name of `limitSize`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<i64>,
    /// Bytes; -1 off.
    pub limit_size: i64,
    /// Seconds; -1 off.
    pub limit_time: i32,
    /// `producer_request_hold`, `producer_exception` or `consumer_backlog_eviction`.
    pub policy: String,
}

/// On which bookies the entries of a namespace are, by the groups that operators put bookies into.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct BookieAffinityGroupData {
    /// Groups that take them, with commas between.
    pub bookkeeper_affinity_group_primary: Option<String>,
    /// Groups that stand in where those have too few bookies, with commas between.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bookkeeper_affinity_group_secondary: Option<String>,
}

/// How many copies of an entry there are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct PersistencePolicies {
    /// Nodes of a ledger.
    pub bookkeeper_ensemble: i32,
    /// Nodes an entry is sent to.
    pub bookkeeper_write_quorum: i32,
    /// Nodes that must confirm it.
    pub bookkeeper_ack_quorum: i32,
    /// Cursor updates a second.
    pub managed_ledger_max_mark_delete_rate: f64,
    /// Storage class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub managed_ledger_storage_class_name: Option<String>,
}

impl Default for PersistencePolicies {
    fn default() -> Self {
        Self {
            bookkeeper_ensemble: 2,
            bookkeeper_write_quorum: 2,
            bookkeeper_ack_quorum: 2,
            managed_ledger_max_mark_delete_rate: -1.0,
            managed_ledger_storage_class_name: None,
        }
    }
}

/// Whether topics are made on first use, and which kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct AutoTopicCreationOverride {
    /// Whether.
    pub allow_auto_topic_creation: bool,
    /// `partitioned` or `non-partitioned`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topic_type: Option<String>,
    /// Partitions, when partitioned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_num_partitions: Option<i32>,
}

/// Whether subscriptions are made on first use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct AutoSubscriptionCreationOverride {
    /// Whether.
    pub allow_auto_subscription_creation: bool,
}

/// Delayed delivery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DelayedDeliveryPolicies {
    /// Milliseconds between looks at the clock.
    pub tick_time: i64,
    /// On or off.
    pub active: bool,
    /// Longest delay a producer may ask for, in milliseconds; 0 any.
    pub max_delivery_delay_in_millis: i64,
}

/// When an idle topic is deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct InactiveTopicPolicies {
    /// `delete_when_no_subscriptions` or `delete_when_subscriptions_caught_up`.
    pub inactive_topic_delete_mode: String,
    /// Seconds.
    pub max_inactive_duration_seconds: i32,
    /// On or off.
    pub delete_while_inactive: bool,
}

/// A limit to sending. -1 off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DispatchRate {
    /// Messages a period.
    pub dispatch_throttling_rate_in_msg: i32,
    /// Bytes a period.
    pub dispatch_throttling_rate_in_byte: i64,
    /// Added to the publish rate.
    pub relative_to_publish_rate: bool,
    /// Length of a period in seconds.
    pub rate_period_in_second: i32,
}

impl Default for DispatchRate {
    fn default() -> Self {
        Self {
            dispatch_throttling_rate_in_msg: -1,
            dispatch_throttling_rate_in_byte: -1,
            relative_to_publish_rate: false,
            rate_period_in_second: 1,
        }
    }
}

/// A limit to publishing. -1 off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct PublishRate {
    /// Messages a second.
    pub publish_throttling_rate_in_msg: i32,
    /// Bytes a second.
    pub publish_throttling_rate_in_byte: i64,
}

impl Default for PublishRate {
    fn default() -> Self {
        Self {
            publish_throttling_rate_in_msg: -1,
            publish_throttling_rate_in_byte: -1,
        }
    }
}

/// A limit to subscribing. -1 off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct SubscribeRate {
    /// Subscribes of one consumer a period.
    pub subscribe_throttling_rate_per_consumer: i32,
    /// Length of a period in seconds.
    pub rate_period_in_second: i32,
}

impl Default for SubscribeRate {
    fn default() -> Self {
        Self {
            subscribe_throttling_rate_per_consumer: -1,
            rate_period_in_second: 30,
        }
    }
}
