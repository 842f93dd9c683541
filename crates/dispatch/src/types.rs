//! The words a topic and its dispatcher exchange.

use std::sync::Arc;

use pharos_managed_ledger::cursor::AckOutcome;
use pharos_types::Ordinal;
use pharos_types::entry::Chunk;

/// An attached consumer. Given by the caller, unique at least among the consumers of one subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConsumerKey(pub u64);

/// Description of a joining consumer.
#[derive(Clone, Debug)]
pub struct ConsumerSpec {
    /// The consumer's name; several consumers may share one. Places it on the Key_Shared ring.
    pub name: Arc<str>,
    /// 0 is served first; a higher number only when no lower one has permits. Shared only.
    pub priority_level: i32,
    /// Key_Shared options of the client; required for Key_Shared, ignored by Shared.
    pub key_shared: Option<KeySharedSpec>,
    /// Maximum number of bytes handed to the consumer before [`written`](super::Dispatcher::written) is called for
    /// them. One entry may exceed it.
    pub window_bytes: u64,
}

/// Key assignment requested by a Key_Shared consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySharedSpec {
    /// Side that assigns the hashes.
    pub mode: KeySharedMode,
    /// The client can do without the order of a key while an assignment moves.
    pub allow_out_of_order: bool,
}

/// Side that assigns key hashes to consumers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySharedMode {
    /// The broker spreads them.
    AutoSplit,
    /// Each consumer names its own.
    Sticky(Vec<HashRange>),
}

/// Slot hashes from `start` to `end`, both inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashRange {
    /// The first.
    pub start: u32,
    /// The last.
    pub end: u32,
}

/// Description of an entry; the caller keeps the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryRef {
    /// Ordinal of the entry.
    pub ordinal: Ordinal,
    /// Messages in it: 1, or the size of the batch.
    pub message_count: u32,
    /// Size on the socket, in bytes.
    pub bytes: u32,
    /// `murmur3_32` of the sticky key ([`hash`](pharos_types::hash)), not yet reduced to a slot. Key_Shared only, else 0.
    pub key_hash: u32,
    /// Earliest delivery time, in milliseconds since 1970.
    pub deliver_at: Option<i64>,
    /// Present when the entry is a piece of a larger message.
    pub chunk: Option<Chunk>,
    /// The entry is for brokers only; the dispatcher acknowledges it by itself.
    pub is_marker: bool,
}

/// Delivery of one entry to one consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Consumer that gets it.
    pub consumer: ConsumerKey,
    /// Ordinal of the entry.
    pub ordinal: Ordinal,
    /// Index of the entry in the slice given to [`on_entries`](super::Dispatcher::on_entries).
    pub entry_index: u32,
    /// Number of explicit redelivery requests for the message.
    pub redelivery_count: u32,
    /// The batch indexes that remain to be acknowledged, when some are done: the wire's `ack_set`.
    pub ack_set: Option<Box<[i64]>>,
}

/// Next action of a dispatcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Read entries rising from `from`, at least one, at most `entries_max` and about `bytes_max`, and give them to
    /// [`on_entries`](super::Dispatcher::on_entries).
    Read {
        /// The first wanted; if it was trimmed away, the next that exists.
        from: Ordinal,
        /// Maximum number of entries; at least 1.
        entries_max: u32,
        /// About how many bytes; a first entry larger than that is still wanted.
        bytes_max: u64,
    },
    /// Read exactly these entries (rising), or a part of them, and give them to
    /// [`on_entries`](super::Dispatcher::on_entries). Report those that no longer exist to
    /// [`gone`](super::Dispatcher::gone), and which cannot be read with [`set_aside`](super::Dispatcher::set_aside); all others are
    /// asked for again.
    Replay {
        /// Ordinals to read, ascending, at least one.
        ordinals: Vec<Ordinal>,
        /// About how many bytes; at least one entry is wanted whatever its size.
        bytes_max: u64,
    },
    /// Nothing now; ask again after the next event, or at this time (milliseconds since 1970).
    WaitUntil(i64),
    /// Nothing; ask again after the next event.
    Idle,
}

/// Result of [`on_entries`](super::Dispatcher::on_entries) besides the deliveries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dealt {
    /// The dispatcher acknowledged entries by itself (markers), so the cursor should be persisted some time.
    pub changed: bool,
    /// `acked_to` moved by that.
    pub advanced: bool,
}

/// Result of an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acked {
    /// Outcome for the entry.
    pub outcome: AckOutcome,
    /// The consumer the entry was pending at, which need not be the one that acknowledged it.
    pub owner: Option<ConsumerKey>,
    /// Messages that stopped being unacknowledged by this.
    pub messages: u32,
}

/// Limits of delivered and unacknowledged messages. 0 switches a limit off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Per consumer: at the limit it gets nothing more, until it is at half or asks for redelivery.
    pub unacked_per_consumer_max: u32,
    /// Per subscription: at the limit nothing new is read (replay goes on), until it is below half.
    pub unacked_per_subscription_max: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            unacked_per_consumer_max: 50_000,
            unacked_per_subscription_max: 200_000,
        }
    }
}

/// Settings of a dispatcher that do not change while it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Most entries in one read (`dispatcherMaxReadBatchSize`).
    pub read_entries_max: u32,
    /// Most bytes in one read (`dispatcherMaxReadSizeBytes`).
    pub read_bytes_max: u64,
    /// Shared: messages to one consumer before the next one's turn (`dispatcherMaxRoundRobinBatchSize`).
    pub round_robin_messages_max: u32,
    /// Delayed delivery; `None` delivers everything at once.
    pub delay: Option<DelayOptions>,
    /// Key_Shared only.
    pub key_shared: KeySharedOptions,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            read_entries_max: 100,
            read_bytes_max: 5 * 1024 * 1024,
            round_robin_messages_max: 20,
            delay: Some(DelayOptions::default()),
            key_shared: KeySharedOptions::default(),
        }
    }
}

/// Delayed delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelayOptions {
    /// A message may come this much too early, in milliseconds (`delayedDeliveryTickTimeMillis`).
    pub tick_ms: i64,
    /// Never too early (`isDelayedDeliveryDeliverAtTimeStrict`).
    pub strict: bool,
    /// Most messages remembered with their time. The earliest are; the others are found again by another read.
    pub index_entries_max: usize,
}

impl Default for DelayOptions {
    fn default() -> Self {
        Self {
            tick_ms: 1000,
            strict: false,
            index_entries_max: 200_000,
        }
    }
}

/// Settings of Key_Shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeySharedOptions {
    /// Auto-split by consistent hashing rather than by ranges (`subscriptionKeySharedUseConsistentHashing`).
    pub consistent_hashing: bool,
    /// Points of a consumer on the ring (`subscriptionKeySharedConsistentHashingReplicaPoints`).
    pub ring_points: u32,
    /// Nothing new is read while this many entries per consumer wait in replay; 0 = no such limit.
    pub look_ahead_per_consumer_max: u32,
    /// Nothing new is read while this many entries wait in replay; 0 = no such limit.
    pub look_ahead_per_subscription_max: u32,
}

impl Default for KeySharedOptions {
    fn default() -> Self {
        Self {
            consistent_hashing: true,
            ring_points: 100,
            look_ahead_per_consumer_max: 2000,
            look_ahead_per_subscription_max: 20_000,
        }
    }
}

impl KeySharedOptions {
    /// Returns the maximum number of entries waiting in replay before reading of new ones pauses, for this many
    /// consumers.
    pub(super) fn look_ahead_max(self, consumers: usize) -> usize {
        let all = self.look_ahead_per_subscription_max as usize;
        let each = self.look_ahead_per_consumer_max as usize;
        let each = each.saturating_mul(consumers);
        match (each, all) {
            (0, 0) => usize::MAX,
            (0, all) => all,
            (each, 0) => each,
            (each, all) => each.min(all),
        }
    }
}

/// Reason why a consumer cannot join.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddConsumerError {
    /// The others of the subscription assign keys differently; `ConsumerBusy` on the wire.
    #[error("subscription is of different type: active Key_Shared mode is {active}, asked for {asked}")]
    ModeMismatch {
        /// Mode of the attached consumers.
        active: &'static str,
        /// Mode of the joining consumer.
        asked: &'static str,
    },
    /// The others of the subscription disagree on order; `ConsumerBusy` on the wire.
    #[error("subscription is of different type: active Key_Shared allowOutOfOrderDelivery is {active}")]
    OrderMismatch {
        /// Mode of the attached consumers.
        active: bool,
    },
    /// No hashes can be given to this consumer; `ConsumerAssignError` on the wire. The text says why.
    #[error("{0}")]
    Assign(String),
    /// The caller gave the same key twice: a bug of the caller; answer `UnknownError`.
    #[error("consumer key {} is already in use", .0.0)]
    DuplicateKey(ConsumerKey),
}
