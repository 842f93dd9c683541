//! Command handlers, one file per family of commands; this one only routes.

mod ack;
mod auth_response;
mod consume;
mod list;
mod lookup;
mod produce;
mod schema;
mod seek;
mod transaction;

use std::rc::Rc;

use pharos_catalog::properties::{self, Holder};
use pharos_wire::answer::{self, Refusal};
use pharos_wire::proto::{KeyValue, ServerError};
use pharos_wire::{Command, Frame};

use crate::batch::Batch;
use crate::connection::Connection;

/// Handles one command. Returns false when the connection must be closed.
pub(crate) fn handle(connection: &Rc<Connection>, frame: Frame, batch: &mut Batch) -> bool {
    if !matches!(frame.command, Command::Send(_)) {
        // Whatever else a client says comes after its sends.
        batch.flush(connection);
    }
    if matches!(
        frame.command,
        Command::Producer(_) | Command::Subscribe(_) | Command::WatchTopicList(_)
    ) {
        connection.settle();
    }
    match frame.command {
        Command::Send(send) => return produce::handle_send(connection, &send, frame.payload, batch),
        Command::Ack(ack) => ack::handle_ack(connection, &ack),
        Command::Flow(flow) => return consume::handle_flow(connection, &flow),
        Command::Ping(_) => connection.send(&answer::pong()),
        Command::Pong(_) => {}
        Command::PartitionedMetadata(request) => lookup::handle_partitioned_metadata(connection, request),
        Command::Lookup(request) => lookup::handle_lookup(connection, &request),
        Command::Producer(request) => produce::handle_producer(connection, *request),
        Command::CloseProducer(request) => produce::handle_close_producer(connection, &request),
        Command::Subscribe(request) => consume::handle_subscribe(connection, *request),
        Command::CloseConsumer(request) => consume::handle_close_consumer(connection, &request),
        Command::Unsubscribe(request) => consume::handle_unsubscribe(connection, &request),
        Command::RedeliverUnacknowledgedMessages(request) => ack::handle_redeliver(connection, &request),
        Command::Seek(request) => seek::handle_seek(connection, request),
        Command::GetLastMessageId(request) => seek::handle_get_last_message_id(connection, &request),
        Command::ConsumerStats(request) => consume::handle_consumer_stats(connection, &request),
        Command::GetTopicsOfNamespace(request) => list::handle_get_topics(connection, request),
        Command::WatchTopicList(request) => list::handle_watch(connection, request),
        Command::WatchTopicListClose(request) => list::handle_watch_close(connection, &request),
        Command::GetSchema(request) => schema::handle_get_schema(connection, &request),
        Command::GetOrCreateSchema(request) => schema::handle_get_or_create_schema(connection, request),
        Command::AuthResponse(response) => auth_response::handle(connection, response),
        command @ (Command::NewTxn(_)
        | Command::AddPartitionToTxn(_)
        | Command::AddSubscriptionToTxn(_)
        | Command::EndTxn(_)
        | Command::EndTxnOnPartition(_)
        | Command::EndTxnOnSubscription(_)
        | Command::TcClientConnectRequest(_)) => transaction::handle(connection, command),
        other => return refuse(connection, &other),
    }
    true
}

/// Commands that only a broker may send, and a further CONNECT.
fn refuse(connection: &Connection, command: &Command) -> bool {
    if let Some(untold) = connection.server.peer_log.enter() {
        tracing::warn!(peer = %connection.address, command = ?command.command_type(), untold, "closing a connection that sent what no client may send here");
    }
    false
}

/// The longest name that a client may give its producer or consumer, in bytes. Names are kept and travel in stats.
const NAME_BYTES_MAX: usize = 4096;

/// Refuses a name that is too long to be kept.
fn check_name(what: &str, name: Option<&str>) -> Result<(), Refusal> {
    match name {
        Some(name) if name.len() > NAME_BYTES_MAX => Err(Refusal::new(
            ServerError::MetadataError,
            format!("{what} is longer than {NAME_BYTES_MAX} bytes"),
        )),
        _ => Ok(()),
    }
}

/// Refuses properties that are too many or too large to be kept.
fn check_properties(what: &str, list: &[KeyValue]) -> Result<(), Refusal> {
    properties::check_size(what, list.len(), bytes_of(list))
        .map_err(|reason| Refusal::new(ServerError::MetadataError, reason))
}

/// Refuses more properties than are kept.
fn check_properties_count(what: &str, list: &[KeyValue]) -> Result<(), Refusal> {
    properties::check_size(what, list.len(), 0)
        .map_err(|reason| Refusal::new(ServerError::MetadataError, reason))
}

/// Refuses properties that only the broker may name and does not know, and values that it does not understand.
fn check_own(holder: Holder, list: &[KeyValue]) -> Result<(), Refusal> {
    for pair in list {
        properties::check(holder, &pair.key, &pair.value)
            .map_err(|reason| Refusal::new(ServerError::NotAllowedError, reason))?;
    }
    Ok(())
}

/// The size of keys and values together.
fn bytes_of(list: &[KeyValue]) -> usize {
    list.iter().map(|pair| pair.key.len() + pair.value.len()).sum()
}

/// Answers a request with an error.
fn deny(connection: &Connection, request_id: u64, refusal: Refusal) {
    connection.send(&answer::error(request_id, refusal.code, refusal.message));
}
