//! What producing and consuming share: where the broker is, and a topic's partitions.

use std::future::Future;
use std::time::Duration;

use clap::Args;
use pharos_client::{Brokers, Connection};

use crate::context::Access;
use crate::error::{CliError, client_error};

/// How long a broker may be silent before it is asked for a sign of life, as with other clients of Pulsar.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// Where the broker is.
#[derive(Args, Clone, Debug)]
pub(crate) struct Service {
    /// Where the broker takes Pulsar clients, or several brokers of a cluster: pulsar://a:6650,b:6650, of which the first that
    /// answers is taken; without it where the context says, else pulsar://127.0.0.1:6650
    #[arg(long, env = "PHAROS_SERVICE_URL", hide_env_values = true)]
    service_url: Option<String>,
    #[command(flatten)]
    access: Access,
}

/// The topics that a name stands for, and the brokers that serve them.
pub(crate) struct Opened {
    /// The topic itself, or its partitions in order; each with a connection to the broker that serves it.
    pub(crate) topics: Vec<(String, Connection)>,
    /// To find them again.
    pub(crate) brokers: Brokers,
    pub(crate) url: ServiceUrl,
}

/// What errors say of where the broker was looked for.
#[derive(Clone, Debug)]
pub(crate) struct ServiceUrl(String);

impl Service {
    /// Connects, and says which topics the name stands for and who serves them.
    pub(crate) async fn open(&self, topic: &str) -> Result<Opened, CliError> {
        let topic: pharos_types::TopicName = topic
            .parse()
            .map_err(|error| CliError::Usage(format!("{error}")))?;
        let target = self.access.target(None, self.service_url.as_ref())?;
        let url = target.service_url.clone();
        let told = |error| client_error(&url, error);
        let options = target.connect_options().keep_alive(KEEP_ALIVE);
        let mut brokers = Brokers::connect(&url, options).await.map_err(told)?;
        let first = brokers.first().await.map_err(told)?;
        let count = first.partitions(&topic.to_string()).await.map_err(told)?;
        let names = match count {
            0 => vec![topic.to_string()],
            count => (0..count)
                .map(|index| topic.with_partition(index).to_string())
                .collect(),
        };
        let mut topics = Vec::new();
        for name in names {
            let serving = brokers.serving(&name).await.map_err(told)?;
            topics.push((name, serving));
        }
        Ok(Opened {
            topics,
            brokers,
            url: ServiceUrl(url),
        })
    }
}

impl ServiceUrl {
    pub(crate) fn error(&self, error: pharos_client::ClientError) -> CliError {
        client_error(&self.0, error)
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
