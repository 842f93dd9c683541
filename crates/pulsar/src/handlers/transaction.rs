//! Transactions: TC_CLIENT_CONNECT, NEW_TXN, ADD_PARTITION_TO_TXN, ADD_SUBSCRIPTION_TO_TXN, END_TXN, and acknowledgements in them.

use std::rc::Rc;
use std::sync::Arc;

use pharos_broker::error::TxnAckError;
use pharos_broker::feed::OwnedAck;
use pharos_coordinators::{AddError, CalledTopic, Transactions, TxnError};
use pharos_topic::TxnAcks;
use pharos_types::{SubscriptionName, TopicName, TxnId, TxnOutcome};
use pharos_wire::Command;
use pharos_wire::ack::Ack;
use pharos_wire::answer::{self, Refusal};
use pharos_wire::proto::command_ack::AckType;
use pharos_wire::proto::{
    CommandAddPartitionToTxn, CommandAddPartitionToTxnResponse, CommandAddSubscriptionToTxn,
    CommandAddSubscriptionToTxnResponse, CommandEndTxn, CommandEndTxnResponse, CommandNewTxn,
    CommandNewTxnResponse, CommandTcClientConnectRequest, CommandTcClientConnectResponse, ServerError,
    TxnAction,
};

use super::consume::position_of;
use super::deny;
use crate::connection::Connection;
use crate::consumer::ConsumerSlot;
use crate::refusal;
use crate::requests::answer_later;

/// Returns the number of coordinators that clients may use, if this is the topic by which they are found, or a
/// partition of it.
pub(super) fn coordinators_at(connection: &Connection, topic: &TopicName) -> Option<u32> {
    let transactions = connection.server.transactions.as_ref().ok()?;
    transactions.found_at(topic)
}

/// Combines the two halves of a transaction id.
pub(super) fn txn_of(most: Option<u64>, least: Option<u64>) -> Option<TxnId> {
    most.zip(least).map(|(most, least)| TxnId { most, least })
}

/// Returns the transaction coordinators, or the refusal for clients if there are none.
pub(super) fn offered(connection: &Connection) -> Result<&Arc<Transactions>, Refusal> {
    let offered = connection.server.transactions.as_ref();
    offered.map_err(|why| Refusal::new(ServerError::NotAllowedError, *why))
}

/// Handles a command of transactions.
pub(super) fn handle(connection: &Rc<Connection>, command: Command) {
    let request_id = request_id_of(&command);
    let transactions = match offered(connection) {
        Ok(transactions) => transactions.clone(),
        Err(refusal) => return deny(connection, request_id, refusal),
    };
    match command {
        Command::TcClientConnectRequest(request) => connect(connection, &transactions, &request),
        Command::NewTxn(request) => begin(connection, transactions, request),
        Command::AddPartitionToTxn(request) => add_topics(connection, transactions, request),
        Command::AddSubscriptionToTxn(request) => add_subscriptions(connection, transactions, request),
        Command::EndTxn(request) => end(connection, transactions, request),
        _ => {
            let text = "only coordinators of transactions say that, and they are in this broker";
            let refusal = Refusal::new(ServerError::NotAllowedError, text);
            deny(connection, request_id, refusal);
        }
    }
}

fn request_id_of(command: &Command) -> u64 {
    match command {
        Command::TcClientConnectRequest(request) => request.request_id,
        Command::NewTxn(request) => request.request_id,
        Command::AddPartitionToTxn(request) => request.request_id,
        Command::AddSubscriptionToTxn(request) => request.request_id,
        Command::EndTxn(request) => request.request_id,
        Command::EndTxnOnPartition(request) => request.request_id,
        Command::EndTxnOnSubscription(request) => request.request_id,
        _ => 0,
    }
}

/// The role whose transactions these are.
fn owner_of(connection: &Connection) -> Option<Arc<str>> {
    connection.principal().role().cloned()
}

fn connect(connection: &Connection, transactions: &Transactions, request: &CommandTcClientConnectRequest) {
    let refusal = transactions.check_coordinator(request.tc_id).err();
    let (error, message) = parts(refusal.map(|error| of_txn(&error)));
    connection.send(&Command::TcClientConnectResponse(
        CommandTcClientConnectResponse {
            request_id: request.request_id,
            error,
            message,
        },
    ));
}

fn begin(connection: &Rc<Connection>, transactions: Arc<Transactions>, request: CommandNewTxn) {
    answer_later(connection, |connection| async move {
        let (coordinator, owner) = (request.tc_id(), owner_of(&connection));
        // Milliseconds, whatever the field is called.
        let begun = transactions
            .begin(coordinator, owner.as_deref(), request.txn_ttl_seconds())
            .await;
        let txn = begun.as_ref().ok().copied();
        let (error, message) = parts(begun.err().map(|error| of_txn(&error)));
        connection.send(&Command::NewTxnResponse(CommandNewTxnResponse {
            request_id: request.request_id,
            txnid_least_bits: txn.map(|txn| txn.least),
            txnid_most_bits: Some(txn.map_or(coordinator, |txn| txn.most)),
            error,
            message,
        }));
    });
}

fn add_topics(
    connection: &Rc<Connection>,
    transactions: Arc<Transactions>,
    request: CommandAddPartitionToTxn,
) {
    answer_later(connection, |connection| async move {
        let txn = whole(request.txnid_most_bits, request.txnid_least_bits);
        let who = connection.principal();
        let caller = connection.shard.caller(&who);
        let topics = request.partitions.iter().map(|name| {
            let topic = topic_of(name)?;
            let may = caller.add_topic_to_transaction(&topic.name);
            may.map_err(|denied| refusal::of_denied(&denied))?;
            Ok(topic)
        });
        let added = match topics.collect::<Result<Vec<CalledTopic>, Refusal>>() {
            Ok(topics) => {
                let owner = owner_of(&connection);
                let added = transactions.add(txn, owner.as_deref(), topics, Vec::new()).await;
                added.map_err(|error| of_add(&error))
            }
            Err(refusal) => Err(refusal),
        };
        let (error, message) = parts(added.err());
        let response = CommandAddPartitionToTxnResponse {
            request_id: request.request_id,
            txnid_least_bits: Some(txn.least),
            txnid_most_bits: Some(txn.most),
            error,
            message,
        };
        connection.send(&Command::AddPartitionToTxnResponse(response));
    });
}

fn add_subscriptions(
    connection: &Rc<Connection>,
    transactions: Arc<Transactions>,
    request: CommandAddSubscriptionToTxn,
) {
    answer_later(connection, |connection| async move {
        let txn = whole(request.txnid_most_bits, request.txnid_least_bits);
        let who = connection.principal();
        let caller = connection.shard.caller(&who);
        let subscriptions = request.subscription.iter().map(|found| {
            let topic = topic_of(&found.topic)?;
            let name = SubscriptionName::new(&found.subscription)
                .map_err(|error| Refusal::new(ServerError::MetadataError, error.to_string()))?;
            let may = caller.add_subscription_to_transaction(&topic.name, &name);
            may.map_err(|denied| refusal::of_denied(&denied))?;
            Ok((topic, name))
        });
        let added = match subscriptions.collect::<Result<Vec<_>, Refusal>>() {
            Ok(subscriptions) => {
                let owner = owner_of(&connection);
                let added = transactions
                    .add(txn, owner.as_deref(), Vec::new(), subscriptions)
                    .await;
                added.map_err(|error| of_add(&error))
            }
            Err(refusal) => Err(refusal),
        };
        let (error, message) = parts(added.err());
        let response = CommandAddSubscriptionToTxnResponse {
            request_id: request.request_id,
            txnid_least_bits: Some(txn.least),
            txnid_most_bits: Some(txn.most),
            error,
            message,
        };
        connection.send(&Command::AddSubscriptionToTxnResponse(response));
    });
}

fn end(connection: &Rc<Connection>, transactions: Arc<Transactions>, request: CommandEndTxn) {
    answer_later(connection, |connection| async move {
        let txn = whole(request.txnid_most_bits, request.txnid_least_bits);
        let outcome = match request.txn_action() {
            TxnAction::Commit => TxnOutcome::Committed,
            TxnAction::Abort => TxnOutcome::Aborted,
        };
        let owner = owner_of(&connection);
        let ended = transactions.end(txn, owner.as_deref(), outcome).await;
        let (error, message) = parts(ended.err().map(|error| of_txn(&error)));
        connection.send(&Command::EndTxnResponse(CommandEndTxnResponse {
            request_id: request.request_id,
            txnid_least_bits: Some(txn.least),
            txnid_most_bits: Some(txn.most),
            error,
            message,
        }));
    });
}

/// ACK in a transaction: it is durable, though not final, when it is answered.
pub(super) fn handle_ack(connection: &Rc<Connection>, ack: &Ack, txn: TxnId) {
    let (id, request_id) = (ack.consumer_id, ack.request_id);
    let answer = move |connection: &Connection, refusal: Option<Refusal>| {
        if let Some(request_id) = request_id {
            connection.send(&answer::ack_response(id, request_id, refusal));
        }
    };
    if let Err(refusal) = offered(connection) {
        return answer(connection, Some(refusal));
    }
    let Some((topic, key)) = (match connection.consumers.borrow().get(&id) {
        Some(ConsumerSlot::Ready(consumer)) => Some((consumer.topic, consumer.key)),
        _ => None,
    }) else {
        let text = "the consumer is gone: its acknowledgement is not in the transaction";
        return answer(
            connection,
            Some(Refusal::new(ServerError::ConsumerNotFound, text)),
        );
    };
    let acks = ack.message_ids.iter().map(|id| {
        let owned = OwnedAck {
            position: position_of(id.ledger_id, id.entry_id),
            remaining: id.ack_set.clone().into_boxed_slice(),
        };
        (
            owned,
            id.batch_size
                .and_then(|size| u32::try_from(size).ok())
                .unwrap_or(0),
        )
    });
    let acks = TxnAcks {
        txn,
        acks: acks.collect(),
        cumulative: ack.ack_type == AckType::Cumulative,
    };
    answer_later(connection, |connection| async move {
        let acked = connection.shard.ack_in_transaction(topic, key, acks).await;
        answer(&connection, acked.err().map(|error| of_ack(&error)));
    });
}

/// A half that is not said is 0.
fn whole(most: Option<u64>, least: Option<u64>) -> TxnId {
    TxnId {
        most: most.unwrap_or(0),
        least: least.unwrap_or(0),
    }
}

fn topic_of(called: &str) -> Result<CalledTopic, Refusal> {
    let parsed = called.parse::<TopicName>();
    let name = parsed.map_err(|error| Refusal::new(ServerError::InvalidTopicName, error.to_string()))?;
    let called = Box::from(called);
    Ok(CalledTopic { name, called })
}

/// As answers have a refusal.
fn parts(refusal: Option<Refusal>) -> (Option<i32>, Option<String>) {
    refusal
        .map(|refusal| (refusal.code as i32, refusal.message))
        .unzip()
}

fn of_txn(error: &TxnError) -> Refusal {
    let code = match error {
        TxnError::NotFound(_) => ServerError::TransactionNotFound,
        TxnError::Status { .. } => ServerError::InvalidTxnStatus,
        TxnError::NoCoordinator(_) => ServerError::TransactionCoordinatorNotFound,
        TxnError::TooMany { .. } | TxnError::TooManyOfRole { .. } => ServerError::TooManyRequests,
        TxnError::TooLong { .. } | TxnError::TooManyParticipants(_) => ServerError::NotAllowedError,
        TxnError::Log(_) => ServerError::PersistenceError,
    };
    Refusal::new(code, error.to_string())
}

fn of_add(error: &AddError) -> Refusal {
    match error {
        AddError::Txn(error) => of_txn(error),
        AddError::Topic(error) => refusal::of_topic(error),
    }
}

fn of_ack(error: &TxnAckError) -> Refusal {
    let code = match error {
        TxnAckError::Topic(error) => return refusal::of_topic(error),
        TxnAckError::NoConsumer => ServerError::ConsumerNotFound,
        TxnAckError::NotFound(_) => ServerError::TransactionNotFound,
        TxnAckError::Conflict(_) => ServerError::TransactionConflict,
        TxnAckError::NotAllowed(_) => ServerError::NotAllowedError,
        TxnAckError::Storage(_) => ServerError::PersistenceError,
    };
    Refusal::new(code, error.to_string())
}
