//! The figures of a case: their names, what they mean, and how they are shown.
//!
//! `MB` and `GB` are 10^6 and 10^9 bytes of payload. CPU per GB counts what was published, or what was read where nothing
//! was.

use std::collections::BTreeMap;

use crate::histogram::Latencies;
use crate::perf::slice::Slice;
use crate::perf::summary::Summary;

use super::probe::Limits;

/// Figures of a case by name; what was not measured is not there.
pub(super) type Figures = BTreeMap<&'static str, f64>;

/// Measured figure.
#[derive(Debug)]
pub(super) struct Metric {
    /// Its name in workload files and JSON.
    pub(super) name: &'static str,
    /// Heading over its neighbours in a table; empty when it stands alone.
    pub(super) group: &'static str,
    /// Its own heading.
    pub(super) head: &'static str,
    /// The two in one, for places without neighbours.
    pub(super) brief: &'static str,
    /// In words, with the unit.
    pub(super) about: &'static str,
    /// True if tables show it by default.
    pub(super) shown: bool,
}

const fn metric(
    name: &'static str,
    group: &'static str,
    head: &'static str,
    brief: &'static str,
    about: &'static str,
    shown: bool,
) -> Metric {
    Metric {
        name,
        group,
        head,
        brief,
        about,
        shown,
    }
}

const PUBLISH: &str = "publish latency, ms";
const E2E: &str = "end to end, ms";
const LATE: &str = "client late, ms";
const DEVICE: &str = "device";
const RESTED: &str = "device rested, ms";

/// All figures, in the order of a table.
#[rustfmt::skip]
pub(super) const METRICS: &[Metric] = &[
    metric("publish_msg_s", "published", "msg/s", "msg/s", "messages with a receipt a second", true),
    metric("publish_mb_s", "published", "MB/s", "MB/s", "their payload, MB a second", true),
    metric("publish_p50_ms", PUBLISH, "p50", "publish p50, ms", "from the due time to the receipt, median, ms", true),
    metric("publish_p99_ms", PUBLISH, "p99", "publish p99, ms", "the same, 99th percentile, ms", true),
    metric("publish_p999_ms", PUBLISH, "p99.9", "publish p99.9, ms", "the same, 99.9th percentile, ms", true),
    metric("publish_max_ms", PUBLISH, "max", "publish max, ms", "the same, longest, ms", true),
    metric("client_late_p50_ms", LATE, "p50", "client late p50, ms", "how late the load itself was for a batch that was due, which the latencies contain, median, ms", false),
    metric("client_late_p99_ms", LATE, "p99", "client late p99, ms", "the same, 99th percentile, ms", false),
    metric("client_late_p999_ms", LATE, "p99.9", "client late p99.9, ms", "the same, 99.9th percentile, ms", false),
    metric("client_late_max_ms", LATE, "max", "client late max, ms", "the same, longest, ms", false),
    metric("e2e_p50_ms", E2E, "p50", "e2e p50, ms", "from the due time to a hot reader, median, ms", true),
    metric("e2e_p99_ms", E2E, "p99", "e2e p99, ms", "the same, 99th percentile, ms", true),
    metric("e2e_p999_ms", E2E, "p99.9", "e2e p99.9, ms", "the same, 99.9th percentile, ms", false),
    metric("e2e_max_ms", E2E, "max", "e2e max, ms", "the same, longest, ms", false),
    metric("hot_msg_s", "hot", "msg/s", "hot msg/s", "messages received by hot readers a second", false),
    metric("hot_mb_s", "hot", "MB/s", "hot MB/s", "their payload, MB a second", false),
    metric("cold_mb_s", "backlog", "MB/s", "backlog MB/s", "backlog read, MB a second, until all of it was read or the measured part ended", true),
    metric("cold_msg_s", "backlog", "msg/s", "backlog msg/s", "the same, messages a second", false),
    metric("cold_share", "backlog", "read", "backlog read", "share of the backlog that was read in the measured part", true),
    metric("cold_of_device", "backlog", "of dev", "backlog MB/s of device", "cold_mb_s over device_read_mb_s", true),
    metric("broker_cpu_s_per_gb", "broker", "s/GB", "broker CPU s/GB", "CPU of the broker, seconds per GB of payload", true),
    metric("broker_rss_mb", "broker", "MB", "broker MB", "resident memory of the broker at the end, MB", true),
    metric("client_cpu_s_per_gb", "client", "s/GB", "client CPU s/GB", "CPU of the load, seconds per GB of payload", false),
    metric("device_sync_mb_s", DEVICE, "sync", "device sync MB/s", "synced sequential writes of probe_write bytes, MB a second, all journal directories at once", true),
    metric("device_sync_p99_ms", DEVICE, "p99", "device sync p99, ms", "one such write and sync, 99th percentile, ms", false),
    metric("device_small_p50_ms", DEVICE, "4K p50", "device 4K p50, ms", "one write of 4 KiB and its sync, median, ms", false),
    metric("device_small_p99_ms", DEVICE, "4K p99", "device 4K p99, ms", "the same, 99th percentile, ms", false),
    metric("device_rested_p50_ms", RESTED, "p50", "device rested p50, ms", "one write of 4 KiB and its sync 10 ms after the one before, median, ms", false),
    metric("device_rested_p99_ms", RESTED, "p99", "device rested p99, ms", "the same, 99th percentile, ms", false),
    metric("device_rested_max_ms", RESTED, "max", "device rested max, ms", "the same, longest, ms", false),
    metric("device_read_mb_s", DEVICE, "read", "device read MB/s", "sequential reads of 1 MiB past the page cache, one at a time, MB a second", true),
    metric("group_kb", DEVICE, "group KB", "group KB", "payload of the average group commit, 1000 bytes", false),
    metric("device_group_mb_s", DEVICE, "at that", "device MB/s at that", "synced sequential writes of that size, measured right after the case, MB a second", false),
    metric("publish_of_group", DEVICE, "used", "device at that used", "publish_mb_s over device_group_mb_s", false),
    metric("publish_of_device", DEVICE, "used", "device used", "publish_mb_s over device_sync_mb_s", true),
    metric("slice_publish_p99_ms", "worst slice", "publish p99", "publish p99 of the worst slice, ms", "the highest publish p99 of any slice, ms", false),
    metric("slice_e2e_p99_ms", "worst slice", "e2e p99", "e2e p99 of the worst slice, ms", "the highest end-to-end p99 of any slice, ms", false),
    metric("disk_mb", "disk", "MB", "on disk, MB", "the most that the broker's directories took at the end of a slice, MB", false),
    metric("memory_growth", "growth", "memory", "growth of memory", "resident memory in the last third of the slices over that in the third before", false),
    metric("disk_growth", "growth", "disk", "growth on disk", "the same of what the broker's directories took", false),
    metric("seconds", "", "seconds", "seconds", "length of the measured part, seconds", false),
    metric("setup_s", "", "setup", "setup s", "connecting producers and readers, seconds", false),
    metric("backlog_s", "", "stored s", "backlog stored in, s", "storing the backlog, seconds", false),
    metric("start_s", "start", "s", "started in, s", "starting the broker on what was stored, until it listens, seconds", false),
    metric("replayed_mb", "start", "MB", "replayed MB", "journal that the start read because no checkpoint covered it, MB", false),
    metric("replay_mb_s", "start", "MB/s", "replay MB/s", "the same over start_s, MB a second", false),
    metric("replay_of_device", "start", "of dev", "replay MB/s of device", "replay_mb_s over device_read_mb_s", false),
    metric("lost", "checks", "lost", "lost", "messages with a receipt that a reader never got", false),
    metric("duplicates", "checks", "double", "doubled", "messages that came again", false),
    metric("out_of_order", "checks", "disorder", "out of order", "messages that came after a later one", false),
    metric("damaged", "checks", "damaged", "damaged", "messages whose bytes were not those that were sent; every message of a load has a body of its own", false),
];

/// The metric of that name.
pub(super) fn find(name: &str) -> Option<&'static Metric> {
    METRICS.iter().find(|metric| metric.name == name)
}

/// Collects what a summary and the device's limits say.
pub(super) fn figures(summary: &Summary, limits: Option<&Limits>) -> Figures {
    let mut figures = Figures::new();
    let seconds = summary.seconds.max(1e-9);
    figures.insert("seconds", summary.seconds);
    if summary.publish.messages > 0 {
        figures.insert("publish_msg_s", summary.publish.messages as f64 / seconds);
        figures.insert("publish_mb_s", summary.publish.bytes as f64 / 1e6 / seconds);
        latencies(
            &mut figures,
            &summary.publish.latencies,
            [
                "publish_p50_ms",
                "publish_p99_ms",
                "publish_p999_ms",
                "publish_max_ms",
            ],
        );
        if let Some(late) = &summary.publish.late {
            latencies(
                &mut figures,
                late,
                [
                    "client_late_p50_ms",
                    "client_late_p99_ms",
                    "client_late_p999_ms",
                    "client_late_max_ms",
                ],
            );
        }
    }
    if summary.receive.messages > 0 {
        figures.insert("hot_msg_s", summary.receive.messages as f64 / seconds);
        figures.insert("hot_mb_s", summary.receive.bytes as f64 / 1e6 / seconds);
        latencies(
            &mut figures,
            &summary.receive.latencies,
            ["e2e_p50_ms", "e2e_p99_ms", "e2e_p999_ms", "e2e_max_ms"],
        );
    }
    let gb = volume(&summary.publish, &summary.receive, &summary.backlog_read) / 1e9;
    if gb > 0.0 {
        if let Some(cpu) = summary.broker_cpu_seconds {
            figures.insert("broker_cpu_s_per_gb", cpu / gb);
        }
        figures.insert("client_cpu_s_per_gb", summary.client_cpu_seconds / gb);
    }
    if let Some(bytes) = summary.broker_rss_bytes {
        figures.insert("broker_rss_mb", bytes as f64 / 1e6);
    }
    if let Some(limits) = limits {
        figures.extend([
            ("device_sync_mb_s", limits.sync_mb_s),
            ("device_sync_p99_ms", limits.sync.percentile_ms(99.0)),
            ("device_small_p50_ms", limits.small.percentile_ms(50.0)),
            ("device_small_p99_ms", limits.small.percentile_ms(99.0)),
            ("device_rested_p50_ms", limits.rested.percentile_ms(50.0)),
            ("device_rested_p99_ms", limits.rested.percentile_ms(99.0)),
            ("device_rested_max_ms", limits.rested.max_ms()),
            ("device_read_mb_s", limits.read_mb_s),
        ]);
    }
    figures
}

/// Figures that are a relation of two others; once the others are there.
pub(super) fn add_relations(figures: &mut Figures) {
    for (name, part, whole) in [
        ("publish_of_device", "publish_mb_s", "device_sync_mb_s"),
        ("publish_of_group", "publish_mb_s", "device_group_mb_s"),
        ("cold_of_device", "cold_mb_s", "device_read_mb_s"),
        ("replay_of_device", "replay_mb_s", "device_read_mb_s"),
    ] {
        if let (Some(part), Some(whole)) = (figures.get(part), figures.get(whole))
            && *whole > 0.0
        {
            figures.insert(name, part / whole);
        }
    }
}

fn volume(publish: &Slice, receive: &Slice, backlog: &Slice) -> f64 {
    let read = receive.bytes + backlog.bytes;
    (if publish.bytes > 0 { publish.bytes } else { read }) as f64
}

fn latencies(figures: &mut Figures, latencies: &Latencies, names: [&'static str; 4]) {
    let values = [
        latencies.percentile_ms(50.0),
        latencies.percentile_ms(99.0),
        latencies.percentile_ms(99.9),
        latencies.max_ms(),
    ];
    figures.extend(names.into_iter().zip(values));
}

/// A figure with about three digits, thousands set apart.
pub(super) fn show(value: f64) -> String {
    match value.abs() {
        v if v >= 99.95 => thousands(value.round() as i64),
        v if v >= 9.995 => format!("{value:.1}"),
        0.0 => "0".to_owned(),
        _ => format!("{value:.2}"),
    }
}

fn thousands(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if number < 0 { format!("-{out}") } else { out }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits() {
        let shown = [0.0, 0.1234, 9.5, 12.34, 99.96, 1234.5, 1_234_567.0].map(show);
        assert_eq!(shown, ["0", "0.12", "9.50", "12.3", "100", "1,235", "1,234,567"]);
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<&str> = METRICS.iter().map(|metric| metric.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), METRICS.len());
    }
}
