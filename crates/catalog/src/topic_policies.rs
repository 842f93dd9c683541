//! Policies of single topics, which override those of the namespace, by base name.

use std::sync::Arc;

use pharos_types::TopicName;
use serde_json::Value;

use super::store::{Created, StoreError};
use super::topics::TopicError;
use super::{Catalog, PolicyEvent, TopicPolicies, keys};

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
    /// `TenantNotFound`, `NamespaceNotFound`, `Store`.
    pub async fn set_topic_policy(
        &self,
        name: &TopicName,
        policy: &str,
        value: Value,
    ) -> Result<(), TopicError> {
        let change = |policies: &mut TopicPolicies| {
            match &value {
                Value::Null => policies.0.remove(policy),
                value => policies.0.insert(policy.to_owned(), value.clone()),
            };
        };
        change_topic_policies(self, name, change).await
    }

    /// Removes those policies of a topic whose stored names `of` takes, all at once.
    ///
    /// # Errors
    /// `TenantNotFound`, `NamespaceNotFound`, `Store`.
    pub async fn remove_topic_policies(
        &self,
        name: &TopicName,
        of: impl Fn(&str) -> bool,
    ) -> Result<(), TopicError> {
        change_topic_policies(self, name, |policies| policies.0.retain(|name, _| !of(name))).await
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
    let changed = |policies: &TopicPolicies| {
        let mut policies = policies.clone();
        change(&mut policies);
        policies
    };
    let facts = &catalog.inner.facts;
    let mut known = known;
    let mut made = None;
    if known.is_none() {
        let first = changed(&TopicPolicies::default());
        if first.0.is_empty() {
            // There is nothing to make, and there may be something to change.
            known = facts.get(&key).await?;
        } else {
            match facts.create(&key, first).await? {
                Created::New(record) => made = Some(record),
                Created::Found(record) => known = Some(record),
            }
        }
    }
    let missing = || TopicError::TopicNotFound(base.clone());
    let change = |policies: &TopicPolicies| Ok::<_, TopicError>(changed(policies));
    let record = match (made, known) {
        (Some(made), _) => made,
        (None, Some(known)) => facts.update(&key, known, missing, change).await?,
        (None, None) => return Ok(()),
    };
    if let Some(namespace) = catalog.inner.known.write().namespaces.get_mut(base.namespace()) {
        namespace.topic_policies.insert(base.clone(), record);
    }
    catalog.inner.known.tell_policies(PolicyEvent::Topic(base));
    Ok(())
}
