//! Schemas of topics.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::{Value, json};

use pharos_admin_api::query::ForceQuery;
use pharos_admin_api::routes::schemas as routes;
use pharos_admin_api::{
    DeleteSchemaResponse, GetAllVersionsSchemaResponse, GetSchemaResponse, IsCompatibilityResponse,
    LongSchemaVersion, PostSchemaPayload, PostSchemaResponse,
};
use pharos_catalog::schema::{KeyValueData, SchemaEntry, SchemaError, SchemaInfo, SchemaType, SchemaVersion};

use crate::body::{QueryOf, RequiredJson};
use crate::endpoint::{Endpoint, on};
use crate::error::{ApiError, ApiResult};
use crate::namespaces::policies_of;
use crate::paths::{PathParams, TopicPath};
use crate::state::Admin;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        on(&routes::LATEST, latest),
        on(&routes::BY_VERSION, by_version),
        on(&routes::ADD, add),
        on(&routes::DELETE, remove),
        on(&routes::ALL, all),
        on(&routes::COMPATIBILITY, compatibility),
        on(&routes::VERSION_OF, version_of),
    ]
}

async fn latest(
    State(admin): State<Admin>,
    TopicPath(topic): TopicPath,
) -> ApiResult<Json<GetSchemaResponse>> {
    policies_of(&admin, topic.namespace())?;
    answer(admin.catalog.schemas().latest(&topic))
}

async fn by_version(
    State(admin): State<Admin>,
    TopicPath(topic): TopicPath,
    params: PathParams,
) -> ApiResult<Json<GetSchemaResponse>> {
    policies_of(&admin, topic.namespace())?;
    let version = SchemaVersion(params.number("version")?);
    answer(admin.catalog.schemas().get(&topic, version))
}

fn answer(entry: Option<Arc<SchemaEntry>>) -> ApiResult<Json<GetSchemaResponse>> {
    let entry = entry.ok_or_else(|| ApiError::not_found("Schema not found"))?;
    Ok(Json(response(&entry)))
}

fn response(entry: &SchemaEntry) -> GetSchemaResponse {
    GetSchemaResponse {
        version: version_number(entry.version),
        kind: entry.schema.kind.as_str().to_owned(),
        timestamp: i64::try_from(entry.timestamp_ms).unwrap_or(i64::MAX),
        data: text_of(&entry.schema),
        properties: entry.schema.properties.clone(),
    }
}

fn version_number(version: SchemaVersion) -> i64 {
    i64::try_from(version.0).unwrap_or(i64::MAX)
}

/// The definition as text. The two sides of a key-value schema become members of a JSON object: as JSON where they are
/// JSON, else as a string.
fn text_of(schema: &SchemaInfo) -> String {
    let sides = match schema.kind {
        SchemaType::KeyValue => KeyValueData::decode(&schema.data),
        _ => None,
    };
    let Some(sides) = sides else {
        return String::from_utf8_lossy(&schema.data).into_owned();
    };
    let side = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        serde_json::from_str(&text).unwrap_or_else(|_| Value::String(text.into_owned()))
    };
    json!({"key": side(&sides.key), "value": side(&sides.value)}).to_string()
}

async fn all(
    State(admin): State<Admin>,
    TopicPath(topic): TopicPath,
) -> ApiResult<Json<GetAllVersionsSchemaResponse>> {
    policies_of(&admin, topic.namespace())?;
    // A topic without a schema has an empty list of them.
    let history = admin.catalog.schemas().history(&topic);
    let get_schema_responses = history.live().iter().map(|entry| response(entry)).collect();
    Ok(Json(GetAllVersionsSchemaResponse { get_schema_responses }))
}

fn schema_of(payload: PostSchemaPayload) -> ApiResult<SchemaInfo> {
    let unprocessable = |reason: String| ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, reason);
    let kind: SchemaType = payload
        .kind
        .parse()
        .map_err(|_| unprocessable(format!("{} is no schema type", payload.kind)))?;
    let data = if kind == SchemaType::KeyValue {
        let sides: Value = serde_json::from_str(&payload.schema)
            .map_err(|error| unprocessable(format!("a key-value schema is a JSON object: {error}")))?;
        let side = |name: &str| match sides.get(name) {
            None | Some(Value::Null) => bytes::Bytes::new(),
            Some(Value::String(text)) => bytes::Bytes::from(text.clone()),
            Some(other) => bytes::Bytes::from(other.to_string()),
        };
        KeyValueData {
            key: side("key"),
            value: side("value"),
        }
        .encode()
    } else {
        payload.schema.into()
    };
    Ok(SchemaInfo {
        kind,
        data,
        properties: payload.properties,
    })
}

async fn add(
    State(admin): State<Admin>,
    TopicPath(topic): TopicPath,
    RequiredJson(payload): RequiredJson<PostSchemaPayload>,
) -> ApiResult<Json<PostSchemaResponse>> {
    policies_of(&admin, topic.namespace())?;
    let added = admin
        .catalog
        .schemas()
        .add(&topic, schema_of(payload)?, "")
        .await?;
    let version = LongSchemaVersion {
        version: version_number(added.version),
    };
    Ok(Json(PostSchemaResponse { version }))
}

async fn remove(
    State(admin): State<Admin>,
    TopicPath(topic): TopicPath,
    QueryOf(query): QueryOf<ForceQuery>,
) -> ApiResult<Json<DeleteSchemaResponse>> {
    policies_of(&admin, topic.namespace())?;
    let deleted = admin.catalog.schemas().delete(&topic, "").await?;
    if query.force {
        admin.catalog.schemas().delete_all(&topic).await?;
    }
    Ok(Json(DeleteSchemaResponse {
        version: deleted.map_or(-1, version_number),
    }))
}

async fn compatibility(
    State(admin): State<Admin>,
    TopicPath(topic): TopicPath,
    RequiredJson(payload): RequiredJson<PostSchemaPayload>,
) -> ApiResult<(StatusCode, Json<IsCompatibilityResponse>)> {
    policies_of(&admin, topic.namespace())?;
    let schema = schema_of(payload)?;
    let compatible = match admin.catalog.schemas().test(&topic, &schema).await {
        Ok(_) => true,
        Err(SchemaError::Incompatible(_)) => false,
        Err(error) => return Err(error.into()),
    };
    let schema_compatibility_strategy = admin.catalog.schemas().strategy(&topic).as_str().to_owned();
    // 202, as Pulsar has it.
    Ok((
        StatusCode::ACCEPTED,
        Json(IsCompatibilityResponse {
            compatible,
            schema_compatibility_strategy,
        }),
    ))
}

async fn version_of(
    State(admin): State<Admin>,
    TopicPath(topic): TopicPath,
    RequiredJson(payload): RequiredJson<PostSchemaPayload>,
) -> ApiResult<Json<LongSchemaVersion>> {
    policies_of(&admin, topic.namespace())?;
    let found = match admin.catalog.schemas().find(&topic, &schema_of(payload)?).await {
        // What is no schema is not there.
        Err(SchemaError::Invalid(_)) => None,
        found => found?,
    };
    Ok(Json(LongSchemaVersion {
        version: found.map_or(-1, version_number),
    }))
}
