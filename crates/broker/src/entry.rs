//! An entry on its way to listeners: the stored bytes, shared, and the few facts that delivery needs.

use std::sync::Arc;

use bytes::Bytes;
use pharos_runtime::Nanos;
use pharos_types::{Ordinal, Position};
use pharos_wire::message::MessageFacts;

/// What delivery must know of an entry without parsing it again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryFacts {
    /// Messages in the entry; what it costs in permits. At least 1.
    pub message_count: u32,
    /// When the producer says that it published, in milliseconds since 1970.
    pub publish_time_ms: u64,
    /// Not before this time, in milliseconds since 1970, on subscriptions that delay.
    pub deliver_at_ms: Option<i64>,
    /// A marker of the broker's own; it never reaches clients.
    pub is_marker: bool,
    /// A piece of a chunked message.
    pub is_chunk: bool,
}

impl EntryFacts {
    /// The facts of a stored entry. Bytes that do not parse count as one plain message: they were accepted as they
    /// came, and the consumer must see what was stored.
    #[must_use]
    pub fn of(payload: &Bytes) -> Self {
        facts_of(payload).map_or(
            Self {
                message_count: 1,
                ..Self::default()
            },
            |facts| Self::from_facts(&facts),
        )
    }

    /// The subset of the parsed facts that delivery needs.
    #[must_use]
    pub fn from_facts(facts: &MessageFacts<'_>) -> Self {
        Self {
            message_count: facts.num_messages(),
            publish_time_ms: facts.publish_time,
            deliver_at_ms: facts.deliver_at_time,
            is_marker: facts.marker_type.is_some(),
            is_chunk: facts.chunk.is_some(),
        }
    }
}

/// One entry, shared by every shard and connection that delivers it.
#[derive(Debug)]
pub struct FeedEntry {
    /// Its place in the topic, dense.
    pub ordinal: Ordinal,
    /// Its place on the wire.
    pub position: Position,
    /// What was stored: checksum, metadata and payload, byte for byte.
    pub payload: Bytes,
    /// What delivery needs to know.
    pub facts: EntryFacts,
    /// When it became durable; zero for an entry read back from the log.
    pub durable_at: Nanos,
}

impl FeedEntry {
    /// An entry read back from the log.
    #[must_use]
    pub fn from_log(entry: pharos_managed_ledger::Entry) -> Arc<Self> {
        Arc::new(Self {
            ordinal: entry.ordinal,
            position: entry.position,
            facts: EntryFacts::of(&entry.payload),
            payload: entry.payload,
            durable_at: Nanos(0),
        })
    }

    /// All facts of the message; `None` when its metadata does not parse.
    #[must_use]
    pub fn message_facts(&self) -> Option<MessageFacts<'_>> {
        facts_of(&self.payload)
    }

    /// Whether it came here right after it was published, so that its delivery is worth timing.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.durable_at != Nanos(0)
    }
}

/// Whether the payload of a stored entry is encrypted; one that does not parse is not.
pub(crate) fn is_encrypted(entry: &[u8]) -> bool {
    facts_of(entry).is_some_and(|facts| facts.is_encrypted)
}

fn facts_of(entry: &[u8]) -> Option<MessageFacts<'_>> {
    let parts = pharos_wire::message::split_ref(entry).ok()?;
    pharos_wire::message::peek(parts.metadata).ok()
}
