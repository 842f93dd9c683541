//! Time that messages spent in each stage of the broker, between two readings of its metrics page.

use crate::http::HttpDoor;
use crate::metrics::{self, Sample, bucket_quantile, stage_buckets};

/// Distances to 100 % at which a curve has points: down to 1 in 100,000.
const CURVE: [f64; 17] = [
    1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1e3, 2e3, 5e3, 1e4, 2e4, 1e5,
];

/// The histograms of a broker's stages, as its metrics page has them at one moment.
pub struct StageBuckets(Vec<Sample>);

/// Durations of one stage.
#[derive(Clone, Debug, PartialEq)]
pub struct StageTimes {
    /// Its name as the broker gives it.
    pub stage: String,
    /// Messages timed.
    pub count: f64,
    /// Median, milliseconds; between the bounds of the broker's buckets it is interpolated.
    pub p50_ms: f64,
    /// 99th percentile, in milliseconds.
    pub p99_ms: f64,
    /// Points of the curve "time by percentile": (1/(1-quantile), milliseconds).
    pub curve: Vec<(f64, f64)>,
}

impl StageBuckets {
    /// Asks the broker at `http_url`, as `http://host:port`.
    ///
    /// # Errors
    /// It does not answer.
    pub fn fetch(http_url: &str) -> anyhow::Result<Self> {
        Ok(Self(metrics::fetch(&HttpDoor::plain(http_url))?))
    }

    /// The stages that messages passed since `before`, in the order in which a message passes them.
    #[must_use]
    pub fn since(&self, before: &Self) -> Vec<StageTimes> {
        let old = stage_buckets(&before.0);
        let stages = stage_buckets(&self.0).into_iter();
        let times = stages.map(|(stage, mut buckets)| {
            let known = old.iter().find(|(name, _)| *name == stage);
            for (bound, count) in &mut buckets {
                let earlier = known.and_then(|(_, before)| before.iter().find(|(other, _)| other == bound));
                *count -= earlier.map_or(0.0, |(_, count)| *count);
            }
            times(stage, &buckets)
        });
        times.flatten().collect()
    }
}

/// Returns the times from cumulative buckets; `None` if no message was timed.
fn times(stage: String, buckets: &[(f64, f64)]) -> Option<StageTimes> {
    let ms = |quantile| bucket_quantile(buckets, quantile).map(|seconds| seconds * 1e3);
    let count = buckets.iter().map(|(_, count)| *count).fold(0.0, f64::max);
    // A message alone says nothing of one in a thousand.
    let points = CURVE.iter().filter(|distance| **distance <= count);
    let point = |distance: &f64| Some((*distance, ms(1.0 - 1.0 / distance)?));
    Some(StageTimes {
        stage,
        count,
        p50_ms: ms(0.5)?,
        p99_ms: ms(0.99)?,
        curve: points.filter_map(point).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(slow: u32, all: u32) -> StageBuckets {
        let text = format!(
            "pharos_stage_seconds_bucket{{stage=\"persistence\",le=\"0.001\"}} {slow}\n\
             pharos_stage_seconds_bucket{{stage=\"persistence\",le=\"0.01\"}} {all}\n\
             pharos_stage_seconds_bucket{{stage=\"persistence\",le=\"+Inf\"}} {all}\n\
             pharos_stage_seconds_bucket{{stage=\"receive\",le=\"0.001\"}} 7\n\
             pharos_stage_seconds_bucket{{stage=\"receive\",le=\"+Inf\"}} 7\n"
        );
        StageBuckets(metrics::parse(&text))
    }

    #[test]
    fn only_what_came_since_counts() {
        let times = page(1_000, 1_010).since(&page(1_000, 1_000));
        let stages: Vec<&str> = times.iter().map(|of| of.stage.as_str()).collect();
        assert_eq!(stages, ["persistence"], "no message passed the other one");
        assert_eq!(times[0].count, 10.0);
        assert!(times[0].p50_ms > 1.0, "the quick ones were before");
        assert_eq!(times[0].curve.last().map(|point| point.0), Some(10.0));
    }
}
