//! Durability of messages, by a property of their namespace or topic; and subscriptions that expire.

use crate::support::{Node, expect_numbers, publish, receive, until};
use pharos_client::{ConsumerOptions, ProducerOptions, earliest};

const NAMESPACE: &str = "/admin/v2/namespaces/public/default";
const TOPIC: &str = "/admin/v2/persistent/public/default/t";

/// The ledger that takes the appends.
fn current(node: &Node) -> u64 {
    *node.ledgers("t").last().unwrap()
}

async fn changes_ledger(node: &Node, before: u64) {
    until("another ledger takes the appends", || {
        (current(node) > before).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_change_of_durability_begins_a_new_ledger_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &[]);
    let client = node.client().await;
    let mut consumer = client
        .subscribe("t", ConsumerOptions::exclusive("s"))
        .await
        .unwrap();
    let producer = client.producer("t", ProducerOptions::default()).await.unwrap();
    publish(&producer, 0..10).await;
    let synced = current(&node);
    node.order(
        "PUT",
        &format!("{NAMESPACE}/property/pharos.durability/async"),
        "",
    );
    changes_ledger(&node, synced).await;
    publish(&producer, 10..20).await;
    // The topic's own word goes before its namespace's; saying what holds already changes nothing.
    let weak = current(&node);
    node.order(
        "PUT",
        &format!("{TOPIC}/properties"),
        r#"{"pharos.durability": "sync"}"#,
    );
    changes_ledger(&node, weak).await;
    let own = current(&node);
    node.order("DELETE", &format!("{NAMESPACE}/property/pharos.durability"), "");
    node.order("DELETE", &format!("{TOPIC}/properties?key=pharos.durability"), "");
    publish(&producer, 20..30).await;
    assert_eq!(current(&node), own);
    let messages = expect_numbers(&mut consumer, 0..30).await;
    consumer.ack_cumulative(&messages[14].id).await.unwrap();
    consumer.close().await.unwrap();
    until("the acknowledgement is counted", || {
        (node.stats("t")["subscriptions"]["s"]["msgBacklog"] == 15).then_some(())
    })
    .await;
    drop((producer, client));
    node.kill();

    let node = Node::start(dir.path(), &[]);
    let client = node.client().await;
    let reader = ConsumerOptions::exclusive("all").non_durable(earliest());
    let mut reader = client.subscribe("t", reader).await.unwrap();
    expect_numbers(&mut reader, 0..30).await;
}

#[tokio::test]
async fn a_topic_that_bypasses_the_journal_survives_a_stop_and_a_kill_leaves_a_prefix() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &[]);
    let client = node.client().await;
    let options = || ConsumerOptions::exclusive("s").from_earliest();
    let consumer = client.subscribe("t", options()).await.unwrap();
    let synced = current(&node);
    let word = r#"{"pharos.durability": "bypass"}"#;
    node.order("PUT", &format!("{TOPIC}/properties"), word);
    changes_ledger(&node, synced).await;
    let producer = client.producer("t", ProducerOptions::default()).await.unwrap();
    publish(&producer, 0..50).await;
    drop((producer, consumer, client));
    let status = node.stop();
    assert!(status.success());

    let node = Node::start(dir.path(), &[]);
    let client = node.client().await;
    let producer = client.producer("t", ProducerOptions::default()).await.unwrap();
    publish(&producer, 50..100).await;
    drop((producer, client));
    node.kill();

    let node = Node::start(dir.path(), &[]);
    let client = node.client().await;
    let producer = client.producer("t", ProducerOptions::default()).await.unwrap();
    publish(&producer, 1000..1010).await;
    let mut consumer = client.subscribe("t", options()).await.unwrap();
    expect_numbers(&mut consumer, 0..50).await;
    let mut next: u32 = receive(&mut consumer).await.text().parse().unwrap();
    for expected in 50..100 {
        if next == 1000 {
            break;
        }
        assert_eq!(next, expected, "what is left is a prefix");
        next = receive(&mut consumer).await.text().parse().unwrap();
    }
    assert_eq!(next, 1000);
    expect_numbers(&mut consumer, 1001..1010).await;
}

#[tokio::test]
async fn words_that_mean_nothing_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &[]);
    node.order("PUT", TOPIC, "");
    let odd = r#"{"pharos.durability": "sometimes"}"#;
    for (path, body) in [
        (format!("{NAMESPACE}/property/pharos.durability/sometimes"), ""),
        (format!("{NAMESPACE}/properties"), odd),
        (format!("{TOPIC}/properties"), odd),
        (format!("{TOPIC}-other"), odd),
        (
            "/admin/v2/namespaces/public/other".to_owned(),
            r#"{"properties": {"pharos.durability": "sometimes"}}"#,
        ),
    ] {
        let (status, reason) = node.call("PUT", &path, body);
        assert_eq!(status, 412, "{path}: {reason}");
        assert!(reason.contains("pharos.durability"), "{reason}");
    }
    // Others may say what they like.
    node.order("PUT", &format!("{NAMESPACE}/property/color/sometimes"), "");
}

#[tokio::test]
async fn a_subscription_without_consumers_expires() {
    let dir = tempfile::tempdir().unwrap();
    let short = [
        "--policies-subscription-expiration-time",
        "300ms",
        "--policies-subscription-expiry-check-interval",
        "100ms",
    ];
    let node = Node::start(dir.path(), &short);
    let client = node.client().await;
    let _stays = client
        .subscribe("t", ConsumerOptions::shared("stays"))
        .await
        .unwrap();
    let left = client
        .subscribe("t", ConsumerOptions::shared("left"))
        .await
        .unwrap();
    left.close().await.unwrap();
    let names = || node.ask(&format!("{TOPIC}/subscriptions"));
    until("the subscription is gone", || {
        (names() == serde_json::json!(["stays"])).then_some(())
    })
    .await;
    // The topic may say that its subscriptions live for ever.
    node.order(
        "POST",
        &format!("{TOPIC}/subscriptionExpirationTime?subscriptionExpirationTime=0"),
        "",
    );
    node.order("PUT", &format!("{TOPIC}/subscription/kept"), "");
    node.order("PUT", "/admin/v2/persistent/public/default/u", "");
    node.order(
        "PUT",
        "/admin/v2/persistent/public/default/u/subscription/left",
        "",
    );
    let others = "/admin/v2/persistent/public/default/u/subscriptions";
    until("the other topic's subscription is gone", || {
        (node.ask(others) == serde_json::json!([])).then_some(())
    })
    .await;
    assert_eq!(names(), serde_json::json!(["kept", "stays"]));
}
