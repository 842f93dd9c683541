//! Errors. One enum for the whole client, because nearly everything can fail in the same few ways; it is cloneable,
//! since one broken connection is reported to everyone on it.

use std::io;
use std::sync::Arc;

use pharos_wire::CommandType;
use pharos_wire::proto::ServerError;

/// Failure of a client operation.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ClientError {
    /// The address has a form that the client does not understand.
    #[error(
        "invalid address '{0}': expected host:port, pulsar://host:port or pulsar+ssl://host:port; several brokers as pulsar://a:6650,b:6650"
    )]
    Address(String),
    /// No connection.
    #[error("cannot connect to {address}")]
    Connect {
        /// Address of the broker.
        address: String,
        /// The system's word.
        #[source]
        cause: Arc<io::Error>,
    },
    /// The files for TLS cannot be used.
    #[error("TLS: {0}")]
    Tls(String),
    /// There are no credentials to show.
    #[error("no credentials: {0}")]
    Credentials(String),
    /// The connection ended, here or there. Everything on it is finished; connect anew.
    #[error("disconnected: {reason}")]
    Disconnected {
        /// Reason why it ended.
        reason: String,
    },
    /// The broker said no.
    #[error("{code:?}: {message}")]
    Refused {
        /// Its code.
        code: ServerError,
        /// Its words.
        message: String,
    },
    /// The broker closed this producer or consumer while the connection goes on. Make it again.
    #[error("closed by the broker")]
    ClosedByBroker,
    /// The topic was terminated and every message of it has been received.
    #[error("end of topic")]
    EndOfTopic,
    /// No answer in time. Whether it was done is unknown.
    #[error("no answer to {what} in time")]
    TimedOut {
        /// Request that was sent.
        what: &'static str,
    },
    /// An answer, but to another question.
    #[error("unexpected answer {got:?} to {what}")]
    Unexpected {
        /// Request that was sent.
        what: &'static str,
        /// Type of the answer.
        got: CommandType,
    },
    /// Another broker serves the topic.
    #[error("the topic is served by {url}")]
    Redirected {
        /// URL of that broker.
        url: String,
        /// True if the next lookup is authoritative: it decides who serves the topic.
        authoritative: bool,
    },
    /// The message is larger than the broker takes.
    #[error("message of {bytes} bytes is larger than {bytes_max}")]
    TooLarge {
        /// Metadata and payload.
        bytes: usize,
        /// Maximum size that the broker announced on connecting, in bytes.
        bytes_max: usize,
    },
    /// The broker sent a message that cannot be read.
    #[error("malformed message: {0}")]
    Malformed(String),
}

impl ClientError {
    /// The broker's code, when it was the broker that refused.
    #[must_use]
    pub fn code(&self) -> Option<ServerError> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// True if a retry may succeed: the broker has gone, is not ready, or another has the topic by now, or an earlier
    /// connection of the same client is in the way. False for permanent refusals.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Connect { .. }
            | Self::Disconnected { .. }
            | Self::ClosedByBroker
            | Self::TimedOut { .. }
            | Self::Redirected { .. } => true,
            Self::Refused { code, .. } => matches!(
                code,
                ServerError::UnknownError
                    | ServerError::MetadataError
                    | ServerError::PersistenceError
                    | ServerError::ServiceNotReady
                    | ServerError::ConsumerBusy
                    | ServerError::ProducerBusy
                    | ServerError::TooManyRequests
            ),
            Self::Address(_)
            | Self::Tls(_)
            | Self::Credentials(_)
            | Self::EndOfTopic
            | Self::Unexpected { .. }
            | Self::TooLarge { .. }
            | Self::Malformed(_) => false,
        }
    }

    pub(crate) fn disconnected(reason: impl ToString) -> Self {
        Self::Disconnected {
            reason: reason.to_string(),
        }
    }

    /// An error as it stands in a command: number and message, either may be missing.
    pub(crate) fn refused(code: Option<i32>, message: Option<String>) -> Self {
        let code = code.and_then(|code| ServerError::try_from(code).ok());
        Self::Refused {
            code: code.unwrap_or(ServerError::UnknownError),
            message: message.unwrap_or_default(),
        }
    }
}
