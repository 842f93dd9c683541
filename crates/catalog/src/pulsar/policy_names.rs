//! The policies of one topic by Pulsar's names in its events, and by those that the catalog has.

use serde_json::{Map, Value, json};

use crate::GLOBAL;

/// Members that have another name here, but for which the value is the same.
const RENAMED: [(&str, &str); 24] = [
    ("retentionPolicies", "retention"),
    ("messageTTLInSeconds", "messageTTL"),
    ("backLogQuotaMap", "backlogQuota"),
    (
        "subscriptionExpirationTimeInMinutes",
        "subscriptionExpirationTime",
    ),
    ("inactiveTopicPolicies", "inactiveTopicPolicies"),
    ("maxProducerPerTopic", "maxProducers"),
    ("maxConsumerPerTopic", "maxConsumers"),
    ("maxConsumersPerSubscription", "maxConsumersPerSubscription"),
    ("maxSubscriptionsPerTopic", "maxSubscriptionsPerTopic"),
    ("maxUnackedMessagesOnConsumer", "maxUnackedMessagesOnConsumer"),
    (
        "maxUnackedMessagesOnSubscription",
        "maxUnackedMessagesOnSubscription",
    ),
    ("maxMessageSize", "maxMessageSize"),
    ("publishRate", "publishRate"),
    ("dispatchRate", "dispatchRate"),
    ("subscriptionDispatchRate", "subscriptionDispatchRate"),
    ("subscribeRate", "subscribeRate"),
    ("replicatorDispatchRate", "replicatorDispatchRate"),
    ("schemaCompatibilityStrategy", "schemaCompatibilityStrategy"),
    ("schemaValidationEnforced", "schemaValidationEnforced"),
    ("persistence", "persistence"),
    ("deduplicationEnabled", "deduplicationEnabled"),
    (
        "deduplicationSnapshotIntervalSeconds",
        "deduplicationSnapshotInterval",
    ),
    ("compactionThreshold", "compactionThreshold"),
    (
        "dispatcherPauseOnAckStatePersistentEnabled",
        "dispatcherPauseOnAckStatePersistent",
    ),
];
/// The same, where an empty value is none.
const LISTED: [(&str, &str); 5] = [
    ("subscriptionTypesEnabled", "subscriptionTypesEnabled"),
    ("replicationClusters", "replication"),
    ("autoSubscriptionCreationOverride", "autoSubscriptionCreation"),
    ("offloadPolicies", "offloadPolicies"),
    ("entryFilters", "entryFilters"),
];

/// The members that say something: what is null inside of them says nothing.
fn said(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let said = members.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(said.map(|(name, value)| (name, self::said(value))).collect())
        }
        value => value,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        _ => false,
    }
}

/// The policies in the catalog's words. What has no words there is kept under its own name, and nothing acts on it.
pub(super) fn of_event(mut policies: Map<String, Value>) -> Map<String, Value> {
    let prefix = match policies.remove("isGlobal") {
        Some(Value::Bool(true)) => GLOBAL,
        _ => "",
    };
    let mut all = Map::new();
    let mut put = |name: &str, value: Value| _ = all.insert(format!("{prefix}{name}"), value);
    let delayed = [
        "delayedDeliveryEnabled",
        "delayedDeliveryTickTimeMillis",
        "delayedDeliveryMaxDelayInMillis",
    ];
    let [active, tick_ms, most_ms] = delayed.map(|name| policies.remove(name).unwrap_or_default());
    if !active.is_null() || !tick_ms.is_null() {
        let mut delivery = json!({"active": active.as_bool().unwrap_or(true), "tickTime": tick_ms.as_i64().unwrap_or(1_000)});
        if let Some(most_ms) = most_ms.as_i64() {
            delivery["maxDeliveryDelayInMillis"] = json!(most_ms);
        }
        put("delayedDelivery", delivery);
    }
    for (there, here) in RENAMED.into_iter().chain(LISTED) {
        let Some(value) = policies.remove(there).map(said) else {
            continue;
        };
        if !is_empty(&value) {
            put(here, value);
        }
    }
    for (name, value) in policies {
        let value = said(value);
        if !is_empty(&value) {
            put(&name, value);
        }
    }
    all
}
