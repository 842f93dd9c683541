//! Retention on the running broker: cursors of absent consumers, ledgers, acknowledged messages.

use crate::support::{
    LEDGERS_OF_TEN, Node, broadcast, expect_numbers, figure, publish, receive, soon, until,
};
use pharos_client::{Connection, Consumer, ConsumerOptions, Producer, ProducerOptions, earliest};
use pharos_wire::proto::MessageIdData;
use pharos_wire::proto::command_ack::AckType;

async fn producer(client: &Connection, topic: &str) -> Producer {
    client.producer(topic, ProducerOptions::default()).await.unwrap()
}

/// Acknowledges messages and waits until the broker has done so.
async fn ack(consumer: &Consumer, ids: impl IntoIterator<Item = MessageIdData>) {
    let ids: Vec<_> = ids.into_iter().collect();
    soon(
        "an answer to ACK",
        consumer.ack_and_wait(AckType::Individual, ids),
    )
    .await
    .unwrap();
}

#[tokio::test]
async fn an_absent_broadcast_consumer_loses_its_place_in_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let settings = [&LEDGERS_OF_TEN[..], &["--broadcast-absent-retention", "300ms"]].concat();
    let node = Node::start(dir.path(), &settings);
    let client = node.client().await;
    let mut leaves = client
        .subscribe("t", broadcast("b").name("leaves"))
        .await
        .unwrap();
    let mut stays = client.subscribe("t", broadcast("b").name("stays")).await.unwrap();
    let producer = producer(&client, "t").await;
    publish(&producer, 0..35).await;
    let messages = expect_numbers(&mut leaves, 0..35).await;
    ack(&leaves, messages[..2].iter().map(|message| message.id.clone())).await;
    leaves.close().await.unwrap();
    let messages = expect_numbers(&mut stays, 0..35).await;
    let last = messages.last().unwrap().id.clone();
    soon("ACK", stays.ack_and_wait(AckType::Cumulative, last))
        .await
        .unwrap();

    // Its place holds everything, until it is given up.
    let kept = until("an absent consumer's ledgers go", || {
        let ledgers = node.ledgers("t");
        (ledgers.first() != Some(&messages[0].id.ledger_id)).then_some(ledgers)
    });
    let oldest = kept.await[0];
    let first_kept = messages.iter().position(|message| message.id.ledger_id == oldest);
    let first_kept = u32::try_from(first_kept.unwrap_or(35)).unwrap();
    assert!(
        first_kept >= 10,
        "its place was given up, so at least its ledger goes: {first_kept}"
    );
    publish(&producer, 35..40).await;
    let mut back = client
        .subscribe("t", broadcast("b").name("leaves"))
        .await
        .unwrap();
    let first = receive(&mut back).await;
    let first: u32 = first.text().parse().unwrap();
    assert!((first_kept..=35).contains(&first), "{first} after {first_kept}");
    // It had acknowledged two; what was deleted of the others is counted.
    let summary = &node.stats("t")["subscriptions"]["b"]["pharosBroadcast"];
    assert_eq!(summary["entriesSkippedTotal"], first - 2, "{summary}");
    assert_eq!(summary["returnedLateTotal"], 1, "{summary}");
    let page = node.page("/metrics");
    let skipped = figure(&page, "pharos_broker_broadcast_entries_skipped_total", None);
    assert_eq!(skipped, u64::from(first - 2));
    expect_numbers(&mut back, first + 1..40).await;
    expect_numbers(&mut stays, 35..40).await;
    // It has a place again, and this one is kept while it is here.
    let last = publish(&producer, 40..41).await.remove(0).message_id;
    expect_numbers(&mut back, 40..41).await;
    soon("ACK", back.ack_and_wait(AckType::Cumulative, last))
        .await
        .unwrap();
}

#[tokio::test]
async fn an_absent_broadcast_consumer_holds_back_so_many_bytes_and_no_more() {
    const BYTES_MAX: u64 = 20_000;
    let dir = tempfile::tempdir().unwrap();
    let limits = [
        "--broadcast-absent-retention",
        "unlimited",
        "--broadcast-absent-backlog",
        "20000",
    ];
    let node = Node::start(dir.path(), &[&LEDGERS_OF_TEN[..], &limits].concat());
    let client = node.client().await;
    let leaves = client
        .subscribe("t", broadcast("b").name("leaves"))
        .await
        .unwrap();
    leaves.close().await.unwrap();
    let producer = producer(&client, "t").await;
    let (mut sent, mut bytes) = (0, 0);
    let text = |number: u32| format!("{number:0>1000}");
    let dropped = || {
        let summary = &node.stats("t")["subscriptions"]["b"]["pharosBroadcast"];
        summary["absentDroppedTotal"].as_u64().unwrap()
    };
    // Within the limit its place is kept, however often it is looked at.
    while dropped() == 0 {
        soon("a receipt", producer.send(text(sent))).await.unwrap();
        sent += 1;
        bytes = node.stats("t")["bytesInCounter"].as_u64().unwrap();
        assert!(sent < 10_000, "{bytes} bytes, and its place is still kept");
    }
    assert!(bytes > BYTES_MAX, "given up at {bytes} bytes");
    // No other subscription holds anything back, so closed ledgers go.
    until("its ledgers go", || (node.ledgers("t").len() == 1).then_some(())).await;
    let mut back = client
        .subscribe("t", broadcast("b").name("leaves"))
        .await
        .unwrap();
    let marker = text(sent);
    soon("a receipt", producer.send(marker.clone())).await.unwrap();
    // It goes on with the oldest message that is kept, and misses none after that.
    let mut next: u32 = receive(&mut back).await.text().parse().unwrap();
    assert!(next > 0 && next <= sent, "{next} of {sent}");
    while next < sent {
        next += 1;
        assert_eq!(receive(&mut back).await.text(), text(next));
    }
}

#[tokio::test]
async fn ledgers_go_when_every_consumer_has_acknowledged_them() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &LEDGERS_OF_TEN);
    let client = node.client().await;
    let mut consumers = Vec::new();
    let all = [
        ConsumerOptions::exclusive("exclusive"),
        ConsumerOptions::shared("shared"),
        ConsumerOptions::failover("failover"),
        broadcast("all").name("car-1"),
        broadcast("all").name("car-2"),
        broadcast("all"),
    ];
    for options in all {
        consumers.push(client.subscribe("t", options).await.unwrap());
    }
    let producer = producer(&client, "t").await;
    // A ledger may take more than its ten entries while the next one is made, so their number is not known.
    let mut end = 0;
    let mut last = 0;
    while node.ledgers("t").len() < 4 {
        let receipts = publish(&producer, end..end + 5).await;
        last = receipts[4].message_id.ledger_id;
        end += 5;
    }
    let begun = node.ledgers("t");

    for (number, consumer) in consumers.iter_mut().enumerate() {
        assert_eq!(
            node.ledgers("t")[0],
            begun[0],
            "one consumer has not acknowledged: {number}"
        );
        let messages = expect_numbers(consumer, 0..end).await;
        ack(consumer, messages.iter().map(|message| message.id.clone())).await;
    }
    let left = until("one ledger", || {
        Some(node.ledgers("t")).filter(|ledgers| ledgers.len() == 1)
    })
    .await;
    assert!(left[0] >= last, "{left:?} of {begun:?}");
    // What was not deleted goes on.
    publish(&producer, end..end + 25).await;
    for consumer in &mut consumers {
        expect_numbers(consumer, end..end + 25).await;
    }
}

#[tokio::test]
async fn retention_keeps_what_every_consumer_has_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let forever = [
        "--ledger-default-retention-time",
        "1h",
        "--ledger-default-retention-size",
        "1GiB",
    ];
    let node = Node::start(dir.path(), &[&LEDGERS_OF_TEN[..], &forever].concat());
    let client = node.client().await;
    let mut consumer = client
        .subscribe("t", ConsumerOptions::exclusive("s"))
        .await
        .unwrap();
    let producer = producer(&client, "t").await;
    for round in 0..4 {
        // Each round rolls over, which is when a broker trims.
        publish(&producer, round * 25..round * 25 + 25).await;
        let messages = expect_numbers(&mut consumer, round * 25..round * 25 + 25).await;
        ack(&consumer, messages.iter().map(|message| message.id.clone())).await;
        until("an empty backlog", || {
            (node.stats("t")["subscriptions"]["s"]["msgBacklog"] == 0).then_some(())
        })
        .await;
    }
    assert!(node.ledgers("t").len() > 1, "nothing to keep");
    let options = ConsumerOptions::exclusive("reads").non_durable(earliest());
    let mut reader = client.subscribe("t", options).await.unwrap();
    expect_numbers(&mut reader, 0..100).await;
}
