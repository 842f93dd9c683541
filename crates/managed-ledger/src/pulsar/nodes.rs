//! The nodes of a topic's cursors: what an opening takes from them.
//!
//! The cursor log notes of each subscription which version of its node it wrote last. When the node has that version, the log knows
//! more than the node. When it has another, a broker of Pulsar moved the cursor, and the node counts. A subscription whose node is
//! gone was deleted there, and one that the log does not know was made there.
//!
//! System cursors, `pulsar.dedup` and those of replicators, are in their nodes alone.
//!
//! The node of a replicator's cursor is put back as it was read, which gives it another version, before anything of the topic is served: who had
//! the topic before moves or deletes it no more, because it does so only in the version that it knows, and finds out that the topic is not its own when
//! that is gone. What it stored before that holds, and is true: entries that had receipts from over there are durable, and in the log that was recovered.

use std::collections::BTreeMap;

use bytes::Bytes;
use pharos_ledger::LedgerEngine;
use pharos_metadata::{Expect, Item, MetadataStore, Version, WriteError};
use pharos_types::{EntryId, LedgerId};
use prost::Message;

use super::cursor::CursorState;
use super::name;
use super::proto::{CursorEntry, KeyValue, LongProperty, ManagedCursorInfo};
use crate::cursor_log::{Record, SubscriptionId};
use crate::error::OpenError;
use crate::info::{InfoError, InfoHandle, key_of};

/// The cursor of what is compacted: [`compaction`](super::compaction) looks at it.
pub(crate) const COMPACTION: &str = "__compaction";
/// The cursor of deduplication.
const DEDUPLICATION: &str = "pulsar.dedup";
/// The property in the cursor log of a subscription that is replicated to other clusters, and the number that says so in a node.
pub const REPLICATED: &str = "pharos.replicated";
const REPLICATED_IN_NODE: &str = "pulsar.replicated.subscription";
/// Times that a node is found to be another than was written last, before that is given up.
const TRIES: usize = 3;
/// Beginning of the cursors of replicators, those to other clusters and those to shadow topics, and of the former alone.
const REPLICATORS: &str = "pulsar.repl";
const REPLICATOR: &str = "pulsar.repl.";
/// Bytes of one entry of a cursor's ledger that are read.
const ENTRY_BYTES_MAX: usize = 16 << 20;

/// Node state that the cursor log keeps in the facts of a subscription.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct NodeFacts {
    /// Version of the node that was read or written last.
    #[prost(uint64, tag = "1")]
    pub(crate) version: u64,
    /// A ledger of Pulsar with the state, to be deleted once the node has it.
    #[prost(uint64, optional, tag = "2")]
    pub(crate) ledger: Option<u64>,
    /// Properties that Pulsar stores with the position.
    #[prost(message, repeated, tag = "3")]
    pub(crate) properties: Vec<LongProperty>,
}

impl NodeFacts {
    /// Decodes a subscription's facts; `None` if its node was never written.
    pub(crate) fn of(facts: &[u8]) -> Option<Self> {
        Self::decode(facts).ok().filter(|_| !facts.is_empty())
    }
}

/// The key of a cursor's node.
pub(crate) fn key(managed_ledger: &str, cursor: &str) -> String {
    format!("{}/{}", key_of(managed_ledger), name::encode(cursor))
}

/// The nodes of all cursors, with their values.
pub(crate) async fn of(store: &dyn MetadataStore, managed_ledger: &str) -> Result<Vec<Item>, InfoError> {
    Ok(store.scan(&format!("{}/", key_of(managed_ledger))).await?)
}

/// Puts a node. One that is another than was written last is either a write whose outcome was not told, or the topic is not ours.
pub(crate) async fn put(
    info: &InfoHandle,
    key: &str,
    value: Bytes,
    mut expect: Expect,
) -> Result<Version, InfoError> {
    for _ in 0..TRIES {
        match info.store().put(key, value.clone(), expect).await {
            Ok(version) => return Ok(version),
            Err(WriteError::Conflict { .. }) => {
                let found = info.store().get(key).await?;
                // After the node was read: what another owner wrote before that is not written over.
                info.reload().await?;
                expect = match found {
                    Some(found) if found.value == value => return Ok(found.version),
                    Some(found) => Expect::Version(found.version),
                    None => Expect::Absent,
                };
            }
            Err(error) => return Err(InfoError::Write(error)),
        }
    }
    Err(InfoError::Fenced(info.name().to_owned()))
}

/// Removes a node, unless the topic is another's.
pub(crate) async fn remove(info: &InfoHandle, key: &str) -> Result<(), InfoError> {
    for _ in 0..TRIES {
        let Some(found) = info.store().get(key).await? else {
            return Ok(());
        };
        // After the node was read, as for a put.
        info.reload().await?;
        match info.store().delete(key, Expect::Version(found.version)).await {
            Ok(_) => return Ok(()),
            Err(WriteError::Conflict { .. }) => {}
            Err(error) => return Err(InfoError::Write(error)),
        }
    }
    Err(InfoError::Fenced(info.name().to_owned()))
}

/// A subscription as the log knows it.
pub(crate) struct KnownSubscription {
    pub(crate) id: SubscriptionId,
    /// True if Pulsar has this kind of subscription.
    pub(crate) is_shared: bool,
    pub(crate) facts: Option<NodeFacts>,
}

/// Changes that an opening takes from the nodes.
#[derive(Default)]
pub(crate) struct Taken {
    /// Subscriptions that are gone.
    pub(crate) removed: Vec<SubscriptionId>,
    /// Subscriptions that a broker of Pulsar made or moved.
    pub(crate) moved: Vec<TakenCursor>,
    /// System cursors.
    pub(crate) system: Vec<TakenCursor>,
}

/// A cursor as its node has it.
pub(crate) struct TakenCursor {
    pub(crate) name: String,
    /// Its number, if the log knows it.
    pub(crate) id: Option<SubscriptionId>,
    pub(crate) properties: BTreeMap<String, String>,
    pub(crate) facts: NodeFacts,
    pub(crate) state: CursorState,
}

/// Compares the nodes of a managed ledger that was just opened with what the log knows.
///
/// # Errors
/// [`OpenError`]; also for a topic that Pulsar copies to shadow topics.
pub(crate) async fn take(
    store: &dyn MetadataStore,
    engine: &dyn LedgerEngine,
    managed_ledger: &str,
    mut known: BTreeMap<String, KnownSubscription>,
) -> Result<Taken, OpenError> {
    let mut taken = Taken::default();
    let prefix = format!("{}/", key_of(managed_ledger));
    for item in store.scan(&prefix).await.map_err(InfoError::from)? {
        let malformed = |cause: &str| InfoError::Malformed {
            name: item.key.clone(),
            cause: cause.to_owned(),
        };
        let encoded = item.key.get(prefix.len()..).unwrap_or_default();
        let name = name::decode(encoded).ok_or_else(|| malformed("the cursor's name is not readable"))?;
        if name == COMPACTION {
            continue;
        }
        if name.starts_with(REPLICATOR) {
            taken.system.extend(hold(store, engine, item, &name).await?);
            continue;
        }
        if name.starts_with(REPLICATORS) {
            return Err(malformed("Pulsar copies the topic to a shadow topic, which Pharos does not").into());
        }
        let subscription = known.remove(&name);
        if let Some(ours) = &subscription {
            let is_unmoved = ours
                .facts
                .as_ref()
                .is_some_and(|facts| facts.version == item.version.0);
            if is_unmoved || !ours.is_shared {
                if !ours.is_shared {
                    tracing::warn!(
                        managed_ledger,
                        subscription = name,
                        "Pulsar has made a subscription with the name of one that is broadcast, which stays as it is"
                    );
                }
                continue;
            }
        }
        let cursor = read(engine, &item, &name, subscription.map(|ours| ours.id)).await?;
        match name == DEDUPLICATION {
            true => taken.system.push(cursor),
            false => taken.moved.push(cursor),
        }
    }
    let gone = known.into_values().filter(|ours| ours.is_shared);
    taken.removed = gone.map(|ours| ours.id).collect();
    Ok(taken)
}

/// Reads the cursor of a replicator, and puts its node back with another version; `None`: it is gone meanwhile.
async fn hold(
    store: &dyn MetadataStore,
    engine: &dyn LedgerEngine,
    mut item: Item,
    name: &str,
) -> Result<Option<TakenCursor>, OpenError> {
    for _ in 0..TRIES {
        let mut cursor = read(engine, &item, name, None).await?;
        let expect = Expect::Version(item.version);
        match store.put(&item.key, item.value.clone(), expect).await {
            Ok(version) => {
                cursor.facts.version = version.0;
                return Ok(Some(cursor));
            }
            Err(WriteError::Conflict { .. }) => match store.get(&item.key).await.map_err(InfoError::from)? {
                Some(found) => (item.value, item.version) = (found.value, found.version),
                None => return Ok(None),
            },
            Err(error) => return Err(InfoError::Write(error).into()),
        }
    }
    Err(OpenError::Contended(item.key))
}

/// Reads the state that a node has, or that its ledger has.
pub(crate) async fn read(
    engine: &dyn LedgerEngine,
    item: &Item,
    name: &str,
    id: Option<SubscriptionId>,
) -> Result<TakenCursor, OpenError> {
    let malformed = |cause: String| InfoError::Malformed {
        name: item.key.clone(),
        cause,
    };
    if item.value.starts_with(&[0x47, 0x79]) || item.value.starts_with(&[0x47, 0x78]) {
        let cause = "it is compressed: let Pulsar's brokers write it with managedCursorInfoCompressionType=NONE first";
        return Err(malformed(cause.to_owned()).into());
    }
    let info = ManagedCursorInfo::decode(&*item.value).map_err(|error| malformed(error.to_string()))?;
    let ledger = u64::try_from(info.cursors_ledger_id).ok();
    let mut state = CursorState::from(&info);
    let mut properties = info.properties;
    if let Some(ledger) = ledger
        && let Some(entry) = last_entry(engine, LedgerId(ledger)).await?
    {
        let entry = CursorEntry::decode(&*entry)
            .map_err(|error| malformed(format!("entry of ledger {ledger}: {error}")))?;
        properties = entry.properties.clone();
        state = CursorState::from(entry);
    }
    let of_subscription = info.cursor_properties.into_iter();
    let is_replicated = properties
        .iter()
        .any(|it| it.name == REPLICATED_IN_NODE && it.value == 1);
    let replicated = is_replicated.then(|| (REPLICATED.to_owned(), "true".to_owned()));
    Ok(TakenCursor {
        name: name.to_owned(),
        id,
        properties: of_subscription
            .map(|property| (property.key, property.value))
            .chain(replicated)
            .collect(),
        facts: NodeFacts {
            version: item.version.0,
            ledger,
            properties,
        },
        state,
    })
}

/// The last entry of a cursor's ledger; `None` when it has none or is gone, as Pulsar has it: then the node counts.
async fn last_entry(engine: &dyn LedgerEngine, ledger: LedgerId) -> Result<Option<Bytes>, OpenError> {
    let count = match engine.recover(ledger).await {
        Ok(sealed) => sealed.entry_count,
        Err(pharos_ledger::OpenError::NoSuchLedger(_)) => 0,
        Err(error) => return Err(error.into()),
    };
    let Some(last) = count.checked_sub(1) else {
        return Ok(None);
    };
    let entries = engine.read(ledger, EntryId(last), 1, ENTRY_BYTES_MAX).await?;
    Ok(entries.into_iter().next().map(|entry| entry.payload))
}

/// The record that makes the log know what was taken of a subscription, its place apart.
pub(crate) fn facts_record(id: SubscriptionId, kind: u8, taken: &TakenCursor) -> Record {
    Record::SubscriptionChanged {
        subscription: id,
        kind,
        properties: taken.properties.clone(),
        facts: taken.facts.encode_to_vec(),
    }
}

/// A subscription's properties as a node has them.
pub(crate) fn properties_of(properties: &BTreeMap<String, String>) -> Vec<KeyValue> {
    let property = |(key, value): (&String, &String)| KeyValue {
        key: key.clone(),
        value: value.clone(),
    };
    let of_it = properties.iter().filter(|(key, _)| *key != REPLICATED);
    of_it.map(property).collect()
}

/// Says among the numbers of a subscription's node whether it is replicated.
pub(crate) fn set_replicated(numbers: &mut Vec<LongProperty>, properties: &BTreeMap<String, String>) {
    numbers.retain(|number| number.name != REPLICATED_IN_NODE);
    if properties.contains_key(REPLICATED) {
        numbers.push(LongProperty {
            name: REPLICATED_IN_NODE.to_owned(),
            value: 1,
        });
    }
}
