//! Result of one load against one contestant, passed as JSON by the load process.

use pharos_bench::load::{Latencies, Row, StageTimes, curve};
use serde::{Deserialize, Serialize};

/// Percentiles that are kept.
const PERCENTILES: [f64; 6] = [50.0, 95.0, 99.0, 99.9, 99.99, 100.0];
/// A rate is held by what reaches this part of it.
const HELD: f64 = 0.98;
/// Rows are seconds; so many make a minute.
const MINUTE: usize = 60;

/// A distribution of latencies, milliseconds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Distribution {
    /// Number of samples.
    pub(crate) count: u64,
    /// Percentile and value.
    percentiles: Vec<(f64, f64)>,
    /// Points of the curve "latency by percentile": 1/(1-quantile) and value.
    pub(crate) curve: Vec<(f64, f64)>,
}

impl Distribution {
    /// Returns the distribution of these latencies.
    pub(crate) fn of(latencies: &Latencies) -> Self {
        let count = latencies.count();
        if count == 0 {
            return Self::default();
        }
        let at = |percentile| (percentile, latencies.percentile_ms(percentile));
        Self {
            count,
            percentiles: PERCENTILES.into_iter().map(at).collect(),
            curve: curve(latencies),
        }
    }

    /// As another tool told it: percentiles and values.
    pub(crate) fn told(count: u64, percentiles: Vec<(f64, f64)>) -> Self {
        Self {
            count,
            percentiles,
            curve: Vec::new(),
        }
    }

    /// The value at one of the kept percentiles; none without values.
    pub(crate) fn at(&self, percentile: f64) -> Option<f64> {
        let found = self.percentiles.iter().find(|(kept, _)| *kept == percentile);
        found.map(|(_, value)| *value)
    }
}

/// Results of one second of a run.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Second {
    /// End, seconds since the measured part began.
    pub(crate) at_s: f64,
    /// Messages acknowledged to producers, a second.
    pub(crate) publish_msg_s: f64,
    /// Publish p99 in it, milliseconds.
    pub(crate) publish_p99_ms: f64,
    /// End-to-end p99 in it, milliseconds.
    pub(crate) e2e_p99_ms: f64,
    /// Memory of the broker, bytes.
    pub(crate) rss_bytes: Option<u64>,
    /// Disk usage of the data directory, in bytes.
    #[serde(default)]
    pub(crate) disk_bytes: Option<u64>,
}

impl Second {
    /// Returns the results of a row.
    pub(crate) fn of(row: &Row) -> Self {
        Self {
            at_s: row.at_seconds,
            publish_msg_s: row.publish.messages as f64 / row.seconds,
            publish_p99_ms: row.publish.latencies.percentile_ms(99.0),
            e2e_p99_ms: row.receive.latencies.percentile_ms(99.0),
            rss_bytes: row.rss_bytes,
            disk_bytes: row.disk_bytes,
        }
    }
}

/// Time that messages spent in one stage of the broker during the measured part, as the broker measured it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Stage {
    /// Its name.
    pub(crate) name: String,
    /// Median, milliseconds.
    pub(crate) p50_ms: f64,
    /// 99th percentile, in milliseconds.
    pub(crate) p99_ms: f64,
    /// Points of the curve "time by percentile".
    pub(crate) curve: Vec<(f64, f64)>,
}

impl From<StageTimes> for Stage {
    fn from(times: StageTimes) -> Self {
        Self {
            name: times.stage,
            p50_ms: times.p50_ms,
            p99_ms: times.p99_ms,
            curve: times.curve,
        }
    }
}

/// Result of a load.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct LoadResult {
    /// Length of the measured part.
    pub(crate) seconds: f64,
    /// Messages acknowledged to producers in it.
    pub(crate) published: u64,
    /// Messages received in it.
    pub(crate) received: u64,
    /// Acknowledged to producers, a second.
    pub(crate) publish_msg_s: f64,
    /// Published payload, in MB per second.
    pub(crate) publish_mb_s: f64,
    /// Received, a second.
    pub(crate) consume_msg_s: f64,
    /// From when a message was due to its receipt.
    pub(crate) publish: Distribution,
    /// From when a message was due to its consumer.
    pub(crate) e2e: Distribution,
    /// Second by second.
    pub(crate) rows: Vec<Second>,
    /// Publish p99 of each minute, milliseconds; only where the measured part has more than one.
    pub(crate) minutes_p99_ms: Vec<f64>,
    /// From the first connect to the last consumer that may have messages.
    pub(crate) attach_s: f64,
    /// Time until each consumer was attached.
    pub(crate) attach: Distribution,
    /// The backlog, read from its first message to its last.
    pub(crate) backlog_mb_s: Option<f64>,
    /// Acknowledged and never received, over the whole run.
    pub(crate) lost: u64,
    /// Received again, over the whole run.
    pub(crate) duplicates: u64,
    /// Received after a later one, over the whole run.
    pub(crate) out_of_order: u64,
    /// Received otherwise than sent, over the whole run.
    pub(crate) damaged: u64,
    /// Delay caused by the load itself, 99th percentile in milliseconds; included in the latencies.
    pub(crate) late_p99_ms: Option<f64>,
    /// CPU of the load over the measured part.
    pub(crate) client_cpu_s: f64,
    /// CPU of the broker over the measured part.
    pub(crate) broker_cpu_s: Option<f64>,
    /// Memory of the broker at its end.
    pub(crate) rss_mb: Option<f64>,
    /// From the start of the process until it takes clients.
    pub(crate) start_s: Option<f64>,
    /// Disk usage of the data directory at the end, in MB.
    pub(crate) disk_mb: Option<f64>,
    /// Memory after some seconds of rest.
    pub(crate) idle_rss_mb: Option<f64>,
    /// CPU in them, milliseconds a second.
    pub(crate) idle_cpu_ms_s: Option<f64>,
    /// Its programs and libraries.
    pub(crate) install_mb: Option<f64>,
    /// The stages of a message, of a broker that times them.
    pub(crate) stages: Vec<Stage>,
}

impl LoadResult {
    /// The p99 of the worst minute.
    pub(crate) fn worst_minute(&self) -> Option<f64> {
        self.minutes_p99_ms.iter().copied().reduce(f64::max)
    }

    fn per_message(&self, seconds: f64) -> Option<f64> {
        let messages = self.published + self.received;
        (messages > 0).then(|| seconds * 1e6 / messages as f64)
    }

    /// CPU of the broker for each message that came in or went out.
    pub(crate) fn broker_cpu_us(&self) -> Option<f64> {
        self.per_message(self.broker_cpu_s?)
    }

    /// CPU of the load for each message that it sent or received.
    pub(crate) fn client_cpu_us(&self) -> Option<f64> {
        self.per_message(self.client_cpu_s)
    }

    /// True if the rate was published and delivered to all the subscriptions by the end; two messages may be in
    /// flight.
    pub(crate) fn held(&self, rate: f64, subscriptions: u32) -> bool {
        let due = rate * self.seconds * HELD;
        let subscriptions = f64::from(subscriptions);
        self.published as f64 + 2.0 >= due
            && self.received as f64 + 2.0 * subscriptions >= due * subscriptions
    }

    /// Describes lost, repeated, reordered or changed messages; `None` if there are none.
    pub(crate) fn faults(&self) -> Option<String> {
        let counts = [
            ("lost", self.lost),
            ("doubled", self.duplicates),
            ("out of order", self.out_of_order),
            ("damaged", self.damaged),
        ];
        let bad = counts.iter().filter(|(_, count)| *count > 0);
        let words: Vec<String> = bad.map(|(what, count)| format!("{count} {what}")).collect();
        (!words.is_empty()).then(|| words.join(", "))
    }
}

/// Publish p99 of each whole minute; none for runs that are shorter than two.
pub(crate) fn minutes(rows: &[Row]) -> Vec<f64> {
    if rows.len() < 2 * MINUTE {
        return Vec::new();
    }
    let whole = rows.chunks(MINUTE).filter(|minute| minute.len() == MINUTE);
    let p99 = whole.map(|minute| {
        let mut all = Latencies::default();
        for row in minute {
            all.merge(&row.publish.latencies);
        }
        all.percentile_ms(99.0)
    });
    p99.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_is_sixty_rows_and_the_worst_one_is_told() {
        let row = |ms: u64| {
            let mut row = Row {
                seconds: 1.0,
                ..Row::default()
            };
            row.publish.latencies.record(ms * 1_000_000, 1);
            row
        };
        let rows: Vec<Row> = (0..130)
            .map(|number| row(if number < 60 { 2 } else { 9 }))
            .collect();
        let minutes = minutes(&rows);
        assert_eq!(minutes.len(), 2);
        let result = LoadResult {
            minutes_p99_ms: minutes,
            ..LoadResult::default()
        };
        assert!((result.worst_minute().expect("a minute") - 9.0).abs() < 0.1);
        assert_eq!(super::minutes(&rows[..119]), Vec::<f64>::new());
    }

    #[test]
    fn a_fault_is_named() {
        assert_eq!(LoadResult::default().faults(), None);
        let bad = LoadResult {
            lost: 3,
            damaged: 1,
            ..LoadResult::default()
        };
        assert_eq!(bad.faults().as_deref(), Some("3 lost, 1 damaged"));
    }
}
