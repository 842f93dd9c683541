//! Deduplication by sequence ids: through crashes, restarts and unloads, turned on and off while producers send.

use std::time::Duration;

use crate::support::{Node, SHORT_LEDGERS, read_log, soon, until};
use pharos_client::{Connection, ConsumerOptions, OutgoingMessage, Producer, ProducerOptions};

const TOPIC: &str = "/admin/v2/persistent/public/default/t";

async fn producer(client: &Connection, name: &str) -> Producer {
    let options = ProducerOptions::default().name(name);
    soon("a producer", client.producer("t", options)).await.unwrap()
}

fn message(number: u64) -> OutgoingMessage {
    OutgoingMessage::new(number.to_string()).sequence_id(number)
}

/// Sends one number. Whether it was stored before.
async fn send(producer: &Producer, number: u64) -> bool {
    let receipt = soon("a receipt", producer.send(message(number))).await.unwrap();
    receipt.is_duplicate()
}

fn last_of(producer: &Producer) -> i64 {
    producer.success().last_sequence_id.unwrap()
}

/// The numbers in the log, in order.
async fn read_all(node: &Node) -> Vec<u64> {
    let log = read_log(node).await;
    log.iter()
        .map(|message| message.text().parse().unwrap())
        .collect()
}

async fn status(node: &Node, wanted: &str) {
    until(wanted, || {
        (node.stats("t")["deduplicationStatus"] == wanted).then_some(())
    })
    .await;
}

/// Publishes from `first` on until the broker is gone. Returns the first number without a receipt, and the first that was not sent.
async fn produce_until_killed(client: Connection, first: u64) -> (u64, u64) {
    let producer = producer(&client, "p").await;
    assert_eq!(last_of(&producer) + 1, first.cast_signed());
    let (queue, mut queued) = tokio::sync::mpsc::channel(64);
    let sending = tokio::spawn(async move {
        let mut next = first;
        while let Ok(send) = producer.begin_send(message(next)).await {
            next += 1;
            if queue.send(send).await.is_err() {
                break;
            }
            if next.is_multiple_of(32) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
        next
    });
    let mut answered = first;
    while let Some(send) = queued.recv().await {
        match send.receipt().await {
            Ok(receipt) => assert!(!receipt.is_duplicate()),
            Err(_) => break,
        }
        answered += 1;
    }
    drop(queued);
    (answered, soon("the end of sending", sending).await.unwrap())
}

/// Kills a broker while a producer sends, and sends all again that it may have: what had a receipt too.
async fn is_exact_through_crashes(snapshot_entries: &str) {
    let dir = tempfile::tempdir().unwrap();
    let entries = format!("--policies-deduplication-snapshot-entries={snapshot_entries}");
    let mut settings = SHORT_LEDGERS.to_vec();
    settings.extend([
        "--policies-deduplication=true",
        "--policies-deduplication-snapshot-interval=1h",
        &entries,
    ]);
    let mut next = 0;
    for _ in 0..3 {
        let node = Node::start(dir.path(), &settings);
        let (status, _) = node.call("PUT", TOPIC, "");
        assert!(matches!(status, 204 | 409), "{status}");
        let client = node.client().await;
        let producing = tokio::spawn(produce_until_killed(client, next));
        until("some messages", || {
            let count = node.stats("t")["msgInCounter"].as_u64()?;
            (count > 700).then_some(())
        })
        .await;
        node.kill();
        let (answered, sent) = soon("the end of producing", producing).await.unwrap();
        assert!(answered > next, "no receipts");

        let node = Node::start(dir.path(), &settings);
        let client = node.client().await;
        let producer = producer(&client, "p").await;
        let last = u64::try_from(last_of(&producer)).unwrap();
        assert!(
            last + 1 >= answered,
            "{last} is the last, and {answered} had receipts"
        );
        for number in answered.saturating_sub(50)..sent {
            assert_eq!(send(&producer, number).await, number <= last, "{number}, {last}");
        }
        next = sent;
        assert_eq!(read_all(&node).await, (0..next).collect::<Vec<_>>());
        node.kill();
    }
}

#[tokio::test]
async fn what_is_sent_again_after_a_crash_is_stored_once() {
    // Nothing is stored of it while it runs: all comes from the log.
    is_exact_through_crashes("1000000").await;
}

#[tokio::test]
async fn snapshots_and_the_log_behind_them_make_a_whole() {
    is_exact_through_crashes("100").await;
}

#[tokio::test]
async fn it_is_turned_on_and_off_while_producers_send() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &SHORT_LEDGERS);
    let client = node.client().await;
    let first = producer(&client, "p").await;
    let idle = producer(&client, "idle").await;
    assert_eq!(last_of(&first), -1);
    for number in 0..10 {
        send(&first, number).await;
    }
    assert!(!send(&first, 3).await, "it is off");
    send(&first, 10).await;
    assert_eq!(node.stats("t")["deduplicationStatus"], "Disabled");
    node.order("POST", &format!("{TOPIC}/deduplicationEnabled"), "true");
    status(&node, "Enabled").await;
    assert!(send(&first, 10).await, "it was sent before it was turned on");
    assert!(send(&first, 4).await);
    assert!(!send(&first, 11).await);
    assert!(!send(&idle, 1).await);
    assert!(send(&idle, 1).await);
    first.close().await.unwrap();
    let other = node.client().await;
    let again = producer(&other, "p").await;
    assert_eq!(last_of(&again), 11);
    // Its name comes with it, and so does the state.
    let unload = format!("{TOPIC}/unload");
    node.order("PUT", &unload, "");
    let again = producer(&node.client().await, "p").await;
    assert_eq!(last_of(&again), 11);
    assert!(send(&again, 11).await);
    let subscriptions = node.stats("t")["subscriptions"].clone();
    assert_eq!(
        subscriptions,
        serde_json::json!({}),
        "its cursor is no subscription"
    );
    for reserved in ["pulsar.dedup", "__compaction"] {
        let (status, _) = node.call("PUT", &format!("{TOPIC}/subscription/{reserved}"), "");
        assert_eq!(status, 412);
        let refused = other.subscribe("t", ConsumerOptions::exclusive(reserved)).await;
        assert!(refused.is_err());
    }
    node.order("POST", &format!("{TOPIC}/deduplicationEnabled"), "false");
    status(&node, "Disabled").await;
    assert!(!send(&again, 11).await, "it is off again");
    assert!(node.stop().success());
    let node = Node::start(dir.path(), &SHORT_LEDGERS);
    let last = producer(&node.client().await, "p").await;
    assert_eq!(last_of(&last), -1);
    assert_eq!(node.stats("t")["deduplicationStatus"], "Disabled");
}

#[tokio::test]
async fn a_namespace_turns_it_on_for_all_its_topics_and_partitions() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &SHORT_LEDGERS);
    let namespace = "/admin/v2/namespaces/public/default";
    node.order("PUT", "/admin/v2/persistent/public/default/parts/partitions", "2");
    node.order("POST", &format!("{namespace}/deduplication"), "true");
    node.order("POST", &format!("{namespace}/deduplicationSnapshotInterval"), "1");
    assert_eq!(node.ask(&format!("{namespace}/deduplication")), true);
    assert_eq!(node.ask(&format!("{namespace}/deduplicationSnapshotInterval")), 1);
    for name in ["t", "parts-partition-0", "parts-partition-1"] {
        let client = node.client().await;
        let unnamed = client.producer(name, ProducerOptions::default()).await.unwrap();
        assert!(!send(&unnamed, 7).await);
        assert!(
            send(&unnamed, 7).await,
            "a name that the broker made up counts too"
        );
        assert!(send(&unnamed, 6).await);
        let batch = (8..11).map(message).collect();
        assert!(!unnamed.send_batch(batch).await.unwrap().is_duplicate());
        assert!(send(&unnamed, 10).await, "the last of a batch");
        assert!(!send(&unnamed, 11).await);
    }
    let client = node.client().await;
    let passing = "non-persistent://public/default/t";
    let passing = client
        .producer(passing, ProducerOptions::default())
        .await
        .unwrap();
    assert!(!send(&passing, 7).await);
    assert!(!send(&passing, 7).await, "nothing of it is stored");
    node.order("DELETE", &format!("{namespace}/deduplication"), "");
    status(&node, "Disabled").await;
}
