//! The verbs over a broker with two shards, all in memory, with clients that live on the shards.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pharos_admin_api::TopicStats;
use pharos_ledger::LedgerEngine;
use pharos_ledger::memory::MemoryEngine;
use pharos_metadata::{Memory, MetadataStore};
use pharos_runtime::clock;
use pharos_types::{Position, SubscriptionName};
use pharos_wire::message::{PulsarEntries, encode_entry};
use pharos_wire::proto::MessageMetadata;

use super::*;
use crate::admin::*;
use crate::broker::{Threads, start, start_among};
use crate::entry::{EntryCodec, FeedEntry};
use crate::error::{ProducerError, SubscribeError};
use crate::feed::{Ack, ConsumerHandle, DeliverySink, Recipient};
use crate::ids::{ConnectionId, ConsumerKey, ProducerKey, ShardId, TopicId};
use crate::options::Options;
use crate::shard::{ConnectionEvent, ConnectionHandle, OwnedAck, Publish, Pumped, Receipt, Shard};
use crate::topic::{
    Access, AccessMode, Attach, ConsumerInfo, ProducerGrant, ProducerInfo, ProducerRequest, StartAt,
    SubscribeRequest, SubscriptionType,
};
use pharos_catalog::CatalogOptions;
use pharos_dispatch::KeySharedSpec;

mod clients;
mod damage;
mod deletes;
mod dispatched;
mod encoding;
mod faults;
mod grants;
mod log;
mod mortal;
mod newest;
mod placement;
mod subscriptions;
mod topics;

/// A broker of two shards.
struct Bench {
    broker: Broker,
    backend: Arc<Backend>,
    threads: Option<Threads>,
}

impl Bench {
    async fn new() -> Self {
        Self::over(MemoryEngine::new()).await
    }

    async fn over(engine: MemoryEngine) -> Self {
        Self::with(engine, |_| ()).await
    }

    /// With other settings.
    async fn with(engine: MemoryEngine, change: impl FnOnce(&mut Options)) -> Self {
        Self::on_stores(Arc::new(engine), Arc::new(Memory::new()), change).await
    }

    /// On stores that outlive it.
    async fn on_stores(
        engine: Arc<dyn LedgerEngine>,
        metadata: Arc<dyn MetadataStore>,
        change: impl FnOnce(&mut Options),
    ) -> Self {
        Self::of_encoding(engine, metadata, change, &PulsarEntries).await
    }

    /// With entries of another encoding; only those that are read back from the log.
    async fn of_encoding(
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

    fn of((broker, threads): (Broker, Threads)) -> Self {
        Self {
            backend: Backend::new(broker.clone()),
            broker,
            threads: Some(threads),
        }
    }

    /// One of several, in the eyes of `ownership`.
    async fn among(ownership: Arc<dyn pharos_cluster::Ownership>) -> Self {
        let metadata: Arc<dyn MetadataStore> = Arc::new(Memory::new());
        let catalog = Catalog::open(metadata.clone(), CatalogOptions::default())
            .await
            .unwrap();
        let options = Options {
            shards: 2,
            ..Options::default()
        };
        let engine = Arc::new(MemoryEngine::new());
        Self::of(start_among(options, catalog, engine, metadata, &PulsarEntries, ownership).unwrap())
    }

    /// With a topic.
    async fn with_topic(name: &str) -> (Self, TopicName) {
        let bench = Self::new().await;
        bench
            .backend
            .create_topic(topic(name), BTreeMap::new())
            .await
            .unwrap();
        (bench, topic(name))
    }

    async fn on<R, W, F>(&self, shard: ShardId, work: W) -> R
    where
        R: Send + 'static,
        W: FnOnce(Rc<Shard>) -> F + Send + 'static,
        F: Future<Output = R> + 'static,
    {
        self.broker.call(shard, work).await.unwrap()
    }

    /// Publishes texts as a client of `shard` and waits for the receipts. The producer stays.
    async fn publish(&self, shard: ShardId, name: &TopicName, texts: &[&str]) -> Vec<Position> {
        let entries: Vec<Bytes> = texts.iter().map(|text| entry(text, clock::wall_ms())).collect();
        self.publish_entries(shard, name, entries).await
    }

    async fn publish_entries(&self, shard: ShardId, name: &TopicName, entries: Vec<Bytes>) -> Vec<Position> {
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
    async fn consume(&self, shard: ShardId, name: &TopicName, wish: Wish) -> u64 {
        let name = name.clone();
        self.on(shard, move |shard| async move {
            let client = Client::new(&shard);
            client.subscribe(&name, wish).await;
            client.connection.borrow().unwrap().number
        })
        .await
    }

    /// Does something with a client of a shard.
    async fn with_client<R, W, F>(&self, shard: ShardId, number: u64, work: W) -> R
    where
        R: Send + 'static,
        W: FnOnce(Rc<Client>) -> F + Send + 'static,
        F: Future<Output = R> + 'static,
    {
        self.on(shard, move |_| async move {
            let client = CLIENTS.with_borrow(|clients| clients.get(&number).cloned().unwrap());
            work(client).await
        })
        .await
    }

    async fn stats(&self, name: &TopicName) -> TopicStats {
        self.backend
            .stats(name.clone(), StatsFlags::default())
            .await
            .unwrap()
    }

    /// Waits until stats say so.
    async fn stats_until(&self, name: &TopicName, is_true: impl Fn(&TopicStats) -> bool) -> TopicStats {
        for _ in 0..5_000 {
            let stats = self.stats(name).await;
            if is_true(&stats) {
                return stats;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        panic!("what was waited for did not come: {:?}", self.stats(name).await);
    }

    fn home(&self, name: &TopicName) -> ShardId {
        self.broker.shared.placement.shard_of(name)
    }

    /// The shard that is not the home.
    fn away(&self, name: &TopicName) -> ShardId {
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

thread_local! {
    /// The clients of a shard, by connection.
    static CLIENTS: RefCell<HashMap<u64, Rc<Client>>> = RefCell::default();
}

fn sends(entries: Vec<Bytes>) -> Vec<Publish> {
    let numbered = (0..).zip(entries);
    numbered
        .map(|(sequence_id, payload)| Publish {
            sequence_id,
            highest_sequence_id: 0,
            facts: PulsarEntries.facts(&payload),
            payload,
            crc32c: None,
            received_at: clock::now(),
        })
        .collect()
}

/// A wish to consume.
#[derive(Clone, Copy)]
struct Wish {
    subscription: &'static str,
    name: &'static str,
    kind: SubscriptionType,
}

/// A client connection with at most one consumer.
struct Client {
    shard: Rc<Shard>,
    connection: RefCell<Option<ConnectionId>>,
    receipts: RefCell<Vec<Receipt>>,
    consumer: RefCell<Option<Attached>>,
    got: RefCell<Vec<Arc<FeedEntry>>>,
    /// What it was told besides.
    events: RefCell<Vec<ConnectionEvent>>,
}

struct Attached {
    topic: TopicId,
    key: ConsumerKey,
    handle: Option<ConsumerHandle>,
}

impl Client {
    fn new(shard: &Rc<Shard>) -> Rc<Self> {
        let client = Rc::new(Self {
            shard: shard.clone(),
            connection: RefCell::default(),
            receipts: RefCell::default(),
            consumer: RefCell::default(),
            got: RefCell::default(),
            events: RefCell::default(),
        });
        let connection = shard.register(|_| client.clone());
        *client.connection.borrow_mut() = Some(connection);
        CLIENTS.with_borrow_mut(|clients| clients.insert(connection.number, client.clone()));
        client
    }

    async fn produce(&self, name: &TopicName) -> (TopicId, ProducerKey) {
        self.try_produce(name).await.unwrap()
    }

    async fn try_produce(&self, name: &TopicName) -> Result<(TopicId, ProducerKey), ProducerError> {
        let granted = self.try_produce_as(name, AccessMode::Shared, None).await?;
        Ok((granted.0, granted.1.key))
    }

    async fn try_produce_as(
        &self,
        name: &TopicName,
        access_mode: AccessMode,
        topic_epoch: Option<u64>,
    ) -> Result<(TopicId, ProducerGrant), ProducerError> {
        let request = ProducerRequest {
            encrypted: false,
            connection: self.connection.borrow().unwrap(),
            producer_id: 1,
            name: None,
            epoch: 0,
            user_provided_name: false,
            access_mode,
            topic_epoch,
            info: ProducerInfo {
                address: "/10.0.0.1:1".into(),
                ..ProducerInfo::default()
            },
        };
        self.shard.add_producer(name, request).await
    }

    fn publish(&self, topic: TopicId, key: ProducerKey, sends: Vec<Publish>) {
        let from = self.connection.borrow().unwrap();
        self.shard.publish(from, topic, key, sends);
    }

    async fn subscribe(&self, name: &TopicName, wish: Wish) {
        self.try_subscribe(name, wish, None).await.unwrap();
    }

    /// Subscribes as a reader does: nothing of it is stored.
    async fn read(&self, name: &TopicName, wish: Wish) {
        let request = self.request(name, wish, None);
        let request = SubscribeRequest {
            durable: false,
            ..request
        };
        self.attach(request).await.unwrap();
    }

    async fn try_subscribe(
        &self,
        name: &TopicName,
        wish: Wish,
        key_shared: Option<KeySharedSpec>,
    ) -> Result<(), SubscribeError> {
        self.attach(self.request(name, wish, key_shared)).await
    }

    fn request(&self, name: &TopicName, wish: Wish, key_shared: Option<KeySharedSpec>) -> SubscribeRequest {
        SubscribeRequest {
            topic: name.clone(),
            subscription: subscription(wish.subscription),
            kind: wish.kind,
            connection: self.connection.borrow().unwrap(),
            consumer_id: 7,
            consumer_name: Some(wish.name.to_owned()),
            priority_level: 0,
            durable: true,
            start: StartAt::Earliest,
            rewind_to_ms: None,
            may_create: true,
            properties: Vec::new(),
            key_shared,
            info: Arc::new(ConsumerInfo {
                address: "/10.0.0.2:2".into(),
                client_version: "test".into(),
                connected_since_ms: clock::wall_ms(),
                metadata: Vec::new(),
            }),
        }
    }

    async fn attach(&self, request: SubscribeRequest) -> Result<(), SubscribeError> {
        let done = self.shard.subscribe(request).await?;
        let connection = self.connection.borrow().unwrap();
        let topic = done.seed.topic;
        let handle = match done.attach {
            Attach::Listen(lease) => {
                let feed = self.shard.feed(&done.seed);
                let handle = feed.join(connection, (7, done.key), lease, 0, None);
                handle.flow(100);
                Some(handle)
            }
            Attach::Dormant => None,
            Attach::Dispatched => {
                self.shard.flow(topic, done.key, 100);
                None
            }
        };
        *self.consumer.borrow_mut() = Some(Attached {
            topic,
            key: done.key,
            handle,
        });
        self.shard.wake_connection(connection);
        Ok(())
    }

    /// Grants a stream consumer more permits.
    fn flow(&self, permits: u32) {
        let consumer = self.consumer.borrow();
        consumer.as_ref().unwrap().handle.as_ref().unwrap().flow(permits);
        self.shard.wake_connection(self.connection.borrow().unwrap());
    }

    /// Waits until so many entries came.
    async fn wait_for(&self, count: usize) {
        until(|| self.got.borrow().len() >= count).await;
    }

    /// Acknowledges the `index`th entry that came.
    fn ack(&self, index: usize) {
        let position = self.got.borrow()[index].position;
        let consumer = self.consumer.borrow();
        let consumer = consumer.as_ref().unwrap();
        match &consumer.handle {
            Some(handle) => {
                let acks = [Ack {
                    position,
                    remaining: &[],
                }];
                assert_eq!(handle.ack(&mut acks.into_iter(), false, clock::now()), 0);
            }
            None => {
                let ack = OwnedAck {
                    position,
                    remaining: Box::default(),
                };
                self.shard.ack(consumer.topic, consumer.key, vec![ack], false);
            }
        }
    }

    fn leave(&self) {
        if let Some(consumer) = self.consumer.borrow_mut().take() {
            self.shard.detach(
                consumer.topic,
                consumer.key,
                consumer.handle.and_then(ConsumerHandle::leave),
            );
        }
    }
}

impl ConnectionHandle for Client {
    fn flush_turn(&self) -> Pumped {
        let group = self
            .consumer
            .borrow()
            .as_ref()
            .and_then(|c| Some(c.handle.as_ref()?.group().clone()));
        if let Some(group) = group {
            group.fill(&mut Sink(&self.got));
        }
        Pumped::Rests
    }

    fn on_receipts(&self, receipts: &[Receipt]) {
        self.receipts.borrow_mut().extend_from_slice(receipts);
    }

    fn on_event(&self, event: ConnectionEvent) {
        match event {
            ConnectionEvent::ConsumerClosed { .. } => self.leave(),
            ConnectionEvent::Dispatched(items) => {
                self.got
                    .borrow_mut()
                    .extend(items.into_iter().map(|item| item.entry));
            }
            other => self.events.borrow_mut().push(other),
        }
    }

    fn activate(&self, _: u64, _: ConsumerKey, handle: ConsumerHandle) -> Result<(), ConsumerHandle> {
        handle.flow(100);
        match self.consumer.borrow_mut().as_mut() {
            Some(consumer) => consumer.handle = Some(handle),
            None => return Err(handle),
        }
        self.shard.wake_connection(self.connection.borrow().unwrap());
        Ok(())
    }

    fn deactivate(&self, _: u64, _: ConsumerKey) -> Option<ConsumerHandle> {
        self.consumer.borrow_mut().as_mut()?.handle.take()
    }

    fn probe(&self, answer: tokio::sync::oneshot::Sender<bool>) {
        let _ = answer.send(true);
    }

    fn set_aside(&self) {}

    fn close(&self) {}

    fn shut_down(&self) {}

    fn on_tick(&self, _: Duration) {}
}

struct Sink<'a>(&'a RefCell<Vec<Arc<FeedEntry>>>);

impl DeliverySink for Sink<'_> {
    fn has_room(&self) -> bool {
        true
    }

    fn begin(&mut self, entry: &Arc<FeedEntry>, _: Option<u32>) {
        self.0.borrow_mut().push(entry.clone());
    }

    fn message(&mut self, _: Recipient, _: &[i64]) {}
}

fn topic(text: &str) -> TopicName {
    text.parse().unwrap()
}

fn subscription(text: &str) -> SubscriptionName {
    SubscriptionName::new(text).unwrap()
}

/// A stored message.
fn entry(text: &str, publish_time: u64) -> Bytes {
    let metadata = MessageMetadata {
        producer_name: "p".to_owned(),
        publish_time,
        ..MessageMetadata::default()
    };
    encode_entry(&metadata, text.as_bytes())
}

/// A stored batch.
fn batch(count: i32) -> Bytes {
    let metadata = MessageMetadata {
        producer_name: "p".to_owned(),
        publish_time: clock::wall_ms(),
        num_messages_in_batch: Some(count),
        ..MessageMetadata::default()
    };
    encode_entry(&metadata, b"batch")
}

/// Waits for a condition.
async fn until(mut is_true: impl FnMut() -> bool) {
    for _ in 0..20_000 {
        if is_true() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("what was waited for did not come");
}
