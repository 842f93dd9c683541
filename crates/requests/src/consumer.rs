//! Parameters of a subscribing consumer, and the grant that it receives.

use std::sync::Arc;

use pharos_dispatch::KeySharedSpec;
use pharos_feed::ids::{ConnectionId, ConsumerKey};
use pharos_feed::{CursorHandoff, FeedSeed};
use pharos_types::{Ordinal, Position, SubscriptionName, TopicName};

/// Subscription type: the distribution of messages to its consumers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubscriptionType {
    /// Single consumer.
    Exclusive,
    /// Single active consumer; others are on standby.
    Failover,
    /// Each message to one of many.
    Shared,
    /// Each message to one of many, the same for the same key.
    KeyShared,
    /// Each message to all.
    Broadcast,
}

impl SubscriptionType {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Exclusive,
        Self::Failover,
        Self::Shared,
        Self::KeyShared,
        Self::Broadcast,
    ];

    /// Its name in policies and stats. Broadcast has none of its own in Pulsar; its consumers ask for Exclusive.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exclusive | Self::Broadcast => "Exclusive",
            Self::Failover => "Failover",
            Self::Shared => "Shared",
            Self::KeyShared => "Key_Shared",
        }
    }
}

/// Start position of a new cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartAt {
    /// After the last entry.
    Latest,
    /// At the first entry that exists.
    Earliest,
    /// At this entry, or the next that exists.
    At(Position),
    /// At this place, which may lie before the first entry of the log: in what was compacted.
    Place(Ordinal),
}

/// Connection data of a consumer, for stats.
#[derive(Clone, Debug, Default)]
pub struct ConsumerInfo {
    /// The peer's address.
    pub address: Arc<str>,
    /// Client library and version, as the client reports it.
    pub client_version: Arc<str>,
    /// Connection time, in milliseconds since 1970.
    pub connected_since_ms: u64,
    /// Key and value pairs that the client gave.
    pub metadata: Vec<(String, String)>,
}

/// A wish to consume.
#[derive(Clone, Debug)]
pub struct SubscribeRequest {
    /// The topic.
    pub topic: TopicName,
    /// The subscription.
    pub subscription: SubscriptionName,
    /// Subscription type.
    pub kind: SubscriptionType,
    /// The connection.
    pub connection: ConnectionId,
    /// The id that the client chose.
    pub consumer_id: u64,
    /// The consumer's name; `None` when the client gave none.
    pub consumer_name: Option<String>,
    /// 0 is served first.
    pub priority_level: i32,
    /// True if the cursor outlives its consumers.
    pub durable: bool,
    /// Start position of a new cursor.
    pub start: StartAt,
    /// True if it reads the compacted data as far as it goes, and then the log.
    pub read_compacted: bool,
    /// Rewind an existing cursor to the first message published at or after this time, in ms since 1970.
    pub rewind_to_ms: Option<u64>,
    /// True if a durable subscription may be created.
    pub may_create: bool,
    /// Properties of a new subscription.
    pub properties: Vec<(String, String)>,
    /// True if the state of a durable subscription is replicated to other clusters; `false` changes nothing for an
    /// existing one.
    pub is_replicated: bool,
    /// For Key_Shared.
    pub key_shared: Option<KeySharedSpec>,
    /// For stats.
    pub info: Arc<ConsumerInfo>,
}

/// A consumer was attached.
#[derive(Debug)]
pub struct Subscribed {
    /// Key of the consumer.
    pub key: ConsumerKey,
    /// Source of the consumer's messages.
    pub attach: Attach,
    /// Failover only: true if it is the active consumer; `None` if that is announced later.
    pub active: Option<bool>,
    /// The topic, as the listening shard must know it.
    pub seed: FeedSeed,
}

/// Source of a consumer's messages.
#[derive(Debug)]
pub enum Attach {
    /// The consumer listens on its shard, with this cursor.
    Listen(CursorHandoff),
    /// The consumer waits to be activated.
    Dormant,
    /// The topic's home chooses its messages.
    Dispatched,
}
