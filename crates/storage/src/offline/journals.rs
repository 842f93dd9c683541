//! Walking through a journal as a start does, without changing it.
//!
//! The rules about what is torn and what is damaged are those of [`scan`]; which segments count, and where the
//! walk begins, is decided as in `recovery::replay`.

use std::path::Path;
use std::sync::Arc;

use pharos_runtime::fs::{Fs, OpenHow};
use pharos_storage_format::checkpoint::Mark;
use pharos_storage_format::file::SegmentFile;
use pharos_storage_format::group::GroupHeader;
use pharos_storage_format::names::{SEGMENT, file_name};
use pharos_storage_format::record::RecordHeader;
use pharos_storage_format::scan::{self, Bad, Bounds, Event};
use pharos_storage_format::segment_header::{NO_SEGMENT, SegmentEnd, SegmentHeader};
use pharos_storage_format::superblock::Superblock;

use super::OfflineError;
use super::dirs::Dir;
use super::findings::{Effect, Finding, Remedy};

/// A segment file.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) file: SegmentFile,
    pub(super) file_bytes: u64,
    pub(super) header: Option<SegmentHeader>,
}

/// Journal of the store.
#[derive(Debug)]
pub(super) struct Journal {
    pub(super) number: usize,
    pub(super) superblock: Superblock,
    /// With data, rising.
    pub(super) segments: Vec<Segment>,
    /// Prepared and never used.
    pub(super) prepared: Vec<Segment>,
    pub(super) mark: Mark,
    pub(super) clean: bool,
}

/// Location within a journal.
#[derive(Clone, Copy, Debug)]
pub(super) struct JournalPlace<'a> {
    pub(super) journal: usize,
    pub(super) path: &'a Path,
    pub(super) segment: u32,
}

/// Receiver of the content of a journal behind its mark, in order.
pub(super) trait Visitor {
    /// A record; no body when that is damaged.
    fn record(
        &mut self,
        place: JournalPlace<'_>,
        header: &RecordHeader,
        body: Option<&[u8]>,
        byte_offset: u64,
    );

    /// A stretch that holds something else than what was written, and it is not known what that was.
    fn bad(&mut self, place: JournalPlace<'_>, bad: &Bad);

    /// A group is over.
    fn group(&mut self, _place: JournalPlace<'_>, _group: &GroupHeader) {}

    /// A segment is over: where its data ends, and where the walk through it began.
    fn segment(&mut self, _place: JournalPlace<'_>, _from: u64, _end: u64) {}

    /// Something about the journal as a whole.
    fn finding(&mut self, _finding: Finding) {}

    /// Segments are missing: whatever they held is not known.
    fn missing(&mut self, _journal: usize, _path: &Path, _what: &'static str) {}
}

/// The segments of a journal.
pub(super) fn open(fs: &dyn Fs, dir: &Dir, mark: Mark, clean: bool) -> Result<Option<Journal>, OfflineError> {
    let Some(superblock) = dir.superblock else {
        return Ok(None);
    };
    let mut journal = Journal {
        number: dir.number as usize,
        superblock,
        segments: Vec::new(),
        prepared: Vec::new(),
        mark,
        clean,
    };
    let (mut used, mut known) = (Vec::new(), Vec::new());
    for id in dir.ids(SEGMENT) {
        let path = dir.path.join(file_name(id, SEGMENT));
        let file = fs
            .open(&path, OpenHow::READ)
            .map_err(OfflineError::io("open", &path))?;
        let file_bytes = file.len().map_err(OfflineError::io("measure", &path))?;
        let file = SegmentFile {
            id,
            salt: superblock.salt(id),
            path,
            file,
        };
        let (header, has_group) =
            scan::peek(&file, u64::from(superblock.block_bytes)).unwrap_or((None, true));
        used.push(header.is_some() || has_group || id <= mark.segment && mark != Mark::default());
        known.push((id, header, has_group));
        journal.segments.push(Segment {
            file,
            file_bytes,
            header,
        });
    }
    let count = used.iter().rposition(|used| *used).map_or(0, |last| last + 1);
    journal.prepared = journal.segments.split_off(count);
    let mut may_be_used = scan::may_be_used(&known).into_iter();
    let passed_over = journal
        .segments
        .extract_if(.., |_| !may_be_used.next().unwrap_or(true));
    journal.prepared.extend(passed_over);
    Ok(Some(journal))
}

impl Journal {
    fn block(&self) -> u64 {
        u64::from(self.superblock.block_bytes)
    }

    /// Returns the number of segments that lie wholly before the mark.
    pub(super) fn old(&self) -> usize {
        self.segments
            .partition_point(|segment| segment.file.id < self.mark.segment)
    }

    fn place<'a>(&self, segment: &'a Segment) -> JournalPlace<'a> {
        JournalPlace {
            journal: self.number,
            path: &segment.file.path,
            segment: segment.file.id,
        }
    }

    /// Returns the end of a segment's data, if the next one states it.
    fn known_end(&self, at: usize) -> Option<u64> {
        let next = self.segments.get(at + 1)?.header?;
        let this = self.segments.get(at)?;
        (next.previous.segment == this.file.id).then_some(next.previous.end)
    }

    /// Bytes that a walk will read, about.
    pub(super) fn live_bytes(&self) -> u64 {
        let live = self.segments.iter().enumerate().skip(self.old());
        live.map(|(at, segment)| self.known_end(at).unwrap_or(segment.file_bytes))
            .sum()
    }

    /// Tells `visitor` of everything behind the mark.
    pub(super) fn walk(&self, dir: &Path, visitor: &mut dyn Visitor) {
        let mut previous = SegmentEnd {
            segment: NO_SEGMENT,
            end: 0,
            sequence: self.mark.sequence,
        };
        let old = self.old();
        let marked = self.mark != Mark::default();
        if marked && !self.clean && old == self.segments.len() {
            if self.segments.is_empty() {
                let what = "the segments of this journal are missing, and the store was not stopped cleanly";
                visitor.finding(Finding::new(Effect::DoesNotOpen, dir, 0, what));
            }
            visitor.missing(
                self.number,
                dir,
                "the segments behind the checkpoint's mark are missing",
            );
        }
        for at in old..self.segments.len() {
            self.walk_segment(at, &mut previous, visitor);
        }
    }

    fn walk_segment(&self, at: usize, previous: &mut SegmentEnd, visitor: &mut dyn Visitor) {
        let segment = &self.segments[at];
        let place = self.place(segment);
        let last = at + 1 == self.segments.len();
        let marked = segment.file.id == self.mark.segment && self.mark != Mark::default();
        self.check_chain(segment, at == self.old() && !marked, *previous, visitor);
        if let Some(header) = segment.header {
            previous.sequence = previous.sequence.max(header.previous.sequence);
        }
        let from = if marked {
            self.mark.byte_offset
        } else {
            self.block()
        };
        if marked && from > segment.file_bytes {
            let what = "the checkpoint's mark is not inside this segment";
            visitor.missing(self.number, place.path, what);
        }
        let mut bounds = Bounds {
            block_bytes: self.block(),
            file_bytes: segment.file_bytes,
            from,
            sequence: previous.sequence,
            end: self.known_end(at),
        };
        let mut highest = bounds.sequence;
        if last {
            let swept = scan::find_end(&segment.file, &bounds).swept;
            self.tell_of_torn(segment, &bounds, swept.end, visitor);
            highest = swept.sequence;
            bounds.end = Some(swept.end);
        }
        let mut first_sequence = None;
        let swept = scan::sweep(&segment.file, &bounds, &mut |event| match event {
            Event::Begin { .. } => {}
            Event::Record {
                header,
                body,
                byte_offset,
            } => visitor.record(place, header, body, byte_offset),
            // Its record comes as well, and says more.
            Event::Bad(bad) if bad.known => {}
            Event::Bad(bad) => visitor.bad(place, &bad),
            Event::End { group, .. } => {
                first_sequence.get_or_insert(group.sequence);
                visitor.group(place, group);
            }
        });
        visitor.segment(place, from, swept.end);
        if segment.header.is_none() {
            let follows = first_sequence.is_none_or(|first| first == previous.sequence + 1);
            self.tell_of_header(segment, at == 0 || follows, visitor);
        }
        *previous = SegmentEnd {
            segment: segment.file.id,
            end: swept.end.max(from),
            sequence: swept.sequence.max(highest),
        };
    }

    /// Checks that a segment follows the one before it, or the mark.
    fn check_chain(&self, segment: &Segment, first: bool, previous: SegmentEnd, visitor: &mut dyn Visitor) {
        let Some(header) = segment.header else { return };
        let missing = if first {
            header.misses_groups_after(&self.mark)
        } else {
            header.misses_groups_between(&previous)
        };
        if missing {
            visitor.missing(
                self.number,
                &segment.file.path,
                "a segment before this one is missing",
            );
        }
    }

    /// The last segment ends at `end`; says so when there is something behind it.
    fn tell_of_torn(&self, segment: &Segment, bounds: &Bounds, end: u64, visitor: &mut dyn Visitor) {
        let mut torn = None;
        let swept = scan::sweep(&segment.file, bounds, &mut |event| {
            let place = match event {
                Event::Bad(bad) => bad.start,
                Event::End { byte_offset, .. } => byte_offset.saturating_sub(1),
                Event::Begin { .. } | Event::Record { .. } => return,
            };
            if place >= end {
                torn.get_or_insert(place);
            }
        });
        if torn.is_some() {
            let what = "a write that a crash has torn; nothing from here on was ever acknowledged";
            let finding = Finding::new(Effect::Harmless, &segment.file.path, end, what);
            visitor.finding(finding.bytes(swept.end.saturating_sub(end)).remedy(Remedy::Start));
        }
    }

    fn tell_of_header(&self, segment: &Segment, follows: bool, visitor: &mut dyn Visitor) {
        let (effect, what) = if follows {
            let what = "the segment has no header, which a crash just after its beginning leaves; its groups follow \
                        those before it";
            (Effect::Harmless, what)
        } else {
            (
                Effect::MayHide,
                "the segment has no header, and groups before its first one are missing",
            )
        };
        visitor.finding(Finding::new(effect, &segment.file.path, 0, what));
    }

    /// Damage before the mark, which a start does not read: whatever it hit is in the entry logs.
    pub(super) fn sweep_old(&self, tell: &mut dyn FnMut(Finding)) {
        for (at, segment) in self.segments.iter().enumerate().take(self.old() + 1) {
            let marked = segment.file.id == self.mark.segment;
            if segment.file.id > self.mark.segment || self.mark == Mark::default() {
                break;
            }
            let end = if marked {
                Some(self.mark.byte_offset)
            } else {
                self.known_end(at)
            };
            let bounds = Bounds {
                block_bytes: self.block(),
                file_bytes: segment.file_bytes,
                from: self.block(),
                sequence: segment.header.map_or(0, |header| header.previous.sequence),
                end,
            };
            scan::sweep(&segment.file, &bounds, &mut |event| {
                if let Event::Bad(bad) = event {
                    let what =
                        "damaged, but before the checkpoint's mark: what was here is in the entry logs";
                    let finding = Finding::new(Effect::Harmless, &segment.file.path, bad.start, what);
                    tell(finding.bytes(bad.end - bad.start));
                }
            });
        }
    }
}

/// Opens the journals; shared with a caller that only wants the records.
pub(super) fn open_all(
    fs: &Arc<dyn Fs>,
    dirs: &[Dir],
    marks: &[Mark],
    clean: bool,
) -> Result<Vec<Option<Journal>>, OfflineError> {
    let mark = |dir: &Dir| marks.get(dir.number as usize).copied().unwrap_or_default();
    dirs.iter()
        .map(|dir| open(&**fs, dir, mark(dir), clean))
        .collect()
}
