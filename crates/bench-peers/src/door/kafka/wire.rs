//! Requests to bytes, answers from bytes. Everything is big-endian.

use crc_fast::CrcAlgorithm;
use pharos_bench::load::{Bodies, FrameError, OutgoingBatch, Stamp, wall_ns};

/// Client id of the load.
const CLIENT: &str = "pharos-bench";

/// Numbers of requests, with the version that is spoken.
pub(super) const PRODUCE: (i16, i16) = (0, 7);
pub(super) const FETCH: (i16, i16) = (1, 11);
pub(super) const LIST_OFFSETS: (i16, i16) = (2, 4);
pub(super) const METADATA: (i16, i16) = (3, 4);
pub(super) const CREATE_TOPICS: (i16, i16) = (19, 4);

/// Begins a request; its length is written by [`end`]. Returns where it begins.
pub(super) fn begin(out: &mut Vec<u8>, (key, version): (i16, i16), correlation: i32) -> usize {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    i16(out, key);
    i16(out, version);
    i32(out, correlation);
    string(out, CLIENT);
    start
}

/// The request that began at `start` is complete up to here.
pub(super) fn end(out: &mut [u8], start: usize) {
    let length = (out.len() - start - 4) as i32;
    patch(out, start, length);
}

/// Overwrites four bytes.
pub(super) fn patch(out: &mut [u8], at: usize, value: i32) {
    if let Some(place) = out.get_mut(at..at + 4) {
        place.copy_from_slice(&value.to_be_bytes());
    }
}

pub(super) fn i8(out: &mut Vec<u8>, value: i8) {
    out.extend_from_slice(&value.to_be_bytes());
}

pub(super) fn i16(out: &mut Vec<u8>, value: i16) {
    out.extend_from_slice(&value.to_be_bytes());
}

pub(super) fn i32(out: &mut Vec<u8>, value: i32) {
    out.extend_from_slice(&value.to_be_bytes());
}

pub(super) fn i64(out: &mut Vec<u8>, value: i64) {
    out.extend_from_slice(&value.to_be_bytes());
}

pub(super) fn string(out: &mut Vec<u8>, text: &str) {
    i16(out, text.len() as i16);
    out.extend_from_slice(text.as_bytes());
}

/// A signed number of variable length: zigzag, seven bits a byte.
fn varint(out: &mut Vec<u8>, value: i64) {
    let mut left = ((value << 1) ^ (value >> 63)) as u64;
    while left >= 0x80 {
        out.push(left as u8 | 0x80);
        left >>= 7;
    }
    out.push(left as u8);
}

/// Returns the length of the encoding by [`varint`], in bytes.
fn varint_len(value: i64) -> usize {
    let left = ((value << 1) ^ (value >> 63)) as u64;
    (64 - (left | 1).leading_zeros() as usize).div_ceil(7)
}

/// Appends `batch` as a record batch of format 2, of messages of `size` bytes.
pub(super) fn record_batch(out: &mut Vec<u8>, batch: &OutgoingBatch, size: usize, bodies: &Bodies) {
    let start = out.len();
    let stamped_ms = (wall_ns(batch.due.first_ns) / 1_000_000) as i64;
    i64(out, 0); // base offset
    i32(out, 0); // length, below
    i32(out, -1); // leader epoch
    out.push(2); // format
    i32(out, 0); // checksum, below
    let checked = out.len();
    i16(out, 0); // attributes: not compressed
    i32(out, batch.count as i32 - 1);
    i64(out, stamped_ms);
    i64(out, stamped_ms);
    i64(out, -1); // no idempotence: producer id,
    i16(out, -1); // its epoch,
    i32(out, -1); // and sequence
    i32(out, batch.count as i32);
    for index in 0..batch.count {
        let offset = i64::from(index);
        // Attributes, time after the first, offset, no key, length of the payload, payload, no headers.
        let length = 1 + 1 + varint_len(offset) + 1 + varint_len(size as i64) + size + 1;
        varint(out, length as i64);
        out.extend_from_slice(&[0, 0]);
        varint(out, offset);
        varint(out, -1);
        varint(out, size as i64);
        let at = out.len();
        out.resize(at + size, 0);
        let stamp = Stamp {
            sequence: batch.sequence + u64::from(index),
            sent_ns: wall_ns(batch.due.at(index)),
            source: batch.source,
        };
        if let Some(payload) = out.get_mut(at..) {
            bodies.write(&stamp, payload);
        }
        out.push(0);
    }
    let length = (out.len() - start - 12) as i32;
    patch(out, start + 8, length);
    let checksum = crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, out.get(checked..).unwrap_or_default());
    patch(out, checked - 4, checksum as u32 as i32);
}

/// Unread rest of an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer<'a>(pub(super) &'a [u8]);

impl<'a> Answer<'a> {
    pub(super) fn bytes(&mut self, count: usize) -> Result<&'a [u8], FrameError> {
        let (now, rest) = self.0.split_at_checked(count).ok_or(FrameError::Malformed)?;
        self.0 = rest;
        Ok(now)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], FrameError> {
        let (now, rest) = self.0.split_first_chunk::<N>().ok_or(FrameError::Malformed)?;
        self.0 = rest;
        Ok(*now)
    }

    pub(super) fn i8(&mut self) -> Result<i8, FrameError> {
        Ok(i8::from_be_bytes(self.array()?))
    }

    pub(super) fn i16(&mut self) -> Result<i16, FrameError> {
        Ok(i16::from_be_bytes(self.array()?))
    }

    pub(super) fn i32(&mut self) -> Result<i32, FrameError> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    pub(super) fn i64(&mut self) -> Result<i64, FrameError> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    /// The number of elements of a list; one that is absent has none.
    pub(super) fn count(&mut self) -> Result<usize, FrameError> {
        Ok(usize::try_from(self.i32()?).unwrap_or(0))
    }

    /// A text; empty where it is absent.
    pub(super) fn string(&mut self) -> Result<&'a str, FrameError> {
        let length = usize::try_from(self.i16()?).unwrap_or(0);
        std::str::from_utf8(self.bytes(length)?).map_err(|_| FrameError::Malformed)
    }

    fn varint(&mut self) -> Result<i64, FrameError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let [byte] = self.array()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok((value >> 1) as i64 ^ -((value & 1) as i64));
            }
        }
        Err(FrameError::Malformed)
    }
}

/// Hands on the payloads of records from `offset` on; the offset behind the last one. A batch that is cut off at the end is what
/// the next fetch begins with.
pub(super) fn records(
    bytes: &[u8],
    mut offset: i64,
    mut take: impl FnMut(&[u8], u64),
) -> Result<i64, FrameError> {
    let mut left = Answer(bytes);
    while left.0.len() > 12 {
        let base = left.i64()?;
        let length = usize::try_from(left.i32()?).map_err(|_| FrameError::Malformed)?;
        let Ok(batch) = left.bytes(length) else {
            break;
        };
        let mut batch = Answer(batch);
        batch.i32()?;
        if batch.i8()? != 2 {
            return Err(FrameError::Malformed);
        }
        batch.i32()?;
        let attributes = batch.i16()?;
        // Compressed batches are not asked for, and nothing here writes control batches.
        if attributes & 0b10_0111 != 0 {
            return Err(FrameError::Malformed);
        }
        let last = base + i64::from(batch.i32()?);
        let stamped_ms = batch.i64()?;
        batch.bytes(8 + 8 + 2 + 4)?;
        let count = batch.count()?;
        for _ in 0..count {
            let length = usize::try_from(batch.varint()?).map_err(|_| FrameError::Malformed)?;
            let mut record = Answer(batch.bytes(length)?);
            record.i8()?;
            let after = record.varint()?;
            let at = base + record.varint()?;
            let key = usize::try_from(record.varint()?).unwrap_or(0);
            record.bytes(key)?;
            let size = usize::try_from(record.varint()?).unwrap_or(0);
            let payload = record.bytes(size)?;
            if at >= offset {
                take(payload, (stamped_ms + after).max(0) as u64);
            }
        }
        offset = offset.max(last + 1);
    }
    Ok(offset)
}

#[cfg(test)]
mod tests {
    use pharos_bench::load::Due;

    use super::*;

    fn batch(count: u32, size: usize) -> Vec<u8> {
        let batch = OutgoingBatch {
            lane: 0,
            source: 7,
            sequence: 100,
            count,
            due: Due {
                first_ns: 5,
                step_ns: 0.0,
            },
        };
        let mut out = Vec::new();
        record_batch(&mut out, &batch, size, &Bodies::default());
        out
    }

    #[test]
    fn a_batch_that_was_written_is_read_back() {
        let bodies = Bodies::default();
        let bytes = batch(200, 300);
        let mut sequences = Vec::new();
        let next = records(&bytes, 0, |payload, _| {
            let stamp = Stamp::read(payload).expect("stamped");
            assert!(bodies.is_right(&stamp, payload));
            sequences.push(stamp.sequence);
        });
        assert_eq!(next, Ok(200));
        assert_eq!(sequences, (100..300).collect::<Vec<_>>());
    }

    #[test]
    fn what_was_had_is_skipped_and_what_is_cut_off_waits() {
        let bytes = batch(10, 100);
        let mut seen = 0;
        assert_eq!(records(&bytes, 4, |_, _| seen += 1), Ok(10));
        assert_eq!(seen, 6);
        assert_eq!(records(&bytes[..bytes.len() - 1], 4, |_, _| seen += 1), Ok(4));
        assert_eq!(seen, 6);
    }

    #[test]
    fn the_checksum_is_over_everything_behind_it() {
        let bytes = batch(1, 64);
        let sum = crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, &bytes[21..]) as u32;
        assert_eq!(bytes[17..21], sum.to_be_bytes());
    }

    #[test]
    fn numbers_of_variable_length_go_both_ways() {
        for value in [0, -1, 1, 63, 64, -64, -65, 8191, 8192, 300, i64::MAX, i64::MIN] {
            let mut out = Vec::new();
            varint(&mut out, value);
            assert_eq!(out.len(), varint_len(value), "{value}");
            assert_eq!(Answer(&out).varint(), Ok(value));
        }
    }

    #[test]
    fn no_prefix_of_a_batch_panics() {
        let bytes = batch(3, 40);
        for end in 0..bytes.len() {
            let _ = records(&bytes[..end], 0, |_, _| {});
        }
    }
}
