//! Looking at single stored messages: by place in a backlog, by place in the topic, by id.
//!
//! The body is the payload as it is stored, still compressed and batched; what is known about it is in headers. Tools
//! take batches apart themselves.

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use pharos_admin_api::query::ExamineQuery;
use pharos_admin_api::routes::messages as routes;
use pharos_broker_admin::{ExamineFrom, StoredEntry};
use pharos_runtime::iso_time;
use pharos_types::Position;
use pharos_wire::message::{decode_metadata, split};
use pharos_wire::proto::MessageMetadata;

use crate::body::QueryOf;
use crate::endpoint::{Endpoint, on};
use crate::error::{ApiError, ApiResult};
use crate::partitions::single;
use crate::paths::{PathParams, SubscriptionPath, TopicPath};
use crate::state::Admin;
use crate::topics::stored_only;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        on(&routes::EXAMINE, examine),
        on(&routes::BY_ID, by_id),
        on(&routes::PEEK, peek),
    ]
}

/// The nth entry of a subscription's backlog, counted from 1.
async fn peek(
    State(admin): State<Admin>,
    SubscriptionPath(topic, subscription): SubscriptionPath,
    params: PathParams,
) -> ApiResult<Response> {
    stored_only(&topic, "Peeking at messages")?;
    single(&admin, &topic, "Peeking at messages")?;
    answer(
        &admin
            .messages
            .peek(topic, subscription, params.number("position")?)
            .await?,
    )
}

async fn by_id(
    State(admin): State<Admin>,
    TopicPath(topic): TopicPath,
    params: PathParams,
) -> ApiResult<Response> {
    stored_only(&topic, "Reading messages by id")?;
    single(&admin, &topic, "Reading messages by id")?;
    let position = Position::new(params.number("ledger")?, params.number("entry")?);
    answer(&admin.messages.entry_at(topic, position).await?)
}

async fn examine(
    State(admin): State<Admin>,
    TopicPath(topic): TopicPath,
    QueryOf(query): QueryOf<ExamineQuery>,
) -> ApiResult<Response> {
    stored_only(&topic, "Examining messages")?;
    single(&admin, &topic, "Examining messages")?;
    let from = match query.initial_position.as_deref() {
        Some("earliest") => ExamineFrom::Earliest,
        None | Some("latest") => ExamineFrom::Latest,
        Some(_) => return Err(ApiError::precondition("initialPosition is earliest or latest")),
    };
    let nth = query.message_position.unwrap_or(1).max(1);
    answer(&admin.messages.examine(topic, from, nth).await?)
}

fn answer(entry: &StoredEntry) -> ApiResult<Response> {
    let odd = |what: String| {
        ApiError::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("entry {} cannot be read: {what}", entry.position),
        )
    };
    let parts = split(&entry.payload).map_err(|error| odd(error.to_string()))?;
    let metadata = decode_metadata(&parts.metadata).map_err(|error| odd(error.to_string()))?;
    let mut headers = Headers(HeaderMap::new());
    headers.set("x-pulsar-message-id", entry.position);
    describe(&mut headers, &metadata, parts.payload.len());
    headers
        .0
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    Ok((headers.0, parts.payload).into_response())
}

struct Headers(HeaderMap);

impl Headers {
    fn set(&mut self, name: &'static str, value: impl ToString) {
        // What a producer wrote may not fit a header; it is then left out rather than the whole answer refused.
        if let Ok(value) = HeaderValue::from_str(&value.to_string()) {
            self.0.insert(HeaderName::from_static(name), value);
        }
    }

    fn set_if(&mut self, name: &'static str, value: Option<impl ToString>) {
        if let Some(value) = value {
            self.set(name, value);
        }
    }
}

fn describe(headers: &mut Headers, metadata: &MessageMetadata, payload_bytes: usize) {
    let time = |ms: u64| Some(ms).filter(|ms| *ms > 0).map(iso_time);
    headers.set("x-pulsar-publish-time", iso_time(metadata.publish_time));
    headers.set_if("x-pulsar-event-time", metadata.event_time.and_then(time));
    let due = metadata.deliver_at_time.and_then(|ms| u64::try_from(ms).ok());
    headers.set_if("x-pulsar-deliver-at-time", due.and_then(time));
    if let Some(count) = metadata.num_messages_in_batch {
        headers.set("x-pulsar-num-batch-message", count);
        headers.set("x-pulsar-batch-size", payload_bytes);
    }
    headers.set("x-pulsar-producer-name", &metadata.producer_name);
    headers.set("x-pulsar-sequence-id", metadata.sequence_id);
    headers.set_if("x-pulsar-highest-sequence-id", metadata.highest_sequence_id);
    headers.set("x-pulsar-null-value", metadata.null_value.unwrap_or_default());
    describe_routing(headers, metadata);
    describe_encoding(headers, metadata);
    if !metadata.properties.is_empty() {
        let pairs = metadata
            .properties
            .iter()
            .map(|pair| (pair.key.clone(), pair.value.clone().into()));
        let object: serde_json::Map<String, serde_json::Value> = pairs.collect();
        headers.set(
            "x-pulsar-property",
            ascii_json(&serde_json::Value::Object(object)),
        );
    }
    headers.set_if("x-pulsar-uuid", metadata.uuid.as_ref());
    headers.set_if("x-pulsar-chunk-id", metadata.chunk_id);
    headers.set_if("x-pulsar-num-chunks-from-msg", metadata.num_chunks_from_msg);
    headers.set_if("x-pulsar-total-chunk-msg-size", metadata.total_chunk_msg_size);
    headers.set_if("x-pulsar-marker-type", metadata.marker_type);
    headers.set_if("x-pulsar-txnid-least-bits", metadata.txnid_least_bits);
    headers.set_if("x-pulsar-txnid-most-bits", metadata.txnid_most_bits);
}

fn describe_routing(headers: &mut Headers, metadata: &MessageMetadata) {
    headers.set_if("x-pulsar-partition-key", metadata.partition_key.as_ref());
    headers.set_if(
        "x-pulsar-partition-key-b64-encoded",
        metadata.partition_key_b64_encoded,
    );
    headers.set_if("x-pulsar-null-partition-key", metadata.null_partition_key);
    let ordering_key = metadata.ordering_key.as_ref();
    headers.set_if(
        "x-pulsar-base64-ordering-key",
        ordering_key.map(|key| STANDARD.encode(key)),
    );
    headers.set_if("x-pulsar-replicated-from", metadata.replicated_from.as_ref());
    if !metadata.replicate_to.is_empty() {
        headers.set("x-pulsar-replicated-to", metadata.replicate_to.join(","));
    }
}

fn describe_encoding(headers: &mut Headers, metadata: &MessageMetadata) {
    let compression = match metadata.compression.unwrap_or_default() {
        0 => "NONE",
        1 => "LZ4",
        2 => "ZLIB",
        3 => "ZSTD",
        4 => "SNAPPY",
        _ => "UNKNOWN",
    };
    headers.set("x-pulsar-compression", compression);
    headers.set_if("x-pulsar-uncompressed-size", metadata.uncompressed_size);
    headers.set("x-pulsar-is-encrypted", !metadata.encryption_keys.is_empty());
    headers.set_if("x-pulsar-encryption-algo", metadata.encryption_algo.as_ref());
    let parameter = metadata.encryption_param.as_ref();
    headers.set_if(
        "x-pulsar-base64-encryption-param",
        parameter.map(|bytes| STANDARD.encode(bytes)),
    );
    let version = metadata.schema_version.as_ref();
    headers.set_if(
        "x-pulsar-base64-schema-version",
        version.map(|bytes| STANDARD.encode(bytes)),
    );
}

/// JSON with everything beyond ASCII escaped, since it goes into a header.
fn ascii_json(value: &serde_json::Value) -> String {
    let mut out = String::new();
    for c in value.to_string().chars() {
        if c.is_ascii() {
            out.push(c);
            continue;
        }
        let mut units = [0; 2];
        for unit in c.encode_utf16(&mut units) {
            out.push_str(&format!("\\u{unit:04x}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use pharos_wire::message::encode_entry;
    use pharos_wire::proto::KeyValue;

    use super::*;

    #[test]
    fn headers_say_what_the_metadata_says() {
        let metadata = MessageMetadata {
            producer_name: "p".into(),
            sequence_id: 7,
            publish_time: 1_700_000_000_000,
            properties: vec![KeyValue {
                key: "ü".into(),
                value: "a\nb".into(),
            }],
            partition_key: Some("not\nin a header".into()),
            ordering_key: Some(bytes::Bytes::from_static(b"\x00")),
            num_messages_in_batch: Some(2),
            ..Default::default()
        };
        let payload = encode_entry(&metadata, b"abc");
        let response = answer(&StoredEntry {
            position: Position::new(3, 4),
            payload,
        })
        .unwrap();
        let header = |name: &str| {
            response
                .headers()
                .get(name)
                .map(|value| value.to_str().unwrap().to_owned())
        };
        assert_eq!(header("x-pulsar-message-id").as_deref(), Some("3:4"));
        assert_eq!(
            header("x-pulsar-publish-time").as_deref(),
            Some("2023-11-14T22:13:20.000Z")
        );
        assert_eq!(
            header("x-pulsar-property").as_deref(),
            Some(r#"{"\u00fc":"a\nb"}"#)
        );
        assert_eq!(header("x-pulsar-base64-ordering-key").as_deref(), Some("AA=="));
        assert_eq!(header("x-pulsar-num-batch-message").as_deref(), Some("2"));
        assert_eq!(header("x-pulsar-batch-size").as_deref(), Some("3"));
        assert_eq!(header("x-pulsar-partition-key"), None);
        assert_eq!(header("x-pulsar-event-time"), None);
    }

    #[test]
    fn an_entry_that_cannot_be_read_is_an_error_not_a_panic() {
        for payload in [&b""[..], b"\x00\x00\x00\x09abc", b"\xff\xff\xff\xff"] {
            let entry = StoredEntry {
                position: Position::new(0, 0),
                payload: bytes::Bytes::from_static(payload),
            };
            assert!(answer(&entry).is_err());
        }
    }
}
