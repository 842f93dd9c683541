//! The policies of single topics as Pulsar's brokers keep them: events in the topic `__change_events` of each namespace, the last one of
//! a topic counts.
//!
//! ```text
//!  __compaction ─► ledger of the last event of each topic, up to some place ─┐
//!  __change_events ─► its ledgers, oldest first ─────────────────────────────┴─► last event of each topic
//! ```

use std::collections::BTreeMap;

use bytes::{Buf as _, Bytes};
use pharos_metadata::{Fault, MetadataStore, ReadError};
use pharos_types::{EntryId, LedgerId, TopicName};
use prost::Message;
use serde_json::{Map, Value};

use super::avro_value::AvroReader;
use super::bytes_of::{CursorInfo, CursorPosition, MessageIdData, MessageMetadata, StoredManagedLedger};
use super::{PulsarFacts, policy_names};
use crate::keys;

/// The topic of a namespace that has them.
pub(super) const CHANGE_EVENTS: &str = "__change_events";
/// The cursor of what it was compacted by, and the property that names the ledger.
const COMPACTION: &str = "__compaction";
const COMPACTED_LEDGER: &str = "CompactedTopicLedger";
/// Before the name of a topic in an event of policies for all clusters.
const EVERYWHERE: &str = "__G__";
/// Entries and bytes of a reading.
const ENTRIES: usize = 1_024;
const BYTES: usize = 1 << 20;
/// What entries of messages begin with: with a checksum, and with what a broker noted.
const CHECKSUM: u16 = 0x0e01;
const BROKER_METADATA: u16 = 0x0e02;

/// What was said of a topic.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Said {
    /// Where it was said last: ledger and entry.
    pub(super) at: (u64, u64),
    /// For this cluster, and for all.
    here: Map<String, Value>,
    everywhere: Map<String, Value>,
}

impl Said {
    /// All of it by the catalog's names.
    pub(super) fn policies(&self) -> Map<String, Value> {
        let all = self.here.iter().chain(&self.everywhere);
        all.map(|(name, value)| (name.clone(), value.clone())).collect()
    }
}

/// By `<tenant>/<namespace>/<domain>/<topic>`.
pub(super) type AllSaid = BTreeMap<String, Said>;

/// One event: the topic, whether it is for all clusters, and the policies in their bytes; `None`: they are removed.
struct SaidEvent {
    topic: TopicName,
    is_everywhere: bool,
    schema: Option<u64>,
    payload: Option<Bytes>,
}

/// What is wrong with it otherwise.
fn event(mut entry: Bytes) -> Result<Option<SaidEvent>, String> {
    let short = || "it ends early".to_owned();
    let magic = |entry: &mut Bytes, wanted: u16| {
        let is_it = entry.get(..2).is_some_and(|start| start == wanted.to_be_bytes());
        if is_it {
            entry.advance(2);
        }
        is_it
    };
    if magic(&mut entry, BROKER_METADATA) {
        let size = take_u32(&mut entry).ok_or_else(short)?;
        take(&mut entry, size).ok_or_else(short)?;
    }
    if magic(&mut entry, CHECKSUM) {
        take(&mut entry, 4).ok_or_else(short)?;
    }
    let size = take_u32(&mut entry).ok_or_else(short)?;
    let metadata = take(&mut entry, size).ok_or_else(short)?;
    let metadata = MessageMetadata::decode(metadata).map_err(|error| error.to_string())?;
    if metadata.num_messages_in_batch.is_some()
        || metadata.compression != 0
        || !metadata.encryption_keys.is_empty()
    {
        return Err("it is batched, compressed or encrypted".to_owned());
    }
    let Some(key) = metadata.partition_key else {
        return Ok(None);
    };
    let name = key.strip_prefix(EVERYWHERE);
    let topic = name
        .unwrap_or(&key)
        .parse()
        .map_err(|_| format!("{key} is no topic"))?;
    let version = metadata
        .schema_version
        .and_then(|bytes| Some(u64::from_be_bytes(bytes.try_into().ok()?)));
    Ok(Some(SaidEvent {
        topic,
        is_everywhere: name.is_some(),
        schema: version,
        payload: (!metadata.null_value && !entry.is_empty()).then_some(entry),
    }))
}

fn take(bytes: &mut Bytes, count: usize) -> Option<Bytes> {
    (bytes.len() >= count).then(|| bytes.split_to(count))
}

fn take_u32(bytes: &mut Bytes) -> Option<usize> {
    let number = take(bytes, 4)?;
    usize::try_from(u32::from_be_bytes(number.as_ref().try_into().ok()?)).ok()
}

/// The place and the message of an entry of a compacted ledger.
fn compacted(mut entry: Bytes) -> Option<((u64, u64), Bytes)> {
    let size = take_u32(&mut entry)?;
    let id = MessageIdData::decode(take(&mut entry, size)?).ok()?;
    let size = take_u32(&mut entry)?;
    Some(((id.ledger_id, id.entry_id), take(&mut entry, size)?))
}

/// The policies in an event.
fn policies_in(event: Value) -> Option<Map<String, Value>> {
    let Value::Object(mut event) = event else {
        return None;
    };
    match event.remove("topicPoliciesEvent")? {
        Value::Object(mut of_topic) => match of_topic.remove("policies")? {
            Value::Object(policies) => Some(policies),
            _ => None,
        },
        _ => None,
    }
}

/// Reads the events of all namespaces.
pub(super) struct EventsLog<'a> {
    facts: &'a PulsarFacts,
    /// Whether what a writer left open is recovered, so that all of it is read. Otherwise nothing is changed.
    may_recover: bool,
    /// By schema and version.
    schemas: BTreeMap<(String, Option<u64>), AvroReader>,
    said: AllSaid,
}

impl<'a> EventsLog<'a> {
    pub(super) fn new(facts: &'a PulsarFacts, may_recover: bool) -> Self {
        Self {
            facts,
            may_recover,
            schemas: BTreeMap::new(),
            said: AllSaid::new(),
        }
    }

    fn store(&self) -> &dyn MetadataStore {
        &*self.facts.store
    }

    pub(super) async fn read(mut self) -> Result<AllSaid, ReadError> {
        for key in self.store().list(keys::PULSAR_TOPICS).await? {
            let topic = keys::topic_of(keys::PULSAR_TOPICS, &key);
            if let Some(topic) = topic.filter(|topic| topic.base().local() == CHANGE_EVENTS) {
                self.read_topic(&topic, &key).await?;
            }
        }
        Ok(self.said)
    }

    async fn read_topic(&mut self, topic: &TopicName, key: &str) -> Result<(), ReadError> {
        let info = self
            .store()
            .get(key)
            .await?
            .map(|found| found.value)
            .unwrap_or_default();
        let info = StoredManagedLedger::decode(info).map_err(|error| unreadable(topic, &error))?;
        if let Some(ledger) = self.compacted_ledger(topic, key).await? {
            for (_, entry) in self.entries(topic, ledger, false).await? {
                let (at, message) =
                    compacted(entry).ok_or_else(|| unreadable(topic, &"its compacted ledger is damaged"))?;
                self.apply(topic, at, message).await?;
            }
        }
        let count = info.ledgers.len();
        for (index, ledger) in info.ledgers.iter().enumerate() {
            let is_last = index + 1 == count;
            let Ok(ledger) = u64::try_from(ledger.ledger_id) else {
                continue;
            };
            for (entry_id, entry) in self.entries(topic, ledger, is_last).await? {
                self.apply(topic, (ledger, entry_id), entry).await?;
            }
        }
        Ok(())
    }

    /// The ledger that the topic was compacted into.
    async fn compacted_ledger(&self, topic: &TopicName, key: &str) -> Result<Option<u64>, ReadError> {
        let Some(cursor) = self.store().get(&format!("{key}/{COMPACTION}")).await? else {
            return Ok(None);
        };
        let cursor = CursorInfo::decode(cursor.value).map_err(|error| unreadable(topic, &error))?;
        let properties = match u64::try_from(cursor.cursors_ledger_id) {
            // It was closed, and says so itself.
            Err(_) => cursor.properties,
            Ok(ledger) => match self.entries(topic, ledger, true).await?.pop() {
                Some((_, last)) => {
                    let last = CursorPosition::decode(last);
                    last.map_err(|error| unreadable(topic, &error))?.properties
                }
                None => Vec::new(),
            },
        };
        let ledger = properties
            .iter()
            .find(|property| property.name == COMPACTED_LEDGER);
        Ok(ledger.and_then(|property| u64::try_from(property.value).ok()))
    }

    /// All entries of a ledger. `is_open`: its writer may not have closed it.
    async fn entries(
        &self,
        topic: &TopicName,
        ledger: u64,
        is_open: bool,
    ) -> Result<Vec<(u64, Bytes)>, ReadError> {
        let (id, engine) = (LedgerId(ledger), &self.facts.ledgers);
        if is_open && self.may_recover {
            engine
                .recover(id)
                .await
                .map_err(|error| unreadable(topic, &error))?;
        }
        let mut all = Vec::new();
        loop {
            let first = all.last().map_or(0, |(last, _): &(u64, Bytes)| last + 1);
            let found = match engine.read(id, EntryId(first), ENTRIES, BYTES).await {
                Ok(found) => found,
                Err(error) => return Err(unreadable(topic, &error)),
            };
            if found.is_empty() {
                return Ok(all);
            }
            all.extend(found.into_iter().map(|entry| (entry.id.0, entry.payload)));
        }
    }

    async fn apply(&mut self, topic: &TopicName, at: (u64, u64), entry: Bytes) -> Result<(), ReadError> {
        let place = format!("entry {} of ledger {}", at.1, at.0);
        let damaged = |cause: String| unreadable(topic, &format!("{place}: {cause}"));
        let Some(event) = event(entry).map_err(damaged)? else {
            return Ok(());
        };
        let path = keys::topic_policies(&event.topic.base());
        let path = path
            .strip_prefix(keys::TOPIC_POLICIES)
            .unwrap_or_default()
            .to_owned();
        let policies = match event.payload {
            None => Map::new(),
            Some(payload) => {
                let value = self
                    .reader(topic, event.schema)
                    .await?
                    .read(&payload)
                    .map_err(damaged)?;
                policies_in(value).map(policy_names::of_event).unwrap_or_default()
            }
        };
        let said = self.said.entry(path).or_default();
        if at < said.at {
            // It was compacted, and something later was read.
            return Ok(());
        }
        said.at = at;
        match event.is_everywhere {
            true => said.everywhere = policies,
            false => said.here = policies,
        }
        Ok(())
    }

    async fn reader(&mut self, topic: &TopicName, version: Option<u64>) -> Result<&AvroReader, ReadError> {
        let key = (keys::schema_id(topic), version);
        if !self.schemas.contains_key(&key) {
            let data = self.facts.definition(&key.0, version).await?;
            let data = data.ok_or_else(|| unreadable(topic, &"its schema is lost"))?;
            let reader = AvroReader::new(&data).map_err(|error| unreadable(topic, &error))?;
            self.schemas.insert(key.clone(), reader);
        }
        self.schemas
            .get(&key)
            .ok_or_else(|| unreadable(topic, &"its schema is lost"))
    }
}

fn unreadable(topic: &TopicName, cause: &impl ToString) -> ReadError {
    let cause = format!("{topic}: {}", cause.to_string());
    ReadError::Fault(Fault::new("read policies of topics", cause))
}
