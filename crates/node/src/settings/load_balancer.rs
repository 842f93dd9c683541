//! Settings of how brokers share bundles.

use std::time::Duration;

use pharos_broker_admin::SplitOptions;
use pharos_catalog::BundleDivision;
use pharos_cluster::{BalanceOptions, BundleLimits};

use super::{ByteSize, Value};

/// How brokers share bundles.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadBalancerSettings {
    /// Whether load counts.
    pub enabled: bool,
    /// Whether busy brokers give away.
    pub shedding_enabled: bool,
    /// How often it is looked whether to.
    pub shedding_interval: Duration,
    /// How long a bundle stays where it came to.
    pub shedding_grace_period: Duration,
    /// Percentage points above the average.
    pub shedding_threshold: u32,
    /// Percent beyond which a broker gets nothing.
    pub overloaded_threshold: u32,
    /// Percent of change that others hear of.
    pub report_threshold: u32,
    /// How often it is looked.
    pub report_min_interval: Duration,
    /// How often others hear of it all the same.
    pub report_max_interval: Duration,
    /// Whether bundles that carry too much are cut.
    pub auto_split_enabled: bool,
    /// Whether other brokers get parts of them.
    pub auto_split_unload: bool,
    /// How often it is looked whether some do.
    pub split_interval: Duration,
    /// Where they are cut.
    pub split_algorithm: SplitAlgorithm,
    /// Loaded topics of a bundle.
    pub bundle_max_topics: u32,
    /// Producers and consumers of a bundle.
    pub bundle_max_sessions: u32,
    /// Messages a second of a bundle, in and out.
    pub bundle_max_msg_rate: u32,
    /// Bytes a second of a bundle, in and out.
    pub bundle_max_bandwidth: ByteSize,
    /// Bundles of a namespace.
    pub namespace_max_bundles: u32,
}

impl Default for LoadBalancerSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            shedding_enabled: true,
            shedding_interval: Duration::from_mins(1),
            shedding_grace_period: Duration::from_mins(30),
            shedding_threshold: 10,
            overloaded_threshold: 85,
            report_threshold: 10,
            report_min_interval: Duration::from_secs(5),
            report_max_interval: Duration::from_mins(15),
            auto_split_enabled: true,
            auto_split_unload: true,
            split_interval: Duration::from_mins(1),
            split_algorithm: SplitAlgorithm::default(),
            bundle_max_topics: 1000,
            bundle_max_sessions: 1000,
            bundle_max_msg_rate: 30_000,
            bundle_max_bandwidth: ByteSize::mib(100),
            namespace_max_bundles: 128,
        }
    }
}

impl LoadBalancerSettings {
    /// For the table of bundles.
    pub(crate) fn options(&self) -> BalanceOptions {
        BalanceOptions {
            enabled: self.enabled,
            shedding: self.shedding_enabled,
            overloaded_percent: f64::from(self.overloaded_threshold),
            threshold_points: f64::from(self.shedding_threshold),
            change_percent: f64::from(self.report_threshold),
        }
    }

    /// When bundles are cut.
    pub(crate) fn split(&self) -> SplitOptions {
        SplitOptions {
            limits: BundleLimits {
                topics_max: self.bundle_max_topics,
                sessions_max: self.bundle_max_sessions,
                msg_rate_max: self.bundle_max_msg_rate,
                bandwidth_max: self.bundle_max_bandwidth.0,
            },
            bundles_max: self.namespace_max_bundles,
            division: self.split_algorithm.0,
            unload: self.auto_split_unload,
        }
    }
}

/// How a bundle is cut when the caller does not say, and by itself: without positions, which only a caller can give.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SplitAlgorithm(pub BundleDivision);

impl Value for SplitAlgorithm {
    const KIND: &'static str =
        "range_equally_divide, topic_count_equally_divide or flow_or_qps_equally_divide";

    fn parse(text: &str) -> Result<Self, String> {
        match BundleDivision::parse(text) {
            Some(BundleDivision::Positions) | None => {
                Err(format!("'{text}' is none of: {}", Self::KIND.replace(" or", ",")))
            }
            Some(division) => Ok(Self(division)),
        }
    }

    fn show(&self) -> String {
        self.0.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cutting_by_itself_needs_no_positions() {
        let parse = |text| SplitAlgorithm::parse(text).ok().map(|it| it.show());
        let load = "flow_or_qps_equally_divide";
        assert_eq!(parse(load).as_deref(), Some(load));
        assert_eq!(parse("specified_positions_divide"), None);
        assert_eq!(parse(""), None);
    }
}
