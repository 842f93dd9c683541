//! The messages of Pulsar that the catalog reads and writes, by their numbers in `SchemaStorageFormat.proto`,
//! `SchemaRegistryFormat.proto` and `MLDataFormats.proto`.

use prost::Message;

/// Position of an entry; `-1` for none.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct PositionInfo {
    #[prost(int64, required, tag = "1")]
    pub(crate) ledger_id: i64,
    #[prost(int64, required, tag = "2")]
    pub(crate) entry_id: i64,
}

/// A version of a schema.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct IndexEntry {
    #[prost(int64, required, tag = "1")]
    pub(crate) version: i64,
    #[prost(message, required, tag = "2")]
    pub(crate) position: PositionInfo,
    /// SHA-256 of the definition; empty for a deletion.
    #[prost(bytes = "vec", required, tag = "3")]
    pub(crate) hash: Vec<u8>,
}

/// Value stored under `schemas/<id>`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct SchemaLocator {
    /// The newest version.
    #[prost(message, required, tag = "1")]
    pub(crate) info: IndexEntry,
    /// All versions, oldest first.
    #[prost(message, repeated, tag = "2")]
    pub(crate) index: Vec<IndexEntry>,
}

/// The entry of a schema's ledger.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct SchemaEntry {
    /// A [`SchemaInfo`].
    #[prost(bytes = "vec", required, tag = "2")]
    pub(crate) schema_data: Vec<u8>,
    /// The versions before it; before the first one, a version 0 that is nowhere.
    #[prost(message, repeated, tag = "5")]
    pub(crate) index: Vec<IndexEntry>,
}

/// A name and a value.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct KeyValue {
    #[prost(string, required, tag = "1")]
    pub(crate) key: String,
    #[prost(string, required, tag = "2")]
    pub(crate) value: String,
}

/// A schema.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct SchemaInfo {
    #[prost(string, required, tag = "1")]
    pub(crate) schema_id: String,
    #[prost(string, required, tag = "2")]
    pub(crate) user: String,
    /// See [`KINDS`](super::schemas).
    #[prost(int32, required, tag = "3")]
    pub(crate) kind: i32,
    #[prost(bytes = "vec", required, tag = "4")]
    pub(crate) schema: Vec<u8>,
    #[prost(int64, required, tag = "5")]
    pub(crate) timestamp: i64,
    #[prost(bool, required, tag = "6")]
    pub(crate) deleted: bool,
    #[prost(message, repeated, tag = "7")]
    pub(crate) props: Vec<KeyValue>,
}

/// Fields of a managed ledger's info that the catalog uses.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct StoredManagedLedger {
    #[prost(message, repeated, tag = "1")]
    pub(crate) ledgers: Vec<StoredLedger>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) properties: Vec<KeyValue>,
}

/// Ledger of a managed ledger.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct StoredLedger {
    #[prost(int64, required, tag = "1")]
    pub(crate) ledger_id: i64,
    /// Set where the ledger is, or is to be, in an object store.
    #[prost(bytes = "vec", optional, tag = "5")]
    pub(crate) offload_context: Option<Vec<u8>>,
}

/// A name and a number.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct LongProperty {
    #[prost(string, required, tag = "1")]
    pub(crate) name: String,
    #[prost(int64, required, tag = "2")]
    pub(crate) value: i64,
}

/// Fields of a cursor's info that the catalog uses.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct CursorInfo {
    /// Ledger that holds its positions; `-1` if the cursor was closed.
    #[prost(int64, required, tag = "1")]
    pub(crate) cursors_ledger_id: i64,
    #[prost(message, repeated, tag = "5")]
    pub(crate) properties: Vec<LongProperty>,
}

/// Same fields of an entry of a cursor's ledger.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct CursorPosition {
    #[prost(message, repeated, tag = "4")]
    pub(crate) properties: Vec<LongProperty>,
}

/// Original position of a message of a compacted ledger.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct MessageIdData {
    #[prost(uint64, required, tag = "1")]
    pub(crate) ledger_id: u64,
    #[prost(uint64, required, tag = "2")]
    pub(crate) entry_id: u64,
}

/// Fields of a message's metadata that the catalog reads and writes.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct MessageMetadata {
    #[prost(string, required, tag = "1")]
    pub(crate) producer_name: String,
    #[prost(uint64, required, tag = "2")]
    pub(crate) sequence_id: u64,
    #[prost(uint64, required, tag = "3")]
    pub(crate) publish_time: u64,
    #[prost(string, optional, tag = "6")]
    pub(crate) partition_key: Option<String>,
    /// The clusters that it is for; empty: all.
    #[prost(string, repeated, tag = "7")]
    pub(crate) replicate_to: Vec<String>,
    #[prost(int32, tag = "8")]
    pub(crate) compression: i32,
    #[prost(uint32, optional, tag = "9")]
    pub(crate) uncompressed_size: Option<u32>,
    #[prost(int32, optional, tag = "11")]
    pub(crate) num_messages_in_batch: Option<i32>,
    #[prost(bytes = "vec", repeated, tag = "13")]
    pub(crate) encryption_keys: Vec<Vec<u8>>,
    #[prost(bytes = "vec", optional, tag = "16")]
    pub(crate) schema_version: Option<Vec<u8>>,
    #[prost(bool, optional, tag = "17")]
    pub(crate) partition_key_b64_encoded: Option<bool>,
    #[prost(bool, optional, tag = "25")]
    pub(crate) null_value: Option<bool>,
}
