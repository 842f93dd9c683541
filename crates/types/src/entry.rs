//! Facts of a stored entry that a broker needs, and the interface to the codec that reads them.
//!
//! An entry is bytes of a client protocol. The broker stores and delivers them unchanged, and reads facts of them
//! through an [`EntryCodec`]. One process has one codec: all protocol handlers store entries of the same encoding.

use crate::{TxnEntry, TxnId, TxnOutcome};

/// Facts of an entry for publishing and delivery, read once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryFacts {
    /// Messages in the entry; what it costs in permits. At least 1.
    pub message_count: u32,
    /// Publish time set by the producer, in milliseconds since 1970.
    pub publish_time_ms: u64,
    /// Earliest delivery time, in milliseconds since 1970, on subscriptions that delay.
    pub deliver_at_ms: Option<i64>,
    /// The entry is a batch, be it of one, whose messages are acknowledged by their index.
    pub is_batch: bool,
    /// A marker of the broker's own; it never reaches clients.
    pub is_marker: bool,
    /// A piece of a chunked message.
    pub is_chunk: bool,
    /// Only the consumer can look into the payload.
    pub is_encrypted: bool,
    /// The entry says something of a transaction: [`EntryCodec::transaction`] knows what.
    pub is_transactional: bool,
}

impl EntryFacts {
    /// Plain message of which nothing is known: the facts of an unreadable entry.
    pub const PLAIN: Self = Self {
        message_count: 1,
        publish_time_ms: 0,
        deliver_at_ms: None,
        is_batch: false,
        is_marker: false,
        is_chunk: false,
        is_encrypted: false,
        is_transactional: false,
    };

    /// Number of messages in a batch; `None` if the entry is no batch.
    #[must_use]
    pub fn batch_size(&self) -> Option<u32> {
        self.is_batch.then_some(self.message_count)
    }
}

/// The place of an entry in a chunked message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Any good hash of what tells the chunked message from others.
    pub uuid_hash: u64,
    /// Index of the chunk, from 0.
    pub index: u32,
    /// Pieces in all.
    pub count: u32,
}

impl Chunk {
    /// True if this chunk completes the message.
    #[must_use]
    pub fn is_last(&self) -> bool {
        self.index.saturating_add(1) >= self.count
    }
}

/// Producer of an entry, and its sequence id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sequence<'e> {
    /// The producer's name.
    pub producer: &'e str,
    /// The number of its first message.
    pub first: u64,
    /// The number of its last message.
    pub highest: u64,
    /// Source position of an entry from another cluster, if it has one.
    pub source: Option<SourcePosition<'e>>,
}

/// Position of an entry in the cluster that it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourcePosition<'e> {
    /// Name of the source cluster.
    pub cluster: &'e str,
    /// The number of its ledger there.
    pub ledger: u64,
    /// Its place in that ledger.
    pub entry: u64,
}

/// Message of an entry, as topic compaction sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyedMessage {
    /// Compaction key: a later message of the same key replaces it; `None` if it has none.
    pub key: Option<Box<[u8]>>,
    /// True if it has no value: it deletes its key.
    pub is_empty: bool,
    /// An earlier compaction took it out of its batch; only its index is left.
    pub is_gone: bool,
}

/// Messages of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryMessages {
    /// Indivisible: only the consumer can read its messages, or it cannot be read.
    Whole,
    /// Its messages, by their index.
    Each(Vec<KeyedMessage>),
}

/// Reads the entries that front doors store. Bytes that it cannot read are no error: they were accepted as they came, and the
/// consumer must see what was stored.
///
/// A call looks at one entry and costs what reading its header costs; the payload is not touched. What a front door knows of
/// an entry when it publishes it comes with the entry, so nothing is asked on the way from a send to its receipt.
pub trait EntryCodec: Send + Sync {
    /// The facts of an entry; [`EntryFacts::PLAIN`] when it cannot be read.
    fn facts(&self, entry: &[u8]) -> EntryFacts;

    /// The hash of the key that orders messages in Key_Shared, [`murmur3_32`](crate::hash::murmur3_32) of its bytes. An entry
    /// that has no key or cannot be read must go to a consumer too: it has a hash all the same.
    fn key_hash(&self, entry: &[u8]) -> u32;

    /// The place of a piece in a chunked message; `None` for an entry that is none.
    fn chunk(&self, entry: &[u8]) -> Option<Chunk>;

    /// Producer and sequence id of an entry, if deduplication counts it: `None` for an unreadable entry, for markers,
    /// and for a chunk that does not complete its message, unless it has a source position.
    fn sequence<'e>(&self, entry: &'e [u8]) -> Option<Sequence<'e>>;

    /// The messages of an entry with their keys. Unlike the other calls it reads the payload, decompressed where that takes not more
    /// than `bytes_max`; else the entry is [`EntryMessages::Whole`].
    fn messages(&self, entry: &[u8], bytes_max: usize) -> EntryMessages;

    /// The entry with only those messages whose index `keep` names; the others keep their index and are marked as gone. `None` when
    /// the entry cannot be taken apart, as for [`messages`](Self::messages).
    fn retain(&self, entry: &[u8], keep: &[bool], bytes_max: usize) -> Option<Vec<u8>>;

    /// Transaction data of an entry; usually `None`.
    fn transaction(&self, entry: &[u8]) -> Option<TxnEntry>;

    /// The entry that says how a transaction ended for a topic. It is a marker.
    ///
    /// `publish_time_ms`: milliseconds since 1970.
    fn encode_txn_end(&self, txn: TxnId, outcome: TxnOutcome, publish_time_ms: u64) -> Vec<u8>;

    /// An entry of the broker's own, one plain message.
    ///
    /// `producer`: the name it goes by. `publish_time_ms`: milliseconds since 1970.
    fn encode_own(&self, producer: &str, publish_time_ms: u64, payload: &[u8]) -> Vec<u8>;
}
