//! Statistics of the engine.

use pharos_runtime::sync::atomic::{AtomicU64, Ordering};

/// Counters that only grow, bumped where the thing happens.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) bytes_written: AtomicU64,
    pub(crate) payload_bytes: AtomicU64,
    pub(crate) entries: AtomicU64,
    pub(crate) groups: AtomicU64,
    pub(crate) syncs: AtomicU64,
    pub(crate) throttled_nanos: AtomicU64,
    pub(crate) segments_removed: AtomicU64,
    pub(crate) segments_reused: AtomicU64,
    pub(crate) reserves_used: AtomicU64,
    pub(crate) flushes: AtomicU64,
    pub(crate) flushed_bytes: AtomicU64,
    pub(crate) trimmed_bytes: AtomicU64,
    pub(crate) checkpoints: AtomicU64,
    pub(crate) logs_removed: AtomicU64,
    pub(crate) bytes_moved: AtomicU64,
    pub(crate) reads: AtomicU64,
    pub(crate) read_bytes: AtomicU64,
    pub(crate) read_cache_hits: AtomicU64,
    pub(crate) read_paced_nanos: AtomicU64,
    pub(crate) damaged_reads: AtomicU64,
}

pub(crate) fn bump(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

/// A snapshot of what the engine did since it was opened and how it stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Bytes handed to the device by the journals, padding included.
    pub bytes_written: u64,
    /// Payload bytes of the entries that became durable by their ledger's rule.
    pub payload_bytes: u64,
    /// Number of those entries.
    pub entries: u64,
    /// Journal writes of one group each.
    pub groups: u64,
    /// Syncs of journals.
    pub syncs: u64,
    /// Nanoseconds that journals waited for room in the write cache.
    pub throttled_nanos: u64,
    /// Journal segments removed or put aside because everything in them is in the entry logs.
    pub segments_removed: u64,
    /// Number of files among these that were reused as new segments.
    pub segments_reused: u64,
    /// Number of times that a reserve for a full device was used.
    pub reserves_used: u64,
    /// Halves of the write cache written to the entry logs.
    pub flushes: u64,
    /// Record bytes written by flushes.
    pub flushed_bytes: u64,
    /// Payload bytes that were dropped from the write cache because their ledger was deleted before a flush.
    pub trimmed_bytes: u64,
    /// Checkpoints written.
    pub checkpoints: u64,
    /// Entry logs removed.
    pub logs_removed: u64,
    /// Record bytes copied out of mostly dead entry logs.
    pub bytes_moved: u64,
    /// Device reads of entry logs.
    pub reads: u64,
    /// Bytes they brought.
    pub read_bytes: u64,
    /// Pieces of entry logs that were still in the read cache when they were wanted.
    pub read_cache_hits: u64,
    /// Nanoseconds that reads were held back for the sake of the journals.
    pub read_paced_nanos: u64,
    /// Reads that met damaged bytes.
    pub damaged_reads: u64,
    /// Journal segment files in use.
    pub segments: u64,
    /// Bytes in the journals that no checkpoint covers yet.
    pub journal_bytes: u64,
    /// Entry logs.
    pub logs: u64,
    /// Their data, needed or not, in bytes.
    pub used_bytes: u64,
    /// The needed part of it.
    pub live_bytes: u64,
    /// Size of the write cache's content, in bytes, overhead included.
    pub cache_bytes: u64,
    /// Size of the read cache's content, in bytes.
    pub read_cache_bytes: u64,
    /// Damaged stretches found at the start, and entries they hide.
    pub damages: u64,
    /// Indexes of entry logs that a start had to make again.
    pub indexes_rebuilt: u64,
    /// Bytes of journal groups that the start replayed, because no checkpoint covered them.
    pub replayed_bytes: u64,
    /// Ledgers that exist.
    pub ledgers: u64,
    /// Things queued for the journals or being written.
    pub queued: u64,
    /// Their bytes.
    pub queued_bytes: u64,
    /// Reads that wait for the device.
    pub reads_queued: u64,
    /// True if appends are refused for lack of space.
    pub no_space: bool,
    /// True if nothing is written any more.
    pub poisoned: bool,
    /// True if appends are refused or wait, for whatever reason.
    pub not_ready: bool,
}

impl Stats {
    /// Looks at everything once.
    pub(crate) fn of(shared: &crate::shared::Shared) -> Self {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &shared.counters;
        let fill = shared.cache.fill();
        let checkpointed = shared.all_checkpointed();
        let published = shared.cache.progress();
        let mut stats = Self {
            bytes_written: get(&counters.bytes_written),
            payload_bytes: get(&counters.payload_bytes),
            entries: get(&counters.entries),
            groups: get(&counters.groups),
            syncs: get(&counters.syncs),
            throttled_nanos: get(&counters.throttled_nanos),
            segments_removed: get(&counters.segments_removed),
            segments_reused: get(&counters.segments_reused),
            reserves_used: get(&counters.reserves_used),
            flushes: get(&counters.flushes),
            flushed_bytes: get(&counters.flushed_bytes),
            trimmed_bytes: get(&counters.trimmed_bytes),
            checkpoints: get(&counters.checkpoints),
            logs_removed: get(&counters.logs_removed),
            bytes_moved: get(&counters.bytes_moved),
            reads: get(&counters.reads),
            read_bytes: get(&counters.read_bytes),
            read_cache_hits: get(&counters.read_cache_hits),
            read_paced_nanos: get(&counters.read_paced_nanos),
            damaged_reads: get(&counters.damaged_reads),
            journal_bytes: published
                .iter()
                .zip(&checkpointed)
                .map(|(p, c)| p.written.saturating_sub(c.written))
                .sum(),
            cache_bytes: fill.bytes + fill.flushing_bytes,
            read_cache_bytes: shared.extents.bytes(),
            damages: get(&shared.damages),
            indexes_rebuilt: get(&shared.indexes_rebuilt),
            replayed_bytes: get(&shared.replayed_bytes),
            ledgers: shared.ledgers.count() as u64,
            poisoned: shared.poison().is_some(),
            not_ready: shared.why_not_ready().is_some(),
            ..Self::default()
        };
        for journal in &shared.journals {
            let (queued, queued_bytes) = journal.queue.depth();
            stats.queued += queued as u64;
            stats.queued_bytes += queued_bytes as u64;
            stats.no_space |= journal.queue.refuses_for_space();
            stats.segments += journal.segments().by_id.len() as u64;
        }
        for (number, dir) in shared.dirs.iter().enumerate() {
            stats.reads_queued += dir.reads.depth() as u64;
            let logs = shared.logs(number);
            stats.logs += logs.by_id.len() as u64;
            stats.used_bytes += logs.by_id.values().map(|log| log.end).sum::<u64>();
            stats.live_bytes += logs.by_id.values().map(|log| log.live_bytes).sum::<u64>();
        }
        stats
    }
}
