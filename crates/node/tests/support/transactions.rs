//! Transactions as a client that knows the wire makes them.

use std::time::Duration;

use pharos_client::{Connection, Consumer, ConsumerOptions, Message, OutgoingMessage, Producer, earliest};
use pharos_types::TxnId;
use pharos_wire::ack::Ack;
use pharos_wire::command::Command;
use pharos_wire::proto::command_ack::AckType;
use pharos_wire::proto::{
    CommandAddPartitionToTxn, CommandAddSubscriptionToTxn, CommandEndTxn, CommandNewTxn, MessageIdData,
    ServerError, Subscription, TxnAction,
};

use super::receive;

/// A broker with transactions.
pub(crate) const ON: [&str; 5] = [
    "--transactions-enabled=true",
    "--transactions-coordinators",
    "4",
    "--cursor-flush-interval",
    "100ms",
];

/// Longer than what is to come takes to come, when it is wrong that it does.
pub(crate) const A_WHILE: Duration = Duration::from_millis(300);

/// A refusal, or none.
pub(crate) type Answer = Result<(), ServerError>;

pub(crate) fn answer_of(error: Option<i32>) -> Answer {
    match error {
        None => Ok(()),
        Some(code) => Err(ServerError::try_from(code).unwrap()),
    }
}

pub(crate) async fn begin(
    client: &Connection,
    coordinator: u64,
    timeout_ms: u64,
) -> Result<TxnId, ServerError> {
    let asked = client.request("NEW_TXN", |request_id| {
        Command::NewTxn(CommandNewTxn {
            request_id,
            txn_ttl_seconds: Some(timeout_ms),
            tc_id: Some(coordinator),
        })
    });
    match asked.await.unwrap() {
        Command::NewTxnResponse(response) => {
            answer_of(response.error)?;
            Ok(TxnId {
                most: response.txnid_most_bits(),
                least: response.txnid_least_bits(),
            })
        }
        Command::Error(error) => Err(error.error()),
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn add_topic(client: &Connection, txn: TxnId, topic: &str) -> Answer {
    let asked = client.request("ADD_PARTITION_TO_TXN", |request_id| {
        Command::AddPartitionToTxn(CommandAddPartitionToTxn {
            request_id,
            txnid_least_bits: Some(txn.least),
            txnid_most_bits: Some(txn.most),
            partitions: vec![topic.to_owned()],
        })
    });
    match asked.await.unwrap() {
        Command::AddPartitionToTxnResponse(response) => answer_of(response.error),
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn add_subscription(
    client: &Connection,
    txn: TxnId,
    topic: &str,
    subscription: &str,
) -> Answer {
    let asked = client.request("ADD_SUBSCRIPTION_TO_TXN", |request_id| {
        Command::AddSubscriptionToTxn(CommandAddSubscriptionToTxn {
            request_id,
            txnid_least_bits: Some(txn.least),
            txnid_most_bits: Some(txn.most),
            subscription: vec![Subscription {
                topic: topic.to_owned(),
                subscription: subscription.to_owned(),
            }],
        })
    });
    match asked.await.unwrap() {
        Command::AddSubscriptionToTxnResponse(response) => answer_of(response.error),
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn end(client: &Connection, txn: TxnId, action: TxnAction) -> Answer {
    let asked = client.request("END_TXN", |request_id| {
        Command::EndTxn(CommandEndTxn {
            request_id,
            txnid_least_bits: Some(txn.least),
            txnid_most_bits: Some(txn.most),
            txn_action: Some(action as i32),
        })
    });
    match asked.await.unwrap() {
        Command::EndTxnResponse(response) => answer_of(response.error),
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn ack(
    client: &Connection,
    consumer: &Consumer,
    txn: TxnId,
    kind: AckType,
    ids: Vec<MessageIdData>,
) -> Answer {
    let consumer_id = consumer.id();
    let asked = client.request("ACK", |request_id| {
        let ack = Ack::new(consumer_id, kind, ids);
        Command::Ack(Ack {
            txnid_least_bits: Some(txn.least),
            txnid_most_bits: Some(txn.most),
            request_id: Some(request_id),
            ..ack
        })
    });
    match asked.await.unwrap() {
        Command::AckResponse(response) => answer_of(response.error),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn in_txn(txn: TxnId, text: &str) -> OutgoingMessage {
    let mut message = OutgoingMessage::new(text.to_owned());
    message.metadata.txnid_least_bits = Some(txn.least);
    message.metadata.txnid_most_bits = Some(txn.most);
    message
}

pub(crate) async fn send_in(producer: &Producer, txn: TxnId, texts: &[&str]) {
    for text in texts {
        producer.send(in_txn(txn, text)).await.unwrap();
    }
}

pub(crate) async fn expect(consumer: &mut Consumer, texts: &[&str]) -> Vec<Message> {
    let mut messages = Vec::new();
    for text in texts {
        let message = receive(consumer).await;
        assert_eq!(message.text(), *text);
        messages.push(message);
    }
    messages
}

pub(crate) async fn expect_nothing(consumer: &mut Consumer) {
    let message = consumer.receive_within(A_WHILE).await.unwrap();
    let text = message.map(|message| message.text());
    assert_eq!(text, None, "nothing was to come");
}

/// Messages that a reader from the beginning receives.
pub(crate) async fn all_of(client: &Connection, topic: &str) -> Vec<String> {
    let options = ConsumerOptions::exclusive("looks").non_durable(earliest());
    let mut reader = client.subscribe(topic, options).await.unwrap();
    let last = reader.last_message_id().await.unwrap().last_message_id;
    let mut texts = Vec::new();
    if last.entry_id == u64::MAX {
        return texts;
    }
    loop {
        let message = receive(&mut reader).await;
        texts.push(message.text());
        if (message.id.ledger_id, message.id.entry_id) == (last.ledger_id, last.entry_id) {
            expect_nothing(&mut reader).await;
            reader.close().await.unwrap();
            return texts;
        }
    }
}
