//! The segment files and what of each is still needed.
//!
//! One lock guards the list; it is held for a few lines and never while a ledger's state is locked.
//!
//! A segment is *live* as long as some record in it is needed: an entry of a ledger that exists, the creation or seal
//! of one, or a deletion while another segment still has records of the deleted ledger. A segment without live records
//! can go.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

use pharos_runtime::fs::{AlignedBuf, DIRECT_ALIGN, FsFile};
use pharos_types::LedgerId;

use crate::format::record::{Kind, record_bytes};
use crate::format::side_file::Damage;

/// Room that a record without a body takes.
pub(crate) const FACT_BYTES: u64 = record_bytes(0) as u64;

/// An open segment file. Shared by whoever reads or writes it; removing the segment does not close it for them.
#[derive(Debug)]
pub(crate) struct SegmentFile {
    pub(crate) id: u32,
    /// The mark that everything in it carries.
    pub(crate) salt: u32,
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<dyn FsFile>,
}

impl SegmentFile {
    /// Reads exactly `bytes` bytes.
    pub(crate) fn read_span(&self, byte_offset: u64, bytes: usize) -> io::Result<Bytes> {
        let found = self.read_up_to(byte_offset, bytes)?;
        if found.len() < bytes {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        }
        Ok(found)
    }

    /// Reads `bytes` bytes, or fewer at the end of the file.
    pub(crate) fn read_up_to(&self, byte_offset: u64, bytes: usize) -> io::Result<Bytes> {
        if !self.file.is_direct() {
            let mut buf = vec![0; bytes];
            let count = self.file.read_at(&mut buf, byte_offset)?;
            buf.truncate(count);
            return Ok(buf.into());
        }
        let before = (byte_offset % DIRECT_ALIGN as u64) as usize;
        let mut buf = AlignedBuf::zeroed((before + bytes).next_multiple_of(DIRECT_ALIGN));
        let count = self.file.read_at(buf.bytes_mut(), byte_offset - before as u64)?;
        let (raw, start) = buf.into_raw();
        let (from, to) = (before.min(count), (before + bytes).min(count));
        Ok(Bytes::from(raw).slice(start + from..start + to))
    }
}

/// What one segment has of one ledger.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Presence {
    /// Bytes of its records here that are still needed.
    pub(crate) live_bytes: u64,
    /// The lowest and highest entry id whose record was ever put here by a live ledger; `first > last`: none.
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// One bit per kind of record, live or not.
    kinds: u8,
}

impl Default for Presence {
    fn default() -> Self {
        Self {
            live_bytes: 0,
            first: u64::MAX,
            last: 0,
            kinds: 0,
        }
    }
}

impl Presence {
    /// Whether a record is here that would bring a deleted ledger back if its deletion were forgotten.
    pub(crate) fn has_content(&self) -> bool {
        self.kinds & !bit(Kind::Deleted) != 0
    }
}

fn bit(kind: Kind) -> u8 {
    1 << (kind as u8)
}

/// A segment in use.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) file: Arc<SegmentFile>,
    /// Length of the file.
    pub(crate) file_bytes: u64,
    /// The first byte that is no data; final once `closed`.
    pub(crate) end: u64,
    /// The highest group sequence number in it or before it.
    pub(crate) sequence: u64,
    /// All ledger ids given out when it was last written are below this.
    pub(crate) ledger_next: u64,
    /// No longer written.
    pub(crate) closed: bool,
    /// Has a durable side file.
    pub(crate) indexed: bool,
    /// Its header survives a crash.
    pub(crate) header_durable: bool,
    /// Not to be rewritten: something in it could not be read.
    pub(crate) pinned: bool,
    /// Its file could not be removed; the next start tries again.
    pub(crate) stuck: bool,
    pub(crate) live_bytes: u64,
    pub(crate) ledgers: HashMap<LedgerId, Presence>,
    pub(crate) damages: Vec<Damage>,
}

impl Segment {
    pub(crate) fn new(file: Arc<SegmentFile>, file_bytes: u64) -> Self {
        Self {
            file,
            file_bytes,
            end: 0,
            sequence: 0,
            ledger_next: 0,
            closed: false,
            indexed: false,
            header_durable: false,
            pinned: false,
            stuck: false,
            live_bytes: 0,
            ledgers: HashMap::new(),
            damages: Vec::new(),
        }
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.closed && self.live_bytes == 0
    }

    /// A record of an entry is here; `live`: it is the one that the ledger's index names.
    pub(crate) fn note_entry(
        &mut self,
        ledger: LedgerId,
        kind: Kind,
        entry: u64,
        body_bytes: usize,
        live: bool,
    ) {
        let presence = self.ledgers.entry(ledger).or_default();
        presence.kinds |= bit(kind);
        if live {
            presence.first = presence.first.min(entry);
            presence.last = presence.last.max(entry);
            let bytes = record_bytes(body_bytes) as u64;
            presence.live_bytes += bytes;
            self.live_bytes += bytes;
        }
    }

    /// A fact about a ledger is here.
    pub(crate) fn note_fact(&mut self, ledger: LedgerId, kind: Kind, live: bool) {
        let presence = self.ledgers.entry(ledger).or_default();
        presence.kinds |= bit(kind);
        if live {
            presence.live_bytes += FACT_BYTES;
            self.live_bytes += FACT_BYTES;
        }
    }
}

/// All segments.
#[derive(Debug, Default)]
pub(crate) struct Segments {
    pub(crate) by_id: BTreeMap<u32, Segment>,
    /// Deleted ledgers that some segment still has records of, and the segment with the record of the deletion.
    pub(crate) deleted: HashMap<LedgerId, u32>,
}

impl Segments {
    pub(crate) fn file(&self, segment: u32) -> Option<Arc<SegmentFile>> {
        self.by_id.get(&segment).map(|s| Arc::clone(&s.file))
    }

    /// Some live bytes of a ledger in a segment are needed no more.
    pub(crate) fn release(&mut self, segment: u32, ledger: LedgerId, bytes: u64) {
        let Some(segment) = self.by_id.get_mut(&segment) else {
            return;
        };
        if let Some(presence) = segment.ledgers.get_mut(&ledger) {
            let bytes = bytes.min(presence.live_bytes);
            presence.live_bytes -= bytes;
            segment.live_bytes -= bytes;
        }
    }

    /// The deletion of a ledger is durable in segment `recorded_in`.
    pub(crate) fn on_deleted(&mut self, ledger: LedgerId, recorded_in: u32) {
        for segment in self.by_id.values_mut() {
            if let Some(presence) = segment.ledgers.get_mut(&ledger) {
                segment.live_bytes -= presence.live_bytes;
                presence.live_bytes = 0;
            }
        }
        if let Some(segment) = self.by_id.get_mut(&recorded_in) {
            segment.note_fact(ledger, Kind::Deleted, false);
        }
        self.deleted.insert(ledger, recorded_in);
        self.settle_deletion(ledger);
    }

    /// Decides anew whether the record of a deletion is needed.
    pub(crate) fn settle_deletion(&mut self, ledger: LedgerId) {
        let Some(&recorded_in) = self.deleted.get(&ledger) else {
            return;
        };
        let content = |(id, s): (&u32, &Segment)| {
            (s.ledgers.get(&ledger).is_some_and(Presence::has_content)).then_some(*id)
        };
        let mut with_content = self.by_id.iter().filter_map(content).peekable();
        let forgotten = with_content.peek().is_none();
        let needed = with_content.any(|id| id != recorded_in);
        if let Some(segment) = self.by_id.get_mut(&recorded_in)
            && let Some(presence) = segment.ledgers.get_mut(&ledger)
        {
            segment.live_bytes -= presence.live_bytes;
            presence.live_bytes = if needed { FACT_BYTES } else { 0 };
            segment.live_bytes += presence.live_bytes;
        }
        if forgotten {
            self.deleted.remove(&ledger);
        }
    }

    /// The file of a dead segment is gone for good.
    pub(crate) fn on_removed(&mut self, segment: u32) {
        let Some(removed) = self.by_id.remove(&segment) else {
            return;
        };
        for ledger in removed.ledgers.into_keys() {
            if self.deleted.get(&ledger) == Some(&segment) {
                // It was dead, so no other segment has anything of that ledger.
                self.deleted.remove(&ledger);
            } else {
                self.settle_deletion(ledger);
            }
        }
    }
}

/// The name of a segment's file.
pub(crate) fn file_name(segment: u32) -> String {
    format!("{segment:08x}.seg")
}

/// The name of a segment's side file.
pub(crate) fn side_file_name(segment: u32) -> String {
    format!("{segment:08x}.idx")
}

/// The segment whose file or side file has this name, with the ending.
pub(crate) fn parse_name(name: &str) -> Option<(u32, &str)> {
    let (stem, ending) = name.split_once('.')?;
    let plain = stem.len() == 8 && stem.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let id = u32::from_str_radix(stem, 16).ok()?;
    (plain && matches!(ending, "seg" | "idx")).then_some((id, ending))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use pharos_runtime::fs::{FaultFs, OpenHow};

    use super::*;

    fn segments(count: u32) -> Segments {
        let fs = FaultFs::new(0);
        let mut segments = Segments::default();
        for id in 0..count {
            let path = Path::new("/d").join(file_name(id));
            let file = fs.mount().open(&path, OpenHow::CREATE).unwrap();
            let file = Arc::new(SegmentFile {
                id,
                salt: 0,
                path,
                file,
            });
            let mut segment = Segment::new(file, 0);
            segment.closed = true;
            segments.by_id.insert(id, segment);
        }
        segments
    }

    fn live(segments: &Segments) -> Vec<u64> {
        segments.by_id.values().map(|s| s.live_bytes).collect()
    }

    #[test]
    fn a_deletion_is_needed_while_another_segment_has_content() {
        let mut segments = segments(3);
        let ledger = LedgerId(1);
        for id in [0, 1] {
            segments
                .by_id
                .get_mut(&id)
                .unwrap()
                .note_entry(ledger, Kind::Entry, 0, 8, true);
        }
        segments.on_deleted(ledger, 2);
        assert_eq!(live(&segments), [0, 0, FACT_BYTES]);
        segments.on_removed(0);
        assert_eq!(live(&segments), [0, FACT_BYTES]);
        segments.on_removed(1);
        assert_eq!(live(&segments), [0]);
        assert!(segments.deleted.is_empty());
    }

    #[test]
    fn a_deletion_beside_all_content_goes_with_it() {
        let mut segments = segments(2);
        let ledger = LedgerId(1);
        segments
            .by_id
            .get_mut(&1)
            .unwrap()
            .note_entry(ledger, Kind::Entry, 0, 8, true);
        segments.on_deleted(ledger, 1);
        assert_eq!(live(&segments), [0, 0]);
        assert_eq!(segments.deleted.len(), 1);
        segments.on_removed(1);
        assert!(segments.deleted.is_empty());
    }

    #[test]
    fn names_are_parsed_strictly() {
        assert_eq!(parse_name(&file_name(0x1f)), Some((0x1f, "seg")));
        assert_eq!(parse_name(&side_file_name(7)), Some((7, "idx")));
        for name in [
            "LOCK",
            "00000001.tmp",
            "1.seg",
            "+0000001.seg",
            "00000001.seg.tmp",
            "0000000G.seg",
        ] {
            assert_eq!(parse_name(name), None, "{name}");
        }
    }
}
