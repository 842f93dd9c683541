//! Policies of topics, all by the same few handlers over [`POLICIES`]. Those of a partition are its partitioned topic's.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, delete, get};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use pharos_types::TopicName;

use crate::body::{OptionalJson, QueryOf, RequiredJson};
use crate::error::{ApiError, ApiResult};
use crate::namespace_policies::QuotaQuery;
use crate::namespaces::policies_of;
use crate::paths::TopicPath;
use crate::policy_table::{Method, POLICIES, Place, Policy, backlog_quota, check_enforced};
use crate::state::Admin;

/// `base`: `/admin/v2/{persistent|non-persistent}/{tenant}/{namespace}` as a route.
pub(crate) fn routes(base: &str) -> Router<Admin> {
    let at = |rest: &str| format!("{base}/{{topic}}/{rest}");
    let mut router = Router::new()
        .route(&at("backlogQuotaMap"), get(backlog_quotas))
        .route(
            &at("backlogQuota"),
            delete(remove_backlog_quota).post(set_backlog_quota),
        );
    for policy in POLICIES.iter().filter(|policy| !policy.topic_path.is_empty()) {
        router = router.route(&at(policy.topic_path), methods(policy));
    }
    router
}

fn methods(policy: &'static Policy) -> MethodRouter<Admin> {
    let router = get(move |state, path, query| read(policy, state, path, query))
        .delete(move |state, path| remove(policy, state, path));
    // Only the schema strategy is set with PUT; the compaction threshold is, on namespaces, but not on topics.
    let put = policy.set == Method::Put && policy.topic_path == "schemaCompatibilityStrategy";
    if put {
        router.put(move |state, path, query, body| set(policy, state, path, query, body))
    } else {
        router.post(move |state, path, query, body| set(policy, state, path, query, body))
    }
}

#[derive(Deserialize)]
struct ReadQuery {
    #[serde(default)]
    applied: bool,
}

/// The topic's own value, or with `applied` the namespace's when it has none; 204 when there is neither.
async fn read(
    policy: &Policy,
    State(admin): State<Admin>,
    TopicPath(topic): TopicPath,
    QueryOf(query): QueryOf<ReadQuery>,
) -> ApiResult<Response> {
    known(&admin, &topic)?;
    let policies = admin.catalog.topic_policies(&topic);
    if let Some(value) = policies.0.get(policy.topic_path) {
        return Ok(Json(value.clone()).into_response());
    }
    if query.applied && !policy.member.is_empty() {
        let of_namespace = policies_of(&admin, topic.namespace())?;
        let value = of_namespace.get(policy.member);
        let value = match policy.place {
            Place::Whole => value,
            Place::ByCluster => value.and_then(|clusters| clusters.get(&admin.options.cluster_name)),
        };
        if let Some(value) = value {
            return Ok(Json(value.clone()).into_response());
        }
        if policy.topic_path == "schemaCompatibilityStrategy" {
            return Ok(Json(json!(admin.catalog.schema_strategy(&topic))).into_response());
        }
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Two policies come as query parameters named like them.
#[derive(Deserialize)]
struct SetQuery {
    #[serde(rename = "messageTTL")]
    message_ttl: Option<i64>,
    #[serde(rename = "subscriptionExpirationTime")]
    subscription_expiration_time: Option<i64>,
}

async fn set(
    policy: &Policy,
    State(admin): State<Admin>,
    TopicPath(topic): TopicPath,
    QueryOf(query): QueryOf<SetQuery>,
    OptionalJson(body): OptionalJson<Value>,
) -> ApiResult<StatusCode> {
    known(&admin, &topic)?;
    let in_query = match policy.topic_path {
        "messageTTL" => query.message_ttl,
        "subscriptionExpirationTime" => query.subscription_expiration_time,
        _ => None,
    };
    let value = in_query.map(Value::from).or(body);
    let value = value.ok_or_else(|| ApiError::bad_request("a body is expected"))?;
    let value = (policy.check)(value)?;
    check_enforced(policy.topic_path, admin.backend.enforced_topic_policies(), &value)?;
    admin
        .catalog
        .set_topic_policy(&topic, policy.topic_path, value)
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn remove(
    policy: &Policy,
    State(admin): State<Admin>,
    TopicPath(topic): TopicPath,
) -> ApiResult<StatusCode> {
    known(&admin, &topic)?;
    admin
        .catalog
        .set_topic_policy(&topic, policy.topic_path, Value::Null)
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Policies can be set on a topic that exists, or on a partitioned topic.
fn known(admin: &Admin, topic: &TopicName) -> ApiResult<()> {
    policies_of(admin, topic.namespace())?;
    let base = topic.base();
    if admin.catalog.topic_exists(topic) || admin.catalog.partitioned_topic(&base).is_some() {
        Ok(())
    } else {
        Err(ApiError::not_found(format!("Topic {topic} not found")))
    }
}

const QUOTAS: &str = "backlogQuota";

fn quotas_of(admin: &Admin, topic: &TopicName) -> Map<String, Value> {
    let policies = admin.catalog.topic_policies(topic);
    policies
        .0
        .get(QUOTAS)
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default()
}

async fn backlog_quotas(
    State(admin): State<Admin>,
    TopicPath(topic): TopicPath,
    QueryOf(query): QueryOf<ReadQuery>,
) -> ApiResult<Json<Value>> {
    known(&admin, &topic)?;
    let own = quotas_of(&admin, &topic);
    if own.is_empty() && query.applied {
        let of_namespace = policies_of(&admin, topic.namespace())?;
        return Ok(Json(
            of_namespace
                .get("backlog_quota_map")
                .cloned()
                .unwrap_or_else(|| json!({})),
        ));
    }
    Ok(Json(Value::Object(own)))
}

async fn set_backlog_quota(
    State(admin): State<Admin>,
    TopicPath(topic): TopicPath,
    QueryOf(query): QueryOf<QuotaQuery>,
    RequiredJson(value): RequiredJson<Value>,
) -> ApiResult<StatusCode> {
    known(&admin, &topic)?;
    let (kind, quota) = (query.kind()?, backlog_quota(value)?);
    check_enforced(QUOTAS, admin.backend.enforced_topic_policies(), &quota)?;
    let mut quotas = quotas_of(&admin, &topic);
    quotas.insert(kind, quota);
    admin
        .catalog
        .set_topic_policy(&topic, QUOTAS, Value::Object(quotas))
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn remove_backlog_quota(
    State(admin): State<Admin>,
    TopicPath(topic): TopicPath,
    QueryOf(query): QueryOf<QuotaQuery>,
) -> ApiResult<StatusCode> {
    known(&admin, &topic)?;
    let mut quotas = quotas_of(&admin, &topic);
    quotas.remove(&query.kind()?);
    admin
        .catalog
        .set_topic_policy(&topic, QUOTAS, Value::Object(quotas))
        .await?;
    Ok(StatusCode::NO_CONTENT)
}
