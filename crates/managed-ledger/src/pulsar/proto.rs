//! The messages, as `MLDataFormats.proto` of Pulsar 4.2 has them.

use prost::Message;

/// Value of a topic's node.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct StoredInfo {
    #[prost(message, repeated, tag = "1")]
    pub(crate) ledgers: Vec<StoredLedger>,
    /// Position of the last entry, once the topic is terminated.
    #[prost(message, optional, tag = "2")]
    pub(crate) terminated: Option<StoredPosition>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) properties: Vec<KeyValue>,
}

/// Ledger. The one being written has a timestamp of 0 and no counts.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct StoredLedger {
    #[prost(int64, required, tag = "1")]
    pub(crate) ledger_id: i64,
    #[prost(int64, optional, tag = "2")]
    pub(crate) entries: Option<i64>,
    #[prost(int64, optional, tag = "3")]
    pub(crate) size: Option<i64>,
    #[prost(int64, optional, tag = "4")]
    pub(crate) timestamp: Option<i64>,
    #[prost(message, optional, tag = "5")]
    pub(crate) offload: Option<OffloadContext>,
    #[prost(message, repeated, tag = "6")]
    pub(crate) properties: Vec<KeyValue>,
}

/// Offload context of a ledger; only its presence is read.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct OffloadContext {
    #[prost(int64, optional, tag = "1")]
    pub(crate) uid_msb: Option<i64>,
    #[prost(bool, optional, tag = "3")]
    pub(crate) complete: Option<bool>,
}

/// Fields of Pulsar's `LedgerInfo` that are kept for Pulsar.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Carried {
    #[prost(message, repeated, tag = "6")]
    pub(crate) properties: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct KeyValue {
    #[prost(string, required, tag = "1")]
    pub(crate) key: String,
    #[prost(string, required, tag = "2")]
    pub(crate) value: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LongProperty {
    #[prost(string, required, tag = "1")]
    pub(crate) name: String,
    #[prost(int64, required, tag = "2")]
    pub(crate) value: i64,
}

/// `NestedPositionInfo` there. An entry of -1 is before the first.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct StoredPosition {
    #[prost(int64, required, tag = "1")]
    pub(crate) ledger_id: i64,
    #[prost(int64, required, tag = "2")]
    pub(crate) entry_id: i64,
}

/// Acknowledged entries: after the lower one, up to and with the upper one.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct MessageRange {
    #[prost(message, required, tag = "1")]
    pub(crate) lower: StoredPosition,
    #[prost(message, required, tag = "2")]
    pub(crate) upper: StoredPosition,
}

/// A batch that is acknowledged in part: set bits remain.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct BatchIndexes {
    #[prost(message, required, tag = "1")]
    pub(crate) position: StoredPosition,
    #[prost(int64, repeated, packed = "false", tag = "2")]
    pub(crate) words: Vec<i64>,
}

/// Acknowledged entries of one ledger as a set of bits.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct EntrySet {
    #[prost(int64, required, tag = "1")]
    pub(crate) ledger_id: i64,
    #[prost(int64, repeated, packed = "false", tag = "2")]
    pub(crate) words: Vec<i64>,
}

/// Value of a cursor's node.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ManagedCursorInfo {
    /// Ledger whose last entry is the state; -1: the state is here.
    #[prost(int64, required, tag = "1")]
    pub(crate) cursors_ledger_id: i64,
    #[prost(int64, optional, tag = "2")]
    pub(crate) mark_delete_ledger_id: Option<i64>,
    #[prost(int64, optional, tag = "3")]
    pub(crate) mark_delete_entry_id: Option<i64>,
    #[prost(message, repeated, tag = "4")]
    pub(crate) ranges: Vec<MessageRange>,
    #[prost(message, repeated, tag = "5")]
    pub(crate) properties: Vec<LongProperty>,
    /// Milliseconds since 1970.
    #[prost(int64, optional, tag = "6")]
    pub(crate) last_active: Option<i64>,
    #[prost(message, repeated, tag = "7")]
    pub(crate) batches: Vec<BatchIndexes>,
    /// Properties of the subscription.
    #[prost(message, repeated, tag = "8")]
    pub(crate) cursor_properties: Vec<KeyValue>,
}

/// An entry of a cursor's ledger: `PositionInfo` there.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct CursorEntry {
    #[prost(int64, required, tag = "1")]
    pub(crate) ledger_id: i64,
    #[prost(int64, required, tag = "2")]
    pub(crate) entry_id: i64,
    #[prost(message, repeated, tag = "3")]
    pub(crate) ranges: Vec<MessageRange>,
    #[prost(message, repeated, tag = "4")]
    pub(crate) properties: Vec<LongProperty>,
    #[prost(message, repeated, tag = "5")]
    pub(crate) batches: Vec<BatchIndexes>,
    #[prost(message, repeated, tag = "6")]
    pub(crate) sets: Vec<EntrySet>,
}

/// The place of an entry, in what is left of it in a compacted ledger: `MessageIdData` of Pulsar's protocol.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct EntryPlace {
    #[prost(uint64, required, tag = "1")]
    pub(crate) ledger_id: u64,
    #[prost(uint64, required, tag = "2")]
    pub(crate) entry_id: u64,
    /// Partition, for a partitioned topic.
    #[prost(int32, optional, tag = "3")]
    pub(crate) partition: Option<i32>,
}
