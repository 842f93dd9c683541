//! The rare commands, through `pharos-wire`: handshake, lookup, subscribing, producing.

use crate::access::Shown;
use bytes::BytesMut;
use pharos_wire::command::Command;
use pharos_wire::proto::{self, KeyValue, ServerError, command_subscribe::SubType};
use pharos_wire::{encode, request};

/// What this tool calls itself in `CONNECT`.
pub(crate) const CLIENT_VERSION: &str = concat!("pharos-bench-", env!("CARGO_PKG_VERSION"));

/// The property that makes a subscription broadcast.
pub(crate) const BROADCAST_PROPERTY: (&str, &str) = ("pharos.subscription", "broadcast");

/// Appends `command` as a frame.
pub(crate) fn push(out: &mut Vec<u8>, command: &Command) {
    let mut frame = BytesMut::new();
    encode::encode_command_into(command, &mut frame);
    out.extend_from_slice(&frame);
}

/// Appends `CONNECT`; `token` is a JSON Web Token where the broker asks for one.
pub(crate) fn push_connect(out: &mut Vec<u8>, shown: Option<&Shown>) {
    let mut connect = request::connect(CLIENT_VERSION);
    if let Some(shown) = shown {
        connect.auth_method_name = Some(shown.method.clone());
        connect.auth_data = Some(bytes::Bytes::copy_from_slice(&shown.data));
    }
    push(out, &Command::from(connect));
}

/// The properties that ask for a broadcast subscription.
pub(crate) fn broadcast_properties() -> Vec<KeyValue> {
    let (key, value) = BROADCAST_PROPERTY;
    vec![KeyValue {
        key: key.to_owned(),
        value: value.to_owned(),
    }]
}

/// Subscription types as people write them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SubscriptionType {
    /// One consumer only (any number on a broadcast subscription).
    Exclusive,
    /// Messages are dealt out among consumers.
    Shared,
    /// One active consumer, others stand by.
    Failover,
    /// Messages of one key go to one consumer.
    KeyShared,
}

impl SubscriptionType {
    /// The wire's name for it.
    pub(crate) fn wire(self) -> SubType {
        match self {
            Self::Exclusive => SubType::Exclusive,
            Self::Shared => SubType::Shared,
            Self::Failover => SubType::Failover,
            Self::KeyShared => SubType::KeyShared,
        }
    }
}

/// A broker's refusal as text: code and message.
pub(crate) fn refusal(error: &proto::CommandError) -> String {
    let code = ServerError::try_from(error.error);
    code.map_or_else(|_| format!("error {}", error.error), |code| format!("{code:?}")) + ": " + &error.message
}

/// Whether trying the same request again a moment later makes sense.
pub(crate) fn is_transient(code: i32) -> bool {
    matches!(
        ServerError::try_from(code),
        Ok(ServerError::ServiceNotReady
            | ServerError::TooManyRequests
            | ServerError::ConsumerBusy
            | ServerError::ProducerBusy
            | ServerError::MetadataError
            | ServerError::PersistenceError)
    )
}
