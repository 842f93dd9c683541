//! A broker whose clients take all the files that they can get.

use std::io::Read as _;
use std::net::TcpStream;
use std::time::Duration;

use crate::support::{Node, figure, receive, soon, until};
use pharos_client::{ConsumerOptions, OutgoingMessage, Producer, ProducerOptions};

const FILES: u32 = 220;

/// Publishes numbered messages of 20 KB, all of which must be acknowledged.
async fn publish(producer: &Producer, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let text = format!("{number} {}", "x".repeat(20_000));
        let sent = producer.send(OutgoingMessage::new(text));
        soon("a receipt", sent).await.unwrap();
    }
}

/// Takes all connections that the broker gives: those that it keeps, and what it told the one that it did not.
fn take_all(node: &Node) -> (Vec<TcpStream>, String) {
    let address = node.pulsar.trim_start_matches("pulsar://");
    let mut taken = Vec::new();
    loop {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let mut said = Vec::new();
        let mut part = [0; 1024];
        while let Ok(count) = stream.read(&mut part) {
            said.extend_from_slice(&part[..count]);
            if count == 0 {
                return (taken, String::from_utf8_lossy(&said).into_owned());
            }
        }
        taken.push(stream);
        assert!(taken.len() < FILES as usize, "more than there can be");
    }
}

#[tokio::test]
async fn clients_that_take_all_files_leave_those_that_storage_needs() {
    let data = tempfile::tempdir().unwrap();
    let settings = [
        "--storage-flush-interval",
        "100ms",
        "--storage-entry-log-size",
        "1MiB",
    ];
    let mut node = Node::start_with_files(data.path(), &settings, FILES);
    let client = node.client().await;
    // So that nothing is trimmed before it is read.
    let subscribe = || client.subscribe("t", ConsumerOptions::exclusive("s").from_earliest());
    soon("a subscription", subscribe())
        .await
        .unwrap()
        .close()
        .await
        .unwrap();
    let producer = soon("a producer", client.producer("t", ProducerOptions::default()))
        .await
        .unwrap();
    publish(&producer, 0..10).await;

    let (taken, told) = take_all(&node);
    assert!(taken.len() > 20, "only {} were taken", taken.len());
    assert!(
        told.contains("Reached the maximum number of connections"),
        "{told:?}"
    );
    let page = node.page("/metrics");
    assert!(figure(&page, "pharos_connections_refused_total", None) > 0);
    let checkpoints = || figure(&node.page("/metrics"), "pharos_storage_checkpoints_total", None);
    let before = checkpoints();
    // Six logs are new files, and so is each checkpoint.
    let mut end = 10;
    while checkpoints() <= before + 2 {
        publish(&producer, end..end + 100).await;
        end += 100;
        assert!(end < 100_000, "no flush comes");
    }
    assert_eq!(node.call("GET", "/admin/v2/brokers/ready", "").0, 200);
    node.assert_alive();

    drop(taken);
    let late = until("there is room again", || {
        TcpStream::connect(node.pulsar.trim_start_matches("pulsar://")).ok()
    })
    .await;
    drop(late);
    publish(&producer, end..end + 10).await;
    let mut consumer = soon("a consumer", subscribe()).await.unwrap();
    for number in 0..end + 10 {
        let message = receive(&mut consumer).await;
        assert!(message.text().starts_with(&format!("{number} ")), "{number}");
    }
    consumer.close().await.unwrap();
    let status = node.stop();
    assert!(status.success());
}
