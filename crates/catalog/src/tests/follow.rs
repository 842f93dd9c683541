//! Two catalogs on one store, as two brokers have them.

use std::time::Duration;

use serde_json::json;

use super::*;
use crate::schema::{SchemaCompatibilityStrategy, SchemaInfo, SchemaType};

/// Two that follow each other.
async fn two(bench: &Bench) -> (Catalog, Catalog) {
    let (one, two) = (bench.open().await, bench.open().await);
    for catalog in [one.clone(), two.clone()] {
        pharos_runtime::spawn_local(async move { catalog.follow().await });
    }
    (one, two)
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, test);
}

async fn until(what: &str, is: impl Fn() -> bool) {
    for _ in 0..20_000 {
        if is() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("never: {what}");
}

#[test]
fn what_another_broker_makes_and_deletes_is_seen() {
    run(async {
        let bench = Bench::new();
        let (one, two) = two(&bench).await;
        let info = TenantInfo {
            admin_roles: Vec::new(),
            allowed_clusters: one.clusters().names(),
        };
        one.tenants().create("t", info).await.unwrap();
        let (name, t) = (namespace("t/n"), topic("persistent://t/n/a"));
        one.namespaces().create(&name, Policies::default()).await.unwrap();
        until("the namespace is seen", || two.namespaces().has(&name)).await;
        let mut events = two.subscribe_topic_events();
        one.create_topic(&t, no_properties()).await.unwrap();
        assert_eq!(events.recv().await.unwrap(), TopicEvent::Created(t.clone()));
        assert!(two.topic_exists(&t));
        let whole = topic("persistent://t/n/p");
        one.partitioned()
            .create(&whole, 3, no_properties(), true)
            .await
            .unwrap();
        until("all partitions are seen", || {
            two.topic_exists(&whole.with_partition(2))
        })
        .await;
        assert_eq!(two.partitioned().get(&whole).unwrap().partitions, 3);
        let mut changes = two.subscribe_policy_events();
        one.namespaces()
            .set_policy(&name, "message_ttl_in_seconds", json!(7))
            .await
            .unwrap();
        assert_eq!(
            changes.recv().await.unwrap(),
            PolicyEvent::Namespace(name.clone())
        );
        let policies = two.policies(&name).unwrap();
        assert_eq!(policies.get("message_ttl_in_seconds"), Some(&json!(7)));
        if CHANGES_TOPIC_POLICIES {
            one.set_topic_policy(&t, "maxConsumers", json!(2)).await.unwrap();
            until("the policy is seen", || {
                two.topic_policies(&t).get("maxConsumers").is_some()
            })
            .await;
        }

        while events.try_recv().is_ok() {}
        one.deletions().begin(&t).await.unwrap();
        assert_eq!(events.recv().await.unwrap(), TopicEvent::Deleted(t.clone()));
        assert!(two.deletions().has(&t));
        one.delete_topic(&t).await.unwrap();
        until("the topic is gone", || !two.has_record(&t)).await;
        until("its policies are", || two.topic_policies(&t).0.is_empty()).await;
        one.partitioned().begin_delete(&whole).await.unwrap();
        one.partitioned().delete(&whole).await.unwrap();
        until("it is gone", || {
            two.partitioned().get(&whole).is_none() && !two.deletions().has(&whole)
        })
        .await;
        one.namespaces().delete(&name).await.unwrap();
        one.tenants().delete("t").await.unwrap();
        until("the tenant is gone", || {
            two.tenants().get("t").is_none() && !two.namespaces().has(&name)
        })
        .await;
    });
}

#[test]
fn changes_of_two_brokers_at_once_are_all_kept() {
    run(async {
        let bench = Bench::new();
        let (one, two) = two(&bench).await;
        let name = namespace("public/default");
        // Neither has heard of the other's when it decides.
        let change = async |catalog: &Catalog, numbers: [u32; 6]| {
            for number in numbers {
                let policy = format!("p{number}");
                catalog
                    .namespaces()
                    .set_policy(&name, &policy, json!(number))
                    .await
                    .unwrap();
            }
        };
        tokio::join!(
            change(&one, [0, 2, 4, 6, 8, 10]),
            change(&two, [1, 3, 5, 7, 9, 11])
        );
        let has_all = |catalog: &Catalog| {
            let policies = catalog.policies(&name).unwrap();
            (0..12).all(|number| policies.get(&format!("p{number}")) == Some(&json!(number)))
        };
        until("both have all", || has_all(&one) && has_all(&two)).await;

        let t = topic("persistent://public/default/t");
        let (first, second) = tokio::join!(one.ensure_topic(&t, true), two.ensure_topic(&t, true));
        assert_eq!(
            u8::from(first.unwrap()) + u8::from(second.unwrap()),
            1,
            "one has made it"
        );
    });
}

#[test]
fn schemas_of_two_brokers_follow_each_other() {
    run(async {
        let bench = Bench::new();
        let (one, two) = two(&bench).await;
        let t = topic("persistent://public/default/t");
        one.ensure_topic(&t, true).await.unwrap();
        let schema = |field: &str| SchemaInfo {
            kind: SchemaType::Json,
            data: json!({
                "type": "record",
                "name": "r",
                "fields": [{"name": field, "type": "int", "default": 0}],
            })
            .to_string()
            .into_bytes()
            .into(),
            properties: no_properties(),
        };
        let always = SchemaCompatibilityStrategy::AlwaysCompatible;
        one.namespaces()
            .set_policy(
                t.namespace(),
                "schema_compatibility_strategy",
                json!(always.to_string()),
            )
            .await
            .unwrap();
        let name = t.namespace().clone();
        until("the strategy is seen", || {
            two.policies(&name)
                .unwrap()
                .get("schema_compatibility_strategy")
                .is_some()
        })
        .await;
        let (a, b) = tokio::join!(
            one.schemas().add(&t, schema("a"), ""),
            two.schemas().add(&t, schema("b"), "")
        );
        assert_ne!(a.unwrap().version, b.unwrap().version);
        until("both have both", || {
            one.schemas().history(&t).versions().count() == 2
                && two.schemas().history(&t).versions().count() == 2
        })
        .await;
        one.schemas().delete_all(&t).await.unwrap();
        until("both have none", || {
            two.schemas().history(&t).versions().count() == 0
        })
        .await;
    });
}

#[test]
fn more_changes_than_a_watch_holds_are_seen_as_well() {
    run(async {
        let bench = Bench::new();
        let (one, two) = two(&bench).await;
        let names: Vec<_> = (0..3_000)
            .map(|number| topic(&format!("persistent://public/default/t{number}")))
            .collect();
        // Nothing of it gives others a turn: the store is in memory.
        for name in &names {
            one.create_topic(name, no_properties()).await.unwrap();
        }
        for name in names.iter().step_by(2) {
            one.delete_topic(name).await.unwrap();
        }
        let is_same = |(number, name): (usize, &TopicName)| two.topic_exists(name) == (number % 2 == 1);
        until("both have the same", || names.iter().enumerate().all(is_same)).await;
    });
}

/// Seconds of the time to live, by the name `ttl`.
#[derive(Debug)]
struct TimeToLive;

impl ChangeableSettings for TimeToLive {
    fn names(&self) -> Vec<String> {
        vec!["ttl".to_owned()]
    }

    fn check(&self, name: &str, value: &str) -> Result<(), ChangeSettingError> {
        match (name, value.parse::<u64>()) {
            ("ttl", Ok(_)) => Ok(()),
            ("ttl", Err(error)) => Err(ChangeSettingError::Value(error.to_string())),
            _ => Err(ChangeSettingError::Unknown(name.to_owned())),
        }
    }

    fn policies(&self, changed: &ChangedSettings) -> policy::BrokerPolicies {
        let seconds = changed.0.get("ttl").and_then(|value| value.parse().ok());
        policy::BrokerPolicies {
            message_ttl: Duration::from_secs(seconds.unwrap_or(0)).into(),
            ..policy::BrokerPolicies::default()
        }
    }
}

#[test]
fn a_setting_that_another_broker_changed_holds_here() {
    run(async {
        let bench = Bench::with(|options| options.changeable = Some(Arc::new(TimeToLive)));
        let (one, two) = two(&bench).await;
        let t = topic("persistent://public/default/t");
        let millis = |catalog: &Catalog| catalog.effective_policies(&t).message_ttl.millis();
        assert_eq!(millis(&two), None);
        let mut changes = two.subscribe_policy_events();
        RuntimeSettings::of(&one).change("ttl", Some("7")).await.unwrap();
        assert_eq!(millis(&one), Some(7000));
        assert_eq!(changes.recv().await.unwrap(), PolicyEvent::Broker);
        assert_eq!(millis(&two), Some(7000));
        // What a namespace says goes before it.
        let name = namespace("public/default");
        two.namespaces()
            .set_policy(&name, "message_ttl_in_seconds", json!(3))
            .await
            .unwrap();
        assert_eq!(millis(&two), Some(3000));
        two.namespaces()
            .set_policy(&name, "message_ttl_in_seconds", json!(null))
            .await
            .unwrap();
        for (name, value) in [("ttl", "long"), ("other", "1")] {
            assert!(RuntimeSettings::of(&two).change(name, Some(value)).await.is_err());
        }
        let later = bench.open().await;
        assert_eq!(millis(&later), Some(7000));
        RuntimeSettings::of(&two).change("ttl", None).await.unwrap();
        until("it is taken back", || millis(&one).is_none()).await;
        assert!(RuntimeSettings::of(&one).changed().is_empty());
    });
}
