//! The policies of single topics as Pulsar's brokers keep them: events in the topic `__change_events` of each namespace, the last one of
//! a topic counts.
//!
//! ```text
//!  __compaction ─► ledger of the last event of each topic, up to some place ─┐
//!  __change_events ─► its ledgers, oldest first ─────────────────────────────┴─► last event of each topic
//! ```
//! What was read once is kept ([`EventLogRead`]), and reading goes on behind it, unless the ledger where it ended is gone: then the topic
//! was trimmed or made anew, and everything is read again.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use pharos_metadata::{Fault, MetadataStore, ReadError, Version};
use pharos_types::{EntryId, LedgerId, TopicName};
use prost::Message;
use serde_json::{Map, Value};

use super::avro_value::AvroCodec;
use super::bytes_of::{CursorInfo, CursorPosition, StoredManagedLedger};
use super::event_message::{compacted, event};
use super::schemas::SchemaFacts;
use super::{OpenLedgers, PulsarFacts, policy_names};
use crate::keys;

/// The cursor of what it was compacted by, and the property that names the ledger.
const COMPACTION: &str = "__compaction";
const COMPACTED_LEDGER: &str = "CompactedTopicLedger";
/// Entries and bytes of a reading.
const ENTRIES: usize = 1_024;
const BYTES: usize = 1 << 20;
/// Versions below are taken; and what a ledger has at most, so that places rise like numbers.
const VERSION_MIN: u64 = 2;
const ENTRIES_OF_LEDGER: u64 = 1 << 20;

/// Position of an event: ledger and entry.
pub(super) type EventPlace = (u64, u64);

/// Last event of a topic, for this cluster or for all.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SaidLast {
    pub(super) at: EventPlace,
    /// By the catalog's names; `None`: they were removed.
    pub(super) policies: Option<Map<String, Value>>,
}

/// Events in effect for a topic.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Said {
    pub(super) here: SaidLast,
    pub(super) everywhere: SaidLast,
}

impl Said {
    /// True if there are policies, even without a member.
    pub(super) fn is_there(&self) -> bool {
        self.here.policies.is_some() || self.everywhere.policies.is_some()
    }

    /// All of it by the catalog's names.
    pub(super) fn policies(&self) -> Map<String, Value> {
        let all = [&self.here, &self.everywhere]
            .into_iter()
            .filter_map(|said| said.policies.as_ref());
        all.flatten()
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    }

    /// Another one after each event, if there are policies.
    pub(super) fn version(&self) -> Option<Version> {
        let number = |(ledger, entry): EventPlace| ledger.wrapping_mul(ENTRIES_OF_LEDGER).wrapping_add(entry);
        let both = number(self.here.at).wrapping_add(number(self.everywhere.at));
        self.is_there().then(|| Version(both.max(VERSION_MIN)))
    }

    pub(super) fn last_mut(&mut self, is_everywhere: bool) -> &mut SaidLast {
        match is_everywhere {
            true => &mut self.everywhere,
            false => &mut self.here,
        }
    }
}

/// `<tenant>/<namespace>/<domain>/<topic>`.
pub(super) fn path_of(topic: &TopicName) -> String {
    let key = keys::topic_policies(&topic.base());
    let path = key.strip_prefix(keys::TOPIC_POLICIES);
    path.unwrap_or_default().to_owned()
}

/// A topic of events, as far as it was read.
#[derive(Clone, Debug, Default)]
pub(super) struct EventLogRead {
    /// The last event.
    pub(super) to: Option<EventPlace>,
    /// By [`path_of`], and whether it is for all clusters.
    said: BTreeMap<(String, bool), SaidLast>,
}

impl EventLogRead {
    /// Notes an event, unless it is older than what is known.
    pub(super) fn note(&mut self, path: String, is_everywhere: bool, said: SaidLast) {
        let known = self.said.entry((path, is_everywhere)).or_default();
        if said.at >= known.at {
            *known = said;
        }
    }
}

/// Event logs of all namespaces, one per partition.
pub(super) type EventLogsRead = BTreeMap<TopicName, Arc<EventLogRead>>;

/// Returns the events of one topic. Its namespace may have several logs.
pub(super) fn said_of(logs: &EventLogsRead, topic: &TopicName) -> Said {
    let path = path_of(topic);
    let mut all = Said::default();
    for (_, log) in logs
        .iter()
        .filter(|(log, _)| log.namespace() == topic.namespace())
    {
        for is_everywhere in [false, true] {
            if let Some(said) = log.said.get(&(path.clone(), is_everywhere)) {
                take_later(all.last_mut(is_everywhere), said);
            }
        }
    }
    all
}

/// Returns the events of all topics, by [`path_of`].
pub(super) fn all_said(logs: &EventLogsRead) -> BTreeMap<String, Said> {
    let mut all = BTreeMap::<String, Said>::new();
    for ((path, is_everywhere), said) in logs.values().flat_map(|log| &log.said) {
        let known = all.entry(path.clone()).or_default();
        take_later(known.last_mut(*is_everywhere), said);
    }
    all
}

fn take_later(known: &mut SaidLast, said: &SaidLast) {
    if said.at >= known.at {
        known.clone_from(said);
    }
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

/// Reads events.
pub(super) struct EventsReader<'a> {
    facts: &'a PulsarFacts,
    open: OpenLedgers,
    /// By schema and version.
    schemas: BTreeMap<(String, Option<u64>), AvroCodec>,
}

impl<'a> EventsReader<'a> {
    pub(super) fn new(facts: &'a PulsarFacts, open: OpenLedgers) -> Self {
        Self {
            facts,
            open,
            schemas: BTreeMap::new(),
        }
    }

    fn store(&self) -> &dyn MetadataStore {
        &*self.facts.store
    }

    /// The events of all namespaces, behind what is known.
    pub(super) async fn read_all(mut self, known: &EventLogsRead) -> Result<EventLogsRead, ReadError> {
        let mut all = EventLogsRead::new();
        for key in self.store().list(keys::PULSAR_TOPICS).await? {
            let topic = keys::topic_of(keys::PULSAR_TOPICS, &key);
            if let Some(topic) = topic.filter(keys::has_policy_events) {
                let read = self.read_log(&topic, known.get(&topic), None).await?;
                all.insert(topic, Arc::new(read));
            }
        }
        Ok(all)
    }

    /// The events of one topic, behind what is known; up to the end of ledger `last`, or of all.
    pub(super) async fn read_log(
        &mut self,
        topic: &TopicName,
        known: Option<&Arc<EventLogRead>>,
        last: Option<u64>,
    ) -> Result<EventLogRead, ReadError> {
        let key = keys::moved(&keys::topic(topic), keys::TOPICS, keys::PULSAR_TOPICS).unwrap_or_default();
        let info = self.store().get(&key).await?;
        let info = info.map(|found| found.value).unwrap_or_default();
        let info = StoredManagedLedger::decode(info).map_err(|error| unreadable(topic, &error))?;
        let ledgers = info
            .ledgers
            .iter()
            .filter_map(|ledger| u64::try_from(ledger.ledger_id).ok());
        let ledgers: Vec<u64> = ledgers.collect();
        let goes_on =
            |known: &&Arc<EventLogRead>| known.to.is_some_and(|(ledger, _)| ledgers.contains(&ledger));
        let mut log = match known.filter(goes_on) {
            Some(known) => EventLogRead::clone(known),
            None => self.read_compacted(topic, &key).await?,
        };
        for ledger in ledgers.iter().copied() {
            let first = match log.to {
                Some((read, _)) if ledger < read => continue,
                Some((read, entry)) if ledger == read => entry + 1,
                _ => 0,
            };
            if last.is_some_and(|last| ledger > last) {
                break;
            }
            let is_held = self.open == OpenLedgers::Held && ledgers.last() == Some(&ledger);
            for (entry, message) in self.entries(topic, ledger, first, is_held).await? {
                self.apply(topic, &mut log, (ledger, entry), message).await?;
                log.to = Some((ledger, entry));
            }
        }
        Ok(log)
    }

    /// Reads a topic's compacted ledger; the result has no end position, because the topic's ledgers have later
    /// events.
    async fn read_compacted(&mut self, topic: &TopicName, key: &str) -> Result<EventLogRead, ReadError> {
        let mut log = EventLogRead::default();
        if let Some(ledger) = self.compacted_ledger(topic, key).await? {
            for (_, entry) in self.entries(topic, ledger, 0, false).await? {
                let (at, message) =
                    compacted(entry).ok_or_else(|| unreadable(topic, &"its compacted ledger is damaged"))?;
                self.apply(topic, &mut log, at, message).await?;
            }
        }
        Ok(log)
    }

    /// The ledger that the topic was compacted into: what the last entry of the cursor's ledger says, or the node where there is none.
    async fn compacted_ledger(&self, topic: &TopicName, key: &str) -> Result<Option<u64>, ReadError> {
        let Some(cursor) = self.store().get(&format!("{key}/{COMPACTION}")).await? else {
            return Ok(None);
        };
        let cursor = CursorInfo::decode(cursor.value).map_err(|error| unreadable(topic, &error))?;
        let last = match u64::try_from(cursor.cursors_ledger_id) {
            Ok(ledger) => self.last_entry(topic, ledger).await?,
            // It was closed, and says so itself.
            Err(_) => None,
        };
        let properties = match last {
            Some(last) => {
                let last = CursorPosition::decode(last);
                last.map_err(|error| unreadable(topic, &error))?.properties
            }
            None => cursor.properties,
        };
        let ledger = properties
            .iter()
            .find(|property| property.name == COMPACTED_LEDGER);
        Ok(ledger.and_then(|property| u64::try_from(property.value).ok()))
    }

    /// The last entry of a cursor's ledger, which is open unless its broker closed it; `None` when it has none or is gone.
    async fn last_entry(&self, topic: &TopicName, ledger: u64) -> Result<Option<Bytes>, ReadError> {
        let (id, engine) = (LedgerId(ledger), &self.facts.ledgers);
        let known = match self.open {
            OpenLedgers::Peek => match engine.follow(id, None).await {
                Ok(readable) => readable.entries,
                Err(pharos_ledger::ReadError::NoSuchLedger(_)) => return Ok(None),
                Err(error) => return Err(unreadable(topic, &error)),
            },
            OpenLedgers::Recover | OpenLedgers::Held => match engine.recover(id).await {
                Ok(sealed) => sealed.entry_count,
                Err(pharos_ledger::OpenError::NoSuchLedger(_)) => return Ok(None),
                Err(error) => return Err(unreadable(topic, &error)),
            },
        };
        let mut last = self
            .entries(topic, ledger, known.saturating_sub(1), false)
            .await?;
        Ok(last.pop().map(|(_, entry)| entry))
    }

    /// Looks whether what a topic was compacted into is there, changing nothing.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) async fn look_at_compacted(&self, topic: &TopicName) -> Result<(), String> {
        let key = keys::moved(&keys::topic(topic), keys::TOPICS, keys::PULSAR_TOPICS).unwrap_or_default();
        let mut looked_at = None;
        loop {
            let named = self.compacted_ledger(topic, &key).await;
            let Some(ledger) = named.map_err(|error| error.to_string())? else {
                return Ok(());
            };
            match self.look_at(LedgerId(ledger)).await {
                // A broker that runs names another one before it deletes this one.
                Err(_) if looked_at != Some(ledger) => looked_at = Some(ledger),
                Err(cause) => {
                    return Err(format!(
                        "what it was compacted into, ledger {ledger}, cannot be read: {cause}"
                    ));
                }
                Ok(()) => return Ok(()),
            }
        }
    }

    async fn look_at(&self, ledger: LedgerId) -> Result<(), String> {
        let engine = &self.facts.ledgers;
        let there = engine.follow(ledger, None).await;
        let there = there.map_err(|error| error.to_string())?;
        // The first and the last: what lies between them was not looked at when it was written either.
        for place in [Some(0), there.entries.checked_sub(1)].into_iter().flatten() {
            if place >= there.entries {
                continue;
            }
            let read = engine.read(ledger, EntryId(place), 1, 1).await;
            let read = read.map_err(|error| error.to_string())?;
            let entry = read.into_iter().next().and_then(|entry| compacted(entry.payload));
            if entry.is_none() {
                return Err(format!("entry {place} is damaged"));
            }
        }
        Ok(())
    }

    /// The entries of a ledger from `first` on. `is_held`: this broker is its writer.
    async fn entries(
        &self,
        topic: &TopicName,
        ledger: u64,
        first: u64,
        is_held: bool,
    ) -> Result<Vec<(u64, Bytes)>, ReadError> {
        let (id, engine) = (LedgerId(ledger), &self.facts.ledgers);
        // Any of them may be open: Pulsar's brokers go on with another one where closing failed.
        if self.open != OpenLedgers::Peek && !is_held {
            engine
                .recover(id)
                .await
                .map_err(|error| unreadable(topic, &error))?;
        }
        let mut all = Vec::new();
        loop {
            let next = all.last().map_or(first, |(last, _): &(u64, Bytes)| last + 1);
            let found = match self.open {
                OpenLedgers::Peek => engine.read_unconfirmed(id, EntryId(next), ENTRIES, BYTES),
                OpenLedgers::Recover | OpenLedgers::Held => engine.read(id, EntryId(next), ENTRIES, BYTES),
            };
            let found = found.await.map_err(|error| unreadable(topic, &error))?;
            if found.is_empty() {
                return Ok(all);
            }
            all.extend(found.into_iter().map(|entry| (entry.id.0, entry.payload)));
        }
    }

    async fn apply(
        &mut self,
        topic: &TopicName,
        log: &mut EventLogRead,
        at: EventPlace,
        entry: Bytes,
    ) -> Result<(), ReadError> {
        let place = format!("entry {} of ledger {}", at.1, at.0);
        let damaged = |cause: String| unreadable(topic, &format!("{place}: {cause}"));
        let Some(event) = event(entry).map_err(damaged)? else {
            return Ok(());
        };
        let policies = match event.payload {
            None => None,
            Some(payload) => {
                let value = self
                    .schema(topic, event.schema)
                    .await?
                    .read(&payload)
                    .map_err(damaged)?;
                Some(policies_in(value).map(policy_names::of_event).unwrap_or_default())
            }
        };
        log.note(
            path_of(&event.topic),
            event.is_everywhere,
            SaidLast { at, policies },
        );
        Ok(())
    }

    async fn schema(&mut self, topic: &TopicName, version: Option<u64>) -> Result<&AvroCodec, ReadError> {
        let key = (keys::schema_id(topic), version);
        if !self.schemas.contains_key(&key) {
            let data = SchemaFacts::of(self.facts, self.open)
                .definition(&key.0, version)
                .await?;
            let data = data.ok_or_else(|| unreadable(topic, &"its schema is lost"))?;
            let schema = AvroCodec::new(&data).map_err(|error| unreadable(topic, &error))?;
            self.schemas.insert(key.clone(), schema);
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
