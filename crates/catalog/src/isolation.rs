//! Isolation policies: to which brokers the bundles of some namespaces go.
//!
//! They are stored under their cluster, where Pulsar has them. All names in them are regular expressions for a whole name; that of a
//! broker is the host of its HTTP address.

use std::collections::BTreeMap;

use pharos_admin_api::{BrokerNamespaceIsolationData, NamespaceIsolationData};
use pharos_types::NamespaceName;
use regex::{Regex, RegexBuilder};

use super::store::StoreError;
use super::{Catalog, Clusters, keys};

/// The policies of a cluster, by name.
pub type IsolationPolicies = BTreeMap<String, NamespaceIsolationData>;

/// Maximum compiled size of a regular expression, in bytes.
const REGEX_BYTES_MAX: usize = 64 << 10;

/// Policies of one cluster.
const POLICIES_MAX: usize = 1000;

/// Failure of an operation on an isolation policy.
#[derive(Clone, Debug, thiserror::Error)]
pub enum IsolationError {
    /// No such cluster.
    #[error("Cluster {0} does not exist.")]
    NoCluster(String),
    /// No such policy.
    #[error("no isolation policy is called {0}")]
    NotFound(String),
    /// The policy is invalid, for this reason.
    #[error("{0}")]
    Invalid(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The isolation policies.
#[derive(Clone, Copy)]
pub struct Isolation<'a> {
    pub(super) catalog: &'a Catalog,
}

impl<'a> Clusters<'a> {
    /// Their isolation policies.
    #[must_use]
    pub fn isolation(self) -> Isolation<'a> {
        Isolation {
            catalog: self.catalog,
        }
    }
}

impl Isolation<'_> {
    /// Returns the policies of a cluster; `None` if it never had any.
    #[must_use]
    pub fn of(self, cluster: &str) -> Option<IsolationPolicies> {
        let state = self.catalog.inner.known.read();
        let found = state.isolation.get(cluster);
        found.map(|record| (*record.value).clone())
    }

    /// Sets one.
    ///
    /// # Errors
    /// `NoCluster`, `Invalid`, `Store`.
    pub async fn set(
        self,
        cluster: &str,
        name: &str,
        policy: &NamespaceIsolationData,
    ) -> Result<(), IsolationError> {
        if name.is_empty() {
            return Err(IsolationError::Invalid(
                "an isolation policy has a name".to_owned(),
            ));
        }
        check(policy).map_err(IsolationError::Invalid)?;
        self.change(cluster, |policies| {
            policies.insert(name.to_owned(), policy.clone());
            if policies.len() > POLICIES_MAX {
                let reason = format!("a cluster has at most {POLICIES_MAX} isolation policies");
                return Err(IsolationError::Invalid(reason));
            }
            Ok(())
        })
        .await
    }

    /// Removes one.
    ///
    /// # Errors
    /// `NoCluster`, `NotFound`, `Store`.
    pub async fn remove(self, cluster: &str, name: &str) -> Result<(), IsolationError> {
        self.change(cluster, |policies| match policies.remove(name) {
            Some(_) => Ok(()),
            None => Err(IsolationError::NotFound(name.to_owned())),
        })
        .await
    }

    async fn change(
        self,
        cluster: &str,
        change: impl Fn(&mut IsolationPolicies) -> Result<(), IsolationError>,
    ) -> Result<(), IsolationError> {
        let inner = &self.catalog.inner;
        let key = keys::isolation(cluster);
        let no_cluster = || IsolationError::NoCluster(cluster.to_owned());
        let _guard = inner.facts.names.take(keys::cluster(cluster)).await;
        let known = {
            let state = inner.known.read();
            if !state.clusters.contains_key(cluster) {
                return Err(no_cluster());
            }
            state.isolation.get(cluster).cloned()
        };
        let changed = |policies: &IsolationPolicies| {
            let mut policies = policies.clone();
            change(&mut policies)?;
            Ok::<_, IsolationError>(policies)
        };
        let known = match known {
            Some(known) => known,
            // Nothing is stored unless the change is possible.
            None => {
                changed(&IsolationPolicies::new())?;
                inner.facts.create_or_find(&key, IsolationPolicies::new()).await?
            }
        };

        let record = inner.facts.update(&key, known, no_cluster, changed).await?;
        inner.known.write().isolation.insert(cluster.to_owned(), record);
        Ok(())
    }

    /// Returns those of `brokers` (`host:port`) that may own bundles of a namespace; `None`: no policy applies.
    #[must_use]
    pub fn candidates(self, namespace: &NamespaceName, brokers: &[String]) -> Option<Vec<String>> {
        let options = &self.catalog.inner.options;
        if options.is_heartbeat(namespace) {
            // It is about this broker and no other.
            let own = brokers.iter().filter(|broker| *broker == namespace.local());
            return Some(own.cloned().collect());
        }
        let policies = {
            let state = self.catalog.inner.known.read();
            state.isolation.get(&options.cluster_name)?.value.clone()
        };
        candidates(&policies, &namespace.to_string(), brokers)
    }
}

/// Returns the part of `policies` that applies to a broker, `host:port`.
#[must_use]
pub fn isolation_of_broker(policies: &IsolationPolicies, broker: &str) -> BrokerNamespaceIsolationData {
    let mut said = BrokerNamespaceIsolationData {
        broker_name: broker.to_owned(),
        ..BrokerNamespaceIsolationData::default()
    };
    for (name, policy) in policies {
        let is_primary = is_one_of(&policy.primary, host(broker));
        if is_primary || is_one_of(&policy.secondary, host(broker)) {
            said.policy_name = Some(name.clone());
            said.primary = is_primary;
            said.namespace_regex.extend(policy.namespaces.iter().cloned());
        }
    }
    said
}

/// Primary brokers, and with too few of them secondary ones too; for a namespace without a policy those that are primary for none.
fn candidates(policies: &IsolationPolicies, namespace: &str, brokers: &[String]) -> Option<Vec<String>> {
    if policies.is_empty() {
        return None;
    }
    let of = |names: &[String]| -> Vec<String> {
        let fit = brokers.iter().filter(|broker| is_one_of(names, host(broker)));
        fit.cloned().collect()
    };
    let policy = policies
        .values()
        .find(|policy| is_one_of(&policy.namespaces, namespace));
    let Some(policy) = policy else {
        let is_shared = |broker: &&String| !policies.values().any(|it| is_one_of(&it.primary, host(broker)));
        return Some(brokers.iter().filter(is_shared).cloned().collect());
    };
    let mut found = of(&policy.primary);
    if found.len() < min_available(policy).unwrap_or(1) {
        let others = of(&policy.secondary).into_iter();
        let others: Vec<String> = others.filter(|other| !found.contains(other)).collect();
        found.extend(others);
    }
    Some(found)
}

fn host(broker: &str) -> &str {
    broker.rsplit_once(':').map_or(broker, |(host, _)| host)
}

fn is_one_of(names: &[String], name: &str) -> bool {
    names
        .iter()
        .any(|text| regex(text).is_ok_and(|regex| regex.is_match(name)))
}

fn regex(text: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(&format!("^(?:{text})$"))
        .size_limit(REGEX_BYTES_MAX)
        .build()
}

fn min_available(policy: &NamespaceIsolationData) -> Option<usize> {
    policy
        .auto_failover_policy
        .as_ref()?
        .parameters
        .get("min_limit")?
        .parse()
        .ok()
}

fn check(policy: &NamespaceIsolationData) -> Result<(), String> {
    if policy.namespaces.is_empty() || policy.primary.is_empty() {
        return Err("an isolation policy names namespaces and primary brokers".to_owned());
    }
    let all = policy
        .namespaces
        .iter()
        .chain(&policy.primary)
        .chain(&policy.secondary);
    for text in all {
        regex(text).map_err(|_| format!("'{text}' is no regular expression that can be used here"))?;
    }
    let failover = policy.auto_failover_policy.as_ref();
    let failover = failover.ok_or("auto_failover_policy is missing")?;
    if failover.policy_type != "min_available" {
        return Err(format!(
            "policy_type is '{}', and min_available is the one there is",
            failover.policy_type
        ));
    }
    if min_available(policy).is_none() {
        return Err("auto_failover_policy.parameters.min_limit must be a number".to_owned());
    }
    let usage = failover
        .parameters
        .get("usage_threshold")
        .map(|text| text.parse::<u32>());
    if !matches!(usage, Some(Ok(0..=100))) {
        return Err("auto_failover_policy.parameters.usage_threshold must be a percentage".to_owned());
    }
    match policy.unload_scope.as_deref() {
        None | Some("none") => Ok(()),
        Some(scope) => Err(format!(
            "unload_scope {scope} is not there: set none, and unload the namespaces that are to move"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(primary: &str, secondary: &str, min_limit: &str) -> NamespaceIsolationData {
        let text = serde_json::json!({
            "namespaces": ["public/slow.*"], "primary": [primary], "secondary": [secondary],
            "auto_failover_policy": {
                "policy_type": "min_available",
                "parameters": {"min_limit": min_limit, "usage_threshold": "80"},
            },
        });
        serde_json::from_value(text).unwrap_or_default()
    }

    fn chosen(policy: NamespaceIsolationData, namespace: &str, brokers: &[&str]) -> Vec<String> {
        let brokers: Vec<String> = brokers.iter().map(|host| format!("{host}:8080")).collect();
        let policies = [("p".to_owned(), policy)].into();
        candidates(&policies, namespace, &brokers).unwrap_or_default()
    }

    #[test]
    fn secondary_brokers_stand_in_for_too_few_primary_ones() {
        let all = ["a1", "a2", "b1", "c1"];
        let of =
            |min_limit, brokers: &[&str]| chosen(policy("a.*", "b.*", min_limit), "public/slow-1", brokers);
        assert_eq!(of("2", &all), ["a1:8080", "a2:8080"]);
        assert_eq!(of("3", &all), ["a1:8080", "a2:8080", "b1:8080"]);
        assert_eq!(of("1", &["b1", "c1"]), ["b1:8080"]);
        assert_eq!(of("1", &["c1"]), [""; 0]);
    }

    #[test]
    fn brokers_that_are_primary_are_for_their_namespaces_only() {
        let of = |namespace| chosen(policy("a.*", "b.*", "1"), namespace, &["a1", "b1", "c1"]);
        assert_eq!(of("public/default"), ["b1:8080", "c1:8080"]);
        // A name is matched whole.
        assert_eq!(of("not-public/slow"), ["b1:8080", "c1:8080"]);
        assert_eq!(candidates(&IsolationPolicies::new(), "public/slow", &[]), None);
    }

    #[test]
    fn a_broker_is_named_by_its_host() {
        let policies = [("p".to_owned(), policy("a.*", "b.*", "1"))].into();
        let of = |broker| {
            let said = isolation_of_broker(&policies, broker);
            (said.policy_name, said.primary, said.namespace_regex.len())
        };
        assert_eq!(of("a1:8080"), (Some("p".to_owned()), true, 1));
        assert_eq!(of("b1:8080"), (Some("p".to_owned()), false, 1));
        assert_eq!(of("c1:8080"), (None, false, 0));
    }

    #[test]
    fn what_cannot_be_kept_is_refused() {
        assert_eq!(check(&policy("a", "b", "1")), Ok(()));
        assert!(check(&policy("a(", "b", "1")).is_err());
        assert!(check(&policy("a", "b", "few")).is_err());
        assert!(check(&NamespaceIsolationData::default()).is_err());
        let scope = Some("all_matching".to_owned());
        let unloads = NamespaceIsolationData {
            unload_scope: scope,
            ..policy("a", "b", "1")
        };
        assert!(check(&unloads).is_err_and(|reason| reason.contains("all_matching")));
    }
}
