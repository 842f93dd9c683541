//! Policies of single topics, which override those of the namespace, by base name.

use std::sync::Arc;

use pharos_metadata::MetadataLayout;
use pharos_types::TopicName;
use serde_json::Value;

use super::store::{Created, StoreError};
use super::topics::TopicError;
use super::{Catalog, PolicyEvent, TopicPolicies, keys};

/// Why they are not changed where Pulsar's brokers keep them.
pub(super) const FIXED: &str = "with metadata_layout = pulsar policies of single topics cannot be changed, as Pulsar's brokers would not see it when \
     they come back: set the policy on the namespace, or change it at a broker of Pulsar";

impl Catalog {
    /// The policies set on a topic; those of a partition are its partitioned topic's. Empty when there are none.
    #[must_use]
    pub fn topic_policies(&self, name: &TopicName) -> Arc<TopicPolicies> {
        let base = name.base();
        let state = self.inner.known.read();
        let namespace = state.namespaces.get(base.namespace());
        namespace
            .and_then(|namespace| namespace.topic_policies.get(&base))
            .map(|record| Arc::clone(&record.value))
            .unwrap_or_default()
    }

    /// Sets one policy of a topic; null removes it. The topic need not exist.
    ///
    /// # Errors
    /// `TenantNotFound`, `NamespaceNotFound`, `Store`; `NotAllowed` in Pulsar's layout.
    pub async fn set_topic_policy(
        &self,
        name: &TopicName,
        policy: &str,
        value: Value,
    ) -> Result<(), TopicError> {
        if self.inner.options.layout == MetadataLayout::Pulsar {
            return Err(TopicError::NotAllowed(FIXED.to_owned()));
        }
        let change = |policies: &mut TopicPolicies| {
            match &value {
                Value::Null => policies.0.remove(policy),
                value => policies.0.insert(policy.to_owned(), value.clone()),
            };
        };
        change_topic_policies(self, name, change).await
    }

    /// Removes all policies of a topic. Its name is held by the caller.
    pub(super) async fn delete_topic_policies(&self, base: &TopicName) -> Result<(), StoreError> {
        let is_known = {
            let state = self.inner.known.read();
            let namespace = state.namespaces.get(base.namespace());
            namespace.is_some_and(|namespace| namespace.topic_policies.contains_key(base))
        };
        if is_known {
            self.inner.facts.delete(&keys::topic_policies(base)).await?;
            if let Some(namespace) = self.inner.known.write().namespaces.get_mut(base.namespace()) {
                namespace.topic_policies.remove(base);
            }
        }
        Ok(())
    }
}

/// Changes the policies of a topic; `change` sees what is stored, and may run several times.
pub(super) async fn change_topic_policies(
    catalog: &Catalog,
    name: &TopicName,
    change: impl Fn(&mut TopicPolicies),
) -> Result<(), TopicError> {
    let base = name.base();
    let key = keys::topic_policies(&base);
    let _guard = catalog.inner.facts.names.take(key.clone()).await;
    let known = {
        let state = catalog.inner.known.read();
        state.namespace(&base)?.topic_policies.get(&base).cloned()
    };
    let known = match known {
        Some(known) => known,
        None => match catalog.inner.facts.create(&key, TopicPolicies::default()).await? {
            Created::New(record) | Created::Found(record) => record,
        },
    };
    let missing = || TopicError::TopicNotFound(base.clone());
    let record = catalog
        .inner
        .facts
        .update(&key, known, missing, |policies: &TopicPolicies| {
            let mut policies = policies.clone();
            change(&mut policies);
            Ok::<_, TopicError>(policies)
        })
        .await?;
    if let Some(namespace) = catalog.inner.known.write().namespaces.get_mut(base.namespace()) {
        namespace.topic_policies.insert(base.clone(), record);
    }
    catalog.inner.known.tell_policies(PolicyEvent::Topic(base));
    Ok(())
}
