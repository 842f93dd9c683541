//! Topics: one exists where its managed ledger has a node, whatever is in it.
//!
//! Its properties stand in that node, beside those in which the managed ledger keeps its own state: these are no properties of the topic
//! to clients, and a change of the others leaves them as they are in the node at that moment. That it is being deleted is written beside
//! the tree, where Pulsar's brokers do not look, with the newest ledger that it had then: one of the same name that such a broker made
//! later is not deleted for it.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures_util::future::join_all;
use pharos_metadata::{Expect, Fault, Item, ReadError, Version, Versioned, WriteError};
use prost::Message;
use prost::encoding::{WireType, decode_key, skip_field};
use serde::{Deserialize, Serialize};

use super::bytes_of::{KeyValue, StoredManagedLedger};
use super::{AT_ONCE, PulsarFacts, as_found, check, unread};
use crate::keys;
use crate::properties::{is_kept_of_topic, is_reserved_of_topic};
use crate::topics::TopicRecord;

/// The version of a topic that is not being deleted: its managed ledger changes the node often, and that is no change of the topic.
pub(super) const UNMARKED: Version = Version(0);

/// The field of an info that has the properties.
const PROPERTIES: u32 = 3;

/// Record of a topic that is being deleted.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct DeletingMark {
    /// The newest ledger it had; `-1` for none.
    newest_ledger: i64,
}

/// A topic as it is stored.
struct StoredTopic {
    info: Option<Versioned>,
    /// Version of the deletion mark, if the mark is about this very topic.
    mark: Option<Version>,
    /// The version of the node of the mark, whatever it says.
    mark_node: Option<Version>,
}

impl StoredTopic {
    fn new(info: Option<Versioned>, mark: Option<Versioned>) -> Self {
        let said = mark
            .as_ref()
            .and_then(|mark| serde_json::from_slice::<DeletingMark>(&mark.value).ok());
        let newest = info.as_ref().map_or(-1, |info| newest_ledger(&info.value));
        let holds = said.is_some_and(|said| newest <= said.newest_ledger);
        let mark_node = mark.map(|mark| mark.version);
        Self {
            info,
            mark: mark_node.filter(|_| holds),
            mark_node,
        }
    }

    fn version(&self) -> Option<Version> {
        self.mark.or_else(|| self.info.as_ref().map(|_| UNMARKED))
    }

    fn properties(&self) -> BTreeMap<String, String> {
        self.info
            .as_ref()
            .map(|info| properties(&info.value))
            .unwrap_or_default()
    }

    fn to_versioned(&self) -> Option<Versioned> {
        let record = TopicRecord {
            created_ms: 0,
            deleting: self.mark.is_some(),
            properties: self.properties(),
        };
        Some(Versioned {
            version: self.version()?,
            value: serde_json::to_vec(&record).unwrap_or_default().into(),
        })
    }
}

/// An info that cannot be read has no properties for the catalog; that it is damaged, the managed ledger says.
fn info(value: &[u8]) -> StoredManagedLedger {
    StoredManagedLedger::decode(value).unwrap_or_default()
}

fn newest_ledger(value: &[u8]) -> i64 {
    let ledgers = info(value).ledgers;
    ledgers.iter().map(|ledger| ledger.ledger_id).max().unwrap_or(-1)
}

fn properties(value: &[u8]) -> BTreeMap<String, String> {
    let all = info(value).properties.into_iter();
    let all = all.filter(|property| !is_reserved_of_topic(&property.key));
    all.map(|property| (property.key, property.value)).collect()
}

/// The same info with other properties; `None` when it cannot be read. Every other field is kept as it is, and so are properties that
/// are not the topic's callers'.
fn with_properties(value: &Bytes, properties: &BTreeMap<String, String>) -> Option<Bytes> {
    let mut out = Vec::with_capacity(value.len());
    let mut rest = &**value;
    while !rest.is_empty() {
        let field = rest;
        let (tag, wire) = decode_key(&mut rest).ok()?;
        skip_field(wire, tag, &mut rest, prost::encoding::DecodeContext::default()).ok()?;
        if tag != PROPERTIES || wire != WireType::LengthDelimited {
            out.extend_from_slice(field.get(..field.len() - rest.len())?);
        }
    }
    let kept = StoredManagedLedger::decode(&**value).ok()?.properties.into_iter();
    let kept = kept.filter(|property| is_kept_of_topic(&property.key));
    let given = properties.iter().filter(|(key, _)| !is_kept_of_topic(key));
    let given = given.map(|(key, value)| KeyValue {
        key: key.clone(),
        value: value.clone(),
    });
    let properties = StoredManagedLedger {
        ledgers: Vec::new(),
        properties: kept.chain(given).collect(),
    };
    properties.encode(&mut out).ok()?;
    Some(out.into())
}

impl PulsarFacts {
    async fn stored_topic(&self, path: &str) -> Result<StoredTopic, ReadError> {
        let info = self.store.get(&format!("{}{path}", keys::PULSAR_TOPICS)).await?;
        let mark = self.store.get(&format!("{}{path}", keys::PULSAR_MARKS)).await?;
        Ok(StoredTopic::new(info, mark))
    }

    pub(super) async fn topic(&self, path: &str) -> Result<Option<Versioned>, ReadError> {
        Ok(self.stored_topic(path).await?.to_versioned())
    }

    pub(super) async fn scan_topics(&self) -> Result<Vec<Item>, ReadError> {
        let named = |tree: &'static str, keys: Vec<String>| {
            let topics = keys
                .into_iter()
                .filter_map(move |key| keys::moved(&key, tree, keys::TOPICS));
            topics.filter(|key| keys::topic_of(keys::TOPICS, key).is_some())
        };
        // Names first: the cursors below topics are many, and their values are not wanted.
        let mut topics: Vec<String> =
            named(keys::PULSAR_TOPICS, self.store.list(keys::PULSAR_TOPICS).await?).collect();
        topics.extend(named(
            keys::PULSAR_MARKS,
            self.store.list(keys::PULSAR_MARKS).await?,
        ));
        topics.sort_unstable();
        topics.dedup();
        let mut items = Vec::with_capacity(topics.len());
        for some in topics.chunks(AT_ONCE) {
            let asked = some
                .iter()
                .map(|key| self.topic(key.strip_prefix(keys::TOPICS).unwrap_or_default()));
            for (key, found) in some.iter().zip(join_all(asked).await) {
                items.extend(found?.map(|found| Item {
                    key: key.clone(),
                    value: found.value,
                    version: found.version,
                }));
            }
        }
        Ok(items)
    }

    pub(super) async fn put_topic(
        &self,
        path: &str,
        value: Bytes,
        expect: Expect,
    ) -> Result<Version, WriteError> {
        let key = format!("{}{path}", keys::TOPICS);
        let info_key = format!("{}{path}", keys::PULSAR_TOPICS);
        let mark_key = format!("{}{path}", keys::PULSAR_MARKS);
        let stored = self.stored_topic(path).await.map_err(unread)?;
        check(&key, expect, stored.version())?;
        let record: TopicRecord = serde_json::from_slice(&value)
            .map_err(|error| WriteError::Fault(Fault::new("write a topic", error)))?;
        let known = stored.info.as_ref().map(|info| info.value.clone());
        if stored.info.is_none() || record.properties != stored.properties() {
            let info = with_properties(&known.clone().unwrap_or_default(), &record.properties);
            let unreadable = || {
                WriteError::Fault(Fault::new(
                    "change properties of a topic",
                    "its info is not readable",
                ))
            };
            let expect = as_found(stored.info.as_ref().map(|info| info.version));
            let written = self
                .store
                .put(&info_key, info.ok_or_else(unreadable)?, expect)
                .await;
            written.map_err(|error| match error {
                WriteError::Conflict { .. } => super::conflict(&key, Some(UNMARKED)),
                error => error,
            })?;
        }
        let expect = as_found(stored.mark_node);
        match (record.deleting, stored.mark_node) {
            (true, _) => {
                let mark = DeletingMark {
                    newest_ledger: known.map_or(-1, |info| newest_ledger(&info)),
                };
                let mark = serde_json::to_vec(&mark).unwrap_or_default();
                self.store.put(&mark_key, mark.into(), expect).await
            }
            (false, Some(_)) => {
                self.store.delete(&mark_key, expect).await?;
                Ok(UNMARKED)
            }
            (false, None) => Ok(UNMARKED),
        }
    }

    /// The mark goes last: what a crash leaves before is gone on with.
    pub(super) async fn delete_topic(&self, path: &str, expect: Expect) -> Result<bool, WriteError> {
        let key = format!("{}{path}", keys::TOPICS);
        let stored = self.stored_topic(path).await.map_err(unread)?;
        check(&key, expect, stored.version())?;
        let info_key = format!("{}{path}", keys::PULSAR_TOPICS);
        self.store.delete(&info_key, Expect::Any).await?;
        if stored.mark_node.is_some() {
            let mark_key = format!("{}{path}", keys::PULSAR_MARKS);
            self.store.delete(&mark_key, Expect::Any).await?;
        }
        Ok(stored.version().is_some())
    }
}
