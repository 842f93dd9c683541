//! Settings of the embedded engine.

use std::time::Duration;

use super::{ByteSize, Limit, Paths, Share, StorageIo};

/// How the embedded engine keeps messages.
#[derive(Clone, Debug, PartialEq)]
pub struct StorageSettings {
    /// Past the page cache or through it.
    pub io: StorageIo,
    /// Where the journals are.
    pub journal_dirs: Paths,
    /// Where the entry logs are.
    pub ledger_dirs: Paths,
    /// Size of a journal segment.
    pub segment_size: ByteSize,
    /// Journal that no checkpoint covers, at most.
    pub journal_size: ByteSize,
    /// Old segments kept.
    pub journal_backups: u32,
    /// How long after a shared group commit the next one begins.
    pub group_commit_wait: Duration,
    /// The most that one group commit writes.
    pub group_commit_bytes: ByteSize,
    /// The most entries that one group commit writes; 0 any.
    pub group_commit_entries: u32,
    /// When what is not synced at once is synced at the latest.
    pub sync_interval: Duration,
    /// Bytes that may be queued for a journal.
    pub queue_size: ByteSize,
    /// Both halves of the write cache.
    pub write_cache_size: ByteSize,
    /// When an entry goes to the logs at the latest.
    pub flush_interval: Duration,
    /// Bytes a second that a flush writes.
    pub flush_rate: Limit<ByteSize>,
    /// Size of an entry log.
    pub entry_log_size: ByteSize,
    /// Memory for what was read from logs.
    pub read_cache_size: ByteSize,
    /// Bytes a second that are read while a journal is busy.
    pub read_rate: Limit<ByteSize>,
    /// Live share below which a log is rewritten soon.
    pub minor_compaction_threshold: Share,
    /// How often such logs are looked for; 0 never.
    pub minor_compaction_interval: Duration,
    /// Live share below which a log is rewritten in the end.
    pub major_compaction_threshold: Share,
    /// How often such logs are looked for; 0 never.
    pub major_compaction_interval: Duration,
    /// Bytes a second that compaction copies.
    pub compaction_rate: ByteSize,
    /// Whether to open what may have lost its last entries to damage.
    pub salvage: bool,
    /// Whether to open a metadata store that is not the one of the ledgers.
    pub accept_metadata: bool,
}

impl Default for StorageSettings {
    fn default() -> Self {
        Self {
            io: StorageIo::Direct,
            journal_dirs: Paths::default(),
            ledger_dirs: Paths::default(),
            segment_size: ByteSize::mib(256),
            journal_size: ByteSize::mib(2048),
            journal_backups: 0,
            group_commit_wait: Duration::from_micros(600),
            group_commit_bytes: ByteSize::mib(1),
            group_commit_entries: 0,
            sync_interval: Duration::from_secs(1),
            queue_size: ByteSize::mib(256),
            write_cache_size: ByteSize::mib(256),
            flush_interval: Duration::from_secs(60),
            flush_rate: Limit::Unlimited,
            entry_log_size: ByteSize::mib(1024),
            read_cache_size: ByteSize::mib(64),
            read_rate: Limit::At(ByteSize(600_000_000)),
            minor_compaction_threshold: Share(20),
            minor_compaction_interval: Duration::from_secs(3600),
            major_compaction_threshold: Share(50),
            major_compaction_interval: Duration::from_secs(24 * 3600),
            compaction_rate: ByteSize::mib(64),
            salvage: false,
            accept_metadata: false,
        }
    }
}

impl StorageSettings {
    /// Tells `expect` what must hold, and the sentence to say when it does not.
    pub(super) fn check(&self, expect: &mut impl FnMut(bool, &str)) {
        // Room for the largest entry (16 MiB) and what a segment needs for itself; offsets in it are 32 bits.
        expect(
            (ByteSize::mib(17)..ByteSize::mib(4096)).contains(&self.segment_size),
            "storage.segment_size must be from 17MiB to below 4GiB",
        );
        expect(
            (ByteSize::kib(32)..=ByteSize::mib(256)).contains(&self.group_commit_bytes),
            "storage.group_commit_bytes must be from 32KiB to 256MiB",
        );
        expect(
            self.queue_size >= ByteSize::mib(17),
            "storage.queue_size must be at least 17MiB, room for the largest message",
        );
        expect(
            self.write_cache_size >= ByteSize::mib(1),
            "storage.write_cache_size must be at least 1MiB",
        );
        expect(
            (ByteSize::mib(1)..=ByteSize::mib(2048)).contains(&self.entry_log_size),
            "storage.entry_log_size must be from 1MiB to 2GiB",
        );
        expect(
            !self.sync_interval.is_zero(),
            "storage.sync_interval must not be 0",
        );
        expect(
            !self.flush_interval.is_zero(),
            "storage.flush_interval must not be 0",
        );
        let rates = [&self.flush_rate, &self.read_rate];
        expect(
            rates
                .iter()
                .all(|rate| rate.as_option().is_none_or(|size| size.0 > 0)),
            "storage.flush_rate and storage.read_rate must not be 0; 'unlimited' is without limit",
        );
        expect(
            self.compaction_rate.0 > 0,
            "storage.compaction_rate must not be 0",
        );
        let shares = [&self.minor_compaction_threshold, &self.major_compaction_threshold];
        expect(
            shares.iter().all(|share| share.0 <= 90),
            "storage.minor_compaction_threshold and storage.major_compaction_threshold are at most 0.9",
        );
        let mut dirs: Vec<_> = self.journal_dirs.0.iter().chain(&self.ledger_dirs.0).collect();
        dirs.sort();
        expect(
            dirs.len() <= 64 && dirs.windows(2).all(|two| two.first() != two.last()),
            "storage.journal_dirs and storage.ledger_dirs must be different directories, at most 64",
        );
    }
}
