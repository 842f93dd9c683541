//! The policies of one topic by Pulsar's names in its events, and by those that the catalog has.

use serde_json::{Map, Value, json};

use crate::GLOBAL;
use crate::policy;

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
/// Member names in events and in the catalog, for members whose empty value counts as unset.
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

/// A value in the shape in which the catalog keeps it; one that its row does not take stays as it is, and counts as not set.
fn stored(name: &str, value: Value) -> Value {
    let row = policy::all().find(|row| row.topic.is_some_and(|at| at.path == name));
    let checked = row.and_then(|row| (row.check)(name, value.clone()).ok());
    checked.unwrap_or(value)
}

/// The policies in the catalog's words. What has no words there is kept under its own name, and nothing acts on it.
pub(super) fn of_event(mut policies: Map<String, Value>) -> Map<String, Value> {
    let prefix = match policies.remove("isGlobal") {
        Some(Value::Bool(true)) => GLOBAL,
        _ => "",
    };
    let mut all = Map::new();
    let mut put = |name: &str, value: Value| _ = all.insert(format!("{prefix}{name}"), stored(name, value));
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

/// Members of an event that are empty where nothing is set, and not without a value.
const MAPS: [&str; 2] = ["backLogQuotaMap", "subscriptionPolicies"];
const LISTS: [&str; 1] = ["subscriptionTypesEnabled"];
/// Members of policies that follow from others, and are in no event.
const DERIVED: [&str; 3] = ["s3Driver", "gcsDriver", "fileSystemDriver"];

/// The reverse of [`of_event`]: policies in the catalog's words as those of one event.
pub(super) fn to_event(policies: &Map<String, Value>, is_everywhere: bool) -> Map<String, Value> {
    let mut all = Map::new();
    all.extend(MAPS.map(|name| (name.to_owned(), json!({}))));
    all.extend(LISTS.map(|name| (name.to_owned(), json!([]))));
    all.insert("isGlobal".to_owned(), json!(is_everywhere));
    for (name, value) in policies {
        let name = name.strip_prefix(GLOBAL).unwrap_or(name);
        let mut put = |there: &str, value: &Value| _ = all.insert(there.to_owned(), value.clone());
        if name == "delayedDelivery" {
            put("delayedDeliveryEnabled", &value["active"]);
            put("delayedDeliveryTickTimeMillis", &value["tickTime"]);
            put(
                "delayedDeliveryMaxDelayInMillis",
                &value["maxDeliveryDelayInMillis"],
            );
            continue;
        }
        let known = RENAMED.iter().chain(&LISTED).find(|(_, here)| *here == name);
        let there = known.map_or(name, |(there, _)| *there);
        match there {
            "offloadPolicies" => put(there, &offload_to_event(value)),
            there => put(there, value),
        }
    }
    all
}

/// Offload policies with the words of the event's enumerations.
fn offload_to_event(value: &Value) -> Value {
    let mut value = value.clone();
    if let Some(members) = value.as_object_mut() {
        members.retain(|name, _| !DERIVED.contains(&name.as_str()));
        if let Some(Value::String(word)) = members.get_mut("managedLedgerOffloadedReadPriority") {
            *word = word.replace('-', "_").to_uppercase();
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_one_that_the_catalog_has() {
        let is_known = |name: &str| policy::all().any(|row| row.topic.is_some_and(|at| at.path == name));
        for (there, here) in RENAMED.into_iter().chain(LISTED) {
            assert!(is_known(here), "{there} is not {here}");
        }
        assert!(is_known("delayedDelivery"));
    }

    #[test]
    fn what_says_nothing_is_left_out_and_the_rest_is_renamed() {
        let event = json!({
            "isGlobal": null,
            "maxProducerPerTopic": 5,
            "messageTTLInSeconds": null,
            "subscriptionTypesEnabled": [],
            "replicationClusters": [],
            "delayedDeliveryEnabled": true,
            "delayedDeliveryTickTimeMillis": 50,
            "delayedDeliveryMaxDelayInMillis": null,
            "backLogQuotaMap": {"destination_storage": {
                "limit": 7, "limitSize": 7, "limitTime": -1, "policy": "producer_exception",
            }},
            "shadowTopics": ["persistent://a/b/c"],
        });
        let Value::Object(event) = event else { return };
        let mut all = of_event(event.clone());
        assert_eq!(all.remove("maxProducers"), Some(json!(5)));
        assert_eq!(all.remove("shadowTopics"), Some(json!(["persistent://a/b/c"])));
        let delivery = all.remove("delayedDelivery");
        assert!(delivery.is_some_and(|said| said["active"] == json!(true) && said["tickTime"] == json!(50)));
        let quota = all.remove("backlogQuota");
        assert!(quota.is_some_and(|said| said["destination_storage"]["limitSize"] == json!(7)));
        assert!(all.is_empty(), "{all:?}");
        let everywhere = Map::from_iter([
            ("isGlobal".to_owned(), json!(true)),
            ("maxMessageSize".to_owned(), json!(9)),
        ]);
        assert_eq!(of_event(everywhere).get("global/maxMessageSize"), Some(&json!(9)));
    }
}
