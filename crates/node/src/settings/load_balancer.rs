//! Settings of how brokers share bundles.

use std::time::Duration;

use pharos_cluster::BalanceOptions;

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
}
