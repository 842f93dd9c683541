//! Stream consumer, which gets every message: of a broadcast, Exclusive or active Failover subscription, or a reader.
//!
//! Owned by its [`Group`](super::group::Group), on the shard of its connection. It takes a hundred bytes or so,
//! because there are a hundred thousand of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use pharos_managed_ledger::cursor::AckState;
use pharos_types::Ordinal;

use super::activity::{Activity, StreamConsumerActivity};
use super::dispatch_rate::DispatchRateLimiter;
use crate::ids::{ConsumerKey, SlotId};

/// The virtual cursor that the topic's home hands over to a stream consumer, and gets back when the stream consumer leaves.
#[derive(Debug, Clone)]
pub struct CursorHandoff {
    /// Slot in the cursor log; `None` for a cursor that is not persisted.
    pub slot: Option<SlotId>,
    /// Acknowledgement state.
    pub acks: AckState,
    /// The next entry to deliver.
    pub read_from: Ordinal,
    /// True if the slot holds back trimming.
    pub durable: bool,
    /// Dispatch rate limiter of its subscription.
    pub rate: Arc<DispatchRateLimiter>,
    /// On its way out: what transactions have acknowledged.
    pub withheld: Option<Box<Withheld>>,
    /// On its way home: what went on with the stream consumer, for stats.
    pub activity: Activity,
}

/// Entries that a transaction has acknowledged: not delivered meanwhile. The topic's home knows whose they are.
#[derive(Debug, Clone, Default)]
pub struct Withheld {
    /// All before this.
    pub before: Ordinal,
    /// And these.
    pub entries: BTreeSet<Ordinal>,
}

impl Withheld {
    fn has(&self, ordinal: Ordinal) -> bool {
        ordinal < self.before || self.entries.contains(&ordinal)
    }
}

/// A stream consumer.
#[derive(Debug)]
pub struct StreamConsumer {
    /// The consumer's id on its connection.
    pub consumer_id: u64,
    /// Process-wide key of the consumer.
    pub key: ConsumerKey,
    /// Slot in the cursor log that persists it.
    pub slot: Option<SlotId>,
    /// Acknowledgement state.
    pub acks: AckState,
    /// The next entry to deliver to it.
    pub next: Ordinal,
    /// Number of messages it still accepts; below zero by at most one batch.
    pub permits: i64,
    /// The epoch to stamp on its messages, once it rewound with one.
    pub epoch: Option<u64>,
    /// Time of its last permits, in seconds since 1970; 0 for never. For stats.
    pub flow_at_s: u32,
    /// The number of its membership of a cohort that counts; older ones are void.
    pub ticket: u32,
    /// True if it is in a cohort; otherwise it is parked: out of permits, or at its dispatch rate.
    pub queued: bool,
    /// True if its group resumes it when its subscription may be delivered more.
    pub is_throttled: bool,
    /// True if its acknowledgements changed since they were last sent home.
    pub dirty: bool,
    /// True if the slot holds back trimming.
    pub durable: bool,
    /// Dispatch rate limiter of its subscription.
    pub rate: Arc<DispatchRateLimiter>,
    /// Entries acknowledged in transactions; none for most consumers.
    pub withheld: Option<Box<Withheld>>,
    /// Activity since it joined; for stats.
    pub activity: StreamConsumerActivity,
}

impl StreamConsumer {
    /// A stream consumer that takes up a cursor.
    #[must_use]
    pub fn new(
        consumer_id: u64,
        key: ConsumerKey,
        handoff: CursorHandoff,
        permits: i64,
        epoch: Option<u64>,
    ) -> Self {
        Self {
            consumer_id,
            key,
            slot: handoff.slot,
            acks: handoff.acks,
            next: handoff.read_from,
            permits,
            epoch,
            flow_at_s: 0,
            ticket: 0,
            queued: false,
            is_throttled: false,
            dirty: false,
            durable: handoff.durable,
            rate: handoff.rate,
            withheld: handoff.withheld,
            activity: StreamConsumerActivity::default(),
        }
    }

    /// True if an entry is to be delivered: it is neither acknowledged nor withheld.
    #[must_use]
    pub fn wants(&self, ordinal: Ordinal) -> bool {
        !self.acks.is_acked(ordinal)
            && self
                .withheld
                .as_ref()
                .is_none_or(|withheld| !withheld.has(ordinal))
    }

    /// Its cursor, to give back.
    #[must_use]
    pub fn into_handoff(self) -> CursorHandoff {
        CursorHandoff {
            slot: self.slot,
            read_from: self.acks.acked_to(),
            acks: self.acks,
            durable: self.durable,
            rate: self.rate,
            withheld: None,
            activity: self.activity.in_messages(),
        }
    }
}
