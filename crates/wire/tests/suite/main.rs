//! Tests of `pharos-wire` from the outside: recorded bytes, bad bytes, and laws over arbitrary bytes.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod bad_input;
mod fixtures;
mod golden;
mod headers;
mod laws;
mod messages;

use bytes::BytesMut;
use pharos_wire::frame::{self, Frame, FrameError};

/// Bytes from hexadecimal text.
fn hex(text: &str) -> Vec<u8> {
    let digit = |c: u8| char::from(c).to_digit(16).unwrap() as u8;
    text.as_bytes()
        .chunks(2)
        .map(|pair| digit(pair[0]) << 4 | digit(pair[1]))
        .collect()
}

/// Decodes the first frame of `bytes` under the default limit.
fn decode(bytes: &[u8]) -> Result<Option<Frame>, FrameError> {
    frame::decode(
        &mut BytesMut::from(bytes),
        frame::frame_bytes_max(frame::MESSAGE_BYTES_MAX_DEFAULT),
    )
}

/// Decodes bytes that are exactly one good frame.
fn decode_whole(bytes: &[u8]) -> Frame {
    let mut buffer = BytesMut::from(bytes);
    let frame = frame::decode(
        &mut buffer,
        frame::frame_bytes_max(frame::MESSAGE_BYTES_MAX_DEFAULT),
    );
    assert!(buffer.is_empty(), "{} bytes are left", buffer.len());
    frame.expect("a good frame").expect("a whole frame")
}
