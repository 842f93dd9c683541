//! Brokers of one process that tell each other of their load: where bundles go, and what a busy one gives away.

use std::collections::BTreeSet;
use std::time::Duration;

use pharos_broker_admin::SplitOptions;
use pharos_catalog::{BundleDivision, Policies};
use pharos_client::{OutgoingMessage, ProducerOptions};
use pharos_cluster::{
    BalanceOptions, BrokerAddresses, BundleLimits, BundleLoad, LoadReport, Ownership as _, ResourceUsage,
};

use crate::brokers::{Broker, Stores, until};

const AGE: Duration = Duration::from_secs(3600);

/// A namespace of eight bundles, known to both.
async fn eight_bundles(one: &Broker, two: &Broker) -> Vec<String> {
    let name: pharos_types::NamespaceName = "public/eight".parse().unwrap();
    let policies = Policies::first(&["standalone"], 8);
    one.catalog.namespaces().create(&name, policies).await.unwrap();
    until("the other knows the namespace", async || {
        two.catalog.namespaces().has(&name)
    })
    .await;
    let border = |number: u64| (number << 29).min(0xffff_ffff);
    let bundle = |number| format!("{name}/0x{:08x}_0x{:08x}", border(number), border(number + 1));
    (0..8).map(bundle).collect()
}

async fn both_are_there(one: &Broker, two: &Broker) {
    until("both know both", async || {
        [one, two]
            .iter()
            .all(|broker| broker.ownership.brokers().unwrap().len() == 2)
    })
    .await;
}

/// Uses so much of its processor for these bundles, each the same.
async fn tell(broker: &Broker, cpu: f64, bundles: &[String]) {
    let mut report = LoadReport::idle(&BrokerAddresses::default());
    report.cpu = ResourceUsage {
        usage: cpu,
        limit: 100.0,
    };
    let load = BundleLoad {
        msg_rate_in: 1000.0,
        msg_throughput_in: 1e6,
        topics: 1,
        ..BundleLoad::default()
    };
    report.set_bundles(bundles.iter().map(|bundle| (bundle.clone(), load)).collect());
    report.bundles = broker.balancer().bundles();
    broker.balancer().tell(report, AGE).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bundles_are_dealt_to_all_brokers_whichever_is_asked() {
    let stores = Stores::default();
    let (one, two) = (Broker::start(&stores).await, Broker::start(&stores).await);
    both_are_there(&one, &two).await;
    let bundles = eight_bundles(&one, &two).await;
    for bundle in &bundles {
        until("it has an owner", async || {
            one.ownership.take_bundle(bundle).await.is_ok()
        })
        .await;
    }
    until("each has half of them", async || {
        [&one, &two].map(|broker| broker.balancer().bundles().len()) == [4, 4]
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_balancer_the_broker_that_is_asked_takes_all() {
    let stores = Stores::default();
    let (one, two) = (Broker::start(&stores).await, Broker::start(&stores).await);
    both_are_there(&one, &two).await;
    one.balancer().set_options(BalanceOptions {
        enabled: false,
        ..BalanceOptions::default()
    });
    let bundles = eight_bundles(&one, &two).await;
    for bundle in &bundles {
        one.ownership.take_bundle(bundle).await.unwrap();
    }
    assert_eq!(
        one.balancer().bundles(),
        bundles.into_iter().collect::<BTreeSet<_>>()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_broker_hears_of_a_quiet_one_and_gives_to_it() {
    let stores = Stores::default();
    let one = Broker::start(&stores).await;
    let two = Broker::start(&stores).await;
    both_are_there(&one, &two).await;
    let bundles = eight_bundles(&one, &two).await;
    one.balancer().set_options(BalanceOptions {
        enabled: false,
        ..BalanceOptions::default()
    });
    for bundle in &bundles {
        one.ownership.take_bundle(bundle).await.unwrap();
    }
    one.balancer().set_options(BalanceOptions::default());

    tell(&one, 80.0, &bundles).await;
    tell(&two, 10.0, &[]).await;
    until("the busy one knows what to give", async || {
        !one.balancer().to_shed(AGE).is_empty()
    })
    .await;
    assert!(
        two.balancer().to_shed(AGE).is_empty(),
        "the quiet one gives nothing"
    );
    let given = one.balancer().to_shed(AGE);
    // 80 points, of which 25 and a margin are too many; each bundle is 10.
    assert_eq!(given.len(), 3, "{given:?}");
    for (bundle, to) in &given {
        one.ownership.hand_over(bundle, to).await.unwrap();
        one.ownership.end_handover(bundle).await;
    }
    until("the other has them", async || two.balancer().bundles().len() == 3).await;
    // What came to it stays for a while, however busy it is.
    tell(&one, 10.0, &[]).await;
    let came: Vec<String> = two.balancer().bundles().into_iter().collect();
    tell(&two, 90.0, &came).await;
    until("the other is known to be quiet", async || {
        !two.balancer().to_shed(Duration::ZERO).is_empty()
    })
    .await;
    assert!(two.balancer().to_shed(AGE).is_empty());
}

/// Split options for bundles with more than this many topics.
fn at_most(topics_max: u32, bundles_max: u32) -> SplitOptions {
    SplitOptions {
        limits: BundleLimits {
            topics_max,
            ..BundleLimits::default()
        },
        bundles_max,
        division: BundleDivision::Topics,
        unload: true,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bundle_with_too_many_topics_is_cut_under_them_and_a_part_goes_to_the_quiet_broker() {
    let stores = Stores::default();
    let (one, two) = (Broker::start(&stores).await, Broker::start(&stores).await);
    both_are_there(&one, &two).await;
    let name: pharos_types::NamespaceName = "public/single".parse().unwrap();
    let policies = Policies::first(&["standalone"], 1);
    one.catalog.namespaces().create(&name, policies).await.unwrap();
    let whole = format!("{name}/0x00000000_0xffffffff");
    let quiet = BalanceOptions {
        enabled: false,
        ..BalanceOptions::default()
    };
    one.balancer().set_options(quiet);
    one.ownership.take_bundle(&whole).await.unwrap();
    one.balancer().set_options(BalanceOptions::default());

    let client = one.client().await;
    let mut producers = Vec::new();
    for number in 0..6 {
        let topic = format!("persistent://{name}/t{number}");
        let producer = client.producer(&topic, ProducerOptions::default()).await.unwrap();
        producer.send(OutgoingMessage::new("0")).await.unwrap();
        producers.push((topic, producer));
    }
    let told = one.admin.brokers.bundle_loads().await.unwrap();
    assert_eq!((told[&whole].topics, told[&whole].producer_count), (6, 6));

    let balancer = one.balancer();
    let cut = async |how| one.admin.brokers.split_busy(&balancer, &how).await.unwrap();
    assert_eq!(cut(at_most(6, 128)).await, 0, "it may have six");
    assert_eq!(
        cut(at_most(5, 1)).await,
        0,
        "the namespace has as many bundles as it may"
    );
    assert_eq!(one.balancer().bundles(), [whole.clone()].into());

    assert_eq!(cut(at_most(5, 128)).await, 1);
    let parts: BTreeSet<_> = producers
        .iter()
        .map(|(topic, _)| one.catalog.bundle_of(&topic.parse().unwrap()).unwrap())
        .collect();
    assert_eq!(parts.len(), 2, "{parts:?}");
    // The other one, which has nothing, got the upper part; the first half of the topics was not closed.
    until("the other has the upper part", async || {
        let upper = format!("{name}/{}", parts.last().unwrap());
        two.balancer().bundles() == [upper].into()
    })
    .await;
    let (mut stayed, mut went) = (0, 0);
    for (topic, producer) in &producers {
        let bundle = one.catalog.bundle_of(&topic.parse().unwrap()).unwrap();
        if Some(&bundle) == parts.first() {
            producer.send(OutgoingMessage::new("1")).await.unwrap();
            stayed += 1;
        } else {
            let there = two.client().await;
            let again = there.producer(topic, ProducerOptions::default()).await.unwrap();
            again.send(OutgoingMessage::new("1")).await.unwrap();
            went += 1;
        }
    }
    assert_eq!((stayed, went), (3, 3));
    assert_eq!(balancer.split_count(), 1);
    // Three are not too many: it is not cut again and again.
    assert_eq!(cut(at_most(5, 128)).await, 0);
}
