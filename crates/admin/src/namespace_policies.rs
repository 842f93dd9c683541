//! Policies of namespaces, all by the same few handlers over [`POLICIES`].

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use pharos_admin_api::query::{AppliedQuery, QuotaQuery};
use pharos_admin_api::routes::namespace_policies as routes;

use crate::body::{QueryOf, RequiredJson};
use crate::endpoint::{Endpoint, on};
use crate::error::{ApiError, ApiResult};
use crate::namespaces::policies_of;
use crate::offload;
use crate::paths::NamespacePath;
use crate::policy_table::{
    POLICIES, Place, Policy, backlog_quota, check_copies, check_enforced, is_off, retention_exceeds, worded,
};
use crate::state::Admin;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    let mut endpoints = vec![
        on(&routes::BACKLOG_QUOTAS, backlog_quotas),
        on(&routes::SET_BACKLOG_QUOTA, set_backlog_quota),
        on(&routes::REMOVE_BACKLOG_QUOTA, remove_backlog_quota),
    ];
    for rows in routes::POLICIES {
        let known = POLICIES.iter().find(|policy| policy.namespace_path == rows.name);
        let Some(policy) = known else { continue };
        endpoints.extend([
            on(&rows.read, move |state, path, query| {
                read(policy, state, path, query)
            }),
            on(&rows.set, move |state, path, body| set(policy, state, path, body)),
            on(&rows.remove, move |state, path| remove(policy, state, path)),
        ]);
    }
    endpoints
}

/// The value, or 204 when it is not set.
async fn read(
    policy: &Policy,
    State(admin): State<Admin>,
    NamespacePath(name): NamespacePath,
    QueryOf(query): QueryOf<AppliedQuery>,
) -> ApiResult<Response> {
    let policies = policies_of(&admin, &name)?;
    let value = policies.get(policy.member);
    let value = match policy.place {
        Place::Whole => value,
        Place::ByCluster => value.and_then(|clusters| clusters.get(&admin.options.cluster_name)),
    };
    if let Some(value) = value {
        return Ok(Json(value.clone()).into_response());
    }
    let options = admin.catalog.options();
    let value = match policy.member {
        // The reference says so of these two whether it is asked for what holds or not.
        "max_topics_per_namespace" => Some(json!(0)),
        "dispatcherPauseOnAckStatePersistentEnabled" => Some(json!(false)),
        "schema_validation_enforced" if query.applied => {
            Some(json!(options.policies.schema_validation_enforced))
        }
        member => unset(&admin).remove(member).filter(|value| !value.is_object()),
    };
    Ok(match value {
        Some(value) => Json(value).into_response(),
        None => StatusCode::NO_CONTENT.into_response(),
    })
}

/// What the policies of a namespace say that are never absent, where nobody said anything. Clients take these for plain
/// values and stumble over an empty answer.
pub(crate) fn unset(admin: &Admin) -> Map<String, Value> {
    let members = json!({
        "auth_policies": {"namespace_auth": {}, "destination_auth": {}, "subscription_auth_roles": {}},
        "allowed_clusters": [],
        "backlog_quota_map": {},
        "clusterDispatchRate": {},
        "topicDispatchRate": {},
        "subscriptionDispatchRate": {},
        "replicatorDispatchRate": {},
        "clusterSubscribeRate": {},
        "publishMaxMessageRate": {},
        "latency_stats_sample_rate": {},
        "deleted": false,
        "encryption_required": false,
        "subscription_auth_mode": "None",
        "offload_threshold": -1,
        "offload_threshold_in_seconds": -1,
        "schema_compatibility_strategy": "UNDEFINED",
        "is_allow_auto_update_schema": admin.catalog.options().policies.allow_auto_update_schema,
        "schema_validation_enforced": false,
        "subscription_types_enabled": [],
        "properties": {},
        "migrated": false,
    });
    match members {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

async fn set(
    policy: &Policy,
    State(admin): State<Admin>,
    NamespacePath(name): NamespacePath,
    RequiredJson(value): RequiredJson<Value>,
) -> ApiResult<StatusCode> {
    policies_of(&admin, &name)?;
    let value = (policy.check)(value).map_err(|error| worded(error, policy.namespace_path))?;
    check_acted_on(&admin, policy.member, &value)?;
    if policy.member == RETENTION {
        let policies = policies_of(&admin, &name)?;
        let quotas: Map<String, Value> = policies.get_as(QUOTAS).unwrap_or_default();
        if !retention_exceeds(Some(&value), &quotas) {
            let reason = "Retention Quota must exceed configured backlog quota for namespace.";
            return Err(ApiError::precondition(reason));
        }
    }
    offload::check(&admin, policy.member, &value)?;
    store(&admin, policy, &name, value).await
}

/// Refuses a value that nothing would act on.
fn check_acted_on(admin: &Admin, member: &str, value: &Value) -> ApiResult<()> {
    match member {
        "persistence" => check_copies(value, admin.backend.default_policy(member).as_ref()),
        // It may live where it does.
        "allowed_clusters" if is_only(value, &admin.options.cluster_name) => Ok(()),
        _ => check_enforced(member, admin.backend.enforced_namespace_policies(), value),
    }
}

/// Whether it is a list of this name and no other.
fn is_only(value: &Value, name: &str) -> bool {
    let mut items = value.as_array().into_iter().flatten();
    items.all(|item| item.as_str() == Some(name))
}

async fn remove(
    policy: &Policy,
    State(admin): State<Admin>,
    NamespacePath(name): NamespacePath,
) -> ApiResult<StatusCode> {
    policies_of(&admin, &name)?;
    store(&admin, policy, &name, Value::Null).await
}

async fn store(
    admin: &Admin,
    policy: &Policy,
    name: &pharos_types::NamespaceName,
    value: Value,
) -> ApiResult<StatusCode> {
    let cluster = &admin.options.cluster_name;
    let stored = admin
        .catalog
        .update_policies(name, |policies| match policy.place {
            Place::Whole => {
                policies.set(policy.member, value.clone());
                offload::sync(policies, policy.member);
            }
            Place::ByCluster => {
                let mut clusters: Map<String, Value> = policies.get_as(policy.member).unwrap_or_default();
                if value.is_null() {
                    clusters.remove(cluster);
                } else {
                    clusters.insert(cluster.clone(), value.clone());
                }
                policies.set(policy.member, Value::Object(clusters));
            }
        });
    stored.await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The type of a backlog quota: the one that was asked for, or by size.
pub(crate) fn quota_type(asked: Option<String>) -> ApiResult<String> {
    let kind = asked.unwrap_or_else(|| "destination_storage".to_owned());
    match kind.as_str() {
        "destination_storage" | "message_age" => Ok(kind),
        _ => Err(ApiError::bad_request(
            "backlogQuotaType is destination_storage or message_age",
        )),
    }
}

const QUOTAS: &str = "backlog_quota_map";
const RETENTION: &str = "retention_policies";

async fn backlog_quotas(
    State(admin): State<Admin>,
    NamespacePath(name): NamespacePath,
) -> ApiResult<Json<Value>> {
    let policies = policies_of(&admin, &name)?;
    Ok(Json(policies.get(QUOTAS).cloned().unwrap_or_else(|| json!({}))))
}

async fn set_backlog_quota(
    State(admin): State<Admin>,
    NamespacePath(name): NamespacePath,
    QueryOf(query): QueryOf<QuotaQuery>,
    RequiredJson(value): RequiredJson<Value>,
) -> ApiResult<StatusCode> {
    policies_of(&admin, &name)?;
    let (kind, quota) = (quota_type(query.backlog_quota_type)?, backlog_quota(value)?);
    check_enforced(QUOTAS, admin.backend.enforced_namespace_policies(), &quota)?;
    let policies = policies_of(&admin, &name)?;
    let quotas = Map::from_iter([(kind.clone(), quota.clone())]);
    if !retention_exceeds(policies.get(RETENTION), &quotas) {
        let reason = "Backlog Quota exceeds configured retention quota for namespace. Please increase retention quota and retry";
        return Err(ApiError::precondition(reason));
    }
    change_quota(&admin, &name, &kind, Some(quota)).await
}

async fn remove_backlog_quota(
    State(admin): State<Admin>,
    NamespacePath(name): NamespacePath,
    QueryOf(query): QueryOf<QuotaQuery>,
) -> ApiResult<StatusCode> {
    policies_of(&admin, &name)?;
    change_quota(&admin, &name, &quota_type(query.backlog_quota_type)?, None).await
}

async fn change_quota(
    admin: &Admin,
    name: &pharos_types::NamespaceName,
    kind: &str,
    quota: Option<Value>,
) -> ApiResult<StatusCode> {
    let changed = admin.catalog.update_policies(name, |policies| {
        let mut quotas: Map<String, Value> = policies.get_as(QUOTAS).unwrap_or_default();
        match &quota {
            Some(quota) => drop(quotas.insert(kind.to_owned(), quota.clone())),
            None => drop(quotas.remove(kind)),
        }
        policies.set(QUOTAS, Value::Object(quotas));
    });
    changed.await?;
    Ok(StatusCode::NO_CONTENT)
}

/// What of the policies that a new namespace comes with is kept. Tools send every policy they know at its default, so
/// what is not acted on and off is dropped; what is not acted on and on is refused.
pub(crate) fn keep_enforced(admin: &Admin, members: Map<String, Value>) -> ApiResult<Map<String, Value>> {
    let mut kept = Map::new();
    for (member, value) in members {
        if let Some(value) = keep(admin, &member, value)? {
            kept.insert(member, value);
        }
    }
    Ok(kept)
}

fn keep(admin: &Admin, member: &str, value: Value) -> ApiResult<Option<Value>> {
    if value.is_null() || is_own_cluster(admin, member, &value) {
        return Ok(None);
    }
    let enforced = admin.backend.enforced_namespace_policies();
    let is_acted_on = enforced.contains(&member) || matches!(member, "persistence" | "allowed_clusters");
    if !is_acted_on {
        return match is_off(&value) {
            true => Ok(None),
            false => Err(ApiError::not_implemented(format!(
                "policy {member} is not enforced in this release, so a namespace cannot be made with it"
            ))),
        };
    }
    if member == QUOTAS {
        return each_member(value, backlog_quota).map(Some);
    }
    let known = POLICIES.iter().find(|policy| policy.member == member);
    let value = match known {
        Some(policy) if policy.place == Place::ByCluster => each_member(value, policy.check)?,
        Some(policy) => {
            let value = (policy.check)(value).map_err(|error| worded(error, policy.namespace_path))?;
            check_acted_on(admin, member, &value)?;
            value
        }
        None => value,
    };
    offload::check(admin, member, &value)?;
    Ok(Some(value))
}

/// Checks every value of an object.
fn each_member(value: Value, check: impl Fn(Value) -> ApiResult<Value>) -> ApiResult<Value> {
    let Value::Object(members) = value else {
        return Err(ApiError::bad_request("an object is expected"));
    };
    let checked = members.into_iter().map(|(name, value)| Ok((name, check(value)?)));
    checked
        .collect::<ApiResult<Map<String, Value>>>()
        .map(Value::Object)
}

/// `pulsar-admin` says with every new namespace which cluster may delete it, and there is one.
fn is_own_cluster(admin: &Admin, member: &str, value: &Value) -> bool {
    member == "clusterThatCanDeleteNamespace" && value.as_str() == Some(admin.options.cluster_name.as_str())
}
