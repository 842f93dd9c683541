//! Part of a read call that is not in memory: a walk from record to record through extents.
//!
//! A job goes forward only. A record that lies in one piece is handed out as a slice of it; one that crosses into the
//! next is put together in `carry`. Every record is checked: it must be the one that is expected there, and whole.
//!
//! Where a header is damaged, the walk looks for the next one of the ledger (by salt and checksum), so that damage
//! hides only the entry that it hit.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;

use pharos_ledger::{ReadEntry, ReadError};
use pharos_runtime::fs::PieceSize;
use pharos_storage_format::file::LogFile;
use pharos_storage_format::record::{Kind, RECORD_ALIGN, RECORD_HEADER_BYTES, RecordHeader};
use pharos_types::{EntryId, LedgerId};

use super::carries;
use super::extents::{EXTENT_BYTES, Extents};
use super::places::EntryStart;
use super::pool::Pool;

/// A stretch of a log that has wanted entries.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) file: Arc<LogFile>,
    /// Start of the run.
    pub(crate) start: u64,
    /// Start of the walk, at a record's start, and the entry there.
    pub(crate) at: u64,
    pub(crate) entry: u64,
    /// End of the run's last record, and the id after its entry.
    pub(crate) end: u64,
    pub(crate) end_entry: u64,
}

impl Span {
    /// The extents that have nothing but the run.
    fn inside(&self) -> Range<u32> {
        let first = self.start.div_ceil(EXTENT_BYTES) as u32;
        first..((self.end / EXTENT_BYTES) as u32).max(first)
    }
}

/// Resource that a job needs to continue.
#[derive(Debug)]
pub(crate) enum Need {
    /// This extent of this log, at least up to `end` (counted from the extent's start).
    Extent {
        file: Arc<LogFile>,
        number: u32,
        end: u64,
        /// Number of further extents with data that the job still wants of the run, and number of further extents of
        /// the run.
        wanted: u32,
        further: u32,
        /// The extents that have nothing but the run.
        inside: Range<u32>,
    },
    Done(Result<Found, ReadError>),
}

/// Entries that a job found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) entries: Vec<ReadEntry>,
    /// True if there is no room for another entry.
    pub(crate) is_full: bool,
}

impl Need {
    /// Returns the number of extents to read at once: what is wanted, and up to `ahead` in all as far as the run
    /// goes.
    pub(crate) fn extents(&self, ahead: u32) -> u32 {
        match self {
            Self::Extent { wanted, further, .. } => {
                let all = further.saturating_add(1);
                wanted.saturating_add(1).max(all.min(ahead))
            }
            Self::Done(_) => 0,
        }
    }
}

/// Pieces by their first extents, each with how many bytes of records were handed out of it.
pub(crate) type HandedOut = SmallVec<[(u32, u64); 2]>;

/// A job for at least so many bytes is one of many by a reader that goes through a backlog from front to back.
const STREAM_BYTES: usize = 512 << 10;

/// A job that has found so much may end although there is room for more. Less would not pay for another call.
const MUCH_BYTES: usize = 512 << 10;

/// Extents of a log that may be wanted soon.
#[derive(Clone, Debug)]
pub(crate) struct Ahead {
    pub(crate) file: Arc<LogFile>,
    pub(crate) number: u32,
    /// The number after the last.
    pub(crate) end: u32,
    /// Extents that have nothing but one run.
    pub(crate) inside: Range<u32>,
}

/// A read under way.
#[derive(Debug)]
pub(crate) struct ReadJob {
    pub(crate) ledger: LedgerId,
    /// The entry that is wanted next.
    pub(crate) next: u64,
    entries_max: usize,
    bytes_max: usize,
    spans: VecDeque<Span>,
    found: Vec<ReadEntry>,
    found_bytes: usize,
    pool: Arc<Pool>,
    /// The start of a record whose rest is in the next extent; it begins at the span's `at`.
    carry: Vec<u8>,
    /// The pieces that `carry` is from: the first extent of each, and where it ends.
    carried: SmallVec<[(u32, u64); 2]>,
    /// Range of the records that the last piece completed and that were handed out.
    handed: Range<u64>,
    /// The walk lost its way at this place and looks for the next header.
    lost_at: Option<u64>,
    /// Something was wrong with the wanted entry.
    failed: Option<ReadError>,
    full: bool,
    /// Others wait for the same device.
    is_one_of_many: bool,
}

impl ReadJob {
    pub(crate) fn new(
        ledger: LedgerId,
        first: u64,
        spans: VecDeque<Span>,
        entries_max: usize,
        bytes_max: usize,
        pool: &Arc<Pool>,
    ) -> Self {
        Self {
            pool: Arc::clone(pool),
            ledger,
            next: first,
            entries_max,
            bytes_max,
            spans,
            found: Vec::new(),
            found_bytes: 0,
            carry: Vec::new(),
            carried: SmallVec::new(),
            handed: 0..0,
            lost_at: None,
            failed: None,
            full: false,
            is_one_of_many: false,
        }
    }

    #[cfg(test)]
    pub(crate) fn empty(ledger: LedgerId, first: u64) -> Self {
        Self::new(ledger, first, VecDeque::new(), 1, 1, &Arc::default())
    }

    /// Returns what the job needs now.
    pub(crate) fn need(&mut self) -> Need {
        while let Some(span) = self.spans.front() {
            if self.full || self.failed.is_some() {
                break;
            }
            let from = span.at + self.carry.len() as u64;
            if self.next >= span.end_entry || from >= span.end {
                self.end_span();
                continue;
            }
            let number = from / EXTENT_BYTES;
            let last = (span.end - 1) / EXTENT_BYTES;
            let left = self.bytes_max.saturating_sub(self.found_bytes) as u64;
            let wanted_end = span.at.saturating_add(left).saturating_sub(1).max(from);
            return Need::Extent {
                file: Arc::clone(&span.file),
                number: number as u32,
                end: (span.end - number * EXTENT_BYTES).min(EXTENT_BYTES),
                wanted: ((wanted_end / EXTENT_BYTES).min(last) - number) as u32,
                further: (last - number) as u32,
                inside: span.inside(),
            };
        }
        Need::Done(match self.failed.take() {
            Some(error) if self.found.is_empty() => Err(error),
            _ => Ok(Found {
                entries: std::mem::take(&mut self.found),
                is_full: self.full,
            }),
        })
    }

    /// True if walking through it takes too long for a thread that has other things to do.
    pub(crate) fn is_large(&self) -> bool {
        self.bytes_max > 2 * EXTENT_BYTES as usize
    }

    /// Returns the extents that a reader continuing after a finished job is likely to want next: at most `extents`.
    pub(crate) fn what_follows(&self, mut extents: u32) -> VecDeque<Ahead> {
        let mut all = VecDeque::new();
        if !self.full || self.bytes_max < STREAM_BYTES {
            return all;
        }
        for span in &self.spans {
            let number = (span.at / EXTENT_BYTES) as u32;
            let end = (span.end.div_ceil(EXTENT_BYTES) as u32).min(number.saturating_add(extents));
            if number < end {
                extents -= end - number;
                all.push_back(Ahead {
                    file: Arc::clone(&span.file),
                    number,
                    end,
                    inside: span.inside(),
                });
            }
        }
        all
    }

    /// Returns the start of the next wanted record, if the walk has reached it.
    fn at(&self) -> Option<carries::CarryKey> {
        let span = self.spans.front()?;
        let is_there = span.entry == self.next && self.lost_at.is_none() && self.failed.is_none();
        is_there.then_some((span.file.dir, span.file.id, span.at))
    }

    /// Goes on with the start of a record that an earlier job left behind.
    pub(super) fn resume(&mut self, extents: &Extents) {
        if self.carry.is_empty()
            && let Some(start) = self.at().and_then(|at| extents.resume(at))
        {
            self.carry = start;
        }
    }

    /// Says whether others wait. Then the job ends where nothing is left over, instead of when it has all it may.
    pub(super) fn among_many(&mut self, is_one_of_many: bool) {
        self.is_one_of_many = is_one_of_many;
    }

    /// Ends the job, which needs the device to go on, where it has found much already and what the device would bring is more than
    /// it still may take: then nothing is read that would wait in memory for the next job.
    pub(super) fn end_early(&mut self) -> bool {
        let left = self.bytes_max.saturating_sub(self.found_bytes);
        self.full |= self.is_one_of_many && self.found_bytes >= MUCH_BYTES && left < PieceSize::Large.bytes();
        self.full
    }

    /// Leaves the start of the next record behind, for the job that goes on there.
    pub(super) fn leave(&mut self, extents: &Extents) {
        // One that is whole found no room: it is where it was found, and its run may end with it.
        let is_start =
            |span: &Span| !self.carry.is_empty() && self.carry.len() < self.total_bytes(span, &self.carry);
        let Some(at) = self.at().filter(|_| self.spans.front().is_some_and(is_start)) else {
            return;
        };
        let (dir, log, start) = at;
        self.handed = start..start + self.carry.len() as u64;
        if let Some((number, end)) = self.carried.pop() {
            for (number, bytes) in self.handed_out(number, end) {
                extents.handed_out((dir, log, number), bytes);
            }
        }
        extents.leave(at, std::mem::take(&mut self.carry));
    }

    /// Returns the position at which the job continues: log and byte.
    pub(super) fn position(&self) -> (u32, u64) {
        self.spans.front().map_or((0, 0), |span| (span.file.id, span.at))
    }

    /// The device refused.
    pub(crate) fn fail(&mut self, error: ReadError) {
        self.failed.get_or_insert(error);
    }

    /// The walk came to the end of a run. What was wanted in it and did not turn up is damaged.
    fn end_span(&mut self) {
        let Some(span) = self.spans.pop_front() else {
            return;
        };
        self.carry.clear();
        self.carried.clear();
        // From run to run: who reads the neighbours comes by here about now, and wants the rest of what was read for this one.
        self.full |= self.is_one_of_many && self.found_bytes >= MUCH_BYTES;
        if self.next < span.end_entry {
            let at = self.lost_at.unwrap_or(span.at);
            self.failed = Some(damaged(self.ledger, self.next, &span.file, at));
        }
        self.lost_at = None;
    }

    /// Returns the start of the next entry's record, for a job that continues there, as far as the walk has reached
    /// it.
    pub(crate) fn place(&self) -> Option<(u16, EntryStart)> {
        let (dir, log, at) = self.at()?;
        let place = EntryStart {
            ledger: self.ledger,
            entry: self.next,
            log,
            at: u32::try_from(at).ok()?,
        };
        Some((dir, place))
    }

    /// Walks through a piece that begins with extent `number` and has the one that was asked for. Returns of which pieces records
    /// were handed out.
    pub(crate) fn take(&mut self, number: u32, piece: &Bytes) -> HandedOut {
        let Some(mut span) = self.spans.pop_front() else {
            return HandedOut::new();
        };
        self.handed = 0..0;
        let start = u64::from(number) * EXTENT_BYTES;
        let inside = usize::try_from(span.end.saturating_sub(start)).unwrap_or(usize::MAX);
        let extent = piece.slice(..piece.len().min(inside));
        let end = start + extent.len() as u64;
        self.finish_carry(&mut span, start, &extent);
        let taken = self.found.len();
        while !self.full && self.failed.is_none() && self.carry.is_empty() && self.next < span.end_entry {
            let at = usize::try_from(span.at.saturating_sub(start)).unwrap_or(usize::MAX);
            if span.at < start || at >= extent.len() {
                break;
            }
            let rest = extent.slice(at..);
            if !self.walk(&mut span, &rest) {
                // All the room that the record needs, and no more: the entry will keep it.
                let total = self.total_bytes(&span, &rest);
                self.carry = self.pool.record(total.max(rest.len()));
                self.carry.extend_from_slice(&rest);
            }
        }
        let handed = self.handed_out(number, end);
        if self.carry.is_empty() || span.at >= start {
            self.carried.clear();
        }
        if !self.carry.is_empty() {
            self.carried.push((number, end));
        }
        self.spans.push_front(span);
        self.unshare(taken, piece.len());
        handed
    }

    /// Returns the bytes handed out of a piece and of those from which records crossed into it.
    fn handed_out(&self, number: u32, end: u64) -> HandedOut {
        let pieces = self.carried.iter().copied().chain([(number, end)]);
        let part = |(number, end): (u32, u64)| {
            let start = u64::from(number) * EXTENT_BYTES;
            let bytes = self
                .handed
                .end
                .min(end)
                .saturating_sub(self.handed.start.max(start));
            (bytes > 0).then_some((number, bytes))
        };
        pieces.filter_map(part).collect()
    }

    /// Adds to the record that began in an earlier extent.
    fn finish_carry(&mut self, span: &mut Span, start: u64, extent: &Bytes) {
        while !self.carry.is_empty() && !self.full && self.failed.is_none() {
            let from = span.at + self.carry.len() as u64;
            let Some(at) = from.checked_sub(start).and_then(|at| usize::try_from(at).ok()) else {
                return;
            };
            let total = self.total_bytes(span, &self.carry);
            let missing = total.saturating_sub(self.carry.len());
            self.carry.reserve_exact(missing);
            let rest = extent.get(at..).unwrap_or_default();
            self.carry
                .extend_from_slice(rest.get(..missing.min(rest.len())).unwrap_or_default());
            if self.carry.len() < total {
                // The rest is in the next extent.
                return;
            }
            if total == RECORD_HEADER_BYTES && self.total_bytes(span, &self.carry) > total {
                continue;
            }
            let record = self.pool.share(std::mem::take(&mut self.carry));
            let before = span.at;
            self.walk(span, &record);
            let walked = usize::try_from(span.at - before).unwrap_or(usize::MAX);
            // A walk that is lost goes on in small steps.
            self.carry = record.get(walked..).unwrap_or_default().to_vec();
            if self.next >= span.end_entry {
                return;
            }
        }
    }

    /// The length of the record that begins with `start`, as far as that is known.
    fn total_bytes(&self, span: &Span, start: &[u8]) -> usize {
        let header = RecordHeader::decode(start, span.file.salt);
        header
            .filter(|header| self.is_expected(span, header))
            .map_or(RECORD_HEADER_BYTES, |header| header.total_bytes())
    }

    /// True if a header can be the next of this run.
    fn is_expected(&self, span: &Span, header: &RecordHeader) -> bool {
        let ours = header.kind == Kind::Entry && header.ledger == self.ledger.0;
        let place = if self.lost_at.is_some() {
            (span.entry..span.end_entry).contains(&header.value)
        } else {
            header.value == span.entry
        };
        ours && place
    }

    /// Goes one record, or one small step, forward in `rest`, which begins at the span's place. `false`: more is needed.
    fn walk(&mut self, span: &mut Span, rest: &Bytes) -> bool {
        if rest.len() < RECORD_HEADER_BYTES {
            return false;
        }
        let header = RecordHeader::decode(rest, span.file.salt).filter(|h| self.is_expected(span, h));
        let Some(header) = header else {
            self.lost_at.get_or_insert(span.at);
            span.at += RECORD_ALIGN as u64;
            return true;
        };
        if header.value == self.next && !self.has_room(header.body_bytes) {
            self.full = true;
            return true;
        }
        if rest.len() < header.total_bytes() {
            return false;
        }
        if header.value > self.next {
            // The wanted one was where the walk was lost.
            let at = self.lost_at.unwrap_or(span.at);
            self.failed = Some(damaged(self.ledger, self.next, &span.file, at));
            return true;
        }
        self.lost_at = None;
        if header.value == self.next {
            self.take_entry(span, &header, rest);
        }
        span.entry = header.value + 1;
        span.at += header.total_bytes() as u64;
        true
    }

    fn take_entry(&mut self, span: &Span, header: &RecordHeader, rest: &Bytes) {
        let bytes = self.found_bytes.saturating_add(header.body_bytes as usize);
        let Some(body) = header.body(rest) else {
            self.failed = Some(damaged(self.ledger, self.next, &span.file, span.at));
            return;
        };
        self.found.push(ReadEntry {
            id: EntryId(self.next),
            payload: rest.slice_ref(body),
        });
        self.found_bytes = bytes;
        if self.handed.is_empty() {
            self.handed.start = span.at;
        }
        self.handed.end = span.at + header.total_bytes() as u64;
        self.next += 1;
        self.full = self.found.len() >= self.entries_max || self.found_bytes >= self.bytes_max;
    }

    /// True if another entry may be taken; the first always.
    fn has_room(&self, body_bytes: u32) -> bool {
        let bytes = self.found_bytes.saturating_add(body_bytes as usize);
        self.found.is_empty() || (self.found.len() < self.entries_max && bytes <= self.bytes_max)
    }

    /// Slices keep a whole piece alive, so they are only handed out where much of it was wanted: half of an extent, or as much
    /// as one extent has of a longer piece, because a reader that goes on wants the rest next.
    fn unshare(&mut self, taken: usize, piece_bytes: usize) {
        let new = self.found.get_mut(taken..).unwrap_or_default();
        let wanted: usize = new.iter().map(|entry| entry.payload.len()).sum();
        if wanted < (piece_bytes / 2).min(EXTENT_BYTES as usize / 16 * 15) {
            for entry in new {
                entry.payload = Bytes::copy_from_slice(&entry.payload);
            }
        }
    }
}

fn damaged(ledger: LedgerId, entry: u64, file: &LogFile, byte_offset: u64) -> ReadError {
    ReadError::Damaged {
        ledger,
        entry: EntryId(entry),
        file: file.path.display().to_string(),
        byte_offset,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_handed_out_of_a_piece_is_the_part_that_the_records_have_in_it() {
        let mut job = ReadJob::empty(LedgerId(1), 0);
        let end = |number: u64| (number + 1) * EXTENT_BYTES;
        // It began in the middle of a piece: what lies before that belongs to another job.
        job.handed = end(4) - 5000..end(4) - 1000;
        assert_eq!(job.handed_out(4, end(4))[..], [(4, 4000)]);
        // A record that crosses is in both, and one that found no room is in none.
        job.carried.push((4, end(4)));
        job.handed = end(4) - 1000..end(4) + 300;
        assert_eq!(job.handed_out(5, end(5))[..], [(4, 1000), (5, 300)]);
        job.handed = 0..0;
        assert!(job.handed_out(5, end(5)).is_empty());
        // A long one has all of the pieces between.
        job.carried.push((5, end(5)));
        job.handed = end(4) - 1000..end(6);
        let all = [(4, 1000), (5, EXTENT_BYTES), (6, EXTENT_BYTES)];
        assert_eq!(job.handed_out(6, end(6))[..], all);
    }
}
