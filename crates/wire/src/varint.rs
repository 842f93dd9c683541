//! The grains of protobuf: variable-length integers, field tags and length-delimited runs.
//!
//! Used where prost would allocate or would hide what is missing. A [`Reader`] borrows its bytes and never looks past them.

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

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Reads a varint of at most ten bytes.
    #[inline]
    pub(crate) fn varint(&mut self) -> Result<u64, WireError> {
        let (&first, rest) = self.rest.split_first().ok_or(WireError::Truncated)?;
        if first < 0x80 {
            self.rest = rest;
            return Ok(u64::from(first));
        }
        self.varint_long()
    }

    fn varint_long(&mut self) -> Result<u64, WireError> {
        let mut value = 0_u64;
        for (i, &byte) in self.rest.iter().enumerate().take(10) {
            // The tenth byte holds the one bit that is left of 64.
            if i == 9 && byte > 1 {
                return Err(WireError::VarintTooLong);
            }
            value |= u64::from(byte & 0x7f) << (7 * i);
            if byte < 0x80 {
                self.rest = self.rest.get(i + 1..).ok_or(WireError::Truncated)?;
                return Ok(value);
            }
        }
        Err(WireError::Truncated)
    }

    /// Reads a length and that many bytes.
    #[inline]
    pub(crate) fn run(&mut self) -> Result<&'a [u8], WireError> {
        let length = self.varint()?;
        let length = usize::try_from(length).map_err(|_| WireError::Truncated)?;
        let (run, rest) = self.rest.split_at_checked(length).ok_or(WireError::Truncated)?;
        self.rest = rest;
        Ok(run)
    }

    /// Reads the next field, whatever it is; `None` at the end.
    #[inline]
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_of_every_length_come_back() {
        for shift in 0..64 {
            for value in [1_u64 << shift, (1_u64 << shift) - 1, u64::MAX >> shift] {
                let mut bytes = Vec::new();
                prost::encoding::encode_varint(value, &mut bytes);
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
