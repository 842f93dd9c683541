//! The bytes on disk: one file per kind, each with its layout, encoder and decoder. No I/O here.
//!
//! The whole picture, with the recovery cases, is drawn in `docs/formats/journal.md` and `docs/formats/ledgers.md`. All
//! numbers are little endian; every checksum is CRC-32C.

pub(crate) mod checkpoint;
pub(crate) mod group;
pub(crate) mod index_batch;
pub(crate) mod log_header;
pub(crate) mod names;
pub(crate) mod record;
pub(crate) mod segment_header;
pub(crate) mod superblock;

/// The version of the whole store. A directory with another one is refused.
pub(crate) const FORMAT_VERSION: u32 = 2;

/// No store counts this far, whether entries, bytes, groups or ledgers. A larger number is damage even where its checksum is
/// right; those that are accepted can be added up without overflowing.
pub(crate) const COUNT_MAX: u64 = 1 << 56;

/// Whether all these can be counts.
pub(crate) fn are_counts(numbers: &[u64]) -> bool {
    numbers.iter().all(|number| *number <= COUNT_MAX)
}

pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

pub(crate) fn get_u32(bytes: &[u8], at: usize) -> Option<u32> {
    let end = at.checked_add(4)?;
    Some(u32::from_le_bytes(bytes.get(at..end)?.try_into().ok()?))
}

pub(crate) fn get_u64(bytes: &[u8], at: usize) -> Option<u64> {
    let end = at.checked_add(8)?;
    Some(u64::from_le_bytes(bytes.get(at..end)?.try_into().ok()?))
}

/// Writes `value` at `at`. The caller sized the buffer; a place outside is a bug and panics.
pub(crate) fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

/// As [`put_u32`].
pub(crate) fn put_u64(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

/// `n` rounded up to a multiple of `to`, which is a power of two.
pub(crate) const fn round_up(n: u64, to: u64) -> u64 {
    (n + to - 1) & !(to - 1)
}
