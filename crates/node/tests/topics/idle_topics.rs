//! Unused topics are unloaded and come back when they are asked for, with everything that was in them.

use crate::support::{Node, broadcast, expect_numbers, publish, receive, soon, until};
use pharos_client::{Connection, ConsumerOptions, ProducerOptions};
use pharos_wire::proto::command_ack::AckType;

/// Loaded topics of public/default, without asking any of them.
fn loaded(node: &Node) -> u64 {
    let page = node.page("/metrics");
    let line = page
        .lines()
        .find(|line| line.starts_with("pulsar_topics_count{") && line.contains("\"public/default\""));
    line.map_or(0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
}

async fn all_at_rest(node: &Node) {
    until("all topics unloaded", || (loaded(node) == 0).then_some(())).await;
}

async fn fill(client: &Connection, topic: &str) {
    let mut shared = client
        .subscribe(topic, ConsumerOptions::shared("shared"))
        .await
        .unwrap();
    let mut cast = client
        .subscribe(topic, broadcast("all").name("car-1"))
        .await
        .unwrap();
    let producer = client.producer(topic, ProducerOptions::default()).await.unwrap();
    publish(&producer, 0..10).await;
    let messages = expect_numbers(&mut shared, 0..10).await;
    // All but one, so that there is a hole to remember.
    let acked: Vec<_> = messages.iter().map(|message| message.id.clone()).collect();
    let acked = [&acked[..3], &acked[4..]].concat();
    soon("ACK", shared.ack_and_wait(AckType::Individual, acked))
        .await
        .unwrap();
    let messages = expect_numbers(&mut cast, 0..10).await;
    soon(
        "ACK",
        cast.ack_and_wait(AckType::Cumulative, messages[5].id.clone()),
    )
    .await
    .unwrap();
    producer.close().await.unwrap();
    shared.close().await.unwrap();
    cast.close().await.unwrap();
}

#[tokio::test]
async fn an_idle_topic_is_unloaded_and_comes_back_whole() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &["--unload-idle-after", "100ms"]);
    let client = node.client().await;
    for number in 0..8 {
        fill(&client, &format!("t{number}")).await;
    }
    all_at_rest(&node).await;
    assert_eq!(node.topics().len(), 8, "they exist all the same");
    for number in 0..8 {
        let topic = format!("t{number}");
        let mut shared = client
            .subscribe(&topic, ConsumerOptions::shared("shared"))
            .await
            .unwrap();
        assert_eq!(receive(&mut shared).await.text(), "3");
        let mut cast = client
            .subscribe(&topic, broadcast("all").name("car-1"))
            .await
            .unwrap();
        expect_numbers(&mut cast, 6..10).await;
        assert!(loaded(&node) > 0);
        shared.close().await.unwrap();
        cast.close().await.unwrap();
    }
    all_at_rest(&node).await;
}

#[tokio::test]
async fn a_topic_in_use_stays_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &["--unload-idle-after", "100ms"]);
    let client = node.client().await;
    let mut consumer = client
        .subscribe("used", ConsumerOptions::exclusive("s"))
        .await
        .unwrap();
    fill(&client, "idle").await;
    until("the other one is unloaded", || (loaded(&node) == 1).then_some(())).await;
    let producer = client.producer("used", ProducerOptions::default()).await.unwrap();
    publish(&producer, 0..5).await;
    expect_numbers(&mut consumer, 0..5).await;
}

#[tokio::test]
async fn a_client_that_comes_while_a_topic_goes_is_served() {
    let dir = tempfile::tempdir().unwrap();
    // Idle at once: each round races against the unloading of the round before.
    let node = Node::start(dir.path(), &["--unload-idle-after", "1ms"]);
    let client = node.client().await;
    // Without a subscription nothing would have to be kept.
    let options = || ConsumerOptions::exclusive("s").from_earliest();
    client
        .subscribe("t", options())
        .await
        .unwrap()
        .close()
        .await
        .unwrap();
    for round in 0..60_u32 {
        let producer = client.producer("t", ProducerOptions::default()).await.unwrap();
        publish(&producer, round..round + 1).await;
        producer.close().await.unwrap();
        if round % 7 == 0 {
            all_at_rest(&node).await;
        } else {
            tokio::time::sleep(std::time::Duration::from_millis(u64::from(round * 37 % 110))).await;
        }
    }
    let mut consumer = client.subscribe("t", options()).await.unwrap();
    expect_numbers(&mut consumer, 0..60).await;
}

#[tokio::test]
async fn a_resting_topic_can_be_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &["--unload-idle-after", "100ms"]);
    let client = node.client().await;
    fill(&client, "t").await;
    all_at_rest(&node).await;
    node.delete("/admin/v2/persistent/public/default/t");
    assert!(node.topics().is_empty());
    let mut consumer = client
        .subscribe("t", ConsumerOptions::exclusive("s").from_earliest())
        .await
        .unwrap();
    let producer = client.producer("t", ProducerOptions::default()).await.unwrap();
    publish(&producer, 7..8).await;
    assert_eq!(
        receive(&mut consumer).await.text(),
        "7",
        "nothing is left of the old one"
    );
}
