//! Policies of namespaces, all by the same few handlers over the rows of the registry ([`policy`]).

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use pharos_admin_api::query::{AppliedQuery, QuotaQuery};
use pharos_admin_api::routes::namespace_policies as routes;

use pharos_catalog::RuntimeSettings;
use pharos_catalog::policy::{self, AtNamespace, Guard, Level, Levels, Row};

use crate::body::{OptionalJson, QueryOf, RequiredJson, TextBody};
use crate::endpoint::{Endpoint, on};
use crate::error::{ApiError, ApiResult};
use crate::namespaces::policies_of;
use crate::offload;
use crate::paths::NamespacePath;
use crate::state::Admin;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    let mut endpoints = vec![
        on(&routes::BACKLOG_QUOTAS, backlog_quotas),
        on(&routes::SET_BACKLOG_QUOTA, set_backlog_quota),
        on(&routes::REMOVE_BACKLOG_QUOTA, remove_backlog_quota),
    ];
    for rows in routes::POLICIES {
        let Some((row, at)) = row_at(rows.name) else {
            continue;
        };
        endpoints.extend([
            on(&rows.read, move |state, path, query| {
                read(row, at, state, path, query)
            }),
            match rows.name {
                ANTI_AFFINITY => on(&rows.set, move |state, path, TextBody(text)| {
                    let body = OptionalJson(text.map(Value::String));
                    set(row, at, state, path, body)
                }),
                _ => on(&rows.set, move |state, path, body| {
                    set(row, at, state, path, body)
                }),
            },
            on(&rows.remove, move |state, path| remove(at, state, path)),
        ]);
    }
    endpoints
}

/// The policy whose value `pulsar-admin` sends as it is, and calls JSON.
const ANTI_AFFINITY: &str = "antiAffinity";

/// The row of the policy at this path.
fn row_at(path: &str) -> Option<(&'static Row, AtNamespace)> {
    policy::all().find_map(|row| {
        let at = row.namespace.filter(|at| at.path == path)?;
        Some((row, at))
    })
}

/// The value, or 204 when it is not set and has none by itself.
async fn read(
    row: &Row,
    at: AtNamespace,
    State(admin): State<Admin>,
    NamespacePath(name): NamespacePath,
    QueryOf(query): QueryOf<AppliedQuery>,
) -> ApiResult<Response> {
    let policies = policies_of(&admin, &name)?;
    if let Some(value) = at.said_by(&policies, &admin.options.cluster_name) {
        return Ok(Json(value.clone()).into_response());
    }
    let broker = RuntimeSettings::of(&admin.catalog).policies();
    let value = if query.applied && at.knows_applied {
        (row.applied)(&Levels::of_broker(broker, &admin.catalog.options().cluster_name))
    } else {
        at.unset.map(|unset| unset(&broker))
    };
    Ok(match value {
        Some(value) => Json(value).into_response(),
        None => StatusCode::NO_CONTENT.into_response(),
    })
}

/// The policies of a namespace that are never absent, where none was set. Clients take these for plain
/// values and stumble over an empty answer.
pub(crate) fn unset(admin: &Admin) -> Map<String, Value> {
    let broker = RuntimeSettings::of(&admin.catalog).policies();
    let rows = policy::all().filter_map(|row| row.namespace);
    rows.filter_map(|at| Some((at.member.to_owned(), at.unset_member?(&broker))))
        .collect()
}

async fn set(
    row: &Row,
    at: AtNamespace,
    State(admin): State<Admin>,
    NamespacePath(name): NamespacePath,
    OptionalJson(body): OptionalJson<Value>,
) -> ApiResult<StatusCode> {
    policies_of(&admin, &name)?;
    let value = match body.or_else(|| without_body(at.path)) {
        Some(value) => value,
        // That is how `pulsar-admin` removes it.
        None if at.path == SNAPSHOT_INTERVAL => return store(&admin, at, &name, Value::Null).await,
        None => return Err(ApiError::bad_request("a body is expected")),
    };
    let value = accepted(&admin, row, value)?;
    if row.guard == Guard::Quotas {
        let policies = policies_of(&admin, &name)?;
        let quotas: Map<String, Value> = policies.get_as(QUOTAS).unwrap_or_default();
        if !policy::retention_exceeds(Some(&value), &quotas) {
            let reason = "Retention Quota must exceed configured backlog quota for namespace.";
            return Err(ApiError::precondition(reason));
        }
    }
    if row.guard == Guard::Bookies {
        admin.bookies.check_groups(&value).await?;
    }
    store(&admin, at, &name, value).await
}

const SNAPSHOT_INTERVAL: &str = "deduplicationSnapshotInterval";

/// Value of the policy at this path for a request without a body, as `pulsar-admin` sends for this one.
pub(crate) fn without_body(path: &str) -> Option<Value> {
    (path == "dispatcherPauseOnAckStatePersistent").then_some(Value::Bool(true))
}

/// The value in the shape that is stored, if something acts on it.
fn accepted(admin: &Admin, row: &Row, value: Value) -> ApiResult<Value> {
    let broker = RuntimeSettings::of(&admin.catalog).policies();
    let value = row.accept(Level::Namespace, value, &broker, &admin.options.cluster_name)?;
    offload::check(admin, row, &value)?;
    Ok(value)
}

async fn remove(
    at: AtNamespace,
    State(admin): State<Admin>,
    NamespacePath(name): NamespacePath,
) -> ApiResult<StatusCode> {
    policies_of(&admin, &name)?;
    store(&admin, at, &name, Value::Null).await
}

async fn store(
    admin: &Admin,
    at: AtNamespace,
    name: &pharos_types::NamespaceName,
    value: Value,
) -> ApiResult<StatusCode> {
    let cluster = &admin.options.cluster_name;
    let stored = admin.catalog.namespaces().update_policies(name, |policies| {
        if at.by_cluster {
            let mut clusters: Map<String, Value> = policies.get_as(at.member).unwrap_or_default();
            if value.is_null() {
                clusters.remove(cluster);
            } else {
                clusters.insert(cluster.clone(), value.clone());
            }
            policies.set(at.member, Value::Object(clusters));
        } else {
            policies.set(at.member, value.clone());
            offload::sync(policies, at.member);
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
    let (kind, quota) = (
        quota_type(query.backlog_quota_type)?,
        policy::backlog_quota(value)?,
    );
    let policies = policies_of(&admin, &name)?;
    let quotas = Map::from_iter([(kind.clone(), quota.clone())]);
    if !policy::retention_exceeds(policies.get(RETENTION), &quotas) {
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
    let changed = admin.catalog.namespaces().update_policies(name, |policies| {
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

/// Policies of a new namespace to keep. Tools send every policy they know at its default value: policies that Pharos
/// does not implement are dropped if they are off and refused if they are on.
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
    let row = policy::all().find(|row| row.key(Level::Namespace) == member);
    if row.is_some_and(|row| row.guard == Guard::Bookies) {
        // Not all who may make a namespace may choose its bookies.
        return Err(ApiError::bad_request(format!(
            "policy {member} is set by a request of its own, when the namespace is there"
        )));
    }
    let row = row.filter(|row| row.acts_on(Level::Namespace) || row.guard == Guard::OwnCluster);
    let Some((row, at)) = row.and_then(|row| Some((row, row.namespace?))) else {
        return match policy::is_off(&value) {
            true => Ok(None),
            false => Err(ApiError::not_implemented(format!(
                "policy {member} is not enforced in this release, so a namespace cannot be made with it"
            ))),
        };
    };
    let value = match at.by_cluster {
        true => each_member(value, |value| Ok((row.check)(at.path, value)?))?,
        false => accepted(admin, row, value)?,
    };
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
