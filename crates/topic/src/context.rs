//! Identity and environment of a topic that each of its parts needs, and its access to the shard.

use std::rc::{Rc, Weak};
use std::sync::Arc;

use pharos_accounts::unwritten::Unwritten;
use pharos_cluster::BrokerAddresses;
use pharos_feed::Room;
use pharos_feed::entry::{EntryCodec, FeedEntry};
use pharos_feed::ids::{ConnectionId, ConsumerKey, ShardId, TopicId};
use pharos_managed_ledger::cursor::AckState;
use pharos_managed_ledger::{Entry, ReadError};
use pharos_mesh::{Ask, ConnectionEvent, FeedMessage, Message, Options, ProducerRef, Publish, ShardContext};
use pharos_requests::error::PublishError;
use pharos_types::{Domain, TopicName};

use super::Topic;
use super::host::TopicHost;
use super::subscription::HandedOver;
use super::transactions::TopicTransactions;

/// Identity of a topic, and its location. Only `transactions` changes; it is consulted for each entry that is read.
pub(crate) struct TopicContext {
    pub(crate) id: TopicId,
    pub(crate) name: TopicName,
    /// Reads its entries.
    pub(crate) codec: &'static dyn EntryCodec,
    /// Transactions that are open here, and those that were aborted.
    pub(super) transactions: TopicTransactions,
    /// The shard that it lives on, and the way to others.
    pub(super) shard: Rc<ShardContext>,
    /// Host of the topic.
    pub(super) host: Rc<dyn TopicHost>,
    /// The topic, for tasks that come back to it.
    pub(super) me: Weak<Topic>,
}

impl TopicContext {
    /// Settings.
    pub(super) fn options(&self) -> &Options {
        &self.shard.shared.options
    }

    /// The account of what dispatchers have handed out and sockets have not taken.
    pub(super) fn unwritten(&self) -> &Arc<Unwritten> {
        &self.shard.shared.unwritten
    }

    /// Returns the broker at which clients find the topic when it is closed here, if known.
    pub(super) fn next_owner(&self) -> Option<Arc<BrokerAddresses>> {
        self.shard.shared.placement.next_of(&self.name)
    }

    /// The topic, for a task that comes back to it.
    pub(super) fn me(&self) -> Option<Rc<Topic>> {
        self.me.upgrade()
    }

    /// An entry of its log, to be delivered.
    pub(super) fn feed_entry(&self, entry: Entry) -> Arc<FeedEntry> {
        let mut facts = self.codec.facts(&entry.payload);
        // What was aborted is passed over as a marker is.
        facts.is_marker |= facts.is_transactional && self.transactions.hides(self.codec, &entry.payload);
        FeedEntry::from_log(entry, facts)
    }

    pub(super) fn send(&self, to: ShardId, message: Message) {
        self.shard.send(to, message);
    }

    /// `feed`: the topic as the shard knows it, see [`feed_of`](Self::feed_of).
    pub(super) fn send_feed(&self, feed: TopicId, to: ShardId, message: FeedMessage) {
        self.send(to, Message::Feed(feed, message));
    }

    /// Returns the feed id of consumers that read compacted, or that of others.
    pub(super) fn feed_of(&self, is_compacted: bool) -> TopicId {
        match is_compacted && !self.is_non_persistent() {
            true => self.id.compacted(),
            false => self.id,
        }
    }

    pub(super) fn tell_connection(&self, connection: ConnectionId, event: ConnectionEvent) {
        self.shard.tell_connection(connection, event);
    }

    /// Says why a send failed.
    pub(super) fn send_failed(
        &self,
        producer: (ConnectionId, ProducerRef),
        sequence: u64,
        highest: u64,
        bytes: usize,
        error: PublishError,
    ) {
        let event = ConnectionEvent::SendFailed {
            producer: producer.1,
            sequence_id: sequence.max(highest),
            bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
            error,
        };
        self.tell_connection(producer.0, event);
    }

    /// Says why an entry was not taken.
    pub(super) fn refuse_send(
        &self,
        producer: (ConnectionId, ProducerRef),
        entry: &Publish,
        error: PublishError,
    ) {
        let bytes = entry.payload.len();
        self.send_failed(
            producer,
            entry.sequence_id,
            entry.highest_sequence_id,
            bytes,
            error,
        );
    }

    /// Tells a connection of sends that will not be answered otherwise.
    pub(super) fn send_dropped(&self, from: ConnectionId, entries: &[Publish]) {
        let event = ConnectionEvent::dropped(entries);
        self.tell_connection(from, event);
    }

    /// True if nothing of the topic is stored.
    pub(crate) fn is_non_persistent(&self) -> bool {
        self.name.domain() == Domain::NonPersistent
    }

    /// A key for a new consumer: unique in the process, and it rises on the shard.
    pub(super) fn consumer_key(&self) -> ConsumerKey {
        ConsumerKey(self.shard.global_number())
    }

    /// Asks the connection that holds something exclusive whether its peer still answers; closes it when not.
    pub(super) async fn holder_answers(&self, holder: ConnectionId) -> bool {
        let probe = |answer| Ask::Probe {
            connection: holder,
            answer,
        };
        self.shard.ask(holder.shard, probe).await.unwrap_or(false)
    }

    /// Returns the acknowledgements of a stream consumer; `None` if it is gone.
    pub(super) async fn stream_consumer_acks(&self, handed_over: HandedOver) -> Option<AckState> {
        let ask = |answer| Ask::Acks {
            topic: handed_over.feed,
            connection: handed_over.connection,
            key: handed_over.key,
            answer,
        };
        self.shard.ask(handed_over.connection.shard, ask).await.ok()?
    }

    /// Resolves when what stream consumers of a shard have acknowledged until now is known here.
    pub(super) async fn hear_from(&self, shard: ShardId, topic: TopicId) {
        let heard = self.shard.ask(shard, |answer| Ask::Report { topic, answer });
        // A shard that is gone has nothing to tell.
        let _ = heard.await;
    }

    /// Room for what a dispatcher reads, at most `bytes_max`; waits for it in turn. `None`: the shard is going.
    ///
    /// Cancel safety: dropping it gives up the turn.
    pub(super) async fn room_to_read(&self, bytes_max: usize) -> Option<Room> {
        match self.host.room_to_read(bytes_max) {
            Ok(room) => Some(room),
            Err(turn) => turn.await.ok(),
        }
    }

    /// True if a consumer at an entry that fails with this error is moved past it.
    pub(super) fn skips(&self, error: &ReadError) -> bool {
        error.is_lost() && self.options().skip_lost_entries
    }

    pub(super) fn count_skip(&self) {
        self.shard.tally.lost_skipped();
    }
}
