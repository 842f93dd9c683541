//! Metrics of the broker as a whole: sums over topics, connections, lookups, and the stages of a message's way.

use pharos_broker_admin::MetricsSnapshot;

use super::page::Page;

#[expect(clippy::cast_precision_loss, reason = "the format has floating point only")]
fn number(count: u64) -> f64 {
    count as f64
}

/// `namespaces`: name and number of topics.
pub(super) fn write(
    page: &mut Page,
    cluster: &str,
    namespaces: &[(&str, usize)],
    snapshot: &MetricsSnapshot,
) {
    let labels = [("cluster", cluster.to_owned())];
    if !namespaces.is_empty() {
        page.family("pulsar_topics_count", "Loaded topics of a namespace.", "gauge");
        for (namespace, count) in namespaces {
            let labels = [
                ("cluster", cluster.to_owned()),
                ("namespace", (*namespace).to_owned()),
            ];
            page.sample("pulsar_topics_count", &labels, number(*count as u64));
        }
    }
    write_sums(page, &labels, snapshot);
    write_connections(page, &labels, snapshot);
    write_shards(page, cluster, snapshot);
    write_lookups(page, &labels, snapshot);
    write_broadcast(page, &labels, snapshot);
    page.single(
        "pharos_catch_up_read_cache_bytes",
        "What is held, or reserved for reads under way, of entries read back for stream consumers and subscriptions that are behind.",
        "gauge",
        &labels,
        number(snapshot.catch_up_read_cache_bytes),
    );
    page.single(
        "pharos_newest_cache_bytes",
        "What shards have at hand of the newest entries for stream consumers at the tail; on two shards it counts twice.",
        "gauge",
        &labels,
        number(snapshot.newest_cache_bytes),
    );
    page.single(
        "pharos_unwritten_bytes",
        "What was given to consumers of Shared, Key_Shared and non-persistent subscriptions, is in memory, and was not taken by their sockets.",
        "gauge",
        &labels,
        number(snapshot.unwritten_bytes),
    );
    page.single(
        "pharos_set_aside_bytes_total",
        "Such bytes that were dropped because memory was short and the socket took nothing, to be read again.",
        "counter",
        &labels,
        number(snapshot.set_aside_bytes_total),
    );
    page.single(
        "pharos_catch_up_reads_waiting",
        "Reads for such consumers that wait for room.",
        "gauge",
        &labels,
        number(snapshot.catch_up_reads_waiting),
    );
    page.family(
        "pulsar_broker_publish_latency",
        "Milliseconds from a message's arrival to its receipt.",
        "summary",
    );
    page.summary(
        "pulsar_broker_publish_latency",
        &labels,
        &snapshot.publish_latency,
        1000.0,
    );
    page.family(
        "pulsar_topic_load_times",
        "Milliseconds to load a topic.",
        "summary",
    );
    page.summary("pulsar_topic_load_times", &labels, &snapshot.topic_load, 1000.0);
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

fn write_sums(page: &mut Page, labels: &[(&'static str, String)], snapshot: &MetricsSnapshot) {
    let stats = || snapshot.topics.iter().map(|metrics| &metrics.stats);
    let subscriptions = || stats().flat_map(|stats| stats.subscriptions.values());
    let mut past = snapshot.past_gone;
    for totals in snapshot.past.values() {
        past.add(totals);
    }
    let rows: [(&str, &str, &str, f64); 14] = [
        (
            "storage_backlog_quota_exceeded_evictions_total",
            "counter",
            "Times slow cursors were moved on because of a backlog quota.",
            number(
                stats().flat_map(|s| s.backlog_quota_evictions).sum::<u64>()
                    + past.evictions.iter().sum::<u64>(),
            ),
        ),
        (
            "topics_count",
            "gauge",
            "Loaded topics.",
            number(snapshot.topics.len() as u64),
        ),
        (
            "subscriptions_count",
            "gauge",
            "Subscriptions of loaded topics.",
            number(subscriptions().count() as u64),
        ),
        (
            "producers_count",
            "gauge",
            "Connected producers.",
            number(stats().map(|s| s.publisher_count).sum()),
        ),
        (
            "consumers_count",
            "gauge",
            "Connected consumers.",
            number(subscriptions().map(|s| s.consumer_count).sum()),
        ),
        (
            "rate_in",
            "gauge",
            "Messages published a second.",
            stats().map(|s| s.msg_rate_in).sum(),
        ),
        (
            "rate_out",
            "gauge",
            "Messages sent a second.",
            stats().map(|s| s.msg_rate_out).sum(),
        ),
        (
            "throughput_in",
            "gauge",
            "Bytes published a second.",
            stats().map(|s| s.msg_throughput_in).sum(),
        ),
        (
            "throughput_out",
            "gauge",
            "Bytes sent a second.",
            stats().map(|s| s.msg_throughput_out).sum(),
        ),
        (
            "storage_size",
            "gauge",
            "Bytes of all ledgers of loaded topics.",
            number(stats().map(|s| s.storage_size).sum()),
        ),
        (
            "storage_logical_size",
            "gauge",
            "The same, copies not counted.",
            number(stats().map(|s| s.storage_size).sum()),
        ),
        (
            "msg_backlog",
            "gauge",
            "Entries not yet acknowledged.",
            number(subscriptions().map(|s| s.msg_backlog).sum()),
        ),
        (
            "in_bytes_total",
            "counter",
            "Bytes published.",
            number(stats().map(|s| s.bytes_in_counter).sum::<u64>() + past.bytes_in),
        ),
        (
            "out_bytes_total",
            "counter",
            "Bytes sent.",
            number(stats().map(|s| s.bytes_out_counter).sum::<u64>() + past.bytes_out),
        ),
    ];
    for (name, kind, help, value) in rows {
        page.single(&format!("pulsar_broker_{name}"), help, kind, labels, value);
    }
}

fn write_connections(page: &mut Page, labels: &[(&'static str, String)], snapshot: &MetricsSnapshot) {
    let connections = &snapshot.connections;
    let rows = [
        (
            "pulsar_active_connections",
            "gauge",
            "Open connections.",
            connections.active,
        ),
        (
            "pulsar_connection_created_total_count",
            "counter",
            "Connections accepted.",
            connections.created_total,
        ),
        (
            "pulsar_connection_create_success_count",
            "counter",
            "Connections that said a good CONNECT.",
            connections.create_success_total,
        ),
        (
            "pulsar_connection_create_fail_count",
            "counter",
            "Connections that did not.",
            connections.create_fail_total,
        ),
        (
            "pulsar_connection_closed_total_count",
            "counter",
            "Connections closed.",
            connections.closed_total,
        ),
    ];
    for (name, kind, help, value) in rows {
        page.single(name, help, kind, labels, number(value));
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

fn write_lookups(page: &mut Page, labels: &[(&'static str, String)], snapshot: &MetricsSnapshot) {
    let lookups = &snapshot.lookups;
    page.family("pulsar_broker_lookup", "Milliseconds of a lookup.", "summary");
    page.summary("pulsar_broker_lookup", labels, &lookups.latency, 1000.0);
    let rows = [
        (
            "pulsar_broker_lookup_answers",
            "counter",
            "Lookups answered.",
            lookups.latency.count(),
        ),
        (
            "pulsar_broker_lookup_failures",
            "counter",
            "Lookups failed.",
            lookups.failures_total,
        ),
        (
            "pulsar_topic_load_failed_total",
            "counter",
            "Topics that failed to load.",
            snapshot.topic_load_failed_total,
        ),
        (
            "pharos_entries_unreadable_total",
            "counter",
            "Stored entries that turned out to be damaged or missing when they were read.",
            snapshot.entries_unreadable_total,
        ),
        (
            "pharos_entries_lost_skipped_total",
            "counter",
            "Times that consumers were moved past a damaged or missing entry.",
            snapshot.lost_skipped_total,
        ),
    ];
    for (name, kind, help, value) in rows {
        page.single(name, help, kind, labels, number(value));
    }
}

/// Of the whole broker, so that they go on when a topic is unloaded.
fn write_broadcast(page: &mut Page, labels: &[(&'static str, String)], snapshot: &MetricsSnapshot) {
    let totals = &snapshot.broadcast;
    let rows = [
        (
            "pharos_broker_broadcast_absent_dropped_total",
            "Absent broadcast consumers whose place was given up.",
            totals.absent_dropped,
        ),
        (
            "pharos_broker_broadcast_returned_late_total",
            "Broadcast consumers that came back after their place was given up.",
            totals.returned_late,
        ),
        (
            "pharos_broker_broadcast_entries_skipped_total",
            "Entries that were deleted before these came back, and that they had not acknowledged.",
            totals.entries_skipped,
        ),
        (
            "pharos_broker_broadcast_takeovers_total",
            "Places of broadcast consumers taken over by another one of the same name.",
            totals.takeovers,
        ),
        (
            "pharos_broker_broadcast_takeovers_refused_total",
            "Such that were refused because two live consumers fight for a name.",
            totals.takeovers_refused,
        ),
    ];
    for (name, help, value) in rows {
        page.single(name, help, "counter", labels, number(value));
    }
}
