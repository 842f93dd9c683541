//! Pulsar's rules: superusers, administrators of tenants, and what roles were granted.
//!
//! ```text
//!   action ─► need ─► nothing?                                   yes
//!                  ─► who has no role                            no
//!                  ─► authorization is off                       yes
//!                  ─► a proxy: it and the one it asks for, each  ↓
//!                       superuser                                yes
//!                       administrator of the tenant              yes, but for what only superusers may
//!                       granted on the namespace or topic        yes
//!                       else                                     no; of a tenant that does not exist it is said that it does not
//! ```

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value};

use pharos_types::NamespaceName;

use crate::grants::Grants;
use crate::{Action, Authorizer, Denied, Need, Permission, Principal, Resource};

/// A namespace's policies, as they are stored.
pub type StoredPolicies = Arc<dyn AsRef<Map<String, Value>> + Send + Sync>;

/// Stored tenants and policies that authorization depends on. Answers from memory.
pub trait Facts: Send + Sync {
    /// True if a tenant exists.
    fn has_tenant(&self, tenant: &str) -> bool;

    /// True if a role is among the administrators of an existing tenant.
    fn is_tenant_admin(&self, tenant: &str, role: &str) -> bool;

    /// The policies of a namespace; `None` when it does not exist.
    fn policies(&self, namespace: &NamespaceName) -> Option<StoredPolicies>;
}

/// Settings of authorization.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleOptions {
    /// True if authorization is on; otherwise a caller with any role may do everything.
    pub authorization: bool,
    /// Roles that may do everything.
    pub super_users: BTreeSet<String>,
    /// Roles that ask for others.
    pub proxies: BTreeSet<String>,
    /// True if a `*` at the start or end of a granted role matches any text.
    pub wildcards: bool,
    /// True if the metrics page needs a role.
    pub metrics_need_role: bool,
}

/// Decides by these rules.
pub struct Rules {
    options: RuleOptions,
    facts: Arc<dyn Facts>,
}

impl Rules {
    /// With these settings and stored facts.
    #[must_use]
    pub fn new(options: RuleOptions, facts: Arc<dyn Facts>) -> Self {
        Self { options, facts }
    }

    fn may(&self, who: &Principal, action: Action, resource: Resource<'_>) -> bool {
        let need = action.need();
        let is_open = need == Need::Nothing || (need == Need::Metrics && !self.options.metrics_need_role);
        if is_open {
            return true;
        }
        let Some(role) = who.role() else {
            return false;
        };
        if !self.options.authorization {
            return true;
        }
        match (self.options.proxies.contains(&**role), who.original()) {
            (false, None) => self.role_may(role, need, resource),
            (false, Some(original)) => original == role && self.role_may(role, need, resource),
            (true, None) => false,
            (true, Some(original)) => {
                let is_proxy = self.options.proxies.contains(&**original);
                // Whose name a consumer has is about the one that the proxy asks for.
                let of_proxy = match resource {
                    Resource::Consumer(topic, name, _) => Resource::Subscription(topic, name),
                    other => other,
                };
                !is_proxy && self.role_may(role, need, of_proxy) && self.role_may(original, need, resource)
            }
        }
    }

    fn role_may(&self, role: &str, need: Need, resource: Resource<'_>) -> bool {
        if self.options.super_users.contains(role) {
            return true;
        }
        if need == Need::SuperUser {
            return false;
        }
        if resource
            .tenant()
            .is_some_and(|tenant| self.facts.is_tenant_admin(tenant, role))
        {
            return true;
        }
        let has = |permission| self.granted(role, permission, resource);
        match need {
            Need::Nothing | Need::Metrics | Need::AnyRole => true,
            Need::SuperUser | Need::TenantAdmin => false,
            Need::Produce => has(Permission::Produce),
            Need::Consume => self.may_consume(role, resource),
            Need::ConsumeForAll => self.may_consume(role, resource) && !self.binds_names(resource),
            Need::ProduceOrConsume => has(Permission::Produce) || has(Permission::Consume),
            Need::ProduceAndConsume => has(Permission::Produce) && self.may_consume(role, resource),
            Need::Functions => has(Permission::Functions),
            Need::Sources => has(Permission::Sources),
            Need::Sinks => has(Permission::Sinks),
            Need::Packages => has(Permission::Packages),
        }
    }

    /// Evaluates the policies of a resource's namespace; false if the namespace does not exist.
    fn ask(&self, resource: Resource<'_>, question: impl FnOnce(Grants<'_>) -> bool) -> bool {
        let policies = resource
            .namespace()
            .and_then(|namespace| self.facts.policies(namespace));
        policies.is_some_and(|policies| {
            let members: &Map<String, Value> = (*policies).as_ref();
            question(Grants::new(members, self.options.wildcards))
        })
    }

    fn granted(&self, role: &str, permission: Permission, resource: Resource<'_>) -> bool {
        self.ask(resource, |grants| match resource.topic() {
            Some(topic) => grants.on_topic(topic, role, permission),
            None => grants.on_namespace(role, permission),
        })
    }

    /// The permission, the roles and the name of the subscription, and the name of the consumer.
    fn may_consume(&self, role: &str, resource: Resource<'_>) -> bool {
        if !self.granted(role, Permission::Consume, resource) {
            return false;
        }
        self.ask(resource, |grants| {
            let may_use = resource
                .subscription()
                .is_none_or(|subscription| grants.may_use(subscription, role));
            let has_name = match resource {
                Resource::Consumer(_, _, name) => name == role || !grants.binds_names(),
                _ => true,
            };
            may_use && has_name
        })
    }

    /// True if a caller with a role names a tenant that does not exist: clients can then tell a misspelt name from a
    /// forbidden one. Never true for actions reserved for superusers.
    fn misses_tenant(&self, who: &Principal, action: Action, resource: Resource<'_>) -> bool {
        let is_absent = |tenant| !self.facts.has_tenant(tenant);
        who.role().is_some() && action.need() != Need::SuperUser && resource.tenant().is_some_and(is_absent)
    }

    fn binds_names(&self, resource: Resource<'_>) -> bool {
        self.ask(resource, |grants| grants.binds_names())
    }
}

impl Authorizer for Rules {
    fn authorize(&self, who: &Principal, action: Action, resource: Resource<'_>) -> Result<(), Denied> {
        match self.may(who, action, resource) {
            true => Ok(()),
            false if self.misses_tenant(who, action, resource) => Err(Denied::NoTenant),
            false => Err(Denied::to(who, action, resource)),
        }
    }

    fn may_connect(&self, who: &Principal) -> bool {
        let is_proxy = |role: &Arc<str>| self.options.proxies.contains(&**role);
        match (who.role(), who.original()) {
            _ if !self.options.authorization => true,
            (None, _) => false,
            (Some(role), None) => !is_proxy(role),
            (Some(role), Some(original)) => is_proxy(role) && !is_proxy(original),
        }
    }
}

#[cfg(test)]
mod tests;
