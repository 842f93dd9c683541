//! Effective policies: the levels of the policy registry, filled with the stored values.

use std::sync::Arc;

use pharos_metadata::MetadataLayout;
use pharos_types::TopicName;

use super::carriers::carrier_of;
use super::policy::{EffectivePolicies, Levels, OnTopic, Retention};
use super::{Catalog, Policies, RuntimeSettings, keys};

impl Catalog {
    /// Returns the effective policies of a topic. Limits, quotas and expiry do not apply to system topics.
    #[must_use]
    pub fn effective_policies(&self, topic: &TopicName) -> EffectivePolicies {
        if let Some((source, _)) = carrier_of(topic) {
            return self.effective_policies(&source);
        }
        let is_system = topic.is_system() || self.inner.options.is_heartbeat(topic.namespace());
        let mut policies = EffectivePolicies::of(&self.levels(topic), is_system);
        if self.inner.options.layout == MetadataLayout::Pulsar && keys::has_policy_events(topic) {
            // They are read by nothing that acknowledges.
            policies.retention = Retention {
                time: None,
                bytes: None,
            };
        }
        policies
    }

    /// Returns the policy levels of a topic. A partition has those of its partitioned topic, a carrier those of its
    /// topic.
    #[must_use]
    pub fn levels(&self, topic: &TopicName) -> Levels<'_> {
        if let Some((source, _)) = carrier_of(topic) {
            return self.levels(&source);
        }
        let own = OnTopic {
            policies: self.topic_policies(topic),
            durability: self.inner.known.durability_word(topic),
            is_system: topic.is_system(),
        };
        let broker = Levels::of_broker(RuntimeSettings::of(self).policies(), &self.options().cluster_name);
        broker
            .with_namespace(self.policies(topic.namespace()))
            .with_topic(own)
    }

    /// Returns the policy levels of all topics of a namespace with these policies.
    pub(crate) fn levels_of_namespace(&self, policies: &Arc<Policies>) -> Levels<'_> {
        Levels::of_broker(RuntimeSettings::of(self).policies(), &self.options().cluster_name)
            .with_namespace(Some(Arc::clone(policies)))
    }
}
