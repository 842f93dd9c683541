//! The load of one case: every key a workload file may give under `[load]`.

use anyhow::ensure;
use serde::Deserialize;
use toml::{Table, Value};

use crate::proto::ack::AckMode;
use crate::proto::command::SubscriptionType;
use crate::proto::payload::STAMP_BYTES;

use super::file::{BROKER, Params};
use super::values::{Rate, Size, Span};

/// Work of one case. Readers are *hot* if they follow the tail, *cold* if they read the stored backlog.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Load {
    /// Topics.
    pub(super) topics: u32,
    /// The first so many topics are published to; all unless given.
    pub(super) publish_topics: Option<u32>,
    /// Producers per topic that is published to.
    pub(super) producers: u32,
    /// Bytes of a message.
    pub(super) size: Size,
    /// Messages a second over all producers, or `closed-loop`: as fast as receipts come back, `window` sends at a time.
    pub(super) rate: Rate,
    /// Bytes a second over all producers instead of `rate`; 0 leaves it to that.
    pub(super) byte_rate: Size,
    /// A batch is sent once it holds so many messages; 1 sends each alone.
    pub(super) batch_messages: u32,
    /// ... or so many bytes.
    pub(super) batch_bytes: Size,
    /// ... or is so old.
    pub(super) batch_delay: Span,
    /// Sends without a receipt, per producer.
    pub(super) window: u32,
    /// Hot readers, dealt out over the topics from the first on; one for each topic published to unless given.
    pub(super) hot_readers: Option<u32>,
    /// Cold readers, dealt out over the topics that follow.
    pub(super) cold_readers: u32,
    /// Bytes stored before the run for all cold readers together.
    pub(super) backlog: Size,
    /// True if the broker is restarted between storing and reading, so that nothing is in its memory.
    pub(super) restart: bool,
    /// True if the broker is killed instead, so that it finds its journals as after a crash.
    pub(super) kill: bool,
    /// Messages a reader is ready to take.
    pub(super) receiver_queue: u32,
    /// Acknowledgement mode of readers.
    pub(super) ack: AckMode,
    /// Subscription type.
    pub(super) subscription_type: SubscriptionType,
    /// Load before the measured part.
    pub(super) warmup: Span,
    /// The measured part, at most: it ends when the cold readers have read all that was stored before.
    pub(super) duration: Span,
    /// The page tells what each of these was like, with memory and disk in use, and not only the whole; 0 for the whole alone.
    pub(super) slice: Span,
    /// Threads of each kind: publishing, reading hot, reading cold.
    pub(super) threads: u32,
    /// Connections of each thread.
    pub(super) connections: u32,
    /// Journal directories of the broker, dealt out over the directories of `--data-dir`.
    pub(super) journals: u32,
    /// Duration of each measurement of the device's limits before the case; 0 skips them.
    pub(super) probe: Span,
    /// Bytes of the file that is written and read for that.
    pub(super) probe_size: Size,
    /// Bytes of one synced write of the probe.
    pub(super) probe_write: Size,
}

impl Default for Load {
    fn default() -> Self {
        let seconds = |seconds| Span(std::time::Duration::from_secs(seconds));
        Self {
            topics: 1,
            publish_topics: None,
            producers: 1,
            size: Size(1024),
            rate: Rate(0.0),
            byte_rate: Size(0),
            batch_messages: 1000,
            batch_bytes: Size(128 << 10),
            batch_delay: Span(std::time::Duration::from_millis(1)),
            window: 64,
            hot_readers: None,
            cold_readers: 0,
            backlog: Size(0),
            restart: false,
            kill: false,
            receiver_queue: 10_000,
            ack: AckMode::Individual,
            subscription_type: SubscriptionType::Exclusive,
            warmup: seconds(5),
            duration: seconds(30),
            slice: seconds(0),
            threads: 1,
            connections: 1,
            journals: 1,
            probe: seconds(1),
            probe_size: Size(1 << 30),
            probe_write: Size(1 << 20),
        }
    }
}

impl Load {
    /// Parses the parameters, except those of the broker.
    pub(super) fn of(params: &Params) -> anyhow::Result<Self> {
        let own = params.iter().filter(|(key, _)| !key.starts_with(BROKER));
        let table: Table = own.map(|(key, value)| (key.clone(), value.clone())).collect();
        let load = Self::deserialize(Value::Table(table))?;
        load.check()?;
        Ok(load)
    }

    fn check(&self) -> anyhow::Result<()> {
        ensure!(
            self.size.0 >= STAMP_BYTES as u64,
            "size must be at least {STAMP_BYTES} bytes"
        );
        for (key, value) in [
            ("topics", self.topics),
            ("batch_messages", self.batch_messages),
            ("window", self.window),
            ("receiver_queue", self.receiver_queue),
            ("threads", self.threads),
            ("connections", self.connections),
            ("journals", self.journals),
        ] {
            ensure!(value > 0, "{key} must be positive");
        }
        ensure!(
            self.publish_topics() <= self.topics,
            "publish_topics is more than topics"
        );
        ensure!(
            self.cold_readers == 0 || self.backlog.0 >= self.size.0 * u64::from(self.cold_readers),
            "cold_readers need a backlog of at least one message each"
        );
        ensure!(
            self.probe_write.0.is_multiple_of(4096) && self.probe_write.0 > 0,
            "probe_write must be a multiple of 4096"
        );
        ensure!(!(self.restart && self.kill), "either restart or kill");
        ensure!(
            self.probe_size.0 >= self.probe_write.0,
            "probe_size is less than probe_write"
        );
        ensure!(
            self.producers > 0 || self.cold_readers > 0,
            "nothing is published and nothing is read"
        );
        Ok(())
    }

    /// Topics that are published to.
    pub(super) fn publish_topics(&self) -> u32 {
        self.publish_topics.unwrap_or(self.topics)
    }

    /// Producers altogether.
    pub(super) fn all_producers(&self) -> u32 {
        self.publish_topics() * self.producers
    }

    /// Hot readers altogether.
    pub(super) fn hot_readers(&self) -> u32 {
        let each = if self.producers == 0 {
            0
        } else {
            self.publish_topics()
        };
        self.hot_readers.unwrap_or(each)
    }

    /// Messages a second over all producers; 0 is a closed loop.
    pub(super) fn total_rate(&self) -> f64 {
        if self.byte_rate.0 > 0 {
            self.byte_rate.0 as f64 / self.size.0 as f64
        } else {
            self.rate.0
        }
    }
}
