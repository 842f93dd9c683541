//! GET_SCHEMA and GET_OR_CREATE_SCHEMA, and schemas on their way between wire and registry.

use std::rc::Rc;

use pharos_catalog::schema::{SchemaInfo, SchemaType, SchemaVersion};
use pharos_types::TopicName;
use pharos_wire::answer::{self, Refusal};
use pharos_wire::proto::schema::Type as WireType;
use pharos_wire::proto::{self, CommandGetOrCreateSchema, CommandGetSchema, KeyValue, ServerError};

use crate::connection::Connection;
use crate::refusal;
use crate::requests::{self, answer_later};

/// A schema as the registry takes it; `None` when the client brings none.
pub(super) fn schema_info(schema: Option<&proto::Schema>) -> Result<Option<SchemaInfo>, Refusal> {
    let Some(schema) = schema else { return Ok(None) };
    let kind = WireType::try_from(schema.r#type).map_err(|_| {
        Refusal::new(
            ServerError::IncompatibleSchema,
            format!("unknown schema type {}", schema.r#type),
        )
    })?;
    Ok(Some(SchemaInfo {
        kind: kind_of(kind),
        data: schema.schema_data.clone(),
        properties: schema
            .properties
            .iter()
            .map(|pair| (pair.key.clone(), pair.value.clone()))
            .collect(),
    }))
}

/// GET_SCHEMA; errors ride in the answer.
pub(super) fn handle_get_schema(connection: &Connection, request: &CommandGetSchema) {
    let id = request.request_id;
    let failed = |code, text: String| answer::schema_failed(id, Refusal::new(code, text));
    let topic: TopicName = match request.topic.parse() {
        Ok(topic) => topic,
        Err(error) => return connection.send(&failed(ServerError::InvalidTopicName, format!("{error}"))),
    };
    let version = match &request.schema_version {
        None => None,
        Some(bytes) => match SchemaVersion::from_bytes(bytes) {
            Some(version) => Some(version),
            None => {
                let text = format!("schema version of {} bytes; it has 8", bytes.len());
                return connection.send(&failed(ServerError::IncompatibleSchema, text));
            }
        },
    };
    let who = connection.principal();
    let entry = connection.shard.caller(&who).schema(&topic, version);
    let entry = match requests::counted(connection, topic.namespace().tenant(), entry) {
        Ok(entry) => entry,
        Err(denied) => return connection.send(&answer::schema_failed(id, refusal::of_denied(&denied))),
    };
    let Some(entry) = entry else {
        return connection.send(&failed(
            ServerError::TopicNotFound,
            "Topic not found or no-schema".to_owned(),
        ));
    };
    let schema = proto::Schema {
        name: connection.shard.shared.catalog.schemas().id(&topic),
        schema_data: entry.schema.data.clone(),
        r#type: wire_type(entry.schema.kind) as i32,
        properties: entry
            .schema
            .properties
            .iter()
            .map(|(key, value)| KeyValue {
                key: key.clone(),
                value: value.clone(),
            })
            .collect(),
    };
    connection.send(&answer::schema(id, schema, entry.version.to_bytes()));
}

/// GET_OR_CREATE_SCHEMA.
pub(super) fn handle_get_or_create_schema(connection: &Rc<Connection>, request: CommandGetOrCreateSchema) {
    answer_later(connection, |connection| async move {
        let id = request.request_id;
        let outcome = get_or_create(&connection, &request).await;
        connection.send(&answer::get_or_create_schema(id, outcome));
    });
}

async fn get_or_create(
    connection: &Connection,
    request: &CommandGetOrCreateSchema,
) -> Result<bytes::Bytes, Refusal> {
    let topic: TopicName = request
        .topic
        .parse()
        .map_err(|error| Refusal::new(ServerError::InvalidTopicName, format!("{error}")))?;
    // Here, and only here, NONE is no schema.
    let schema = schema_info(Some(&request.schema))?.filter(|schema| schema.kind != SchemaType::None);
    let who = connection.principal();
    let added = connection.shard.caller(&who).add_schema(&topic, schema).await;
    let version = requests::counted(connection, topic.namespace().tenant(), added)
        .map_err(|refused| refusal::of(&refused, refusal::of_add_schema))?;
    Ok(version.map(SchemaVersion::to_bytes).unwrap_or_default())
}

/// The registry type of a wire type.
fn kind_of(wire: WireType) -> SchemaType {
    match wire {
        WireType::None => SchemaType::None,
        WireType::String => SchemaType::String,
        WireType::Json => SchemaType::Json,
        WireType::Protobuf => SchemaType::Protobuf,
        WireType::Avro => SchemaType::Avro,
        WireType::Bool => SchemaType::Boolean,
        WireType::Int8 => SchemaType::Int8,
        WireType::Int16 => SchemaType::Int16,
        WireType::Int32 => SchemaType::Int32,
        WireType::Int64 => SchemaType::Int64,
        WireType::Float => SchemaType::Float,
        WireType::Double => SchemaType::Double,
        WireType::Date => SchemaType::Date,
        WireType::Time => SchemaType::Time,
        WireType::Timestamp => SchemaType::Timestamp,
        WireType::KeyValue => SchemaType::KeyValue,
        WireType::Instant => SchemaType::Instant,
        WireType::LocalDate => SchemaType::LocalDate,
        WireType::LocalTime => SchemaType::LocalTime,
        WireType::LocalDateTime => SchemaType::LocalDateTime,
        WireType::ProtobufNative => SchemaType::ProtobufNative,
        WireType::AutoConsume => SchemaType::AutoConsume,
        WireType::External => SchemaType::External,
    }
}

/// The wire type of a registry type. Bytes and the automatic types other than AUTO_CONSUME have none and travel
/// as `None`.
fn wire_type(kind: SchemaType) -> WireType {
    match kind {
        SchemaType::None | SchemaType::Bytes | SchemaType::Auto | SchemaType::AutoPublish => WireType::None,
        SchemaType::String => WireType::String,
        SchemaType::Json => WireType::Json,
        SchemaType::Protobuf => WireType::Protobuf,
        SchemaType::Avro => WireType::Avro,
        SchemaType::Boolean => WireType::Bool,
        SchemaType::Int8 => WireType::Int8,
        SchemaType::Int16 => WireType::Int16,
        SchemaType::Int32 => WireType::Int32,
        SchemaType::Int64 => WireType::Int64,
        SchemaType::Float => WireType::Float,
        SchemaType::Double => WireType::Double,
        SchemaType::Date => WireType::Date,
        SchemaType::Time => WireType::Time,
        SchemaType::Timestamp => WireType::Timestamp,
        SchemaType::KeyValue => WireType::KeyValue,
        SchemaType::Instant => WireType::Instant,
        SchemaType::LocalDate => WireType::LocalDate,
        SchemaType::LocalTime => WireType::LocalTime,
        SchemaType::LocalDateTime => WireType::LocalDateTime,
        SchemaType::ProtobufNative => WireType::ProtobufNative,
        SchemaType::AutoConsume => WireType::AutoConsume,
        SchemaType::External => WireType::External,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_of_the_protocol_comes_back() {
        let known = (-1..=30).filter_map(|number| WireType::try_from(number).ok());
        let mut count = 0;
        for wire in known {
            assert_eq!(wire_type(kind_of(wire)), wire);
            count += 1;
        }
        assert_eq!(count, 23);
        assert_eq!(wire_type(SchemaType::External) as i32, 22);
        assert_eq!(wire_type(SchemaType::Bytes), WireType::None);
    }
}
