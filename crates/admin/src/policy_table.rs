//! The policies that namespaces and topics have: one row each, with the shape of its value.
//!
//! A policy that nothing acts on can only be set to a value that means "off"; anything else is refused, because a
//! policy that is stored and ignored is worse than none. What is acted on, the broker says
//! ([`AdminBackend::enforced_namespace_policies`](pharos_broker::admin::AdminBackend::enforced_namespace_policies)).

use serde::Deserialize as _;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use pharos_admin_api::{
    AutoSubscriptionCreationOverride, AutoTopicCreationOverride, BacklogQuota, DelayedDeliveryPolicies,
    DispatchRate, InactiveTopicPolicies, PersistencePolicies, PublishRate, RetentionPolicies, SubscribeRate,
    lenient,
};
use pharos_catalog::schema::SchemaCompatibilityStrategy;

use crate::error::{ApiError, ApiResult};
use crate::offload;

/// One policy.
pub(crate) struct Policy {
    /// Last part of its path under a namespace; empty when namespaces do not have it.
    pub(crate) namespace_path: &'static str,
    /// Its member in the namespace's policies.
    pub(crate) member: &'static str,
    /// Last part of its path under a topic, and its name among the topic's policies; empty when topics do not have it.
    pub(crate) topic_path: &'static str,
    /// Where in the member it is.
    pub(crate) place: Place,
    /// Checks a value that came in and gives it the shape that is stored.
    pub(crate) check: fn(Value) -> ApiResult<Value>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// The member is the value.
    Whole,
    /// The member maps cluster names to values.
    ByCluster,
}

const fn row(
    namespace_path: &'static str,
    member: &'static str,
    topic_path: &'static str,
    check: fn(Value) -> ApiResult<Value>,
) -> Policy {
    Policy {
        namespace_path,
        member,
        topic_path,
        place: Place::Whole,
        check,
    }
}

const fn by_cluster(policy: Policy) -> Policy {
    Policy {
        place: Place::ByCluster,
        ..policy
    }
}

/// All of them. Backlog quotas are apart: they are one member with a value per type.
#[rustfmt::skip]
pub(crate) static POLICIES: &[Policy] = &[
    row("retention", "retention_policies", "retention", retention),
    row("messageTTL", "message_ttl_in_seconds", "messageTTL", count),
    row("autoTopicCreation", "autoTopicCreationOverride", "", auto_topic_creation),
    row("autoSubscriptionCreation", "autoSubscriptionCreationOverride", "autoSubscriptionCreation", shape::<AutoSubscriptionCreationOverride>),
    row("deduplication", "deduplicationEnabled", "deduplicationEnabled", shape::<bool>),
    row("deduplicationSnapshotInterval", "deduplicationSnapshotIntervalSeconds", "deduplicationSnapshotInterval", count),
    row("delayedDelivery", "delayed_delivery_policies", "delayedDelivery", shape::<DelayedDeliveryPolicies>),
    row("inactiveTopicPolicies", "inactive_topic_policies", "inactiveTopicPolicies", inactive),
    row("persistence", "persistence", "persistence", persistence),
    row("maxProducersPerTopic", "max_producers_per_topic", "maxProducers", count),
    row("maxConsumersPerTopic", "max_consumers_per_topic", "maxConsumers", count),
    row("maxConsumersPerSubscription", "max_consumers_per_subscription", "maxConsumersPerSubscription", count),
    row("maxSubscriptionsPerTopic", "max_subscriptions_per_topic", "maxSubscriptionsPerTopic", count),
    row("maxTopicsPerNamespace", "max_topics_per_namespace", "", count),
    row("maxUnackedMessagesPerConsumer", "max_unacked_messages_per_consumer", "maxUnackedMessagesOnConsumer", count),
    row("maxUnackedMessagesPerSubscription", "max_unacked_messages_per_subscription", "maxUnackedMessagesOnSubscription", count),
    row("", "", "maxMessageSize", count),
    row("subscriptionExpirationTime", "subscription_expiration_time_minutes", "subscriptionExpirationTime", count),
    row("subscriptionTypesEnabled", "subscription_types_enabled", "subscriptionTypesEnabled", subscription_types),
    row("subscriptionAuthMode", "subscription_auth_mode", "", auth_mode),
    row("encryptionRequired", "encryption_required", "", shape::<bool>),
    row("isAllowAutoUpdateSchema", "is_allow_auto_update_schema", "", shape::<bool>),
    row("schemaValidationEnforced", "schema_validation_enforced", "schemaValidationEnforced", shape::<bool>),
    row("schemaCompatibilityStrategy", "schema_compatibility_strategy", "schemaCompatibilityStrategy", strategy),
    row("schemaAutoUpdateCompatibilityStrategy", "schema_auto_update_compatibility_strategy", "", old_strategy),
    row("compactionThreshold", "compaction_threshold", "compactionThreshold", count),
    row("offloadThreshold", "offload_threshold", "", shape::<i64>),
    row("offloadThresholdInSeconds", "offload_threshold_in_seconds", "", offload::seconds),
    row("offloadDeletionLagMs", "offload_deletion_lag_ms", "", shape::<i64>),
    row("offloadPolicies", "offload_policies", "offloadPolicies", offload::policies),
    row("entryFilters", "entryFilters", "entryFilters", any),
    row("antiAffinity", "anti_affinity_group", "", shape::<String>),
    row("replication", "replication_clusters", "replication", shape::<Vec<String>>),
    row("allowedClusters", "allowed_clusters", "", shape::<Vec<String>>),
    row("dispatcherPauseOnAckStatePersistent", "dispatcherPauseOnAckStatePersistentEnabled", "dispatcherPauseOnAckStatePersistent", any),
    by_cluster(row("dispatchRate", "topicDispatchRate", "dispatchRate", shape::<DispatchRate>)),
    by_cluster(row("subscriptionDispatchRate", "subscriptionDispatchRate", "subscriptionDispatchRate", shape::<DispatchRate>)),
    by_cluster(row("replicatorDispatchRate", "replicatorDispatchRate", "replicatorDispatchRate", shape::<DispatchRate>)),
    by_cluster(row("subscribeRate", "clusterSubscribeRate", "subscribeRate", shape::<SubscribeRate>)),
    by_cluster(row("publishRate", "publishMaxMessageRate", "publishRate", shape::<PublishRate>)),
];

/// Whether a value means "off", so that not acting on the policy is just what was asked for.
pub(crate) fn is_off(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(number) => number.as_f64().is_some_and(|number| number <= 0.0),
        Value::String(text) => matches!(text.as_str(), "" | "None" | "UNDEFINED"),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.iter().all(|(name, value)| is_off(value) || is_unit(name)),
    }
}

/// Members that qualify a limit and say nothing by themselves.
fn is_unit(name: &str) -> bool {
    matches!(
        name,
        "ratePeriodInSecond"
            | "policy"
            | "tickTime"
            | "inactiveTopicDeleteMode"
            | "maxInactiveDurationSeconds"
    )
}

/// Refuses a policy that nothing acts on.
pub(crate) fn check_enforced(name: &str, enforced: &[&str], value: &Value) -> ApiResult<()> {
    if enforced.contains(&name) || is_off(value) {
        return Ok(());
    }
    Err(ApiError::not_implemented(format!(
        "policy {name} is not enforced in this release, so it cannot be set"
    )))
}

/// Refuses a policy of copies that this broker does not keep. `own`: what it does.
pub(crate) fn check_copies(value: &Value, own: Option<&Value>) -> ApiResult<()> {
    let wanted: PersistencePolicies = parse(value.clone())?;
    let own: Option<PersistencePolicies> = own.and_then(|own| parse(own.clone()).ok());
    let fits = own.is_some_and(|own| {
        let rate = wanted.managed_ledger_max_mark_delete_rate;
        wanted.bookkeeper_ensemble == own.bookkeeper_ensemble
            && wanted.bookkeeper_write_quorum == own.bookkeeper_write_quorum
            && wanted.bookkeeper_ack_quorum == own.bookkeeper_ack_quorum
            && (rate <= 0.0 || rate >= own.managed_ledger_max_mark_delete_rate)
    });
    if fits || is_off(value) {
        return Ok(());
    }
    Err(ApiError::precondition(
        "this broker keeps one copy of each message and stores positions once per cursor_flush_interval: the policy persistence can only say 1, 1, 1 and a rate that is not lower",
    ))
}

/// What the reference says of a number that is no count, in its words.
pub(crate) fn worded(error: ApiError, path: &str) -> ApiError {
    if error.reason != NO_COUNT {
        return error;
    }
    let reason = match path {
        "messageTTL" => "Invalid value for message TTL, message TTL must >= 0".to_owned(),
        "subscriptionExpirationTime" => "Invalid value for subscription expiration time".to_owned(),
        other => format!("{other} must be 0 or more"),
    };
    ApiError::new(error.status, reason)
}

/// Said of a number that is no count.
const NO_COUNT: &str = "the value must be a whole number of at least 0";

fn invalid(error: &serde_json::Error) -> ApiError {
    ApiError::bad_request(format!(
        "the value of the policy is not what was expected: {error}"
    ))
}

fn parse<T: DeserializeOwned>(value: Value) -> ApiResult<T> {
    lenient(value).map_err(|error| invalid(&error))
}

fn shape<T: DeserializeOwned + serde::Serialize>(value: Value) -> ApiResult<Value> {
    serde_json::to_value(parse::<T>(value)?).map_err(|error| invalid(&error))
}

#[expect(clippy::unnecessary_wraps, reason = "one signature for all rows")]
fn any(value: Value) -> ApiResult<Value> {
    Ok(value)
}

/// A number of things or seconds; 0 is "no limit".
fn count(value: Value) -> ApiResult<Value> {
    let number: i64 = parse(value)?;
    if (0..=i64::from(i32::MAX)).contains(&number) {
        Ok(number.into())
    } else {
        Err(ApiError::precondition(NO_COUNT))
    }
}

/// -1 is no limit, 0 nothing. One of them 0 and the other above 0 would keep nothing and looks as if it kept something.
fn retention(value: Value) -> ApiResult<Value> {
    let policy: RetentionPolicies = parse(value.clone())?;
    let (minutes, mebibytes) = (
        i64::from(policy.retention_time_in_minutes),
        policy.retention_size_in_mb,
    );
    if minutes < -1 || mebibytes < -1 {
        return Err(ApiError::precondition(
            "Invalid retention policy: time and size must be at least -1",
        ));
    }
    if (minutes == 0) != (mebibytes == 0) {
        let reason = "Invalid retention policy: setting a single time or size limit to 0 is invalid when the other is not 0";
        return Err(ApiError::precondition(reason));
    }
    shape::<RetentionPolicies>(value)
}

fn auto_topic_creation(value: Value) -> ApiResult<Value> {
    let word: AutoTopicCreationOverride = parse(value.clone())?;
    if word.allow_auto_topic_creation {
        let partitions = word.default_num_partitions;
        match word.topic_type.as_deref() {
            Some("partitioned") if partitions.is_some_and(|count| count > 0) => {}
            Some("partitioned") => {
                return Err(ApiError::precondition(
                    "[defaultNumPartitions] must be more than 0 when the type is partitioned",
                ));
            }
            Some("non-partitioned") if partitions.is_none_or(|count| count <= 0) => {}
            Some("non-partitioned") => {
                return Err(ApiError::precondition(
                    "[defaultNumPartitions] is not allowed to be set when the type is non-partitioned",
                ));
            }
            other => {
                let reason = format!("Unknown topic type [{}]", other.unwrap_or_default());
                return Err(ApiError::precondition(reason));
            }
        }
    }
    shape::<AutoTopicCreationOverride>(value)
}

fn persistence(value: Value) -> ApiResult<Value> {
    let policy: PersistencePolicies = parse(value.clone())?;
    let (ensemble, write, ack) = (
        policy.bookkeeper_ensemble,
        policy.bookkeeper_write_quorum,
        policy.bookkeeper_ack_quorum,
    );
    if ack <= 0 || write < ack || ensemble < write {
        let reason =
            format!("Bookkeeper Ensemble ({ensemble}) >= WriteQuorum ({write}) >= AckQuorum ({ack})");
        return Err(ApiError::bad_request(reason));
    }
    shape::<PersistencePolicies>(value)
}

fn subscription_types(value: Value) -> ApiResult<Value> {
    let types: Vec<String> = parse(value)?;
    for name in &types {
        if !matches!(name.as_str(), "Exclusive" | "Shared" | "Failover" | "Key_Shared") {
            return Err(ApiError::precondition(format!("{name} is no subscription type")));
        }
    }
    Ok(types.into())
}

fn auth_mode(value: Value) -> ApiResult<Value> {
    match value.as_str() {
        Some("None" | "Prefix") => Ok(value),
        _ => Err(ApiError::bad_request("None or Prefix is expected")),
    }
}

fn strategy(value: Value) -> ApiResult<Value> {
    shape::<SchemaCompatibilityStrategy>(value)
}

fn old_strategy(value: Value) -> ApiResult<Value> {
    let text: String = parse(value)?;
    match SchemaCompatibilityStrategy::from_auto_update(&text) {
        Some(_) => Ok(text.into()),
        None => Err(ApiError::bad_request(format!(
            "{text} is no compatibility strategy"
        ))),
    }
}

/// Checks a backlog quota; the old member `limit` becomes `limitSize`. Numbers may come as text: some clients send that, and
/// the reference takes it. What is not said is no limit.
pub(crate) fn backlog_quota(mut value: Value) -> ApiResult<Value> {
    if let Some(members) = value.as_object_mut() {
        for name in ["limit", "limitSize", "limitTime"] {
            let number = members.get(name).and_then(Value::as_str).map(str::trim);
            if let Some(number) = number.and_then(|text| text.parse::<i64>().ok()) {
                members.insert(name.to_owned(), number.into());
            }
        }
        members.retain(|_, value| !value.is_null());
        let size = members.get("limitSize").or_else(|| members.get("limit"));
        let size = size.cloned().unwrap_or_else(|| (-1).into());
        members.insert("limitSize".to_owned(), size.clone());
        members.insert("limit".to_owned(), size);
        members
            .entry("policy")
            .or_insert_with(|| "producer_request_hold".into());
    }
    let quota: BacklogQuota = parse(value)?;
    let known = [
        "producer_request_hold",
        "producer_exception",
        "consumer_backlog_eviction",
    ];
    if !known.contains(&quota.policy.as_str()) {
        return Err(ApiError::bad_request(format!(
            "policy is none of {}",
            known.join(", ")
        )));
    }
    serde_json::to_value(quota).map_err(|error| invalid(&error))
}

/// Whether retention keeps more than backlog quotas allow, so that what is acknowledged late is not deleted early.
/// Unlimited or absent retention does, and so does no retention at all.
pub(crate) fn retention_exceeds(retention: Option<&Value>, quotas: &Map<String, Value>) -> bool {
    let Some(Ok(kept)) = retention.map(RetentionPolicies::deserialize) else {
        return true;
    };
    let quota = |kind: &str| {
        quotas
            .get(kind)
            .and_then(|quota| BacklogQuota::deserialize(quota).ok())
    };
    let size = quota("destination_storage").map_or(-1, |quota| quota.limit_size);
    let time = quota("message_age").map_or(-1, |quota| i64::from(quota.limit_time));
    let (mebibytes, minutes) = (
        kept.retention_size_in_mb,
        i64::from(kept.retention_time_in_minutes),
    );
    let holds_size = mebibytes <= 0 || size < mebibytes.saturating_mul(1 << 20);
    let holds_time = minutes <= 0 || time < minutes * 60;
    holds_size && holds_time
}

/// An inactive topic policy names a known mode and a time.
fn inactive(value: Value) -> ApiResult<Value> {
    let policy: InactiveTopicPolicies = parse(value.clone())?;
    let known = [
        "",
        "delete_when_no_subscriptions",
        "delete_when_subscriptions_caught_up",
    ];
    if !known.contains(&policy.inactive_topic_delete_mode.as_str()) {
        return Err(ApiError::bad_request(format!(
            "inactiveTopicDeleteMode is none of {}",
            known.join(" ").trim()
        )));
    }
    if policy.delete_while_inactive && policy.max_inactive_duration_seconds <= 0 {
        return Err(ApiError::precondition(
            "maxInactiveDurationSeconds must be more than 0",
        ));
    }
    shape::<InactiveTopicPolicies>(value)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn off_is_told_from_on() {
        for off in [
            json!(null),
            json!(false),
            json!(0),
            json!(-1),
            json!({}),
            json!([]),
            json!("None"),
            json!({"a": -1, "ratePeriodInSecond": 1}),
        ] {
            assert!(is_off(&off), "{off}");
        }
        for on in [
            json!(true),
            json!(1),
            json!("Prefix"),
            json!(["x"]),
            json!({"a": 5}),
        ] {
            assert!(!is_off(&on), "{on}");
        }
    }

    #[test]
    fn retention_of_one_dimension_only_is_refused() {
        let of = |minutes: i32, size: i64| {
            retention(json!({"retentionTimeInMinutes": minutes, "retentionSizeInMB": size})).is_ok()
        };
        assert!(of(0, 0) && of(-1, -1) && of(10, -1) && of(5, 5));
        assert!(!of(0, 5) && !of(5, 0) && !of(0, -1) && !of(-2, 1));
    }

    #[test]
    fn quotas_come_in_old_shapes_too() {
        let of = |value| backlog_quota(value).unwrap();
        let size = of(json!({"limit": "10240", "policy": "producer_request_hold"}));
        assert_eq!(
            (&size["limitSize"], &size["limit"], &size["limitTime"]),
            (&json!(10240), &json!(10240), &json!(0))
        );
        let time = of(json!({"limitTime": 60, "policy": "producer_exception"}));
        assert_eq!((&time["limitSize"], &time["limitTime"]), (&json!(-1), &json!(60)));
        assert_eq!(of(json!({"limitSize": 5}))["policy"], "producer_request_hold");
        assert!(backlog_quota(json!({"limitSize": 5, "policy": "shout"})).is_err());
        assert!(backlog_quota(json!({"limitSize": "much"})).is_err());
    }

    #[test]
    fn a_quota_beyond_retention_is_found() {
        let holds = |minutes: i32, mebibytes: i64, size: i64, seconds: i32| {
            let retention = json!({"retentionTimeInMinutes": minutes, "retentionSizeInMB": mebibytes});
            let quotas =
                json!({"destination_storage": {"limitSize": size}, "message_age": {"limitTime": seconds}});
            retention_exceeds(Some(&retention), quotas.as_object().unwrap())
        };
        assert!(holds(10, 10, (10 << 20) - 1, 599) && holds(0, 0, 1 << 40, 99) && holds(-1, -1, 1 << 40, 99));
        assert!(!holds(10, 10, 10 << 20, -1) && !holds(10, -1, 5, 600));
        assert!(retention_exceeds(None, &Map::new()));
    }

    #[test]
    fn paths_are_unique() {
        let mut seen = std::collections::HashSet::new();
        for policy in POLICIES {
            assert!(policy.namespace_path.is_empty() || seen.insert(("n", policy.namespace_path)));
            assert!(policy.topic_path.is_empty() || seen.insert(("t", policy.topic_path)));
        }
    }
}
