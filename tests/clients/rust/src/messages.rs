//! What a message carries, that it arrives whole and in order, and who may send.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use pulsar::SubType;
use pulsar::compression::{Compression, CompressionLz4, CompressionSnappy, CompressionZlib, CompressionZstd};
use pulsar::message::proto::Schema;
use pulsar::message::proto::schema::Type;
use pulsar::producer::{Message as Outgoing, ProducerOptions};
use serde::{Deserialize, Serialize};

use crate::env::*;
use crate::suite::Suite;

pub fn register(suite: &mut Suite) {
    let compressions = [
        ("none", Compression::None),
        ("lz4", Compression::Lz4(CompressionLz4::default())),
        ("zlib", Compression::Zlib(CompressionZlib::default())),
        ("zstd", Compression::Zstd(CompressionZstd::default())),
        ("snappy", Compression::Snappy(CompressionSnappy::default())),
    ];
    for (name, compression) in compressions {
        let single = ProducerOptions {
            compression: Some(compression.clone()),
            ..Default::default()
        };
        let batched = ProducerOptions {
            compression: Some(compression),
            ..batches(30)
        };
        suite.add(format!("produce-single-{name}"), |env| {
            produce_consume(env, single)
        });
        suite.add(format!("produce-batched-{name}"), |env| {
            produce_consume(env, batched)
        });
    }
    suite.add("delayed", delayed);
    suite.add("producer-exclusive", exclusive);
    suite.add("producer-name-conflict", name_conflict);
    suite.add("schema-json", schema_json);
    suite.add("schema-string", schema_string);
}

async fn produce_consume(env: Env, options: ProducerOptions) -> Outcome {
    let topic = env.topic("produce");
    let mut consumer = env.subscribe(&topic, "s", SubType::Exclusive).await?;
    let mut producer = env.produce(&topic, options).await?;
    let sent: Vec<Outgoing> = (0..200)
        .map(|index| Outgoing {
            payload: format!("{index} {}", "abcdefgh".repeat(index % 50)).into_bytes(),
            partition_key: Some(format!("key-{}", index % 7)),
            ordering_key: Some(format!("order-{}", index % 3).into_bytes()),
            properties: [
                ("index".to_owned(), index.to_string()),
                ("empty".to_owned(), String::new()),
            ]
            .into(),
            event_time: Some(1_700_000_000_000 + index as u64),
            ..Default::default()
        })
        .collect();
    let ids = send_messages(&mut producer, sent.clone()).await?;
    for ((message, sent), id) in receive(&mut consumer, 200).await?.iter().zip(&sent).zip(&ids) {
        let metadata = message.metadata();
        expect_equal(
            &text(message),
            &String::from_utf8_lossy(&sent.payload).into_owned(),
            "content",
        )?;
        expect_equal(&message.key(), &sent.partition_key, "key")?;
        expect_equal(&metadata.ordering_key, &sent.ordering_key, "ordering key")?;
        let properties = metadata
            .properties
            .iter()
            .map(|p| (p.key.clone(), p.value.clone()))
            .collect();
        expect_equal(&properties, &sent.properties, "properties")?;
        expect_equal(&metadata.event_time, &sent.event_time, "event time")?;
        expect_equal(&message.topic, &topic, "topic")?;
        let (got, receipt) = (message.message_id(), id);
        expect_equal(
            &(got.ledger_id, got.entry_id),
            &(receipt.ledger_id, receipt.entry_id),
            "message id",
        )?;
        let now_ms = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as u64;
        expect(
            metadata.publish_time.abs_diff(now_ms) < 60_000,
            "publish time is far from now",
        )?;
        consumer.ack(message).await?;
    }
    Ok(())
}

async fn delayed(env: Env) -> Outcome {
    let topic = env.topic("delayed");
    let mut consumer = env.subscribe(&topic, "s", SubType::Shared).await?;
    let mut producer = env.produce(&topic, ProducerOptions::default()).await?;
    let sent = Instant::now();
    producer
        .create_message()
        .with_content("later")
        .delay(Duration::from_secs(3))?
        .send_non_blocking()
        .await?
        .await?;
    producer
        .create_message()
        .with_content("now")
        .send_non_blocking()
        .await?
        .await?;
    expect_equal(
        &receive_ack(&mut consumer, 2).await?,
        &vec!["now".to_owned(), "later".to_owned()],
        "order",
    )?;
    // A broker may be early by one tick of its delay tracker, which is one second unless configured.
    let waited = sent.elapsed().as_millis();
    expect(
        (1900..10_000).contains(&waited),
        format!("delivered after {waited} ms, asked for 3000"),
    )
}

async fn exclusive(env: Env) -> Outcome {
    let topic = env.topic("exclusive-producer");
    let options = ProducerOptions {
        access_mode: Some(1),
        ..Default::default()
    };
    let mut first = env.produce(&topic, options.clone()).await?;
    expect_error(
        "Fenced",
        "a second exclusive producer",
        env.produce(&topic, options.clone()),
    )
    .await?;
    send_all(&mut first, &one("still mine")).await?;
    first.close().await?;
    send_all(&mut env.produce(&topic, options).await?, &one("mine now")).await?;
    Ok(())
}

async fn name_conflict(env: Env) -> Outcome {
    let topic = env.topic("producer-name");
    let named = || env.client.producer().with_topic(&topic).with_name("one").build();
    let mut first = named().await?;
    expect_error("ProducerBusy", "the same producer name", named()).await?;
    first.close().await?;
    named().await?;
    Ok(())
}

#[derive(Serialize, Deserialize, Debug, PartialEq)]
struct Reading {
    sensor: String,
    value: i32,
}

async fn schema_json(env: Env) -> Outcome {
    let topic = env.topic("schema-json");
    let definition = r#"{"type":"record","name":"Reading","fields":[{"name":"sensor","type":"string"},{"name":"value","type":"int"}]}"#;
    let json = |definition: &str| {
        let schema = Schema {
            name: "Reading".into(),
            schema_data: definition.as_bytes().to_vec(),
            r#type: Type::Json as i32,
            properties: vec![],
        };
        ProducerOptions {
            schema: Some(schema),
            ..Default::default()
        }
    };
    let mut producer = env.produce(&topic, json(definition)).await?;
    let mut consumer = env.subscribe(&topic, "s", SubType::Exclusive).await?;
    let sent = Reading {
        sensor: "s".into(),
        value: 7,
    };
    send_all(&mut producer, &[serde_json::to_string(&sent)?]).await?;
    let message = receive(&mut consumer, 1).await?.remove(0);
    expect_equal(
        &serde_json::from_slice::<Reading>(&message.payload.data)?,
        &sent,
        "value",
    )?;
    // This client does not write the version into messages, but can ask for the topic's schema.
    let schema = consumer
        .get_schema(&topic, None)
        .await?
        .ok_or("no schema on the topic")?;
    expect_equal(
        &schema.schema_data,
        &definition.as_bytes().to_vec(),
        "the topic's schema",
    )?;
    let other = r#"{"type":"record","name":"Reading","fields":[{"name":"sensor","type":"long"}]}"#;
    expect_error(
        "IncompatibleSchema",
        "a producer with an incompatible schema",
        env.produce(&topic, json(other)),
    )
    .await
}

async fn schema_string(env: Env) -> Outcome {
    let topic = env.topic("schema-string");
    let schema = Schema {
        name: "String".into(),
        schema_data: vec![],
        r#type: Type::String as i32,
        properties: vec![],
    };
    let options = ProducerOptions {
        schema: Some(schema),
        ..Default::default()
    };
    let mut consumer = env.subscribe(&topic, "s", SubType::Exclusive).await?;
    send_all(&mut env.produce(&topic, options).await?, &one("grüße")).await?;
    expect_equal(&receive_ack(&mut consumer, 1).await?, &one("grüße"), "value")
}
