//! The grains of protobuf: integers, field tags and length-delimited runs.
//!
//! Used where prost would allocate or would hide what is missing. A [`Reader`] borrows its bytes and never looks past them.

use pharos_types::varint::{self, VarintError};

use crate::error::WireError;

/// The value of one field, as its wire type gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    /// Fixed 64-bit or 32-bit; no field of interest here has such a type.
    Fixed,
}

/// Reads protobuf fields one after the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Bytes that are not read yet.
    pub(crate) fn left(&self) -> usize {
        self.rest.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Reads a varint of at most ten bytes.
    #[inline(always)]
    pub(crate) fn varint(&mut self) -> Result<u64, WireError> {
        varint::take(&mut self.rest).map_err(|error| match error {
            VarintError::Truncated => WireError::Truncated,
            VarintError::TooLong => WireError::VarintTooLong,
        })
    }

    /// Reads a length and that many bytes.
    #[inline(always)]
    pub(crate) fn run(&mut self) -> Result<&'a [u8], WireError> {
        let length = self.varint()?;
        let length = usize::try_from(length).map_err(|_| WireError::Truncated)?;
        let (run, rest) = self.rest.split_at_checked(length).ok_or(WireError::Truncated)?;
        self.rest = rest;
        Ok(run)
    }

    /// Reads the next field, whatever it is; `None` at the end.
    #[inline(always)]
    pub(crate) fn field(&mut self) -> Result<Option<(u32, Value<'a>)>, WireError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = u32::try_from(self.varint()?).map_err(|_| WireError::Tag)?;
        let value = match tag & 7 {
            0 => Value::Varint(self.varint()?),
            1 => self.fixed(8)?,
            2 => Value::Bytes(self.run()?),
            5 => self.fixed(4)?,
            // Groups (3, 4) are not used by this protocol.
            other => {
                return Err(WireError::WireType {
                    wire_type: other as u8,
                });
            }
        };
        match tag >> 3 {
            0 => Err(WireError::Tag),
            number => Ok(Some((number, value))),
        }
    }

    fn fixed(&mut self, bytes: usize) -> Result<Value<'a>, WireError> {
        self.rest = self.rest.get(bytes..).ok_or(WireError::Truncated)?;
        Ok(Value::Fixed)
    }
}

/// Writes small protobuf bodies into a fixed room.
///
/// What does not fit is not written but counted, so that [`Pen::written`] tells afterwards whether the result is whole.
#[derive(Debug)]
pub(crate) struct Pen<'a> {
    room: &'a mut [u8],
    at: usize,
}

impl<'a> Pen<'a> {
    /// A pen that starts `at` bytes into `room`.
    #[inline(always)]
    pub(crate) fn new(room: &'a mut [u8], at: usize) -> Self {
        Self { room, at }
    }

    /// The end of what was written, or `None` when the room was too small.
    #[inline(always)]
    pub(crate) fn written(&self) -> Option<usize> {
        (self.at <= self.room.len()).then_some(self.at)
    }

    #[inline(always)]
    pub(crate) fn byte(&mut self, byte: u8) {
        if let Some(slot) = self.room.get_mut(self.at) {
            *slot = byte;
        }
        self.at += 1;
    }

    /// Writes a block of which only the first `length` bytes count. A block of fixed size is a few moves; a slice is a call.
    #[inline(always)]
    pub(crate) fn block<const N: usize>(&mut self, block: &[u8; N], length: usize) {
        match self
            .room
            .get_mut(self.at..)
            .and_then(|room| room.first_chunk_mut())
        {
            Some(slot) => *slot = *block,
            // A room that ends within the slack of the block counts as too small.
            None => self.at = self.room.len(),
        }
        self.at += length;
    }

    /// Writes a varint field whose number is below 16.
    #[inline(always)]
    pub(crate) fn uint64(&mut self, number: u8, value: u64) {
        self.byte(number << 3);
        if value < 0x80 {
            self.byte(value as u8);
        } else if let Some((block, length)) = varint::block(value) {
            self.block(&block, length);
        } else {
            self.varint_long(value);
        }
    }

    #[cold]
    fn varint_long(&mut self, value: u64) {
        varint::put_bytes(value, |byte| self.byte(byte));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_of_every_length_come_back() {
        for shift in 0..64 {
            for value in [1_u64 << shift, (1_u64 << shift) - 1, u64::MAX >> shift] {
                let mut bytes = Vec::new();
                prost::encoding::encode_varint(value, &mut bytes);
                let mut room = [0; 20];
                let mut pen = Pen::new(&mut room, 0);
                pen.uint64(1, value);
                assert_eq!(pen.written(), Some(1 + bytes.len()));
                assert_eq!(room[1..1 + bytes.len()], bytes);
                // Once with bytes behind it and once without: the two are read differently.
                let padded = [&bytes[..], &[0xff; 8]].concat();
                let mut reader = Reader::new(&padded);
                assert_eq!((reader.varint(), reader.rest.len()), (Ok(value), 8));
                let mut reader = Reader::new(&bytes);
                assert_eq!(reader.varint(), Ok(value));
                assert!(reader.is_empty());
                bytes.pop();
                assert_eq!(Reader::new(&bytes).varint(), Err(WireError::Truncated));
            }
        }
    }

    #[test]
    fn malformed_grains_are_named() {
        let cases: [(&[u8], WireError); 6] = [
            (&[0xff; 10], WireError::VarintTooLong),
            (&[0xff; 9], WireError::Truncated),
            (&[0x0a, 0x02, 0x00], WireError::Truncated),
            (&[0x0b], WireError::WireType { wire_type: 3 }),
            (&[0x00, 0x00], WireError::Tag),
            (&[0x0d, 0, 0, 0], WireError::Truncated),
        ];
        for (bytes, error) in cases {
            assert_eq!(Reader::new(bytes).field(), Err(error), "{bytes:02x?}");
        }
    }
}
