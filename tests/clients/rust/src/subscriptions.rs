//! The four ways of sharing a subscription, and the fifth.

use std::collections::{HashMap, HashSet};

use pulsar::SubType;
use pulsar::consumer::{ConsumerOptions, InitialPosition};
use pulsar::producer::{Message as Outgoing, ProducerOptions};

use crate::env::*;
use crate::suite::Suite;

pub fn register(suite: &mut Suite) {
    suite.add("exclusive", exclusive);
    suite.add("shared", |env| shared(env, ProducerOptions::default()));
    suite.add("shared-batched", |env| shared(env, batches(10)));
    suite.add("shared-unacked-go-to-the-other", shared_leave);
    suite.add("failover", failover);
    suite.add("key-shared", key_shared);
    suite.add("unsubscribe", unsubscribe);
    suite.add_extension("broadcast-shared", |env| {
        broadcast(env, SubType::Shared, ProducerOptions::default())
    });
    suite.add_extension("broadcast-failover-batched", |env| {
        broadcast(env, SubType::Failover, batches(1000))
    });
}

async fn exclusive(env: Env) -> Outcome {
    let topic = env.topic("exclusive");
    let mut first = env.subscribe(&topic, "s", SubType::Exclusive).await?;
    expect_error(
        "ConsumerBusy",
        "another type",
        env.subscribe(&topic, "s", SubType::Shared),
    )
    .await?;
    let mut other = env.subscribe(&topic, "t", SubType::Exclusive).await?;
    let mut producer = env.produce(&topic, batches(100)).await?;
    send_all(&mut producer, &numbered(50)).await?;
    expect_equal(&receive_ack(&mut first, 50).await?, &numbered(50), "contents")?;
    expect_equal(
        &receive_ack(&mut other, 50).await?,
        &numbered(50),
        "contents on another subscription",
    )?;
    close(first).await?;
    let mut again = env.subscribe(&topic, "s", SubType::Exclusive).await?;
    send_all(&mut producer, &one("next")).await?;
    expect_equal(
        &receive_ack(&mut again, 1).await?,
        &one("next"),
        "after joining again",
    )
}

async fn consumers(
    env: &Env,
    topic: &str,
    count: usize,
    sub_type: SubType,
    queue: u32,
) -> Result<Vec<Listener>, Failure> {
    let mut all = Vec::new();
    for index in 0..count {
        let builder = env
            .listen(topic, "s", sub_type)
            .with_consumer_name(format!("c{index}"))
            .with_batch_size(queue);
        all.push(builder.build().await?);
    }
    Ok(all)
}

async fn shared(env: Env, options: ProducerOptions) -> Outcome {
    let topic = env.topic("shared");
    let mut all = consumers(&env, &topic, 3, SubType::Shared, 20).await?;
    send_all(&mut env.produce(&topic, options).await?, &numbered(300)).await?;
    let got = collect(&mut all, 300, true).await?;
    expect_equal(
        &sorted(texts(&got)),
        &sorted(numbered(300)),
        "all messages, each once",
    )?;
    let used: HashSet<usize> = got.iter().map(|(index, _)| *index).collect();
    expect_equal(&used.len(), &3, "consumers that got something")
}

async fn shared_leave(env: Env) -> Outcome {
    let topic = env.topic("shared-leave");
    let mut first = env.subscribe(&topic, "s", SubType::Shared).await?;
    send_all(
        &mut env.produce(&topic, ProducerOptions::default()).await?,
        &numbered(20),
    )
    .await?;
    receive(&mut first, 10).await?;
    let mut second = env.subscribe(&topic, "s", SubType::Shared).await?;
    close(first).await?;
    expect_equal(
        &sorted(receive_ack(&mut second, 20).await?),
        &sorted(numbered(20)),
        "unacknowledged messages",
    )
}

async fn failover(env: Env) -> Outcome {
    let topic = env.topic("failover");
    let mut all = consumers(&env, &topic, 2, SubType::Failover, 1000).await?;
    let mut producer = env.produce(&topic, ProducerOptions::default()).await?;
    send_all(&mut producer, &numbered(30)).await?;
    let got = collect(&mut all, 30, false).await?;
    let active = got[29].0;
    expect(
        got.iter().all(|(index, _)| *index == active),
        "more than one consumer is active",
    )?;
    expect_equal(&texts(&got), &numbered(30), "contents at the active consumer")?;
    let mut leaving = all.swap_remove(active);
    for (_, message) in &got[..10] {
        leaving.ack(message).await?;
    }
    close(leaving).await?;
    let mut standby = all.swap_remove(0);
    expect_equal(
        &receive_ack(&mut standby, 20).await?,
        &numbered(30)[10..].to_vec(),
        "after the takeover",
    )?;
    send_all(&mut producer, &one("next")).await?;
    expect_equal(
        &receive_ack(&mut standby, 1).await?,
        &one("next"),
        "new messages after the takeover",
    )
}

async fn key_shared(env: Env) -> Outcome {
    let topic = env.topic("key-shared");
    let mut all = consumers(&env, &topic, 3, SubType::KeyShared, 50).await?;
    let mut expected: HashMap<String, Vec<String>> = HashMap::new();
    let mut messages = Vec::new();
    for index in 0..10 {
        for key in named("key", 40) {
            let content = format!("{key} {index}");
            expected.entry(key.clone()).or_default().push(content.clone());
            messages.push(Outgoing {
                payload: content.into_bytes(),
                partition_key: Some(key),
                ..Default::default()
            });
        }
    }
    send_messages(
        &mut env.produce(&topic, ProducerOptions::default()).await?,
        messages,
    )
    .await?;
    let (mut owners, mut seen) = (HashMap::new(), HashMap::<String, Vec<String>>::new());
    for (index, message) in collect(&mut all, 400, true).await? {
        let key = message.key().ok_or("a message without its key")?;
        expect_equal(
            owners.entry(key.clone()).or_insert(index),
            &index,
            format!("consumer of {key}"),
        )?;
        seen.entry(key).or_default().push(text(&message));
    }
    expect_equal(&seen, &expected, "messages of each key")?;
    expect_equal(
        &owners.values().collect::<HashSet<_>>().len(),
        &3,
        "consumers with at least one key",
    )
}

async fn unsubscribe(env: Env) -> Outcome {
    let topic = env.topic("unsubscribe");
    let mut consumer = env.subscribe(&topic, "s", SubType::Exclusive).await?;
    let mut keeper = env.subscribe(&topic, "keeper", SubType::Exclusive).await?;
    send_all(
        &mut env.produce(&topic, ProducerOptions::default()).await?,
        &numbered(5),
    )
    .await?;
    expect_equal(&receive_ack(&mut consumer, 5).await?, &numbered(5), "contents")?;
    consumer.unsubscribe().await?;
    drop(consumer);
    // The place is forgotten: the same name starts anew, and what "keeper" holds is there again.
    let mut again = env.subscribe(&topic, "s", SubType::Exclusive).await?;
    expect_equal(
        &receive_ack(&mut again, 5).await?,
        &numbered(5),
        "contents after unsubscribe",
    )?;
    expect_equal(
        &receive_ack(&mut keeper, 5).await?,
        &numbered(5),
        "contents of the other subscription",
    )
}

/// Broadcast: one name, every consumer gets everything. An extension of Pharos; this client can ask for it by consumer property.
async fn broadcast(env: Env, sub_type: SubType, options: ProducerOptions) -> Outcome {
    let topic = env.topic("broadcast");
    let join = |who: &str| {
        let options = ConsumerOptions {
            metadata: [("pharos.subscription".to_owned(), "broadcast".to_owned())].into(),
            initial_position: InitialPosition::Earliest,
            ..Default::default()
        };
        env.listen(&topic, "everyone", sub_type)
            .with_consumer_name(who)
            .with_options(options)
            .build()
    };
    let (mut a, mut b, mut c): (Listener, Listener, Listener) =
        (join("a").await?, join("b").await?, join("c").await?);
    let mut producer = env.produce(&topic, options).await?;
    send_all(&mut producer, &numbered(100)).await?;
    for consumer in [&mut a, &mut b, &mut c] {
        expect_equal(&receive_ack(consumer, 100).await?, &numbered(100), "contents")?;
    }
    close(c).await?;
    send_all(&mut producer, &named("missed", 30)).await?;
    for consumer in [&mut a, &mut b] {
        expect_equal(
            &receive_ack(consumer, 30).await?,
            &named("missed", 30),
            "contents without c",
        )?;
    }
    let mut c: Listener = join("c").await?;
    // The sentinel shows that nothing came twice and nothing is left over.
    send_all(&mut producer, &one("sentinel")).await?;
    let expected = [named("missed", 30), one("sentinel")].concat();
    expect_equal(
        &receive_ack(&mut c, 31).await?,
        &expected,
        "contents at c after joining again",
    )?;
    for consumer in [&mut a, &mut b] {
        expect_equal(
            &receive_ack(consumer, 1).await?,
            &one("sentinel"),
            "contents at the end",
        )?;
    }
    Ok(())
}
