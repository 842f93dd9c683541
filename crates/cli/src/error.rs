//! Failures of commands, and their exit codes.

use pharos_client::ClientError;

/// Failure of a command. The message names the next step if there is one.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The broker said no.
    #[error("{reason} (HTTP {status})")]
    Refused {
        /// HTTP status.
        status: u16,
        /// Reason given by the broker.
        reason: String,
    },
    /// No server answers.
    #[error(
        "cannot reach {url}: {cause}; is a broker running there? Name another with --url or PHAROS_ADMIN_URL"
    )]
    Unreachable {
        /// URL of the server.
        url: String,
        /// Error of the operating system.
        cause: String,
    },
    /// No server answers on the binary protocol.
    #[error(
        "cannot reach {url}: {cause}; is a broker running there? Name another with --service-url or PHAROS_SERVICE_URL"
    )]
    NoBroker {
        /// URL of the server.
        url: String,
        /// Error of the operating system.
        cause: String,
    },
    /// The server is not an admin API.
    #[error("{url} answered something unexpected: {cause}")]
    Answer {
        /// URL of the server.
        url: String,
        /// Fault in the answer.
        cause: String,
    },
    /// The broker said no, on its binary protocol.
    #[error("{0}")]
    Client(ClientError),
    /// There is nothing to show to the broker.
    #[error("no credentials: {0}")]
    Credentials(String),
    /// Reading or writing on this side failed.
    #[error("{0}")]
    Local(#[from] std::io::Error),
    /// An argument makes no sense.
    #[error("{0}")]
    Usage(String),
}

impl CliError {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Refused { .. }
            | Self::Answer { .. }
            | Self::Client(_)
            | Self::Credentials(_)
            | Self::Local(_) => 1,
            Self::Usage(_) => 2,
            Self::Unreachable { .. } | Self::NoBroker { .. } => 3,
        }
    }
}

/// Converts an error of the client at `url`.
pub(crate) fn client_error(url: &str, error: ClientError) -> CliError {
    match error {
        ClientError::Connect { cause, .. } => CliError::NoBroker {
            url: url.to_owned(),
            cause: cause.to_string(),
        },
        ClientError::Tls(reason) => CliError::Usage(reason),
        error => CliError::Client(error),
    }
}
