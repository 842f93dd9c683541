//! Topics: making, listing, deleting, looking at, and what one does to a whole topic.

use std::collections::BTreeMap;
use std::convert::identity;

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use futures_util::FutureExt as _;
use serde::Deserialize as _;
use serde_json::Value;

use pharos_admin_api::query::{
    CreatePartitionedQuery, ForceQuery, PartitionsQuery, PropertyQuery, TopicsQuery,
};
use pharos_admin_api::routes::topics as routes;
use pharos_admin_api::{MessageIdJson, PartitionedTopicMetadata};
use pharos_auth::{Action, Principal, Resource};
use pharos_broker_admin::{AdminError, LastMessage};
use pharos_catalog::properties::{self, Holder};
use pharos_catalog::{ListMode, SHADOW_SOURCE, Shadows};
use pharos_runtime::many;
use pharos_types::{Domain, TopicName};

use crate::body::{OptionalJson, QueryOf, RequiredJson};
use crate::endpoint::{Endpoint, on};
use crate::error::{ApiError, ApiResult, other_cluster};
use crate::namespaces::{check_properties, policies_of};
use crate::owners::at_owner;
use crate::partitions::{single, target};
use crate::paths::{DomainPath, NamespacePath, PathParams, TopicPath};
use crate::permissions;
use crate::state::Admin;
use crate::topic_stats::partitioned;
use crate::transactions::coordinators_at;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        on(&routes::LIST, list),
        on(&routes::LIST_PARTITIONED, list_partitioned),
        on(&routes::CREATE, create),
        on(&routes::DELETE, remove),
        on(&routes::PARTITIONS, partition_count),
        on(&routes::CREATE_PARTITIONED, create_partitioned),
        on(&routes::GROW_PARTITIONED, grow_partitioned),
        on(&routes::DELETE_PARTITIONED, delete_partitioned),
        on(&routes::CREATE_MISSED_PARTITIONS, create_missed_partitions),
        on(&routes::LAST_MESSAGE_ID, last_message_id),
        on(&routes::MESSAGE_ID_BY_TIME, message_id_by_time),
        on(&routes::TERMINATE, terminate),
        on(&routes::TERMINATE_PARTITIONS, terminate_partitions),
        on(&routes::UNLOAD, unload),
        on(&routes::TRIM, trim),
        on(&routes::TRUNCATE, truncate),
        on(&routes::PROPERTIES, properties),
        on(&routes::SET_PROPERTIES, set_properties),
        on(&routes::REMOVE_PROPERTY, remove_property),
        on(&routes::PERMISSIONS, permissions::of_topic),
        on(&routes::GRANT, permissions::grant_on_topic),
        on(&routes::REVOKE, permissions::revoke_on_topic),
        on(&routes::SHADOWS, shadow_topics),
        on(&routes::SET_SHADOWS, set_shadow_topics),
        on(&routes::REMOVE_SHADOWS, remove_shadow_topics),
    ]
}

async fn list(
    State(admin): State<Admin>,
    DomainPath(domain): DomainPath,
    NamespacePath(name): NamespacePath,
    QueryOf(query): QueryOf<TopicsQuery>,
) -> ApiResult<Json<Vec<String>>> {
    policies_of(&admin, &name)?;
    let mode = match domain {
        Domain::Persistent => ListMode::Persistent,
        Domain::NonPersistent => ListMode::NonPersistent,
    };
    Ok(names(&admin.catalog.topics(
        &name,
        mode,
        query.include_system_topic,
    )))
}

async fn list_partitioned(
    State(admin): State<Admin>,
    DomainPath(domain): DomainPath,
    NamespacePath(name): NamespacePath,
    QueryOf(query): QueryOf<TopicsQuery>,
) -> ApiResult<Json<Vec<String>>> {
    policies_of(&admin, &name)?;
    let mut topics = admin.catalog.partitioned().names(&name, domain);
    topics.retain(|topic| query.include_system_topic || !topic.is_system());
    Ok(names(&topics))
}

fn names(topics: &[TopicName]) -> Json<Vec<String>> {
    Json(topics.iter().map(ToString::to_string).collect())
}

type Properties = BTreeMap<String, String>;

async fn create(
    State(admin): State<Admin>,
    Extension(who): Extension<Principal>,
    TopicPath(topic): TopicPath,
    OptionalJson(properties): OptionalJson<Properties>,
) -> ApiResult<StatusCode> {
    let properties = properties.unwrap_or_default();
    check_topic_properties(&properties)?;
    may_shadow(&admin, &who, &properties)?;
    admin.topics.create_topic(topic, properties).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn remove(
    State(admin): State<Admin>,
    TopicPath(topic): TopicPath,
    QueryOf(query): QueryOf<ForceQuery>,
) -> ApiResult<StatusCode> {
    if admin.catalog.partitioned().get(&topic).is_some() {
        return Err(ApiError::conflict(format!(
            "{topic} is a partitioned topic; delete it through …/partitions"
        )));
    }
    admin.topics.delete_topic(topic, query.force).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn partition_count(
    State(admin): State<Admin>,
    TopicPath(topic): TopicPath,
    QueryOf(query): QueryOf<PartitionsQuery>,
) -> ApiResult<Json<PartitionedTopicMetadata>> {
    if let Some(coordinators) = coordinators_at(&admin, &topic) {
        let partitions = if topic.partition().is_none() {
            coordinators
        } else {
            0
        };
        return Ok(Json(PartitionedTopicMetadata {
            partitions,
            ..Default::default()
        }));
    }
    let partitions = admin
        .catalog
        .partitioned_metadata(&topic, query.check_allow_auto_creation)
        .await?;
    let stored = admin.catalog.partitioned().get(&topic);
    Ok(Json(stored.unwrap_or(PartitionedTopicMetadata {
        partitions,
        ..Default::default()
    })))
}

/// The body is a number, or an object with properties as well.
async fn create_partitioned(
    State(admin): State<Admin>,
    Extension(who): Extension<Principal>,
    TopicPath(topic): TopicPath,
    QueryOf(query): QueryOf<CreatePartitionedQuery>,
    RequiredJson(body): RequiredJson<Value>,
) -> ApiResult<StatusCode> {
    let (count, properties) = match &body {
        Value::Object(members) => {
            let properties = members.get("properties").filter(|value| !value.is_null());
            let properties = properties.map(Properties::deserialize).transpose();
            let properties =
                properties.map_err(|error| ApiError::bad_request(format!("properties: {error}")))?;
            (
                members.get("partitions").unwrap_or(&Value::Null),
                properties.unwrap_or_default(),
            )
        }
        number => (number, Properties::new()),
    };
    let count = partition_number(count)?;
    check_topic_properties(&properties)?;
    may_shadow(&admin, &who, &properties)?;
    admin
        .topics
        .create_partitioned(topic, count, properties, query.create_local_topic_only)
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn grow_partitioned(
    State(admin): State<Admin>,
    TopicPath(topic): TopicPath,
    RequiredJson(body): RequiredJson<Value>,
) -> ApiResult<StatusCode> {
    let count = partition_number(&body)?;
    if admin.catalog.partitioned().get(&topic).is_none() {
        return Err(ApiError::conflict(format!(
            "Topic {topic} is not the partitioned topic."
        )));
    }
    admin.topics.grow_partitioned(topic, count).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A number, or a string that holds one: some clients send that, and Pulsar takes it.
fn partition_number(value: &Value) -> ApiResult<u32> {
    let text = || value.as_str().and_then(|text| text.trim().parse().ok());
    let number = value
        .as_i64()
        .or_else(text)
        .ok_or_else(|| ApiError::bad_request("the number of partitions is expected"))?;
    let range = || {
        ApiError::new(
            StatusCode::NOT_ACCEPTABLE,
            "Number of partitions should be more than 0",
        )
    };
    u32::try_from(number)
        .ok()
        .filter(|count| *count > 0)
        .ok_or_else(range)
}

async fn delete_partitioned(
    State(admin): State<Admin>,
    TopicPath(topic): TopicPath,
    QueryOf(query): QueryOf<ForceQuery>,
) -> ApiResult<StatusCode> {
    admin.topics.delete_partitioned(topic, query.force).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn create_missed_partitions(
    State(admin): State<Admin>,
    TopicPath(topic): TopicPath,
) -> ApiResult<StatusCode> {
    admin.topics.create_missed_partitions(topic).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn last_message_id(
    State(admin): State<Admin>,
    TopicPath(topic): TopicPath,
) -> ApiResult<Json<MessageIdJson>> {
    single(&admin, &topic, "GetLastMessageId")?;
    stored_only(&topic, "GetLastMessageId")?;
    let last = admin.stats.last_message(topic.clone()).await?;
    Ok(Json(message_id(&topic, &last)))
}

async fn message_id_by_time(
    State(admin): State<Admin>,
    TopicPath(topic): TopicPath,
    params: PathParams,
) -> ApiResult<Json<MessageIdJson>> {
    single(&admin, &topic, "Finding a message id")?;
    stored_only(&topic, "Finding a message id")?;
    let message = admin
        .stats
        .message_at_time(topic.clone(), params.number("timestamp")?)
        .await?;
    Ok(Json(message_id(&topic, &message)))
}

/// Refuses a topic that stores nothing.
pub(crate) fn stored_only(topic: &TopicName, what: &str) -> ApiResult<()> {
    match topic.domain() {
        Domain::Persistent => Ok(()),
        Domain::NonPersistent => Err(ApiError::not_allowed(format!(
            "{what} on a non-persistent topic is not allowed"
        ))),
    }
}

fn message_id(topic: &TopicName, message: &LastMessage) -> MessageIdJson {
    let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let small = |number: u32| i32::try_from(number).unwrap_or(i32::MAX);
    MessageIdJson {
        ledger_id: message.position.map_or(-1, |position| signed(position.ledger.0)),
        entry_id: message.position.map_or(-1, |position| signed(position.entry.0)),
        partition_index: topic.partition().map_or(-1, small),
        batch_index: message.batch_index.map(small),
        batch_size: message.batch_size.map(small),
    }
}

async fn terminate(
    State(admin): State<Admin>,
    TopicPath(topic): TopicPath,
) -> ApiResult<Json<MessageIdJson>> {
    single(&admin, &topic, "Termination")?;
    stored_only(&topic, "Termination")?;
    let last = admin.topics.terminate(topic.clone()).await?;
    Ok(Json(message_id(&topic, &last)))
}

async fn terminate_partitions(
    State(admin): State<Admin>,
    TopicPath(topic): TopicPath,
) -> ApiResult<Json<BTreeMap<u32, MessageIdJson>>> {
    stored_only(&topic, "Termination")?;
    partitioned(&admin, &topic)?;
    let mut answer = BTreeMap::new();
    let call = |partition: TopicName| {
        let outcome = admin.topics.terminate(partition.clone());
        outcome.map(|last| (partition, last))
    };
    many(target(&admin, &topic).topics, call, |(partition, last)| {
        let index = partition.partition().unwrap_or_default();
        answer.insert(index, message_id(&partition, &last?));
        Ok::<_, ApiError>(())
    })
    .await?;
    Ok(Json(answer))
}

async fn unload(State(admin): State<Admin>, TopicPath(topic): TopicPath) -> ApiResult<StatusCode> {
    let target = target(&admin, &topic);
    let call = |topic| at_owner(admin.topics.unload(topic), None);
    many(target.topics, call, |outcome| match outcome {
        // A partition that has not been made yet is as unloaded as can be.
        Err(AdminError::NotFound(_)) if target.is_partitioned => Ok(()),
        outcome => outcome,
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn trim(State(admin): State<Admin>, TopicPath(topic): TopicPath) -> ApiResult<StatusCode> {
    stored_only(&topic, "Trimming")?;
    let call = |topic| at_owner(admin.topics.trim(topic), None);
    many(target(&admin, &topic).topics, call, identity).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn truncate(State(admin): State<Admin>, TopicPath(topic): TopicPath) -> ApiResult<StatusCode> {
    if topic.domain() == Domain::NonPersistent {
        return Err(ApiError::precondition("unsupport truncate"));
    }
    let call = |topic| at_owner(admin.topics.truncate(topic), None);
    many(target(&admin, &topic).topics, call, identity).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn properties(State(admin): State<Admin>, TopicPath(topic): TopicPath) -> ApiResult<Json<Properties>> {
    Ok(Json(admin.catalog.topic_properties(&topic)?))
}

async fn set_properties(
    State(admin): State<Admin>,
    TopicPath(topic): TopicPath,
    RequiredJson(properties): RequiredJson<Properties>,
) -> ApiResult<StatusCode> {
    check_topic_properties(&properties)?;
    not_of_shadows(properties.keys())?;
    admin
        .catalog
        .update_topic_properties(&topic, properties, &[])
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn remove_property(
    State(admin): State<Admin>,
    TopicPath(topic): TopicPath,
    QueryOf(query): QueryOf<PropertyQuery>,
) -> ApiResult<StatusCode> {
    properties::check_removal(Holder::Topic, &query.key).map_err(ApiError::precondition)?;
    not_of_shadows([&query.key].into_iter())?;
    admin
        .catalog
        .update_topic_properties(&topic, Properties::new(), &[query.key])
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn shadow_topics(
    State(admin): State<Admin>,
    TopicPath(topic): TopicPath,
) -> ApiResult<Json<Vec<String>>> {
    known(&admin, &topic)?;
    Ok(names(&Shadows::of(&admin.catalog).topics_of(&topic)))
}

async fn set_shadow_topics(
    State(admin): State<Admin>,
    TopicPath(topic): TopicPath,
    RequiredJson(shadows): RequiredJson<Vec<String>>,
) -> ApiResult<StatusCode> {
    source_only(&admin, &topic)?;
    if shadows.is_empty() {
        let reason = "Cannot specify empty shadow topics, please use remove command instead.";
        return Err(ApiError::precondition(reason));
    }
    let parsed = shadows.iter().map(|name| name.parse::<TopicName>());
    let shadows: Result<Vec<_>, _> = parsed.collect();
    let shadows = shadows.map_err(|error| ApiError::precondition(error.to_string()))?;
    admin.topics.set_shadow_topics(&topic, &shadows).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn remove_shadow_topics(
    State(admin): State<Admin>,
    TopicPath(topic): TopicPath,
) -> ApiResult<StatusCode> {
    source_only(&admin, &topic)?;
    admin.topics.set_shadow_topics(&topic, &[]).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Refuses a topic that can have no shadows.
fn source_only(admin: &Admin, topic: &TopicName) -> ApiResult<()> {
    known(admin, topic)?;
    if topic.domain() == Domain::NonPersistent {
        return Err(ApiError::precondition(
            "Only persistent topic can be set with shadow topics",
        ));
    }
    if admin.catalog.partitioned().get(&topic.base()).is_some() && topic.partition().is_some() {
        let reason = "shadow topics are set for the partitioned topic as a whole";
        return Err(ApiError::precondition(reason));
    }
    Ok(())
}

/// Refuses to make a shadow of a topic that the caller may not know.
fn may_shadow(admin: &Admin, who: &Principal, properties: &Properties) -> ApiResult<()> {
    let source = properties.get(SHADOW_SOURCE);
    // What is no name is refused when the topic is made.
    if let Some(source) = source.and_then(|name| name.parse::<TopicName>().ok()) {
        let asked = admin
            .options
            .access
            .check(who, Action::ReadTopic, Resource::Topic(&source));
        asked.map_err(|denied| ApiError::denied(&denied))?;
    }
    Ok(())
}

/// Refuses properties that the broker acts on and does not understand.
fn check_topic_properties(properties: &Properties) -> ApiResult<()> {
    check_properties(Holder::Topic, properties)
}

/// Refuses to make a topic a shadow, or none, once it is there.
fn not_of_shadows<'a>(mut properties: impl Iterator<Item = &'a String>) -> ApiResult<()> {
    match properties.any(|name| name == SHADOW_SOURCE) {
        true => Err(ApiError::precondition(format!(
            "{SHADOW_SOURCE} is said when a topic is made and does not change"
        ))),
        false => Ok(()),
    }
}

/// Refuses a topic that does not exist, partitioned or not.
pub(crate) fn known(admin: &Admin, topic: &TopicName) -> ApiResult<()> {
    policies_of(admin, topic.namespace())?;
    if admin.catalog.topic_exists(topic) || admin.catalog.partitioned().get(&topic.base()).is_some() {
        Ok(())
    } else {
        let here = admin.catalog.check_cluster(topic);
        here.map_err(|other| other_cluster(&other))?;
        Err(ApiError::not_found(format!("Topic {topic} not found")))
    }
}
