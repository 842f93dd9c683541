//! What the engine counts about itself.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters that only grow, bumped where the thing happens.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) bytes_written: AtomicU64,
    pub(crate) payload_bytes: AtomicU64,
    pub(crate) entries: AtomicU64,
    pub(crate) groups: AtomicU64,
    pub(crate) syncs: AtomicU64,
    pub(crate) reads: AtomicU64,
    pub(crate) read_bytes: AtomicU64,
    pub(crate) segments_removed: AtomicU64,
    pub(crate) segments_reused: AtomicU64,
    pub(crate) bytes_moved: AtomicU64,
    pub(crate) damaged_reads: AtomicU64,
}

pub(crate) fn bump(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

/// A snapshot of what the engine did since it was opened and how it stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Bytes handed to the device by the journal, padding included.
    pub bytes_written: u64,
    /// Payload bytes among them, copies not counted.
    pub payload_bytes: u64,
    /// Entries appended and durable by their ledger's rule.
    pub entries: u64,
    /// Writes of one group each.
    pub groups: u64,
    /// Syncs of the journal.
    pub syncs: u64,
    /// Device reads.
    pub reads: u64,
    /// Bytes they brought.
    pub read_bytes: u64,
    /// Segment files removed or put aside because nothing in them was needed.
    pub segments_removed: u64,
    /// Of these, files written again as new segments.
    pub segments_reused: u64,
    /// Bytes copied out of mostly dead segments.
    pub bytes_moved: u64,
    /// Reads that met damaged bytes.
    pub damaged_reads: u64,
    /// Segment files.
    pub segments: u64,
    /// Their data, needed or not, in bytes.
    pub used_bytes: u64,
    /// The needed part of it.
    pub live_bytes: u64,
    /// Damaged stretches found at the start, and entries they hide.
    pub damages: u64,
    /// Ledgers that exist.
    pub ledgers: u64,
    /// Things queued for the journal or being written.
    pub queued: u64,
    /// Their bytes.
    pub queued_bytes: u64,
    /// Whether appends are refused for want of space.
    pub no_space: bool,
    /// Whether nothing is written any more.
    pub poisoned: bool,
}
