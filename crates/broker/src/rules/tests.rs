//! Whose word goes first.

use pharos_metadata::Memory;
use pharos_types::NamespaceName;

use super::*;
use pharos_catalog::CatalogOptions;

struct Bench {
    catalog: Catalog,
    options: Options,
}

const TOPIC: &str = "persistent://public/default/t";

impl Bench {
    async fn new() -> Self {
        let store = Arc::new(Memory::new());
        let catalog = Catalog::open(store, CatalogOptions::default()).await.unwrap();
        Self {
            catalog,
            options: Options::default(),
        }
    }

    async fn namespace(&self, member: &str, value: Value) {
        let name: NamespaceName = "public/default".parse().unwrap();
        self.catalog.set_policy(&name, member, value).await.unwrap();
    }

    async fn topic(&self, policy: &str, value: Value) {
        let name = TOPIC.parse().unwrap();
        self.catalog.set_topic_policy(&name, policy, value).await.unwrap();
    }

    fn rules_of(&self, name: &str) -> Rules {
        Rules::of(&self.catalog, &self.options, &name.parse().unwrap())
    }

    fn rules(&self) -> Rules {
        self.rules_of(TOPIC)
    }
}

fn kept(time_ms: Option<u64>, bytes: Option<u64>) -> Retention {
    Retention { time_ms, bytes }
}

#[tokio::test]
async fn a_topic_goes_before_its_namespace_and_that_before_the_broker() {
    let mut bench = Bench::new().await;
    bench.options.retention_time = Some(Duration::from_secs(60));
    bench.options.retention_bytes = Some(7);
    assert_eq!(bench.rules().retention, kept(Some(60_000), Some(7)));
    bench
        .namespace(
            "retention_policies",
            json!({"retentionTimeInMinutes": 5, "retentionSizeInMB": -1}),
        )
        .await;
    assert_eq!(bench.rules().retention, kept(Some(300_000), None));
    let forever = json!({"retentionTimeInMinutes": -1, "retentionSizeInMB": -1});
    bench.topic("global/retention", forever).await;
    assert_eq!(bench.rules().retention, kept(None, None), "for all clusters");
    let two = json!({"retentionTimeInMinutes": 2, "retentionSizeInMB": 3});
    bench.topic("retention", two).await;
    assert_eq!(bench.rules().retention, kept(Some(120_000), Some(3 << 20)));
    // Partitions have the policies of their topic; other topics have not.
    assert_eq!(
        bench
            .rules_of("persistent://public/default/t-partition-3")
            .retention,
        kept(Some(120_000), Some(3 << 20))
    );
    assert_eq!(
        bench.rules_of("persistent://public/default/u").retention,
        kept(Some(300_000), None)
    );
    bench.topic("retention", Value::Null).await;
    bench.topic("global/retention", Value::Null).await;
    bench.namespace("retention_policies", Value::Null).await;
    assert_eq!(bench.rules().retention, kept(Some(60_000), Some(7)));
}

#[tokio::test]
async fn nothing_said_means_nothing_limited() {
    let rules = Bench::new().await.rules();
    assert_eq!(rules.retention, Retention::NONE);
    assert_eq!(
        (rules.ttl_ms, rules.quota_size, rules.quota_age),
        (None, None, None)
    );
    assert_eq!(rules.seats, Seats::default());
    assert_eq!(rules.unacked, Limits::default());
    assert_eq!(rules.delay, Some(DelayOptions::default()));
    assert_eq!(rules.inactive, Some(InactiveRule::default()));
    assert_eq!(rules.kinds, SubscriptionType::ALL);
}

#[tokio::test]
async fn zero_switches_off_what_the_broker_has_on() {
    let mut bench = Bench::new().await;
    bench.options.message_ttl = Some(Duration::from_secs(9));
    bench.options.max_producers_per_topic = 4;
    bench.options.backlog_quota_bytes = Some(100);
    bench.options.subscription_expiration = Some(Duration::from_secs(60));
    assert_eq!(bench.rules().ttl_ms, Some(9000));
    bench.namespace("message_ttl_in_seconds", json!(0)).await;
    bench.namespace("max_producers_per_topic", json!(0)).await;
    bench
        .namespace("subscription_expiration_time_minutes", json!(0))
        .await;
    let off = json!({"destination_storage": {"limitSize": -1, "policy": "producer_exception"}});
    bench.namespace("backlog_quota_map", off).await;
    let rules = bench.rules();
    assert_eq!((rules.ttl_ms, rules.seats.producers), (None, 0));
    assert_eq!((rules.quota_size, rules.subscription_ms), (None, None));
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
    let rules = bench.rules();
    let size = Quota {
        limit: 10,
        action: QuotaAction::Exception,
    };
    let age = Quota {
        limit: 3000,
        action: QuotaAction::Evict,
    };
    assert_eq!((rules.quota_size, rules.quota_age), (Some(size), Some(age)));
    // The system's own topics have neither quotas nor an end.
    let own = bench.rules_of("persistent://public/default/__change_events");
    assert_eq!((own.quota_size, own.quota_age, own.inactive), (None, None, None));
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
    let rules = bench.rules();
    assert_eq!(rules.delay.unwrap().tick_ms, 50);
    assert_eq!(rules.delay_ms_max, Some(700));
    let kinds = [
        SubscriptionType::Exclusive,
        SubscriptionType::Shared,
        SubscriptionType::Broadcast,
    ];
    assert_eq!(rules.kinds, kinds);
    let after = Duration::from_secs(5);
    assert_eq!(
        rules.inactive,
        Some(InactiveRule {
            mode: InactiveMode::CaughtUp,
            after
        })
    );
    bench.topic("delayedDelivery", json!({"active": false})).await;
    bench
        .topic("inactiveTopicPolicies", json!({"deleteWhileInactive": false}))
        .await;
    bench.topic("subscriptionTypesEnabled", json!([])).await;
    let rules = bench.rules();
    assert_eq!((rules.delay, rules.inactive), (None, None));
    assert_eq!(rules.kinds, SubscriptionType::ALL, "an empty list says nothing");
}
