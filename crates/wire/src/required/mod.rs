//! Refuses protobuf messages that lack a required field.
//!
//! prost fills a missing required field with zero, which would turn a broken SUBSCRIBE into one for consumer 0. This walker
//! looks at the bytes first. Its verdict follows proto2: a field that appears but is an unknown enum number counts as absent.
//! A required field must be present in *every* occurrence of a repeated-by-mistake message; real encoders write one.

use crate::error::{DecodeError, WireError};
use crate::protobuf::{Reader, Value};

pub mod table;

/// The part of a message's definition that decides whether bytes are a complete message.
#[derive(Debug)]
pub struct Shape {
    /// Name of the message.
    pub(crate) name: &'static str,
    /// Fields that must be there; fewer than 32.
    pub(crate) required: &'static [RequiredField],
    /// Fields that are messages themselves.
    pub(crate) nested: &'static [Nested],
}

/// A field that must be there.
#[derive(Debug)]
pub(crate) struct RequiredField {
    pub(crate) number: u32,
    pub(crate) name: &'static str,
    /// For an enum: whether a number is one of its values.
    pub(crate) is_known: Option<fn(i32) -> bool>,
}

/// A field that holds a message.
#[derive(Debug)]
pub(crate) struct Nested {
    pub(crate) number: u32,
    pub(crate) shape: &'static Shape,
}

/// `MessageIdData` can hold itself; real ones do so once.
const DEPTH_MAX: u8 = 16;

/// Decodes a message that must be complete.
///
/// # Errors
/// `Malformed` and `Content`: the bytes are not this message. `MissingField`: it lacks a required field. `TooDeep`: nested
/// beyond any real use.
pub fn decode<M: prost::Message + Default>(shape: &'static Shape, bytes: &[u8]) -> Result<M, DecodeError> {
    check(shape, bytes, DEPTH_MAX)?;
    M::decode(bytes).map_err(|source| DecodeError::Content {
        message: shape.name,
        source,
    })
}

fn check(shape: &'static Shape, bytes: &[u8], depth_left: u8) -> Result<(), DecodeError> {
    let malformed = |source: WireError| DecodeError::Malformed {
        message: shape.name,
        source,
    };
    if depth_left == 0 {
        return Err(DecodeError::TooDeep { depth_max: DEPTH_MAX });
    }
    let mut seen = 0_u32;
    let mut reader = Reader::new(bytes);
    while let Some((number, value)) = reader.field().map_err(malformed)? {
        // The last occurrence counts, as in the decoder that runs afterwards.
        if let Some((at, field)) = shape
            .required
            .iter()
            .enumerate()
            .find(|(_, field)| field.number == number)
        {
            seen = if field.accepts(value) {
                seen | (1 << at)
            } else {
                seen & !(1 << at)
            };
        }
        if let Value::Bytes(inner) = value
            && let Some(nested) = shape.nested.iter().find(|nested| nested.number == number)
        {
            check(nested.shape, inner, depth_left - 1)?;
        }
    }
    match shape
        .required
        .iter()
        .enumerate()
        .find(|(at, _)| seen & (1 << at) == 0)
    {
        Some((_, field)) => Err(DecodeError::MissingField {
            message: shape.name,
            field: field.name,
        }),
        None => Ok(()),
    }
}

impl RequiredField {
    fn accepts(&self, value: Value<'_>) -> bool {
        match (self.is_known, value) {
            (Some(is_known), Value::Varint(number)) => is_known(number as i32),
            (Some(_), _) => false,
            (None, _) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;
    use crate::proto::{CommandSubscribe, MessageIdData};

    #[test]
    fn a_missing_required_field_is_named() {
        let ack = decode::<CommandSubscribe>(
            &table::COMMAND_SUBSCRIBE,
            &[0x0a, 1, b't', 0x12, 1, b's', 0x18, 0],
        );
        let missing = DecodeError::MissingField {
            message: "CommandSubscribe",
            field: "consumer_id",
        };
        assert_eq!(ack, Err(missing));
    }

    #[test]
    fn an_unknown_required_enum_counts_as_missing() {
        let bytes = [0x0a, 1, b't', 0x12, 1, b's', 0x18, 9, 0x20, 1, 0x28, 1];
        let missing = DecodeError::MissingField {
            message: "CommandSubscribe",
            field: "subType",
        };
        assert_eq!(
            decode::<CommandSubscribe>(&table::COMMAND_SUBSCRIBE, &bytes),
            Err(missing)
        );
    }

    #[test]
    fn endless_nesting_is_refused() {
        let mut id = MessageIdData {
            ledger_id: 1,
            entry_id: 2,
            ..Default::default()
        };
        for _ in 0..DEPTH_MAX {
            id = MessageIdData {
                first_chunk_message_id: Some(Box::new(id.clone())),
                ..id
            };
        }
        let outcome = decode::<MessageIdData>(&table::MESSAGE_ID_DATA, &id.encode_to_vec());
        assert_eq!(outcome, Err(DecodeError::TooDeep { depth_max: DEPTH_MAX }));
    }
}
