//! Clusters, tenants, namespaces.

use bytes::Bytes;
use pharos_metadata::Expect;
use serde_json::json;

use super::*;

fn on_standalone() -> TenantInfo {
    TenantInfo {
        admin_roles: vec!["ops".into()],
        allowed_clusters: vec!["standalone".into()],
    }
}

#[tokio::test]
async fn a_fresh_store_gets_the_usual_names_once() {
    let bench = Bench::new();
    let catalog = bench.open().await;
    assert_eq!(catalog.clusters().names(), ["standalone"]);
    assert_eq!(catalog.tenants().names(), ["public", "pulsar"]);
    assert_eq!(catalog.namespaces().of("public"), [namespace("public/default")]);
    assert_eq!(catalog.namespaces().of("pulsar"), [namespace("pulsar/system")]);
    let policies = catalog.policies(&namespace("public/default")).unwrap();
    assert_eq!(policies.replication_clusters(), ["standalone"]);
    catalog
        .namespaces()
        .delete(&namespace("public/default"))
        .await
        .unwrap();
    catalog.tenants().delete("public").await.unwrap();
    assert_eq!(bench.open().await.tenants().names(), ["pulsar"]);
}

#[tokio::test]
async fn an_interrupted_first_start_is_finished_by_the_next() {
    let bench = Bench::new();
    let half = Bytes::from_static(br#"{"adminRoles":["kept"],"allowedClusters":["standalone"]}"#);
    bench
        .store
        .put("admin/policies/public", half, Expect::Absent)
        .await
        .unwrap();
    let catalog = bench.open().await;
    assert_eq!(catalog.tenants().get("public").unwrap().admin_roles, ["kept"]);
    assert!(catalog.namespaces().has(&namespace("pulsar/system")));
}

#[tokio::test]
async fn tenants_come_change_and_go() {
    let bench = Bench::new();
    let catalog = bench.open().await;
    let create = |name: &'static str, info| catalog.tenants().create(name, info);
    create("acme", on_standalone()).await.unwrap();
    assert!(matches!(
        create("acme", on_standalone()).await,
        Err(TenantError::AlreadyExists)
    ));
    assert!(matches!(
        create("a/b", on_standalone()).await,
        Err(TenantError::InvalidName)
    ));
    let elsewhere = TenantInfo {
        allowed_clusters: vec!["mars".into()],
        ..TenantInfo::default()
    };
    assert!(matches!(
        create("x", elsewhere.clone()).await,
        Err(TenantError::UnknownCluster(_))
    ));
    assert!(matches!(
        catalog.tenants().update("x", on_standalone()).await,
        Err(TenantError::NotFound)
    ));
    let changed = TenantInfo {
        admin_roles: vec![],
        ..on_standalone()
    };
    catalog.tenants().update("acme", changed.clone()).await.unwrap();
    catalog
        .namespaces()
        .create(&namespace("acme/cars"), Policies::default())
        .await
        .unwrap();
    assert!(matches!(
        catalog.tenants().delete("acme").await,
        Err(TenantError::NotEmpty)
    ));
    let again = bench.open().await;
    assert_eq!(again.tenants().get("acme"), Some(changed));
    again.namespaces().delete(&namespace("acme/cars")).await.unwrap();
    again.tenants().delete("acme").await.unwrap();
    assert_eq!(bench.open().await.tenants().get("acme"), None);
}

#[tokio::test]
async fn clusters_in_use_stay() {
    let catalog = Bench::new().open().await;
    catalog
        .clusters()
        .create("east", ClusterData::default())
        .await
        .unwrap();
    assert!(matches!(
        catalog.clusters().create("east", ClusterData::default()).await,
        Err(ClusterError::AlreadyExists)
    ));
    let data = ClusterData {
        service_url: Some("http://127.0.0.1:1".into()),
        ..ClusterData::default()
    };
    catalog.clusters().update("east", data.clone()).await.unwrap();
    assert_eq!(catalog.clusters().get("east"), Some(data));
    assert!(matches!(
        catalog.clusters().delete("standalone").await,
        Err(ClusterError::NotEmpty)
    ));
    catalog.clusters().delete("east").await.unwrap();
    assert!(matches!(
        catalog.clusters().delete("east").await,
        Err(ClusterError::NotFound)
    ));
}

#[tokio::test]
async fn namespaces_keep_their_policies() {
    let bench = Bench::new();
    let catalog = bench.open().await;
    let name = namespace("public/cars");
    let create = |name, policies: Policies| {
        let catalog = catalog.clone();
        async move { catalog.namespaces().create(&namespace(name), policies).await }
    };
    create("public/cars", Policies::default()).await.unwrap();
    assert!(matches!(
        create("public/cars", Policies::default()).await,
        Err(NamespaceError::AlreadyExists)
    ));
    assert!(matches!(
        create("missing/cars", Policies::default()).await,
        Err(NamespaceError::TenantNotFound)
    ));
    assert!(matches!(
        create("public/x", Policies::first(&["mars"], 4)).await,
        Err(NamespaceError::ClusterNotAllowed { .. })
    ));
    let mut crowded = Policies::default();
    crowded.set("bundles", json!({"numBundles": 4_000_000_000_u32}));
    assert!(matches!(
        create("public/x", crowded).await,
        Err(NamespaceError::InvalidBundles)
    ));
    catalog
        .namespaces()
        .set_policy(&name, "message_ttl_in_seconds", json!(5))
        .await
        .unwrap();
    catalog
        .namespaces()
        .set_policy(&name, "x", json!({"y": 1}))
        .await
        .unwrap();
    catalog.namespaces().remove_policy(&name, "x").await.unwrap();
    let policies = bench.open().await.policies(&name).unwrap();
    assert_eq!(policies.get_as("message_ttl_in_seconds"), Some(5));
    assert_eq!(policies.get("x"), None);
    assert_eq!(policies.get("bundles").unwrap()["numBundles"], 4);
}

#[tokio::test]
async fn policies_set_at_once_are_all_kept() {
    let bench = Bench::new();
    let catalog = bench.open().await;
    let name = namespace("public/default");
    let set = |policy| catalog.namespaces().set_policy(&name, policy, json!(1));
    let (a, b, c) = tokio::join!(set("a"), set("b"), set("c"));
    a.and(b).and(c).unwrap();
    let policies = bench.open().await.policies(&name).unwrap();
    assert!(
        ["a", "b", "c"]
            .iter()
            .all(|policy| policies.get(policy).is_some())
    );
}

#[tokio::test]
async fn a_change_by_another_process_is_not_overwritten() {
    let bench = Bench::new();
    let (ours, theirs) = (bench.open().await, bench.open().await);
    let name = namespace("public/default");
    theirs
        .namespaces()
        .set_policy(&name, "theirs", json!(1))
        .await
        .unwrap();
    ours.namespaces()
        .set_policy(&name, "ours", json!(1))
        .await
        .unwrap();
    let policies = bench.open().await.policies(&name).unwrap();
    assert!(policies.get("ours").is_some() && policies.get("theirs").is_some());
}

#[tokio::test]
async fn a_namespace_with_topics_stays() {
    let bench = Bench::new();
    let catalog = bench.open().await;
    let name = namespace("public/default");
    catalog.create_topic(&topic("a"), no_properties()).await.unwrap();
    catalog
        .ensure_topic(&topic("__change_events"), true)
        .await
        .unwrap();
    assert!(matches!(
        catalog.namespaces().delete(&name).await,
        Err(NamespaceError::NotEmpty)
    ));
    catalog.delete_topic(&topic("a")).await.unwrap();
    // Topics of the system store something as well.
    assert!(matches!(
        catalog.namespaces().delete(&name).await,
        Err(NamespaceError::NotEmpty)
    ));
    catalog.delete_topic(&topic("__change_events")).await.unwrap();
    catalog.namespaces().delete(&name).await.unwrap();
    assert!(matches!(
        catalog.ensure_topic(&topic("a"), true).await,
        Err(EnsureTopicError::NamespaceNotFound)
    ));
    assert!(bench.store.scan("admin/topics/").await.unwrap().is_empty());
}

#[tokio::test]
async fn a_failed_write_changes_nothing() {
    let bench = Bench::new();
    let catalog = bench.open().await;
    bench.store.fail_writes(Some("no space"));
    assert!(matches!(
        catalog.create_topic(&topic("a"), no_properties()).await,
        Err(TopicError::Store(_))
    ));
    let name = namespace("public/default");
    assert!(matches!(
        catalog.namespaces().delete(&name).await,
        Err(NamespaceError::Store(_))
    ));
    bench.store.fail_writes(None);
    assert!(!catalog.topic_exists(&topic("a")));
    assert!(catalog.ensure_topic(&topic("a"), true).await.unwrap());
}

#[tokio::test]
async fn the_record_says_when_a_topic_was_made() {
    let bench = Bench::new();
    let name = topic("persistent://public/default/t");
    bench
        .open()
        .await
        .create_topic(&name, no_properties())
        .await
        .unwrap();
    assert!(bench.open().await.topic(&name).unwrap().created_ms > 0);
}
