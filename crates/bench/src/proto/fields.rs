//! Protobuf fields: reading and skipping them, over a slice with a moving start.
//!
//! Every reader answers `None` on truncated or malformed input and never panics.

use pharos_types::varint;
pub(crate) use varint::{len, put as write};

/// Reads one integer and moves `input` past it.
#[inline]
pub(crate) fn read(input: &mut &[u8]) -> Option<u64> {
    varint::take(input).ok()
}

/// Takes the bytes of a length-delimited field.
#[inline]
pub(crate) fn read_bytes<'a>(input: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = usize::try_from(read(input)?).ok()?;
    let (bytes, rest) = input.split_at_checked(len)?;
    *input = rest;
    Some(bytes)
}

/// Skips the value of a field whose key was already read.
#[inline]
pub(crate) fn skip(input: &mut &[u8], key: u64) -> Option<()> {
    match key & 7 {
        0 => read(input).map(|_| ()),
        1 => input.split_at_checked(8).map(|(_, rest)| *input = rest),
        2 => read_bytes(input).map(|_| ()),
        5 => input.split_at_checked(4).map(|(_, rest)| *input = rest),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back_and_has_the_said_length() {
        for value in [0, 1, 127, 128, 300, 16_383, 16_384, u64::from(u32::MAX), u64::MAX] {
            let mut out = Vec::new();
            write(&mut out, value);
            assert_eq!(out.len(), len(value), "{value}");
            let mut input = &out[..];
            assert_eq!(read(&mut input), Some(value));
            assert!(input.is_empty());
        }
    }

    #[test]
    fn truncated_and_endless_input_is_refused() {
        assert_eq!(read(&mut &[0x80, 0x80][..]), None);
        assert_eq!(read(&mut &[0x80; 11][..]), None);
        assert_eq!(read_bytes(&mut &[5, 1, 2][..]), None);
        assert_eq!(skip(&mut &[1, 2][..], 1), None);
        assert_eq!(skip(&mut &[1][..], 3), None);
    }
}
