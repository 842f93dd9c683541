//! The schemas of one topic in their order, and the bytes of one of them in the store.
//!
//! ```text
//!  versions   0  1  2  †3  4  5       †: deleted; what is before it counts for nothing any more
//!                          └──┴─ live
//! ```
//!
//! Stored value: four bytes of header length (big-endian), the header as JSON, the data as it came.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::avro::AvroSchema;
use super::types::{SchemaInfo, SchemaType, SchemaVersion};
use crate::store_error::{StoreError, damaged};

/// Version of a topic's schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaEntry {
    /// Its number.
    pub version: SchemaVersion,
    /// The schema; of no meaning when deleted.
    pub schema: SchemaInfo,
    /// Time it was stored, in milliseconds since 1970.
    pub timestamp_ms: u64,
    /// The role that brought it; empty without authentication.
    pub user: String,
    /// A tombstone: everything up to here was deleted.
    pub deleted: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Header {
    #[serde(rename = "type")]
    kind: SchemaType,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    properties: BTreeMap<String, String>,
    timestamp_ms: u64,
    user: String,
    #[serde(default)]
    deleted: bool,
}

impl SchemaEntry {
    pub(crate) fn encode(&self, key: &str) -> Result<Bytes, StoreError> {
        let header = Header {
            kind: self.schema.kind,
            properties: self.schema.properties.clone(),
            timestamp_ms: self.timestamp_ms,
            user: self.user.clone(),
            deleted: self.deleted,
        };
        let header = serde_json::to_vec(&header).map_err(|error| damaged(key, &error))?;
        let length = u32::try_from(header.len()).map_err(|error| damaged(key, &error))?;
        let mut out = Vec::with_capacity(4 + header.len() + self.schema.data.len());
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(&header);
        out.extend_from_slice(&self.schema.data);
        Ok(out.into())
    }

    pub(crate) fn decode(key: &str, version: SchemaVersion, value: &Bytes) -> Result<Self, StoreError> {
        let short = || damaged(key, &"the value ends early");
        let (length, rest) = value.split_first_chunk::<4>().ok_or_else(short)?;
        let length = usize::try_from(u32::from_be_bytes(*length)).map_err(|_| short())?;
        let header = rest.get(..length).ok_or_else(short)?;
        let header: Header = serde_json::from_slice(header).map_err(|error| damaged(key, &error))?;
        let schema = SchemaInfo {
            kind: header.kind,
            // A copy of its own, so that it does not keep the store's buffer.
            data: Bytes::copy_from_slice(rest.get(length..).unwrap_or_default()),
            properties: header.properties,
        };
        Ok(Self {
            version,
            schema,
            timestamp_ms: header.timestamp_ms,
            user: header.user,
            deleted: header.deleted,
        })
    }
}

/// All versions of a topic's schema, oldest first.
#[derive(Clone, Debug, Default)]
pub struct History {
    entries: Vec<Arc<SchemaEntry>>,
}

impl History {
    /// Adds the next version. Versions must rise.
    pub(crate) fn push(&mut self, entry: SchemaEntry) {
        self.entries.push(Arc::new(entry));
    }

    /// The versions that count: those after the last deletion, oldest first.
    #[must_use]
    pub fn live(&self) -> &[Arc<SchemaEntry>] {
        let after = self.entries.iter().rposition(|entry| entry.deleted);
        self.entries
            .get(after.map_or(0, |index| index + 1)..)
            .unwrap_or_default()
    }

    /// The last live version.
    #[must_use]
    pub fn latest(&self) -> Option<&Arc<SchemaEntry>> {
        self.live().last()
    }

    /// Returns a live version.
    #[must_use]
    pub fn get(&self, version: SchemaVersion) -> Option<&Arc<SchemaEntry>> {
        let live = self.live();
        let index = live.binary_search_by_key(&version, |entry| entry.version);
        live.get(index.ok()?)
    }

    /// The live version that says the same as `schema`: the same type and the same parsed definition for Avro-like
    /// types, the same type and bytes for the others.
    #[must_use]
    pub fn find(&self, schema: &SchemaInfo) -> Option<&Arc<SchemaEntry>> {
        let mut newest_first = self
            .live()
            .iter()
            .rev()
            .filter(|entry| entry.schema.kind == schema.kind);
        // Most clients bring the very bytes that are stored; then nothing needs to be parsed.
        let same_bytes = newest_first
            .clone()
            .find(|entry| entry.schema.data == schema.data);
        if same_bytes.is_some() || !schema.kind.is_avro_like() {
            return same_bytes;
        }
        let parsed = AvroSchema::parse(&schema.data).ok()?;
        newest_first.find(|entry| AvroSchema::parse(&entry.schema.data).is_ok_and(|old| old == parsed))
    }

    /// Bytes of all live versions together.
    pub(crate) fn live_bytes(&self) -> usize {
        self.live().iter().map(|entry| entry.schema.bytes()).sum()
    }

    /// The number that the next version gets.
    #[must_use]
    pub fn next_version(&self) -> SchemaVersion {
        self.entries
            .last()
            .map_or(SchemaVersion(0), |entry| entry.version.next())
    }

    /// The numbers of all versions, tombstones included.
    pub(crate) fn versions(&self) -> impl Iterator<Item = SchemaVersion> {
        self.entries.iter().map(|entry| entry.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(version: u64, data: &str, deleted: bool) -> SchemaEntry {
        SchemaEntry {
            version: SchemaVersion(version),
            schema: SchemaInfo::new(SchemaType::Avro, data.to_owned()),
            timestamp_ms: 7,
            user: "role".into(),
            deleted,
        }
    }

    #[test]
    fn entries_come_back_from_their_bytes() {
        let mut entry = entry(3, r#""string""#, false);
        entry.schema.properties.insert("a".into(), "b".into());
        let bytes = entry.encode("k").unwrap();
        assert_eq!(SchemaEntry::decode("k", SchemaVersion(3), &bytes).unwrap(), entry);
        for end in 0..bytes.len() - entry.schema.data.len() {
            assert!(SchemaEntry::decode("k", SchemaVersion(3), &bytes.slice(..end)).is_err());
        }
    }

    #[test]
    fn what_is_before_a_deletion_does_not_count() {
        let mut history = History::default();
        history.push(entry(0, r#""int""#, false));
        history.push(entry(1, r#""long""#, false));
        assert_eq!(history.latest().unwrap().version, SchemaVersion(1));
        let int = SchemaInfo::new(SchemaType::Avro, r#"{"type":"int"}"#);
        assert_eq!(history.find(&int).unwrap().version, SchemaVersion(0));
        history.push(entry(2, "", true));
        assert!(history.latest().is_none());
        assert!(history.find(&int).is_none());
        assert!(history.get(SchemaVersion(1)).is_none());
        assert!(history.get(SchemaVersion(2)).is_none());
        assert_eq!(history.next_version(), SchemaVersion(3));
        history.push(entry(3, r#""int""#, false));
        assert!(history.get(SchemaVersion(0)).is_none());
        assert_eq!(history.get(SchemaVersion(3)).unwrap().version, SchemaVersion(3));
    }
}
