//! Behaviour that the official clients rely on, found with them and kept here in small: order under load, readers,
//! topics that store nothing.

use std::collections::HashMap;

use crate::support::{self, Node, soon};
use pharos_client::{ConsumerOptions, OutgoingMessage, ProducerOptions};
use pharos_wire::proto::command_subscribe::SubType;
use pharos_wire::request;

/// Messages that are sent without waiting for the one before.
const MESSAGES: usize = 2000;

/// Messages of a shard to itself used to overtake each other, so keys and receipts came out of order.
#[tokio::test]
async fn keys_and_receipts_stay_in_order_under_load() {
    let data = tempfile::tempdir().unwrap();
    let node = Node::start(data.path(), &[]);
    let client = node.client().await;
    let mut consumers = Vec::new();
    for _ in 0..3 {
        let mut options = ConsumerOptions::key_shared("s");
        options.receiver_queue_size = 20;
        consumers.push(client.subscribe("keys", options).await.unwrap());
    }
    let producer = client.producer("keys", ProducerOptions::default()).await.unwrap();
    let mut sends = Vec::new();
    for index in 0..MESSAGES {
        let message = OutgoingMessage::new(index.to_string()).key(&format!("key-{}", index % 40));
        sends.push(producer.begin_send(message).await.unwrap());
    }
    let mut last_of_key: HashMap<String, usize> = HashMap::new();
    let mut received = 0;
    while received < MESSAGES {
        for consumer in &mut consumers {
            let brief = std::time::Duration::from_millis(5);
            while let Some(message) = soon("a message", consumer.receive_within(brief)).await.unwrap() {
                let index: usize = message.text().parse().unwrap();
                let last = last_of_key.insert(message.key().unwrap().to_owned(), index);
                assert!(last.is_none_or(|last| last < index), "{last:?} before {index}");
                consumer.ack(&message.id).await.unwrap();
                received += 1;
            }
        }
    }
    let mut last = None;
    for send in sends {
        let receipt = soon("a receipt", send.receipt()).await.unwrap();
        let place = (receipt.message_id.ledger_id, receipt.message_id.entry_id);
        assert!(last < Some(place), "{last:?} before {place:?}");
        last = Some(place);
    }
}

#[tokio::test]
async fn a_reader_without_a_start_begins_at_the_initial_position() {
    let data = tempfile::tempdir().unwrap();
    let node = Node::start(data.path(), &[]);
    let client = node.client().await;
    let producer = client.producer("read", ProducerOptions::default()).await.unwrap();
    producer.send("first").await.unwrap();
    let mut options = ConsumerOptions::exclusive("reader").from_earliest();
    options.command.durable = Some(false);
    let mut reader = client.subscribe("read", options).await.unwrap();
    assert_eq!(
        soon("the first message", reader.receive()).await.unwrap().text(),
        "first"
    );
}

#[tokio::test]
async fn a_non_persistent_topic_passes_on_and_forgets() {
    let topic = "non-persistent://public/default/passing";
    let data = tempfile::tempdir().unwrap();
    let node = Node::start(data.path(), &[]);
    let client = node.client().await;
    let producer = client.producer(topic, ProducerOptions::default()).await.unwrap();
    let receipt = producer.send("no consumer hears this").await.unwrap();
    assert_eq!(
        (receipt.message_id.ledger_id, receipt.message_id.entry_id),
        (0, 0)
    );
    let mut all = Vec::new();
    for (name, kind) in [
        ("exclusive", SubType::Exclusive),
        ("failover", SubType::Failover),
        ("shared", SubType::Shared),
        ("key-shared", SubType::KeyShared),
    ] {
        let options = ConsumerOptions::new(name, kind).from_earliest();
        all.push(client.subscribe(topic, options).await.unwrap());
    }
    // A second one in wait and one without permits take nothing.
    let mut second = ConsumerOptions::failover("failover");
    second.command.priority_level = Some(1);
    let mut waiting = client.subscribe(topic, second).await.unwrap();
    let mut idle = ConsumerOptions::exclusive("idle");
    idle.receiver_queue_size = 0;
    let mut idle = client.subscribe(topic, idle).await.unwrap();
    // FLOW is not answered, this is, and comes after it.
    soon("the topic has heard of all permits", waiting.stats())
        .await
        .unwrap();
    producer.send("one").await.unwrap();
    for consumer in &mut all {
        let message = soon("a message", consumer.receive()).await.unwrap();
        assert_eq!(message.text(), "one");
        assert_eq!((message.id.ledger_id, message.id.entry_id), (0, 0));
    }
    // The active one leaves: the next message goes to the one in wait.
    let active = all.remove(1);
    soon("closing", active.close()).await.unwrap();
    idle.flow(10).await.unwrap();
    soon("the topic has heard of it", idle.stats()).await.unwrap();
    producer.send("two").await.unwrap();
    for consumer in all.iter_mut().chain([&mut waiting, &mut idle]) {
        assert_eq!(soon("a message", consumer.receive()).await.unwrap().text(), "two");
    }
}

#[tokio::test]
async fn key_shared_consumers_have_one_range_each_where_the_setting_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let ranges = async |settings: &[&str], data: &str| {
        let node = Node::start(&dir.path().join(data), settings);
        let mut raw = node.rogue().await;
        for id in 1..=2 {
            let subscribe = request::subscribe("t", "s", SubType::KeyShared, id, id);
            raw.send(subscribe).await.unwrap();
            support::expect_success(&mut raw, id).await;
        }
        let stats = node.ask("/admin/v2/persistent/public/default/t/stats");
        let consumers = stats["subscriptions"]["s"]["consumers"].as_array().unwrap();
        let ranges: Vec<_> = consumers
            .iter()
            .map(|consumer| consumer["keyHashRanges"].as_array().unwrap().len())
            .collect();
        node.stop();
        ranges
    };
    assert_eq!(
        ranges(&["--key-shared-consistent-hashing=false"], "ranges").await,
        [1, 1]
    );
    let few = ranges(&["--key-shared-ring-points=3"], "few").await;
    assert!(few.iter().all(|&count| count <= 4), "{few:?}");
    let many = ranges(&[], "many").await;
    assert!(many.iter().all(|&count| count > 20), "{many:?}");
}
