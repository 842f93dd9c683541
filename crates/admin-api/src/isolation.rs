//! To which brokers the bundles of some namespaces go, and which brokers fail together.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// Namespaces, and the brokers that have them; all of them regular expressions for a whole name. A broker's name is the host of its
/// HTTP address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct NamespaceIsolationData {
    /// The namespaces, as `tenant/namespace`.
    pub namespaces: Vec<String>,
    /// Brokers that have them, and no other namespaces.
    pub primary: Vec<String>,
    /// Brokers that stand in while there are too few of the first.
    pub secondary: Vec<String>,
    /// When the second stand in.
    pub auto_failover_policy: Option<AutoFailoverPolicyData>,
    /// What is unloaded when the policy is set: `none`, and that is the one there is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unload_scope: Option<String>,
}

/// When secondary brokers stand in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct AutoFailoverPolicyData {
    /// `min_available` is the one there is.
    pub policy_type: String,
    /// `min_limit`: with fewer primary brokers the others stand in. `usage_threshold`: kept for tools, a percentage.
    pub parameters: BTreeMap<String, String>,
}

/// What isolation policies say of a broker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, rename_all = "camelCase")]
pub struct BrokerNamespaceIsolationData {
    /// `host:port` of its HTTP server.
    pub broker_name: String,
    /// The policy that names it; of several the last one by name.
    pub policy_name: Option<String>,
    /// It is one of the first of that policy.
    pub primary: bool,
    /// The namespaces of all policies that name it.
    pub namespace_regex: Vec<String>,
}

/// Brokers that fail together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct FailureDomain {
    /// As `host:port` of their HTTP servers.
    pub brokers: BTreeSet<String>,
}
