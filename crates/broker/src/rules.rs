//! What holds for one topic: its own policies, over those of its namespace, over the broker's settings.
//!
//! Each member is decided by itself: a topic that says something about retention and nothing about quotas has its
//! namespace's quotas. Worked out when a topic is loaded and again when a policy changes
//! ([`PolicyEvent`](pharos_catalog::PolicyEvent)), so that nothing on the way of a message parses JSON. A value of a
//! shape that is not understood counts as not set; the admin door lets none in.
//!
//! System topics have retention and durability like others, and no limits, quotas or expiry.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pharos_admin_api::{
    BacklogQuota, DelayedDeliveryPolicies, InactiveTopicPolicies, PublishRate, RetentionPolicies,
    SubscribeRate,
};
use pharos_ledger::Durability;
use pharos_managed_ledger::Retention;
use pharos_types::TopicName;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::options::Options;
use crate::properties::DURABILITY;
use crate::topic::{PublishLimit, SubscribeLimit, SubscriptionType};
use pharos_catalog::{Catalog, Policies, TopicPolicies};
use pharos_dispatch::{DelayOptions, Limits};

/// What happens when a backlog is over its quota.
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
        [Self::Hold, Self::Exception, Self::Evict]
            .into_iter()
            .find(|action| action.as_str() == word)
    }
}

/// The durability that a word stands for.
///
/// # Errors
/// A sentence for whoever set it.
pub fn durability_of(word: &str) -> Result<Durability, String> {
    match word {
        "sync" => Ok(Durability::Sync),
        "async" => Ok(Durability::Async),
        "bypass" => Ok(Durability::Bypass),
        _ => Err(format!("{DURABILITY} is sync, async or bypass, not '{word}'")),
    }
}

/// A limit to a backlog, in bytes or in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quota {
    pub(crate) limit: u64,
    pub(crate) action: QuotaAction,
}

/// Which topics count as not used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InactiveMode {
    /// Those without producers and subscriptions (`delete_when_no_subscriptions`).
    #[default]
    NoSubscriptions,
    /// Those without producers and consumers whose subscriptions have no backlog (`delete_when_subscriptions_caught_up`).
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

    fn from_word(word: &str) -> Self {
        if word == Self::CaughtUp.as_str() {
            Self::CaughtUp
        } else {
            Self::NoSubscriptions
        }
    }
}

/// When a topic that nobody uses is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InactiveRule {
    /// Which topics.
    pub mode: InactiveMode,
    /// How long nobody must have used it.
    pub after: Duration,
}

impl Default for InactiveRule {
    fn default() -> Self {
        Self {
            mode: InactiveMode::NoSubscriptions,
            after: Duration::from_secs(60),
        }
    }
}

/// How many may be attached to a topic. 0 is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seats {
    pub(crate) producers: u32,
    pub(crate) producers_of_address: u32,
    pub(crate) consumers: u32,
    pub(crate) consumers_of_address: u32,
    pub(crate) consumers_of_subscription: u32,
    pub(crate) subscriptions: u32,
}

/// All that holds for one topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rules {
    pub(crate) retention: Retention,
    pub(crate) durability: Durability,
    /// Milliseconds after which a message expires.
    pub(crate) ttl_ms: Option<u64>,
    /// In bytes.
    pub(crate) quota_size: Option<Quota>,
    /// In milliseconds.
    pub(crate) quota_age: Option<Quota>,
    pub(crate) seats: Seats,
    pub(crate) unacked: Limits,
    /// `None`: messages are delivered at once, whatever time they name.
    pub(crate) delay: Option<DelayOptions>,
    /// The longest delay that a producer may ask for, in milliseconds.
    pub(crate) delay_ms_max: Option<u64>,
    /// The largest entry, headers counted.
    pub(crate) message_bytes_max: Option<u64>,
    /// Whether only encrypted messages are taken.
    pub(crate) encryption: bool,
    pub(crate) publish_limit: Option<PublishLimit>,
    pub(crate) subscribe_limit: Option<SubscribeLimit>,
    pub(crate) kinds: Vec<SubscriptionType>,
    pub(crate) inactive: Option<InactiveRule>,
    /// Milliseconds that a durable subscription lives without consumers.
    pub(crate) subscription_ms: Option<u64>,
}

impl Rules {
    /// What holds for `topic` now.
    pub(crate) fn of(catalog: &Catalog, options: &Options, topic: &TopicName) -> Self {
        let layers = Layers {
            own: catalog.topic_policies(topic),
            namespace: catalog.policies(topic.namespace()),
            cluster: catalog.options().cluster_name.clone(),
        };
        let mut rules = layers.rules(options);
        rules.durability = durability(catalog, options, topic, layers.namespace.as_deref());
        if topic.is_system() || catalog.options().heartbeat_namespace.as_ref() == Some(topic.namespace()) {
            rules.exempt();
        }
        rules
    }

    fn exempt(&mut self) {
        (self.ttl_ms, self.quota_size, self.quota_age) = (None, None, None);
        (self.inactive, self.subscription_ms) = (None, None);
        self.seats = Seats::default();
        self.message_bytes_max = None;
        (self.publish_limit, self.subscribe_limit) = (None, None);
        self.encryption = false;
    }
}

/// Where policies of a topic come from, the broker's settings apart.
struct Layers {
    own: Arc<TopicPolicies>,
    namespace: Option<Arc<Policies>>,
    cluster: String,
}

impl Layers {
    /// One policy: `name` among those of topics, `member` among those of namespaces; empty where there is none.
    fn get<T: DeserializeOwned>(&self, name: &str, member: &str) -> Option<T> {
        let own = || self.own.get_as(name).filter(|_| !name.is_empty());
        own().or_else(|| self.namespace.as_ref()?.get_as(member))
    }

    fn rules(&self, options: &Options) -> Rules {
        let delayed: Option<DelayedDeliveryPolicies> =
            self.get("delayedDelivery", "delayed_delivery_policies");
        Rules {
            retention: self.retention(options),
            durability: options.managed_ledger.durability,
            ttl_ms: self
                .get("messageTTL", "message_ttl_in_seconds")
                .map_or_else(
                    || options.message_ttl.map(millis),
                    |seconds: u64| Some(seconds * 1000),
                )
                .filter(|ttl| *ttl > 0),
            quota_size: self.quota_size(options),
            quota_age: self.quota_age(options),
            seats: self.seats(options),
            unacked: Limits {
                unacked_per_consumer_max: self
                    .get(
                        "maxUnackedMessagesOnConsumer",
                        "max_unacked_messages_per_consumer",
                    )
                    .unwrap_or(options.max_unacked_per_consumer),
                unacked_per_subscription_max: self
                    .get(
                        "maxUnackedMessagesOnSubscription",
                        "max_unacked_messages_per_subscription",
                    )
                    .unwrap_or(options.max_unacked_per_subscription),
            },
            delay: delay_options(options, delayed),
            delay_ms_max: delayed
                .and_then(|policy| u64::try_from(policy.max_delivery_delay_in_millis).ok())
                .filter(|delay| *delay > 0),
            message_bytes_max: self.get("maxMessageSize", "").filter(|bytes| *bytes > 0),
            encryption: self.get("", "encryption_required").unwrap_or(false),
            publish_limit: self.publish_limit(options),
            subscribe_limit: self.subscribe_limit(),
            kinds: self.kinds(options),
            inactive: self.inactive(options),
            subscription_ms: self
                .get(
                    "subscriptionExpirationTime",
                    "subscription_expiration_time_minutes",
                )
                .map_or_else(
                    || options.subscription_expiration.map(millis),
                    |minutes: u64| Some(minutes * 60_000),
                )
                .filter(|time| *time > 0),
        }
    }

    fn retention(&self, options: &Options) -> Retention {
        let Some(policy) = self.get::<RetentionPolicies>("retention", "retention_policies") else {
            return Retention {
                time_ms: options.retention_time.map(millis),
                bytes: options.retention_bytes,
            };
        };
        Retention {
            time_ms: u64::try_from(policy.retention_time_in_minutes)
                .ok()
                .map(|minutes| minutes * 60_000),
            bytes: u64::try_from(policy.retention_size_in_mb)
                .ok()
                .map(|mebibytes| mebibytes.saturating_mul(1 << 20)),
        }
    }

    /// A quota of one type; each type is decided by itself.
    fn quota(&self, kind: &str) -> Option<BacklogQuota> {
        let of = |quotas: Option<Map<String, Value>>| serde_json::from_value(quotas?.get(kind)?.clone()).ok();
        of(self.own.get_as("backlogQuota"))
            .or_else(|| of(self.namespace.as_ref()?.get_as("backlog_quota_map")))
    }

    fn quota_size(&self, options: &Options) -> Option<Quota> {
        match self.quota("destination_storage") {
            Some(quota) => Some(Quota {
                limit: u64::try_from(quota.limit_size).ok()?,
                action: QuotaAction::from_word(&quota.policy)?,
            }),
            None => Some(Quota {
                limit: options.backlog_quota_bytes?,
                action: options.backlog_quota_action,
            }),
        }
    }

    fn quota_age(&self, options: &Options) -> Option<Quota> {
        let quota = match self.quota("message_age") {
            Some(quota) => Quota {
                limit: u64::try_from(quota.limit_time).ok()? * 1000,
                action: QuotaAction::from_word(&quota.policy)?,
            },
            None => Quota {
                limit: options.backlog_quota_age.map(millis)?,
                action: options.backlog_quota_action,
            },
        };
        (quota.limit > 0).then_some(quota)
    }

    fn seats(&self, options: &Options) -> Seats {
        Seats {
            producers: self
                .get("maxProducers", "max_producers_per_topic")
                .unwrap_or(options.max_producers_per_topic),
            producers_of_address: options.max_same_address_producers_per_topic,
            consumers: self
                .get("maxConsumers", "max_consumers_per_topic")
                .unwrap_or(options.max_consumers_per_topic),
            consumers_of_address: options.max_same_address_consumers_per_topic,
            consumers_of_subscription: self
                .get("maxConsumersPerSubscription", "max_consumers_per_subscription")
                .unwrap_or(options.max_consumers_per_subscription),
            subscriptions: self
                .get("maxSubscriptionsPerTopic", "max_subscriptions_per_topic")
                .unwrap_or(options.max_subscriptions_per_topic),
        }
    }

    /// A policy that namespaces have per cluster.
    fn of_cluster<T: DeserializeOwned>(&self, name: &str, member: &str) -> Option<T> {
        let of_namespace = || {
            let clusters = self.namespace.as_ref()?.get(member)?;
            T::deserialize(clusters.get(&self.cluster)?).ok()
        };
        self.own.get_as(name).or_else(of_namespace)
    }

    fn publish_limit(&self, options: &Options) -> Option<PublishLimit> {
        let limit = match self.of_cluster::<PublishRate>("publishRate", "publishMaxMessageRate") {
            Some(rate) => PublishLimit {
                messages: positive(rate.publish_throttling_rate_in_msg.into()),
                bytes: positive(rate.publish_throttling_rate_in_byte),
            },
            None => PublishLimit {
                messages: positive(options.publish_rate_messages.into()),
                bytes: (options.publish_rate_bytes > 0).then_some(options.publish_rate_bytes),
            },
        };
        (limit.messages.is_some() || limit.bytes.is_some()).then_some(limit)
    }

    fn subscribe_limit(&self) -> Option<SubscribeLimit> {
        let rate: SubscribeRate = self.of_cluster("subscribeRate", "clusterSubscribeRate")?;
        Some(SubscribeLimit {
            count: u32::try_from(rate.subscribe_throttling_rate_per_consumer)
                .ok()
                .filter(|count| *count > 0)?,
            period_ms: positive(rate.rate_period_in_second.into()).unwrap_or(30) * 1000,
        })
    }

    fn kinds(&self, options: &Options) -> Vec<SubscriptionType> {
        let names: Option<Vec<String>> = self.get("subscriptionTypesEnabled", "subscription_types_enabled");
        // An empty list is how a namespace says nothing.
        let Some(names) = names.filter(|names| !names.is_empty()) else {
            return options.subscription_types.clone();
        };
        let all = SubscriptionType::ALL.into_iter();
        all.filter(|kind| names.iter().any(|name| name == kind.as_str()))
            .collect()
    }

    fn inactive(&self, options: &Options) -> Option<InactiveRule> {
        let policy: Option<InactiveTopicPolicies> =
            self.get("inactiveTopicPolicies", "inactive_topic_policies");
        let Some(policy) = policy else {
            return options.inactive_topics;
        };
        policy.delete_while_inactive.then(|| InactiveRule {
            mode: InactiveMode::from_word(&policy.inactive_topic_delete_mode),
            after: Duration::from_secs(u64::try_from(policy.max_inactive_duration_seconds).unwrap_or(0)),
        })
    }
}

/// A limit of which 0 and below stand for none.
fn positive(number: i64) -> Option<u64> {
    u64::try_from(number).ok().filter(|number| *number > 0)
}

/// The word of the topic, of its partitioned topic, of its namespace, or the broker's.
fn durability(
    catalog: &Catalog,
    options: &Options,
    topic: &TopicName,
    namespace: Option<&Policies>,
) -> Durability {
    let of_topic = |name: &TopicName| catalog.topic_properties(name).ok()?.remove(DURABILITY);
    let of_base = || of_topic(&topic.base()).filter(|_| topic.partition().is_some());
    let of_namespace = || {
        let properties: BTreeMap<String, String> = namespace?.get_as("properties")?;
        properties.get(DURABILITY).cloned()
    };
    let word = of_topic(topic).or_else(of_base).or_else(of_namespace);
    word.and_then(|word| durability_of(&word).ok())
        .unwrap_or(options.managed_ledger.durability)
}

/// How messages are delayed, if they are.
fn delay_options(options: &Options, policy: Option<DelayedDeliveryPolicies>) -> Option<DelayOptions> {
    let is_on = policy.map_or(options.delayed_delivery, |policy| policy.active);
    let tick = policy.map(|policy| policy.tick_time).filter(|tick| *tick > 0);
    is_on.then(|| DelayOptions {
        tick_ms: tick.unwrap_or_else(|| i64::try_from(millis(options.delayed_delivery_tick)).unwrap_or(1000)),
        strict: options.delayed_delivery_strict,
        ..DelayOptions::default()
    })
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// What the broker's settings say about a policy, in the policy's own shape: the answer to "what holds" where neither a
/// topic nor its namespace says. `None` where the settings have no word on it.
pub(crate) fn default_of(options: &Options, policy: &str) -> Option<Value> {
    let signed = |limit: Option<u64>| limit.map_or(-1, |limit| i64::try_from(limit).unwrap_or(i64::MAX));
    let value = match policy {
        "retention" => {
            let minutes = options.retention_time.map(|time| time.as_secs() / 60);
            let mebibytes = options.retention_bytes.map(|bytes| bytes >> 20);
            json!({"retentionTimeInMinutes": signed(minutes), "retentionSizeInMB": signed(mebibytes)})
        }
        crate::offload::OF_TOPIC => crate::offload::default_of(&options.offload.policy)?,
        "messageTTL" => json!(options.message_ttl.map_or(0, |time| time.as_secs())),
        "backlogQuota" => {
            let (bytes, age) = (options.backlog_quota_bytes, options.backlog_quota_age);
            let quota = |size: Option<u64>, time: Option<u64>| {
                json!({
                    "limit": signed(size), "limitSize": signed(size), "limitTime": signed(time),
                    "policy": options.backlog_quota_action.as_str(),
                })
            };
            json!({
                "destination_storage": quota(bytes, None),
                "message_age": quota(None, age.map(|age| age.as_secs())),
            })
        }
        "maxProducers" => json!(options.max_producers_per_topic),
        "maxConsumers" => json!(options.max_consumers_per_topic),
        "maxConsumersPerSubscription" => json!(options.max_consumers_per_subscription),
        "maxSubscriptionsPerTopic" => json!(options.max_subscriptions_per_topic),
        "maxUnackedMessagesOnConsumer" => json!(options.max_unacked_per_consumer),
        "maxUnackedMessagesOnSubscription" => json!(options.max_unacked_per_subscription),
        "delayedDelivery" => json!({
            "active": options.delayed_delivery,
            "tickTime": millis(options.delayed_delivery_tick),
            "maxDeliveryDelayInMillis": 0,
        }),
        "publishRate" => json!({
            "publishThrottlingRateInMsg": options.publish_rate_messages,
            "publishThrottlingRateInByte": options.publish_rate_bytes,
        }),
        "persistence" => {
            // One copy of each message, positions stored once an interval.
            let rate = 1000.0 / millis(options.cursor_flush_interval).max(1) as f64;
            json!({
                "bookkeeperEnsemble": 1, "bookkeeperWriteQuorum": 1, "bookkeeperAckQuorum": 1,
                "managedLedgerMaxMarkDeleteRate": rate,
            })
        }
        "inactiveTopicPolicies" => {
            let rule = options.inactive_topics.unwrap_or_default();
            json!({
                "inactiveTopicDeleteMode": rule.mode.as_str(),
                "maxInactiveDurationSeconds": rule.after.as_secs(),
                "deleteWhileInactive": options.inactive_topics.is_some(),
            })
        }
        "subscriptionExpirationTime" => {
            json!(
                options
                    .subscription_expiration
                    .map_or(0, |time| time.as_secs() / 60)
            )
        }
        "subscriptionTypesEnabled" => {
            let kinds = options.subscription_types.iter();
            let named = kinds.filter(|kind| **kind != SubscriptionType::Broadcast);
            json!(named.map(|kind| kind.as_str()).collect::<Vec<_>>())
        }
        _ => return None,
    };
    Some(value)
}

#[cfg(test)]
mod tests;
