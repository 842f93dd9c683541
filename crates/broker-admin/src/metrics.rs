//! The numbers behind the metrics page, in one round over the shards.

use std::collections::HashMap;

use pharos_admin_api::{SubscriptionStats, TopicStats};
use pharos_runtime::Histogram;

use crate::assembly::Assembly;
use crate::gather::Live;
use crate::meters::{Meters, ROWS_MAX};
use crate::snapshot::{ConnectionCounters, LookupCounters, MetricsSnapshot, Stage, TopicMetrics};
use crate::stats::StatsFlags;
use pharos_broker::feed::FeedStages;
use pharos_broker::ids::TopicId;
use pharos_broker::manage::ShardFigures;
use pharos_broker::shard::Counts;
use pharos_topic::{HomeStages, StreamConsumerFigures};

/// The name under which the subscriptions of a topic that has too many to show are put together.
const TOGETHER: &str = "*";

/// The page without what the stores and the process say of themselves.
pub(crate) fn snapshot(shards: Vec<ShardFigures>, meters: &Meters) -> MetricsSnapshot {
    let mut counts = Counts::default();
    for shard in &shards {
        counts.merge(&shard.counts);
    }
    let mut snapshot = MetricsSnapshot {
        connections: connections(&shards, &counts),
        shard_connections: shards.iter().map(|shard| shard.living).collect(),
        lookups: LookupCounters {
            failures_total: counts.lookups_failed,
            latency: counts.lookups,
        },
        topic_load: counts.loads,
        topic_load_failed_total: counts.loads_failed,
        entries_unreadable_total: counts.entries_unreadable,
        lost_skipped_total: counts.lost_skipped,
        broadcast: counts.broadcast,
        catch_up_read_cache_bytes: shards.iter().map(|shard| shard.backlog_bytes).sum(),
        newest_cache_bytes: shards.iter().map(|shard| shard.newest_bytes).sum(),
        catch_up_reads_waiting: shards.iter().map(|shard| shard.backlog_waiting).sum(),
        ..MetricsSnapshot::default()
    };
    add_topics(&mut snapshot, shards, meters);
    snapshot
}

/// Adds the topics one by one, what those had counted that are not loaded any more, and the stages over all.
fn add_topics(snapshot: &mut MetricsSnapshot, shards: Vec<ShardFigures>, meters: &Meters) {
    let (mut home, mut away) = (HomeStages::default(), FeedStages::default());
    let mut topics = Vec::new();
    let mut feeds: HashMap<TopicId, (Vec<StreamConsumerFigures>, FeedStages)> = HashMap::new();
    for shard in shards {
        away.merge(&shard.past);
        home.merge(&shard.unloaded.stages);
        snapshot.past_gone.add(&shard.unloaded.gone);
        for (namespace, totals) in shard.unloaded.namespaces {
            snapshot.past.entry(namespace).or_default().add(&totals);
        }
        topics.extend(shard.topics);
        for feed in shard.feeds {
            away.merge(&feed.stages);
            let (all, sum) = feeds.entry(feed.topic).or_default();
            all.extend(feed.stream_consumers);
            sum.merge(&feed.stages);
        }
    }
    let flags = StatsFlags {
        subscription_backlog_size: false,
        exclude_publishers: true,
        exclude_consumers: true,
        ..StatsFlags::default()
    };
    for topic in topics {
        home.merge(&topic.stages);
        let (consumers, feed_stages) = feeds.remove(&topic.id).unwrap_or_default();
        let mut stats = Assembly {
            topic: &topic,
            live: &Live::new(consumers),
            meters,
            flags,
        }
        .topic();
        put_together(&mut stats);
        snapshot.topics.push(TopicMetrics {
            stats,
            stages: stages(&topic.stages, &feed_stages),
            storage_write_latency: topic.stages.persistence,
            entry_sizes: topic.counters.sizes,
            topic: topic.name,
        });
    }
    snapshot.topics.sort_by(|one, two| one.topic.cmp(&two.topic));
    snapshot.stages = stages(&home, &away);
    snapshot.publish_latency = home.publish;
}

fn connections(shards: &[ShardFigures], counts: &Counts) -> ConnectionCounters {
    let created_total: u64 = shards.iter().map(|shard| shard.connections.0).sum();
    let closed_total: u64 = shards.iter().map(|shard| shard.connections.1).sum();
    ConnectionCounters {
        active: created_total.saturating_sub(closed_total),
        created_total,
        closed_total,
        create_success_total: counts.handshakes,
        create_fail_total: counts.handshakes_failed,
    }
}

/// The stages that anything went through.
fn stages(home: &HomeStages, away: &FeedStages) -> Vec<(Stage, Histogram)> {
    let all = Stage::ALL.map(|stage| {
        let histogram = match stage {
            Stage::Producing => &home.producing,
            Stage::Receive => &home.receive,
            Stage::Persistence => &home.persistence,
            Stage::Notification => &away.notification,
            Stage::Preparation => &away.preparation,
            Stage::Broadcasting => &away.broadcasting,
            Stage::Acknowledgement => &away.acknowledgement,
        };
        (stage, histogram)
    });
    let used = all.into_iter().filter(|(_, histogram)| histogram.count() > 0);
    used.map(|(stage, histogram)| (stage, histogram.clone()))
        .collect()
}

/// Keeps the page small: the subscriptions of a topic that has a great many are shown as one.
fn put_together(stats: &mut TopicStats) {
    if stats.subscriptions.len() <= ROWS_MAX {
        return;
    }
    let mut sum = SubscriptionStats::default();
    for part in std::mem::take(&mut stats.subscriptions).into_values() {
        sum.msg_rate_out += part.msg_rate_out;
        sum.msg_throughput_out += part.msg_throughput_out;
        sum.bytes_out_counter += part.bytes_out_counter;
        sum.msg_out_counter += part.msg_out_counter;
        sum.msg_backlog += part.msg_backlog;
        sum.msg_backlog_no_delayed += part.msg_backlog_no_delayed;
        sum.msg_delayed += part.msg_delayed;
        sum.delayed_message_index_size_in_bytes += part.delayed_message_index_size_in_bytes;
        sum.msg_in_replay += part.msg_in_replay;
        sum.unacked_messages += part.unacked_messages;
        sum.msg_expired += part.msg_expired;
        sum.total_msg_expired += part.total_msg_expired;
        sum.last_expire_timestamp = sum.last_expire_timestamp.max(part.last_expire_timestamp);
        let newest = |one: i64, two: i64| one.max(two);
        sum.last_acked_timestamp = newest(sum.last_acked_timestamp, part.last_acked_timestamp);
        sum.last_consumed_timestamp = newest(sum.last_consumed_timestamp, part.last_consumed_timestamp);
        sum.last_mark_delete_advanced_timestamp = newest(
            sum.last_mark_delete_advanced_timestamp,
            part.last_mark_delete_advanced_timestamp,
        );
        sum.consumer_count += part.consumer_count;
    }
    sum.msg_rate_out = stats.msg_rate_out;
    sum.msg_throughput_out = stats.msg_throughput_out;
    stats.subscriptions.insert(TOGETHER.to_owned(), sum);
}
