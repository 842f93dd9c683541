//! What producing and consuming share: where the broker is, and a topic's partitions.

use std::future::Future;

use clap::Args;
use pharos_client::Connection;

use crate::context::Access;
use crate::error::{CliError, client_error};

/// Where the broker is.
#[derive(Args, Clone, Debug)]
pub(crate) struct Service {
    /// Where the broker takes Pulsar clients; without it where the context says, else pulsar://127.0.0.1:6650
    #[arg(long, env = "PHAROS_SERVICE_URL", hide_env_values = true)]
    service_url: Option<String>,
    #[command(flatten)]
    access: Access,
}

/// A connection to a broker, for the topics that a name stands for.
pub(crate) struct Opened {
    pub(crate) connection: Connection,
    /// The topic itself, or its partitions in order.
    pub(crate) topics: Vec<String>,
    url: String,
}

impl Service {
    /// Connects, and says which topics the name stands for.
    pub(crate) async fn open(&self, topic: &str) -> Result<Opened, CliError> {
        let topic: pharos_types::TopicName = topic
            .parse()
            .map_err(|error| CliError::Usage(format!("{error}")))?;
        let target = self.access.target(None, self.service_url.as_ref())?;
        let url = target.service_url.clone();
        let connection = Connection::connect(&url, target.connect_options())
            .await
            .map_err(|error| client_error(&url, error))?;
        let count = connection
            .partitions(&topic.to_string())
            .await
            .map_err(|error| client_error(&url, error))?;
        let topics = match count {
            0 => vec![topic.to_string()],
            count => (0..count)
                .map(|index| topic.with_partition(index).to_string())
                .collect(),
        };
        Ok(Opened {
            connection,
            topics,
            url,
        })
    }
}

impl Opened {
    pub(crate) fn error(&self, error: pharos_client::ClientError) -> CliError {
        client_error(&self.url, error)
    }
}

/// Runs a command to its end on a small runtime of its own.
pub(crate) fn block_on(command: impl Future<Output = Result<String, CliError>>) -> Result<String, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let outcome = runtime.block_on(command);
    // A thread that waits for standard input would otherwise keep us until the next line.
    runtime.shutdown_background();
    outcome
}
