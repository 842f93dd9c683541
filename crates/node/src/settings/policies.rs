//! The broker's level of the policies, and how often it is looked whether there is something to do.

use std::time::Duration;

use pharos_catalog::policy::{BrokerPolicies, InactiveTopics};

/// What topics and namespaces may say otherwise, and the chores that come of it.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicySettings {
    /// What holds where neither a topic nor its namespace says anything. How long a topic must have been unused is 0 where that
    /// is as long as the interval; see [`in_force`](Self::in_force).
    pub broker: BrokerPolicies,
    /// How often expired messages are looked for.
    pub message_expiry_check_interval: Duration,
    /// How often backlogs are measured.
    pub backlog_quota_check_interval: Duration,
    /// How often it is looked whether topics are to be compacted.
    pub compaction_check_interval: Duration,
    /// Partitions of a partitioned topic; 0 any.
    pub max_partitions_per_topic: u32,
    /// Entries between two snapshots of deduplication.
    pub deduplication_snapshot_entries: u32,
    /// Names that deduplication knows of a topic.
    pub deduplication_max_producers: u32,
    /// How long a name without a producer is known; 0 is for ever.
    pub deduplication_producer_inactivity_timeout: Duration,
    /// How often unused topics are looked for.
    pub delete_inactive_topics_check_interval: Duration,
    /// Whether a partitioned topic goes with its last partition.
    pub delete_inactive_partitioned_topics: bool,
    /// How often subscriptions without consumers are looked for.
    pub subscription_expiry_check_interval: Duration,
}

impl Default for PolicySettings {
    fn default() -> Self {
        let defaults = BrokerPolicies::default();
        Self {
            broker: BrokerPolicies {
                inactive_topics: InactiveTopics {
                    after: Duration::ZERO,
                    ..defaults.inactive_topics
                },
                ..defaults
            },
            message_expiry_check_interval: Duration::from_secs(300),
            backlog_quota_check_interval: Duration::from_secs(60),
            compaction_check_interval: Duration::from_secs(60),
            max_partitions_per_topic: 0,
            deduplication_snapshot_entries: 1_000,
            deduplication_max_producers: 10_000,
            deduplication_producer_inactivity_timeout: Duration::from_secs(360 * 60),
            delete_inactive_topics_check_interval: Duration::from_secs(60),
            delete_inactive_partitioned_topics: false,
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
            ("compaction_check_interval", self.compaction_check_interval),
            (
                "subscription_expiry_check_interval",
                self.subscription_expiry_check_interval,
            ),
        ];
        let zero = intervals.into_iter().filter(|(_, interval)| interval.is_zero());
        zero.map(|(name, _)| format!("policies.{name} must not be 0"))
            .collect()
    }

    /// The broker's level with what follows from other settings.
    #[must_use]
    pub fn in_force(&self) -> BrokerPolicies {
        let mut policies = self.broker.clone();
        let after = &mut policies.inactive_topics.after;
        if after.is_zero() {
            *after = self.delete_inactive_topics_check_interval;
        }
        policies
    }
}
