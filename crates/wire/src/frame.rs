//! Cuts a byte stream into frames.
//!
//! ```text
//! ┌ totalSize u32 ┬ commandSize u32 ┬ BaseCommand ┬ payload part (SEND and MESSAGE only) ┐
//! └ not counted   └──────────────── totalSize bytes ──────────────────────────────────────┘
//! ```
//!
//! Owned by a connection's reader. Nothing is copied: the payload is a view of the read buffer, so a kept payload keeps that
//! buffer alive. Always true: a frame is taken from the buffer whole or not at all, and nothing is allocated for bytes that
//! a length merely promises.

use bytes::{Buf as _, Bytes, BytesMut};

pub use crate::error::{DecodeError, WireError};

use crate::command::{Command, CommandType};
use crate::hot;
use crate::protobuf::{Reader, Value};

/// Size of a frame beyond the largest message, in bytes: command, headers and metadata.
pub const HEADER_ROOM_BYTES: usize = 10_240;

/// The size of the largest message unless configured otherwise.
pub const MESSAGE_BYTES_MAX_DEFAULT: usize = 5 * 1024 * 1024;

/// The two lengths in front of a command.
const LENGTHS_BYTES: usize = 8;

/// The least a reader should make room for.
const READ_BYTES_MIN: usize = 16 * 1024;

/// Frame with its command.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    /// The decoded command.
    pub command: Command,
    /// For SEND and MESSAGE all bytes after the command, exactly as a broker stores them (checksum block, metadata,
    /// payload); `None` for all others.
    pub payload: Option<Bytes>,
}

/// A stream that cannot be understood any further; the connection must be closed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The frame is larger than allowed. Found from its first four bytes.
    #[error("a frame of {bytes} bytes is over the limit of {bytes_max}")]
    TooLarge {
        /// Size of the frame with its four length bytes.
        bytes: u64,
        /// The limit it was held against.
        bytes_max: u64,
    },
    /// The frame has no room for the size of a command.
    #[error("a frame of {bytes} bytes has no room for a command")]
    TooShort {
        /// Size of the frame without its four length bytes.
        bytes: u32,
    },
    /// The command claims more bytes than its frame has.
    #[error("a command of {command_bytes} bytes does not fit into the {bytes} bytes of its frame")]
    CommandOverrun {
        /// Claimed size of the command.
        command_bytes: u32,
        /// Rest of the frame, in bytes.
        bytes: u32,
    },
    /// The command itself is wrong.
    #[error(transparent)]
    Command(#[from] DecodeError),
}

/// The largest frame, with its four length bytes, for a given largest message.
pub const fn frame_bytes_max(message_bytes_max: usize) -> usize {
    message_bytes_max.saturating_add(HEADER_ROOM_BYTES)
}

/// Takes the next whole frame off the front of `buffer`; `None` when more bytes must come first (`buffer` is untouched then).
///
/// `bytes_max` limits the frame including its four length bytes; see [`frame_bytes_max`].
///
/// # Errors
/// The stream is broken for good: close the connection. What is left in `buffer` has no meaning.
pub fn decode(buffer: &mut BytesMut, bytes_max: usize) -> Result<Option<Frame>, FrameError> {
    let Some((&total, rest)) = buffer.split_first_chunk::<4>() else {
        return Ok(None);
    };
    let total = u32::from_be_bytes(total);
    let (bytes, bytes_max) = (u64::from(total) + 4, bytes_max as u64);
    if bytes > bytes_max {
        return Err(FrameError::TooLarge { bytes, bytes_max });
    }
    let Some(inside) = usize::try_from(total).ok().and_then(|total| rest.get(..total)) else {
        return Ok(None);
    };
    let (&command_bytes, inside) = inside
        .split_first_chunk::<4>()
        .ok_or(FrameError::TooShort { bytes: total })?;
    let command_bytes = u32::from_be_bytes(command_bytes);
    let (command, _) = usize::try_from(command_bytes)
        .ok()
        .and_then(|length| inside.split_at_checked(length))
        .ok_or(FrameError::CommandOverrun {
            command_bytes,
            bytes: total - 4,
        })?;
    let header_bytes = LENGTHS_BYTES + command.len();
    let frame_bytes = total as usize + 4;

    let command = decode_command(command)?;
    if !matches!(command, Command::Send(_) | Command::Message(_)) {
        // Bytes after a command that carries none are dropped, as Pulsar does.
        buffer.advance(frame_bytes);
        return Ok(Some(Frame {
            command,
            payload: None,
        }));
    }
    let mut frame = buffer.split_to(frame_bytes);
    frame.advance(header_bytes);
    Ok(Some(Frame {
        command,
        payload: Some(frame.freeze()),
    }))
}

/// Bytes that must still arrive before [`decode`] can get further: up to the end of the frame that has begun, or up to the end
/// of its length. 0 when a whole frame is there.
pub fn missing_bytes(buffer: &[u8]) -> usize {
    match buffer.split_first_chunk::<4>() {
        None => 4 - buffer.len(),
        Some((&total, rest)) => (u32::from_be_bytes(total) as usize).saturating_sub(rest.len()),
    }
}

/// Room to reserve before the next read: what is missing, but never much more than has already come.
///
/// A peer that promises five megabytes and sends eight bytes gets 16 KiB; the room doubles as its bytes really arrive.
pub fn reserve_hint(buffer: &[u8]) -> usize {
    missing_bytes(buffer).min(buffer.len()).max(READ_BYTES_MIN)
}

/// Decodes the bytes of a `BaseCommand`.
///
/// # Errors
/// The command is malformed, incomplete or of an unknown type.
pub fn decode_command(bytes: &[u8]) -> Result<Command, DecodeError> {
    if let Some(command) = hot::decode_command(bytes) {
        return Ok(command);
    }
    if let Some((kind, body)) = usual_form(bytes) {
        return decode_body(kind, body);
    }
    let kind = find_type(bytes)?;
    let body = find_body(kind, bytes)?;
    decode_body(kind, &body)
}

fn decode_body(kind: CommandType, body: &[u8]) -> Result<Command, DecodeError> {
    match hot::decode(kind as i32, body) {
        Some(command) => Ok(command),
        None => Command::decode_body(kind, body),
    }
}

/// The form every known encoder writes: the type, then its body, then nothing.
fn usual_form(bytes: &[u8]) -> Option<(CommandType, &[u8])> {
    let mut reader = Reader::new(bytes);
    let (1, Value::Varint(kind)) = reader.field().ok()?? else {
        return None;
    };
    let (number, Value::Bytes(body)) = reader.field().ok()?? else {
        return None;
    };
    let kind = CommandType::try_from(i32::try_from(kind).ok()?).ok()?;
    (kind as u32 == number && reader.is_empty()).then_some((kind, body))
}

fn find_type(bytes: &[u8]) -> Result<CommandType, DecodeError> {
    let mut found = None;
    let mut reader = Reader::new(bytes);
    while let Some(field) = reader.field().map_err(malformed)? {
        if let (1, Value::Varint(number)) = field {
            found = Some(number);
        }
    }
    let number = found.ok_or(DecodeError::MissingType)?;
    // An int32 on the wire; the upper half is cut off as every protobuf library does.
    CommandType::try_from(number as i32).map_err(|_| DecodeError::UnknownType { number })
}

/// Joins all occurrences of the body: protobuf defines that as merging them.
fn find_body(kind: CommandType, bytes: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let mut joined = None;
    let mut reader = Reader::new(bytes);
    while let Some((number, value)) = reader.field().map_err(malformed)? {
        if let Value::Bytes(body) = value
            && number == kind as u32
        {
            joined.get_or_insert_with(Vec::new).extend_from_slice(body);
        }
    }
    joined.ok_or(DecodeError::MissingBody { kind })
}

fn malformed(source: WireError) -> DecodeError {
    DecodeError::Malformed {
        message: "BaseCommand",
        source,
    }
}
