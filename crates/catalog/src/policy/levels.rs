//! Policies of a topic on each level, and the rules that merge them into one value.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use pharos_admin_api::BacklogQuota;
use pharos_ledger::Durability;

use super::row::Row;
use super::table::BrokerPolicies;
use super::value::{BacklogQuotaDefaults, BacklogQuotas, PolicyValue, Quota, QuotaAction};
use crate::schema::SchemaCompatibilityStrategy;
use crate::{DURABILITY, Policies, TopicPolicies, durability_of};

/// Everything that is said about a topic, or about the topics of a namespace. One method per policy says what holds.
pub struct Levels<'a> {
    pub(super) topic: OnTopic,
    pub(super) namespace: Option<Arc<Policies>>,
    pub(super) broker: Arc<BrokerPolicies>,
    /// This cluster, of policies that a namespace has per cluster.
    cluster: &'a str,
}

/// Policies of one topic alone; empty for any topic of a namespace.
#[derive(Debug, Default)]
pub(crate) struct OnTopic {
    /// Its policies; those of a partition are its partitioned topic's.
    pub(crate) policies: Arc<TopicPolicies>,
    /// Its property [`DURABILITY`], or for a partition that of its partitioned topic.
    pub(crate) durability: Option<String>,
    /// True if it is a system topic, by its name.
    pub(crate) is_system: bool,
}

impl<'a> Levels<'a> {
    /// Broker level, for use where no other level sets a value.
    #[must_use]
    pub fn of_broker(broker: Arc<BrokerPolicies>, cluster: &'a str) -> Self {
        Self {
            topic: OnTopic::default(),
            namespace: None,
            broker,
            cluster,
        }
    }

    /// Adds the policies of a namespace.
    pub(crate) fn with_namespace(self, policies: Option<Arc<Policies>>) -> Self {
        Self {
            namespace: policies,
            ..self
        }
    }

    /// Adds the policies of a topic.
    pub(crate) fn with_topic(self, topic: OnTopic) -> Self {
        Self { topic, ..self }
    }

    /// Returns the topic's value, or else the namespace's.
    fn get<T: DeserializeOwned>(&self, row: &Row) -> Option<T> {
        let own = || self.topic.policies.get_as(row.topic?.path);
        own().or_else(|| self.of_namespace_as(row))
    }

    /// Returns the namespace's value.
    fn of_namespace_as<T: DeserializeOwned>(&self, row: &Row) -> Option<T> {
        let at = row.namespace?;
        let policies = self.namespace.as_deref()?;
        T::deserialize(at.said_by(policies, self.cluster)?).ok()
    }
}

/// The topic's word goes over the namespace's, and that over the broker's.
pub(super) fn nearest<T: PolicyValue>(levels: &Levels<'_>, row: &Row, broker: &T) -> T {
    let said = levels.get(row);
    said.map_or_else(|| broker.clone(), |said| T::from_json(said, broker))
}

/// The broker decides; what is set elsewhere can only say the same.
pub(super) fn broker_alone<T: Clone>(_: &Levels<'_>, _: &Row, broker: &T) -> T {
    broker.clone()
}

/// On when the namespace or the broker says so.
pub(super) fn either(levels: &Levels<'_>, row: &Row, broker: &bool) -> bool {
    *broker || levels.of_namespace_as(row).unwrap_or(false)
}

/// As [`nearest`], for each type of quota by itself: a topic that says something about age has its namespace's size.
pub(super) fn each_quota(levels: &Levels<'_>, row: &Row, broker: &BacklogQuotaDefaults) -> BacklogQuotas {
    let of = |quotas: Option<Map<String, Value>>, kind: &str| {
        serde_json::from_value::<BacklogQuota>(quotas?.get(kind)?.clone()).ok()
    };
    let said = |kind: &str| {
        let own = || row.topic.and_then(|at| levels.topic.policies.get_as(at.path));
        of(own(), kind).or_else(|| of(levels.of_namespace_as(row), kind))
    };
    let size = match said("destination_storage") {
        Some(quota) => limit(u64::try_from(quota.limit_size).ok(), &quota.policy),
        None => broker.size.map(|limit| Quota {
            limit,
            action: broker.action,
        }),
    };
    let age = match said("message_age") {
        Some(quota) => {
            let seconds = u64::try_from(quota.limit_time).ok();
            limit(seconds.map(|seconds| seconds * 1000), &quota.policy)
        }
        None => broker.age.map(|limit| Quota {
            limit: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX),
            action: broker.action,
        }),
    };
    BacklogQuotas {
        size,
        age: age.filter(|quota| quota.limit > 0),
    }
}

fn limit(limit: Option<u64>, policy: &str) -> Option<Quota> {
    Some(Quota {
        limit: limit?,
        action: QuotaAction::from_word(policy)?,
    })
}

/// As [`nearest`], where `UNDEFINED` says nothing, a namespace may say it in an older way, and system topics take anything.
pub(super) fn schema_strategy(
    levels: &Levels<'_>,
    row: &Row,
    broker: &SchemaCompatibilityStrategy,
) -> SchemaCompatibilityStrategy {
    if levels.topic.is_system {
        return SchemaCompatibilityStrategy::AlwaysCompatible;
    }
    let is_said =
        |strategy: &SchemaCompatibilityStrategy| *strategy != SchemaCompatibilityStrategy::Undefined;
    let own = || row.topic.and_then(|at| levels.topic.policies.0.get(at.path));
    let own = own().and_then(Value::as_str).and_then(|text| text.parse().ok());
    let older = || {
        let word = levels
            .namespace
            .as_ref()?
            .get(super::table::OLD_SCHEMA_STRATEGY)?;
        SchemaCompatibilityStrategy::from_auto_update(word.as_str()?)
    };
    own.filter(is_said)
        .or_else(|| levels.of_namespace_as(row).filter(is_said))
        .or_else(older)
        .unwrap_or(*broker)
}

/// A property instead of a policy: the word of the topic, of its partitioned topic, of its namespace, or the broker's.
pub(super) fn durability(levels: &Levels<'_>, _: &Row, broker: &Durability) -> Durability {
    let of_namespace = || levels.namespace.as_ref()?.property(DURABILITY);
    let word = levels.topic.durability.clone().or_else(of_namespace);
    word.and_then(|word| durability_of(&word).ok()).unwrap_or(*broker)
}
