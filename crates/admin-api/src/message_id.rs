//! Message ids as JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A message id in an answer (`lastMessageId`, `terminate`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MessageIdJson {
    /// Ledger id; -1 when there is no ledger.
    pub ledger_id: i64,
    /// Entry id; -1 when there is no entry.
    pub entry_id: i64,
    /// Partition, -1 when the topic is none.
    pub partition_index: i32,
    /// Index in the batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_index: Option<i32>,
    /// Members of the batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_size: Option<i32>,
}

/// A place in a topic as clients send it: to create a subscription, to reset one, to expire up to it.
///
/// Absent members mean "earliest": -1 everywhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResetCursorData {
    /// Ledger id; -1 earliest, 9223372036854775807 latest.
    pub ledger_id: i64,
    /// Entry id; likewise.
    pub entry_id: i64,
    /// Partition, -1 for none.
    pub partition_index: i32,
    /// Index in the batch, -1 for the whole entry.
    pub batch_index: i32,
    /// Subscription properties, when creating one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub properties: Option<BTreeMap<String, String>>,
    /// Start after this message rather than at it.
    #[serde(rename = "excluded", alias = "isExcluded")]
    pub excluded: bool,
}

impl Default for ResetCursorData {
    fn default() -> Self {
        Self {
            ledger_id: -1,
            entry_id: -1,
            partition_index: -1,
            batch_index: -1,
            properties: None,
            excluded: false,
        }
    }
}

impl ResetCursorData {
    /// Before the first message that exists.
    #[must_use]
    pub fn earliest() -> Self {
        Self::default()
    }

    /// After the last message.
    #[must_use]
    pub fn latest() -> Self {
        Self {
            ledger_id: i64::MAX,
            entry_id: i64::MAX,
            ..Self::default()
        }
    }

    /// Whether it means [`earliest`](Self::earliest).
    #[must_use]
    pub fn is_earliest(&self) -> bool {
        self.ledger_id < 0
    }

    /// Whether it means [`latest`](Self::latest).
    #[must_use]
    pub fn is_latest(&self) -> bool {
        self.ledger_id == i64::MAX
    }
}
