//! Producers, consumers and readers by WebSocket: they do what those of the Pulsar protocol do, and with them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pharos_client::{ConsumerOptions, OutgoingMessage, ProducerOptions};
use pharos_wire::proto::CompressionType;
use serde_json::json;
use tokio_tungstenite::tungstenite::Message;

use crate::support::web_socket::{UPGRADE, WEB_SOCKETS, WebSocket, text_of};
use crate::support::{Node, figure, read_log, soon, until};

const TOPIC: &str = "persistent/public/default/t";

#[tokio::test]
async fn messages_cross_between_websockets_and_the_pulsar_protocol() {
    let data = tempfile::tempdir().unwrap();
    let node = Node::start(data.path(), &[WEB_SOCKETS]);
    let client = node.client().await;
    let mut binary = client
        .subscribe("t", ConsumerOptions::shared("binary"))
        .await
        .unwrap();
    let mut text = WebSocket::open(&node, &format!("consumer/{TOPIC}/text?subscriptionType=Shared")).await;
    let mut producer = WebSocket::open(
        &node,
        &format!("producer/{TOPIC}?producerName=car&compressionType=LZ4"),
    )
    .await;
    let message = json!({
        "payload": STANDARD.encode("from a websocket"),
        "key": "k",
        "properties": {"a": "b"},
        "eventTime": "2023-11-14T22:13:20Z",
        "context": "c-1",
    });
    producer.say(&message).await;
    let answer = producer.hear().await;
    assert_eq!(
        (&answer["result"], &answer["context"]),
        (&json!("ok"), &json!("c-1"))
    );

    let received = soon("a message", binary.receive()).await.unwrap();
    assert_eq!(received.metadata.compression(), CompressionType::Lz4);
    assert_eq!(
        (received.key(), received.metadata.event_time),
        (Some("k"), Some(1_700_000_000_000))
    );
    assert_eq!(
        (
            received.properties()["a"],
            received.metadata.producer_name.as_str()
        ),
        ("b", "car")
    );
    let heard = text.hear().await;
    assert_eq!(text_of(&heard), "from a websocket");
    assert_eq!(heard["messageId"], answer["messageId"]);
    assert_eq!(
        (&heard["key"], &heard["properties"]["a"]),
        (&json!("k"), &json!("b"))
    );
    assert_eq!(
        (&heard["eventTime"], &heard["redeliveryCount"]),
        (&json!("2023-11-14T22:13:20.000Z"), &json!(0))
    );
    text.say(&json!({"messageId": heard["messageId"]})).await;

    // A batch, and a compressed batch, come as their messages.
    let sender = client.producer("t", ProducerOptions::default()).await.unwrap();
    sender
        .send_batch(vec![OutgoingMessage::new("one"), OutgoingMessage::new("two")])
        .await
        .unwrap();
    assert_eq!(
        (text.consume().await, text.consume().await),
        ("one".to_owned(), "two".to_owned())
    );
    let stats = until("everything is acknowledged", || {
        let stats = node.stats("t");
        (stats["subscriptions"]["text"]["msgBacklog"] == 0).then_some(stats)
    });
    let stats = stats.await;
    assert_eq!(stats["subscriptions"]["text"]["unackedMessages"], 0);
    text.close().await;
    producer.close().await;
    until("they are gone", || {
        (node.stats("t")["publishers"].as_array().unwrap().len() == 1).then_some(())
    })
    .await;
}

#[tokio::test]
async fn what_is_not_acknowledged_is_bounded_and_comes_again() {
    let data = tempfile::tempdir().unwrap();
    let node = Node::start(data.path(), &[WEB_SOCKETS]);
    let path = format!(
        "consumer/{TOPIC}/s?subscriptionType=Shared&receiverQueueSize=2&negativeAckRedeliveryDelay=1"
    );
    let mut consumer = WebSocket::open(&node, &path).await;
    let mut producer = WebSocket::open(&node, &format!("producer/{TOPIC}")).await;
    for text in ["a", "b", "c", "d"] {
        producer.produce(text).await;
    }
    let (first, first_id) = consumer.receive().await;
    let (second, _) = consumer.receive().await;
    assert_eq!((first.as_str(), second.as_str()), ("a", "b"));
    let question = json!({"type": "isEndOfTopic"});
    assert_eq!(
        consumer.hears_nothing_before(&question).await,
        json!({"endOfTopic": false})
    );
    assert_eq!(node.stats("t")["subscriptions"]["s"]["unackedMessages"], 2);
    // One that is given back makes room, and comes again.
    consumer
        .say(&json!({"type": "negativeAcknowledge", "messageId": first_id}))
        .await;
    let third = consumer.consume().await;
    let mut rest = Vec::new();
    while rest.len() < 2 {
        let message = consumer.hear().await;
        consumer.say(&json!({"messageId": message["messageId"]})).await;
        rest.push((text_of(&message), message["redeliveryCount"].as_u64().unwrap()));
    }
    rest.sort();
    assert_eq!(
        (third.as_str(), rest),
        ("c", vec![("a".to_owned(), 1), ("d".to_owned(), 0)])
    );
    // "b" was never acknowledged: the next session gets it.
    consumer.close().await;
    let mut next = WebSocket::open(&node, &path).await;
    assert_eq!(next.consume().await, "b");
}

#[tokio::test]
async fn a_consumer_that_pulls_gets_what_it_permits() {
    let data = tempfile::tempdir().unwrap();
    let node = Node::start(data.path(), &[WEB_SOCKETS]);
    let path = format!("consumer/{TOPIC}/s?pullMode=true&subscriptionInitialPosition=Earliest");
    let mut producer = WebSocket::open(&node, &format!("producer/{TOPIC}")).await;
    for text in ["a", "b", "c"] {
        producer.produce(text).await;
    }
    let mut consumer = WebSocket::open(&node, &path).await;
    let question = json!({"type": "isEndOfTopic"});
    assert_eq!(
        consumer.hears_nothing_before(&question).await,
        json!({"endOfTopic": false})
    );
    consumer
        .say(&json!({"type": "permit", "permitMessages": 2}))
        .await;
    assert_eq!(
        (consumer.consume().await, consumer.consume().await),
        ("a".to_owned(), "b".to_owned())
    );
    assert_eq!(
        consumer.hears_nothing_before(&question).await,
        json!({"endOfTopic": false})
    );
    consumer
        .say(&json!({"type": "permit", "permitMessages": 5}))
        .await;
    assert_eq!(consumer.consume().await, "c");
    node.order("POST", "/admin/v2/persistent/public/default/t/terminate", "");
    loop {
        if consumer.hears_nothing_before(&question).await == json!({"endOfTopic": true}) {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    producer.say(&json!({"payload": ""})).await;
    let answer = producer.hear().await;
    assert!(
        answer["result"].as_str().unwrap().starts_with("send-error:"),
        "{answer}"
    );
}

#[tokio::test]
async fn every_kind_of_subscription_is_there() {
    let data = tempfile::tempdir().unwrap();
    let node = Node::start(data.path(), &[WEB_SOCKETS]);
    let mut producer = WebSocket::open(&node, &format!("producer/{TOPIC}")).await;
    for kind in ["Exclusive", "Shared", "Failover", "Key_Shared"] {
        let path = format!("consumer/{TOPIC}/{kind}?subscriptionType={kind}&consumerName=c");
        let mut consumer = WebSocket::open(&node, &path).await;
        producer.produce(kind).await;
        assert_eq!(consumer.consume().await, kind);
        assert_eq!(node.stats("t")["subscriptions"][kind]["type"], kind);
        if kind == "Exclusive" {
            let (status, _) = WebSocket::try_open(&node, &path, UPGRADE).await.err().unwrap();
            assert_eq!(status, 409);
        }
        consumer.say(&json!({"type": "unsubscribe"})).await;
        assert_eq!(consumer.goodbye().await.0, 1000);
        assert!(node.stats("t")["subscriptions"][kind].is_null());
    }
    // A broadcast consumer's name is its place.
    let path = |name: &str| format!("consumer/{TOPIC}/all?subscriptionType=Broadcast&consumerName={name}");
    let (mut ann, mut bob) = (
        WebSocket::open(&node, &path("ann")).await,
        WebSocket::open(&node, &path("bob")).await,
    );
    producer.produce("x").await;
    assert_eq!(
        (ann.consume().await, bob.receive().await.0),
        ("x".to_owned(), "x".to_owned())
    );
    ann.close().await;
    bob.close().await;
    producer.produce("y").await;
    let (mut ann, mut bob) = (
        WebSocket::open(&node, &path("ann")).await,
        WebSocket::open(&node, &path("bob")).await,
    );
    assert_eq!(
        (ann.consume().await, bob.consume().await, bob.consume().await),
        ("y".to_owned(), "x".to_owned(), "y".to_owned())
    );
}

#[tokio::test]
async fn a_reader_begins_where_it_is_told() {
    let data = tempfile::tempdir().unwrap();
    let node = Node::start(data.path(), &[WEB_SOCKETS]);
    let mut producer = WebSocket::open(&node, &format!("producer/{TOPIC}")).await;
    let mut ids = Vec::new();
    for text in ["a", "b", "c"] {
        ids.push(producer.produce(text).await);
    }
    let mut all = WebSocket::open(
        &node,
        &format!("reader/{TOPIC}?messageId=earliest&receiverQueueSize=1"),
    )
    .await;
    assert_eq!(
        (all.consume().await, all.consume().await, all.consume().await),
        ("a".to_owned(), "b".to_owned(), "c".to_owned())
    );
    let after = ids[0].replace('=', "%3D").replace('+', "%2B").replace('/', "%2F");
    let mut some = WebSocket::open(&node, &format!("reader/{TOPIC}?messageId={after}&readerName=r")).await;
    assert_eq!(some.consume().await, "b");
    let mut new = WebSocket::open(&node, &format!("reader/{TOPIC}")).await;
    producer.produce("d").await;
    assert_eq!(new.consume().await, "d");
    new.close().await;
    // Nothing of a reader stays.
    all.close().await;
    some.close().await;
    until("they leave nothing behind", || {
        node.stats("t")["subscriptions"]
            .as_object()
            .unwrap()
            .is_empty()
            .then_some(())
    })
    .await;
}

#[tokio::test]
async fn partitions_are_one_topic_and_other_topics_forget() {
    let data = tempfile::tempdir().unwrap();
    let node = Node::start(data.path(), &[WEB_SOCKETS]);
    node.order("PUT", "/admin/v2/persistent/public/default/p/partitions", "3");
    let path = "persistent/public/default/p";
    let mut consumer = WebSocket::open(&node, &format!("consumer/{path}/s?receiverQueueSize=4")).await;
    let mut producer = WebSocket::open(&node, &format!("producer/{path}")).await;
    let mut sent: Vec<String> = (0..12).map(|n| n.to_string()).collect();
    for text in &sent {
        producer.produce(text).await;
    }
    let mut received = Vec::new();
    for _ in &sent {
        received.push(consumer.consume().await);
    }
    received.sort();
    sent.sort();
    assert_eq!(received, sent);
    until("all partitions have some, all acknowledged", || {
        let parts = (0..3).map(|part| node.stats(&format!("p-partition-{part}")));
        let mut done =
            parts.map(|stats| stats["msgInCounter"] == 4 && stats["subscriptions"]["s"]["msgBacklog"] == 0);
        done.all(|it| it).then_some(())
    })
    .await;
    let path = "non-persistent/public/default/n";
    let mut consumer = WebSocket::open(&node, &format!("consumer/{path}/s")).await;
    let mut producer = WebSocket::open(&node, &format!("producer/{path}")).await;
    // Until the consumer has given its permits, what is sent is forgotten.
    let heard = async {
        loop {
            producer.produce("x").await;
            if let Ok(text) =
                tokio::time::timeout(std::time::Duration::from_millis(50), consumer.consume()).await
            {
                return text;
            }
        }
    };
    assert_eq!(soon("a message", heard).await, "x");
}

#[tokio::test]
async fn bad_input_is_answered_and_the_broker_goes_on() {
    let data = tempfile::tempdir().unwrap();
    let mut node = Node::start(
        data.path(),
        &[WEB_SOCKETS, "--web-socket-max-text-frame-size", "10KiB"],
    );
    let mut producer = WebSocket::open(&node, &format!("producer/{TOPIC}")).await;
    for (text, result) in [
        ("{", "send-error:3"),
        ("[]", "send-error:3"),
        (r#"{"payload":5}"#, "send-error:7"),
        (r#"{"properties":{}}"#, "send-error:7"),
        (r#"{"payload":"","sequenceId":"x"}"#, "send-error:3"),
        (r#"{"payload":"%%%"}"#, "send-error:7"),
        (r#"{"payload":"","eventTime":"yesterday"}"#, "send-error:7"),
        (r#"{"payload":"","encryptionParam":"x"}"#, "send-error:3"),
    ] {
        producer.say_raw(Message::text(text)).await;
        let answer = producer.hear().await;
        assert_eq!(answer["result"], result, "{text}: {answer}");
    }
    producer.produce("still here").await;
    producer.say_raw(Message::text("x".repeat(20_000))).await;
    assert_eq!(producer.goodbye().await.0, 1009);

    let code = async |frame: Message| {
        let mut consumer = WebSocket::open(&node, &format!("consumer/{TOPIC}/s")).await;
        consumer.say_raw(frame).await;
        let code = consumer.goodbye().await.0;
        consumer.close_quietly().await;
        code
    };
    assert_eq!(code(Message::text("{")).await, 1007);
    assert_eq!(code(Message::text(r#"{"messageId":"%%"}"#)).await, 1007);
    assert_eq!(code(Message::text(r#"{"type":"fly"}"#)).await, 1007);
    assert_eq!(code(Message::binary(vec![1_u8])).await, 1003);
    // An id in a batch of two thousand million, of no message that was given.
    let mut consumer = WebSocket::open(
        &node,
        &format!("consumer/{TOPIC}/s?subscriptionInitialPosition=Earliest"),
    )
    .await;
    consumer.say(&json!({"messageId": "CAEQASABMP////8H"})).await;
    consumer
        .say(&json!({"messageId": "CP///////////wEQ////////////AQ=="}))
        .await;
    let question = json!({"type": "isEndOfTopic"});
    assert_eq!(
        consumer.hears_nothing_before(&question).await,
        json!({"endOfTopic": false})
    );

    for (path, headers, status) in [
        ("producer/persistent/public/default", UPGRADE, 404),
        ("producer/persistent/public/default/%FF", UPGRADE, 400),
        ("producer/persistent/public/default/t?hello=1", UPGRADE, 400),
        (
            "producer/persistent/public/default/t?batchingMaxMessages=5",
            UPGRADE,
            400,
        ),
        (
            "producer/persistent/public/default/t?compressionType=ZIP",
            UPGRADE,
            400,
        ),
        ("producer/persistent/public/nowhere/t", UPGRADE, 404),
        (
            "consumer/persistent/public/default/t/s?receiverQueueSize=0",
            UPGRADE,
            400,
        ),
        (
            "consumer/persistent/public/default/t/s?maxRedeliverCount=3",
            UPGRADE,
            400,
        ),
        (
            "producer/persistent/public/default/t?encryptionKeys=x",
            UPGRADE,
            501,
        ),
        ("reader/persistent/public/default/t?messageId=x", UPGRADE, 400),
        ("reader/persistent/public/default/t", "Connection: close\n", 426),
        (
            "reader/persistent/public/default/t",
            "Connection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Version: 7\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\n",
            426,
        ),
        (
            "reader/persistent/public/default/t",
            "Connection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Version: 13\nSec-WebSocket-Key: x\n",
            400,
        ),
    ] {
        let (found, body) = WebSocket::try_open(&node, path, headers).await.err().unwrap();
        assert_eq!(found, status, "{path}: {body}");
        assert!(body.contains("reason"), "{path}: {body}");
    }
    node.assert_alive();
}

#[tokio::test]
async fn without_the_setting_there_is_nothing_and_a_stop_says_goodbye() {
    let data = tempfile::tempdir().unwrap();
    let node = Node::start(data.path(), &[]);
    let (status, _) = WebSocket::try_open(&node, &format!("producer/{TOPIC}"), UPGRADE)
        .await
        .err()
        .unwrap();
    assert_eq!(status, 404);
    assert!(node.stop().success());
    let settings = [
        WEB_SOCKETS,
        "--web-socket-max-sessions",
        "2",
        "--web-socket-ping-interval",
        "100ms",
    ];
    let node = Node::start(data.path(), &settings);
    let mut first = WebSocket::open(&node, &format!("producer/{TOPIC}")).await;
    let mut second = WebSocket::open(&node, &format!("reader/{TOPIC}")).await;
    let (status, body) = WebSocket::try_open(&node, &format!("reader/{TOPIC}"), UPGRADE)
        .await
        .err()
        .unwrap();
    assert_eq!(status, 503, "{body}");
    assert!(matches!(second.hear_raw().await, Message::Ping(_)));
    let stopping = tokio::task::spawn_blocking(move || node.stop());
    assert_eq!((first.goodbye().await.0, second.goodbye().await.0), (1001, 1001));
    assert!(stopping.await.unwrap().success());
}

#[tokio::test]
async fn a_silent_client_is_closed() {
    let data = tempfile::tempdir().unwrap();
    let node = Node::start(
        data.path(),
        &[WEB_SOCKETS, "--web-socket-session-idle-timeout", "300ms"],
    );
    let mut silent = WebSocket::open(&node, &format!("reader/{TOPIC}")).await;
    let (code, reason) = silent.goodbye().await;
    assert_eq!(code, 1001);
    assert!(reason.contains("web_socket.session_idle_timeout"), "{reason}");
}

/// Readers that read nothing hold no more than the account of unwritten bytes allows, and one that reads gets everything meanwhile.
#[tokio::test]
async fn readers_that_read_nothing_are_closed_when_memory_is_short() {
    let data = tempfile::tempdir().unwrap();
    let node = Node::start(data.path(), &[WEB_SOCKETS, "--max-unwritten-size", "4MiB"]);
    let client = node.client().await;
    let producer = client.producer("t", ProducerOptions::default()).await.unwrap();
    // Larger in all than what the system keeps of a socket.
    let payload = "x".repeat(1 << 20);
    for _ in 0..8 {
        producer
            .send(OutgoingMessage::new(payload.clone()))
            .await
            .unwrap();
    }
    let path = format!("reader/{TOPIC}?messageId=earliest");
    let mut silent = Vec::new();
    for _ in 0..10 {
        silent.push(WebSocket::open(&node, &path).await);
    }
    let mut reader = WebSocket::open(&node, &path).await;
    for _ in 0..8 {
        let (text, id) = reader.receive().await;
        assert_eq!(text.len(), payload.len());
        reader.say(&json!({"messageId": id})).await;
    }
    // Two at most of those that do not read fit into half of the account, in JSON.
    let closed = until("silent readers are closed", || {
        let page = node.call("GET", "/metrics", "").1;
        let closed = figure(&page, "pharos_websocket_stalled_sessions_total", None);
        (closed >= 8).then_some(closed)
    });
    assert!(closed.await <= 10);
    drop(silent);
}

/// Messages answered "ok" survive a crash, in order and once.
#[tokio::test]
async fn what_was_acknowledged_by_websocket_survives_a_crash() {
    let data = tempfile::tempdir().unwrap();
    let mut stored: Vec<String> = Vec::new();
    for round in 0..3 {
        let node = Node::start(data.path(), &[WEB_SOCKETS]);
        let mut producer = WebSocket::open(&node, &format!("producer/{TOPIC}")).await;
        let mut said = 0;
        let mut answered = 0;
        while answered < 200 {
            while said < answered + 50 {
                let text = format!("{round}-{said}");
                producer
                    .say(&json!({"payload": STANDARD.encode(&text), "context": text}))
                    .await;
                said += 1;
            }
            let answer = producer.hear().await;
            assert_eq!(answer["result"], "ok", "{answer}");
            stored.push(answer["context"].as_str().unwrap().to_owned());
            answered += 1;
        }
        node.kill();
    }
    let node = Node::start(data.path(), &[WEB_SOCKETS]);
    let there: Vec<String> = read_log(&node)
        .await
        .iter()
        .map(|message| message.text())
        .collect();
    // Between them may be some that were stored and not answered.
    let mut rest = there.iter();
    for text in &stored {
        assert!(
            rest.any(|found| found == text),
            "{text} was answered and is not there, or not in order"
        );
    }
    let mut reader = WebSocket::open(&node, &format!("reader/{TOPIC}?messageId=earliest")).await;
    for text in &there {
        assert_eq!(reader.consume().await, *text);
    }
}
