//! What the embedded engine says of itself, for the metrics page.

use pharos_broker::admin::{MetricFamily, MetricKind, MetricSample};
use pharos_storage::Stats;

/// One family per counter.
pub(crate) fn families(stats: &Stats) -> Vec<MetricFamily> {
    use MetricKind::{Counter, Gauge};
    #[rustfmt::skip]
    let rows: [(&'static str, &'static str, MetricKind, u64); 19] = [
        ("pharos_storage_written_bytes_total", "Bytes handed to the device, padding included.", Counter, stats.bytes_written),
        ("pharos_storage_payload_bytes_total", "Message bytes among them, copies not counted.", Counter, stats.payload_bytes),
        ("pharos_storage_entries_total", "Entries that became durable.", Counter, stats.entries),
        ("pharos_storage_groups_total", "Group commits written.", Counter, stats.groups),
        ("pharos_storage_syncs_total", "Syncs of the journal.", Counter, stats.syncs),
        ("pharos_storage_reads_total", "Device reads.", Counter, stats.reads),
        ("pharos_storage_read_bytes_total", "Bytes they brought.", Counter, stats.read_bytes),
        ("pharos_storage_segments_removed_total", "Segments that were no longer needed.", Counter, stats.segments_removed),
        ("pharos_storage_moved_bytes_total", "Bytes copied out of mostly dead segments.", Counter, stats.bytes_moved),
        ("pharos_storage_damaged_reads_total", "Reads that met damaged bytes.", Counter, stats.damaged_reads),
        ("pharos_storage_segments", "Segment files.", Gauge, stats.segments),
        ("pharos_storage_used_bytes", "Their data, needed or not.", Gauge, stats.used_bytes),
        ("pharos_storage_live_bytes", "The needed part of it.", Gauge, stats.live_bytes),
        ("pharos_storage_damages", "Damaged stretches found at the start.", Gauge, stats.damages),
        ("pharos_storage_ledgers", "Ledgers that exist.", Gauge, stats.ledgers),
        ("pharos_storage_queued", "Appends that wait for the device.", Gauge, stats.queued),
        ("pharos_storage_queued_bytes", "Their bytes.", Gauge, stats.queued_bytes),
        ("pharos_storage_no_space", "1 while appends are refused for want of space.", Gauge, u64::from(stats.no_space)),
        ("pharos_storage_poisoned", "1 when nothing is written any more; a person must look.", Gauge, u64::from(stats.poisoned)),
    ];
    rows.into_iter()
        .map(|(name, help, kind, value)| family(name, help, kind, value))
        .collect()
}

#[expect(clippy::cast_precision_loss, reason = "the page has floating point only")]
fn family(name: &'static str, help: &'static str, kind: MetricKind, value: u64) -> MetricFamily {
    MetricFamily {
        name,
        help,
        kind,
        samples: vec![MetricSample::Value {
            labels: Vec::new(),
            value: value as f64,
        }],
    }
}
