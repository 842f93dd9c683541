//! The JSON of both directions, as Pulsar has it.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pharos_client::MessageId;
use pharos_wire::required::decode;
use pharos_wire::required::table::MESSAGE_ID_DATA;
use prost::Message as _;
use serde::de::{IgnoredAny, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// Error code of a send, by Pulsar's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorCode {
    FailedToDeserializeFromJson = 3,
    NotAuthorized = 6,
    PayloadEncoding = 7,
    Unknown = 8,
}

/// A text; numbers and truth values are taken as such, as Pulsar does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Text(pub(crate) String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl Visitor<'_> for Any {
            type Value = Text;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }
            fn visit_str<E>(self, text: &str) -> Result<Text, E> {
                Ok(Text(text.to_owned()))
            }
            fn visit_bool<E>(self, value: bool) -> Result<Text, E> {
                Ok(Text(value.to_string()))
            }
            fn visit_u64<E>(self, value: u64) -> Result<Text, E> {
                Ok(Text(value.to_string()))
            }
            fn visit_i64<E>(self, value: i64) -> Result<Text, E> {
                Ok(Text(value.to_string()))
            }
            fn visit_f64<E>(self, value: f64) -> Result<Text, E> {
                Ok(Text(value.to_string()))
            }
        }
        deserializer.deserialize_any(Any)
    }
}

/// A message that a caller sends.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProducerMessage {
    pub(crate) payload: Option<Text>,
    #[serde(default)]
    pub(crate) properties: Option<BTreeMap<String, Text>>,
    pub(crate) context: Option<Text>,
    pub(crate) key: Option<Text>,
    pub(crate) replication_clusters: Option<Vec<String>>,
    pub(crate) event_time: Option<String>,
    pub(crate) sequence_id: Option<u64>,
    pub(crate) disable_replication: Option<bool>,
    pub(crate) deliver_at: Option<i64>,
    pub(crate) deliver_after_ms: Option<i64>,
    /// Fields of Pulsar that are not served. Its own class writes the numbers always, 0 where they say nothing.
    schema_version: Option<i64>,
    uncompressed_message_size: Option<i64>,
    key_schema: Option<IgnoredAny>,
    value_schema: Option<IgnoredAny>,
    encryption_param: Option<IgnoredAny>,
    compression_type: Option<IgnoredAny>,
}

impl ProducerMessage {
    /// The first field that is there and not served.
    pub(crate) fn not_served(&self) -> Option<&'static str> {
        let fields = [
            (
                "schemaVersion",
                self.schema_version.is_some_and(|version| version != 0),
            ),
            (
                "uncompressedMessageSize",
                self.uncompressed_message_size.is_some_and(|size| size != 0),
            ),
            ("keySchema", self.key_schema.is_some()),
            ("valueSchema", self.value_schema.is_some()),
            ("encryptionParam", self.encryption_param.is_some()),
            ("compressionType", self.compression_type.is_some()),
        ];
        fields
            .iter()
            .find(|(_, is_there)| *is_there)
            .map(|(name, _)| *name)
    }
}

/// Answer to a sent message.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProducerAck {
    result: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    message_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<Text>,
    /// Always 0; the code of an error is in `result`.
    error_code: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_msg: Option<String>,
    schema_version: u64,
}

impl ProducerAck {
    pub(crate) fn stored(id: &MessageId, context: Option<Text>) -> Self {
        Self {
            result: "ok".to_owned(),
            message_id: Some(write_id(id)),
            context,
            error_code: 0,
            error_msg: None,
            schema_version: 0,
        }
    }

    pub(crate) fn failed(code: ErrorCode, reason: impl Into<String>, context: Option<Text>) -> Self {
        Self {
            result: format!("send-error:{}", code as u8),
            message_id: None,
            context,
            error_code: 0,
            error_msg: Some(reason.into()),
            schema_version: 0,
        }
    }
}

/// A message that a caller gets.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ConsumerMessage<'a> {
    pub(crate) message_id: String,
    pub(crate) payload: String,
    pub(crate) properties: BTreeMap<&'a str, &'a str>,
    pub(crate) publish_time: String,
    pub(crate) redelivery_count: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) event_time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<&'a str>,
}

/// Command of a consumer.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ConsumerCommand {
    #[serde(rename = "type")]
    pub(crate) kind: Option<String>,
    pub(crate) message_id: Option<String>,
    pub(crate) permit_messages: Option<u32>,
}

/// True if the topic has ended.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EndOfTopic {
    pub(crate) end_of_topic: bool,
}

/// An id as callers see it: the bytes that Pulsar makes of it, with a size of the batch even where there is none.
pub(crate) fn write_id(id: &MessageId) -> String {
    let id = MessageId {
        batch_size: Some(id.batch_size.unwrap_or(0)),
        ..id.clone()
    };
    STANDARD.encode(id.encode_to_vec())
}

/// An id as callers give it back. `None`: it is none.
pub(crate) fn read_id(text: &str) -> Option<MessageId> {
    decode(&MESSAGE_ID_DATA, &STANDARD.decode(text).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_come_back_as_they_went() {
        let id = MessageId {
            ledger_id: 7,
            entry_id: 3,
            partition: Some(2),
            batch_index: Some(1),
            batch_size: Some(4),
            ..MessageId::default()
        };
        assert_eq!(read_id(&write_id(&id)).unwrap(), id);
        let single = MessageId {
            ledger_id: 3,
            ..MessageId::default()
        };
        // What Pulsar 4.2.4 answers.
        assert_eq!(write_id(&single), "CAMQADAA");
        // The one of Pulsar's documentation.
        let documented = read_id("CAAQAw==").unwrap();
        assert_eq!((documented.ledger_id, documented.entry_id), (0, 3));
        for wrong in ["", "%%", "AAAA", "CAA="] {
            assert_eq!(read_id(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_message_is_read_as_pulsar_reads_it() {
        let text = r#"{"payload":"aGk=","properties":{"a":1,"b":"x"},"context":5,"key":"k","sequenceId":0,"unknown":[1]}"#;
        let message: ProducerMessage = serde_json::from_str(text).unwrap();
        assert_eq!(message.context, Some(Text("5".to_owned())));
        assert_eq!(message.properties.as_ref().unwrap()["a"], Text("1".to_owned()));
        assert_eq!((message.sequence_id, message.not_served()), (Some(0), None));
        let of_pulsars_class = r#"{"payload":"aGk=","schemaVersion":0,"uncompressedMessageSize":0}"#;
        let message: ProducerMessage = serde_json::from_str(of_pulsars_class).unwrap();
        assert_eq!(message.not_served(), None);
        let message: ProducerMessage = serde_json::from_str(r#"{"payload":"","schemaVersion":3}"#).unwrap();
        assert_eq!(message.not_served(), Some("schemaVersion"));
        let text = r#"{"payload":"","encryptionParam":"x"}"#;
        let message: ProducerMessage = serde_json::from_str(text).unwrap();
        assert_eq!(message.not_served(), Some("encryptionParam"));
        assert!(serde_json::from_str::<ProducerMessage>(r#"{"properties":{"a":{}}}"#).is_err());
    }
}
