//! The feeds of a shard: what it has of the topics that its stream consumers listen to, whatever shard is these topics' home.
//!
//! Owned here with what all feeds share: the accounts of what they hold, which of them have something to tell their topic's home
//! (`flush`), and who waits for room to read (`feed_reads`).

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::time::Duration;

use pharos_feed::ids::{ConnectionId, ConsumerKey, IdMap, IdSet, TopicId};
use pharos_feed::{CatchUpReadBudget, ConsumerHandle, Feed, FeedHost, FeedSeed, FeedStages, Newest};
use pharos_managed_ledger::cursor::AckState;
use pharos_mesh::{ConnectionEvent, FeedMessage, HomeMessage, ShardContext};
use pharos_runtime::{clock, spawn_local};
use pharos_types::Ordinal;

use super::connections::Connections;
use super::feed_reads::Reads;

/// The least that a shard may have at hand of the newest entries, in bytes: what is delivered as it comes.
const NEWEST_BYTES_MIN: usize = 1 << 20;

/// The feeds of a shard.
pub struct Feeds {
    pub(super) cx: Rc<ShardContext>,
    pub(super) connections: Rc<Connections>,
    /// Itself, for tasks that outlive a borrow.
    pub(super) me: Weak<Feeds>,
    by_topic: RefCell<IdMap<TopicId, Rc<Feed>>>,
    /// Feeds with progress to send to their topic's home.
    pub(super) dirty: RefCell<IdSet<TopicId>>,
    /// Memory budget of entries that feeds read back.
    budget: Rc<CatchUpReadBudget>,
    /// Newest entries that feeds keep in memory.
    newest: Rc<Newest>,
    pub(super) reads: Reads,
    /// Stages of feeds that are gone, so that the shard's sum only grows.
    past_stages: RefCell<FeedStages>,
}

impl Feeds {
    pub(super) fn new(cx: Rc<ShardContext>, connections: Rc<Connections>) -> Rc<Self> {
        let options = &cx.shared.options;
        let shards = usize::from(options.shards.max(1));
        let budget_bytes_max = options.catch_up_read_cache_bytes / shards;
        let newest_bytes_max = (options.newest_cache_bytes / shards).max(NEWEST_BYTES_MIN);
        Rc::new_cyclic(|me| Self {
            cx,
            connections,
            me: me.clone(),
            by_topic: RefCell::default(),
            dirty: RefCell::default(),
            budget: Rc::new(CatchUpReadBudget::new(budget_bytes_max)),
            newest: Rc::new(Newest::new(newest_bytes_max)),
            reads: Reads::default(),
            past_stages: RefCell::default(),
        })
    }

    /// The feed of a topic, made when this is the first stream consumer here.
    #[must_use]
    pub fn open(&self, seed: &FeedSeed) -> Rc<Feed> {
        let mut feeds = self.by_topic.borrow_mut();
        if let Some(feed) = feeds.get(&seed.topic) {
            feed.refresh(seed);
            return feed.clone();
        }
        let host: Rc<dyn FeedHost> = Rc::new(HostOf(self.me.clone()));
        let feed = Feed::new(seed.clone(), host, self.budget.clone(), self.newest.clone());
        feeds.insert(seed.topic, feed.clone());
        feed
    }

    /// The account of what was read back.
    pub(crate) fn budget(&self) -> &Rc<CatchUpReadBudget> {
        &self.budget
    }

    /// The account of the newest entries at hand.
    pub(crate) fn newest(&self) -> &Newest {
        &self.newest
    }

    /// Every feed here.
    pub(crate) fn all(&self) -> Vec<Rc<Feed>> {
        self.by_topic.borrow().values().cloned().collect()
    }

    /// Stages of feeds that are gone.
    pub(crate) fn past_stages(&self) -> FeedStages {
        self.past_stages.borrow().clone()
    }

    pub(crate) fn get(&self, topic: TopicId) -> Option<Rc<Feed>> {
        self.by_topic.borrow().get(&topic).cloned()
    }

    /// Looks at what a stream consumer here has acknowledged; its home may not have heard of it yet. `None`: it is not here.
    pub(super) fn look_at_acks<R>(
        &self,
        topic: TopicId,
        (connection, key): (ConnectionId, ConsumerKey),
        look: impl FnOnce(&AckState) -> R,
    ) -> Option<R> {
        self.get(topic)?.look_at_acks(connection, key, look)
    }

    /// Handles one message from a topic's home.
    pub(super) fn on_message(&self, topic: TopicId, message: FeedMessage) {
        let feed = match &message {
            FeedMessage::Open { seed } | FeedMessage::Activate { seed, .. } => Some(self.open(seed)),
            _ => self.get(topic),
        };
        let Some(feed) = feed else { return };
        match message {
            FeedMessage::Open { .. } => {}
            FeedMessage::Activate {
                connection,
                consumer_id,
                key,
                handoff,
                seed: _,
            } => {
                let handle = feed.join(connection, (consumer_id, key), handoff, 0, None);
                let refused = match self.connections.get(connection) {
                    Some(connection) => connection.activate(consumer_id, key, handle).err(),
                    None => Some(handle),
                };
                self.give_back(topic, key, refused);
            }
            FeedMessage::Appended { entries, table } => {
                if let Some(table) = table {
                    feed.set_table(table);
                }
                feed.on_appended(entries);
                self.forget_oldest();
            }
            FeedMessage::Readable { end, table } => {
                if let Some(table) = table {
                    feed.set_table(table);
                }
                feed.on_readable(end);
            }
            FeedMessage::Withhold {
                connection,
                key,
                before,
                entries,
            } => feed.withhold(connection, key, before, &entries),
            FeedMessage::Release {
                connection,
                key,
                withheld,
                again,
            } => feed.release(connection, key, withheld, again),
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
                let connection = self.connections.get(connection);
                let handle = connection.and_then(|handle| handle.deactivate(consumer_id, key));
                // No handle: the consumer is leaving by itself and its cursor is on its way home already.
                self.give_back(topic, key, handle);
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
            FeedMessage::Compacted => feed.on_compacted(),
            FeedMessage::Terminated => feed.on_terminated(),
            FeedMessage::Close => {
                if feed.is_empty() {
                    self.past_stages.borrow_mut().merge(&feed.stages());
                    self.by_topic.borrow_mut().remove(&topic);
                }
            }
        }
    }

    /// Sends the cursor of a stream consumer that stays attached home, if it has it.
    fn give_back(&self, topic: TopicId, key: ConsumerKey, handle: Option<ConsumerHandle>) {
        if let Some(handoff) = handle.and_then(ConsumerHandle::leave) {
            self.cx.send_home(topic, HomeMessage::Returned { key, handoff });
        }
    }

    /// Lets go of the oldest of the newest entries that feeds have at hand, as far as it is time.
    pub(super) fn forget_oldest(&self) {
        while let Some((until, topics)) = self.newest.take_due(clock::now()) {
            for topic in topics {
                if let Some(feed) = self.get(topic) {
                    feed.forget_until(until);
                }
            }
        }
    }
}

/// Link from a feed to its shard that does not keep the shard alive.
struct HostOf(Weak<Feeds>);

impl FeedHost for HostOf {
    fn read(&self, topic: TopicId, from: Ordinal, entries_max: usize, bytes_max: usize) {
        if let Some(feeds) = self.0.upgrade() {
            let read = HomeMessage::Read {
                shard: feeds.cx.id,
                feed: topic,
                from,
                entries_max,
                bytes_max,
            };
            feeds.cx.send_home(topic, read);
            // The device works while this shard delivers.
            feeds.cx.mesh.hurry(topic.home);
        }
    }

    fn read_waits(&self) {
        if let Some(feeds) = self.0.upgrade() {
            feeds.relieve_reads();
        }
    }

    fn read_room(&self) {
        if let Some(feeds) = self.0.upgrade() {
            feeds.grant_reads_soon();
        }
    }

    fn read_later(&self, topic: TopicId, from: Ordinal, delay: Duration) {
        if let Some(feeds) = self.0.upgrade() {
            feeds.read_later(topic, from, delay);
        }
    }

    fn resume_later(&self, topic: TopicId, connection: ConnectionId, delay: Duration) {
        let me = self.0.clone();
        spawn_local(async move {
            tokio::time::sleep(delay).await;
            if let Some(feed) = me.upgrade().and_then(|feeds| feeds.get(topic)) {
                feed.resume(connection);
            }
        });
    }

    fn wake(&self, connection: ConnectionId) {
        if let Some(feeds) = self.0.upgrade() {
            feeds.connections.wake(connection);
        }
    }

    fn dirty(&self, topic: TopicId) {
        if let Some(feeds) = self.0.upgrade() {
            feeds.dirty.borrow_mut().insert(topic);
        }
    }

    fn end_of_topic(&self, connection: ConnectionId, consumer_id: u64) {
        if let Some(feeds) = self.0.upgrade() {
            let event = ConnectionEvent::EndOfTopic { consumer_id };
            feeds.cx.tell_connection(connection, event);
        }
    }
}
