//! Rates of what is counted per subscription, consumer and producer.
//!
//! A rate needs the counter of some time ago. Those are remembered here when a rate is asked for, so that nothing is done per
//! consumer between questions: the first answer is the mean since the client connected, later ones are of about the
//! last minute, or since the last question when that is longer ago.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use pharos_runtime::clock;

use pharos_broker::feed::Sent;
use pharos_broker::ids::TopicId;
use pharos_topic::{RateWindow, Rates};

/// Rows of one kind that get rates; where there are more they show 0, and only the topic's own rates count.
pub(crate) const ROWS_MAX: usize = 1000;
/// Meters that were not asked for this long are forgotten.
const IDLE_MS: u64 = 600_000;
/// Interval of the removal of idle rate windows, in milliseconds.
const SWEEP_MS: u64 = 60_000;

/// Source of a counter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Meter {
    /// Everything a topic sent.
    TopicOut(TopicId),
    /// Counter of a subscription.
    Subscription(TopicId, String, Counted),
    /// Counter of a consumer.
    Consumer(u64, Counted),
    /// Messages published by a producer.
    Producer(u64),
    /// Counter of a replicator to a cluster.
    Replicator(TopicId, String, Counted),
}

/// Counted event of a subscription, a consumer or a replicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Counted {
    Sent,
    Acked,
    Redelivered,
    Expired,
    Dropped,
}

/// The counters of some time ago.
#[derive(Default)]
pub(crate) struct Meters {
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    windows: HashMap<Meter, RateWindow>,
    swept_ms: u64,
}

impl Meters {
    /// The rate of a counter of messages that began at zero at `since_ms`. One that never counted has none, and costs
    /// nothing.
    pub(crate) fn rate(&self, meter: impl FnOnce() -> Meter, since_ms: u64, messages: u64) -> f64 {
        if messages == 0 {
            return 0.0;
        }
        let total = Sent { messages, bytes: 0 };
        self.rates(meter(), since_ms, total).messages
    }

    /// The rates of a counter that began at zero at `since_ms`.
    pub(crate) fn rates(&self, meter: Meter, since_ms: u64, total: Sent) -> Rates {
        let now_ms = clock::wall_ms();
        // The few lines below leave the map whole wherever they would panic.
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if now_ms.saturating_sub(kept.swept_ms) >= SWEEP_MS {
            kept.swept_ms = now_ms;
            kept.windows
                .retain(|_, window| now_ms.saturating_sub(window.last_ms()) < IDLE_MS);
        }
        let window = kept
            .windows
            .entry(meter)
            .or_insert_with(|| RateWindow::new(since_ms.min(now_ms)));
        let rates = window.rates(now_ms, total);
        window.sample(now_ms, total);
        rates
    }
}
