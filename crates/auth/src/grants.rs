//! Permissions in a namespace, read from its policies: the JSON that Pulsar stores.
//!
//! ```text
//! "auth_policies": {
//!     "namespace_auth":          {"role": ["produce", "consume"]},
//!     "destination_auth":        {"persistent://tenant/namespace/topic": {"role": ["consume"]}},
//!     "subscription_auth_roles": {"subscription": ["role"]}
//! },
//! "subscription_auth_mode": "Prefix",
//! "properties": {"pharos.consumerNames": "role"}
//! ```
//! Read from the stored policies at each check, so a revocation applies at once. Entries of another form grant
//! nothing.

use serde_json::{Map, Value};

use pharos_types::{SubscriptionName, TopicName};

use crate::Permission;

/// Member of the policies.
pub const AUTH_POLICIES: &str = "auth_policies";
/// Roles of the whole namespace, in [`AUTH_POLICIES`].
pub const NAMESPACE_AUTH: &str = "namespace_auth";
/// Roles of single topics.
pub const TOPIC_AUTH: &str = "destination_auth";
/// Roles of single subscriptions.
pub const SUBSCRIPTION_AUTH: &str = "subscription_auth_roles";
/// Member of the policies: how subscriptions must be named.
pub const SUBSCRIPTION_AUTH_MODE: &str = "subscription_auth_mode";

/// The property of a namespace that binds consumers' names to roles: `role` lets a consumer have no name but its role,
/// `any` is as if it was not set.
pub const CONSUMER_NAMES: &str = "pharos.consumerNames";

/// Permissions granted by a namespace's policies.
#[derive(Clone, Copy)]
pub(crate) struct Grants<'a> {
    policies: &'a Map<String, Value>,
    /// True if a `*` at the start or end of a role matches any text.
    wildcards: bool,
}

impl<'a> Grants<'a> {
    pub(crate) fn new(policies: &'a Map<String, Value>, wildcards: bool) -> Self {
        Self { policies, wildcards }
    }

    fn part(self, name: &str) -> Option<&'a Map<String, Value>> {
        self.policies.get(AUTH_POLICIES)?.get(name)?.as_object()
    }

    /// True if a role has this permission on the whole namespace.
    pub(crate) fn on_namespace(self, role: &str, permission: Permission) -> bool {
        let roles = self.part(NAMESPACE_AUTH);
        roles.is_some_and(|roles| self.granted(roles, role, permission))
    }

    /// True if a role has the permission on a topic: granted on its namespace, on itself, or on its partitioned
    /// topic.
    pub(crate) fn on_topic(self, topic: &TopicName, role: &str, permission: Permission) -> bool {
        if self.on_namespace(role, permission) {
            return true;
        }
        let Some(topics) = self.part(TOPIC_AUTH) else {
            return false;
        };
        let named = |name: &TopicName| {
            let roles = topics.get(&name.to_string()).and_then(Value::as_object);
            roles.is_some_and(|roles| self.granted(roles, role, permission))
        };
        named(topic) || (topic.partition().is_some() && named(&topic.base()))
    }

    /// True if a role may use a subscription, apart from the permission to consume.
    pub(crate) fn may_use(self, subscription: &SubscriptionName, role: &str) -> bool {
        let name = subscription.as_str();
        if let Some(roles) = self.part(SUBSCRIPTION_AUTH).and_then(|all| all.get(name)) {
            // A list without roles is as none; what is no list lets no role in.
            let Some(roles) = roles.as_array() else {
                return false;
            };
            if !roles.is_empty() && !roles.iter().any(|listed| listed.as_str() == Some(role)) {
                return false;
            }
        }
        match self.policies.get(SUBSCRIPTION_AUTH_MODE) {
            None | Some(Value::Null) => true,
            Some(mode) => match mode.as_str() {
                Some("None") => true,
                Some("Prefix") => name.starts_with(role),
                _ => false,
            },
        }
    }

    /// True if consumer names are bound to roles.
    pub(crate) fn binds_names(self) -> bool {
        let properties = self.policies.get("properties");
        match properties.and_then(|properties| properties.get(CONSUMER_NAMES)) {
            None | Some(Value::Null) => false,
            Some(word) => word.as_str() != Some("any"),
        }
    }

    fn granted(self, roles: &Map<String, Value>, role: &str, permission: Permission) -> bool {
        let has = |permissions: &Value| {
            let listed = permissions.as_array();
            listed.is_some_and(|listed| listed.iter().any(|name| name.as_str() == Some(permission.name())))
        };
        if roles.get(role).is_some_and(has) {
            return true;
        }
        self.wildcards
            && roles
                .iter()
                .any(|(pattern, given)| fits(pattern, role) && has(given))
    }
}

/// True if a role matches a pattern that begins or ends with `*`.
fn fits(pattern: &str, role: &str) -> bool {
    let begins = pattern
        .strip_suffix('*')
        .is_some_and(|start| role.starts_with(start));
    let ends = pattern.strip_prefix('*').is_some_and(|end| role.ends_with(end));
    begins || ends
}
