//! The load of a case: what load, doors and peers need to know of it.

use anyhow::ensure;
use serde::{Deserialize, Serialize};

/// Guarantee of a peer's receipt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Durability {
    /// The message is on the device.
    Synced,
    /// The operating system has it: a kill of the process loses nothing, a power cut may.
    System,
}

/// Kind of measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// A load over the peer's protocol.
    Load,
    /// The start, and then nothing at all.
    Idle,
    /// Publishing by the load tool that comes with the peer.
    Tool,
}

/// The load of a case.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Load {
    /// Kind of measurement.
    pub(crate) kind: Kind,
    /// Guarantee of receipts.
    pub(crate) durability: Durability,
    /// Topics; in NATS streams.
    pub(crate) topics: u32,
    /// Partitions of each topic; 0 for topics that are not partitioned. In NATS subjects of a stream.
    pub(crate) partitions: u32,
    /// Bytes of a message.
    pub(crate) size: usize,
    /// Messages a second, over all producers; 0 is a closed loop.
    pub(crate) rate: f64,
    /// A batch is sent once it holds so many messages,
    pub(crate) batch_messages: u32,
    /// or so many bytes,
    pub(crate) batch_bytes: usize,
    /// or is so old.
    pub(crate) batch_delay_ms: f64,
    /// Batches without a receipt, per producer.
    pub(crate) window: usize,
    /// Subscriptions of each topic, with one consumer for each partition.
    pub(crate) subscriptions: u32,
    /// Connections of each thread, where the protocol leaves a choice.
    pub(crate) connections: u32,
    /// Threads of each side of the load.
    pub(crate) threads: u32,
    /// Nothing runs for so long before the contestant is started: what the one before it wrote is let go of by then.
    pub(crate) rest_s: f64,
    /// Warm-up, in seconds; not measured.
    pub(crate) warmup_s: f64,
    /// Measured.
    pub(crate) duration_s: f64,
    /// Peers are told to delete what is about so old and received, as far as they can be told; 0 keeps everything until the run ends.
    pub(crate) retention_s: u32,
    /// Bytes that are stored first and read back while the load runs; 0 for none.
    pub(crate) backlog_bytes: u64,
    /// Number of messages that a peer's own tool sends without a rate; this program's loads end by time.
    pub(crate) messages: u64,
    /// The load may take so long altogether before it is ended.
    pub(crate) limit_s: f64,
}

impl Default for Load {
    fn default() -> Self {
        Self {
            kind: Kind::Load,
            durability: Durability::Synced,
            topics: 1,
            partitions: 0,
            size: 1024,
            rate: 0.0,
            batch_messages: 1000,
            batch_bytes: 128 << 10,
            batch_delay_ms: 1.0,
            window: 64,
            subscriptions: 1,
            connections: 1,
            threads: 1,
            rest_s: 0.0,
            warmup_s: 5.0,
            duration_s: 30.0,
            retention_s: 0,
            backlog_bytes: 0,
            messages: 0,
            limit_s: 120.0,
        }
    }
}

impl Load {
    /// Checks that the case can be run.
    ///
    /// # Errors
    /// The case cannot be run, with the reason.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        ensure!(
            self.size >= pharos_bench::load::STAMP_BYTES,
            "`size` must be at least {}",
            pharos_bench::load::STAMP_BYTES
        );
        let counts = [self.topics, self.batch_messages, self.connections, self.threads];
        ensure!(
            counts.iter().all(|count| *count > 0) && self.window > 0,
            "topics, batch_messages, window, connections and threads must be positive"
        );
        ensure!(
            (self.messages > 0) == (self.kind == Kind::Tool && self.rate == 0.0),
            "`messages` is for tools without a rate, and they need it"
        );
        let times = [
            self.rate,
            self.batch_delay_ms,
            self.rest_s,
            self.warmup_s,
            self.duration_s,
            self.limit_s,
        ];
        ensure!(
            times.iter().all(|value| value.is_finite() && *value >= 0.0) && self.limit_s > 0.0,
            "rates and times must not be negative"
        );
        Ok(())
    }

    /// Partitions, or topics that are not partitioned: each has one producer.
    pub(crate) fn lanes(&self) -> u32 {
        self.topics * self.partitions.max(1)
    }
}
