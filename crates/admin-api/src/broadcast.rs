//! Broadcast subscriptions: what no other broker has, hence in words of our own.

use serde::{Deserialize, Serialize};

/// A broadcast subscription's consumers in numbers; part of its stats.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct BroadcastSummary {
    /// Consumers that are connected.
    pub consumers_connected: u64,
    /// Named consumers that are away and whose place is kept.
    pub consumers_absent: u64,
    /// Connected consumers that have everything there is.
    pub consumers_at_tail: u64,
    /// Groups of consumers that fell behind together; each costs one reader.
    pub cohorts: u64,
    /// Absent consumers dropped because of `broadcast.absent_retention` or `broadcast.absent_backlog`, since the topic was
    /// loaded.
    pub absent_dropped_total: u64,
    /// Consumers that came back after that, since the topic was loaded.
    pub returned_late_total: u64,
    /// Entries that were deleted before these came back, and that they had not acknowledged.
    pub entries_skipped_total: u64,
    /// Places taken over by another consumer of the same name, since the topic was loaded.
    pub takeovers_total: u64,
    /// Such that were refused for a while because two live consumers fight for a name.
    pub takeovers_refused_total: u64,
    /// Bytes of memory that all virtual cursors use.
    pub cursor_bytes: u64,
    /// What other parts of the subscription have, where its consumers are dealt among brokers, as of about a second ago. Connected and
    /// absent consumers of all parts are in the numbers above; the others are of the topic's own part.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub carriers: Vec<BroadcastCarrier>,
}

/// A part of a broadcast subscription that is apart from its topic.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct BroadcastCarrier {
    /// Its number, from 1.
    pub slot: u32,
    /// The broker that has it; missing while none has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broker: Option<String>,
    /// The topic by whose name its stats are told.
    pub topic: String,
    /// Consumers that are connected.
    pub connected: u64,
    /// Named consumers that are away and whose place is kept.
    pub absent: u64,
    /// Entries that its consumers have not acknowledged, together.
    pub backlog: u64,
}

/// Answer of `…/subscription/{subscription}/broadcast`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct BroadcastDetails {
    /// In numbers.
    #[serde(flatten)]
    pub summary: BroadcastSummary,
    /// `ledger:entry` up to which every consumer has acknowledged.
    pub mark_delete_position: String,
    /// The consumers furthest behind, slowest first.
    pub slowest: Vec<BroadcastConsumer>,
    /// Every consumer, by name; only with `consumers=true`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consumers: Option<Vec<BroadcastConsumer>>,
}

/// One consumer of a broadcast subscription.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct BroadcastConsumer {
    /// Its name.
    pub consumer_name: String,
    /// Whether it is connected.
    pub connected: bool,
    /// Whether its place survives a disconnect: it has a name of its own.
    pub durable: bool,
    /// `ledger:entry` up to which it has acknowledged everything.
    pub mark_delete_position: String,
    /// Its virtual cursor: entries beyond the subscription's mark-delete position.
    pub increment: u64,
    /// Entries it has not acknowledged.
    pub backlog: u64,
    /// Acknowledged ranges beyond its position.
    pub holes: u32,
    /// Messages it will still take.
    pub available_permits: i64,
    /// Messages sent and not acknowledged.
    pub unacked_messages: u64,
    /// `/host:port` of the client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// When it connected, ISO 8601 with offset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connected_since: Option<String>,
    /// It is away and its place was given up: it holds nothing back.
    pub dropped: bool,
    /// How often it came back after that, since the topic was loaded.
    pub returned_late_total: u64,
    /// Entries that were deleted before it came back, and that it had not acknowledged.
    pub entries_skipped_total: u64,
    /// How often its place was taken over by another consumer of the same name, since the topic was loaded.
    pub takeovers_total: u64,
    /// How often that was refused for a while because two live consumers fight for the name.
    pub takeovers_refused_total: u64,
    /// How long it has been away, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub absent_seconds: Option<u64>,
}
