//! Reads a broker's Prometheus page, taking what it finds and missing nothing it does not.

use std::collections::BTreeMap;

use crate::http::HttpDoor;

/// Line of the metrics page.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample {
    /// Metric name.
    pub(crate) name: String,
    /// Labels.
    pub(crate) labels: BTreeMap<String, String>,
    /// Value.
    pub(crate) value: f64,
}

/// Stage of a message in the broker.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub(crate) struct Stage {
    /// Its name as the broker gives it.
    pub(crate) stage: String,
    /// Messages timed.
    pub(crate) count: Option<f64>,
    /// Mean, milliseconds.
    pub(crate) avg_ms: Option<f64>,
    /// Milliseconds by quantile, as the broker names it (`0.5`, `0.99`).
    pub(crate) quantiles_ms: BTreeMap<String, f64>,
}

const STAGES: &str = "pharos_stage_seconds";

/// `GET /metrics`.
pub(crate) fn fetch(http: &HttpDoor) -> anyhow::Result<Vec<Sample>> {
    Ok(parse(&http.get("/metrics")?))
}

/// Parses a Prometheus text page; lines that do not parse are left out.
pub(crate) fn parse(page: &str) -> Vec<Sample> {
    page.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(parse_line)
        .collect()
}

fn parse_line(line: &str) -> Option<Sample> {
    let line = line.trim();
    let name_end = line.find(|c: char| c == '{' || c.is_whitespace())?;
    let (name, mut rest) = line.split_at(name_end);
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = parse_labels(inside, &mut labels)?;
    }
    let value = rest.split_whitespace().next()?.parse().ok()?;
    Some(Sample {
        name: name.to_owned(),
        labels,
        value,
    })
}

/// Reads `a="x",b="y"}` and gives what follows the brace.
fn parse_labels<'a>(mut rest: &'a str, labels: &mut BTreeMap<String, String>) -> Option<&'a str> {
    loop {
        rest = rest.trim_start_matches([',', ' ']);
        if let Some(after) = rest.strip_prefix('}') {
            return Some(after);
        }
        let (key, after) = rest.split_once("=\"")?;
        let mut value = String::new();
        let mut chars = after.char_indices();
        let end = loop {
            match chars.next()? {
                (at, '"') => break at,
                (_, '\\') => match chars.next()?.1 {
                    'n' => value.push('\n'),
                    other => value.push(other),
                },
                (_, other) => value.push(other),
            }
        };
        labels.insert(key.trim().to_owned(), value);
        rest = after.get(end + 1..)?;
    }
}

/// The value of a metric without labels, or the sum over its labels.
pub(crate) fn value(samples: &[Sample], name: &str) -> Option<f64> {
    let mut found = samples.iter().filter(|sample| sample.name == name).peekable();
    found.peek()?;
    Some(found.map(|sample| sample.value).sum())
}

/// The stages of the page in their order, from quantiles, or from histogram buckets where there are only those.
pub(crate) fn stages(samples: &[Sample]) -> Vec<Stage> {
    let names = stage_names(samples).into_iter();
    names.map(|name| stage(samples, name)).collect()
}

/// The names of the stages in the order of the page.
fn stage_names(samples: &[Sample]) -> Vec<&str> {
    let mut order: Vec<&str> = Vec::new();
    for sample in samples.iter().filter(|sample| sample.name.starts_with(STAGES)) {
        if let Some(stage) = sample.labels.get("stage")
            && !order.contains(&stage.as_str())
        {
            order.push(stage);
        }
    }
    order
}

/// The cumulative buckets of each stage in the order of the page: upper bound in seconds, and count; one row for each bound.
pub(crate) fn stage_buckets(samples: &[Sample]) -> Vec<(String, Vec<(f64, f64)>)> {
    let names = stage_names(samples).into_iter();
    let of = |name: &str| (name.to_owned(), summed(&buckets_of(samples, name)));
    names.map(of).collect()
}

fn buckets_of(samples: &[Sample], stage: &str) -> Vec<(f64, f64)> {
    let name = format!("{STAGES}_bucket");
    let own = samples
        .iter()
        .filter(|sample| sample.name == name)
        .filter(|sample| sample.labels.get("stage").is_some_and(|own| own == stage));
    own.filter_map(|sample| Some((parse_bound(sample.labels.get("le")?)?, sample.value)))
        .collect()
}

/// Buckets of several series added up, the lowest bound first.
fn summed(buckets: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut sums: Vec<(f64, f64)> = Vec::new();
    for (bound, count) in buckets {
        match sums.iter_mut().find(|(known, _)| known == bound) {
            Some((_, sum)) => *sum += count,
            None => sums.push((*bound, *count)),
        }
    }
    sums.sort_by(|a, b| a.0.total_cmp(&b.0));
    sums
}

fn stage(samples: &[Sample], name: &str) -> Stage {
    let of_stage = |suffix: &str| {
        let full = format!("{STAGES}{suffix}");
        samples
            .iter()
            .filter(move |sample| sample.name == full)
            .filter(|sample| sample.labels.get("stage").is_some_and(|stage| stage == name))
    };
    let mut found = Stage {
        stage: name.to_owned(),
        ..Stage::default()
    };
    for sample in of_stage("") {
        if let Some(quantile) = sample.labels.get("quantile")
            && sample.value.is_finite()
        {
            // Several shards may each report the stage: the worst one is the honest figure.
            let slot = found.quantiles_ms.entry(quantile.clone()).or_insert(0.0);
            *slot = slot.max(sample.value * 1e3);
        }
    }
    let sum = |suffix| {
        let mut values = of_stage(suffix).map(|sample| sample.value).peekable();
        values.peek().is_some().then(|| values.sum::<f64>())
    };
    found.count = sum("_count");
    if let (Some(count), Some(total)) = (found.count, sum("_sum"))
        && count > 0.0
    {
        found.avg_ms = Some(total / count * 1e3);
    }
    if found.quantiles_ms.is_empty() {
        let buckets = buckets_of(samples, name);
        for (label, quantile) in [("0.5", 0.5), ("0.99", 0.99), ("0.999", 0.999)] {
            if let Some(seconds) = bucket_quantile(&buckets, quantile) {
                found.quantiles_ms.insert(label.to_owned(), seconds * 1e3);
            }
        }
    }
    found
}

fn parse_bound(text: &str) -> Option<f64> {
    if text == "+Inf" {
        Some(f64::INFINITY)
    } else {
        text.parse().ok()
    }
}

/// Returns the quantile by linear interpolation within its bucket; cumulative buckets of several series are summed.
/// Beyond the largest finite bound, returns that bound.
pub(crate) fn bucket_quantile(buckets: &[(f64, f64)], quantile: f64) -> Option<f64> {
    let sums = summed(buckets);
    let total = sums
        .last()
        .map(|(_, count)| *count)
        .filter(|total| *total > 0.0)?;
    let largest_finite = sums
        .iter()
        .rev()
        .map(|(bound, _)| *bound)
        .find(|bound| bound.is_finite())?;
    let rank = total * quantile;
    let at = sums.iter().position(|(_, count)| *count >= rank)?;
    let (bound, count) = *sums.get(at)?;
    let (bound_before, count_before) = match at {
        0 => (0.0, 0.0),
        _ => *sums.get(at - 1)?,
    };
    if !bound.is_finite() || count <= count_before {
        return Some(bound.min(largest_finite));
    }
    Some(bound_before + (bound - bound_before) * (rank - count_before) / (count - count_before))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_give_their_quantiles() {
        let page = "# HELP x y\npharos_stage_seconds{stage=\"persistence\",quantile=\"0.99\"} 0.0021\n\
                    pharos_stage_seconds_sum{stage=\"persistence\"} 3\n\
                    pharos_stage_seconds_count{stage=\"persistence\"} 1000 1700000000\n\
                    process_cpu_seconds_total 1.5\ngarbage\n";
        let samples = parse(page);
        let stages = stages(&samples);
        assert_eq!(stages.len(), 1);
        assert_eq!(stages[0].stage, "persistence");
        assert!((stages[0].quantiles_ms["0.99"] - 2.1).abs() < 1e-9);
        assert_eq!(stages[0].avg_ms, Some(3.0));
        assert_eq!(value(&samples, "process_cpu_seconds_total"), Some(1.5));
        assert_eq!(value(&samples, "absent"), None);
    }

    #[test]
    fn buckets_stand_in_where_there_are_no_quantiles() {
        let page = "pharos_stage_seconds_bucket{stage=\"a\",le=\"0.001\"} 50\n\
                    pharos_stage_seconds_bucket{stage=\"a\",le=\"0.01\"} 99\n\
                    pharos_stage_seconds_bucket{stage=\"a\",le=\"+Inf\"} 100\n";
        let stages = stages(&parse(page));
        assert_eq!(stages[0].quantiles_ms["0.5"], 1.0);
        assert!((stages[0].quantiles_ms["0.99"] - 10.0).abs() < 1e-9);
        assert_eq!(stages[0].quantiles_ms["0.999"], 10.0);
        let within = [(1.0, 0.0), (3.0, 10.0), (f64::INFINITY, 10.0)];
        assert_eq!(bucket_quantile(&within, 0.5), Some(2.0));
    }

    #[test]
    fn label_values_may_be_escaped() {
        let sample = parse_line(r#"m{a="x\"y}",b="2"} 4"#).expect("parses");
        assert_eq!(sample.labels["a"], "x\"y}");
        assert_eq!(sample.value, 4.0);
    }
}
