//! Transactions as JSON: coordinators, what takes part in a transaction, what topics and subscriptions know.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Where a coordinator is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct TransactionCoordinatorInfo {
    /// Its number.
    pub id: u64,
    /// `pulsar://host:port` of its broker.
    pub broker_service_url: String,
}

/// A coordinator's numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct TransactionCoordinatorStats {
    /// `Ready`.
    pub state: String,
    /// The last id that was given out; -1: none was.
    pub least_sig_bits: i64,
    /// Transactions below this have ended.
    pub low_water_mark: i64,
    /// Transactions that have not ended.
    pub ongoing_txn_size: u64,
    /// Not known: 0.
    pub recover_start_time: i64,
    /// Not known: 0.
    pub recover_end_time: i64,
}

/// A transaction that has not ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct TransactionMetadata {
    /// `(most,least)`.
    pub txn_id: String,
    /// When it was made, in milliseconds since 1970.
    pub open_timestamp: i64,
    /// How long it may be open, in milliseconds.
    pub timeout_at: i64,
    /// `OPEN`, `COMMITTING` or `ABORTING`.
    pub status: String,
    /// Topics that messages are published to in it, as the client called them.
    pub produced_partitions: BTreeMap<String, TransactionInBufferStats>,
    /// Topics of which messages are acknowledged in it, and the subscriptions.
    pub acked_partitions: BTreeMap<String, BTreeMap<String, TransactionInPendingAckStats>>,
    /// The role that made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
}

/// What a topic knows of one transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct TransactionInBufferStats {
    /// `ledger:entry` of its first message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_position: Option<String>,
    /// Whether it was aborted.
    pub aborted: bool,
}

/// What a subscription knows of one transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct TransactionInPendingAckStats {
    /// Up to where it has acknowledged everything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cumulative_ack_position: Option<String>,
}

/// What a topic knows of its transactions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct TransactionBufferStats {
    /// `Ready`, or `None` of a topic that had no transactions.
    pub state: String,
    /// `ledger:entry` of the last entry that readers may get; `-1:-1` without one.
    pub max_read_position: String,
    /// Transactions that have messages here and did not end.
    pub ongoing_txn_size: u64,
    /// Aborted transactions whose messages are still in the log.
    pub total_aborted_transactions: u64,
    /// The open ones, with the places of their first messages.
    pub ongoing_transactions: BTreeMap<String, TransactionInBufferStats>,
}

/// What a subscription knows of transactions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct TransactionPendingAckStats {
    /// `Ready`, or `None` of a subscription that had no transactions.
    pub state: String,
    /// Transactions that have acknowledged something here and did not end.
    pub ongoing_txn_size: u64,
    /// Entries that they have acknowledged one by one.
    pub pending_ack_entries: u64,
    /// These transactions.
    pub ongoing_transactions: Vec<String>,
}
