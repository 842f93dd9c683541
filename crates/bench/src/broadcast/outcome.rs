//! What a broadcast run found, as one object and as a table beside the published figures of the study it repeats.

use std::fmt::Write as _;

use serde::Serialize;

use crate::args::BroadcastArgs;
use crate::histogram::Latencies;
use crate::metrics::Stage;
use crate::order::OrderCounts;
use crate::procfs::ProcessSample;
use crate::units::{ns_to_ms, show_bytes};

use super::plan::{ReadyReport, WorkerResult};
use super::publisher::Published;

/// The figures of the study this benchmark repeats: 100,000 consumers, 10 KB, one message a second, 16-core broker,
/// separate client machines.
struct Study {
    connect_seconds: f64,
    avg_ms: f64,
    p99_ms: f64,
}

const STUDY: Study = Study {
    connect_seconds: 39.6,
    avg_ms: 440.0,
    p99_ms: 940.0,
};

/// The raw material of an [`Outcome`].
pub(super) struct Facts {
    pub(super) ready: Vec<ReadyReport>,
    pub(super) results: Vec<WorkerResult>,
    pub(super) published: Published,
    pub(super) started: Option<ProcessSample>,
    pub(super) idle: Option<ProcessSample>,
    pub(super) end: Option<ProcessSample>,
    pub(super) stages: Vec<Stage>,
}

/// The result object; latencies in milliseconds, absent values are left out.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Outcome {
    /// Nothing lost, doubled (unless reconnecting), out of order or damaged.
    pub(super) passed: bool,
    topic: String,
    mode: super::Mode,
    ack: crate::proto::ack::AckMode,
    consumers: u32,
    slow_consumers: u32,
    connections: u32,
    processes: usize,
    message_bytes: u64,
    messages: u32,
    warmup_messages: u32,
    rate: f64,
    connect_seconds: f64,
    connected_per_second: Vec<u64>,
    subscribe_p50_ms: f64,
    subscribe_p99_ms: f64,
    avg_ms: f64,
    p50_ms: f64,
    p99_ms: f64,
    p999_ms: f64,
    max_ms: f64,
    /// From each message's send to its last consumer.
    last_consumer_ms: Vec<f64>,
    last_consumer_median_ms: f64,
    last_consumer_max_ms: f64,
    publish_p50_ms: f64,
    publish_p99_ms: f64,
    lost: u64,
    duplicates: u64,
    out_of_order: u64,
    bad_checksums: u64,
    foreign: u64,
    reconnects: u64,
    receipts: u32,
    resent: u64,
    duplicate_reach: u64,
    delivered: u64,
    deliveries_per_second: f64,
    /// Consumers divided by the median time to the last consumer.
    burst_deliveries_per_second: f64,
    frame_bytes: f64,
    wire_time_ms: f64,
    p99_over_wire_time: f64,
    client_cpu_seconds: f64,
    client_us_per_delivery: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    broker_cpu_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    broker_us_per_delivery: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    broker_connect_cpu_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    broker_rss_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    broker_rss_started_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    broker_rss_idle_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    broker_bytes_per_consumer: Option<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    stages: Vec<Stage>,
}

impl Outcome {
    /// Adds up what all processes found.
    pub(super) fn new(
        args: &BroadcastArgs,
        topic: String,
        facts: Facts,
    ) -> anyhow::Result<(Self, Latencies)> {
        let mut subscribe = Latencies::default();
        let mut connected_per_second = Vec::new();
        let mut connect_ns = 0;
        for ready in &facts.ready {
            subscribe.merge(&Latencies::from_text(&ready.subscribe)?);
            add_up(&mut connected_per_second, &ready.per_second);
            connect_ns = connect_ns.max(ready.took_ns);
        }
        let mut latencies = Latencies::default();
        let mut order = OrderCounts::default();
        for result in &facts.results {
            latencies.merge(&Latencies::from_text(&result.latency)?);
            order.merge(&result.order);
        }
        let sum = |take: fn(&WorkerResult) -> u64| facts.results.iter().map(take).sum::<u64>();
        let last_ns = last_of_each(&facts.results, &facts.published);
        let last_consumer_ms = times_to_last(&last_ns, &facts.published, args.warmup_messages);
        let consumers = args.consumers - args.slow_consumers;
        let delivered = sum(|result| result.delivered);
        let seen = (delivered + order.duplicates).max(1) as f64;
        let frame_bytes = sum(|result| result.message_bytes) as f64 / seen;
        let wire_time_ms = f64::from(consumers) * frame_bytes * 8.0 / (args.link_gbps * 1e6);
        let client_cpu_seconds = sum(|result| result.cpu_ns) as f64 / 1e9;
        let between = |from: &Option<ProcessSample>, to: &Option<ProcessSample>| {
            Some(to.as_ref()?.cpu_seconds - from.as_ref()?.cpu_seconds)
        };
        // A broker that was restarted meanwhile counts its CPU time from zero: no difference to take.
        let reconnects = sum(|result| result.reconnects);
        let broker_cpu_seconds = between(&facts.idle, &facts.end).filter(|_| reconnects == 0);
        let (bad_checksums, duplicates) = (sum(|result| result.bad_checksums), order.duplicates);
        let last_consumer_median_ms = median(&last_consumer_ms);
        let outcome = Self {
            passed: order.lost == 0
                && order.out_of_order == 0
                && bad_checksums == 0
                && (duplicates == 0 || args.reconnect),
            topic,
            mode: args.mode,
            ack: args.ack,
            consumers,
            slow_consumers: args.slow_consumers,
            connections: args.connections,
            processes: facts.results.len(),
            message_bytes: args.size,
            messages: args.messages,
            warmup_messages: args.warmup_messages,
            rate: args.rate,
            connect_seconds: connect_ns as f64 / 1e9,
            connected_per_second,
            subscribe_p50_ms: subscribe.percentile_ms(50.0),
            subscribe_p99_ms: subscribe.percentile_ms(99.0),
            avg_ms: latencies.mean_ms(),
            p50_ms: latencies.percentile_ms(50.0),
            p99_ms: latencies.percentile_ms(99.0),
            p999_ms: latencies.percentile_ms(99.9),
            max_ms: latencies.max_ms(),
            last_consumer_median_ms,
            last_consumer_max_ms: last_consumer_ms.iter().copied().fold(0.0, f64::max),
            last_consumer_ms,
            publish_p50_ms: facts.published.receipts.percentile_ms(50.0),
            publish_p99_ms: facts.published.receipts.percentile_ms(99.0),
            lost: order.lost,
            duplicates,
            out_of_order: order.out_of_order,
            bad_checksums,
            foreign: sum(|result| result.foreign),
            reconnects,
            receipts: facts.published.receipt_count,
            resent: facts.published.resent,
            duplicate_reach: order.duplicate_reach,
            delivered,
            deliveries_per_second: deliveries_per_second(&latencies, &last_ns, &facts.published, args),
            burst_deliveries_per_second: ratio(f64::from(consumers), last_consumer_median_ms / 1e3),
            frame_bytes,
            wire_time_ms,
            p99_over_wire_time: ratio(latencies.percentile_ms(99.0), wire_time_ms),
            client_cpu_seconds,
            client_us_per_delivery: client_cpu_seconds * 1e6 / seen,
            broker_cpu_seconds,
            broker_us_per_delivery: broker_cpu_seconds.map(|seconds| seconds * 1e6 / seen),
            broker_connect_cpu_seconds: between(&facts.started, &facts.idle),
            broker_rss_bytes: facts.end.map(|sample| sample.rss_bytes),
            broker_rss_started_bytes: facts.started.map(|sample| sample.rss_bytes),
            broker_rss_idle_bytes: facts.idle.map(|sample| sample.rss_bytes),
            broker_bytes_per_consumer: bytes_per_consumer(&facts.started, &facts.idle, args.consumers),
            stages: facts.stages,
        };
        Ok((outcome, latencies))
    }

    /// The table for people.
    pub(super) fn to_text(&self) -> String {
        let mut text = String::new();
        self.write_text(&mut text).unwrap_or_default();
        text
    }

    fn write_text(&self, out: &mut String) -> std::fmt::Result {
        writeln!(
            out,
            "{} consumers ({}) over {} connections, {} each, {} messages/s, {} messages after {} of warm-up, ack {}\n",
            self.consumers,
            name(&self.mode),
            self.connections,
            show_bytes(self.message_bytes),
            self.rate,
            self.messages,
            self.warmup_messages,
            name(&self.ack),
        )?;
        writeln!(out, "{:<34}{:>14}{:>14}", "", "measured", "study*")?;
        self.write_latencies(out)?;
        self.write_broker(out)?;
        self.write_stages(out)?;
        self.write_counts(out)?;
        writeln!(
            out,
            "\n* 100,000 consumers, 10 KB, 1/s, broker with 16 cores, clients on machines of their own"
        )?;
        write!(out, "{}", if self.passed { "PASSED" } else { "FAILED" })
    }

    fn write_latencies(&self, out: &mut String) -> std::fmt::Result {
        let rows = [
            (
                "connected and subscribed, s",
                self.connect_seconds,
                Some(STUDY.connect_seconds),
            ),
            ("end-to-end latency avg, ms", self.avg_ms, Some(STUDY.avg_ms)),
            ("                   p50, ms", self.p50_ms, None),
            ("                   p99, ms", self.p99_ms, Some(STUDY.p99_ms)),
            ("                 p99.9, ms", self.p999_ms, None),
            ("                   max, ms", self.max_ms, None),
            (
                "to the last consumer, median, ms",
                self.last_consumer_median_ms,
                None,
            ),
            ("to the last consumer, worst, ms", self.last_consumer_max_ms, None),
            ("wire time, ms", self.wire_time_ms, None),
            ("p99 / wire time", self.p99_over_wire_time, None),
            ("publish to receipt p50, ms", self.publish_p50_ms, None),
            ("                   p99, ms", self.publish_p99_ms, None),
            ("subscribe p50, ms", self.subscribe_p50_ms, None),
            ("          p99, ms", self.subscribe_p99_ms, None),
            ("deliveries/s", self.deliveries_per_second, None),
            ("deliveries/s in a burst", self.burst_deliveries_per_second, None),
            ("client CPU, us per delivery", self.client_us_per_delivery, None),
        ];
        rows.into_iter()
            .try_for_each(|(label, value, study)| row(out, label, value, study))
    }

    fn write_counts(&self, out: &mut String) -> std::fmt::Result {
        writeln!(
            out,
            "\nsubscribed in each second: {}",
            seconds(&self.connected_per_second)
        )?;
        writeln!(
            out,
            "delivered {}, lost {}, duplicates {}, out of order {}, bad checksums {}, foreign {}",
            self.delivered, self.lost, self.duplicates, self.out_of_order, self.bad_checksums, self.foreign
        )?;
        if self.reconnects > 0 || self.resent > 0 || self.duplicates > 0 {
            writeln!(
                out,
                "connections lost and reopened {}, receipts {}, sent again {}, duplicates reach back {} messages",
                self.reconnects, self.receipts, self.resent, self.duplicate_reach
            )?;
        }
        if self.slow_consumers > 0 {
            writeln!(
                out,
                "{} further consumers did not read; they are in none of these figures",
                self.slow_consumers
            )?;
        }
        Ok(())
    }

    fn write_broker(&self, out: &mut String) -> std::fmt::Result {
        if let Some(seconds) = self.broker_cpu_seconds {
            row(out, "broker CPU, s", seconds, None)?;
        }
        if let Some(us) = self.broker_us_per_delivery {
            row(out, "broker CPU, us per delivery", us, None)?;
        }
        if let Some(seconds) = self.broker_connect_cpu_seconds {
            row(out, "broker CPU while connecting, s", seconds, None)?;
        }
        let memory = [
            ("broker memory, started", self.broker_rss_started_bytes),
            ("broker memory, all connected", self.broker_rss_idle_bytes),
            ("broker memory, end", self.broker_rss_bytes),
        ];
        for (label, bytes) in memory {
            if let Some(bytes) = bytes {
                writeln!(out, "{label:<34}{:>14}", show_bytes(bytes))?;
            }
        }
        if let Some(bytes) = self.broker_bytes_per_consumer {
            row(out, "broker memory, bytes per consumer", bytes, None)?;
        }
        Ok(())
    }

    fn write_stages(&self, out: &mut String) -> std::fmt::Result {
        if self.stages.is_empty() {
            return Ok(());
        }
        writeln!(
            out,
            "\n{:<34}{:>14}{:>14}{:>14}",
            "stage in the broker, ms", "avg", "p50", "p99"
        )?;
        for stage in &self.stages {
            let show = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.3}"));
            let quantile = |key: &str| show(stage.quantiles_ms.get(key).copied());
            writeln!(
                out,
                "  {:<32}{:>14}{:>14}{:>14}",
                stage.stage,
                show(stage.avg_ms),
                quantile("0.5"),
                quantile("0.99")
            )?;
        }
        Ok(())
    }
}

fn row(out: &mut String, label: &str, value: f64, study: Option<f64>) -> std::fmt::Result {
    let digits = if value.abs() >= 1000.0 { 0 } else { 3 };
    let study = study.map_or_else(String::new, |value| format!("{value:.1}"));
    writeln!(out, "{label:<34}{value:>14.digits$}{study:>14}")
}

fn name(value: &impl clap::ValueEnum) -> String {
    value
        .to_possible_value()
        .map_or_else(String::new, |value| value.get_name().to_owned())
}

fn seconds(per_second: &[u64]) -> String {
    per_second
        .iter()
        .map(u64::to_string)
        .collect::<Vec<_>>()
        .join(" ")
}

fn add_up(sums: &mut Vec<u64>, more: &[u64]) {
    if sums.len() < more.len() {
        sums.resize(more.len(), 0);
    }
    for (sum, value) in sums.iter_mut().zip(more) {
        *sum += value;
    }
}

fn ratio(value: f64, by: f64) -> f64 {
    if by > 0.0 { value / by } else { 0.0 }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

/// When each message reached the last consumer of all processes; 0 if it reached none.
fn last_of_each(results: &[WorkerResult], published: &Published) -> Vec<u64> {
    let mut last = vec![0u64; published.sent_ns.len()];
    for result in results {
        for (slot, ns) in last.iter_mut().zip(&result.last_ns) {
            *slot = (*slot).max(*ns);
        }
    }
    last
}

fn times_to_last(last_ns: &[u64], published: &Published, warmup: u32) -> Vec<f64> {
    let pairs = last_ns.iter().zip(&published.sent_ns).skip(warmup as usize);
    pairs
        .map(|(last, sent)| ns_to_ms(last.saturating_sub(*sent)))
        .collect()
}

/// Measured deliveries over the time from the first measured send to the last delivery.
fn deliveries_per_second(
    latencies: &Latencies,
    last_ns: &[u64],
    published: &Published,
    args: &BroadcastArgs,
) -> f64 {
    let first = published
        .sent_ns
        .get(args.warmup_messages as usize)
        .copied()
        .unwrap_or(0);
    let last = last_ns.iter().copied().max().unwrap_or(0);
    ratio(latencies.count() as f64, last.saturating_sub(first) as f64 / 1e9)
}

fn bytes_per_consumer(
    started: &Option<ProcessSample>,
    idle: &Option<ProcessSample>,
    consumers: u32,
) -> Option<f64> {
    let grown = idle
        .as_ref()?
        .rss_bytes
        .saturating_sub(started.as_ref()?.rss_bytes);
    Some(grown as f64 / f64::from(consumers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_process_decides_when_a_message_is_everywhere() {
        let results = [
            WorkerResult {
                last_ns: vec![5_000_000, 30_000_000],
                ..WorkerResult::default()
            },
            WorkerResult {
                last_ns: vec![9_000_000, 20_000_000],
                ..WorkerResult::default()
            },
        ];
        let published = Published {
            sent_ns: vec![1_000_000, 10_000_000],
            ..Published::default()
        };
        let last = last_of_each(&results, &published);
        assert_eq!(times_to_last(&last, &published, 0), [8.0, 20.0]);
        assert_eq!(times_to_last(&last, &published, 1), [20.0]);
    }

    #[test]
    fn seconds_of_all_processes_are_added_up() {
        let mut sums = vec![1, 2];
        add_up(&mut sums, &[10, 10, 10]);
        assert_eq!(sums, [11, 12, 10]);
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[]), 0.0);
    }
}
