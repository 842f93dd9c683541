//! HdrHistogram percentile text (`.hgrm`), as HdrHistogram plotters read it.
//!
//! Columns: value, percentile (0 to 1), count up to there, 1/(1-percentile); then three comment lines. Values are
//! milliseconds.

use std::io::Write;

use crate::histogram::Latencies;

/// Percentile steps per halving of the distance to 100 %.
const TICKS_PER_HALF: u32 = 5;

/// Writes the distribution.
pub(crate) fn write(latencies: &Latencies, out: &mut impl Write) -> std::io::Result<()> {
    let histogram = latencies.inner();
    writeln!(
        out,
        "{:>12} {:>14} {:>10} {:>14}\n",
        "Value", "Percentile", "TotalCount", "1/(1-Percentile)"
    )?;
    let mut total = 0u64;
    for step in histogram.iter_quantiles(TICKS_PER_HALF) {
        total += step.count_since_last_iteration();
        let value = step.value_iterated_to() as f64 / 1e6;
        let quantile = step.quantile_iterated_to();
        if quantile < 1.0 {
            writeln!(
                out,
                "{value:>12.3} {quantile:>14.12} {total:>10} {:>14.2}",
                1.0 / (1.0 - quantile)
            )?;
        } else {
            writeln!(out, "{value:>12.3} {quantile:>14.12} {total:>10}")?;
        }
    }
    let (mean, deviation) = (histogram.mean() / 1e6, histogram.stdev() / 1e6);
    writeln!(
        out,
        "#[Mean    = {mean:>12.3}, StdDeviation   = {deviation:>12.3}]"
    )?;
    writeln!(
        out,
        "#[Max     = {:>12.3}, Total count    = {:>12}]",
        latencies.max_ms(),
        histogram.len()
    )?;
    writeln!(
        out,
        "#[Buckets = {:>12}, SubBuckets     = {:>12}]",
        histogram.buckets(),
        histogram.distinct_values() / usize::from(histogram.buckets()).max(1)
    )
}

/// Points of the curve "latency by percentile": (1/(1-quantile), milliseconds), for plots with a logarithmic x axis.
pub fn curve(latencies: &Latencies) -> Vec<(f64, f64)> {
    latencies
        .inner()
        .iter_quantiles(TICKS_PER_HALF)
        .filter(|step| step.quantile_iterated_to() < 1.0)
        .map(|step| {
            (
                1.0 / (1.0 - step.quantile_iterated_to()),
                step.value_iterated_to() as f64 / 1e6,
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_ends_at_one_and_counts_everything() {
        let mut latencies = Latencies::default();
        for ms in 1..=1000u64 {
            latencies.record(ms * 1_000_000, 1);
        }
        let mut out = Vec::new();
        write(&latencies, &mut out).expect("writes");
        let text = String::from_utf8(out).expect("text");
        let rows: Vec<&str> = text
            .lines()
            .skip(2)
            .filter(|line| !line.starts_with('#'))
            .collect();
        let last: Vec<&str> = rows.last().expect("rows").split_whitespace().collect();
        assert_eq!(last[1], "1.000000000000");
        assert_eq!(last[2], "1000");
        assert!(text.contains("Total count    =         1000"));
        assert!(curve(&latencies).windows(2).all(|pair| pair[0].1 <= pair[1].1));
    }
}
