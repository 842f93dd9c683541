//! The index of an entry log (`*.idx`): which run of which ledger is where, one batch per flush.
//!
//! ```text
//!  0 crc of 4..bytes   4 magic "PHIX"   8 salt   12 log id   16 bytes of the batch   20 runs
//! 24 data begins (8)   32 data ends (8)
//! 40 runs:   ledger (8), first entry (8), payload bytes (8), entries, byte offset, its end, points
//!    points: entry (from the first of the run), byte offset (from that of the run)
//! ```
//! A run is consecutive entries of one ledger, one record after the other. A point says where one of its entries begins;
//! there is one about every 128 KiB, so that a reader need not walk through a whole run.

use super::{are_counts, crc32c, get_u32, get_u64, put_u32, put_u64};

const MAGIC: u32 = u32::from_le_bytes(*b"PHIX");
const HEADER_BYTES: usize = 40;
const RUN_BYTES: usize = 40;
const POINT_BYTES: usize = 8;

/// Position of an entry within a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// Counted from the first entry of the run.
    pub entry: u32,
    /// Counted from the start of the run.
    pub byte_offset: u32,
}

/// A run as it is on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexRun {
    /// The ledger its entries are of.
    pub ledger: u64,
    /// The id of the first one.
    pub first: u64,
    /// The bytes of their payloads.
    pub payload_bytes: u64,
    /// Number of entries.
    pub count: u32,
    /// Offset of its first record in the log.
    pub start: u32,
    /// End of its last record.
    pub end: u32,
    /// In rising order; none for the first entry.
    pub points: Vec<Point>,
}

/// Index of a flush to a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexBatch {
    /// Start of the part of the log that it describes.
    pub data_from: u64,
    /// End of that part.
    pub data_to: u64,
    /// Runs in that part.
    pub runs: Vec<IndexRun>,
}

impl IndexRun {
    fn is_possible(&self) -> bool {
        are_counts(&[self.ledger, self.first, self.payload_bytes]) && self.start <= self.end
    }

    fn has_possible_points(&self) -> bool {
        let bytes = self.end.saturating_sub(self.start);
        let inside = |point: &Point| point.entry < self.count && point.byte_offset < bytes;
        self.points.iter().all(inside)
            && self
                .points
                .is_sorted_by(|one, two| one.entry < two.entry && one.byte_offset < two.byte_offset)
    }
}

impl IndexBatch {
    /// The whole batch, for the log with this mark and id.
    #[must_use]
    pub fn encode(&self, salt: u32, log: u32) -> Vec<u8> {
        let points: usize = self.runs.iter().map(|run| run.points.len()).sum();
        let bytes = HEADER_BYTES + self.runs.len() * RUN_BYTES + points * POINT_BYTES;
        let mut batch = vec![0; bytes];
        put_u32(&mut batch, 4, MAGIC);
        put_u32(&mut batch, 8, salt);
        put_u32(&mut batch, 12, log);
        put_u32(&mut batch, 16, bytes as u32);
        put_u32(&mut batch, 20, self.runs.len() as u32);
        put_u64(&mut batch, 24, self.data_from);
        put_u64(&mut batch, 32, self.data_to);
        let mut at = HEADER_BYTES;
        for run in &self.runs {
            put_u64(&mut batch, at, run.ledger);
            put_u64(&mut batch, at + 8, run.first);
            put_u64(&mut batch, at + 16, run.payload_bytes);
            put_u32(&mut batch, at + 24, run.count);
            put_u32(&mut batch, at + 28, run.start);
            put_u32(&mut batch, at + 32, run.end);
            put_u32(&mut batch, at + 36, run.points.len() as u32);
            at += RUN_BYTES;
        }
        for point in self.runs.iter().flat_map(|run| &run.points) {
            put_u32(&mut batch, at, point.entry);
            put_u32(&mut batch, at + 4, point.byte_offset);
            at += POINT_BYTES;
        }
        let crc = crc32c(&batch[4..]);
        put_u32(&mut batch, 0, crc);
        batch
    }

    /// The batch at the start of `bytes` and its length, when it is whole and belongs to the log.
    #[must_use]
    pub fn decode(bytes: &[u8], salt: u32, log: u32) -> Option<(Self, usize)> {
        let length = get_u32(bytes, 16)? as usize;
        let batch = bytes.get(..length)?;
        let ours = get_u32(batch, 4)? == MAGIC && get_u32(batch, 8)? == salt && get_u32(batch, 12)? == log;
        if !ours || length < HEADER_BYTES || get_u32(batch, 0)? != crc32c(batch.get(4..)?) {
            return None;
        }
        let count = get_u32(batch, 20)? as usize;
        let mut point_at = HEADER_BYTES.checked_add(count.checked_mul(RUN_BYTES)?)?;
        let mut runs = Vec::with_capacity(count.min(length / RUN_BYTES));
        for at in (0..count).map(|n| HEADER_BYTES + n * RUN_BYTES) {
            let points = get_u32(batch, at + 36)? as usize;
            let mut run = IndexRun {
                ledger: get_u64(batch, at)?,
                first: get_u64(batch, at + 8)?,
                payload_bytes: get_u64(batch, at + 16)?,
                count: get_u32(batch, at + 24)?,
                start: get_u32(batch, at + 28)?,
                end: get_u32(batch, at + 32)?,
                points: Vec::with_capacity(points.min(length / POINT_BYTES)),
            };
            if !run.is_possible() {
                return None;
            }
            for _ in 0..points {
                run.points.push(Point {
                    entry: get_u32(batch, point_at)?,
                    byte_offset: get_u32(batch, point_at + 4)?,
                });
                point_at += POINT_BYTES;
            }
            if !run.has_possible_points() {
                return None;
            }
            runs.push(run);
        }
        if !are_counts(&[get_u64(batch, 24)?, get_u64(batch, 32)?]) {
            return None;
        }
        let batch = Self {
            data_from: get_u64(batch, 24)?,
            data_to: get_u64(batch, 32)?,
            runs,
        };
        Some((batch, length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_comes_back_and_no_flipped_byte_passes() {
        let point = |entry, byte_offset| Point { entry, byte_offset };
        let run = |ledger, points| IndexRun {
            ledger,
            first: 5,
            payload_bytes: 300,
            count: 3,
            start: 4096,
            end: 5000,
            points,
        };
        let batch = IndexBatch {
            data_from: 4096,
            data_to: 8192,
            runs: vec![run(1, vec![]), run(2, vec![point(1, 100), point(2, 200)])],
        };
        let mut bytes = batch.encode(7, 3);
        let length = bytes.len();
        bytes.extend_from_slice(b"more");
        assert_eq!(IndexBatch::decode(&bytes, 7, 3), Some((batch, length)));
        assert_eq!(IndexBatch::decode(&bytes, 8, 3), None);
        for at in 0..length {
            bytes[at] ^= 0x10;
            assert_eq!(IndexBatch::decode(&bytes, 7, 3), None, "byte {at}");
            bytes[at] ^= 0x10;
        }
    }
}
