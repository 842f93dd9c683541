//! Acknowledgement, what is remembered of it, and what comes again without it.

use std::time::Duration;

use pulsar::SubType;
use pulsar::consumer::DeadLetterPolicy;
use pulsar::producer::ProducerOptions;

use crate::env::*;
use crate::suite::Suite;

pub fn register(suite: &mut Suite) {
    suite.add("cumulative-ack", cumulative);
    suite.add("individual-ack-with-holes", holes);
    suite.add("negative-ack", negative);
    suite.add("ack-timeout", ack_timeout);
    suite.add("dead-letter", dead_letter);
}

async fn cumulative(env: Env) -> Outcome {
    let topic = env.topic("cumulative");
    let mut consumer = env.subscribe(&topic, "s", SubType::Exclusive).await?;
    send_all(
        &mut env.produce(&topic, ProducerOptions::default()).await?,
        &numbered(20),
    )
    .await?;
    let messages = receive(&mut consumer, 20).await?;
    consumer.cumulative_ack(&messages[11]).await?;
    close(consumer).await?;
    let mut again = env.subscribe(&topic, "s", SubType::Exclusive).await?;
    expect_equal(
        &receive_ack(&mut again, 8).await?,
        &numbered(20)[12..].to_vec(),
        "after joining again",
    )
}

async fn holes(env: Env) -> Outcome {
    let topic = env.topic("holes");
    let mut consumer = env.subscribe(&topic, "s", SubType::Shared).await?;
    let mut producer = env.produce(&topic, ProducerOptions::default()).await?;
    send_all(&mut producer, &numbered(20)).await?;
    for (index, message) in receive(&mut consumer, 20).await?.iter().enumerate() {
        if index % 3 != 0 {
            consumer.ack(message).await?;
        }
    }
    close(consumer).await?;
    let mut again = env.subscribe(&topic, "s", SubType::Shared).await?;
    let left = sorted(numbered(20).into_iter().step_by(3).collect());
    expect_equal(
        &sorted(receive_ack(&mut again, 7).await?),
        &left,
        "after joining again",
    )?;
    send_all(&mut producer, &one("sentinel")).await?;
    expect_equal(
        &receive_ack(&mut again, 1).await?,
        &one("sentinel"),
        "nothing else comes again",
    )
}

async fn negative(env: Env) -> Outcome {
    let topic = env.topic("negative-ack");
    let mut consumer = env.subscribe(&topic, "s", SubType::Shared).await?;
    let mut producer = env.produce(&topic, ProducerOptions::default()).await?;
    send_all(&mut producer, &numbered(10)).await?;
    for (index, message) in receive(&mut consumer, 10).await?.iter().enumerate() {
        if index % 2 == 1 {
            consumer.nack(message).await?
        } else {
            consumer.ack(message).await?
        }
    }
    let odd = sorted(numbered(10).into_iter().skip(1).step_by(2).collect());
    expect_equal(&sorted(receive_ack(&mut consumer, 5).await?), &odd, "redelivered")?;
    send_all(&mut producer, &one("sentinel")).await?;
    expect_equal(
        &receive_ack(&mut consumer, 1).await?,
        &one("sentinel"),
        "after all are acknowledged",
    )
}

async fn ack_timeout(env: Env) -> Outcome {
    let topic = env.topic("ack-timeout");
    let builder = env
        .listen(&topic, "s", SubType::Shared)
        .with_unacked_message_resend_delay(Some(Duration::from_secs(1)));
    let mut consumer = builder.build().await?;
    send_all(
        &mut env.produce(&topic, ProducerOptions::default()).await?,
        &numbered(4),
    )
    .await?;
    let messages = receive(&mut consumer, 4).await?;
    consumer.ack(&messages[0]).await?;
    expect_equal(
        &sorted(receive_ack(&mut consumer, 3).await?),
        &numbered(4)[1..].to_vec(),
        "redelivered",
    )
}

async fn dead_letter(env: Env) -> Outcome {
    let topic = env.topic("dead-letter");
    let dead_letter_topic = format!("{topic}-s-DLQ");
    let mut dead = env
        .subscribe(&dead_letter_topic, "sink", SubType::Exclusive)
        .await?;
    let policy = DeadLetterPolicy {
        max_redeliver_count: 2,
        dead_letter_topic,
    };
    let mut consumer: Listener = env
        .listen(&topic, "s", SubType::Shared)
        .with_dead_letter_policy(policy)
        .build()
        .await?;
    let mut producer = env.produce(&topic, ProducerOptions::default()).await?;
    send_all(&mut producer, &one("poison")).await?;
    for _ in 0..2 {
        let message = receive(&mut consumer, 1).await?.remove(0);
        expect_equal(&text(&message), &"poison".to_owned(), "content")?;
        consumer.nack(&message).await?;
    }
    // The client looks at its dead letter policy as it receives, so it has to be polled meanwhile.
    send_all(&mut producer, &one("sentinel")).await?;
    expect_equal(
        &receive_ack(&mut consumer, 1).await?,
        &one("sentinel"),
        "the subscription goes on",
    )?;
    expect_equal(
        &receive_ack(&mut dead, 1).await?,
        &one("poison"),
        "the dead letter topic",
    )
}
