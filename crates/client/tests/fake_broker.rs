//! The client against a broker that a test plays by hand, so that every answer is chosen.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use std::time::Duration;

use bytes::Bytes;
use pharos_client::{
    ClientError, ConnectOptions, Connection, Consumer, ConsumerOptions, MessageId, OutgoingMessage, Producer,
    ProducerOptions, RawConnection,
};
use pharos_wire::command::Command;
use pharos_wire::frame::Frame;
use pharos_wire::message::{BatchBuilder, decode_metadata, encode_entry, split};
use pharos_wire::proto::command_ack::AckType;
use pharos_wire::proto::{self, MessageMetadata, ServerError, SingleMessageMetadata};
use pharos_wire::{NO_REQUEST_ID, request};

mod fake;
use fake::{accept, listen};

/// A broker's end of one connection.
struct Broker {
    raw: RawConnection,
}

impl Broker {
    /// The next frame that is not PONG.
    async fn frame(&mut self) -> Frame {
        loop {
            let frame = self.raw.read().await.unwrap().expect("the client has closed");
            if !matches!(frame.command, Command::Pong(_)) {
                return frame;
            }
        }
    }

    async fn command(&mut self) -> Command {
        self.frame().await.command
    }

    async fn say(&mut self, command: impl Into<Command>) {
        self.raw.send(command).await.unwrap();
    }

    async fn success(&mut self, request_id: u64) {
        self.say(proto::CommandSuccess {
            request_id,
            schema: None,
        })
        .await;
    }

    async fn refuse(&mut self, request_id: u64, code: ServerError) {
        self.say(proto::CommandError {
            request_id,
            error: code as i32,
            message: "no".into(),
        })
        .await;
    }

    async fn deliver(&mut self, consumer_id: u64, entry_id: u64, entry: &[u8], ack_set: &[i64]) {
        let message = proto::CommandMessage {
            consumer_id,
            message_id: id(entry_id),
            ack_set: ack_set.to_vec(),
            ..Default::default()
        };
        self.raw.send_with_payload(message, entry).await.unwrap();
    }

    async fn receipt(&mut self, producer_id: u64, sequence_id: u64, entry_id: u64) {
        self.say(proto::CommandSendReceipt {
            producer_id,
            sequence_id,
            message_id: Some(id(entry_id)),
            highest_sequence_id: None,
        })
        .await;
    }
}

fn id(entry_id: u64) -> MessageId {
    MessageId {
        ledger_id: 7,
        entry_id,
        ..Default::default()
    }
}

fn metadata() -> MessageMetadata {
    MessageMetadata {
        producer_name: "p".into(),
        publish_time: 1,
        ..Default::default()
    }
}

fn entry(text: &str) -> Bytes {
    encode_entry(&metadata(), text.as_bytes())
}

fn batch(texts: &[&str]) -> Bytes {
    let mut batch = BatchBuilder::new();
    for text in texts {
        batch.push(SingleMessageMetadata::default(), text.as_bytes());
    }
    let metadata = MessageMetadata {
        num_messages_in_batch: Some(batch.num_messages()),
        ..metadata()
    };
    encode_entry(&metadata, &batch.take())
}

async fn connect() -> (Connection, Broker) {
    let options = ConnectOptions::default().operation_timeout(Duration::from_secs(60));
    connect_with(options).await
}

async fn connect_with(options: ConnectOptions) -> (Connection, Broker) {
    let (listener, address) = listen().await;
    let (connection, broker) = tokio::join!(Connection::connect(&address, options), accept(&listener));
    let (raw, _) = broker;
    (connection.unwrap(), Broker { raw })
}

async fn make_producer(connection: &Connection, broker: &mut Broker) -> Producer {
    let options = ProducerOptions {
        lookup: false,
        max_pending: 2,
        ..ProducerOptions::default()
    };
    let play = async {
        let Command::Producer(asked) = broker.command().await else {
            panic!("not PRODUCER");
        };
        broker
            .say(proto::CommandProducerSuccess {
                request_id: asked.request_id,
                producer_name: "fake-1".into(),
                last_sequence_id: Some(4),
                ..Default::default()
            })
            .await;
    };
    tokio::join!(connection.producer("t", options), play).0.unwrap()
}

async fn subscribe(connection: &Connection, broker: &mut Broker, options: ConsumerOptions) -> Consumer {
    let mut options = options;
    options.lookup = false;
    let play = accept_subscribe(broker);
    tokio::join!(connection.subscribe("t", options), play).0.unwrap()
}

async fn accept_subscribe(broker: &mut Broker) {
    let Command::Subscribe(asked) = broker.command().await else {
        panic!("not SUBSCRIBE");
    };
    broker.success(asked.request_id).await;
}

async fn expect_flow(broker: &mut Broker, permits: u32) {
    match broker.command().await {
        Command::Flow(flow) => assert_eq!(flow.message_permits, permits),
        other => panic!("{other:?} instead of FLOW"),
    }
}

#[tokio::test]
async fn receipts_find_their_messages() {
    let (connection, mut broker) = connect().await;
    let producer = make_producer(&connection, &mut broker).await;
    assert_eq!(producer.name(), "fake-1");
    let first = producer.begin_send("a".into()).await.unwrap();
    let second = producer
        .begin_send(OutgoingMessage::new("b").key("k"))
        .await
        .unwrap();
    assert_eq!((first.sequence_id, second.sequence_id), (5, 6));
    let sent = broker.frame().await;
    let Command::Send(send) = &sent.command else {
        panic!("not SEND");
    };
    assert_eq!(send.sequence_id, 5);
    let parts = split(&sent.payload.unwrap()).unwrap();
    assert!(parts.verify_checksum());
    let metadata = decode_metadata(&parts.metadata).unwrap();
    assert_eq!(
        (metadata.producer_name.as_str(), &*parts.payload),
        ("fake-1", &b"a"[..])
    );
    broker.receipt(producer.id(), 5, 50).await;
    broker
        .say(proto::CommandSendError {
            producer_id: producer.id(),
            sequence_id: 6,
            error: ServerError::NotAllowedError as i32,
            message: "no".into(),
        })
        .await;
    assert_eq!(first.receipt().await.unwrap().message_id, id(50));
    let refused = second.receipt().await.unwrap_err();
    assert_eq!(refused.code(), Some(ServerError::NotAllowedError));
    assert!(matches!(
        producer.send(vec![0; 20_000]).await,
        Err(ClientError::TooLarge { .. })
    ));
}

#[tokio::test]
async fn sends_wait_for_receipts_beyond_the_limit() {
    let (connection, mut broker) = connect().await;
    let producer = make_producer(&connection, &mut broker).await;
    let first = producer.begin_send("a".into()).await.unwrap();
    let _second = producer.begin_send("b".into()).await.unwrap();
    let mut third = Box::pin(producer.begin_send("c".into()));
    tokio::select! {
        biased;
        _ = &mut third => panic!("sent beyond max_pending"),
        () = std::future::ready(()) => {}
    }
    broker.receipt(producer.id(), 5, 0).await;
    first.receipt().await.unwrap();
    assert_eq!(third.await.unwrap().sequence_id, 7);
}

#[tokio::test]
async fn a_batch_is_one_send() {
    let (connection, mut broker) = connect().await;
    let producer = make_producer(&connection, &mut broker).await;
    let messages = vec!["a".into(), "b".into(), "c".into()];
    let pending = producer.begin_send_batch(messages).await.unwrap();
    let Command::Send(send) = broker.command().await else {
        panic!("not SEND");
    };
    assert_eq!(send.num_messages, Some(3));
    assert_eq!((send.sequence_id, send.highest_sequence_id), (5, Some(7)));
    broker.receipt(producer.id(), 5, 1).await;
    pending.receipt().await.unwrap();
    assert_eq!(producer.begin_send("d".into()).await.unwrap().sequence_id, 8);
}

#[tokio::test]
async fn messages_come_batches_apart_and_permits_go_back() {
    let (connection, mut broker) = connect().await;
    let options = ConsumerOptions::shared("s").receiver_queue_size(4);
    let mut consumer = subscribe(&connection, &mut broker, options).await;
    expect_flow(&mut broker, 4).await;
    broker.deliver(consumer.id(), 0, &entry("a"), &[]).await;
    broker
        .deliver(consumer.id(), 1, &batch(&["b", "gone", "c"]), &[0b101])
        .await;
    let mut texts = Vec::new();
    let mut indexes = Vec::new();
    for _ in 0..3 {
        let message = consumer.receive().await.unwrap();
        texts.push(message.text());
        indexes.push(message.id.batch_index);
    }
    assert_eq!(texts, ["a", "b", "c"]);
    assert_eq!(indexes, [None, Some(0), Some(2)]);
    // Two of four were received before the third was asked for.
    expect_flow(&mut broker, 2).await;
}

#[tokio::test]
async fn a_queue_of_one_goes_on() {
    let (connection, mut broker) = connect().await;
    let options = ConsumerOptions::shared("s").receiver_queue_size(1);
    let mut consumer = subscribe(&connection, &mut broker, options).await;
    for entry_id in 0..3 {
        let play = async {
            expect_flow(&mut broker, 1).await;
            broker.deliver(0, entry_id, &entry("a"), &[]).await;
        };
        assert_eq!(consumer.id(), 0);
        let (message, ()) = tokio::join!(consumer.receive(), play);
        assert_eq!(message.unwrap().id.entry_id, entry_id);
    }
}

#[tokio::test]
async fn acks_of_batches_are_held_back_or_told_by_index() {
    let (connection, mut broker) = connect().await;
    let plain = ConsumerOptions::shared("s").receiver_queue_size(0);
    let mut whole = subscribe(&connection, &mut broker, plain.clone()).await;
    let mut parts = subscribe(&connection, &mut broker, plain.batch_index_ack()).await;
    let member = |index| MessageId {
        batch_index: Some(index),
        batch_size: Some(2),
        ..id(3)
    };
    whole.ack(&member(0)).await.unwrap();
    parts.ack(&member(0)).await.unwrap();
    whole.ack(&member(1)).await.unwrap();
    let mut sets = Vec::new();
    for _ in 0..2 {
        let Command::Ack(ack) = broker.command().await else {
            panic!("not ACK");
        };
        sets.push((ack.consumer_id, ack.message_ids.first().unwrap().ack_set.clone()));
    }
    assert_eq!(sets, [(parts.id(), vec![0b10]), (whole.id(), vec![])]);
}

#[tokio::test]
async fn an_ack_may_wait_for_its_answer() {
    let (connection, mut broker) = connect().await;
    let options = ConsumerOptions::shared("s").receiver_queue_size(0);
    let consumer = subscribe(&connection, &mut broker, options).await;
    let play = async {
        let Command::Ack(ack) = broker.command().await else {
            panic!("not ACK");
        };
        broker
            .say(proto::CommandAckResponse {
                consumer_id: ack.consumer_id,
                request_id: ack.request_id,
                ..Default::default()
            })
            .await;
    };
    let (outcome, ()) = tokio::join!(consumer.ack_and_wait(AckType::Individual, id(1)), play);
    outcome.unwrap();
}

#[tokio::test]
async fn seeking_subscribes_again_when_the_broker_closed_the_consumer() {
    let (connection, mut broker) = connect().await;
    let options = ConsumerOptions::shared("s").receiver_queue_size(10);
    let mut consumer = subscribe(&connection, &mut broker, options).await;
    expect_flow(&mut broker, 10).await;
    let consumer_id = consumer.id();
    let play = async {
        broker.deliver(consumer_id, 5, &entry("old"), &[]).await;
        let Command::Seek(seek) = broker.command().await else {
            panic!("not SEEK");
        };
        broker
            .say(proto::CommandCloseConsumer {
                consumer_id,
                request_id: NO_REQUEST_ID,
                ..Default::default()
            })
            .await;
        broker.success(seek.request_id).await;
        accept_subscribe(&mut broker).await;
        expect_flow(&mut broker, 10).await;
        broker.deliver(consumer_id, 0, &entry("new"), &[]).await;
    };
    let (outcome, ()) = tokio::join!(consumer.seek(id(0)), play);
    outcome.unwrap();
    assert_eq!(consumer.receive().await.unwrap().text(), "new");
}

#[tokio::test]
async fn what_the_broker_closes_says_so() {
    let (connection, mut broker) = connect().await;
    let options = ConsumerOptions::failover("s").receiver_queue_size(0);
    let mut consumer = subscribe(&connection, &mut broker, options).await;
    let producer = make_producer(&connection, &mut broker).await;
    let pending = producer.begin_send("a".into()).await.unwrap();
    broker
        .say(proto::CommandActiveConsumerChange {
            consumer_id: consumer.id(),
            is_active: Some(true),
        })
        .await;
    broker.deliver(consumer.id(), 0, &entry("a"), &[]).await;
    broker
        .say(proto::CommandCloseConsumer {
            consumer_id: consumer.id(),
            request_id: NO_REQUEST_ID,
            ..Default::default()
        })
        .await;
    broker
        .say(proto::CommandCloseProducer {
            producer_id: producer.id(),
            request_id: NO_REQUEST_ID,
            ..Default::default()
        })
        .await;
    assert_eq!(consumer.receive().await.unwrap().text(), "a");
    assert_eq!(consumer.is_active(), Some(true));
    for _ in 0..2 {
        assert!(matches!(
            consumer.receive().await,
            Err(ClientError::ClosedByBroker)
        ));
    }
    assert!(matches!(
        pending.receipt().await,
        Err(ClientError::ClosedByBroker)
    ));
    assert!(matches!(
        producer.send("b").await,
        Err(ClientError::ClosedByBroker)
    ));
}

#[tokio::test]
async fn when_the_connection_ends_everything_does() {
    let (connection, mut broker) = connect().await;
    let options = ConsumerOptions::shared("s").receiver_queue_size(0);
    let mut consumer = subscribe(&connection, &mut broker, options).await;
    let producer = make_producer(&connection, &mut broker).await;
    let pending = producer.begin_send("a".into()).await.unwrap();
    let play = async {
        while !matches!(broker.command().await, Command::Lookup(_)) {}
        drop(broker);
    };
    let (looked_up, ()) = tokio::join!(connection.lookup("t"), play);
    let is_over = |error: ClientError| matches!(error, ClientError::Disconnected { .. });
    assert!(is_over(looked_up.unwrap_err()));
    assert!(is_over(pending.receipt().await.unwrap_err()));
    assert!(is_over(consumer.receive().await.unwrap_err()));
    assert!(is_over(producer.send("b").await.unwrap_err()));
    assert!(is_over(connection.partitions("t").await.unwrap_err()));
    assert!(connection.end_reason().is_some());
}

#[tokio::test]
async fn dropping_closes() {
    let (connection, mut broker) = connect().await;
    let options = ConsumerOptions::shared("s").receiver_queue_size(0);
    let consumer = subscribe(&connection, &mut broker, options).await;
    let producer = make_producer(&connection, &mut broker).await;
    drop(consumer);
    assert!(matches!(broker.command().await, Command::CloseConsumer(_)));
    drop(connection);
    drop(producer);
    assert!(matches!(broker.command().await, Command::CloseProducer(_)));
    assert_eq!(broker.raw.read().await.unwrap(), None);
}

#[tokio::test]
async fn a_refused_request_carries_the_code_and_leaves_nothing() {
    let (connection, mut broker) = connect().await;
    let mut options = ConsumerOptions::exclusive("s");
    options.lookup = false;
    let play = async {
        let Command::Subscribe(asked) = broker.command().await else {
            panic!("not SUBSCRIBE");
        };
        broker.refuse(asked.request_id, ServerError::ConsumerBusy).await;
    };
    let (outcome, ()) = tokio::join!(connection.subscribe("t", options), play);
    assert_eq!(outcome.unwrap_err().code(), Some(ServerError::ConsumerBusy));
    // The next thing that the broker hears is the next request, no CLOSE_CONSUMER.
    connection.send(request::flow(9, 1)).await.unwrap();
    expect_flow(&mut broker, 1).await;
}

#[tokio::test]
async fn pings_are_answered_and_silence_runs_out() {
    let limit = Duration::from_millis(50);
    let (connection, mut broker) = connect_with(ConnectOptions::default().operation_timeout(limit)).await;
    broker.say(request::ping()).await;
    assert!(matches!(
        broker.raw.read().await.unwrap().unwrap().command,
        Command::Pong(_)
    ));
    assert!(matches!(
        connection.lookup("t").await,
        Err(ClientError::TimedOut { what: "LOOKUP" })
    ));
}

#[tokio::test]
async fn an_error_about_the_connection_ends_it() {
    let (connection, mut broker) = connect().await;
    broker
        .refuse(NO_REQUEST_ID, ServerError::AuthenticationError)
        .await;
    let (outcome, _) = tokio::join!(connection.lookup("t"), broker.command());
    assert_eq!(
        outcome.unwrap_err().code(),
        Some(ServerError::AuthenticationError)
    );
}

#[tokio::test]
async fn a_reader_begins_within_a_batch() {
    let (connection, mut broker) = connect().await;
    let mut options = ConsumerOptions::exclusive("r").receiver_queue_size(0);
    options.lookup = false;
    let start = MessageId {
        batch_index: Some(0),
        batch_size: Some(2),
        ..id(4)
    };
    let play = async {
        let begin = start.clone();
        let Command::Subscribe(asked) = broker.command().await else {
            panic!("not SUBSCRIBE");
        };
        assert_eq!(
            (asked.durable, asked.start_message_id.clone()),
            (Some(false), Some(begin))
        );
        broker.success(asked.request_id).await;
        broker
            .deliver(asked.consumer_id, 4, &batch(&["a", "b"]), &[])
            .await;
    };
    let (reader, ()) = tokio::join!(connection.reader_with("t", start.clone(), options), play);
    let mut reader = reader.unwrap();
    assert_eq!(reader.next().await.unwrap().text(), "b");
    for (last, expected) in [(id(4), false), (id(5), true), (id(u64::MAX), false)] {
        let play = async {
            let Command::GetLastMessageId(asked) = broker.command().await else {
                panic!("not GET_LAST_MESSAGE_ID");
            };
            broker
                .say(proto::CommandGetLastMessageIdResponse {
                    request_id: asked.request_id,
                    last_message_id: MessageId {
                        batch_index: (last.entry_id == 4).then_some(1),
                        ..last
                    },
                    consumer_mark_delete_position: None,
                })
                .await;
        };
        let (has_next, ()) = tokio::join!(reader.has_next(), play);
        assert_eq!(has_next.unwrap(), expected);
    }
}

#[tokio::test]
async fn addresses_are_checked_before_they_are_used() {
    for address in ["", "host", "pulsar://host", "http://host:6651", "host:port"] {
        assert!(
            matches!(
                RawConnection::connect(address).await,
                Err(ClientError::Address(_))
            ),
            "{address}"
        );
    }
}
