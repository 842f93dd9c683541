//! The commands a broker sends, one small constructor each.
//!
//! Where a command has many optional parts, fill the struct in [`crate::proto`] and turn it `into()` a [`Command`].

use bytes::Bytes;

use crate::NO_REQUEST_ID;
use crate::command::Command;
use crate::proto::command_lookup_topic_response::LookupType as LookupAnswer;
use crate::proto::command_partitioned_topic_metadata_response::LookupType as MetadataAnswer;
use crate::proto::command_topic_migrated::ResourceType;
use crate::proto::{self, FeatureFlags, MessageIdData, Schema, ServerError};

/// A broker's address for plain and for TLS connections; either may be unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BrokerUrls {
    /// `pulsar://host:port`.
    pub plain: Option<String>,
    /// `pulsar+ssl://host:port`.
    pub tls: Option<String>,
}

/// Error of a request: the code a client acts on and a text for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Code that the client acts on.
    pub code: ServerError,
    /// Text for people.
    pub message: String,
}

impl Refusal {
    /// A code and a text.
    pub fn new(code: ServerError, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }
}

/// CONNECTED: the handshake is done. `protocol_version` is the lower of both sides'.
pub fn connected(
    server_version: &str,
    protocol_version: i32,
    message_bytes_max: i32,
    feature_flags: FeatureFlags,
) -> Command {
    Command::Connected(proto::CommandConnected {
        server_version: server_version.to_owned(),
        protocol_version: Some(protocol_version),
        max_message_size: Some(message_bytes_max),
        feature_flags: Some(feature_flags),
    })
}

/// AUTH_CHALLENGE: the client must prove itself (again).
pub fn auth_challenge(auth_method_name: &str, auth_data: Bytes, protocol_version: i32) -> Command {
    Command::AuthChallenge(proto::CommandAuthChallenge {
        server_version: None,
        challenge: Some(proto::AuthData {
            auth_method_name: Some(auth_method_name.to_owned()),
            auth_data: Some(auth_data),
        }),
        protocol_version: Some(protocol_version),
    })
}

/// PING.
pub fn ping() -> Command {
    Command::Ping(proto::CommandPing {})
}

/// PONG.
pub fn pong() -> Command {
    Command::Pong(proto::CommandPong {})
}

/// SUCCESS.
pub fn success(request_id: u64) -> Command {
    Command::Success(proto::CommandSuccess {
        request_id,
        schema: None,
    })
}

/// ERROR for one request.
pub fn error(request_id: u64, code: ServerError, message: impl Into<String>) -> Command {
    Command::Error(proto::CommandError {
        request_id,
        error: code as i32,
        message: message.into(),
    })
}

/// ERROR about the connection itself; the broker closes it right after.
pub fn connection_error(code: ServerError, message: impl Into<String>) -> Command {
    error(NO_REQUEST_ID, code, message)
}

/// PRODUCER_SUCCESS. `last_sequence_id` is -1 unless deduplication knows the producer; `schema_version` is sent even when empty;
/// `producer_ready` is false while the producer waits for exclusive access.
pub fn producer_success(
    request_id: u64,
    producer_name: impl Into<String>,
    last_sequence_id: i64,
    schema_version: Bytes,
    topic_epoch: Option<u64>,
    producer_ready: bool,
) -> Command {
    Command::ProducerSuccess(proto::CommandProducerSuccess {
        request_id,
        producer_name: producer_name.into(),
        last_sequence_id: Some(last_sequence_id),
        schema_version: Some(schema_version),
        topic_epoch,
        producer_ready: Some(producer_ready),
    })
}

/// SEND_RECEIPT; on the hot path use [`crate::encode::send_receipt_into`].
pub fn send_receipt(
    producer_id: u64,
    sequence_id: u64,
    highest_sequence_id: u64,
    ledger_id: u64,
    entry_id: u64,
) -> Command {
    Command::SendReceipt(proto::CommandSendReceipt {
        producer_id,
        sequence_id,
        message_id: Some(message_id(ledger_id, entry_id)),
        highest_sequence_id: Some(highest_sequence_id),
    })
}

/// SEND_ERROR. `sequence_id` is the higher of the SEND's two.
pub fn send_error(producer_id: u64, sequence_id: u64, refusal: Refusal) -> Command {
    let Refusal { code, message } = refusal;
    Command::SendError(proto::CommandSendError {
        producer_id,
        sequence_id,
        error: code as i32,
        message,
    })
}

/// CLOSE_PRODUCER from the broker; with `assigned` the client goes there without a lookup.
pub fn close_producer(producer_id: u64, assigned: BrokerUrls) -> Command {
    Command::CloseProducer(proto::CommandCloseProducer {
        producer_id,
        request_id: NO_REQUEST_ID,
        assigned_broker_service_url: assigned.plain,
        assigned_broker_service_url_tls: assigned.tls,
    })
}

/// CLOSE_CONSUMER from the broker; with `assigned` the client goes there without a lookup.
pub fn close_consumer(consumer_id: u64, assigned: BrokerUrls) -> Command {
    Command::CloseConsumer(proto::CommandCloseConsumer {
        consumer_id,
        request_id: NO_REQUEST_ID,
        assigned_broker_service_url: assigned.plain,
        assigned_broker_service_url_tls: assigned.tls,
    })
}

/// PARTITIONED_METADATA_RESPONSE; 0 partitions is a topic that is not partitioned.
pub fn partitioned_metadata(request_id: u64, partitions: u32) -> Command {
    Command::PartitionedMetadataResponse(proto::CommandPartitionedTopicMetadataResponse {
        partitions: Some(partitions),
        request_id,
        response: Some(MetadataAnswer::Success as i32),
        error: None,
        message: None,
    })
}

/// PARTITIONED_METADATA_RESPONSE that failed.
pub fn partitioned_metadata_failed(request_id: u64, refusal: Refusal) -> Command {
    Command::PartitionedMetadataResponse(proto::CommandPartitionedTopicMetadataResponse {
        partitions: None,
        request_id,
        response: Some(MetadataAnswer::Failed as i32),
        error: Some(refusal.code as i32),
        message: Some(refusal.message),
    })
}

/// LOOKUP_RESPONSE: connect there. `proxy_through_service_url`: the client keeps its address and names the broker in CONNECT.
pub fn lookup_connect(
    request_id: u64,
    broker: BrokerUrls,
    authoritative: bool,
    proxy_through_service_url: bool,
) -> Command {
    lookup(
        request_id,
        LookupAnswer::Connect,
        broker,
        authoritative,
        proxy_through_service_url,
    )
}

/// LOOKUP_RESPONSE: ask that broker, passing `authoritative` on.
pub fn lookup_redirect(
    request_id: u64,
    broker: BrokerUrls,
    authoritative: bool,
    proxy_through_service_url: bool,
) -> Command {
    lookup(
        request_id,
        LookupAnswer::Redirect,
        broker,
        authoritative,
        proxy_through_service_url,
    )
}

fn lookup(
    request_id: u64,
    response: LookupAnswer,
    broker: BrokerUrls,
    authoritative: bool,
    proxy_through_service_url: bool,
) -> Command {
    Command::from(proto::CommandLookupTopicResponse {
        broker_service_url: broker.plain,
        broker_service_url_tls: broker.tls,
        response: Some(response as i32),
        request_id,
        authoritative: Some(authoritative),
        error: None,
        message: None,
        proxy_through_service_url: Some(proxy_through_service_url),
    })
}

/// LOOKUP_RESPONSE that failed.
pub fn lookup_failed(request_id: u64, refusal: Refusal) -> Command {
    Command::from(proto::CommandLookupTopicResponse {
        response: Some(LookupAnswer::Failed as i32),
        request_id,
        error: Some(refusal.code as i32),
        message: Some(refusal.message),
        ..Default::default()
    })
}

/// ACTIVE_CONSUMER_CHANGE.
pub fn active_consumer_change(consumer_id: u64, is_active: bool) -> Command {
    Command::ActiveConsumerChange(proto::CommandActiveConsumerChange {
        consumer_id,
        is_active: Some(is_active),
    })
}

/// REACHED_END_OF_TOPIC.
pub fn reached_end_of_topic(consumer_id: u64) -> Command {
    Command::ReachedEndOfTopic(proto::CommandReachedEndOfTopic { consumer_id })
}

/// ACK_RESPONSE, only for an ACK that had a request id.
pub fn ack_response(consumer_id: u64, request_id: u64, refusal: Option<Refusal>) -> Command {
    let (error, message) = parts(refusal);
    Command::AckResponse(proto::CommandAckResponse {
        consumer_id,
        txnid_least_bits: None,
        txnid_most_bits: None,
        error,
        message,
        request_id: Some(request_id),
    })
}

/// GET_LAST_MESSAGE_ID_RESPONSE.
pub fn last_message_id(request_id: u64, last: MessageIdData, mark_delete: Option<MessageIdData>) -> Command {
    Command::GetLastMessageIdResponse(proto::CommandGetLastMessageIdResponse {
        last_message_id: last,
        request_id,
        consumer_mark_delete_position: mark_delete,
    })
}

/// GET_TOPICS_OF_NAMESPACE_RESPONSE. `changed` false: `topics` is empty and the client's own list still holds.
pub fn topics_of_namespace(
    request_id: u64,
    topics: Vec<String>,
    topics_hash: String,
    filtered: bool,
    changed: bool,
) -> Command {
    Command::GetTopicsOfNamespaceResponse(proto::CommandGetTopicsOfNamespaceResponse {
        request_id,
        topics,
        filtered: Some(filtered),
        topics_hash: Some(topics_hash),
        changed: Some(changed),
    })
}

/// GET_SCHEMA_RESPONSE.
pub fn schema(request_id: u64, schema: Schema, schema_version: Bytes) -> Command {
    Command::from(proto::CommandGetSchemaResponse {
        request_id,
        error_code: None,
        error_message: None,
        schema: Some(schema),
        schema_version: Some(schema_version),
    })
}

/// GET_SCHEMA_RESPONSE that failed.
pub fn schema_failed(request_id: u64, refusal: Refusal) -> Command {
    let (error_code, error_message) = parts(Some(refusal));
    Command::from(proto::CommandGetSchemaResponse {
        request_id,
        error_code,
        error_message,
        ..Default::default()
    })
}

/// GET_OR_CREATE_SCHEMA_RESPONSE with the version that holds the schema.
pub fn get_or_create_schema(request_id: u64, outcome: Result<Bytes, Refusal>) -> Command {
    let (schema_version, refusal) = match outcome {
        Ok(version) => (Some(version), None),
        Err(refusal) => (None, Some(refusal)),
    };
    let (error_code, error_message) = parts(refusal);
    Command::from(proto::CommandGetOrCreateSchemaResponse {
        request_id,
        error_code,
        error_message,
        schema_version,
    })
}

/// WATCH_TOPIC_LIST_SUCCESS; `topics` is empty when the client's hash was the same.
pub fn watch_topic_list_success(
    request_id: u64,
    watcher_id: u64,
    topics: Vec<String>,
    topics_hash: String,
) -> Command {
    Command::WatchTopicListSuccess(proto::CommandWatchTopicListSuccess {
        request_id,
        watcher_id,
        topic: topics,
        topics_hash,
    })
}

/// WATCH_TOPIC_UPDATE; `topics_hash` is that of the new whole.
pub fn watch_topic_update(
    watcher_id: u64,
    new_topics: Vec<String>,
    deleted_topics: Vec<String>,
    topics_hash: String,
) -> Command {
    Command::WatchTopicUpdate(proto::CommandWatchTopicUpdate {
        watcher_id,
        new_topics,
        deleted_topics,
        topics_hash,
    })
}

/// TOPIC_MIGRATED: the producer or consumer finds its topic in another cluster.
pub fn topic_migrated(resource_id: u64, resource_type: ResourceType, target: BrokerUrls) -> Command {
    Command::TopicMigrated(proto::CommandTopicMigrated {
        resource_id,
        resource_type: resource_type as i32,
        broker_service_url: target.plain,
        broker_service_url_tls: target.tls,
    })
}

/// A message id without partition, batch index or anything else.
pub fn message_id(ledger_id: u64, entry_id: u64) -> MessageIdData {
    MessageIdData {
        ledger_id,
        entry_id,
        ..Default::default()
    }
}

fn parts(refusal: Option<Refusal>) -> (Option<i32>, Option<String>) {
    match refusal {
        Some(Refusal { code, message }) => (Some(code as i32), Some(message)),
        None => (None, None),
    }
}
