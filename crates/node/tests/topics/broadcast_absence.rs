//! Named consumers of broadcast subscriptions that are away: the clock that runs for them, and what they get when they
//! come back late.

use crate::support::{Node, broadcast, expect_numbers, figure, publish, receive, soon, until};
use pharos_client::{Connection, Consumer, ConsumerOptions, ProducerOptions};
use pharos_wire::proto::command_ack::AckType;
use serde_json::Value;

const TOPIC: &str = "/admin/v2/persistent/public/default/t";
const DROPPED: &str = "pharos_broker_broadcast_absent_dropped_total";

/// Entry of the admin API for one consumer of the subscription `b` on `t`.
fn row(node: &Node, name: &str) -> Value {
    let details = node.ask(&format!("{TOPIC}/subscription/b/broadcast?consumers=true"));
    let rows = details["consumers"].as_array().unwrap().clone();
    rows.into_iter().find(|row| row["consumerName"] == name).unwrap()
}

fn absent_seconds(node: &Node, name: &str) -> Option<u64> {
    row(node, name)["absentSeconds"].as_u64()
}

fn dropped(node: &Node) -> u64 {
    figure(&node.page("/metrics"), DROPPED, None)
}

async fn join(client: &Connection, name: &str) -> Consumer {
    let joining = client.subscribe("t", broadcast("b").name(name));
    soon("joining", joining).await.unwrap()
}

#[tokio::test]
async fn when_a_consumer_left_is_known_after_unloading_and_after_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &[]);
    let client = node.client().await;
    join(&client, "leaves").await.close().await.unwrap();
    let stays = join(&client, "stays").await;
    until("two seconds of absence", || {
        absent_seconds(&node, "leaves").filter(|seconds| *seconds >= 2)
    })
    .await;
    node.order("PUT", &format!("{TOPIC}/unload"), "");
    assert!(absent_seconds(&node, "leaves") >= Some(2));
    // Once more, now that no consumer left while it was unloaded.
    node.order("PUT", &format!("{TOPIC}/unload"), "");
    assert!(absent_seconds(&node, "leaves") >= Some(2));
    drop(stays);
    let client = node.client().await;
    let _stays = join(&client, "stays").await;
    until("another second", || {
        absent_seconds(&node, "leaves").filter(|seconds| *seconds >= 3)
    })
    .await;
    node.kill();

    let node = Node::start(dir.path(), &[]);
    assert!(absent_seconds(&node, "leaves") >= Some(3));
    // The one that was there when the broker was killed is away since now.
    assert_eq!(row(&node, "stays")["connected"], false);
    assert!(absent_seconds(&node, "stays").is_some_and(|seconds| seconds < 3));
    // A consumer that is back is not away any more, also for a broker that is killed then.
    let client = node.client().await;
    let _back = join(&client, "leaves").await;
    assert_eq!(absent_seconds(&node, "leaves"), None);
    node.kill();
    let node = Node::start(dir.path(), &[]);
    assert!(absent_seconds(&node, "leaves").is_some_and(|seconds| seconds < 3));
}

/// Everything is kept by another subscription, so nothing need come again and nothing is missed.
#[tokio::test]
async fn a_consumer_that_comes_back_late_goes_on_behind_what_it_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let settings = [
        "--broadcast-absent-retention",
        "300ms",
        "--ledger-retention-check-interval",
        "100ms",
    ];
    let mut node = Node::start(dir.path(), &settings);
    let mut client = node.client().await;
    let keeps = client
        .subscribe("t", ConsumerOptions::exclusive("keeps"))
        .await
        .unwrap();
    keeps.close().await.unwrap();
    let mut leaves = join(&client, "leaves").await;
    let producer = client.producer("t", ProducerOptions::default()).await.unwrap();
    publish(&producer, 0..10).await;
    let messages = expect_numbers(&mut leaves, 0..10).await;
    let acked = [0, 1, 2, 3, 4, 7].map(|number: usize| messages[number].id.clone());
    soon("ACK", leaves.ack_and_wait(AckType::Individual, acked.to_vec()))
        .await
        .unwrap();
    leaves.close().await.unwrap();
    for restarts in [false, true] {
        until("its place is given up", || {
            row(&node, "leaves")["dropped"].as_bool().filter(|is| *is)
        })
        .await;
        if restarts {
            node.stop();
            node = Node::start(dir.path(), &settings);
            client = node.client().await;
        }
        let mut back = join(&client, "leaves").await;
        for number in ["5", "6", "8", "9"] {
            assert_eq!(
                receive(&mut back).await.text(),
                number,
                "after a restart: {restarts}"
            );
        }
        let row = row(&node, "leaves");
        assert_eq!(
            (&row["dropped"], &row["returnedLateTotal"]),
            (&false.into(), &1.into()),
            "{row}"
        );
        let summary = &node.stats("t")["subscriptions"]["b"]["pharosBroadcast"];
        assert_eq!(
            (&summary["returnedLateTotal"], &summary["entriesSkippedTotal"]),
            (&1.into(), &0.into())
        );
        back.close().await.unwrap();
    }
}

#[tokio::test]
async fn an_absentee_expires_on_a_topic_that_is_not_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let settings = [
        "--unload-idle-after",
        "100ms",
        "--broadcast-absent-retention",
        "2s",
    ];
    let node = Node::start(dir.path(), &settings);
    let client = node.client().await;
    // Nothing asks about the topic from here on: that would load it.
    join(&client, "leaves").await.close().await.unwrap();
    until("its place is given up", || (dropped(&node) == 1).then_some(())).await;
    // The same when the topic was not asked for since the start.
    join(&client, "leaves").await.close().await.unwrap();
    drop(client);
    node.stop();
    let node = Node::start(dir.path(), &settings);
    until("its place is given up after a start", || {
        (dropped(&node) == 1).then_some(())
    })
    .await;
    // It was loaded for that and is at rest again.
    until("nothing is loaded", || {
        let page = node.page("/metrics");
        let line = page.lines().find(|line| line.starts_with("pulsar_topics_count{"));
        line.is_none_or(|line| line.ends_with(" 0")).then_some(())
    })
    .await;
}
