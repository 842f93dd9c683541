//! Nodes below the key of a cluster.

use std::time::Duration;

use bytes::Bytes;
use pharos_admin_api::{FailureDomain, NamespaceIsolationData};
use pharos_metadata::Expect;
use serde_json::json;

use super::*;

/// As Pulsar's brokers write them.
const ISOLATION: &str = "admin/clusters/pc/namespaceIsolationPolicies";
const DOMAIN: &str = "admin/clusters/pc/failureDomain/rack1";

fn policies() -> serde_json::Value {
    json!({"p": {
        "namespaces": ["t/n"], "primary": ["a"], "secondary": [],
        "auto_failover_policy": {
            "policy_type": "min_available", "parameters": {"min_limit": "1", "usage_threshold": "100"},
        },
    }})
}

async fn put(bench: &Bench, key: &str, value: &serde_json::Value) {
    let value = Bytes::from(value.to_string());
    bench.store.put(key, value, Expect::Any).await.unwrap();
}

/// Writes the nodes that Pulsar's own tools leave below the key of a cluster called `pc`.
async fn put_what_pulsar_has(bench: &Bench) {
    put(
        bench,
        "admin/clusters/pc",
        &json!({"serviceUrl": "http://pc:8080"}),
    )
    .await;
    put(bench, ISOLATION, &policies()).await;
    put(bench, DOMAIN, &json!({"brokers": ["a:8080"]})).await;
    put(bench, "admin/clusters/pc/of-another-release", &json!({})).await;
}

fn check(catalog: &Catalog) {
    assert_eq!(catalog.clusters().names(), ["pc", "standalone"]);
    let found = catalog.clusters().isolation().of("pc").unwrap();
    assert_eq!(serde_json::to_value(found).unwrap(), policies());
    let domains = catalog.clusters().failure_domains().of("pc");
    assert_eq!(json!(domains), json!({"rack1": {"brokers": ["a:8080"]}}));
}

#[tokio::test]
async fn what_is_below_the_key_of_a_cluster_is_no_cluster() {
    let bench = Bench::new();
    drop(bench.open().await);
    put_what_pulsar_has(&bench).await;
    check(&bench.open().await);
}

#[test]
fn what_others_write_below_the_key_of_a_cluster_is_seen_and_is_no_cluster() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let bench = Bench::new();
        let catalog = bench.open().await;
        let following = catalog.clone();
        pharos_runtime::spawn_local(async move { following.follow().await });
        put_what_pulsar_has(&bench).await;
        // The last of what is written: the others are seen by then.
        put(&bench, "admin/clusters/z", &json!({})).await;
        until(|| catalog.clusters().get("z").is_some()).await;
        bench.store.delete("admin/clusters/z", Expect::Any).await.unwrap();
        until(|| catalog.clusters().get("z").is_none()).await;
        check(&catalog);
        bench.store.delete(ISOLATION, Expect::Any).await.unwrap();
        bench.store.delete(DOMAIN, Expect::Any).await.unwrap();
        until(|| catalog.clusters().isolation().of("pc").is_none()).await;
        until(|| catalog.clusters().failure_domains().of("pc").is_empty()).await;
    });
}

async fn until(is: impl Fn() -> bool) {
    for _ in 0..20_000 {
        if is() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("it is never seen");
}

#[tokio::test]
async fn what_is_set_is_stored_where_pulsar_has_it() {
    let bench = Bench::new();
    let catalog = bench.open().await;
    let data = ClusterData::default();
    catalog.clusters().create("pc", data).await.unwrap();
    let policy: NamespaceIsolationData = serde_json::from_value(policies()["p"].clone()).unwrap();
    catalog
        .clusters()
        .isolation()
        .set("pc", "p", &policy)
        .await
        .unwrap();
    let domain = FailureDomain {
        brokers: ["a:8080".to_owned()].into(),
    };
    catalog
        .clusters()
        .failure_domains()
        .set("pc", "rack1", domain)
        .await
        .unwrap();
    let stored = async |key| {
        let found = bench.store.get(key).await.unwrap().unwrap();
        serde_json::from_slice::<serde_json::Value>(&found.value).unwrap()
    };
    assert_eq!(stored(ISOLATION).await, policies());
    assert_eq!(stored(DOMAIN).await, json!({"brokers": ["a:8080"]}));
    check(&bench.open().await);
    catalog.clusters().isolation().remove("pc", "p").await.unwrap();
    catalog.clusters().delete("pc").await.unwrap();
    let left = bench.store.list("admin/clusters/pc").await.unwrap();
    assert!(left.is_empty(), "{left:?}");
}
