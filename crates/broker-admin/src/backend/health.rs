//! The health check: one message through a topic of its own, from append to read.

use std::time::Duration;

use pharos_runtime::clock;
use pharos_types::{Domain, NamespaceName, TopicName};

use super::Backend;
use crate::resource::AdminError;
use pharos_catalog::TopicError;

/// A message that takes longer than this says that the broker is not well.
const TIMEOUT: Duration = Duration::from_secs(10);

impl Backend {
    pub(super) fn why_not_ready_now(&self) -> Option<String> {
        if self.broker.shared.shutdown.is_triggered() {
            return Some("the broker is stopping".to_owned());
        }
        self.health.as_ref().and_then(|health| health())
    }

    pub(super) async fn health(&self) -> Result<(), AdminError> {
        if let Some(reason) = self.why_not_ready_now() {
            return Err(unwell(reason));
        }
        let name = self.heartbeat_topic()?;
        if !self.catalog().topic_exists(&name) {
            match self
                .catalog()
                .create_topic(&name, std::collections::BTreeMap::new())
                .await
            {
                Ok(()) | Err(TopicError::AlreadyExists) => {}
                Err(error) => return Err(unwell(error.to_string())),
            }
        }
        let round = self.at_home(name, |topic| async move {
            let text = clock::now().0.to_string();
            let round = topic.round_trip("healthcheck", &text, TIMEOUT);
            round.await.map_err(unwell)
        });
        round.await
    }

    /// In the broker's own namespace when it has one. It has no subscription, so it keeps one ledger and no backlog.
    fn heartbeat_topic(&self) -> Result<TopicName, AdminError> {
        let namespace = match &self.catalog().options().heartbeat_namespace {
            Some(namespace) => namespace.clone(),
            None => NamespaceName::new("pulsar", "system").map_err(|error| unwell(error.to_string()))?,
        };
        TopicName::new(Domain::Persistent, namespace, "healthcheck")
            .map_err(|error| unwell(error.to_string()))
    }
}

fn unwell(reason: String) -> AdminError {
    AdminError::Unavailable(format!("health check: {reason}"))
}
