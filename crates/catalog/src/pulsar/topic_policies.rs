//! Policies of single topics: what Pulsar's brokers said of them in events. They are read and never changed: Pulsar's brokers would not
//! hear of it.
//!
//! Those of a topic that is deleted are forgotten: that is noted beside the events, with the place of the last one that was there. When a
//! broker of Pulsar says something later, that counts.

use pharos_metadata::{Expect, Fault, Item, ReadError, Version, Versioned, WriteError};
use serde::{Deserialize, Serialize};

use super::policy_events::{AllSaid, EventsLog, Said};
use super::topics::UNMARKED;
use super::{PulsarFacts, as_found, check, conflict, unread};
use crate::keys;
use crate::topic_policies::FIXED;

/// That policies were forgotten.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Forgotten {
    /// The last event that was there: ledger and entry.
    after: (u64, u64),
}

/// What is known of a topic.
struct StoredPolicies<'a> {
    /// What was said, if it is not forgotten.
    said: Option<&'a Said>,
    /// The version of its node, whatever it says.
    node: Option<Version>,
}

impl<'a> StoredPolicies<'a> {
    fn new(said: Option<&'a Said>, node: Option<Versioned>) -> Self {
        let last = said.map_or((0, 0), |said| said.at);
        let forgotten = node
            .as_ref()
            .and_then(|node| serde_json::from_slice::<Forgotten>(&node.value).ok());
        Self {
            said: said.filter(|_| forgotten.is_none_or(|forgotten| forgotten.after < last)),
            node: node.map(|node| node.version),
        }
    }

    fn to_versioned(&self) -> Option<Versioned> {
        let policies = self.said?.policies();
        (!policies.is_empty()).then(|| Versioned {
            value: serde_json::to_vec(&policies).unwrap_or_default().into(),
            version: UNMARKED,
        })
    }
}

impl PulsarFacts {
    /// What was said in events. Read once: nothing but brokers of Pulsar writes them.
    async fn all_said(&self) -> Result<&AllSaid, ReadError> {
        self.said
            .get_or_try_init(|| EventsLog::new(self, true).read())
            .await
    }

    pub(super) async fn topic_policies(&self, path: &str) -> Result<Option<Versioned>, ReadError> {
        let node = self
            .store
            .get(&format!("{}{path}", keys::PULSAR_TOPIC_POLICIES))
            .await?;
        let said = self.all_said().await?.get(path);
        Ok(StoredPolicies::new(said, node).to_versioned())
    }

    pub(super) async fn scan_topic_policies(&self) -> Result<Vec<Item>, ReadError> {
        let said = self.all_said().await?;
        let mut items = Vec::with_capacity(said.len());
        for path in said.keys() {
            let key = format!("{}{path}", keys::TOPIC_POLICIES);
            // What was said of topics of a namespace that is gone is nothing.
            if keys::topic_of(keys::TOPIC_POLICIES, &key).is_none() {
                continue;
            }
            items.extend(self.topic_policies(path).await?.map(|found| Item {
                key,
                value: found.value,
                version: found.version,
            }));
        }
        Ok(items)
    }

    /// The catalog asks for no change.
    pub(super) fn put_topic_policies(path: &str) -> WriteError {
        WriteError::Fault(Fault::new(
            "write policies of a topic",
            format!("{path}: {FIXED}"),
        ))
    }

    pub(super) async fn delete_topic_policies(&self, path: &str, expect: Expect) -> Result<bool, WriteError> {
        let key = format!("{}{path}", keys::TOPIC_POLICIES);
        let node_key = format!("{}{path}", keys::PULSAR_TOPIC_POLICIES);
        let node = self.store.get(&node_key).await.map_err(unread)?;
        let said = self.all_said().await.map_err(unread)?.get(path);
        let stored = StoredPolicies::new(said, node);
        let current = stored.to_versioned().map(|found| found.version);
        check(&key, expect, current)?;
        let Some(said) = stored.said else { return Ok(false) };
        let forgotten = serde_json::to_vec(&Forgotten { after: said.at }).unwrap_or_default();
        match self
            .store
            .put(&node_key, forgotten.into(), as_found(stored.node))
            .await
        {
            Err(WriteError::Conflict { .. }) => Err(conflict(&key, None)),
            written => Ok(written.map(|_| current.is_some())?),
        }
    }
}
