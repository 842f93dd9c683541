//! Calls on a partitioned topic: one call per partition, a bounded number of them at once, and the answers put together.

use std::collections::BTreeMap;

use futures_util::FutureExt as _;
use pharos_admin_api::{
    CompactionStats, ConsumerStats, PublisherStats, ReplicatorStats, SubscriptionStats, TopicStats,
};
use pharos_broker_admin::AdminError;
use pharos_runtime::many;
use pharos_types::TopicName;
use serde::de::DeserializeOwned;

use crate::error::{ApiError, ApiResult};
use crate::owners::at_owner;
use crate::state::Admin;

/// The topics a call is about.
pub(crate) struct Target {
    /// The topic itself, or all partitions.
    pub(crate) topics: Vec<TopicName>,
    /// True if these are the partitions of the requested topic.
    pub(crate) is_partitioned: bool,
}

/// Topics of a name: itself, or the partitions of the partitioned topic of that name.
pub(crate) fn target(admin: &Admin, topic: &TopicName) -> Target {
    match admin.catalog.partitioned().get(topic) {
        Some(metadata) => Target {
            topics: (0..metadata.partitions)
                .map(|index| topic.with_partition(index))
                .collect(),
            is_partitioned: true,
        },
        None => Target {
            topics: vec![topic.clone()],
            is_partitioned: false,
        },
    }
}

/// Refuses a partitioned topic for a call that only makes sense on one log.
pub(crate) fn single(admin: &Admin, topic: &TopicName, what: &str) -> ApiResult<()> {
    if admin.catalog.partitioned().get(topic).is_some() {
        return Err(ApiError::not_allowed(format!(
            "{what} on a partitioned topic is not allowed; name a partition"
        )));
    }
    Ok(())
}

/// A call on every one of `topics`, at the broker that has it; one that is not there (not made yet, or deleted meanwhile) has nothing to
/// add.
pub(crate) async fn each_made<T, F>(
    topics: Vec<TopicName>,
    mut call: impl FnMut(TopicName) -> F,
    mut add: impl FnMut(TopicName, T),
) -> ApiResult<()>
where
    F: Future<Output = Result<T, AdminError>>,
    T: DeserializeOwned,
{
    let named = |topic: TopicName| at_owner(call(topic.clone()), None).map(|outcome| (topic, outcome));
    let take = |(topic, outcome)| match outcome {
        Ok(found) => {
            add(topic, found);
            Ok(())
        }
        Err(AdminError::NotFound(_)) => Ok(()),
        Err(error) => Err(ApiError::from(error)),
    };
    many(topics, named, take).await
}

fn add_compaction(total: &mut CompactionStats, part: &CompactionStats) {
    total.last_compaction_removed_event_count += part.last_compaction_removed_event_count;
    let newest = |one: &mut i64, other: i64| *one = (*one).max(other);
    newest(
        &mut total.last_compaction_succeed_timestamp,
        part.last_compaction_succeed_timestamp,
    );
    newest(
        &mut total.last_compaction_failed_timestamp,
        part.last_compaction_failed_timestamp,
    );
    newest(
        &mut total.last_compaction_duration_time_in_mills,
        part.last_compaction_duration_time_in_mills,
    );
    let (sum, part) = (&mut total.meters, &part.meters);
    sum.removed += part.removed;
    sum.succeeded += part.succeeded;
    sum.failed += part.failed;
    sum.read_throughput += part.read_throughput;
    sum.write_throughput += part.write_throughput;
    sum.entries += part.entries;
    sum.bytes += part.bytes;
}

/// Adds the numbers of `part` to `total`.
pub(crate) fn add_topic(total: &mut TopicStats, part: &TopicStats) {
    let size_before = total.average_msg_size * total.msg_rate_in;
    total.msg_rate_in += part.msg_rate_in;
    total.msg_throughput_in += part.msg_throughput_in;
    total.msg_rate_out += part.msg_rate_out;
    total.msg_throughput_out += part.msg_throughput_out;
    if total.msg_rate_in > 0.0 {
        total.average_msg_size = (size_before + part.average_msg_size * part.msg_rate_in) / total.msg_rate_in;
    }
    total.bytes_in_counter += part.bytes_in_counter;
    total.msg_in_counter += part.msg_in_counter;
    total.system_topic_bytes_in_counter += part.system_topic_bytes_in_counter;
    total.bytes_out_counter += part.bytes_out_counter;
    total.msg_out_counter += part.msg_out_counter;
    total.bytes_out_internal_counter += part.bytes_out_internal_counter;
    total.msg_chunk_published |= part.msg_chunk_published;
    total.storage_size += part.storage_size;
    total.backlog_size += part.backlog_size;
    for (sum, part) in total
        .backlog_quota_evictions
        .iter_mut()
        .zip(part.backlog_quota_evictions)
    {
        *sum += part;
    }
    total.backlog_quota_limit_size = total.backlog_quota_limit_size.max(part.backlog_quota_limit_size);
    total.backlog_quota_limit_time = total.backlog_quota_limit_time.max(part.backlog_quota_limit_time);
    if part.oldest_backlog_message_age_seconds > total.oldest_backlog_message_age_seconds {
        total.oldest_backlog_message_age_seconds = part.oldest_backlog_message_age_seconds;
        total
            .oldest_backlog_message_subscription_name
            .clone_from(&part.oldest_backlog_message_subscription_name);
    }
    total.publish_rate_limited_times += part.publish_rate_limited_times;
    total.earliest_msg_publish_time_in_backlogs = earlier(
        total.earliest_msg_publish_time_in_backlogs,
        part.earliest_msg_publish_time_in_backlogs,
    );
    total.offloaded_storage_size += part.offloaded_storage_size;
    add_compaction(&mut total.compaction, &part.compaction);
    total.waiting_publishers += part.waiting_publishers;
    total.non_contiguous_deleted_messages_ranges += part.non_contiguous_deleted_messages_ranges;
    total.non_contiguous_deleted_messages_ranges_serialized_size +=
        part.non_contiguous_deleted_messages_ranges_serialized_size;
    total.delayed_message_index_size_in_bytes += part.delayed_message_index_size_in_bytes;
    total.topic_creation_time_stamp =
        earlier(total.topic_creation_time_stamp, part.topic_creation_time_stamp);
    total.last_publish_time_stamp = total.last_publish_time_stamp.max(part.last_publish_time_stamp);
    if total.deduplication_status.is_empty() {
        total.deduplication_status.clone_from(&part.deduplication_status);
    }
    total.msg_drop_rate = sum_of(total.msg_drop_rate, part.msg_drop_rate);
    total.publisher_count += part.publisher_count;
    add_publishers(&mut total.publishers, &part.publishers);
    for (cluster, stats) in &part.replication {
        match total.replication.get_mut(cluster) {
            Some(sum) => add_replicator(sum, stats),
            None => drop(total.replication.insert(cluster.clone(), stats.clone())),
        }
    }
    for (name, stats) in &part.subscriptions {
        match total.subscriptions.get_mut(name) {
            Some(sum) => add_subscription(sum, stats),
            None => drop(total.subscriptions.insert(name.clone(), stats.clone())),
        }
    }
}

fn add_replicator(total: &mut ReplicatorStats, part: &ReplicatorStats) {
    total.msg_rate_in += part.msg_rate_in;
    total.msg_throughput_in += part.msg_throughput_in;
    total.msg_in_count += part.msg_in_count;
    total.bytes_in_count += part.bytes_in_count;
    total.msg_rate_out += part.msg_rate_out;
    total.msg_throughput_out += part.msg_throughput_out;
    total.msg_out_count += part.msg_out_count;
    total.bytes_out_count += part.bytes_out_count;
    total.msg_rate_expired += part.msg_rate_expired;
    total.msg_expired_count += part.msg_expired_count;
    total.replication_backlog += part.replication_backlog;
    total.connected &= part.connected;
    let delay = &mut total.replication_delay_in_seconds;
    *delay = (*delay).max(part.replication_delay_in_seconds);
    if total.pharos_fault.is_none() {
        total.pharos_fault.clone_from(&part.pharos_fault);
    }
}

/// The sum of two numbers that may be missing.
fn sum_of(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    match (a, b) {
        (None, other) | (other, None) => other,
        (Some(a), Some(b)) => Some(a + b),
    }
}

/// The earlier of two times of which 0 is "none".
fn earlier(a: i64, b: i64) -> i64 {
    match (a, b) {
        (0, other) | (other, 0) => other,
        (a, b) => a.min(b),
    }
}

/// A producer of a partitioned topic is one producer per partition, all of one name.
fn add_publishers(total: &mut Vec<PublisherStats>, part: &[PublisherStats]) {
    let mut known: BTreeMap<(String, Option<String>), usize> = BTreeMap::new();
    for (index, publisher) in total.iter().enumerate() {
        known.insert(
            (publisher.producer_name.clone(), publisher.address.clone()),
            index,
        );
    }
    for publisher in part {
        let key = (publisher.producer_name.clone(), publisher.address.clone());
        match known.get(&key).and_then(|index| total.get_mut(*index)) {
            Some(sum) => {
                sum.msg_rate_in += publisher.msg_rate_in;
                sum.msg_throughput_in += publisher.msg_throughput_in;
                if sum.msg_rate_in > 0.0 {
                    sum.average_msg_size = sum.msg_throughput_in / sum.msg_rate_in;
                }
            }
            None => total.push(publisher.clone()),
        }
    }
}

fn add_subscription(total: &mut SubscriptionStats, part: &SubscriptionStats) {
    total.msg_rate_out += part.msg_rate_out;
    total.msg_throughput_out += part.msg_throughput_out;
    total.bytes_out_counter += part.bytes_out_counter;
    total.msg_out_counter += part.msg_out_counter;
    total.msg_rate_redeliver += part.msg_rate_redeliver;
    total.message_ack_rate += part.message_ack_rate;
    total.msg_backlog += part.msg_backlog;
    total.backlog_size += part.backlog_size;
    total.earliest_msg_publish_time_in_backlog = earlier(
        total.earliest_msg_publish_time_in_backlog,
        part.earliest_msg_publish_time_in_backlog,
    );
    total.msg_backlog_no_delayed += part.msg_backlog_no_delayed;
    total.blocked_subscription_on_unacked_msgs |= part.blocked_subscription_on_unacked_msgs;
    total.msg_delayed += part.msg_delayed;
    total.msg_in_replay += part.msg_in_replay;
    total.unacked_messages += part.unacked_messages;
    total.msg_rate_expired += part.msg_rate_expired;
    total.msg_expired += part.msg_expired;
    total.total_msg_expired += part.total_msg_expired;
    total.last_expire_timestamp = total.last_expire_timestamp.max(part.last_expire_timestamp);
    total.last_consumed_flow_timestamp = total
        .last_consumed_flow_timestamp
        .max(part.last_consumed_flow_timestamp);
    total.last_consumed_timestamp = total.last_consumed_timestamp.max(part.last_consumed_timestamp);
    total.last_acked_timestamp = total.last_acked_timestamp.max(part.last_acked_timestamp);
    total.last_mark_delete_advanced_timestamp = total
        .last_mark_delete_advanced_timestamp
        .max(part.last_mark_delete_advanced_timestamp);
    total.non_contiguous_deleted_messages_ranges += part.non_contiguous_deleted_messages_ranges;
    total.non_contiguous_deleted_messages_ranges_serialized_size +=
        part.non_contiguous_deleted_messages_ranges_serialized_size;
    total.delayed_message_index_size_in_bytes += part.delayed_message_index_size_in_bytes;
    total.msg_drop_rate = sum_of(total.msg_drop_rate, part.msg_drop_rate);
    total.allow_out_of_order_delivery |= part.allow_out_of_order_delivery;
    total.filter_processed_msg_count += part.filter_processed_msg_count;
    total.filter_accepted_msg_count += part.filter_accepted_msg_count;
    total.filter_rejected_msg_count += part.filter_rejected_msg_count;
    total.filter_rescheduled_msg_count += part.filter_rescheduled_msg_count;
    total.consumer_count = total.consumer_count.max(part.consumer_count);
    if total.kind.is_empty() || total.kind == "None" {
        total.kind.clone_from(&part.kind);
    }
    add_consumers(&mut total.consumers, &part.consumers);
}

/// A consumer of a partitioned topic is one consumer per partition, all of one name.
fn add_consumers(total: &mut Vec<ConsumerStats>, part: &[ConsumerStats]) {
    let mut known: BTreeMap<(String, Option<String>), usize> = BTreeMap::new();
    for (index, consumer) in total.iter().enumerate() {
        known.insert((consumer.consumer_name.clone(), consumer.address.clone()), index);
    }
    for consumer in part {
        let key = (consumer.consumer_name.clone(), consumer.address.clone());
        match known.get(&key).and_then(|index| total.get_mut(*index)) {
            Some(sum) => add_consumer(sum, consumer),
            None => total.push(consumer.clone()),
        }
    }
}

fn add_consumer(total: &mut ConsumerStats, part: &ConsumerStats) {
    total.msg_rate_out += part.msg_rate_out;
    total.msg_throughput_out += part.msg_throughput_out;
    total.bytes_out_counter += part.bytes_out_counter;
    total.msg_out_counter += part.msg_out_counter;
    total.msg_rate_redeliver += part.msg_rate_redeliver;
    total.message_ack_rate += part.message_ack_rate;
    total.available_permits += part.available_permits;
    total.unacked_messages += part.unacked_messages;
    total.blocked_consumer_on_unacked_msgs |= part.blocked_consumer_on_unacked_msgs;
    total.last_acked_timestamp = total.last_acked_timestamp.max(part.last_acked_timestamp);
    total.last_consumed_timestamp = total.last_consumed_timestamp.max(part.last_consumed_timestamp);
    total.last_consumed_flow_timestamp = total
        .last_consumed_flow_timestamp
        .max(part.last_consumed_flow_timestamp);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(producer: &str, rate: f64, backlog: u64) -> TopicStats {
        let publisher = PublisherStats {
            producer_name: producer.into(),
            msg_rate_in: rate,
            ..Default::default()
        };
        let consumer = ConsumerStats {
            consumer_name: "c".into(),
            available_permits: 5,
            ..Default::default()
        };
        let subscription = SubscriptionStats {
            msg_backlog: backlog,
            consumers: vec![consumer],
            ..Default::default()
        };
        TopicStats {
            msg_rate_in: rate,
            average_msg_size: 100.0 * rate,
            publishers: vec![publisher],
            subscriptions: BTreeMap::from([("s".to_owned(), subscription)]),
            ..Default::default()
        }
    }

    #[test]
    fn partitions_add_up_and_one_client_stays_one() {
        let mut total = TopicStats::default();
        add_topic(&mut total, &part("p", 1.0, 3));
        add_topic(&mut total, &part("p", 3.0, 4));
        assert_eq!(total.publishers.len(), 1);
        assert!((total.publishers[0].msg_rate_in - 4.0).abs() < 1e-9);
        assert!((total.average_msg_size - 250.0).abs() < 1e-9);
        let subscription = &total.subscriptions["s"];
        assert_eq!((subscription.msg_backlog, subscription.consumers.len()), (7, 1));
        assert_eq!(subscription.consumers[0].available_permits, 10);
    }
}
