//! Replicated subscriptions between clusters: what moves with them, what does not, and what is said of it.

use std::time::Duration;

use crate::support::clusters::Cluster;
use crate::support::{publish, receive, soon, until};
use pharos_client::{Connection, Consumer, ConsumerOptions, OutgoingMessage, Producer, ProducerOptions};

const SUBSCRIPTION: &str = "/admin/v2/persistent/public/default/t/subscription/s";

/// Clusters that replicate public/default to each other.
fn clusters<const N: usize>(names: [&'static str; N]) -> [Cluster; N] {
    let settings = ["--replication-subscriptions-snapshot-interval=50ms"];
    let clusters = names.map(|name| Cluster::start(name, &settings));
    for cluster in &clusters {
        let others = clusters.iter().filter(|other| other.name != cluster.name);
        others.for_each(|other| cluster.knows(other));
        let tenant = serde_json::json!({"adminRoles": [], "allowedClusters": names.to_vec()});
        let node = cluster.node();
        node.order("POST", "/admin/v2/tenants/public", &tenant.to_string());
        cluster.is_on(&names);
    }
    clusters
}

async fn producer(client: &Connection, name: &str) -> Producer {
    let options = ProducerOptions::default().name(name);
    soon("a producer", client.producer("t", options)).await.unwrap()
}

fn replicated(mut options: ConsumerOptions) -> ConsumerOptions {
    options.command.replicate_subscription_state = Some(true);
    options.from_earliest()
}

async fn consumer(client: &Connection, options: ConsumerOptions) -> Consumer {
    soon("a consumer", client.subscribe("t", options)).await.unwrap()
}

/// Takes and acknowledges so many messages.
async fn take(consumer: &mut Consumer, count: usize) -> Vec<String> {
    let mut found = Vec::new();
    for _ in 0..count {
        let message = receive(consumer).await;
        soon("a send", consumer.ack(&message.id)).await.unwrap();
        found.push(message.text().to_owned());
    }
    found
}

/// True if the subscription is replicated; `None` if it does not exist.
fn is_replicated(cluster: &Cluster) -> Option<bool> {
    let (status, body) = cluster
        .node()
        .call("GET", "/admin/v2/persistent/public/default/t/stats", "");
    let stats: serde_json::Value = serde_json::from_str(&body).ok().filter(|_| status == 200)?;
    let subscription = stats["subscriptions"].get("s")?;
    assert_eq!(subscription["replicated"], subscription["isReplicated"]);
    subscription["isReplicated"].as_bool()
}

/// Messages that the subscription has before it.
fn messages_left(cluster: &Cluster) -> Option<u64> {
    is_replicated(cluster)?;
    let path = format!("{SUBSCRIPTION}/analyzeBacklog");
    let (status, body) = cluster.node().call("POST", &path, "");
    assert_eq!(status, 200, "{body}");
    let found: serde_json::Value = serde_json::from_str(&body).unwrap();
    found["messages"].as_u64()
}

async fn is_left(cluster: &Cluster, count: u64) {
    until(&format!("{count} messages left at {}", cluster.name), || {
        (messages_left(cluster) == Some(count)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_subscription_follows_in_two_and_three_clusters() {
    for names in [&["east", "west"][..], &["east", "north", "west"]] {
        let clusters = match names.len() {
            2 => Vec::from(clusters(["east", "west"])),
            _ => Vec::from(clusters(["east", "north", "west"])),
        };
        let east = clusters[0].node().client().await;
        let mut from_east = consumer(&east, replicated(ConsumerOptions::shared("s"))).await;
        for (cluster, start) in clusters.iter().zip((0..).step_by(100)) {
            let client = cluster.node().client().await;
            publish(&producer(&client, cluster.name).await, start..start + 50).await;
        }
        take(&mut from_east, 50 * names.len()).await;
        for cluster in &clusters[1..] {
            is_left(cluster, 0).await;
            assert_eq!(is_replicated(cluster), Some(true));
        }
        // The consumers change clusters.
        from_east.close().await.unwrap();
        publish(&producer(&east, "more").await, 500..510).await;
        clusters[0].has_sent_all("t", "west").await;
        let there = clusters.last().unwrap().node().client().await;
        let mut from_west = consumer(&there, replicated(ConsumerOptions::failover("s"))).await;
        let expected: Vec<_> = (500..510).map(|number: u32| number.to_string()).collect();
        assert_eq!(take(&mut from_west, 10).await, expected);
        is_left(&clusters[0], 0).await;
    }
}

#[tokio::test]
async fn nothing_is_written_without_messages_and_no_reader_gets_a_marker() {
    let [east, west] = clusters(["east", "west"]);
    let client = east.node().client().await;
    let mut from_east = consumer(&client, replicated(ConsumerOptions::exclusive("s"))).await;
    publish(&producer(&client, "p").await, 0..20).await;
    take(&mut from_east, 20).await;
    is_left(&west, 0).await;
    let ends =
        || [&east, &west].map(|cluster| cluster.node().internal_stats("t")["lastConfirmedEntry"].clone());
    // Both clusters come to rest.
    until("an end of markers", || {
        let before = ends();
        std::thread::sleep(Duration::from_millis(500));
        (ends() == before).then_some(())
    })
    .await;
    for cluster in [&east, &west] {
        let log = cluster.log("t").await;
        assert_eq!(log.len(), 20, "{}", cluster.name);
    }
}

#[tokio::test]
async fn what_never_went_there_is_passed_by_none() {
    let [east, west] = clusters(["east", "west"]);
    let (here, there) = (east.node().client().await, west.node().client().await);
    let from_west = consumer(&there, replicated(ConsumerOptions::exclusive("s"))).await;
    from_west.close().await.unwrap();
    let mut from_east = consumer(&here, replicated(ConsumerOptions::exclusive("s"))).await;
    let of_west = producer(&there, "west").await;
    publish(&of_west, 0..10).await;
    take(&mut from_east, 10).await;
    is_left(&west, 0).await;
    let mut stays = OutgoingMessage::new("stays");
    stays.metadata.replicate_to = vec!["__local__".to_owned()];
    soon("a receipt", of_west.send(stays)).await.unwrap();
    publish(&of_west, 10..20).await;
    take(&mut from_east, 10).await;
    // It would have passed it long ago.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(messages_left(&west), Some(11));
    let mut from_west = consumer(&there, ConsumerOptions::exclusive("s")).await;
    assert_eq!(receive(&mut from_west).await.text(), "stays");
}

#[tokio::test]
async fn what_was_there_before_replication_is_passed_by_none() {
    let settings = ["--replication-subscriptions-snapshot-interval=50ms"];
    let [east, west] = ["east", "west"].map(|name| Cluster::start(name, &settings));
    let there = west.node().client().await;
    let from_west = consumer(&there, replicated(ConsumerOptions::exclusive("s"))).await;
    from_west.close().await.unwrap();
    let of_west = producer(&there, "west").await;
    publish(&of_west, 0..5).await;
    for (one, other) in [(&east, &west), (&west, &east)] {
        one.knows(other);
        one.is_on(&["east", "west"]);
    }
    west.is_connected("t", "east").await;
    let here = east.node().client().await;
    let mut from_east = consumer(&here, replicated(ConsumerOptions::exclusive("s"))).await;
    publish(&of_west, 5..10).await;
    take(&mut from_east, 5).await;
    // It would have passed them long ago.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(messages_left(&west), Some(10));
    // Once they are acknowledged there, it follows.
    let mut from_west = consumer(&there, ConsumerOptions::exclusive("s")).await;
    take(&mut from_west, 5).await;
    from_west.close().await.unwrap();
    publish(&of_west, 10..15).await;
    take(&mut from_east, 5).await;
    is_left(&west, 0).await;
}

#[tokio::test]
async fn it_is_turned_on_and_off_and_outlives_a_crash() {
    let [mut east, west] = clusters(["east", "west"]);
    let client = east.node().client().await;
    let mut from_east = consumer(&client, ConsumerOptions::shared("s").from_earliest()).await;
    publish(&producer(&client, "p").await, 0..10).await;
    take(&mut from_east, 10).await;
    let status = format!("{SUBSCRIPTION}/replicatedSubscriptionStatus");
    let topic = "persistent://public/default/t";
    assert_eq!(east.node().ask(&status)[topic], false);
    east.node().order("POST", &status, "true");
    is_left(&west, 0).await;
    drop(from_east);
    east.kill();
    east.come_back();
    assert_eq!(east.node().ask(&status)[topic], true);
    east.node().order("POST", &status, "false");
    assert_eq!(is_replicated(&east), Some(false));
    east.kill();
    east.come_back();
    assert_eq!(east.node().ask(&status)[topic], false);
    // Properties say nothing of it.
    let properties = east.node().ask(&format!("{SUBSCRIPTION}/properties"));
    assert_eq!(properties, serde_json::json!({}));
}
