//! Limits that policies set, seen from outside: over real sockets, set by REST, in force without a restart.

use std::time::Duration;

use crate::support::{self, Node, expect_numbers, publish, receive, soon, until};
use pharos_client::{ClientError, ConsumerOptions, OutgoingMessage, ProducerOptions};
use pharos_wire::proto::ServerError;

const NAMESPACE: &str = "/admin/v2/namespaces/public/default";
const TOPIC: &str = "/admin/v2/persistent/public/default/t";

fn text(error: &ClientError) -> String {
    error.to_string()
}

#[tokio::test]
async fn seats_are_counted_for_producers_consumers_and_subscriptions() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &[]);
    let client = node.client().await;
    node.order("PUT", TOPIC, "");
    node.order("POST", &format!("{NAMESPACE}/maxProducersPerTopic"), "1");
    let _first = client.producer("t", ProducerOptions::default()).await.unwrap();
    let refused = client
        .producer("t", ProducerOptions::default())
        .await
        .err()
        .unwrap();
    assert_eq!(refused.code(), Some(ServerError::ProducerBusy), "{refused}");
    assert!(
        text(&refused).contains("reached max producers limit"),
        "{refused}"
    );
    // The topic's own word goes before its namespace's.
    node.order("POST", &format!("{TOPIC}/maxProducers"), "2");
    let _second = client.producer("t", ProducerOptions::default()).await.unwrap();
    assert!(client.producer("t", ProducerOptions::default()).await.is_err());

    node.order("POST", &format!("{TOPIC}/maxConsumersPerSubscription"), "2");
    node.order("POST", &format!("{TOPIC}/maxConsumers"), "3");
    node.order("POST", &format!("{TOPIC}/maxSubscriptionsPerTopic"), "2");
    let mut here = Vec::new();
    for _ in 0..2 {
        here.push(client.subscribe("t", ConsumerOptions::shared("a")).await.unwrap());
    }
    let refused = client
        .subscribe("t", ConsumerOptions::shared("a"))
        .await
        .err()
        .unwrap();
    assert_eq!(refused.code(), Some(ServerError::ConsumerBusy));
    assert!(
        text(&refused).contains("Subscription reached max consumers limit"),
        "{refused}"
    );
    here.push(client.subscribe("t", ConsumerOptions::shared("b")).await.unwrap());
    let refused = client
        .subscribe("t", ConsumerOptions::shared("b"))
        .await
        .err()
        .unwrap();
    assert!(
        text(&refused).contains("Topic reached max consumers limit"),
        "{refused}"
    );
    here.pop().unwrap().close().await.unwrap();
    let refused = client
        .subscribe("t", ConsumerOptions::shared("c"))
        .await
        .err()
        .unwrap();
    assert_eq!(refused.code(), Some(ServerError::NotAllowedError), "{refused}");
    let (status, reason) = node.call("PUT", &format!("{TOPIC}/subscription/c"), "");
    assert!(
        reason.contains("Exceed the maximum number of subscriptions"),
        "{status} {reason}"
    );
    node.order("DELETE", &format!("{TOPIC}/maxSubscriptionsPerTopic"), "");
    here.push(client.subscribe("t", ConsumerOptions::shared("c")).await.unwrap());

    node.order(
        "POST",
        &format!("{TOPIC}/subscriptionTypesEnabled"),
        r#"["Shared"]"#,
    );
    let refused = client
        .subscribe("t", ConsumerOptions::failover("d"))
        .await
        .err()
        .unwrap();
    assert_eq!(refused.code(), Some(ServerError::NotAllowedError), "{refused}");
}

#[tokio::test]
async fn unacknowledged_messages_stop_a_consumer_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &[]);
    let client = node.client().await;
    let mut consumer = client.subscribe("t", ConsumerOptions::shared("s")).await.unwrap();
    node.order("POST", &format!("{TOPIC}/maxUnackedMessagesOnConsumer"), "4");
    let applied = format!("{TOPIC}/maxUnackedMessagesOnConsumer?applied=true");
    assert_eq!(node.ask(&applied), 4);
    let producer = client.producer("t", ProducerOptions::default()).await.unwrap();
    publish(&producer, 0..10).await;
    let messages = expect_numbers(&mut consumer, 0..4).await;
    until("the consumer stands still", || {
        let stats = &node.stats("t")["subscriptions"]["s"]["consumers"][0];
        (stats["blockedConsumerOnUnackedMsgs"] == true && stats["unackedMessages"] == 4).then_some(())
    })
    .await;
    for message in &messages {
        consumer.ack(&message.id).await.unwrap();
    }
    let rest = expect_numbers(&mut consumer, 4..8).await;
    // A limit that is taken away lets it go on without another acknowledgement.
    node.order("DELETE", &format!("{TOPIC}/maxUnackedMessagesOnConsumer"), "");
    expect_numbers(&mut consumer, 8..10).await;
    drop(rest);
}

#[tokio::test]
async fn sizes_and_delays_beyond_a_policy_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &[]);
    let client = node.client().await;
    let producer = client.producer("t", ProducerOptions::default()).await.unwrap();
    node.order("POST", &format!("{TOPIC}/maxMessageSize"), "200");
    let delays = r#"{"active": true, "tickTime": 1000, "maxDeliveryDelayInMillis": 60000}"#;
    node.order("POST", &format!("{NAMESPACE}/delayedDelivery"), delays);
    until("large messages are refused", || {
        let stats = node.ask(&format!("{TOPIC}/delayedDelivery?applied=true"));
        (stats["maxDeliveryDelayInMillis"] == 60_000).then_some(())
    })
    .await;
    let refused = loop {
        // The news of a policy may come a moment after the answer that it is stored.
        match producer.send("x".repeat(300)).await {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(refused.code(), Some(ServerError::NotAllowedError), "{refused}");
    producer.send("small").await.unwrap();
    let far = OutgoingMessage::new("later").deliver_at(i64::MAX);
    let refused = producer.send(far).await.err().unwrap();
    assert!(
        text(&refused).contains("max allowed delivery delay of 60000"),
        "{refused}"
    );
}

#[tokio::test]
async fn policies_are_read_back_where_they_were_set() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &["--policies-message-ttl", "70s"]);
    node.order("PUT", TOPIC, "");
    let ttl = format!("{TOPIC}/messageTTL");
    assert_eq!(node.call("GET", &ttl, "").0, 204);
    assert_eq!(node.ask(&format!("{ttl}?applied=true")), 70);
    node.order("POST", &format!("{NAMESPACE}/messageTTL"), "50");
    assert_eq!(node.ask(&format!("{ttl}?applied=true")), 50);
    node.order("POST", &format!("{ttl}?messageTTL=40&isGlobal=true"), "");
    assert_eq!(node.call("GET", &ttl, "").0, 204);
    assert_eq!(node.ask(&format!("{ttl}?isGlobal=true")), 40);
    assert_eq!(node.ask(&format!("{ttl}?applied=true")), 40);
    node.order("POST", &format!("{ttl}?messageTTL=30"), "");
    assert_eq!(node.ask(&format!("{ttl}?applied=true")), 30);
    let quotas = node.ask(&format!("{TOPIC}/backlogQuotaMap?applied=true"));
    assert_eq!(quotas["destination_storage"]["limitSize"], -1);
    // A quota must leave retention room, whichever comes first.
    let retention = r#"{"retentionTimeInMinutes": 10, "retentionSizeInMB": 10}"#;
    let quota = r#"{"limit": "10485760", "policy": "producer_request_hold"}"#;
    node.order("POST", &format!("{NAMESPACE}/retention"), retention);
    let (status, reason) = node.call("POST", &format!("{NAMESPACE}/backlogQuota"), quota);
    assert_eq!(status, 412, "{reason}");
    node.order("DELETE", &format!("{NAMESPACE}/retention"), "");
    node.order("POST", &format!("{NAMESPACE}/backlogQuota"), quota);
    let (status, reason) = node.call("POST", &format!("{NAMESPACE}/retention"), retention);
    assert_eq!(status, 412, "{reason}");
    assert_eq!(
        node.ask(&format!("{NAMESPACE}/backlogQuotaMap"))["destination_storage"]["limitSize"],
        10_485_760
    );
}

#[tokio::test]
async fn an_unused_topic_is_deleted_and_one_that_is_used_stays() {
    let dir = tempfile::tempdir().unwrap();
    let soon_gone = [
        "--policies-delete-inactive-topics-check-interval",
        "100ms",
        "--policies-delete-inactive-topics-after",
        "300ms",
    ];
    let node = Node::start(dir.path(), &soon_gone);
    let client = node.client().await;
    let producer = client.producer("left", ProducerOptions::default()).await.unwrap();
    publish(&producer, 0..3).await;
    let _stays = client.producer("used", ProducerOptions::default()).await.unwrap();
    let mut consumer = client
        .subscribe("subscribed", ConsumerOptions::shared("s"))
        .await
        .unwrap();
    let retention = r#"{"retentionTimeInMinutes": 1, "retentionSizeInMB": 1}"#;
    let retained = client
        .producer("retained", ProducerOptions::default())
        .await
        .unwrap();
    let path = "/admin/v2/persistent/public/default/retained/retention";
    node.order("POST", path, retention);
    producer.close().await.unwrap();
    retained.close().await.unwrap();
    let with_backlog = client
        .producer("subscribed", ProducerOptions::default())
        .await
        .unwrap();
    with_backlog.send("0").await.unwrap();
    with_backlog.close().await.unwrap();
    let name = |local: &str| format!("persistent://public/default/{local}");
    until("the topic is gone", || {
        (!node.topics().contains(&name("left"))).then_some(())
    })
    .await;
    let mut left = vec![name("retained"), name("subscribed"), name("used")];
    assert_eq!(node.topics(), left);
    // It can be made again, and is empty.
    let mut again = loop {
        let options = ConsumerOptions::exclusive("s").from_earliest();
        match client.subscribe("left", options).await {
            // The deletion is not quite over; every client tries again then.
            Err(error) if error.code() == Some(ServerError::ServiceNotReady) => {}
            subscribed => break subscribed.unwrap(),
        }
    };
    assert!(
        again
            .receive_within(Duration::from_millis(50))
            .await
            .unwrap()
            .is_none()
    );

    // A subscription keeps its topic, unless the namespace says that having caught up is enough.
    let message = receive(&mut consumer).await;
    let caught_up = r#"{"inactiveTopicDeleteMode": "delete_when_subscriptions_caught_up",
        "maxInactiveDurationSeconds": 1, "deleteWhileInactive": true}"#;
    node.order("POST", &format!("{NAMESPACE}/inactiveTopicPolicies"), caught_up);
    consumer.ack(&message.id).await.unwrap();
    consumer.close().await.unwrap();
    left.retain(|topic| *topic != name("subscribed"));
    left.insert(0, name("left"));
    until("the subscription has caught up", || {
        (node.topics() == left).then_some(())
    })
    .await;
    drop(again);
}

#[tokio::test]
async fn partitions_go_and_in_the_end_their_topic() {
    let dir = tempfile::tempdir().unwrap();
    let soon_gone = [
        "--policies-delete-inactive-topics-check-interval",
        "100ms",
        "--policies-delete-inactive-partitioned-topics",
        "true",
    ];
    let node = Node::start(dir.path(), &soon_gone);
    let partitioned = "/admin/v2/persistent/public/default/partitioned";
    node.order("PUT", &format!("{TOPIC}/partitions"), "2");
    let client = node.client().await;
    for partition in ["t-partition-0", "t-partition-1"] {
        let producer = client
            .producer(partition, ProducerOptions::default())
            .await
            .unwrap();
        soon("a close", producer.close()).await.unwrap();
    }
    until("the partitioned topic is gone", || {
        (node.topics().is_empty() && node.ask(partitioned) == serde_json::json!([])).then_some(())
    })
    .await;
}

#[tokio::test]
async fn sends_beyond_the_publish_rate_wait_and_none_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &[]);
    let client = node.client().await;
    let mut consumer = client
        .subscribe("t", ConsumerOptions::exclusive("s"))
        .await
        .unwrap();
    let rate = r#"{"publishThrottlingRateInMsg": 20, "publishThrottlingRateInByte": -1}"#;
    node.order("POST", &format!("{TOPIC}/publishRate"), rate);
    let producer = client.producer("t", ProducerOptions::default()).await.unwrap();
    // What arrives together may go through together; then the next ones wait until that is made up for.
    publish(&producer, 0..79).await;
    publish(&producer, 79..80).await;
    expect_numbers(&mut consumer, 0..80).await;
    assert!(node.stats("t")["publishRateLimitedTimes"].as_u64() > Some(0));
    // What waits when a producer closes, or when the limit goes, is stored all the same.
    let mut sends = Vec::new();
    for number in 80..200 {
        sends.push(
            producer
                .begin_send(OutgoingMessage::new(number.to_string()))
                .await
                .unwrap(),
        );
    }
    soon("a close", producer.close()).await.unwrap();
    expect_numbers(&mut consumer, 80..200).await;
    node.order("DELETE", &format!("{TOPIC}/publishRate"), "");
    let producer = client.producer("t", ProducerOptions::default()).await.unwrap();
    publish(&producer, 200..400).await;
    expect_numbers(&mut consumer, 200..400).await;
}

#[tokio::test]
async fn a_consumer_may_not_subscribe_too_often() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &[]);
    let client = node.client().await;
    let rate = r#"{"subscribeThrottlingRatePerConsumer": 2, "ratePeriodInSecond": 600}"#;
    node.order("POST", &format!("{NAMESPACE}/subscribeRate"), rate);
    let mut raw = node.rogue().await;
    for (request_id, is_let_in) in [(1, true), (2, true), (3, false)] {
        let wish = ConsumerOptions::shared("s").name("same");
        let subscribed = client.subscribe("t", wish).await;
        // Each consumer of this client has an id of its own, so each is another consumer.
        assert!(subscribed.is_ok());
        raw.send(pharos_wire::proto::CommandSubscribe {
            topic: "t".to_owned(),
            subscription: "s".to_owned(),
            sub_type: pharos_wire::proto::command_subscribe::SubType::Shared.into(),
            consumer_id: 7,
            request_id,
            consumer_name: Some("same".to_owned()),
            ..Default::default()
        })
        .await
        .unwrap();
        if is_let_in {
            support::expect_success(&mut raw, request_id).await;
            raw.send(pharos_wire::proto::CommandCloseConsumer {
                consumer_id: 7,
                request_id: 100 + request_id,
                ..Default::default()
            })
            .await
            .unwrap();
            support::expect_success(&mut raw, 100 + request_id).await;
        } else {
            support::expect_error(&mut raw, request_id, ServerError::NotAllowedError).await;
        }
    }
}

#[tokio::test]
async fn copies_are_as_many_as_there_are() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &[]);
    let path = format!("{NAMESPACE}/persistence");
    let copies = |count: u32, rate: f64| {
        format!(
            r#"{{"bookkeeperEnsemble": {count}, "bookkeeperWriteQuorum": {count}, "bookkeeperAckQuorum": {count},
            "managedLedgerMaxMarkDeleteRate": {rate}}}"#
        )
    };
    node.order("POST", &path, &copies(1, 10.0));
    assert_eq!(node.ask(&path)["bookkeeperEnsemble"], 1);
    assert_eq!(node.call("POST", &path, &copies(2, 10.0)).0, 412);
    assert_eq!(node.call("POST", &path, &copies(1, 0.1)).0, 412);
    node.order("DELETE", &path, "");
    assert_eq!(node.call("GET", &path, "").0, 204);
    let (status, reason) = node.call("POST", &format!("{NAMESPACE}/maxTopicsPerNamespace"), "-1");
    assert_eq!(
        (status, reason.contains("maxTopicsPerNamespace must be 0 or more")),
        (412, true)
    );
}

#[tokio::test]
async fn where_encryption_is_required_nothing_else_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &[]);
    let client = node.client().await;
    let path = format!("{NAMESPACE}/encryptionRequired");
    let before = client.producer("t", ProducerOptions::default()).await.unwrap();
    before.send("plain").await.unwrap();
    node.order("POST", &path, "true");
    let refused = client
        .producer("t", ProducerOptions::default())
        .await
        .err()
        .unwrap();
    assert_eq!(refused.code(), Some(ServerError::MetadataError), "{refused}");
    assert!(text(&refused).contains("Encryption is required"), "{refused}");
    let refused = loop {
        // Who was there before is refused its messages; the news may take a moment.
        match before.send("plain").await {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(refused.code(), Some(ServerError::MetadataError), "{refused}");
    let mut raw = node.rogue().await;
    raw.send(pharos_wire::proto::CommandProducer {
        topic: "t".to_owned(),
        producer_id: 1,
        request_id: 1,
        encrypted: Some(true),
        ..Default::default()
    })
    .await
    .unwrap();
    let answer = support::next(&mut raw).await;
    assert!(
        matches!(answer, pharos_wire::command::Command::ProducerSuccess(_)),
        "{answer:?}"
    );
    node.order("DELETE", &path, "");
    client.producer("t", ProducerOptions::default()).await.unwrap();
}
