use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use pharos_types::{EntryId, LedgerId};
use proptest::prelude::*;
use prost::Message;

use super::bookie_side::{decode_request, encode_answer};
use super::*;
use crate::digest::{DigestType, MasterKey};
use crate::entry::{Digester, EntryHeader};

const MAX: usize = 5 << 20;

fn body_of(frame: &Frame) -> Bytes {
    let mut received = BytesMut::from(&frame.head[..]);
    received.extend_from_slice(&frame.tail);
    let body = next_frame(&mut received, MAX).unwrap().unwrap();
    assert!(received.is_empty(), "the length says all of the frame");
    body
}

fn add(payload: &'static [u8]) -> AddRequest {
    let digester = Digester::new(LedgerId(5), DigestType::Crc32c, b"");
    let header = EntryHeader {
        entry: EntryId(3),
        lac: Some(EntryId(1)),
        length: 99,
    };
    AddRequest {
        ledger: LedgerId(5),
        entry: EntryId(3),
        key: digester.key(),
        is_recovery: false,
        is_deferred_sync: false,
        body: digester.pack(header, Bytes::from_static(payload), None),
    }
}

fn requests() -> Vec<Request> {
    let ledger = LedgerId(5);
    let key = MasterKey::of(b"");
    let read = |target, fence, long_poll| {
        Request::Read(ReadRequest {
            ledger,
            target,
            fence,
            long_poll,
        })
    };
    let poll = LongPoll {
        previous_lac: Some(EntryId(4)),
        timeout: Duration::from_millis(1_500),
        with_entry: true,
    };
    vec![
        Request::Add(add(b"hello")),
        Request::Add(AddRequest {
            is_recovery: true,
            is_deferred_sync: true,
            ..add(b"")
        }),
        read(ReadTarget::Entry(EntryId(9)), None, None),
        read(ReadTarget::Newest, Some(key), None),
        read(ReadTarget::Entry(EntryId(5)), None, Some(poll)),
        Request::ReadLac { ledger },
        Request::WriteLac {
            ledger,
            lac: EntryId(8),
            key,
            body: Bytes::from_static(b"lac"),
        },
        Request::Force { ledger },
        Request::Info,
        Request::Auth {
            plugin: "sasl".to_owned(),
            payload: Bytes::from_static(b"a step"),
        },
        Request::Entries { ledger },
    ]
}

/// The body of an add as one piece, as a bookie sees it.
fn as_received(request: &Request) -> String {
    let mut request = request.clone();
    if let Request::Add(add) = &mut request {
        add.body.payload = add.body.to_bytes();
        add.body.head = Bytes::new();
    }
    format!("{request:?}")
}

#[test]
fn bookies_read_what_we_write() {
    for request in requests() {
        let (txn, read) = decode_request(body_of(&request.encode(77))).unwrap();
        assert_eq!(txn, 77);
        assert_eq!(format!("{read:?}"), as_received(&request));
    }
}

#[test]
fn an_add_is_the_protobuf_of_the_bookies_schema_and_does_not_copy_its_payload() {
    let add = add(b"payload");
    let frame = Request::Add(add.clone()).encode(1);
    assert_eq!(frame.tail.as_ptr(), add.body.payload.as_ptr());
    let message = proto::Request::decode(body_of(&frame)).unwrap();
    let inner = message.add.unwrap();
    assert_eq!(inner.body, add.body.to_bytes());
    assert_eq!((inner.ledger, inner.entry, inner.flag), (5, 3, None));
    assert_eq!((message.header.version, message.header.operation), (3, 2));
}

#[test]
fn a_read_of_the_newest_entry_that_fences_is_these_bytes() {
    let request = Request::Read(ReadRequest {
        ledger: LedgerId(1),
        target: ReadTarget::Newest,
        fence: Some(MasterKey::of(b"")),
        long_poll: None,
    });
    let frame = request.encode(2);
    let hex: String = frame.head.iter().map(|byte| format!("{byte:02x}")).collect();
    // As protoc encodes it from the bookies' schema: header {version 3, READ_ENTRY, txn 2}, then field 100 {ledger 1, entry -1, key, flag 1}.
    let expected = concat!(
        "00000031",
        "0a06080310011802",
        "a20626",
        "0801",
        "10ffffffffffffffffff01",
        "1a14850bf1071c5e3d8c24235676f8816ae0cbe2f14f",
        "a00601"
    );
    assert_eq!(hex, expected);
}

#[test]
fn we_read_what_bookies_write() {
    let answers = [
        Response::Added,
        Response::Read {
            body: Some(Bytes::from_static(b"body")),
            max_lac: Some(EntryId(7)),
        },
        Response::Lac {
            explicit: Some(Bytes::from_static(b"a")),
            newest: None,
        },
        Response::Empty,
        Response::Info { total: 10, free: 3 },
        Response::Auth {
            plugin: "sasl".to_owned(),
            payload: Bytes::from_static(b"nonce"),
        },
        Response::Entries(Some(Bytes::from_static(b"set"))),
    ];
    let ledger = LedgerId(5);
    let asked = [0, 2, 5, 7, 8, 9, 10].map(|index| requests().remove(index));
    assert!(matches!(asked[3], Request::Force { ledger: of } if of == ledger));
    for (request, response) in asked.iter().zip(answers) {
        let mut frame = BytesMut::from(&encode_answer(9, request, Status::Ok, &response)[..]);
        let body = next_frame(&mut frame, MAX).unwrap().unwrap();
        let answer = Answer::decode(body).unwrap();
        assert_eq!(
            answer,
            Answer {
                txn: 9,
                status: Status::Ok,
                response,
            }
        );
    }
}

#[test]
fn the_status_of_the_operation_counts_unless_the_bookie_refused_the_request() {
    let message = |outer, inner| proto::Response {
        header: proto::Header {
            version: 3,
            operation: proto::operation::ADD_ENTRY,
            txn_id: 1,
        },
        status: outer,
        add: Some(proto::AddAnswer {
            status: inner,
            ledger: 1,
            entry: 1,
        }),
        ..proto::Response::default()
    };
    let status = |outer, inner| {
        let body = message(outer, inner).encode_to_vec();
        Answer::decode(body.into()).unwrap().status
    };
    assert_eq!(status(0, 504), Status::Fenced);
    assert_eq!(status(502, 0), Status::Unauthorized);
    assert_eq!(status(0, 0), Status::Ok);
    assert_eq!(status(0, 12_345), Status::Other(12_345));
}

#[test]
fn statuses_keep_their_numbers() {
    for code in [0, 402, 403, 404, 501, 502, 503, 504, 505, 506, 507, 9] {
        assert_eq!(Status::from_code(code).code(), code);
    }
    assert!(matches!(Status::from_code(9), Status::Other(9)));
}

#[test]
fn frames_come_in_any_pieces_and_have_a_limit() {
    let mut received = BytesMut::new();
    let frames: Vec<Bytes> = requests().iter().map(|r| body_of(&r.encode(1))).collect();
    let mut stream = BytesMut::new();
    for frame in &frames {
        stream.put_u32(frame.len() as u32);
        stream.extend_from_slice(frame);
    }
    let mut found = Vec::new();
    for byte in stream {
        received.put_u8(byte);
        found.extend(next_frame(&mut received, MAX).unwrap());
    }
    assert_eq!(found, frames);
    let mut large = BytesMut::from(&[0, 80, 0, 1][..]);
    assert_eq!(
        next_frame(&mut large, MAX),
        Err(DecodeError::TooLarge {
            bytes: MAX + 1,
            bytes_max: MAX
        })
    );
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let bytes = Bytes::from(bytes);
        let _ = Answer::decode(bytes.clone());
        let _ = decode_request(bytes.clone());
        let _ = next_frame(&mut BytesMut::from(&bytes[..]), MAX);
    }

    #[test]
    fn spoilt_answers_do_not_panic(at in any::<prop::sample::Index>(), byte in any::<u8>(), of in 0..10usize) {
        let request = requests().remove(of);
        let response = Response::Read { body: Some(Bytes::from_static(b"body")), max_lac: None };
        let mut frame = encode_answer(9, &request, Status::Ok, &response).to_vec();
        let at = at.index(frame.len());
        frame[at] = byte;
        if let Ok(Some(body)) = next_frame(&mut BytesMut::from(&frame[..]), MAX) {
            let _ = Answer::decode(body);
        }
    }
}
