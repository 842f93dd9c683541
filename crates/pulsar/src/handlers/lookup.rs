//! LOOKUP and PARTITIONED_METADATA: where a topic is, and how many partitions it has.

use std::rc::Rc;

use pharos_broker::error::TopicError;
use pharos_broker::placement::Placed;
use pharos_cluster::OwnershipError;
use pharos_runtime::clock;
use pharos_runtime::clock::Nanos;
use pharos_types::TopicName;
use pharos_wire::answer::{self, BrokerUrls, Refusal};
use pharos_wire::proto::{CommandLookupTopic, CommandPartitionedTopicMetadata, ServerError};

use crate::connection::Connection;
use crate::refusal;
use crate::requests::answer_later;

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
    let auto_create = request.metadata_auto_creation_enabled.unwrap_or(true);
    answer_later(connection, |connection| async move {
        let who = connection.principal();
        let partitions = connection.shard.caller(&who).partitions(&name, auto_create);
        let command = match partitions.await {
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
        Err(refusal) => return answer_lookup(connection, id, began, Err(refusal)),
    };
    match connection.shard.shared.placement.of(&name) {
        Placed::Unowned => {}
        placed => return answer_lookup(connection, id, began, urls_of(connection, &name, placed)),
    }
    answer_later(connection, |connection| async move {
        let claimed = connection.shard.shared.placement.claim(&name).await;
        let refused = |error: OwnershipError| Refusal::new(ServerError::ServiceNotReady, error.to_string());
        let urls = claimed.map_err(refused);
        let urls = urls.and_then(|placed| urls_of(&connection, &name, placed));
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

/// The topic, if lookups of it are answered.
fn topic_of(connection: &Connection, request: &CommandLookupTopic) -> Result<TopicName, Refusal> {
    let name: TopicName = request
        .topic
        .parse()
        .map_err(|error| Refusal::new(ServerError::InvalidTopicName, format!("{error}")))?;
    let who = connection.principal();
    let caller = connection.shard.caller(&who);
    caller
        .look_up(&name)
        .map_err(|refused| refusal::of(&refused, refusal::of_metadata))?;
    if let Some(listener) = request
        .advertised_listener_name
        .as_deref()
        .filter(|name| !name.is_empty())
    {
        // The C++ client and what is built on it look for the name of this exception; without it they try again until
        // their operation times out.
        let text = format!(
            "org.apache.pulsar.broker.PulsarServerException: the broker do not have {listener} listener"
        );
        return Err(Refusal::new(ServerError::ServiceNotReady, text));
    }
    Ok(name)
}

/// The addresses of the broker that serves a topic.
fn urls_of(connection: &Connection, name: &TopicName, placed: Placed) -> Result<BrokerUrls, Refusal> {
    let (plain, tls) = match placed {
        Placed::Here(_) => {
            let server = &connection.server;
            (server.service_url.clone(), server.service_url_tls.clone())
        }
        Placed::Elsewhere(other) => (other.native_url.clone(), other.native_url_tls.clone()),
        Placed::Unowned => return Err(refusal::of_topic(&TopicError::NotServed(name.to_string()))),
    };
    let plain = Some(plain);
    Ok(BrokerUrls { plain, tls })
}
