//! A bundle that no broker owns goes to a broker that may have it.

#![expect(clippy::unwrap_used, reason = "a test that fails panics")]

use std::sync::Arc;
use std::time::Duration;

use pharos_cluster::{BrokerAddresses, BundleOwnership, Owner, Ownership, OwnershipError, SessionOptions};
use pharos_metadata::{Memory, MetadataStore};
use pharos_types::{NamespaceName, TopicName};

const SESSION: SessionOptions = SessionOptions {
    timeout: Duration::from_mins(1),
    outage_max: None,
};
const NOTES: &str = "loadbalance/handover/";

fn addresses(number: u16) -> BrokerAddresses {
    BrokerAddresses {
        native_url: format!("pulsar://127.0.0.1:{number}"),
        http_url: format!("http://127.0.0.1:{number}"),
        ..BrokerAddresses::default()
    }
}

fn topic() -> TopicName {
    "persistent://public/default/t".parse().unwrap()
}

/// A broker in whose eyes only `allowed` may have bundles.
fn broker(store: &Arc<Memory>, number: u16, allowed: &[u16]) -> Arc<BundleOwnership> {
    let bundle = |_: &TopicName| Some("0x00000000_0xffffffff".to_owned());
    let ownership = BundleOwnership::new(store.clone(), SESSION, Box::new(bundle));
    let allowed: Vec<String> = allowed
        .iter()
        .map(|number| format!("127.0.0.1:{number}"))
        .collect();
    ownership.restrict(Box::new(move |_: &NamespaceName, brokers: &[String]| {
        Some(
            brokers
                .iter()
                .filter(|broker| allowed.contains(broker))
                .cloned()
                .collect(),
        )
    }));
    ownership.serve(&addresses(number));
    pharos_runtime::spawn_local(ownership.clone().run());
    ownership
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, test);
}

async fn know_each_other(brokers: &[&Arc<BundleOwnership>]) {
    for _ in 0..10_000 {
        let counts = brokers
            .iter()
            .map(|broker| broker.brokers().map_or(0, |all| all.len()));
        if counts.into_iter().all(|count| count == brokers.len()) {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("the brokers never know each other");
}

#[test]
fn a_broker_that_may_not_have_a_bundle_gives_it_to_one_that_may() {
    run(async {
        let store = Arc::new(Memory::new());
        let (one, two) = (broker(&store, 1, &[2]), broker(&store, 2, &[2]));
        know_each_other(&[&one, &two]).await;
        let owner = Owner::Other(Arc::new(addresses(2)));
        assert_eq!(one.acquire(&topic()).await.unwrap(), owner);
        assert_eq!(two.owner_of(&topic()), Owner::Us);
        // No note is left that would keep others from it.
        for _ in 0..10_000 {
            if store.list(NOTES).await.unwrap().is_empty() {
                return;
            }
            tokio::task::yield_now().await;
        }
        panic!("the note stays");
    });
}

#[test]
fn a_bundle_that_no_broker_may_have_is_not_taken() {
    run(async {
        let store = Arc::new(Memory::new());
        let one = broker(&store, 1, &[7]);
        know_each_other(&[&one]).await;
        let refused = one.acquire(&topic()).await;
        assert!(matches!(refused, Err(OwnershipError::NotReady(_))), "{refused:?}");
        assert_eq!(one.owner_of(&topic()), Owner::Unowned);
    });
}

#[test]
fn a_caller_that_goes_away_leaves_no_note() {
    run(async {
        let store = Arc::new(Memory::new());
        let (one, two) = (broker(&store, 1, &[2]), broker(&store, 2, &[2]));
        know_each_other(&[&one, &two]).await;
        let left = tokio::time::timeout(Duration::ZERO, one.acquire(&topic())).await;
        assert!(left.is_err(), "it had to wait");
        for _ in 0..10_000 {
            if two.owner_of(&topic()) == Owner::Us && store.list(NOTES).await.unwrap().is_empty() {
                return;
            }
            tokio::task::yield_now().await;
        }
        panic!("the bundle is not taken, or the note stays");
    });
}

/// A broker in whose eyes a topic's bundle is to be apart from those of its parts, `a` to `c`.
fn spread_broker(store: &Arc<Memory>, number: u16) -> Arc<BundleOwnership> {
    let bundle = |topic: &TopicName| Some(topic.local().to_owned());
    let ownership = BundleOwnership::new(store.clone(), SESSION, Box::new(bundle));
    ownership.keep_apart(Box::new(|bundle| {
        let all = ["a", "b", "c"].map(|part| format!("public/default/{part}"));
        match all.iter().any(|part| part == bundle) {
            true => all.into_iter().filter(|part| part != bundle).collect(),
            false => Vec::new(),
        }
    }));
    ownership.serve(&addresses(number));
    pharos_runtime::spawn_local(ownership.clone().run());
    ownership
}

fn part(name: &str) -> TopicName {
    format!("persistent://public/default/{name}").parse().unwrap()
}

/// Three brokers; the second has `a`.
async fn three_brokers() -> [Arc<BundleOwnership>; 3] {
    let store = Arc::new(Memory::new());
    let brokers = [1, 2, 3].map(|number| spread_broker(&store, number));
    let [one, two, third] = &brokers;
    know_each_other(&[one, two, third]).await;
    assert_eq!(one.acquire(&part("a")).await.unwrap(), Owner::Us);
    one.hand_over("public/default/a", "127.0.0.1:2").await.unwrap();
    one.end_handover("public/default/a").await;
    assert_eq!(two.owner_of(&part("a")), Owner::Us);
    brokers
}

#[test]
fn a_bundle_comes_to_no_broker_that_has_one_from_which_it_is_apart() {
    run(async {
        let [one, ..] = &three_brokers().await;
        // Of the others the first has more, so that the second would be the first choice.
        for filler in ["f1", "f2", "f3"] {
            let _ = one.acquire(&part(filler)).await.unwrap();
        }
        let third = Owner::Other(Arc::new(addresses(3)));
        assert_eq!(one.acquire(&part("b")).await.unwrap(), third);
        assert_eq!(one.acquire(&part("c")).await.unwrap(), Owner::Us);
    });
}

#[test]
fn what_is_dealt_apart_comes_to_a_broker_that_has_none_whatever_its_turn() {
    run(async {
        for turn in 1..=3 {
            let [one, ..] = &three_brokers().await;
            let third = Owner::Other(Arc::new(addresses(3)));
            assert_eq!(
                one.acquire_apart(&part("b"), turn).await.unwrap(),
                third,
                "turn {turn}"
            );
        }
        // Where there is no broker left it is beside another, and not without an owner.
        let lonely = Arc::new(Memory::new());
        let only = spread_broker(&lonely, 1);
        know_each_other(&[&only]).await;
        for name in ["a", "b"] {
            assert_eq!(only.acquire(&part(name)).await.unwrap(), Owner::Us);
        }
    });
}
