//! Readers, seeking and the last message id: where in the topic to begin.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::TryStreamExt;
use pulsar::consumer::{ConsumerOptions, InitialPosition};
use pulsar::message::proto::MessageIdData;
use pulsar::producer::ProducerOptions;
use pulsar::reader::Reader;
use pulsar::{SubType, TokioExecutor};

use crate::env::*;
use crate::suite::Suite;

pub fn register(suite: &mut Suite) {
    suite.add("reader", reader);
    suite.add("seek-message-id", seek_message_id);
    suite.add("seek-time", seek_time);
    suite.add("last-message-id", last_message_id);
}

async fn open(
    env: &Env,
    topic: &str,
    options: ConsumerOptions,
) -> Result<Reader<Vec<u8>, TokioExecutor>, Failure> {
    Ok(env
        .client
        .reader()
        .with_topic(topic)
        .with_options(options.durable(false))
        .into_reader()
        .await?)
}

async fn read(reader: &mut Reader<Vec<u8>, TokioExecutor>, count: usize) -> Result<Vec<String>, Failure> {
    let mut contents = Vec::new();
    while contents.len() < count {
        let message = tokio::time::timeout(Duration::from_secs(15), reader.try_next())
            .await
            .map_err(|_| format!("no message within 15 s after {} of {count}", contents.len()))??
            .ok_or("the reader ended")?;
        contents.push(text(&message));
    }
    Ok(contents)
}

async fn reader(env: Env) -> Outcome {
    let topic = env.topic("reader");
    let mut producer = env.produce(&topic, ProducerOptions::default()).await?;
    let ids = send_all(&mut producer, &numbered(30)).await?;
    let earliest = ConsumerOptions {
        initial_position: InitialPosition::Earliest,
        ..Default::default()
    };
    let mut earliest = open(&env, &topic, earliest).await?;
    expect_equal(&read(&mut earliest, 30).await?, &numbered(30), "from earliest")?;
    let mut latest = open(&env, &topic, ConsumerOptions::default()).await?;
    // On the wire a start message id is inclusive; clients that are exclusive drop the message themselves.
    let mut middle = open(
        &env,
        &topic,
        ConsumerOptions::default().starting_on_message(ids[13].clone()),
    )
    .await?;
    expect_equal(
        &read(&mut middle, 17).await?,
        &numbered(30)[13..].to_vec(),
        "from a message id on",
    )?;
    send_all(&mut producer, &one("next")).await?;
    for reader in [&mut earliest, &mut latest, &mut middle] {
        expect_equal(&read(reader, 1).await?, &one("next"), "a new message")?;
    }
    Ok(())
}

/// The next messages, not acknowledged: a stock Pulsar may apply an ack that is under way after a seek, and undo it.
async fn contents(consumer: &mut Listener, count: usize) -> Result<Vec<String>, Failure> {
    Ok(receive(consumer, count).await?.iter().map(text).collect())
}

async fn seek_message_id(env: Env) -> Outcome {
    let topic = env.topic("seek");
    let mut consumer = env.subscribe(&topic, "s", SubType::Shared).await?;
    let mut producer = env.produce(&topic, ProducerOptions::default()).await?;
    let ids = send_all(&mut producer, &numbered(20)).await?;
    expect_equal(
        &contents(&mut consumer, 20).await?,
        &numbered(20),
        "contents at first",
    )?;
    // On the wire a seek is inclusive; clients that are exclusive drop the message themselves.
    consumer
        .seek(None, Some(ids[7].clone()), None, env.client.clone())
        .await?;
    expect_equal(
        &contents(&mut consumer, 13).await?,
        &numbered(20)[7..].to_vec(),
        "after seeking back",
    )?;
    let earliest = MessageIdData {
        ledger_id: u64::MAX,
        entry_id: u64::MAX,
        ..Default::default()
    };
    consumer
        .seek(None, Some(earliest), None, env.client.clone())
        .await?;
    expect_equal(
        &contents(&mut consumer, 20).await?,
        &numbered(20),
        "after seeking to earliest",
    )
}

async fn seek_time(env: Env) -> Outcome {
    let topic = env.topic("seek-time");
    let mut consumer = env.subscribe(&topic, "s", SubType::Shared).await?;
    let mut producer = env.produce(&topic, ProducerOptions::default()).await?;
    send_all(&mut producer, &named("old", 10)).await?;
    let old = receive(&mut consumer, 10).await?;
    let last = old[9].metadata().publish_time;
    while SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as u64 <= last + 2 {
        tokio::task::yield_now().await;
    }
    send_all(&mut producer, &named("new", 10)).await?;
    let fresh = receive(&mut consumer, 10).await?;
    let first = fresh[0].metadata().publish_time;
    expect(first > last, "publish times do not grow")?;
    consumer.seek(None, None, Some(first), env.client.clone()).await?;
    expect_equal(
        &contents(&mut consumer, 10).await?,
        &named("new", 10),
        "after seeking by time",
    )
}

async fn last_message_id(env: Env) -> Outcome {
    let topic = env.topic("last-id");
    let mut consumer = env.subscribe(&topic, "s", SubType::Exclusive).await?;
    let mut producer = env.produce(&topic, ProducerOptions::default()).await?;
    let ids = send_all(&mut producer, &numbered(5)).await?;
    let last = consumer.get_last_message_id().await?.remove(0);
    expect_equal(
        &(last.ledger_id, last.entry_id),
        &(ids[4].ledger_id, ids[4].entry_id),
        "last message id",
    )
}
