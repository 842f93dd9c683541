//! The bookie protocol, version 3, from bytes and to bytes without touching a socket.
//!
//! ```text
//! frame   ┌ length 4 (big-endian, of what follows) ┬ Request or Response (protobuf, bookies' own schema) ┐
//! entry   ┌ ledger 8 ┬ entry 8 ┬ last add confirmed 8 ┬ length 8 ┬ digest 0, 4, 8 or 20 ┬ payload ┐
//! ```
//! An entry travels as one protobuf field, and that field comes last in what we write: the payload is never copied, it is the
//! frame's tail. Bookies tell version 3 from version 2 by the first frame of a connection; version 2 has no long polls, no explicit
//! last-add-confirmed and no write flags, so it is not spoken here. What version 2 alone has, batched reads, is not asked for: entries of a
//! batch are asked for one by one, many in flight.
//!
//! Always true: no byte from a peer can panic; what does not parse is a [`DecodeError`], and the connection is closed on it.

mod proto;
mod request;
mod response;

pub use request::{AddRequest, LongPoll, ReadRequest, ReadTarget, Request};
pub use response::{Answer, Response, Status};

#[cfg(any(test, feature = "test-util"))]
pub mod bookie_side;

use bytes::{Buf, Bytes, BytesMut};

/// Bytes of the length before each frame.
pub const LENGTH_BYTES: usize = 4;

/// The version that every header carries.
const VERSION_THREE: i32 = 3;

/// A frame to send: the two parts follow each other on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The length and everything up to the payload.
    pub head: Bytes,
    /// The payload of an entry, or nothing.
    pub tail: Bytes,
}

impl Frame {
    /// Bytes on the wire.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.head.len() + self.tail.len()
    }
}

/// Error in a frame of this protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The peer announces more than anyone may send.
    #[error("a frame of {bytes} bytes is larger than {bytes_max}")]
    TooLarge {
        /// Announced size.
        bytes: usize,
        /// Maximum size.
        bytes_max: usize,
    },
    /// The bytes are not protobuf, or not one of these messages.
    #[error("not a message of the bookie protocol: {0}")]
    Malformed(String),
}

impl From<prost::DecodeError> for DecodeError {
    fn from(error: prost::DecodeError) -> Self {
        Self::Malformed(error.to_string())
    }
}

/// Takes the next whole frame's body from `received`, or nothing while it has not arrived whole.
///
/// # Errors
/// [`DecodeError::TooLarge`]: the frame is longer than `bytes_max`. Nothing after it can be read.
pub fn next_frame(received: &mut BytesMut, bytes_max: usize) -> Result<Option<Bytes>, DecodeError> {
    let Some(length) = received.first_chunk::<LENGTH_BYTES>() else {
        return Ok(None);
    };
    let bytes = u32::from_be_bytes(*length) as usize;
    if bytes > bytes_max {
        return Err(DecodeError::TooLarge { bytes, bytes_max });
    }
    if received.len() - LENGTH_BYTES < bytes {
        return Ok(None);
    }
    received.advance(LENGTH_BYTES);
    Ok(Some(received.split_to(bytes).freeze()))
}

#[cfg(test)]
mod tests;
