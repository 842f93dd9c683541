//! Roles granted on a topic, when it is deleted.

use serde_json::Value;

use pharos_auth::{AUTH_POLICIES, TOPIC_AUTH};
use pharos_types::TopicName;

use super::Catalog;
use super::namespaces::NamespaceError;
use super::store::StoreError;

impl Catalog {
    /// Takes what was granted on a topic, or on a partitioned topic as a whole, out of its namespace's policies: a later topic of
    /// the same name begins without. Part of deleting it, before its record goes. Repeatable.
    pub(super) async fn delete_topic_grants(&self, name: &TopicName) -> Result<(), StoreError> {
        let text = name.to_string();
        let is_granted = {
            let state = self.inner.known.read();
            let namespace = state.namespaces.get(name.namespace());
            let granted = namespace.and_then(|namespace| namespace.policies.value.get(AUTH_POLICIES));
            granted.is_some_and(|granted| {
                granted
                    .get(TOPIC_AUTH)
                    .is_some_and(|topics| topics.get(&text).is_some())
            })
        };
        if !is_granted {
            return Ok(());
        }
        let changed = self.namespaces().update_policies(name.namespace(), |policies| {
            let mut granted = policies.get(AUTH_POLICIES).cloned();
            let topics = granted.as_mut().and_then(|granted| granted.get_mut(TOPIC_AUTH));
            if let Some(topics) = topics.and_then(Value::as_object_mut) {
                topics.remove(&text);
            }
            if let Some(granted) = granted {
                policies.set(AUTH_POLICIES, granted);
            }
        });
        match changed.await {
            Err(NamespaceError::Store(error)) => Err(error),
            // What else can be in the way is that there is no such namespace any more, and nothing granted in it.
            Ok(()) | Err(_) => Ok(()),
        }
    }
}
