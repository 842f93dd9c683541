//! A bundle goes from one broker to another that is named.

#![expect(clippy::unwrap_used, reason = "a test that fails panics")]

use std::sync::Arc;
use std::time::Duration;

use pharos_cluster::{BrokerAddresses, BundleOwnership, HandoverError, Owner, Ownership, SessionOptions};
use pharos_metadata::{Memory, MetadataStore};
use pharos_types::TopicName;
use tokio::sync::oneshot;

const SESSION: SessionOptions = SessionOptions {
    timeout: Duration::from_mins(1),
    outage_max: None,
};
const BUNDLE: &str = "public/default/0x00000000_0xffffffff";
const NOTE: &str = "loadbalance/handover/public/default/0x00000000_0xffffffff";

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

/// A broker that serves; whether it follows the store is up to the caller.
fn deaf_broker(store: &Arc<Memory>, number: u16) -> Arc<BundleOwnership> {
    let bundle = |_: &TopicName| Some("0x00000000_0xffffffff".to_owned());
    let ownership = BundleOwnership::new(store.clone(), SESSION, Box::new(bundle));
    ownership.serve(&addresses(number));
    ownership
}

fn broker(store: &Arc<Memory>, number: u16) -> Arc<BundleOwnership> {
    let ownership = deaf_broker(store, number);
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

/// Starts a call that runs beside the test, and returns its result later.
fn begun<T: 'static>(call: impl Future<Output = T> + 'static) -> oneshot::Receiver<T> {
    let (tell, told) = oneshot::channel();
    pharos_runtime::spawn_local(async move {
        // A test that is over does not ask.
        let _ = tell.send(call.await);
    });
    told
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

async fn know_each_other(brokers: &[&Arc<BundleOwnership>]) {
    until("they know each other", || {
        let counts = brokers
            .iter()
            .map(|broker| broker.brokers().map_or(0, |all| all.len()));
        counts.into_iter().all(|count| count == brokers.len())
    })
    .await;
}

#[test]
fn a_bundle_goes_to_the_one_that_is_named_and_is_opened_there_when_it_is_closed_here() {
    run(async {
        let store = Arc::new(Memory::new());
        let (one, two, third) = (broker(&store, 1), broker(&store, 2), broker(&store, 3));
        know_each_other(&[&one, &two, &third]).await;
        one.acquire(&topic()).await.unwrap();
        one.hand_over(BUNDLE, "127.0.0.1:2").await.unwrap();
        assert_eq!(one.owner_of(&topic()), Owner::Other(Arc::new(addresses(2))));
        assert_eq!(two.owner_of(&topic()), Owner::Us);
        until("the third knows", || {
            third.owner_of(&topic()) == Owner::Other(Arc::new(addresses(2)))
        })
        .await;

        let mut opening = {
            let two = two.clone();
            begun(async move { two.confirm(&topic()).await })
        };
        for _ in 0..1_000 {
            tokio::task::yield_now().await;
        }
        assert!(opening.try_recv().is_err(), "its last owner has not closed it");
        one.end_handover(BUNDLE).await;
        assert!(opening.await.unwrap().unwrap());
        // From now on nothing is waited for.
        assert!(two.confirm(&topic()).await.unwrap());
        assert!(store.get(NOTE).await.unwrap().is_none());
        // And back.
        two.hand_over(BUNDLE, "127.0.0.1:1").await.unwrap();
        two.end_handover(BUNDLE).await;
        assert_eq!(one.owner_of(&topic()), Owner::Us);
    });
}

#[test]
fn a_log_is_opened_in_the_end_although_its_last_owner_does_not_say_that_it_is_closed() {
    run(async {
        let store = Arc::new(Memory::new());
        let (one, two) = (broker(&store, 1), broker(&store, 2));
        know_each_other(&[&one, &two]).await;
        one.acquire(&topic()).await.unwrap();
        one.hand_over(BUNDLE, "127.0.0.1:2").await.unwrap();
        let began = tokio::time::Instant::now();
        assert!(two.confirm(&topic()).await.unwrap());
        assert!(began.elapsed() >= Duration::from_secs(5));
    });
}

#[test]
fn a_bundle_that_is_not_taken_is_for_whom_asks_next() {
    run(async {
        let store = Arc::new(Memory::new());
        let (one, two) = (broker(&store, 1), broker(&store, 2));
        // It is registered, and hears nothing.
        let deaf = deaf_broker(&store, 3);
        deaf.acquire(&"persistent://public/other/t".parse().unwrap())
            .await
            .unwrap();
        until("it is known", || one.brokers().is_some_and(|all| all.len() == 3)).await;
        one.acquire(&topic()).await.unwrap();
        let mut losses = one.losses();
        losses.mark_unchanged();
        let refused = one.hand_over(BUNDLE, "127.0.0.1:3").await;
        assert!(matches!(refused, Err(HandoverError::NotTaken(_))), "{refused:?}");
        assert!(losses.has_changed().unwrap(), "what is loaded of it is closed");
        assert!(store.get(NOTE).await.unwrap().is_none());
        assert_eq!(two.acquire(&topic()).await.unwrap(), Owner::Us);
    });
}

#[test]
fn a_bundle_that_is_promised_is_taken_by_no_other() {
    run(async {
        let store = Arc::new(Memory::new());
        let (one, two) = (broker(&store, 1), broker(&store, 2));
        let deaf = deaf_broker(&store, 3);
        deaf.acquire(&"persistent://public/other/t".parse().unwrap())
            .await
            .unwrap();
        until("they know each other", || {
            one.brokers().is_some_and(|all| all.len() == 3) && two.brokers().is_some_and(|all| all.len() == 3)
        })
        .await;
        one.acquire(&topic()).await.unwrap();
        let first = Owner::Other(Arc::new(addresses(1)));
        until("the other knows", || two.owner_of(&topic()) == first).await;
        let giving = {
            let one = one.clone();
            begun(async move { one.hand_over(BUNDLE, "127.0.0.1:3").await })
        };
        until("it has no owner", || two.owner_of(&topic()) == Owner::Unowned).await;
        assert!(
            two.acquire(&topic()).await.is_err(),
            "it is not the one that is named"
        );
        assert!(one.acquire(&topic()).await.is_err());
        assert!(giving.await.unwrap().is_err());
    });
}

#[test]
fn what_cannot_be_handed_over_is_refused_and_stays() {
    run(async {
        let store = Arc::new(Memory::new());
        let (one, two) = (broker(&store, 1), broker(&store, 2));
        know_each_other(&[&one, &two]).await;
        one.acquire(&topic()).await.unwrap();
        let refused = one.hand_over(BUNDLE, "127.0.0.1:1").await;
        assert!(matches!(refused, Err(HandoverError::HasIt(_))), "{refused:?}");
        let refused = one.hand_over(BUNDLE, "127.0.0.1:9").await;
        assert!(
            matches!(refused, Err(HandoverError::NoSuchBroker(_))),
            "{refused:?}"
        );
        let refused = two.hand_over(BUNDLE, "127.0.0.1:1").await;
        assert!(matches!(refused, Err(HandoverError::NotOurs)), "{refused:?}");
        assert_eq!(one.owner_of(&topic()), Owner::Us);
    });
}

#[test]
fn a_broker_that_stops_gives_what_it_has_to_the_others() {
    run(async {
        let store = Arc::new(Memory::new());
        let (one, two) = (broker(&store, 1), broker(&store, 2));
        know_each_other(&[&one, &two]).await;
        one.acquire(&topic()).await.unwrap();
        one.begin_close();
        one.give_all().await;
        assert_eq!(two.owner_of(&topic()), Owner::Us);
        assert_eq!(one.owner_of(&topic()), Owner::Other(Arc::new(addresses(2))));
        // The end of its session is the end of its notes.
        one.close().await;
        assert!(two.confirm(&topic()).await.unwrap());
        assert!(store.get(NOTE).await.unwrap().is_none());
    });
}
