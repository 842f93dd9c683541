//! The policies of a namespace and of a topic as they are stored: kept whole as REST has them. What they mean,
//! [`policy`](super::policy) knows.

use std::collections::BTreeMap;

use pharos_ledger::Durability;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The policy that names the subscriptions which are broadcast without asking for it: a list of names, in which `*`
/// stands for any text and `?` for one character. It may be a member of the policies, or a property of the namespace
/// with the names apart by commas (`pulsar-admin namespaces set-property` can write that one).
pub const BROADCAST_SUBSCRIPTIONS: &str = "pharos.broadcastSubscriptions";

/// The most brokers that the consumers of one subscription are dealt among.
pub const CARRIERS_MAX: u32 = 16;

/// The property of a namespace that says among how many brokers the consumers of each new broadcast subscription are dealt.
pub const BROADCAST_CARRIERS: &str = "pharos.broadcastCarriers";

/// The property of a namespace or topic that says how hard messages are made durable before they are acknowledged: `sync`,
/// `async` or `bypass`. The topic's word goes first; for a partition, its own, then its topic's.
pub const DURABILITY: &str = "pharos.durability";

/// The durability that a word stands for.
///
/// # Errors
/// A sentence for the one who set it.
pub fn durability_of(word: &str) -> Result<Durability, String> {
    match word {
        "sync" => Ok(Durability::Sync),
        "async" => Ok(Durability::Async),
        "bypass" => Ok(Durability::Bypass),
        _ => Err(format!("{DURABILITY} is sync, async or bypass, not '{word}'")),
    }
}

/// The number of brokers that a text stands for.
///
/// # Errors
/// A sentence for the one who set it.
pub fn broadcast_carriers_of(said: &str) -> Result<u32, String> {
    let number = said
        .parse()
        .ok()
        .filter(|number| (1..=CARRIERS_MAX).contains(number));
    number.ok_or_else(|| format!("{BROADCAST_CARRIERS} is a number from 1 to {CARRIERS_MAX}, not '{said}'"))
}

/// All policies of a namespace, by their REST names (`retention_policies`, `autoTopicCreationOverride`, ...).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Policies {
    members: Map<String, Value>,
}

impl From<Map<String, Value>> for Policies {
    fn from(members: Map<String, Value>) -> Self {
        Self { members }
    }
}

impl AsRef<Map<String, Value>> for Policies {
    fn as_ref(&self) -> &Map<String, Value> {
        &self.members
    }
}

impl Policies {
    /// Policies of a new namespace: its replication clusters and its bundles.
    #[must_use]
    pub fn first(replication_clusters: &[&str], num_bundles: u32) -> Self {
        let mut policies = Self::default();
        policies.set("replication_clusters", json!(replication_clusters));
        policies.set_bundles(num_bundles);
        policies
    }

    /// Cuts the hash space into `count` even bundles.
    pub fn set_bundles(&mut self, count: u32) {
        self.set("bundles", bundles(count));
    }

    /// All of them.
    #[must_use]
    pub fn members(&self) -> &Map<String, Value> {
        &self.members
    }

    /// Returns one policy as it was set.
    #[must_use]
    pub fn get(&self, policy: &str) -> Option<&Value> {
        self.members.get(policy).filter(|value| !value.is_null())
    }

    /// Returns one policy in its own type; `None` if it is not set or has another shape.
    #[must_use]
    pub fn get_as<T: DeserializeOwned>(&self, policy: &str) -> Option<T> {
        T::deserialize(self.get(policy)?).ok()
    }

    /// Sets one policy; null removes it.
    pub fn set(&mut self, policy: &str, value: Value) {
        if value.is_null() {
            self.members.remove(policy);
        } else {
            self.members.insert(policy.to_owned(), value);
        }
    }

    /// Removes one policy.
    pub fn remove(&mut self, policy: &str) {
        self.members.remove(policy);
    }

    /// True if the namespace is being deleted.
    #[must_use]
    pub fn is_deleted(&self) -> bool {
        self.get_as("deleted").unwrap_or(false)
    }

    /// The clusters it is replicated to.
    #[must_use]
    pub fn replication_clusters(&self) -> Vec<String> {
        self.get_as("replication_clusters").unwrap_or_default()
    }

    /// Returns a property of the namespace.
    #[must_use]
    pub fn property(&self, name: &str) -> Option<String> {
        let properties: BTreeMap<String, String> = self.get_as("properties")?;
        properties.get(name).cloned()
    }

    /// Names and patterns of the subscriptions that are broadcast; see [`BROADCAST_SUBSCRIPTIONS`].
    #[must_use]
    pub fn broadcast_subscriptions(&self) -> Vec<String> {
        let mut names: Vec<String> = self.get_as(BROADCAST_SUBSCRIPTIONS).unwrap_or_default();
        if let Some(listed) = self.property(BROADCAST_SUBSCRIPTIONS) {
            let listed = listed.split(',').map(str::trim).filter(|name| !name.is_empty());
            names.extend(listed.map(str::to_owned));
        }
        names
    }

    /// Among how many brokers the consumers of new broadcast subscriptions are dealt; see [`BROADCAST_CARRIERS`].
    #[must_use]
    pub fn broadcast_carriers(&self) -> u32 {
        let said = self.property(BROADCAST_CARRIERS);
        let said = said.and_then(|said| broadcast_carriers_of(&said).ok());
        said.unwrap_or(1)
    }

    /// True if a subscription of this name is a broadcast subscription in this namespace.
    #[must_use]
    pub fn is_broadcast_subscription(&self, subscription: &str) -> bool {
        self.broadcast_subscriptions()
            .iter()
            .any(|pattern| glob_matches(pattern, subscription))
    }
}

/// Policies of one topic by name, not looked into. The copy that holds in all clusters is kept under the name with
/// [`GLOBAL`] before it; what is set for this cluster goes before it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TopicPolicies(pub Map<String, Value>);

/// Before the name of a policy that was set for all clusters.
pub const GLOBAL: &str = "global/";

impl TopicPolicies {
    /// Clusters that the topic is said to be on, here or everywhere.
    pub(crate) fn replication_clusters(&self) -> Vec<String> {
        let named = ["replication".to_owned(), format!("{GLOBAL}replication")];
        let named = named.iter().filter_map(|policy| self.0.get(policy));
        named.flat_map(Vec::<String>::deserialize).flatten().collect()
    }

    /// Returns one policy in effect here: set for this cluster, or for all.
    #[must_use]
    pub fn get(&self, policy: &str) -> Option<&Value> {
        let everywhere = || self.0.get(&format!("{GLOBAL}{policy}"));
        self.0.get(policy).or_else(everywhere)
    }

    /// Returns one policy in its own type; `None` if it is not set or has another shape.
    #[must_use]
    pub fn get_as<T: DeserializeOwned>(&self, policy: &str) -> Option<T> {
        T::deserialize(self.get(policy)?).ok()
    }
}

/// `count` equal bundles of the 32-bit hash space: borders, first and last included.
fn bundles(count: u32) -> Value {
    let count = u64::from(count.max(1));
    let border = |index: u64| match (index << 32) / count {
        border if index < count => format!("{border:#010x}"),
        _ => "0xffffffff".to_owned(),
    };
    json!({
        "boundaries": (0..=count).map(border).collect::<Vec<_>>(),
        "numBundles": count,
    })
}

/// True if `text` matches `pattern`, where `*` is any text and `?` any one character. Linear but for stars: after a
/// mismatch the last star takes one character more.
fn glob_matches(pattern: &str, text: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let text: Vec<char> = text.chars().collect();
    let (mut p, mut t) = (0, 0);
    let mut last_star = None;
    while let Some(found) = text.get(t) {
        match pattern.get(p) {
            Some('*') => {
                last_star = Some((p, t));
                p += 1;
            }
            Some(wanted) if *wanted == '?' || wanted == found => {
                p += 1;
                t += 1;
            }
            _ => match last_star {
                Some((star, from)) => {
                    last_star = Some((star, from + 1));
                    p = star + 1;
                    t = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern.iter().skip(p).all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use pharos_admin_api::RetentionPolicies;

    use super::*;

    #[test]
    fn unknown_policies_are_kept_as_they_are() {
        let text =
            r#"{"retention_policies":{"retentionTimeInMinutes":-1,"retentionSizeInMB":7},"x":{"y":[1]}}"#;
        let policies: Policies = serde_json::from_str(text).unwrap();
        let retention: RetentionPolicies = policies.get_as("retention_policies").unwrap();
        assert_eq!(
            (
                retention.retention_time_in_minutes,
                retention.retention_size_in_mb
            ),
            (-1, 7)
        );
        let back: Value = serde_json::to_value(&policies).unwrap();
        assert_eq!(back, serde_json::from_str::<Value>(text).unwrap());
    }

    #[test]
    fn new_namespaces_have_four_even_bundles() {
        let policies = Policies::first(&["standalone"], 4);
        assert_eq!(policies.replication_clusters(), ["standalone"]);
        assert_eq!(
            policies.get("bundles"),
            Some(&json!({
                "boundaries": ["0x00000000", "0x40000000", "0x80000000", "0xc0000000", "0xffffffff"],
                "numBundles": 4
            }))
        );
    }

    #[test]
    fn broadcast_subscriptions_come_from_either_place() {
        let mut policies = Policies::default();
        assert!(!policies.is_broadcast_subscription("cars"));
        policies.set(BROADCAST_SUBSCRIPTIONS, json!(["cars", "fleet-*"]));
        policies.set("properties", json!({BROADCAST_SUBSCRIPTIONS: "boats, ?x*z"}));
        for (name, is_broadcast) in [
            ("cars", true),
            ("fleet-7", true),
            ("fleet-", true),
            ("fleet", false),
            ("boats", true),
            ("axyzz", true),
            ("axy", false),
            ("cars2", false),
        ] {
            assert_eq!(policies.is_broadcast_subscription(name), is_broadcast, "{name}");
        }
    }
}
