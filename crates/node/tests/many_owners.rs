//! Admin requests over a partitioned topic whose partitions are at two brokers: any of them answers for all.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use pharos_catalog::Policies;
use pharos_client::{OutgoingMessage, ProducerOptions};
use pharos_cluster::{BalanceOptions, Ownership as _};

#[path = "support/brokers.rs"]
mod brokers;

use brokers::{Broker, Stores, until};

const PARTITIONS: u32 = 6;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partitioned_topic_of_several_brokers_is_asked_about_at_any() {
    let stores = Stores::default();
    let (one, two) = (Broker::start(&stores).await, Broker::start(&stores).await);
    let name: pharos_types::NamespaceName = "public/spread".parse().unwrap();
    let policies = Policies::first(&["standalone"], 8);
    one.catalog.create_namespace(&name, policies).await.unwrap();
    until("the other knows the namespace", async || {
        two.catalog.has_namespace(&name)
    })
    .await;
    let topic: pharos_types::TopicName = format!("persistent://{name}/t").parse().unwrap();
    let path = format!("/admin/v2/persistent/{name}/t");
    let (status, _, reason) = one.call_with("PUT", &format!("{path}/partitions"), &PARTITIONS.to_string());
    assert_eq!(status, 204, "{reason}");
    until("the other knows the topic", async || {
        two.catalog.partitioned().get(&topic).is_some()
    })
    .await;
    // Every other bundle that has a partition goes to each.
    let mut bundles: Vec<String> = (0..PARTITIONS)
        .map(|index| one.catalog.bundle_of(&topic.with_partition(index)).unwrap())
        .collect();
    bundles.sort_unstable();
    bundles.dedup();
    assert!(
        bundles.len() > 1,
        "all partitions are in one bundle: take another name"
    );
    for (number, bundle) in bundles.iter().enumerate() {
        let broker = if number % 2 == 0 { &one } else { &two };
        broker.balancer().set_options(BalanceOptions {
            enabled: false,
            ..BalanceOptions::default()
        });
        broker
            .ownership
            .take_bundle(&format!("{name}/{bundle}"))
            .await
            .unwrap();
    }
    for index in 0..PARTITIONS {
        let partition = topic.with_partition(index).to_string();
        until("a partition takes messages", async || {
            let Some(url) = one.owner_if_any(&partition).await else {
                return false;
            };
            let broker = if url == one.service_url { &one } else { &two };
            let client = broker.client().await;
            match client.producer(&partition, ProducerOptions::default()).await {
                Ok(producer) => producer.send(OutgoingMessage::new("m")).await.is_ok(),
                Err(_) => false,
            }
        })
        .await;
    }
    for broker in [&one, &two] {
        let (status, _, stats) = broker.get(&format!("{path}/partitioned-stats?perPartition=true"));
        assert_eq!(status, 200, "{stats}");
        assert!(
            stats.contains(&format!("\"msgInCounter\":{PARTITIONS},")),
            "{stats}"
        );
        assert!(
            (0..PARTITIONS).all(|index| stats.contains(&format!("t-partition-{index}\":"))),
            "{stats}"
        );
        let (status, _, stats) = broker.get(&format!("{path}/partitioned-internalStats"));
        assert!(
            status == 200 && stats.contains("t-partition-5\":"),
            "{status} {stats}"
        );
        let (status, _, info) = broker.get(&format!("{path}/internal-info"));
        assert!(
            status == 200 && info.contains("t-partition-5\":"),
            "{status} {info}"
        );
    }
    let (status, _, reason) = one.call("PUT", &format!("{path}/subscription/s"));
    assert_eq!(status, 204, "{reason}");
    for broker in [&one, &two] {
        let (status, _, names) = broker.get(&format!("{path}/subscriptions"));
        assert_eq!((status, names.as_str()), (200, "[\"s\"]"));
        let (status, _, reason) = broker.call("PUT", &format!("{path}/subscription/s"));
        assert_eq!(status, 409, "{reason}");
        let (status, _, reason) = broker.call("POST", &format!("{path}/subscription/s/skip_all"));
        assert_eq!(status, 204, "{reason}");
        let (status, _, reason) = broker.call("POST", &format!("{path}/all_subscription/expireMessages/1"));
        assert_eq!(status, 204, "{reason}");
        let (status, _, reason) = broker.call("PUT", &format!("{path}/unload"));
        assert_eq!(status, 204, "{reason}");
    }
    let properties = r#"{"team":"a"}"#;
    let (status, _, reason) = two.call_with("PUT", &format!("{path}/subscription/s/properties"), properties);
    assert_eq!(status, 204, "{reason}");
    for broker in [&one, &two] {
        let (status, _, found) = broker.get(&format!("{path}/subscription/s/properties"));
        assert_eq!((status, found.as_str()), (200, properties));
    }
    let (status, _, reason) = two.call("DELETE", &format!("{path}/subscription/s"));
    assert_eq!(status, 204, "{reason}");
    for broker in [&one, &two] {
        assert_eq!(broker.get(&format!("{path}/subscriptions")).2, "[]");
        let (status, _, reason) = broker.call("DELETE", &format!("{path}/subscription/s"));
        assert_eq!(status, 404, "{reason}");
    }
}
