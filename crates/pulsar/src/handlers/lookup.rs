//! LOOKUP and PARTITIONED_METADATA: where a topic is, and how many partitions it has.

use std::rc::Rc;

use pharos_runtime::{clock, spawn_local};
use pharos_types::TopicName;
use pharos_wire::answer::{self, BrokerUrls, Refusal};
use pharos_wire::proto::{CommandLookupTopic, CommandPartitionedTopicMetadata, ServerError};

use crate::connection::Connection;
use crate::refusal;

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
    let connection = connection.clone();
    spawn_local(async move {
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

/// LOOKUP: a single node always says that it is itself.
pub(super) fn handle_lookup(connection: &Connection, request: &CommandLookupTopic) {
    let (id, began) = (request.request_id, clock::now());
    let outcome = look_up(connection, request);
    let is_answered = outcome.is_ok();
    connection.send(&match outcome {
        Ok(urls) => answer::lookup_connect(id, urls, true, false),
        Err(refusal) => answer::lookup_failed(id, refusal),
    });
    let tally = connection.shard.tally();
    tally.lookup(clock::now().since(began), is_answered);
}

fn look_up(connection: &Connection, request: &CommandLookupTopic) -> Result<BrokerUrls, Refusal> {
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
    Ok(BrokerUrls {
        plain: Some(connection.server.service_url.clone()),
        tls: None,
    })
}
