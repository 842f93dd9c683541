//! Policies of topics, all by the same few handlers over [`POLICIES`]. Those of a partition are its partitioned topic's.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize as _;
use serde_json::{Map, Value, json};

use pharos_admin_api::query::{ScopeQuery, SetTopicPolicyQuery, TopicPolicyQuery, TopicQuotaQuery};
use pharos_admin_api::routes::topic_policies as routes;
use pharos_catalog::GLOBAL;
use pharos_types::TopicName;

use crate::body::{OptionalJson, QueryOf, RequiredJson};
use crate::endpoint::{Endpoint, on};
use crate::error::{ApiError, ApiResult};
use crate::namespace_policies::quota_type;
use crate::namespaces::policies_of;
use crate::paths::TopicPath;
use crate::policy_table::{
    POLICIES, Place, Policy, backlog_quota, check_copies, check_enforced, retention_exceeds, worded,
};
use crate::state::Admin;
use crate::topics::known;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    let mut endpoints = vec![
        on(&routes::BACKLOG_QUOTAS, backlog_quotas),
        on(&routes::SET_BACKLOG_QUOTA, set_backlog_quota),
        on(&routes::REMOVE_BACKLOG_QUOTA, remove_backlog_quota),
    ];
    for rows in routes::POLICIES {
        let known = POLICIES.iter().find(|policy| policy.topic_path == rows.name);
        let Some(policy) = known else { continue };
        endpoints.extend([
            on(&rows.read, move |state, path, query| {
                read(policy, state, path, query)
            }),
            on(&rows.set, move |state, path, query, body| {
                set(policy, state, path, query, body)
            }),
            on(&rows.remove, move |state, path, query| {
                remove(policy, state, path, query)
            }),
        ]);
    }
    endpoints
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
    policy: &Policy,
    State(admin): State<Admin>,
    TopicPath(topic): TopicPath,
    QueryOf(query): QueryOf<TopicPolicyQuery>,
) -> ApiResult<Response> {
    known(&admin, &topic)?;
    let policies = admin.catalog.topic_policies(&topic);
    let own = if query.applied {
        policies.get(policy.topic_path)
    } else {
        policies.0.get(&stored_name(policy.topic_path, query.is_global))
    };
    if let Some(value) = own {
        return Ok(Json(value.clone()).into_response());
    }
    if query.applied {
        if let Some(value) = of_namespace(&admin, policy, &topic)? {
            return Ok(Json(value).into_response());
        }
        if policy.topic_path == "schemaCompatibilityStrategy" {
            return Ok(Json(json!(admin.catalog.schema_strategy(&topic))).into_response());
        }
        let of_broker = admin.backend.default_policy(policy.topic_path);
        if let Some(value) = of_broker.or_else(|| unlimited(&admin, policy.topic_path)) {
            return Ok(Json(value).into_response());
        }
    }
    // Clients take these two for plain values.
    if matches!(
        policy.topic_path,
        "schemaValidationEnforced" | "dispatcherPauseOnAckStatePersistent"
    ) {
        return Ok(Json(json!(false)).into_response());
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// What holds of a policy that is set nowhere and that the settings have no word on: nothing is limited, deduplicated,
/// filtered or compacted.
fn unlimited(admin: &Admin, path: &str) -> Option<Value> {
    let options = admin.catalog.options();
    let value = match path {
        "autoSubscriptionCreation" => {
            json!({"allowAutoSubscriptionCreation": options.policies.auto_subscription_creation.allow})
        }
        "schemaValidationEnforced" => json!(options.policies.schema_validation_enforced),
        "compactionThreshold" => json!(0),
        "deduplicationEnabled" => json!(false),
        "entryFilters" => json!({"entryFilterNames": ""}),
        "dispatchRate" | "subscriptionDispatchRate" | "replicatorDispatchRate" => json!({
            "dispatchThrottlingRateInMsg": 0,
            "dispatchThrottlingRateInByte": 0,
            "relativeToPublishRate": false,
            "ratePeriodInSecond": 1,
        }),
        "subscribeRate" => json!({"subscribeThrottlingRatePerConsumer": 0, "ratePeriodInSecond": 30}),
        _ => return None,
    };
    Some(value)
}

/// What the namespace of a topic says about a policy.
fn of_namespace(admin: &Admin, policy: &Policy, topic: &TopicName) -> ApiResult<Option<Value>> {
    if policy.member.is_empty() {
        return Ok(None);
    }
    let of_namespace = policies_of(admin, topic.namespace())?;
    let value = of_namespace.get(policy.member);
    let value = match policy.place {
        Place::Whole => value,
        Place::ByCluster => value.and_then(|clusters| clusters.get(&admin.options.cluster_name)),
    };
    Ok(value.cloned())
}

async fn set(
    policy: &Policy,
    State(admin): State<Admin>,
    TopicPath(topic): TopicPath,
    QueryOf(query): QueryOf<SetTopicPolicyQuery>,
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
    let value = (policy.check)(value).map_err(|error| worded(error, policy.topic_path))?;
    match policy.topic_path {
        "persistence" => check_copies(&value, admin.backend.default_policy("persistence").as_ref())?,
        REPLICATION => check_replication(&admin, &topic, &value)?,
        path => check_enforced(path, admin.backend.enforced_topic_policies(), &value)?,
    }
    crate::offload::check(&admin, policy.topic_path, &value)?;
    if policy.topic_path == RETENTION {
        let quotas = quotas_of(&admin, &topic, query.is_global);
        if !retention_exceeds(Some(&value), &quotas) {
            let reason = "Retention Quota must exceed configured backlog quota for topic. Please increase retention quota and retry";
            return Err(ApiError::precondition(reason));
        }
    }
    let name = stored_name(policy.topic_path, query.is_global);
    admin.catalog.set_topic_policy(&topic, &name, value).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn remove(
    policy: &Policy,
    State(admin): State<Admin>,
    TopicPath(topic): TopicPath,
    QueryOf(query): QueryOf<ScopeQuery>,
) -> ApiResult<StatusCode> {
    known(&admin, &topic)?;
    let name = stored_name(policy.topic_path, query.is_global);
    admin.catalog.set_topic_policy(&topic, &name, Value::Null).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A topic can say that it is on this cluster, where it is anyway, and on no other.
fn check_replication(admin: &Admin, topic: &TopicName, value: &Value) -> ApiResult<()> {
    let clusters = Vec::<String>::deserialize(value).unwrap_or_default();
    if !clusters.contains(&admin.options.cluster_name) {
        return Err(ApiError::precondition(
            "Can not remove local cluster from the local topic-level replication clusters policy",
        ));
    }
    Ok(admin.catalog.check_topic_clusters(topic.namespace(), &clusters)?)
}

const QUOTAS: &str = "backlogQuota";
const RETENTION: &str = "retention";
const REPLICATION: &str = "replication";

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
    for is_global in [false, true] {
        let own = quotas_of(&admin, &topic, is_global);
        if !own.is_empty() {
            return Ok(Json(Value::Object(own)));
        }
    }
    let of_namespace = policies_of(&admin, topic.namespace())?;
    let quotas = of_namespace.get("backlog_quota_map").cloned();
    let quotas = quotas.filter(|quotas| quotas.as_object().is_some_and(|quotas| !quotas.is_empty()));
    let quotas = quotas.or_else(|| admin.backend.default_policy(QUOTAS));
    Ok(Json(quotas.unwrap_or_else(|| json!({}))))
}

async fn set_backlog_quota(
    State(admin): State<Admin>,
    TopicPath(topic): TopicPath,
    QueryOf(query): QueryOf<TopicQuotaQuery>,
    RequiredJson(value): RequiredJson<Value>,
) -> ApiResult<StatusCode> {
    known(&admin, &topic)?;
    let (kind, quota) = (quota_type(query.backlog_quota_type)?, backlog_quota(value)?);
    check_enforced(QUOTAS, admin.backend.enforced_topic_policies(), &quota)?;
    let mut quotas = quotas_of(&admin, &topic, query.is_global);
    quotas.insert(kind, quota);
    let policies = admin.catalog.topic_policies(&topic);
    if !retention_exceeds(policies.get(RETENTION), &quotas) {
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
