//! What shards tell each other. Only batches and control travel here; never one message per consumer.
//!
//! What a shard is, is not known here: topics send messages, and shards hold topics.

use std::any::Any;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use pharos_managed_ledger::LedgerTable;
use pharos_managed_ledger::cursor::AckState;
use pharos_runtime::Nanos;
use pharos_types::{Ordinal, Position, TopicName, TxnId};
use tokio::sync::oneshot;

use super::connection_handle::{ConnectionEvent, Receipt};
use crate::entry::{EntryFacts, FeedEntry};
use crate::error::TopicError;
use crate::feed::{CursorHandoff, FeedSeed, OwnedAck, Progress, Withheld};
use crate::ids::{ConnectionId, ConsumerKey, ProducerKey, ShardId, TopicId};

/// Work to be done on another shard, which it is given. Made by `shard::job` alone: who runs it and what it is given is one type.
pub(crate) type Job = Box<dyn FnOnce(&Rc<dyn Any>) + Send>;

/// Where the answer to a question goes. Dropped: the shard that was asked is going.
pub(crate) type AnswerTo<T> = oneshot::Sender<T>;

/// One message between shards.
pub(crate) enum Message {
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
    pub(crate) fn bytes(&self) -> u64 {
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
pub(crate) enum Ask {
    /// Whether the peer of a connection there still answers; the connection is closed when it does not.
    Probe {
        connection: ConnectionId,
        answer: AnswerTo<bool>,
    },
    /// What a stream consumer there has acknowledged; `None` when it is gone.
    Acks {
        topic: TopicId,
        key: ConsumerKey,
        answer: AnswerTo<Option<AckState>>,
    },
    /// To send home what moved on a topic; answered when its home has heard of it.
    Report { topic: TopicId, answer: AnswerTo<()> },
    /// Whether what was sent before this has arrived.
    Arrived(AnswerTo<()>),
    /// To delete a topic whose home it is, whatever is attached to it.
    Delete {
        topic: TopicName,
        answer: AnswerTo<Result<(), TopicError>>,
    },
}

/// For the home of a topic.
pub(crate) enum HomeMessage {
    /// Entries of one producer of a connection, in order. Each is answered, by a receipt or an event.
    Publish {
        from: ConnectionId,
        producer: ProducerKey,
        entries: Vec<Publish>,
    },
    /// A feed needs entries from here on, not more than so many and so many bytes.
    Read {
        shard: ShardId,
        /// As the shard knows the topic: itself, or its compacted view.
        feed: TopicId,
        from: Ordinal,
        entries_max: usize,
        bytes_max: usize,
    },
    /// What moved on a listening shard.
    Progress(Progress),
    /// A consumer left; its cursor comes home if it had it.
    Detach {
        key: ConsumerKey,
        handoff: Option<CursorHandoff>,
    },
    /// A consumer stays attached but gave its cursor back.
    Returned {
        key: ConsumerKey,
        handoff: CursorHandoff,
    },
    /// More permits for a consumer of a dispatched subscription.
    Flow { key: ConsumerKey, permits: u32 },
    /// Acknowledgements that the shard could not apply itself: the cursor is not handed over to that consumer.
    Ack {
        key: ConsumerKey,
        acks: Vec<OwnedAck>,
        cumulative: bool,
    },
    /// Deliver again: all that is pending at the consumer, or these.
    Redeliver {
        key: ConsumerKey,
        positions: Option<Vec<Position>>,
    },
    /// Bytes of dispatched entries that reached the socket.
    Written { key: ConsumerKey, bytes: u64 },
    /// A producer left.
    CloseProducer(ProducerKey),
}

/// For a shard that listens to a topic.
pub(crate) enum FeedMessage {
    /// The first stream consumer is about to sit down here.
    Open { seed: FeedSeed },
    /// New durable entries; the ledger table when it changed.
    Appended {
        entries: Vec<Arc<FeedEntry>>,
        table: Option<LedgerTable>,
    },
    /// Entries became readable that were durable before; the ledger table when it changed.
    Readable {
        end: Ordinal,
        table: Option<LedgerTable>,
    },
    /// These entries, and all `before`, are acknowledged in a transaction.
    Withhold {
        connection: ConnectionId,
        key: ConsumerKey,
        before: Ordinal,
        entries: Vec<Ordinal>,
    },
    /// A transaction ended: what others withhold, and the lowest entry that comes again.
    Release {
        connection: ConnectionId,
        key: ConsumerKey,
        withheld: Option<Box<Withheld>>,
        again: Option<Ordinal>,
    },
    /// The answer to a read.
    ReadDone {
        from: Ordinal,
        resume: Ordinal,
        entries: Vec<Arc<FeedEntry>>,
        table: LedgerTable,
    },
    /// The read failed.
    ReadFailed { from: Ordinal },
    /// A consumer here becomes the one that listens.
    Activate {
        connection: ConnectionId,
        consumer_id: u64,
        key: ConsumerKey,
        handoff: CursorHandoff,
        seed: FeedSeed,
    },
    /// A consumer here no longer listens.
    Deactivate {
        connection: ConnectionId,
        consumer_id: u64,
        key: ConsumerKey,
    },
    /// Everything before `to` counts as acknowledged for this consumer.
    SkipTo {
        connection: ConnectionId,
        key: ConsumerKey,
        to: Ordinal,
    },
    /// Acknowledgements that came by another way.
    Ack {
        connection: ConnectionId,
        key: ConsumerKey,
        acks: Vec<OwnedAck>,
        cumulative: bool,
    },
    /// The topic was compacted: what is at hand of its compacted view is old.
    Compacted,
    /// Nothing will be appended any more.
    Terminated,
    /// No consumer is registered here any more.
    Close,
}
