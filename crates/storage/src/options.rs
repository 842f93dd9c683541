//! What can be set about a store, and the limits that follow from it.

use std::time::Duration;

use crate::OpenStoreError;
use crate::format::group::GROUP_HEADER_BYTES;
use crate::format::record::record_bytes;

/// How the journal's bytes reach the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum IoMode {
    /// Past the page cache, where the file system can; otherwise as `Buffered`. Half the CPU at high rates.
    #[default]
    Direct,
    /// Through the page cache.
    Buffered,
}

/// How a segment file gets its room before it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Preallocate {
    /// Written full of zeros beforehand, so that a sync later writes data only.
    #[default]
    ZeroFill,
    /// Reserved only; the first write to each place also changes the file system's metadata.
    Reserve,
}

/// Settings of a store.
#[derive(Clone, Debug)]
pub struct Options {
    /// Size of a segment file in bytes, at most 4 GiB. Default 256 MiB.
    pub segment_bytes: u64,
    /// Size of the first segment after a start; each next one is eight times larger up to `segment_bytes`, so that a
    /// small store stays small and starts at once. Default 4 MiB.
    pub segment_bytes_first: u64,
    /// What groups are aligned to: 4096 (default; needed for direct I/O) or 512. Fixed when a store is made.
    pub block_bytes: u32,
    /// Direct or through the page cache. Default direct.
    pub io: IoMode,
    /// How segments get their room. Default zero-filled.
    pub preallocate: Preallocate,
    /// The most one write takes, in bytes, at least 8 blocks; one entry may always be larger. Default 1 MiB.
    pub group_bytes_max: usize,
    /// How long a group waits for company when the one before it was less than this ago; a lone append never waits.
    /// Default 0.
    pub linger: Duration,
    /// When appends of [`Durability::Async`](pharos_ledger::Durability::Async) ledgers are synced at the latest.
    /// Default 1 s.
    pub sync_interval: Duration,
    /// After how much idle time the journal notes that its last group was synced, so that a damaged last group is
    /// told from a torn one even without a clean stop. Default 1 s.
    pub idle_mark_after: Duration,
    /// The largest entry, in bytes. Default 16 MiB, the contract's limit.
    pub entry_bytes_max: usize,
    /// The most that is queued for all ledgers together, in bytes; beyond it appends fail with `Overloaded`.
    /// Default 256 MiB.
    pub queue_bytes_max: usize,
    /// Threads that read. Default 2.
    pub read_threads: usize,
    /// Reads that wait for a thread; further ones wait in their callers. Default 1024.
    pub read_queue: usize,
    /// The most one device read asks for, in bytes; one entry may always be larger. Default 256 KiB.
    pub read_bytes_max: usize,
    /// A segment whose live share is below this is rewritten, in percent, at most 70. Default 50.
    pub compact_live_percent: u8,
    /// How fast segments are rewritten, in bytes a second. Default 64 MiB.
    pub compact_bytes_per_s: u64,
    /// How many dead segments of full size are kept to be written again, which saves filling new ones. Default 1.
    pub spare_segments: usize,
    /// When damage may have hidden the last entries of a ledger that was open, recover it as what is left (with an
    /// error in the log) instead of refusing. Default no.
    pub salvage: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            segment_bytes: 256 << 20,
            segment_bytes_first: 4 << 20,
            block_bytes: 4096,
            io: IoMode::default(),
            preallocate: Preallocate::default(),
            group_bytes_max: 1 << 20,
            linger: Duration::ZERO,
            sync_interval: Duration::from_secs(1),
            idle_mark_after: Duration::from_secs(1),
            entry_bytes_max: 16 << 20,
            queue_bytes_max: 256 << 20,
            read_threads: 2,
            read_queue: 1024,
            read_bytes_max: 256 << 10,
            compact_live_percent: 50,
            compact_bytes_per_s: 64 << 20,
            spare_segments: 1,
            salvage: false,
        }
    }
}

/// Blocks at the end of a segment that only facts about ledgers may use, so that ledgers can be deleted, and room be
/// made, when the device is full.
pub(crate) const RESERVE_BLOCKS: u64 = 16;

impl Options {
    /// The most an entry of the largest size needs in a segment.
    fn segment_bytes_min(&self) -> u64 {
        let group = (GROUP_HEADER_BYTES + record_bytes(self.entry_bytes_max)) as u64;
        group + u64::from(self.block_bytes) * (RESERVE_BLOCKS + 3)
    }

    pub(crate) fn check(&self) -> Result<(), OpenStoreError> {
        let wrong = |what: &str| Err(OpenStoreError::Options(what.to_owned()));
        if !matches!(self.block_bytes, 512 | 4096) {
            return wrong("block_bytes must be 512 or 4096");
        }
        if self.segment_bytes > u64::from(u32::MAX) || self.segment_bytes_first > self.segment_bytes {
            return wrong("segment_bytes must be below 4 GiB and not below segment_bytes_first");
        }
        if self.segment_bytes < self.segment_bytes_min() {
            return wrong("segment_bytes is too small for an entry of entry_bytes_max");
        }
        if self.segment_bytes_first < u64::from(self.block_bytes) * (RESERVE_BLOCKS + 4) {
            return wrong("segment_bytes_first is too small");
        }
        if self.entry_bytes_max > 16 << 20 || self.group_bytes_max > 1 << 28 {
            return wrong("entry_bytes_max is at most 16 MiB, group_bytes_max at most 256 MiB");
        }
        // Otherwise copies might be spread as thinly as what they are copied from, and compaction would never end.
        if self.group_bytes_max < 8 * self.block_bytes as usize || self.compact_live_percent > 70 {
            return wrong("group_bytes_max is at least 8 blocks, compact_live_percent at most 70");
        }
        if self.read_threads == 0 || self.read_queue == 0 {
            return wrong("read_threads and read_queue must be 1 or more");
        }
        Ok(())
    }

    /// The size of the segment after one of `previous` bytes.
    pub(crate) fn segment_bytes_after(&self, previous: u64) -> u64 {
        let grown = previous.saturating_mul(8).max(self.segment_bytes_min());
        // A multiple of 4096, whatever the block: direct readers count in those.
        grown.min(self.segment_bytes).next_multiple_of(4096)
    }
}
