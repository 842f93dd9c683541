//! Every row of the registry over HTTP: read, set, read again, removed, on each level that has it.

use std::net::SocketAddr;

use pharos_admin_api::routes::policies::PolicyRoutes;
use pharos_admin_api::routes::{self, namespace_policies, topic_policies};
use pharos_catalog::policy::{self, Guard, Level, Method, Row};
use serde_json::{Value, json};

use super::{Door, ask};

const NAMESPACE: &str = "/admin/v2/namespaces/public/default";
const TOPIC: &str = "/admin/v2/persistent/public/default/t";

/// A value that the row takes: one that is acted on if the row is, else one that means "off".
fn sample(row: &Row, level: Level) -> Value {
    let acts = row.acts_on(level);
    match row.value {
        "number" => json!(if acts { 7 } else { 0 }),
        "true or false" => json!(acts),
        "text" => json!(""),
        "None or Prefix" => json!("None"),
        "list of names" if row.name == "subscription_types" => json!(["Shared"]),
        "list of names" => json!(["standalone"]),
        "RetentionPolicies" => json!({"retentionTimeInMinutes": 10, "retentionSizeInMB": 20}),
        "BacklogQuota by type" => {
            json!({"limit": 9, "limitSize": 9, "limitTime": 0, "policy": "producer_exception"})
        }
        "InactiveTopicPolicies" => json!({
            "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
            "maxInactiveDurationSeconds": 5,
            "deleteWhileInactive": true,
        }),
        "PublishRate" => json!({"publishThrottlingRateInMsg": 5, "publishThrottlingRateInByte": -1}),
        "SubscribeRate" => json!({"subscribeThrottlingRatePerConsumer": 5, "ratePeriodInSecond": 9}),
        "DispatchRate" => json!({
            "dispatchThrottlingRateInMsg": -1,
            "dispatchThrottlingRateInByte": -1,
            "relativeToPublishRate": false,
            "ratePeriodInSecond": 1,
        }),
        "DelayedDeliveryPolicies" => {
            json!({"tickTime": 5, "active": false, "maxDeliveryDelayInMillis": 0})
        }
        "AutoTopicCreationOverride" => json!({"allowAutoTopicCreation": false}),
        "AutoSubscriptionCreationOverride" => json!({"allowAutoSubscriptionCreation": false}),
        "SchemaCompatibilityStrategy" => json!("BACKWARD"),
        "SchemaAutoUpdateCompatibilityStrategy" => json!("Forward"),
        "PersistencePolicies" => json!({
            "bookkeeperEnsemble": 1, "bookkeeperWriteQuorum": 1, "bookkeeperAckQuorum": 1,
            "managedLedgerMaxMarkDeleteRate": 0.0,
        }),
        "BookieAffinityGroupData" => json!({"bookkeeperAffinityGroupPrimary": "fast"}),
        "OffloadPolicies" => json!({"managedLedgerOffloadedReadPriority": "bookkeeper-first"}),
        "EntryFilters" => json!({"entryFilterNames": ""}),
        other => panic!("{}: no sample of {other}", row.name),
    }
}

fn read(address: SocketAddr, path: &str) -> (u16, Value) {
    let (status, _, body) = ask(address, "GET", path, "");
    let value = match body.as_str() {
        "" => Value::Null,
        body => serde_json::from_str(body).unwrap_or_else(|error| panic!("{path}: {body}: {error}")),
    };
    (status, value)
}

fn write(address: SocketAddr, method: &str, path: &str, value: &Value) {
    let body = if value.is_null() {
        String::new()
    } else {
        value.to_string()
    };
    let (status, _, body) = ask(address, method, path, &body);
    assert_eq!(status, 204, "{method} {path} {value}: {body}");
}

/// Sets, reads and removes one policy below `base`; `whole`: what the thing says as a whole, and the policy's name in it.
fn round_trip(address: SocketAddr, row: &Row, level: Level, base: &str, path: &str, set: Method) {
    let at = format!("{base}/{path}");
    let value = sample(row, level);
    // Quotas of all types are read together.
    let (shown_at, shown) = match row.name {
        "backlog_quotas" => (format!("{at}Map"), json!({"destination_storage": value})),
        _ => (at.clone(), value.clone()),
    };
    let before = read(address, &shown_at);
    let method = match set {
        Method::Post => "POST",
        Method::Put => "PUT",
    };
    write(address, method, &at, &value);
    assert_eq!(read(address, &shown_at), (200, shown.clone()), "{shown_at}");
    match level {
        Level::Topic => {
            let applied = read(address, &format!("{shown_at}?applied=true"));
            assert_eq!(applied, (200, shown), "{shown_at} applied");
        }
        Level::Namespace => {
            let (_, whole) = read(address, base);
            let of_namespace = row.namespace.unwrap();
            let member = &whole[of_namespace.member];
            let member = if of_namespace.by_cluster {
                &member["standalone"]
            } else {
                member
            };
            assert_eq!(*member, shown, "{}", of_namespace.member);
        }
    }
    // A namespace is always somewhere.
    if (row.name, level) != ("replication", Level::Namespace) {
        write(address, "DELETE", &at, &Value::Null);
    }
    assert_eq!(
        read(address, &shown_at),
        before,
        "{shown_at} after it was removed"
    );
}

fn every_row(address: SocketAddr) {
    assert_eq!(ask(address, "PUT", TOPIC, "").0, 204);
    let mut count = 0;
    for row in policy::all() {
        if let Some(at) = row.namespace.filter(|at| !at.path.is_empty()) {
            match row.guard {
                Guard::Bookies => {
                    let (path, value) = (format!("{NAMESPACE}/{}", at.path), sample(row, Level::Namespace));
                    let (status, _, reason) = ask(address, "POST", &path, &value.to_string());
                    assert_eq!(
                        (status, reason.contains("there are no bookies")),
                        (501, true),
                        "{reason}"
                    );
                    // Nor does a namespace come with it.
                    let body = json!({ at.member: value }).to_string();
                    let (status, _, reason) = ask(address, "PUT", "/admin/v2/namespaces/public/kept", &body);
                    assert_eq!((status, reason.contains("of its own")), (400, true), "{reason}");
                }
                _ => round_trip(address, row, Level::Namespace, NAMESPACE, at.path, at.set),
            }
            count += 1;
        }
        if let Some(at) = row.topic {
            round_trip(address, row, Level::Topic, TOPIC, at.path, at.set);
            count += 1;
        }
    }
    assert!(count >= 68, "{count} policies");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_policy_is_set_read_and_removed_on_each_level() {
    let door = Door::open().await;
    let address = door.address;
    tokio::task::spawn_blocking(move || every_row(address))
        .await
        .unwrap();
    door.close().await;
}

/// Sets each policy of a table and says no value.
fn without_a_body(address: SocketAddr, table: &[PolicyRoutes], base: &str) {
    for routes in table {
        let path = format!("{base}/{}", routes.name);
        let (status, _, answer) = ask(address, routes.set.method.as_str(), &path, "");
        let may = routes.set.body.is_some_and(|body| body.is_optional);
        // The value of these may be in the query instead; here it is in neither.
        let in_query = base == TOPIC && matches!(routes.name, "messageTTL" | "subscriptionExpirationTime");
        assert_eq!(status != 400, may && !in_query, "{path}: {status} {answer}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_is_set_without_a_body_where_the_table_says_so() {
    let door = Door::open().await;
    let address = door.address;
    let asked = tokio::task::spawn_blocking(move || {
        assert_eq!(ask(address, "PUT", TOPIC, "").0, 204);
        without_a_body(address, namespace_policies::POLICIES, NAMESPACE);
        without_a_body(address, topic_policies::POLICIES, TOPIC);
    });
    asked.await.unwrap();
    door.close().await;
}

/// True if the route table has a policy at this path with this method to set it.
fn has_route(table: &[PolicyRoutes], path: &str, set: Method) -> bool {
    let method = match set {
        Method::Post => routes::Method::Post,
        Method::Put => routes::Method::Put,
    };
    let found = table.iter().find(|routes| routes.name == path);
    // Quotas are set for one type, and have routes of their own.
    path == "backlogQuota" || found.is_some_and(|routes| routes.set.method == method)
}

#[test]
fn the_registry_and_the_route_table_have_the_same_policies() {
    let (mut of_namespaces, mut of_topics) = (0, 0);
    for row in policy::all() {
        if let Some(at) = row.namespace.filter(|at| !at.path.is_empty()) {
            assert!(
                has_route(namespace_policies::POLICIES, at.path, at.set),
                "{}",
                at.path
            );
            of_namespaces += 1;
        }
        if let Some(at) = row.topic {
            assert!(
                has_route(topic_policies::POLICIES, at.path, at.set),
                "{}",
                at.path
            );
            of_topics += 1;
        }
    }
    assert_eq!(namespace_policies::POLICIES.len(), of_namespaces - 1);
    assert_eq!(topic_policies::POLICIES.len(), of_topics - 1);
}
