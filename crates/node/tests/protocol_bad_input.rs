//! What no client would send, to the running broker: the peer is told or dropped, nobody else notices.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod support;

use std::time::Duration;

use bytes::Bytes;
use pharos_client::{ConsumerOptions, OutgoingMessage, ProducerOptions, RawConnection};
use pharos_wire::ack::Ack;
use pharos_wire::command::{Command, CommandType};
use pharos_wire::proto::command_ack::AckType;
use pharos_wire::proto::command_subscribe::SubType;
use pharos_wire::proto::{self, CommandSubscribe, MessageIdData, ServerError};
use pharos_wire::{encode, request};
use support::{
    Bystander, Node, assert_closed, entry, expect_error, expect_success, next, produce_on, publish, receive,
    soon,
};

/// A frame limit of the default settings: 5 MiB and 10 KiB, with the four bytes of the length.
const FRAME_BYTES_MAX: u32 = (5 << 20) + 10_240;

fn id(ledger_id: u64, entry_id: u64) -> MessageIdData {
    MessageIdData {
        ledger_id,
        entry_id,
        ..Default::default()
    }
}

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
async fn acknowledgements_of_what_is_not_there_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = Node::start(dir.path(), &[]);
    let mut bystander = Bystander::new(&node).await;
    let client = node.client().await;
    for kind in [
        SubType::Exclusive,
        SubType::Shared,
        SubType::Failover,
        SubType::KeyShared,
    ] {
        let topic = format!("acks-{kind:?}").to_lowercase();
        let options = ConsumerOptions::new("s", kind).from_earliest();
        let mut consumer = client.subscribe(&topic, options.clone()).await.unwrap();
        let producer = client.producer(&topic, ProducerOptions::default()).await.unwrap();
        let receipts = publish(&producer, 0..5).await;
        let here = receipts[0].message_id.clone();
        let first = receive(&mut consumer).await;

        let mut huge = id(here.ledger_id, here.entry_id);
        huge.ack_set = vec![-1; 200_000];
        let absent = [
            id(here.ledger_id, here.entry_id + 1000),
            id(here.ledger_id, u64::MAX),
            id(here.ledger_id + 1_000_000, 0),
            id(u64::MAX, u64::MAX),
            id(i64::MAX as u64, i64::MAX as u64),
            id(0, 0),
            huge,
        ];
        for ack_type in [AckType::Individual, AckType::Cumulative] {
            for position in &absent {
                let waiting = consumer.ack_and_wait(ack_type, position.clone());
                soon("an answer to an absurd ACK", waiting).await.unwrap();
            }
        }
        let many: Vec<_> = (0..100_000).map(|n| id(here.ledger_id + 1, n)).collect();
        let waiting = consumer.ack_and_wait(AckType::Individual, many);
        soon("an answer to a large ACK", waiting).await.unwrap();
        let waiting = consumer.ack_and_wait(AckType::Individual, pharos_wire::ack::MessageIds::none());
        soon("an answer to an empty ACK", waiting).await.unwrap();

        // All five are still there for whoever comes next.
        consumer.close().await.unwrap();
        let mut consumer = client.subscribe(&topic, options).await.unwrap();
        let mut seen = vec![receive(&mut consumer).await];
        while seen.len() < 5 {
            seen.push(receive(&mut consumer).await);
        }
        assert_eq!(seen[0].id, first.id, "{kind:?}");
        let mut texts: Vec<_> = seen.iter().map(|message| message.text()).collect();
        texts.sort();
        assert_eq!(texts, ["0", "1", "2", "3", "4"], "{kind:?}");
    }
    bystander.is_served().await;
    node.assert_alive();
}

#[tokio::test]
async fn unknown_consumers_are_ignored_or_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = Node::start(dir.path(), &[]);
    let mut bystander = Bystander::new(&node).await;
    let mut raw = node.rogue().await;
    raw.send(request::flow(77, 10)).await.unwrap();
    raw.send(request::ack(77, id(0, 0))).await.unwrap();
    raw.send(request::ack_cumulative(77, id(0, 0))).await.unwrap();
    raw.send(request::redeliver(77, Vec::new())).await.unwrap();
    raw.send(request::redeliver(77, vec![id(0, 0)])).await.unwrap();
    raw.send(request::close_consumer(77, 1)).await.unwrap();
    expect_success(&mut raw, 1).await;
    raw.send(request::close_producer(77, 2)).await.unwrap();
    expect_success(&mut raw, 2).await;

    raw.send(request::unsubscribe(77, 3, false)).await.unwrap();
    expect_error(&mut raw, 3, ServerError::MetadataError).await;
    raw.send(request::unsubscribe(77, 4, true)).await.unwrap();
    expect_error(&mut raw, 4, ServerError::MetadataError).await;
    raw.send(request::seek(77, 5, id(0, 0))).await.unwrap();
    expect_error(&mut raw, 5, ServerError::MetadataError).await;
    raw.send(request::last_message_id(77, 6)).await.unwrap();
    expect_error(&mut raw, 6, ServerError::MetadataError).await;
    raw.send(request::consumer_stats(77, 7)).await.unwrap();
    match next(&mut raw).await {
        Command::ConsumerStatsResponse(stats) => {
            assert_eq!(
                (stats.request_id, stats.error_code()),
                (7, ServerError::ConsumerNotFound)
            );
        }
        other => panic!("expected CONSUMER_STATS_RESPONSE, got {other:?}"),
    }

    raw.send(request::subscribe("t", "s", SubType::Exclusive, 1, 8))
        .await
        .unwrap();
    expect_success(&mut raw, 8).await;
    let nowhere = proto::CommandSeek {
        consumer_id: 1,
        request_id: 9,
        ..Default::default()
    };
    raw.send(nowhere).await.unwrap();
    expect_error(&mut raw, 9, ServerError::MetadataError).await;
    // The same id again: it is the same consumer.
    raw.send(request::subscribe("t", "s", SubType::Exclusive, 1, 10))
        .await
        .unwrap();
    expect_success(&mut raw, 10).await;
    bystander.is_served().await;
    node.assert_alive();
}

#[tokio::test]
async fn transactions_are_not_allowed() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = Node::start(dir.path(), &[]);
    let mut raw = node.rogue().await;
    let commands: Vec<(u64, Command)> = vec![
        (
            1,
            proto::CommandNewTxn {
                request_id: 1,
                ..Default::default()
            }
            .into(),
        ),
        (
            2,
            proto::CommandAddPartitionToTxn {
                request_id: 2,
                ..Default::default()
            }
            .into(),
        ),
        (
            3,
            proto::CommandAddSubscriptionToTxn {
                request_id: 3,
                ..Default::default()
            }
            .into(),
        ),
        (
            4,
            proto::CommandEndTxn {
                request_id: 4,
                ..Default::default()
            }
            .into(),
        ),
        (
            5,
            proto::CommandEndTxnOnPartition {
                request_id: 5,
                ..Default::default()
            }
            .into(),
        ),
        (
            6,
            proto::CommandEndTxnOnSubscription {
                request_id: 6,
                ..Default::default()
            }
            .into(),
        ),
        (
            7,
            proto::CommandTcClientConnectRequest {
                request_id: 7,
                ..Default::default()
            }
            .into(),
        ),
    ];
    for (request_id, command) in commands {
        raw.send(command).await.unwrap();
        expect_error(&mut raw, request_id, ServerError::NotAllowedError).await;
    }
    produce_on(&mut raw, "t", 1).await;
    let mut send = request::send(1, 5, 1);
    send.txnid_least_bits = Some(1);
    send.txnid_most_bits = Some(1);
    raw.send_with_payload(send, &entry("x")).await.unwrap();
    match next(&mut raw).await {
        Command::SendError(error) => assert_eq!(error.error(), ServerError::NotAllowedError),
        other => panic!("expected SEND_ERROR, got {other:?}"),
    }
    raw.send(request::subscribe("t", "s", SubType::Shared, 1, 10))
        .await
        .unwrap();
    expect_success(&mut raw, 10).await;
    let ack = Ack {
        txnid_least_bits: Some(1),
        txnid_most_bits: Some(1),
        request_id: Some(11),
        ..Ack::new(1, AckType::Individual, id(0, 0))
    };
    raw.send(Command::Ack(ack)).await.unwrap();
    match next(&mut raw).await {
        Command::AckResponse(answer) => assert_eq!(answer.error(), ServerError::NotAllowedError),
        other => panic!("expected ACK_RESPONSE, got {other:?}"),
    }
    node.assert_alive();
}

/// SUBSCRIBE to `t`, changed at will.
fn subscribe(request_id: u64, change: impl FnOnce(&mut CommandSubscribe)) -> CommandSubscribe {
    let mut command = request::subscribe("t", "s", SubType::Shared, request_id, request_id);
    change(&mut command);
    command
}

fn pair(key: &str, value: &str) -> proto::KeyValue {
    proto::KeyValue {
        key: key.to_owned(),
        value: value.to_owned(),
    }
}

#[tokio::test]
async fn names_and_metadata_of_a_megabyte_are_refused_and_not_kept() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = Node::start(dir.path(), &[]);
    let mut bystander = Bystander::new(&node).await;
    let mut raw = node.rogue().await;
    let long = "x".repeat(1 << 20);
    let topic = format!("persistent://public/default/{long}");

    raw.send(request::producer(&topic, 1, 1, None)).await.unwrap();
    let text = expect_error(&mut raw, 1, ServerError::InvalidTopicName).await;
    assert!(text.len() < 1000, "the refusal itself is long");
    raw.send(subscribe(2, |command| command.topic.clone_from(&topic)))
        .await
        .unwrap();
    expect_error(&mut raw, 2, ServerError::InvalidTopicName).await;
    raw.send(subscribe(3, |command| command.subscription.clone_from(&long)))
        .await
        .unwrap();
    let text = expect_error(&mut raw, 3, ServerError::ProducerBusy).await;
    assert!(text.len() < 1000, "the refusal itself is long");
    raw.send(subscribe(4, |command| command.consumer_name = Some(long.clone())))
        .await
        .unwrap();
    expect_error(&mut raw, 4, ServerError::MetadataError).await;
    raw.send(subscribe(5, |command| command.metadata.push(pair("key", &long))))
        .await
        .unwrap();
    expect_error(&mut raw, 5, ServerError::MetadataError).await;
    raw.send(subscribe(6, |command| {
        command.subscription_properties.push(pair(&long, "value"))
    }))
    .await
    .unwrap();
    expect_error(&mut raw, 6, ServerError::MetadataError).await;
    raw.send(request::producer("t", 7, 7, Some(&long))).await.unwrap();
    expect_error(&mut raw, 7, ServerError::MetadataError).await;
    let mut producer = request::producer("t", 8, 8, None);
    producer.metadata.push(pair("key", &long));
    raw.send(producer).await.unwrap();
    expect_error(&mut raw, 8, ServerError::MetadataError).await;
    let mut producer = request::producer("t", 9, 9, None);
    producer.initial_subscription_name = Some(long.clone());
    raw.send(producer).await.unwrap();
    expect_error(&mut raw, 9, ServerError::ProducerBusy).await;

    // Just over the limit counts too, just under it does not.
    raw.send(subscribe(10, |command| {
        command.metadata.push(pair("k", &long[..1024]))
    }))
    .await
    .unwrap();
    expect_error(&mut raw, 10, ServerError::MetadataError).await;
    raw.send(subscribe(11, |command| {
        command.metadata.push(pair("k", &long[..1023]))
    }))
    .await
    .unwrap();
    expect_success(&mut raw, 11).await;

    bystander.is_served().await;
    assert!(
        node.topics().iter().all(|name| name.len() < 100),
        "{:?}",
        node.topics()
    );
    let stats = node.stats("t");
    let subscriptions: Vec<_> = stats["subscriptions"].as_object().unwrap().keys().collect();
    assert_eq!(subscriptions, ["s"]);
    assert_eq!(stats["publishers"].as_array().unwrap().len(), 0);
    node.assert_alive();
}

#[tokio::test]
async fn topic_names_that_are_none_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = Node::start(dir.path(), &[]);
    let mut raw = node.rogue().await;
    let mut request_id = 0;
    let names = [
        "",
        " ",
        "a/b",
        "persistent://public/default/",
        "persistent://public/default",
        "persistent://a/b/c/d",
        "persistent:///default/t",
        "persistent://pub lic/default/t",
        "volatile://public/default/t",
        "://",
    ];
    for name in names {
        request_id += 1;
        raw.send(request::producer(name, request_id, request_id, None))
            .await
            .unwrap();
        expect_error(&mut raw, request_id, ServerError::InvalidTopicName).await;
        request_id += 1;
        raw.send(subscribe(request_id, |command| command.topic = name.to_owned()))
            .await
            .unwrap();
        expect_error(&mut raw, request_id, ServerError::InvalidTopicName).await;
        request_id += 1;
        raw.send(request::lookup(name, request_id, false)).await.unwrap();
        match next(&mut raw).await {
            Command::LookupResponse(answer) => {
                assert_eq!(
                    (answer.request_id, answer.error()),
                    (request_id, ServerError::InvalidTopicName)
                );
            }
            other => panic!("'{name}': expected LOOKUP_RESPONSE, got {other:?}"),
        }
        request_id += 1;
        raw.send(request::partitioned_metadata(name, request_id))
            .await
            .unwrap();
        match next(&mut raw).await {
            Command::PartitionedMetadataResponse(answer) => {
                assert_eq!(
                    (answer.request_id, answer.error()),
                    (request_id, ServerError::InvalidTopicName)
                );
            }
            other => panic!("'{name}': expected PARTITIONED_METADATA_RESPONSE, got {other:?}"),
        }
    }
    node.assert_alive();
}

#[tokio::test]
async fn silence_in_the_middle_of_a_handshake_is_ended() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = Node::start(dir.path(), &["--keep-alive-interval", "400ms"]);
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
    // What is refused here is refused for good: nobody reads the answers.
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
    // Questions whose answers nobody reads.
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
