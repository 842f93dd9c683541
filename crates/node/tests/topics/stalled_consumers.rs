//! Consumers that do not read: what they hold, who goes on, and what they get when they read after all.

use std::collections::BTreeSet;

use crate::support::{Node, expect_success, figure, receive, soon, until};
use pharos_client::{ConsumerOptions, OutgoingMessage, Producer, ProducerOptions, RawConnection};
use pharos_wire::command::Command;
use pharos_wire::proto::command_subscribe::SubType;
use pharos_wire::{message, request};

/// Peers that do not read.
const IDLE: usize = 8;
const MESSAGES: u32 = 80;
const MESSAGE_BYTES: usize = 900_000;
/// Room for what is not written; each of the idle would hold more.
const ROOM: u64 = 4 << 20;
/// Beyond that, what two shards were dealing and reading at the moment at which it was full.
const BEYOND: u64 = 4 * MESSAGE_BYTES as u64;

fn text(number: u32) -> String {
    let letter = char::from(b'a' + (number % 26) as u8).to_string();
    format!("{number} {}", letter.repeat(MESSAGE_BYTES))
}

/// The number in a message, all of which must be as it was sent.
fn number_in(body: &[u8]) -> u32 {
    let body = std::str::from_utf8(body).unwrap();
    let number = body.split(' ').next().unwrap().parse().unwrap();
    assert!(body == text(number), "message {number} is not what was sent");
    number
}

async fn publish(producer: &Producer, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let message = OutgoingMessage::new(text(number)).key(&number.to_string());
        soon("a receipt", producer.send(message)).await.unwrap();
    }
}

/// A peer that asked for messages and does not read them.
async fn idle(node: &Node, topic: &str, kind: SubType, permits: u32) -> RawConnection {
    idle_on(node, topic, "s", kind, permits).await
}

async fn idle_on(node: &Node, topic: &str, subscription: &str, kind: SubType, permits: u32) -> RawConnection {
    let mut raw = node.rogue().await;
    raw.send(request::subscribe(topic, subscription, kind, 1, 1))
        .await
        .unwrap();
    expect_success(&mut raw, 1).await;
    raw.send(request::flow(1, permits)).await.unwrap();
    raw
}

/// The number of the next message that a peer is sent, acknowledged; `None` when it is closed.
async fn next_number(raw: &mut RawConnection) -> Option<u32> {
    while let Ok(Some(frame)) = raw.read().await {
        if let Command::Message(to) = frame.command {
            let payload = frame.payload.unwrap();
            let parts = message::split_ref(&payload).unwrap();
            // The broker may close the connection between the message and its acknowledgement.
            raw.send(request::ack(1, to.message_id)).await.ok()?;
            return Some(number_in(parts.payload));
        }
    }
    None
}

fn unwritten(node: &Node) -> u64 {
    figure(&node.page("/metrics"), "pharos_unwritten_bytes", None)
}

fn set_aside(node: &Node) -> u64 {
    figure(&node.page("/metrics"), "pharos_set_aside_bytes_total", None)
}

/// Messages that were given to the peers that do not read.
fn theirs(node: &Node, topic: &str) -> u64 {
    let stats = node.stats(topic);
    let consumers = stats["subscriptions"]["s"]["consumers"].as_array().unwrap();
    let theirs = consumers.iter().filter(|it| it["consumerName"] != "reader");
    theirs.map(|it| it["unackedMessages"].as_u64().unwrap()).sum()
}

/// Reads all that peers were sent, until together they have what is missing; each number comes once.
async fn read_rest(idle: Vec<RawConnection>, missing: &BTreeSet<u32>) -> Vec<Vec<u32>> {
    let (numbers, mut all) = tokio::sync::mpsc::channel(1);
    for (index, mut raw) in idle.into_iter().enumerate() {
        let numbers = numbers.clone();
        tokio::spawn(async move {
            while let Some(number) = next_number(&mut raw).await {
                if numbers.send((index, number)).await.is_err() {
                    return;
                }
            }
        });
    }
    let mut got = vec![Vec::new(); IDLE];
    let mut left = missing.clone();
    while !left.is_empty() {
        let (index, number) = soon("what a peer did not read", all.recv()).await.unwrap();
        assert!(left.remove(&number), "{number} came again");
        got[index].push(number);
    }
    got
}

#[tokio::test]
async fn shared_consumers_that_do_not_read_hold_little_and_stop_no_other() {
    let data = tempfile::tempdir().unwrap();
    let room = format!("{ROOM}");
    let node = Node::start(data.path(), &["--max-unwritten-size", &room]);
    let mut peers = Vec::new();
    for _ in 0..IDLE {
        peers.push(idle(&node, "t", SubType::Shared, 1000).await);
    }
    let client = node.client().await;
    let options = ConsumerOptions::new("s", SubType::Shared).name("reader");
    let mut reader = client.subscribe("t", options).await.unwrap();
    let producer = client.producer("t", ProducerOptions::default()).await.unwrap();
    let (mut got, mut most) = (BTreeSet::new(), 0);
    for number in 0..MESSAGES {
        publish(&producer, number..number + 1).await;
        most = most.max(unwritten(&node));
    }
    // What the others were not given comes to the one that reads, while they go on not reading.
    while got.len() as u64 + theirs(&node, "t") < u64::from(MESSAGES) {
        let message = receive(&mut reader).await;
        assert!(got.insert(number_in(message.text().as_bytes())));
        reader.ack(&message.id).await.unwrap();
        most = most.max(unwritten(&node));
    }
    assert!(most <= ROOM + BEYOND, "{most} bytes were not written");
    let aside = set_aside(&node);
    assert!(aside > ROOM, "only {aside} bytes were set aside");

    // They read after all: nothing is lost, torn or out of order.
    let missing: BTreeSet<u32> = (0..MESSAGES).filter(|number| !got.contains(number)).collect();
    assert!(missing.len() > IDLE);
    for numbers in read_rest(peers, &missing).await {
        assert!(numbers.is_sorted(), "{numbers:?}");
    }
    until("all is written", || (unwritten(&node) == 0).then_some(())).await;
}

#[tokio::test]
async fn key_shared_consumers_that_do_not_read_hold_little_and_keep_the_order_of_their_keys() {
    let data = tempfile::tempdir().unwrap();
    let room = format!("{ROOM}");
    let node = Node::start(data.path(), &["--max-unwritten-size", &room]);
    let mut peers = Vec::new();
    for _ in 0..IDLE {
        peers.push(idle(&node, "k", SubType::KeyShared, 1000).await);
    }
    let client = node.client().await;
    let producer = client.producer("k", ProducerOptions::default()).await.unwrap();
    let mut most = 0;
    for number in 0..MESSAGES {
        let message = OutgoingMessage::new(text(number)).key(&format!("key {}", number % 16));
        soon("a receipt", producer.send(message)).await.unwrap();
        most = most.max(unwritten(&node));
    }
    until("much is set aside", || (set_aside(&node) > ROOM).then_some(())).await;
    assert!(most <= ROOM + BEYOND, "{most} bytes were not written");
    let all: BTreeSet<u32> = (0..MESSAGES).collect();
    for numbers in read_rest(peers, &all).await {
        for key in 0..16 {
            let of_key = numbers.iter().filter(|number| **number % 16 == key);
            assert!(of_key.is_sorted(), "{numbers:?}");
        }
    }
    until("all is written", || (unwritten(&node) == 0).then_some(())).await;
}

/// Peers that do not read, each on a subscription of its own.
const ALONE: u32 = 24;

#[tokio::test]
async fn exclusive_consumers_at_different_places_that_do_not_read_hold_little_and_get_all_in_order() {
    let data = tempfile::tempdir().unwrap();
    let room = format!("{ROOM}");
    let node = Node::start(data.path(), &["--max-unwritten-size", &room]);
    let client = node.client().await;
    let producer = client.producer("x", ProducerOptions::default()).await.unwrap();
    let mut peers = Vec::new();
    for number in 0..ALONE {
        let subscription = format!("s{number}");
        peers.push(idle_on(&node, "x", &subscription, SubType::Exclusive, 1000).await);
        publish(&producer, number..number + 1).await;
    }
    publish(&producer, ALONE..ALONE + 24).await;
    // Each could hold nearly half a megabyte and a message, 30 MB together.
    until("little is held", || {
        (set_aside(&node) > ROOM && unwritten(&node) <= ROOM).then_some(())
    })
    .await;
    publish(&producer, ALONE + 24..MESSAGES).await;
    until("little is held again", || {
        (unwritten(&node) <= ROOM).then_some(())
    })
    .await;

    // They read after all.
    let mut reading = tokio::task::JoinSet::new();
    for (first, mut raw) in (0..).zip(peers) {
        reading.spawn(async move {
            for expected in first..MESSAGES {
                let next = soon("what a peer did not read", next_number(&mut raw)).await;
                assert_eq!(next, Some(expected), "of the peer that came at {first}");
            }
        });
    }
    while let Some(done) = reading.join_next().await {
        done.unwrap();
    }
    until("all is written", || (unwritten(&node) == 0).then_some(())).await;
}

#[tokio::test]
async fn consumers_of_a_non_persistent_topic_that_do_not_read_are_closed_for_those_that_do() {
    let data = tempfile::tempdir().unwrap();
    let room = format!("{ROOM}");
    let node = Node::start(data.path(), &["--max-unwritten-size", &room]);
    let topic = "non-persistent://public/default/n";
    let mut peers = Vec::new();
    for _ in 0..IDLE {
        peers.push(idle(&node, topic, SubType::Shared, 1000).await);
    }
    let client = node.client().await;
    let options = ConsumerOptions::new("s", SubType::Shared).name("reader");
    let mut reader = client.subscribe(topic, options).await.unwrap();
    let producer = client.producer(topic, ProducerOptions::default()).await.unwrap();
    let (mut most, mut number) = (0, 0);
    let closed = || {
        node.logged()
            .matches("takes nothing of a non-persistent topic")
            .count()
    };
    while closed() == 0 {
        publish(&producer, number..number + 1).await;
        number += 1;
        most = most.max(unwritten(&node));
    }
    assert!(most <= ROOM + BEYOND, "{most} bytes were not written");
    // Whatever came before: one more comes when it is sent often enough.
    let marker = number;
    loop {
        publish(&producer, number..number + 1).await;
        number += 1;
        let next = tokio::time::timeout(std::time::Duration::from_millis(50), reader.receive());
        if let Ok(message) = next.await
            && number_in(message.unwrap().text().as_bytes()) >= marker
        {
            break;
        }
        assert!(number < 10_000, "nothing comes");
    }
}

#[tokio::test]
async fn a_peer_that_is_sent_a_part_of_what_expired_meanwhile_is_closed_and_comes_back() {
    let data = tempfile::tempdir().unwrap();
    let settings = [
        "--max-unwritten-size",
        "1MiB",
        "--ledger-max-entries",
        "3",
        "--ledger-min-rollover-time",
        "0s",
        "--ledger-retention-check-interval",
        "100ms",
    ];
    let node = Node::start(data.path(), &settings);
    let mut peer = idle(&node, "e", SubType::Shared, 1000).await;
    let client = node.client().await;
    let producer = client.producer("e", ProducerOptions::default()).await.unwrap();
    publish(&producer, 0..MESSAGES / 4).await;
    let enough = 3 * MESSAGE_BYTES as u64;
    until("it has all it may have", || {
        (set_aside(&node) > enough).then_some(())
    })
    .await;
    let before = node.ledgers("e");
    let skip = "/admin/v2/persistent/public/default/e/subscription/s/skip_all";
    node.order("POST", skip, "");
    until("the ledgers are deleted", || {
        let now = node.ledgers("e");
        before[..before.len() - 1]
            .iter()
            .all(|id| !now.contains(id))
            .then_some(())
    })
    .await;
    // It gets what its socket had, up to the middle of a message.
    let reading = async { while next_number(&mut peer).await.is_some() {} };
    soon("the end of the connection", reading).await;
    let mut again = idle(&node, "e", SubType::Shared, 1000).await;
    publish(&producer, 500..501).await;
    let next = soon("a message", next_number(&mut again)).await;
    assert_eq!(next, Some(500));
}
