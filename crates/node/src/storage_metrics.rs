//! Metrics of the embedded engine.

use pharos_broker_admin::{MetricFamily, MetricKind, MetricSample};
use pharos_storage::Stats;

/// Metric families, one per counter.
pub(crate) fn families(stats: &Stats) -> Vec<MetricFamily> {
    use MetricKind::{Counter, Gauge};
    #[rustfmt::skip]
    let rows: [(&'static str, &'static str, MetricKind, u64); 37] = [
        ("pharos_storage_written_bytes_total", "Bytes handed to the device by the journals, padding included.", Counter, stats.bytes_written),
        ("pharos_storage_payload_bytes_total", "Message bytes that became durable.", Counter, stats.payload_bytes),
        ("pharos_storage_entries_total", "Entries that became durable.", Counter, stats.entries),
        ("pharos_storage_groups_total", "Group commits written.", Counter, stats.groups),
        ("pharos_storage_syncs_total", "Syncs of the journals.", Counter, stats.syncs),
        ("pharos_storage_throttled_milliseconds_total", "Time that journals waited for room in the write cache.", Counter, stats.throttled_nanos / 1_000_000),
        ("pharos_storage_segments_removed_total", "Journal segments that were no longer needed.", Counter, stats.segments_removed),
        ("pharos_storage_segments_reused_total", "Journal segments made of the file of an old one, which saves filling a new one.", Counter, stats.segments_reused),
        ("pharos_storage_reserves_used_total", "Times that room kept back for a full device was used.", Counter, stats.reserves_used),
        ("pharos_storage_flushes_total", "Halves of the write cache written to the entry logs.", Counter, stats.flushes),
        ("pharos_storage_flushed_bytes_total", "Bytes written to the entry logs by flushes.", Counter, stats.flushed_bytes),
        ("pharos_storage_trimmed_bytes_total", "Bytes dropped from the write cache because their ledger was deleted first.", Counter, stats.trimmed_bytes),
        ("pharos_storage_checkpoints_total", "Checkpoints written.", Counter, stats.checkpoints),
        ("pharos_storage_logs_removed_total", "Entry logs that were no longer needed.", Counter, stats.logs_removed),
        ("pharos_storage_moved_bytes_total", "Bytes copied out of mostly dead entry logs.", Counter, stats.bytes_moved),
        ("pharos_storage_reads_total", "Device reads.", Counter, stats.reads),
        ("pharos_storage_read_bytes_total", "Bytes they brought.", Counter, stats.read_bytes),
        ("pharos_storage_read_cache_hits_total", "Pieces of entry logs found in the read cache.", Counter, stats.read_cache_hits),
        ("pharos_storage_read_paced_milliseconds_total", "Time that reads were held back for the journals.", Counter, stats.read_paced_nanos / 1_000_000),
        ("pharos_storage_damaged_reads_total", "Reads that met damaged bytes.", Counter, stats.damaged_reads),
        ("pharos_storage_segments", "Journal segment files.", Gauge, stats.segments),
        ("pharos_storage_journal_bytes", "Bytes in the journals that a start would replay.", Gauge, stats.journal_bytes),
        ("pharos_storage_logs", "Entry logs.", Gauge, stats.logs),
        ("pharos_storage_used_bytes", "Data in the entry logs, needed or not.", Gauge, stats.used_bytes),
        ("pharos_storage_live_bytes", "The needed part of it.", Gauge, stats.live_bytes),
        ("pharos_storage_write_cache_bytes", "What is in the write cache.", Gauge, stats.cache_bytes),
        ("pharos_storage_read_cache_bytes", "What is in the read cache.", Gauge, stats.read_cache_bytes),
        ("pharos_storage_damages", "Damaged stretches and hidden entries found at the start.", Gauge, stats.damages),
        ("pharos_storage_indexes_rebuilt", "Indexes of entry logs that the start had to make again.", Gauge, stats.indexes_rebuilt),
        ("pharos_storage_replayed_bytes", "Bytes of journal that the start replayed.", Gauge, stats.replayed_bytes),
        ("pharos_storage_ledgers", "Ledgers that exist.", Gauge, stats.ledgers),
        ("pharos_storage_queued", "Appends that wait for the device.", Gauge, stats.queued),
        ("pharos_storage_queued_bytes", "Their bytes.", Gauge, stats.queued_bytes),
        ("pharos_storage_reads_queued", "Reads that wait for the device.", Gauge, stats.reads_queued),
        ("pharos_storage_no_space", "1 while appends are refused for want of space.", Gauge, u64::from(stats.no_space)),
        ("pharos_storage_not_ready", "1 while appends are refused or wait, for whatever reason; `/admin/v2/brokers/ready` says which.", Gauge, u64::from(stats.not_ready)),
        ("pharos_storage_poisoned", "1 when nothing is written any more; a person must look.", Gauge, u64::from(stats.poisoned)),
    ];
    rows.into_iter()
        .map(|(name, help, kind, value)| family(name, help, kind, value))
        .collect()
}

/// Connections refused by the Pulsar server; `of_addresses`: those refused by a limit per address.
pub(crate) fn refused_connections(all: u64, of_addresses: u64) -> [MetricFamily; 2] {
    let rows = [
        (
            "pharos_connections_refused_total",
            "Connections refused: the files that are left are kept for storage, or their address had enough.",
            all,
        ),
        (
            "pharos_connections_refused_of_address_total",
            "Those of them whose address had enough open, or came too fast.",
            of_addresses,
        ),
    ];
    rows.map(|(name, help, value)| family(name, help, MetricKind::Counter, value))
}

/// Topic patterns that were compiled, and requests for lists of topics that had to wait.
pub(crate) fn topic_lists(compiled: u64, delayed: u64) -> [MetricFamily; 2] {
    let rows = [
        (
            "pharos_topic_patterns_compiled_total",
            "Topic patterns of clients that were compiled; those in use are compiled once.",
            compiled,
        ),
        (
            "pharos_topic_lists_delayed_total",
            "Requests for lists of topics that waited because their connection asked faster than limits.max_topic_list_rate_per_connection.",
            delayed,
        ),
    ];
    rows.map(|(name, help, value)| family(name, help, MetricKind::Counter, value))
}

#[expect(clippy::cast_precision_loss, reason = "the page has floating point only")]
pub(crate) fn family(name: &'static str, help: &'static str, kind: MetricKind, value: u64) -> MetricFamily {
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
