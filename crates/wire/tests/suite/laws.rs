//! Properties that hold for all bytes and all commands.

use bytes::{Bytes, BytesMut};
use pharos_wire::Frame;
use pharos_wire::ack::Ack;
use pharos_wire::command::Command;
use pharos_wire::proto::command_ack::AckType;
use pharos_wire::proto::{self, BaseCommand, KeyLongValue, KeyValue, MessageIdData, MessageMetadata};
use pharos_wire::{answer, encode, frame, message, request};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use prost::Message as _;

use crate::headers::number;
use crate::{decode, decode_whole, fixtures};

fn message_id() -> impl Strategy<Value = MessageIdData> {
    let plain = (
        number(),
        number(),
        option::of(any::<i32>()),
        option::of(any::<i32>()),
        vec(any::<i64>(), 0..4),
        option::of(any::<i32>()),
    );
    let plain = plain.prop_map(
        |(ledger_id, entry_id, partition, batch_index, ack_set, batch_size)| {
            let first_chunk_message_id = None;
            MessageIdData {
                ledger_id,
                entry_id,
                partition,
                batch_index,
                ack_set,
                batch_size,
                first_chunk_message_id,
            }
        },
    );
    (plain, option::of((number(), number()))).prop_map(|(id, first)| MessageIdData {
        first_chunk_message_id: first.map(|(ledger, entry)| Box::new(answer::message_id(ledger, entry))),
        ..id
    })
}

fn ack() -> impl Strategy<Value = Command> {
    (
        number(),
        any::<bool>(),
        vec(message_id(), 0..4),
        option::of(0..5_i32),
        vec((".{0,5}", number()), 0..2),
        (option::of(number()), option::of(number()), option::of(number())),
    )
        .prop_map(
            |(consumer_id, cumulative, ids, validation_error, properties, (least, most, request_id))| {
                let ack_type = if cumulative {
                    AckType::Cumulative
                } else {
                    AckType::Individual
                };
                Command::Ack(Ack {
                    validation_error,
                    properties: properties
                        .into_iter()
                        .map(|(key, value)| KeyLongValue { key, value })
                        .collect(),
                    txnid_least_bits: least,
                    txnid_most_bits: most,
                    request_id,
                    ..Ack::new(consumer_id, ack_type, ids)
                })
            },
        )
}

fn command() -> impl Strategy<Value = Command> {
    let send = (
        number(),
        number(),
        option::of(any::<i32>()),
        option::of(number()),
        option::of(message_id()),
    );
    let send = send.prop_map(
        |(producer_id, sequence_id, num_messages, highest_sequence_id, message_id)| {
            let send = request::send(producer_id, sequence_id, 1);
            proto::CommandSend {
                num_messages,
                highest_sequence_id,
                message_id,
                ..send
            }
            .into()
        },
    );
    let message = (
        number(),
        message_id(),
        option::of(any::<u32>()),
        vec(any::<i64>(), 0..3),
        option::of(number()),
    );
    let message = message.prop_map(
        |(consumer_id, message_id, redelivery_count, ack_set, consumer_epoch)| {
            proto::CommandMessage {
                consumer_id,
                message_id,
                redelivery_count,
                ack_set,
                consumer_epoch,
            }
            .into()
        },
    );
    let receipt = (number(), number(), option::of(message_id()), option::of(number()));
    let receipt = receipt.prop_map(|(producer_id, sequence_id, message_id, highest_sequence_id)| {
        proto::CommandSendReceipt {
            producer_id,
            sequence_id,
            message_id,
            highest_sequence_id,
        }
        .into()
    });
    let flow =
        (number(), any::<u32>()).prop_map(|(consumer_id, permits)| request::flow(consumer_id, permits));
    let subscribe = (
        ".{0,9}",
        ".{0,9}",
        number(),
        vec((".{0,5}", ".{0,5}"), 0..3),
        option::of(message_id()),
    );
    let subscribe = subscribe.prop_map(|(topic, subscription, id, metadata, start_message_id)| {
        proto::CommandSubscribe {
            topic,
            subscription,
            consumer_id: id,
            request_id: id,
            metadata: metadata
                .into_iter()
                .map(|(key, value)| KeyValue { key, value })
                .collect(),
            start_message_id,
            ..Default::default()
        }
        .into()
    });
    prop_oneof![ack(), send, message, receipt, flow, subscribe]
}

fn encoded(frame: &Frame) -> Bytes {
    encode::encode_frame(&frame.command, frame.payload.as_deref().unwrap_or_default())
}

/// Good frames with some bytes changed, some lost and some put in.
fn damaged_frame() -> impl Strategy<Value = Vec<u8>> {
    let frames: Vec<Vec<u8>> = fixtures::frames().into_iter().map(|(_, bytes)| bytes).collect();
    let edits = vec((any::<prop::sample::Index>(), any::<u8>(), 0..3_u8), 0..6);
    (prop::sample::select(frames), edits).prop_map(|(mut bytes, edits)| {
        for (at, value, kind) in edits {
            // The lengths stay as they are mostly, so that the damage is found deeper down.
            let at = at.index(bytes.len());
            match kind {
                0 => bytes[at] = value,
                1 if at >= 8 => bytes[at] ^= 1 << (value & 7),
                _ if bytes.len() > 1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, value),
            }
        }
        bytes
    })
}

proptest! {
    #[test]
    fn what_is_encoded_decodes_to_the_same(command in command(), payload in vec(any::<u8>(), 0..50)) {
        let frame = decode_whole(&encode::encode_frame(&command, &payload));
        prop_assert_eq!(&frame.command, &command);
        let carries = matches!(command, Command::Send(_) | Command::Message(_));
        prop_assert_eq!(frame.payload, carries.then(|| Bytes::from(payload)));
    }

    #[test]
    fn prost_reads_what_we_write(command in command()) {
        let bytes = encode::encode_command(&command);
        let base = BaseCommand::decode(&bytes[8..]).unwrap();
        prop_assert_eq!(base.r#type(), command.command_type());
        prop_assert_eq!(base.encode_to_vec(), &bytes[8..]);
    }

    #[test]
    fn no_bytes_make_the_decoder_panic(bytes in vec(any::<u8>(), 0..200)) {
        let _ = decode(&bytes);
        let _ = frame::decode_command(&bytes);
        let _ = message::peek(&bytes);
        let _ = message::sticky_key(&bytes);
        if let Ok(parts) = message::split(&Bytes::from(bytes.clone())) {
            parts.verify_checksum();
            prop_assert!(message::BatchIter::new(parts.payload, 100).count() <= 100);
        }
        prop_assert!(frame::reserve_hint(&bytes) <= 16 * 1024);
    }

    #[test]
    fn a_damaged_frame_is_refused_or_means_something(bytes in damaged_frame()) {
        let before = bytes.len();
        let mut buffer = BytesMut::from(&bytes[..]);
        match frame::decode(&mut buffer, frame::frame_bytes_max(frame::MESSAGE_BYTES_MAX_DEFAULT)) {
            Ok(None) => prop_assert_eq!(buffer.len(), before),
            Ok(Some(first)) => {
                // Bytes are compared, because a number that is not a number does not equal itself.
                let again = encoded(&first);
                prop_assert_eq!(encoded(&decode_whole(&again)), again);
            }
            Err(_) => {}
        }
    }

    #[test]
    fn peek_and_prost_agree(
        name in ".{0,9}",
        numbers in (number(), number(), option::of(number()), option::of(any::<i64>())),
        count in option::of(any::<i32>()),
        key in option::of(".{0,9}"),
        schema_version in option::of(vec(any::<u8>(), 0..9)),
        properties in vec((".{0,5}", ".{0,5}"), 0..3),
    ) {
        let (sequence_id, publish_time, highest_sequence_id, deliver_at_time) = numbers;
        let metadata = MessageMetadata {
            producer_name: name,
            sequence_id,
            publish_time,
            highest_sequence_id,
            deliver_at_time,
            num_messages_in_batch: count,
            partition_key: key,
            schema_version: schema_version.map(Bytes::from),
            properties: properties.into_iter().map(|(key, value)| KeyValue { key, value }).collect(),
            ..Default::default()
        };
        let bytes = metadata.encode_to_vec();
        let facts = message::peek(&bytes).unwrap();
        prop_assert_eq!(facts.producer_name, &metadata.producer_name);
        prop_assert_eq!((facts.sequence_id, facts.publish_time), (sequence_id, publish_time));
        prop_assert_eq!((facts.highest_sequence_id, facts.deliver_at_time), (highest_sequence_id, deliver_at_time));
        prop_assert_eq!(facts.num_messages_in_batch, count);
        prop_assert_eq!(facts.partition_key, metadata.partition_key.as_ref().map(String::as_bytes));
        prop_assert_eq!(facts.schema_version, metadata.schema_version.as_deref());
        prop_assert_eq!(facts.property_count as usize, metadata.properties.len());
    }
}
