//! A group: what one write and one sync put into a segment.
//!
//! ```text
//!  0 crc of 4..48   4 magic "PHGR"   8 salt   12 segment
//! 16 sequence (8)   24 synced (8)   32 next ledger id (8)   40 record bytes   44 records
//! 48 records …      then zeros up to the next block
//! ```
//! Sequence numbers count groups over all segments. `synced` is the highest sequence number whose sync had succeeded
//! when this header was made; it is what tells damage from a torn write: a group that some later header calls synced
//! was whole once.

use super::{are_counts, crc32c, get_u32, get_u64, put_u32, put_u64};

const MAGIC: u32 = u32::from_le_bytes(*b"PHGR");

/// Length of a group header.
pub const GROUP_HEADER_BYTES: usize = 48;

/// A decoded group header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupHeader {
    /// The segment it is in.
    pub segment: u32,
    /// The mark of that segment.
    pub salt: u32,
    /// Its own sequence number.
    pub sequence: u64,
    /// The highest one whose sync had succeeded when it was made.
    pub synced: u64,
    /// All ledger ids given out so far are below this.
    pub ledger_next: u64,
    /// Bytes of the records after the header, without the zeros at the end.
    pub record_bytes: u32,
    /// Number of records.
    pub records: u32,
}

impl GroupHeader {
    /// Fills the first [`GROUP_HEADER_BYTES`] of `room`.
    pub fn encode(&self, room: &mut [u8]) {
        let header = &mut room[..GROUP_HEADER_BYTES];
        put_u32(header, 4, MAGIC);
        put_u32(header, 8, self.salt);
        put_u32(header, 12, self.segment);
        put_u64(header, 16, self.sequence);
        put_u64(header, 24, self.synced);
        put_u64(header, 32, self.ledger_next);
        put_u32(header, 40, self.record_bytes);
        put_u32(header, 44, self.records);
        let crc = crc32c(&header[4..]);
        put_u32(header, 0, crc);
    }

    /// The header at the start of `bytes`, when it is whole and belongs to the segment.
    #[must_use]
    pub fn decode(bytes: &[u8], segment: u32, salt: u32) -> Option<Self> {
        let header = bytes.get(..GROUP_HEADER_BYTES)?;
        // The cheap comparisons first: a scan asks this of every block.
        let ours =
            get_u32(header, 4)? == MAGIC && get_u32(header, 8)? == salt && get_u32(header, 12)? == segment;
        if !ours || get_u32(header, 0)? != crc32c(header.get(4..)?) {
            return None;
        }
        if !are_counts(&[get_u64(header, 16)?, get_u64(header, 24)?, get_u64(header, 32)?]) {
            return None;
        }
        Some(Self {
            segment,
            salt,
            sequence: get_u64(header, 16)?,
            synced: get_u64(header, 24)?,
            ledger_next: get_u64(header, 32)?,
            record_bytes: get_u32(header, 40)?,
            records: get_u32(header, 44)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_comes_back_and_no_flipped_byte_passes() {
        let header = GroupHeader {
            segment: 3,
            salt: 99,
            sequence: 12,
            synced: 11,
            ledger_next: 8,
            record_bytes: 400,
            records: 2,
        };
        let mut bytes = vec![0; 64];
        header.encode(&mut bytes);
        assert_eq!(GroupHeader::decode(&bytes, 3, 99), Some(header));
        for at in 0..GROUP_HEADER_BYTES {
            bytes[at] ^= 0x10;
            assert_eq!(GroupHeader::decode(&bytes, 3, 99), None, "byte {at}");
            bytes[at] ^= 0x10;
        }
    }
}
