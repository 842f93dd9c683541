//! Permission that an action needs of its caller, with authorization on.

use std::fmt;

/// Permission needed of a caller. Higher ones include lower ones: superusers have everything; administrators of a
/// tenant have everything in it except what is reserved for superusers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Need {
    /// Nothing: it is answered without asking who the caller is.
    Nothing,
    /// As the setting `authentication.metrics_endpoint` says: nothing, or any role.
    Metrics,
    /// Any role: the caller proved who it is.
    AnyRole,
    /// To be one of the superusers.
    SuperUser,
    /// To administer the tenant.
    TenantAdmin,
    /// The permission `produce`.
    Produce,
    /// The permission `consume`, and to be among the roles of the subscription where it has some.
    Consume,
    /// The permission `consume`; where consumers' names are bound to roles, to administer the tenant, because it concerns
    /// the places of all consumers of the subscription.
    ConsumeForAll,
    /// Either of the permissions `produce` and `consume`.
    ProduceOrConsume,
    /// Both of the permissions `produce` and `consume`.
    ProduceAndConsume,
    /// The permission `functions`.
    Functions,
    /// The permission `sources`.
    Sources,
    /// The permission `sinks`.
    Sinks,
    /// The permission `packages`.
    Packages,
}

impl Need {
    /// All of them.
    pub const ALL: &'static [Self] = &[
        Self::Nothing,
        Self::Metrics,
        Self::AnyRole,
        Self::SuperUser,
        Self::TenantAdmin,
        Self::Produce,
        Self::Consume,
        Self::ConsumeForAll,
        Self::ProduceOrConsume,
        Self::ProduceAndConsume,
        Self::Functions,
        Self::Sources,
        Self::Sinks,
        Self::Packages,
    ];
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "nothing",
            Self::Metrics => "nothing, or any role where `authentication.metrics_endpoint` is set",
            Self::AnyRole => "any role",
            Self::SuperUser => "superuser",
            Self::TenantAdmin => "tenant administrator",
            Self::Produce => "produce",
            Self::Consume => "consume",
            Self::ConsumeForAll => "consume; tenant administrator where consumers' names are bound",
            Self::ProduceOrConsume => "produce or consume",
            Self::ProduceAndConsume => "produce and consume",
            Self::Functions => "functions",
            Self::Sources => "sources",
            Self::Sinks => "sinks",
            Self::Packages => "packages",
        })
    }
}

/// Permission that can be granted to a role on a namespace or topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Permission {
    /// Attach producers.
    Produce,
    /// Attach consumers.
    Consume,
    /// Manage functions.
    Functions,
    /// Manage sources.
    Sources,
    /// Manage sinks.
    Sinks,
    /// Manage packages.
    Packages,
}

impl Permission {
    /// All of them.
    pub const ALL: &'static [Self] = &[
        Self::Produce,
        Self::Consume,
        Self::Functions,
        Self::Sources,
        Self::Sinks,
        Self::Packages,
    ];

    /// Its name in REST and in the stored policies.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Produce => "produce",
            Self::Consume => "consume",
            Self::Functions => "functions",
            Self::Sources => "sources",
            Self::Sinks => "sinks",
            Self::Packages => "packages",
        }
    }

    /// The permission of this name.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|known| known.name() == name)
    }
}

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
