//! Options of a store, and the limits that follow from them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use pharos_storage_format::group::GROUP_HEADER_BYTES;
use pharos_storage_format::record::record_bytes;
use pharos_storage_format::superblock::Role;

use crate::OpenStoreError;

/// I/O mode of writes to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum IoMode {
    /// Past the page cache, where the file system can; otherwise as `Buffered`. Half the CPU at high rates.
    #[default]
    Direct,
    /// Through the page cache.
    Buffered,
}

/// Preallocation of a segment file before it is written.
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
    /// Directories of the journals, one each; every one should be a device of its own. Empty (default): `journal` in
    /// the store's directory. More can be added later; one can be replaced after a clean stop.
    pub journal_dirs: Vec<PathBuf>,
    /// Directories of the entry logs, each flushed to by a thread of its own. Empty (default): `ledgers` in the
    /// store's directory. More can be added later, but none removed.
    pub ledger_dirs: Vec<PathBuf>,
    /// Size of a journal segment in bytes, at most 4 GiB. Default 256 MiB.
    pub segment_bytes: u64,
    /// Size of the first segment after a start; each next one is eight times larger up to `segment_bytes`, so that a
    /// small store stays small and starts at once. Default 4 MiB.
    pub segment_bytes_first: u64,
    /// Alignment of groups, in bytes: 4096 (default; needed for direct I/O) or 512. Fixed when a directory is made.
    pub block_bytes: u32,
    /// Direct or through the page cache. Default direct.
    pub io: IoMode,
    /// Preallocation of segments. Default zero-filled.
    pub preallocate: Preallocate,
    /// The most one journal write takes, in bytes, at least 8 blocks; one entry may always be larger. Default 1 MiB.
    pub group_bytes_max: usize,
    /// The most entries one journal write takes. Default unlimited.
    pub group_entries_max: usize,
    /// Minimum time from the beginning of a group to that of the next one, if the group was for several ledgers; half
    /// of it if it held several entries of one ledger. A single writer never waits, and neither does a group that is
    /// full. Default 0.
    pub linger: Duration,
    /// Maximum time until appends of [`Durability::Async`](pharos_ledger::Durability::Async) ledgers are synced.
    /// Default 1 s.
    pub sync_interval: Duration,
    /// After how much idle time the journal notes that its last group was synced, so that a damaged last group is
    /// told from a torn one even without a clean stop. Default 1 s.
    pub idle_mark_after: Duration,
    /// The largest entry, in bytes. Default 16 MiB, the contract's limit.
    pub entry_bytes_max: usize,
    /// The most that is queued for each journal, in bytes; beyond it appends fail with `Overloaded`. Default 256 MiB.
    pub queue_bytes_max: usize,
    /// A journal with this many bytes that no checkpoint covers is flushed, in bytes. Default 2 GiB.
    pub journal_bytes_max: u64,
    /// Old segments that are kept although nothing needs them, for a person to look at. Default 0.
    pub journal_backups: usize,
    /// Number of full-size files of old segments that are kept for reuse, also over a stop, which saves filling new
    /// ones. They are removed when entry logs have no room. Default 2.
    pub spare_segments: usize,
    /// Reserve of each journal directory for deletions on a full device, in bytes; 0: none. Default 4 MiB.
    pub journal_reserve_bytes: u64,
    /// Reserve of each ledger directory for flushes and checkpoints on a full device, in bytes; 0: none. Default 16
    /// MiB.
    pub ledger_reserve_bytes: u64,
    /// Time that appends queued when the device was found full wait for room before they are given up, with their
    /// ledgers. Default 3 s.
    pub space_patience: Duration,
    /// Both halves of the write cache together, in bytes; taken only while needed. Default 256 MiB.
    pub write_cache_bytes: u64,
    /// An entry is flushed to the logs when it has been in memory for this long. Default 60 s.
    pub flush_interval: Duration,
    /// Maximum write rate of flushes, in bytes a second. Default unlimited (0).
    pub flush_bytes_per_s: u64,
    /// Size of an entry log in bytes, at most 2 GiB. Default 1 GiB.
    pub entry_log_bytes: u64,
    /// A longer entry log that is not needed gets shorter by so many bytes at a time, because a device may do nothing else while
    /// it is told what is free. Default 8 MiB.
    pub removal_step_bytes: u64,
    /// The pause between two such steps. Default 8 ms.
    pub removal_pause: Duration,
    /// Memory for pieces of entry logs that were read, in bytes. Default 64 MiB.
    pub read_cache_bytes: u64,
    /// Reads that wait for a device; further ones wait in their callers. Default 1024.
    pub read_queue: usize,
    /// Maximum read rate of a device while the journals are busy, in bytes a second; 0 is unlimited. Default 600 MB.
    pub read_bytes_per_s: u64,
    /// A log whose live share is below this is rewritten every `minor_compaction_interval`, in percent. Default 20.
    pub minor_compaction_percent: u8,
    /// Default 1 h; 0 is never.
    pub minor_compaction_interval: Duration,
    /// A log whose live share is below this is rewritten every `major_compaction_interval`, and at once when a device is
    /// short of room, in percent, at most 90. Default 50.
    pub major_compaction_percent: u8,
    /// Default 24 h; 0 is never.
    pub major_compaction_interval: Duration,
    /// Maximum rate of rewriting logs, in bytes a second. Default 64 MiB.
    pub compact_bytes_per_s: u64,
    /// If true and damage may have hidden the last entries of a ledger that was open, recovers it as what is left
    /// (with an error in the log) instead of refusing. Default false.
    pub salvage: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            journal_dirs: Vec::new(),
            ledger_dirs: Vec::new(),
            segment_bytes: 256 << 20,
            segment_bytes_first: 4 << 20,
            block_bytes: 4096,
            io: IoMode::default(),
            preallocate: Preallocate::default(),
            group_bytes_max: 1 << 20,
            group_entries_max: usize::MAX,
            linger: Duration::ZERO,
            sync_interval: Duration::from_secs(1),
            idle_mark_after: Duration::from_secs(1),
            entry_bytes_max: 16 << 20,
            queue_bytes_max: 256 << 20,
            journal_bytes_max: 2 << 30,
            journal_backups: 0,
            spare_segments: 2,
            journal_reserve_bytes: 4 << 20,
            ledger_reserve_bytes: 16 << 20,
            space_patience: Duration::from_secs(3),
            write_cache_bytes: 256 << 20,
            flush_interval: Duration::from_secs(60),
            flush_bytes_per_s: 0,
            entry_log_bytes: 1 << 30,
            removal_step_bytes: 8 << 20,
            removal_pause: Duration::from_millis(8),
            read_cache_bytes: 64 << 20,
            read_queue: 1024,
            read_bytes_per_s: 600_000_000,
            minor_compaction_percent: 20,
            minor_compaction_interval: Duration::from_secs(3600),
            major_compaction_percent: 50,
            major_compaction_interval: Duration::from_secs(24 * 3600),
            compact_bytes_per_s: 64 << 20,
            salvage: false,
        }
    }
}

/// Blocks at the end of a segment that only facts about ledgers may use, so that ledgers can be deleted, and room be
/// made, when the device is full.
pub(crate) const RESERVE_BLOCKS: u64 = 16;

/// Maximum number of directories of a kind.
const DIRS_MAX: usize = 64;

impl Options {
    /// The directories of each role in a store at `base`: those that were named, else one of its own.
    pub(crate) fn dirs(&self, base: &Path, role: Role) -> Vec<PathBuf> {
        let (named, own) = match role {
            Role::Ledgers => (&self.ledger_dirs, "ledgers"),
            Role::Journal => (&self.journal_dirs, "journal"),
        };
        if named.is_empty() {
            vec![base.join(own)]
        } else {
            named.clone()
        }
    }

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
        let reserves = [self.journal_reserve_bytes, self.ledger_reserve_bytes];
        if reserves.iter().any(|bytes| !bytes.is_multiple_of(4096)) {
            return wrong("journal_reserve_bytes and ledger_reserve_bytes must be multiples of 4096");
        }
        if self.group_bytes_max < 8 * self.block_bytes as usize || self.group_entries_max == 0 {
            return wrong("group_bytes_max is at least 8 blocks, group_entries_max at least 1");
        }
        // A log is closed once it is larger than this, and offsets in it are 32 bits.
        if self.entry_log_bytes > 2 << 30 || self.entry_log_bytes < 16 << 10 {
            return wrong("entry_log_bytes must be from 16 KiB to 2 GiB");
        }
        if self.minor_compaction_percent > 90 || self.major_compaction_percent > 90 {
            return wrong("minor_compaction_percent and major_compaction_percent are at most 90");
        }
        if self.read_queue == 0 || self.write_cache_bytes == 0 {
            return wrong("read_queue and write_cache_bytes must not be 0");
        }
        if self.journal_dirs.len() > DIRS_MAX || self.ledger_dirs.len() > DIRS_MAX {
            return wrong("at most 64 journal_dirs and ledger_dirs");
        }
        let mut dirs: Vec<_> = self.journal_dirs.iter().chain(&self.ledger_dirs).collect();
        dirs.sort();
        if dirs.windows(2).any(|two| two.first() == two.last()) {
            return wrong("journal_dirs and ledger_dirs must all be different");
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
