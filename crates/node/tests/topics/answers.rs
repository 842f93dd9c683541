//! Answers are true: what the broker says of itself is what it did, and what it takes it acts on.

use crate::support::{self, Node, next, publish, receive, soon};
use pharos_client::{ConsumerOptions, OutgoingMessage, ProducerOptions};
use pharos_wire::command::Command;
use pharos_wire::proto::{CommandLookupTopic, ServerError};
use serde_json::json;

const NAMESPACE: &str = "/admin/v2/namespaces/public/default";

/// Clients built on the C++ one take a refusal for a passing one, and try for half a minute, unless it names this exception.
#[tokio::test]
async fn an_unknown_listener_is_refused_for_good() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &[]);
    let mut raw = node.rogue().await;
    let lookup = CommandLookupTopic {
        topic: "t".into(),
        request_id: 5,
        advertised_listener_name: Some("inner".into()),
        ..Default::default()
    };
    raw.send(lookup).await.unwrap();
    match next(&mut raw).await {
        Command::LookupResponse(answer) => {
            assert_eq!(answer.error(), ServerError::ServiceNotReady);
            let message = answer.message.clone().unwrap_or_default();
            assert!(message.contains("PulsarServerException"), "{message}");
            assert!(
                message.contains("the broker do not have inner listener"),
                "{message}"
            );
        }
        other => panic!("expected LOOKUP_RESPONSE, got {other:?}"),
    }
}

#[tokio::test]
async fn a_namespace_goes_with_its_topics_by_force() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(
        dir.path(),
        &[
            "--force-delete-namespace-allowed",
            "true",
            "--force-delete-tenant-allowed",
            "true",
        ],
    );
    node.order(
        "PUT",
        "/admin/v2/tenants/acme",
        r#"{"allowedClusters":["standalone"]}"#,
    );
    node.order("PUT", "/admin/v2/namespaces/acme/cars", "");
    node.order("PUT", "/admin/v2/persistent/acme/cars/parts/partitions", "3");
    let client = node.client().await;
    let topic = "persistent://acme/cars/t";
    let producer = client.producer(topic, ProducerOptions::default()).await.unwrap();
    let _consumer = client
        .subscribe(topic, ConsumerOptions::shared("s"))
        .await
        .unwrap();
    let passing = "non-persistent://acme/cars/t";
    let _other = client
        .producer(passing, ProducerOptions::default())
        .await
        .unwrap();
    publish(&producer, 0..3).await;

    node.delete("/admin/v2/tenants/acme?force=true");
    assert_eq!(node.call("GET", "/admin/v2/namespaces/acme/cars", "").0, 404);
    assert_eq!(node.call("GET", "/admin/v2/tenants/acme", "").0, 404);
    // What comes after is empty.
    node.order(
        "PUT",
        "/admin/v2/tenants/acme",
        r#"{"allowedClusters":["standalone"]}"#,
    );
    node.order("PUT", "/admin/v2/namespaces/acme/cars", "");
    assert_eq!(
        node.ask("/admin/v2/namespaces/acme/cars/topics?mode=ALL"),
        json!([])
    );
    assert_eq!(node.ask("/admin/v2/persistent/acme/cars/partitioned"), json!([]));
}

/// A policy of one copy, the only number supported, is kept and shown.
#[tokio::test]
async fn a_new_namespace_keeps_what_it_says_of_copies() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &[]);
    let policy = |copies: u32, rate: f64| {
        json!({
            "bookkeeperEnsemble": copies, "bookkeeperWriteQuorum": copies, "bookkeeperAckQuorum": copies,
            "managedLedgerMaxMarkDeleteRate": rate,
        })
    };
    let path = |name: &str| format!("/admin/v2/namespaces/public/{name}");
    for refused in [policy(3, 1.0), policy(1, 0.1)] {
        node.send("PUT", &path("other"), &json!({"persistence": refused}), 412);
    }
    node.send("PUT", &path("one"), &json!({"persistence": policy(1, 5.0)}), 204);
    assert_eq!(node.ask(&format!("{}/persistence", path("one"))), policy(1, 5.0));
    node.delete(&format!("{}/persistence", path("one")));
    assert_eq!(
        node.call("GET", &format!("{}/persistence", path("one")), "").0,
        204
    );
    assert_eq!(node.call("GET", &path("other"), "").0, 404);
}

#[tokio::test]
async fn topics_that_store_nothing_keep_to_their_policies() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &[]);
    let client = node.client().await;
    let topic = "non-persistent://public/default/t";
    let of_topic = "/admin/v2/non-persistent/public/default/t";
    let mut consumer = client
        .subscribe(topic, ConsumerOptions::exclusive("s"))
        .await
        .unwrap();
    let producer = client.producer(topic, ProducerOptions::default()).await.unwrap();
    node.order("POST", &format!("{of_topic}/maxMessageSize"), "100");
    node.order(
        "POST",
        &format!("{of_topic}/delayedDelivery"),
        r#"{"active":true,"tickTime":1000,"maxDeliveryDelayInMillis":1000}"#,
    );
    let delayed = |text: &str, by_ms: i64| {
        let mut message = OutgoingMessage::new(text.to_owned());
        let now = i64::try_from(pharos_runtime::clock::wall_ms()).unwrap();
        message.metadata.deliver_at_time = Some(now + by_ms);
        message
    };
    // A change holds within a moment after it is answered.
    support::until("the limit", || {
        (node.ask(&format!("{of_topic}/maxMessageSize")) == json!(100)).then_some(())
    })
    .await;
    // Answers come in the order of the sends, also where some are refused.
    let mut sends = Vec::new();
    for message in [
        OutgoingMessage::new("first".to_owned()),
        OutgoingMessage::new("x".repeat(200)),
        delayed("late", 60_000),
        delayed("soon", 500),
        OutgoingMessage::new("last".to_owned()),
    ] {
        sends.push(producer.begin_send(message).await.unwrap());
    }
    let mut outcomes = Vec::new();
    for send in sends {
        outcomes.push(
            soon("an answer", send.receipt())
                .await
                .map_err(|error| error.code()),
        );
    }
    let refused = Some(ServerError::NotAllowedError);
    assert!(outcomes[0].is_ok() && outcomes[3].is_ok() && outcomes[4].is_ok());
    assert_eq!(outcomes[1].as_ref().unwrap_err(), &refused);
    assert_eq!(outcomes[2].as_ref().unwrap_err(), &refused);
    for text in ["first", "soon", "last"] {
        assert_eq!(receive(&mut consumer).await.text(), text);
    }
    node.order("POST", &format!("{NAMESPACE}/encryptionRequired"), "true");
    let plain = soon("an answer", producer.send("plain".to_owned()))
        .await
        .unwrap_err();
    assert_eq!(plain.code(), Some(ServerError::MetadataError), "{plain}");
}

#[tokio::test]
async fn a_topic_that_stores_nothing_has_no_last_message() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &[]);
    let client = node.client().await;
    let topic = "non-persistent://public/default/t";
    let consumer = client
        .subscribe(topic, ConsumerOptions::exclusive("s"))
        .await
        .unwrap();
    let refused = consumer.last_message_id().await.unwrap_err();
    assert_eq!(refused.code(), Some(ServerError::NotAllowedError), "{refused}");
    let (status, body) = node.call(
        "GET",
        "/admin/v2/non-persistent/public/default/t/lastMessageId",
        "",
    );
    assert_eq!(status, 405, "{body}");
}

/// Actions of a consumer appear in its subscription's stats and on the metrics page, whatever the subscription type.
#[tokio::test]
async fn what_consumers_do_shows() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &[]);
    let client = node.client().await;
    let kinds = [
        ("shared", ConsumerOptions::shared("shared")),
        ("exclusive", ConsumerOptions::exclusive("exclusive")),
        ("broadcast", support::broadcast("broadcast").name("car")),
    ];
    let mut consumers = Vec::new();
    for (name, options) in kinds {
        consumers.push((name, client.subscribe("t", options).await.unwrap()));
    }
    let producer = client.producer("t", ProducerOptions::default()).await.unwrap();
    let batch = (0..5).map(|number| OutgoingMessage::new(number.to_string()));
    soon("a receipt", producer.send_batch(batch.collect()))
        .await
        .unwrap();
    let before_ms = i64::try_from(pharos_runtime::clock::wall_ms()).unwrap() - 60_000;
    for (_, consumer) in &mut consumers {
        for _ in 0..5 {
            receive(consumer).await;
        }
        consumer.redeliver_all().await.unwrap();
        for _ in 0..5 {
            let message = receive(consumer).await;
            consumer.ack(&message.id).await.unwrap();
        }
    }
    let names = ["shared", "exclusive", "broadcast"];
    let stats = support::until("acknowledgements", || {
        let stats = node.stats("t")["subscriptions"].clone();
        let moved = |name: &str| stats[name]["lastMarkDeleteAdvancedTimestamp"].as_i64().unwrap() > 0;
        names.iter().all(|name| moved(name)).then_some(stats)
    })
    .await;
    let page = node.page("/metrics");
    for name in names {
        let of = &stats[name];
        let consumer = &of["consumers"][0];
        for shown in [of, consumer] {
            assert!(
                shown["messageAckRate"].as_f64().unwrap() > 0.0,
                "{name}: {shown:#}"
            );
            assert!(
                shown["msgRateRedeliver"].as_f64().unwrap() > 0.0,
                "{name}: {shown:#}"
            );
            assert!(
                shown["lastAckedTimestamp"].as_i64().unwrap() > before_ms,
                "{name}: {shown:#}"
            );
            assert!(
                shown["lastConsumedTimestamp"].as_i64().unwrap() > before_ms,
                "{name}: {shown:#}"
            );
        }
        assert_eq!(consumer["avgMessagesPerEntry"], 5, "{name}");
        assert!(
            consumer["lastAckedTime"].as_str().unwrap().starts_with("20"),
            "{name}"
        );
        assert!(
            of["lastMarkDeleteAdvancedTimestamp"].as_i64().unwrap() > before_ms,
            "{name}"
        );
        for metric in [
            "msg_ack_rate",
            "msg_rate_redeliver",
            "last_acked_timestamp",
            "last_consumed_timestamp",
        ] {
            let value = subscription_figure(&page, &format!("pulsar_subscription_{metric}"), name);
            assert!(value > 0.0, "{metric} of {name}");
        }
    }
}

#[tokio::test]
async fn what_waits_expires_or_is_dropped_shows() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &[]);
    let client = node.client().await;
    let mut consumer = client.subscribe("t", ConsumerOptions::shared("s")).await.unwrap();
    let producer = client.producer("t", ProducerOptions::default()).await.unwrap();
    let mut late = OutgoingMessage::new("late".to_owned());
    late.metadata.deliver_at_time = Some(i64::MAX / 2);
    soon("a receipt", producer.send(late)).await.unwrap();
    let receipts = publish(&producer, 0..3).await;
    // Acknowledged in their midst, so that there is a hole to be stored.
    for _ in 0..3 {
        let message = receive(&mut consumer).await;
        if message.text() == "1" {
            consumer.ack(&message.id).await.unwrap();
        }
    }
    let of = || node.stats("t")["subscriptions"]["s"].clone();
    let stats = support::until("a hole", || {
        let stats = of();
        (stats["nonContiguousDeletedMessagesRanges"] == 1).then_some(stats)
    })
    .await;
    assert_eq!(stats["msgDelayed"], 1, "{stats:#}");
    let bytes = |value: &serde_json::Value, name: &str| value[name].as_u64().unwrap();
    assert!(bytes(&stats, "delayedMessageIndexSizeInBytes") > 0, "{stats:#}");
    assert!(
        bytes(&stats, "nonContiguousDeletedMessagesRangesSerializedSize") > 0,
        "{stats:#}"
    );
    assert!(bytes(&node.stats("t"), "delayedMessageIndexSizeInBytes") > 0);
    let page = node.page("/metrics");
    let size = "pulsar_subscription_delayed_message_index_size_bytes";
    assert!(subscription_figure(&page, size, "s") > 0.0);

    let to = &receipts[2].message_id;
    let path = "/admin/v2/persistent/public/default/t/subscription/s/expireMessages";
    let place = json!({"ledgerId": to.ledger_id, "entryId": to.entry_id});
    node.send("POST", path, &place, 204);
    assert!(of()["msgRateExpired"].as_f64().unwrap() > 0.0);
    assert!(
        subscription_figure(
            &node.page("/metrics"),
            "pulsar_subscription_msg_rate_expired",
            "s"
        ) > 0.0
    );

    // A consumer without permits takes nothing.
    let passing = "non-persistent://public/default/t";
    let options = ConsumerOptions::exclusive("s").receiver_queue_size(0);
    let _idle = client.subscribe(passing, options).await.unwrap();
    let producer = client
        .producer(passing, ProducerOptions::default())
        .await
        .unwrap();
    publish(&producer, 0..3).await;
    let stats = node.ask("/admin/v2/non-persistent/public/default/t/stats");
    assert!(stats["msgDropRate"].as_f64().unwrap() > 0.0, "{stats:#}");
    assert!(
        stats["subscriptions"]["s"]["msgDropRate"].as_f64().unwrap() > 0.0,
        "{stats:#}"
    );
    assert!(
        stats["subscriptions"]["s"]["messageAckRate"].as_f64().unwrap() == 0.0,
        "{stats:#}"
    );
}

/// Sums over all topics do not fall when a topic is unloaded or deleted.
#[tokio::test]
async fn sums_never_fall() {
    for topics in ["true", "false"] {
        let dir = tempfile::tempdir().unwrap();
        let node = Node::start(dir.path(), &["--metrics-topics", topics]);
        let client = node.client().await;
        let mut consumer = client
            .subscribe("t", ConsumerOptions::exclusive("s"))
            .await
            .unwrap();
        let producer = client.producer("t", ProducerOptions::default()).await.unwrap();
        publish(&producer, 0..5).await;
        support::expect_numbers(&mut consumer, 0..5).await;
        let mut names = vec![
            "pulsar_broker_in_bytes_total{cluster=\"standalone\"}",
            "pulsar_broker_out_bytes_total{cluster=\"standalone\"}",
            "pulsar_broker_publish_latency_count{cluster=\"standalone\"}",
            "pharos_stage_seconds_count{cluster=\"standalone\",stage=\"persistence\"}",
        ];
        if topics == "false" {
            names.push("pulsar_in_messages_total{cluster=\"standalone\",namespace=\"public/default\"}");
            names.push("pulsar_out_messages_total{cluster=\"standalone\",namespace=\"public/default\"}");
        }
        let figures = || {
            let page = node.page("/metrics");
            let of = |name: &&str| {
                let line = page.lines().find(|line| line.starts_with(*name));
                let line = line.unwrap_or_else(|| panic!("no {name} in {page}"));
                line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()
            };
            names.iter().map(of).collect::<Vec<_>>()
        };
        let loaded = figures();
        assert!(loaded.iter().all(|figure| *figure > 0.0), "{loaded:?}");
        // Those who are on it are told to leave.
        node.order("PUT", "/admin/v2/persistent/public/default/t/unload", "");
        let unloaded = figures();
        assert!(
            unloaded.iter().zip(&loaded).all(|(now, before)| now >= before),
            "{unloaded:?} {loaded:?}"
        );
        node.delete("/admin/v2/persistent/public/default/t?force=true");
        let gone = figures();
        assert!(
            gone.iter().zip(&loaded).all(|(now, before)| now >= before),
            "{gone:?} {loaded:?}"
        );
    }
}

/// The figure of a metric of one subscription.
fn subscription_figure(page: &str, name: &str, subscription: &str) -> f64 {
    let label = format!("subscription=\"{subscription}\"");
    let mut lines = page.lines().filter(|line| line.starts_with(&format!("{name}{{")));
    let line = lines.find(|line| line.contains(&label)).unwrap();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}
