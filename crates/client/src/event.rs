//! Events that a broker sends to a consumer.

use bytes::Bytes;
use pharos_wire::proto::CommandMessage;

/// Event that a broker sends to a consumer.
#[derive(Clone, Debug, PartialEq)]
pub enum ConsumerEvent {
    /// An entry, as it came.
    Message {
        /// The command.
        message: CommandMessage,
        /// Bytes after the command.
        payload: Bytes,
    },
    /// In a Failover subscription: whether this consumer is the one that is served.
    Active(bool),
    /// The topic is terminated and everything was sent.
    EndOfTopic,
    /// The broker closed this consumer, and may have said where it is to go.
    Closed(Option<AssignedBroker>),
}

/// The broker to which a client is to go, without asking.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AssignedBroker {
    /// Its address without TLS.
    pub url: Option<String>,
    /// Its address with TLS.
    pub url_tls: Option<String>,
}
