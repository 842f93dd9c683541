//! The files of the embedded engine: what they are called, how they are laid out, and how they are read without one.
//!
//! One module per kind of content, each with its layout, encoder and decoder and without I/O; then the open files
//! ([`mod@file`]), a journal segment read group by group ([`scan`]), and an entry log read record by record ([`rebuild`]).
//! Both the engine and the look at a stopped one are made of these, so they cannot disagree about a byte.
//!
//! The whole picture, with the recovery cases, is drawn in `docs/formats/journal.md` and `docs/formats/ledgers.md`. All
//! numbers are little endian; every checksum is CRC-32C.
//!
//! ```
//! use pharos_storage_format::crc32c;
//! use pharos_storage_format::record::{self, Kind, RecordHeader};
//!
//! let body = b"hello";
//! let header = RecordHeader {
//!     kind: Kind::Entry,
//!     body_bytes: 5,
//!     body_crc: crc32c(body),
//!     ledger: 1,
//!     value: 0,
//! };
//! let mut room = vec![0; header.total_bytes()];
//! record::encode(&mut room, 77, &header, body);
//! assert_eq!(RecordHeader::decode(&room, 77), Some(header));
//! ```
//!
//! Deliberately absent: which file is needed, when one goes, and anything that changes one but [`rebuild`].

#![forbid(unsafe_code)]

pub mod checkpoint;
pub mod file;
pub mod group;
pub mod index_batch;
pub mod log_header;
pub mod names;
pub mod rebuild;
pub mod record;
pub mod runs;
pub mod scan;
pub mod segment_header;
pub mod superblock;
mod window;

/// The version of the whole store. A directory with another one is refused.
pub const FORMAT_VERSION: u32 = 2;

/// No store counts this far, whether entries, bytes, groups or ledgers. A larger number is damage even where its checksum is
/// right; those that are accepted can be added up without overflowing.
pub const COUNT_MAX: u64 = 1 << 56;

/// True if all these are valid counts.
#[must_use]
pub fn are_counts(numbers: &[u64]) -> bool {
    numbers.iter().all(|number| *number <= COUNT_MAX)
}

/// The checksum of every file.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// The number at `at`, unless it lies outside.
#[must_use]
pub fn get_u32(bytes: &[u8], at: usize) -> Option<u32> {
    let end = at.checked_add(4)?;
    Some(u32::from_le_bytes(bytes.get(at..end)?.try_into().ok()?))
}

/// As [`get_u32`].
#[must_use]
pub fn get_u64(bytes: &[u8], at: usize) -> Option<u64> {
    let end = at.checked_add(8)?;
    Some(u64::from_le_bytes(bytes.get(at..end)?.try_into().ok()?))
}

/// Writes `value` at `at`. The caller sized the buffer; a place outside is a bug and panics.
pub fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

/// As [`put_u32`].
pub fn put_u64(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

/// `n` rounded up to a multiple of `to`, which is a power of two.
#[must_use]
pub const fn round_up(n: u64, to: u64) -> u64 {
    (n + to - 1) & !(to - 1)
}
