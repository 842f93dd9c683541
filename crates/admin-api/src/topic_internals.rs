//! What `…/internalStats` and `…/internal-info` answer: ledgers and cursors of one topic.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::PartitionedTopicMetadata;

/// Ledgers and cursors of a loaded topic.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct PersistentTopicInternalStats {
    /// Entries appended since the topic was loaded.
    pub entries_added_counter: u64,
    /// Entries that exist.
    pub number_of_entries: u64,
    /// Their bytes.
    pub total_size: u64,
    /// Entries of the open ledger.
    pub current_ledger_entries: u64,
    /// Its bytes.
    pub current_ledger_size: u64,
    /// When it was created, ISO 8601 with offset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_ledger_created_timestamp: Option<String>,
    /// When creating a ledger last failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_ledger_creation_failure_timestamp: Option<String>,
    /// Cursors that wait at the tail.
    pub waiting_cursors_count: u32,
    /// Appends not yet durable.
    pub pending_add_entries_count: u32,
    /// `ledger:entry` of the last durable entry; entry -1 in an empty ledger.
    pub last_confirmed_entry: String,
    /// `LedgerOpened`, `ClosedLedger`, `Closed`, `Terminated` or `Fenced`.
    pub state: String,
    /// Ledgers, oldest first; the open one shows 0 entries and bytes.
    pub ledgers: Vec<LedgerInfo>,
    /// Cursors by subscription.
    pub cursors: BTreeMap<String, CursorStats>,
    /// `ledger:entry` of entries that could not be read since the topic was loaded, in their order and at most 256. Pharos alone has
    /// this field.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable_positions: Vec<String>,
    /// Properties of the managed ledger.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub properties: BTreeMap<String, String>,
    /// Ledgers that hold schemas; schemas live in the metadata store, so none.
    pub schema_ledgers: Vec<LedgerInfo>,
    /// The ledger of the compacted view; id -1 for none.
    pub compacted_ledger: LedgerInfo,
}

/// One ledger of `…/internalStats`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct LedgerInfo {
    /// Its id; -1 for none.
    pub ledger_id: i64,
    /// Entries.
    pub entries: i64,
    /// Bytes.
    pub size: i64,
    /// Whether it was moved to tiered storage.
    pub offloaded: bool,
    /// Engine's own description, on request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<String>,
    /// Whether a copy is missing.
    pub under_replicated: bool,
    /// Properties.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub properties: BTreeMap<String, String>,
}

impl Default for LedgerInfo {
    fn default() -> Self {
        Self {
            ledger_id: -1,
            entries: -1,
            size: -1,
            offloaded: false,
            metadata: None,
            under_replicated: false,
            properties: BTreeMap::new(),
        }
    }
}

/// One cursor of `…/internalStats`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct CursorStats {
    /// `ledger:entry`; everything at or before it is acknowledged.
    pub mark_delete_position: String,
    /// `ledger:entry` of the next read.
    pub read_position: String,
    /// Whether it waits at the tail.
    pub waiting_read_op: bool,
    /// Reads under way.
    pub pending_read_ops: u32,
    /// Messages acknowledged.
    pub messages_consumed_counter: i64,
    /// Where its state is stored; -1 when that is not a ledger.
    pub cursor_ledger: i64,
    /// Last entry of that ledger; -1 for none.
    pub cursor_ledger_last_entry: i64,
    /// Acknowledged ranges beyond the mark-delete position, like `[(3:1..3:5]]`.
    pub individually_deleted_messages: String,
    /// When its ledger last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_ledger_switch_timestamp: Option<String>,
    /// `Open`, `NoLedger`, `Closed`, …
    pub state: String,
    /// Whether a consumer reads through it.
    pub active: bool,
    /// Entries after the first that is not acknowledged.
    pub number_of_entries_since_first_not_acked_message: u64,
    /// Acknowledged ranges beyond the mark-delete position.
    pub total_non_contiguous_deleted_messages_range: u32,
    /// Whether the subscription has a read under way.
    pub subscription_have_pending_read: bool,
    /// Whether it has one for redelivery.
    pub subscription_have_pending_replay_read: bool,
    /// Numbers stored with the position.
    pub properties: BTreeMap<String, i64>,
}

/// `…/internalStats` of a partitioned topic.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct PartitionedTopicInternalStats {
    /// What is stored about the partitioned topic.
    pub metadata: PartitionedTopicMetadata,
    /// Each partition under its full name.
    pub partitions: BTreeMap<String, PersistentTopicInternalStats>,
}

/// A position in `…/internal-info`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct PositionInfo {
    /// Ledger id.
    pub ledger_id: i64,
    /// Entry id; -1 before the first.
    pub entry_id: i64,
}

/// A range of acknowledged entries: after `from`, up to and with `to`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct PositionRange {
    /// Exclusive.
    pub from: PositionInfo,
    /// Inclusive.
    pub to: PositionInfo,
}

/// `…/internal-info`: what is stored about a topic's ledgers and cursors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ManagedLedgerInfo {
    /// Version of the stored record.
    pub version: i64,
    /// When it was created, ISO 8601 with offset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_date: Option<String>,
    /// When it last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modification_date: Option<String>,
    /// Ledgers, oldest first.
    pub ledgers: Vec<LedgerSummary>,
    /// The last position of a terminated topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminated_position: Option<PositionInfo>,
    /// Cursors by subscription.
    pub cursors: BTreeMap<String, CursorInfo>,
    /// Properties.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub properties: BTreeMap<String, String>,
}

/// One ledger of `…/internal-info`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct LedgerSummary {
    /// Its id.
    pub ledger_id: u64,
    /// Entries; absent while open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entries: Option<u64>,
    /// Bytes; absent while open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// When it was closed, milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<i64>,
    /// Whether it was moved to tiered storage.
    pub is_offloaded: bool,
    /// After what its objects there are named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offloaded_context_uuid: Option<String>,
}

/// One cursor of `…/internal-info`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct CursorInfo {
    /// Version of the stored record.
    pub version: i64,
    /// When it was created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_date: Option<String>,
    /// When it last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modification_date: Option<String>,
    /// Ledger of its state; -1 when that is not a ledger.
    pub cursors_ledger_id: i64,
    /// Everything at or before it is acknowledged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mark_delete: Option<PositionInfo>,
    /// Acknowledged ranges beyond it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub individual_deleted_messages: Vec<PositionRange>,
    /// Properties.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub properties: BTreeMap<String, String>,
}

/// `…/internal-info` of a partitioned topic.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct PartitionedManagedLedgerInfo {
    /// Version of the record.
    pub version: i64,
    /// Each partition under its full name.
    pub partitions: BTreeMap<String, ManagedLedgerInfo>,
}
