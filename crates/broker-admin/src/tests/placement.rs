//! Topics that another broker serves, or takes.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use pharos_cluster::{BrokerAddresses, Owner, Ownership, OwnershipError};
use pharos_metadata::BoxFuture;
use tokio::sync::watch;

use super::*;

/// All topics have the owner that a test says.
struct Told {
    owner: Mutex<Owner>,
    /// The store knows better than this broker, and says that topics are another's.
    is_denied: AtomicBool,
    /// Topics are being taken: they are this broker's for whom waits.
    is_taking: AtomicBool,
    losses: watch::Sender<u64>,
}

impl Told {
    fn new(owner: Owner) -> Arc<Self> {
        Arc::new(Self {
            owner: Mutex::new(owner),
            is_denied: AtomicBool::new(false),
            is_taking: AtomicBool::new(false),
            losses: watch::Sender::new(0),
        })
    }

    fn tell(&self, owner: Owner) {
        *self.owner.lock().unwrap() = owner;
        self.losses.send_modify(|count| *count += 1);
    }
}

impl Ownership for Told {
    fn owner_of(&self, _: &TopicName) -> Owner {
        self.owner.lock().unwrap().clone()
    }

    fn acquire<'a>(&'a self, topic: &'a TopicName) -> BoxFuture<'a, Result<Owner, OwnershipError>> {
        let mut owner = self.owner.lock().unwrap();
        if *owner == Owner::Unowned {
            *owner = Owner::Us;
        }
        drop(owner);
        Box::pin(async move { Ok(self.owner_of(topic)) })
    }

    fn confirm<'a>(&'a self, topic: &'a TopicName) -> BoxFuture<'a, Result<bool, OwnershipError>> {
        let is_denied = self.is_denied.load(Ordering::SeqCst);
        Box::pin(async move { Ok(!is_denied && self.owner_of(topic) == Owner::Us) })
    }

    fn settle<'a>(&'a self, _: &'a TopicName) -> BoxFuture<'a, ()> {
        Box::pin(async {
            tokio::task::yield_now().await;
            if self.is_taking.load(Ordering::SeqCst) {
                self.tell(Owner::Us);
            }
        })
    }

    fn losses(&self) -> watch::Receiver<u64> {
        self.losses.subscribe()
    }
}

fn other() -> Owner {
    Owner::Other(Arc::new(BrokerAddresses {
        native_url: "pulsar://other:6650".to_owned(),
        http_url: "http://other:8080".to_owned(),
        ..BrokerAddresses::default()
    }))
}

const WISH: Wish = Wish {
    subscription: "s",
    name: "c",
    kind: SubscriptionType::Exclusive,
};

/// Checks that a producer and a consumer are refused; the topic is neither created nor loaded.
async fn is_refused(bench: &Bench, name: &TopicName) {
    let asked = name.clone();
    let refused = |error: &TopicError| matches!(error, TopicError::NotServed(_));
    bench
        .on(bench.away(name), move |shard| async move {
            let client = Client::new(&shard);
            let ensured = shard.ensure_topic(&asked, true).await;
            assert!(ensured.is_err_and(|error| refused(&error)));
            let produced = client.try_produce(&asked).await;
            assert!(matches!(produced, Err(ProducerError::Topic(error)) if refused(&error)));
            let subscribed = client.try_subscribe(&asked, WISH, None).await;
            assert!(matches!(subscribed, Err(SubscribeError::Topic(error)) if refused(&error)));
        })
        .await;
}

async fn is_loaded(bench: &Bench, name: &TopicName) -> bool {
    let loaded = bench.broker.is_loaded(bench.home(name), name.clone());
    loaded.await.unwrap()
}

#[tokio::test]
async fn who_comes_while_the_topic_is_being_taken_waits_for_it() {
    let told = Told::new(Owner::Unowned);
    let bench = Bench::among(told.clone()).await;
    let name = topic("arriving");
    is_refused(&bench, &name).await;
    told.is_taking.store(true, Ordering::SeqCst);
    let asked = name.clone();
    bench
        .on(bench.away(&name), move |shard| async move {
            shard.ensure_topic(&asked, true).await.unwrap();
            Client::new(&shard).try_produce(&asked).await.unwrap();
        })
        .await;
}

#[tokio::test]
async fn a_topic_of_another_broker_is_neither_made_nor_loaded_here() {
    let told = Told::new(other());
    let bench = Bench::among(told).await;
    let name = topic("elsewhere");
    is_refused(&bench, &name).await;
    let is_sent_on = |error: AdminError| match error {
        AdminError::Elsewhere { topic, addresses } => {
            assert_eq!(
                (topic, addresses.http_url.as_str()),
                (name.clone(), "http://other:8080")
            );
        }
        error => panic!("{error:?}"),
    };
    let admin = &bench.admin;
    is_sent_on(
        admin
            .topics
            .create_topic(name.clone(), BTreeMap::new())
            .await
            .unwrap_err(),
    );
    is_sent_on(
        admin
            .stats
            .stats(name.clone(), StatsFlags::default())
            .await
            .unwrap_err(),
    );
    is_sent_on(admin.stats.internal_info(name.clone()).await.unwrap_err());
    is_sent_on(admin.topics.unload(name.clone()).await.unwrap_err());
    is_sent_on(admin.topics.delete_topic(name.clone(), true).await.unwrap_err());
    is_sent_on(admin.subscriptions.subscriptions(name.clone()).await.unwrap_err());
    assert!(!admin.topics.serves(&name));
    assert!(!admin.catalog.topic_exists(&name));
    assert!(!is_loaded(&bench, &name).await);
}

#[tokio::test]
async fn a_topic_without_an_owner_is_taken_by_a_lookup_and_not_by_a_producer() {
    let told = Told::new(Owner::Unowned);
    let bench = Bench::among(told.clone()).await;
    let name = topic("unowned");
    is_refused(&bench, &name).await;
    assert_eq!(bench.admin.topics.served_by(name.clone()).await.unwrap(), None);
    bench
        .admin
        .topics
        .create_topic(name.clone(), BTreeMap::new())
        .await
        .unwrap();
    assert_eq!(bench.publish(bench.away(&name), &name, &["a"]).await.len(), 1);
}

#[tokio::test]
async fn a_topic_that_goes_to_another_broker_is_closed_with_its_clients() {
    let told = Told::new(Owner::Us);
    let bench = Bench::among(told.clone()).await;
    let name = topic("lost");
    bench
        .admin
        .topics
        .create_topic(name.clone(), BTreeMap::new())
        .await
        .unwrap();
    bench.publish(bench.away(&name), &name, &["a", "b"]).await;
    let consumer = bench.consume(bench.away(&name), &name, WISH).await;
    told.tell(other());
    bench
        .with_client(bench.away(&name), consumer, |client| async move {
            // It leaves when it is told that it was closed.
            until(|| client.consumer.borrow().is_none()).await;
        })
        .await;
    while is_loaded(&bench, &name).await {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    is_refused(&bench, &name).await;
    told.tell(Owner::Us);
    let stats = bench.stats(&name).await;
    assert_eq!(stats.subscriptions["s"].msg_backlog, 2);
}

#[tokio::test]
async fn no_topic_is_loaded_that_the_store_does_not_confirm() {
    let told = Told::new(Owner::Us);
    let bench = Bench::among(told.clone()).await;
    let name = topic("believed");
    let topics = &bench.admin.topics;
    topics.create_topic(name.clone(), BTreeMap::new()).await.unwrap();
    topics.unload(name.clone()).await.unwrap();
    told.is_denied.store(true, Ordering::SeqCst);
    let asked = name.clone();
    bench
        .on(bench.away(&name), move |shard| async move {
            let produced = Client::new(&shard).try_produce(&asked).await;
            let refused = matches!(&produced, Err(ProducerError::Topic(TopicError::NotServed(_))));
            assert!(refused, "{:?}", produced.err());
        })
        .await;
    assert!(!is_loaded(&bench, &name).await);
    told.is_denied.store(false, Ordering::SeqCst);
    assert_eq!(bench.publish(bench.away(&name), &name, &["a"]).await.len(), 1);
}
