//! Bodies of the commands that travel once per message, read in one pass without prost.
//!
//! Owned by [`crate::frame`]. Every function answers `None` for anything out of the ordinary (a packed list, a nested chunk
//! id, a repeated message, a missing field, broken bytes); the caller then takes the general way, which also finds the
//! exact error. So a `Some` here must equal what the general way gives.

use crate::ack::{Ack, MessageIds};
use crate::command::{Command, CommandType};
use crate::proto::command_ack::AckType;
use crate::proto::{CommandFlow, CommandMessage, CommandSend, CommandSendReceipt, MessageIdData};
use crate::protobuf::{Reader, Value};

/// Decodes a whole `BaseCommand` when it is a per-message command in the form every known encoder writes: the type, the body
/// of less than 128 bytes, nothing else.
#[inline]
pub(crate) fn decode_command(bytes: &[u8]) -> Option<Command> {
    let [0x08, kind, tag, length, body @ ..] = bytes else {
        return None;
    };
    // The tag is compared as a number of one byte, which also bounds the type, and the length likewise.
    if u32::from(*tag) != u32::from(*kind) << 3 | 2 || *tag >= 0x80 || *length >= 0x80 {
        return None;
    }
    if body.len() != usize::from(*length) {
        return None;
    }
    decode(i32::from(*kind), body)
}

/// Decodes the body when it is a per-message command in its usual form.
#[inline]
pub(crate) fn decode(kind: i32, body: &[u8]) -> Option<Command> {
    const ACK: i32 = CommandType::Ack as i32;
    const SEND: i32 = CommandType::Send as i32;
    const FLOW: i32 = CommandType::Flow as i32;
    const MESSAGE: i32 = CommandType::Message as i32;
    const SEND_RECEIPT: i32 = CommandType::SendReceipt as i32;
    match kind {
        ACK => ack(body).map(Command::Ack),
        SEND => send(body).map(Command::Send),
        FLOW => flow(body).map(Command::Flow),
        MESSAGE => message(body).map(Command::Message),
        SEND_RECEIPT => send_receipt(body).map(Command::SendReceipt),
        _ => None,
    }
}

fn ack(body: &[u8]) -> Option<Ack> {
    let (mut consumer_id, mut ack_type, mut request_id) = (None, None, None);
    let (mut first, mut more) = (None, Vec::new());
    let mut reader = Reader::new(body);
    while let Some(field) = reader.field().ok()? {
        match field {
            (1, Value::Varint(v)) => consumer_id = Some(v),
            (2, Value::Varint(v)) => ack_type = AckType::try_from(v as i32).ok(),
            (3, Value::Bytes(id)) if first.is_none() => first = Some(message_id(id)?),
            (3, Value::Bytes(id)) => more.push(message_id(id)?),
            (8, Value::Varint(v)) => request_id = Some(v),
            _ => return None,
        }
    }
    let mut ids = first.map_or_else(MessageIds::none, MessageIds::from);
    ids.extend(more);
    Some(Ack {
        request_id,
        ..Ack::new(consumer_id?, ack_type?, ids)
    })
}

fn send(body: &[u8]) -> Option<CommandSend> {
    let (mut producer_id, mut sequence_id) = (None, None);
    let mut send = CommandSend::default();
    let mut reader = Reader::new(body);
    while let Some(field) = reader.field().ok()? {
        match field {
            (1, Value::Varint(v)) => producer_id = Some(v),
            (2, Value::Varint(v)) => sequence_id = Some(v),
            (3, Value::Varint(v)) => send.num_messages = Some(v as i32),
            (4, Value::Varint(v)) => send.txnid_least_bits = Some(v),
            (5, Value::Varint(v)) => send.txnid_most_bits = Some(v),
            (6, Value::Varint(v)) => send.highest_sequence_id = Some(v),
            (7, Value::Varint(v)) => send.is_chunk = Some(v != 0),
            (8, Value::Varint(v)) => send.marker = Some(v != 0),
            _ => return None,
        }
    }
    send.producer_id = producer_id?;
    send.sequence_id = sequence_id?;
    Some(send)
}

fn flow(body: &[u8]) -> Option<CommandFlow> {
    let (mut consumer_id, mut message_permits) = (None, None);
    let mut reader = Reader::new(body);
    while let Some(field) = reader.field().ok()? {
        match field {
            (1, Value::Varint(v)) => consumer_id = Some(v),
            (2, Value::Varint(v)) => message_permits = Some(v as u32),
            _ => return None,
        }
    }
    Some(CommandFlow {
        consumer_id: consumer_id?,
        message_permits: message_permits?,
    })
}

fn message(body: &[u8]) -> Option<CommandMessage> {
    let (mut consumer_id, mut id) = (None, None);
    let mut message = CommandMessage::default();
    let mut reader = Reader::new(body);
    while let Some(field) = reader.field().ok()? {
        match field {
            (1, Value::Varint(v)) => consumer_id = Some(v),
            (2, Value::Bytes(bytes)) if id.is_none() => id = Some(message_id(bytes)?),
            (3, Value::Varint(v)) => message.redelivery_count = Some(v as u32),
            (4, Value::Varint(v)) => message.ack_set.push(v as i64),
            (5, Value::Varint(v)) => message.consumer_epoch = Some(v),
            _ => return None,
        }
    }
    message.consumer_id = consumer_id?;
    message.message_id = id?;
    Some(message)
}

fn send_receipt(body: &[u8]) -> Option<CommandSendReceipt> {
    let (mut producer_id, mut sequence_id) = (None, None);
    let mut receipt = CommandSendReceipt::default();
    let mut reader = Reader::new(body);
    while let Some(field) = reader.field().ok()? {
        match field {
            (1, Value::Varint(v)) => producer_id = Some(v),
            (2, Value::Varint(v)) => sequence_id = Some(v),
            (3, Value::Bytes(id)) if receipt.message_id.is_none() => {
                receipt.message_id = Some(message_id(id)?)
            }
            (4, Value::Varint(v)) => receipt.highest_sequence_id = Some(v),
            _ => return None,
        }
    }
    receipt.producer_id = producer_id?;
    receipt.sequence_id = sequence_id?;
    Some(receipt)
}

fn message_id(bytes: &[u8]) -> Option<MessageIdData> {
    let (mut ledger_id, mut entry_id) = (None, None);
    let mut id = MessageIdData::default();
    let mut reader = Reader::new(bytes);
    while let Some(field) = reader.field().ok()? {
        match field {
            (1, Value::Varint(v)) => ledger_id = Some(v),
            (2, Value::Varint(v)) => entry_id = Some(v),
            (3, Value::Varint(v)) => id.partition = Some(v as i32),
            (4, Value::Varint(v)) => id.batch_index = Some(v as i32),
            (5, Value::Varint(v)) => id.ack_set.push(v as i64),
            (6, Value::Varint(v)) => id.batch_size = Some(v as i32),
            _ => return None,
        }
    }
    id.ledger_id = ledger_id?;
    id.entry_id = entry_id?;
    Some(id)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use prost::encoding::{WireType, encode_key, encode_varint};

    use super::*;

    fn varint() -> impl Strategy<Value = u64> {
        prop_oneof![
            0..4_u64,
            any::<u64>(),
            (0..64_u32).prop_map(|shift| u64::MAX >> shift)
        ]
    }

    /// Fields with small numbers in any order and number, most of them varints; `inner` makes the length-delimited ones.
    fn fields(inner: BoxedStrategy<Vec<u8>>) -> BoxedStrategy<Vec<u8>> {
        let field = prop_oneof![
            4 => (1..9_u32, varint()).prop_map(|(number, value)| {
                let mut out = Vec::new();
                encode_key(number, WireType::Varint, &mut out);
                encode_varint(value, &mut out);
                out
            }),
            2 => (1..8_u32, inner).prop_map(|(number, bytes)| {
                let mut out = Vec::new();
                encode_key(number, WireType::LengthDelimited, &mut out);
                encode_varint(bytes.len() as u64, &mut out);
                out.extend_from_slice(&bytes);
                out
            }),
        ];
        vec(field, 0..8).prop_map(|fields| fields.concat()).boxed()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        #[test]
        fn the_fast_way_gives_what_the_general_way_gives(
            body in fields(fields(vec(any::<u8>(), 0..4).boxed())),
            kind in prop::sample::select(vec![
                CommandType::Ack,
                CommandType::Send,
                CommandType::Flow,
                CommandType::Message,
                CommandType::SendReceipt,
            ]),
        ) {
            if let Some(command) = decode(kind as i32, &body) {
                prop_assert_eq!(Command::decode_body(kind, &body), Ok(command));
            }
        }
    }
}
