//! A broker of two shards, all in memory, with clients that live on the shards. Shared with the tests of the crate above, so only what
//! is public is used here.

mod client;
mod world;

use std::collections::BTreeMap;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pharos_broker::broker::{Broker, Threads, start};
use pharos_broker::entry::EntryCodec;
use pharos_broker::error::TopicError;
use pharos_broker::ids::ShardId;
use pharos_broker::options::Options;
use pharos_broker::shard::{Counts, Shard};
use pharos_catalog::{Catalog, CatalogOptions};
use pharos_ledger::LedgerEngine;
use pharos_ledger::memory::MemoryEngine;
use pharos_metadata::{Memory, MetadataStore};
use pharos_runtime::clock;
use pharos_topic::{StartAt, TopicFigures, TopicHandle, Wanted};
use pharos_types::hash::bundle_hash;
use pharos_types::{Position, SubscriptionName, TopicName};
use pharos_wire::message::{PulsarEntries, encode_entry};
use pharos_wire::proto::MessageMetadata;

pub(crate) use pharos_managed_ledger::mortal::{CallEffect, Life};

pub(crate) use client::{Client, Wish, sends};
pub(crate) use world::{World, fill, is_whole, settled};

/// A broker of two shards.
pub(crate) struct Bench {
    pub(crate) broker: Broker,
    threads: Option<Threads>,
}

impl Bench {
    pub(crate) async fn new() -> Self {
        Self::over(MemoryEngine::new()).await
    }

    pub(crate) async fn over(engine: MemoryEngine) -> Self {
        Self::with(engine, |_| ()).await
    }

    /// With other settings.
    pub(crate) async fn with(engine: MemoryEngine, change: impl FnOnce(&mut Options)) -> Self {
        Self::on_stores(Arc::new(engine), Arc::new(Memory::new()), change).await
    }

    /// On stores that outlive it.
    pub(crate) async fn on_stores(
        engine: Arc<dyn LedgerEngine>,
        metadata: Arc<dyn MetadataStore>,
        change: impl FnOnce(&mut Options),
    ) -> Self {
        Self::of_encoding(engine, metadata, change, &PulsarEntries).await
    }

    /// With entries of another encoding; only those that are read back from the log.
    pub(crate) async fn of_encoding(
        engine: Arc<dyn LedgerEngine>,
        metadata: Arc<dyn MetadataStore>,
        change: impl FnOnce(&mut Options),
        codec: &'static dyn EntryCodec,
    ) -> Self {
        let catalog = Catalog::open(metadata.clone(), CatalogOptions::default())
            .await
            .unwrap();
        // Progress comes home late, so that what stats say in between is what stream consumers were asked.
        let mut options = Options {
            shards: 2,
            cursor_flush_interval: Duration::from_secs(3600),
            failover_delay: Duration::ZERO,
            ..Options::default()
        };
        change(&mut options);
        Self::of(start(options, catalog, engine, metadata, codec).unwrap())
    }

    /// A running one.
    pub(crate) fn of((broker, threads): (Broker, Threads)) -> Self {
        Self {
            broker,
            threads: Some(threads),
        }
    }

    /// With a topic.
    pub(crate) async fn with_topic(name: &str) -> (Self, TopicName) {
        let bench = Self::new().await;
        bench.create_topic(&topic(name)).await;
        (bench, topic(name))
    }

    pub(crate) fn catalog(&self) -> &Catalog {
        &self.broker.shared.catalog
    }

    /// Makes a topic, and loads it.
    pub(crate) async fn create_topic(&self, name: &TopicName) {
        self.catalog().create_topic(name, BTreeMap::new()).await.unwrap();
        self.at_home(name, |_| async {}).await;
    }

    pub(crate) async fn create_subscription(&self, name: &TopicName, sub: &str, start: StartAt) {
        let sub = subscription(sub);
        let made = self.at_home(name, move |topic| async move {
            topic.create_subscription(sub, start, false, &[], false).await
        });
        made.await.unwrap();
    }

    pub(crate) async fn delete_topic(&self, name: &TopicName, force: bool) -> Result<(), TopicError> {
        self.broker
            .delete_topic(self.home(name), name.clone(), force)
            .await
    }

    pub(crate) async fn unload(&self, name: &TopicName) {
        self.broker.unload(self.home(name), name.clone()).await.unwrap();
    }

    /// Does something with a topic on its home shard; loads it first when it must.
    pub(crate) async fn at_home<R, W, F>(&self, name: &TopicName, work: W) -> R
    where
        R: Send + 'static,
        W: FnOnce(TopicHandle) -> F + Send + 'static,
        F: Future<Output = R> + 'static,
    {
        let outcome = self
            .broker
            .at_home(self.home(name), name.clone(), move |topic| async move {
                Ok::<_, TopicError>(work(topic).await)
            });
        outcome.await.unwrap()
    }

    /// A topic's numbers; loads it when it must.
    pub(crate) async fn figures(&self, name: &TopicName) -> TopicFigures {
        self.at_home(name, |topic| async move { topic.figures(Wanted::default()) })
            .await
    }

    /// The backlog of each subscription, as far as the topic's home knows.
    pub(crate) async fn backlogs(&self, name: &TopicName) -> BTreeMap<String, u64> {
        let subscriptions = self.figures(name).await.subscriptions.into_iter();
        let backlogs = subscriptions.map(|subscription| {
            let cursors = subscription.cursors.iter();
            let longest = cursors.map(|cursor| cursor.acks.backlog).max();
            (subscription.name, longest.unwrap_or(0))
        });
        backlogs.collect()
    }

    /// Returns the counts of all shards together.
    pub(crate) async fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        for shard in self.broker.shard_figures().await.unwrap() {
            sum.merge(&shard.counts);
        }
        sum
    }

    pub(crate) async fn on<R, W, F>(&self, shard: ShardId, work: W) -> R
    where
        R: Send + 'static,
        W: FnOnce(Rc<Shard>) -> F + Send + 'static,
        F: Future<Output = R> + 'static,
    {
        self.broker.call(shard, work).await.unwrap()
    }

    /// Publishes texts as a client of `shard` and waits for the receipts. The producer stays.
    pub(crate) async fn publish(&self, shard: ShardId, name: &TopicName, texts: &[&str]) -> Vec<Position> {
        let entries: Vec<Bytes> = texts.iter().map(|text| entry(text, clock::wall_ms())).collect();
        self.publish_entries(shard, name, entries).await
    }

    pub(crate) async fn publish_entries(
        &self,
        shard: ShardId,
        name: &TopicName,
        entries: Vec<Bytes>,
    ) -> Vec<Position> {
        let name = name.clone();
        self.on(shard, move |shard| async move {
            let client = Client::new(&shard);
            let (topic, key) = client.produce(&name).await;
            let publishes = sends(entries);
            let count = publishes.len();
            client.publish(topic, key, publishes);
            until(|| client.receipts.borrow().len() == count).await;
            let receipts = client.receipts.borrow();
            receipts.iter().map(|receipt| receipt.position).collect()
        })
        .await
    }

    /// Attaches a consumer of `shard` with 100 permits. Returns its connection's number, by which it is found again.
    pub(crate) async fn consume(&self, shard: ShardId, name: &TopicName, wish: Wish) -> u64 {
        let name = name.clone();
        self.on(shard, move |shard| async move {
            let client = Client::new(&shard);
            client.subscribe(&name, wish).await;
            client.connection.borrow().unwrap().number
        })
        .await
    }

    /// Does something with a client of a shard.
    pub(crate) async fn with_client<R, W, F>(&self, shard: ShardId, number: u64, work: W) -> R
    where
        R: Send + 'static,
        W: FnOnce(Rc<Client>) -> F + Send + 'static,
        F: Future<Output = R> + 'static,
    {
        self.on(
            shard,
            move |_| async move { work(Client::by_number(number)).await },
        )
        .await
    }

    /// The shard on which a topic lives when it lives here.
    pub(crate) fn home(&self, name: &TopicName) -> ShardId {
        ShardId(u16::try_from(bundle_hash(&name.to_string()) % 2).unwrap())
    }

    /// The shard that is not the home.
    pub(crate) fn away(&self, name: &TopicName) -> ShardId {
        ShardId(1 - self.home(name).0)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if let Some(threads) = self.threads.take() {
            threads.stop();
        }
    }
}

pub(crate) fn topic(text: &str) -> TopicName {
    text.parse().unwrap()
}

pub(crate) fn subscription(text: &str) -> SubscriptionName {
    SubscriptionName::new(text).unwrap()
}

/// A stored message.
pub(crate) fn entry(text: &str, publish_time: u64) -> Bytes {
    let metadata = MessageMetadata {
        producer_name: "p".to_owned(),
        publish_time,
        ..MessageMetadata::default()
    };
    encode_entry(&metadata, text.as_bytes())
}

/// Waits for a condition.
pub(crate) async fn until(mut is_true: impl FnMut() -> bool) {
    for _ in 0..20_000 {
        if is_true() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("what was waited for did not come");
}
