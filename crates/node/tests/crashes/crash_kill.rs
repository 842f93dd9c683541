//! A broker that dies while it is busy, one that is told to stop, and one that finds its data in use.
//!
//! What a receipt promised must be there, in order and once; what was acknowledged long enough ago must not come
//! again; a clean stop forgets nothing at all.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::{
    Node, SHORT_LEDGERS, broadcast, expect_numbers, publish, read_log, receive, refused, soon, until,
};
use pharos_client::{
    Connection, Consumer, ConsumerOptions, Message, OutgoingMessage, ProducerOptions, SendReceipt,
};
use pharos_wire::proto::MessageIdData;
use pharos_wire::proto::command_ack::AckType;
use tokio::task::JoinHandle;

/// Age at which an acknowledgement is certainly stored. The broker is told to store them every 100 ms; the rest is
/// for a busy machine.
const STORED_AFTER: Duration = Duration::from_secs(4);

/// The consumers that live through the crashes.
fn readers() -> [(&'static str, ConsumerOptions); 4] {
    [
        ("exclusive", ConsumerOptions::exclusive("exclusive")),
        ("shared", ConsumerOptions::shared("shared")),
        ("car-1", broadcast("all").name("car-1")),
        ("car-2", broadcast("all").name("car-2")),
    ]
}

/// Ledger and entry.
type Place = (u64, u64);

fn place_of(id: &MessageIdData) -> Place {
    (id.ledger_id, id.entry_id)
}

/// Messages received and acknowledged by one consumer.
#[derive(Default)]
struct Diary {
    /// Numbers received in any life of the broker.
    received: BTreeSet<u64>,
    /// Time of the last acknowledgement of each number.
    acked: BTreeMap<u64, Instant>,
}

/// Receives and acknowledges until the broker is gone. Of ten messages it leaves one for the next round.
async fn consume(mut consumer: Consumer, mut diary: Diary) -> Diary {
    while let Ok(message) = consumer.receive().await {
        let number: u64 = message.text().parse().unwrap();
        diary.received.insert(number);
        if number % 10 != 9 {
            if consumer.ack(&message.id).await.is_err() {
                break;
            }
            diary.acked.insert(number, Instant::now());
        }
    }
    diary
}

/// Publishes numbers from `first` on until the broker is gone. Returns the receipts, in order, and how many were sent.
async fn produce(client: Connection, first: u64) -> (Vec<SendReceipt>, u64) {
    let options = ProducerOptions::default().name("the producer");
    let producer = client.producer("t", options).await.unwrap();
    let (queue, mut queued) = tokio::sync::mpsc::channel(256);
    let sending = tokio::spawn(async move {
        let mut sent = 0;
        while let Ok(send) = producer
            .begin_send(OutgoingMessage::new((first + sent).to_string()))
            .await
        {
            sent += 1;
            if queue.send(send).await.is_err() {
                break;
            }
            // Not as fast as it goes: the test is about the moment, not about the amount.
            if sent % 32 == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        sent
    });
    let mut receipts = Vec::new();
    while let Some(send) = queued.recv().await {
        match send.receipt().await {
            Ok(receipt) => receipts.push(receipt),
            Err(_) => break,
        }
    }
    drop(queued);
    (receipts, soon("the end of sending", sending).await.unwrap())
}

/// The whole log: numbers and ids.
async fn read_all(node: &Node) -> Vec<(u64, Place)> {
    let numbered = |message: &Message| (message.text().parse().unwrap(), place_of(&message.id));
    read_log(node).await.iter().map(numbered).collect()
}

async fn subscribe_all(client: &Connection) -> Vec<(&'static str, Consumer)> {
    let mut consumers = Vec::new();
    for (name, options) in readers() {
        let consumer = soon("subscribing", client.subscribe("t", options)).await.unwrap();
        consumers.push((name, consumer));
    }
    consumers
}

/// Runs the broker once, and kills it while every client is busy.
async fn live_and_die(
    dir: &Path,
    known: &mut Vec<(u64, Place)>,
    diaries: &mut BTreeMap<&'static str, Diary>,
) {
    let node = Node::start(dir, &SHORT_LEDGERS);
    let client = node.client().await;
    let first = known.last().map_or(0, |(number, _)| number + 1);
    let mut tasks: Vec<(&str, JoinHandle<Diary>)> = Vec::new();
    for (name, consumer) in subscribe_all(&client).await {
        let diary = diaries.remove(name).unwrap_or_default();
        tasks.push((name, tokio::spawn(consume(consumer, diary))));
    }
    let began = Instant::now();
    let producing = tokio::spawn(produce(client, first));
    // The one thing that only time brings: acknowledgements that are old when it dies.
    tokio::time::sleep_until((began + STORED_AFTER + Duration::from_secs(1)).into()).await;
    node.kill();
    let killed = Instant::now();

    let (receipts, sent) = soon("the end of producing", producing).await.unwrap();
    assert!(receipts.len() > 100, "only {} receipts", receipts.len());
    for (name, task) in tasks {
        let mut diary = soon("the end of consuming", task).await.unwrap();
        // Only what is certainly stored by now must not come again.
        diary
            .acked
            .retain(|_, at| killed.saturating_duration_since(*at) >= STORED_AFTER);
        assert!(!diary.acked.is_empty(), "{name} has acknowledged nothing in time");
        diaries.insert(name, diary);
    }

    let node = Node::start(dir, &SHORT_LEDGERS);
    let log = read_all(&node).await;
    assert_eq!(log[..known.len()], known[..], "what was there before has changed");
    let fresh = &log[known.len()..];
    assert!(
        fresh.len() >= receipts.len(),
        "{} receipts, {} entries",
        receipts.len(),
        fresh.len()
    );
    assert!(fresh.len() as u64 <= sent);
    for ((number, place), expected) in fresh.iter().zip(first..) {
        assert_eq!(*number, expected, "a gap or a repetition at {place:?}");
    }
    for ((_, place), receipt) in fresh.iter().zip(&receipts) {
        assert_eq!(*place, place_of(&receipt.message_id), "a receipt that was broken");
    }
    *known = log;
    resume(&node, known).await;
    check_subscriptions(&node, known, diaries).await;
    let status = node.stop();
    assert!(status.success());
}

/// The producer comes back under its name and goes on, with one message that marks the end.
async fn resume(node: &Node, known: &mut Vec<(u64, Place)>) {
    let client = node.client().await;
    let options = ProducerOptions::default().name("the producer");
    let producer = client.producer("t", options).await.unwrap();
    let number = known.last().map_or(0, |(number, _)| number + 1);
    let receipt = soon("a receipt", producer.send(number.to_string()))
        .await
        .unwrap();
    let last = known.last().map(|(_, place)| *place);
    let place = place_of(&receipt.message_id);
    assert!(Some(place) > last, "{place:?} after {last:?}");
    known.push((number, place));
}

/// Every subscription is there, has everything that is not acknowledged, and nothing that was so long ago.
async fn check_subscriptions(
    node: &Node,
    known: &[(u64, Place)],
    diaries: &mut BTreeMap<&'static str, Diary>,
) {
    let subscriptions = node.stats("t")["subscriptions"].clone();
    for name in ["exclusive", "shared", "all"] {
        assert!(subscriptions.get(name).is_some(), "{name} is gone");
    }
    let client = node.client().await;
    let end = known.last().unwrap().0;
    for (name, mut consumer) in subscribe_all(&client).await {
        let diary = diaries.get_mut(name).unwrap();
        let mut seen = Vec::new();
        while seen.last() != Some(&end) {
            seen.push(receive(&mut consumer).await.text().parse::<u64>().unwrap());
        }
        assert!(
            seen.windows(2).all(|pair| pair[0] < pair[1]),
            "{name}: out of order"
        );
        for number in &seen {
            assert!(
                !diary.acked.contains_key(number),
                "{name}: {number} was acknowledged long before the crash"
            );
        }
        // Nothing lost: what does not come now was acknowledged at some time, so it came before.
        for (number, _) in known {
            let had =
                seen.binary_search(number).is_ok() || (diary.received.contains(number) && number % 10 != 9);
            assert!(had, "{name}: {number} is lost");
        }
    }
}

#[tokio::test]
async fn a_killed_broker_keeps_what_it_promised() {
    let dir = tempfile::tempdir().unwrap();
    let mut known = Vec::new();
    let mut diaries = BTreeMap::new();
    for _ in 0..3 {
        live_and_die(dir.path(), &mut known, &mut diaries).await;
    }
}

#[tokio::test]
async fn a_place_that_was_answered_survives() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &SHORT_LEDGERS);
    let client = node.client().await;
    let producer = client.producer("t", ProducerOptions::default()).await.unwrap();
    // One place more before each message: it is owed that message and all later ones.
    let places: Vec<_> = (0..30)
        .map(|number| match number % 3 {
            0 => broadcast("all").name(&format!("car-{number}")),
            1 => ConsumerOptions::shared(&format!("shared-{number}")),
            _ => ConsumerOptions::exclusive(&format!("exclusive-{number}")),
        })
        .collect();
    let mut consumers = Vec::new();
    for (number, options) in (0..).zip(&places) {
        let options = options.clone().receiver_queue_size(0);
        consumers.push(client.subscribe("t", options).await.unwrap());
        publish(&producer, number..number + 1).await;
    }
    node.kill();

    let node = Node::start(dir.path(), &SHORT_LEDGERS);
    let client = node.client().await;
    for (number, options) in (0..).zip(&places) {
        let mut consumer = client.subscribe("t", options.clone()).await.unwrap();
        expect_numbers(&mut consumer, number..30).await;
    }
}

#[tokio::test]
async fn a_stopped_broker_forgets_nothing() {
    let dir = tempfile::tempdir().unwrap();
    // Positions are stored once an hour, so what is there after the stop was stored by the stop.
    let settings = ["--cursor-flush-interval", "1h"];
    let node = Node::start(dir.path(), &settings);
    let client = node.client().await;
    let mut consumers = subscribe_all(&client).await;
    let batched = ConsumerOptions::exclusive("batched").batch_index_ack();
    let mut batches = client.subscribe("batches", batched.clone()).await.unwrap();
    let producer = client.producer("t", ProducerOptions::default()).await.unwrap();
    publish(&producer, 0..100).await;
    for (_, consumer) in &mut consumers {
        let messages = expect_numbers(consumer, 0..100).await;
        // Everything to 49, then every other one.
        let acked = messages
            .iter()
            .enumerate()
            .filter(|(number, _)| *number < 50 || number % 2 == 0);
        for (_, message) in acked {
            consumer.ack(&message.id).await.unwrap();
        }
        // An answer that stores nothing, after those are handled.
        soon("the end of the topic", consumer.last_message_id())
            .await
            .unwrap();
    }
    let batch_producer = client
        .producer("batches", ProducerOptions::default())
        .await
        .unwrap();
    let batch = (0..4)
        .map(|number| OutgoingMessage::new(number.to_string()))
        .collect();
    let mut id = batch_producer.send_batch(batch).await.unwrap().message_id;
    expect_numbers(&mut batches, 0..4).await;
    id.ack_set = vec![0b0110];
    soon("ACK", batches.ack_and_wait(AckType::Individual, id))
        .await
        .unwrap();
    let status = node.stop();
    // Work that does not end in time ends with 1.
    assert_eq!(status.code(), Some(0));

    let node = Node::start(dir.path(), &settings);
    let client = node.client().await;
    let mut consumers = subscribe_all(&client).await;
    let producer = client.producer("t", ProducerOptions::default()).await.unwrap();
    publish(&producer, 100..101).await;
    for (name, consumer) in &mut consumers {
        for number in (51..100).step_by(2).chain([100]) {
            assert_eq!(receive(consumer).await.text(), number.to_string(), "{name}");
        }
    }
    let mut batches = client.subscribe("batches", batched).await.unwrap();
    expect_numbers(&mut batches, 1..3).await;
}

#[tokio::test]
async fn a_broker_stops_in_full_flight() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &SHORT_LEDGERS);
    let client = node.client().await;
    let mut consuming = Vec::new();
    for (_, consumer) in subscribe_all(&client).await {
        consuming.push(tokio::spawn(consume(consumer, Diary::default())));
    }
    let producing = tokio::spawn(produce(client, 0));
    until("a thousand messages", || {
        let messages = node.stats("t").get("msgInCounter")?.as_u64()?;
        (messages > 1000).then_some(())
    })
    .await;
    // The test's own clients must go on while the broker stops.
    let stopping = tokio::task::spawn_blocking(move || node.stop());
    let status = stopping.await.unwrap();
    assert_eq!(status.code(), Some(0));
    let (receipts, sent) = soon("the end of producing", producing).await.unwrap();
    for task in consuming {
        soon("the end of consuming", task).await.unwrap();
    }

    let node = Node::start(dir.path(), &SHORT_LEDGERS);
    let log = read_all(&node).await;
    assert!(log.len() >= receipts.len() && log.len() as u64 <= sent);
    for ((number, place), (expected, receipt)) in log.iter().zip((0..).zip(&receipts)) {
        assert_eq!((*number, *place), (expected, place_of(&receipt.message_id)));
    }
}

#[tokio::test]
async fn a_data_directory_belongs_to_one_broker() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = Node::start(dir.path(), &[]);
    let second = refused(dir.path());
    assert_eq!(second.status.code(), Some(1));
    assert!(second.stdout.is_empty());
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(
        said.contains("in use") || said.contains("another process"),
        "{said}"
    );
    assert!(said.contains(&*dir.path().to_string_lossy()), "{said}");
    node.assert_alive();
    let client = node.client().await;
    let producer = client.producer("t", ProducerOptions::default()).await.unwrap();
    publish(&producer, 0..1).await;
    node.kill();
    // A lock of the dead holds up no start.
    let node = Node::start(dir.path(), &[]);
    let client = node.client().await;
    let options = ConsumerOptions::exclusive("s").from_earliest();
    let mut consumer = client.subscribe("t", options).await.unwrap();
    expect_numbers(&mut consumer, 0..1).await;
}
