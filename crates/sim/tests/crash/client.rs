//! A client: what a connection of the Pulsar front door would be, with one producer or one consumer on it.
//!
//! It writes down what it is told at the moment it is told.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pharos_broker::entry::{EntryCodec as _, FeedEntry};
use pharos_broker::feed::{Ack, ConsumerHandle, DeliverySink, OwnedAck, Recipient};
use pharos_broker::ids::{ConnectionId, ConsumerKey, ProducerKey, TopicId};
use pharos_broker::shard::{ConnectionEvent, ConnectionHandle, Publish, Pumped, Receipt, Shard};
use pharos_runtime::clock;
use pharos_sim::model::{Model, Ticket};
use pharos_sim::tell;
use pharos_topic::{AccessMode, Attach, Subscribed};
use pharos_types::Position;
use pharos_wire::message::{PulsarEntries, encode_entry, split_ref};
use pharos_wire::proto::MessageMetadata;

const ID: u64 = 7;

pub(crate) struct Client {
    pub(crate) shard: Rc<Shard>,
    pub(crate) topic: String,
    connection: Cell<Option<ConnectionId>>,
    model: Rc<RefCell<Model>>,
    produces: RefCell<Option<Produces>>,
    consumes: RefCell<Option<Consumes>>,
    /// Producers and consumers that were closed before their grant came.
    closed_producers: RefCell<BTreeSet<u64>>,
    closed_consumers: RefCell<BTreeSet<u64>>,
}

struct Produces {
    topic: TopicId,
    key: ProducerKey,
    /// Sent and not answered, oldest first.
    sent: BTreeMap<u64, Ticket>,
    last: Option<(u64, Position)>,
}

struct Consumes {
    topic: TopicId,
    key: ConsumerKey,
    handle: Option<ConsumerHandle>,
    is_dispatched: bool,
    subscription: String,
    cursor: String,
    /// Messages that were received and not acknowledged.
    got: Vec<(u64, Position)>,
    /// All that came, in order.
    came: Vec<u64>,
    last: Option<Position>,
}

impl Client {
    pub(crate) fn new(shard: &Rc<Shard>, topic: &str, model: &Rc<RefCell<Model>>) -> Rc<Self> {
        let client = Rc::new(Self {
            shard: shard.clone(),
            topic: topic.to_owned(),
            connection: Cell::new(None),
            model: model.clone(),
            produces: RefCell::default(),
            consumes: RefCell::default(),
            closed_producers: RefCell::default(),
            closed_consumers: RefCell::default(),
        });
        let connection = shard.connections.register(|_| client.clone());
        client.connection.set(Some(connection));
        client
    }

    pub(crate) fn connection(&self) -> ConnectionId {
        self.connection.get().expect("it is registered")
    }

    /// The process is gone: lets go of what holds each other.
    pub(crate) fn forget(&self) {
        self.shard.connections.unregister(self.connection());
        self.produces.take();
        // A handle that is left would speak to its topic.
        if let Some(consumes) = self.consumes.take() {
            drop(consumes.handle.and_then(ConsumerHandle::leave));
        }
    }

    // ---- producing ---------------------------------------------------------------------------------------------

    pub(crate) fn produces(&self) -> bool {
        self.produces.borrow().is_some()
    }

    /// Records that a producer was created. `false` if it was closed meanwhile.
    pub(crate) fn producer_is_in(&self, topic: TopicId, key: ProducerKey) -> bool {
        if self.closed_producers.borrow_mut().remove(&key.0) {
            return false;
        }
        *self.produces.borrow_mut() = Some(Produces {
            topic,
            key,
            sent: BTreeMap::new(),
            last: None,
        });
        true
    }

    /// Sends so many messages at once.
    pub(crate) fn publish(&self, count: usize, bytes: usize) {
        let mut produces = self.produces.borrow_mut();
        let Some(produces) = &mut *produces else { return };
        let mut sends = Vec::new();
        for _ in 0..count {
            let mut model = self.model.borrow_mut();
            let message = model.next_message();
            tell(|| format!("send {} {message}", self.topic));
            produces
                .sent
                .insert(message, model.topic(&self.topic).send(message, clock::wall_ms()));
            let payload = stored(message, bytes);
            sends.push(Publish {
                txn: None,
                sequence_id: message,
                highest_sequence_id: 0,
                facts: PulsarEntries.facts(&payload),
                payload,
                crc32c: None,
                received_at: clock::now(),
            });
        }
        self.shard
            .publish(self.connection(), produces.topic, produces.key, sends);
    }

    pub(crate) fn close_producer(&self) {
        if let Some(produces) = self.produces.take() {
            self.shard.close_producer(produces.topic, produces.key);
        }
    }

    /// Sends that were not answered.
    pub(crate) fn unanswered(&self) -> usize {
        let produces = self.produces.borrow();
        produces.as_ref().map_or(0, |produces| produces.sent.len())
    }

    // ---- consuming ---------------------------------------------------------------------------------------------

    pub(crate) fn consumes(&self) -> bool {
        self.consumes.borrow().is_some()
    }

    /// Its topic and key, for requests of an attached consumer.
    pub(crate) fn attached(&self) -> Option<(TopicId, ConsumerKey)> {
        let consumes = self.consumes.borrow();
        consumes.as_ref().map(|consumes| (consumes.topic, consumes.key))
    }

    pub(crate) fn subscription(&self) -> Option<(String, String)> {
        let consumes = self.consumes.borrow();
        let consumes = consumes.as_ref()?;
        Some((consumes.subscription.clone(), consumes.cursor.clone()))
    }

    /// Records that a consumer was attached. `false` if it was closed meanwhile.
    pub(crate) fn consumer_is_in(
        &self,
        done: Subscribed,
        subscription: &str,
        cursor: &str,
        permits: u32,
    ) -> bool {
        let topic = done.seed.topic;
        let closed = self.closed_consumers.borrow_mut().remove(&done.key.0);
        let mut is_dispatched = false;
        let handle = match done.attach {
            Attach::Listen(lease) if closed => {
                self.shard.detach(topic, done.key, Some(lease));
                return false;
            }
            _ if closed => {
                self.shard.detach(topic, done.key, None);
                return false;
            }
            Attach::Listen(lease) => {
                let feed = self.shard.feeds.open(&done.seed);
                Some(feed.join(self.connection(), (ID, done.key), lease, 0, None))
            }
            Attach::Dormant => None,
            Attach::Dispatched => {
                is_dispatched = true;
                self.shard.flow(topic, done.key, permits);
                None
            }
        };
        if let Some(handle) = &handle {
            handle.flow(permits);
        }
        *self.consumes.borrow_mut() = Some(Consumes {
            topic,
            key: done.key,
            handle,
            is_dispatched,
            subscription: subscription.to_owned(),
            cursor: cursor.to_owned(),
            got: Vec::new(),
            came: Vec::new(),
            last: None,
        });
        self.shard.connections.wake(self.connection());
        true
    }

    /// All that came to it, in order.
    pub(crate) fn came(&self) -> Vec<u64> {
        let consumes = self.consumes.borrow();
        consumes
            .as_ref()
            .map_or_else(Vec::new, |consumes| consumes.came.clone())
    }

    /// Acknowledges what it got at `index`, or up to there. Returns the messages that an answer to it would speak of: none when it
    /// goes nowhere.
    pub(crate) fn ack(&self, index: usize, cumulative: bool) -> Vec<u64> {
        let mut consumes = self.consumes.borrow_mut();
        let Some(consumes) = &mut *consumes else {
            return Vec::new();
        };
        let Some((message, position)) = consumes.got.get(index).copied() else {
            return Vec::new();
        };
        let cumulative = cumulative && !consumes.is_dispatched;
        let done: Vec<_> = match cumulative {
            true => consumes
                .got
                .extract_if(.., |(_, place)| *place <= position)
                .collect(),
            false => vec![consumes.got.remove(index)],
        };
        let is_certain = consumes.handle.is_some() || consumes.is_dispatched;
        let messages: Vec<u64> = done.into_iter().map(|(message, _)| message).collect();
        {
            let mut model = self.model.borrow_mut();
            let topic = model.topic(&self.topic);
            let all = messages.iter().copied();
            topic.acknowledged(&consumes.subscription, &consumes.cursor, all, is_certain);
            if cumulative {
                topic.acknowledged_to(&consumes.subscription, &consumes.cursor, position, is_certain);
            }
        }
        tell(|| {
            let (subscription, cursor) = (&consumes.subscription, &consumes.cursor);
            format!(
                "ack {} {subscription} {cursor:?} {message} at {position} cumulative {cumulative}",
                self.topic
            )
        });
        match &consumes.handle {
            Some(handle) => {
                let ack = Ack {
                    position,
                    remaining: &[],
                };
                handle.ack(&mut std::iter::once(ack), cumulative, clock::now());
            }
            None => {
                let ack = OwnedAck {
                    position,
                    remaining: Box::default(),
                };
                self.shard
                    .ack(consumes.topic, consumes.key, vec![ack], cumulative);
            }
        }
        if is_certain { messages } else { Vec::new() }
    }

    /// Returns the number of messages received and not acknowledged.
    pub(crate) fn unacknowledged(&self) -> usize {
        let consumes = self.consumes.borrow();
        consumes.as_ref().map_or(0, |consumes| consumes.got.len())
    }

    pub(crate) fn leave(&self) {
        if let Some(consumes) = self.consumes.take() {
            let lease = consumes.handle.and_then(ConsumerHandle::leave);
            self.shard.detach(consumes.topic, consumes.key, lease);
        }
    }

    fn delivered(&self, entry: &FeedEntry) {
        let message = number_in(&entry.payload);
        let mut consumes = self.consumes.borrow_mut();
        let Some(consumes) = &mut *consumes else { return };
        if !consumes.is_dispatched {
            assert!(
                consumes.last < Some(entry.position),
                "{}: {:?} comes after {:?}",
                self.topic,
                entry.position,
                consumes.last
            );
        }
        consumes.last = Some(entry.position);
        tell(|| {
            let (subscription, cursor) = (&consumes.subscription, &consumes.cursor);
            format!(
                "comes {} {subscription} {cursor:?} {message} at {}",
                self.topic, entry.position
            )
        });
        self.model.borrow_mut().topic(&self.topic).delivered(
            &consumes.subscription,
            &consumes.cursor,
            message,
            entry.position,
        );
        consumes.got.push((message, entry.position));
        consumes.came.push(message);
    }
}

/// A message with a number, as it is stored.
fn stored(message: u64, bytes: usize) -> Bytes {
    let metadata = MessageMetadata {
        producer_name: "p".to_owned(),
        sequence_id: message,
        publish_time: clock::wall_ms(),
        partition_key: Some(format!("key-{}", message % 5)),
        ..MessageMetadata::default()
    };
    let mut payload = message.to_le_bytes().to_vec();
    payload.resize(8 + bytes, message.to_le_bytes()[0]);
    encode_entry(&metadata, &payload)
}

fn number_in(entry: &Bytes) -> u64 {
    let parts = split_ref(entry).expect("a message");
    let (number, rest) = parts.payload.split_first_chunk().expect("a number");
    assert!(
        rest.iter().all(|byte| *byte == number[0]),
        "a message is not what was sent"
    );
    u64::from_le_bytes(*number)
}

impl ConnectionHandle for Client {
    fn flush_turn(&self) -> Pumped {
        let group = {
            let consumes = self.consumes.borrow();
            let handle = consumes.as_ref().and_then(|consumes| consumes.handle.as_ref());
            handle.map(|handle| handle.group().clone())
        };
        if let Some(group) = group {
            let mut sink = Sink::default();
            group.fill(&mut sink);
            for entry in sink.delivered {
                self.delivered(&entry);
            }
        }
        Pumped::Rests
    }

    fn on_receipts(&self, receipts: &[Receipt]) {
        for receipt in receipts {
            let mut produces = self.produces.borrow_mut();
            let Some(produces) = produces.as_mut().filter(|p| p.key == receipt.producer.key) else {
                continue;
            };
            let message = receipt.sequence_id;
            let ticket = produces
                .sent
                .remove(&message)
                .expect("a receipt for what was sent");
            let this = (message, receipt.position);
            assert!(
                produces
                    .last
                    .is_none_or(|last| last.0 < this.0 && last.1 < this.1),
                "{}: receipt {this:?} comes after {:?}",
                self.topic,
                produces.last
            );
            produces.last = Some(this);
            tell(|| format!("receipt {} {this:?}", self.topic));
            let mut model = self.model.borrow_mut();
            model
                .topic(&self.topic)
                .receipt(message, ticket, receipt.position);
        }
    }

    fn on_event(&self, event: ConnectionEvent) {
        match event {
            ConnectionEvent::ConsumerClosed { key, .. } => {
                if self.attached().is_some_and(|(_, mine)| mine == key) {
                    self.leave();
                } else {
                    self.closed_consumers.borrow_mut().insert(key.0);
                }
            }
            ConnectionEvent::ProducerClosed { producer, .. } => {
                let mine = self.produces.borrow().as_ref().map(|produces| produces.key);
                if mine == Some(producer.key) {
                    self.produces.take();
                } else {
                    self.closed_producers.borrow_mut().insert(producer.key.0);
                }
            }
            ConnectionEvent::Dispatched(items) => {
                for item in items {
                    if self.attached().is_some_and(|(_, mine)| mine == item.key) {
                        self.delivered(&item.entry);
                        let (topic, key) = self.attached().expect("it is attached");
                        self.shard.written(topic, key, item.entry.payload.len() as u64);
                    }
                }
            }
            ConnectionEvent::SendFailed { sequence_id, .. } => {
                if let Some(produces) = &mut *self.produces.borrow_mut() {
                    produces.sent.remove(&sequence_id);
                }
            }
            ConnectionEvent::SendsDropped { .. }
            | ConnectionEvent::ActiveConsumer { .. }
            | ConnectionEvent::EndOfTopic { .. } => {}
        }
    }

    fn activate(&self, _: u64, key: ConsumerKey, handle: ConsumerHandle) -> Result<(), ConsumerHandle> {
        handle.flow(1000);
        match &mut *self.consumes.borrow_mut() {
            Some(consumes) if consumes.key == key => {
                consumes.handle = Some(handle);
                consumes.last = None;
            }
            _ => return Err(handle),
        }
        self.shard.connections.wake(self.connection());
        Ok(())
    }

    fn deactivate(&self, _: u64, _: ConsumerKey) -> Option<ConsumerHandle> {
        self.consumes.borrow_mut().as_mut()?.handle.take()
    }

    fn probe(&self, answer: tokio::sync::oneshot::Sender<bool>) {
        let _ = answer.send(true);
    }

    fn set_aside(&self) {}

    fn close(&self) {}

    fn shut_down(&self) {}

    fn on_tick(&self, _: Duration) {}
}

#[derive(Default)]
struct Sink {
    entry: Option<Arc<FeedEntry>>,
    delivered: Vec<Arc<FeedEntry>>,
}

impl DeliverySink for Sink {
    fn has_room(&self) -> bool {
        true
    }

    fn begin(&mut self, entry: &Arc<FeedEntry>, _: Option<u32>) {
        self.entry = Some(entry.clone());
    }

    fn message(&mut self, _: Recipient, _: &[i64]) {
        self.delivered.extend(self.entry.clone());
    }
}

/// Access modes that a producer may request.
pub(crate) const MODES: [AccessMode; 4] = [
    AccessMode::Shared,
    AccessMode::Exclusive,
    AccessMode::WaitForExclusive,
    AccessMode::ExclusiveWithFencing,
];
