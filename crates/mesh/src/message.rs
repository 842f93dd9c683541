//! What shards tell each other. Only batches and control travel here; never one message per consumer.
//!
//! What a shard is, is not known here: topics send messages, and shards hold topics.

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

/// Where the answer to a question goes. Dropped: the shard that was asked is going.
pub type AnswerTo<T> = oneshot::Sender<T>;

/// One message between shards.
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

/// One entry to append.
#[derive(Debug)]
pub struct Publish {
    /// As the client numbered it.
    pub sequence_id: u64,
    /// The last number of a batch; 0 for a single message.
    pub highest_sequence_id: u64,
    /// What is stored: checksum, metadata and payload, byte for byte as they came.
    pub payload: Bytes,
    /// The CRC-32C of all of `payload`, when it follows from the check of the one in it.
    pub crc32c: Option<u32>,
    /// What delivery will need to know.
    pub facts: EntryFacts,
    /// The transaction that it is published in.
    pub txn: Option<TxnId>,
    /// When it was read from the socket.
    pub received_at: Nanos,
}

/// What a message weighs by itself, in bytes, about.
const MESSAGE_BYTES: u64 = 128;
/// What an item of a list in it weighs, besides what the item holds.
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

/// What topics ask of shards.
pub enum Ask {
    /// Whether the peer of a connection there still answers; the connection is closed when it does not.
    Probe {
        /// Which.
        connection: ConnectionId,
        /// Whether it does.
        answer: AnswerTo<bool>,
    },
    /// What a stream consumer there has acknowledged; `None` when it is gone.
    Acks {
        /// As the shard knows the topic: itself, or its compacted view.
        topic: TopicId,
        /// The connection of the stream consumer.
        connection: ConnectionId,
        /// Whose they are.
        key: ConsumerKey,
        /// What it has acknowledged.
        answer: AnswerTo<Option<AckState>>,
    },
    /// To send home what moved on a topic; answered when its home has heard of it.
    Report {
        /// As the shard knows the topic.
        topic: TopicId,
        /// Told when its home has heard.
        answer: AnswerTo<()>,
    },
    /// Whether what was sent before this has arrived.
    Arrived(AnswerTo<()>),
    /// To delete a topic whose home it is, whatever is attached to it.
    Delete {
        /// Which.
        topic: TopicName,
        /// What came of it.
        answer: AnswerTo<Result<(), TopicError>>,
    },
}

/// For the home of a topic.
pub enum HomeMessage {
    /// Entries of one producer of a connection, in order. Each is answered, by a receipt or an event.
    Publish {
        /// The connection.
        from: ConnectionId,
        /// Whose they are.
        producer: ProducerKey,
        /// As the client sent them.
        entries: Vec<Publish>,
    },
    /// A feed needs entries from here on, not more than so many and so many bytes.
    Read {
        /// Who asks.
        shard: ShardId,
        /// As the shard knows the topic: itself, or its compacted view.
        feed: TopicId,
        /// The first.
        from: Ordinal,
        /// So many at most.
        entries_max: usize,
        /// So many bytes at most, but for one entry.
        bytes_max: usize,
    },
    /// What moved on a listening shard.
    Progress(Progress),
    /// A consumer left; its cursor comes home if it had it.
    Detach {
        /// Who.
        key: ConsumerKey,
        /// Its cursor.
        handoff: Option<CursorHandoff>,
    },
    /// A consumer stays attached but gave its cursor back.
    Returned {
        /// Who.
        key: ConsumerKey,
        /// Its cursor.
        handoff: CursorHandoff,
    },
    /// More permits for a consumer of a dispatched subscription.
    Flow {
        /// Whose they are.
        key: ConsumerKey,
        /// How many more.
        permits: u32,
    },
    /// Acknowledgements that the shard could not apply itself: the cursor is not handed over to that consumer.
    Ack {
        /// Who.
        key: ConsumerKey,
        /// What, in the order in which it came.
        acks: Vec<OwnedAck>,
        /// Each with all before it.
        cumulative: bool,
    },
    /// Deliver again: all that is pending at the consumer, or these.
    Redeliver {
        /// Who asks.
        key: ConsumerKey,
        /// Which; `None` for all.
        positions: Option<Vec<Position>>,
    },
    /// Bytes of dispatched entries that reached the socket.
    Written {
        /// Whose they were.
        key: ConsumerKey,
        /// How many.
        bytes: u64,
    },
    /// A producer left.
    CloseProducer(ProducerKey),
}

/// For a shard that listens to a topic.
pub enum FeedMessage {
    /// The first stream consumer is about to sit down here.
    Open {
        /// What a feed begins with.
        seed: FeedSeed,
    },
    /// New durable entries; the ledger table when it changed.
    Appended {
        /// In the order of the log.
        entries: Vec<Arc<FeedEntry>>,
        /// Which ledgers the topic has now.
        table: Option<LedgerTable>,
    },
    /// Entries became readable that were durable before; the ledger table when it changed.
    Readable {
        /// The end of what readers may see, exclusive.
        end: Ordinal,
        /// Which ledgers the topic has now.
        table: Option<LedgerTable>,
    },
    /// These entries, and all `before`, are acknowledged in a transaction.
    Withhold {
        /// Where the consumer is.
        connection: ConnectionId,
        /// Who acknowledged.
        key: ConsumerKey,
        /// Exclusive.
        before: Ordinal,
        /// Which.
        entries: Vec<Ordinal>,
    },
    /// A transaction ended: what others withhold, and the lowest entry that comes again.
    Release {
        /// Where the consumer is.
        connection: ConnectionId,
        /// Whose transaction it was.
        key: ConsumerKey,
        /// What is still withheld.
        withheld: Option<Box<Withheld>>,
        /// From there on it reads again.
        again: Option<Ordinal>,
    },
    /// The answer to a read.
    ReadDone {
        /// What was asked for.
        from: Ordinal,
        /// Where the next read begins.
        resume: Ordinal,
        /// In the order of the log.
        entries: Vec<Arc<FeedEntry>>,
        /// Which ledgers the topic has now.
        table: LedgerTable,
    },
    /// The read failed.
    ReadFailed {
        /// What was asked for.
        from: Ordinal,
    },
    /// A consumer here becomes the one that listens.
    Activate {
        /// Where it is.
        connection: ConnectionId,
        /// Its id on its connection.
        consumer_id: u64,
        /// Who it is.
        key: ConsumerKey,
        /// Its cursor.
        handoff: CursorHandoff,
        /// What a feed begins with.
        seed: FeedSeed,
    },
    /// A consumer here no longer listens.
    Deactivate {
        /// Where it is.
        connection: ConnectionId,
        /// Its id on its connection.
        consumer_id: u64,
        /// Who it is.
        key: ConsumerKey,
    },
    /// Everything before `to` counts as acknowledged for this consumer.
    SkipTo {
        /// Where it is.
        connection: ConnectionId,
        /// Who it is.
        key: ConsumerKey,
        /// Exclusive.
        to: Ordinal,
    },
    /// Acknowledgements that came by another way.
    Ack {
        /// Where the consumer is.
        connection: ConnectionId,
        /// Who acknowledged.
        key: ConsumerKey,
        /// What, in the order in which it came.
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
