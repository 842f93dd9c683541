//! The types of policies: as topics go by them, and how REST writes them.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use pharos_admin_api::{
    AutoSubscriptionCreationOverride, AutoTopicCreationOverride, DelayedDeliveryPolicies,
    InactiveTopicPolicies, PublishRate, RetentionPolicies, SubscribeRate,
};
use pharos_ledger::Durability;
use pharos_runtime::Rate;

use crate::schema::SchemaCompatibilityStrategy;

/// A value that REST can show.
pub trait ToJson {
    /// As REST writes it; `None` where it says nothing.
    fn to_json(&self) -> Option<Value>;
}

/// The type of a policy that REST sets.
pub trait PolicyValue: ToJson + Clone {
    /// JSON form used in REST and stored in the catalog.
    type Json: DeserializeOwned;

    /// Converts the value of a topic or namespace; members that it leaves open are taken from `broker`.
    fn from_json(said: Self::Json, broker: &Self) -> Self;
}

/// A number, mostly of things; 0 is no limit.
impl PolicyValue for u32 {
    type Json = Self;

    fn from_json(said: Self, _: &Self) -> Self {
        said
    }
}

impl ToJson for u32 {
    fn to_json(&self) -> Option<Value> {
        Some(json!(self))
    }
}

/// A number of bytes; what 0 is the policy says.
impl PolicyValue for u64 {
    type Json = Self;

    fn from_json(said: Self, _: &Self) -> Self {
        said
    }
}

impl ToJson for u64 {
    fn to_json(&self) -> Option<Value> {
        Some(json!(self))
    }
}

/// A limit that REST writes as 0 where there is none, and that need not be set.
impl PolicyValue for Option<u32> {
    type Json = u32;

    fn from_json(said: u32, _: &Self) -> Self {
        Some(said).filter(|limit| *limit > 0)
    }
}

impl ToJson for Option<u32> {
    fn to_json(&self) -> Option<Value> {
        self.map(|limit| json!(limit))
    }
}

impl PolicyValue for bool {
    type Json = Self;

    fn from_json(said: Self, _: &Self) -> Self {
        said
    }
}

impl ToJson for bool {
    fn to_json(&self) -> Option<Value> {
        Some(json!(self))
    }
}

impl ToJson for SchemaCompatibilityStrategy {
    fn to_json(&self) -> Option<Value> {
        Some(json!(self))
    }
}

/// A time that REST gives in seconds; 0 is never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seconds(pub Duration);

/// A time that REST gives in minutes; 0 is never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Minutes(pub Duration);

macro_rules! time {
    ($type:ident, $seconds:literal) => {
        impl $type {
            /// In milliseconds; `None` for never.
            #[must_use]
            pub fn millis(self) -> Option<u64> {
                Some(millis(self.0)).filter(|time| *time > 0)
            }
        }

        impl PolicyValue for $type {
            type Json = u64;

            fn from_json(said: u64, _: &Self) -> Self {
                Self(Duration::from_secs(said.saturating_mul($seconds)))
            }
        }

        impl ToJson for $type {
            fn to_json(&self) -> Option<Value> {
                Some(json!(self.0.as_secs() / $seconds))
            }
        }

        impl From<Duration> for $type {
            fn from(time: Duration) -> Self {
                Self(time)
            }
        }

        impl From<$type> for Duration {
            fn from(time: $type) -> Self {
                time.0
            }
        }
    };
}

time!(Seconds, 1);
time!(Minutes, 60);

/// Retention of acknowledged data: until either limit is exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Time since a ledger was closed; 0 keeps nothing, `None` is unlimited.
    pub time: Option<Duration>,
    /// Size per topic, in bytes; 0 keeps nothing, `None` is unlimited.
    pub bytes: Option<u64>,
}

impl PolicyValue for Retention {
    type Json = RetentionPolicies;

    fn from_json(said: RetentionPolicies, _: &Self) -> Self {
        let minutes = u64::try_from(said.retention_time_in_minutes).ok();
        let mebibytes = u64::try_from(said.retention_size_in_mb).ok();
        Self {
            time: minutes.map(|minutes| Duration::from_secs(minutes * 60)),
            bytes: mebibytes.map(|mebibytes| mebibytes.saturating_mul(1 << 20)),
        }
    }
}

impl ToJson for Retention {
    fn to_json(&self) -> Option<Value> {
        let minutes = self.time.map(|time| time.as_secs() / 60);
        let mebibytes = self.bytes.map(|bytes| bytes >> 20);
        Some(json!({"retentionTimeInMinutes": signed(minutes), "retentionSizeInMB": signed(mebibytes)}))
    }
}

/// Action when a backlog exceeds its quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QuotaAction {
    /// Producers are disconnected and told to come back later (`producer_request_hold`).
    #[default]
    Hold,
    /// Producers are disconnected and told that they failed (`producer_exception`).
    Exception,
    /// The slowest cursors are moved on (`consumer_backlog_eviction`).
    Evict,
}

impl QuotaAction {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Hold, Self::Exception, Self::Evict];

    /// The word in policies and settings.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hold => "producer_request_hold",
            Self::Exception => "producer_exception",
            Self::Evict => "consumer_backlog_eviction",
        }
    }

    /// The action that a word stands for.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.as_str() == word)
    }
}

/// A limit to a backlog, in bytes or in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// From this on the action is taken.
    pub limit: u64,
    /// Action beyond the quota.
    pub action: QuotaAction,
}

/// The quotas of a topic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BacklogQuotas {
    /// In stored bytes.
    pub size: Option<Quota>,
    /// In milliseconds, of the oldest message.
    pub age: Option<Quota>,
}

/// Broker's defaults of backlog quotas: one action for both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BacklogQuotaDefaults {
    /// Bytes; `None` for any, 0 for none at all.
    pub size: Option<u64>,
    /// Age of the oldest message; `None` for any.
    pub age: Option<Duration>,
    /// Action beyond the quota.
    pub action: QuotaAction,
}

impl ToJson for BacklogQuotaDefaults {
    fn to_json(&self) -> Option<Value> {
        let quota = |size: Option<u64>, time: Option<u64>| {
            json!({
                "limit": signed(size), "limitSize": signed(size), "limitTime": signed(time),
                "policy": self.action.as_str(),
            })
        };
        Some(json!({
            "destination_storage": quota(self.size, None),
            "message_age": quota(None, self.age.map(|age| age.as_secs())),
        }))
    }
}

/// Delivery of delayed messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelayedDelivery {
    /// True if messages are delayed; otherwise they are delivered at once, whatever time they name.
    pub active: bool,
    /// Time between looks; a message may come this much too early.
    pub tick: Duration,
    /// Never too early. The broker alone decides that.
    pub strict: bool,
    /// The longest delay that a producer may ask for, in milliseconds; `None` for any.
    pub delay_ms_max: Option<u64>,
}

impl PolicyValue for DelayedDelivery {
    type Json = DelayedDeliveryPolicies;

    fn from_json(said: DelayedDeliveryPolicies, broker: &Self) -> Self {
        let positive = |number: i64| u64::try_from(number).ok().filter(|number| *number > 0);
        Self {
            active: said.active,
            tick: positive(said.tick_time).map_or(broker.tick, Duration::from_millis),
            strict: broker.strict,
            delay_ms_max: positive(said.max_delivery_delay_in_millis),
        }
    }
}

impl ToJson for DelayedDelivery {
    fn to_json(&self) -> Option<Value> {
        Some(json!({
            "active": self.active,
            "tickTime": millis(self.tick),
            "maxDeliveryDelayInMillis": self.delay_ms_max.unwrap_or(0),
        }))
    }
}

/// Condition under which a topic counts as unused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InactiveMode {
    /// Topics without producers and subscriptions (`delete_when_no_subscriptions`).
    #[default]
    NoSubscriptions,
    /// Topics without producers and consumers whose subscriptions have no backlog
    /// (`delete_when_subscriptions_caught_up`).
    CaughtUp,
}

impl InactiveMode {
    /// The word in policies and settings.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoSubscriptions => "delete_when_no_subscriptions",
            Self::CaughtUp => "delete_when_subscriptions_caught_up",
        }
    }
}

/// Deletion of unused topics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InactiveTopics {
    /// True if unused topics are deleted.
    pub delete: bool,
    /// Condition for a topic to count as unused.
    pub mode: InactiveMode,
    /// Time that a topic must have been unused.
    pub after: Duration,
}

impl PolicyValue for InactiveTopics {
    type Json = InactiveTopicPolicies;

    fn from_json(said: InactiveTopicPolicies, _: &Self) -> Self {
        let caught_up = said.inactive_topic_delete_mode == InactiveMode::CaughtUp.as_str();
        let seconds = u64::try_from(said.max_inactive_duration_seconds).unwrap_or(0);
        Self {
            delete: said.delete_while_inactive,
            mode: if caught_up {
                InactiveMode::CaughtUp
            } else {
                InactiveMode::NoSubscriptions
            },
            after: Duration::from_secs(seconds),
        }
    }
}

impl ToJson for InactiveTopics {
    fn to_json(&self) -> Option<Value> {
        // Where nothing is deleted, what would be is of no interest.
        let shown = if self.delete {
            *self
        } else {
            Self {
                after: Duration::from_secs(60),
                ..Self::default()
            }
        };
        Some(json!({
            "inactiveTopicDeleteMode": shown.mode.as_str(),
            "maxInactiveDurationSeconds": shown.after.as_secs(),
            "deleteWhileInactive": shown.delete,
        }))
    }
}

/// Maximum publish rate of a topic per second; 0 is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PublishRateLimit {
    /// Messages, those of a batch counted one by one.
    pub messages: u32,
    /// Bytes.
    pub bytes: u64,
}

impl PublishRateLimit {
    /// True if nothing is limited.
    #[must_use]
    pub fn is_off(self) -> bool {
        self == Self::default()
    }

    /// Returns the limit as a rate per second.
    #[must_use]
    pub fn rate(self) -> Rate {
        Rate::per_second(self.messages.into(), self.bytes)
    }
}

impl PolicyValue for PublishRateLimit {
    type Json = PublishRate;

    fn from_json(said: PublishRate, _: &Self) -> Self {
        Self {
            messages: u32::try_from(said.publish_throttling_rate_in_msg).unwrap_or(0),
            bytes: u64::try_from(said.publish_throttling_rate_in_byte).unwrap_or(0),
        }
    }
}

impl ToJson for PublishRateLimit {
    fn to_json(&self) -> Option<Value> {
        Some(json!({
            "publishThrottlingRateInMsg": self.messages,
            "publishThrottlingRateInByte": self.bytes,
        }))
    }
}

/// Number of subscribe requests that one consumer may send in a period; 0 is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubscribeRateLimit {
    /// Times.
    pub count: u32,
    /// In so much time.
    pub period: Duration,
}

impl Default for SubscribeRateLimit {
    fn default() -> Self {
        Self {
            count: 0,
            period: Duration::from_secs(30),
        }
    }
}

impl PolicyValue for SubscribeRateLimit {
    type Json = SubscribeRate;

    fn from_json(said: SubscribeRate, broker: &Self) -> Self {
        let seconds = u64::try_from(said.rate_period_in_second).ok();
        let seconds = seconds.filter(|seconds| *seconds > 0);
        Self {
            count: u32::try_from(said.subscribe_throttling_rate_per_consumer).unwrap_or(0),
            period: seconds.map_or(broker.period, Duration::from_secs),
        }
    }
}

impl ToJson for SubscribeRateLimit {
    fn to_json(&self) -> Option<Value> {
        Some(json!({
            "subscribeThrottlingRatePerConsumer": self.count,
            "ratePeriodInSecond": self.period.as_secs(),
        }))
    }
}

/// The types of subscription that consumers may ask for, by their names in Pulsar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscriptionTypes(Vec<String>);

impl SubscriptionTypes {
    /// The names there are.
    pub const NAMES: [&'static str; 4] = ["Exclusive", "Failover", "Shared", "Key_Shared"];

    /// True if subscriptions of this type are allowed.
    #[must_use]
    pub fn allow(&self, name: &str) -> bool {
        self.0.iter().any(|allowed| allowed == name)
    }
}

impl Default for SubscriptionTypes {
    fn default() -> Self {
        Self(Self::NAMES.map(str::to_owned).to_vec())
    }
}

impl PolicyValue for SubscriptionTypes {
    type Json = Vec<String>;

    fn from_json(said: Vec<String>, broker: &Self) -> Self {
        // An empty list is how a namespace says nothing.
        if said.is_empty() {
            broker.clone()
        } else {
            Self(said)
        }
    }
}

impl ToJson for SubscriptionTypes {
    fn to_json(&self) -> Option<Value> {
        Some(json!(self.0))
    }
}

/// Type of an automatically created topic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AutoTopicType {
    /// A non-partitioned topic.
    #[default]
    NonPartitioned,
    /// A partitioned topic.
    Partitioned,
}

/// Creation of topics on first use, and their type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AutoTopicCreation {
    /// True if topics are created on first use.
    pub allow: bool,
    /// Type of the created topics.
    pub kind: AutoTopicType,
    /// Partitions of those that are partitioned, at least 1.
    pub partitions: u32,
}

impl PolicyValue for AutoTopicCreation {
    type Json = AutoTopicCreationOverride;

    fn from_json(said: AutoTopicCreationOverride, _: &Self) -> Self {
        let partitioned = said.topic_type.as_deref() == Some("partitioned");
        let partitions = said.default_num_partitions.and_then(|n| u32::try_from(n).ok());
        Self {
            allow: said.allow_auto_topic_creation,
            kind: if partitioned {
                AutoTopicType::Partitioned
            } else {
                AutoTopicType::NonPartitioned
            },
            partitions: partitions.filter(|n| *n > 0).unwrap_or(1),
        }
    }
}

impl ToJson for AutoTopicCreation {
    fn to_json(&self) -> Option<Value> {
        let said = match self.kind {
            AutoTopicType::NonPartitioned => {
                json!({"allowAutoTopicCreation": self.allow, "topicType": "non-partitioned"})
            }
            AutoTopicType::Partitioned => json!({
                "allowAutoTopicCreation": self.allow,
                "topicType": "partitioned",
                "defaultNumPartitions": self.partitions,
            }),
        };
        Some(said)
    }
}

/// Creation of subscriptions on first use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AutoSubscriptionCreation {
    /// True if subscriptions are created on first use.
    pub allow: bool,
}

impl PolicyValue for AutoSubscriptionCreation {
    type Json = AutoSubscriptionCreationOverride;

    fn from_json(said: AutoSubscriptionCreationOverride, _: &Self) -> Self {
        Self {
            allow: said.allow_auto_subscription_creation,
        }
    }
}

impl ToJson for AutoSubscriptionCreation {
    fn to_json(&self) -> Option<Value> {
        Some(json!({"allowAutoSubscriptionCreation": self.allow}))
    }
}

impl ToJson for Durability {
    fn to_json(&self) -> Option<Value> {
        let word = match self {
            Self::Sync => "sync",
            Self::Async => "async",
            Self::Bypass => "bypass",
        };
        Some(json!(word))
    }
}

/// -1 is how REST writes that there is no limit.
fn signed(limit: Option<u64>) -> i64 {
    limit.map_or(-1, |limit| i64::try_from(limit).unwrap_or(i64::MAX))
}

pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
