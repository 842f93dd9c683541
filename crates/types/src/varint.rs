//! Integers of variable length: seven bits a byte, lowest first, high bit set on all but the last. Protobuf has them, and so have
//! our own formats.
//!
//! ```
//! use pharos_types::varint;
//!
//! let mut bytes = Vec::new();
//! varint::put(&mut bytes, 300);
//! assert_eq!((bytes.as_slice(), varint::len(300)), (&[0xac, 0x02][..], 2));
//! assert_eq!(varint::take(&mut &bytes[..]), Ok(300));
//! ```

/// The continuation bit of each byte of a word.
const CONTINUE: u64 = 0x8080_8080_8080_8080;

/// Bytes that are no such integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VarintError {
    /// Incomplete: the bytes end first.
    #[error("an integer runs past the end")]
    Truncated,
    /// More than ten bytes, or larger than 64 bits.
    #[error("an integer is longer than 64 bits")]
    TooLong,
}

/// Takes one integer from the front of `input`. After an error `input` is as it was.
///
/// # Errors
/// See [`VarintError`].
#[inline(always)]
pub fn take(input: &mut &[u8]) -> Result<u64, VarintError> {
    let bytes = *input;
    let (&first, rest) = bytes.split_first().ok_or(VarintError::Truncated)?;
    if first < 0x80 {
        *input = rest;
        return Ok(u64::from(first));
    }
    // Two bytes hold most lengths and counts, also where fewer than eight bytes are left for a word.
    if let Some((&second, rest)) = rest.split_first()
        && second < 0x80
    {
        *input = rest;
        return Ok(u64::from(first & 0x7f) | u64::from(second) << 7);
    }
    if let Some(word) = bytes.first_chunk() {
        let word = u64::from_le_bytes(*word);
        let ends = !word & CONTINUE;
        if ends != 0 {
            // Keep the bytes up to the first without a continuation bit, then close the gaps those bits leave.
            let length = ends.trailing_zeros() as usize / 8 + 1;
            *input = bytes.get(length..).ok_or(VarintError::Truncated)?;
            return Ok(gather(word & (ends ^ (ends - 1))));
        }
    }
    take_long(input)
}

#[cold]
fn take_long(input: &mut &[u8]) -> Result<u64, VarintError> {
    let mut value = 0_u64;
    for (i, &byte) in input.iter().enumerate().take(10) {
        // The tenth byte holds the one bit that is left of 64.
        if i == 9 && byte > 1 {
            return Err(VarintError::TooLong);
        }
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte < 0x80 {
            *input = input.get(i + 1..).ok_or(VarintError::Truncated)?;
            return Ok(value);
        }
    }
    Err(VarintError::Truncated)
}

/// Appends `value` in its shortest form.
#[inline]
pub fn put(out: &mut Vec<u8>, value: u64) {
    put_bytes(value, |byte| out.push(byte));
}

/// Gives the bytes of `value` in its shortest form, one by one.
#[inline]
pub fn put_bytes(mut value: u64, mut put: impl FnMut(u8)) {
    while value >= 0x80 {
        put(value as u8 | 0x80);
        value >>= 7;
    }
    put(value as u8);
}

/// `value` in its shortest form as the first bytes of a block, and how many they are. `None`: it has more than eight.
#[inline(always)]
#[must_use]
pub fn block(value: u64) -> Option<([u8; 8], usize)> {
    if value >= 1 << 56 {
        return None;
    }
    let length = len(value);
    let continued = CONTINUE & ((1 << (8 * (length - 1))) - 1);
    Some(((scatter(value) | continued).to_le_bytes(), length))
}

/// Bytes of `value` in its shortest form, 1 to 10.
#[inline(always)]
#[must_use]
pub fn len(value: u64) -> usize {
    ((value | 1).ilog2() / 7 + 1) as usize
}

/// Joins the low seven bits of eight bytes into 56 bits.
#[inline(always)]
fn gather(word: u64) -> u64 {
    let v = word & !CONTINUE;
    let v = (v & 0x007f_007f_007f_007f) | ((v & 0x7f00_7f00_7f00_7f00) >> 1);
    let v = (v & 0x0000_3fff_0000_3fff) | ((v & 0x3fff_0000_3fff_0000) >> 2);
    (v & 0x0fff_ffff) | ((v & 0x0fff_ffff_0000_0000) >> 4)
}

/// Spreads 56 bits over eight bytes of seven; the opposite of [`gather`].
#[inline(always)]
fn scatter(value: u64) -> u64 {
    let v = (value & 0x0fff_ffff) | ((value << 4) & 0x0fff_ffff_0000_0000);
    let v = (v & 0x0000_3fff_0000_3fff) | ((v << 2) & 0x3fff_0000_3fff_0000);
    (v & 0x007f_007f_007f_007f) | ((v << 1) & 0x7f00_7f00_7f00_7f00)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_of_every_length_come_back() {
        for shift in 0..64 {
            for value in [1_u64 << shift, (1_u64 << shift) - 1, u64::MAX >> shift] {
                let mut bytes = Vec::new();
                put(&mut bytes, value);
                assert_eq!(len(value), bytes.len());
                match block(value) {
                    Some((block, length)) => assert_eq!(block[..length], bytes),
                    None => assert!(bytes.len() > 8),
                }
                // Once with bytes behind it and once without: the two are read differently.
                let padded = [&bytes[..], &[0xff; 8]].concat();
                let mut input = &padded[..];
                assert_eq!((take(&mut input), input.len()), (Ok(value), 8));
                let mut input = &bytes[..];
                assert_eq!((take(&mut input), input.len()), (Ok(value), 0));
                bytes.pop();
                assert_eq!(take(&mut &bytes[..]), Err(VarintError::Truncated));
            }
        }
    }

    #[test]
    fn what_is_no_integer_is_refused() {
        let long = [0xff; 11];
        assert_eq!(take(&mut &long[..]), Err(VarintError::TooLong));
        let (last, rest) = ([2], [0x80; 9]);
        assert_eq!(
            take(&mut &[&rest[..], &last].concat()[..]),
            Err(VarintError::TooLong)
        );
        let mut input = &long[..9];
        assert_eq!(take(&mut input), Err(VarintError::Truncated));
        assert_eq!(input.len(), 9);
    }
}
