//! The broker's settings. Validated once, when the node composes them.

use std::time::Duration;

use pharos_auth::Access;

use crate::offload::OffloadOptions;
use crate::rules::{InactiveRule, QuotaAction};
use crate::topic::SubscriptionType;

/// What new topics become when nobody created them beforehand, limits, and times.
#[derive(Clone, Debug)]
pub struct Options {
    /// The cluster's name; also the first part of generated producer names.
    pub cluster_name: String,
    /// What says who may do what.
    pub access: Access,
    /// Data shards.
    pub shards: u16,
    /// The largest message a client may send, in bytes, headers not counted.
    pub max_message_size: u32,
    /// Unacknowledged messages a consumer of a Shared or Key_Shared subscription may hold; 0 for no limit.
    pub max_unacked_per_consumer: u32,
    /// The same for all consumers of a subscription together.
    pub max_unacked_per_subscription: u32,
    /// The largest sum of key and value bytes in a consumer's metadata.
    pub max_consumer_metadata_bytes: usize,
    /// Granularity of delayed delivery.
    pub delayed_delivery_tick: Duration,
    /// Whether delayed messages always wait for their time, instead of coming up to one tick early when others are dealt.
    pub delayed_delivery_strict: bool,
    /// How long a Failover subscription waits before its new active consumer, also the first, is served.
    pub failover_delay: Duration,
    /// How long an exclusive holder may stay silent when it is asked whether it lives.
    pub liveness_timeout: Duration,
    /// How long an absent broadcast consumer keeps its place; `None` for ever.
    pub absent_retention: Option<Duration>,
    /// How many bytes of backlog an absent broadcast consumer may hold; `None` for any.
    pub absent_backlog_bytes: Option<u64>,
    /// How often cursor positions are persisted.
    pub cursor_flush_interval: Duration,
    /// How long acknowledged data is kept when a namespace does not say; `None` for ever.
    pub retention_time: Option<Duration>,
    /// How many bytes of acknowledged data are kept when a namespace does not say; `None` for all.
    pub retention_bytes: Option<u64>,
    /// How often closed ledgers and absent consumers are looked at when nothing else causes it.
    pub retention_check_interval: Duration,
    /// How long nobody uses a topic before it is unloaded; `None` for never.
    pub unload_idle_after: Option<Duration>,
    /// Age after which a message that nobody acknowledged expires, when neither topic nor namespace says; `None` never.
    pub message_ttl: Option<Duration>,
    /// Whether consumers are moved past entries that are damaged or missing, instead of waiting in front of them.
    pub skip_lost_entries: bool,
    /// How often expired messages are looked for.
    pub message_expiry_interval: Duration,
    /// Bytes of backlog that a topic may have; `None` for any. 0 means that none is allowed.
    pub backlog_quota_bytes: Option<u64>,
    /// Age that the oldest message of a backlog may reach; `None` for any.
    pub backlog_quota_age: Option<Duration>,
    /// What happens when a backlog is larger or older than allowed.
    pub backlog_quota_action: QuotaAction,
    /// How often backlogs are measured, besides when a producer comes.
    pub backlog_quota_interval: Duration,
    /// Producers that a topic may have; 0 for any.
    pub max_producers_per_topic: u32,
    /// Producers that a topic may have from one address; 0 for any.
    pub max_same_address_producers_per_topic: u32,
    /// Consumers that a topic may have; 0 for any.
    pub max_consumers_per_topic: u32,
    /// Consumers that a topic may have from one address; 0 for any.
    pub max_same_address_consumers_per_topic: u32,
    /// Consumers that a subscription may have; 0 for any.
    pub max_consumers_per_subscription: u32,
    /// Durable subscriptions that a topic may have; 0 for any.
    pub max_subscriptions_per_topic: u32,
    /// Messages a second that may be published to a topic; 0 for any.
    pub publish_rate_messages: u32,
    /// Bytes a second that may be published to a topic; 0 for any.
    pub publish_rate_bytes: u64,
    /// Kinds of subscription that are served.
    pub subscription_types: Vec<SubscriptionType>,
    /// Whether messages may be delayed.
    pub delayed_delivery: bool,
    /// When a topic that nobody uses is deleted; `None` never.
    pub inactive_topics: Option<InactiveRule>,
    /// How often topics that nobody uses are looked for.
    pub inactive_topic_interval: Duration,
    /// Whether a partitioned topic goes with the last of its partitions when that was deleted for not being used.
    pub delete_inactive_partitioned: bool,
    /// How long a durable subscription without consumers lives; `None` for ever.
    pub subscription_expiration: Option<Duration>,
    /// How often such subscriptions are looked for.
    pub subscription_expiration_interval: Duration,
    /// Bytes that are held of entries read back for listeners that are behind, and by reads under way for Shared and
    /// Key_Shared subscriptions, over all topics; each shard has an equal part of it. Every read brings one entry, whatever
    /// this is.
    pub backlog_cache_bytes: usize,
    /// Bytes of the newest entries that shards have at hand for listeners at the tail, over all topics; each shard has an equal
    /// part of it, and at least 1 MiB.
    pub newest_cache_bytes: usize,
    /// Bytes that Shared and Key_Shared subscriptions, and those of non-persistent topics, may have handed out to consumers whose
    /// sockets have not taken them, over all topics.
    pub unwritten_bytes_max: u64,
    /// When ledgers are offloaded and where to. The offloader itself is the managed ledgers'.
    pub offload: OffloadOptions,
    /// When a topic's ledger is full.
    pub managed_ledger: pharos_managed_ledger::Options,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            cluster_name: "standalone".to_owned(),
            access: Access::everyone(),
            shards: 1,
            max_message_size: 5 << 20,
            max_unacked_per_consumer: 50_000,
            max_unacked_per_subscription: 200_000,
            max_consumer_metadata_bytes: 1024,
            delayed_delivery_tick: Duration::from_secs(1),
            delayed_delivery_strict: false,
            failover_delay: Duration::from_secs(1),
            liveness_timeout: Duration::from_secs(5),
            absent_retention: Some(Duration::from_secs(7 * 24 * 3600)),
            absent_backlog_bytes: Some(1 << 30),
            cursor_flush_interval: Duration::from_secs(1),
            retention_time: Some(Duration::ZERO),
            retention_bytes: Some(0),
            retention_check_interval: Duration::from_secs(120),
            unload_idle_after: Some(Duration::from_secs(600)),
            message_ttl: None,
            skip_lost_entries: false,
            message_expiry_interval: Duration::from_secs(300),
            backlog_quota_bytes: None,
            backlog_quota_age: None,
            backlog_quota_action: QuotaAction::Hold,
            backlog_quota_interval: Duration::from_secs(60),
            max_producers_per_topic: 0,
            max_same_address_producers_per_topic: 0,
            max_consumers_per_topic: 0,
            max_same_address_consumers_per_topic: 0,
            max_consumers_per_subscription: 0,
            max_subscriptions_per_topic: 0,
            publish_rate_messages: 0,
            publish_rate_bytes: 0,
            subscription_types: SubscriptionType::ALL.to_vec(),
            delayed_delivery: true,
            inactive_topics: Some(InactiveRule::default()),
            inactive_topic_interval: Duration::from_secs(60),
            delete_inactive_partitioned: false,
            subscription_expiration: None,
            subscription_expiration_interval: Duration::from_secs(300),
            backlog_cache_bytes: 128 << 20,
            newest_cache_bytes: 128 << 20,
            unwritten_bytes_max: 128 << 20,
            offload: OffloadOptions::default(),
            managed_ledger: pharos_managed_ledger::Options::default(),
        }
    }
}
