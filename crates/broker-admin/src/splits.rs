//! Bundles that carry more than one may are cut without being asked.
//!
//! Each broker looks at its own bundles: it has their figures first hand, needs no credentials of another broker, and cannot cut what it
//! does not own. Topics stay open; what moves is a part that another broker should have, by a hand-over.

use std::collections::BTreeMap;

use pharos_catalog::{BundleDivision, BundleRange, count_bundles, middle_of};
use pharos_cluster::{Balancer, BundleLimits, BundleLoad};
use pharos_types::NamespaceName;
use pharos_types::hash::bundle_hash;

use crate::brokers::BrokerAdmin;
use crate::error::AdminError;
use crate::metrics;

/// Maximum number of bundles split in one round, so that the effect can be seen before the next.
const SPLITS_MAX: usize = 10;

/// Conditions and algorithm of automatic bundle splits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SplitOptions {
    /// Limits of a bundle's load.
    pub limits: BundleLimits,
    /// Bundles of a namespace; one with so many is not cut any more.
    pub bundles_max: u32,
    /// Split algorithm; `Positions` splits nothing, because no positions are given.
    pub division: BundleDivision,
    /// True if parts are unloaded, so that other brokers can take them.
    pub unload: bool,
}

/// A loaded topic, as cutting sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Weight {
    hash: u32,
    /// Messages in and out, a second.
    msg_rate: f64,
}

impl SplitOptions {
    /// Returns the hash at which to split a bundle with these topics; `None`: it cannot be split.
    fn border(&self, range: &BundleRange, topics: &[Weight]) -> Option<u32> {
        let border = match self.division {
            BundleDivision::Range => Some(range.middle()),
            BundleDivision::Topics => middle_of(topics.iter().map(|topic| (topic.hash, 1.0))),
            BundleDivision::Load => middle_of(topics.iter().map(|topic| (topic.hash, topic.msg_rate))),
            BundleDivision::Positions => None,
        };
        border.filter(|border| range.can_be_cut_at(&[*border]))
    }
}

/// Load of loaded topics, by bundle `<tenant>/<namespace>/<range>`.
type Carried = BTreeMap<String, (BundleLoad, Vec<Weight>)>;

impl BrokerAdmin {
    /// Returns the load of this broker's loaded topics, by bundle `<tenant>/<namespace>/<range>`.
    ///
    /// # Errors
    /// `Unavailable`: the broker stops.
    pub async fn bundle_loads(&self) -> Result<BTreeMap<String, BundleLoad>, AdminError> {
        let carried = self.carried().await?;
        Ok(carried
            .into_iter()
            .map(|(bundle, (load, _))| (bundle, load))
            .collect())
    }

    async fn carried(&self) -> Result<Carried, AdminError> {
        let shards = self.homes.broker.shard_figures().await?;
        let snapshot = metrics::snapshot(shards, &self.meters);
        let mut carried = Carried::new();
        for topic in &snapshot.topics {
            let Some(bundle) = self.homes.catalog().bundle_of(&topic.topic) else {
                continue;
            };
            let stats = &topic.stats;
            let load = BundleLoad {
                msg_rate_in: stats.msg_rate_in,
                msg_throughput_in: stats.msg_throughput_in,
                msg_rate_out: stats.msg_rate_out,
                msg_throughput_out: stats.msg_throughput_out,
                consumer_count: stats.subscriptions.values().map(|it| it.consumer_count).sum(),
                producer_count: stats.publisher_count,
                topics: 1,
                cache_size: 0,
            };
            let name = format!("{}/{bundle}", topic.topic.namespace());
            let (all, topics) = carried.entry(name).or_default();
            all.add(&load);
            topics.push(Weight {
                hash: bundle_hash(&topic.topic.to_string()),
                msg_rate: load.msg_rate_in + load.msg_rate_out,
            });
        }
        Ok(carried)
    }

    /// Cuts the bundles of this broker that carry too much, and says how many it cut. One that could not be cut is told in the log, and
    /// tried again at the next look.
    ///
    /// # Errors
    /// `Unavailable`: the broker stops.
    ///
    /// Cancel safety: dropped, bundles are cut or not, and a part may be on its way.
    pub async fn split_busy(&self, balancer: &Balancer, how: &SplitOptions) -> Result<usize, AdminError> {
        let mut count = 0;
        for (bundle, (load, topics)) in self.carried().await? {
            let Some(much) = how.limits.exceeded(&load).filter(|_| count < SPLITS_MAX) else {
                continue;
            };
            if !self.owns_bundle(&bundle) {
                continue;
            }
            match self.split_one(&bundle, &topics, how).await {
                Ok(None) => tracing::debug!(bundle, much, "a bundle carries too much and stays whole"),
                Ok(Some((namespace, parts))) => {
                    count += 1;
                    balancer.note_split();
                    tracing::info!(bundle, much, ?parts, "a bundle that carried too much is cut");
                    if how.unload {
                        self.spread(balancer, &namespace, &parts).await;
                    }
                }
                Err(error) => {
                    tracing::info!(bundle, much, %error, "a bundle carries too much and is not cut")
                }
            }
        }
        Ok(count)
    }

    /// `None`: it cannot be cut any more.
    async fn split_one(
        &self,
        bundle: &str,
        topics: &[Weight],
        how: &SplitOptions,
    ) -> Result<Option<(NamespaceName, Vec<String>)>, AdminError> {
        let parsed = bundle.rsplit_once('/').and_then(|(namespace, range)| {
            let namespace: NamespaceName = namespace.parse().ok()?;
            Some((namespace, BundleRange::parse(range)?))
        });
        let Some((namespace, range)) = parsed else {
            return Ok(None);
        };
        let policies = self.homes.catalog().policies(&namespace);
        let bundles = policies.map_or(0, |policies| count_bundles(&policies));
        let is_full = bundles >= usize::try_from(how.bundles_max).unwrap_or(usize::MAX);
        let Some(border) = how.border(&range, topics).filter(|_| !is_full) else {
            return Ok(None);
        };
        let parts = self.split(&namespace, &range, &[border], how.bundles_max).await?;
        Ok(Some((namespace, parts)))
    }

    /// Gives parts to brokers that carry less; the first stays.
    async fn spread(&self, balancer: &Balancer, namespace: &NamespaceName, parts: &[String]) {
        for part in parts.iter().skip(1) {
            let bundle = format!("{namespace}/{part}");
            let Some(to) = balancer.better_place(&bundle) else {
                continue;
            };
            match self.hand_over(bundle.clone(), to.clone()).await {
                Ok(()) => tracing::info!(bundle, to, "a part of a bundle goes to a broker with less load"),
                Err(error) => tracing::info!(bundle, to, %error, "a part of a bundle stays"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_border_is_where_the_way_of_cutting_says() {
        let range = BundleRange::parse("0x00000000_0x80000000").unwrap_or_else(|| panic!("a range"));
        let topic = |hash, msg_rate| Weight { hash, msg_rate };
        let topics = [
            topic(0x10, 1.0),
            topic(0x20, 1.0),
            topic(0x30, 1.0),
            topic(0x40, 9.0),
        ];
        let border = |division, topics: &[Weight]| {
            let options = SplitOptions {
                limits: BundleLimits::default(),
                bundles_max: 128,
                division,
                unload: true,
            };
            options.border(&range, topics)
        };
        assert_eq!(border(BundleDivision::Range, &topics), Some(0x4000_0000));
        assert_eq!(border(BundleDivision::Topics, &topics), Some(0x28));
        assert_eq!(border(BundleDivision::Load, &topics), Some(0x38));
        assert_eq!(border(BundleDivision::Positions, &topics), None);
        assert_eq!(border(BundleDivision::Topics, &[topic(0x10, 1.0)]), None);
        assert_eq!(
            border(BundleDivision::Load, &[topic(1, 0.0), topic(2, 0.0)]),
            None
        );
    }
}
