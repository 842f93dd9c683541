//! PRODUCER, SEND and CLOSE_PRODUCER.

use std::rc::Rc;

use bytes::Bytes;

use pharos_broker::entry::EntryFacts;
use pharos_broker::shard::{Produce, Publish};
use pharos_catalog::properties::Holder;
use pharos_catalog::schema::SchemaVersion;
use pharos_runtime::{clock, spawn_local};
use pharos_topic::{AccessMode, ProducerGrant, ProducerInfo, ProducerRequest};
use pharos_types::{SubscriptionName, TopicName, TxnId};
use pharos_wire::answer::{self, Refusal};
use pharos_wire::message;
use pharos_wire::proto::{
    CommandCloseProducer, CommandProducer, CommandSend, ProducerAccessMode, ServerError,
};

use super::schema::schema_info;
use super::transaction;
use super::{check_name, check_own, check_properties, deny};
use crate::batch::{Batch, kept};
use crate::closing::Ending;
use crate::connection::Connection;
use crate::limits::TenantHold;
use crate::producer::{Producer, ProducerSlot, SendTo};
use crate::refusal;
use crate::requests::{self, answer_later};

/// PRODUCER.
pub(super) fn handle_producer(connection: &Rc<Connection>, request: CommandProducer) {
    let (id, request_id) = (request.producer_id, request.request_id);
    match connection.producers.borrow().get(id) {
        Some(ProducerSlot::Creating { .. }) => {
            let text = "producer is already being created on this connection";
            return deny(
                connection,
                request_id,
                Refusal::new(ServerError::ServiceNotReady, text),
            );
        }
        Some(ProducerSlot::Ready(producer)) => {
            let (name, schema) = (producer.name.clone(), producer.schema_version.clone());
            return connection.send(&answer::producer_success(
                request_id,
                name,
                producer.last_sequence_id,
                schema,
                None,
                !producer.waiting,
            ));
        }
        None => {}
    }
    let (name, wish) = match wish(connection, &request) {
        Ok(wish) => wish,
        Err(refusal) => return deny(connection, request_id, refusal),
    };
    let present = connection.producers.borrow().len();
    let counted = match connection
        .server
        .limiter
        .producer(&connection.tenants, &name, present)
    {
        Ok(counted) => counted,
        Err(refusal) => return deny(connection, request_id, refusal),
    };
    let attempt = connection.shard.number();
    connection.producers.borrow_mut().insert(
        id,
        ProducerSlot::Creating {
            attempt,
            closed: None,
        },
    );
    answer_later(connection, |connection| async move {
        let who = connection.principal();
        let caller = connection.shard.caller(&who);
        let outcome = caller.produce(&name, wish, || connection.is_closed()).await;
        let outcome = requests::counted(&connection, counted.tenant(), outcome)
            .map(|(topic, grant, version)| {
                let version = version.map(SchemaVersion::to_bytes).unwrap_or_default();
                (topic, grant, version)
            })
            .map_err(|refused| refusal::of(&refused, refusal::of_produce));
        finish(&connection, (id, request_id), (attempt, counted), outcome);
    });
}

/// The topic's name and the wish, after the checks that need nothing but the command.
fn wish(connection: &Connection, request: &CommandProducer) -> Result<(TopicName, Produce), Refusal> {
    let topic = request
        .topic
        .parse()
        .map_err(|error| Refusal::new(ServerError::InvalidTopicName, format!("{error}")))?;
    check_name("producer name", request.producer_name.as_deref())?;
    check_properties("producer metadata", &request.metadata)?;
    check_own(Holder::Producer, &request.metadata)?;
    let subscription = request.initial_subscription_name.as_deref();
    let subscription = subscription
        .filter(|name| !name.is_empty())
        .map(SubscriptionName::new);
    let subscription = subscription
        .transpose()
        .map_err(|error| Refusal::new(ServerError::ProducerBusy, error.to_string()))?;
    let access_mode = match request.producer_access_mode() {
        ProducerAccessMode::Shared => AccessMode::Shared,
        ProducerAccessMode::Exclusive => AccessMode::Exclusive,
        ProducerAccessMode::WaitForExclusive => AccessMode::WaitForExclusive,
        ProducerAccessMode::ExclusiveWithFencing => AccessMode::ExclusiveWithFencing,
    };
    let producer = ProducerRequest {
        connection: connection.id,
        producer_id: request.producer_id,
        name: request.producer_name.clone().filter(|name| !name.is_empty()),
        epoch: request.epoch.unwrap_or(0),
        user_provided_name: request.user_provided_producer_name.unwrap_or(true),
        access_mode,
        topic_epoch: request.topic_epoch,
        encrypted: request.encrypted.unwrap_or(false),
        info: ProducerInfo {
            address: connection.address.clone(),
            client_version: connection.client_version(),
            connected_since_ms: clock::wall_ms(),
            metadata: pairs(&request.metadata),
        },
    };
    let wish = Produce {
        request: producer,
        schema: schema_info(request.schema.as_ref())?,
        subscription,
    };
    Ok((topic, wish))
}

/// Answers PRODUCER, unless the client gave up on it meanwhile.
fn finish(
    connection: &Rc<Connection>,
    (id, request_id): (u64, u64),
    (attempt, counted): (u64, TenantHold),
    outcome: Result<(pharos_broker::ids::TopicId, ProducerGrant, Bytes), Refusal>,
) {
    let slot = match connection.producers.borrow().get(id) {
        Some(ProducerSlot::Creating { attempt: a, closed }) if *a == attempt => Some(*closed),
        _ => None,
    };
    let wanted = !connection.is_closed() && slot.is_some();
    let (topic, grant, version) = match outcome {
        Ok(granted) => granted,
        Err(refusal) => {
            if wanted {
                connection.producers.borrow_mut().remove(id);
                deny(connection, request_id, refusal);
            }
            return;
        }
    };
    if !wanted {
        return connection.shard.close_producer(topic, grant.key);
    }
    if slot == Some(Some(grant.key)) {
        connection.producers.borrow_mut().remove(id);
        let text = "the topic was closed while the producer came; try again";
        return deny(
            connection,
            request_id,
            Refusal::new(ServerError::ServiceNotReady, text),
        );
    }
    let mut producer = Producer::new(topic, grant.key, grant.name.clone(), version.clone());
    producer.waiting = grant.turn.is_some();
    producer.last_sequence_id = grant.last_sequence_id;
    producer.counted = Some(counted);
    connection
        .producers
        .borrow_mut()
        .insert(id, ProducerSlot::Ready(producer));
    let ready = grant.turn.is_none();
    connection.send(&answer::producer_success(
        request_id,
        grant.name.clone(),
        grant.last_sequence_id,
        version.clone(),
        grant.topic_epoch,
        ready,
    ));
    if let Some(turn) = grant.turn {
        let connection = connection.clone();
        spawn_local(async move {
            let outcome = turn.await;
            let here = {
                let mut producers = connection.producers.borrow_mut();
                match producers.get_mut(id) {
                    Some(ProducerSlot::Ready(producer)) if producer.key == grant.key => {
                        producer.waiting = false;
                        if let Ok(told) = &outcome {
                            producer.last_sequence_id = told.last_sequence_id;
                        }
                        true
                    }
                    _ => false,
                }
            };
            match outcome {
                Ok(told) if here => {
                    connection.send(&answer::producer_success(
                        request_id,
                        grant.name,
                        told.last_sequence_id,
                        version,
                        Some(told.epoch),
                        true,
                    ));
                }
                Ok(_) => connection.shard.close_producer(topic, grant.key),
                Err(_) if here => {
                    let slot = connection.producers.borrow_mut().remove(id);
                    if let Some(ProducerSlot::Ready(mut producer)) = slot {
                        Ending(&connection).forget_refused(&producer);
                        Ending(&connection).answer_closes(producer.take_closed_by());
                    }
                    let text = "producer was fenced while it waited for exclusive access";
                    deny(
                        &connection,
                        request_id,
                        Refusal::new(ServerError::ProducerFenced, text),
                    );
                }
                Err(_) => {}
            }
        });
    }
}

/// SEND. Returns false when the connection must be closed.
pub(super) fn handle_send(
    connection: &Connection,
    send: &CommandSend,
    payload: Option<Bytes>,
    batch: &mut Batch,
) -> bool {
    let payload = payload.unwrap_or_default();
    let highest = send.highest_sequence_id.unwrap_or(0);
    let to = connection.producers.borrow_mut().send_to(send.producer_id);
    let (topic, producer) = match to {
        SendTo::Producer(topic, producer) => (topic, producer),
        SendTo::Nowhere => return true,
        SendTo::Unknown => {
            if let Some(untold) = connection.server.peer_log.enter() {
                tracing::warn!(peer = %connection.address, producer = send.producer_id, untold, "closing a connection that sent to an unknown producer");
            }
            return false;
        }
    };
    let txn = transaction::txn_of(send.txnid_most_bits, send.txnid_least_bits);
    let offered = match txn {
        None => Ok(()),
        Some(_) => transaction::offered(connection).map(drop),
    };
    match offered.and_then(|()| check(send, txn, &payload)) {
        Ok((facts, crc32c, changed)) => {
            let payload = changed.unwrap_or(payload);
            connection.read_ahead.began(payload.len());
            connection.producers.borrow_mut().sent(send.producer_id);
            let entry = Publish {
                sequence_id: send.sequence_id,
                highest_sequence_id: highest,
                payload: kept(payload),
                crc32c,
                facts,
                txn,
                received_at: clock::now(),
            };
            batch.push(connection, (topic, producer), entry);
        }
        Err(refusal) => {
            // Earlier sends of the producer are answered by its topic's home; this answer waits for theirs, so it is in
            // flight like them.
            connection.read_ahead.began(0);
            let (id, sequence_id) = (send.producer_id, send.sequence_id.max(highest));
            connection.producers.borrow_mut().refuse(id, sequence_id, refusal);
            Ending(connection).answer_refused(id);
        }
    }
    true
}

/// The checks of one send that need nothing but its bytes: what delivery will need to know, and the checksum of all of it
/// when that follows from the one in it; and the message as it is stored, where that is another.
fn check(
    send: &CommandSend,
    txn: Option<TxnId>,
    payload: &[u8],
) -> Result<(EntryFacts, Option<u32>, Option<Bytes>), Refusal> {
    if send.message_id.is_some() {
        let text = "only a shadow topic takes messages with an id";
        return Err(Refusal::new(ServerError::NotAllowedError, text));
    }
    let malformed = |error: &dyn std::fmt::Display| {
        Refusal::new(ServerError::ChecksumError, format!("malformed message: {error}"))
    };
    let parts = message::split_ref(payload).map_err(|error| malformed(&error))?;
    if !parts.verify_checksum() {
        return Err(Refusal::new(
            ServerError::ChecksumError,
            "checksum of the message does not match",
        ));
    }
    let facts = message::peek(parts.metadata).map_err(|error| malformed(&error))?;
    // The log is read again by the metadata alone: it must say what SEND says. The Go client leaves it out.
    if let (Some(txn), None, None) = (txn, facts.txn, facts.marker_type) {
        let facts = EntryFacts {
            is_transactional: true,
            ..facts.entry_facts()
        };
        return Ok((facts, None, Some(message::with_transaction(&parts, txn))));
    }
    if facts.txn != txn {
        let text = "the metadata of the message and its SEND name different transactions";
        return Err(Refusal::new(ServerError::NotAllowedError, text));
    }
    if facts.txn.is_some() && facts.marker_type.is_some() {
        let text = "only the broker says how a transaction ended";
        return Err(Refusal::new(ServerError::NotAllowedError, text));
    }
    Ok((facts.entry_facts(), parts.entry_checksum(payload), None))
}

/// CLOSE_PRODUCER.
pub(super) fn handle_close_producer(connection: &Connection, request: &CommandCloseProducer) {
    let (at_home, answer_now) = connection
        .producers
        .borrow_mut()
        .close_by_client(request.producer_id, request.request_id);
    if let Some((topic, producer)) = at_home {
        connection.shard.close_producer(topic, producer);
    }
    if answer_now {
        connection.send(&answer::success(request.request_id));
    } else {
        // Counts as a send does, so that a peer cannot have more of them waiting than a connection may.
        connection.read_ahead.began(0);
    }
}

/// Key and value pairs as plain strings.
pub(super) fn pairs(list: &[pharos_wire::proto::KeyValue]) -> Vec<(String, String)> {
    list.iter()
        .map(|pair| (pair.key.clone(), pair.value.clone()))
        .collect()
}
