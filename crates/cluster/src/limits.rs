//! Load limits of one bundle, beyond which it is split: Pulsar's limits. Pure.

use crate::BundleLoad;

/// Load limits of one bundle. 0 is no limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BundleLimits {
    /// Loaded topics.
    pub topics_max: u32,
    /// Producers and consumers together.
    pub sessions_max: u32,
    /// Messages in and out, a second.
    pub msg_rate_max: u32,
    /// Bytes in and out, a second.
    pub bandwidth_max: u64,
}

impl Default for BundleLimits {
    fn default() -> Self {
        Self {
            topics_max: 1000,
            sessions_max: 1000,
            msg_rate_max: 30_000,
            bandwidth_max: 100 << 20,
        }
    }
}

impl BundleLimits {
    /// Returns the limit that a bundle exceeds. A single topic cannot be split, whatever its load.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "rates are floating point")]
    pub fn exceeded(&self, load: &BundleLoad) -> Option<&'static str> {
        if load.topics < 2 {
            return None;
        }
        let count = |count: u64| count as f64;
        let rows = [
            ("topics", count(load.topics), f64::from(self.topics_max)),
            (
                "sessions",
                count(load.producer_count + load.consumer_count),
                f64::from(self.sessions_max),
            ),
            (
                "messages a second",
                load.msg_rate_in + load.msg_rate_out,
                f64::from(self.msg_rate_max),
            ),
            ("bytes a second", load.throughput(), count(self.bandwidth_max)),
        ];
        let found = rows.into_iter().find(|(_, has, max)| *max > 0.0 && has > max);
        found.map(|(what, ..)| what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exceeded(change: impl Fn(&mut BundleLoad)) -> Option<&'static str> {
        let mut load = BundleLoad {
            topics: 2,
            ..BundleLoad::default()
        };
        change(&mut load);
        BundleLimits::default().exceeded(&load)
    }

    #[test]
    fn each_limit_counts_from_the_first_above_it() {
        assert_eq!(exceeded(|load| load.topics = 1000), None);
        assert_eq!(exceeded(|load| load.topics = 1001), Some("topics"));
        let sessions = |producers, consumers| {
            exceeded(|load| (load.producer_count, load.consumer_count) = (producers, consumers))
        };
        assert_eq!(sessions(400, 600), None);
        assert_eq!(sessions(401, 600), Some("sessions"));
        let rate = |into, out| exceeded(|load| (load.msg_rate_in, load.msg_rate_out) = (into, out));
        assert_eq!(rate(10_000.0, 20_000.0), None);
        assert_eq!(rate(10_000.0, 20_000.1), Some("messages a second"));
        let mib = |into: f64, out: f64| {
            exceeded(|load| {
                (load.msg_throughput_in, load.msg_throughput_out) =
                    (into * 1024.0 * 1024.0, out * 1024.0 * 1024.0);
            })
        };
        assert_eq!(mib(40.0, 60.0), None);
        assert_eq!(mib(41.0, 60.0), Some("bytes a second"));
    }

    #[test]
    fn one_topic_is_left_whole_and_none_is_no_limit() {
        let load = BundleLoad {
            topics: 1,
            producer_count: 1_000_000,
            ..BundleLoad::default()
        };
        assert_eq!(BundleLimits::default().exceeded(&load), None);
        let none = BundleLimits {
            topics_max: 0,
            sessions_max: 0,
            msg_rate_max: 0,
            bandwidth_max: 0,
        };
        let load = BundleLoad { topics: 9, ..load };
        assert_eq!(none.exceeded(&load), None);
    }
}
