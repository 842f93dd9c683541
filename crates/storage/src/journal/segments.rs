//! The segment files of one journal.
//!
//! One lock guards the list; it is held for a few lines.

use std::collections::BTreeMap;
use std::sync::Arc;

use pharos_storage_format::file::SegmentFile;

/// A segment in use.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) file: Arc<SegmentFile>,
    /// Length of the file.
    pub(crate) file_bytes: u64,
    /// The highest group sequence number in it or before it.
    pub(crate) sequence: u64,
    /// No longer written.
    pub(crate) closed: bool,
    /// Its header survives a crash.
    pub(crate) header_durable: bool,
    /// A start found damage in it; it is kept for a person to look at.
    pub(crate) damaged: bool,
    /// Its file could not be removed; the next start tries again.
    pub(crate) stuck: bool,
}

impl Segment {
    pub(crate) fn new(file: Arc<SegmentFile>, file_bytes: u64) -> Self {
        Self {
            file,
            file_bytes,
            sequence: 0,
            closed: false,
            header_durable: false,
            damaged: false,
            stuck: false,
        }
    }
}

/// All segments of a journal.
#[derive(Debug, Default)]
pub(crate) struct Segments {
    pub(crate) by_id: BTreeMap<u32, Segment>,
}

impl Segments {
    /// The oldest segments that nothing needs once everything up to `sequence` is in the entry logs, all but the newest
    /// `backups` of them. Its successor's header must be durable, because that says where this one ended.
    pub(crate) fn find_trimmable(&self, sequence: u64, backups: usize) -> Option<u32> {
        let done = |segment: &Segment| segment.closed && segment.sequence <= sequence;
        let count = self.by_id.values().take_while(|segment| done(segment)).count();
        let (id, oldest) = self.by_id.iter().find(|(_, segment)| !segment.stuck)?;
        let followed = self
            .by_id
            .range(id + 1..)
            .next()
            .is_some_and(|(_, next)| next.header_durable);
        (count > backups && done(oldest) && followed).then_some(*id)
    }
}
