//! GET_SCHEMA and GET_OR_CREATE_SCHEMA, and schemas on their way between wire and registry.

use std::rc::Rc;

use pharos_catalog::schema::{SchemaInfo, SchemaType, SchemaVersion};
use pharos_runtime::spawn_local;
use pharos_types::TopicName;
use pharos_wire::answer::{self, Refusal};
use pharos_wire::proto::{self, CommandGetOrCreateSchema, CommandGetSchema, KeyValue, ServerError};

use crate::connection::Connection;
use crate::refusal;

/// A schema as the registry takes it; `None` when the client brings none.
pub(super) fn schema_info(schema: Option<&proto::Schema>) -> Result<Option<SchemaInfo>, Refusal> {
    let Some(schema) = schema else { return Ok(None) };
    let kind = proto::schema::Type::try_from(schema.r#type).map_err(|_| {
        Refusal::new(
            ServerError::IncompatibleSchema,
            format!("unknown schema type {}", schema.r#type),
        )
    })?;
    Ok(Some(SchemaInfo {
        kind: SchemaType::from_wire(kind),
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
    let entry = match connection.shard.caller(&who).schema(&topic, version) {
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
        name: connection.shard.shared.catalog.schema_id(&topic),
        schema_data: entry.schema.data.clone(),
        r#type: entry.schema.kind.to_wire() as i32,
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
    let connection = connection.clone();
    spawn_local(async move {
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
    let version = added.map_err(|refused| refusal::of(&refused, refusal::of_add_schema))?;
    Ok(version.map(SchemaVersion::to_bytes).unwrap_or_default())
}
