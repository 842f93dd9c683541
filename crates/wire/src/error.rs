//! Errors in a command that a peer sent.
//!
//! All of these mean the same to a connection: log once, close. None can be answered, because the request id is not
//! known.

use crate::command::CommandType;

/// Bytes that are not protobuf.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// A varint, length or fixed value runs past the end.
    #[error("a value runs past the end")]
    Truncated,
    /// A varint holds more than 64 bits.
    #[error("a varint is longer than 64 bits")]
    VarintTooLong,
    /// A wire type that protobuf does not have, or a group.
    #[error("wire type {wire_type} is not supported")]
    WireType {
        /// The three low bits of the tag.
        wire_type: u8,
    },
    /// Field number 0, or a tag of more than 32 bits.
    #[error("a field tag is out of range")]
    Tag,
}

/// A command or message that is not what the protocol says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes are not protobuf.
    #[error("malformed {message}: {source}")]
    Malformed {
        /// The message being read.
        message: &'static str,
        /// Error in its bytes.
        source: WireError,
    },
    /// A required field is absent, or is an enum with a number this level of the protocol does not know.
    #[error("{message} has no {field}")]
    MissingField {
        /// The message that is incomplete.
        message: &'static str,
        /// The member's name on the wire.
        field: &'static str,
    },
    /// The command says no type.
    #[error("the command has no type")]
    MissingType,
    /// The command's type is not one of this level of the protocol.
    #[error("command type {number} is unknown")]
    UnknownType {
        /// The number on the wire.
        number: u64,
    },
    /// The command has a type but not the body that belongs to it.
    #[error("the {kind:?} command has no body")]
    MissingBody {
        /// The type it claims.
        kind: CommandType,
    },
    /// Messages are nested deeper than any real command.
    #[error("messages are nested deeper than {depth_max}")]
    TooDeep {
        /// The deepest nesting allowed.
        depth_max: u8,
    },
    /// Well-formed fields with content that cannot be, such as text that is not UTF-8.
    #[error("malformed {message}: {source}")]
    Content {
        /// The message being read.
        message: &'static str,
        /// The protobuf library's finding.
        source: prost::DecodeError,
    },
}
