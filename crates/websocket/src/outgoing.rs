//! From the JSON of a message to what is sent, and why that may fail.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pharos_client::{ClientError, OutgoingMessage};
use pharos_runtime::clock;
use pharos_wire::proto::{KeyValue, ServerError};

use crate::frames::{ErrorCode, ProducerMessage, Text};
use crate::refusal::said;
use crate::time;

/// A message for this cluster only, by the name that replicators know.
const THIS_CLUSTER: &str = "__local__";

/// The message that a caller means, not compressed.
///
/// # Errors
/// It says what is not served, or cannot be read.
pub(crate) fn outgoing(message: ProducerMessage) -> Result<OutgoingMessage, SendFailure> {
    let malformed = |reason: &str| SendFailure::of_text(ErrorCode::FailedToDeserializeFromJson, reason);
    if let Some(field) = message.not_served() {
        return Err(malformed(&format!("the field {field} is not served")));
    }
    // As Pulsar has it, a time that is none and a payload that is none are the same to a caller.
    let unreadable = |reason: String| SendFailure::of_text(ErrorCode::PayloadEncoding, reason);
    let Some(Text(payload)) = message.payload else {
        return Err(unreadable("the message has no payload".to_owned()));
    };
    let payload = STANDARD.decode(payload);
    let payload = payload.map_err(|error| unreadable(format!("the payload is not base64: {error}")))?;
    let mut outgoing = OutgoingMessage::new(payload);
    let metadata = &mut outgoing.metadata;
    metadata.partition_key = message.key.map(|key| key.0);
    let properties = message.properties.unwrap_or_default().into_iter();
    metadata.properties = properties
        .map(|(key, Text(value))| KeyValue { key, value })
        .collect();
    if let Some(text) = message.event_time {
        let ms = time::parse(&text);
        let ms = ms.ok_or_else(|| unreadable("the eventTime is no time of ISO 8601".to_owned()))?;
        metadata.event_time = Some(ms);
    }
    metadata.replicate_to = message.replication_clusters.unwrap_or_default();
    if message.disable_replication.unwrap_or(false) {
        metadata.replicate_to = vec![THIS_CLUSTER.to_owned()];
    }
    metadata.deliver_at_time = match (message.deliver_at, message.deliver_after_ms) {
        (Some(ms), _) => Some(ms),
        (None, Some(after)) => Some(clock::wall_ms().cast_signed().saturating_add(after)),
        (None, None) => None,
    };
    Ok(outgoing)
}

/// Reason why a message is not stored, or not known to be stored.
#[derive(Clone, Debug)]
pub(crate) struct SendFailure {
    pub(crate) code: ErrorCode,
    pub(crate) reason: String,
    /// Its producer is no more.
    pub(crate) is_last: bool,
}

impl SendFailure {
    pub(crate) fn of_text(code: ErrorCode, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self {
            code,
            reason,
            is_last: false,
        }
    }
}

impl From<ClientError> for SendFailure {
    fn from(error: ClientError) -> Self {
        let code = match error.code() {
            Some(ServerError::AuthorizationError) => ErrorCode::NotAuthorized,
            _ => ErrorCode::Unknown,
        };
        Self {
            code,
            reason: said(&error),
            is_last: matches!(
                error,
                ClientError::ClosedByBroker | ClientError::Disconnected { .. }
            ),
        }
    }
}
