//! Shadow topics: whose shadow a topic is, and which shadows a topic has.
//!
//! Both sides say so. A shadow is made with the property [`SHADOW_SOURCE`]; its source's policy names it. A shadow that its source does not
//! name shows nothing: who administers the source decides who may read it by another name.

use std::collections::BTreeMap;

use pharos_types::{Domain, TopicName};
use serde_json::Value;

use super::Catalog;
use super::carriers::{Carriers, carrier_of};
use super::topics::TopicError;

/// The property that makes a topic the shadow of the topic that it names.
pub const SHADOW_SOURCE: &str = "PULSAR.SHADOW_SOURCE";

/// The policy of a topic that names its shadows.
const SHADOW_TOPICS: &str = "shadowTopics";

/// Reason why a topic cannot be the shadow of another.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ShadowError {
    /// The name of the source is none.
    #[error("{SHADOW_SOURCE} is no topic: {0}")]
    BadSource(String),
    /// Source or shadow is non-persistent.
    #[error("Only persistent topics can be shadow topics and have them")]
    NonPersistent,
    /// There is no such source.
    #[error("The source topic {0} does not exist")]
    NoSource(TopicName),
    /// The source is a shadow itself.
    #[error("{0} is a shadow topic itself")]
    OfShadow(TopicName),
    /// The two are divided otherwise.
    #[error("{source_topic} has {partitions} partitions; its shadow topics have as many")]
    Partitions {
        /// The source.
        source_topic: TopicName,
        /// Number of partitions of the source; 0: it is not partitioned.
        partitions: u32,
    },
    /// The topic was not created as a shadow of this source.
    #[error("{shadow} is not a shadow topic of {source_topic}")]
    NotItsShadow {
        /// The topic that is none.
        shadow: TopicName,
        /// The source.
        source_topic: TopicName,
    },
}

/// Shadow topics in the catalog.
#[derive(Clone, Copy)]
pub struct Shadows<'a> {
    catalog: &'a Catalog,
}

impl<'a> Shadows<'a> {
    /// Shadow topics of a catalog.
    #[must_use]
    pub fn of(catalog: &'a Catalog) -> Self {
        Self { catalog }
    }

    /// Returns the source of a shadow topic; for a partition, the same partition of the source.
    #[must_use]
    pub fn source_of(self, name: &TopicName) -> Option<TopicName> {
        if let Some((source, _)) = carrier_of(name) {
            return Some(source);
        }
        let base = name.base();
        let index = name
            .partition()
            .filter(|_| self.catalog.partitioned().get(&base).is_some());
        let of = if index.is_some() { &base } else { name };
        let properties = self.catalog.topic_properties(of).ok()?;
        let source: TopicName = properties.get(SHADOW_SOURCE)?.parse().ok()?;
        Some(match index {
            Some(index) => source.with_partition(index),
            None => source,
        })
    }

    /// True if the topic has shadows, including carriers.
    #[must_use]
    pub fn are_there(self, name: &TopicName) -> bool {
        !self.topics_of(name).is_empty() || !Carriers::of(self.catalog).of_topic(name).is_empty()
    }

    /// The topics that are named as the shadows of a topic, whole ones also where the topic is a partition.
    #[must_use]
    pub fn topics_of(self, name: &TopicName) -> Vec<TopicName> {
        let policies = self.catalog.topic_policies(name);
        let names: Vec<String> = policies.get_as(SHADOW_TOPICS).unwrap_or_default();
        names.iter().filter_map(|name| name.parse().ok()).collect()
    }

    /// True if the source lists the shadow topic, so that the shadow shows what is published to the source.
    #[must_use]
    pub fn is_shown_by(self, shadow: &TopicName, source: &TopicName) -> bool {
        if carrier_of(shadow).is_some() {
            return true;
        }
        let base = shadow.base();
        let named = self.topics_of(source);
        named.iter().any(|name| name == shadow || *name == base)
    }

    /// Checks that a topic may be made with these properties, as far as they make it a shadow. Says of which source.
    ///
    /// # Errors
    /// [`ShadowError`].
    pub fn check_new(
        self,
        name: &TopicName,
        partitions: u32,
        properties: &BTreeMap<String, String>,
    ) -> Result<Option<TopicName>, ShadowError> {
        let Some(said) = properties.get(SHADOW_SOURCE) else {
            return Ok(None);
        };
        let source: TopicName = said.parse().map_err(|_| ShadowError::BadSource(said.clone()))?;
        if source.domain() != Domain::Persistent || name.domain() != Domain::Persistent {
            return Err(ShadowError::NonPersistent);
        }
        if source == *name || self.source_of(&source).is_some() {
            return Err(ShadowError::OfShadow(source));
        }
        let has = match self.catalog.partitioned().get(&source) {
            Some(whole) => whole.partitions,
            None if self.catalog.topic_exists(&source) => 0,
            None => return Err(ShadowError::NoSource(source)),
        };
        if has != partitions {
            return Err(ShadowError::Partitions {
                source_topic: source,
                partitions: has,
            });
        }
        Ok(Some(source))
    }

    /// Names the shadows of a topic, instead of those it had; none: it has none any more.
    ///
    /// # Errors
    /// `NotAllowed`: one of them is not its shadow. `Store`.
    pub async fn set(self, source: &TopicName, shadows: &[TopicName]) -> Result<(), TopicError> {
        for shadow in shadows {
            if self.source_of(shadow).as_ref() != Some(source) {
                let error = ShadowError::NotItsShadow {
                    shadow: shadow.clone(),
                    source_topic: source.clone(),
                };
                return Err(TopicError::NotAllowed(error.to_string()));
            }
        }
        let names: Vec<Value> = shadows.iter().map(|name| Value::from(name.to_string())).collect();
        let value = if names.is_empty() {
            Value::Null
        } else {
            Value::Array(names)
        };
        self.catalog.set_topic_policy(source, SHADOW_TOPICS, value).await
    }
}
