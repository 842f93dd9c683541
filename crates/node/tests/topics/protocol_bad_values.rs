//! Commands that are well formed and say what cannot be true, and things begun and never finished.

use crate::support::{
    Bystander, Node, broadcast, entry, expect_error, expect_numbers, expect_success, figure, next,
    produce_on, publish, soon, until,
};
use bytes::Bytes;
use pharos_client::{ConsumerOptions, ProducerOptions, RawConnection};
use pharos_wire::command::Command;
use pharos_wire::proto::command_subscribe::{InitialPosition, SubType};
use pharos_wire::proto::{
    CommandSubscribe, IntRange, KeySharedMeta, KeySharedMode, MessageIdData, MessageMetadata, ServerError,
};
use pharos_wire::{message, request};

const KINDS: [SubType; 4] = [
    SubType::Exclusive,
    SubType::Shared,
    SubType::Failover,
    SubType::KeyShared,
];

/// Metadata that no producer would write, each a message of its own.
fn lies() -> Vec<Bytes> {
    let plain = || MessageMetadata {
        producer_name: "liar".to_owned(),
        publish_time: 1,
        ..Default::default()
    };
    let mut all = Vec::new();
    for count in [i32::MIN, -1, 0, i32::MAX] {
        all.push(MessageMetadata {
            num_messages_in_batch: Some(count),
            ..plain()
        });
    }
    for time in [i64::MIN, -1, 0] {
        all.push(MessageMetadata {
            deliver_at_time: Some(time),
            ..plain()
        });
    }
    for number in [-1, i32::MAX] {
        all.push(MessageMetadata {
            uuid: Some("chunks".to_owned()),
            num_chunks_from_msg: Some(number),
            chunk_id: Some(number),
            total_chunk_msg_size: Some(number),
            ..plain()
        });
    }
    all.push(MessageMetadata {
        publish_time: u64::MAX,
        sequence_id: u64::MAX,
        highest_sequence_id: Some(u64::MAX),
        event_time: Some(u64::MAX),
        uncompressed_size: Some(u32::MAX),
        compression: Some(99),
        partition_key: Some("!".to_owned()),
        partition_key_b64_encoded: Some(true),
        ..plain()
    });
    all.push(MessageMetadata {
        compacted_batch_indexes: vec![-1; 100],
        ..plain()
    });
    let mut entries: Vec<_> = all
        .iter()
        .map(|metadata| message::encode_entry(metadata, b"lie"))
        .collect();
    entries.push(message::encode_entry(&plain(), b""));
    entries
}

/// Subscribes under id 1 and allows any number of messages.
async fn subscribe(node: &Node, command: CommandSubscribe) -> RawConnection {
    let mut raw = node.rogue().await;
    let command = CommandSubscribe {
        topic: "lies".to_owned(),
        consumer_id: 1,
        request_id: 1,
        initial_position: Some(InitialPosition::Earliest as i32),
        ..command
    };
    raw.send(command).await.unwrap();
    loop {
        match next(&mut raw).await {
            Command::Success(_) => break,
            Command::ActiveConsumerChange(_) => {}
            other => panic!("expected SUCCESS, got {other:?}"),
        }
    }
    for _ in 0..2 {
        raw.send(request::flow(1, u32::MAX)).await.unwrap();
    }
    raw
}

#[tokio::test]
async fn messages_that_lie_about_themselves_stop_no_client() {
    let dir = tempfile::tempdir().unwrap();
    // A batch of two thousand million would rightly stop its consumer until it is acknowledged.
    let settings = [
        "--max-unacked-messages-per-consumer",
        "0",
        "--max-unacked-messages-per-subscription",
        "0",
    ];
    let mut node = Node::start(dir.path(), &settings);
    let mut bystander = Bystander::new(&node).await;
    let ordinary = KINDS.map(|kind| ConsumerOptions::new(&format!("{kind:?}"), kind).command);
    let all: Vec<_> = ordinary
        .into_iter()
        .chain([broadcast("b").name("car").command])
        .collect();
    let mut consumers = Vec::new();
    for command in &all {
        consumers.push(subscribe(&node, command.clone()).await);
    }
    let mut raw = node.rogue().await;
    produce_on(&mut raw, "lies", 1).await;
    let mut stored = 0;
    for lie in lies() {
        let mut send = request::send(1, u64::MAX - 1, i32::MIN);
        send.highest_sequence_id = Some(u64::MAX);
        raw.send_with_payload(send, &lie).await.unwrap();
        match next(&mut raw).await {
            Command::SendReceipt(_) => stored += 1,
            Command::SendError(error) => {
                assert_ne!(error.error(), ServerError::PersistenceError, "{error:?}")
            }
            other => panic!("expected an answer to SEND, got {other:?}"),
        }
    }
    assert!(stored > 0);
    raw.send_with_payload(request::send(1, 0, 1), &entry("truth"))
        .await
        .unwrap();
    assert!(matches!(next(&mut raw).await, Command::SendReceipt(_)));
    bystander.is_served().await;

    // A consumer that reads on comes to the truth; those who come later too, and after a restart as well.
    for round in 0..3 {
        for (consumer, command) in consumers.iter_mut().zip(&all) {
            let what = format!("the truth for {} in round {round}", command.subscription);
            let reading = async {
                loop {
                    let frame = consumer.read().await.unwrap().unwrap();
                    if frame.payload.is_some_and(|payload| payload.ends_with(b"truth")) {
                        break;
                    }
                }
            };
            soon(&what, reading).await;
        }
        node.stats("lies");
        node.assert_alive();
        if round == 1 {
            node.kill();
            node = Node::start(dir.path(), &settings);
        }
        for (consumer, command) in consumers.iter_mut().zip(&all) {
            if round < 1 {
                consumer.send(request::close_consumer(1, 2)).await.unwrap();
                loop {
                    if matches!(next(consumer).await, Command::Success(_)) {
                        break;
                    }
                }
            }
            *consumer = subscribe(&node, command.clone()).await;
        }
    }
    node.assert_alive();
}

#[tokio::test]
async fn seeks_and_redeliveries_of_nonsense_end_at_a_message() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = Node::start(dir.path(), &[]);
    let mut bystander = Bystander::new(&node).await;
    let client = node.client().await;
    for kind in KINDS {
        let topic = format!("seeks-{kind:?}").to_lowercase();
        let mut consumer = client
            .subscribe(&topic, ConsumerOptions::new("s", kind))
            .await
            .unwrap();
        let producer = client.producer(&topic, ProducerOptions::default()).await.unwrap();
        let receipts = publish(&producer, 0..5).await;
        let messages = expect_numbers(&mut consumer, 0..5).await;
        let here = receipts[0].message_id.ledger_id;
        let id = |ledger_id, entry_id| MessageIdData {
            ledger_id,
            entry_id,
            ..Default::default()
        };

        // Nothing of this is out, so nothing of it comes.
        let nonsense = [
            id(here, 1000),
            id(here + 1000, 0),
            id(u64::MAX, 7),
            id(u64::MAX, u64::MAX),
        ];
        if matches!(kind, SubType::Shared | SubType::KeyShared) {
            consumer.redeliver(&nonsense).await.unwrap();
            consumer.redeliver(&[messages[4].id.clone()]).await.unwrap();
            expect_numbers(&mut consumer, 4..5).await;
        }
        let mut batch = id(here, 2);
        batch.ack_set = vec![-1; 100_000];
        // (where to, what comes first)
        let places = [
            (id(here, 2), 2),
            (id(here, u64::MAX), 0),
            (id(0, 0), if here == 0 { 0 } else { u32::MAX }),
            (id(u64::MAX, u64::MAX), 0),
            (id(u64::MAX, 3), 0),
            (batch, 2),
            (id(here, 1000), 5),
            (id(here + 1_000_000, 0), 5),
            (id(i64::MAX as u64, 0), 5),
            (id(i64::MAX as u64, i64::MAX as u64), 5),
        ];
        let mut end = 5;
        for (place, first) in places {
            let first = match first {
                u32::MAX => continue,
                5 => end,
                first => first,
            };
            soon("SEEK", consumer.seek(place)).await.unwrap();
            publish(&producer, end..end + 1).await;
            end += 1;
            expect_numbers(&mut consumer, first..end).await;
        }
        for (time, first) in [(0, 0), (u64::MAX, end + 1), (i64::MAX as u64, end + 2)] {
            soon("SEEK", consumer.seek_to_time(time)).await.unwrap();
            publish(&producer, end..end + 1).await;
            end += 1;
            expect_numbers(&mut consumer, first..end).await;
        }
    }
    bystander.is_served().await;
    node.assert_alive();
}

/// Connections that send nearly all of a large frame and then nothing more.
#[tokio::test]
async fn large_frames_that_do_not_end_share_bounded_room() {
    const CONNECTIONS: usize = 80;
    const BYTES: usize = 4_900_000;
    let dir = tempfile::tempdir().unwrap();
    let mut node = Node::start(dir.path(), &[]);
    let mut bystander = Bystander::new(&node).await;
    let before = node.resident_bytes();
    let mut begun = tokio::task::JoinSet::new();
    for _ in 0..CONNECTIONS {
        let mut raw = node.rogue().await;
        begun.spawn(async move {
            let mut bytes = vec![7; BYTES];
            bytes[..4].copy_from_slice(&5_000_000_u32.to_be_bytes());
            bytes[4..8].copy_from_slice(&100_u32.to_be_bytes());
            // It waits for ever where the broker does not take it.
            drop(raw.write(&bytes).await);
            std::future::pending::<()>().await;
        });
    }
    until("there is no more room", || {
        (node.resident_bytes() > before + (110 << 20)).then_some(())
    })
    .await;
    for _ in 0..30 {
        bystander.is_served().await;
    }
    let grown = node.resident_bytes() - before;
    assert!(
        grown < 230 << 20,
        "{grown} bytes for frames that have not arrived"
    );
    begun.abort_all();
    until("the room is free again", || {
        let page = node.page("/metrics");
        (figure(&page, "pulsar_active_connections", None) == 1).then_some(())
    })
    .await;
    bystander.is_served().await;
    node.assert_alive();
}

#[tokio::test]
async fn what_is_begun_and_given_up_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = Node::start(dir.path(), &[]);
    let mut bystander = Bystander::new(&node).await;
    let open_files = node.open_files();
    // Begun and closed, or begun and cut off, without ever waiting for an answer.
    for round in 0..40 {
        let mut raw = node.rogue().await;
        for id in 1..=5 {
            raw.send(request::producer("t", id, id, Some(&format!("name {id}"))))
                .await
                .unwrap();
            raw.send(request::subscribe(
                "t",
                "exclusive",
                SubType::Exclusive,
                id,
                10 + id,
            ))
            .await
            .unwrap();
            raw.send(request::subscribe(
                "t",
                "shared",
                SubType::Shared,
                100 + id,
                20 + id,
            ))
            .await
            .unwrap();
            raw.send(request::subscribe(
                "t",
                "failover",
                SubType::Failover,
                200 + id,
                30 + id,
            ))
            .await
            .unwrap();
            let mut place = broadcast("all").name("car").command;
            (place.topic, place.consumer_id, place.request_id) = ("t".to_owned(), 300 + id, 40 + id);
            raw.send(place).await.unwrap();
            if round % 2 == 0 {
                raw.send(request::close_producer(id, 50 + id)).await.unwrap();
                for consumer in [0, 100, 200, 300] {
                    raw.send(request::close_consumer(consumer + id, 60))
                        .await
                        .unwrap();
                }
            }
        }
        if round % 4 == 0 {
            // The last answer, so that this round really is carried out.
            raw.send(request::ping()).await.unwrap();
            let told = async {
                loop {
                    let frame = raw.read().await.unwrap().unwrap();
                    if matches!(frame.command, Command::Pong(_)) {
                        break;
                    }
                }
            };
            soon("PONG", told).await;
        }
    }
    bystander.is_served().await;
    // What a connection has sent is read and begun before its end is seen.
    until("all connections but the bystander's are at their end", || {
        let page = node.page("/metrics");
        (figure(&page, "pulsar_active_connections", None) == 1).then_some(())
    })
    .await;
    until("every client is gone", || {
        let stats = node.stats("t");
        let subscriptions = stats["subscriptions"].as_object().unwrap();
        let idle = subscriptions
            .values()
            .all(|s| s["consumers"].as_array().unwrap().is_empty());
        (idle && stats["publishers"].as_array().unwrap().is_empty()).then_some(())
    })
    .await;
    // Some files of the topic's own are opened meanwhile; forty connections are not among them.
    until("connections are given back", || {
        (node.open_files() < open_files + 20).then_some(())
    })
    .await;
    // The places are free.
    let client = node.client().await;
    let producer = client
        .producer("t", ProducerOptions::default().name("name 1"))
        .await
        .unwrap();
    let places = [
        ConsumerOptions::exclusive("exclusive"),
        ConsumerOptions::shared("shared"),
        ConsumerOptions::failover("failover"),
        broadcast("all").name("car"),
    ];
    let mut consumers = Vec::new();
    for options in places {
        consumers.push(
            soon("a free place", client.subscribe("t", options))
                .await
                .unwrap(),
        );
    }
    publish(&producer, 0..3).await;
    for consumer in &mut consumers {
        expect_numbers(consumer, 0..3).await;
    }
    node.assert_alive();
}

#[tokio::test]
async fn wishes_beyond_all_measure_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = Node::start(dir.path(), &[]);
    let mut bystander = Bystander::new(&node).await;
    let mut raw = node.rogue().await;
    let range = |start, end| IntRange { start, end };
    let ranges: [Vec<IntRange>; 6] = [
        vec![],
        vec![range(5, 4)],
        vec![range(-1, 10)],
        vec![range(0, 65_536)],
        vec![range(0, 10), range(10, 20)],
        vec![range(0, 65_535); 100_000],
    ];
    for (request_id, hash_ranges) in (1..).zip(ranges) {
        let mut command = request::subscribe("t", "sticky", SubType::KeyShared, request_id, request_id);
        command.key_shared_meta = Some(KeySharedMeta {
            key_shared_mode: KeySharedMode::Sticky as i32,
            hash_ranges,
            ..Default::default()
        });
        raw.send(command).await.unwrap();
        expect_error(&mut raw, request_id, ServerError::ConsumerAssignError).await;
    }
    let mut command = request::subscribe("t", "extreme", SubType::Failover, 10, 10);
    command.priority_level = Some(i32::MIN);
    command.start_message_rollback_duration_sec = Some(u64::MAX);
    command.consumer_epoch = Some(u64::MAX);
    raw.send(command).await.unwrap();
    expect_success(&mut raw, 10).await;
    let mut producer = request::producer("t", 11, 11, None);
    producer.epoch = Some(u64::MAX);
    producer.topic_epoch = Some(u64::MAX);
    raw.send(producer).await.unwrap();
    loop {
        match next(&mut raw).await {
            Command::ProducerSuccess(success) => break assert_eq!(success.request_id, 11),
            Command::ActiveConsumerChange(_) => {}
            other => panic!("expected PRODUCER_SUCCESS, got {other:?}"),
        }
    }
    // Patterns that explode when they are compiled, or when they are matched.
    for (request_id, pattern) in (20..).zip(["((a{99}){99}){99}", "(a*)*(a*)*(a*)*b", "(", "[z-a]", "\\", ""])
    {
        let command = pharos_wire::proto::CommandGetTopicsOfNamespace {
            request_id,
            namespace: "public/default".to_owned(),
            topics_pattern: Some(pattern.to_owned()),
            ..Default::default()
        };
        raw.send(command).await.unwrap();
        match next(&mut raw).await {
            Command::GetTopicsOfNamespaceResponse(answer) => assert_eq!(answer.request_id, request_id),
            Command::Error(error) => assert_eq!(error.request_id, request_id),
            other => panic!("expected a list, got {other:?}"),
        }
    }
    bystander.is_served().await;
    node.assert_alive();
}
