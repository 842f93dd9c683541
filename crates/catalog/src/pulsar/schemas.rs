//! Schemas: a locator names all versions, and each is the one entry of a ledger.
//!
//! A version is written before it is named, so a crash leaves at most a ledger that nothing names, as it does with Pulsar's brokers.

use bytes::Bytes;
use futures_util::future::join_all;
use pharos_ledger::{CreateOptions, OpenError, ReadError as LedgerReadError};
use pharos_metadata::{Expect, Fault, Item, ReadError, Version, Versioned, WriteError};
use pharos_runtime::clock;
use pharos_types::{EntryId, LedgerId};
use prost::Message;
use ring::digest::{SHA256, digest};

use super::bytes_of::{IndexEntry, KeyValue, PositionInfo, SchemaEntry as Stored, SchemaInfo, SchemaLocator};
use super::{AT_ONCE, OpenLedgers, PulsarFacts, as_found, check, conflict, unread};
use crate::keys;
use crate::schema::{SchemaEntry, SchemaInfo as Schema, SchemaType, SchemaVersion};

/// The kinds that are stored, in the order of their numbers; the first has number 1.
const KINDS: [SchemaType; 22] = [
    SchemaType::None,
    SchemaType::String,
    SchemaType::Json,
    SchemaType::Protobuf,
    SchemaType::Avro,
    SchemaType::Boolean,
    SchemaType::Int8,
    SchemaType::Int16,
    SchemaType::Int32,
    SchemaType::Int64,
    SchemaType::Float,
    SchemaType::Double,
    SchemaType::Date,
    SchemaType::Time,
    SchemaType::Timestamp,
    SchemaType::KeyValue,
    SchemaType::Instant,
    SchemaType::LocalDate,
    SchemaType::LocalTime,
    SchemaType::LocalDateTime,
    SchemaType::ProtobufNative,
    SchemaType::External,
];

/// The schema of policies of topics that a broker of Pulsar 4.2 adds, and its properties.
const EVENT_SCHEMA: &[u8] = include_bytes!("pulsar_event.json");
const EVENT_PROPERTIES: [(&str, &str); 2] = [
    ("__alwaysAllowNull", "true"),
    ("__jsr310ConversionEnabled", "false"),
];

/// A kind that has no number is stored as none, as Pulsar does.
fn number_of(kind: SchemaType) -> i32 {
    let at = KINDS.iter().position(|known| *known == kind).unwrap_or(0);
    i32::try_from(at + 1).unwrap_or(1)
}

fn kind_of(number: i32) -> Option<SchemaType> {
    KINDS.get(usize::try_from(number).ok()?.checked_sub(1)?).copied()
}

/// Before the first version there is one that is nowhere.
fn nowhere(hash: &[u8]) -> IndexEntry {
    IndexEntry {
        version: 0,
        position: PositionInfo {
            ledger_id: -1,
            entry_id: -1,
        },
        hash: hash.to_vec(),
    }
}

/// The entry of a version's ledger; `before`: the versions that the locator has.
fn to_entry(id: &str, entry: &SchemaEntry, before: &[IndexEntry], hash: &[u8]) -> Vec<u8> {
    let info = SchemaInfo {
        schema_id: id.to_owned(),
        user: entry.user.clone(),
        kind: number_of(entry.schema.kind),
        schema: entry.schema.data.to_vec(),
        timestamp: i64::try_from(entry.timestamp_ms).unwrap_or(i64::MAX),
        deleted: entry.deleted,
        props: entry
            .schema
            .properties
            .iter()
            .map(|(key, value)| KeyValue {
                key: key.clone(),
                value: value.clone(),
            })
            .collect(),
    };
    let index = match before {
        [] => vec![nowhere(hash)],
        before => before.to_vec(),
    };
    Stored {
        schema_data: info.encode_to_vec(),
        index,
    }
    .encode_to_vec()
}

/// The reverse; what is wrong with it otherwise.
fn of_entry(version: u64, bytes: &[u8]) -> Result<SchemaEntry, String> {
    let stored = Stored::decode(bytes).map_err(|error| error.to_string())?;
    let info = SchemaInfo::decode(&*stored.schema_data).map_err(|error| error.to_string())?;
    let kind = kind_of(info.kind).ok_or_else(|| format!("schemas of kind {} are not known", info.kind))?;
    let properties = info.props.into_iter();
    Ok(SchemaEntry {
        version: SchemaVersion(version),
        schema: Schema {
            kind,
            data: info.schema.into(),
            properties: properties
                .map(|property| (property.key, property.value))
                .collect(),
        },
        timestamp_ms: u64::try_from(info.timestamp).unwrap_or(0),
        user: info.user,
        deleted: info.deleted,
    })
}

/// Locator of the versions of a schema.
struct Located {
    locator: SchemaLocator,
    version: Version,
}

impl Located {
    fn index_of(&self, version: u64) -> Option<&IndexEntry> {
        let wanted = i64::try_from(version).ok()?;
        self.locator.index.iter().find(|entry| entry.version == wanted)
    }
}

fn located(id: &str, found: Versioned) -> Result<Option<Located>, ReadError> {
    if found.value.is_empty() {
        return Ok(None);
    }
    let locator = SchemaLocator::decode(&*found.value).map_err(|error| unreadable(id, &error))?;
    Ok(Some(Located {
        locator,
        version: found.version,
    }))
}

fn unreadable(id: &str, cause: &impl ToString) -> ReadError {
    let cause = format!("schema {id}: {}", cause.to_string());
    ReadError::Fault(Fault::new("read a schema", cause))
}

fn unwritten(id: &str, cause: &impl ToString) -> WriteError {
    let cause = format!("schema {id}: {}", cause.to_string());
    WriteError::Fault(Fault::new("write a schema", cause))
}

/// The schemas, as brokers of Pulsar keep them.
pub(super) struct SchemaFacts<'a> {
    facts: &'a PulsarFacts,
    open: OpenLedgers,
}

impl<'a> SchemaFacts<'a> {
    /// Of a broker that serves them.
    pub(super) fn new(facts: &'a PulsarFacts) -> Self {
        Self::of(facts, OpenLedgers::Recover)
    }

    pub(super) fn of(facts: &'a PulsarFacts, open: OpenLedgers) -> Self {
        Self { facts, open }
    }

    async fn locate(&self, id: &str) -> Result<Option<Located>, ReadError> {
        match self
            .facts
            .store
            .get(&format!("{}{id}", keys::PULSAR_SCHEMAS))
            .await?
        {
            Some(found) => located(id, found),
            None => Ok(None),
        }
    }

    /// The bytes of an entry; `None` when its ledger is gone.
    async fn entry(&self, id: &str, position: PositionInfo) -> Result<Option<Bytes>, ReadError> {
        let (Ok(ledger), Ok(entry)) = (
            u64::try_from(position.ledger_id).map(LedgerId),
            u64::try_from(position.entry_id).map(EntryId),
        ) else {
            return Ok(None);
        };
        let engine = &self.facts.ledgers;
        for is_sealed in [false, true] {
            let read = match self.open {
                OpenLedgers::Peek => engine.read_unconfirmed(ledger, entry, 1, usize::MAX),
                OpenLedgers::Recover | OpenLedgers::Held => engine.read(ledger, entry, 1, usize::MAX),
            };
            match read.await {
                Ok(mut found) if !found.is_empty() => return Ok(Some(found.swap_remove(0).payload)),
                // Its writer went before it closed it, and what it wrote is only certain once the ledger is recovered.
                Ok(_) if !is_sealed && self.open != OpenLedgers::Peek => match engine.recover(ledger).await {
                    Ok(_) => {}
                    Err(OpenError::NoSuchLedger(_)) => return Ok(None),
                    Err(error) => return Err(unreadable(id, &error)),
                },
                Ok(_) => break,
                Err(LedgerReadError::NoSuchLedger(_)) => return Ok(None),
                Err(error) => return Err(unreadable(id, &error)),
            }
        }
        Ok(None)
    }

    /// A version as the catalog has it. One whose ledger was lost is none; Pulsar's brokers do without it too.
    async fn version(&self, id: &str, at: &IndexEntry, version: Version) -> Result<Option<Item>, ReadError> {
        let Ok(number) = u64::try_from(at.version) else {
            return Ok(None);
        };
        let key = keys::schema(id, SchemaVersion(number));
        let Some(bytes) = self.entry(id, at.position).await? else {
            tracing::warn!(
                schema = id,
                version = number,
                ledger = at.position.ledger_id,
                "a version of a schema is lost"
            );
            return Ok(None);
        };
        let entry = of_entry(number, &bytes).map_err(|error| unreadable(id, &error))?;
        let value = entry.encode(&key).map_err(|error| unreadable(id, &error))?;
        Ok(Some(Item { key, value, version }))
    }

    pub(super) async fn get(&self, id: &str, version: u64) -> Result<Option<Versioned>, ReadError> {
        let Some(found) = self.locate(id).await? else {
            return Ok(None);
        };
        let Some(at) = found.index_of(version) else {
            return Ok(None);
        };
        let item = self.version(id, at, found.version).await?;
        Ok(item.map(|item| Versioned {
            value: item.value,
            version: item.version,
        }))
    }

    /// The definition of a version, or of the newest one; `None` when there is none, or its ledger is gone.
    pub(super) async fn definition(
        &self,
        id: &str,
        version: Option<u64>,
    ) -> Result<Option<Bytes>, ReadError> {
        let Some(found) = self.locate(id).await? else {
            return Ok(None);
        };
        let at = match version {
            Some(version) => found.index_of(version).map(|at| at.position),
            None => Some(found.locator.info.position),
        };
        let Some(at) = at else { return Ok(None) };
        let Some(bytes) = self.entry(id, at).await? else {
            return Ok(None);
        };
        let entry = of_entry(0, &bytes).map_err(|error| unreadable(id, &error))?;
        Ok(Some(entry.schema.data))
    }

    /// The newest version of the schema of policies of topics, and its definition. Where there is none, the one of Pulsar 4.2 is added.
    pub(super) async fn of_events(&self, id: &str) -> Result<(u64, Bytes), WriteError> {
        for _ in 0..2 {
            let newest = self.locate(id).await.map_err(unread)?;
            let newest = newest.and_then(|found| u64::try_from(found.locator.info.version).ok());
            let number = match newest {
                Some(number) => {
                    let stored = self.get(id, number).await.map_err(unread)?;
                    let key = keys::schema(id, SchemaVersion(number));
                    let entry = stored
                        .map(|stored| SchemaEntry::decode(&key, SchemaVersion(number), &stored.value))
                        .transpose()
                        .map_err(|error| unwritten(id, &error))?;
                    match entry {
                        Some(entry) if !entry.deleted => return Ok((number, entry.schema.data)),
                        _ => number + 1,
                    }
                }
                None => 0,
            };
            let entry = SchemaEntry {
                version: SchemaVersion(number),
                schema: Schema {
                    kind: SchemaType::Avro,
                    data: Bytes::from_static(EVENT_SCHEMA),
                    properties: EVENT_PROPERTIES
                        .map(|(key, value)| (key.to_owned(), value.to_owned()))
                        .into(),
                },
                timestamp_ms: clock::wall_ms(),
                user: String::new(),
                deleted: false,
            };
            let key = keys::schema(id, entry.version);
            let value = entry.encode(&key).map_err(|error| unwritten(id, &error))?;
            match self.put(id, number, &value, Expect::Absent).await {
                Ok(_) => return Ok((number, entry.schema.data)),
                // Another broker added it.
                Err(WriteError::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Err(unwritten(id, &"others add versions all the time"))
    }

    /// Returns the items of one schema if `prefix` names one, else of all.
    pub(super) async fn scan(&self, prefix: &str) -> Result<Vec<Item>, ReadError> {
        let one = prefix
            .strip_prefix(keys::SCHEMAS)
            .and_then(|id| id.strip_suffix('/'));
        let mut versions = Vec::new();
        let mut add = |id: &str, found: Option<Located>| {
            if let Some(found) = found {
                let all = found.locator.index.into_iter();
                versions.extend(all.map(|at| (id.to_owned(), at, found.version)));
            }
        };
        match one.filter(|id| id.split('/').count() == 3) {
            Some(id) => add(id, self.locate(id).await?),
            None => {
                for item in self.facts.store.scan(keys::PULSAR_SCHEMAS).await? {
                    let id = item.key.strip_prefix(keys::PULSAR_SCHEMAS).unwrap_or_default();
                    let found = Versioned {
                        value: item.value,
                        version: item.version,
                    };
                    add(id, located(id, found)?);
                }
            }
        }
        let mut items = Vec::with_capacity(versions.len());
        for some in versions.chunks(AT_ONCE) {
            let asked = some
                .iter()
                .map(|(id, at, version)| self.version(id, at, *version));
            for found in join_all(asked).await {
                items.extend(found?);
            }
        }
        Ok(items)
    }

    pub(super) async fn put(
        &self,
        id: &str,
        version: u64,
        value: &Bytes,
        expect: Expect,
    ) -> Result<Version, WriteError> {
        let key = keys::schema(id, SchemaVersion(version));
        let found = self.locate(id).await.map_err(unread)?;
        let current = found
            .as_ref()
            .and_then(|found| found.index_of(version).map(|_| found.version));
        check(&key, expect, current)?;
        let (before, locator_version) = match found {
            Some(found) => (found.locator.index, Some(found.version)),
            None => (Vec::new(), None),
        };
        let number = i64::try_from(version).map_err(|error| unwritten(id, &error))?;
        if before.iter().any(|at| at.version >= number) {
            // Versions rise; this one was given to something that is lost.
            return Err(conflict(&key, locator_version));
        }
        let entry = SchemaEntry::decode(&key, SchemaVersion(version), value)
            .map_err(|error| unwritten(id, &error))?;
        let hash = match entry.deleted {
            true => Vec::new(),
            false => digest(&SHA256, &entry.schema.data).as_ref().to_vec(),
        };
        let ledger_id = self.write_entry(id, to_entry(id, &entry, &before, &hash)).await?;
        let info = IndexEntry {
            version: number,
            position: PositionInfo {
                ledger_id: i64::try_from(ledger_id.0).map_err(|error| unwritten(id, &error))?,
                entry_id: 0,
            },
            hash,
        };
        let mut index = before;
        index.push(info.clone());
        let named = self
            .put_locator(id, SchemaLocator { info, index }, as_found(locator_version))
            .await;
        if let Err(WriteError::Conflict { .. }) = named {
            // Another broker was faster; nothing names the ledger.
            if let Err(error) = self.facts.ledgers.delete(ledger_id).await {
                tracing::warn!(schema = id, ledger = ledger_id.0, %error, "a ledger that is not needed stays");
            }
            return Err(conflict(&key, locator_version));
        }
        named
    }

    async fn put_locator(
        &self,
        id: &str,
        locator: SchemaLocator,
        expect: Expect,
    ) -> Result<Version, WriteError> {
        let key = format!("{}{id}", keys::PULSAR_SCHEMAS);
        self.facts
            .store
            .put(&key, locator.encode_to_vec().into(), expect)
            .await
    }

    /// Writes a ledger of one entry, closed.
    async fn write_entry(&self, id: &str, entry: Vec<u8>) -> Result<LedgerId, WriteError> {
        let custom = [
            ("component", Bytes::from_static(b"schema")),
            ("pulsar/schemaId", Bytes::copy_from_slice(id.as_bytes())),
        ];
        let options = CreateOptions {
            custom: custom.map(|(name, value)| (name.to_owned(), value)).into(),
            ..CreateOptions::default()
        };
        let writer = self
            .facts
            .ledgers
            .create(options)
            .await
            .map_err(|error| unwritten(id, &error))?;
        let written = async {
            writer
                .append(entry.into())
                .map_err(|error| unwritten(id, &error))?;
            // It waits until the entry is durable.
            writer.close().await.map_err(|error| unwritten(id, &error))
        };
        match written.await {
            Ok(()) => Ok(writer.id()),
            Err(error) => {
                // Nothing names it.
                let _ = self.facts.ledgers.delete(writer.id()).await;
                Err(error)
            }
        }
    }

    pub(super) async fn delete(&self, id: &str, version: u64, expect: Expect) -> Result<bool, WriteError> {
        let key = keys::schema(id, SchemaVersion(version));
        let Some(found) = self.locate(id).await.map_err(unread)? else {
            check(&key, expect, None)?;
            return Ok(false);
        };
        let at = found.index_of(version).cloned();
        check(&key, expect, at.as_ref().map(|_| found.version))?;
        let Some(at) = at else { return Ok(false) };
        let mut index = found.locator.index;
        index.retain(|entry| entry.version != at.version);
        let expect = Expect::Version(found.version);
        match index.last().cloned() {
            Some(info) => {
                _ = self
                    .put_locator(id, SchemaLocator { info, index }, expect)
                    .await?
            }
            None => {
                _ = self
                    .facts
                    .store
                    .delete(&format!("{}{id}", keys::PULSAR_SCHEMAS), expect)
                    .await?
            }
        }
        if let Ok(ledger) = u64::try_from(at.position.ledger_id)
            && let Err(error) = self.facts.ledgers.delete(LedgerId(ledger)).await
        {
            tracing::warn!(schema = id, ledger, %error, "a ledger that is not needed stays");
        }
        Ok(true)
    }
}
