//! The commands a client sends, one small constructor each.
//!
//! Those with many options return the struct of [`crate::proto`] with the required fields set: change what is needed, then turn
//! it `into()` a [`Command`].

use bytes::Bytes;

use crate::PROTOCOL_VERSION;
use crate::ack::{Ack, MessageIds};
use crate::command::Command;
use crate::proto::command_ack::AckType;
use crate::proto::command_get_topics_of_namespace::Mode;
use crate::proto::command_subscribe::SubType;
use crate::proto::{self, MessageIdData, Schema};

/// CONNECT at the newest protocol version, without authentication.
pub fn connect(client_version: &str) -> proto::CommandConnect {
    proto::CommandConnect {
        client_version: client_version.to_owned(),
        protocol_version: Some(PROTOCOL_VERSION),
        feature_flags: Some(proto::FeatureFlags {
            supports_auth_refresh: Some(true),
            supports_broker_entry_metadata: Some(true),
            supports_partial_producer: Some(true),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// AUTH_RESPONSE.
pub fn auth_response(auth_method_name: &str, auth_data: Bytes) -> Command {
    Command::from(proto::CommandAuthResponse {
        client_version: None,
        response: Some(proto::AuthData {
            auth_method_name: Some(auth_method_name.to_owned()),
            auth_data: Some(auth_data),
        }),
        protocol_version: Some(PROTOCOL_VERSION),
    })
}

/// PARTITIONED_METADATA.
pub fn partitioned_metadata(topic: &str, request_id: u64) -> proto::CommandPartitionedTopicMetadata {
    proto::CommandPartitionedTopicMetadata {
        topic: topic.to_owned(),
        request_id,
        ..Default::default()
    }
}

/// LOOKUP.
pub fn lookup(topic: &str, request_id: u64, authoritative: bool) -> proto::CommandLookupTopic {
    proto::CommandLookupTopic {
        topic: topic.to_owned(),
        request_id,
        authoritative: Some(authoritative),
        ..Default::default()
    }
}

/// PRODUCER; without a name the broker chooses one.
pub fn producer(
    topic: &str,
    producer_id: u64,
    request_id: u64,
    producer_name: Option<&str>,
) -> proto::CommandProducer {
    proto::CommandProducer {
        topic: topic.to_owned(),
        producer_id,
        request_id,
        producer_name: producer_name.map(str::to_owned),
        user_provided_producer_name: Some(producer_name.is_some()),
        ..Default::default()
    }
}

/// SEND; on the hot path use [`crate::encode::send_header_into`].
pub fn send(producer_id: u64, sequence_id: u64, num_messages: i32) -> proto::CommandSend {
    proto::CommandSend {
        producer_id,
        sequence_id,
        num_messages: Some(num_messages),
        ..Default::default()
    }
}

/// SUBSCRIBE, durable, at the latest position unless changed.
pub fn subscribe(
    topic: &str,
    subscription: &str,
    sub_type: SubType,
    consumer_id: u64,
    request_id: u64,
) -> proto::CommandSubscribe {
    proto::CommandSubscribe {
        topic: topic.to_owned(),
        subscription: subscription.to_owned(),
        sub_type: sub_type as i32,
        consumer_id,
        request_id,
        ..Default::default()
    }
}

/// FLOW; permits count messages. On the hot path use [`crate::encode::flow_into`].
pub fn flow(consumer_id: u64, message_permits: u32) -> Command {
    Command::Flow(proto::CommandFlow {
        consumer_id,
        message_permits,
    })
}

/// ACK of single entries.
pub fn ack(consumer_id: u64, message_ids: impl Into<MessageIds>) -> Command {
    Command::Ack(Ack::new(consumer_id, AckType::Individual, message_ids))
}

/// ACK of everything up to and including one entry.
pub fn ack_cumulative(consumer_id: u64, message_id: MessageIdData) -> Command {
    Command::Ack(Ack::new(consumer_id, AckType::Cumulative, message_id))
}

/// REDELIVER_UNACKNOWLEDGED_MESSAGES; no ids means all that is pending.
pub fn redeliver(consumer_id: u64, message_ids: Vec<MessageIdData>) -> Command {
    Command::from(proto::CommandRedeliverUnacknowledgedMessages {
        consumer_id,
        message_ids,
        consumer_epoch: None,
    })
}

/// SEEK to a message.
pub fn seek(consumer_id: u64, request_id: u64, message_id: MessageIdData) -> Command {
    Command::from(proto::CommandSeek {
        consumer_id,
        request_id,
        message_id: Some(message_id),
        message_publish_time: None,
    })
}

/// SEEK to a time, in milliseconds since 1970.
pub fn seek_to_time(consumer_id: u64, request_id: u64, message_publish_time: u64) -> Command {
    Command::from(proto::CommandSeek {
        consumer_id,
        request_id,
        message_id: None,
        message_publish_time: Some(message_publish_time),
    })
}

/// UNSUBSCRIBE.
pub fn unsubscribe(consumer_id: u64, request_id: u64, force: bool) -> Command {
    Command::from(proto::CommandUnsubscribe {
        consumer_id,
        request_id,
        force: Some(force),
    })
}

/// CLOSE_PRODUCER from the client.
pub fn close_producer(producer_id: u64, request_id: u64) -> Command {
    Command::from(proto::CommandCloseProducer {
        producer_id,
        request_id,
        ..Default::default()
    })
}

/// CLOSE_CONSUMER from the client.
pub fn close_consumer(consumer_id: u64, request_id: u64) -> Command {
    Command::from(proto::CommandCloseConsumer {
        consumer_id,
        request_id,
        ..Default::default()
    })
}

/// GET_LAST_MESSAGE_ID.
pub fn last_message_id(consumer_id: u64, request_id: u64) -> Command {
    Command::from(proto::CommandGetLastMessageId {
        consumer_id,
        request_id,
    })
}

/// CONSUMER_STATS.
pub fn consumer_stats(consumer_id: u64, request_id: u64) -> Command {
    Command::from(proto::CommandConsumerStats {
        request_id,
        consumer_id,
    })
}

/// GET_TOPICS_OF_NAMESPACE.
pub fn topics_of_namespace(
    request_id: u64,
    namespace: &str,
    mode: Mode,
) -> proto::CommandGetTopicsOfNamespace {
    proto::CommandGetTopicsOfNamespace {
        request_id,
        namespace: namespace.to_owned(),
        mode: Some(mode as i32),
        ..Default::default()
    }
}

/// WATCH_TOPIC_LIST.
pub fn watch_topic_list(
    request_id: u64,
    watcher_id: u64,
    namespace: &str,
    topics_pattern: &str,
) -> proto::CommandWatchTopicList {
    proto::CommandWatchTopicList {
        request_id,
        watcher_id,
        namespace: namespace.to_owned(),
        topics_pattern: topics_pattern.to_owned(),
        topics_hash: None,
    }
}

/// GET_SCHEMA; no version means the newest.
pub fn schema(request_id: u64, topic: &str, schema_version: Option<Bytes>) -> Command {
    Command::from(proto::CommandGetSchema {
        request_id,
        topic: topic.to_owned(),
        schema_version,
    })
}

/// GET_OR_CREATE_SCHEMA.
pub fn get_or_create_schema(request_id: u64, topic: &str, schema: Schema) -> Command {
    Command::from(proto::CommandGetOrCreateSchema {
        request_id,
        topic: topic.to_owned(),
        schema,
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
