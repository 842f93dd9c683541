//! The broker's settings. Validated once, when the node composes them. What policies say otherwise is among the catalog's:
//! [`BrokerPolicies`](pharos_catalog::policy::BrokerPolicies).

use std::time::Duration;

use pharos_auth::Access;
use pharos_dispatch::KeySharedOptions;

use pharos_accounts::tenants::TenantLimits;

/// Defaults of new topics that were not created beforehand, limits, and times.
#[derive(Clone, Debug)]
pub struct Options {
    /// The cluster's name; also the first part of generated producer names.
    pub cluster_name: String,
    /// Authorization.
    pub access: Access,
    /// Data shards.
    pub shards: u16,
    /// The largest message a client may send, in bytes, headers not counted.
    pub max_message_size: u32,
    /// The largest sum of key and value bytes in a consumer's metadata.
    pub max_consumer_metadata_bytes: usize,
    /// Delay before the new active consumer of a Failover subscription, also the first, is served.
    pub failover_delay: Duration,
    /// Key_Shared without sticky ranges: points on a ring rather than one range for each consumer.
    pub key_shared_consistent_hashing: bool,
    /// Points of one consumer on that ring, at least 1.
    pub key_shared_ring_points: u32,
    /// Time within which an exclusive holder must answer a liveness check.
    pub liveness_timeout: Duration,
    /// Retention of an absent broadcast consumer's cursor; `None` for ever.
    pub absent_retention: Option<Duration>,
    /// Maximum backlog held for an absent broadcast consumer, in bytes; `None` for any.
    pub absent_backlog_bytes: Option<u64>,
    /// Interval between writes of cursor positions.
    pub cursor_flush_interval: Duration,
    /// Interval between checks of closed ledgers and absent consumers when nothing else causes one.
    pub retention_check_interval: Duration,
    /// Time without use after which a topic is unloaded; `None` for never.
    pub unload_idle_after: Option<Duration>,
    /// If true, consumers skip entries that are damaged or missing, instead of waiting in front of them.
    pub skip_lost_entries: bool,
    /// Interval between checks for expired messages.
    pub message_expiry_interval: Duration,
    /// Interval between backlog measurements, besides one when a producer is created.
    pub backlog_quota_interval: Duration,
    /// Interval between checks for unused topics.
    pub inactive_topic_interval: Duration,
    /// If true, a partitioned topic is deleted with its last partition, if that was deleted for not being used.
    pub delete_inactive_partitioned: bool,
    /// Interval between checks for such subscriptions.
    pub subscription_expiration_interval: Duration,
    /// Bytes that are held of entries read back for stream consumers that are behind, and by reads under way for Shared and
    /// Key_Shared subscriptions, over all topics; each shard has an equal part of it. Every read brings one entry, whatever
    /// this is.
    pub catch_up_read_cache_bytes: usize,
    /// Bytes of the newest entries that shards have at hand for stream consumers at the tail, over all topics; each shard has an equal
    /// part of it, and at least 1 MiB.
    pub newest_cache_bytes: usize,
    /// Bytes that Shared and Key_Shared subscriptions, and those of non-persistent topics, may have handed out to consumers whose
    /// sockets have not taken them, over all topics.
    pub unwritten_bytes_max: u64,
    /// Interval between checks for topics to compact.
    pub compaction_check_interval: Duration,
    /// Options of topic compaction.
    pub compaction: pharos_compaction::Options,
    /// Limits of one tenant.
    pub tenants: TenantLimits,
    /// Number of transaction coordinators, loaded or not; 0 disables transactions.
    pub transaction_coordinators: u32,
    /// Lower limits of tiered storage policies. The offloader itself belongs to the managed ledgers.
    pub offload: OffloadLimits,
    /// Limits and snapshot interval of deduplication.
    pub deduplication: pharos_dedup::SequenceLimits,
    /// Limits of replication to other clusters, and its start position.
    pub replication: pharos_replication::ReplicationLimits,
    /// Options of managed ledgers, such as the rollover limits.
    pub managed_ledger: pharos_managed_ledger::Options,
}

/// Sizes of the offloader. A policy's limit must not be lower.
#[derive(Clone, Copy, Debug, Default)]
pub struct OffloadLimits {
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Bytes of a fetch.
    pub read_bytes: u64,
}

impl Options {
    /// Key distribution of Key_Shared subscriptions.
    pub fn key_shared(&self) -> KeySharedOptions {
        KeySharedOptions {
            consistent_hashing: self.key_shared_consistent_hashing,
            ring_points: self.key_shared_ring_points,
            ..KeySharedOptions::default()
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            cluster_name: "standalone".to_owned(),
            access: Access::everyone(),
            shards: 1,
            max_message_size: 5 << 20,
            max_consumer_metadata_bytes: 1024,
            failover_delay: Duration::from_secs(1),
            key_shared_consistent_hashing: true,
            key_shared_ring_points: 100,
            liveness_timeout: Duration::from_secs(5),
            absent_retention: Some(Duration::from_secs(7 * 24 * 3600)),
            absent_backlog_bytes: Some(1 << 30),
            cursor_flush_interval: Duration::from_secs(1),
            retention_check_interval: Duration::from_secs(120),
            unload_idle_after: Some(Duration::from_secs(600)),
            skip_lost_entries: false,
            message_expiry_interval: Duration::from_secs(300),
            backlog_quota_interval: Duration::from_secs(60),
            inactive_topic_interval: Duration::from_secs(60),
            compaction_check_interval: Duration::from_secs(60),
            compaction: pharos_compaction::Options::default(),
            delete_inactive_partitioned: false,
            subscription_expiration_interval: Duration::from_secs(300),
            catch_up_read_cache_bytes: 128 << 20,
            newest_cache_bytes: 128 << 20,
            unwritten_bytes_max: 128 << 20,
            tenants: TenantLimits::default(),
            transaction_coordinators: 0,
            offload: OffloadLimits::default(),
            deduplication: pharos_dedup::SequenceLimits::default(),
            replication: pharos_replication::ReplicationLimits::default(),
            managed_ledger: pharos_managed_ledger::Options::default(),
        }
    }
}
