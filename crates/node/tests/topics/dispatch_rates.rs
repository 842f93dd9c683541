//! Dispatch rates, seen from outside: what is beyond them stays in the log, and comes when it may.

use crate::support::{Node, broadcast, publish, receive, until};
use pharos_client::{Consumer, ConsumerOptions, ProducerOptions};

const NAMESPACE: &str = "/admin/v2/namespaces/public/default";
const TOPIC: &str = "/admin/v2/persistent/public/default/t";

/// Rate that allows this many messages at once, and then one in a long while.
fn rate(messages: u32) -> String {
    format!(
        r#"{{"dispatchThrottlingRateInMsg": {messages}, "dispatchThrottlingRateInByte": -1, "relativeToPublishRate": false, "ratePeriodInSecond": 86400}}"#
    )
}

async fn receive_many(consumer: &mut Consumer, count: u32) -> Vec<u32> {
    let mut numbers = Vec::new();
    for _ in 0..count {
        let message = receive(consumer).await;
        numbers.push(message.text().parse().unwrap());
    }
    numbers
}

/// Messages that went to the consumers of a subscription.
fn sent(node: &Node, subscription: &str) -> u64 {
    let stats = node.stats("t");
    stats["subscriptions"][subscription]["msgOutCounter"]
        .as_u64()
        .unwrap()
}

#[tokio::test]
async fn a_subscription_of_each_type_gets_what_its_rate_allows_and_the_rest_when_it_is_gone() {
    let types = [
        ConsumerOptions::exclusive("s"),
        ConsumerOptions::failover("s"),
        ConsumerOptions::shared("s"),
        ConsumerOptions::key_shared("s"),
    ];
    for options in types {
        let dir = tempfile::tempdir().unwrap();
        let node = Node::start(dir.path(), &[]);
        let client = node.client().await;
        let mut consumer = client.subscribe("t", options).await.unwrap();
        node.order("POST", &format!("{TOPIC}/subscriptionDispatchRate"), &rate(50));
        let producer = client.producer("t", ProducerOptions::default()).await.unwrap();
        publish(&producer, 0..120).await;
        let mut numbers = receive_many(&mut consumer, 50).await;
        // More would have gone out with these.
        client.partitions("persistent://public/default/t").await.unwrap();
        // One more may go out as soon as any time has passed.
        let count = sent(&node, "s");
        assert!((50..=51).contains(&count), "{count}");
        node.order("POST", &format!("{TOPIC}/subscriptionDispatchRate"), &rate(0));
        numbers.extend(receive_many(&mut consumer, 70).await);
        numbers.sort_unstable();
        assert_eq!(numbers, (0..120).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn consumers_of_a_broadcast_subscription_share_its_rate() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &[]);
    let client = node.client().await;
    node.order(
        "POST",
        &format!("{NAMESPACE}/subscriptionDispatchRate"),
        &rate(30),
    );
    let mut consumers = Vec::new();
    for name in ["a", "b", "c"] {
        // On connections of their own, so that they are on several shards.
        let client = node.client().await;
        consumers.push((
            client.subscribe("t", broadcast("s").name(name)).await.unwrap(),
            client,
        ));
    }
    let producer = client.producer("t", ProducerOptions::default()).await.unwrap();
    publish(&producer, 0..60).await;
    until("thirty are sent", || (sent(&node, "s") >= 30).then_some(())).await;
    client.partitions("persistent://public/default/t").await.unwrap();
    // As above; and shards that ask at the same moment may send one more each.
    let count = sent(&node, "s");
    assert!((30..=33).contains(&count), "{count}");
    node.order("DELETE", &format!("{NAMESPACE}/subscriptionDispatchRate"), "");
    for (consumer, _) in &mut consumers {
        assert_eq!(receive_many(consumer, 60).await, (0..60).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn subscriptions_share_the_rate_of_their_topic_in_bytes_too() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &[]);
    let client = node.client().await;
    let mut stream = client
        .subscribe("t", ConsumerOptions::exclusive("stream"))
        .await
        .unwrap();
    let mut shared = client
        .subscribe("t", ConsumerOptions::shared("shared"))
        .await
        .unwrap();
    let bytes = r#"{"dispatchThrottlingRateInByte": 2000, "ratePeriodInSecond": 86400}"#;
    node.order("POST", &format!("{TOPIC}/dispatchRate"), bytes);
    let producer = client.producer("t", ProducerOptions::default()).await.unwrap();
    publish(&producer, 0..200).await;
    let total = || sent(&node, "stream") + sent(&node, "shared");
    let mut before = 0;
    until("nothing more goes out", || {
        let now = total();
        (std::mem::replace(&mut before, now) == now && now > 10).then_some(())
    })
    .await;
    assert!(total() < 100, "{} of 400", total());
    node.order("DELETE", &format!("{TOPIC}/dispatchRate"), "");
    assert_eq!(receive_many(&mut stream, 200).await, (0..200).collect::<Vec<_>>());
    let mut numbers = receive_many(&mut shared, 200).await;
    numbers.sort_unstable();
    assert_eq!(numbers, (0..200).collect::<Vec<_>>());
}

#[tokio::test]
async fn the_brokers_own_rate_is_shown_and_a_period_of_nothing_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(
        dir.path(),
        &["--policies-max-dispatch-rate-messages-per-subscription", "70"],
    );
    node.order("PUT", TOPIC, "");
    let shown = node.ask(&format!("{TOPIC}/subscriptionDispatchRate?applied=true"));
    assert_eq!(shown["dispatchThrottlingRateInMsg"], 70);
    let none = r#"{"dispatchThrottlingRateInMsg": 1, "ratePeriodInSecond": 0}"#;
    let (status, answer) = node.call("POST", &format!("{TOPIC}/dispatchRate"), none);
    assert_eq!(status, 412, "{answer}");
    assert!(
        answer.contains("ratePeriodInSecond is 0, and must be at least 1"),
        "{answer}"
    );
}
