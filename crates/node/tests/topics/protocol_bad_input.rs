//! Input that no client would send, to the running broker: the peer gets an error or is disconnected, no other client
//! notices.

use std::time::Duration;

use crate::support::{
    Bystander, Node, assert_closed, entry, expect_success, next, produce_on, receive, soon,
};
use bytes::Bytes;
use pharos_client::{ConsumerOptions, OutgoingMessage, ProducerOptions, RawConnection};
use pharos_wire::command::{Command, CommandType};
use pharos_wire::proto::command_subscribe::SubType;
use pharos_wire::proto::{self, ServerError};
use pharos_wire::{encode, request};

/// A frame limit of the default settings: 5 MiB and 10 KiB, with the four bytes of the length.
const FRAME_BYTES_MAX: u32 = (5 << 20) + 10_240;

#[tokio::test]
async fn a_wrong_checksum_fails_the_send_and_not_the_producer() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = Node::start(dir.path(), &[]);
    let mut bystander = Bystander::new(&node).await;
    let mut raw = node.rogue().await;
    produce_on(&mut raw, "t", 1).await;

    let good = entry("good");
    let mut bad = good.to_vec();
    *bad.last_mut().unwrap() ^= 1;
    // A whole frame whose payload part is no message, or a shorter one than it says.
    let broken: [&[u8]; 5] = [
        &bad,
        b"",
        b"\x0e\x01",
        &good[..8],
        b"\xff\xff\xff\xff\xff\xff\xff\xff",
    ];
    for (sequence_id, payload) in (10..).zip(broken) {
        let send = request::send(1, sequence_id, 1);
        raw.send_with_payload(send, payload).await.unwrap();
        match next(&mut raw).await {
            Command::SendError(error) => {
                assert_eq!(error.error(), ServerError::ChecksumError, "{error:?}");
                assert_eq!((error.producer_id, error.sequence_id), (1, sequence_id));
            }
            other => panic!("expected SEND_ERROR, got {other:?}"),
        }
    }
    raw.send_with_payload(request::send(1, 20, 1), &good)
        .await
        .unwrap();
    match next(&mut raw).await {
        Command::SendReceipt(receipt) => assert_eq!((receipt.producer_id, receipt.sequence_id), (1, 20)),
        other => panic!("expected SEND_RECEIPT, got {other:?}"),
    }
    bystander.is_served().await;
    node.assert_alive();

    let client = node.client().await;
    let options = ConsumerOptions::exclusive("s").from_earliest();
    let mut consumer = client.subscribe("t", options).await.unwrap();
    assert_eq!(receive(&mut consumer).await.text(), "good");
}

#[tokio::test]
async fn frames_that_are_none_close_the_connection() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = Node::start(dir.path(), &[]);
    let mut bystander = Bystander::new(&node).await;

    let mut abuses: Vec<(&str, Vec<u8>)> = Vec::new();
    for total in [0, 1, 3, FRAME_BYTES_MAX - 3, 0x7fff_ffff, 0xffff_ffff_u32] {
        let mut bytes = total.to_be_bytes().to_vec();
        bytes.extend_from_slice(&[0; 8]);
        abuses.push(("an absurd size", bytes));
    }
    let ping = encode::encode_command(&request::ping());
    let mut overrun = ping.to_vec();
    overrun[7] += 1;
    abuses.push(("a command larger than its frame", overrun));
    let mut overrun = ping.to_vec();
    overrun[4] = 0xff;
    abuses.push(("a command of 4 GB", overrun));
    abuses.push(("an empty command", vec![0, 0, 0, 4, 0, 0, 0, 0]));
    // Type 100 with an empty body under its number.
    abuses.push((
        "an unknown command",
        vec![0, 0, 0, 9, 0, 0, 0, 5, 8, 100, 0xa2, 6, 0],
    ));
    // SUBSCRIBE (4) without any of its required fields.
    abuses.push((
        "a command without its fields",
        vec![0, 0, 0, 8, 0, 0, 0, 4, 8, 4, 0x22, 0],
    ));
    abuses.push(("another protocol", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec()));
    // Not random: the same in every run.
    let mut state = 0x1234_5678_u32;
    let garbage = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    });
    let mut bytes: Vec<u8> = vec![0, 0, 16, 0, 0, 0, 0, 64];
    bytes.extend(garbage.take(4092));
    abuses.push(("noise", bytes));

    for (what, bytes) in &abuses {
        for shaken in [false, true] {
            let mut raw = if shaken {
                node.rogue().await
            } else {
                node.stranger().await
            };
            raw.write(bytes).await.unwrap();
            assert_closed(&mut raw, what).await;
        }
        bystander.is_served().await;
    }
    node.assert_alive();
}

#[tokio::test]
async fn commands_out_of_turn_close_the_connection() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = Node::start(dir.path(), &[]);
    let mut bystander = Bystander::new(&node).await;

    let mut raw = node.stranger().await;
    raw.send(request::producer("t", 1, 1, None)).await.unwrap();
    assert_closed(&mut raw, "PRODUCER before CONNECT").await;
    let mut raw = node.stranger().await;
    raw.send(request::ping()).await.unwrap();
    assert_closed(&mut raw, "PING before CONNECT").await;

    let mut raw = node.rogue().await;
    raw.send(request::connect("again")).await.unwrap();
    assert_closed(&mut raw, "a second CONNECT").await;

    let mut raw = node.rogue().await;
    raw.send_with_payload(request::send(7, 0, 1), &entry("lost"))
        .await
        .unwrap();
    assert_closed(&mut raw, "SEND to a producer that was never made").await;

    let mut raw = node.rogue().await;
    raw.send(request::subscribe("t", "s", SubType::Exclusive, 1, 1))
        .await
        .unwrap();
    expect_success(&mut raw, 1).await;
    raw.send(request::flow(1, 0)).await.unwrap();
    assert_closed(&mut raw, "FLOW of nothing").await;

    // What only a broker says.
    let success = proto::CommandSuccess {
        request_id: 1,
        ..Default::default()
    };
    let message = proto::CommandMessage {
        consumer_id: 1,
        ..Default::default()
    };
    let mut raw = node.rogue().await;
    raw.send(success).await.unwrap();
    assert_closed(&mut raw, "SUCCESS from a client").await;
    let mut raw = node.rogue().await;
    raw.send_with_payload(message, &entry("x")).await.unwrap();
    assert_closed(&mut raw, "MESSAGE from a client").await;

    bystander.is_served().await;
    node.assert_alive();
}

#[tokio::test]
async fn silence_in_the_middle_of_a_handshake_is_ended() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = Node::start(dir.path(), &["--keep-alive-interval", "2s"]);
    let mut bystander = Bystander::new(&node).await;
    let connect = encode::encode_command(&request::connect("half").into());
    for cut in [0, 3, 7, connect.len() / 2, connect.len() - 1] {
        let mut raw = node.stranger().await;
        raw.write(&connect[..cut]).await.unwrap();
        assert_closed(&mut raw, "half a CONNECT").await;
        bystander.is_served().await;
    }
    // After the handshake, silence is first asked about.
    let mut raw = node.rogue().await;
    match soon("a PING", raw.read()).await.unwrap().unwrap().command {
        Command::Ping(_) => {}
        other => panic!("expected PING, got {other:?}"),
    }
    assert_closed(&mut raw, "a PING without a PONG").await;
    bystander.is_served().await;
    node.assert_alive();
}

#[tokio::test]
async fn frames_that_come_byte_by_byte_are_frames() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &[]);
    let mut raw = node.stranger().await;
    dribble(
        &mut raw,
        &encode::encode_command(&request::connect("slow").into()),
    )
    .await;
    assert!(matches!(next(&mut raw).await, Command::Connected(_)));
    dribble(
        &mut raw,
        &encode::encode_command(&request::producer("t", 1, 1, None).into()),
    )
    .await;
    assert!(matches!(next(&mut raw).await, Command::ProducerSuccess(_)));
    let send = encode::encode_frame(&request::send(1, 0, 1).into(), &entry("drop by drop"));
    dribble(&mut raw, &send).await;
    assert!(matches!(next(&mut raw).await, Command::SendReceipt(_)));
    let client = node.client().await;
    let options = ConsumerOptions::exclusive("s").from_earliest();
    let mut consumer = client.subscribe("t", options).await.unwrap();
    assert_eq!(receive(&mut consumer).await.text(), "drop by drop");
}

/// Writes one byte at a time, each as a segment of its own as far as the system allows.
async fn dribble(raw: &mut RawConnection, bytes: &[u8]) {
    for byte in bytes {
        raw.write(&[*byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
}

/// Asks until the broker takes no more, and reads nothing. Returns the bytes it took.
async fn ask_until_refused(raw: &mut RawConnection, question: &Bytes) -> usize {
    let mut taken = 0;
    // What is refused here is refused for good: the answers are not read.
    while tokio::time::timeout(Duration::from_millis(500), raw.write(question))
        .await
        .is_ok()
    {
        taken += question.len();
        assert!(taken < 256 << 20, "the broker takes questions without end");
    }
    taken
}

#[tokio::test]
async fn peers_that_never_read_cost_the_others_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = Node::start(dir.path(), &[]);
    let mut bystander = Bystander::new(&node).await;

    // Enough backlog to fill any socket, asked for by consumers that do not read.
    let client = node.client().await;
    let producer = client.producer("much", ProducerOptions::default()).await.unwrap();
    let payload = Bytes::from(vec![7_u8; 256 << 10]);
    for _ in 0..128 {
        soon("a receipt", producer.send(OutgoingMessage::new(payload.clone())))
            .await
            .unwrap();
    }
    let before = node.resident_bytes();
    let mut silent = Vec::new();
    for kind in [
        SubType::Exclusive,
        SubType::Shared,
        SubType::KeyShared,
        SubType::Failover,
    ] {
        let mut raw = node.rogue().await;
        let mut command = request::subscribe("much", &format!("{kind:?}"), kind, 1, 1);
        command.initial_position = Some(proto::command_subscribe::InitialPosition::Earliest as i32);
        raw.send(command).await.unwrap();
        raw.send(request::flow(1, u32::MAX)).await.unwrap();
        raw.send(request::flow(1, u32::MAX)).await.unwrap();
        silent.push(raw);
        bystander.is_served().await;
    }
    // Questions whose answers are not read.
    let mut question = Vec::new();
    for request_id in 0..1000 {
        question.extend_from_slice(&encode::encode_command(
            &request::lookup("much", request_id, false).into(),
        ));
    }
    let question = Bytes::from(question);
    let mut raw = node.rogue().await;
    ask_until_refused(&mut raw, &question).await;
    silent.push(raw);
    bystander.is_served().await;
    let grown = node.resident_bytes().saturating_sub(before);
    assert!(grown < 200 << 20, "{grown} bytes for five peers that do not read");

    // The topic still serves those who read.
    let options = ConsumerOptions::exclusive("reads").from_earliest();
    let mut consumer = client.subscribe("much", options).await.unwrap();
    for _ in 0..128 {
        assert_eq!(receive(&mut consumer).await.payload.len(), payload.len());
    }
    drop(silent);
    bystander.is_served().await;
    node.assert_alive();
}

#[tokio::test]
async fn the_largest_frame_is_taken_and_one_byte_more_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = Node::start(dir.path(), &[]);
    let mut bystander = Bystander::new(&node).await;
    let mut raw = node.rogue().await;
    produce_on(&mut raw, "t", 1).await;
    let overhead = encode::encode_frame(&request::send(1, 0, 1).into(), &entry("")).len();
    let largest = "x".repeat(FRAME_BYTES_MAX as usize - overhead);
    raw.send_with_payload(request::send(1, 0, 1), &entry(&largest))
        .await
        .unwrap();
    assert!(matches!(next(&mut raw).await, Command::SendReceipt(_)));
    // The answer to what is too large may meet a peer that is still writing.
    let _ = raw
        .send_with_payload(request::send(1, 1, 1), &entry(&(largest.clone() + "x")))
        .await;
    assert_closed(&mut raw, "a frame that is one byte too large").await;
    let client = node.client().await;
    let options = ConsumerOptions::exclusive("s").from_earliest();
    let mut consumer = client.subscribe("t", options).await.unwrap();
    assert!(
        receive(&mut consumer).await.text() == largest,
        "the largest message has changed"
    );
    bystander.is_served().await;
    node.assert_alive();
}

#[tokio::test]
async fn every_command_type_with_an_empty_body_is_survived() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = Node::start(dir.path(), &[]);
    let mut bystander = Bystander::new(&node).await;
    for number in 0..=100_u32 {
        // `type` and an empty field of the same number.
        let mut command = vec![8, u8::try_from(number).unwrap()];
        let mut tag = number << 3 | 2;
        while tag >= 0x80 {
            command.push((tag & 0x7f | 0x80) as u8);
            tag >>= 7;
        }
        command.extend_from_slice(&[tag as u8, 0]);
        let mut frame = (command.len() as u32 + 4).to_be_bytes().to_vec();
        frame.extend_from_slice(&(command.len() as u32).to_be_bytes());
        frame.extend_from_slice(&command);
        let mut raw = node.rogue().await;
        raw.write(&frame).await.unwrap();
        // Those that are complete as they are get an answer or none; either way PING is answered, or it is closed.
        let outcome = async {
            raw.send(request::ping()).await.ok()?;
            loop {
                let frame = raw.read().await.ok()??;
                if frame.command.command_type() == CommandType::Pong {
                    return Some(());
                }
            }
        };
        soon("an end or a PONG", outcome).await;
    }
    bystander.is_served().await;
    node.assert_alive();
}
