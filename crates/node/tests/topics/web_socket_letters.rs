//! Dead letters of consumers by WebSocket: none is lost on its way.

use std::collections::BTreeSet;

use pharos_client::{ConsumerOptions, OutgoingMessage, ProducerOptions, earliest};
use serde_json::json;

use crate::support::web_socket::{WEB_SOCKETS, WebSocket, text_of};
use crate::support::{Node, read_log, soon, until};

const TOPIC: &str = "persistent/public/default/t";
const LETTERS: &str = "persistent/public/default/t-s-DLQ";

fn path(max_redeliver_count: u32) -> String {
    format!(
        "consumer/{TOPIC}/s?subscriptionType=Shared&subscriptionInitialPosition=Earliest\
         &maxRedeliverCount={max_redeliver_count}&negativeAckRedeliveryDelay=1"
    )
}

/// Gets the next message, gives it back, and returns its text and how often it came before.
async fn give_back(consumer: &mut WebSocket) -> (String, u64) {
    let message = consumer.hear().await;
    consumer
        .say(&json!({"type": "negativeAcknowledge", "messageId": message["messageId"]}))
        .await;
    (text_of(&message), message["redeliveryCount"].as_u64().unwrap())
}

fn backlog(node: &Node) -> u64 {
    node.stats("t")["subscriptions"]["s"]["msgBacklog"]
        .as_u64()
        .unwrap()
}

#[tokio::test]
async fn a_message_that_is_given_back_too_often_becomes_a_dead_letter() {
    let data = tempfile::tempdir().unwrap();
    let node = Node::start(data.path(), &[WEB_SOCKETS]);
    let client = node.client().await;
    let mut letters = client
        .subscribe("t-s-DLQ", ConsumerOptions::shared("audit"))
        .await
        .unwrap();
    let producer = client.producer("t", ProducerOptions::default()).await.unwrap();
    let poison = OutgoingMessage::new("poison")
        .key("k")
        .property("a", "b")
        .event_time(1_700_000_000_000);
    let id = producer.send(poison).await.unwrap().message_id;
    let mut consumer = WebSocket::open(&node, &path(2)).await;
    for count in 0..=2 {
        assert_eq!(give_back(&mut consumer).await, ("poison".to_owned(), count));
    }
    let letter = soon("a letter", letters.receive()).await.unwrap();
    let origin = format!("{}:{}:-1", id.ledger_id, id.entry_id);
    let properties = letter.properties();
    let expected = [
        ("ORIGIN_MESSAGE_ID", origin.as_str()),
        ("ORIGIN_MESSAGE_IDY_TIME", &origin),
        ("REAL_SUBSCRIPTION", "s"),
        ("REAL_TOPIC", "persistent://public/default/t"),
        ("a", "b"),
    ];
    assert_eq!(properties.into_iter().collect::<Vec<_>>(), expected);
    assert_eq!(
        (letter.text().as_str(), letter.key(), letter.metadata.event_time),
        ("poison", Some("k"), Some(1_700_000_000_000))
    );
    until("its message is acknowledged", || {
        (backlog(&node) == 0).then_some(())
    })
    .await;

    // Of a batch, what was acknowledged becomes none.
    let batch = ["good", "bad"].map(OutgoingMessage::new).to_vec();
    producer.send_batch(batch).await.unwrap();
    for count in 0..=2 {
        if count == 0 {
            assert_eq!(consumer.consume().await, "good");
        }
        assert_eq!(give_back(&mut consumer).await, ("bad".to_owned(), count));
    }
    let letter = soon("a letter", letters.receive()).await.unwrap();
    assert_eq!(letter.text(), "bad");
    until("the batch is acknowledged", || {
        (backlog(&node) == 0).then_some(())
    })
    .await;
    assert_eq!(node.stats("t-s-DLQ")["msgInCounter"], 2);
    let producer_name = letter.metadata.producer_name.as_str();
    assert!(
        producer_name.starts_with("persistent://public/default/t-s-") && producer_name.ends_with("-DLQ"),
        "{producer_name}"
    );
}

/// A message whose letter is not stored stays in the backlog, and becomes a letter once that can be.
#[tokio::test]
async fn a_message_is_acknowledged_only_when_its_letter_is_stored() {
    let data = tempfile::tempdir().unwrap();
    let node = Node::start(data.path(), &[WEB_SOCKETS]);
    drop(
        node.client()
            .await
            .producer("t-s-DLQ", ProducerOptions::default())
            .await
            .unwrap(),
    );
    node.order("POST", &format!("/admin/v2/{LETTERS}/terminate"), "");
    let mut producer = WebSocket::open(&node, &format!("producer/{TOPIC}")).await;
    producer.produce("poison").await;
    let mut consumer = WebSocket::open(&node, &path(1)).await;
    for count in 0..=1 {
        assert_eq!(give_back(&mut consumer).await.1, count);
    }
    until("it is said", || {
        node.logged()
            .contains("a dead letter is not stored")
            .then_some(())
    })
    .await;
    assert_eq!(backlog(&node), 1);
    // Others are delivered meanwhile.
    producer.produce("good").await;
    assert_eq!(consumer.consume().await, "good");
    node.delete(&format!("/admin/v2/{LETTERS}?force=true"));
    until("the letter is stored", || {
        let (status, stats) = node.call("GET", &format!("/admin/v2/{LETTERS}/stats"), "");
        (status == 200 && stats.contains("\"msgInCounter\":1")).then_some(())
    })
    .await;
    until("its message is acknowledged", || {
        (backlog(&node) == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_crash_between_topic_and_dead_letter_topic_loses_nothing() {
    const COUNT: u32 = 600;
    let data = tempfile::tempdir().unwrap();
    let node = Node::start(data.path(), &[WEB_SOCKETS]);
    let client = node.client().await;
    drop(
        client
            .subscribe("t-s-DLQ", ConsumerOptions::shared("audit"))
            .await
            .unwrap(),
    );
    let mut consumer = WebSocket::open(&node, &path(1)).await;
    let producer = client.producer("t", ProducerOptions::default()).await.unwrap();
    let mut sent = BTreeSet::new();
    for number in 0..COUNT {
        producer.send(number.to_string()).await.unwrap();
        sent.insert(number.to_string());
    }
    for _ in 0..2 * COUNT {
        give_back(&mut consumer).await;
    }
    until("some letters are stored", || {
        (node.stats("t-s-DLQ")["msgInCounter"].as_u64() >= Some(20)).then_some(())
    })
    .await;
    node.kill();

    let node = Node::start(data.path(), &[WEB_SOCKETS]);
    let client = node.client().await;
    let mut found = BTreeSet::new();
    let mut letters = client.reader("t-s-DLQ", earliest()).await.unwrap();
    while soon("an answer", letters.has_next()).await.unwrap() {
        found.insert(soon("a letter", letters.next()).await.unwrap().text());
    }
    assert!(found.len() >= 20, "{} letters", found.len());
    let mut rest = client.subscribe("t", ConsumerOptions::shared("s")).await.unwrap();
    for _ in 0..backlog(&node) {
        found.insert(soon("what is left", rest.receive()).await.unwrap().text());
    }
    assert_eq!(read_log(&node).await.len() as u64, u64::from(COUNT));
    assert!(
        sent.is_subset(&found),
        "lost: {:?}",
        sent.difference(&found).collect::<Vec<_>>()
    );
}
