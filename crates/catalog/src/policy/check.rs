//! Checks of values that come in, in the words of Pulsar where it has some.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use pharos_admin_api::{
    AutoTopicCreationOverride, BacklogQuota, BookieAffinityGroupData, InactiveTopicPolicies, OffloadPolicies,
    PersistencePolicies, RetentionPolicies, lenient,
};

use pharos_auth::Permission;

use super::persistence::{ENSEMBLE_MAX, Persistence, affinity_of};
use super::value::{QuotaAction, SubscriptionTypes};
use crate::schema::SchemaCompatibilityStrategy;

/// Rejection of a value. Each variant carries the message that the client shows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The value has another shape (400).
    #[error("{0}")]
    Shape(String),
    /// The value is invalid, or conflicts with another setting (412).
    #[error("{0}")]
    Value(String),
    /// Nothing would act on it (501).
    #[error("{0}")]
    NotActedOn(String),
}

type Checked = Result<Value, Refusal>;

fn refused(reason: impl Into<String>) -> Checked {
    Err(Refusal::Value(reason.into()))
}

fn invalid(error: &serde_json::Error) -> Refusal {
    Refusal::Shape(format!(
        "the value of the policy is not what was expected: {error}"
    ))
}

fn parse<T: DeserializeOwned>(value: Value) -> Result<T, Refusal> {
    lenient(value).map_err(|error| invalid(&error))
}

/// A value of a shape that is complete by itself.
pub(super) fn shape<T: DeserializeOwned + Serialize>(_: &str, value: Value) -> Checked {
    serde_json::to_value(parse::<T>(value)?).map_err(|error| invalid(&error))
}

/// Any value at all.
#[expect(clippy::unnecessary_wraps, reason = "one signature for all rows")]
pub(super) fn any(_: &str, value: Value) -> Checked {
    Ok(value)
}

/// A number of things, bytes or units of time; 0 is "no limit".
pub(super) fn count(path: &str, value: Value) -> Checked {
    let number: i64 = parse(value)?;
    if (0..=i64::from(i32::MAX)).contains(&number) {
        return Ok(number.into());
    }
    refused(match path {
        "messageTTL" => "Invalid value for message TTL, message TTL must >= 0".to_owned(),
        "subscriptionExpirationTime" => "Invalid value for subscription expiration time".to_owned(),
        other => format!("{other} must be 0 or more"),
    })
}

/// A number of bytes that may be larger than memory; 0 is "never".
pub(super) fn size(path: &str, value: Value) -> Checked {
    let number: i64 = parse(value)?;
    match number >= 0 {
        true => Ok(number.into()),
        false => refused(format!("{path} must be 0 or more")),
    }
}

/// -1 is no limit, 0 nothing. One of them 0 and the other above 0 would keep nothing and looks as if it kept something.
pub(super) fn retention(path: &str, value: Value) -> Checked {
    let policy: RetentionPolicies = parse(value.clone())?;
    let (minutes, mebibytes) = (
        i64::from(policy.retention_time_in_minutes),
        policy.retention_size_in_mb,
    );
    if minutes < -1 || mebibytes < -1 {
        return refused("Invalid retention policy: time and size must be at least -1");
    }
    if (minutes == 0) != (mebibytes == 0) {
        return refused(
            "Invalid retention policy: setting a single time or size limit to 0 is invalid when the other is not 0",
        );
    }
    shape::<RetentionPolicies>(path, value)
}

/// Beginning of error messages that Pulsar clients compare word by word.
const AUTO_CREATION_FAULT: &str = "Invalid configuration for autoTopicCreationOverride. the detail is ";

pub(super) fn auto_topic_creation(path: &str, value: Value) -> Checked {
    let word: AutoTopicCreationOverride = parse(value.clone())?;
    if word.allow_auto_topic_creation {
        let partitions = word.default_num_partitions;
        match word.topic_type.as_deref() {
            Some("partitioned") if partitions.is_some_and(|count| count > 0) => {}
            Some("partitioned") if partitions.is_none() => {
                return refused(format!(
                    "{AUTO_CREATION_FAULT}[defaultNumPartitions] cannot be null when the type is partitioned."
                ));
            }
            Some("partitioned") => {
                return refused(format!(
                    "{AUTO_CREATION_FAULT}[defaultNumPartitions] cannot be less than 1 for partition type."
                ));
            }
            Some("non-partitioned") if partitions.is_none_or(|count| count <= 0) => {}
            Some("non-partitioned") => {
                return refused(format!(
                    "{AUTO_CREATION_FAULT}[defaultNumPartitions] is not allowed to be set when the type is non-partition."
                ));
            }
            other => return refused(format!("Unknown topic type [{}]", other.unwrap_or_default())),
        }
    }
    shape::<AutoTopicCreationOverride>(path, value)
}

pub(super) fn persistence(path: &str, value: Value) -> Checked {
    let policy: PersistencePolicies = parse(value.clone())?;
    let (ensemble, write, ack) = (
        policy.bookkeeper_ensemble,
        policy.bookkeeper_write_quorum,
        policy.bookkeeper_ack_quorum,
    );
    if ack <= 0 || write < ack || ensemble < write {
        return Err(Refusal::Shape(format!(
            "Bookkeeper Ensemble ({ensemble}) >= WriteQuorum ({write}) >= AckQuorum ({ack})"
        )));
    }
    if usize::try_from(ensemble).is_ok_and(|ensemble| ensemble > ENSEMBLE_MAX) {
        return Err(Refusal::Shape(format!(
            "bookkeeperEnsemble is {ensemble}; at most {ENSEMBLE_MAX} are possible"
        )));
    }
    shape::<PersistencePolicies>(path, value)
}

/// Refuses copies that this broker does not keep.
pub(super) fn copies(value: &Value, own: &Persistence) -> Result<(), Refusal> {
    let wanted: PersistencePolicies = parse(value.clone())?;
    let rate = wanted.managed_ledger_max_mark_delete_rate;
    let fits = own.can_keep(&wanted) && (rate <= 0.0 || rate >= own.flushes_per_s());
    if fits || is_off(value) {
        return Ok(());
    }
    let copies = match own.replication {
        Some(_) => "an ensemble of at most 64 bookies",
        None => "1, 1, 1, because this broker keeps one copy of each message",
    };
    Err(Refusal::Value(format!(
        "the policy persistence can only say {copies}, and a rate that is not lower than that at which positions are stored, once per \
         cursor_flush_interval"
    )))
}

/// Groups of bookies: at least one that comes first.
pub(super) fn bookie_affinity(path: &str, value: Value) -> Checked {
    let policy: BookieAffinityGroupData = parse(value.clone())?;
    if affinity_of(&policy).is_none_or(|said| said.primary.is_empty()) {
        return refused("bookkeeperAffinityGroupPrimary names no group of bookies");
    }
    shape::<BookieAffinityGroupData>(path, value)
}

/// Refuses groups of bookies where there are none.
pub(super) fn bookies(own: &Persistence) -> Result<(), Refusal> {
    match own.replication {
        Some(_) => Ok(()),
        None => Err(Refusal::NotActedOn(
            "this broker keeps its entries on this machine: there are no bookies to choose from".to_owned(),
        )),
    }
}

pub(super) fn subscription_types(_: &str, value: Value) -> Checked {
    let types: Vec<String> = parse(value)?;
    for name in &types {
        if !SubscriptionTypes::NAMES.contains(&name.as_str()) {
            return refused(format!("{name} is no subscription type"));
        }
    }
    Ok(types.into())
}

/// Grants: lists of permissions by role, of topics by topic and role, and lists of roles by subscription.
pub(super) fn auth_policies(_: &str, value: Value) -> Checked {
    type Lists = BTreeMap<String, Vec<String>>;
    #[derive(Default, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    struct AuthPolicies {
        namespace_auth: Lists,
        destination_auth: BTreeMap<String, Lists>,
        subscription_auth_roles: Lists,
    }
    let read: AuthPolicies = parse(value.clone())?;
    let AuthPolicies {
        namespace_auth,
        destination_auth,
        // Any name may be a role.
        subscription_auth_roles: _,
    } = &read;
    let topics = destination_auth.values().flat_map(BTreeMap::values);
    let mut granted = namespace_auth.values().chain(topics);
    if granted.any(|permissions| permissions.iter().any(|name| Permission::of(name).is_none())) {
        return Err(Refusal::Shape(
            "permissions are produce, consume, functions, sources, sinks and packages".to_owned(),
        ));
    }
    Ok(value)
}

pub(super) fn auth_mode(_: &str, value: Value) -> Checked {
    match value.as_str() {
        Some("None" | "Prefix") => Ok(value),
        _ => Err(Refusal::Shape("None or Prefix is expected".to_owned())),
    }
}

/// A strategy by the names of older clients.
pub(super) fn old_strategy(_: &str, value: Value) -> Checked {
    let text: String = parse(value)?;
    match SchemaCompatibilityStrategy::from_auto_update(&text) {
        Some(_) => Ok(text.into()),
        None => Err(Refusal::Shape(format!("{text} is no compatibility strategy"))),
    }
}

/// An inactive topic policy names a known mode and a time.
pub(super) fn inactive(path: &str, value: Value) -> Checked {
    let policy: InactiveTopicPolicies = parse(value.clone())?;
    let known = [
        "",
        "delete_when_no_subscriptions",
        "delete_when_subscriptions_caught_up",
    ];
    if !known.contains(&policy.inactive_topic_delete_mode.as_str()) {
        return Err(Refusal::Shape(format!(
            "inactiveTopicDeleteMode is none of {}",
            known.join(" ").trim()
        )));
    }
    if policy.delete_while_inactive && policy.max_inactive_duration_seconds <= 0 {
        return refused("maxInactiveDurationSeconds must be more than 0");
    }
    shape::<InactiveTopicPolicies>(path, value)
}

/// The shape of the offload policy that holds all; what it does not say is dropped.
pub(super) fn offload_policies(_: &str, value: Value) -> Checked {
    let invalid = |error| Refusal::Shape(format!("offload policies: {error}"));
    let value = match OffloadPolicies::deserialize(&value) {
        Ok(_) => value,
        // Numbers as text: what is kept is what they were read as.
        Err(_) => lenient::<OffloadPolicies>(value)
            .and_then(serde_json::to_value)
            .map_err(invalid)?,
    };
    let Value::Object(members) = value else {
        return refused("the offload policies must be specified");
    };
    let said: Map<String, Value> = members
        .into_iter()
        .filter(|(_, value)| !value.is_null())
        .collect();
    Ok(Value::Object(said))
}

/// Seconds, or -1 for never.
pub(super) fn offload_seconds(_: &str, value: Value) -> Checked {
    match lenient::<i64>(value) {
        Ok(seconds) if seconds >= -1 => Ok(seconds.into()),
        _ => refused("Invalid value for offloadThresholdInSecond"),
    }
}

/// The backlog quotas of a namespace or topic, by type.
pub(super) fn backlog_quotas(_: &str, value: Value) -> Checked {
    let Value::Object(members) = value else {
        return Err(Refusal::Shape("an object is expected".to_owned()));
    };
    let checked = members
        .into_iter()
        .map(|(kind, quota)| Ok((kind, backlog_quota(quota)?)));
    checked
        .collect::<Result<Map<String, Value>, Refusal>>()
        .map(Value::Object)
}

/// Checks one backlog quota; the old member `limit` becomes `limitSize`. Numbers may come as text: some clients send that, and
/// Pulsar takes it. What is not said is no limit.
///
/// # Errors
/// `Shape`.
pub fn backlog_quota(mut value: Value) -> Result<Value, Refusal> {
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
            .or_insert_with(|| QuotaAction::Hold.as_str().into());
    }
    let quota: BacklogQuota = parse(value)?;
    if QuotaAction::from_word(&quota.policy).is_none() {
        let known = QuotaAction::ALL.map(QuotaAction::as_str).join(", ");
        return Err(Refusal::Shape(format!("policy is none of {known}")));
    }
    serde_json::to_value(quota).map_err(|error| invalid(&error))
}

/// True if retention keeps more than backlog quotas allow, so that messages acknowledged late are not deleted early.
/// Also true for unlimited, absent and zero retention.
#[must_use]
pub fn retention_exceeds(retention: Option<&Value>, quotas: &Map<String, Value>) -> bool {
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

/// True if the value is a list of this name and no other.
pub(super) fn names_only(value: &Value, name: &str) -> bool {
    let mut items = value.as_array().into_iter().flatten();
    items.all(|item| item.as_str() == Some(name))
}

/// True if a value means "off", so that not acting on the policy is exactly the request.
#[must_use]
pub fn is_off(value: &Value) -> bool {
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
