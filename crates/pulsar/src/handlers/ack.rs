//! ACK and REDELIVER.

use std::rc::Rc;

use pharos_broker::feed;
use pharos_runtime::{clock, spawn_local};
use pharos_topic::SubscriptionType;
use pharos_wire::ack::Ack;
use pharos_wire::answer::{self, Refusal};
use pharos_wire::proto::command_ack::AckType;
use pharos_wire::proto::{CommandRedeliverUnacknowledgedMessages, ServerError};

use super::consume::position_of;
use super::transaction;
use crate::connection::Connection;
use crate::consumer::{Attached, ConsumerSlot};

/// ACK. For a consumer that listens here it ends here, unless an answer is wanted: that says that the acknowledgement is durable.
pub(super) fn handle_ack(connection: &Rc<Connection>, ack: &Ack) {
    if let Some(txn) = transaction::txn_of(ack.txnid_most_bits, ack.txnid_least_bits) {
        return transaction::handle_ack(connection, ack, txn);
    }
    let refusal = apply(connection, ack);
    let Some(request_id) = ack.request_id else {
        return;
    };
    let (id, consumers) = (ack.consumer_id, connection.consumers.borrow());
    let (None, Some(ConsumerSlot::Ready(consumer))) = (&refusal, consumers.get(&id)) else {
        return connection.send(&answer::ack_response(id, request_id, refusal));
    };
    let (topic, key) = (consumer.topic, consumer.key);
    let connection = connection.clone();
    // Counts as a send does, so that a peer cannot have more of them waiting than a connection may.
    connection.read_ahead.began(0);
    spawn_local(async move {
        let settled = connection.shard.settle_acks(topic, key).await;
        let refusal = settled
            .err()
            .map(|reason| Refusal::new(ServerError::PersistenceError, reason));
        connection.read_ahead.ended(0);
        connection.send(&answer::ack_response(id, request_id, refusal));
    });
}

fn apply(connection: &Connection, ack: &Ack) -> Option<Refusal> {
    let consumers = connection.consumers.borrow();
    let Some(ConsumerSlot::Ready(consumer)) = consumers.get(&ack.consumer_id) else {
        return None;
    };
    let cumulative = ack.ack_type == AckType::Cumulative;
    if cumulative {
        let shared = matches!(
            consumer.kind,
            SubscriptionType::Shared | SubscriptionType::KeyShared
        );
        if shared || ack.message_ids.len() != 1 {
            tracing::debug!(peer = %connection.address, "ignoring a cumulative acknowledgement that makes no sense");
            return None;
        }
    }
    if let Some(error) = ack.validation_error
        && let Some(untold) = connection.server.peer_log.enter()
    {
        tracing::warn!(peer = %connection.address, error, untold, "a consumer discarded a message that it found corrupt");
    }
    match &consumer.attached {
        Attached::Listening(handle) => {
            let mut acks = ack.message_ids.iter().map(|id| feed::Ack {
                position: position_of(id.ledger_id, id.entry_id),
                remaining: &id.ack_set,
            });
            let too_long = handle.ack(&mut acks, cumulative, clock::now());
            if too_long > 0 {
                tracing::debug!(peer = %connection.address, too_long, "acknowledgements of more messages than a batch has are ignored");
                return Some(Refusal::new(
                    ServerError::NotAllowedError,
                    "the acknowledgement names more messages than any batch delivered here has",
                ));
            }
        }
        Attached::Dormant { .. } | Attached::Dispatched { .. } => {
            let acks = ack
                .message_ids
                .iter()
                .map(|id| feed::OwnedAck {
                    position: position_of(id.ledger_id, id.entry_id),
                    remaining: id.ack_set.clone().into_boxed_slice(),
                })
                .collect();
            connection
                .shard
                .ack(consumer.topic, consumer.key, acks, cumulative);
        }
    }
    None
}

/// REDELIVER_UNACKNOWLEDGED_MESSAGES; no answer.
pub(super) fn handle_redeliver(connection: &Connection, request: &CommandRedeliverUnacknowledgedMessages) {
    let consumers = connection.consumers.borrow();
    let Some(ConsumerSlot::Ready(consumer)) = consumers.get(&request.consumer_id) else {
        return;
    };
    // Also of a consumer that is not the active one: its client discards what has an older epoch, and takes what has none.
    if request.consumer_epoch.is_some() {
        consumer.epoch.set(request.consumer_epoch);
    }
    match &consumer.attached {
        Attached::Listening(handle) => {
            handle.redeliver(request.consumer_epoch);
            connection.wake();
        }
        // Only the active consumer of a Failover subscription is obeyed.
        Attached::Dormant { .. } => {}
        Attached::Dispatched { .. } => {
            let ids = &request.message_ids;
            let positions = (!ids.is_empty()).then(|| {
                ids.iter()
                    .map(|id| position_of(id.ledger_id, id.entry_id))
                    .collect()
            });
            connection
                .shard
                .redeliver(consumer.topic, consumer.key, positions);
        }
    }
}
