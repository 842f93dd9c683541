//! Everything the store holds, in memory.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;

use super::format::{Record, record_bytes};
use crate::{Item, Version, Versioned};

/// A value, and the checksum that it came with and goes with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) value: Bytes,
    pub(super) version: u64,
    pub(super) crc: u32,
}

/// All keys. Changed by the write thread only, after the change is durable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    items: BTreeMap<String, Stored>,
    /// The last version given out. Counts changes of the whole store, so that a key's version never comes back.
    pub(super) revision: u64,
    /// The last group that is in it.
    pub(super) number: u64,
    /// What all items take as records, in bytes.
    pub(super) bytes: u64,
}

impl State {
    pub(super) fn get(&self, key: &str) -> Option<&Stored> {
        self.items.get(key)
    }

    pub(super) fn items(&self) -> impl Iterator<Item = (&str, &Stored)> {
        self.items.iter().map(|(key, item)| (key.as_str(), item))
    }

    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    pub(super) fn apply(&mut self, record: Record) {
        let Record {
            key,
            value,
            version,
            crc,
        } = record;
        let bytes = |stored: &Stored, key: &str| record_bytes(key, &stored.value);
        let before = match value {
            Some(value) => {
                self.bytes += record_bytes(&key, &value);
                let stored = Stored { value, version, crc };
                // The key that is there stays; its length is the same.
                self.items.insert(key.clone(), stored)
            }
            None => self.items.remove(&key),
        };
        self.bytes -= before.map_or(0, |before| bytes(&before, &key));
    }

    fn below<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a String, &'a Stored)> {
        let from = self
            .items
            .range::<str, _>((Bound::Included(prefix), Bound::Unbounded));
        from.take_while(move |(key, _)| key.starts_with(prefix))
    }

    pub(super) fn versioned(&self, key: &str) -> Option<Versioned> {
        let stored = self.get(key)?;
        Some(Versioned {
            value: stored.value.clone(),
            version: Version(stored.version),
        })
    }

    pub(super) fn list(&self, prefix: &str) -> Vec<String> {
        self.below(prefix).map(|(key, _)| key.clone()).collect()
    }

    pub(super) fn scan(&self, prefix: &str) -> Vec<Item> {
        let item = |(key, stored): (&String, &Stored)| Item {
            key: key.clone(),
            value: stored.value.clone(),
            version: Version(stored.version),
        };
        self.below(prefix).map(item).collect()
    }
}
