//! Behaviour that clients written against Pulsar rely on and the protocol's text does not specify: found by running
//! their own test suites.

use std::time::Duration;

use crate::support::{self, Node, entry, expect_numbers, next, produce_on, publish, soon, until};
use bytes::Bytes;
use pharos_client::{Consumer, ConsumerEvent, ConsumerOptions, ProducerOptions};
use pharos_wire::command::Command;
use pharos_wire::proto::command_subscribe::{InitialPosition, SubType};
use pharos_wire::proto::schema::Type;
use pharos_wire::proto::{Schema, ServerError};
use pharos_wire::request;

/// True if a consumer is told that it is the active one, which must be the next thing that it receives.
async fn announced(consumer: &mut Consumer) -> bool {
    match soon("an announcement", consumer.next_event()).await.unwrap() {
        ConsumerEvent::Active(active) => active,
        other => panic!("expected ACTIVE_CONSUMER_CHANGE, got {other:?}"),
    }
}

#[tokio::test]
async fn who_is_active_is_announced_to_those_whose_turn_changes() {
    let dir = tempfile::tempdir().unwrap();
    for delay in ["0s", "50ms"] {
        let node = Node::start(dir.path(), &["--active-consumer-failover-delay", delay]);
        let client = node.client().await;
        let options = |name: &str, level| {
            let mut options = ConsumerOptions::failover("s").name(name);
            options.command.priority_level = Some(level);
            options
        };
        let mut first = client.subscribe("t", options("first", 1)).await.unwrap();
        assert!(announced(&mut first).await);
        // One of a better level takes over.
        let mut second = client.subscribe("t", options("second", 0)).await.unwrap();
        assert!(!announced(&mut first).await);
        assert!(announced(&mut second).await);
        // One that changes nothing hears so itself.
        let mut third = client.subscribe("t", options("third", 1)).await.unwrap();
        assert!(!announced(&mut third).await);
        second.close().await.unwrap();
        let is_first = tokio::select! {
            is_active = announced(&mut first) => { assert!(is_active); true }
            is_active = announced(&mut third) => { assert!(is_active); false }
        };
        // The other one knows that it waits, and hears nothing before its turn comes.
        let (active, mut waiting) = if is_first { (first, third) } else { (third, first) };
        active.close().await.unwrap();
        assert!(announced(&mut waiting).await);
    }
}

/// The first of several consumers waits: messages sent to it at once would be redelivered to the one chosen when all
/// are there.
#[tokio::test]
async fn the_first_active_consumer_waits_for_those_who_come_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &["--active-consumer-failover-delay", "5s"]);
    node.order("PUT", "/admin/v2/persistent/public/default/many/partitions", "2");
    let client = node.client().await;
    // The topic; the first to come with its level, the second; which of them is chosen in the end.
    let flocks = [
        ("many-partition-0", ("b", 0), ("a", 0), "a"),
        ("many-partition-1", ("b", 0), ("a", 0), "b"),
        ("levels", ("a", 1), ("b", 0), "b"),
    ];
    let mut attached = Vec::new();
    for (topic, first, second, chosen) in flocks {
        let producer = client.producer(topic, ProducerOptions::default()).await.unwrap();
        publish(&producer, 0..3).await;
        let mut both = Vec::new();
        for (name, level) in [first, second] {
            let mut options = ConsumerOptions::failover("s").from_earliest().name(name);
            options.command.priority_level = Some(level);
            let consumer = client.subscribe(topic, options).await.unwrap();
            both.push((name, consumer));
        }
        attached.push((topic, chosen, both));
    }
    for (topic, chosen, both) in attached {
        for (name, mut consumer) in both {
            // The one that is not chosen hears that and gets nothing; the chosen one hears it before its messages.
            while announced(&mut consumer).await != (name == chosen) {
                // One that was told at once that another one was chosen before it.
                assert_ne!((topic, name), ("levels", "b"));
            }
            if name == chosen {
                for message in expect_numbers(&mut consumer, 0..3).await {
                    consumer.ack(&message.id).await.unwrap();
                }
                continue;
            }
            let stats = node.stats(topic);
            let consumers = stats["subscriptions"]["s"]["consumers"].as_array().unwrap();
            let of_it = consumers.iter().find(|it| it["consumerName"] == name).unwrap();
            assert_eq!(of_it["msgOutCounter"], 0, "{topic}: {of_it}");
        }
    }
}

/// The cursor is on its way to a consumer that is on its way out: it comes home, and is not lost between them.
#[tokio::test]
async fn a_consumer_that_leaves_while_it_becomes_active_takes_nothing_along() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &["--active-consumer-failover-delay", "1ms"]);
    let client = node.client().await;
    let producer = client.producer("t", ProducerOptions::default()).await.unwrap();
    publish(&producer, 0..1).await;
    let mut raw = node.rogue().await;
    for round in 0..300 {
        let mut command = request::subscribe("t", "s", SubType::Failover, round, 2 * round);
        command.initial_position = Some(InitialPosition::Earliest as i32);
        raw.send(command).await.unwrap();
        while !matches!(next(&mut raw).await, Command::Success(_)) {}
        for _ in 0..round % 30 {
            tokio::task::yield_now().await;
        }
        std::thread::sleep(Duration::from_micros(100 * (round % 25)));
        raw.send(request::close_consumer(round, 2 * round + 1))
            .await
            .unwrap();
        while !matches!(next(&mut raw).await, Command::Success(_)) {}
    }
    let mut last = client
        .subscribe("t", ConsumerOptions::failover("s"))
        .await
        .unwrap();
    assert!(announced(&mut last).await);
    expect_numbers(&mut last, 0..1).await;
}

fn schema(kind: Type, data: &'static str) -> Schema {
    Schema {
        name: String::new(),
        schema_data: Bytes::from_static(data.as_bytes()),
        r#type: kind as i32,
        properties: Vec::new(),
    }
}

#[tokio::test]
async fn a_schema_of_bytes_has_a_version_and_a_deleted_one_none() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &[]);
    let client = node.client().await;
    let none = || schema(Type::None, "");
    let avro = || schema(Type::Avro, r#""int""#);
    let options = ProducerOptions::default().schema(none());
    let producer = client.producer("t", options).await.unwrap();
    let version = producer.success().schema_version.clone().unwrap();
    assert_eq!(version.as_ref(), [0; 8]);
    let (found, _) = client.schema("t", Some(version.clone())).await.unwrap();
    assert_eq!(found.r#type(), Type::None);
    let refused = client
        .subscribe("t", ConsumerOptions::shared("s").schema(avro()))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Some(ServerError::IncompatibleSchema), "{refused}");
    // Asked for on the way, it is no schema.
    assert_eq!(client.get_or_create_schema("t", none()).await.unwrap(), "");

    node.http(
        "DELETE",
        "/admin/v2/schemas/public/default/t/schema",
        "HTTP/1.1 200",
    );
    let gone = client.schema("t", Some(version)).await.unwrap_err();
    assert_eq!(gone.code(), Some(ServerError::TopicNotFound), "{gone}");
    assert!(
        client
            .get_or_create_schema("t", avro())
            .await
            .unwrap()
            .ends_with(&[2])
    );
}

#[tokio::test]
async fn sends_are_answered_in_their_order_also_when_refused() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &[]);
    let mut raw = node.rogue().await;
    produce_on(&mut raw, "t", 1).await;
    let good = entry("good");
    let mut bad = good.to_vec();
    *bad.last_mut().unwrap() ^= 1;
    let is_bad = |number: u64| number % 7 == 3 || number % 7 == 4;
    for number in 0..60 {
        let payload: &[u8] = if is_bad(number) { &bad } else { &good };
        raw.send_with_payload(request::send(1, number, 1), payload)
            .await
            .unwrap();
    }
    raw.send(request::close_producer(1, 77)).await.unwrap();
    for number in 0..60 {
        match next(&mut raw).await {
            Command::SendReceipt(receipt) => {
                assert_eq!((receipt.sequence_id, false), (number, is_bad(number)))
            }
            Command::SendError(error) => {
                assert_eq!((error.sequence_id, true), (number, is_bad(number)));
                assert_eq!(error.error(), ServerError::ChecksumError);
            }
            other => panic!("expected an answer to send {number}, got {other:?}"),
        }
    }
    support::expect_success(&mut raw, 77).await;
}

#[tokio::test]
async fn handshakes_lookups_and_loads_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &[]);
    let client = node.client().await;
    let producer = client.producer("t", ProducerOptions::default()).await.unwrap();
    publish(&producer, 0..3).await;
    client.lookup("t").await.unwrap();
    client.lookup("persistent://missing/here/t").await.unwrap_err();
    // One that leaves without a word.
    drop(node.stranger().await);
    let value = |page: &str, name: &str| -> Option<f64> {
        let line = page.lines().find(|line| line.starts_with(&format!("{name}{{")))?;
        line.rsplit(' ').next()?.parse().ok()
    };
    let page = until("a failed handshake", || {
        let page = node.page("/metrics");
        let failed = value(&page, "pulsar_connection_create_fail_count")?;
        (failed >= 1.0).then_some(page)
    })
    .await;
    for (name, wanted) in [
        ("pulsar_connection_create_success_count", 1.0),
        ("pulsar_broker_lookup_failures", 1.0),
        ("pulsar_topic_load_times_count", 1.0),
        ("pulsar_topic_load_failed_total", 0.0),
        ("pulsar_storage_write_latency_count", 3.0),
        ("pulsar_entry_size_count", 3.0),
    ] {
        assert_eq!(value(&page, name), Some(wanted), "{name}");
    }
    assert!(value(&page, "pulsar_broker_lookup_answers").unwrap() >= 1.0);
}
