//! LOOKUP and PARTITIONED_METADATA: where a topic is, and how many partitions it has.

use std::rc::Rc;
use std::sync::Arc;

use pharos_broker::error::TopicError;
use pharos_broker::placement::Placed;
use pharos_broker::shard::Refused;
use pharos_catalog::PartitionedMetadataError;
use pharos_cluster::OwnershipError;
use pharos_runtime::clock;
use pharos_runtime::clock::Nanos;
use pharos_types::TopicName;
use pharos_wire::answer::{self, BrokerUrls, Refusal};
use pharos_wire::proto::{CommandLookupTopic, CommandPartitionedTopicMetadata, ServerError};

use super::transaction;
use crate::connection::Connection;
use crate::listeners;
use crate::refusal;
use crate::requests::{self, answer_later};

/// PARTITIONED_METADATA.
pub(super) fn handle_partitioned_metadata(
    connection: &Rc<Connection>,
    request: CommandPartitionedTopicMetadata,
) {
    let id = request.request_id;
    let name: TopicName = match request.topic.parse() {
        Ok(name) => name,
        Err(error) => {
            let refusal = Refusal::new(ServerError::InvalidTopicName, format!("{error}"));
            return connection.send(&answer::partitioned_metadata_failed(id, refusal));
        }
    };
    if let Some(coordinators) = transaction::coordinators_at(connection, &name) {
        let partitions = if name.partition().is_none() {
            coordinators
        } else {
            0
        };
        return connection.send(&answer::partitioned_metadata(id, partitions));
    }
    let auto_create = request.metadata_auto_creation_enabled.unwrap_or(true);
    answer_later(connection, |connection| async move {
        let who = connection.principal();
        let partitions = connection.shard.caller(&who).partitions(&name, auto_create).await;
        let command = match requests::counted(&connection, name.namespace().tenant(), partitions) {
            Ok(partitions) => answer::partitioned_metadata(id, partitions),
            Err(refused) => {
                answer::partitioned_metadata_failed(id, refusal::of(&refused, refusal::of_metadata))
            }
        };
        connection.send(&command);
    });
}

/// LOOKUP: who serves the topic. A topic that no broker has is taken; waiting is needed for that only.
pub(super) fn handle_lookup(connection: &Rc<Connection>, request: &CommandLookupTopic) {
    let (id, began) = (request.request_id, clock::now());
    let name = match topic_of(connection, request) {
        Ok(name) => name,
        Err(NotHere::Refused(refusal)) => return answer_lookup(connection, id, began, Err(refusal)),
        Err(NotHere::Peer(urls)) => {
            connection.send(&answer::lookup_redirect(id, urls, true, false));
            return connection.shard.tally().lookup(clock::now().since(began), true);
        }
    };
    let listener = listener_of(connection, request);
    match connection.shard.shared.placement.of(&name) {
        Placed::Unowned => {}
        placed => {
            let urls = urls_of(connection, listener.as_deref(), &name, placed);
            return answer_lookup(connection, id, began, urls);
        }
    }
    answer_later(connection, |connection| async move {
        let claimed = connection.shard.shared.placement.claim(&name).await;
        let refused = |error: OwnershipError| Refusal::new(ServerError::ServiceNotReady, error.to_string());
        let urls = claimed.map_err(refused);
        let urls = urls.and_then(|placed| urls_of(&connection, listener.as_deref(), &name, placed));
        answer_lookup(&connection, id, began, urls);
    });
}

/// The answer is always to connect there: the owner of the topic is known.
fn answer_lookup(connection: &Connection, id: u64, began: Nanos, outcome: Result<BrokerUrls, Refusal>) {
    let is_answered = outcome.is_ok();
    connection.send(&match outcome {
        Ok(urls) => answer::lookup_connect(id, urls, true, false),
        Err(refusal) => answer::lookup_failed(id, refusal),
    });
    let tally = connection.shard.tally();
    tally.lookup(clock::now().since(began), is_answered);
}

/// Why a lookup is not answered with a broker of this cluster.
enum NotHere {
    Refused(Refusal),
    /// Its namespace is on a peer of this cluster, whose addresses these are.
    Peer(BrokerUrls),
}

impl From<Refusal> for NotHere {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<Refused<PartitionedMetadataError>> for NotHere {
    fn from(refused: Refused<PartitionedMetadataError>) -> Self {
        let peer = match &refused {
            Refused::Failed(PartitionedMetadataError::OtherCluster(other)) => other.peer.as_deref(),
            _ => None,
        };
        let urls = peer.map(|peer| BrokerUrls {
            plain: peer.broker_service_url.clone(),
            tls: peer.broker_service_url_tls.clone(),
        });
        match urls.filter(|urls| urls.plain.is_some() || urls.tls.is_some()) {
            Some(urls) => Self::Peer(urls),
            None => Self::Refused(refusal::of(&refused, refusal::of_metadata)),
        }
    }
}

/// The topic, if lookups of it are answered.
fn topic_of(connection: &Connection, request: &CommandLookupTopic) -> Result<TopicName, NotHere> {
    let name: TopicName = request
        .topic
        .parse()
        .map_err(|error| Refusal::new(ServerError::InvalidTopicName, format!("{error}")))?;
    if transaction::coordinators_at(connection, &name).is_some() {
        return Ok(name);
    }
    let who = connection.principal();
    let found = connection.shard.caller(&who).look_up(&name);
    requests::counted(connection, name.namespace().tenant(), found)?;
    Ok(name)
}

/// The listener that a lookup is of: the one that it names, or else the one by whose door it came.
fn listener_of(connection: &Connection, request: &CommandLookupTopic) -> Option<Arc<str>> {
    let named = request.advertised_listener_name.as_deref();
    let named = named.filter(|name| !name.is_empty()).map(Arc::from);
    named.or_else(|| connection.listener.clone())
}

/// The addresses of the broker that serves a topic, for clients of a listener or of none.
fn urls_of(
    connection: &Connection,
    listener: Option<&str>,
    name: &TopicName,
    placed: Placed,
) -> Result<BrokerUrls, Refusal> {
    let server = &connection.server;
    let found = match (placed, listener) {
        (Placed::Here(_), None) => Some(BrokerUrls {
            plain: Some(server.service_url.clone()),
            tls: server.service_url_tls.clone(),
        }),
        (Placed::Here(_), Some(listener)) => server.listeners.get(listener).map(listeners::urls_of),
        (Placed::Elsewhere(other), _) => listeners::urls_at(&other, listener),
        (Placed::Unowned, _) => return Err(refusal::of_topic(&TopicError::NotServed(name.to_string()))),
    };
    // The C++ client and what is built on it look for the name of this exception; without it they try again until their operation
    // times out.
    let unknown = || {
        let listener = listener.unwrap_or_default();
        let text = format!(
            "org.apache.pulsar.broker.PulsarServerException: the broker do not have {listener} listener"
        );
        Refusal::new(ServerError::ServiceNotReady, text)
    };
    found.ok_or_else(unknown)
}
