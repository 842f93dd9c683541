//! The Pulsar binary protocol, from bytes and to bytes, without touching a socket.
//!
//! Reading order: [`frame`] cuts a byte stream into commands, [`command`] is what a command is, [`message`] looks into the
//! payload part that SEND and MESSAGE carry, [`encode`] and [`header`] write frames, [`answer`] and [`request`] build the
//! commands each side sends, [`hash`] holds the hash functions both sides must agree on.
//!
//! Always true: bytes from a peer never make this crate panic, and never make it allocate more than a small multiple of the
//! bytes that have arrived. What is not understood is an error, never a guess.
//!
//! Facts and layouts: `docs/protocols/pulsar.md`.
//!
//! ```
//! use bytes::BytesMut;
//! use pharos_wire::{answer, command::Command, encode, frame};
//!
//! let mut stream = BytesMut::from(&encode::encode_command(&answer::success(7))[..]);
//! let frame = frame::decode(&mut stream, frame::frame_bytes_max(5 * 1024 * 1024))?.expect("a whole frame");
//! assert!(matches!(frame.command, Command::Success(success) if success.request_id == 7));
//! assert!(stream.is_empty());
//! # Ok::<(), frame::FrameError>(())
//! ```

#![forbid(unsafe_code)]
#![warn(clippy::indexing_slicing)]
#![cfg_attr(test, allow(clippy::indexing_slicing, reason = "a test may panic"))]

pub mod frame;

pub mod ack;
pub mod command;
pub mod proto;

pub mod message;

pub mod compression;

pub mod answer;
pub mod encode;
pub mod header;
pub mod request;

pub use pharos_types::hash;

pub mod error;
pub mod required;

mod hot;
mod protobuf;

pub use command::{Command, CommandType};
pub use frame::Frame;
pub use header::{HeaderBuf, MessageHeader};

/// The `request_id` of a command that was not asked for: CLOSE_* sent by the broker, ERROR about the whole connection.
///
/// It is -1 carried as an unsigned 64-bit number.
pub const NO_REQUEST_ID: u64 = u64::MAX;

/// The newest protocol version this crate speaks.
pub const PROTOCOL_VERSION: i32 = 21;
