//! Shadow topics: what is published to one topic is read from another, which another broker may serve.

use std::collections::BTreeMap;

use pharos_catalog::{SHADOW_SOURCE, Shadows};
use pharos_client::{Connection, ConsumerOptions, Producer, ProducerOptions, earliest};
use pharos_metadata::{Expect, MetadataStore as _};
use pharos_types::TopicName;
use pharos_wire::proto::ServerError;
use pharos_wire::proto::command_ack::AckType;
use serde_json::json;

use crate::brokers::{Broker, SESSION_TIMEOUT, Stores, TOPIC, orders, publish, until};
use crate::support::{self, Node};

/// A name whose bundle is not the one of [`TOPIC`].
fn elsewhere(broker: &Broker) -> TopicName {
    let bundle_of = |name: &TopicName| broker.catalog.bundle_of(name).unwrap();
    let source = bundle_of(&TOPIC.parse().unwrap());
    let mut names = (0..).map(|number| {
        format!("persistent://public/default/mirror{number}")
            .parse()
            .unwrap()
    });
    names.find(|name| bundle_of(name) != source).unwrap()
}

async fn producer(client: &Connection, topic: &str) -> Producer {
    client.producer(topic, ProducerOptions::default()).await.unwrap()
}

/// Releases a topic as the end of its owner's session does.
async fn forget_owner(stores: &Stores, broker: &Broker, topic: &str) {
    let bundle = broker.catalog.bundle_of(&topic.parse().unwrap()).unwrap();
    let key = format!("namespace/public/default/{bundle}");
    assert!(
        stores.metadata.delete(&key, Expect::Any).await.unwrap(),
        "no {key}"
    );
}

async fn owner_of(broker: &Broker, topic: &str) -> String {
    broker.owner_if_any(topic).await.unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shadow_at_another_broker_has_every_message_while_brokers_die() {
    let stores = Stores::default();
    let (one, two) = (Broker::start(&stores).await, Broker::start(&stores).await);
    let three = Broker::start(&stores).await;
    let shadow = elsewhere(&one);
    let shadow_name = shadow.to_string();
    let source: TopicName = TOPIC.parse().unwrap();
    assert_eq!(one.owner().await, one.service_url);
    assert_eq!(owner_of(&two, &shadow_name).await, two.service_url);
    let producing = one.client().await;
    // Nothing is trimmed before the consumers of the shadow had it.
    let keeps = ConsumerOptions::exclusive("keeps").from_earliest();
    let _keeps = producing.subscribe(TOPIC, keeps).await.unwrap();
    publish(&producing, 0..10).await;

    let properties = BTreeMap::from([(SHADOW_SOURCE.to_owned(), TOPIC.to_owned())]);
    one.catalog.create_topic(&shadow, properties).await.unwrap();
    Shadows::of(&one.catalog)
        .set(&source, std::slice::from_ref(&shadow))
        .await
        .unwrap();
    until("the others know", async || {
        [&two, &three].iter().all(|broker| {
            let is_known = Shadows::of(&broker.catalog).source_of(&shadow).as_ref() == Some(&source);
            is_known && Shadows::of(&broker.catalog).is_shown_by(&shadow, &source)
        })
    })
    .await;
    let client = two.client().await;
    let refused = client.producer(&shadow_name, ProducerOptions::default()).await;
    assert_eq!(refused.err().unwrap().code(), Some(ServerError::NotAllowedError));
    let mut consumer = client.subscribe(&shadow_name, orders()).await.unwrap();
    let mut of_source = producing.reader(TOPIC, earliest()).await.unwrap();
    publish(&producing, 10..20).await;
    for number in 0..20 {
        let message = consumer.receive().await.unwrap();
        assert_eq!(message.text(), number.to_string());
        let same = of_source.next().await.unwrap().id;
        assert_eq!(
            (message.id.ledger_id, message.id.entry_id),
            (same.ledger_id, same.entry_id)
        );
        if number < 15 {
            consumer
                .ack_and_wait(AckType::Individual, message.id)
                .await
                .unwrap();
        }
    }
    // Two more kinds of consumers, from the end.
    let mut shared = client
        .subscribe(&shadow_name, ConsumerOptions::shared("shared"))
        .await
        .unwrap();

    // The source's broker is lost; the shadow's is not told by it of what comes then.
    one.drop_dead();
    forget_owner(&stores, &three, TOPIC).await;
    until("another takes the source", async || {
        owner_of(&three, TOPIC).await == three.service_url
    })
    .await;
    let producing = three.client().await;
    publish(&producing, 20..30).await;
    for number in 20..30 {
        assert_eq!(consumer.receive().await.unwrap().text(), number.to_string());
        assert_eq!(shared.receive().await.unwrap().text(), number.to_string());
    }

    // The shadow's broker is lost: its cursors are durable, and another broker goes on there.
    two.drop_dead();
    stores.metadata.pass(SESSION_TIMEOUT);
    until("another takes the shadow", async || {
        owner_of(&three, &shadow_name).await == three.service_url
    })
    .await;
    until("the source is served", async || {
        owner_of(&three, TOPIC).await == three.service_url
    })
    .await;
    let client = three.client().await;
    let mut consumer = client.subscribe(&shadow_name, orders()).await.unwrap();
    publish(&client, 30..40).await;
    for number in 15..40 {
        assert_eq!(consumer.receive().await.unwrap().text(), number.to_string());
    }
}

#[tokio::test]
async fn shadows_are_made_listed_and_let_go_over_the_admin_api() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &[]);
    let client = node.client().await;
    let path = |topic: &str| format!("/admin/v2/persistent/public/default/{topic}");
    let of = |source: &str| json!({ SHADOW_SOURCE: format!("persistent://public/default/{source}") });
    let kept = json!({"retentionTimeInMinutes": -1, "retentionSizeInMB": -1});
    node.send(
        "POST",
        "/admin/v2/namespaces/public/default/retention",
        &kept,
        204,
    );
    let status = |method: &str, path: &str| node.call(method, path, "").0;
    node.send("PUT", &path("shadow"), &of("source"), 412);
    node.send("PUT", &path("source"), &json!({}), 204);
    node.send("PUT", &path("plain"), &json!({}), 204);
    node.send("PUT", &path("shadow"), &of("source"), 204);
    node.send("PUT", &path("second"), &of("shadow"), 412);
    node.send("PUT", &format!("{}/partitions", path("parts")), &json!(2), 204);
    node.send("PUT", &path("whole"), &of("parts"), 412);
    let divided = json!({"partitions": 2, "properties": of("parts")});
    node.send("PUT", &format!("{}/partitions", path("mirrored")), &divided, 204);
    node.send(
        "PUT",
        &format!("{}/properties", path("plain")),
        &of("source"),
        412,
    );
    assert_eq!(node.ask(&format!("{}/properties", path("shadow"))), of("source"));

    let shadows = format!("{}/shadowTopics", path("source"));
    assert_eq!(node.ask(&shadows), json!([]));
    node.send(
        "PUT",
        &shadows,
        &json!(["persistent://public/default/plain"]),
        412,
    );
    let publisher = producer(&client, "source").await;
    support::publish(&publisher, 0..5).await;
    let from_earliest = || ConsumerOptions::exclusive("s").from_earliest();
    let mut consumer = client.subscribe("shadow", from_earliest()).await.unwrap();
    assert_eq!(
        node.stats("shadow")["subscriptions"]["s"]["msgBacklog"],
        0,
        "it is not named"
    );
    node.send(
        "PUT",
        &shadows,
        &json!(["persistent://public/default/shadow"]),
        204,
    );
    assert_eq!(node.ask(&shadows), json!(["persistent://public/default/shadow"]));
    support::publish(&publisher, 5..10).await;
    for number in 0..10 {
        let message = support::soon("a message", consumer.receive()).await.unwrap();
        assert_eq!(message.text(), number.to_string());
    }
    let stats = node.stats("shadow");
    assert_eq!(stats["subscriptions"]["s"]["msgBacklog"], 10, "{stats}");
    assert_eq!(node.stats("source")["subscriptions"], json!({}));
    assert_eq!(status("POST", &format!("{}/terminate", path("shadow"))), 405);
    assert_eq!(status("DELETE", &path("source")), 412);

    let parts = format!("{}/shadowTopics", path("parts"));
    node.send(
        "PUT",
        &parts,
        &json!(["persistent://public/default/mirrored"]),
        204,
    );
    let mut of_part = client
        .subscribe("mirrored-partition-1", from_earliest())
        .await
        .unwrap();
    let producer_of_part = producer(&client, "parts-partition-1").await;
    support::publish(&producer_of_part, 0..3).await;
    for number in 0..3 {
        let message = support::soon("a message", of_part.receive()).await.unwrap();
        assert_eq!(message.text(), number.to_string());
    }

    // A restart: what was not acknowledged comes again, and what is new.
    drop((consumer, of_part, publisher, producer_of_part, client));
    assert!(node.stop().success());
    let node = Node::start(dir.path(), &[]);
    let client = node.client().await;
    let mut consumer = client.subscribe("shadow", from_earliest()).await.unwrap();
    let publisher = producer(&client, "source").await;
    support::publish(&publisher, 10..12).await;
    for number in 0..12 {
        let message = support::soon("a message", consumer.receive()).await.unwrap();
        assert_eq!(message.text(), number.to_string());
    }
    let status = |method: &str, path: &str| node.call(method, path, "").0;
    assert_eq!(status("DELETE", &shadows), 204);
    assert_eq!(node.ask(&shadows), json!([]));
    assert_eq!(status("DELETE", &format!("{}?force=true", path("source"))), 204);
    let refused = || {
        let (status, _) = node.call("GET", &format!("{}/lastMessageId", path("shadow")), "");
        (status >= 400).then_some(())
    };
    support::until("the shadow of nothing is not served", refused).await;
    assert_eq!(status("DELETE", &path("shadow")), 204);
}
