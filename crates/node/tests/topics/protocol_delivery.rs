//! Delivery and retention of messages, on the wire of the running broker.

use crate::support::{
    Node, assert_closed, broadcast, expect_error, expect_numbers, expect_success, next, publish, receive,
    soon,
};
use pharos_client::{
    ClientError, Connection, Consumer, ConsumerEvent, ConsumerOptions, OutgoingMessage, Producer,
    ProducerOptions, RawConnection, earliest,
};
use pharos_wire::command::Command;
use pharos_wire::proto::command_ack::AckType;
use pharos_wire::proto::command_subscribe::{InitialPosition, SubType};
use pharos_wire::proto::{
    CommandRedeliverUnacknowledgedMessages, CommandSubscribe, MessageIdData, ServerError,
};
use pharos_wire::request;

async fn producer(client: &Connection, topic: &str) -> Producer {
    client.producer(topic, ProducerOptions::default()).await.unwrap()
}

async fn batch(producer: &Producer, numbers: std::ops::Range<u32>) -> MessageIdData {
    let messages = numbers
        .map(|number| OutgoingMessage::new(number.to_string()))
        .collect();
    producer.send_batch(messages).await.unwrap().message_id
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
async fn redelivery_is_counted_when_it_was_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &[]);
    let client = node.client().await;
    for kind in [SubType::Shared, SubType::KeyShared] {
        let topic = format!("counted-{kind:?}").to_lowercase();
        let options = ConsumerOptions::new("s", kind).receiver_queue_size(1);
        let mut consumer = client.subscribe(&topic, options.clone()).await.unwrap();
        let producer = producer(&client, &topic).await;
        publish(&producer, 0..1).await;
        for count in 0..3 {
            let message = receive(&mut consumer).await;
            assert_eq!(message.redelivery_count, count);
            consumer.redeliver(&[message.id]).await.unwrap();
        }
        let message = receive(&mut consumer).await;
        assert_eq!(message.redelivery_count, 3);
        // Its consumer leaves: the next one gets it, and no client had asked for that.
        let mut second = client.subscribe(&topic, options).await.unwrap();
        consumer.close().await.unwrap();
        let message = receive(&mut second).await;
        assert_eq!(
            (message.text().as_str(), message.redelivery_count),
            ("0", 3),
            "{kind:?}"
        );
        second.redeliver_all().await.unwrap();
        assert_eq!(receive(&mut second).await.redelivery_count, 4, "{kind:?}");
    }
    for options in [
        ConsumerOptions::exclusive("s"),
        ConsumerOptions::failover("s"),
        broadcast("b").name("car"),
    ] {
        let topic = format!(
            "uncounted-{}",
            options.command.subscription.clone() + &options.command.sub_type.to_string()
        );
        let mut consumer = client.subscribe(&topic, options).await.unwrap();
        let producer = producer(&client, &topic).await;
        publish(&producer, 0..3).await;
        for _ in 0..3 {
            let messages = expect_numbers(&mut consumer, 0..3).await;
            assert!(messages.iter().all(|message| message.redelivery_count == 0));
            consumer.redeliver_all().await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_partly_acknowledged_batch_comes_again_with_what_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &[]);
    let client = node.client().await;
    let kinds = [
        SubType::Exclusive,
        SubType::Shared,
        SubType::KeyShared,
        SubType::Failover,
    ];
    let all = kinds
        .map(|kind| ConsumerOptions::new("s", kind))
        .into_iter()
        .chain([broadcast("s").name("car")]);
    for (number, options) in all.enumerate() {
        let topic = format!("batch-{number}");
        let options = options.batch_index_ack();
        let mut consumer = client.subscribe(&topic, options.clone()).await.unwrap();
        let producer = producer(&client, &topic).await;
        let id = batch(&producer, 0..5).await;
        let messages = expect_numbers(&mut consumer, 0..5).await;
        assert!(messages[0].ack_set.is_empty());
        for index in [1, 3] {
            consumer.ack(&messages[index].id).await.unwrap();
        }
        consumer.redeliver_all().await.unwrap();
        for _ in 0..2 {
            let mut left = Vec::new();
            while left.len() < 3 {
                left.push(receive(&mut consumer).await);
            }
            let texts: Vec<_> = left.iter().map(|message| message.text()).collect();
            assert_eq!(texts, ["0", "2", "4"], "{topic}");
            assert_eq!(left[0].ack_set, [0b10101], "{topic}");
            // The same to the next one who takes the place.
            consumer.close().await.unwrap();
            consumer = client.subscribe(&topic, options.clone()).await.unwrap();
        }
        // What remains is acknowledged in one go: nothing is left but what comes later.
        let rest = MessageIdData {
            ack_set: vec![0b01010],
            ..id
        };
        ack(&consumer, [rest]).await;
        consumer.close().await.unwrap();
        batch(&producer, 5..7).await;
        let mut consumer = client.subscribe(&topic, options).await.unwrap();
        expect_numbers(&mut consumer, 5..7).await;
    }
}

/// Entries that are there after the broker has had every chance to send more.
async fn entries_sent(
    raw: &mut RawConnection,
    client: &Connection,
    topic: &str,
    request_id: &mut u64,
) -> Vec<Command> {
    let mut entries = Vec::new();
    // Something new for the topic's home and every shard to deal with, then a question to the home of the topic, whose
    // answer goes the way of messages; more than once, because reads take a detour.
    let producer = producer(client, topic).await;
    for _ in 0..3 {
        publish(&producer, 0..1).await;
        *request_id += 1;
        raw.send(request::consumer_stats(1, *request_id)).await.unwrap();
        loop {
            match next(raw).await {
                Command::ConsumerStatsResponse(_) => break,
                message @ Command::Message(_) => entries.push(message),
                Command::ActiveConsumerChange(_) => {}
                other => panic!("unexpected {other:?}"),
            }
        }
    }
    entries
}

#[tokio::test]
async fn permits_are_never_exceeded_by_more_than_a_batch() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &[]);
    let client = node.client().await;
    let kinds = [
        SubType::Exclusive,
        SubType::Shared,
        SubType::KeyShared,
        SubType::Failover,
    ];
    let ordinary = kinds.map(|kind| ConsumerOptions::new("s", kind).command);
    let all = ordinary.into_iter().chain([broadcast("s").name("car").command]);
    for (number, command) in all.enumerate() {
        let topic = format!("permits-{number}");
        let mut raw = node.rogue().await;
        let subscribe = CommandSubscribe {
            topic: topic.clone(),
            consumer_id: 1,
            request_id: 1,
            initial_position: Some(InitialPosition::Earliest as i32),
            ..command
        };
        raw.send(subscribe).await.unwrap();
        loop {
            match next(&mut raw).await {
                Command::Success(_) => break,
                Command::ActiveConsumerChange(_) => {}
                other => panic!("unexpected {other:?}"),
            }
        }
        let mut request_id = 1;
        let producer = producer(&client, &topic).await;
        for first in 0..10 {
            batch(&producer, first * 2..first * 2 + 2).await;
        }
        let nothing = entries_sent(&mut raw, &client, &topic, &mut request_id).await;
        assert_eq!(nothing.len(), 0, "{topic}: a message before FLOW");

        // (permits granted, entries of two messages that may come): the second overruns by one, which is owed.
        for (permits, entries) in [(3, 2), (1, 0), (1, 1), (2, 1), (4, 2)] {
            raw.send(request::flow(1, permits)).await.unwrap();
            let mut came = 0;
            while came < entries {
                match next(&mut raw).await {
                    Command::Message(_) => came += 1,
                    Command::ActiveConsumerChange(_) => {}
                    other => panic!("unexpected {other:?}"),
                }
            }
            let more = entries_sent(&mut raw, &client, &topic, &mut request_id).await;
            assert_eq!(
                more.len(),
                0,
                "{topic}: more than {entries} entries for {permits} permits"
            );
        }
    }
}

#[tokio::test]
async fn an_exclusive_place_is_kept_by_a_holder_that_answers() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &["--connection-liveness-check-timeout", "3s"]);
    let client = node.client().await;
    let options = ConsumerOptions::exclusive("s");
    // This holder answers PINGs by itself.
    let holder = client.subscribe("t", options.clone()).await.unwrap();
    let other = node.client().await;
    let refused = soon("a refusal", other.subscribe("t", options.clone()))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Some(ServerError::ConsumerBusy), "{refused}");
    // Nor is there a second place on the holder's own connection.
    let refused = soon("a refusal", client.subscribe("t", options.clone()))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Some(ServerError::ConsumerBusy), "{refused}");
    // Another kind does not fit while it is held.
    let refused = soon("a refusal", other.subscribe("t", ConsumerOptions::shared("s")))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Some(ServerError::ConsumerBusy), "{refused}");
    holder.close().await.unwrap();

    let mut dead = node.rogue().await;
    dead.send(request::subscribe("t", "s", SubType::Exclusive, 1, 1))
        .await
        .unwrap();
    expect_success(&mut dead, 1).await;
    let mut consumer = soon("a place of the dead", other.subscribe("t", options))
        .await
        .unwrap();
    assert_closed(&mut dead, "a holder that does not answer").await;
    let producer = producer(&client, "t").await;
    publish(&producer, 0..1).await;
    expect_numbers(&mut consumer, 0..1).await;
}

#[tokio::test]
async fn a_broadcast_name_is_taken_over_where_it_stood() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &[]);
    let client = node.client().await;
    let mut first = client.subscribe("t", broadcast("b").name("car-1")).await.unwrap();
    let mut other = client.subscribe("t", broadcast("b").name("car-2")).await.unwrap();
    let producer = producer(&client, "t").await;
    publish(&producer, 0..10).await;
    let messages = expect_numbers(&mut first, 0..10).await;
    expect_numbers(&mut other, 0..10).await;
    // Acknowledged with a hole: 0, 1, 3.
    ack(&first, [0, 1, 3].map(|index| messages[index].id.clone())).await;

    // From another connection, and from that one again: its holder may take it anew.
    let connection = node.client().await;
    for round in 0..2 {
        let mut second = soon(
            "a take-over",
            connection.subscribe("t", broadcast("b").name("car-1")),
        )
        .await
        .unwrap();
        match soon("CLOSE_CONSUMER", first.next_event()).await.unwrap() {
            ConsumerEvent::Closed(_) => {}
            event => panic!("expected CLOSE_CONSUMER, got {event:?}"),
        }
        for expected in ["2", "4", "5", "6", "7", "8", "9"] {
            assert_eq!(receive(&mut second).await.text(), expected, "round {round}");
        }
        first = second;
    }
    // It goes and comes back later: still there.
    let messages = publish(&producer, 10..11).await;
    expect_numbers(&mut first, 10..11).await;
    let waiting = first.ack_and_wait(AckType::Cumulative, messages[0].message_id.clone());
    soon("an answer to ACK", waiting).await.unwrap();
    first.close().await.unwrap();
    publish(&producer, 11..13).await;
    let mut first = client.subscribe("t", broadcast("b").name("car-1")).await.unwrap();
    expect_numbers(&mut first, 11..13).await;
    // The others notice nothing.
    expect_numbers(&mut other, 10..13).await;
}

#[tokio::test]
async fn a_broadcast_place_without_a_name_ends_with_its_consumer() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &[]);
    let client = node.client().await;
    let mut first = client.subscribe("t", broadcast("b")).await.unwrap();
    let mut second = client.subscribe("t", broadcast("b")).await.unwrap();
    let producer = producer(&client, "t").await;
    publish(&producer, 0..3).await;
    expect_numbers(&mut first, 0..3).await;
    expect_numbers(&mut second, 0..3).await;
    first.close().await.unwrap();
    publish(&producer, 3..5).await;
    // A new one begins where it says: at the end, unless it asks for the beginning.
    let mut late = client.subscribe("t", broadcast("b")).await.unwrap();
    let mut eager = client
        .subscribe("t", broadcast("b").from_earliest())
        .await
        .unwrap();
    publish(&producer, 5..6).await;
    expect_numbers(&mut late, 5..6).await;
    expect_numbers(&mut eager, 0..6).await;
    expect_numbers(&mut second, 3..6).await;
}

#[tokio::test]
async fn a_broadcast_consumer_moves_and_leaves_for_itself_alone() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &[]);
    let client = node.client().await;
    let mut one = client.subscribe("t", broadcast("b").name("car-1")).await.unwrap();
    let mut two = client.subscribe("t", broadcast("b").name("car-2")).await.unwrap();
    let producer = producer(&client, "t").await;
    publish(&producer, 0..5).await;
    let messages = expect_numbers(&mut one, 0..5).await;
    expect_numbers(&mut two, 0..5).await;
    ack(&one, messages.iter().map(|message| message.id.clone())).await;
    soon("SEEK", one.seek(messages[1].id.clone())).await.unwrap();
    expect_numbers(&mut one, 1..5).await;
    // The subscription is not ended over the head of the other one.
    let refused = soon("UNSUBSCRIBE", one.unsubscribe(false)).await.unwrap_err();
    assert_eq!(refused.code(), Some(ServerError::MetadataError), "{refused}");
    publish(&producer, 5..6).await;
    expect_numbers(&mut one, 5..6).await;
    expect_numbers(&mut two, 5..6).await;
}

#[tokio::test]
async fn large_messages_arrive_without_anything_else_happening() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &[]);
    let other = node.client().await;
    let kinds = [
        SubType::Exclusive,
        SubType::Shared,
        SubType::Failover,
        SubType::KeyShared,
    ];
    for kind in kinds {
        let topic = format!("large-{kind:?}").to_lowercase();
        // Its connection is quiet but for one FLOW, so nothing wakes it that is not about these messages.
        let client = node.client().await;
        let options = ConsumerOptions::new("s", kind).receiver_queue_size(0);
        let mut consumer = client.subscribe(&topic, options).await.unwrap();
        let producer = producer(&other, &topic).await;
        let payload = vec![7_u8; 512 << 10];
        for _ in 0..12 {
            soon("a receipt", producer.send(payload.clone())).await.unwrap();
        }
        consumer.flow(12).await.unwrap();
        for _ in 0..12 {
            assert_eq!(
                receive(&mut consumer).await.payload.len(),
                payload.len(),
                "{kind:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_shared_consumer_that_does_not_read_keeps_little_from_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &[]);
    let client = node.client().await;
    let mut silent = node.rogue().await;
    silent
        .send(request::subscribe("t", "s", SubType::Shared, 1, 1))
        .await
        .unwrap();
    expect_success(&mut silent, 1).await;
    silent.send(request::flow(1, 1000)).await.unwrap();
    let mut reads = client.subscribe("t", ConsumerOptions::shared("s")).await.unwrap();
    let producer = producer(&client, "t").await;
    let payload = vec![7_u8; 512 << 10];
    let mut owed = std::collections::BTreeSet::new();
    for _ in 0..80 {
        let receipt = soon("a receipt", producer.send(payload.clone())).await.unwrap();
        owed.insert((receipt.message_id.ledger_id, receipt.message_id.entry_id));
    }
    // What the silent one has been given fits its socket and its window: far less than its half of 40 MiB.
    while owed.len() > 30 {
        let id = receive(&mut reads).await.id;
        assert!(
            owed.remove(&(id.ledger_id, id.entry_id)),
            "delivered twice: {id:?}"
        );
    }
    drop(silent);
    while !owed.is_empty() {
        let id = receive(&mut reads).await.id;
        assert!(
            owed.remove(&(id.ledger_id, id.entry_id)),
            "delivered twice: {id:?}"
        );
    }
}

#[tokio::test]
async fn broadcast_and_ordinary_subscriptions_are_not_mistaken() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &[]);
    let client = node.client().await;
    let producer = producer(&client, "t").await;

    // An ordinary subscription does not become broadcast, with or without consumers.
    let ordinary = client
        .subscribe("t", ConsumerOptions::shared("ordinary"))
        .await
        .unwrap();
    let refused = client
        .subscribe("t", broadcast("ordinary").name("car"))
        .await
        .unwrap_err();
    match &refused {
        ClientError::Refused { code, message } => {
            assert_eq!(*code, ServerError::ConsumerBusy);
            assert!(
                message.contains("ordinary") && message.contains("broadcast"),
                "{message}"
            );
        }
        other => panic!("expected ConsumerBusy, got {other}"),
    }
    ordinary.close().await.unwrap();
    let refused = client
        .subscribe("t", broadcast("ordinary").name("car"))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Some(ServerError::ConsumerBusy));

    // A client that subscribes in the ordinary way to a broadcast subscription gets broadcast.
    let mut one = client
        .subscribe("t", broadcast("all").name("car-1"))
        .await
        .unwrap();
    let kinds = [
        SubType::Exclusive,
        SubType::Shared,
        SubType::Failover,
        SubType::KeyShared,
    ];
    let mut others = Vec::new();
    for (number, kind) in kinds.into_iter().enumerate() {
        let options = ConsumerOptions::new("all", kind).name(&format!("plain-{number}"));
        others.push(client.subscribe("t", options).await.unwrap());
    }
    publish(&producer, 0..3).await;
    expect_numbers(&mut one, 0..3).await;
    for other in &mut others {
        expect_numbers(other, 0..3).await;
    }
    // A cursor that ends with its consumer is not a broadcast place.
    let mut raw = node.rogue().await;
    let mut command = broadcast("passing").non_durable(earliest()).command;
    (command.topic, command.request_id) = ("t".to_owned(), 5);
    raw.send(command).await.unwrap();
    expect_error(&mut raw, 5, ServerError::NotAllowedError).await;
}

/// The Java client discards messages whose epoch is older than its own, and takes those that have none.
#[tokio::test]
async fn a_failover_consumer_that_waited_for_its_turn_keeps_its_epoch() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &["--active-consumer-failover-delay", "200ms"]);
    let client = node.client().await;
    publish(&producer(&client, "t").await, 0..1).await;
    let mut raw = node.rogue().await;
    let subscribe = CommandSubscribe {
        topic: "t".to_owned(),
        consumer_id: 1,
        request_id: 1,
        consumer_epoch: Some(3),
        initial_position: Some(InitialPosition::Earliest as i32),
        ..ConsumerOptions::new("s", SubType::Failover).command
    };
    raw.send(subscribe).await.unwrap();
    expect_success(&mut raw, 1).await;
    // It is not the active one yet, and asks again.
    let again = CommandRedeliverUnacknowledgedMessages {
        consumer_id: 1,
        message_ids: Vec::new(),
        consumer_epoch: Some(4),
    };
    raw.send(again).await.unwrap();
    raw.send(request::flow(1, 10)).await.unwrap();
    loop {
        match next(&mut raw).await {
            Command::Message(message) => break assert_eq!(message.consumer_epoch, Some(4)),
            Command::ActiveConsumerChange(_) => {}
            other => panic!("unexpected {other:?}"),
        }
    }
}
