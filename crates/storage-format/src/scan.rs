//! Reading a journal segment, group by group.
//!
//! Two things look alike at first: a write that a crash has torn, and data that has gone bad. What tells them apart is
//! the sequence number up to which some later header says everything was synced ("proven"):
//!
//! ```text
//!  group   1    2    3    4          header of 4 says: synced up to 3
//!          ok   bad  ok   bad
//!               │         └ not proven: torn. Cut here; nothing from here on was ever acknowledged.
//!               └ proven: damage. Reported; what is around it is kept.
//! ```
//! What the device cannot read is damage in any case: it cannot be said that it was torn.

use std::io;

use pharos_runtime::fs::DIRECT_ALIGN;

use crate::file::SegmentFile;
use crate::group::{GROUP_HEADER_BYTES, GroupHeader};
use crate::record::{RECORD_ALIGN, RECORD_HEADER_BYTES, RecordHeader};
use crate::round_up;
use crate::segment_header::{NO_SEGMENT, SegmentHeader};
use crate::window::Window;

/// Length of the search for another group in a segment without a header and a first group, in bytes: more than the
/// largest entry.
const LOOK_BYTES: usize = 17 << 20;

/// Bounds of a segment that are known before it is read.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Groups begin at multiples of this.
    pub block_bytes: u64,
    /// Length of the file.
    pub file_bytes: u64,
    /// Offset to begin at: a group's start.
    pub from: u64,
    /// The highest sequence number before that.
    pub sequence: u64,
    /// End of the data, if known.
    pub end: Option<u64>,
}

/// A stretch that holds something else than what was written.
#[derive(Clone, Copy, Debug)]
pub struct Bad {
    /// Its first byte.
    pub start: u64,
    /// The first byte after it.
    pub end: u64,
    /// The sequence number of its group, or the lowest it can have had.
    pub sequence: u64,
    /// True if the record in it is known.
    pub known: bool,
}

/// Event of a scan, in order.
#[derive(Debug)]
pub enum Event<'a> {
    /// A group begins whose records have this many bytes.
    Begin {
        /// The bytes of all its records.
        record_bytes: u64,
    },
    /// A record; no body when that is damaged.
    Record {
        /// Header of the record.
        header: &'a RecordHeader,
        /// Body of the record.
        body: Option<&'a [u8]>,
        /// Offset of the record.
        byte_offset: u64,
    },
    /// Something that is no group or record.
    Bad(Bad),
    /// A group is over.
    End {
        /// Offset at which the next group may begin.
        byte_offset: u64,
        /// Header of the group.
        group: &'a GroupHeader,
    },
}

/// Result of a sweep.
#[derive(Clone, Copy, Debug)]
pub struct Swept {
    /// The highest sequence number.
    pub sequence: u64,
    /// The first byte after the last group.
    pub end: u64,
}

/// End of the last segment.
#[derive(Clone, Copy, Debug)]
pub struct End {
    /// The highest sequence number seen, torn or not, and where the data ends: behind the last group, or where a torn write
    /// begins.
    pub swept: Swept,
    /// The first byte behind the last group that a later header calls synced. From here on nothing says that the device has it.
    pub synced: u64,
}

/// Finds the end of the data in the last segment.
#[must_use]
pub fn find_end(file: &SegmentFile, bounds: &Bounds) -> End {
    let (mut synced, mut bads, mut groups) = (0, Vec::new(), Vec::new());
    let mut swept = sweep(file, bounds, &mut |event| match event {
        Event::End { group, byte_offset } => {
            synced = synced.max(group.synced);
            groups.push((group.sequence, byte_offset));
        }
        Event::Bad(bad) => bads.push(bad),
        Event::Begin { .. } | Event::Record { .. } => {}
    });
    bads.sort_unstable_by_key(|bad| bad.start);
    let block = bounds.block_bytes;
    let mut unproven = bads.iter().filter(|bad| bad.sequence > synced);
    if let Some(torn) = unproven.find(|bad| is_readable(file, bad.start, bad.end)) {
        tracing::info!(file = %file.path.display(), byte_offset = torn.start, "cut a torn write");
        swept.end = torn.start;
    } else {
        // There may be a group where the next one would begin.
        let at = round_up(swept.end, block);
        if at < bounds.file_bytes && !is_readable(file, at, at + block) {
            swept.end = (at + block).min(bounds.file_bytes);
        }
    }
    let proven = groups.partition_point(|(sequence, _)| *sequence <= synced);
    let proven = proven.checked_sub(1).and_then(|last| groups.get(last));
    End {
        swept,
        synced: proven.map_or(bounds.from, |(_, end)| *end),
    }
}

/// True if the device can read each page of a range; [`Window`] takes unreadable pages for zeros.
fn is_readable(file: &SegmentFile, start: u64, end: u64) -> bool {
    let page = DIRECT_ALIGN as u64;
    let mut at = start - start % page;
    while at < end {
        if let Err(error) = file.read_up_to(at, DIRECT_ALIGN) {
            tracing::error!(%error, file = %file.path.display(), byte_offset = at, "cannot read");
            return false;
        }
        at += page;
    }
    true
}

/// Tells `visit` of everything in a segment, while a thread reads on.
pub fn sweep(file: &SegmentFile, bounds: &Bounds, visit: &mut dyn FnMut(Event<'_>)) -> Swept {
    pharos_runtime::sync::thread::scope(|scope| {
        let end = bounds.end.unwrap_or(bounds.file_bytes).min(bounds.file_bytes);
        let mut window = Window::new(scope, file, (bounds.from, end));
        sweep_window(&mut window, file, bounds, visit)
    })
}

fn sweep_window(
    window: &mut Window<'_>,
    file: &SegmentFile,
    bounds: &Bounds,
    visit: &mut dyn FnMut(Event<'_>),
) -> Swept {
    // A file that is shorter than it is known to be has lost what is not there.
    let limit = bounds.end.unwrap_or(bounds.file_bytes);
    let mut swept = Swept {
        sequence: bounds.sequence,
        end: bounds.from.min(limit),
    };
    let mut at = bounds.from;
    let mut bad_from = None;
    while at + GROUP_HEADER_BYTES as u64 <= limit.min(bounds.file_bytes) {
        let group = GroupHeader::decode(window.get(at, GROUP_HEADER_BYTES), file.id, file.salt);
        let bytes = |g: &GroupHeader| GROUP_HEADER_BYTES as u64 + u64::from(g.record_bytes);
        let group = group.filter(|g| g.sequence > swept.sequence && at + bytes(g) <= bounds.file_bytes);
        let Some(group) = group else {
            bad_from.get_or_insert(at);
            at += bounds.block_bytes;
            continue;
        };
        if let Some(start) = bad_from.take() {
            visit(Event::Bad(Bad {
                start,
                end: at,
                sequence: swept.sequence + 1,
                known: false,
            }));
        }
        visit(Event::Begin {
            record_bytes: u64::from(group.record_bytes),
        });
        // A segment that was cut once ends inside its last group.
        let inside = bytes(&group).min(limit - at) as usize;
        sweep_records(window.get(at, inside), at, group.sequence, file.salt, visit);
        swept.sequence = group.sequence;
        at += round_up(bytes(&group), bounds.block_bytes);
        swept.end = at.min(limit);
        visit(Event::End {
            byte_offset: swept.end,
            group: &group,
        });
    }
    if at + GROUP_HEADER_BYTES as u64 <= limit {
        bad_from.get_or_insert(at);
    }
    // Behind the last group there is nothing, unless the mark knows better.
    if let (Some(start), Some(_)) = (bad_from, bounds.end) {
        visit(Event::Bad(Bad {
            start,
            end: limit,
            sequence: swept.sequence + 1,
            known: false,
        }));
        swept.end = limit;
    }
    swept
}

fn sweep_records(group: &[u8], group_at: u64, sequence: u64, salt: u32, visit: &mut dyn FnMut(Event<'_>)) {
    let mut bad_from = None;
    let mut at = GROUP_HEADER_BYTES;
    let bad = |start: usize, end: usize, known: bool| {
        Event::Bad(Bad {
            start: group_at + start as u64,
            end: group_at + end as u64,
            sequence,
            known,
        })
    };
    while at + RECORD_HEADER_BYTES <= group.len() {
        let record = group.get(at..).unwrap_or_default();
        let header = RecordHeader::decode(record, salt).filter(|h| h.total_bytes() <= record.len());
        let Some(header) = header else {
            bad_from.get_or_insert(at);
            at += RECORD_ALIGN;
            continue;
        };
        if let Some(start) = bad_from.take() {
            visit(bad(start, at, false));
        }
        let body = header.body(record);
        if body.is_none() {
            // Whose it is is certain, so a read of that entry will say what happened to it.
            visit(bad(at, at + header.total_bytes(), true));
        }
        visit(Event::Record {
            header: &header,
            body,
            byte_offset: group_at + at as u64,
        });
        at += header.total_bytes();
    }
    if let Some(start) = bad_from {
        visit(bad(start, group.len(), false));
    } else if at < group.len() {
        visit(bad(at, group.len(), false));
    }
}

/// The header of a segment, and whether there is a group in it.
///
/// Where the header and the first group are gone, as after a write that the device answered and did not do, the second one is
/// not farther away than a group is long: of one entry of the largest size, or of many small ones.
///
/// # Errors
/// The device's.
pub fn peek(file: &SegmentFile, block_bytes: u64) -> io::Result<(Option<SegmentHeader>, bool)> {
    let block = block_bytes as usize;
    let start = file.read_up_to(0, block + GROUP_HEADER_BYTES)?;
    let header = SegmentHeader::decode(start.get(..block).unwrap_or_default(), file.id, file.salt);
    let is_group = |bytes: &[u8]| GroupHeader::decode(bytes, file.id, file.salt).is_some();
    let first = is_group(start.get(block..).unwrap_or_default());
    if first || header.is_some() {
        return Ok((header, first));
    }
    let more = file.read_up_to(block_bytes, LOOK_BYTES)?;
    Ok((None, more.chunks(block).any(is_group)))
}

/// Returns true for each of these segments, given in rising order as id, header and whether a group follows that,
/// that may hold something. A segment that was prepared and could then not be opened, or whose name could not be made
/// durable, was passed over: the header of a later one says that it follows one before it.
#[must_use]
pub fn may_be_used(segments: &[(u32, Option<SegmentHeader>, bool)]) -> Vec<bool> {
    let mut follows = NO_SEGMENT;
    let mut used: Vec<bool> = segments
        .iter()
        .rev()
        .map(|(id, header, has_group)| {
            let passed_over = header.is_none() && !has_group && follows != NO_SEGMENT && follows < *id;
            if let Some(header) = header {
                follows = header.previous.segment;
            }
            !passed_over
        })
        .collect();
    used.reverse();
    used
}
