//! A topic's stats under Pulsar's keys, put together from what its home and its stream consumers know.

use std::collections::{BTreeMap, HashMap, HashSet};

use pharos_admin_api::{
    CompactionMeters, CompactionStats, ConsumerStats, PublisherStats, ReplicatorStats, SubscriptionStats,
    TopicStats,
};
use pharos_broker::feed::{Activity, Sent};
use pharos_broker::ids::ConsumerKey;
use pharos_replication::cluster_of_producer;
use pharos_runtime::clock;
use pharos_runtime::iso_time;
use pharos_topic::{
    AccessMode, ConsumerFigures, LogFigures, ProducerFigures, Rates, SubscriptionFigures, SubscriptionType,
    TopicFigures,
};
use pharos_types::Domain;

use crate::broadcast::{lowest, slowest, summary};
use crate::gather::Live;
use crate::meters::{Counted, Meter, Meters, ROWS_MAX};
use crate::stats::StatsFlags;

/// Consumers of a broadcast subscription that its stats show: the slowest.
const BROADCAST_ROWS: usize = 10;

/// Sources of a topic's stats.
pub(crate) struct Assembly<'a> {
    pub(crate) topic: &'a TopicFigures,
    pub(crate) live: &'a Live,
    pub(crate) meters: &'a Meters,
    pub(crate) flags: StatsFlags,
}

fn compaction(log: &LogFigures) -> CompactionStats {
    let counts = &log.compaction;
    let a_second = |bytes: u64| match counts.last_nanos {
        0 => 0,
        nanos => u64::try_from(u128::from(bytes) * 1_000_000_000 / u128::from(nanos)).unwrap_or(u64::MAX),
    };
    CompactionStats {
        last_compaction_removed_event_count: counts.last_removed,
        last_compaction_succeed_timestamp: signed(counts.succeeded_ms),
        last_compaction_failed_timestamp: signed(counts.failed_ms),
        last_compaction_duration_time_in_mills: signed(counts.last_nanos / 1_000_000),
        meters: CompactionMeters {
            removed: counts.removed,
            succeeded: counts.succeeded,
            failed: counts.failed,
            read_throughput: a_second(counts.last_read),
            write_throughput: a_second(counts.last_written),
            entries: log.compacted.map_or(0, |(_, _, entries, _)| entries),
            bytes: log.compacted.map_or(0, |(_, _, _, bytes)| bytes),
        },
    }
}

impl Assembly<'_> {
    pub(crate) fn topic(&self) -> TopicStats {
        let topic = self.topic;
        let (counters, log) = (&topic.counters, &topic.log);
        let mut out = counters.sent;
        let mut stats = TopicStats {
            msg_rate_in: topic.rate_in.messages,
            msg_throughput_in: topic.rate_in.bytes,
            average_msg_size: mean(topic.rate_in),
            bytes_in_counter: counters.bytes_in,
            msg_in_counter: counters.messages_in,
            msg_chunk_published: counters.has_chunks,
            storage_size: log.bytes,
            offloaded_storage_size: log.offload.bytes,
            last_offload_ledger_id: log.offload.last_ledger.map_or(0, |ledger| ledger.0),
            last_offload_success_time_stamp: signed(log.offload.last_success_ms),
            last_offload_failure_time_stamp: signed(log.offload.last_failure_ms),
            backlog_size: topic.lowest.map_or(0, |lowest| log.bytes_after(lowest)),
            backlog_quota_limit_size: topic.quotas.0.map_or(-1, signed),
            backlog_quota_limit_time: topic.quotas.1.map_or(-1, |limit_ms| signed(limit_ms / 1000)),
            oldest_backlog_message_age_seconds: topic.oldest.as_ref().map_or(-1, |oldest| {
                signed(clock::wall_ms().saturating_sub(oldest.published_ms) / 1000)
            }),
            oldest_backlog_message_subscription_name: topic
                .oldest
                .as_ref()
                .map(|oldest| oldest.subscription.to_string()),
            publish_rate_limited_times: topic.throttled,
            backlog_quota_evictions: [topic.evictions.by_size, topic.evictions.by_age],
            waiting_publishers: u32::try_from(topic.waiting_producers).unwrap_or(u32::MAX),
            deduplication_status: topic.deduplication.to_owned(),
            topic_epoch: topic.epoch,
            topic_creation_time_stamp: signed(log.created_ms),
            last_publish_time_stamp: signed(counters.last_publish_ms),
            compaction: compaction(log),
            publisher_count: topic.producer_count as u64,
            publishers: self.publishers(),
            replication: self.replication(),
            ..TopicStats::default()
        };
        if topic.name.is_system() {
            stats.system_topic_bytes_in_counter = counters.bytes_in;
        }
        for subscription in &topic.subscriptions {
            let live = self.live_activity(subscription);
            out.add(live.sent);
            let shown = self.subscription(subscription, &live);
            stats.non_contiguous_deleted_messages_ranges += shown.non_contiguous_deleted_messages_ranges;
            stats.non_contiguous_deleted_messages_ranges_serialized_size +=
                shown.non_contiguous_deleted_messages_ranges_serialized_size;
            stats.delayed_message_index_size_in_bytes += shown.delayed_message_index_size_in_bytes;
            stats.subscriptions.insert(subscription.name.clone(), shown);
        }
        let rates = self
            .meters
            .rates(Meter::TopicOut(topic.id), self.oldest_client_ms(), out);
        if topic.name.domain() == Domain::NonPersistent {
            let drops = stats
                .subscriptions
                .values()
                .filter_map(|shown| shown.msg_drop_rate);
            stats.msg_drop_rate = Some(drops.sum());
        }
        stats.msg_out_counter = out.messages;
        stats.bytes_out_counter = out.bytes;
        stats.msg_rate_out = rates.messages;
        stats.msg_throughput_out = rates.bytes;
        stats
    }

    /// Returns the connection time of the oldest connected client; messages cannot have been sent much earlier.
    fn oldest_client_ms(&self) -> u64 {
        let subscriptions = &self.topic.subscriptions;
        let consumers = subscriptions
            .iter()
            .flat_map(|subscription| &subscription.consumers);
        consumers
            .map(|consumer| consumer.info.connected_since_ms)
            .min()
            .unwrap_or(self.topic.log.created_ms)
    }

    /// Returns the activity of a subscription's stream consumers since they joined.
    fn live_activity(&self, subscription: &SubscriptionFigures) -> Activity {
        let mut all = Activity::default();
        for stream in subscription
            .cursors
            .iter()
            .filter_map(|cursor| self.live.of(cursor))
        {
            all.add(&stream.activity);
        }
        all
    }

    fn subscription(&self, subscription: &SubscriptionFigures, live: &Activity) -> SubscriptionStats {
        let mut all = subscription.activity;
        all.add(live);
        let acks = || subscription.cursors.iter().map(|cursor| self.live.acks(cursor));
        let backlog = acks().map(|acks| acks.backlog).max().unwrap_or(0);
        let dispatch = subscription.dispatch.unwrap_or_default();
        let acked_to = lowest(self.topic, subscription, self.live);
        let advanced = subscription.cursors.iter().map(|cursor| cursor.advanced).max();
        let mut stats = SubscriptionStats {
            bytes_out_counter: all.sent.bytes,
            msg_out_counter: all.sent.messages,
            msg_backlog: backlog,
            msg_backlog_no_delayed: backlog.saturating_sub(dispatch.delayed),
            backlog_size: if self.flags.subscription_backlog_size {
                signed(self.topic.log.bytes_after(acked_to))
            } else {
                -1
            },
            blocked_subscription_on_unacked_msgs: dispatch.is_blocked,
            msg_delayed: dispatch.delayed,
            delayed_message_index_size_in_bytes: dispatch.delayed_bytes,
            msg_in_replay: dispatch.in_replay,
            unacked_messages: dispatch.unacked,
            msg_expired: subscription.expired.entries,
            total_msg_expired: subscription.expired.entries,
            last_expire_timestamp: signed(subscription.expired.last_ms),
            kind: kind_name(subscription).to_owned(),
            active_consumer_name: active_consumer(subscription),
            last_consumed_flow_timestamp: subscription
                .consumers
                .iter()
                .map(|consumer| self.flow_at_ms(consumer))
                .max()
                .unwrap_or_default(),
            last_consumed_timestamp: signed(all.sent_at.wall_ms()),
            last_acked_timestamp: signed(all.acked_at.wall_ms()),
            last_mark_delete_advanced_timestamp: signed(advanced.unwrap_or_default().wall_ms()),
            consumers: self.consumers(subscription),
            allow_out_of_order_delivery: dispatch.allows_out_of_order,
            key_shared_mode: subscription.key_shared_mode.map(str::to_owned),
            draining_hashes_count: u32::try_from(dispatch.draining_hashes).unwrap_or(u32::MAX),
            non_contiguous_deleted_messages_ranges: acks().map(|acks| u64::from(acks.holes)).sum(),
            non_contiguous_deleted_messages_ranges_serialized_size: acks().map(|acks| acks.holes_bytes).sum(),
            subscription_properties: subscription.properties.iter().cloned().collect(),
            pharos_broadcast: subscription
                .is_broadcast
                .then(|| summary(self.topic, subscription, self.live)),
            consumer_count: subscription.consumer_count as u64,
            ..SubscriptionStats::default()
        };
        self.subscription_rates(&mut stats, subscription, &all);
        stats.set_durable(subscription.is_durable);
        stats.set_replicated(subscription.is_replicated);
        stats
    }

    fn subscription_rates(
        &self,
        stats: &mut SubscriptionStats,
        subscription: &SubscriptionFigures,
        all: &Activity,
    ) {
        let passes = self.topic.name.domain() == Domain::NonPersistent;
        if passes {
            stats.msg_drop_rate = Some(0.0);
        }
        if self.topic.subscriptions.len() > ROWS_MAX {
            return;
        }
        let came_ms = subscription
            .consumers
            .iter()
            .map(|consumer| consumer.info.connected_since_ms)
            .min();
        let since_ms = came_ms.unwrap_or(self.topic.log.created_ms);
        let meter = |what| Meter::Subscription(self.topic.id, subscription.name.clone(), what);
        let rate = |what, count| self.meters.rate(|| meter(what), since_ms, count);
        let sent = self.meters.rates(meter(Counted::Sent), since_ms, all.sent);
        stats.msg_rate_out = sent.messages;
        stats.msg_throughput_out = sent.bytes;
        stats.message_ack_rate = rate(Counted::Acked, all.acked);
        stats.msg_rate_redeliver = rate(Counted::Redelivered, all.redelivered);
        stats.msg_rate_expired = rate(Counted::Expired, subscription.expired.entries);
        if passes {
            stats.msg_drop_rate = Some(rate(Counted::Dropped, subscription.dropped));
        }
    }

    fn consumers(&self, subscription: &SubscriptionFigures) -> Vec<ConsumerStats> {
        if self.flags.exclude_consumers {
            return Vec::new();
        }
        let has_rates =
            subscription.consumers.len() <= ROWS_MAX && self.topic.subscriptions.len() <= ROWS_MAX;
        let row = |consumer: &ConsumerFigures| self.consumer(consumer, has_rates);
        if !subscription.is_broadcast {
            return subscription.consumers.iter().map(row).collect();
        }
        let slowest = slowest(subscription, self.live, BROADCAST_ROWS);
        let keys: HashSet<ConsumerKey> = slowest
            .iter()
            .filter_map(|cursor| cursor.handed_over_to)
            .collect();
        let mut rows: HashMap<ConsumerKey, &ConsumerFigures> = HashMap::new();
        rows.extend(
            subscription
                .consumers
                .iter()
                .filter(|c| keys.contains(&c.key))
                .map(|c| (c.key, c)),
        );
        slowest
            .iter()
            .filter_map(|cursor| Some(row(rows.get(&cursor.handed_over_to?)?)))
            .collect()
    }

    fn consumer(&self, consumer: &ConsumerFigures, has_rates: bool) -> ConsumerStats {
        let stream = self.live.get(consumer.key);
        let dispatch = consumer.dispatch.unwrap_or_default();
        let mut all = consumer.activity;
        if let Some(stream) = stream {
            all.add(&stream.activity);
        }
        let meter = |what| Meter::Consumer(consumer.key.0, what);
        let since_ms = consumer.info.connected_since_ms;
        let sent = match has_rates {
            true => self.meters.rates(meter(Counted::Sent), since_ms, all.sent),
            false => Rates::default(),
        };
        let rate = |what, count| match has_rates {
            true => self.meters.rate(|| meter(what), since_ms, count),
            false => 0.0,
        };
        let (acked_ms, consumed_ms) = (all.acked_at.wall_ms(), all.sent_at.wall_ms());
        let text = |ms: u64| (ms > 0).then(|| iso_time(ms));
        let ranges = &consumer.hash_ranges;
        let has_ranges = !ranges.is_empty();
        ConsumerStats {
            msg_rate_out: sent.messages,
            msg_throughput_out: sent.bytes,
            bytes_out_counter: all.sent.bytes,
            msg_out_counter: all.sent.messages,
            msg_rate_redeliver: rate(Counted::Redelivered, all.redelivered),
            message_ack_rate: rate(Counted::Acked, all.acked),
            avg_messages_per_entry: u32::try_from(all.messages_per_entry()).unwrap_or(u32::MAX),
            last_acked_timestamp: signed(acked_ms),
            last_acked_time: text(acked_ms),
            last_consumed_timestamp: signed(consumed_ms),
            last_consumed_time: text(consumed_ms),
            consumer_name: consumer.name.to_string(),
            available_permits: stream.map_or(dispatch.permits, |stream| stream.permits),
            unacked_messages: dispatch.unacked,
            blocked_consumer_on_unacked_msgs: dispatch.is_blocked,
            address: Some(consumer.info.address.to_string()),
            connected_since: Some(iso_time(consumer.info.connected_since_ms)),
            client_version: Some(consumer.info.client_version.to_string()),
            key_hash_range_arrays: has_ranges
                .then(|| ranges.iter().map(|range| [range.start, range.end]).collect()),
            key_hash_ranges: has_ranges.then(|| {
                ranges
                    .iter()
                    .map(|range| format!("[{}, {}]", range.start, range.end))
                    .collect()
            }),
            last_consumed_flow_timestamp: self.flow_at_ms(consumer),
            metadata: consumer.info.metadata.iter().cloned().collect(),
            ..ConsumerStats::default()
        }
    }

    /// Returns the time of a consumer's last permits, as a stream consumer or at the topic's home.
    fn flow_at_ms(&self, consumer: &ConsumerFigures) -> i64 {
        let stream = self.live.get(consumer.key);
        signed(
            stream
                .map_or(0, |stream| stream.flow_at_ms)
                .max(consumer.flow_at_ms),
        )
    }

    /// By cluster: what goes there, and what comes from there.
    fn replication(&self) -> BTreeMap<String, ReplicatorStats> {
        let mut all: BTreeMap<String, ReplicatorStats> = BTreeMap::new();
        let since_ms = self.topic.log.created_ms;
        for out in &self.topic.replication {
            let meter = |what| Meter::Replicator(self.topic.id, out.remote.clone(), what);
            let sent = Sent {
                messages: out.counts.messages,
                bytes: out.counts.bytes,
            };
            let rates = self.meters.rates(meter(Counted::Sent), since_ms, sent);
            let connected = out.connected.as_ref();
            all.insert(
                out.remote.clone(),
                ReplicatorStats {
                    msg_rate_out: rates.messages,
                    msg_throughput_out: rates.bytes,
                    msg_out_count: sent.messages,
                    bytes_out_count: sent.bytes,
                    msg_rate_expired: self.meters.rate(
                        || meter(Counted::Expired),
                        since_ms,
                        out.counts.expired,
                    ),
                    msg_expired_count: out.counts.expired,
                    replication_backlog: out.place.count_to(self.topic.log.end),
                    connected: connected.is_some(),
                    replication_delay_in_seconds: signed(out.delay_s),
                    outbound_connection: connected.map(|(address, _)| address.clone()),
                    outbound_connected_since: connected.map(|(_, since_ms)| iso_time(*since_ms)),
                    pharos_fault: out.fault.clone(),
                    ..ReplicatorStats::default()
                },
            );
        }
        for producer in &self.topic.inbound {
            let Some(remote) = cluster_of_producer(&producer.name) else {
                continue;
            };
            let shown = self.publisher(producer, true);
            let stats = all.entry(remote.to_owned()).or_default();
            stats.msg_rate_in += shown.msg_rate_in;
            stats.msg_throughput_in += shown.msg_throughput_in;
            stats.msg_in_count += producer.published.messages;
            stats.bytes_in_count += producer.published.bytes;
            stats.inbound_connection = shown.address;
            stats.inbound_connected_since = shown.connected_since;
        }
        all
    }

    fn publishers(&self) -> Vec<PublisherStats> {
        let has_rates = self.topic.producers.len() <= ROWS_MAX;
        self.topic
            .producers
            .iter()
            .map(|producer| self.publisher(producer, has_rates))
            .collect()
    }

    fn publisher(&self, producer: &ProducerFigures, has_rates: bool) -> PublisherStats {
        let info = &producer.info;
        let rates = if has_rates {
            self.meters.rates(
                Meter::Producer(producer.key),
                info.connected_since_ms,
                producer.published,
            )
        } else {
            Rates::default()
        };
        let access_mode = match producer.access_mode {
            AccessMode::Shared => "Shared",
            AccessMode::Exclusive => "Exclusive",
            AccessMode::WaitForExclusive => "WaitForExclusive",
            AccessMode::ExclusiveWithFencing => "ExclusiveWithFencing",
        };
        PublisherStats {
            access_mode: access_mode.to_owned(),
            msg_rate_in: rates.messages,
            msg_throughput_in: rates.bytes,
            average_msg_size: mean(rates),
            producer_id: producer.producer_id,
            producer_name: producer.name.clone(),
            address: Some(info.address.to_string()),
            connected_since: Some(iso_time(info.connected_since_ms)),
            client_version: Some(info.client_version.to_string()),
            metadata: info.metadata.iter().cloned().collect(),
        }
    }
}

/// Broadcast has no name in Pulsar; to a client its consumers look like exclusive ones.
fn kind_name(subscription: &SubscriptionFigures) -> &'static str {
    match subscription.kind {
        _ if subscription.is_broadcast => "Exclusive",
        None => "None",
        Some(SubscriptionType::Exclusive | SubscriptionType::Broadcast) => "Exclusive",
        Some(SubscriptionType::Failover) => "Failover",
        Some(SubscriptionType::Shared) => "Shared",
        Some(SubscriptionType::KeyShared) => "Key_Shared",
    }
}

fn active_consumer(subscription: &SubscriptionFigures) -> Option<String> {
    let is_failover = subscription.kind == Some(SubscriptionType::Failover);
    subscription
        .active
        .as_ref()
        .filter(|_| is_failover)
        .map(|(_, name)| name.to_string())
}

fn mean(rates: Rates) -> f64 {
    if rates.messages > 0.0 {
        rates.bytes / rates.messages
    } else {
        0.0
    }
}

pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
