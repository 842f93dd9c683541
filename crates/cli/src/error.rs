//! Why a command failed, and with which exit code.

use pharos_client::ClientError;

/// What went wrong. The message says the next step where there is one.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The broker said no.
    #[error("{reason} (HTTP {status})")]
    Refused {
        /// HTTP status.
        status: u16,
        /// What the broker says.
        reason: String,
    },
    /// No server answers.
    #[error(
        "cannot reach {url}: {cause}; is a broker running there? Name another with --url or PHAROS_ADMIN_URL"
    )]
    Unreachable {
        /// Where.
        url: String,
        /// What the system says.
        cause: String,
    },
    /// No server answers on the binary protocol.
    #[error(
        "cannot reach {url}: {cause}; is a broker running there? Name another with --service-url or PHAROS_SERVICE_URL"
    )]
    NoBroker {
        /// Where.
        url: String,
        /// What the system says.
        cause: String,
    },
    /// What answers is no admin API.
    #[error("{url} answered something unexpected: {cause}")]
    Answer {
        /// Where.
        url: String,
        /// What is wrong with it.
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

/// What the client says, at `url`.
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
