//! Namespaces: making, listing, deleting, their topics, bundles and properties. Policies are next door, and so is deleting by
//! force.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post, put};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Map, Value};

use pharos_broker::properties::{self, BROADCAST_SUBSCRIPTIONS, Holder};
use pharos_catalog::{ListMode, Policies};
use pharos_types::{NamespaceName, TopicName};

use crate::body::{ForceQuery, OptionalJson, QueryOf, RequiredJson};
use crate::bundles::{clear, unload_all};
use crate::error::{ApiError, ApiResult};
use crate::forced::{delete_empty, delete_with_topics};
use crate::namespace_policies;
use crate::paths::{NamespacePath, PathParts};
use crate::state::Admin;

pub(crate) fn routes() -> Router<Admin> {
    let base = "/admin/v2/namespaces/{tenant}/{namespace}";
    let at = |rest: &str| format!("{base}{rest}");
    Router::new()
        .route("/admin/v2/namespaces/{tenant}", get(of_tenant))
        .route(base, get(read).put(create).delete(remove))
        .route(&at("/topics"), get(topics))
        .route(&at("/bundles"), get(bundles))
        .route(&at("/permissions"), get(permissions))
        .route(&at("/permissions/subscription"), get(permissions))
        .route(
            &at("/permissions/{role}"),
            post(no_authorization).delete(no_authorization),
        )
        .route(&at("/resourcegroup"), get(no_resource_group))
        .route(&at("/unload"), put(unload))
        .route(&at("/clearBacklog"), post(clear_backlog))
        .route(&at("/clearBacklog/{subscription}"), post(clear_backlog))
        .route(
            &at("/properties"),
            get(properties).put(set_properties).delete(clear_properties),
        )
        .route(&at("/property/{key}"), get(property).delete(remove_property))
        .route(&at("/property/{key}/{value}"), put(set_property))
}

async fn of_tenant(State(admin): State<Admin>, parts: PathParts) -> ApiResult<Json<Vec<String>>> {
    let tenant = parts.get(0);
    if admin.catalog.tenant(tenant).is_none() {
        return Err(ApiError::not_found("Tenant does not exist"));
    }
    let names = admin.catalog.namespaces_of(tenant);
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
        .create_namespace(&name, Policies::from(members))
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

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TopicsQuery {
    #[serde(default)]
    mode: Option<String>,
    #[serde(default)]
    include_system_topic: bool,
}

async fn topics(
    State(admin): State<Admin>,
    NamespacePath(name): NamespacePath,
    QueryOf(query): QueryOf<TopicsQuery>,
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

/// Nobody is granted anything: there is no authorization yet, everybody may do everything.
async fn permissions(
    State(admin): State<Admin>,
    NamespacePath(name): NamespacePath,
) -> ApiResult<Json<Value>> {
    policies_of(&admin, &name)?;
    Ok(Json(Value::Object(Map::new())))
}

/// There are no resource groups to be in.
async fn no_resource_group(
    State(admin): State<Admin>,
    NamespacePath(name): NamespacePath,
) -> ApiResult<StatusCode> {
    policies_of(&admin, &name)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Nothing can be granted to or taken from anybody.
pub(crate) async fn no_authorization() -> ApiError {
    ApiError::not_implemented("Authorization is not enabled")
}

async fn unload(State(admin): State<Admin>, NamespacePath(name): NamespacePath) -> ApiResult<StatusCode> {
    unload_all(&admin, all_topics(&admin, &name)?).await
}

/// Clears one subscription on every topic that has it, or all subscriptions.
async fn clear_backlog(
    State(admin): State<Admin>,
    NamespacePath(name): NamespacePath,
    parts: PathParts,
) -> ApiResult<StatusCode> {
    clear(&admin, all_topics(&admin, &name)?, parts.get(3)).await
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
    parts: PathParts,
) -> ApiResult<String> {
    let properties = properties_of(&admin, &name)?;
    let value = properties.get(parts.get(3)).cloned();
    value.ok_or_else(|| ApiError::not_found(format!("property {} is not set", parts.get(3))))
}

async fn set_property(
    State(admin): State<Admin>,
    NamespacePath(name): NamespacePath,
    parts: PathParts,
) -> ApiResult<StatusCode> {
    properties::check(Holder::Namespace, parts.get(3), parts.get(4)).map_err(ApiError::precondition)?;
    change_properties(&admin, &name, |properties| {
        properties.insert(parts.get(3).to_owned(), parts.get(4).to_owned());
    })
    .await
}

async fn remove_property(
    State(admin): State<Admin>,
    NamespacePath(name): NamespacePath,
    parts: PathParts,
) -> ApiResult<StatusCode> {
    change_properties(&admin, &name, |properties| {
        properties.remove(parts.get(3));
    })
    .await
}

async fn change_properties(
    admin: &Admin,
    name: &NamespaceName,
    change: impl Fn(&mut Properties),
) -> ApiResult<StatusCode> {
    let changed = admin.catalog.update_policies(name, |policies| {
        let mut properties: Properties = policies.get_as("properties").unwrap_or_default();
        change(&mut properties);
        policies.set("properties", serde_json::json!(properties));
    });
    changed.await?;
    Ok(StatusCode::NO_CONTENT)
}
