//! Bytes produced by Apache Pulsar, release 4.2.4.

use bytes::{Bytes, BytesMut};
use pharos_wire::command::Command;
use pharos_wire::proto::{CommandSend, FeatureFlags, MessageIdData, MessageMetadata, ServerError};
use pharos_wire::{HeaderBuf, MessageHeader, NO_REQUEST_ID, answer, encode, frame, message, request};
use prost::Message as _;

use crate::{decode, decode_whole, hex};

pub(crate) const ENTRY: &str = "0e01153dc3010000000e0a03702d3110051880d095ffbc3168656c6c6f";
const SEND: &str =
    "000000290000000808063204080110050e01153dc3010000000e0a03702d3110051880d095ffbc3168656c6c6f";
const MESSAGE: &str = "0000003a0000001908094a150803120f080c102218ffffffffffffffffff01\
                       18020e01153dc3010000000e0a03702d3110051880d095ffbc3168656c6c6f";
const LAST_MESSAGE_ID: &str = "0000004800000044081ef2013f0a2c08ffffffffffffffffff0110ffffffffffffffffff01\
                               18ffffffffffffffffff0120ffffffffffffffffff0110091a0d080510ffffffffffffffffff01";

/// Every recorded frame with the command it holds.
pub(crate) fn frames() -> Vec<(&'static str, Vec<u8>, Command)> {
    let flags = FeatureFlags {
        supports_topic_watchers: Some(true),
        supports_get_partitioned_metadata_without_auto_creation: Some(true),
        supports_repl_dedup_by_lid_and_eid: Some(true),
        supports_topic_watcher_reconcile: Some(true),
        ..Default::default()
    };
    let nowhere = MessageIdData {
        ledger_id: u64::MAX,
        entry_id: u64::MAX,
        partition: Some(-1),
        batch_index: Some(-1),
        ..Default::default()
    };
    let message = pharos_wire::proto::CommandMessage {
        consumer_id: 3,
        message_id: MessageIdData {
            partition: Some(-1),
            ..answer::message_id(12, 34)
        },
        redelivery_count: Some(2),
        ..Default::default()
    };
    let send = CommandSend {
        producer_id: 1,
        sequence_id: 5,
        ..Default::default()
    };
    let rows = [
        ("ping", "00000009000000050812920100", answer::ping()),
        ("pong", "000000090000000508139a0100", answer::pong()),
        (
            "connected",
            "0000002d0000002908031a250a1250756c73617220536572766572342e322e3410151880\
             80c00222082001280130013801",
            answer::connected("Pulsar Server4.2.4", 21, 5_242_880, flags),
        ),
        ("success", "0000000a00000006080d6a020807", answer::success(7)),
        (
            "error",
            "0000001800000014080e721008ffffffffffffffffff0110031a0178",
            answer::connection_error(ServerError::AuthenticationError, "x"),
        ),
        (
            "flow",
            "0000000d00000009080b5a05080310e807",
            request::flow(3, 1000),
        ),
        (
            "send-receipt",
            "000000140000001008073a0c080110051a04080c10222000",
            answer::send_receipt(1, 5, 0, 12, 34),
        ),
        (
            "close-producer",
            "0000001500000011080f7a0d080210ffffffffffffffffff01",
            answer::close_producer(2, answer::BrokerUrls::default()),
        ),
        (
            "last-message-id",
            LAST_MESSAGE_ID,
            answer::last_message_id(9, nowhere, Some(answer::message_id(5, u64::MAX))),
        ),
        ("send", SEND, Command::Send(send)),
        ("message", MESSAGE, Command::Message(message)),
    ];
    rows.into_iter()
        .map(|(name, text, command)| (name, hex(text), command))
        .collect()
}

#[test]
fn recorded_frames_decode_to_their_commands() {
    for (name, bytes, command) in frames() {
        let frame = decode_whole(&bytes);
        assert_eq!(frame.command, command, "{name}");
        let carries = matches!(command, Command::Send(_) | Command::Message(_));
        assert_eq!(frame.payload, carries.then(|| Bytes::from(hex(ENTRY))), "{name}");
    }
}

#[test]
fn commands_encode_to_the_recorded_frames() {
    for (name, bytes, command) in frames() {
        let payload = decode_whole(&bytes).payload.unwrap_or_default();
        assert_eq!(encode::encode_frame(&command, &payload), bytes, "{name}");
    }
}

#[test]
fn prost_agrees_about_the_recorded_commands() {
    for (name, bytes, command) in frames() {
        let size = u32::from_be_bytes(bytes[4..8].try_into().unwrap()) as usize;
        let base = pharos_wire::proto::BaseCommand::decode(&bytes[8..8 + size]).unwrap();
        assert_eq!(base.r#type(), command.command_type(), "{name}");
        assert_eq!(base.encode_to_vec(), bytes[8..8 + size], "{name}");
    }
}

#[test]
fn a_frame_cut_anywhere_is_incomplete() {
    for (name, bytes, _) in frames() {
        for length in 0..bytes.len() {
            let cut = &bytes[..length];
            assert_eq!(decode(cut), Ok(None), "{name} at {length}");
            let missing = frame::missing_bytes(cut);
            let expected = if length < 4 {
                4 - length
            } else {
                bytes.len() - length
            };
            assert_eq!(missing, expected, "{name} at {length}");
            assert!(frame::reserve_hint(cut) >= missing.min(16 * 1024));
        }
        assert_eq!(frame::missing_bytes(&bytes), 0);
    }
}

#[test]
fn a_command_cut_anywhere_is_an_error() {
    for (name, bytes, _) in frames() {
        let size = u32::from_be_bytes(bytes[4..8].try_into().unwrap()) as usize;
        for length in 0..size {
            assert!(
                frame::decode_command(&bytes[8..8 + length]).is_err(),
                "{name} at {length}"
            );
        }
    }
}

#[test]
fn frames_in_a_row_come_out_one_by_one() {
    let mut stream = BytesMut::new();
    frames()
        .iter()
        .for_each(|(_, bytes, _)| stream.extend_from_slice(bytes));
    for (name, _, command) in frames() {
        let frame = frame::decode(&mut stream, 1000).unwrap().unwrap();
        assert_eq!(frame.command, command, "{name}");
    }
    assert_eq!(frame::decode(&mut stream, 1000), Ok(None));
}

#[test]
fn the_fast_writers_give_the_recorded_frames() {
    let mut out = BytesMut::new();
    encode::send_receipt_into(1, 5, 0, 12, 34, &mut out);
    assert_eq!(out, hex("000000140000001008073a0c080110051a04080c10222000"));
    out.clear();
    encode::flow_into(3, 1000, &mut out);
    assert_eq!(out, hex("0000000d00000009080b5a05080310e807"));
    out.clear();
    encode::send_header_into(1, 5, None, 1, hex(ENTRY).len(), &mut out);
    out.extend_from_slice(&hex(ENTRY));
    assert_eq!(out, hex(SEND));
}

#[test]
fn the_message_header_says_what_the_recorded_frame_says() {
    let entry = hex(ENTRY);
    let mut header = HeaderBuf::new();
    MessageHeader::new(12, 34, None, entry.len())
        .unwrap()
        .write_for(3, 2, &[], None, &mut header);
    let frame = decode_whole(&[&header[..], &entry].concat());
    let recorded = decode_whole(&hex(MESSAGE));
    let (Command::Message(ours), Command::Message(theirs)) = (frame.command, recorded.command) else {
        panic!("not a MESSAGE")
    };
    // We leave the partition out where Pulsar writes -1, which is what absent means.
    assert_eq!(ours.message_id.partition(), theirs.message_id.partition());
    assert_eq!(
        (ours.consumer_id, ours.redelivery_count),
        (theirs.consumer_id, theirs.redelivery_count)
    );
    assert_eq!(frame.payload, recorded.payload);
}

#[test]
fn the_recorded_entry_comes_apart_and_together() {
    let entry = Bytes::from(hex(ENTRY));
    let parts = message::split(&entry).unwrap();
    assert_eq!(parts.checksum, Some(0x153d_c301));
    assert!(parts.verify_checksum());
    assert_eq!(parts.payload, "hello");
    let metadata = MessageMetadata {
        producer_name: "p-1".to_owned(),
        sequence_id: 5,
        publish_time: 1_700_000_000_000,
        ..Default::default()
    };
    assert_eq!(message::decode_metadata(&parts.metadata), Ok(metadata.clone()));
    assert_eq!(message::encode_entry(&metadata, b"hello"), entry);
}

#[test]
fn recorded_message_ids_decode() {
    let id = |text: &str| MessageIdData::decode(&hex(text)[..]).unwrap();
    let plain = id("080c10223000");
    assert_eq!((plain.ledger_id, plain.entry_id, plain.partition()), (12, 34, -1));
    let batch = id("080c1022180220013004");
    assert_eq!(
        (batch.partition(), batch.batch_index(), batch.batch_size()),
        (2, 1, 4)
    );
    assert_eq!(
        pharos_wire::ack::message_id_bytes(&batch),
        hex("080c1022180220013004")
    );
    let earliest = id("08ffffffffffffffffff0110ffffffffffffffffff013000");
    assert_eq!((earliest.ledger_id, earliest.entry_id), (NO_REQUEST_ID, u64::MAX));
    let latest = id("08ffffffffffffffff7f10ffffffffffffffff7f3000");
    assert_eq!(
        (latest.ledger_id, latest.entry_id),
        (i64::MAX as u64, i64::MAX as u64)
    );
}
