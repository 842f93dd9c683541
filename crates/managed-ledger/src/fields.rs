//! The fields of the crate's formats: integers of variable length, and bytes and text behind their length.
//!
//! Decoding takes from the front of a slice and never panics; an integer that does not fit and a slice that ends too early are
//! [`Malformed`].

use pharos_types::varint::{self, VarintError};

use crate::cursor::Malformed;

/// Appends `value`.
pub(crate) fn put_u64(out: &mut Vec<u8>, value: u64) {
    varint::put(out, value);
}

/// Appends the length of `bytes`, then `bytes`.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_u64(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends `value` as 8 bytes, little-endian.
pub(crate) fn put_i64(out: &mut Vec<u8>, value: i64) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Takes what [`put_i64`] appended.
pub(crate) fn take_i64(input: &mut &[u8]) -> Result<i64, Malformed> {
    let (bytes, rest) = input
        .split_first_chunk()
        .ok_or(Malformed("number ends too early"))?;
    *input = rest;
    Ok(i64::from_le_bytes(*bytes))
}

/// Takes one number from the front of `input`.
pub(crate) fn take_u64(input: &mut &[u8]) -> Result<u64, Malformed> {
    varint::take(input).map_err(|error| match error {
        VarintError::Truncated => Malformed("number ends too early"),
        VarintError::TooLong => Malformed("number beyond 64 bits"),
    })
}

/// Takes one number that must fit in 32 bits.
pub(crate) fn take_u32(input: &mut &[u8]) -> Result<u32, Malformed> {
    u32::try_from(take_u64(input)?).map_err(|_| Malformed("number beyond 32 bits"))
}

/// Takes one byte.
pub(crate) fn take_u8(input: &mut &[u8]) -> Result<u8, Malformed> {
    let (&byte, rest) = input.split_first().ok_or(Malformed("a byte is missing"))?;
    *input = rest;
    Ok(byte)
}

/// Takes bytes behind their length.
pub(crate) fn take_bytes<'a>(input: &mut &'a [u8]) -> Result<&'a [u8], Malformed> {
    let length = usize::try_from(take_u64(input)?).map_err(|_| Malformed("length beyond memory"))?;
    let (bytes, rest) = input
        .split_at_checked(length)
        .ok_or(Malformed("bytes end too early"))?;
    *input = rest;
    Ok(bytes)
}

/// Takes UTF-8 text behind its length.
pub(crate) fn take_text<'a>(input: &mut &'a [u8]) -> Result<&'a str, Malformed> {
    std::str::from_utf8(take_bytes(input)?).map_err(|_| Malformed("text is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_and_garbage_is_refused() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut out = Vec::new();
            put_u64(&mut out, value);
            let mut input = out.as_slice();
            assert_eq!(take_u64(&mut input), Ok(value));
            assert!(input.is_empty());
            assert!(take_u64(&mut &out[..out.len() - 1]).is_err());
        }
        assert!(take_u64(&mut [0xff; 11].as_slice()).is_err());
        assert!(take_u64(&mut [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 2].as_slice()).is_err());
        assert!(take_bytes(&mut [0xff, 0xff, 0xff, 0xff, 0x7f, 1].as_slice()).is_err());
    }
}
