//! Write latency and entry size by class, under the names of the stock dashboards.
//!
//! Each class counts the values that fit it and no smaller class. Pulsar shows the last minute; these counters grow
//! from the loading of the topic, so that rates over any time can be computed.

use pharos_broker_admin::TopicMetrics;
use pharos_topic::EntrySizes;

use super::page::{Labels, Page};
use super::topic::labels;

/// Classes of durations: name, and the longest in nanoseconds.
const LATENCIES: [(&str, u64); 9] = [
    ("le_0_5", 500_000),
    ("le_1", 1_000_000),
    ("le_5", 5_000_000),
    ("le_10", 10_000_000),
    ("le_20", 20_000_000),
    ("le_50", 50_000_000),
    ("le_100", 100_000_000),
    ("le_200", 200_000_000),
    ("le_1000", 1_000_000_000),
];

/// Names of [`EntrySizes::BOUNDS`] and of what is larger.
const SIZES: [&str; EntrySizes::BOUNDS.len() + 1] = [
    "le_128",
    "le_512",
    "le_1_kb",
    "le_2_kb",
    "le_4_kb",
    "le_16_kb",
    "le_100_kb",
    "le_1_mb",
    "le_overflow",
];

#[expect(clippy::cast_precision_loss, reason = "the format has floating point only")]
fn number(count: u64) -> f64 {
    count as f64
}

pub(super) fn write(page: &mut Page, cluster: &str, topics: &[TopicMetrics]) {
    let written: Vec<(Labels, &TopicMetrics)> = topics
        .iter()
        .filter(|metrics| metrics.storage_write_latency.count() > 0 || metrics.entry_sizes.count() > 0)
        .map(|metrics| (labels(cluster, metrics), metrics))
        .collect();
    if written.is_empty() {
        return;
    }
    let mut family = |name: String, help: &str, value: &dyn Fn(&TopicMetrics) -> f64| {
        page.family(&name, help, "counter");
        for (labels, metrics) in &written {
            page.sample(&name, labels, value(metrics));
        }
    };
    let mut shorter = None;
    for (class, nanos) in LATENCIES {
        let name = format!("pulsar_storage_write_latency_{class}");
        family(
            name,
            "Entries by the milliseconds from append to durable.",
            &|of| {
                let count = |nanos| of.storage_write_latency.count_up_to(nanos);
                number(count(nanos) - shorter.map_or(0, count))
            },
        );
        shorter = Some(nanos);
    }
    let prefix = "pulsar_storage_write_latency";
    family(format!("{prefix}_overflow"), "Entries that took longer.", &|of| {
        let latency = &of.storage_write_latency;
        number(latency.count() - shorter.map_or(0, |nanos| latency.count_up_to(nanos)))
    });
    family(
        format!("{prefix}_sum"),
        "Microseconds from append to durable, summed up.",
        &|of| of.storage_write_latency.sum_seconds() * 1e6,
    );
    family(format!("{prefix}_count"), "Entries that became durable.", &|of| {
        number(of.storage_write_latency.count())
    });
    for (class, name) in SIZES.iter().enumerate() {
        family(
            format!("pulsar_entry_size_{name}"),
            "Published entries by their bytes.",
            &|of| number(of.entry_sizes.counts().get(class).copied().unwrap_or_default()),
        );
    }
    family(
        "pulsar_entry_size_sum".to_owned(),
        "Bytes of published entries.",
        &|of| number(of.entry_sizes.bytes()),
    );
    family(
        "pulsar_entry_size_count".to_owned(),
        "Published entries.",
        &|of| number(of.entry_sizes.count()),
    );
}
