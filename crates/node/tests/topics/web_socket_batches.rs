//! Batches of producers by WebSocket, what the metrics page counts, and messages that are not acknowledged in time.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pharos_client::{ConsumerOptions, Message};
use pharos_wire::proto::CompressionType;
use serde_json::{Value, json};

use crate::support::web_socket::{WEB_SOCKETS, WebSocket, text_of};
use crate::support::{Node, read_log, receive, until};

const TOPIC: &str = "persistent/public/default/t";

async fn say(producer: &mut WebSocket, text: &str, more: &Value) {
    let mut frame = json!({"payload": STANDARD.encode(text), "context": text});
    for (key, value) in more.as_object().into_iter().flatten() {
        frame[key] = value.clone();
    }
    producer.say(&frame).await;
}

/// Context and id of the next answer, which must be "ok".
async fn answer(producer: &mut WebSocket) -> (String, String) {
    let answer = producer.hear().await;
    assert_eq!(answer["result"], "ok", "{answer}");
    let text = |name: &str| answer[name].as_str().unwrap().to_owned();
    (text("context"), text("messageId"))
}

/// Its place in an entry of how many.
fn place(message: &Message) -> (u64, Option<i32>, i32) {
    let size = message.metadata.num_messages_in_batch.unwrap_or(0);
    (message.id.entry_id, message.id.batch_index, size)
}

#[tokio::test]
async fn messages_go_in_batches_and_each_is_answered_with_its_place() {
    let data = tempfile::tempdir().unwrap();
    let node = Node::start(data.path(), &[WEB_SOCKETS]);
    let client = node.client().await;
    let mut options = ConsumerOptions::shared("binary");
    options.decompress_bytes_max = Some(1 << 20);
    let mut binary = client.subscribe("t", options).await.unwrap();
    let mut text = WebSocket::open(&node, &format!("consumer/{TOPIC}/text?subscriptionType=Shared")).await;
    let path = format!(
        "producer/{TOPIC}?batchingEnabled=true&batchingMaxMessages=3&batchingMaxPublishDelay=600000&compressionType=ZSTD\
         &maxPendingMessages=5"
    );
    let mut producer = WebSocket::open(&node, &path).await;
    for name in ["a", "b", "c"] {
        say(
            &mut producer,
            name,
            &json!({"key": name, "properties": {"is": name}}),
        )
        .await;
    }
    for (index, name) in ["a", "b", "c"].into_iter().enumerate() {
        let (context, id) = answer(&mut producer).await;
        let message = receive(&mut binary).await;
        assert_eq!((context.as_str(), message.text().as_str()), (name, name));
        assert_eq!((message.key(), message.properties()["is"]), (Some(name), name));
        assert_eq!(place(&message), (0, i32::try_from(index).ok(), 3));
        assert_eq!(message.metadata.compression(), CompressionType::Zstd);
        // The same id as a consumer by WebSocket gets.
        assert_eq!(text.receive().await, (name.to_owned(), id));
    }
    // A message for later goes alone, after those before it.
    say(&mut producer, "d", &json!({})).await;
    say(&mut producer, "e", &json!({"deliverAt": 1})).await;
    assert_eq!(answer(&mut producer).await.0, "d");
    assert_eq!(answer(&mut producer).await.0, "e");
    assert_eq!(place(&receive(&mut binary).await), (1, None, 0));
    assert_eq!(place(&receive(&mut binary).await), (2, None, 0));
    // What cannot be read is answered in its turn.
    say(&mut producer, "f", &json!({})).await;
    producer.say(&json!({"payload": "%%"})).await;
    say(&mut producer, "g", &json!({})).await;
    say(&mut producer, "h", &json!({})).await;
    assert_eq!(answer(&mut producer).await.0, "f");
    assert_eq!(producer.hear().await["result"], "send-error:7");
    assert_eq!(answer(&mut producer).await.0, "g");
    assert_eq!(answer(&mut producer).await.0, "h");
    producer.close().await;

    // A batch that is not full goes when its time is over, or when no more may come.
    let path = format!("producer/{TOPIC}?batchingEnabled=true&batchingMaxPublishDelay=50");
    let mut producer = WebSocket::open(&node, &path).await;
    say(&mut producer, "i", &json!({})).await;
    say(&mut producer, "j", &json!({})).await;
    assert_eq!(answer(&mut producer).await.0, "i");
    assert_eq!(answer(&mut producer).await.0, "j");
    let path =
        format!("producer/{TOPIC}?batchingEnabled=true&batchingMaxPublishDelay=600000&maxPendingMessages=2");
    let mut few = WebSocket::open(&node, &path).await;
    say(&mut few, "k", &json!({})).await;
    say(&mut few, "l", &json!({})).await;
    assert_eq!(answer(&mut few).await.0, "k");
    assert_eq!(answer(&mut few).await.0, "l");

    let page = node.page("/metrics");
    for line in [
        "pharos_websocket_sessions{cluster=\"standalone\",kind=\"producer\"} 2",
        "pharos_websocket_sessions{cluster=\"standalone\",kind=\"consumer\"} 1",
        "pharos_websocket_sessions{cluster=\"standalone\",kind=\"reader\"} 0",
        "pharos_websocket_messages_in_total{cluster=\"standalone\"} 12",
    ] {
        assert!(page.contains(line), "{line}\n{page}");
    }
}

/// A broker that removes duplicates looks at the first number of a batch.
#[tokio::test]
async fn a_batch_that_begins_with_a_duplicate_takes_nothing_new_with_it() {
    let data = tempfile::tempdir().unwrap();
    let node = Node::start(data.path(), &[WEB_SOCKETS]);
    node.order(
        "POST",
        "/admin/v2/namespaces/public/default/deduplication",
        "true",
    );
    let path = format!("producer/{TOPIC}?batchingEnabled=true&batchingMaxPublishDelay=50&producerName=p");
    for (numbers, more) in [(0..5, "first"), (3..9, "again")] {
        let mut producer = WebSocket::open(&node, &path).await;
        for number in numbers.clone() {
            let text = number.to_string();
            say(&mut producer, &text, &json!({"sequenceId": number})).await;
        }
        for number in numbers {
            assert_eq!(answer(&mut producer).await.0, number.to_string(), "{more}");
        }
        producer.close().await;
        until("it is gone", || {
            (node.stats("t")["publishers"] == json!([])).then_some(())
        })
        .await;
    }
    let there: Vec<String> = read_log(&node)
        .await
        .iter()
        .map(|message| message.text())
        .collect();
    let wanted: Vec<String> = (0..9).map(|number| number.to_string()).collect();
    assert_eq!(there, wanted);
}

/// Messages answered "ok" survive a crash, in order and once.
#[tokio::test]
async fn what_was_acknowledged_in_batches_survives_a_crash() {
    let data = tempfile::tempdir().unwrap();
    let mut stored: Vec<String> = Vec::new();
    for round in 0..3 {
        let node = Node::start(data.path(), &[WEB_SOCKETS]);
        let path = format!("producer/{TOPIC}?batchingEnabled=true&batchingMaxMessages=20");
        let mut producer = WebSocket::open(&node, &path).await;
        let (mut said, mut answered) = (0, 0);
        while answered < 300 {
            while said < answered + 100 {
                say(&mut producer, &format!("{round}-{said}"), &json!({})).await;
                said += 1;
            }
            stored.push(answer(&mut producer).await.0);
            answered += 1;
        }
        node.kill();
    }
    let node = Node::start(data.path(), &[WEB_SOCKETS]);
    let log = read_log(&node).await;
    let mut rest = log.iter().map(|message| message.text());
    for text in &stored {
        assert!(
            rest.any(|found| found == *text),
            "{text} was answered and is not there, or not in order"
        );
    }
    assert!(
        log.iter().any(|message| message.id.batch_index.is_some()),
        "no batches"
    );
}

#[tokio::test]
async fn what_is_not_acknowledged_in_time_comes_again() {
    let data = tempfile::tempdir().unwrap();
    let node = Node::start(data.path(), &[WEB_SOCKETS]);
    let path = format!("consumer/{TOPIC}/s?subscriptionType=Shared&ackTimeoutMillis=1000");
    let mut consumer = WebSocket::open(&node, &path).await;
    let mut producer = WebSocket::open(&node, &format!("producer/{TOPIC}")).await;
    producer.produce("late").await;
    producer.produce("in time").await;
    assert_eq!(consumer.receive().await.0, "late");
    assert_eq!(consumer.consume().await, "in time");
    let again = consumer.hear().await;
    assert_eq!(
        (text_of(&again).as_str(), &again["redeliveryCount"]),
        ("late", &json!(1))
    );
    consumer.say(&json!({"messageId": again["messageId"]})).await;
    until("both are acknowledged", || {
        (node.stats("t")["subscriptions"]["s"]["msgBacklog"] == 0).then_some(())
    })
    .await;
}
