//! Metrics of the broker as a whole: sums over topics, connections, lookups, and the stages of a message's way.

use pharos_admin_api::{SubscriptionStats, TopicStats};
use pharos_broker_admin::MetricsSnapshot;
use pharos_topic::PastTotals;

use super::page::Page;

#[expect(clippy::cast_precision_loss, reason = "the format has floating point only")]
fn number(count: u64) -> f64 {
    count as f64
}

/// The numbers of the whole broker.
struct Whole<'a> {
    snapshot: &'a MetricsSnapshot,
    /// Totals of topics that are not loaded any more.
    past: PastTotals,
}

impl<'a> Whole<'a> {
    fn of(snapshot: &'a MetricsSnapshot) -> Self {
        let mut past = snapshot.past_gone;
        for totals in snapshot.past.values() {
            past.add(totals);
        }
        Self { snapshot, past }
    }

    /// A sum over the loaded topics.
    fn sum(&self, of: impl Fn(&TopicStats) -> f64) -> f64 {
        self.snapshot.topics.iter().map(|topic| of(&topic.stats)).sum()
    }

    /// Sum of a counter.
    fn total(&self, of: impl Fn(&TopicStats) -> u64) -> u64 {
        self.snapshot.topics.iter().map(|topic| of(&topic.stats)).sum()
    }

    /// A sum over all subscriptions of loaded topics.
    fn over_subscriptions(&self, of: impl Fn(&SubscriptionStats) -> u64) -> u64 {
        self.total(|stats| stats.subscriptions.values().map(&of).sum())
    }
}

/// Name, kind, help and value of a metric without labels of its own.
type OfBroker = (&'static str, &'static str, &'static str, fn(&Whole<'_>) -> f64);

#[rustfmt::skip]
static SUMS: &[OfBroker] = &[
    ("pulsar_broker_storage_backlog_quota_exceeded_evictions_total", "counter",
        "Times slow cursors were moved on because of a backlog quota.",
        |w| number(w.total(|s| s.backlog_quota_evictions.iter().sum()) + w.past.evictions.iter().sum::<u64>())),
    ("pulsar_broker_topics_count", "gauge", "Loaded topics.", |w| number(w.snapshot.topics.len() as u64)),
    ("pulsar_broker_subscriptions_count", "gauge", "Subscriptions of loaded topics.",
        |w| number(w.over_subscriptions(|_| 1))),
    ("pulsar_broker_producers_count", "gauge", "Connected producers.", |w| number(w.total(|s| s.publisher_count))),
    ("pulsar_broker_consumers_count", "gauge", "Connected consumers.",
        |w| number(w.over_subscriptions(|s| s.consumer_count))),
    ("pulsar_broker_rate_in", "gauge", "Messages published a second.", |w| w.sum(|s| s.msg_rate_in)),
    ("pulsar_broker_rate_out", "gauge", "Messages sent a second.", |w| w.sum(|s| s.msg_rate_out)),
    ("pulsar_broker_throughput_in", "gauge", "Bytes published a second.", |w| w.sum(|s| s.msg_throughput_in)),
    ("pulsar_broker_throughput_out", "gauge", "Bytes sent a second.", |w| w.sum(|s| s.msg_throughput_out)),
    ("pulsar_broker_storage_size", "gauge", "Bytes of all ledgers of loaded topics.",
        |w| number(w.total(|s| s.storage_size))),
    ("pulsar_broker_storage_logical_size", "gauge", "The same, copies not counted.",
        |w| number(w.total(|s| s.storage_size))),
    ("pulsar_broker_msg_backlog", "gauge", "Entries not yet acknowledged.",
        |w| number(w.over_subscriptions(|s| s.msg_backlog))),
    ("pulsar_broker_in_bytes_total", "counter", "Bytes published.",
        |w| number(w.total(|s| s.bytes_in_counter) + w.past.bytes_in)),
    ("pulsar_broker_out_bytes_total", "counter", "Bytes sent.",
        |w| number(w.total(|s| s.bytes_out_counter) + w.past.bytes_out)),
    ("pulsar_active_connections", "gauge", "Open connections whose client is let in.", |w| number(w.snapshot.connections.active)),
    ("pulsar_connection_created_total_count", "counter", "Connections accepted.",
        |w| number(w.snapshot.connections.created_total)),
    ("pulsar_connection_create_success_count", "counter", "Connections that said a good CONNECT.",
        |w| number(w.snapshot.connections.create_success_total)),
    ("pulsar_connection_create_fail_count", "counter", "Connections that did not.",
        |w| number(w.snapshot.connections.create_fail_total)),
    ("pulsar_connection_closed_total_count", "counter", "Connections closed.",
        |w| number(w.snapshot.connections.closed_total)),
];

#[rustfmt::skip]
static LOADS: &[OfBroker] = &[
    ("pulsar_broker_lookup_answers", "counter", "Lookups answered.",
        |w| number(w.snapshot.lookups.latency.count())),
    ("pulsar_broker_lookup_failures", "counter", "Lookups failed.", |w| number(w.snapshot.lookups.failures_total)),
    ("pulsar_topic_load_failed_total", "counter", "Topics that failed to load.",
        |w| number(w.snapshot.topic_load_failed_total)),
    ("pharos_entries_unreadable_total", "counter",
        "Stored entries that turned out to be damaged or missing when they were read.",
        |w| number(w.snapshot.entries_unreadable_total)),
    ("pharos_entries_lost_skipped_total", "counter",
        "Times that consumers were moved past a damaged or missing entry.",
        |w| number(w.snapshot.lost_skipped_total)),
    // Of the whole broker, so that they go on when a topic is unloaded.
    ("pharos_broker_broadcast_absent_dropped_total", "counter",
        "Absent broadcast consumers whose place was given up.", |w| number(w.snapshot.broadcast.absent_dropped)),
    ("pharos_broker_broadcast_returned_late_total", "counter",
        "Broadcast consumers that came back after their place was given up.",
        |w| number(w.snapshot.broadcast.returned_late)),
    ("pharos_broker_broadcast_entries_skipped_total", "counter",
        "Entries that were deleted before these came back, and that they had not acknowledged.",
        |w| number(w.snapshot.broadcast.entries_skipped)),
    ("pharos_broker_broadcast_takeovers_total", "counter",
        "Places of broadcast consumers taken over by another one of the same name.",
        |w| number(w.snapshot.broadcast.takeovers)),
    ("pharos_broker_broadcast_takeovers_refused_total", "counter",
        "Such that were refused because two live consumers fight for a name.",
        |w| number(w.snapshot.broadcast.takeovers_refused)),
    ("pharos_catch_up_read_cache_bytes", "gauge",
        "What is held, or reserved for reads under way, of entries read back for stream consumers and \
         subscriptions that are behind.",
        |w| number(w.snapshot.catch_up_read_cache_bytes)),
    ("pharos_newest_cache_bytes", "gauge",
        "What shards have at hand of the newest entries for stream consumers at the tail; on two shards it \
         counts twice.",
        |w| number(w.snapshot.newest_cache_bytes)),
    ("pharos_unwritten_bytes", "gauge",
        "What was given to consumers of Shared, Key_Shared and non-persistent subscriptions, is in memory, and \
         was not taken by their sockets.",
        |w| number(w.snapshot.unwritten_bytes)),
    ("pharos_set_aside_bytes_total", "counter",
        "Such bytes that were dropped because memory was short and the socket took nothing, to be read again.",
        |w| number(w.snapshot.set_aside_bytes_total)),
    ("pharos_catch_up_reads_waiting", "gauge", "Reads for such consumers that wait for room.",
        |w| number(w.snapshot.catch_up_reads_waiting)),
];

/// `namespaces`: name and number of topics.
pub(super) fn write(
    page: &mut Page,
    cluster: &str,
    namespaces: &[(&str, usize)],
    snapshot: &MetricsSnapshot,
) {
    let labels = [("cluster", cluster.to_owned())];
    write_namespaces(page, cluster, namespaces);
    let whole = Whole::of(snapshot);
    write_rows(page, &labels, SUMS, &whole);
    write_shards(page, cluster, snapshot);
    let name = "pulsar_broker_lookup";
    page.family(name, "Milliseconds of a lookup.", "summary");
    page.summary(name, &labels, &snapshot.lookups.latency, 1000.0);
    write_rows(page, &labels, LOADS, &whole);
    let name = "pulsar_broker_publish_latency";
    page.family(
        name,
        "Milliseconds from a message's arrival to its receipt.",
        "summary",
    );
    page.summary(name, &labels, &snapshot.publish_latency, 1000.0);
    let name = "pulsar_topic_load_times";
    page.family(name, "Milliseconds to load a topic.", "summary");
    page.summary(name, &labels, &snapshot.topic_load, 1000.0);
    write_stages(page, cluster, snapshot);
    let labels = [
        ("cluster", cluster.to_owned()),
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
    ];
    page.single(
        "pulsar_version_info",
        "The release that runs.",
        "gauge",
        &labels,
        1.0,
    );
}

fn write_rows(page: &mut Page, labels: &[(&'static str, String)], rows: &[OfBroker], whole: &Whole<'_>) {
    for (name, kind, help, value) in rows {
        page.single(name, help, kind, labels, value(whole));
    }
}

fn write_namespaces(page: &mut Page, cluster: &str, namespaces: &[(&str, usize)]) {
    if namespaces.is_empty() {
        return;
    }
    page.family("pulsar_topics_count", "Loaded topics of a namespace.", "gauge");
    for (namespace, count) in namespaces {
        let labels = [
            ("cluster", cluster.to_owned()),
            ("namespace", (*namespace).to_owned()),
        ];
        page.sample("pulsar_topics_count", &labels, number(*count as u64));
    }
}

/// A client's few connections may all carry much: where they live says whether one shard has it all.
fn write_shards(page: &mut Page, cluster: &str, snapshot: &MetricsSnapshot) {
    let name = "pharos_shard_connections";
    page.family(name, "Connections that live on a shard.", "gauge");
    for (shard, count) in snapshot.shard_connections.iter().enumerate() {
        let labels = [("cluster", cluster.to_owned()), ("shard", shard.to_string())];
        page.sample(name, &labels, number(*count));
    }
}

fn write_stages(page: &mut Page, cluster: &str, snapshot: &MetricsSnapshot) {
    let name = "pharos_stage_seconds";
    page.family(
        name,
        "Time that messages spend in each stage of their way, over all topics.",
        "histogram",
    );
    for (stage, histogram) in &snapshot.stages {
        let labels = [
            ("cluster", cluster.to_owned()),
            ("stage", stage.as_str().to_owned()),
        ];
        page.histogram(name, &labels, histogram);
    }
}
