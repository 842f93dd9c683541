//! The health check: one message through a topic of its own, from append to read.

use std::collections::BTreeMap;
use std::time::Duration;

use pharos_catalog::TopicError;
use pharos_runtime::clock;
use pharos_types::{Domain, NamespaceName, TopicName};

use crate::error::AdminError;
use crate::homes::Homes;

/// A message that takes longer than this says that the broker is not well.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Publishes one message to the heartbeat topic and reads it back; makes the topic first when it must.
pub(crate) async fn round_trip(homes: &Homes) -> Result<(), AdminError> {
    let catalog = homes.catalog();
    let name = heartbeat_topic(catalog.options().heartbeat_namespace.as_ref())?;
    if !catalog.topic_exists(&name) {
        match catalog.create_topic(&name, BTreeMap::new()).await {
            Ok(()) | Err(TopicError::AlreadyExists) => {}
            Err(error) => return Err(unwell(error.to_string())),
        }
    }
    let round = homes.at_home(name, |topic| async move {
        let text = clock::now().0.to_string();
        let round = topic.round_trip("healthcheck", &text, TIMEOUT);
        round.await.map_err(unwell)
    });
    round.await
}

/// In the broker's own namespace when it has one. It has no subscription, so it keeps one ledger and no backlog.
fn heartbeat_topic(namespace: Option<&NamespaceName>) -> Result<TopicName, AdminError> {
    let namespace = match namespace {
        Some(namespace) => namespace.clone(),
        None => NamespaceName::new("pulsar", "system").map_err(|error| unwell(error.to_string()))?,
    };
    TopicName::new(Domain::Persistent, namespace, "healthcheck").map_err(|error| unwell(error.to_string()))
}

pub(crate) fn unwell(reason: String) -> AdminError {
    AdminError::Unavailable(format!("health check: {reason}"))
}
