//! The facts of a cluster as Apache Pulsar 4.2 keeps them, under the keys that the catalog asks for.
//!
//! ```text
//!  what the catalog asks for            where it stands
//!  admin/policies/<t>/<ns>              the same, and admin/local-policies/<t>/<ns>: bundles, groups of bookies and brokers
//!  admin/topics/<t>/<ns>/persistent/x   managed-ledgers/<t>/<ns>/persistent/x is there; pharos-deleting/… while it is being deleted
//!  admin/topic-policies/<t>/<ns>/<d>/x  events of the topic __change_events; pharos-topic-policies/… rings when Pharos adds one
//!  admin/schemas/<id>/<version>         schemas/<id>: a locator; each version an entry of a ledger of its own
//!  everything else of it                the same: tenants, clusters, isolation policies, partitioned topics
//! ```
//! So the rules of the catalog are the same in both layouts, and only this module knows the difference. What two keys make up has the
//! newer one's version; versions of ZooKeeper rise over all keys, so it is different after each change of either.
//!
//! Values that Pharos does not know are kept: policies are rewritten as a whole with all members, infos of topics are never rewritten
//! but for their properties.

use std::sync::{Arc, RwLock};
use std::time::Duration;

use bytes::Bytes;
use pharos_ledger::LedgerEngine;
use pharos_metadata::{
    BoxFuture, Expect, Fault, Item, MetadataStore, ReadError, Session, SessionError, Version, Versioned,
    Watch, WriteError,
};

use tokio::sync::Semaphore;

use crate::keys;

mod avro_value;
mod avro_write;
mod bytes_of;
mod event_logs;
mod event_message;
mod events;
mod namespaces;
mod policy_events;
mod policy_names;
mod schemas;
mod takeover;
mod topic_policies;
mod topics;

pub use event_logs::{EventLog, EventLogError, EventLogs, TakenEventLog};
pub use takeover::{Finding, Takeover};

use schemas::SchemaFacts;

#[cfg(test)]
mod tests;

/// Values that are asked for at a time.
const AT_ONCE: usize = 64;

/// A store that has the catalog's facts where Pulsar's brokers have them; see the module's documentation.
pub struct PulsarFacts {
    store: Arc<dyn MetadataStore>,
    /// Ledgers of schemas and of topic policy events.
    ledgers: Arc<dyn LedgerEngine>,
    /// Topic policy events, once they were read.
    said: RwLock<Option<Arc<policy_events::EventLogsRead>>>,
    /// Permit to read the events, for one task at a time.
    reading: Semaphore,
    /// Permit to write an event, for one task at a time.
    saying: Semaphore,
    /// Writer of topic policy events; `None`: none are written.
    writer: Option<EventWriter>,
}

/// Way to read a ledger that its writer may not have closed.
///
/// Bookies learn that an entry is confirmed from the next one, so of an open ledger a plain read misses the last entry: the one that counts
/// of a cursor, and the whole of a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OpenLedgers {
    /// As far as a recovery would keep it, changing nothing: its writer may be a broker of Pulsar that serves it.
    Peek,
    /// Recovered first, so that nothing is missed and its writer appends no more.
    Recover,
    /// As `Recover`, but for the last ledger of a log that was taken over: this broker writes that one itself.
    Held,
}

/// Writer of topic policy events.
struct EventWriter {
    logs: Arc<dyn EventLogs>,
    /// The cluster for which it holds.
    cluster: String,
}

/// Subject of a catalog key that Pulsar stores elsewhere.
enum PlaceOfFact<'a> {
    /// A namespace: `<tenant>/<namespace>`.
    Namespace(&'a str),
    /// A topic: `<tenant>/<namespace>/persistent/<local>`.
    Topic(&'a str),
    /// Policies of a topic: `<tenant>/<namespace>/<domain>/<local>`.
    TopicPolicies(&'a str),
    /// A version of a schema, and the id.
    Schema(&'a str, u64),
    /// Everything else.
    Same,
}

impl<'a> PlaceOfFact<'a> {
    fn of(key: &'a str) -> Self {
        if let Some(path) = key.strip_prefix(keys::POLICIES) {
            return match path.split('/').count() {
                2 => Self::Namespace(path),
                _ => Self::Same,
            };
        }
        if let Some(path) = key.strip_prefix(keys::TOPICS) {
            return Self::Topic(path);
        }
        if let Some(path) = key.strip_prefix(keys::TOPIC_POLICIES) {
            return Self::TopicPolicies(path);
        }
        match keys::schema_of(key) {
            Some((id, version)) => Self::Schema(id, version.0),
            None => Self::Same,
        }
    }
}

impl PulsarFacts {
    /// The facts in `store`, whose schemas are in `ledgers`. Policies of topics are read only.
    #[must_use]
    pub fn new(store: Arc<dyn MetadataStore>, ledgers: Arc<dyn LedgerEngine>) -> Self {
        Self {
            store,
            ledgers,
            said: RwLock::default(),
            reading: Semaphore::new(1),
            saying: Semaphore::new(1),
            writer: None,
        }
    }

    /// Allows changes of topic policies: events for this cluster go to the topics whose logs `logs` takes over.
    #[must_use]
    pub fn with_events(self, logs: Arc<dyn EventLogs>, cluster: &str) -> Self {
        let cluster = cluster.to_owned();
        Self {
            writer: Some(EventWriter { logs, cluster }),
            ..self
        }
    }

    /// Returns the untranslated nodes that have a value; nodes that only hold others have none.
    async fn scan_same(&self, prefix: &str) -> Result<Vec<Item>, ReadError> {
        let found = self.store.scan(prefix).await?;
        let is_same = |item: &Item| {
            let elsewhere = [
                keys::PULSAR_LOCAL_POLICIES,
                keys::TOPICS,
                keys::TOPIC_POLICIES,
                keys::SCHEMAS,
            ];
            !item.value.is_empty()
                && !elsewhere.iter().any(|prefix| item.key.starts_with(prefix))
                && matches!(PlaceOfFact::of(&item.key), PlaceOfFact::Same)
        };
        Ok(found.into_iter().filter(is_same).collect())
    }

    async fn scan_all(&self, prefix: &str) -> Result<Vec<Item>, ReadError> {
        let concerns = |tree: &str| tree.starts_with(prefix) || prefix.starts_with(tree);
        let mut all = self.scan_same(prefix).await?;
        if concerns(keys::POLICIES) {
            all.extend(self.scan_namespaces().await?);
        }
        if concerns(keys::TOPICS) {
            all.extend(self.scan_topics().await?);
        }
        if concerns(keys::TOPIC_POLICIES) {
            all.extend(self.scan_topic_policies().await?);
        }
        if concerns(keys::SCHEMAS) {
            all.extend(SchemaFacts::new(self).scan(prefix).await?);
        }
        all.retain(|item| item.key.starts_with(prefix));
        all.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        Ok(all)
    }
}

impl MetadataStore for PulsarFacts {
    fn get(&self, key: &str) -> BoxFuture<'_, Result<Option<Versioned>, ReadError>> {
        let key = key.to_owned();
        Box::pin(async move {
            match PlaceOfFact::of(&key) {
                PlaceOfFact::Namespace(path) => self.namespace(path).await,
                PlaceOfFact::Topic(path) => self.topic(path).await,
                PlaceOfFact::TopicPolicies(path) => self.topic_policies(path).await,
                PlaceOfFact::Schema(id, version) => SchemaFacts::new(self).get(id, version).await,
                PlaceOfFact::Same => {
                    let found = self.store.get(&key).await?;
                    Ok(found.filter(|found| !found.value.is_empty()))
                }
            }
        })
    }

    fn put(&self, key: &str, value: Bytes, expect: Expect) -> BoxFuture<'_, Result<Version, WriteError>> {
        let key = key.to_owned();
        Box::pin(async move {
            match PlaceOfFact::of(&key) {
                PlaceOfFact::Namespace(path) => self.put_namespace(path, &value, expect).await,
                PlaceOfFact::Topic(path) => self.put_topic(path, value.clone(), expect).await,
                PlaceOfFact::TopicPolicies(path) => self.put_topic_policies(path, &value, expect).await,
                PlaceOfFact::Schema(id, version) => {
                    SchemaFacts::new(self).put(id, version, &value, expect).await
                }
                PlaceOfFact::Same => self.store.put(&key, value, expect).await,
            }
        })
    }

    fn delete(&self, key: &str, expect: Expect) -> BoxFuture<'_, Result<bool, WriteError>> {
        let key = key.to_owned();
        Box::pin(async move {
            match PlaceOfFact::of(&key) {
                PlaceOfFact::Namespace(path) => self.delete_namespace(path, expect).await,
                PlaceOfFact::Topic(path) => self.delete_topic(path, expect).await,
                PlaceOfFact::TopicPolicies(path) => self.delete_topic_policies(path, expect).await,
                PlaceOfFact::Schema(id, version) => SchemaFacts::new(self).delete(id, version, expect).await,
                PlaceOfFact::Same => self.store.delete(&key, expect).await,
            }
        })
    }

    fn sequence(&self, key: &str) -> BoxFuture<'_, Result<u64, WriteError>> {
        self.store.sequence(key)
    }

    fn list(&self, prefix: &str) -> BoxFuture<'_, Result<Vec<String>, ReadError>> {
        let prefix = prefix.to_owned();
        Box::pin(async move {
            let found = self.scan_all(&prefix).await?;
            Ok(found.into_iter().map(|item| item.key).collect())
        })
    }

    fn scan(&self, prefix: &str) -> BoxFuture<'_, Result<Vec<Item>, ReadError>> {
        let prefix = prefix.to_owned();
        Box::pin(async move { self.scan_all(&prefix).await })
    }

    fn watch(&self, prefix: &str) -> Watch {
        self.store.watch("").translated(prefix, events::translate)
    }

    fn has_other_writers(&self) -> bool {
        self.store.has_other_writers()
    }

    fn open_session(&self, timeout: Duration) -> BoxFuture<'_, Result<Arc<dyn Session>, SessionError>> {
        self.store.open_session(timeout)
    }

    fn fault(&self) -> Option<Arc<Fault>> {
        self.store.fault()
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        self.store.shutdown()
    }
}

/// Converts a failed read before a write into the write's error; nothing was written.
fn unread(error: ReadError) -> WriteError {
    match error {
        ReadError::InvalidKey(key) => WriteError::InvalidKey(key),
        ReadError::Fault(fault) => WriteError::Fault(fault),
    }
}

/// Refuses a write whose expectation does not hold.
fn check(key: &str, expect: Expect, current: Option<Version>) -> Result<(), WriteError> {
    match expect.holds(current) {
        true => Ok(()),
        false => Err(conflict(key, current)),
    }
}

fn conflict(key: &str, current: Option<Version>) -> WriteError {
    WriteError::Conflict {
        key: key.to_owned(),
        current,
    }
}

/// Returns the condition that the version is exactly the one found.
fn as_found(found: Option<Version>) -> Expect {
    found.map_or(Expect::Absent, Expect::Version)
}
