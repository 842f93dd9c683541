//! Two live consumers of one name on a broadcast subscription are slowed down; a client that comes back is not.

use crate::support::{Node, broadcast, figure, next, soon};
use pharos_client::{Connection, Consumer, ConsumerEvent};
use pharos_wire::command::Command;
use pharos_wire::proto::ServerError;

async fn closed(consumer: &mut Consumer) {
    let event = soon("being closed", consumer.next_event()).await.unwrap();
    assert!(matches!(event, ConsumerEvent::Closed(_)), "{event:?}");
}

/// Comes back as clients do, as often as it is refused; how often that was, and with which words.
async fn comes_back(client: &Connection) -> (Consumer, Vec<String>) {
    let mut refusals = Vec::new();
    let trying = async {
        loop {
            match client.subscribe("t", broadcast("b").name("car")).await {
                Ok(consumer) => return consumer,
                Err(error) => {
                    assert_eq!(error.code(), Some(ServerError::ConsumerBusy), "{error}");
                    refusals.push(error.to_string());
                    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                }
            }
        }
    };
    let consumer = soon("coming back", trying).await;
    (consumer, refusals)
}

#[tokio::test]
async fn two_live_consumers_of_one_name_wait_longer_and_longer_for_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &[]);
    let clients = [node.client().await, node.client().await];
    let mut holder = clients[0]
        .subscribe("t", broadcast("b").name("car"))
        .await
        .unwrap();
    // Another client, or the same one over a new connection: that cannot be told yet.
    let mut other = clients[1]
        .subscribe("t", broadcast("b").name("car"))
        .await
        .unwrap();
    let mut waits = Vec::new();
    for round in 0..3 {
        closed(&mut holder).await;
        let began = std::time::Instant::now();
        let (back, refusals) = comes_back(&clients[round % 2]).await;
        waits.push(began.elapsed());
        assert!(!refusals.is_empty(), "it took the place at once in round {round}");
        assert!(refusals[0].contains("127.0.0.1:"), "{}", refusals[0]);
        holder = std::mem::replace(&mut other, back);
    }
    // One second and four, far enough apart for a busy machine.
    assert!(waits[0] < waits[2], "{waits:?}");
    let stats = node.stats("t");
    let summary = &stats["subscriptions"]["b"]["pharosBroadcast"];
    assert_eq!(summary["takeoversTotal"], 4, "{summary}");
    assert!(
        summary["takeoversRefusedTotal"].as_u64().unwrap() >= 3,
        "{summary}"
    );
    let page = node.page("/metrics");
    assert_eq!(figure(&page, "pharos_broker_broadcast_takeovers_total", None), 4);
    assert_eq!(figure(&page, "pharos_broadcast_takeovers_total", None), 4);
    let log = node.logged();
    let warnings: Vec<_> = log
        .lines()
        .filter(|line| line.contains("two live consumers"))
        .collect();
    assert_eq!(warnings.len(), 1, "{log}");
    assert_eq!(warnings[0].matches("127.0.0.1:").count(), 2, "{}", warnings[0]);
}

#[tokio::test]
async fn a_client_that_lost_its_connection_has_its_place_at_once() {
    let dir = tempfile::tempdir().unwrap();
    // A holder that must be asked is given up soon.
    let node = Node::start(dir.path(), &["--connection-liveness-check-timeout", "200ms"]);
    let mut dead = Vec::new();
    for round in 0..8 {
        // Half dead: it reads no more, and the broker cannot know.
        let mut raw = node.rogue().await;
        let mut command = broadcast("b").name("car").command;
        command.topic = "t".to_owned();
        (command.consumer_id, command.request_id) = (1, 1);
        raw.send(command).await.unwrap();
        match next(&mut raw).await {
            Command::Success(_) => dead.push(raw),
            other => panic!("round {round}: expected SUCCESS, got {other:?}"),
        }
    }
    let summary = &node.stats("t")["subscriptions"]["b"]["pharosBroadcast"];
    assert_eq!(summary["takeoversRefusedTotal"], 0, "{summary}");
}
