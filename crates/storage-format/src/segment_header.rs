//! The first block of a segment file.
//!
//! ```text
//!  0 crc of 4..48   4 magic "PHSG"   8 salt   12 segment   16 previous segment   20 zero
//! 24 previous end (8)   32 previous sequence (8)   40 next ledger id (8)
//! ```
//! Written twice in the block, at 0 and at its middle, when the segment is first used, together with its first group.
//! Names where the segment before ended: what lies before that end was synced, what lies after it is no data.

use super::checkpoint::Mark;
use super::{are_counts, crc32c, get_u32, get_u64, put_u32, put_u64};

const MAGIC: u32 = u32::from_le_bytes(*b"PHSG");
const BYTES: usize = 48;

/// "There is no segment before."
pub const NO_SEGMENT: u32 = u32::MAX;

/// End of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentEnd {
    /// The segment; [`NO_SEGMENT`] when there is none.
    pub segment: u32,
    /// The first byte that is no data.
    pub end: u64,
    /// The highest group sequence number used so far.
    pub sequence: u64,
}

/// A decoded header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The segment.
    pub segment: u32,
    /// The mark that everything in it carries.
    pub salt: u32,
    /// End of the segment before it.
    pub previous: SegmentEnd,
    /// All ledger ids given out so far are below this.
    pub ledger_next: u64,
}

impl SegmentHeader {
    /// Fills `block`, one whole block.
    pub fn encode(&self, block: &mut [u8]) {
        block.fill(0);
        for at in [0, block.len() / 2] {
            let copy = &mut block[at..at + BYTES];
            put_u32(copy, 4, MAGIC);
            put_u32(copy, 8, self.salt);
            put_u32(copy, 12, self.segment);
            put_u32(copy, 16, self.previous.segment);
            put_u64(copy, 24, self.previous.end);
            put_u64(copy, 32, self.previous.sequence);
            put_u64(copy, 40, self.ledger_next);
            let crc = crc32c(&copy[4..]);
            put_u32(copy, 0, crc);
        }
    }

    /// True if something between `mark` and this segment is missing, when no segment before it is left.
    ///
    /// Sequence numbers alone do not show it: `previous` counts those of a torn group as well, and no mark reaches
    /// them.
    #[must_use]
    pub fn misses_groups_after(&self, mark: &Mark) -> bool {
        let at_mark = self.previous.segment == mark.segment && self.previous.end <= mark.byte_offset;
        self.previous.sequence > mark.sequence && !at_mark
    }

    /// True if something between `previous`, the end of the segment found before this one, and this one is missing.
    /// Missing segments without groups do not count: they may be removed before an older one that could not be
    /// removed.
    #[must_use]
    pub fn misses_groups_between(&self, previous: &SegmentEnd) -> bool {
        let follows = previous.segment == NO_SEGMENT || self.previous.segment == previous.segment;
        !follows && self.previous.sequence > previous.sequence
    }

    /// The header of segment `segment` in `block`, when either copy is whole and belongs to it.
    #[must_use]
    pub fn decode(block: &[u8], segment: u32, salt: u32) -> Option<Self> {
        [0, block.len() / 2].into_iter().find_map(|at| {
            let copy = block.get(at..at + BYTES)?;
            let whole = get_u32(copy, 0)? == crc32c(copy.get(4..)?) && get_u32(copy, 4)? == MAGIC;
            let ours = get_u32(copy, 8)? == salt && get_u32(copy, 12)? == segment;
            let counts = are_counts(&[get_u64(copy, 24)?, get_u64(copy, 32)?, get_u64(copy, 40)?]);
            (whole && ours && counts).then_some(Self {
                segment,
                salt,
                previous: SegmentEnd {
                    segment: get_u32(copy, 16)?,
                    end: get_u64(copy, 24)?,
                    sequence: get_u64(copy, 32)?,
                },
                ledger_next: get_u64(copy, 40)?,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_copy_is_enough_and_a_reused_file_has_no_header() {
        let header = SegmentHeader {
            segment: 5,
            salt: 0xabcd,
            previous: SegmentEnd {
                segment: 4,
                end: 9999,
                sequence: 17,
            },
            ledger_next: 3,
        };
        let mut block = vec![1; 512];
        header.encode(&mut block);
        assert_eq!(SegmentHeader::decode(&block, 5, 0xabcd), Some(header));
        block[30] ^= 4;
        assert_eq!(SegmentHeader::decode(&block, 5, 0xabcd), Some(header));
        assert_eq!(SegmentHeader::decode(&block, 6, 0xabcd), None);
        block[256 + 30] ^= 4;
        assert_eq!(SegmentHeader::decode(&block, 5, 0xabcd), None);
    }
}
