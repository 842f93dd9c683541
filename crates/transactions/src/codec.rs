//! Binary records of coordinators and subscriptions; `docs/formats/cursor-log.md` draws them.
//!
//! Decoding takes from the front of a slice and never panics.

use pharos_types::varint;

/// Bytes that are no such record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed record of a transaction: {0}")]
pub struct Malformed(pub &'static str);

pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    varint::put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

pub(crate) fn take_u64(input: &mut &[u8]) -> Result<u64, Malformed> {
    varint::take(input).map_err(|_| Malformed("a number does not parse"))
}

pub(crate) fn take_u8(input: &mut &[u8]) -> Result<u8, Malformed> {
    let (&byte, rest) = input.split_first().ok_or(Malformed("a byte is missing"))?;
    *input = rest;
    Ok(byte)
}

pub(crate) fn take_bytes<'a>(input: &mut &'a [u8]) -> Result<&'a [u8], Malformed> {
    let length = usize::try_from(take_u64(input)?).map_err(|_| Malformed("a length is beyond memory"))?;
    let (bytes, rest) = input
        .split_at_checked(length)
        .ok_or(Malformed("bytes end too early"))?;
    *input = rest;
    Ok(bytes)
}

pub(crate) fn take_text<'a>(input: &mut &'a [u8]) -> Result<&'a str, Malformed> {
    std::str::from_utf8(take_bytes(input)?).map_err(|_| Malformed("text is not UTF-8"))
}
