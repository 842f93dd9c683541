//! Protobuf base-128 integers and field skipping, over a slice with a moving start.
//!
//! Every reader answers `None` on truncated or malformed input and never panics.

/// Reads one varint and moves `input` past it.
#[inline]
pub(crate) fn read(input: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = input.split_first()?;
        *input = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// Appends `value` in its shortest form.
#[inline]
pub(crate) fn write(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Bytes of `value` in its shortest form.
#[inline]
pub(crate) fn len(value: u64) -> usize {
    (70 - (value | 1).leading_zeros() as usize) / 7
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
