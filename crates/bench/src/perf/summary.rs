//! Results of a throughput run: one row per interval, totals, and their JSON under the keys of OpenMessaging
//! Benchmark.

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::histogram::Latencies;
use crate::procfs::ProcessSample;

use super::load_threads::Counts;
use super::slice::{Side, Slice};

/// Results of one interval of a run.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// End of the interval since the measured part began, seconds.
    pub at_seconds: f64,
    /// Its length, seconds.
    pub seconds: f64,
    /// Published in it.
    pub publish: Slice,
    /// Received in it.
    pub receive: Slice,
    /// Read of what was stored before, in it.
    pub backlog_read: Slice,
    /// Published but not yet received by all subscriptions, at its end.
    pub backlog: u64,
    /// Broker memory at its end, bytes, where that was looked at.
    pub rss_bytes: Option<u64>,
    /// Disk usage of the broker's directories at the end of the interval, in bytes, if measured.
    pub disk_bytes: Option<u64>,
}

/// A whole run.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Name of the run, for the heading.
    pub title: String,
    /// Facts of the workload, for the JSON.
    pub workload: Map<String, Value>,
    /// Rows, one per second.
    pub rows: Vec<Row>,
    /// Sum over the measured part.
    pub publish: Slice,
    /// Sum over the measured part.
    pub receive: Slice,
    /// Sum over the measured part.
    pub backlog_read: Slice,
    /// Length of the measured part, seconds.
    pub seconds: f64,
    /// Messages receipted but never received, warm-up included.
    pub lost: u64,
    /// Out of order or doubled, warm-up included.
    pub out_of_order: u64,
    /// Messages with a changed body, warm-up included.
    pub damaged: u64,
    /// Broker CPU over the measured part, seconds.
    pub broker_cpu_seconds: Option<f64>,
    /// Broker memory at the end, bytes.
    pub broker_rss_bytes: Option<u64>,
    /// CPU of this process over the measured part, seconds.
    pub client_cpu_seconds: f64,
}

impl Row {
    /// The counts of one side.
    pub fn side(&self, side: Side) -> &Slice {
        match side {
            Side::Publish => &self.publish,
            Side::Receive => &self.receive,
            Side::Backlog => &self.backlog_read,
        }
    }
}

/// A line of the running report.
pub(crate) fn line(side: Side, slice: &Slice, seconds: f64, total: u64) -> String {
    let verb = match side {
        Side::Publish => "produced",
        Side::Receive => "received",
        Side::Backlog => "backlog read",
    };
    let latencies = &slice.latencies;
    format!(
        "Throughput {verb}: {total:>10} msg --- {:>10.1} msg/s --- {:>8.1} Mbit/s --- failure {} --- Latency: mean: {:.3} ms \
         - med: {:.3} - 95pct: {:.3} - 99pct: {:.3} - 99.9pct: {:.3} - 99.99pct: {:.3} - Max: {:.3}",
        slice.messages as f64 / seconds,
        slice.bytes as f64 * 8.0 / 1e6 / seconds,
        slice.errors,
        latencies.mean_ms(),
        latencies.percentile_ms(50.0),
        latencies.percentile_ms(95.0),
        latencies.percentile_ms(99.0),
        latencies.percentile_ms(99.9),
        latencies.percentile_ms(99.99),
        latencies.max_ms(),
    )
}

/// The percentiles that OpenMessaging Benchmark's result files carry, and how their keys spell them.
const PERCENTILES: [(&str, f64); 6] = [
    ("50pct", 50.0),
    ("75pct", 75.0),
    ("95pct", 95.0),
    ("99pct", 99.0),
    ("999pct", 99.9),
    ("9999pct", 99.99),
];

impl Summary {
    /// Takes the sums of the measured part.
    pub fn take_counts(&mut self, counts: &Counts) {
        self.publish = counts.of(Side::Publish).clone();
        self.receive = counts.of(Side::Receive).clone();
        self.backlog_read = counts.of(Side::Backlog).clone();
    }

    /// Takes what the broker and this process used between two samples: the broker's, and CPU nanoseconds of this process.
    pub fn take_samples(
        &mut self,
        before: (Option<ProcessSample>, u64),
        after: (Option<ProcessSample>, u64),
    ) {
        self.client_cpu_seconds = (after.1 - before.1) as f64 / 1e9;
        self.broker_rss_bytes = after.0.map(|sample| sample.rss_bytes);
        let both = after.0.zip(before.0);
        self.broker_cpu_seconds = both.map(|(after, before)| after.cpu_seconds - before.cpu_seconds);
    }

    /// The result as JSON; rates in messages a second, latencies in milliseconds, one array element per second.
    pub(crate) fn to_json(&self) -> Value {
        let mut out = self.workload.clone();
        let mut put = |key: &str, value: Value| {
            out.insert(key.to_owned(), value);
        };
        let rate = |side: Side| series(&self.rows, |row| row.side(side).messages as f64 / row.seconds);
        put("publishRate", rate(Side::Publish));
        put("consumeRate", rate(Side::Receive));
        put(
            "publishErrorRate",
            series(&self.rows, |row| row.publish.errors as f64 / row.seconds),
        );
        put("backlog", series(&self.rows, |row| row.backlog as f64));
        let sides = [
            (Side::Publish, "publishLatency", &self.publish),
            (Side::Receive, "endToEndLatency", &self.receive),
        ];
        for (side, prefix, total) in sides {
            put(
                &format!("{prefix}Avg"),
                series(&self.rows, |row| row.side(side).latencies.mean_ms()),
            );
            put(
                &format!("{prefix}Max"),
                series(&self.rows, |row| row.side(side).latencies.max_ms()),
            );
            let upper = capital(prefix);
            put(
                &format!("aggregated{upper}Avg"),
                number(total.latencies.mean_ms()),
            );
            put(&format!("aggregated{upper}Max"), number(total.latencies.max_ms()));
            for (suffix, percentile) in PERCENTILES {
                let each = series(&self.rows, |row| {
                    row.side(side).latencies.percentile_ms(percentile)
                });
                put(&format!("{prefix}{suffix}"), each);
                put(
                    &format!("aggregated{upper}{suffix}"),
                    number(total.latencies.percentile_ms(percentile)),
                );
            }
            put(
                &format!("aggregated{upper}Quantiles"),
                quantiles(&total.latencies),
            );
        }
        put("messagesPublished", json!(self.publish.messages));
        put("messagesConsumed", json!(self.receive.messages));
        put(
            "averagePublishRate",
            number(self.publish.messages as f64 / self.seconds.max(1e-9)),
        );
        put(
            "averageConsumeRate",
            number(self.receive.messages as f64 / self.seconds.max(1e-9)),
        );
        put("durationSeconds", number(self.seconds));
        put("lost", json!(self.lost));
        put("outOfOrder", json!(self.out_of_order));
        put("damaged", json!(self.damaged));
        put("clientCpuSeconds", number(self.client_cpu_seconds));
        if let Some(late) = &self.publish.late {
            put("clientLateMax", number(late.max_ms()));
            for (suffix, percentile) in PERCENTILES {
                put(
                    &format!("clientLate{suffix}"),
                    number(late.percentile_ms(percentile)),
                );
            }
        }
        if let Some(seconds) = self.broker_cpu_seconds {
            put("brokerCpuSeconds", number(seconds));
        }
        if let Some(bytes) = self.broker_rss_bytes {
            put("brokerRssBytes", json!(bytes));
        }
        Value::Object(out)
    }

    /// Totals for people.
    pub(crate) fn to_text(&self) -> String {
        let mut lines = vec![format!("\n{}, {:.0} s measured", self.title, self.seconds)];
        for (side, slice) in [(Side::Publish, &self.publish), (Side::Receive, &self.receive)] {
            if slice.messages > 0 {
                lines.push(format!(
                    "Aggregated. {}",
                    line(side, slice, self.seconds.max(1e-9), slice.messages)
                ));
            }
        }
        let volume = (self.publish.bytes.max(self.receive.bytes)) as f64 / 1e9;
        if let Some(seconds) = self.broker_cpu_seconds {
            lines.push(format!(
                "broker CPU {seconds:.2} s, {:.3} s per GB",
                seconds / volume.max(1e-9)
            ));
        }
        if let Some(bytes) = self.broker_rss_bytes {
            lines.push(format!("broker memory {}", crate::units::show_bytes(bytes)));
        }
        let client = self.client_cpu_seconds;
        lines.push(format!(
            "client CPU {client:.2} s, {:.3} s per GB",
            client / volume.max(1e-9)
        ));
        if let Some(late) = &self.publish.late {
            lines.push(format!(
                "client late, which the latencies contain: med: {:.3} - 99pct: {:.3} - 99.9pct: {:.3} - Max: {:.3}",
                late.percentile_ms(50.0),
                late.percentile_ms(99.0),
                late.percentile_ms(99.9),
                late.max_ms(),
            ));
        }
        lines.push(format!(
            "lost {}, out of order {}, damaged {}",
            self.lost, self.out_of_order, self.damaged
        ));
        lines.join("\n")
    }
}

fn series(rows: &[Row], value: impl Fn(&Row) -> f64) -> Value {
    rows.iter().map(|row| number(value(row))).collect()
}

fn quantiles(latencies: &Latencies) -> Value {
    #[derive(Serialize)]
    struct Quantiles(std::collections::BTreeMap<String, f64>);
    let steps = latencies.inner().iter_quantiles(2);
    let map = steps
        .map(|step| {
            (
                format!("{:.5}", step.quantile_iterated_to() * 100.0),
                step.value_iterated_to() as f64 / 1e6,
            )
        })
        .collect();
    serde_json::to_value(Quantiles(map)).unwrap_or_default()
}

/// Three digits after the point: more would only pretend.
fn number(value: f64) -> Value {
    json!((value * 1e3).round() / 1e3)
}

fn capital(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().map_or_else(String::new, |first| {
        first.to_uppercase().collect::<String>() + chars.as_str()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary() -> Summary {
        let mut publish = Slice {
            messages: 500,
            bytes: 50_000,
            ..Slice::default()
        };
        publish.latencies.record(2_000_000, 500);
        let row = Row {
            at_seconds: 1.0,
            seconds: 0.5,
            publish: publish.clone(),
            ..Row::default()
        };
        Summary {
            rows: vec![row],
            publish,
            seconds: 0.5,
            ..Summary::default()
        }
    }

    #[test]
    fn the_usual_keys_are_there() {
        let json = summary().to_json();
        assert_eq!(json["publishRate"], json!([1000.0]));
        assert_eq!(json["consumeRate"], json!([0.0]));
        assert!((json["publishLatency99pct"][0].as_f64().expect("number") - 2.0).abs() < 0.01);
        assert!(json["aggregatedPublishLatency999pct"].is_number());
        assert!(json["endToEndLatency99pct"].is_array());
        assert!(json["aggregatedEndToEndLatencyQuantiles"].is_object());
    }

    #[test]
    fn a_line_says_rate_and_volume() {
        let line = line(Side::Publish, &summary().publish, 0.5, 500);
        assert!(line.contains("1000.0 msg/s"), "{line}");
        assert!(line.contains("0.8 Mbit/s"), "{line}");
    }
}
