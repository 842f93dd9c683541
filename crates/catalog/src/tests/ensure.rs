//! Automatic creation and the rules of names.

use serde_json::json;

use super::*;
use crate::policy::AutoTopicType;

async fn partitions(catalog: &Catalog, name: &str, auto_create: bool) -> Option<u32> {
    catalog.partitioned_metadata(&topic(name), auto_create).await.ok()
}

#[tokio::test]
async fn by_default_topics_are_made_plain_when_used() {
    let bench = Bench::new();
    let catalog = bench.open().await;
    assert_eq!(partitions(&catalog, "a", true).await, Some(0));
    assert_eq!(partitions(&catalog, "a", false).await, None);
    assert!(matches!(
        catalog.ensure_topic(&topic("a"), false).await,
        Err(EnsureTopicError::TopicNotFound(_))
    ));
    assert!(catalog.ensure_topic(&topic("a"), true).await.unwrap());
    assert!(!catalog.ensure_topic(&topic("a"), true).await.unwrap());
    assert_eq!(partitions(&catalog, "a", false).await, Some(0));
    assert!(!bench.open().await.ensure_topic(&topic("a"), false).await.unwrap());
}

#[tokio::test]
async fn missing_places_are_told_apart() {
    let catalog = Bench::new().open().await;
    for (name, tenant_missing) in [("missing/x/a", true), ("public/x/a", false)] {
        let ensured = catalog.ensure_topic(&topic(name), true).await;
        let known = catalog.partitioned_metadata(&topic(name), true).await;
        if tenant_missing {
            assert!(matches!(ensured, Err(EnsureTopicError::TenantNotFound)));
            assert!(matches!(known, Err(PartitionedMetadataError::TenantNotFound)));
        } else {
            assert!(matches!(ensured, Err(EnsureTopicError::NamespaceNotFound)));
            assert!(matches!(known, Err(PartitionedMetadataError::NamespaceNotFound)));
        }
    }
}

#[tokio::test]
async fn names_must_agree_with_the_partitions_on_record() {
    let catalog = Bench::new().open().await;
    let is_not_allowed = async |name: &str| {
        let outcome = catalog.ensure_topic(&topic(name), true).await;
        matches!(outcome, Err(EnsureTopicError::NotAllowed(_)))
    };
    assert!(is_not_allowed("p-partition-0").await);
    catalog
        .partitioned()
        .create(&topic("p"), 2, no_properties(), false)
        .await
        .unwrap();
    assert!(!is_not_allowed("p-partition-0").await);
    assert!(is_not_allowed("p-partition-2").await);
    assert!(is_not_allowed("p").await);
    // Ordinary names that only look like partitions.
    assert!(!is_not_allowed("p-partition-01").await);
    assert!(!is_not_allowed("p-partition--1").await);
    assert_eq!(partitions(&catalog, "p", false).await, Some(2));
    assert_eq!(partitions(&catalog, "p-partition-1", true).await, Some(0));
    assert_eq!(partitions(&catalog, "p-partition-9", true).await, None);
    assert_eq!(partitions(&catalog, "q-partition-9", true).await, Some(0));
    assert!(catalog.check_lookup(&topic("p")).is_ok());
    assert!(catalog.check_lookup(&topic("q")).is_ok());
    assert!(catalog.check_lookup(&topic("p-partition-1")).is_ok());
    assert!(catalog.check_lookup(&topic("p-partition-9")).is_err());
    assert!(catalog.check_lookup(&topic("public/none/q")).is_err());
}

#[tokio::test]
async fn automatic_topics_may_be_partitioned() {
    let bench = Bench::with(|options| {
        options.policies.auto_topic_creation.kind = AutoTopicType::Partitioned;
        options.policies.auto_topic_creation.partitions = 3;
    });
    let catalog = bench.open().await;
    let both = tokio::join!(partitions(&catalog, "p", true), partitions(&catalog, "p", true));
    assert_eq!(both, (Some(3), Some(3)));
    assert_eq!(partitions(&catalog, "q", false).await, None);
    // System topics stay plain, and so does what exists.
    assert_eq!(partitions(&catalog, "__change_events", true).await, Some(0));
    catalog
        .create_topic(&topic("plain"), no_properties())
        .await
        .unwrap();
    assert_eq!(partitions(&catalog, "plain", true).await, Some(0));
    assert_eq!(partitions(&bench.open().await, "p", false).await, Some(3));
}

#[tokio::test]
async fn the_namespace_has_the_last_word() {
    let catalog = Bench::with(|options| options.policies.auto_topic_creation.allow = false)
        .open()
        .await;
    let name = namespace("public/default");
    assert_eq!(partitions(&catalog, "a", true).await, None);
    assert!(catalog.ensure_topic(&topic("a"), true).await.is_err());
    // System topics are always made.
    assert!(catalog.ensure_topic(&topic("__s"), true).await.unwrap());
    let word = json!({"allowAutoTopicCreation": true, "topicType": "partitioned", "defaultNumPartitions": 2});
    catalog
        .namespaces()
        .set_policy(&name, "autoTopicCreationOverride", word)
        .await
        .unwrap();
    assert_eq!(partitions(&catalog, "a", true).await, Some(2));
    let word = json!({"allowAutoTopicCreation": false});
    catalog
        .namespaces()
        .set_policy(&name, "autoTopicCreationOverride", word)
        .await
        .unwrap();
    assert_eq!(partitions(&catalog, "b", true).await, None);
    // What exists can be used all the same, and so can its partitions.
    assert_eq!(partitions(&catalog, "a", true).await, Some(2));
    assert!(catalog.ensure_topic(&topic("a-partition-1"), true).await.unwrap());
    assert!(catalog.check_lookup(&topic("a-partition-0")).is_ok());
    assert!(catalog.check_lookup(&topic("b")).is_err());
    assert!(catalog.check_lookup(&topic("b-partition-0")).is_err());

    assert!(catalog.may_create_subscription(&topic("a")));
    let word = json!({"allowAutoSubscriptionCreation": false});
    catalog
        .namespaces()
        .set_policy(&name, "autoSubscriptionCreationOverride", word)
        .await
        .unwrap();
    assert!(!catalog.may_create_subscription(&topic("a")));
    let word = json!({"allowAutoSubscriptionCreation": true});
    if !CHANGES_TOPIC_POLICIES {
        return;
    }
    catalog
        .set_topic_policy(&topic("a"), "autoSubscriptionCreation", word)
        .await
        .unwrap();
    assert!(
        catalog.may_create_subscription(&topic("a")),
        "the topic's own word goes first"
    );
    assert!(!catalog.may_create_subscription(&topic("b")));
}

#[tokio::test]
async fn nothing_is_made_in_a_namespace_that_is_going() {
    let catalog = Bench::new().open().await;
    let name = namespace("public/default");
    catalog.ensure_topic(&topic("old"), true).await.unwrap();
    catalog
        .namespaces()
        .set_policy(&name, "deleted", json!(true))
        .await
        .unwrap();
    assert!(matches!(
        catalog.ensure_topic(&topic("a"), true).await,
        Err(EnsureTopicError::TopicNotFound(_))
    ));
    assert!(catalog.ensure_topic(&topic("__s"), true).await.is_err());
    assert!(!catalog.ensure_topic(&topic("old"), true).await.unwrap());
}

#[tokio::test]
async fn non_persistent_topics_exist_while_loaded() {
    let bench = Bench::new();
    let catalog = bench.open().await;
    let name = topic("non-persistent://public/default/n");
    assert!(catalog.ensure_topic(&name, true).await.unwrap());
    assert!(catalog.topic_exists(&name));
    assert!(!bench.open().await.topic_exists(&name));
    catalog.note_unloaded(&name);
    assert!(!catalog.topic_exists(&name));
    assert!(bench.store.scan("admin/topics/").await.unwrap().is_empty());
}

#[tokio::test]
async fn the_heartbeat_namespace_is_simply_there() {
    let bench = Bench::with(|options| options.heartbeat_namespace = Some(namespace("pulsar/host:8080")));
    let catalog = bench.open().await;
    assert!(
        catalog
            .ensure_topic(&topic("pulsar/host:8080/healthcheck"), true)
            .await
            .unwrap()
    );
    assert_eq!(catalog.namespaces().of("pulsar"), [namespace("pulsar/system")]);
    assert!(matches!(
        catalog.namespaces().delete(&namespace("pulsar/host:8080")).await,
        Err(NamespaceError::Reserved(_))
    ));
    assert!(
        bench
            .open()
            .await
            .topic_exists(&topic("pulsar/host:8080/healthcheck"))
    );
}
