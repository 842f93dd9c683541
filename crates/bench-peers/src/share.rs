//! Distribution of the work over load threads.
//!
//! A *slot* is a partition of a topic, or a topic that is not partitioned; each has one producer, whose number is the
//! slot's. A
//! *unit* is a subscription of a topic; it has a consumer for each slot of the topic, and they stay on one thread.

use pharos_bench::load::{Pace, Side};

use crate::spec::Load;

/// A partition of a topic, or a topic that is not partitioned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    /// Number of the topic.
    pub(crate) topic: u32,
    /// Number of the partition.
    pub(crate) partition: u32,
}

/// A producer of a publishing thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lane {
    /// Slot to publish to.
    pub(crate) slot: Slot,
    /// Its number within the run.
    pub(crate) source: u32,
    /// Its first message is due this long after the start.
    pub(crate) offset_ns: u64,
}

/// A subscription of a topic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unit {
    /// Number of the subscription within the run.
    pub(crate) subscription: u32,
    /// Number of the topic.
    pub(crate) topic: u32,
}

/// Work of one publishing thread.
#[derive(Clone, Debug)]
pub(crate) struct PublishShare {
    /// Number of the thread within the run.
    pub(crate) thread: usize,
    /// Its producers.
    pub(crate) lanes: Vec<Lane>,
    /// Pace of its producers.
    pub(crate) pace: Pace,
}

/// Work of one receiving thread.
#[derive(Clone, Debug)]
pub(crate) struct ReceiveShare {
    /// Number of the thread within the run.
    pub(crate) thread: usize,
    /// Live messages, or the stored backlog.
    pub(crate) side: Side,
    /// Its subscriptions.
    pub(crate) units: Vec<Unit>,
}

impl ReceiveShare {
    /// Returns the prefix of its subscription names.
    pub(crate) fn prefix(&self) -> &'static str {
        match self.side {
            Side::Backlog => "cold",
            Side::Publish | Side::Receive => "hot",
        }
    }
}

/// The slots of a topic.
pub(crate) fn slots_of(load: &Load, topic: u32) -> impl Iterator<Item = Slot> {
    (0..load.partitions.max(1)).map(move |partition| Slot { topic, partition })
}
