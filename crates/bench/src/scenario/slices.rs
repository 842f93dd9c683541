//! A long case in slices: what each minute was like, and whether memory and disk grew from one to the next.
//!
//! A percentile over half an hour hides a bad minute; the worst slice does not.

use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;

use crate::perf::slice::Slice;
use crate::perf::summary::{Row, Summary};

use super::metric::{self, Figures};

/// Results of one slice of the measured part.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SliceRow {
    /// Its end since the measured part began, seconds.
    at_seconds: f64,
    /// Messages with a receipt a second.
    publish_msg_s: f64,
    /// From the due time to the receipt, ms.
    publish_p50_ms: f64,
    publish_p99_ms: f64,
    publish_p999_ms: f64,
    publish_max_ms: f64,
    /// From the due time to a hot reader, ms.
    e2e_p99_ms: f64,
    /// Resident memory of the broker at its end, MB.
    rss_mb: Option<f64>,
    /// Disk usage of the broker's directories at the end of the slice, in MB.
    disk_mb: Option<f64>,
}

/// The rows of a summary put together to slices of `each`. A rest of less than half a slice is left out.
pub(super) fn slices(summary: &Summary, each: Duration) -> Vec<SliceRow> {
    let mut done = Vec::new();
    let mut group: Vec<&Row> = Vec::new();
    let length = |group: &[&Row]| group.iter().map(|row| row.seconds).sum::<f64>();
    for row in &summary.rows {
        group.push(row);
        // Rows are about a second long: the slice ends with the one that reaches its end.
        if row.at_seconds >= each.as_secs_f64() * (done.len() + 1) as f64 - 0.5 {
            done.push(together(&group));
            group.clear();
        }
    }
    if length(&group) >= each.as_secs_f64() / 2.0 {
        done.push(together(&group));
    }
    done
}

fn together(rows: &[&Row]) -> SliceRow {
    let (mut publish, mut receive, mut seconds) = (Slice::default(), Slice::default(), 0.0);
    for row in rows {
        publish.merge(&row.publish);
        receive.merge(&row.receive);
        seconds += row.seconds;
    }
    let last = rows.last();
    let mb = |bytes: Option<u64>| bytes.map(|bytes| bytes as f64 / 1e6);
    SliceRow {
        at_seconds: last.map_or(0.0, |row| row.at_seconds),
        publish_msg_s: publish.messages as f64 / f64::max(seconds, 1e-9),
        publish_p50_ms: publish.latencies.percentile_ms(50.0),
        publish_p99_ms: publish.latencies.percentile_ms(99.0),
        publish_p999_ms: publish.latencies.percentile_ms(99.9),
        publish_max_ms: publish.latencies.max_ms(),
        e2e_p99_ms: receive.latencies.percentile_ms(99.0),
        rss_mb: mb(last.and_then(|row| row.rss_bytes)),
        disk_mb: mb(last.and_then(|row| row.disk_bytes)),
    }
}

/// The figures that only slices have.
pub(super) fn figures(rows: &[SliceRow]) -> Figures {
    let mut figures = Figures::new();
    let worst = |value: fn(&SliceRow) -> f64| rows.iter().map(value).fold(0.0, f64::max);
    if !rows.is_empty() {
        figures.insert("slice_publish_p99_ms", worst(|row| row.publish_p99_ms));
        figures.insert("slice_e2e_p99_ms", worst(|row| row.e2e_p99_ms));
    }
    let growth = [
        ("memory_growth", rows.iter().map(|row| row.rss_mb).collect()),
        ("disk_growth", rows.iter().map(|row| row.disk_mb).collect()),
    ];
    for (name, values) in growth {
        figures.extend(grown(values).map(|growth| (name, growth)));
    }
    if let Some(most) = rows.iter().filter_map(|row| row.disk_mb).reduce(f64::max) {
        figures.insert("disk_mb", most);
    }
    figures
}

/// The mean of the last third over that of the third before: the first third may fill caches and what is retained.
fn grown(values: Vec<Option<f64>>) -> Option<f64> {
    let values: Option<Vec<f64>> = values.into_iter().collect();
    let values = values?;
    let third = values.len() / 3;
    let (before, last) = values.split_at_checked(values.len() - third)?;
    let middle = before.get(before.len().checked_sub(third)?..)?;
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    (third > 0 && mean(middle) > 0.0).then(|| mean(last) / mean(middle))
}

/// A table of markdown, a row for each slice.
pub(super) fn markdown(rows: &[SliceRow]) -> String {
    let mut out = String::from(
        "| until, s | msg/s | publish p50, ms | p99, ms | p99.9, ms | max, ms | e2e p99, ms | broker MB | on disk, MB |\n\
         |---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for row in rows {
        let some = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), metric::show);
        let _ = writeln!(
            out,
            "| {:.0} | {} | {} | {} | {} | {} | {} | {} | {} |",
            row.at_seconds,
            metric::show(row.publish_msg_s),
            metric::show(row.publish_p50_ms),
            metric::show(row.publish_p99_ms),
            metric::show(row.publish_p999_ms),
            metric::show(row.publish_max_ms),
            metric::show(row.e2e_p99_ms),
            some(row.rss_mb),
            some(row.disk_mb)
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(seconds: u64, p99_of: impl Fn(u64) -> u64) -> Summary {
        let rows = (1..=seconds).map(|second| {
            let mut row = Row {
                at_seconds: second as f64 + 0.01,
                seconds: 1.0,
                rss_bytes: Some(second * 1_000_000),
                disk_bytes: Some(5_000_000),
                ..Row::default()
            };
            row.publish.messages = 100;
            row.publish.latencies.record(p99_of(second), 100);
            row
        });
        Summary {
            rows: rows.collect(),
            ..Summary::default()
        }
    }

    #[test]
    fn a_bad_minute_is_seen() {
        let summary = summary(180, |second| if second > 120 { 9_000_000 } else { 1_000_000 });
        let rows = slices(&summary, Duration::from_secs(60));
        assert_eq!(rows.len(), 3);
        assert!((rows[1].publish_p99_ms - 1.0).abs() < 0.1 && (rows[2].publish_p99_ms - 9.0).abs() < 0.1);
        assert!((rows[0].publish_msg_s - 100.0).abs() < 1.0);
        let figures = figures(&rows);
        assert!((figures["slice_publish_p99_ms"] - 9.0).abs() < 0.1);
        assert!((figures["memory_growth"] - 1.5).abs() < 0.01, "{figures:?}");
        assert!((figures["disk_growth"] - 1.0).abs() < 0.01);
        assert_eq!(figures["disk_mb"], 5.0);
        assert_eq!(markdown(&rows).lines().count(), 5);
    }

    #[test]
    fn a_short_rest_is_no_slice() {
        assert_eq!(slices(&summary(70, |_| 1), Duration::from_secs(60)).len(), 1);
        assert_eq!(slices(&summary(95, |_| 1), Duration::from_secs(60)).len(), 2);
        assert!(figures(&[]).is_empty());
    }
}
