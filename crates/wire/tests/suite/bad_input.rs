//! Bytes that must be refused, and the exact reason.

use bytes::BytesMut;
use pharos_wire::command::CommandType;
use pharos_wire::frame::{self, DecodeError, FrameError, WireError};
use pharos_wire::message::{self, SplitError};
use pharos_wire::{encode, request};

use crate::{decode, decode_whole, hex};

#[test]
fn bad_frames_are_refused_for_the_right_reason() {
    let rows = [
        (
            "no room for a command size",
            "00000003000000",
            FrameError::TooShort { bytes: 3 },
        ),
        ("an empty frame", "00000000", FrameError::TooShort { bytes: 0 }),
        (
            "a command beyond its frame",
            "00000009000000060812920100",
            FrameError::CommandOverrun {
                command_bytes: 6,
                bytes: 5,
            },
        ),
        (
            "a command of four gigabytes",
            "00000009ffffffff0812920100",
            FrameError::CommandOverrun {
                command_bytes: u32::MAX,
                bytes: 5,
            },
        ),
        (
            "a frame over the limit, known from four bytes",
            "005027fd",
            FrameError::TooLarge {
                bytes: 5_253_121,
                bytes_max: 5_253_120,
            },
        ),
        (
            "HTTP on the wrong port",
            "474554202f20485454502f312e310d0a",
            FrameError::TooLarge {
                bytes: 0x4745_5424,
                bytes_max: 5_253_120,
            },
        ),
        (
            "no command",
            "0000000400000000",
            FrameError::Command(DecodeError::MissingType),
        ),
    ];
    for (what, text, error) in rows {
        assert_eq!(decode(&hex(text)), Err(error), "{what}");
    }
}

#[test]
fn bad_commands_are_refused_for_the_right_reason() {
    let malformed = |message, source| DecodeError::Malformed { message, source };
    let missing = |message, field| DecodeError::MissingField { message, field };
    let unknown = |number| DecodeError::UnknownType { number };
    let rows = [
        ("nothing", "", DecodeError::MissingType),
        ("a body without a type", "920100", DecodeError::MissingType),
        ("a type that is text", "0a0108", DecodeError::MissingType),
        ("a retired type", "0801", unknown(1)),
        ("a type of the next level", "0846b20400", unknown(70)),
        ("a negative type", "08ffffffffffffffffff01", unknown(u64::MAX)),
        (
            "a type of 70 bits",
            "08ffffffffffffffffff7f",
            malformed("BaseCommand", WireError::VarintTooLong),
        ),
        (
            "PING without its body",
            "0812",
            DecodeError::MissingBody {
                kind: CommandType::Ping,
            },
        ),
        (
            "SEND with the body of FLOW",
            "08065a0408011001",
            DecodeError::MissingBody {
                kind: CommandType::Send,
            },
        ),
        (
            "a body past the end",
            "08129201ff",
            malformed("BaseCommand", WireError::Truncated),
        ),
        (
            "field number 0",
            "08120000",
            malformed("BaseCommand", WireError::Tag),
        ),
        (
            "a group",
            "081293019401",
            malformed("BaseCommand", WireError::WireType { wire_type: 3 }),
        ),
        (
            "FLOW without permits",
            "080b5a020803",
            missing("CommandFlow", "messagePermits"),
        ),
        (
            "SEND without a sequence id",
            "080632020801",
            missing("CommandSend", "sequence_id"),
        ),
        (
            "ACK without a type",
            "080a52020803",
            missing("CommandAck", "ack_type"),
        ),
        (
            "ACK of an unknown type",
            "080a520408031002",
            missing("CommandAck", "ack_type"),
        ),
        (
            "ACK of an id without entry",
            "080a5208080310001a02080c",
            missing("MessageIdData", "entryId"),
        ),
        (
            "MESSAGE without an id",
            "08094a020803",
            missing("CommandMessage", "message_id"),
        ),
        (
            "a field beyond its body",
            "080b5a0408031080",
            malformed("CommandFlow", WireError::Truncated),
        ),
        (
            "CONNECT without anything",
            "08021200",
            missing("CommandConnect", "client_version"),
        ),
    ];
    for (what, text, error) in rows {
        assert_eq!(frame::decode_command(&hex(text)), Err(error), "{what}");
    }
}

#[test]
fn text_that_is_not_utf8_is_refused() {
    let mut bytes = encode::encode_command(&request::lookup("topic", 1, false).into()).to_vec();
    let at = bytes.windows(5).position(|window| window == b"topic").unwrap();
    bytes[at] = 0xff;
    let outcome = decode(&bytes);
    assert!(
        matches!(&outcome, Err(FrameError::Command(DecodeError::Content { message, .. })) if *message == "CommandLookupTopic"),
        "{outcome:?}"
    );
}

#[test]
fn the_limit_counts_the_length_bytes() {
    let bytes = encode::encode_command(&request::flow(1, 1));
    let size = bytes.len();
    assert!(
        frame::decode(&mut BytesMut::from(&bytes[..]), size)
            .unwrap()
            .is_some()
    );
    let error = FrameError::TooLarge {
        bytes: size as u64,
        bytes_max: size as u64 - 1,
    };
    assert_eq!(
        frame::decode(&mut BytesMut::from(&bytes[..]), size - 1),
        Err(error)
    );
}

#[test]
fn bytes_after_a_command_that_carries_none_are_dropped() {
    let bytes = hex("0000000b000000050812920100abcd");
    assert_eq!(decode_whole(&bytes).payload, None);
}

#[test]
fn odd_but_legal_forms_are_understood() {
    let flow = request::flow(3, 1000);
    for (what, text) in [
        ("body before type", "5a05080310e807080b"),
        ("an unknown field in the body", "080b5a09080310e807d20101ff"),
        ("an unknown field beside the body", "080b5a05080310e807c20c01ff"),
        (
            "unknown fixed fields",
            "080b5a0a080310e8077d010203047901020304050607085a00",
        ),
        ("a body in two halves", "080b5a0208035a0310e807"),
        ("the body of another type beside", "080b320208015a05080310e807"),
        ("a varint longer than needed", "080b5a0608830010e807"),
        ("the type twice", "0801080b5a05080310e807"),
    ] {
        assert_eq!(frame::decode_command(&hex(text)).as_ref(), Ok(&flow), "{what}");
    }
}

#[test]
fn packed_lists_are_understood() {
    let packed = hex("080a5212080310001a0c080c10222a06ff01ff01ff01");
    let pharos_wire::Command::Ack(ack) = frame::decode_command(&packed).unwrap() else {
        panic!("not an ACK")
    };
    assert_eq!(ack.message_ids[0].ack_set, [255, 255, 255]);
}

#[test]
fn entries_that_do_not_fit_together_are_refused() {
    let metadata = "the message metadata";
    let cut = |block| SplitError::Truncated { block };
    for (text, error) in [
        ("", cut(metadata)),
        ("0e01", cut("the checksum")),
        ("0e01000000", cut("the checksum")),
        ("0e0100000000", cut(metadata)),
        ("0e02", cut("the broker entry metadata")),
        ("0e020000000000", cut(metadata)),
        (
            "00000001",
            SplitError::Overrun {
                block: metadata,
                claimed: 1,
                available: 0,
            },
        ),
        (
            "ffffffff00",
            SplitError::Overrun {
                block: metadata,
                claimed: u32::MAX,
                available: 1,
            },
        ),
    ] {
        assert_eq!(message::split_ref(&hex(text)), Err(error), "{text}");
    }
}

#[test]
fn metadata_without_its_required_fields_is_refused() {
    let missing = |field| {
        Err(DecodeError::MissingField {
            message: "MessageMetadata",
            field,
        })
    };
    for (text, field) in [
        ("10051800", "producer_name"),
        ("0a01701800", "sequence_id"),
        ("0a01701005", "publish_time"),
        ("0a01ff10051800", "producer_name"),
    ] {
        assert_eq!(message::peek(&hex(text)), missing(field), "{text}");
    }
    let truncated = DecodeError::Malformed {
        message: "MessageMetadata",
        source: WireError::Truncated,
    };
    assert_eq!(message::peek(&hex("0a0270")), Err(truncated));
}
