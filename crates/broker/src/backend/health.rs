//! The health check: one message through a topic of its own, from append to read.

use std::time::Duration;

use bytes::Bytes;
use pharos_runtime::clock;
use pharos_types::{Domain, NamespaceName, TopicName};

use super::Backend;
use crate::admin::AdminError;
use crate::entry::EntryCodec;
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
            let sent = heartbeat(topic.codec);
            let round = async {
                let ordinal = topic.append_own(sent.clone()).await.map_err(unwell)?;
                let back = topic
                    .entry_at(ordinal)
                    .await
                    .map_err(|error| unwell(error.to_string()))?;
                match back {
                    Some(entry) if entry.payload == sent => Ok(()),
                    _ => Err(unwell("the message did not come back as it was sent".to_owned())),
                }
            };
            let outcome = tokio::time::timeout(TIMEOUT, round).await;
            topic.discard();
            outcome.unwrap_or_else(|_| Err(unwell(format!("no message went through in {TIMEOUT:?}"))))
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

fn heartbeat(codec: &dyn EntryCodec) -> Bytes {
    let beat = clock::now().0.to_string();
    codec
        .encode_own("healthcheck", clock::wall_ms(), beat.as_bytes())
        .into()
}

fn unwell(reason: String) -> AdminError {
    AdminError::Unavailable(format!("health check: {reason}"))
}
