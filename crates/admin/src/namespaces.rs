//! Namespaces: making, listing, deleting, their topics, bundles and properties. Policies are next door, and so is deleting by
//! force.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize as _;
use serde_json::{Map, Value};

use pharos_admin_api::query::{ForceQuery, NamespaceTopicsQuery};
use pharos_admin_api::routes::namespaces as routes;
use pharos_catalog::properties::{self, BROADCAST_SUBSCRIPTIONS, Holder};
use pharos_catalog::{ListMode, Policies};
use pharos_types::{NamespaceName, TopicName};

use crate::body::{OptionalJson, QueryOf, RequiredJson};
use crate::bundles::{clear, delete_subscription, unload_all};
use crate::endpoint::{Endpoint, on};
use crate::error::{ApiError, ApiResult};
use crate::forced::{delete_empty, delete_with_topics};
use crate::namespace_policies;
use crate::paths::{NamespacePath, PathParams};
use crate::permissions;
use crate::state::Admin;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        on(&routes::LIST, of_tenant),
        on(&routes::READ, read),
        on(&routes::CREATE, create),
        on(&routes::DELETE, remove),
        on(&routes::TOPICS, topics),
        on(&routes::BUNDLES, bundles),
        on(&routes::PERMISSIONS, permissions::of_namespace),
        on(&routes::SUBSCRIPTION_PERMISSIONS, permissions::of_subscriptions),
        on(&routes::GRANT, permissions::grant_on_namespace),
        on(&routes::REVOKE, permissions::revoke_on_namespace),
        on(&routes::GRANT_ON_TOPICS, permissions::grant_on_topics),
        on(&routes::REVOKE_ON_TOPICS, permissions::revoke_on_topics),
        on(&routes::GRANT_SUBSCRIPTION, permissions::grant_on_subscription),
        on(&routes::REVOKE_SUBSCRIPTION, permissions::revoke_on_subscription),
        on(
            &routes::REVOKE_SUBSCRIPTION_SUBSCRIPTION,
            permissions::revoke_on_subscription_subscription,
        ),
        on(&routes::RESOURCE_GROUP, no_resource_group),
        on(&routes::UNLOAD, unload),
        on(&routes::CLEAR_BACKLOG, clear_backlog),
        on(&routes::CLEAR_BACKLOG_OF, clear_backlog),
        on(&routes::UNSUBSCRIBE, unsubscribe),
        on(&routes::PROPERTIES, properties),
        on(&routes::SET_PROPERTIES, set_properties),
        on(&routes::CLEAR_PROPERTIES, clear_properties),
        on(&routes::PROPERTY, property),
        on(&routes::REMOVE_PROPERTY, remove_property),
        on(&routes::SET_PROPERTY, set_property),
    ]
}

async fn of_tenant(State(admin): State<Admin>, params: PathParams) -> ApiResult<Json<Vec<String>>> {
    let tenant = params.get("tenant");
    if admin.catalog.tenants().get(tenant).is_none() {
        return Err(ApiError::not_found("Tenant does not exist"));
    }
    let names = admin.catalog.namespaces().of(tenant);
    Ok(Json(names.iter().map(ToString::to_string).collect()))
}

/// The policies of a namespace that exists.
pub(crate) fn policies_of(admin: &Admin, name: &NamespaceName) -> ApiResult<std::sync::Arc<Policies>> {
    admin
        .catalog
        .policies(name)
        .ok_or_else(|| ApiError::not_found("Namespace does not exist"))
}

async fn read(State(admin): State<Admin>, NamespacePath(name): NamespacePath) -> ApiResult<Json<Value>> {
    let policies = policies_of(&admin, &name)?;
    // Tools read these members without asking whether they are there.
    let mut members = namespace_policies::unset(&admin);
    members.extend(policies.members().clone());
    Ok(Json(Value::Object(members)))
}

async fn create(
    State(admin): State<Admin>,
    NamespacePath(name): NamespacePath,
    OptionalJson(policies): OptionalJson<Map<String, Value>>,
) -> ApiResult<StatusCode> {
    let members = namespace_policies::keep_enforced(&admin, policies.unwrap_or_default())?;
    if let Some(properties) = members.get("properties").filter(|value| !value.is_null()) {
        let properties = Properties::deserialize(properties)
            .map_err(|_| ApiError::precondition("properties is an object of texts"))?;
        check_properties(Holder::Namespace, &properties)?;
    }
    if let Some(names) = members
        .get(BROADCAST_SUBSCRIPTIONS)
        .filter(|value| !value.is_null())
    {
        Vec::<String>::deserialize(names)
            .map_err(|_| ApiError::precondition(format!("{BROADCAST_SUBSCRIPTIONS} is a list of names")))?;
    }
    admin
        .catalog
        .namespaces()
        .create(&name, Policies::from(members))
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn remove(
    State(admin): State<Admin>,
    NamespacePath(name): NamespacePath,
    QueryOf(query): QueryOf<ForceQuery>,
) -> ApiResult<StatusCode> {
    if query.force {
        delete_with_topics(&admin, &name).await?;
    } else {
        delete_empty(&admin, &name).await?;
    }
    Ok(StatusCode::NO_CONTENT)
}

async fn topics(
    State(admin): State<Admin>,
    NamespacePath(name): NamespacePath,
    QueryOf(query): QueryOf<NamespaceTopicsQuery>,
) -> ApiResult<Json<Vec<String>>> {
    policies_of(&admin, &name)?;
    let mode = match query.mode.as_deref() {
        None | Some("PERSISTENT") => ListMode::Persistent,
        Some("NON_PERSISTENT") => ListMode::NonPersistent,
        Some("ALL") => ListMode::All,
        Some(other) => {
            return Err(ApiError::bad_request(format!(
                "mode '{other}' is none of PERSISTENT, NON_PERSISTENT, ALL"
            )));
        }
    };
    let topics = admin.catalog.topics(&name, mode, query.include_system_topic);
    Ok(Json(topics.iter().map(ToString::to_string).collect()))
}

async fn bundles(State(admin): State<Admin>, NamespacePath(name): NamespacePath) -> ApiResult<Json<Value>> {
    let policies = policies_of(&admin, &name)?;
    Ok(Json(policies.get("bundles").cloned().unwrap_or_default()))
}

/// There are no resource groups to be in.
async fn no_resource_group(
    State(admin): State<Admin>,
    NamespacePath(name): NamespacePath,
) -> ApiResult<StatusCode> {
    policies_of(&admin, &name)?;
    Ok(StatusCode::NO_CONTENT)
}

async fn unload(State(admin): State<Admin>, NamespacePath(name): NamespacePath) -> ApiResult<StatusCode> {
    unload_all(&admin, all_topics(&admin, &name)?).await
}

/// Clears one subscription on every topic that has it, or all subscriptions.
async fn clear_backlog(
    State(admin): State<Admin>,
    NamespacePath(name): NamespacePath,
    params: PathParams,
) -> ApiResult<StatusCode> {
    clear(&admin, all_topics(&admin, &name)?, params.get("subscription")).await
}

/// Deletes one subscription on every topic that has it.
async fn unsubscribe(
    State(admin): State<Admin>,
    NamespacePath(name): NamespacePath,
    params: PathParams,
) -> ApiResult<StatusCode> {
    delete_subscription(&admin, all_topics(&admin, &name)?, params.get("subscription")).await
}

fn all_topics(admin: &Admin, name: &NamespaceName) -> ApiResult<Vec<TopicName>> {
    policies_of(admin, name)?;
    Ok(admin.catalog.topics(name, ListMode::Persistent, false))
}

type Properties = BTreeMap<String, String>;

fn properties_of(admin: &Admin, name: &NamespaceName) -> ApiResult<Properties> {
    Ok(policies_of(admin, name)?.get_as("properties").unwrap_or_default())
}

async fn properties(
    State(admin): State<Admin>,
    NamespacePath(name): NamespacePath,
) -> ApiResult<Json<Properties>> {
    properties_of(&admin, &name).map(Json)
}

/// Refuses properties that only the broker may name and does not know, and values that it does not understand.
pub(crate) fn check_properties(holder: Holder, properties: &Properties) -> ApiResult<()> {
    if holder == Holder::Subscription {
        let bytes = properties
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum();
        properties::check_size("subscription properties", properties.len(), bytes)
            .map_err(ApiError::precondition)?;
    }
    for (name, value) in properties {
        properties::check(holder, name, value).map_err(ApiError::precondition)?;
    }
    Ok(())
}

async fn set_properties(
    State(admin): State<Admin>,
    NamespacePath(name): NamespacePath,
    RequiredJson(added): RequiredJson<Properties>,
) -> ApiResult<StatusCode> {
    check_properties(Holder::Namespace, &added)?;
    change_properties(&admin, &name, |properties| properties.extend(added.clone())).await
}

async fn clear_properties(
    State(admin): State<Admin>,
    NamespacePath(name): NamespacePath,
) -> ApiResult<StatusCode> {
    change_properties(&admin, &name, BTreeMap::clear).await
}

async fn property(
    State(admin): State<Admin>,
    NamespacePath(name): NamespacePath,
    params: PathParams,
) -> ApiResult<String> {
    let properties = properties_of(&admin, &name)?;
    let value = properties.get(params.get("key")).cloned();
    value.ok_or_else(|| ApiError::not_found(format!("property {} is not set", params.get("key"))))
}

async fn set_property(
    State(admin): State<Admin>,
    NamespacePath(name): NamespacePath,
    params: PathParams,
) -> ApiResult<StatusCode> {
    properties::check(Holder::Namespace, params.get("key"), params.get("value"))
        .map_err(ApiError::precondition)?;
    change_properties(&admin, &name, |properties| {
        properties.insert(params.get("key").to_owned(), params.get("value").to_owned());
    })
    .await
}

async fn remove_property(
    State(admin): State<Admin>,
    NamespacePath(name): NamespacePath,
    params: PathParams,
) -> ApiResult<Response> {
    // The value that went, as Pulsar answers. A change that meets another one is made again.
    let removed = Mutex::new(None);
    change_properties(&admin, &name, |properties| {
        let value = properties.remove(params.get("key"));
        *removed.lock().unwrap_or_else(PoisonError::into_inner) = value;
    })
    .await?;
    let removed = removed.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(match removed {
        Some(value) => value.into_response(),
        None => StatusCode::NO_CONTENT.into_response(),
    })
}

async fn change_properties(
    admin: &Admin,
    name: &NamespaceName,
    change: impl Fn(&mut Properties),
) -> ApiResult<StatusCode> {
    let changed = admin.catalog.namespaces().update_policies(name, |policies| {
        let mut properties: Properties = policies.get_as("properties").unwrap_or_default();
        change(&mut properties);
        policies.set("properties", serde_json::json!(properties));
    });
    changed.await?;
    Ok(StatusCode::NO_CONTENT)
}
