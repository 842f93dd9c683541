//! Settings that hold for every topic of which neither its own policies nor its namespace's say otherwise.

use std::time::Duration;

use super::{ByteSize, InactiveMode, Limit, QuotaPolicy};

/// What topics and namespaces may say otherwise.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicySettings {
    /// Age after which a message expires; 0 never.
    pub message_ttl: Duration,
    /// How often expired messages are looked for.
    pub message_expiry_check_interval: Duration,
    /// Bytes of backlog.
    pub backlog_quota_size: Limit<ByteSize>,
    /// Age of a backlog.
    pub backlog_quota_time: Limit<Duration>,
    /// What happens beyond.
    pub backlog_quota_policy: QuotaPolicy,
    /// How often backlogs are measured.
    pub backlog_quota_check_interval: Duration,
    /// Producers of a topic; 0 any.
    pub max_producers_per_topic: u32,
    /// Producers of a topic from one address; 0 any.
    pub max_same_address_producers_per_topic: u32,
    /// Consumers of a topic; 0 any.
    pub max_consumers_per_topic: u32,
    /// Consumers of a topic from one address; 0 any.
    pub max_same_address_consumers_per_topic: u32,
    /// Consumers of a subscription; 0 any.
    pub max_consumers_per_subscription: u32,
    /// Durable subscriptions of a topic; 0 any.
    pub max_subscriptions_per_topic: u32,
    /// Topics of a namespace; 0 any.
    pub max_topics_per_namespace: u32,
    /// Partitions of a partitioned topic; 0 any.
    pub max_partitions_per_topic: u32,
    /// Messages a second published to a topic; 0 any.
    pub max_publish_rate_messages: u32,
    /// Bytes a second published to a topic; 0 any.
    pub max_publish_rate_bytes: ByteSize,
    /// Whether messages may be delayed.
    pub delayed_delivery: bool,
    /// Whether topics that nobody uses are deleted.
    pub delete_inactive_topics: bool,
    /// How often they are looked for.
    pub delete_inactive_topics_check_interval: Duration,
    /// Which they are.
    pub delete_inactive_topics_mode: InactiveMode,
    /// How long nobody must have used them; 0: as long as the interval.
    pub delete_inactive_topics_after: Duration,
    /// Whether a partitioned topic goes with its last partition.
    pub delete_inactive_partitioned_topics: bool,
    /// How long a durable subscription lives without consumers; 0 for ever.
    pub subscription_expiration_time: Duration,
    /// How often such subscriptions are looked for.
    pub subscription_expiry_check_interval: Duration,
}

impl Default for PolicySettings {
    fn default() -> Self {
        Self {
            message_ttl: Duration::ZERO,
            message_expiry_check_interval: Duration::from_secs(300),
            backlog_quota_size: Limit::Unlimited,
            backlog_quota_time: Limit::Unlimited,
            backlog_quota_policy: QuotaPolicy::Hold,
            backlog_quota_check_interval: Duration::from_secs(60),
            max_producers_per_topic: 0,
            max_same_address_producers_per_topic: 0,
            max_consumers_per_topic: 0,
            max_same_address_consumers_per_topic: 0,
            max_consumers_per_subscription: 0,
            max_subscriptions_per_topic: 0,
            max_topics_per_namespace: 0,
            max_partitions_per_topic: 0,
            max_publish_rate_messages: 0,
            max_publish_rate_bytes: ByteSize(0),
            delayed_delivery: true,
            delete_inactive_topics: true,
            delete_inactive_topics_check_interval: Duration::from_secs(60),
            delete_inactive_topics_mode: InactiveMode::NoSubscriptions,
            delete_inactive_topics_after: Duration::ZERO,
            delete_inactive_partitioned_topics: false,
            subscription_expiration_time: Duration::ZERO,
            subscription_expiry_check_interval: Duration::from_secs(300),
        }
    }
}

impl PolicySettings {
    /// What one value alone cannot tell; a sentence per fault.
    pub(super) fn faults(&self) -> Vec<String> {
        let intervals = [
            (
                "message_expiry_check_interval",
                self.message_expiry_check_interval,
            ),
            ("backlog_quota_check_interval", self.backlog_quota_check_interval),
            (
                "delete_inactive_topics_check_interval",
                self.delete_inactive_topics_check_interval,
            ),
            (
                "subscription_expiry_check_interval",
                self.subscription_expiry_check_interval,
            ),
        ];
        let zero = intervals.into_iter().filter(|(_, interval)| interval.is_zero());
        zero.map(|(name, _)| format!("policies.{name} must not be 0"))
            .collect()
    }

    /// How long nobody must have used a topic before it is deleted; `None` when none is deleted.
    #[must_use]
    pub fn inactive_after(&self) -> Option<Duration> {
        let after = match self.delete_inactive_topics_after {
            Duration::ZERO => self.delete_inactive_topics_check_interval,
            after => after,
        };
        self.delete_inactive_topics.then_some(after)
    }
}
