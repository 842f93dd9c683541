//! Unacknowledged messages: time to live, backlog quotas, abandoned subscriptions.

use crate::support::{LEDGERS_OF_TEN, Node, broadcast, expect_numbers, publish, receive, soon, until};
use pharos_client::{Connection, ConsumerOptions, Producer, ProducerOptions};
use pharos_wire::proto::ServerError;

const NAMESPACE: &str = "/admin/v2/namespaces/public/default";
const TOPIC: &str = "/admin/v2/persistent/public/default/t";
const CHECK: &str = "/admin/v2/brokers/backlog-quota-check";

async fn producer(client: &Connection, topic: &str) -> Producer {
    client.producer(topic, ProducerOptions::default()).await.unwrap()
}

/// Publishes numbers with a kilobyte around each, so that bytes can be reckoned with.
async fn publish_large(producer: &Producer, count: u32) {
    for number in 0..count {
        let text = format!("{number:0>1000}");
        soon("a receipt", producer.send(text)).await.unwrap();
    }
}

fn backlog(node: &Node, topic: &str, subscription: &str) -> u64 {
    node.stats(topic)["subscriptions"][subscription]["msgBacklog"]
        .as_u64()
        .unwrap()
}

#[tokio::test]
async fn what_is_older_than_its_time_to_live_is_acknowledged_everywhere() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &["--policies-message-expiry-check-interval", "100ms"]);
    let client = node.client().await;
    let mut shared = client
        .subscribe("t", ConsumerOptions::shared("shared"))
        .await
        .unwrap();
    let mut listens = client
        .subscribe("t", broadcast("all").name("here"))
        .await
        .unwrap();
    let leaves = client
        .subscribe("t", broadcast("all").name("away"))
        .await
        .unwrap();
    leaves.close().await.unwrap();
    let rests = client
        .subscribe("t", ConsumerOptions::exclusive("rests"))
        .await
        .unwrap();
    rests.close().await.unwrap();
    let producer = producer(&client, "t").await;
    publish(&producer, 0..30).await;
    expect_numbers(&mut shared, 0..30).await;
    expect_numbers(&mut listens, 0..30).await;
    for subscription in ["shared", "all", "rests"] {
        assert_eq!(backlog(&node, "t", subscription), 30, "{subscription}");
    }
    node.order("POST", &format!("{TOPIC}/messageTTL?messageTTL=1"), "");
    for subscription in ["shared", "all", "rests"] {
        until("an empty backlog", || {
            (backlog(&node, "t", subscription) == 0).then_some(())
        })
        .await;
    }
    let stats = node.stats("t");
    let expired = |name: &str| stats["subscriptions"][name]["totalMsgExpired"].as_u64().unwrap();
    assert_eq!((expired("shared"), expired("rests")), (30, 30));
    assert_eq!(
        expired("all"),
        60,
        "of a broadcast subscription each cursor counts"
    );
    assert!(stats["subscriptions"]["rests"]["lastExpireTimestamp"].as_u64() > Some(0));
    let metrics = node.page("/metrics");
    let line = metrics
        .lines()
        .find(|line| line.starts_with("pulsar_subscription_total_msg_expired") && line.contains("\"rests\""));
    assert!(line.unwrap().ends_with(" 30"), "{line:?}");
    // Without it everything stays, and what comes is delivered.
    node.order("DELETE", &format!("{TOPIC}/messageTTL"), "");
    publish(&producer, 30..33).await;
    expect_numbers(&mut listens, 30..33).await;
    let mut rests = client
        .subscribe("t", ConsumerOptions::exclusive("rests"))
        .await
        .unwrap();
    expect_numbers(&mut rests, 30..33).await;
}

#[tokio::test]
async fn expiry_finds_the_border_to_the_message() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &[]);
    let client = node.client().await;
    let consumer = client
        .subscribe("t", ConsumerOptions::exclusive("s"))
        .await
        .unwrap();
    consumer.close().await.unwrap();
    let producer = producer(&client, "t").await;
    publish(&producer, 0..100).await;
    // Everything was published in this minute, so nothing is older than that.
    node.order("POST", &format!("{TOPIC}/subscription/s/expireMessages/60"), "");
    assert_eq!(backlog(&node, "t", "s"), 100);
    until("a second has passed", || {
        node.order("POST", &format!("{TOPIC}/subscription/s/expireMessages/1"), "");
        (backlog(&node, "t", "s") == 0).then_some(())
    })
    .await;
    assert_eq!(node.stats("t")["subscriptions"]["s"]["totalMsgExpired"], 100);
}

#[tokio::test]
async fn producers_are_turned_away_while_the_backlog_is_too_large() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &["--policies-backlog-quota-check-interval", "1h"]);
    let client = node.client().await;
    for (policy, code) in [
        (
            "producer_request_hold",
            ServerError::ProducerBlockedQuotaExceededError,
        ),
        (
            "producer_exception",
            ServerError::ProducerBlockedQuotaExceededException,
        ),
    ] {
        let mut consumer = client
            .subscribe(policy, ConsumerOptions::exclusive("s"))
            .await
            .unwrap();
        let quota = format!(r#"{{"limitSize": 10240, "policy": "{policy}"}}"#);
        let path = format!("/admin/v2/persistent/public/default/{policy}");
        node.order("POST", &format!("{path}/backlogQuota"), &quota);
        let stays = producer(&client, policy).await;
        publish_large(&stays, 9).await;
        node.order("GET", CHECK, "");
        publish_large(&stays, 2).await;
        assert_eq!(node.stats(policy)["backlogQuotaLimitSize"], 10_240);
        // Beyond it no producer comes in, and at the next look those who are there go.
        let refused = client
            .producer(policy, ProducerOptions::default())
            .await
            .err()
            .unwrap();
        assert_eq!(refused.code(), Some(code), "{refused}");
        node.order("GET", CHECK, "");
        assert_eq!(node.stats(policy)["publishers"], serde_json::json!([]));
        assert!(stays.send("late").await.is_err());
        // Consumers that have read it let them in again at once: what one acknowledged a moment ago counts.
        let mut last = receive(&mut consumer).await;
        for _ in 0..10 {
            last = receive(&mut consumer).await;
        }
        consumer.ack_cumulative(&last.id).await.unwrap();
        let again = soon("a producer", async {
            loop {
                // The acknowledgement may still be on its way to the broker.
                match client.producer(policy, ProducerOptions::default()).await {
                    Ok(producer) => return producer,
                    Err(refused) => assert_eq!(refused.code(), Some(code), "{refused}"),
                }
            }
        });
        again.await.send("welcome").await.unwrap();
        consumer.close().await.unwrap();
    }
}

#[tokio::test]
async fn slow_subscriptions_are_moved_on_and_fast_ones_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &["--policies-backlog-quota-check-interval", "1h"]);
    let client = node.client().await;
    let quota = r#"{"limitSize": 20000, "policy": "consumer_backlog_eviction"}"#;
    node.order("POST", &format!("{NAMESPACE}/backlogQuota"), quota);
    let mut fast = client
        .subscribe("t", ConsumerOptions::exclusive("fast"))
        .await
        .unwrap();
    for slow in ["slow", "slower"] {
        let consumer = client
            .subscribe("t", ConsumerOptions::shared(slow))
            .await
            .unwrap();
        consumer.close().await.unwrap();
    }
    let producer = producer(&client, "t").await;
    publish_large(&producer, 100).await;
    for _ in 0..95 {
        let message = receive(&mut fast).await;
        fast.ack(&message.id).await.unwrap();
    }
    until("five are left", || {
        (backlog(&node, "t", "fast") == 5).then_some(())
    })
    .await;
    node.order("GET", CHECK, "");
    // 18,000 bytes of entries of a little more than 1,000 are seventeen.
    for slow in ["slow", "slower"] {
        let left = backlog(&node, "t", slow);
        assert!((15..=18).contains(&left), "{slow}: {left}");
    }
    assert_eq!(backlog(&node, "t", "fast"), 5);
    assert!(node.stats("t")["backlogSize"].as_u64().unwrap() <= 18_000);
    assert_eq!(
        node.stats("t")["publishers"].as_array().unwrap().len(),
        1,
        "the producer stays"
    );
    let metrics = node.page("/metrics");
    let evictions = metrics.lines().find(|line| {
        line.starts_with("pulsar_storage_backlog_quota_exceeded_evictions_total")
            && line.contains("quota_type=\"size\"")
    });
    assert!(evictions.unwrap().ends_with(" 1"), "{evictions:?}");
}

#[tokio::test]
async fn an_old_backlog_is_over_a_quota_of_time() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &["--policies-backlog-quota-check-interval", "100ms"]);
    let client = node.client().await;
    for topic in ["t", "u"] {
        let consumer = client
            .subscribe(topic, ConsumerOptions::exclusive("s"))
            .await
            .unwrap();
        consumer.close().await.unwrap();
    }
    let (held, evicted) = (producer(&client, "t").await, producer(&client, "u").await);
    publish(&held, 0..5).await;
    publish(&evicted, 0..5).await;
    let quota = |policy: &str| format!(r#"{{"limitTime": 1, "policy": "{policy}"}}"#);
    let path = |topic: &str| {
        format!("/admin/v2/persistent/public/default/{topic}/backlogQuota?backlogQuotaType=message_age")
    };
    node.order("POST", &path("t"), &quota("producer_exception"));
    node.order("POST", &path("u"), &quota("consumer_backlog_eviction"));
    until("producers are gone", || {
        (node.stats("t")["publishers"] == serde_json::json!([])).then_some(())
    })
    .await;
    let refused = client
        .producer("t", ProducerOptions::default())
        .await
        .err()
        .unwrap();
    let code = ServerError::ProducerBlockedQuotaExceededException;
    assert_eq!(refused.code(), Some(code), "{refused}");
    let stats = node.stats("t");
    assert!(
        stats["oldestBacklogMessageAgeSeconds"].as_i64() >= Some(1),
        "{stats}"
    );
    assert_eq!(stats["oldestBacklogMessageSubscriptionName"], "s");
    until("old messages are passed over", || {
        (backlog(&node, "u", "s") == 0).then_some(())
    })
    .await;
    assert_eq!(node.stats("u")["publishers"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn retention_of_a_topic_holds_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &LEDGERS_OF_TEN);
    let client = node.client().await;
    let producer = producer(&client, "t").await;
    let forever = r#"{"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}"#;
    node.order("POST", &format!("{TOPIC}/retention"), forever);
    let mut sent = 0;
    while node.ledgers("t").len() < 4 {
        publish(&producer, sent..sent + 10).await;
        sent += 10;
    }
    node.order("POST", &format!("{TOPIC}/trim"), "");
    let options = ConsumerOptions::exclusive("all").non_durable(pharos_client::earliest());
    let mut reader = client.subscribe("t", options).await.unwrap();
    expect_numbers(&mut reader, 0..sent).await;
    node.order("DELETE", &format!("{TOPIC}/retention"), "");
    until("they are not needed", || {
        (node.ledgers("t").len() == 1).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_ledger_without_news_is_closed_and_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let idle = ["--ledger-inactive-rollover-time", "200ms"];
    let node = Node::start(dir.path(), &idle);
    let client = node.client().await;
    let producer = producer(&client, "t").await;
    publish(&producer, 0..10).await;
    let begun = node.ledgers("t");
    until("another ledger", || {
        (node.ledgers("t")[0] > begun[0]).then_some(())
    })
    .await;
    assert_eq!(node.internal_stats("t")["numberOfEntries"], 0);
}
