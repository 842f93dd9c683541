//! The first block of an entry log.
//!
//! ```text
//!  0 crc of 4..32   4 magic "PHLG"   8 salt   12 log id   16 directory number   20 zeros
//! ```
//! For people and tools; a running store knows all of it. Records begin at [`LOG_DATA_AT`], one after the other, each at
//! a multiple of 8. Between the records of two flushes there are zeros up to the next multiple of 4096.

use super::{crc32c, get_u32, put_u32};

const MAGIC: u32 = u32::from_le_bytes(*b"PHLG");
const BYTES: usize = 32;

/// Offset of the first record.
pub const LOG_DATA_AT: u64 = 4096;

/// A decoded header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogHeader {
    /// The mark that everything in the log carries.
    pub salt: u32,
    /// The log's id.
    pub log: u32,
    /// The number of its ledger directory.
    pub dir: u32,
}

impl LogHeader {
    /// Fills the start of `block`, which is zeroed.
    pub fn encode(self, block: &mut [u8]) {
        let header = &mut block[..BYTES];
        put_u32(header, 4, MAGIC);
        put_u32(header, 8, self.salt);
        put_u32(header, 12, self.log);
        put_u32(header, 16, self.dir);
        let crc = crc32c(&header[4..]);
        put_u32(header, 0, crc);
    }

    /// The header at the start of `block`, when it is whole.
    #[must_use]
    pub fn decode(block: &[u8]) -> Option<Self> {
        let header = block.get(..BYTES)?;
        let whole = get_u32(header, 0)? == crc32c(header.get(4..)?) && get_u32(header, 4)? == MAGIC;
        whole.then_some(Self {
            salt: get_u32(header, 8)?,
            log: get_u32(header, 12)?,
            dir: get_u32(header, 16)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_comes_back() {
        let header = LogHeader {
            salt: 9,
            log: 3,
            dir: 1,
        };
        let mut block = vec![0; 512];
        header.encode(&mut block);
        assert_eq!(LogHeader::decode(&block), Some(header));
        block[13] ^= 1;
        assert_eq!(LogHeader::decode(&block), None);
    }
}
