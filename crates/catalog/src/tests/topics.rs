//! Topics and partitioned topics.

use bytes::Bytes;
use pharos_metadata::Expect;
use pharos_types::Domain;
use serde_json::json;

use super::*;

#[tokio::test]
async fn topics_come_once_and_go_with_what_is_theirs() {
    let bench = Bench::new();
    let catalog = bench.open().await;
    let name = topic("persistent://public/default/a b%c");
    let properties = BTreeMap::from([("k".to_owned(), "v".to_owned())]);
    catalog.create_topic(&name, properties.clone()).await.unwrap();
    assert!(matches!(
        catalog.create_topic(&name, no_properties()).await,
        Err(TopicError::AlreadyExists)
    ));
    let mut policy = None;
    if CHANGES_TOPIC_POLICIES {
        policy = Some(json!(1));
        catalog
            .set_topic_policy(&name, "retention", json!(1))
            .await
            .unwrap();
    }
    let again = bench.open().await;
    assert_eq!(again.topic_properties(&name).unwrap(), properties);
    assert_eq!(again.topic_policies(&name).0.get("retention"), policy.as_ref());
    let set = BTreeMap::from([("l".to_owned(), "w".to_owned())]);
    again
        .update_topic_properties(&name, set.clone(), &["k".into()])
        .await
        .unwrap();
    assert_eq!(bench.open().await.topic_properties(&name).unwrap(), set);
    again.delete_topic(&name).await.unwrap();
    assert!(matches!(
        again.delete_topic(&name).await,
        Err(TopicError::TopicNotFound(_))
    ));
    let after = bench.open().await;
    assert!(!after.topic_exists(&name));
    assert!(after.topic_policies(&name).0.is_empty());
}

#[tokio::test]
async fn ten_thousand_topics_are_made_side_by_side() {
    let bench = Bench::new();
    let catalog = bench.open().await;
    let name = topic("many");
    catalog
        .partitioned()
        .create(&name, 10_000, no_properties(), true)
        .await
        .unwrap();
    assert!(catalog.partitioned().missing(&name).unwrap().is_empty());
    let listed = bench
        .open()
        .await
        .topics(&namespace("public/default"), ListMode::All, false);
    assert_eq!(listed.len(), 10_000);
}

#[tokio::test]
async fn partitioned_topics_grow_and_never_shrink() {
    let bench = Bench::new();
    let catalog = bench.open().await;
    let name = topic("p");
    assert!(matches!(
        catalog.partitioned().grow(&name, 3).await,
        Err(PartitionedTopicError::NotPartitioned(_))
    ));
    assert!(matches!(
        catalog
            .partitioned()
            .create(&name, 0, no_properties(), true)
            .await,
        Err(PartitionedTopicError::OutOfRange { .. })
    ));
    let partition = name.with_partition(0);
    assert!(matches!(
        catalog
            .partitioned()
            .create(&partition, 2, no_properties(), true)
            .await,
        Err(PartitionedTopicError::NotAllowed(_))
    ));
    catalog
        .partitioned()
        .create(&name, 2, no_properties(), true)
        .await
        .unwrap();
    assert!(matches!(
        catalog
            .partitioned()
            .create(&name, 2, no_properties(), true)
            .await,
        Err(PartitionedTopicError::AlreadyExists)
    ));
    assert!(matches!(
        catalog.create_topic(&name, no_properties()).await,
        Err(TopicError::AlreadyExists)
    ));
    catalog.partitioned().grow(&name, 4).await.unwrap();
    catalog.partitioned().grow(&name, 4).await.unwrap();
    assert!(matches!(
        catalog.partitioned().grow(&name, 3).await,
        Err(PartitionedTopicError::Fewer {
            current: 4,
            wanted: 3
        })
    ));
    let properties = BTreeMap::from([("k".to_owned(), "v".to_owned())]);
    catalog
        .update_topic_properties(&name, properties.clone(), &[])
        .await
        .unwrap();
    let again = bench.open().await;
    let whole = again.partitioned().get(&name).unwrap();
    assert_eq!((whole.partitions, whole.properties), (4, Some(properties)));
    assert!(again.topic_exists(&name.with_partition(3)));
    let names = again
        .partitioned()
        .names(&namespace("public/default"), Domain::Persistent);
    assert_eq!(names, [name]);
}

#[tokio::test]
async fn a_deletion_in_two_steps_lets_no_partition_slip_back() {
    let bench = Bench::new();
    let catalog = bench.open().await;
    let name = topic("p");
    catalog
        .partitioned()
        .create(&name, 2, no_properties(), false)
        .await
        .unwrap();
    assert!(catalog.ensure_topic(&name.with_partition(1), true).await.unwrap());
    assert_eq!(catalog.partitioned().begin_delete(&name).await.unwrap(), 2);
    for index in [0, 1] {
        assert!(matches!(
            catalog.ensure_topic(&name.with_partition(index), true).await,
            Err(EnsureTopicError::Deleting(_))
        ));
    }
    assert!(matches!(
        catalog.partitioned().grow(&name, 5).await,
        Err(PartitionedTopicError::Deleting(_))
    ));
    // A restart in between keeps the mark.
    let again = bench.open().await;
    assert!(again.partitioned().get(&name).unwrap().deleted);
    again.partitioned().delete(&name).await.unwrap();
    assert_eq!(again.partitioned().get(&name), None);
    assert!(!again.topic_exists(&name.with_partition(1)));
    assert!(matches!(
        again.partitioned().delete(&name).await,
        Err(PartitionedTopicError::NotPartitioned(_))
    ));
    assert!(bench.store.scan("admin/topics/").await.unwrap().is_empty());
}

#[tokio::test]
async fn explicit_creation_of_a_partition_must_fit() {
    let catalog = Bench::new().open().await;
    assert!(matches!(
        catalog
            .create_topic(&topic("p-partition-0"), no_properties())
            .await,
        Err(TopicError::NotAPartition(_))
    ));
    catalog
        .partitioned()
        .create(&topic("p"), 1, no_properties(), false)
        .await
        .unwrap();
    catalog
        .create_topic(&topic("p-partition-0"), no_properties())
        .await
        .unwrap();
    assert!(matches!(
        catalog
            .create_topic(&topic("p-partition-1"), no_properties())
            .await,
        Err(TopicError::NotAPartition(_))
    ));
}

#[tokio::test]
async fn one_of_many_creators_wins() {
    let catalog = Bench::new().open().await;
    let name = topic("a");
    let make = || catalog.ensure_topic(&name, true);
    let (a, b, c) = tokio::join!(make(), make(), make());
    let made = [a.unwrap(), b.unwrap(), c.unwrap()];
    assert_eq!(made.iter().filter(|made| **made).count(), 1);
    // A plain and a partitioned topic of one name exclude each other.
    let other = topic("b");
    let (plain, partitioned) = tokio::join!(
        catalog.create_topic(&other, no_properties()),
        catalog.partitioned().create(&other, 2, no_properties(), false),
    );
    assert!(plain.is_ok() != partitioned.is_ok());
}

#[tokio::test]
async fn the_limit_of_a_namespace_counts_topics_of_users() {
    let catalog = Bench::with(|options| options.policies.max_topics_per_namespace = 2)
        .open()
        .await;
    catalog.ensure_topic(&topic("__system"), true).await.unwrap();
    for name in ["a", "b"] {
        catalog.ensure_topic(&topic(name), true).await.unwrap();
    }
    assert!(matches!(
        catalog.ensure_topic(&topic("c"), true).await,
        Err(EnsureTopicError::NotAllowed(_))
    ));
    catalog.ensure_topic(&topic("__other"), true).await.unwrap();
    let name = namespace("public/default");
    catalog
        .namespaces()
        .set_policy(&name, "max_topics_per_namespace", json!(3))
        .await
        .unwrap();
    catalog.ensure_topic(&topic("c"), true).await.unwrap();
}

#[tokio::test]
async fn the_limit_of_a_tenant_counts_all_its_namespaces() {
    let catalog = Bench::with(|options| options.max_topics_per_tenant = 2)
        .open()
        .await;
    // The first that a tenant can have, and one far behind it.
    for name in ["public/-", "public/second"] {
        let name = namespace(name);
        catalog
            .namespaces()
            .create(&name, Policies::default())
            .await
            .unwrap();
    }
    // Tenants whose names stand around it.
    for (tenant, name) in [
        ("publi", "publi/z"),
        ("public-x", "public-x/a"),
        ("public0", "public0/a"),
    ] {
        let info = catalog.tenants().get("public").unwrap();
        catalog.tenants().create(tenant, info).await.unwrap();
        catalog
            .namespaces()
            .create(&namespace(name), Policies::default())
            .await
            .unwrap();
        let theirs = topic(&format!("persistent://{name}/a"));
        catalog.ensure_topic(&theirs, true).await.unwrap();
    }
    for name in ["persistent://public/-/a", "persistent://public/second/a"] {
        catalog.ensure_topic(&topic(name), true).await.unwrap();
    }
    for name in ["b", "persistent://public/second/b"] {
        let refused = catalog.ensure_topic(&topic(name), true).await.unwrap_err();
        assert!(refused.to_string().contains("max_topics_per_tenant"), "{refused}");
    }
    catalog
        .ensure_topic(&topic("persistent://public/-/a"), true)
        .await
        .unwrap();
    catalog.ensure_topic(&topic("__system"), true).await.unwrap();
}

#[tokio::test]
async fn everything_about_a_topic_of_the_longest_name_can_be_stored() {
    let catalog = Bench::new().open().await;
    let room = pharos_types::TOPIC_BYTES_MAX - "public/default/".len();
    let local = "ü".repeat(room / 6);
    for domain in ["persistent", "non-persistent"] {
        let name = topic(&format!("{domain}://public/default/{local}"));
        catalog.create_topic(&name, no_properties()).await.unwrap();
        let schema = schema::SchemaInfo::new(schema::SchemaType::String, bytes::Bytes::new());
        catalog.schemas().add(&name, schema, "").await.unwrap();
        if CHANGES_TOPIC_POLICIES {
            let policy = serde_json::json!(1);
            catalog
                .set_topic_policy(&name, "maxConsumers", policy)
                .await
                .unwrap();
        }
        catalog.delete_topic(&name).await.unwrap();
        // As a partitioned topic it has no room for its partitions, which is said before anything is stored.
        let made = catalog
            .partitioned()
            .create(&name, 2, no_properties(), true)
            .await;
        assert!(
            matches!(made, Err(PartitionedTopicError::NotAllowed(_))),
            "{made:?}"
        );
        let whole = topic(&format!("{domain}://public/default/{}", "x".repeat(room - 12)));
        catalog
            .partitioned()
            .create(&whole, 10, no_properties(), true)
            .await
            .unwrap();
        let grown = catalog.partitioned().grow(&whole, 11).await;
        assert!(
            matches!(grown, Err(PartitionedTopicError::NotAllowed(_))),
            "{grown:?}"
        );
    }
}

#[tokio::test]
async fn the_limit_of_a_tenant_counts_topics_that_are_being_made() {
    let catalog = Bench::with(|options| options.max_topics_per_tenant = 1)
        .open()
        .await;
    let being_made = catalog.hold_namespace(&topic("a")).unwrap();
    let refused = catalog.ensure_topic(&topic("b"), true).await.unwrap_err();
    assert!(refused.to_string().contains("max_topics_per_tenant"), "{refused}");
    drop(being_made);
    catalog.ensure_topic(&topic("b"), true).await.unwrap();
}

#[tokio::test]
async fn what_held_topics_and_is_empty_is_no_fact() {
    let bench = Bench::new();
    drop(bench.open().await);
    // With ZooKeeper these nodes stay when the last topic below them was deleted, and are keys then.
    for tree in [
        "topics",
        "partitioned-topics",
        "topic-policies",
        "policies",
        "schemas",
        "clusters",
    ] {
        let key = format!("admin/{tree}/public/default/persistent");
        // In Pulsar's layout some of the trees are elsewhere, and take no such key.
        let _ = bench.store.put(&key, Bytes::new(), Expect::Absent).await;
    }
    let catalog = bench.open().await;
    let name = topic("persistent://public/default/t");
    catalog.create_topic(&name, no_properties()).await.unwrap();
    assert!(bench.open().await.topic_exists(&name));
}
