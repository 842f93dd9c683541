//! Answers about subscriptions and acknowledgements survive a kill, whatever the topic's durability.

use crate::support::{Node, broadcast, expect_numbers, publish, receive, soon, until};
use pharos_client::{ConsumerOptions, ProducerOptions};
use pharos_wire::proto::command_ack::AckType;

/// Nothing is stored by the way: what is there after a kill was stored for an answer.
const SETTINGS: [&str; 2] = ["--cursor-flush-interval", "1h"];
const DURABILITY: &str = "/admin/v2/namespaces/public/default/property/pharos.durability";
const TOPIC: &str = "/admin/v2/persistent/public/default/t";

fn kinds() -> [(&'static str, ConsumerOptions); 4] {
    [
        ("exclusive", ConsumerOptions::exclusive("exclusive")),
        ("shared", ConsumerOptions::shared("shared")),
        ("failover", ConsumerOptions::failover("failover")),
        ("all", broadcast("all").name("car-1")),
    ]
}

#[tokio::test]
async fn a_topic_of_any_durability_opens_after_kills_with_its_subscriptions() {
    for durability in ["bypass", "async", "sync"] {
        let dir = tempfile::tempdir().unwrap();
        for round in 0..4 {
            let node = Node::start(dir.path(), &SETTINGS);
            if round == 0 {
                node.order("PUT", &format!("{DURABILITY}/{durability}"), "");
            } else {
                let found: Vec<String> =
                    serde_json::from_value(node.ask(&format!("{TOPIC}/subscriptions"))).unwrap();
                assert_eq!(found.len(), round, "{durability}: {found:?}");
            }
            let client = node.client().await;
            let (name, options) = kinds()[round].clone();
            let consumer = client.subscribe("t", options).await;
            drop(consumer.unwrap_or_else(|error| panic!("{durability}, {name}: {error}")));
            node.kill();
        }
    }
}

#[tokio::test]
async fn an_acknowledgement_that_was_answered_survives_a_kill() {
    for durability in ["async", "sync"] {
        let dir = tempfile::tempdir().unwrap();
        let node = Node::start(dir.path(), &SETTINGS);
        node.order("PUT", &format!("{DURABILITY}/{durability}"), "");
        let client = node.client().await;
        let mut consumers = Vec::new();
        for (name, options) in kinds() {
            consumers.push((name, client.subscribe("t", options).await.unwrap()));
        }
        let producer = client.producer("t", ProducerOptions::default()).await.unwrap();
        publish(&producer, 0..20).await;
        for (_, consumer) in &mut consumers {
            let messages = expect_numbers(consumer, 0..20).await;
            let ids: Vec<_> = messages[..10].iter().map(|message| message.id.clone()).collect();
            let acked = consumer.ack_and_wait(AckType::Individual, ids);
            soon("ACK", acked).await.unwrap();
        }
        node.kill();

        let node = Node::start(dir.path(), &SETTINGS);
        let client = node.client().await;
        for (name, options) in kinds() {
            let mut consumer = client.subscribe("t", options).await.unwrap();
            assert_eq!(receive(&mut consumer).await.text(), "10", "{durability}, {name}");
        }
    }
}

#[tokio::test]
async fn what_an_administrator_was_answered_survives_a_kill() {
    // Two answers one after the other, so that the first's record is not on its way alone.
    let verbs: [(&str, &[&str], u64); 4] = [
        ("skip and skip_all", &["skip/3", "skip_all"], 20),
        ("skip", &["skip/3", "skip/4"], 7),
        ("expire", &["expireMessages/0"], 20),
        ("skip_all and back", &["skip_all", "resetcursor/1"], 0),
    ];
    for (what, calls, gone) in verbs {
        let dir = tempfile::tempdir().unwrap();
        let node = Node::start(dir.path(), &SETTINGS);
        let client = node.client().await;
        let mut consumers = Vec::new();
        for (_, options) in kinds() {
            consumers.push(client.subscribe("t", options).await.unwrap());
        }
        let producer = client.producer("t", ProducerOptions::default()).await.unwrap();
        publish(&producer, 0..20).await;
        for consumer in &mut consumers {
            expect_numbers(consumer, 0..20).await;
        }
        if what == "expire" {
            // Older than zero seconds: the clock of messages counts milliseconds.
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        for (name, _) in kinds() {
            for call in calls {
                node.order("POST", &format!("{TOPIC}/subscription/{name}/{call}"), "");
            }
        }
        node.kill();

        let node = Node::start(dir.path(), &SETTINGS);
        // Loads it.
        let found = until("the topic is loaded", || {
            node.call("GET", &format!("{TOPIC}/stats"), "")
                .0
                .eq(&200)
                .then_some(())
        });
        found.await;
        for (name, _) in kinds() {
            let backlog = &node.stats("t")["subscriptions"][name]["msgBacklog"];
            assert_eq!(*backlog, 20 - gone, "{what}, {name}");
        }
    }
}
