//! Policies of single topics: what Pulsar's brokers said of them in events, and what was changed since.
//!
//! A change is kept beside the events, with the place of the last one that was there: when a broker of Pulsar says something later, that
//! counts.

use bytes::Bytes;
use pharos_metadata::{Expect, Fault, Item, ReadError, Version, Versioned, WriteError};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::policy_events::{AllSaid, EventsLog, Said};
use super::topics::UNMARKED;
use super::{PulsarFacts, as_found, check, conflict, unread};
use crate::keys;

/// What was changed.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Change {
    /// The last event that was there: ledger and entry.
    after: (u64, u64),
    /// All policies of the topic; `None`: there are none.
    policies: Option<Map<String, Value>>,
}

/// What is known of a topic.
struct StoredPolicies<'a> {
    said: Option<&'a Said>,
    /// The change, if nothing was said later.
    change: Option<Change>,
    /// The version of its node, whatever it says.
    node: Option<Version>,
}

impl<'a> StoredPolicies<'a> {
    fn new(said: Option<&'a Said>, node: Option<Versioned>) -> Self {
        let last = said.map_or((0, 0), |said| said.at);
        let change = node
            .as_ref()
            .and_then(|node| serde_json::from_slice::<Change>(&node.value).ok());
        Self {
            said,
            change: change.filter(|change| last <= change.after),
            node: node.map(|node| node.version),
        }
    }

    fn to_versioned(&self) -> Option<Versioned> {
        let (policies, version) = match &self.change {
            Some(change) => (change.policies.clone()?, self.node?),
            None => (self.said?.policies(), UNMARKED),
        };
        if policies.is_empty() && self.change.is_none() {
            return None;
        }
        Some(Versioned {
            value: serde_json::to_vec(&policies).unwrap_or_default().into(),
            version,
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
        let nodes = self.store.list(keys::PULSAR_TOPIC_POLICIES).await?;
        let changed = nodes
            .iter()
            .filter_map(|key| key.strip_prefix(keys::PULSAR_TOPIC_POLICIES));
        let mut paths: Vec<&str> = said.keys().map(String::as_str).chain(changed).collect();
        paths.sort_unstable();
        paths.dedup();
        let mut items = Vec::with_capacity(paths.len());
        for path in paths {
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

    pub(super) async fn put_topic_policies(
        &self,
        path: &str,
        value: &Bytes,
        expect: Expect,
    ) -> Result<Version, WriteError> {
        let policies = serde_json::from_slice(value);
        let policies =
            policies.map_err(|error| WriteError::Fault(Fault::new("write policies of a topic", error)))?;
        self.change(path, Some(policies), expect)
            .await
            .map(|(version, _)| version)
    }

    pub(super) async fn delete_topic_policies(&self, path: &str, expect: Expect) -> Result<bool, WriteError> {
        self.change(path, None, expect)
            .await
            .map(|(_, was_there)| was_there)
    }

    async fn change(
        &self,
        path: &str,
        policies: Option<Map<String, Value>>,
        expect: Expect,
    ) -> Result<(Version, bool), WriteError> {
        let key = format!("{}{path}", keys::TOPIC_POLICIES);
        let node_key = format!("{}{path}", keys::PULSAR_TOPIC_POLICIES);
        let node = self.store.get(&node_key).await.map_err(unread)?;
        let said = self.all_said().await.map_err(unread)?.get(path);
        let stored = StoredPolicies::new(said, node);
        let current = stored.to_versioned().map(|found| found.version);
        check(&key, expect, current)?;
        let expect = as_found(stored.node);
        let written = if policies.is_none() && said.is_none() {
            match stored.node {
                Some(_) => self.store.delete(&node_key, expect).await.map(|_| UNMARKED),
                None => Ok(UNMARKED),
            }
        } else {
            let change = Change {
                after: said.map_or((0, 0), |said| said.at),
                policies,
            };
            let change = serde_json::to_vec(&change).unwrap_or_default();
            self.store.put(&node_key, change.into(), expect).await
        };
        match written {
            Err(WriteError::Conflict { .. }) => Err(conflict(&key, None)),
            written => Ok((written?, current.is_some())),
        }
    }
}
