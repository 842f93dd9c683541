//! Client connection: its socket, its producers and consumers, and its turns for reading and writing.
//!
//! Owned by its shard and touched by no other. Reading is a task; writing happens in turns that the shard gives
//! ([`ConnectionHandle::flush_turn`]), so that a message for a hundred thousand consumers wakes no task. Commands are
//! handled in the order of arrival; those that must wait for the topic's home run as tasks and answer when they are
//! done.
//!
//! Always true: a producer or consumer id is in its map exactly from the arrival of its command until it is closed;
//! what is in flight (sends without a receipt) is counted, and reading pauses while there is too much of it.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use tokio::sync::Notify;

use pharos_auth::Principal;
use pharos_broker::feed::{ConsumerHandle, DueGroups, Group};
use pharos_broker::ids::{ConnectionId, ConsumerKey};
use pharos_broker::shard::{ConnectionEvent, ConnectionHandle, Pumped, Receipt, Shard};
use pharos_runtime::clock;
use pharos_transport::{PeerCertificate, Place, WriteHalf};
use pharos_wire::{Command, answer, encode};

use crate::closing::Ending;
use crate::consumer::{Attached, ConsumerSlot};
use crate::credential::Credential;
use crate::dispatched::Queue;
use crate::groups::Groups;
use crate::limits::LimitHold;
use crate::list_turns::ListTurns;
use crate::outgoing::Outgoing;
use crate::producer::Producers;
use crate::read_ahead::ReadAhead;
use crate::requests::WaitingRequests;
use crate::sent_away::SentAway;
use crate::shared::Server;
use crate::stall::{Stall, Stalling};
use crate::tenant_connections::TenantConnections;

/// Unwritten answers at which reading stops: a peer that asks and does not listen must not fill our memory.
const ANSWERS_BYTES_MAX: usize = 4 << 20;

/// Number of references to a connection with no work under way: the shard's and the reading task's.
const KNOWN_TO: usize = 2;

/// The client, since CONNECT: who it is, and what it said of itself.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    /// Authenticated identity, and the method that established it.
    pub(crate) principal: Principal,
    pub(crate) protocol_version: i32,
    pub(crate) client_version: Arc<str>,
    /// Credentials that the client presented.
    pub(crate) credential: Credential,
    /// Its count against the limit of its role.
    pub(crate) _counted: Option<Arc<LimitHold>>,
}

/// A connection that lives on no shard, without its socket.
///
/// One whose client was just let in, or that is on its way to another shard; see `handover`.
pub(crate) struct Unsettled {
    pub(crate) server: Arc<Server>,
    pub(crate) address: Arc<str>,
    pub(crate) connected_since_ms: u64,
    /// The listener by whose door it came.
    pub(crate) listener: Option<Arc<str>>,
    /// The certificate that the client has shown.
    pub(crate) certificate: Option<Arc<PeerCertificate>>,
    pub(crate) peer: Peer,
}

/// A client connection.
pub(crate) struct Connection {
    pub(crate) id: ConnectionId,
    pub(crate) shard: Rc<Shard>,
    pub(crate) server: Arc<Server>,
    me: Weak<Connection>,
    /// The writing half; the reading task owns the other.
    pub(crate) stream: WriteHalf,
    pub(crate) address: Arc<str>,
    pub(crate) connected_since_ms: u64,
    /// The listener by whose door it came.
    pub(crate) listener: Option<Arc<str>>,
    /// The certificate that the client has shown, by which it may be known.
    pub(crate) certificate: Option<Arc<PeerCertificate>>,
    /// Shard and position that count the connection.
    pub(crate) place: Place,
    /// A producer, consumer or watcher came: it stays on this shard.
    is_settled: Cell<bool>,
    pub(crate) peer: RefCell<Peer>,
    pub(crate) out: RefCell<Outgoing>,
    /// The socket is full and a task waits for it.
    pub(crate) blocked: Cell<bool>,
    /// The tenants that it counts for.
    pub(crate) tenants: Rc<TenantConnections>,
    /// The topics that consumers here listen to.
    pub(crate) groups: RefCell<Groups>,
    /// The dispatch groups that may have something to write.
    pub(crate) due: Rc<DueGroups>,
    /// Entries that dispatchers chose for consumers here.
    pub(crate) dispatched: RefCell<Queue>,
    /// Stall state of the socket, and of the entries that it should have taken.
    pub(crate) stall: Stall,
    pub(crate) producers: RefCell<Producers>,
    pub(crate) consumers: RefCell<HashMap<u64, ConsumerSlot>>,
    /// Consumers that went to other brokers lately.
    pub(crate) sent_away: RefCell<SentAway>,
    pub(crate) watchers: RefCell<HashMap<u64, Rc<Notify>>>,
    /// Input that is read and not answered yet.
    pub(crate) read_ahead: ReadAhead,
    /// Requests that wait for their answer.
    pub(crate) requests_waiting: WaitingRequests,
    /// Lists of topics that it asks for.
    pub(crate) list_turns: ListTurns,
    closed: Cell<bool>,
    pub(crate) closing: Notify,
    /// Time of the last input, for keep-alive.
    pub(crate) heard_at: Cell<u64>,
    /// A PING is unanswered since then; 0 when none is.
    pub(crate) pinged_at: Cell<u64>,
    probes: RefCell<Vec<tokio::sync::oneshot::Sender<bool>>>,
}

impl Connection {
    pub(crate) fn new(
        id: ConnectionId,
        shard: Rc<Shard>,
        unsettled: Unsettled,
        stream: WriteHalf,
        place: Place,
    ) -> Rc<Self> {
        let now = clock::now().0;
        Rc::new_cyclic(|me| Self {
            id,
            read_ahead: ReadAhead::new(shard.clone()),
            shard,
            server: unsettled.server,
            me: me.clone(),
            stream,
            address: unsettled.address,
            connected_since_ms: unsettled.connected_since_ms,
            listener: unsettled.listener,
            certificate: unsettled.certificate,
            place,
            is_settled: Cell::new(false),
            peer: RefCell::new(unsettled.peer),
            out: RefCell::default(),
            blocked: Cell::new(false),
            tenants: Rc::default(),
            groups: RefCell::default(),
            due: Rc::default(),
            dispatched: RefCell::default(),
            stall: Stall::default(),
            producers: RefCell::default(),
            consumers: RefCell::default(),
            sent_away: RefCell::default(),
            watchers: RefCell::default(),
            requests_waiting: WaitingRequests::default(),
            list_turns: ListTurns::default(),
            closed: Cell::new(false),
            closing: Notify::new(),
            heard_at: Cell::new(now),
            pinged_at: Cell::new(0),
            probes: RefCell::default(),
        })
    }

    /// Returns the connection to its state before it was bound to a shard, with the writing half of its socket.
    pub(crate) fn into_unsettled(self) -> (Unsettled, WriteHalf) {
        let unsettled = Unsettled {
            server: self.server,
            address: self.address,
            connected_since_ms: self.connected_since_ms,
            listener: self.listener,
            certificate: self.certificate,
            peer: self.peer.into_inner(),
        };
        (unsettled, self.stream)
    }

    /// From now on it stays on this shard.
    pub(crate) fn settle(&self) {
        self.is_settled.set(true);
    }

    /// True if the connection may move to another shard: it has nothing here, and only its shard and its reading task
    /// refer to it.
    pub(crate) fn may_move(self: &Rc<Self>) -> bool {
        !self.is_settled.get()
            && !self.closed.get()
            && self.out.borrow().is_empty()
            && self.probes.borrow().is_empty()
            && Rc::strong_count(self) == KNOWN_TO
    }

    /// True if the consumer of that id is still the one with this key.
    pub(crate) fn consumer_is(&self, consumer_id: u64, key: ConsumerKey) -> bool {
        matches!(self.consumers.borrow().get(&consumer_id), Some(ConsumerSlot::Ready(consumer)) if consumer.key == key)
    }

    pub(crate) fn me(&self) -> Option<Rc<Self>> {
        self.me.upgrade()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// The protocol version that both sides speak.
    pub(crate) fn protocol_version(&self) -> i32 {
        self.peer.borrow().protocol_version
    }

    /// Returns the client's principal.
    pub(crate) fn principal(&self) -> Principal {
        self.peer.borrow().principal.clone()
    }

    pub(crate) fn client_version(&self) -> Arc<str> {
        self.peer.borrow().client_version.clone()
    }

    /// Queues a command; it leaves with the next turn of writing.
    pub(crate) fn send(&self, command: &Command) {
        self.out
            .borrow_mut()
            .push_with(|arena| encode::encode_command_into(command, arena));
        self.wake();
    }

    pub(crate) fn wake(&self) {
        if !self.blocked.get() {
            self.shard.connections.wake(self.id);
        }
    }

    /// True if reading must pause: too much in flight, or too many answers unread.
    pub(crate) fn is_saturated(&self) -> bool {
        self.read_ahead.is_enough()
            || self
                .requests_waiting
                .are_enough(self.server.limiter.limits.requests_per_connection)
            || self.requests_waiting.is_paced()
            || self.has_many_answers()
            || self.shard.shared.publish_budget.is_exhausted()
            || self.shard.shared.mesh_budget.is_exhausted()
    }

    /// True if the client has left so many answers unread that it should get no more.
    pub(crate) fn has_many_answers(&self) -> bool {
        self.out.borrow().queued_bytes() >= ANSWERS_BYTES_MAX
    }

    /// Something came: the peer lives.
    pub(crate) fn heard(&self) {
        self.heard_at.set(clock::now().0);
        self.pinged_at.set(0);
        if !self.probes.borrow().is_empty() {
            for probe in self.probes.borrow_mut().drain(..) {
                // The caller may have given up.
                let _ = probe.send(true);
            }
        }
    }

    /// A group joins the turns of writing.
    pub(crate) fn add_group(&self, group: &Rc<Group>) {
        if !group.is_enlisted() {
            let place = self.groups.borrow_mut().add(group.clone());
            group.enlist(&self.due, place);
        }
    }

    pub(crate) fn close_after_writing(&self) {
        // One try: what the socket does not take now is lost with the connection, as with any close.
        let _ = self.write_turn();
        self.close();
    }

    /// Everything that a client would see closed is closed: called once, by the reading task, when it ends.
    pub(crate) fn clean_up(&self) {
        self.closed.set(true);
        self.closing.notify_one();
        self.shard.connections.unregister(self.id);
        let producers = std::mem::take(&mut *self.producers.borrow_mut());
        for (topic, key) in producers.ready() {
            self.shard.close_producer(topic, key);
        }
        let consumers = std::mem::take(&mut *self.consumers.borrow_mut());
        for consumer in consumers.into_values() {
            if let ConsumerSlot::Ready(consumer) = consumer {
                Ending(self).detach(consumer);
            }
        }
        for watcher in self.watchers.borrow_mut().drain() {
            watcher.1.notify_one();
        }
        self.groups.borrow_mut().clear();
        self.dispatched.borrow_mut().clear();
        self.out.take();
        Stalling(self).forget();
        self.read_ahead.clear();
        for probe in self.probes.borrow_mut().drain(..) {
            let _ = probe.send(false);
        }
    }
}

impl ConnectionHandle for Connection {
    fn flush_turn(&self) -> Pumped {
        if self.closed.get() || self.blocked.get() {
            return Pumped::Rests;
        }
        self.write_turn()
    }

    fn on_receipts(&self, receipts: &[Receipt]) {
        let mut refused_here = 0;
        {
            let mut out = self.out.borrow_mut();
            let mut producers = self.producers.borrow_mut();
            for receipt in receipts {
                let Some(producer) = producers.answered(receipt.producer) else {
                    continue;
                };
                let producer_id = receipt.producer.id;
                out.push_with(|arena| {
                    encode::send_receipt_into(
                        producer_id,
                        receipt.sequence_id,
                        receipt.highest_sequence_id,
                        receipt.position.ledger.0,
                        receipt.position.entry.0,
                        arena,
                    );
                });
                while let Some(refused) = producer.take_refused() {
                    let error = refused.answer(producer_id);
                    out.push_with(|arena| encode::encode_command_into(&error, arena));
                    refused_here += 1;
                }
            }
        }
        for _ in 0..refused_here {
            self.read_ahead.ended(0);
        }
        for receipt in receipts {
            self.read_ahead.ended(receipt.bytes);
            Ending(self).finish_close(receipt.producer.id);
        }
        self.wake();
    }

    fn on_event(&self, event: ConnectionEvent) {
        match event {
            ConnectionEvent::SendFailed {
                producer,
                sequence_id,
                bytes,
                error,
            } => {
                self.read_ahead.ended(bytes);
                let producer_id = producer.id;
                let known = self.producers.borrow_mut().answered(producer).is_some();
                if known {
                    let refusal = crate::refusal::of_publish(&error);
                    self.send(&answer::send_error(producer_id, sequence_id, refusal));
                    Ending(self).answer_refused(producer_id);
                    Ending(self).finish_close(producer_id);
                }
            }
            ConnectionEvent::SendsDropped { sends, bytes } => self.read_ahead.all_ended(sends, bytes),
            ConnectionEvent::ProducerClosed { producer, next } => {
                Ending(self).producer_closed(producer, next.as_deref());
            }
            ConnectionEvent::ConsumerClosed {
                consumer_id,
                key,
                next,
            } => Ending(self).consumer_closed(consumer_id, key, next.as_deref()),
            ConnectionEvent::ActiveConsumer {
                consumer_id,
                key,
                active,
            } => {
                if self.consumer_is(consumer_id, key) && self.protocol_version() >= 12 {
                    self.send(&answer::active_consumer_change(consumer_id, active));
                }
            }
            ConnectionEvent::EndOfTopic { consumer_id } => {
                if self.protocol_version() >= 9 {
                    self.send(&answer::reached_end_of_topic(consumer_id));
                }
            }
            ConnectionEvent::Dispatched(items) => {
                self.dispatched.borrow_mut().extend(items);
                Stalling(self).note();
                self.wake();
            }
        }
    }

    fn activate(
        &self,
        consumer_id: u64,
        key: ConsumerKey,
        handle: ConsumerHandle,
    ) -> Result<(), ConsumerHandle> {
        let mut consumers = self.consumers.borrow_mut();
        let Some(ConsumerSlot::Ready(consumer)) = consumers.get_mut(&consumer_id) else {
            return Err(handle);
        };
        if consumer.key != key {
            return Err(handle);
        }
        let Attached::Dormant { permits } = consumer.attached else {
            return Err(handle);
        };
        // The epoch may have risen while another consumer was the active one: its messages must not look older than it is.
        handle.set_epoch(consumer.epoch.get());
        self.add_group(handle.group());
        handle.flow(permits);
        consumer.attached = Attached::Listening(handle);
        drop(consumers);
        self.wake();
        Ok(())
    }

    fn deactivate(&self, consumer_id: u64, key: ConsumerKey) -> Option<ConsumerHandle> {
        Stalling(self).before_a_consumer_goes();
        let mut consumers = self.consumers.borrow_mut();
        let Some(ConsumerSlot::Ready(consumer)) = consumers.get_mut(&consumer_id) else {
            return None;
        };
        if consumer.key != key {
            return None;
        }
        let permits = match &consumer.attached {
            Attached::Listening(handle) => {
                let left = handle.with(|consumer| consumer.permits).unwrap_or(0);
                u32::try_from(left.max(0)).unwrap_or(u32::MAX)
            }
            _ => return None,
        };
        match std::mem::replace(&mut consumer.attached, Attached::Dormant { permits }) {
            Attached::Listening(handle) => Some(handle),
            _ => None,
        }
    }

    fn probe(&self, answer: tokio::sync::oneshot::Sender<bool>) {
        if self.closed.get() {
            let _ = answer.send(false);
            return;
        }
        self.probes.borrow_mut().push(answer);
        self.send(&answer::ping());
    }

    fn set_aside(&self) {
        Stalling(self).set_aside();
    }

    fn close(&self) {
        self.closed.set(true);
        self.closing.notify_one();
    }

    fn on_tick(&self, interval: std::time::Duration) {
        self.check_credential();
        let interval = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
        let now = clock::now().0;
        let pinged_at = self.pinged_at.get();
        if pinged_at != 0 {
            // While we do not read, silence is our own doing.
            if now.saturating_sub(pinged_at) >= interval && !self.is_saturated() {
                if let Some(untold) = self.server.peer_log.enter() {
                    tracing::info!(peer = %self.address, untold, "closing a connection that does not answer");
                }
                self.close();
            }
            return;
        }
        if now.saturating_sub(self.heard_at.get()) < interval {
            return;
        }
        self.pinged_at.set(now);
        if self.protocol_version() >= 1 {
            self.send(&answer::ping());
        }
    }

    fn shut_down(&self) {
        // Clients of version 5 and later are told of each producer and consumer, so that they look the topic up again.
        if self.protocol_version() >= 5 {
            for id in self.producers.borrow().ids() {
                self.send(&answer::close_producer(id, answer::BrokerUrls::default()));
            }
            let ids: Vec<u64> = self.consumers.borrow().keys().copied().collect();
            for id in ids {
                self.send(&answer::close_consumer(id, answer::BrokerUrls::default()));
            }
        }
        self.close_after_writing();
    }
}
