//! Tests of the precedence of levels, and of the rows.

use std::sync::Arc;
use std::time::Duration;

use pharos_metadata::Memory;
use pharos_types::NamespaceName;
use serde_json::{Value, json};

use super::*;
use crate::schema::SchemaCompatibilityStrategy;
use crate::{Catalog, CatalogOptions};

struct Bench {
    catalog: Catalog,
}

const TOPIC: &str = "persistent://public/default/t";

impl Bench {
    async fn new() -> Self {
        Self::with(|_| {}).await
    }

    async fn with(change: impl FnOnce(&mut BrokerPolicies)) -> Self {
        let mut options = CatalogOptions::default();
        change(&mut options.policies);
        let store = Arc::new(Memory::new());
        let catalog = Catalog::open(store, options).await.unwrap();
        Self { catalog }
    }

    async fn namespace(&self, member: &str, value: Value) {
        let name: NamespaceName = "public/default".parse().unwrap();
        self.catalog
            .namespaces()
            .set_policy(&name, member, value)
            .await
            .unwrap();
    }

    async fn topic(&self, policy: &str, value: Value) {
        let name = TOPIC.parse().unwrap();
        self.catalog.set_topic_policy(&name, policy, value).await.unwrap();
    }

    fn of(&self, name: &str) -> EffectivePolicies {
        self.catalog.effective_policies(&name.parse().unwrap())
    }

    fn holds(&self) -> EffectivePolicies {
        self.of(TOPIC)
    }
}

fn kept(seconds: Option<u64>, bytes: Option<u64>) -> Retention {
    Retention {
        time: seconds.map(Duration::from_secs),
        bytes,
    }
}

#[tokio::test]
async fn a_topic_goes_before_its_namespace_and_that_before_the_broker() {
    let bench = Bench::with(|broker| broker.retention = kept(Some(60), Some(7))).await;
    assert_eq!(bench.holds().retention, kept(Some(60), Some(7)));
    bench
        .namespace(
            "retention_policies",
            json!({"retentionTimeInMinutes": 5, "retentionSizeInMB": -1}),
        )
        .await;
    assert_eq!(bench.holds().retention, kept(Some(300), None));
    let forever = json!({"retentionTimeInMinutes": -1, "retentionSizeInMB": -1});
    bench.topic("global/retention", forever).await;
    assert_eq!(bench.holds().retention, kept(None, None), "for all clusters");
    let two = json!({"retentionTimeInMinutes": 2, "retentionSizeInMB": 3});
    bench.topic("retention", two).await;
    assert_eq!(bench.holds().retention, kept(Some(120), Some(3 << 20)));
    // Partitions have the policies of their topic; other topics have not.
    assert_eq!(
        bench.of("persistent://public/default/t-partition-3").retention,
        kept(Some(120), Some(3 << 20))
    );
    assert_eq!(
        bench.of("persistent://public/default/u").retention,
        kept(Some(300), None)
    );
    bench.topic("retention", Value::Null).await;
    bench.topic("global/retention", Value::Null).await;
    bench.namespace("retention_policies", Value::Null).await;
    assert_eq!(bench.holds().retention, kept(Some(60), Some(7)));
}

#[tokio::test]
async fn nothing_said_means_nothing_limited() {
    let holds = Bench::new().await.holds();
    assert_eq!(holds.retention, kept(Some(0), Some(0)));
    assert_eq!(holds.message_ttl.millis(), None);
    assert_eq!(holds.backlog_quotas, BacklogQuotas::default());
    assert_eq!((holds.max_producers, holds.max_consumers), (0, 0));
    assert_eq!(
        (holds.max_consumers_per_subscription, holds.max_subscriptions),
        (0, 0)
    );
    assert_eq!(
        (holds.max_unacked_per_consumer, holds.max_unacked_per_subscription),
        (50_000, 200_000)
    );
    assert!(holds.delayed_delivery.active && !holds.delayed_delivery.strict);
    assert_eq!(holds.delayed_delivery.tick, Duration::from_secs(1));
    assert!(holds.inactive_topics.delete);
    assert_eq!(holds.inactive_topics.after, Duration::from_secs(60));
    assert_eq!(holds.subscription_types, SubscriptionTypes::default());
}

#[tokio::test]
async fn zero_switches_off_what_the_broker_has_on() {
    let bench = Bench::with(|broker| {
        broker.message_ttl = Duration::from_secs(9).into();
        broker.max_producers = 4;
        broker.backlog_quotas.size = Some(100);
        broker.subscription_expiration = Duration::from_secs(60).into();
    })
    .await;
    assert_eq!(bench.holds().message_ttl.millis(), Some(9000));
    bench.namespace("message_ttl_in_seconds", json!(0)).await;
    bench.namespace("max_producers_per_topic", json!(0)).await;
    bench
        .namespace("subscription_expiration_time_minutes", json!(0))
        .await;
    let off = json!({"destination_storage": {"limitSize": -1, "policy": "producer_exception"}});
    bench.namespace("backlog_quota_map", off).await;
    let holds = bench.holds();
    assert_eq!((holds.message_ttl.millis(), holds.max_producers), (None, 0));
    assert_eq!(holds.backlog_quotas.size, None);
    assert_eq!(holds.subscription_expiration.millis(), None);
}

#[tokio::test]
async fn quotas_of_each_type_are_decided_by_themselves() {
    let bench = Bench::new().await;
    let of_namespace = json!({
        "destination_storage": {"limitSize": 10, "policy": "producer_exception"},
        "message_age": {"limitTime": 20, "policy": "producer_request_hold"},
    });
    bench.namespace("backlog_quota_map", of_namespace).await;
    let own = json!({"message_age": {"limitTime": 3, "policy": "consumer_backlog_eviction"}});
    bench.topic("backlogQuota", own).await;
    let holds = bench.holds();
    let size = Quota {
        limit: 10,
        action: QuotaAction::Exception,
    };
    let age = Quota {
        limit: 3000,
        action: QuotaAction::Evict,
    };
    let both = BacklogQuotas {
        size: Some(size),
        age: Some(age),
    };
    assert_eq!(holds.backlog_quotas, both);
    // The system's own topics have neither quotas nor an end.
    let own = bench.of("persistent://public/default/__change_events");
    assert_eq!(own.backlog_quotas, BacklogQuotas::default());
    assert!(!own.inactive_topics.delete);
}

#[tokio::test]
async fn delays_kinds_and_inactivity_are_read_from_policies() {
    let bench = Bench::new().await;
    let delays = json!({"active": true, "tickTime": 50, "maxDeliveryDelayInMillis": 700});
    bench.namespace("delayed_delivery_policies", delays).await;
    bench
        .namespace("subscription_types_enabled", json!(["Exclusive", "Shared"]))
        .await;
    let unused = json!({
        "inactiveTopicDeleteMode": "delete_when_subscriptions_caught_up",
        "maxInactiveDurationSeconds": 5,
        "deleteWhileInactive": true,
    });
    bench.namespace("inactive_topic_policies", unused).await;
    let holds = bench.holds();
    assert_eq!(holds.delayed_delivery.tick, Duration::from_millis(50));
    assert_eq!(holds.delayed_delivery.delay_ms_max, Some(700));
    let allowed = |name| bench.holds().subscription_types.allow(name);
    assert!(allowed("Exclusive") && allowed("Shared") && !allowed("Failover") && !allowed("Key_Shared"));
    let after = Duration::from_secs(5);
    assert_eq!(
        holds.inactive_topics,
        InactiveTopics {
            delete: true,
            mode: InactiveMode::CaughtUp,
            after
        }
    );
    bench.topic("delayedDelivery", json!({"active": false})).await;
    bench
        .topic("inactiveTopicPolicies", json!({"deleteWhileInactive": false}))
        .await;
    bench.topic("subscriptionTypesEnabled", json!([])).await;
    let holds = bench.holds();
    assert!(!holds.delayed_delivery.active && !holds.inactive_topics.delete);
    let all = SubscriptionTypes::default();
    assert_eq!(holds.subscription_types, all, "an empty list says nothing");
}

#[tokio::test]
async fn the_older_schema_setting_counts_when_the_newer_is_not_set() {
    let bench = Bench::new().await;
    let strategy = || bench.holds().schema_compatibility_strategy;
    assert_eq!(strategy(), SchemaCompatibilityStrategy::Full);
    bench
        .namespace("schema_auto_update_compatibility_strategy", json!("Forward"))
        .await;
    bench
        .namespace("schema_compatibility_strategy", json!("UNDEFINED"))
        .await;
    assert_eq!(strategy(), SchemaCompatibilityStrategy::Forward);
    bench
        .namespace("schema_compatibility_strategy", json!("BACKWARD"))
        .await;
    assert_eq!(strategy(), SchemaCompatibilityStrategy::Backward);
    bench
        .topic("schemaCompatibilityStrategy", json!("ALWAYS_COMPATIBLE"))
        .await;
    assert_eq!(strategy(), SchemaCompatibilityStrategy::AlwaysCompatible);
}

#[test]
fn names_paths_and_members_are_unique_and_say_what_they_do() {
    let mut seen = std::collections::HashSet::new();
    for row in all() {
        assert!(seen.insert(("name", row.name)), "{}", row.name);
        assert!(
            !row.about.trim().is_empty() && !row.value.is_empty(),
            "{}",
            row.name
        );
        if let Some(at) = row.namespace {
            assert!(
                at.path.is_empty() || seen.insert(("namespace", at.path)),
                "{}",
                at.path
            );
            assert!(seen.insert(("member", at.member)), "{}", at.member);
        }
        if let Some(at) = row.topic {
            assert!(seen.insert(("topic", at.path)), "{}", at.path);
        }
        let acts = row.acts_on(Level::Namespace) || row.acts_on(Level::Topic) || !row.settings.is_empty();
        let acts = acts || !row.property.is_empty();
        assert_eq!(acts, !row.acts.is_empty(), "{} is acted on or not", row.name);
    }
}

#[test]
fn policies_act_where_their_rows_say() {
    let crates = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for row in all().filter(|row| !row.acts.is_empty()) {
        let text = std::fs::read_to_string(crates.join(row.acts));
        let text = text.unwrap_or_else(|error| panic!("{}: {}: {error}", row.name, row.acts));
        let is_typed = POLICIES.iter().any(|typed| typed.name == row.name);
        assert!(
            !is_typed || text.contains(row.name),
            "{} in {}",
            row.name,
            row.acts
        );
    }
}

#[test]
fn what_is_acted_on_has_a_level_that_the_broker_answers_with() {
    let options = CatalogOptions::default();
    // Without a driver nothing is offloaded, and there is no word for that.
    let has_word = |row: &&&Row| row.guard != Guard::OffloadDrivers;
    for row in POLICIES
        .iter()
        .filter(|row| !row.settings.is_empty())
        .filter(has_word)
    {
        assert!(
            (row.applied)(&Levels::of_broker(
                Arc::new(options.policies.clone()),
                &options.cluster_name
            ))
            .is_some(),
            "{}",
            row.name
        );
    }
}

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
        check::retention(
            "",
            json!({"retentionTimeInMinutes": minutes, "retentionSizeInMB": size}),
        )
        .is_ok()
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
    assert!(retention_exceeds(None, &serde_json::Map::new()));
}

#[test]
fn offload_policies_have_their_shape() {
    let policies = |value| check::offload_policies("", value);
    let seconds = |value| check::offload_seconds("", value);
    assert_eq!(
        policies(json!({"s3ManagedLedgerOffloadRole": null, "managedLedgerOffloadDriver": "S3"})).unwrap(),
        json!({"managedLedgerOffloadDriver": "S3"})
    );
    assert!(policies(json!({"nonsense": 1})).is_err() && policies(json!(3)).is_err());
    assert!(seconds(json!(-1)).is_ok() && seconds(json!(-2)).is_err() && seconds(json!("x")).is_err());
}

/// The members of a namespace's policies in Pulsar 4.2.
const MEMBERS_IN_PULSAR: [&str; 52] = [
    "auth_policies",
    "replication_clusters",
    "allowed_clusters",
    "bundles",
    "backlog_quota_map",
    "clusterDispatchRate",
    "topicDispatchRate",
    "subscriptionDispatchRate",
    "replicatorDispatchRate",
    "clusterSubscribeRate",
    "persistence",
    "deduplicationEnabled",
    "autoTopicCreationOverride",
    "autoSubscriptionCreationOverride",
    "publishMaxMessageRate",
    "latency_stats_sample_rate",
    "message_ttl_in_seconds",
    "subscription_expiration_time_minutes",
    "retention_policies",
    "deleted",
    "encryption_required",
    "delayed_delivery_policies",
    "inactive_topic_policies",
    "subscription_auth_mode",
    "max_producers_per_topic",
    "max_consumers_per_topic",
    "max_consumers_per_subscription",
    "max_unacked_messages_per_consumer",
    "max_unacked_messages_per_subscription",
    "max_subscriptions_per_topic",
    "compaction_threshold",
    "offload_threshold",
    "offload_threshold_in_seconds",
    "offload_deletion_lag_ms",
    "max_topics_per_namespace",
    "schema_auto_update_compatibility_strategy",
    "schema_compatibility_strategy",
    "is_allow_auto_update_schema",
    "schema_validation_enforced",
    "offload_policies",
    "deduplicationSnapshotIntervalSeconds",
    "subscription_types_enabled",
    "allowed_topic_property_keys_for_metrics",
    "properties",
    "resource_group_name",
    "migrated",
    "dispatcherPauseOnAckStatePersistentEnabled",
    "entryFilters",
    // Kept apart there, served beside the others.
    "anti_affinity_group",
    "bookieAffinityGroup",
    // Our own.
    "pharos.broadcastSubscriptions",
    "pharos.broadcastCarriers",
];

#[test]
fn every_member_of_a_namespace_s_policies_has_a_row() {
    let rows: Vec<&str> = all().filter_map(|row| Some(row.namespace?.member)).collect();
    for member in MEMBERS_IN_PULSAR {
        assert!(rows.contains(&member), "{member} has no row");
    }
    for member in rows {
        assert!(MEMBERS_IN_PULSAR.contains(&member), "{member} is no member");
    }
}

#[test]
fn what_rest_sets_has_the_shape_that_its_row_says() {
    let broker = BrokerPolicies::default();
    for row in all() {
        let paths = [
            (Level::Namespace, row.namespace.map_or("", |at| at.path)),
            (Level::Topic, row.topic.map_or("", |at| at.path)),
        ];
        for (level, path) in paths.into_iter().filter(|(_, path)| !path.is_empty()) {
            // No policy is a list of objects.
            let refused = row.accept(level, json!([{}]), &broker, "standalone");
            assert!(
                matches!(refused, Err(Refusal::Shape(_) | Refusal::Value(_))),
                "{path}: {refused:?}"
            );
        }
    }
}
