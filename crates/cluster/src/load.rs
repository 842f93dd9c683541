//! Load reports that brokers send each other: stored under a broker's registration, with the members that Pulsar's
//! own brokers have there.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{BrokerAddresses, Listeners};

/// Usage of a resource by a broker; both members have the same unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceUsage {
    /// Used amount.
    pub usage: f64,
    /// Available amount; 0 or less: unknown.
    pub limit: f64,
}

impl ResourceUsage {
    /// In percent; 0 where it is not known how much there is.
    #[must_use]
    pub fn percent(self) -> f64 {
        if self.limit > 0.0 {
            self.usage / self.limit * 100.0
        } else {
            0.0
        }
    }
}

/// Load of the topics of a bundle; rates per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BundleLoad {
    /// Messages published.
    pub msg_rate_in: f64,
    /// Bytes published.
    pub msg_throughput_in: f64,
    /// Messages delivered.
    pub msg_rate_out: f64,
    /// Bytes delivered.
    pub msg_throughput_out: f64,
    /// Consumers.
    pub consumer_count: u64,
    /// Producers.
    pub producer_count: u64,
    /// Loaded topics.
    pub topics: u64,
    /// Always 0: caches are the broker's.
    pub cache_size: u64,
}

impl BundleLoad {
    /// Bytes in and out.
    #[must_use]
    pub fn throughput(&self) -> f64 {
        self.msg_throughput_in + self.msg_throughput_out
    }

    /// Adds another.
    pub fn add(&mut self, other: &Self) {
        self.msg_rate_in += other.msg_rate_in;
        self.msg_throughput_in += other.msg_throughput_in;
        self.msg_rate_out += other.msg_rate_out;
        self.msg_throughput_out += other.msg_throughput_out;
        self.consumer_count += other.consumer_count;
        self.producer_count += other.producer_count;
        self.topics += other.topics;
    }
}

/// Load report of a broker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LoadReport {
    /// `http://host:port`.
    pub web_service_url: String,
    /// `https://host:port`.
    pub web_service_url_tls: Option<String>,
    /// `pulsar://host:port`.
    pub pulsar_service_url: String,
    /// `pulsar+ssl://host:port`.
    pub pulsar_service_url_tls: Option<String>,
    /// Always.
    pub persistent_topics_enabled: bool,
    /// Always.
    pub non_persistent_topics_enabled: bool,
    /// In percent of one processor.
    pub cpu: ResourceUsage,
    /// Resident, in MiB.
    pub memory: ResourceUsage,
    /// Part of `memory` here.
    pub direct_memory: ResourceUsage,
    /// Publish traffic of clients, in Kbit per second. The capacity of the network is not known.
    pub bandwidth_in: ResourceUsage,
    /// Dispatch traffic to clients, in Kbit per second.
    pub bandwidth_out: ResourceUsage,
    /// Bytes a second.
    pub msg_throughput_in: f64,
    /// Bytes a second.
    pub msg_throughput_out: f64,
    /// Messages a second.
    pub msg_rate_in: f64,
    /// Messages a second.
    pub msg_rate_out: f64,
    /// Milliseconds since 1970.
    pub last_update: u64,
    /// By bundle, `<tenant>/<namespace>/<range>`.
    pub last_stats: BTreeMap<String, BundleLoad>,
    /// Loaded topics.
    pub num_topics: u64,
    /// Bundles that it owns.
    pub num_bundles: u64,
    /// Consumers.
    pub num_consumers: u64,
    /// Producers.
    pub num_producers: u64,
    /// The bundles that it owns.
    pub bundles: BTreeSet<String>,
    /// Version of the broker.
    pub broker_version_string: String,
    /// The kind of report, in Pulsar's word.
    pub load_report_type: String,
    /// Further addresses by the name of a listener.
    pub advertised_listeners: Listeners,
}

impl LoadReport {
    /// Returns the report of a broker without load.
    #[must_use]
    pub fn idle(addresses: &BrokerAddresses) -> Self {
        Self {
            web_service_url: addresses.http_url.clone(),
            web_service_url_tls: addresses.http_url_tls.clone(),
            pulsar_service_url: addresses.native_url.clone(),
            pulsar_service_url_tls: addresses.native_url_tls.clone(),
            advertised_listeners: addresses.advertised_listeners.clone(),
            persistent_topics_enabled: true,
            non_persistent_topics_enabled: true,
            load_report_type: "LocalBrokerData".to_owned(),
            broker_version_string: concat!("pharos-", env!("CARGO_PKG_VERSION")).to_owned(),
            ..Self::default()
        }
    }

    /// Takes what its bundles do, and sums it up.
    pub fn set_bundles(&mut self, bundles: BTreeMap<String, BundleLoad>) {
        let mut all = BundleLoad::default();
        for bundle in bundles.values() {
            all.add(bundle);
        }
        let kbit = |bytes: f64| bytes * 8.0 / 1024.0;
        self.bandwidth_in.usage = kbit(all.msg_throughput_in);
        self.bandwidth_out.usage = kbit(all.msg_throughput_out);
        self.msg_throughput_in = all.msg_throughput_in;
        self.msg_throughput_out = all.msg_throughput_out;
        self.msg_rate_in = all.msg_rate_in;
        self.msg_rate_out = all.msg_rate_out;
        self.num_topics = all.topics;
        self.num_consumers = all.consumer_count;
        self.num_producers = all.producer_count;
        self.last_stats = bundles;
    }

    /// Returns the usage that decides overload, in percent: the largest of the resources with a limit. Memory is
    /// excluded: caches fill what they may.
    #[must_use]
    pub fn usage(&self) -> f64 {
        let all = [self.cpu, self.bandwidth_in, self.bandwidth_out];
        all.into_iter().map(ResourceUsage::percent).fold(0.0, f64::max)
    }

    /// Messages in and out, a second.
    #[must_use]
    pub fn msg_rate(&self) -> f64 {
        self.msg_rate_in + self.msg_rate_out
    }

    /// Bytes in and out, a second.
    #[must_use]
    pub fn throughput(&self) -> f64 {
        self.msg_throughput_in + self.msg_throughput_out
    }

    /// True if the load differs enough from `told` to be reported: any figure by more than `percent`, of itself or,
    /// for those that have a limit, of that limit.
    #[must_use]
    pub fn differs(&self, told: &Self, percent: f64) -> bool {
        let by = |now: f64, then: f64| {
            let change = (now - then).abs();
            change > 0.0 && (then == 0.0 || change / then * 100.0 > percent)
        };
        let used = (self.usage() - told.usage()).abs() > percent;
        used || by(self.msg_rate().round(), told.msg_rate().round())
            || by(self.throughput().round(), told.throughput().round())
            || self.bundles != told.bundles
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_rate(rate: f64) -> LoadReport {
        let mut report = LoadReport::idle(&BrokerAddresses::default());
        let load = BundleLoad {
            msg_rate_in: rate,
            msg_throughput_in: rate * 100.0,
            topics: 2,
            ..BundleLoad::default()
        };
        report.set_bundles([("t/n/0x00000000_0xffffffff".to_owned(), load)].into());
        report
    }

    #[test]
    fn a_report_has_the_members_of_pulsar_and_comes_back() {
        let report = LoadReport {
            cpu: ResourceUsage {
                usage: 150.0,
                limit: 200.0,
            },
            ..with_rate(1024.0)
        };
        let text = serde_json::to_string(&report).unwrap_or_default();
        for member in [
            r#""webServiceUrl":"#,
            r#""cpu":{"usage":150.0,"limit":200.0}"#,
            r#""msgThroughputIn":102400.0"#,
            r#""lastStats":{"t/n/0x00000000_0xffffffff":{"msgRateIn":1024.0"#,
            r#""loadReportType":"LocalBrokerData""#,
            r#""bandwidthIn":{"usage":800.0,"limit":0.0}"#,
        ] {
            assert!(text.contains(member), "{member} in {text}");
        }
        assert_eq!(
            serde_json::from_str::<LoadReport>(&text).ok(),
            Some(report.clone())
        );
        assert_eq!((report.usage(), report.num_topics), (75.0, 2));
    }

    #[test]
    fn others_hear_of_what_is_different_by_so_much() {
        let (was, more) = (with_rate(100.0), with_rate(109.0));
        assert!(!more.differs(&was, 10.0) && with_rate(111.0).differs(&was, 10.0));
        assert!(with_rate(1.0).differs(&with_rate(0.0), 10.0));
        assert!(!with_rate(0.0).differs(&with_rate(0.0), 10.0));
        let busy = |usage| LoadReport {
            cpu: ResourceUsage { usage, limit: 100.0 },
            ..LoadReport::default()
        };
        assert!(!busy(59.0).differs(&busy(50.0), 10.0) && busy(61.0).differs(&busy(50.0), 10.0));
    }
}
