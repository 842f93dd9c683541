//! Tiered storage as a policy. Each member is decided by itself: the topic's word, over the namespace's, over the node's settings.

use std::collections::BTreeMap;

use pharos_admin_api::OffloadPolicies;
use pharos_ledger::offload::{OffloadPolicy, OffloadTarget, ReadFirst};
use serde::Deserialize as _;
use serde_json::Value;

use super::levels::Levels;
use super::row::Row;
use super::value::ToJson;
use crate::Policies;

/// As [`nearest`](super::levels::nearest), member by member. What could not be acted on was refused when it was set.
pub(super) fn offload(levels: &Levels<'_>, row: &Row, broker: &OffloadPolicy) -> OffloadPolicy {
    let own = row.topic.and_then(|at| levels.topic.policies.0.get(at.path));
    let own = own.and_then(|value| OffloadPolicies::deserialize(value).ok());
    let namespace = levels.namespace.as_deref().zip(row.namespace);
    let namespace = namespace.map(|(policies, at)| of_namespace(policies, at.member));
    let merged = over(own.unwrap_or_default(), namespace.unwrap_or_default());
    resolve(&merged, broker)
}

/// Drivers whose objects are in buckets.
fn is_bucket_driver(driver: &str) -> bool {
    !driver.eq_ignore_ascii_case("filesystem")
}

/// A namespace's policies, with what its single policies say.
fn of_namespace(policies: &Policies, member: &str) -> OffloadPolicies {
    let mut offload: OffloadPolicies = policies.get_as(member).unwrap_or_default();
    let single = |member: &str| policies.get_as::<i64>(member);
    let bytes = &mut offload.managed_ledger_offload_threshold_in_bytes;
    *bytes = bytes
        .or(offload.managed_ledger_offload_auto_trigger_size_threshold_bytes)
        .or_else(|| single("offload_threshold"));
    let seconds = &mut offload.managed_ledger_offload_threshold_in_seconds;
    *seconds = seconds.or_else(|| single("offload_threshold_in_seconds"));
    let lag = &mut offload.managed_ledger_offload_deletion_lag_in_millis;
    *lag = lag.or_else(|| single("offload_deletion_lag_ms"));
    offload
}

/// The members of `one` where it has them, else those of `other`; only those that are acted on.
fn over(one: OffloadPolicies, other: OffloadPolicies) -> OffloadPolicies {
    // A place is one thing: another driver's bucket is not this driver's.
    let place = if one.managed_ledger_offload_driver.is_some() {
        &one
    } else {
        &other
    };
    let bytes = |of: &OffloadPolicies| {
        of.managed_ledger_offload_threshold_in_bytes
            .or(of.managed_ledger_offload_auto_trigger_size_threshold_bytes)
    };
    OffloadPolicies {
        managed_ledger_offload_driver: place.managed_ledger_offload_driver.clone(),
        managed_ledger_offload_bucket: bucket(place).map(str::to_owned),
        managed_ledger_offload_region: region(place).map(str::to_owned),
        managed_ledger_offload_service_endpoint: endpoint(place).map(str::to_owned),
        file_system_uri: place.file_system_uri.clone(),
        managed_ledger_offload_threshold_in_bytes: bytes(&one).or_else(|| bytes(&other)),
        managed_ledger_offload_threshold_in_seconds: one
            .managed_ledger_offload_threshold_in_seconds
            .or(other.managed_ledger_offload_threshold_in_seconds),
        managed_ledger_offload_deletion_lag_in_millis: one
            .managed_ledger_offload_deletion_lag_in_millis
            .or(other.managed_ledger_offload_deletion_lag_in_millis),
        managed_ledger_offloaded_read_priority: one
            .managed_ledger_offloaded_read_priority
            .or(other.managed_ledger_offloaded_read_priority),
        ..OffloadPolicies::default()
    }
}

/// Policies over the node's settings. Numbers below 0 are "off".
fn resolve(policies: &OffloadPolicies, node: &OffloadPolicy) -> OffloadPolicy {
    let number = |value: Option<i64>, node: Option<u64>| match value {
        Some(value) => u64::try_from(value).ok(),
        None => node,
    };
    let seconds = policies.managed_ledger_offload_threshold_in_seconds;
    let priority = policies.managed_ledger_offloaded_read_priority.as_deref();
    OffloadPolicy {
        target: offload_target(policies).or_else(|| node.target.clone()),
        bytes_kept: number(
            policies.managed_ledger_offload_threshold_in_bytes,
            node.bytes_kept,
        ),
        age_ms_max: number(
            seconds.map(|seconds| seconds.saturating_mul(1000)),
            node.age_ms_max,
        ),
        deletion_lag_ms: number(
            policies.managed_ledger_offload_deletion_lag_in_millis,
            node.deletion_lag_ms,
        ),
        read_first: priority.and_then(offload_read_first).unwrap_or(node.read_first),
    }
}

/// The target of policies that name a driver; `None` when they name none.
#[must_use]
pub fn offload_target(policies: &OffloadPolicies) -> Option<OffloadTarget> {
    let driver = policies
        .managed_ledger_offload_driver
        .clone()
        .filter(|driver| !driver.is_empty())?;
    let named = match is_bucket_driver(&driver) {
        true => vec![
            ("bucket", bucket(policies)),
            ("region", region(policies)),
            ("endpoint", endpoint(policies)),
        ],
        false => vec![("uri", policies.file_system_uri.as_deref())],
    };
    let facts = named.into_iter().filter_map(|(key, value)| {
        let value = value.filter(|value| !value.is_empty())?;
        Some((key.to_owned(), value.to_owned()))
    });
    let facts: BTreeMap<String, String> = facts.collect();
    Some(OffloadTarget { driver, facts })
}

/// Says nothing without a driver.
impl ToJson for OffloadPolicy {
    fn to_json(&self) -> Option<Value> {
        let target = self.target.as_ref()?;
        let signed =
            |limit: Option<u64>| Some(limit.map_or(-1, |limit| i64::try_from(limit).unwrap_or(i64::MAX)));
        let fact = |key: &str| target.facts.get(key).cloned();
        let is_s3 = is_bucket_driver(&target.driver);
        let policies = OffloadPolicies {
            managed_ledger_offload_driver: Some(target.driver.clone()),
            managed_ledger_offload_threshold_in_bytes: signed(self.bytes_kept),
            managed_ledger_offload_threshold_in_seconds: signed(self.age_ms_max.map(|age_ms| age_ms / 1000)),
            managed_ledger_offload_deletion_lag_in_millis: signed(self.deletion_lag_ms),
            managed_ledger_offloaded_read_priority: Some(
                match self.read_first {
                    ReadFirst::Tiered => "TIERED_STORAGE_FIRST",
                    ReadFirst::Local => "BOOKKEEPER_FIRST",
                }
                .to_owned(),
            ),
            s3_managed_ledger_offload_bucket: fact("bucket").filter(|_| is_s3),
            s3_managed_ledger_offload_region: fact("region").filter(|_| is_s3),
            s3_managed_ledger_offload_service_endpoint: fact("endpoint").filter(|_| is_s3),
            file_system_uri: fact("uri"),
            ..OffloadPolicies::default()
        };
        let value = serde_json::to_value(policies).ok()?;
        let members = value.as_object()?.iter().filter(|(_, value)| !value.is_null());
        Some(
            members
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
        )
    }
}

fn bucket(of: &OffloadPolicies) -> Option<&str> {
    let general = of.managed_ledger_offload_bucket.as_deref();
    general.or(of.s3_managed_ledger_offload_bucket.as_deref())
}

fn region(of: &OffloadPolicies) -> Option<&str> {
    let general = of.managed_ledger_offload_region.as_deref();
    general.or(of.s3_managed_ledger_offload_region.as_deref())
}

fn endpoint(of: &OffloadPolicies) -> Option<&str> {
    let general = of.managed_ledger_offload_service_endpoint.as_deref();
    general.or(of.s3_managed_ledger_offload_service_endpoint.as_deref())
}

/// Returns the copy that a word names to be read first; Pulsar spells it in two ways.
#[must_use]
pub fn offload_read_first(word: &str) -> Option<ReadFirst> {
    match word.to_ascii_lowercase().replace('_', "-").as_str() {
        "tiered-storage-first" => Some(ReadFirst::Tiered),
        "bookkeeper-first" => Some(ReadFirst::Local),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(value: Value) -> OffloadPolicies {
        OffloadPolicies::deserialize(value).unwrap()
    }

    #[test]
    fn the_topic_goes_over_the_namespace_and_that_over_the_node() {
        let node = OffloadPolicy {
            bytes_kept: Some(5),
            deletion_lag_ms: Some(7),
            ..OffloadPolicy::default()
        };
        let mut namespace = Policies::default();
        namespace.set("offload_threshold", json!(100));
        namespace.set("offload_threshold_in_seconds", json!(3));
        namespace.set(
            "offload_policies",
            json!({"managedLedgerOffloadDriver": "aws-s3", "s3ManagedLedgerOffloadBucket": "b",
                   "managedLedgerOffloadedReadPriority": "BOOKKEEPER_FIRST"}),
        );
        let of_namespace = of_namespace(&namespace, "offload_policies");
        let holds = resolve(&over(OffloadPolicies::default(), of_namespace.clone()), &node);
        assert_eq!(
            (holds.bytes_kept, holds.age_ms_max, holds.deletion_lag_ms),
            (Some(100), Some(3_000), Some(7))
        );
        assert_eq!(holds.read_first, ReadFirst::Local);
        assert_eq!(holds.target.unwrap().facts["bucket"], "b");
        let own = parse(
            json!({"managedLedgerOffloadDriver": "filesystem", "fileSystemURI": "file:///cold",
                               "managedLedgerOffloadThresholdInBytes": -1}),
        );
        let holds = resolve(&over(own, of_namespace), &node);
        assert_eq!((holds.bytes_kept, holds.age_ms_max), (None, Some(3_000)));
        let target = holds.target.unwrap();
        assert_eq!((target.driver.as_str(), target.facts.len()), ("filesystem", 1));
        assert_eq!(resolve(&OffloadPolicies::default(), &node), node);
        assert_eq!(node.to_json(), None);
        let shown = OffloadPolicy {
            target: Some(target.clone()),
            ..node.clone()
        };
        let shown = shown.to_json().unwrap();
        let back = resolve(&parse(shown), &OffloadPolicy::default());
        assert_eq!(
            back,
            OffloadPolicy {
                target: Some(target),
                ..node
            }
        );
    }
}
