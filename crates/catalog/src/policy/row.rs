//! Description of one policy in a row, apart from its type and merge rule.

use serde_json::Value;

use super::check::{self, Refusal};
use super::levels::Levels;
use super::table::BrokerPolicies;
use crate::Policies;

/// Policy, as REST and the reference page present it.
#[derive(Clone, Copy)]
pub struct Row {
    /// Its name in the code: the member of [`BrokerPolicies`] and of
    /// [`EffectivePolicies`](super::EffectivePolicies).
    pub name: &'static str,
    /// Description, in a sentence or two.
    pub about: &'static str,
    /// Type of the value, in a word: the name of the JSON shape if it is an object.
    pub value: &'static str,
    /// The node's settings that are its value on the level of the broker.
    pub settings: &'static [&'static str],
    /// Namespace routes and member, if namespaces have the policy.
    pub namespace: Option<AtNamespace>,
    /// Topic routes and member, if topics have the policy.
    pub topic: Option<AtTopic>,
    /// The property of namespaces and topics that says it; empty without one.
    pub property: &'static str,
    /// Checks a value that came in under a path and gives it the shape that is stored.
    pub check: Check,
    /// Further check of a value besides its shape.
    pub guard: Guard,
    /// Effective value if neither a topic nor its namespace sets it, in the shape of REST; `None` if REST has no word
    /// for it.
    pub applied: fn(&Levels<'_>) -> Option<Value>,
    /// True if it does not apply to system topics.
    pub spares_system_topics: bool,
    /// The file that acts on it, below `crates/`; empty when nothing does.
    pub acts: &'static str,
}

/// A check of a row: the last part of the path by which the value came, and the value.
pub type Check = fn(&str, Value) -> Result<Value, Refusal>;

/// On which level something is said. What the broker says are settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// For a namespace.
    Namespace,
    /// For a topic, or a partitioned topic with all its partitions.
    Topic,
}

/// The method that sets a policy. All are read with GET and removed with DELETE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// As most.
    Post,
    /// As a few.
    Put,
}

/// A policy of namespaces.
#[derive(Clone, Copy)]
pub struct AtNamespace {
    /// Last part of its path, below `/admin/v2/namespaces/{tenant}/{namespace}/`; empty when it has no path of its own.
    pub path: &'static str,
    /// Its member in the namespace's policies.
    pub member: &'static str,
    /// HTTP method that sets it.
    pub set: Method,
    /// True if the member maps names of clusters to values; only the value of this cluster is used.
    pub by_cluster: bool,
    /// True if something acts on it.
    pub acts: bool,
    /// True if its path accepts `applied=true`, which returns the effective value if none is set.
    pub knows_applied: bool,
    /// Answer of its path if no value is set; 204 without it.
    pub unset: Option<fn(&BrokerPolicies) -> Value>,
    /// Value of the member in the policies object if none is set; absent without it.
    pub unset_member: Option<fn(&BrokerPolicies) -> Value>,
}

/// A policy of topics.
#[derive(Clone, Copy)]
pub struct AtTopic {
    /// Last part of its path, below `/admin/v2/persistent/{tenant}/{namespace}/{topic}/`, and its name among the topic's
    /// policies.
    pub path: &'static str,
    /// HTTP method that sets it.
    pub set: Method,
    /// True if something acts on it.
    pub acts: bool,
    /// True if its value may be sent as the query parameter of its name, instead of a body.
    pub in_query: bool,
    /// Answer of its path if no value is set; 204 without it.
    pub unset: Option<fn(&BrokerPolicies) -> Value>,
}

/// Further check of a value besides its shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// Nothing.
    None,
    /// The copies that can be kept: on bookies that are there; and how often positions are stored.
    Copies,
    /// There are bookies to choose from, in groups that are written down.
    Bookies,
    /// Retention must be larger than the backlog quotas of the same level.
    Quotas,
    /// The clusters that are known and that the tenant may use; this one must be among them.
    Clusters,
    /// The value may name this cluster only.
    OwnCluster,
    /// The drivers that this node has.
    OffloadDrivers,
}

impl AtNamespace {
    /// Returns the value that a namespace sets; `cluster` is this cluster.
    #[must_use]
    pub fn said_by<'p>(&self, policies: &'p Policies, cluster: &str) -> Option<&'p Value> {
        let value = policies.get(self.member)?;
        if self.by_cluster {
            value.get(cluster)
        } else {
            Some(value)
        }
    }
}

impl Row {
    /// A policy with this value that is nowhere yet.
    #[must_use]
    pub(super) const fn new(value: &'static str, check: Check) -> Self {
        Self {
            name: "",
            about: "",
            value,
            settings: &[],
            namespace: None,
            topic: None,
            property: "",
            check,
            guard: Guard::None,
            applied: |_| None,
            spares_system_topics: false,
            acts: "",
        }
    }

    /// Row without a type of its own, so that its name and its description are given here.
    #[must_use]
    pub(super) const fn named(
        name: &'static str,
        about: &'static str,
        value: &'static str,
        check: Check,
    ) -> Self {
        Self {
            name,
            about,
            ..Self::new(value, check)
        }
    }

    /// A property of namespaces and topics says it.
    #[must_use]
    pub(super) const fn property(self, property: &'static str) -> Self {
        Self { property, ..self }
    }

    /// The settings that are the broker's level.
    #[must_use]
    pub(super) const fn settings(self, settings: &'static [&'static str]) -> Self {
        Self { settings, ..self }
    }

    /// Namespaces have it at this path and in this member.
    #[must_use]
    pub(super) const fn namespace(self, path: &'static str, member: &'static str) -> Self {
        let at = AtNamespace {
            path,
            member,
            set: Method::Post,
            by_cluster: false,
            acts: true,
            knows_applied: false,
            unset: None,
            unset_member: None,
        };
        Self {
            namespace: Some(at),
            ..self
        }
    }

    /// Topics have it at this path.
    #[must_use]
    pub(super) const fn topic(self, path: &'static str) -> Self {
        let at = AtTopic {
            path,
            set: Method::Post,
            acts: true,
            in_query: false,
            unset: None,
        };
        Self {
            topic: Some(at),
            ..self
        }
    }

    /// Sets the file that acts on it.
    #[must_use]
    pub(super) const fn acts(self, acts: &'static str) -> Self {
        Self { acts, ..self }
    }

    /// Sets the further check of a value.
    #[must_use]
    pub(super) const fn guard(self, guard: Guard) -> Self {
        Self { guard, ..self }
    }

    /// Sets the effective value for the case that no level sets one.
    #[must_use]
    pub(super) const fn applied(self, applied: fn(&Levels<'_>) -> Option<Value>) -> Self {
        Self { applied, ..self }
    }

    /// Changes the namespace's side.
    const fn on_namespaces(self, change: AtNamespace) -> Self {
        Self {
            namespace: Some(change),
            ..self
        }
    }

    /// Uses PUT to set it on namespaces.
    #[must_use]
    pub(super) const fn put_on_namespaces(self) -> Self {
        match self.namespace {
            Some(at) => self.on_namespaces(AtNamespace {
                set: Method::Put,
                ..at
            }),
            None => self,
        }
    }

    /// Namespaces have a value per cluster.
    #[must_use]
    pub(super) const fn by_cluster(self) -> Self {
        match self.namespace {
            Some(at) => self.on_namespaces(AtNamespace {
                by_cluster: true,
                unset_member: Some(|_| Value::Object(serde_json::Map::new())),
                ..at
            }),
            None => self,
        }
    }

    /// A namespace that says nothing has this value, to every client.
    #[must_use]
    pub(super) const fn unset(self, value: fn(&BrokerPolicies) -> Value) -> Self {
        match self.namespace {
            Some(at) => self.on_namespaces(AtNamespace {
                unset: Some(value),
                unset_member: Some(value),
                ..at
            }),
            None => self,
        }
    }

    /// The path of a namespace that says nothing answers this; the whole of its policies says nothing.
    #[must_use]
    pub(super) const fn unset_at_path(self, value: fn(&BrokerPolicies) -> Value) -> Self {
        match self.namespace {
            Some(at) => self.on_namespaces(AtNamespace {
                unset: Some(value),
                ..at
            }),
            None => self,
        }
    }

    /// The whole of the policies of a namespace that says nothing has this; its path answers 204.
    #[must_use]
    pub(super) const fn unset_member(self, value: fn(&BrokerPolicies) -> Value) -> Self {
        match self.namespace {
            Some(at) => self.on_namespaces(AtNamespace {
                unset_member: Some(value),
                ..at
            }),
            None => self,
        }
    }

    /// Its path on namespaces knows `applied=true`.
    #[must_use]
    pub(super) const fn knows_applied(self) -> Self {
        match self.namespace {
            Some(at) => self.on_namespaces(AtNamespace {
                knows_applied: true,
                ..at
            }),
            None => self,
        }
    }

    /// Uses PUT to set it on topics.
    #[must_use]
    pub(super) const fn put_on_topics(self) -> Self {
        match self.topic {
            Some(at) => Self {
                topic: Some(AtTopic {
                    set: Method::Put,
                    ..at
                }),
                ..self
            },
            None => self,
        }
    }

    /// Its value may come in the query.
    #[must_use]
    pub(super) const fn in_query(self) -> Self {
        match self.topic {
            Some(at) => Self {
                topic: Some(AtTopic { in_query: true, ..at }),
                ..self
            },
            None => self,
        }
    }

    /// The path of a topic that says nothing answers this.
    #[must_use]
    pub(super) const fn unset_on_topics(self, value: fn(&BrokerPolicies) -> Value) -> Self {
        match self.topic {
            Some(at) => Self {
                topic: Some(AtTopic {
                    unset: Some(value),
                    ..at
                }),
                ..self
            },
            None => self,
        }
    }

    /// Nothing acts on it on topics.
    #[must_use]
    pub(super) const fn idle_on_topics(self) -> Self {
        match self.topic {
            Some(at) => Self {
                topic: Some(AtTopic { acts: false, ..at }),
                ..self
            },
            None => self,
        }
    }

    /// Nothing acts on it anywhere.
    #[must_use]
    pub(super) const fn idle(self) -> Self {
        let row = self.idle_on_topics();
        match row.namespace {
            Some(at) => row.on_namespaces(AtNamespace { acts: false, ..at }),
            None => row,
        }
    }

    /// True if something acts on it on a level.
    #[must_use]
    pub fn acts_on(&self, level: Level) -> bool {
        match level {
            Level::Namespace => self.namespace.is_some_and(|at| at.acts),
            Level::Topic => self.topic.is_some_and(|at| at.acts),
        }
    }

    /// Its stored name on a level: the member, or the last part of the path.
    #[must_use]
    pub fn key(&self, level: Level) -> &'static str {
        match level {
            Level::Namespace => self.namespace.map_or("", |at| at.member),
            Level::Topic => self.topic.map_or("", |at| at.path),
        }
    }

    /// Checks a value that came in and gives it the shape that is stored: its shape, then whether anything would act on it.
    /// What [`Guard::Quotas`], [`Guard::Clusters`] of topics, [`Guard::OffloadDrivers`], [`Guard::Bookies`] and the bookies of [`Guard::Copies`] ask for needs
    /// more than the value, and is asked for by who sets it.
    ///
    /// # Errors
    /// [`Refusal`], in the words of Pulsar where it has some.
    pub fn accept(
        &self,
        level: Level,
        value: Value,
        broker: &BrokerPolicies,
        cluster: &str,
    ) -> Result<Value, Refusal> {
        let path = match level {
            Level::Namespace => self.namespace.map_or("", |at| at.path),
            Level::Topic => self.topic.map_or("", |at| at.path),
        };
        let value = (self.check)(path, value)?;
        match self.guard {
            Guard::Copies => check::copies(&value, &broker.persistence)?,
            Guard::Bookies => check::bookies(&broker.persistence)?,
            Guard::OwnCluster if check::names_only(&value, cluster) => {}
            _ if self.acts_on(level) || check::is_off(&value) => {}
            _ => {
                let name = self.key(level);
                return Err(Refusal::NotActedOn(format!(
                    "policy {name} is not enforced in this release, so it cannot be set"
                )));
            }
        }
        Ok(value)
    }
}
