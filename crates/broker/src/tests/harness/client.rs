//! A client connection that lives on a shard.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pharos_broker::entry::{EntryCodec as _, FeedEntry};
use pharos_broker::error::{ProducerError, SubscribeError};
use pharos_broker::feed::{Ack, ConsumerHandle, DeliverySink, OwnedAck, Recipient};
use pharos_broker::ids::{ConnectionId, ConsumerKey, ProducerKey, TopicId};
use pharos_broker::shard::{ConnectionEvent, ConnectionHandle, Publish, Pumped, Receipt, Shard};
use pharos_dispatch::KeySharedSpec;
use pharos_runtime::clock;
use pharos_topic::{
    AccessMode, Attach, ConsumerInfo, ProducerGrant, ProducerInfo, ProducerRequest, StartAt,
    SubscribeRequest, SubscriptionType,
};
use pharos_types::TopicName;
use pharos_wire::message::PulsarEntries;

use super::{subscription, until};

thread_local! {
    /// The clients of a shard, by connection.
    static CLIENTS: RefCell<HashMap<u64, Rc<Client>>> = RefCell::default();
}

pub(crate) fn sends(entries: Vec<Bytes>) -> Vec<Publish> {
    let numbered = (0..).zip(entries);
    numbered
        .map(|(sequence_id, payload)| Publish {
            txn: None,
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
pub(crate) struct Wish {
    pub(crate) subscription: &'static str,
    pub(crate) name: &'static str,
    pub(crate) kind: SubscriptionType,
}

/// A client connection with at most one consumer.
pub(crate) struct Client {
    pub(crate) shard: Rc<Shard>,
    pub(crate) connection: RefCell<Option<ConnectionId>>,
    pub(crate) receipts: RefCell<Vec<Receipt>>,
    pub(crate) consumer: RefCell<Option<Attached>>,
    pub(crate) got: RefCell<Vec<Arc<FeedEntry>>>,
    /// What it was told besides.
    pub(crate) events: RefCell<Vec<ConnectionEvent>>,
    /// Where it keeps the question whether it still answers, instead of answering.
    pub(crate) unanswered: RefCell<Option<Vec<tokio::sync::oneshot::Sender<bool>>>>,
}

pub(crate) struct Attached {
    pub(crate) topic: TopicId,
    pub(crate) key: ConsumerKey,
    pub(crate) handle: Option<ConsumerHandle>,
}

impl Client {
    pub(crate) fn new(shard: &Rc<Shard>) -> Rc<Self> {
        let client = Rc::new(Self {
            shard: shard.clone(),
            connection: RefCell::default(),
            receipts: RefCell::default(),
            consumer: RefCell::default(),
            got: RefCell::default(),
            events: RefCell::default(),
            unanswered: RefCell::default(),
        });
        let connection = shard.connections.register(|_| client.clone());
        *client.connection.borrow_mut() = Some(connection);
        CLIENTS.with_borrow_mut(|clients| clients.insert(connection.number, client.clone()));
        client
    }

    /// The client of this shard whose connection has that number.
    pub(crate) fn by_number(number: u64) -> Rc<Self> {
        CLIENTS.with_borrow(|clients| clients.get(&number).cloned().unwrap())
    }

    pub(crate) async fn produce(&self, name: &TopicName) -> (TopicId, ProducerKey) {
        self.try_produce(name).await.unwrap()
    }

    pub(crate) async fn try_produce(
        &self,
        name: &TopicName,
    ) -> Result<(TopicId, ProducerKey), ProducerError> {
        let granted = self.try_produce_as(name, AccessMode::Shared, None).await?;
        Ok((granted.0, granted.1.key))
    }

    pub(crate) async fn try_produce_as(
        &self,
        name: &TopicName,
        access_mode: AccessMode,
        topic_epoch: Option<u64>,
    ) -> Result<(TopicId, ProducerGrant), ProducerError> {
        let request = ProducerRequest {
            access_mode,
            topic_epoch,
            ..self.wish_to_produce()
        };
        self.shard.add_producer(name, request).await
    }

    /// One of many producers, under a name that the broker makes up.
    pub(crate) fn wish_to_produce(&self) -> ProducerRequest {
        ProducerRequest {
            encrypted: false,
            connection: self.connection.borrow().unwrap(),
            producer_id: 1,
            name: None,
            epoch: 0,
            user_provided_name: false,
            access_mode: AccessMode::Shared,
            topic_epoch: None,
            info: ProducerInfo {
                address: "/10.0.0.1:1".into(),
                ..ProducerInfo::default()
            },
        }
    }

    pub(crate) fn publish(&self, topic: TopicId, key: ProducerKey, sends: Vec<Publish>) {
        let from = self.connection.borrow().unwrap();
        self.shard.publish(from, topic, key, sends);
    }

    pub(crate) async fn subscribe(&self, name: &TopicName, wish: Wish) {
        self.try_subscribe(name, wish, None).await.unwrap();
    }

    /// Subscribes as a reader does: nothing of it is stored.
    pub(crate) async fn read(&self, name: &TopicName, wish: Wish) {
        let request = self.request(name, wish, None);
        let request = SubscribeRequest {
            durable: false,
            ..request
        };
        self.attach(request).await.unwrap();
    }

    pub(crate) async fn try_subscribe(
        &self,
        name: &TopicName,
        wish: Wish,
        key_shared: Option<KeySharedSpec>,
    ) -> Result<(), SubscribeError> {
        self.attach(self.request(name, wish, key_shared)).await
    }

    pub(crate) fn request(
        &self,
        name: &TopicName,
        wish: Wish,
        key_shared: Option<KeySharedSpec>,
    ) -> SubscribeRequest {
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
            read_compacted: false,
            is_replicated: false,
            key_shared,
            info: Arc::new(ConsumerInfo {
                address: "/10.0.0.2:2".into(),
                client_version: "test".into(),
                connected_since_ms: clock::wall_ms(),
                metadata: Vec::new(),
            }),
        }
    }

    pub(crate) async fn attach(&self, request: SubscribeRequest) -> Result<(), SubscribeError> {
        let done = self.shard.subscribe(request).await?;
        let connection = self.connection.borrow().unwrap();
        let topic = done.seed.topic;
        let handle = match done.attach {
            Attach::Listen(handoff) => {
                let feed = self.shard.feeds.open(&done.seed);
                let handle = feed.join(connection, (7, done.key), handoff, 0, None);
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
        self.shard.connections.wake(connection);
        Ok(())
    }

    /// Grants a stream consumer more permits.
    pub(crate) fn flow(&self, permits: u32) {
        let consumer = self.consumer.borrow();
        consumer.as_ref().unwrap().handle.as_ref().unwrap().flow(permits);
        self.shard.connections.wake(self.connection.borrow().unwrap());
    }

    /// Waits until so many entries came.
    pub(crate) async fn wait_for(&self, count: usize) {
        until(|| self.got.borrow().len() >= count).await;
    }

    /// Acknowledges the `index`th entry that came.
    pub(crate) fn ack(&self, index: usize) {
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

    pub(crate) fn leave(&self) {
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
        self.shard.connections.wake(self.connection.borrow().unwrap());
        Ok(())
    }

    fn deactivate(&self, _: u64, _: ConsumerKey) -> Option<ConsumerHandle> {
        self.consumer.borrow_mut().as_mut()?.handle.take()
    }

    fn probe(&self, answer: tokio::sync::oneshot::Sender<bool>) {
        match self.unanswered.borrow_mut().as_mut() {
            Some(unanswered) => unanswered.push(answer),
            None => _ = answer.send(true),
        }
    }

    fn set_aside(&self) {}

    fn close(&self) {}

    fn shut_down(&self) {}

    fn on_tick(&self, _: Duration) {}
}

pub(crate) struct Sink<'a>(&'a RefCell<Vec<Arc<FeedEntry>>>);

impl DeliverySink for Sink<'_> {
    fn has_room(&self) -> bool {
        true
    }

    fn begin(&mut self, entry: &Arc<FeedEntry>, _: Option<u32>) {
        self.0.borrow_mut().push(entry.clone());
    }

    fn message(&mut self, _: Recipient, _: &[i64]) {}
}
