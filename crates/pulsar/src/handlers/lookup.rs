//! LOOKUP and PARTITIONED_METADATA: where a topic is, and how many partitions it has.

use std::rc::Rc;

use pharos_catalog::PartitionedMetadataError;
use pharos_runtime::{clock, spawn_local};
use pharos_types::TopicName;
use pharos_wire::answer::{self, BrokerUrls, Refusal};
use pharos_wire::proto::{CommandLookupTopic, CommandPartitionedTopicMetadata, ServerError};

use crate::connection::Connection;

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
        let catalog = connection.shard.shared.catalog.clone();
        let command = match catalog.partitioned_metadata(&name, auto_create).await {
            Ok(partitions) => answer::partitioned_metadata(id, partitions),
            Err(error) => answer::partitioned_metadata_failed(id, of_metadata(&error)),
        };
        connection.send(&command);
    });
}

fn of_metadata(error: &PartitionedMetadataError) -> Refusal {
    let code = match error {
        PartitionedMetadataError::TopicNotFound(_)
        | PartitionedMetadataError::NamespaceNotFound
        | PartitionedMetadataError::TenantNotFound => ServerError::TopicNotFound,
        PartitionedMetadataError::NotAllowed(_) => ServerError::NotAllowedError,
        PartitionedMetadataError::Store(_) => ServerError::MetadataError,
    };
    Refusal::new(code, error.to_string())
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
    let catalog = &connection.shard.shared.catalog;
    catalog.check_lookup(&name).map_err(|error| of_metadata(&error))?;
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
        plain: Some(connection.door.service_url.clone()),
        tls: None,
    })
}
