//! A shard: one thread with its connections, the feeds that they listen to, and the topics whose home it is.
//!
//! Everything here is plain memory of that thread. Other shards reach it through [`Message`]s only, which one loop
//! handles to the end one after the other; nothing in a handler waits. What must wait (loading a topic, reading
//! from a device) is spawned as a task of the shard and comes back to the same state when it is done.

mod caller;
mod connection_handle;
mod connection_handles;
mod inbox;
mod mesh;
mod message;
mod operations;
mod reads;
mod rounds;
mod stalled;
mod tally;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use pharos_runtime::{ShutdownToken, clock, spawn_local};
use pharos_types::{Ordinal, TopicName};
use tokio::sync::{Notify, mpsc, oneshot};

pub use caller::{AddSchemaError, Caller, Consume, ConsumeError, Produce, ProduceError, Refused};
pub use connection_handle::{ConnectionEvent, ConnectionHandle, Dispatched, ProducerRef, Pumped, Receipt};
pub(crate) use mesh::{INBOX_BATCHES, MESH_BYTES_MAX};
pub use message::Publish;
pub(crate) use message::{FeedMessage, HomeMessage, Job, Message};
pub use stalled::{ReadAgain, ReadAgainError};
pub use tally::{Counts, Tally};

use crate::broker::Shared;
use crate::error::Gone;
use crate::feed::{CatchUpReadBudget, Feed, FeedHost, FeedSeed, FeedStages, Newest};
use crate::ids::{ConnectionId, IdMap, IdSet, ShardId, TopicId};
use crate::placement::Placed;
use crate::topic::{Maintenance, Topic, Topics};
use connection_handles::ConnectionHandles;
use mesh::Mesh;
use reads::Reads;
use stalled::Stalled;

/// How long connections are pumped, at least, before the shard looks at its sockets and inbox again.
const TURN_NANOS_MIN: u64 = 300_000;
/// The same, at most.
const TURN_NANOS_MAX: u64 = 2_000_000;

/// The least that a shard may have at hand of the newest entries, in bytes: what is delivered as it comes.
const NEWEST_BYTES_MIN: usize = 1 << 20;

/// One shard of the broker. Lives on its thread.
pub struct Shard {
    /// Which one.
    pub id: ShardId,
    /// What all shards share.
    pub shared: Arc<Shared>,
    mesh: Mesh,
    /// Itself, for tasks that outlive a borrow.
    me: std::rc::Weak<Shard>,
    next_number: Cell<u64>,
    pub(crate) topics: Topics,
    feeds: RefCell<IdMap<TopicId, Rc<Feed>>>,
    dirty_feeds: RefCell<IdSet<TopicId>>,
    /// What feeds hold of what was read back.
    backlog: Rc<CatchUpReadBudget>,
    /// What feeds have at hand of the newest entries.
    newest: Rc<Newest>,
    reads: Reads,
    /// Connections that take nothing of what they hold.
    stalled: Stalled,
    connection_handles: RefCell<ConnectionHandles>,
    ready_filled: Notify,
    /// Stages of feeds that are gone, so that the shard's sum only grows.
    past_stages: RefCell<FeedStages>,
    tally: Tally,
}

/// The receiving end of a shard, made before its thread starts.
pub(crate) type Inbox = mpsc::Receiver<Vec<Message>>;

impl Shard {
    /// Makes the shard on the current thread and starts its loops; they end with the thread's runtime.
    pub(crate) fn start(
        id: ShardId,
        shared: Arc<Shared>,
        inboxes: &[mpsc::Sender<Vec<Message>>],
        inbox: Inbox,
    ) -> Rc<Self> {
        let options = &shared.options;
        let shards = usize::from(options.shards.max(1));
        let backlog_bytes_max = options.catch_up_read_cache_bytes / shards;
        let newest_bytes_max = (options.newest_cache_bytes / shards).max(NEWEST_BYTES_MIN);
        let shard = Rc::new_cyclic(|me| Self {
            id,
            shared,
            mesh: Mesh::start(id, inboxes),
            me: me.clone(),
            next_number: Cell::new(1),
            topics: Topics::default(),
            feeds: RefCell::default(),
            dirty_feeds: RefCell::default(),
            backlog: Rc::new(CatchUpReadBudget::new(backlog_bytes_max)),
            newest: Rc::new(Newest::new(newest_bytes_max)),
            reads: Reads::default(),
            stalled: Stalled::default(),
            connection_handles: RefCell::default(),
            ready_filled: Notify::new(),
            past_stages: RefCell::default(),
            tally: Tally::default(),
        });
        spawn_local(shard.clone().run_inbox(inbox));
        spawn_local(shard.clone().run_pumps());
        spawn_local(shard.clone().run_flush());
        spawn_local(shard.clone().run_forget());
        for what in Maintenance::ALL {
            spawn_local(shard.clone().run_maintenance(what));
        }
        spawn_local(shard.clone().run_policies());
        spawn_local(shard.clone().run_unfinished());
        spawn_local(shard.clone().run_losses());
        spawn_local(shard.clone().run_samples());
        if id == ShardId(0) {
            spawn_local(shard.clone().run_sweeps());
            spawn_local(shard.clone().run_catalog());
        }
        shard
    }

    /// Whether this is the shard that serves a topic.
    pub(crate) fn is_home_of(&self, topic: &TopicName) -> bool {
        self.shared.placement.of(topic) == Placed::Here(self.id)
    }

    /// A number that is unique on this shard.
    pub(crate) fn number(&self) -> u64 {
        let number = self.next_number.get();
        self.next_number.set(number + 1);
        number
    }

    /// A number that is unique in the process.
    pub(crate) fn global_number(&self) -> u64 {
        (u64::from(self.id.0) << 48) | self.number()
    }

    pub(crate) fn send(&self, to: ShardId, message: Message) {
        self.shared.mesh_budget.take(message.bytes());
        self.mesh.send(to, message);
    }

    pub(crate) fn send_home(&self, topic: TopicId, message: HomeMessage) {
        self.send(topic.home, Message::Home(topic, message));
    }

    pub(crate) fn tell_connection(&self, connection: ConnectionId, event: ConnectionEvent) {
        self.send(connection.shard, Message::Connection(connection, event));
    }

    /// Runs something on another shard soon. It is dropped when that shard stops first.
    pub fn run_on(&self, to: ShardId, work: impl FnOnce(&Rc<Shard>) + Send + 'static) {
        self.send(to, Message::Job(Box::new(work)));
    }

    /// Runs a piece of asynchronous work on another shard and waits for its result.
    ///
    /// # Errors
    /// [`Gone`] when that shard stopped or the work was dropped.
    ///
    /// Cancel safety: dropping the future does not stop work that was sent.
    pub(crate) async fn call<R, F, W>(&self, to: ShardId, work: W) -> Result<R, Gone>
    where
        R: Send + 'static,
        W: FnOnce(Rc<Shard>) -> F + Send + 'static,
        F: Future<Output = R> + 'static,
    {
        let (answer, result) = oneshot::channel();
        self.send(to, Message::Job(job(work, answer)));
        result.await.map_err(|_| Gone)
    }

    // ---- connections -------------------------------------------------------------------------------------------

    /// Takes a connection in.
    #[must_use]
    pub fn register(&self, make: impl FnOnce(ConnectionId) -> Rc<dyn ConnectionHandle>) -> ConnectionId {
        let shard = self.id;
        let number = self
            .connection_handles
            .borrow_mut()
            .insert(|number| make(ConnectionId { shard, number }));
        ConnectionId { shard, number }
    }

    /// Takes a connection in that another shard let go with [`Self::unregister_moved`].
    pub fn register_moved(&self, make: impl FnOnce(ConnectionId) -> Rc<dyn ConnectionHandle>) {
        let shard = self.id;
        let mut connection_handles = self.connection_handles.borrow_mut();
        let _ = connection_handles.insert_moved(|number| make(ConnectionId { shard, number }));
    }

    /// Lets a connection go.
    pub fn unregister(&self, connection: ConnectionId) {
        self.connection_handles.borrow_mut().remove(connection.number);
    }

    /// Lets a connection go that is handed on to another shard.
    pub fn unregister_moved(&self, connection: ConnectionId) {
        self.connection_handles
            .borrow_mut()
            .remove_moved(connection.number);
    }

    /// Where connections, lookups and loads are counted.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// How many connections were taken in so far, and of these let go.
    pub(crate) fn connection_counts(&self) -> (u64, u64) {
        self.connection_handles.borrow().counts()
    }

    /// A connection that was let go to be handed on is gone.
    pub fn lose_moved(&self) {
        self.connection_handles.borrow_mut().lose_moved();
    }

    /// How many connections live here.
    pub(crate) fn connections_here(&self) -> u64 {
        self.connection_handles.borrow().len() as u64
    }

    /// All connections, for the periodic sweep of a front door.
    #[must_use]
    pub fn connection_handles(&self) -> Vec<Rc<dyn ConnectionHandle>> {
        self.connection_handles.borrow().all().cloned().collect()
    }

    fn connection_handle(&self, connection: ConnectionId) -> Option<Rc<dyn ConnectionHandle>> {
        debug_assert_eq!(connection.shard, self.id);
        self.connection_handles.borrow().get(connection.number).cloned()
    }

    /// Gives a connection a turn of writing soon.
    pub fn wake_connection(&self, connection: ConnectionId) {
        if self.connection_handles.borrow_mut().make_ready(connection.number) {
            self.ready_filled.notify_one();
        }
    }

    /// Gives turns of writing. While there are more to give, all else on this shard has its time in between, and then
    /// writing gets as long again: what comes in must not starve what goes out, nor the other way round.
    async fn run_pumps(self: Rc<Self>) {
        let mut turn = TURN_NANOS_MIN;
        loop {
            let began = clock::now();
            while self.pump_next() && clock::now().since(began) < turn {}
            if self.connection_handles.borrow().has_ready() {
                let paused = clock::now();
                tokio::task::yield_now().await;
                turn = clock::now().since(paused).clamp(TURN_NANOS_MIN, TURN_NANOS_MAX);
            } else {
                self.ready_filled.notified().await;
                turn = TURN_NANOS_MIN;
            }
        }
    }

    /// Gives one connection its turn; false when none wants one.
    fn pump_next(&self) -> bool {
        let next = self.connection_handles.borrow_mut().take_ready();
        let Some((number, handle)) = next else {
            return false;
        };
        if handle.flush_turn() == Pumped::More {
            self.connection_handles.borrow_mut().make_ready(number);
        }
        true
    }

    // ---- feeds -------------------------------------------------------------------------------------------------

    /// The feed of a topic, made when this is the first stream consumer here.
    #[must_use]
    pub fn feed(&self, seed: &FeedSeed) -> Rc<Feed> {
        let mut feeds = self.feeds.borrow_mut();
        if let Some(feed) = feeds.get(&seed.topic) {
            feed.refresh(seed);
            return feed.clone();
        }
        let host: Rc<dyn FeedHost> = Rc::new(HostOf(self.me.clone()));
        let feed = Feed::new(seed.clone(), host, self.backlog.clone(), self.newest.clone());
        feeds.insert(seed.topic, feed.clone());
        feed
    }

    /// The account of what was read back.
    pub(crate) fn backlog(&self) -> &CatchUpReadBudget {
        &self.backlog
    }

    /// The account of the newest entries at hand.
    pub(crate) fn newest(&self) -> &Newest {
        &self.newest
    }

    /// Every feed here.
    pub(crate) fn all_feeds(&self) -> Vec<Rc<Feed>> {
        self.feeds.borrow().values().cloned().collect()
    }

    /// Stages of feeds that are gone.
    pub(crate) fn past_stages(&self) -> FeedStages {
        self.past_stages.borrow().clone()
    }

    pub(crate) fn feed_by_id(&self, topic: TopicId) -> Option<Rc<Feed>> {
        self.feeds.borrow().get(&topic).cloned()
    }

    fn on_feed(self: &Rc<Self>, topic: TopicId, message: FeedMessage) {
        if let FeedMessage::Activate {
            connection,
            consumer_id,
            key,
            lease,
            seed,
        } = message
        {
            let feed = self.feed(&seed);
            let handle = feed.join(connection, (consumer_id, key), lease, 0, None);
            let refused = match self.connection_handle(connection) {
                Some(connection) => connection.activate(consumer_id, key, handle).err(),
                None => Some(handle),
            };
            if let Some(lease) = refused.and_then(crate::feed::ConsumerHandle::leave) {
                self.send_home(topic, HomeMessage::Returned { key, lease });
            }
            return;
        }
        if let FeedMessage::Open { seed } = &message {
            let _ = self.feed(seed);
            return;
        }
        let Some(feed) = self.feed_by_id(topic) else {
            return;
        };
        match message {
            FeedMessage::Appended { entries, table } => {
                if let Some(table) = table {
                    feed.set_table(table);
                }
                feed.on_appended(entries);
                self.forget_oldest();
            }
            FeedMessage::ReadDone {
                from,
                resume,
                entries,
                table,
            } => {
                feed.set_table(table);
                feed.on_read(from, resume, entries);
            }
            FeedMessage::ReadFailed { from } => feed.on_read_failed(from),
            FeedMessage::Deactivate {
                connection,
                consumer_id,
                key,
            } => {
                let handle = self
                    .connection_handle(connection)
                    .and_then(|handle| handle.deactivate(consumer_id, key));
                // No handle: the consumer is leaving by itself and its cursor is on its way home already.
                if let Some(lease) = handle.and_then(crate::feed::ConsumerHandle::leave) {
                    self.send_home(topic, HomeMessage::Returned { key, lease });
                }
            }
            FeedMessage::SkipTo { connection, key, to } => feed.skip_consumer(connection, key, to),
            FeedMessage::Ack {
                connection,
                key,
                acks,
                cumulative,
            } => {
                feed.ack_consumer(connection, key, &acks, cumulative);
            }
            FeedMessage::Terminated => feed.on_terminated(),
            FeedMessage::Close => {
                if feed.is_empty() {
                    self.past_stages.borrow_mut().merge(&feed.stages());
                    self.feeds.borrow_mut().remove(&topic);
                }
            }
            FeedMessage::Open { .. } | FeedMessage::Activate { .. } => {}
        }
    }

    /// Tells every peer that the broker stops, and closes its connection.
    pub(crate) fn shut_down_connections(&self) {
        for handle in self.connection_handles() {
            handle.shut_down();
        }
    }

    /// Asks whether the peer of a connection here still answers; closes the connection when it does not.
    pub(crate) async fn probe(&self, connection: ConnectionId) -> bool {
        let Some(handle) = self.connection_handle(connection) else {
            return false;
        };
        let (sender, receiver) = oneshot::channel();
        handle.probe(sender);
        let timeout = self.shared.options.liveness_timeout;
        let alive = matches!(tokio::time::timeout(timeout, receiver).await, Ok(Ok(true)));
        if !alive {
            handle.close();
        }
        alive
    }

    pub(crate) fn shared_shard_count(&self) -> usize {
        self.mesh.shard_count()
    }

    /// The token that says when to stop.
    #[must_use]
    pub fn shutdown_token(&self) -> ShutdownToken {
        self.shared.shutdown.clone()
    }

    /// A loaded topic by name, if this is its home.
    pub(crate) fn loaded(&self, name: &TopicName) -> Option<Rc<Topic>> {
        self.topics.by_name(name)
    }
}

/// Wraps asynchronous work into a message that any shard can run.
pub(crate) fn job<R, F, W>(work: W, answer: oneshot::Sender<R>) -> Job
where
    R: Send + 'static,
    W: FnOnce(Rc<Shard>) -> F + Send + 'static,
    F: Future<Output = R> + 'static,
{
    Box::new(move |shard: &Rc<Shard>| {
        let future = work(shard.clone());
        spawn_local(async move {
            // The caller waits for the answer no more: the work is done all the same.
            let _ = answer.send(future.await);
        });
    })
}

/// What a feed asks of its shard, without keeping the shard alive.
struct HostOf(std::rc::Weak<Shard>);

impl FeedHost for HostOf {
    fn read(&self, topic: TopicId, from: Ordinal, entries_max: usize, bytes_max: usize) {
        if let Some(shard) = self.0.upgrade() {
            let read = HomeMessage::Read {
                shard: shard.id,
                from,
                entries_max,
                bytes_max,
            };
            shard.send_home(topic, read);
            // The device works while this shard delivers.
            shard.mesh.hurry(topic.home);
        }
    }

    fn read_waits(&self) {
        if let Some(shard) = self.0.upgrade() {
            shard.relieve_reads();
        }
    }

    fn read_room(&self) {
        if let Some(shard) = self.0.upgrade() {
            shard.grant_reads_soon();
        }
    }

    fn read_later(&self, topic: TopicId, from: Ordinal, delay: Duration) {
        if let Some(shard) = self.0.upgrade() {
            shard.read_later(topic, from, delay);
        }
    }

    fn wake(&self, connection: ConnectionId) {
        if let Some(shard) = self.0.upgrade() {
            shard.wake_connection(connection);
        }
    }

    fn dirty(&self, topic: TopicId) {
        if let Some(shard) = self.0.upgrade() {
            shard.dirty_feeds.borrow_mut().insert(topic);
        }
    }

    fn end_of_topic(&self, connection: ConnectionId, consumer_id: u64) {
        if let Some(shard) = self.0.upgrade() {
            shard.tell_connection(connection, ConnectionEvent::EndOfTopic { consumer_id });
        }
    }
}
