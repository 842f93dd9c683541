//! Metrics of topics and subscriptions, or of a namespace's topics together.

use std::collections::BTreeMap;

use pharos_admin_api::{ReplicatorStats, SubscriptionStats, TopicStats};
use pharos_broker_admin::TopicMetrics;

use super::page::{Labels, Page};

/// A topic, or the topics of a namespace together.
pub(super) struct Row<'a> {
    pub(super) labels: Labels,
    pub(super) stats: &'a TopicStats,
}

type OfTopic = fn(&TopicStats) -> f64;
type OfSubscription = fn(&SubscriptionStats) -> f64;

#[expect(clippy::cast_precision_loss, reason = "the format has floating point only")]
fn number(count: u64) -> f64 {
    count as f64
}

#[expect(clippy::cast_precision_loss, reason = "the format has floating point only")]
fn signed(count: i64) -> f64 {
    count as f64
}

fn flag(is_set: bool) -> f64 {
    f64::from(u8::from(is_set))
}

#[rustfmt::skip]
static TOPIC: &[(&str, &str, &str, OfTopic)] = &[
    ("pulsar_subscriptions_count", "gauge", "Subscriptions.", |s| number(s.subscriptions.len() as u64)),
    ("pulsar_producers_count", "gauge", "Connected producers.", |s| number(s.publisher_count)),
    ("pulsar_consumers_count", "gauge", "Connected consumers.",
        |s| number(s.subscriptions.values().map(|s| s.consumer_count).sum())),
    ("pulsar_rate_in", "gauge", "Messages published a second.", |s| s.msg_rate_in),
    ("pulsar_rate_out", "gauge", "Messages sent a second.", |s| s.msg_rate_out),
    ("pulsar_throughput_in", "gauge", "Bytes published a second.", |s| s.msg_throughput_in),
    ("pulsar_throughput_out", "gauge", "Bytes sent a second.", |s| s.msg_throughput_out),
    ("pulsar_average_msg_size", "gauge", "Mean size of a published message in bytes.",
        |s| s.average_msg_size),
    ("pulsar_storage_size", "gauge", "Bytes of all ledgers.", |s| number(s.storage_size)),
    ("pulsar_storage_logical_size", "gauge", "Bytes of all ledgers, copies not counted.",
        |s| number(s.storage_size)),
    ("pulsar_storage_backlog_size", "gauge", "Bytes from the slowest cursor to the end.",
        |s| number(s.backlog_size)),
    ("pulsar_storage_offloaded_size", "gauge", "Bytes in tiered storage.",
        |s| number(s.offloaded_storage_size)),
    ("pulsar_storage_backlog_quota_limit", "gauge", "Backlog quota in bytes, -1 without.",
        |s| signed(s.backlog_quota_limit_size)),
    ("pulsar_storage_backlog_quota_limit_time", "gauge", "Backlog quota in seconds, -1 without.",
        |s| signed(s.backlog_quota_limit_time)),
    ("pulsar_storage_backlog_age_seconds", "gauge",
        "Age of the oldest message in a backlog, -1 when not known.",
        |s| signed(s.oldest_backlog_message_age_seconds)),
    ("pulsar_msg_backlog", "gauge", "Entries not yet acknowledged, over all subscriptions.",
        |s| number(s.subscriptions.values().map(|s| s.msg_backlog).sum())),
    ("pulsar_publish_rate_limit_times", "counter", "Times a publisher was slowed down.",
        |s| number(s.publish_rate_limited_times)),
    ("pulsar_delayed_message_index_size_bytes", "gauge", "Memory of the delayed delivery index.",
        |s| number(s.delayed_message_index_size_in_bytes)),
    ("pulsar_compaction_removed_event_count", "counter", "Messages that compactions left out.",
        |s| number(s.compaction.meters.removed)),
    ("pulsar_compaction_succeed_count", "counter", "Compactions that succeeded.",
        |s| number(s.compaction.meters.succeeded)),
    ("pulsar_compaction_failed_count", "counter", "Compactions that failed.",
        |s| number(s.compaction.meters.failed)),
    ("pulsar_compaction_duration_time_in_mills", "gauge", "How long the last compaction took.",
        |s| signed(s.compaction.last_compaction_duration_time_in_mills)),
    ("pulsar_compaction_read_throughput", "gauge", "Bytes a second that the last compaction read.",
        |s| number(s.compaction.meters.read_throughput)),
    ("pulsar_compaction_write_throughput", "gauge", "Bytes a second that the last compaction wrote.",
        |s| number(s.compaction.meters.write_throughput)),
    ("pulsar_compaction_compacted_entries_count", "gauge", "Entries in the compacted ledger.",
        |s| number(s.compaction.meters.entries)),
    ("pulsar_compaction_compacted_entries_size", "gauge", "Their bytes.",
        |s| number(s.compaction.meters.bytes)),
    ("pulsar_in_bytes_total", "counter", "Bytes published.", |s| number(s.bytes_in_counter)),
    ("pulsar_in_messages_total", "counter", "Messages published.", |s| number(s.msg_in_counter)),
];

#[rustfmt::skip]
static SUBSCRIPTION: &[(&str, &str, &str, OfSubscription)] = &[
    ("pulsar_subscription_back_log", "gauge", "Entries not yet acknowledged.", |s| number(s.msg_backlog)),
    ("pulsar_subscription_back_log_no_delayed", "gauge", "The same without those that wait for their time.",
        |s| number(s.msg_backlog_no_delayed)),
    ("pulsar_subscription_delayed", "gauge", "Entries that wait for their time.", |s| number(s.msg_delayed)),
    ("pulsar_subscription_in_replay", "gauge", "Entries that wait to be sent again.",
        |s| number(s.msg_in_replay)),
    ("pulsar_subscription_msg_rate_redeliver", "gauge", "Messages sent again a second.",
        |s| s.msg_rate_redeliver),
    ("pulsar_subscription_unacked_messages", "gauge", "Messages sent and not acknowledged.",
        |s| number(s.unacked_messages)),
    ("pulsar_subscription_blocked_on_unacked_messages", "gauge",
        "1 while dispatch stands still because of them.",
        |s| flag(s.blocked_subscription_on_unacked_msgs)),
    ("pulsar_subscription_msg_rate_out", "gauge", "Messages sent a second.", |s| s.msg_rate_out),
    ("pulsar_subscription_msg_ack_rate", "gauge", "Messages acknowledged a second.", |s| s.message_ack_rate),
    ("pulsar_subscription_msg_throughput_out", "gauge", "Bytes sent a second.", |s| s.msg_throughput_out),
    ("pulsar_subscription_msg_rate_expired", "gauge", "Messages expired a second.", |s| s.msg_rate_expired),
    ("pulsar_subscription_total_msg_expired", "counter", "Messages expired.",
        |s| number(s.total_msg_expired)),
    ("pulsar_subscription_msg_drop_rate", "gauge", "Messages dropped a second.",
        |s| s.msg_drop_rate.unwrap_or_default()),
    ("pulsar_subscription_consumers_count", "gauge", "Connected consumers.", |s| number(s.consumer_count)),
    ("pulsar_subscription_last_expire_timestamp", "gauge",
        "When messages last expired, in milliseconds since 1970.",
        |s| signed(s.last_expire_timestamp)),
    ("pulsar_subscription_last_acked_timestamp", "gauge", "When a message was last acknowledged.",
        |s| signed(s.last_acked_timestamp)),
    ("pulsar_subscription_last_consumed_flow_timestamp", "gauge", "When a consumer last gave permits.",
        |s| signed(s.last_consumed_flow_timestamp)),
    ("pulsar_subscription_last_consumed_timestamp", "gauge", "When a message was last sent.",
        |s| signed(s.last_consumed_timestamp)),
    ("pulsar_subscription_last_mark_delete_advanced_timestamp", "gauge",
        "When the mark-delete position last moved.",
        |s| signed(s.last_mark_delete_advanced_timestamp)),
    ("pulsar_subscription_delayed_message_index_size_bytes", "gauge", "Memory of the delayed delivery index.",
        |s| number(s.delayed_message_index_size_in_bytes)),
    ("pulsar_out_bytes_total", "counter", "Bytes sent.", |s| number(s.bytes_out_counter)),
    ("pulsar_out_messages_total", "counter", "Messages sent.", |s| number(s.msg_out_counter)),
];

type OfReplicator = fn(&ReplicatorStats) -> f64;

#[rustfmt::skip]
static REPLICATION: &[(&str, &str, &str, OfReplicator)] = &[
    ("pulsar_replication_rate_in", "gauge", "Messages a second that come from another cluster.", |s| s.msg_rate_in),
    ("pulsar_replication_rate_out", "gauge", "Messages a second that go to another cluster.", |s| s.msg_rate_out),
    ("pulsar_replication_throughput_in", "gauge", "Bytes a second that come from another cluster.",
        |s| s.msg_throughput_in),
    ("pulsar_replication_throughput_out", "gauge", "Bytes a second that go to another cluster.",
        |s| s.msg_throughput_out),
    ("pulsar_replication_backlog", "gauge", "Entries that are not at another cluster yet.",
        |s| number(s.replication_backlog)),
    ("pulsar_replication_connected_count", "gauge", "1 while the other cluster is connected to.",
        |s| flag(s.connected)),
    ("pulsar_replication_disconnected_count", "gauge", "1 while it is not.", |s| flag(!s.connected)),
    ("pulsar_replication_rate_expired", "gauge", "Messages a second that were too old to be sent.",
        |s| s.msg_rate_expired),
    ("pulsar_replication_delay_in_seconds", "gauge", "For how long the oldest message that was sent has no answer.",
        |s| signed(s.replication_delay_in_seconds)),
];

type OfBroadcast = fn(&pharos_admin_api::BroadcastSummary) -> f64;

#[rustfmt::skip]
static BROADCAST: &[(&str, &str, &str, OfBroadcast)] = &[
    ("pharos_broadcast_consumers_connected", "gauge", "Connected consumers of a broadcast subscription.",
        |b| number(b.consumers_connected)),
    ("pharos_broadcast_consumers_absent", "gauge", "Absent consumers whose place is kept.",
        |b| number(b.consumers_absent)),
    ("pharos_broadcast_consumers_at_tail", "gauge", "Connected consumers that have everything.",
        |b| number(b.consumers_at_tail)),
    ("pharos_broadcast_cohorts", "gauge", "Groups of consumers that fell behind together.",
        |b| number(b.cohorts)),
    ("pharos_broadcast_absent_dropped_total", "counter", "Absent consumers whose place was given up.",
        |b| number(b.absent_dropped_total)),
    ("pharos_broadcast_returned_late_total", "counter",
        "Consumers that came back after their place was given up.",
        |b| number(b.returned_late_total)),
    ("pharos_broadcast_entries_skipped_total", "counter",
        "Entries deleted before these came back, and not acknowledged by them.",
        |b| number(b.entries_skipped_total)),
    ("pharos_broadcast_takeovers_total", "counter", "Places taken over by another consumer of the same name.",
        |b| number(b.takeovers_total)),
    ("pharos_broadcast_takeovers_refused_total", "counter",
        "Such that were refused because two live consumers fight for a name.",
        |b| number(b.takeovers_refused_total)),
    ("pharos_broadcast_cursor_bytes", "gauge", "Memory of all virtual cursors.", |b| number(b.cursor_bytes)),
];

/// Sent messages and bytes, over all subscriptions.
#[rustfmt::skip]
static OUT: &[(&str, &str, &str, OfTopic)] = &[
    ("pulsar_out_bytes_total", "counter", "Bytes sent.", |s| number(s.bytes_out_counter)),
    ("pulsar_out_messages_total", "counter", "Messages sent.", |s| number(s.msg_out_counter)),
];

/// Presentation of subscription counters.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Grouping {
    /// Each by itself.
    BySubscription,
    /// Summed. Counters of a namespace's topics under one name would fall when a topic is unloaded; sums do not.
    Together,
}

pub(super) fn write(page: &mut Page, rows: &[Row<'_>], grouping: Grouping) {
    if rows.is_empty() {
        return;
    }
    let of_topics: Vec<(&Labels, &TopicStats)> = rows.iter().map(|row| (&row.labels, row.stats)).collect();
    if grouping == Grouping::Together {
        write_table(page, OUT, &of_topics, Grouping::BySubscription);
    }
    write_table(page, TOPIC, &of_topics, Grouping::BySubscription);
    write_evictions(page, rows);
    let replicators = parts(rows, "remote_cluster", |stats| &stats.replication);
    write_table(page, REPLICATION, &labelled(&replicators), grouping);
    let subscriptions = parts(rows, "subscription", |stats| &stats.subscriptions);
    write_table(page, SUBSCRIPTION, &labelled(&subscriptions), grouping);
    let broadcasts: Vec<_> = subscriptions
        .iter()
        .filter_map(|(labels, stats)| Some((labels, stats.broadcast()?)))
        .collect();
    write_table(page, BROADCAST, &broadcasts, grouping);
}

/// Named parts of topics, with the name as a further label.
fn parts<'a, T>(
    rows: &[Row<'a>],
    label: &'static str,
    of: impl Fn(&'a TopicStats) -> &'a BTreeMap<String, T>,
) -> Vec<(Labels, &'a T)> {
    let of_row = |row: &Row<'a>| {
        let labels = row.labels.clone();
        of(row.stats).iter().map(move |(name, stats)| {
            let mut labels = labels.clone();
            labels.push((label, name.clone()));
            (labels, stats)
        })
    };
    rows.iter().flat_map(of_row).collect()
}

fn labelled<'r, 'a, T>(parts: &'r [(Labels, &'a T)]) -> Vec<(&'r Labels, &'a T)> {
    parts.iter().map(|(labels, stats)| (labels, *stats)).collect()
}

/// A metric of a table: name, type, help, and its value in what a sample is made of.
type TableRow<T> = (&'static str, &'static str, &'static str, fn(&T) -> f64);

/// A family for each metric of a table, with a sample for each of `rows`; none without any.
fn write_table<T>(page: &mut Page, table: &[TableRow<T>], rows: &[(&Labels, &T)], grouping: Grouping) {
    if rows.is_empty() {
        return;
    }
    for (name, kind, help, value) in table {
        if grouping == Grouping::Together && *kind == "counter" {
            continue;
        }
        page.family(name, help, kind);
        for (labels, stats) in rows {
            page.sample(name, labels, value(stats));
        }
    }
}

fn write_evictions(page: &mut Page, rows: &[Row<'_>]) {
    let name = "pulsar_storage_backlog_quota_exceeded_evictions_total";
    page.family(
        name,
        "Times slow cursors were moved on because of a backlog quota.",
        "counter",
    );
    for row in rows {
        for (kind, count) in ["size", "time"]
            .into_iter()
            .zip(row.stats.backlog_quota_evictions)
        {
            let mut labels = row.labels.clone();
            labels.push(("quota_type", kind.to_owned()));
            page.sample(name, &labels, number(count));
        }
    }
}

pub(super) fn labels(cluster: &str, metrics: &TopicMetrics) -> Labels {
    vec![
        ("cluster", cluster.to_owned()),
        ("namespace", metrics.topic.namespace().to_string()),
        ("topic", metrics.topic.to_string()),
    ]
}

/// Time of each stage, per topic.
pub(super) fn write_stages(page: &mut Page, cluster: &str, topics: &[TopicMetrics]) {
    if topics.iter().any(|metrics| !metrics.stages.is_empty()) {
        let name = "pharos_topic_stage_seconds";
        page.family(
            name,
            "Time that messages of a topic spend in each stage of their way.",
            "histogram",
        );
        for metrics in topics {
            for (stage, histogram) in &metrics.stages {
                let mut labels = labels(cluster, metrics);
                labels.push(("stage", stage.as_str().to_owned()));
                page.topic_histogram(name, &labels, histogram);
            }
        }
    }
}
