//! A record: one entry, or one fact about a ledger. Journal segments and entry logs are made of them.
//!
//! ```text
//!  0 crc of 4..32   4 salt   8 kind (high 4 bits) and body bytes (low 28)   12 crc of the body
//! 16 ledger (8)     24 entry or value (8)     32 body …   then zeros up to a multiple of 8
//! ```
//! The header has its own checksum, so that a damaged body still says whose it was and where the next record begins.

use super::{are_counts, crc32c, get_u32, get_u64, put_u32, put_u64, round_up};

/// Length of a record header.
pub const RECORD_HEADER_BYTES: usize = 32;

/// Records begin at multiples of this, counted from the start of the file.
pub const RECORD_ALIGN: usize = 8;

const BODY_BITS: u32 = 28;
const BODY_MASK: u32 = (1 << BODY_BITS) - 1;

/// Record kind. The numbers are on disk and are never reused; 2 and 4 were of format version 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// An entry; value: the entry id.
    Entry = 1,
    /// A ledger was created; value: how durable its appends are, see `durability_to_number`.
    Created = 3,
    /// A ledger was sealed; value: its number of entries.
    Sealed = 5,
    /// A ledger was deleted; value: 0.
    Deleted = 6,
}

impl Kind {
    /// The kind that this number stands for.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Entry,
            3 => Self::Created,
            5 => Self::Sealed,
            6 => Self::Deleted,
            _ => return None,
        })
    }
}

/// A decoded record header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// Kind of the record.
    pub kind: Kind,
    /// The length of its body.
    pub body_bytes: u32,
    /// The checksum of its body.
    pub body_crc: u32,
    /// The ledger that it is about.
    pub ledger: u64,
    /// Value whose meaning depends on `kind`.
    pub value: u64,
}

/// Room a record takes, padding included.
#[must_use]
pub const fn record_bytes(body_bytes: usize) -> usize {
    round_up((RECORD_HEADER_BYTES + body_bytes) as u64, RECORD_ALIGN as u64) as usize
}

/// Writes one record to the start of `room`; returns the bytes it takes. `header` says the length and the checksum of `body`.
pub fn encode(room: &mut [u8], salt: u32, header: &RecordHeader, body: &[u8]) -> usize {
    let total = header.total_bytes();
    let body_end = RECORD_HEADER_BYTES + body.len();
    room[..RECORD_HEADER_BYTES].copy_from_slice(&header.encode(salt));
    room[RECORD_HEADER_BYTES..body_end].copy_from_slice(body);
    room[body_end..total].fill(0);
    total
}

impl RecordHeader {
    /// The header's bytes.
    #[must_use]
    pub fn encode(&self, salt: u32) -> [u8; RECORD_HEADER_BYTES] {
        let mut header = [0; RECORD_HEADER_BYTES];
        put_u32(&mut header, 4, salt);
        put_u32(&mut header, 8, (self.kind as u32) << BODY_BITS | self.body_bytes);
        put_u32(&mut header, 12, self.body_crc);
        put_u64(&mut header, 16, self.ledger);
        put_u64(&mut header, 24, self.value);
        let crc = crc32c(&header[4..]);
        put_u32(&mut header, 0, crc);
        header
    }

    /// The header at the start of `bytes`, when it is whole and belongs to the file with this salt.
    #[must_use]
    pub fn decode(bytes: &[u8], salt: u32) -> Option<Self> {
        let header = bytes.get(..RECORD_HEADER_BYTES)?;
        if get_u32(header, 4)? != salt || get_u32(header, 0)? != crc32c(header.get(4..)?) {
            return None;
        }
        let word = get_u32(header, 8)?;
        if !are_counts(&[get_u64(header, 16)?, get_u64(header, 24)?]) {
            return None;
        }
        Some(Self {
            kind: Kind::from_number((word >> BODY_BITS) as u8)?,
            body_bytes: word & BODY_MASK,
            body_crc: get_u32(header, 12)?,
            ledger: get_u64(header, 16)?,
            value: get_u64(header, 24)?,
        })
    }

    /// Room the whole record takes.
    #[must_use]
    pub fn total_bytes(&self) -> usize {
        record_bytes(self.body_bytes as usize)
    }

    /// The body of this record, when it is whole. `record` begins with the header.
    #[must_use]
    pub fn body<'a>(&self, record: &'a [u8]) -> Option<&'a [u8]> {
        let end = RECORD_HEADER_BYTES + self.body_bytes as usize;
        let body = record.get(RECORD_HEADER_BYTES..end)?;
        (crc32c(body) == self.body_crc).then_some(body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_comes_back_and_no_flipped_byte_passes() {
        let mut room = vec![0xee; 64];
        let written = RecordHeader {
            kind: Kind::Entry,
            body_bytes: 5,
            body_crc: crc32c(b"hello"),
            ledger: 7,
            value: 8,
        };
        let total = encode(&mut room, 5, &written, b"hello");
        assert_eq!(total, 40);
        let header = RecordHeader::decode(&room, 5).unwrap();
        assert_eq!(header, written);
        assert_eq!(header.body(&room), Some(&b"hello"[..]));
        assert_eq!(header.total_bytes(), total);
        for at in 0..RECORD_HEADER_BYTES + 5 {
            room[at] ^= 0x20;
            let body = RecordHeader::decode(&room, 5).and_then(|h| h.body(&room).map(<[u8]>::len));
            assert_eq!(body, None, "byte {at}");
            room[at] ^= 0x20;
        }
        assert_eq!(RecordHeader::decode(&room, 6), None, "another file's salt");
        assert_eq!(RecordHeader::decode(&room[..20], 5), None);
    }
}
