//! Messages between shards. Only batches and control messages; never one message per consumer.
//!
//! This module does not know what a shard is: topics send messages, and shards hold topics.

use std::any::Any;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use pharos_feed::entry::{EntryFacts, FeedEntry};
use pharos_feed::ids::{ConnectionId, ConsumerKey, ProducerKey, ShardId, TopicId};
use pharos_feed::{CursorHandoff, FeedSeed, OwnedAck, Progress, Withheld};
use pharos_managed_ledger::LedgerTable;
use pharos_managed_ledger::cursor::AckState;
use pharos_requests::error::TopicError;
use pharos_runtime::Nanos;
use pharos_types::{Ordinal, Position, TopicName, TxnId};
use tokio::sync::oneshot;

use crate::connection_handle::{ConnectionEvent, Receipt};

/// Work to be done on another shard, which it is given. Made by `shard::job` alone: who runs it and what it is given is one type.
pub type Job = Box<dyn FnOnce(&Rc<dyn Any>) + Send>;

/// Sender of an answer. Dropped without one if the shard that was asked is stopping.
pub type AnswerTo<T> = oneshot::Sender<T>;

/// Message between shards.
pub enum Message {
    /// Control: rare, and of any kind.
    Job(Job),
    /// A question of a topic.
    Ask(Ask),
    /// For the home of a topic.
    Home(TopicId, HomeMessage),
    /// For a shard that listens to a topic.
    Feed(TopicId, FeedMessage),
    /// Receipts for producers on connections of the shard.
    Receipts(Vec<(ConnectionId, Receipt)>),
    /// An event for one connection of the shard.
    Connection(ConnectionId, ConnectionEvent),
}

/// Entry to append.
#[derive(Debug)]
pub struct Publish {
    /// As the client numbered it.
    pub sequence_id: u64,
    /// The last number of a batch; 0 for a single message.
    pub highest_sequence_id: u64,
    /// Stored bytes: checksum, metadata and payload, exactly as received.
    pub payload: Bytes,
    /// The CRC-32C of all of `payload`, when it follows from the check of the one in it.
    pub crc32c: Option<u32>,
    /// Facts needed for delivery.
    pub facts: EntryFacts,
    /// The transaction that it is published in.
    pub txn: Option<TxnId>,
    /// Time at which it was read from the socket.
    pub received_at: Nanos,
}

/// Approximate weight of a message itself, in bytes.
const MESSAGE_BYTES: u64 = 128;
/// Weight of an item of a list in a message, besides the bytes that the item holds.
const ITEM_BYTES: u64 = 96;

fn items(count: usize) -> u64 {
    count as u64 * ITEM_BYTES
}

fn bytes_of_acks(acks: &[OwnedAck]) -> u64 {
    items(acks.len()) + acks.iter().map(|ack| 8 * ack.remaining.len() as u64).sum::<u64>()
}

fn bytes_of_entries(entries: &[Arc<FeedEntry>]) -> u64 {
    items(entries.len())
        + entries
            .iter()
            .map(|entry| entry.payload.len() as u64)
            .sum::<u64>()
}

impl Message {
    /// About how many bytes it keeps in memory. Published bytes are not among them while they travel to their topic: they
    /// are counted where they were read. Neither are calls: who makes one waits for it.
    #[inline]
    pub fn bytes(&self) -> u64 {
        let holds = match self {
            Self::Job(_) | Self::Ask(_) => return 0,
            Self::Home(_, HomeMessage::Publish { entries, .. }) => items(entries.len()),
            Self::Home(_, HomeMessage::Redeliver { positions, .. }) => {
                items(positions.as_ref().map_or(0, Vec::len))
            }
            Self::Home(_, HomeMessage::Ack { acks, .. }) | Self::Feed(_, FeedMessage::Ack { acks, .. }) => {
                bytes_of_acks(acks)
            }
            // What was read back is in the account of the shard that asked, before it was read.
            Self::Feed(_, FeedMessage::Appended { entries, .. }) => bytes_of_entries(entries),
            Self::Feed(_, FeedMessage::Withhold { entries, .. }) => items(entries.len()),
            Self::Receipts(receipts) => items(receipts.len()),
            Self::Connection(_, ConnectionEvent::Dispatched(deliveries)) => items(deliveries.len()),
            Self::Home(..) | Self::Feed(..) | Self::Connection(..) => 0,
        };
        MESSAGE_BYTES + holds
    }
}

/// Requests of topics to shards.
pub enum Ask {
    /// Checks that the peer of a connection there still answers; the connection is closed if it does not.
    Probe {
        /// The connection.
        connection: ConnectionId,
        /// True if it answers.
        answer: AnswerTo<bool>,
    },
    /// Acknowledgement state of a stream consumer there; `None` if the consumer is gone.
    Acks {
        /// As the shard knows the topic: itself, or its compacted view.
        topic: TopicId,
        /// The connection of the stream consumer.
        connection: ConnectionId,
        /// Key of the consumer.
        key: ConsumerKey,
        /// Its acknowledgement state.
        answer: AnswerTo<Option<AckState>>,
    },
    /// To send home what moved on a topic; answered when its home has heard of it.
    Report {
        /// As the shard knows the topic.
        topic: TopicId,
        /// Told when its home has heard.
        answer: AnswerTo<()>,
    },
    /// Resolves when all earlier messages have arrived.
    Arrived(AnswerTo<()>),
    /// To delete a topic whose home it is, whatever is attached to it.
    Delete {
        /// The topic.
        topic: TopicName,
        /// Result of the deletion.
        answer: AnswerTo<Result<(), TopicError>>,
    },
}

/// For the home of a topic.
pub enum HomeMessage {
    /// Entries of one producer of a connection, in order. Each is answered, by a receipt or an event.
    Publish {
        /// The connection.
        from: ConnectionId,
        /// Producer of the entries.
        producer: ProducerKey,
        /// As the client sent them.
        entries: Vec<Publish>,
    },
    /// A feed needs entries from here on, not more than so many and so many bytes.
    Read {
        /// Shard that asks.
        shard: ShardId,
        /// As the shard knows the topic: itself, or its compacted view.
        feed: TopicId,
        /// The first.
        from: Ordinal,
        /// Maximum number of entries.
        entries_max: usize,
        /// Maximum size, in bytes; a single entry may exceed it.
        bytes_max: usize,
    },
    /// Progress on a listening shard.
    Progress(Progress),
    /// A consumer left; its cursor comes home if it had it.
    Detach {
        /// Key of the consumer.
        key: ConsumerKey,
        /// Its cursor.
        handoff: Option<CursorHandoff>,
    },
    /// A consumer stays attached but gave its cursor back.
    Returned {
        /// Key of the consumer.
        key: ConsumerKey,
        /// Its cursor.
        handoff: CursorHandoff,
    },
    /// More permits for a consumer of a dispatched subscription.
    Flow {
        /// Key of the consumer.
        key: ConsumerKey,
        /// Number of additional permits.
        permits: u32,
    },
    /// Acknowledgements that the shard could not apply itself: the cursor is not handed over to that consumer.
    Ack {
        /// Key of the consumer.
        key: ConsumerKey,
        /// Acknowledgements, in order of arrival.
        acks: Vec<OwnedAck>,
        /// Each with all before it.
        cumulative: bool,
    },
    /// Deliver again: all that is pending at the consumer, or these.
    Redeliver {
        /// Key of the consumer.
        key: ConsumerKey,
        /// Positions to redeliver; `None` for all.
        positions: Option<Vec<Position>>,
    },
    /// Bytes of dispatched entries that reached the socket.
    Written {
        /// Key of the consumer.
        key: ConsumerKey,
        /// Number of bytes.
        bytes: u64,
    },
    /// A producer left.
    CloseProducer(ProducerKey),
}

/// For a shard that listens to a topic.
pub enum FeedMessage {
    /// The first stream consumer is about to sit down here.
    Open {
        /// Initial state of the feed.
        seed: FeedSeed,
    },
    /// New durable entries; the ledger table when it changed.
    Appended {
        /// In the order of the log.
        entries: Vec<Arc<FeedEntry>>,
        /// Current ledgers of the topic.
        table: Option<LedgerTable>,
    },
    /// Entries became readable that were durable before; the ledger table when it changed.
    Readable {
        /// The end of what readers may see, exclusive.
        end: Ordinal,
        /// Current ledgers of the topic.
        table: Option<LedgerTable>,
    },
    /// These entries, and all `before`, are acknowledged in a transaction.
    Withhold {
        /// Connection of the consumer.
        connection: ConnectionId,
        /// Consumer that acknowledged.
        key: ConsumerKey,
        /// Exclusive.
        before: Ordinal,
        /// Acknowledged entries.
        entries: Vec<Ordinal>,
    },
    /// A transaction ended: what others withhold, and the lowest entry that comes again.
    Release {
        /// Connection of the consumer.
        connection: ConnectionId,
        /// Consumer that acknowledged in the transaction.
        key: ConsumerKey,
        /// Entries still withheld.
        withheld: Option<Box<Withheld>>,
        /// From there on it reads again.
        again: Option<Ordinal>,
    },
    /// The answer to a read.
    ReadDone {
        /// Requested start.
        from: Ordinal,
        /// Start of the next read.
        resume: Ordinal,
        /// In the order of the log.
        entries: Vec<Arc<FeedEntry>>,
        /// Current ledgers of the topic.
        table: LedgerTable,
    },
    /// The read failed.
    ReadFailed {
        /// Requested start.
        from: Ordinal,
    },
    /// A consumer here becomes the one that listens.
    Activate {
        /// Connection of the consumer.
        connection: ConnectionId,
        /// Its id on its connection.
        consumer_id: u64,
        /// Key of the consumer.
        key: ConsumerKey,
        /// Its cursor.
        handoff: CursorHandoff,
        /// Initial state of the feed.
        seed: FeedSeed,
    },
    /// A consumer here no longer listens.
    Deactivate {
        /// Connection of the consumer.
        connection: ConnectionId,
        /// Its id on its connection.
        consumer_id: u64,
        /// Key of the consumer.
        key: ConsumerKey,
    },
    /// Everything before `to` counts as acknowledged for this consumer.
    SkipTo {
        /// Connection of the consumer.
        connection: ConnectionId,
        /// Key of the consumer.
        key: ConsumerKey,
        /// Exclusive.
        to: Ordinal,
    },
    /// Acknowledgements that came by another way.
    Ack {
        /// Connection of the consumer.
        connection: ConnectionId,
        /// Consumer that acknowledged.
        key: ConsumerKey,
        /// Acknowledgements, in order of arrival.
        acks: Vec<OwnedAck>,
        /// Each with all before it.
        cumulative: bool,
    },
    /// The topic was compacted: what is at hand of its compacted view is old.
    Compacted,
    /// Nothing will be appended any more.
    Terminated,
    /// No consumer is registered here any more.
    Close,
}
