//! SEEK and GET_LAST_MESSAGE_ID.

use std::rc::Rc;

use pharos_broker::error::CursorError;
use pharos_topic::{SeekTo, StartAt};
use pharos_types::Position;
use pharos_wire::answer::{self, Refusal};
use pharos_wire::proto::{CommandGetLastMessageId, CommandSeek, MessageIdData, ServerError};

use super::consume::attached;
use super::deny;
use crate::connection::Connection;
use crate::refusal;
use crate::requests::{self, answer_later};

/// The ledger id that means "after the last entry"; some clients send another entry id with it.
const LATEST_LEDGER: u64 = i64::MAX as u64;
/// -1 carried unsigned: "before the first entry".
const EARLIEST_LEDGER: u64 = u64::MAX;

/// SEEK: the consumers concerned are closed and come back; then it is answered.
pub(super) fn handle_seek(connection: &Rc<Connection>, request: CommandSeek) {
    let request_id = request.request_id;
    let Some((topic, key, tenant)) = attached(connection, request.consumer_id) else {
        return deny(
            connection,
            request_id,
            Refusal::new(ServerError::MetadataError, "Consumer not found"),
        );
    };
    let to = match (&request.message_id, request.message_publish_time) {
        (Some(id), _) => SeekTo::Place {
            at: place_of(id),
            remaining: id.ack_set.clone(),
        },
        (None, Some(time_ms)) => SeekTo::Time(time_ms),
        (None, None) => {
            let text = "seek needs a message id or a publish time";
            return deny(
                connection,
                request_id,
                Refusal::new(ServerError::MetadataError, text),
            );
        }
    };
    answer_later(connection, |connection| async move {
        let who = connection.principal();
        let moved = connection.shard.caller(&who).seek(topic, key, to).await;
        match requests::counted(&connection, &tenant, moved) {
            Ok(()) => connection.send(&answer::success(request_id)),
            Err(refused) => {
                let failed = |error: &CursorError| {
                    let text = format!(
                        "Error when resetting subscription: {}",
                        refusal::of_cursor(error).message
                    );
                    Refusal::new(ServerError::UnknownError, text)
                };
                deny(&connection, request_id, refusal::of(&refused, failed));
            }
        }
    });
}

/// Converts a message id to a start position.
pub(super) fn place_of(id: &MessageIdData) -> StartAt {
    match id.ledger_id {
        EARLIEST_LEDGER => StartAt::Earliest,
        LATEST_LEDGER => StartAt::Latest,
        // An entry id of -1 is the start of its ledger.
        ledger if id.entry_id == u64::MAX => StartAt::At(Position::new(ledger, 0)),
        ledger => StartAt::At(Position::new(ledger, id.entry_id)),
    }
}

/// GET_LAST_MESSAGE_ID.
pub(super) fn handle_get_last_message_id(connection: &Rc<Connection>, request: &CommandGetLastMessageId) {
    let request_id = request.request_id;
    let Some((topic, key, tenant)) = attached(connection, request.consumer_id) else {
        return deny(
            connection,
            request_id,
            Refusal::new(ServerError::MetadataError, "Consumer not found"),
        );
    };
    answer_later(connection, |connection| async move {
        let who = connection.principal();
        let last = connection
            .shard
            .caller(&who)
            .last_message_id(topic, (connection.id, key))
            .await;
        match requests::counted(&connection, &tenant, last) {
            Ok(last) => {
                let id = |position: Option<Position>| MessageIdData {
                    ledger_id: position.map_or(u64::MAX, |position| position.ledger.0),
                    entry_id: position.map_or(u64::MAX, |position| position.entry.0),
                    ..Default::default()
                };
                let mut message = id(last.position);
                message.partition = Some(
                    last.partition
                        .map_or(-1, |index| i32::try_from(index).unwrap_or(-1)),
                );
                message.batch_index = Some(
                    last.batch_size
                        .map_or(-1, |size| i32::try_from(size).unwrap_or(0).saturating_sub(1)),
                );
                let mark_delete = last
                    .mark_delete
                    .map(|(ledger, entry)| answer::message_id(ledger, entry));
                connection.send(&answer::last_message_id(request_id, message, mark_delete));
            }
            Err(refused) => deny(&connection, request_id, refusal::of(&refused, refusal::of_cursor)),
        }
    });
}
