//! Partitioned topics and subscriptions by pattern.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use pulsar::SubType;
use pulsar::producer::{Message as Outgoing, ProducerOptions};
use pulsar::routing_policy::RoutingPolicy;

use crate::env::*;
use crate::suite::Suite;

pub fn register(suite: &mut Suite) {
    suite.add("partitioned", partitioned);
    suite.add("partitioned-by-key", by_key);
    suite.add("pattern", pattern);
}

async fn partitioned(env: Env) -> Outcome {
    let topic = env.topic("partitioned");
    env.create_partitioned(&topic, 4).await?;
    expect_equal(
        &env.client.lookup_partitioned_topic_number(&topic).await?,
        &4,
        "number of partitions",
    )?;
    let mut consumer = env.subscribe(&topic, "s", SubType::Exclusive).await?;
    send_all(
        &mut env.produce(&topic, ProducerOptions::default()).await?,
        &numbered(80),
    )
    .await?;
    let messages = receive(&mut consumer, 80).await?;
    expect_equal(
        &sorted(messages.iter().map(text).collect()),
        &sorted(numbered(80)),
        "all messages, each once",
    )?;
    let used: BTreeSet<String> = messages.iter().map(|message| message.topic.clone()).collect();
    let names: BTreeSet<String> = (0..4).map(|index| format!("{topic}-partition-{index}")).collect();
    expect_equal(&used, &names, "partitions used")
}

async fn by_key(env: Env) -> Outcome {
    let topic = env.topic("partitioned-key");
    env.create_partitioned(&topic, 3).await?;
    let mut consumer = env.subscribe(&topic, "s", SubType::Exclusive).await?;
    let mut messages = Vec::new();
    for index in 0..10 {
        for key in named("key", 20) {
            let payload = format!("{key} {index}").into_bytes();
            messages.push(Outgoing {
                payload,
                partition_key: Some(key),
                ..Default::default()
            });
        }
    }
    // Without a policy this client goes round even with keys.
    let options = ProducerOptions {
        routing_policy: Some(RoutingPolicy::RoundRobin),
        ..Default::default()
    };
    send_messages(&mut env.produce(&topic, options).await?, messages).await?;
    let mut seen: HashMap<(String, String), Vec<String>> = HashMap::new();
    for message in receive(&mut consumer, 200).await? {
        let key = message.key().ok_or("a message without its key")?;
        seen.entry((key, message.topic.clone()))
            .or_default()
            .push(text(&message));
    }
    expect_equal(&seen.len(), &20, "keys, each in one partition")?;
    for ((key, _), contents) in seen {
        let expected: Vec<String> = (0..10).map(|index| format!("{key} {index}")).collect();
        expect_equal(&contents, &expected, format!("order of {key}"))?;
    }
    Ok(())
}

async fn pattern(env: Env) -> Outcome {
    let base = env.topic("pattern");
    let mut early = env
        .produce(&format!("{base}-early"), ProducerOptions::default())
        .await?;
    let mut consumer: Listener = env
        .listen("", "s", SubType::Exclusive)
        .with_lookup_namespace("public/default")
        .with_topic_regex(format!("{base}-.*").parse()?)
        .with_topic_refresh(Duration::from_secs(1))
        .build()
        .await?;
    send_all(&mut early, &one("early")).await?;
    expect_equal(
        &receive_ack(&mut consumer, 1).await?,
        &one("early"),
        "from the topic that was there",
    )?;
    let mut late = env
        .produce(&format!("{base}-late"), ProducerOptions::default())
        .await?;
    send_all(&mut late, &one("late")).await?;
    let message = receive(&mut consumer, 1).await?.remove(0);
    expect_equal(
        &text(&message),
        &"late".to_owned(),
        "from the topic that came later",
    )?;
    expect_equal(&message.topic, &format!("{base}-late"), "its topic")
}
