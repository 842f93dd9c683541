//! Counters of one consumer process during the run. Kept apart from sockets so that they can be tested alone.

use crate::histogram::Latencies;
use crate::order::{Arrival, OrderCheck};
use crate::proto::payload::Stamp;

use super::plan::WorkerResult;

/// Counters of one process.
#[derive(Debug)]
pub(crate) struct Tally {
    order: OrderCheck,
    latencies: Latencies,
    /// Equal latencies in a row: deliveries of one message read in one go share a timestamp.
    run: (u64, u64),
    warmup: u32,
    last_ns: Vec<u64>,
    /// Messages delivered for the first time.
    pub(crate) delivered: u64,
    /// Bytes of the frames they came in.
    pub(crate) message_bytes: u64,
    /// Wrong checksums.
    pub(crate) bad_checksums: u64,
    /// Payloads without a stamp, or with a sequence that was never sent.
    pub(crate) foreign: u64,
}

impl Tally {
    /// For `consumers` consumers of `warmup` + `messages` messages.
    pub(crate) fn new(consumers: u32, warmup: u32, messages: u32) -> Self {
        Self {
            order: OrderCheck::new(consumers as usize),
            latencies: Latencies::default(),
            run: (0, 0),
            warmup,
            last_ns: vec![0; (warmup + messages) as usize],
            delivered: 0,
            message_bytes: 0,
            bad_checksums: 0,
            foreign: 0,
        }
    }

    /// Records that a message reached `consumer` at `now_ns`.
    #[inline]
    pub(crate) fn delivered(&mut self, consumer: u32, stamp: &Stamp, now_ns: u64) {
        let Some(last) = self.last_ns.get_mut(stamp.sequence as usize) else {
            self.foreign += 1;
            return;
        };
        let sequence = stamp.sequence as u32;
        if self.order.arrived(consumer, sequence) == Arrival::Duplicate {
            return;
        }
        *last = now_ns;
        self.delivered += 1;
        if sequence < self.warmup {
            return;
        }
        let latency = now_ns.saturating_sub(stamp.sent_ns);
        if latency == self.run.0 {
            self.run.1 += 1;
        } else {
            self.end_run();
            self.run = (latency, 1);
        }
    }

    fn end_run(&mut self) {
        if self.run.1 > 0 {
            self.latencies.record(self.run.0, self.run.1);
            self.run = (0, 0);
        }
    }

    /// Everything measured, given that `total` messages were sent.
    pub(crate) fn result(&mut self, total: u32) -> anyhow::Result<WorkerResult> {
        self.end_run();
        Ok(WorkerResult {
            latency: self.latencies.to_text()?,
            order: self.order.finish(total),
            delivered: self.delivered,
            message_bytes: self.message_bytes,
            last_ns: self.last_ns.clone(),
            bad_checksums: self.bad_checksums,
            foreign: self.foreign,
            ..WorkerResult::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warm_up_is_checked_but_not_measured() {
        let mut tally = Tally::new(2, 1, 2);
        for sequence in 0..3 {
            for consumer in 0..2 {
                let stamp = Stamp {
                    sequence,
                    sent_ns: 1_000_000 * sequence,
                    source: 0,
                };
                tally.delivered(consumer, &stamp, 1_000_000 * sequence + 500_000);
            }
        }
        tally.delivered(
            0,
            &Stamp {
                sequence: 9,
                sent_ns: 0,
                source: 0,
            },
            1,
        );
        let result = tally.result(3).expect("encodes");
        assert_eq!(result.delivered, 6);
        assert_eq!(result.order.lost, 0);
        assert_eq!(result.foreign, 1);
        assert_eq!(result.last_ns, [500_000, 1_500_000, 2_500_000]);
        let latencies = Latencies::from_text(&result.latency).expect("decodes");
        assert_eq!(latencies.count(), 4);
        assert!((latencies.mean_ms() - 0.5).abs() < 0.01);
    }
}
