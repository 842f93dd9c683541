//! Policies of topics, all by the same few handlers over the rows of the registry ([`policy`]). Those of a partition are its partitioned topic's.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize as _;
use serde_json::{Map, Value};

use pharos_admin_api::query::{ScopeQuery, SetTopicPolicyQuery, TopicPolicyQuery, TopicQuotaQuery};
use pharos_admin_api::routes::topic_policies as routes;
use pharos_catalog::policy::{self, AtTopic, Guard, Level, Row, ToJson as _};
use pharos_catalog::{GLOBAL, RuntimeSettings};
use pharos_types::TopicName;

use crate::body::{OptionalJson, QueryOf, RequiredJson};
use crate::endpoint::{Endpoint, on};
use crate::error::{ApiError, ApiResult};
use crate::namespace_policies::{quota_type, without_body};
use crate::namespaces::policies_of;
use crate::paths::TopicPath;
use crate::state::Admin;
use crate::topics::known;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    let mut endpoints = vec![
        on(&routes::BACKLOG_QUOTAS, backlog_quotas),
        on(&routes::SET_BACKLOG_QUOTA, set_backlog_quota),
        on(&routes::REMOVE_BACKLOG_QUOTA, remove_backlog_quota),
        on(&routes::REMOVE_ALL, remove_all),
    ];
    for rows in routes::POLICIES {
        let Some((row, at)) = row_at(rows.name) else {
            continue;
        };
        endpoints.extend([
            on(&rows.read, move |state, path, query| {
                read(row, at, state, path, query)
            }),
            on(&rows.set, move |state, path, query, body| {
                set(row, at, state, path, query, body)
            }),
            on(&rows.remove, move |state, path, query| {
                remove(at, state, path, query)
            }),
        ]);
    }
    endpoints
}

/// The row of the policy at this path.
fn row_at(path: &str) -> Option<(&'static Row, AtTopic)> {
    policy::all().find_map(|row| {
        let at = row.topic.filter(|at| at.path == path)?;
        Some((row, at))
    })
}

/// The name under which a policy of a topic is kept.
fn stored_name(policy: &str, is_global: bool) -> String {
    if is_global {
        format!("{GLOBAL}{policy}")
    } else {
        policy.to_owned()
    }
}

/// The topic's own value, or with `applied` what holds: the namespace's when it has none, or else the broker's; 204 when
/// there is none.
async fn read(
    row: &Row,
    at: AtTopic,
    State(admin): State<Admin>,
    TopicPath(topic): TopicPath,
    QueryOf(query): QueryOf<TopicPolicyQuery>,
) -> ApiResult<Response> {
    known(&admin, &topic)?;
    let policies = admin.catalog.topic_policies(&topic);
    let own = if query.applied {
        policies.get(at.path)
    } else {
        policies.0.get(&stored_name(at.path, query.is_global))
    };
    if let Some(value) = own {
        return Ok(Json(value.clone()).into_response());
    }
    if query.applied
        && let Some(value) = applied(&admin, row, &topic)?
    {
        return Ok(Json(value).into_response());
    }
    Ok(match at.unset {
        Some(unset) => Json(unset(&RuntimeSettings::of(&admin.catalog).policies())).into_response(),
        None => StatusCode::NO_CONTENT.into_response(),
    })
}

/// Value that applies if the topic sets none: that of the namespace as stored, or else that of the broker.
fn applied(admin: &Admin, row: &Row, topic: &TopicName) -> ApiResult<Option<Value>> {
    if let Some(at) = row.namespace {
        let policies = policies_of(admin, topic.namespace())?;
        if let Some(value) = at.said_by(&policies, &admin.options.cluster_name) {
            return Ok(Some(value.clone()));
        }
    }
    Ok((row.applied)(&admin.catalog.levels(topic)))
}

async fn set(
    row: &Row,
    at: AtTopic,
    State(admin): State<Admin>,
    TopicPath(topic): TopicPath,
    QueryOf(query): QueryOf<SetTopicPolicyQuery>,
    OptionalJson(body): OptionalJson<Value>,
) -> ApiResult<StatusCode> {
    known(&admin, &topic)?;
    let in_query = match at.path {
        "messageTTL" => query.message_ttl,
        "subscriptionExpirationTime" => query.subscription_expiration_time,
        _ => None,
    };
    let value = in_query.filter(|_| at.in_query).map(Value::from).or(body);
    let value = value.or_else(|| without_body(at.path));
    let value = value.ok_or_else(|| ApiError::bad_request("a body is expected"))?;
    let broker = RuntimeSettings::of(&admin.catalog).policies();
    let value = row.accept(Level::Topic, value, &broker, &admin.options.cluster_name)?;
    if at.path == "maxMessageSize" {
        check_message_size(&admin, &value)?;
    }
    match row.guard {
        Guard::Clusters => check_replication(&admin, &topic, &value)?,
        Guard::Quotas => {
            let mut quotas = quotas_of_namespace(&admin, &topic)?;
            quotas.extend(quotas_of(&admin, &topic, query.is_global));
            if !policy::retention_exceeds(Some(&value), &quotas) {
                let reason = "Retention Quota must exceed configured backlog quota for topic. Please increase retention quota and retry";
                return Err(ApiError::precondition(reason));
            }
        }
        _ => crate::offload::check(&admin, row, &value)?,
    }
    let name = stored_name(at.path, query.is_global);
    admin.catalog.set_topic_policy(&topic, &name, value).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn remove(
    at: AtTopic,
    State(admin): State<Admin>,
    TopicPath(topic): TopicPath,
    QueryOf(query): QueryOf<ScopeQuery>,
) -> ApiResult<StatusCode> {
    known(&admin, &topic)?;
    let name = stored_name(at.path, query.is_global);
    admin.catalog.set_topic_policy(&topic, &name, Value::Null).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Removes what the registry's rows say of a topic, for this cluster and for all. What else is kept beside it, as its shadows are, stays.
async fn remove_all(State(admin): State<Admin>, TopicPath(topic): TopicPath) -> ApiResult<StatusCode> {
    known(&admin, &topic)?;
    let is_policy = |name: &str| row_at(name.strip_prefix(GLOBAL).unwrap_or(name)).is_some();
    admin.catalog.remove_topic_policies(&topic, is_policy).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A topic may take shorter messages than the broker, and no longer ones.
fn check_message_size(admin: &Admin, value: &Value) -> ApiResult<()> {
    let bytes_max = admin.options.message_bytes_max;
    if value.as_u64() > Some(u64::from(bytes_max)) {
        return Err(ApiError::precondition(format!(
            "a topic's maxMessageSize is at most the broker's, {bytes_max}"
        )));
    }
    Ok(())
}

/// A topic is on this cluster, and on others that its namespace might name.
fn check_replication(admin: &Admin, topic: &TopicName, value: &Value) -> ApiResult<()> {
    let clusters = Vec::<String>::deserialize(value).unwrap_or_default();
    if !clusters.contains(&admin.options.cluster_name) {
        return Err(ApiError::precondition(
            "Can not remove local cluster from the local topic-level replication clusters policy",
        ));
    }
    Ok(admin
        .catalog
        .namespaces()
        .check_topic_clusters(topic.namespace(), &clusters)?)
}

const QUOTAS: &str = "backlogQuota";
const RETENTION: &str = "retention";

fn quotas_of(admin: &Admin, topic: &TopicName, is_global: bool) -> Map<String, Value> {
    let policies = admin.catalog.topic_policies(topic);
    let quotas = policies.0.get(&stored_name(QUOTAS, is_global));
    quotas.and_then(Value::as_object).cloned().unwrap_or_default()
}

/// The topic's own quotas; with `applied` and none of its own, those of the namespace or else of the broker.
async fn backlog_quotas(
    State(admin): State<Admin>,
    TopicPath(topic): TopicPath,
    QueryOf(query): QueryOf<TopicPolicyQuery>,
) -> ApiResult<Json<Value>> {
    known(&admin, &topic)?;
    if !query.applied {
        return Ok(Json(Value::Object(quotas_of(&admin, &topic, query.is_global))));
    }
    // Each type by itself, as it holds.
    let own = [true, false].map(|is_global| quotas_of(&admin, &topic, is_global));
    let of_namespace = quotas_of_namespace(&admin, &topic)?;
    let mut quotas = Map::new();
    if own.iter().all(Map::is_empty) && of_namespace.is_empty() {
        let broker = RuntimeSettings::of(&admin.catalog).policies();
        quotas.extend(
            broker
                .backlog_quotas
                .to_json()
                .and_then(|quotas| quotas.as_object().cloned())
                .unwrap_or_default(),
        );
    }
    quotas.extend(of_namespace);
    quotas.extend(own.into_iter().flatten());
    Ok(Json(Value::Object(quotas)))
}

/// The quotas that hold where the topic says nothing of their type.
fn quotas_of_namespace(admin: &Admin, topic: &TopicName) -> ApiResult<Map<String, Value>> {
    let policies = policies_of(admin, topic.namespace())?;
    Ok(policies.get_as("backlog_quota_map").unwrap_or_default())
}

async fn set_backlog_quota(
    State(admin): State<Admin>,
    TopicPath(topic): TopicPath,
    QueryOf(query): QueryOf<TopicQuotaQuery>,
    RequiredJson(value): RequiredJson<Value>,
) -> ApiResult<StatusCode> {
    known(&admin, &topic)?;
    let (kind, quota) = (
        quota_type(query.backlog_quota_type)?,
        policy::backlog_quota(value)?,
    );
    let mut quotas = quotas_of(&admin, &topic, query.is_global);
    quotas.insert(kind, quota);
    let policies = admin.catalog.topic_policies(&topic);
    let of_namespace = policies_of(&admin, topic.namespace())?;
    let retention = policies.get(RETENTION);
    let retention = retention.or_else(|| of_namespace.get("retention_policies"));
    if !policy::retention_exceeds(retention, &quotas) {
        let reason = "Backlog Quota exceeds configured retention quota for topic. Please increase retention quota and retry";
        return Err(ApiError::precondition(reason));
    }
    store_quotas(&admin, &topic, query.is_global, quotas).await
}

async fn remove_backlog_quota(
    State(admin): State<Admin>,
    TopicPath(topic): TopicPath,
    QueryOf(query): QueryOf<TopicQuotaQuery>,
) -> ApiResult<StatusCode> {
    known(&admin, &topic)?;
    let mut quotas = quotas_of(&admin, &topic, query.is_global);
    quotas.remove(&quota_type(query.backlog_quota_type)?);
    store_quotas(&admin, &topic, query.is_global, quotas).await
}

async fn store_quotas(
    admin: &Admin,
    topic: &TopicName,
    is_global: bool,
    quotas: Map<String, Value>,
) -> ApiResult<StatusCode> {
    let name = stored_name(QUOTAS, is_global);
    // A topic without quotas of its own has its namespace's.
    let quotas = if quotas.is_empty() {
        Value::Null
    } else {
        Value::Object(quotas)
    };
    admin.catalog.set_topic_policy(topic, &name, quotas).await?;
    Ok(StatusCode::NO_CONTENT)
}
