//! The segment files of one journal.
//!
//! One lock guards the list; it is held for a few lines.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

use pharos_runtime::fs::{AlignedBuf, DIRECT_ALIGN, FsFile};

/// An open segment file.
#[derive(Debug)]
pub(crate) struct SegmentFile {
    pub(crate) id: u32,
    /// The mark that everything in it carries.
    pub(crate) salt: u32,
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<dyn FsFile>,
}

impl SegmentFile {
    /// Reads `bytes` bytes, or fewer at the end of the file.
    pub(crate) fn read_up_to(&self, byte_offset: u64, bytes: usize) -> io::Result<Bytes> {
        read_up_to(&*self.file, byte_offset, bytes)
    }
}

/// Reads `bytes` bytes at any place of a file, or fewer at its end.
pub(crate) fn read_up_to(file: &dyn FsFile, byte_offset: u64, bytes: usize) -> io::Result<Bytes> {
    if !file.is_direct() {
        let mut buf = vec![0; bytes];
        let count = file.read_at(&mut buf, byte_offset)?;
        buf.truncate(count);
        return Ok(buf.into());
    }
    let before = (byte_offset % DIRECT_ALIGN as u64) as usize;
    let mut buf = AlignedBuf::zeroed((before + bytes).next_multiple_of(DIRECT_ALIGN));
    let count = file.read_at(buf.bytes_mut(), byte_offset - before as u64)?;
    let (from, to) = (before.min(count), (before + bytes).min(count));
    Ok(Bytes::from_owner(buf).slice(from..to))
}

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
