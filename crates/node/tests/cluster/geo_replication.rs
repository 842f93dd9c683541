//! A replicated topic of several brokers: its owner sends it, and when that is gone another goes on where it was.

use pharos_metadata::{Expect, MetadataLayout, MetadataStore as _};
use serde_json::json;

use crate::brokers::{Broker, Stores, TOPIC, publish, until};
use crate::support::clusters::{Cluster, texts};

fn order(broker: &Broker, method: &str, path: &str, body: &serde_json::Value) {
    let (status, _, reason) = broker.call_with(method, path, &body.to_string());
    assert!(matches!(status, 200 | 204), "{method} {path}: {status} {reason}");
}

/// A cluster that drops what comes twice.
fn west() -> Cluster {
    Cluster::start("west", &["--policies-deduplication", "true"])
}

/// Brokers that replicate public/default to west, of which the first owns the topic.
async fn replicating(stores: &Stores, address: &str) -> (Broker, Broker) {
    let (one, two) = (Broker::start(stores).await, Broker::start(stores).await);
    order(
        &one,
        "PUT",
        "/admin/v2/clusters/west",
        &json!({"brokerServiceUrl": address}),
    );
    let tenant = json!({"adminRoles": [], "allowedClusters": ["standalone", "west"]});
    order(&one, "POST", "/admin/v2/tenants/public", &tenant);
    let path = "/admin/v2/namespaces/public/default/replication";
    order(&one, "POST", path, &json!(["standalone", "west"]));
    let topic = TOPIC.parse().unwrap();
    until("the other knows", async || {
        let clusters = two.catalog.effective_policies(&topic).replication;
        two.catalog.clusters().get("west").is_some() && clusters.0.len() == 2
    })
    .await;
    assert_eq!(one.owner().await, one.service_url);
    (one, two)
}

/// Waits until the topic has so many messages over there: these, in order.
async fn has_all(west: &Cluster, count: u32) {
    until("all is there", async || {
        let path = "/admin/v2/persistent/public/default/orders/internalStats";
        let (status, stats) = west.node().call("GET", path, "");
        status == 200 && stats.contains(&format!("\"numberOfEntries\":{count},"))
    })
    .await;
    let numbers: Vec<String> = (0..count).map(|number| number.to_string()).collect();
    assert_eq!(texts(&west.log("orders").await), numbers);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_dead_broker_had_to_send_goes_on_at_another_without_a_client() {
    let (stores, mut west) = (Stores::default(), west());
    let (one, two) = replicating(&stores, &west.node().pulsar).await;
    publish(&one.client().await, 0..50).await;
    has_all(&west, 50).await;
    west.stop();
    publish(&one.client().await, 50..100).await;
    dies(one, &two, &stores).await;
    west.come_back();
    has_all(&west, 100).await;
    // Its producers come to it, as any.
    assert_eq!(two.owner().await, two.service_url);
    publish(&two.client().await, 100..110).await;
    has_all(&west, 110).await;
}

/// A broker dies, and its session ends.
async fn dies(broker: Broker, next: &Broker, stores: &Stores) {
    broker.drop_dead();
    let bundle = next.catalog.bundle_of(&TOPIC.parse().unwrap()).unwrap();
    let key = format!("namespace/public/default/{bundle}");
    assert!(stores.metadata.delete(&key, Expect::Any).await.unwrap());
}

/// An owner dies while the other cluster answers nothing: the stored cursor has waited for receipts, and what was only sent goes again.
async fn sends_again_what_has_no_receipt(layout: MetadataLayout) {
    let stores = Stores {
        layout,
        ..Stores::default()
    };
    let mut west = west();
    let (one, two) = replicating(&stores, &west.node().pulsar).await;
    publish(&one.client().await, 0..50).await;
    has_all(&west, 50).await;
    west.node().pause();
    publish(&one.client().await, 50..100).await;
    // Longer than any cursor waits to be stored.
    until("a send without a receipt for some seconds", async || {
        let (_, _, stats) = one.call("GET", "/admin/v2/persistent/public/default/orders/stats");
        let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
        let delay = &stats["replication"]["west"]["replicationDelayInSeconds"];
        delay.as_f64().is_some_and(|seconds| seconds >= 4.0)
    })
    .await;
    // What lies in its socket is lost with it.
    west.kill();
    dies(one, &two, &stores).await;
    west.come_back();
    has_all(&west, 100).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_has_no_receipt_is_sent_again_by_the_next_owner() {
    sends_again_what_has_no_receipt(MetadataLayout::Pharos).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_pulsar_s_layout_what_has_no_receipt_is_sent_again_by_the_next_owner() {
    sends_again_what_has_no_receipt(MetadataLayout::Pulsar).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_unloaded_goes_on_without_a_client() {
    let (stores, mut west) = (Stores::default(), west());
    let (one, _two) = replicating(&stores, &west.node().pulsar).await;
    publish(&one.client().await, 0..10).await;
    has_all(&west, 10).await;
    west.stop();
    publish(&one.client().await, 10..20).await;
    let bundle = one.catalog.bundle_of(&TOPIC.parse().unwrap()).unwrap();
    let path = format!("/admin/v2/namespaces/public/default/{bundle}/unload");
    assert_eq!(one.call("PUT", &path).0, 204);
    west.come_back();
    has_all(&west, 20).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_that_is_changed_at_another_broker_is_followed() {
    let (stores, west) = (Stores::default(), west());
    let (one, two) = replicating(&stores, "pulsar://127.0.0.1:1").await;
    publish(&one.client().await, 0..10).await;
    let data = json!({"brokerServiceUrl": west.node().pulsar});
    order(&two, "POST", "/admin/v2/clusters/west", &data);
    has_all(&west, 10).await;
}
