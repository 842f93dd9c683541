//! Memory used by a burst is returned to the machine.

use std::time::{Duration, Instant};

use crate::support::{Node, expect_success, soon};
use pharos_client::{OutgoingMessage, ProducerOptions, RawConnection};
use pharos_wire::proto::command_subscribe::SubType;
use pharos_wire::request;

/// Peers that do not read.
const IDLE: usize = 100;
const MESSAGES: usize = 60;
const MESSAGE_BYTES: usize = 4_900_000;
/// Memory that may stay, in bytes: a quiet broker that has passed on messages has buffers for the next ones.
const STAYS: u64 = 32 << 20;
/// A minute of quiet, and what a busy machine needs longer.
const QUIET_MAX: Duration = Duration::from_secs(240);

async fn idle(node: &Node, topic: &str) -> RawConnection {
    let mut raw = node.rogue().await;
    raw.send(request::subscribe(topic, "s", SubType::Shared, 1, 1))
        .await
        .unwrap();
    expect_success(&mut raw, 1).await;
    raw.send(request::flow(1, 1000)).await.unwrap();
    raw
}

#[tokio::test]
async fn memory_of_a_burst_goes_back_within_a_minute_of_quiet() {
    let data = tempfile::tempdir().unwrap();
    let node = Node::start(data.path(), &[]);
    let before = node.resident_bytes();
    let mut peers = Vec::new();
    for _ in 0..IDLE {
        peers.push(idle(&node, "t").await);
    }
    let client = node.client().await;
    let producer = client.producer("t", ProducerOptions::default()).await.unwrap();
    let mut most = before;
    for number in 0..MESSAGES {
        let body = vec![u8::try_from(number).unwrap(); MESSAGE_BYTES];
        soon("a receipt", producer.send(OutgoingMessage::new(body)))
            .await
            .unwrap();
        most = most.max(node.resident_bytes());
    }
    assert!(
        most > before + 3 * STAYS,
        "{most} bytes are no burst, after {before}"
    );
    drop((peers, producer, client));

    let began = Instant::now();
    let mut now = node.resident_bytes();
    while now > before + STAYS {
        assert!(
            began.elapsed() < QUIET_MAX,
            "{now} bytes stay of {most}; there were {before} at the start"
        );
        // The broker is to be left alone.
        tokio::time::sleep(Duration::from_secs(1)).await;
        now = node.resident_bytes();
    }
}
