//! Commands that are understood and cannot be obeyed: each is answered with its error, or ignored where there is no
//! answer, and nothing is kept of it.

use crate::support::{
    Bystander, Node, entry, expect_error, expect_success, next, produce_on, publish, receive, soon,
};
use pharos_client::{ConsumerOptions, ProducerOptions};
use pharos_wire::ack::{Ack, MessageIds};
use pharos_wire::command::Command;
use pharos_wire::proto::command_ack::AckType;
use pharos_wire::proto::command_subscribe::SubType;
use pharos_wire::proto::{self, CommandSubscribe, KeyValue, MessageIdData, ServerError};
use pharos_wire::request;

fn id(ledger_id: u64, entry_id: u64) -> MessageIdData {
    MessageIdData {
        ledger_id,
        entry_id,
        ..Default::default()
    }
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
                let answer = soon("an answer to an absurd ACK", waiting).await;
                if position.ack_set.is_empty() {
                    answer.unwrap();
                }
            }
        }
        let many: Vec<_> = (0..100_000).map(|n| id(here.ledger_id + 1, n)).collect();
        let waiting = consumer.ack_and_wait(AckType::Individual, many);
        soon("an answer to a large ACK", waiting).await.unwrap();
        let waiting = consumer.ack_and_wait(AckType::Individual, MessageIds::none());
        soon("an answer to an empty ACK", waiting).await.unwrap();

        // All five are still there for the next consumer.
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

#[tokio::test]
async fn an_acknowledgement_of_more_messages_than_a_batch_has_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = Node::start(dir.path(), &[]);
    let mut raw = node.rogue().await;
    raw.send(request::subscribe("t", "s", SubType::Exclusive, 1, 10))
        .await
        .unwrap();
    expect_success(&mut raw, 10).await;
    raw.send(request::flow(1, 10)).await.unwrap();
    produce_on(&mut raw, "t", 1).await;
    raw.send_with_payload(request::send(1, 0, 1), &entry("alone"))
        .await
        .unwrap();
    let id = loop {
        match next(&mut raw).await {
            Command::Message(message) => break message.message_id,
            Command::SendReceipt(_) => {}
            other => panic!("expected MESSAGE, got {other:?}"),
        }
    };
    // (words of the set, whether it is taken)
    for (words, is_taken) in [(8_192, false), (17, false), (1, true)] {
        let part = MessageIdData {
            ack_set: vec![-1; words],
            ..id.clone()
        };
        let ack = Ack {
            request_id: Some(words as u64),
            ..Ack::new(1, AckType::Individual, part)
        };
        raw.send(Command::Ack(ack)).await.unwrap();
        let answer = loop {
            match next(&mut raw).await {
                Command::AckResponse(answer) => break answer,
                Command::SendReceipt(_) => {}
                other => panic!("expected ACK_RESPONSE, got {other:?}"),
            }
        };
        let found = answer.error.map(|_| answer.error());
        assert_eq!(
            found,
            (!is_taken).then_some(ServerError::NotAllowedError),
            "{words}"
        );
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
async fn wishes_that_the_broker_does_not_know_are_refused_wherever_they_are_said() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &[]);
    let mut raw = node.rogue().await;
    let pair = |key: &str, value: &str| KeyValue {
        key: key.to_owned(),
        value: value.to_owned(),
    };
    let mistyped = [
        ("pharos.subscription", "brodcast", "did you mean broadcast?"),
        (
            "pharos.subscripton",
            "broadcast",
            "did you mean pharos.subscription?",
        ),
        ("pharos.durability", "sync", "a namespace or a topic"),
    ];
    let mut request_id = 0;
    for (key, value, hint) in mistyped {
        for of_consumer in [true, false] {
            request_id += 1;
            let command = subscribe(request_id, |command| {
                command.topic = "wishes".to_owned();
                if of_consumer {
                    command.metadata = vec![pair(key, value)];
                } else {
                    command.subscription_properties = vec![pair(key, value)];
                }
            });
            raw.send(command).await.unwrap();
            let reason = expect_error(&mut raw, request_id, ServerError::NotAllowedError).await;
            assert!(reason.contains(hint), "{reason}");
        }
    }
    request_id += 1;
    let mut producer = request::producer("wishes", 1, request_id, None);
    producer.metadata = vec![pair("pharos.durability", "async")];
    raw.send(producer).await.unwrap();
    expect_error(&mut raw, request_id, ServerError::NotAllowedError).await;

    let topic = "/admin/v2/persistent/public/default/wishes";
    node.order("PUT", topic, "");
    let namespace = "/admin/v2/namespaces/public";
    for (method, path, body) in [
        (
            "PUT",
            format!("{namespace}/made"),
            r#"{"properties":{"pharos.durabilty":"sync"}}"#,
        ),
        (
            "PUT",
            format!("{namespace}/made"),
            r#"{"pharos.broadcastSubscriptions":"all"}"#,
        ),
        (
            "PUT",
            format!("{namespace}/default/properties"),
            r#"{"pharos.durability":"fsync"}"#,
        ),
        (
            "PUT",
            format!("{namespace}/default/property/pharos.durabilty/sync"),
            "",
        ),
        (
            "PUT",
            format!("{topic}-2"),
            r#"{"pharos.broadcastSubscriptions":"all"}"#,
        ),
        (
            "PUT",
            format!("{topic}/properties"),
            r#"{"pharos.subscription":"broadcast"}"#,
        ),
        (
            "PUT",
            format!("{topic}/subscription/s"),
            r#"{"properties":{"pharos.subscription":"brodcast"}}"#,
        ),
    ] {
        let (status, answer) = node.call(method, &path, body);
        assert_eq!(status, 412, "{method} {path} {body}: {answer}");
    }
    node.order("PUT", &format!("{topic}/subscription/s"), "");
    let properties = format!("{topic}/subscription/s/properties");
    let (status, answer) = node.call("PUT", &properties, r#"{"pharos.subscripton":"broadcast"}"#);
    assert_eq!(status, 412, "{answer}");
    // It is known, but comes too late.
    let (status, answer) = node.call("PUT", &properties, r#"{"pharos.subscription":"broadcast"}"#);
    assert_eq!(status, 405, "{answer}");
    node.order("PUT", &properties, r#"{"colour":"pharos.subscripton"}"#);
    assert!(!node.topics().iter().any(|name| name.ends_with("wishes-2")));
}
