//! Policies of namespaces, all by the same few handlers over [`POLICIES`].

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, delete, get};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::body::{QueryOf, RequiredJson};
use crate::error::{ApiError, ApiResult};
use crate::namespaces::policies_of;
use crate::offload;
use crate::paths::NamespacePath;
use crate::policy_table::{
    Method, POLICIES, Place, Policy, backlog_quota, check_copies, check_enforced, is_off, retention_exceeds,
    worded,
};
use crate::state::Admin;

pub(crate) fn routes() -> Router<Admin> {
    let at = |rest: &str| format!("/admin/v2/namespaces/{{tenant}}/{{namespace}}/{rest}");
    let mut router = Router::new()
        .route(&at("backlogQuotaMap"), get(backlog_quotas))
        .route(
            &at("backlogQuota"),
            delete(remove_backlog_quota).post(set_backlog_quota),
        );
    for policy in POLICIES.iter().filter(|policy| !policy.namespace_path.is_empty()) {
        router = router.route(&at(policy.namespace_path), methods(policy));
    }
    router
}

fn methods(policy: &'static Policy) -> MethodRouter<Admin> {
    let router = get(move |state, path| read(policy, state, path))
        .delete(move |state, path| remove(policy, state, path));
    match policy.set {
        Method::Post => router.post(move |state, path, body| set(policy, state, path, body)),
        Method::Put => router.put(move |state, path, body| set(policy, state, path, body)),
    }
}

/// The value, or 204 when it is not set.
async fn read(
    policy: &Policy,
    State(admin): State<Admin>,
    NamespacePath(name): NamespacePath,
) -> ApiResult<Response> {
    let policies = policies_of(&admin, &name)?;
    let value = policies.get(policy.member);
    let value = match policy.place {
        Place::Whole => value,
        Place::ByCluster => value.and_then(|clusters| clusters.get(&admin.options.cluster_name)),
    };
    match (value, policy.member) {
        (Some(value), _) => Ok(Json(value.clone()).into_response()),
        // Clients take these for plain values and stumble over an empty answer.
        (None, "schema_compatibility_strategy") => Ok(Json(json!("UNDEFINED")).into_response()),
        (None, "schema_validation_enforced" | "encryption_required") => {
            Ok(Json(json!(false)).into_response())
        }
        (None, "subscription_auth_mode") => Ok(Json(json!("None")).into_response()),
        (None, "offload_threshold" | "offload_threshold_in_seconds") => Ok(Json(json!(-1)).into_response()),
        (None, _) => Ok(StatusCode::NO_CONTENT.into_response()),
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
    if policy.member == "persistence" {
        check_copies(&value, admin.backend.default_policy("persistence").as_ref())?;
    } else {
        check_enforced(policy.member, admin.backend.enforced_namespace_policies(), &value)?;
    }
    check_local(&admin, policy, &value)?;
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

/// A namespace can be told to be replicated only to this cluster: nothing replicates yet.
fn check_local(admin: &Admin, policy: &Policy, value: &Value) -> ApiResult<()> {
    let elsewhere = |cluster: &Value| cluster.as_str() != Some(admin.options.cluster_name.as_str());
    let clusters = value
        .as_array()
        .filter(|_| policy.member == "replication_clusters");
    match clusters.and_then(|clusters| clusters.iter().find(|cluster| elsewhere(cluster))) {
        Some(cluster)
            if cluster
                .as_str()
                .is_some_and(|name| admin.catalog.cluster(name).is_some()) =>
        {
            Err(ApiError::not_implemented(
                "replication between clusters is not available in this release",
            ))
        }
        _ => Ok(()),
    }
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

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct QuotaQuery {
    backlog_quota_type: Option<String>,
}

impl QuotaQuery {
    pub(crate) fn kind(self) -> ApiResult<String> {
        let kind = self
            .backlog_quota_type
            .unwrap_or_else(|| "destination_storage".to_owned());
        match kind.as_str() {
            "destination_storage" | "message_age" => Ok(kind),
            _ => Err(ApiError::bad_request(
                "backlogQuotaType is destination_storage or message_age",
            )),
        }
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
    let (kind, quota) = (query.kind()?, backlog_quota(value)?);
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
    change_quota(&admin, &name, &query.kind()?, None).await
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
    let enforced = admin.backend.enforced_namespace_policies();
    let mut kept = Map::new();
    for (member, value) in members {
        let known = POLICIES
            .iter()
            .find(|policy| policy.member == member && policy.place == Place::Whole);
        if member == QUOTAS && enforced.contains(&QUOTAS) {
            let quotas = value.as_object().cloned().unwrap_or_default();
            let checked = quotas
                .into_iter()
                .map(|(kind, quota)| Ok((kind, backlog_quota(quota)?)));
            let checked: ApiResult<Map<String, Value>> = checked.collect();
            kept.insert(member, Value::Object(checked?));
        } else if enforced.contains(&member.as_str()) {
            let value = match known {
                Some(policy) if !value.is_null() => (policy.check)(value)?,
                _ => value,
            };
            if !value.is_null() {
                offload::check(admin, &member, &value)?;
            }
            kept.insert(member, value);
        } else if !is_off(&value) && !is_harmless(&member) {
            return Err(ApiError::not_implemented(format!(
                "policy {member} is not enforced in this release, so a namespace cannot be made with it"
            )));
        }
    }
    Ok(kept)
}

/// Members that tools send with a default that looks like a wish: copies of an entry (there is one), who may do what
/// (everybody), how often latency is sampled.
fn is_harmless(member: &str) -> bool {
    matches!(
        member,
        "persistence" | "auth_policies" | "latency_stats_sample_rate" | "deleted" | "migrated"
    )
}
