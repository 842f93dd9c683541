//! Why a command failed, and with which exit code.

/// What went wrong. The message says the next step where there is one.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// The broker said no.
    #[error("{reason} (HTTP {status})")]
    Refused {
        /// HTTP status.
        status: u16,
        /// What the broker says.
        reason: String,
    },
    /// Nobody answers.
    #[error(
        "cannot reach {url}: {cause}; is a broker running there? Name another with --url or PHAROS_ADMIN_URL"
    )]
    Unreachable {
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
    /// An argument makes no sense.
    #[error("{0}")]
    Usage(String),
}

impl CliError {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Refused { .. } | Self::Answer { .. } => 1,
            Self::Usage(_) => 2,
            Self::Unreachable { .. } => 3,
        }
    }
}
