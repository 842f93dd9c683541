//! Answers are true: what the broker says of itself is what it did, and what it takes it acts on.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod support;

use pharos_client::{ConsumerOptions, OutgoingMessage, ProducerOptions};
use pharos_wire::command::Command;
use pharos_wire::proto::{CommandLookupTopic, ServerError};
use serde_json::json;
use support::{Node, next, publish, receive, soon};

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

/// One copy is what there is, so that is what a policy may say; it is kept and shown.
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
