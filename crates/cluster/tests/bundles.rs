//! Brokers share bundles over one store in memory: one owns, the others know who.

#![expect(clippy::unwrap_used, reason = "a test that fails panics")]

use std::sync::Arc;
use std::time::Duration;

use pharos_cluster::{BrokerAddresses, BundleOwnership, Owner, Ownership, OwnershipError, SessionOptions};
use pharos_metadata::{Expect, Memory, MetadataStore};
use pharos_types::TopicName;

const TIMEOUT: Duration = Duration::from_mins(1);
const SESSION: SessionOptions = SessionOptions {
    timeout: TIMEOUT,
    outage_max: None,
};
const KEY: &str = "namespace/public/default/0x00000000_0xffffffff";

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

/// A broker that follows the store and serves.
fn broker(store: &Arc<Memory>, number: u16) -> Arc<BundleOwnership> {
    let bundle = |_: &TopicName| Some("0x00000000_0xffffffff".to_owned());
    let ownership = BundleOwnership::new(store.clone(), SESSION, Box::new(bundle));
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

async fn until(what: &str, is: impl Fn() -> bool) {
    for _ in 0..10_000 {
        if is() {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("never: {what}");
}

#[test]
fn one_of_several_owns_a_bundle_and_the_others_know_where_it_is() {
    run(async {
        let store = Arc::new(Memory::new());
        let (one, two) = (broker(&store, 1), broker(&store, 2));
        let topic = topic();
        assert_eq!(one.owner_of(&topic), Owner::Unowned);
        let (first, second) = tokio::join!(one.acquire(&topic), one.acquire(&topic));
        assert_eq!((first.unwrap(), second.unwrap()), (Owner::Us, Owner::Us));
        let other = Owner::Other(Arc::new(addresses(1)));
        assert_eq!(two.acquire(&topic).await.unwrap(), other);
        until("two knows", || two.owner_of(&topic) == other).await;
        assert_eq!(one.owner_of(&topic), Owner::Us);
    });
}

#[test]
fn what_a_lost_session_owned_is_told_and_passes_on() {
    run(async {
        let store = Arc::new(Memory::new());
        let (one, two) = (broker(&store, 1), broker(&store, 2));
        let topic = topic();
        one.acquire(&topic).await.unwrap();
        let mut losses = one.losses();
        losses.mark_unchanged();
        // Neither broker comes to renew while so much time passes at once.
        store.pass(TIMEOUT);
        losses.changed().await.unwrap();
        assert_ne!(one.owner_of(&topic), Owner::Us);
        assert_eq!(two.acquire(&topic).await.unwrap(), Owner::Us);
        let other = Owner::Other(Arc::new(addresses(2)));
        until("one knows", || one.owner_of(&topic) == other).await;
    });
}

#[test]
fn a_broker_that_is_renewed_in_time_keeps_what_it_owns() {
    run(async {
        let store = Arc::new(Memory::new());
        let one = broker(&store, 1);
        one.acquire(&topic()).await.unwrap();
        for _ in 0..20 {
            // It renews every 20 seconds of the clock, which goes on when all wait for it.
            tokio::time::sleep(TIMEOUT / 2).await;
            store.pass(TIMEOUT / 2);
        }
        assert_eq!(one.owner_of(&topic()), Owner::Us);
    });
}

#[test]
fn a_bundle_that_is_taken_away_is_lost() {
    run(async {
        let store = Arc::new(Memory::new());
        let one = broker(&store, 1);
        one.acquire(&topic()).await.unwrap();
        store.delete(KEY, Expect::Any).await.unwrap();
        until("it is lost", || one.owner_of(&topic()) == Owner::Unowned).await;
        assert_eq!(one.acquire(&topic()).await.unwrap(), Owner::Us);
    });
}

#[test]
fn what_an_earlier_life_left_is_taken_over_at_once() {
    run(async {
        let store = Arc::new(Memory::new());
        let before = store.open_session(TIMEOUT).await.unwrap();
        let value = serde_json::to_vec(&addresses(1)).unwrap();
        before.put(KEY, value.into(), Expect::Absent).await.unwrap();
        let one = broker(&store, 1);
        assert_eq!(one.acquire(&topic()).await.unwrap(), Owner::Us);
        before.close().await;
        assert_eq!(one.owner_of(&topic()), Owner::Us);
        assert!(store.get(KEY).await.unwrap().is_some());
    });
}

#[test]
fn a_broker_that_stops_leaves_its_bundles_to_others_at_once() {
    run(async {
        let store = Arc::new(Memory::new());
        let (one, two) = (broker(&store, 1), broker(&store, 2));
        one.acquire(&topic()).await.unwrap();
        one.close().await;
        assert_eq!(two.acquire(&topic()).await.unwrap(), Owner::Us);
        two.close().await;
        assert!(one.acquire(&topic()).await.is_err(), "it has stopped");
    });
}

#[test]
fn a_broker_that_does_not_serve_yet_takes_nothing() {
    run(async {
        let store = Arc::new(Memory::new());
        let ownership = BundleOwnership::new(store, SESSION, Box::new(|_| Some("0x0_0x1".to_owned())));
        let outcome = ownership.acquire(&topic()).await;
        assert!(matches!(outcome, Err(OwnershipError::NotReady(_))), "{outcome:?}");
    });
}
