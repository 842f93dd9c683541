//! Sends, receives and moves about on a running broker: `cargo run -p pharos-client --example round_trip -- ADDRESS`.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use pharos_client::{
    ClientError, ConnectOptions, Connection, ConsumerOptions, OutgoingMessage, ProducerOptions, earliest,
};
use pharos_wire::proto::command_ack::AckType;
use pharos_wire::proto::command_get_topics_of_namespace::Mode;
use pharos_wire::proto::{ProducerAccessMode, ServerError};

const LIMIT: Duration = Duration::from_secs(10);

fn main() -> anyhow::Result<()> {
    let address = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "127.0.0.1:6650".to_owned());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(run(&address))
}

async fn run(address: &str) -> anyhow::Result<()> {
    let connection = Connection::connect(address, ConnectOptions::default()).await?;
    eprintln!("connected to {}", connection.connected().server_version);
    let topic = format!("persistent://public/default/round-trip-{}", std::process::id());
    ensure!(connection.partitions(&topic).await? == 0);
    let mut consumer = connection
        .subscribe(&topic, ConsumerOptions::shared("s").from_earliest().name("c"))
        .await?;
    let producer = connection.producer(&topic, ProducerOptions::default()).await?;
    eprintln!("producer {}", producer.name());
    let message = OutgoingMessage::new("one").key("k").property("a", "b");
    let receipt = producer.send(message).await?;
    let batch = ["two", "three", "four"].map(OutgoingMessage::from);
    producer.send_batch(batch.into()).await?;

    let mut ids = Vec::new();
    for text in ["one", "two", "three", "four"] {
        let message = consumer.receive_within(LIMIT).await?.context("no message")?;
        ensure!(message.text() == text, "{} instead of {text}", message.text());
        ids.push(message.id);
    }
    ensure!(ids.first().map(|id| id.entry_id) == Some(receipt.message_id.entry_id));
    eprintln!("received in order");
    consumer.redeliver(&ids).await?;
    for _ in 0..4 {
        let message = consumer.receive_within(LIMIT).await?.context("no redelivery")?;
        ensure!(message.redelivery_count == 1);
        consumer.ack(&message.id).await?;
    }
    eprintln!("redelivered and acknowledged");
    consumer.seek(earliest()).await?;
    let message = consumer
        .receive_within(LIMIT)
        .await?
        .context("nothing after seek")?;
    ensure!(message.text() == "one");
    consumer
        .ack_and_wait(AckType::Individual, message.id.clone())
        .await?;
    ensure!(consumer.stats().await.is_ok());
    eprintln!("moved back");

    let mut reader = connection.reader(&topic, message.id).await?;
    let mut texts = Vec::new();
    while reader.has_next().await? {
        texts.push(reader.next().await?.text());
    }
    ensure!(texts == ["two", "three", "four"], "{texts:?}");
    reader.close().await?;
    eprintln!("read to the end");

    let list = connection
        .topics_of_namespace("public/default", Mode::Persistent, None, None)
        .await?;
    ensure!(list.topics.contains(&topic));
    let exclusive = ProducerOptions::default().access_mode(ProducerAccessMode::Exclusive);
    let refused = connection.producer(&topic, exclusive).await.err();
    ensure!(
        refused.as_ref().and_then(ClientError::code) == Some(ServerError::ProducerFenced),
        "{refused:?}"
    );
    producer.close().await?;
    consumer.unsubscribe(false).await?;
    eprintln!("all is well");
    Ok(())
}
