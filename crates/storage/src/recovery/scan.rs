//! Reading a segment that has no side file, group by group.
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

use std::collections::HashMap;
use std::io;

use bytes::Bytes;

use crate::format::group::{GROUP_HEADER_BYTES, GroupHeader};
use crate::format::record::{RECORD_ALIGN, RECORD_HEADER_BYTES, RecordHeader};
use crate::format::round_up;
use crate::format::segment_header::SegmentHeader;
use crate::format::side_file::{Damage, Place, Run, SideFile};
use crate::segments::SegmentFile;

/// How much is read at once.
const CHUNK_BYTES: usize = 1 << 20;

/// What is known about a segment before it is scanned.
#[derive(Debug)]
pub(super) struct Bounds {
    pub(super) block_bytes: u64,
    pub(super) file_bytes: u64,
    /// Where the next segment's header says that this one ended.
    pub(super) end: Option<u64>,
    /// The highest sequence number that a later segment proves synced.
    pub(super) proven: u64,
}

#[derive(Debug)]
struct Found {
    byte_offset: u64,
    header: RecordHeader,
}

#[derive(Debug)]
struct Bad {
    start: u64,
    end: u64,
    /// The sequence number of its group, or the lowest it can have had.
    sequence: u64,
    known: bool,
}

#[derive(Debug, Default)]
struct Sweep {
    records: Vec<Found>,
    bads: Vec<Bad>,
    sequence: u64,
    synced: u64,
    ledger_next: u64,
    /// The first byte after the last group.
    end: u64,
}

/// Scans a segment and says what is in it, as its side file would.
pub(super) fn scan(file: &SegmentFile, header: Option<&SegmentHeader>, bounds: &Bounds) -> SideFile {
    let mut sweep = Sweep {
        end: bounds.block_bytes,
        sequence: header.map_or(0, |h| h.previous.sequence),
        ledger_next: header.map_or(0, |h| h.ledger_next),
        ..Sweep::default()
    };
    sweep_groups(file, bounds, &mut sweep);
    let proven = sweep.synced.max(bounds.proven);
    sweep.bads.sort_unstable_by_key(|bad| bad.start);
    if let Some(torn) = sweep.bads.iter().find(|bad| bad.sequence > proven) {
        let cut = torn.start;
        tracing::info!(file = %file.path.display(), byte_offset = cut, "cut a torn write");
        sweep.records.retain(|record| record.byte_offset < cut);
        sweep.bads.retain(|bad| bad.start < cut);
        sweep.end = cut;
    }
    for bad in &sweep.bads {
        tracing::error!(
            file = %file.path.display(), byte_offset = bad.start, bytes = bad.end - bad.start,
            "damage: what was written and synced here has changed"
        );
    }
    SideFile {
        segment: file.id,
        salt: file.salt,
        end: sweep.end,
        sequence: sweep.sequence,
        ledger_next: sweep.ledger_next,
        damages: sweep
            .bads
            .iter()
            .map(|bad| Damage {
                byte_offset: bad.start,
                bytes: bad.end - bad.start,
                known: bad.known,
            })
            .collect(),
        runs: runs(&sweep.records),
    }
}

fn sweep_groups(file: &SegmentFile, bounds: &Bounds, sweep: &mut Sweep) {
    let limit = bounds.end.unwrap_or(bounds.file_bytes).min(bounds.file_bytes);
    let mut window = Window::new(file, bounds.block_bytes);
    let mut at = bounds.block_bytes;
    let mut bad_from = None;
    while at + GROUP_HEADER_BYTES as u64 <= limit {
        let group = GroupHeader::decode(&window.get(at, GROUP_HEADER_BYTES), file.id, file.salt);
        let bytes = |g: &GroupHeader| GROUP_HEADER_BYTES as u64 + u64::from(g.record_bytes);
        let group = group.filter(|g| g.sequence > sweep.sequence && at + bytes(g) <= bounds.file_bytes);
        let Some(group) = group else {
            bad_from.get_or_insert(at);
            at += bounds.block_bytes;
            continue;
        };
        if let Some(start) = bad_from.take() {
            sweep.bads.push(Bad {
                start,
                end: at,
                sequence: sweep.sequence + 1,
                known: false,
            });
        }
        // A segment that was cut once ends inside its last group.
        let inside = bytes(&group).min(limit - at) as usize;
        sweep_records(&window.get(at, inside), at, group.sequence, file.salt, sweep);
        sweep.sequence = group.sequence;
        sweep.synced = sweep.synced.max(group.synced);
        sweep.ledger_next = sweep.ledger_next.max(group.ledger_next);
        at += round_up(bytes(&group), bounds.block_bytes);
        sweep.end = at.min(limit);
    }
    // Behind the last group there is nothing, unless the next segment knows better.
    if let (Some(start), Some(_)) = (bad_from, bounds.end) {
        sweep.bads.push(Bad {
            start,
            end: limit,
            sequence: sweep.sequence + 1,
            known: false,
        });
        sweep.end = limit;
    }
}

fn sweep_records(group: &[u8], group_at: u64, sequence: u64, salt: u32, sweep: &mut Sweep) {
    let mut bad_from = None;
    let mut at = GROUP_HEADER_BYTES;
    let mut bad = |start: usize, end: usize, known: bool| {
        sweep.bads.push(Bad {
            start: group_at + start as u64,
            end: group_at + end as u64,
            sequence,
            known,
        });
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
            bad(start, at, false);
        }
        if header.body(record).is_none() {
            // Whose it is is certain, so a read of that entry will say what happened to it.
            bad(at, at + header.total_bytes(), true);
        }
        sweep.records.push(Found {
            byte_offset: group_at + at as u64,
            header,
        });
        at += header.total_bytes();
    }
    if let Some(start) = bad_from {
        bad(start, group.len(), false);
    } else if at < group.len() {
        bad(at, group.len(), false);
    }
}

/// Consecutive entries of a ledger become one run, also when other ledgers' records lie between them.
fn runs(records: &[Found]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut open: HashMap<u64, usize> = HashMap::new();
    for Found { byte_offset, header } in records {
        let place = Place {
            byte_offset: *byte_offset as u32,
            body_bytes: header.body_bytes,
        };
        let places = if header.kind.is_entry() {
            vec![place]
        } else {
            Vec::new()
        };
        let last = open.get(&header.ledger).and_then(|at| runs.get_mut(*at));
        match last {
            Some(run)
                if header.kind.is_entry()
                    && run.kind == header.kind
                    && run.first + run.places.len() as u64 == header.value =>
            {
                run.places.push(place);
            }
            _ => {
                open.insert(header.ledger, runs.len());
                runs.push(Run {
                    kind: header.kind,
                    ledger: header.ledger,
                    first: header.value,
                    places,
                });
            }
        }
    }
    runs
}

/// Reads a file forward in chunks. What the device cannot read is zeros, and so becomes damage like any other.
struct Window<'a> {
    file: &'a SegmentFile,
    block_bytes: u64,
    chunk: Bytes,
    chunk_at: u64,
}

impl<'a> Window<'a> {
    fn new(file: &'a SegmentFile, block_bytes: u64) -> Self {
        Self {
            file,
            block_bytes,
            chunk: Bytes::new(),
            chunk_at: 0,
        }
    }

    /// `bytes` bytes at `at`, fewer at the end of the file.
    fn get(&mut self, at: u64, bytes: usize) -> Bytes {
        let inside = at >= self.chunk_at && at + bytes as u64 <= self.chunk_at + self.chunk.len() as u64;
        if !inside {
            self.chunk = self.read(at, bytes.max(CHUNK_BYTES));
            self.chunk_at = at;
        }
        let from = ((at - self.chunk_at) as usize).min(self.chunk.len());
        let to = (from + bytes).min(self.chunk.len());
        self.chunk.slice(from..to)
    }

    fn read(&self, at: u64, bytes: usize) -> Bytes {
        self.file.read_up_to(at, bytes).unwrap_or_else(|error| {
            tracing::error!(%error, file = %self.file.path.display(), byte_offset = at, "cannot read, trying in parts");
            self.read_in_parts(at, bytes)
        })
    }

    fn read_in_parts(&self, at: u64, bytes: usize) -> Bytes {
        let mut all = Vec::with_capacity(bytes);
        while all.len() < bytes {
            let block = self.block_bytes as usize;
            match self.file.read_up_to(at + all.len() as u64, block) {
                Ok(part) if part.is_empty() => break,
                Ok(part) => all.extend_from_slice(&part),
                Err(_) => all.resize(all.len() + block, 0),
            }
        }
        all.into()
    }
}

/// The first block of a segment, and whether a group follows it.
pub(super) fn peek(file: &SegmentFile, block_bytes: u64) -> io::Result<(Option<SegmentHeader>, bool)> {
    let block = block_bytes as usize;
    let start = file.read_up_to(0, block + GROUP_HEADER_BYTES)?;
    let header = SegmentHeader::decode(start.get(..block).unwrap_or_default(), file.id, file.salt);
    let group = GroupHeader::decode(start.get(block..).unwrap_or_default(), file.id, file.salt);
    Ok((header, group.is_some()))
}
