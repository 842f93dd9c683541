//! What `…/stats` and `…/partitioned-stats` answer.
//!
//! Rates are per second over the last stats period, counters are since the topic was loaded, times are milliseconds
//! since 1970, sizes are bytes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{BroadcastSummary, PartitionedTopicMetadata};

/// The state of one topic.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct TopicStats {
    /// Messages published a second.
    pub msg_rate_in: f64,
    /// Bytes published a second.
    pub msg_throughput_in: f64,
    /// Messages sent to consumers a second.
    pub msg_rate_out: f64,
    /// Bytes sent to consumers a second.
    pub msg_throughput_out: f64,
    /// Bytes published.
    pub bytes_in_counter: u64,
    /// Messages published; a batch counts its members.
    pub msg_in_counter: u64,
    /// Bytes published to system topics.
    pub system_topic_bytes_in_counter: u64,
    /// Bytes sent to consumers.
    pub bytes_out_counter: u64,
    /// Messages sent to consumers.
    pub msg_out_counter: u64,
    /// Bytes sent on behalf of the broker itself (replication and the like).
    pub bytes_out_internal_counter: u64,
    /// Mean size of a message published in the last period.
    pub average_msg_size: f64,
    /// Whether a chunked message has been published.
    pub msg_chunk_published: bool,
    /// Bytes of all ledgers.
    pub storage_size: u64,
    /// Bytes from the slowest cursor to the end.
    pub backlog_size: u64,
    /// Backlog quota in bytes; -1 when there is none.
    pub backlog_quota_limit_size: i64,
    /// Backlog quota in seconds; -1 when there is none.
    pub backlog_quota_limit_time: i64,
    /// How often cursors were moved on because a quota was exceeded, by size and by time. Not part of the answer.
    #[serde(skip)]
    pub backlog_quota_evictions: [u64; 2],
    /// Age of the oldest message in a backlog, in seconds; -1 when not known.
    pub oldest_backlog_message_age_seconds: i64,
    /// The subscription that holds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest_backlog_message_subscription_name: Option<String>,
    /// How often a publisher was slowed down by a rate limit.
    pub publish_rate_limited_times: u64,
    /// Publish time of the oldest message in any backlog; 0 when not asked for.
    pub earliest_msg_publish_time_in_backlogs: i64,
    /// Bytes that live in tiered storage.
    pub offloaded_storage_size: u64,
    /// Ledger last offloaded; 0 for none.
    pub last_offload_ledger_id: u64,
    /// When; 0 for never.
    pub last_offload_success_time_stamp: i64,
    /// When offloading last failed; 0 for never.
    pub last_offload_failure_time_stamp: i64,
    /// Transactions open on this topic.
    pub ongoing_txn_count: u64,
    /// Transactions aborted.
    pub aborted_txn_count: u64,
    /// Transactions committed.
    pub committed_txn_count: u64,
    /// Connected producers; empty when left out on request.
    pub publishers: Vec<PublisherStats>,
    /// Producers that wait for exclusive access.
    pub waiting_publishers: u32,
    /// Subscriptions by name.
    pub subscriptions: BTreeMap<String, SubscriptionStats>,
    /// Replicators by remote cluster.
    pub replication: BTreeMap<String, ReplicatorStats>,
    /// `Disabled`, `Enabled`, `Initialized`, `Recovering`, `Removing` or `Failed`.
    pub deduplication_status: String,
    /// Epoch of exclusive producers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topic_epoch: Option<u64>,
    /// Holes in acknowledged ranges over all cursors.
    pub non_contiguous_deleted_messages_ranges: u64,
    /// Their size when stored.
    pub non_contiguous_deleted_messages_ranges_serialized_size: u64,
    /// Memory of the delayed delivery index.
    pub delayed_message_index_size_in_bytes: u64,
    /// Topic compaction.
    pub compaction: CompactionStats,
    /// `host:port` of the broker that has the topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner_broker: Option<String>,
    /// When the topic was created; 0 when not known.
    pub topic_creation_time_stamp: i64,
    /// When the last message was published; 0 for never.
    pub last_publish_time_stamp: i64,
    /// Messages dropped a second; non-persistent topics only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub msg_drop_rate: Option<f64>,
    /// Connected producers, also when `publishers` was left out. Not in the JSON.
    #[serde(skip)]
    pub publisher_count: u64,
}

/// The state of one subscription.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct SubscriptionStats {
    /// Messages sent a second.
    pub msg_rate_out: f64,
    /// Bytes sent a second.
    pub msg_throughput_out: f64,
    /// Bytes sent.
    pub bytes_out_counter: u64,
    /// Messages sent.
    pub msg_out_counter: u64,
    /// Messages sent again a second.
    pub msg_rate_redeliver: f64,
    /// Messages acknowledged a second.
    pub message_ack_rate: f64,
    /// Entries not yet acknowledged. Of a broadcast subscription: of its slowest consumer.
    pub msg_backlog: u64,
    /// Their bytes; -1 when not asked for.
    pub backlog_size: i64,
    /// Publish time of the oldest of them; 0 when not asked for.
    pub earliest_msg_publish_time_in_backlog: i64,
    /// Backlog without entries that wait for their time.
    pub msg_backlog_no_delayed: u64,
    /// Whether dispatch stands still because too much is unacknowledged.
    pub blocked_subscription_on_unacked_msgs: bool,
    /// Entries that wait for their time.
    pub msg_delayed: u64,
    /// Entries that wait to be sent again.
    pub msg_in_replay: u64,
    /// Messages sent and not acknowledged.
    pub unacked_messages: u64,
    /// `Exclusive`, `Shared`, `Failover`, `Key_Shared` or `None`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The active consumer of a failover subscription.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_consumer_name: Option<String>,
    /// Messages expired a second.
    pub msg_rate_expired: f64,
    /// Messages expired since the topic was loaded.
    pub msg_expired: u64,
    /// The same; Pulsar's second name for it.
    pub total_msg_expired: u64,
    /// When messages last expired; 0 for never.
    pub last_expire_timestamp: i64,
    /// When a consumer last gave permits.
    pub last_consumed_flow_timestamp: i64,
    /// When a message was last sent.
    pub last_consumed_timestamp: i64,
    /// When a message was last acknowledged.
    pub last_acked_timestamp: i64,
    /// When the mark-delete position last moved.
    pub last_mark_delete_advanced_timestamp: i64,
    /// Connected consumers; empty when left out on request. Of a broadcast subscription: the slowest few.
    pub consumers: Vec<ConsumerStats>,
    /// Whether the cursor is stored.
    pub is_durable: bool,
    /// Whether its position is replicated to other clusters.
    pub is_replicated: bool,
    /// Key_Shared: order is not kept when consumers come and go.
    pub allow_out_of_order_delivery: bool,
    /// Key_Shared: `AUTO_SPLIT` or `STICKY`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_shared_mode: Option<String>,
    /// Old brokers' view of recently joined consumers; kept for tools, empty.
    pub consumers_after_mark_delete_position: BTreeMap<String, String>,
    /// Key_Shared: hashes on their way from one consumer to another.
    pub draining_hashes_count: u32,
    /// Holes in acknowledged ranges.
    pub non_contiguous_deleted_messages_ranges: u64,
    /// Their size when stored.
    pub non_contiguous_deleted_messages_ranges_serialized_size: u64,
    /// Memory of the delayed delivery index.
    pub delayed_message_index_size_in_bytes: u64,
    /// Properties given at creation or by admin.
    pub subscription_properties: BTreeMap<String, String>,
    /// Messages seen by entry filters.
    pub filter_processed_msg_count: u64,
    /// Of them accepted.
    pub filter_accepted_msg_count: u64,
    /// Of them rejected.
    pub filter_rejected_msg_count: u64,
    /// Of them put off.
    pub filter_rescheduled_msg_count: u64,
    /// Times that the subscription's message rate limit stopped dispatch.
    pub dispatch_throttled_msg_events_by_subscription_limit: u64,
    /// The same by its byte limit.
    pub dispatch_throttled_bytes_events_by_subscription_limit: u64,
    /// The same by the topic's message limit.
    pub dispatch_throttled_msg_events_by_topic_limit: u64,
    /// The same by the topic's byte limit.
    pub dispatch_throttled_bytes_events_by_topic_limit: u64,
    /// The same by the broker's message limit.
    pub dispatch_throttled_msg_events_by_broker_limit: u64,
    /// The same by the broker's byte limit.
    pub dispatch_throttled_bytes_events_by_broker_limit: u64,
    /// Same as `isDurable`; Pulsar has both.
    pub durable: bool,
    /// Same as `isReplicated`.
    pub replicated: bool,
    /// Messages dropped a second; non-persistent topics only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub msg_drop_rate: Option<f64>,
    /// Only for a broadcast subscription: its consumers in numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pharos_broadcast: Option<BroadcastSummary>,
    /// Connected consumers, also when `consumers` was left out. Not in the JSON.
    #[serde(skip)]
    pub consumer_count: u64,
}

impl SubscriptionStats {
    /// What a broadcast subscription says of its consumers; `None` for other kinds.
    #[must_use]
    pub fn broadcast(&self) -> Option<&BroadcastSummary> {
        self.pharos_broadcast.as_ref()
    }

    /// Sets durability under both of its names.
    pub fn set_durable(&mut self, durable: bool) {
        self.is_durable = durable;
        self.durable = durable;
    }

    /// Sets replication under both of its names.
    pub fn set_replicated(&mut self, replicated: bool) {
        self.is_replicated = replicated;
        self.replicated = replicated;
    }
}

/// The state of one consumer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumerStats {
    /// The role it authenticated as.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_id: Option<String>,
    /// Messages sent a second.
    pub msg_rate_out: f64,
    /// Bytes sent a second.
    pub msg_throughput_out: f64,
    /// Bytes sent.
    pub bytes_out_counter: u64,
    /// Messages sent.
    pub msg_out_counter: u64,
    /// Messages sent again a second.
    pub msg_rate_redeliver: f64,
    /// Messages acknowledged a second.
    pub message_ack_rate: f64,
    /// Its name.
    pub consumer_name: String,
    /// Messages it will still take.
    pub available_permits: i64,
    /// Messages sent and not acknowledged.
    pub unacked_messages: u64,
    /// Mean messages of an entry it got.
    pub avg_messages_per_entry: u32,
    /// Whether it gets nothing because too much is unacknowledged.
    pub blocked_consumer_on_unacked_msgs: bool,
    /// Where reading stood when it joined.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_position_when_joining: Option<String>,
    /// The hashes themselves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub draining_hashes: Option<Vec<DrainingHash>>,
    /// `/host:port` of the client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// When it connected, ISO 8601 with offset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connected_since: Option<String>,
    /// What the client says it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_version: Option<String>,
    /// When it last acknowledged.
    pub last_acked_timestamp: i64,
    /// When it was last sent a message.
    pub last_consumed_timestamp: i64,
    /// When it last gave permits.
    pub last_consumed_flow_timestamp: i64,
    /// Key_Shared: its ranges as `[start, end]` pairs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_hash_range_arrays: Option<Vec<[u32; 2]>>,
    /// Key_Shared: its ranges as texts `"[start, end]"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_hash_ranges: Option<Vec<String>>,
    /// Metadata it sent.
    pub metadata: BTreeMap<String, String>,
    /// `lastAckedTimestamp` as a text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_acked_time: Option<String>,
    /// `lastConsumedTimestamp` as a text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_consumed_time: Option<String>,
}

/// The state of one producer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct PublisherStats {
    /// `Shared`, `Exclusive`, `ExclusiveWithFencing` or `WaitForExclusive`.
    pub access_mode: String,
    /// Messages a second.
    pub msg_rate_in: f64,
    /// Bytes a second.
    pub msg_throughput_in: f64,
    /// Mean size of a message.
    pub average_msg_size: f64,
    /// Its number on its connection.
    pub producer_id: u64,
    /// Its name.
    pub producer_name: String,
    /// `/host:port` of the client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// When it connected, ISO 8601 with offset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connected_since: Option<String>,
    /// What the client says it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_version: Option<String>,
    /// Metadata it sent.
    pub metadata: BTreeMap<String, String>,
}

/// The state of replication to one cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ReplicatorStats {
    /// Messages received a second.
    pub msg_rate_in: f64,
    /// Messages received.
    pub msg_in_count: u64,
    /// Bytes received a second.
    pub msg_throughput_in: f64,
    /// Bytes received.
    pub bytes_in_count: u64,
    /// Messages sent a second.
    pub msg_rate_out: f64,
    /// Messages sent.
    pub msg_out_count: u64,
    /// Bytes sent a second.
    pub msg_throughput_out: f64,
    /// Bytes sent.
    pub bytes_out_count: u64,
    /// Messages expired a second.
    pub msg_rate_expired: f64,
    /// Entries not yet replicated.
    pub replication_backlog: u64,
    /// Whether the remote end is reached.
    pub connected: bool,
    /// For how long the oldest message that was sent has no answer, in seconds.
    pub replication_delay_in_seconds: i64,
    /// The producer of that cluster here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inbound_connection: Option<String>,
    /// When it connected, ISO 8601 with offset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inbound_connected_since: Option<String>,
    /// The broker over there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outbound_connection: Option<String>,
    /// When it was connected to, ISO 8601 with offset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outbound_connected_since: Option<String>,
    /// Messages expired.
    pub msg_expired_count: u64,
    /// Why nothing is sent now. Not in Pulsar.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pharos_fault: Option<String>,
}

/// Topic compaction, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactionMeters {
    /// Messages left out, over all runs since the topic was loaded.
    pub removed: u64,
    /// Runs that succeeded.
    pub succeeded: u64,
    /// Runs that failed.
    pub failed: u64,
    /// Bytes a second that the last one read.
    pub read_throughput: u64,
    /// Bytes a second that the last one wrote.
    pub write_throughput: u64,
    /// Entries that are left.
    pub entries: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Topic compaction so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct CompactionStats {
    /// Messages left out by the last run.
    pub last_compaction_removed_event_count: u64,
    /// When a run last succeeded; 0 for never.
    pub last_compaction_succeed_timestamp: i64,
    /// When one last failed; 0 for never.
    pub last_compaction_failed_timestamp: i64,
    /// How long the last one took, in milliseconds.
    pub last_compaction_duration_time_in_mills: i64,
    /// What metrics say beyond that. Not part of the answer.
    #[serde(skip)]
    pub meters: CompactionMeters,
}

/// A key hash on its way from one consumer to another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DrainingHash {
    /// The hash.
    pub hash: u32,
    /// Messages of it not yet acknowledged.
    pub unack_msgs: u32,
    /// How often a message had to wait for it.
    pub blocked_attempts: u32,
}

/// The state of a partitioned topic: the sum over its partitions, and each of them on request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PartitionedTopicStats {
    /// All partitions together.
    #[serde(flatten)]
    pub total: TopicStats,
    /// What is stored about the partitioned topic.
    pub metadata: PartitionedTopicMetadata,
    /// Each partition under its full name; empty unless asked for.
    #[serde(default)]
    pub partitions: BTreeMap<String, TopicStats>,
}

/// What a scan of a subscription's backlog found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct AnalyzeBacklogResult {
    /// Entries scanned.
    pub entries: u64,
    /// Messages in them.
    pub messages: u64,
    /// Markers among them.
    pub marker_messages: u64,
    /// Entries that a filter rejects.
    pub filter_rejected_entries: u64,
    /// Entries that pass.
    pub filter_accepted_entries: u64,
    /// Entries that a filter puts off.
    pub filter_rescheduled_entries: u64,
    /// Messages that a filter rejects.
    pub filter_rejected_messages: u64,
    /// Messages that pass.
    pub filter_accepted_messages: u64,
    /// Messages that a filter puts off.
    pub filter_rescheduled_messages: u64,
    /// Whether the scan stopped at a limit before the end.
    pub aborted: bool,
    /// First message scanned, `ledger:entry`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_message_id: Option<String>,
    /// Last message scanned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_message_id: Option<String>,
}
