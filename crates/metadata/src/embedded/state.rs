//! Everything the store holds, in memory.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;

use super::format::{Record, record_bytes};
use crate::{Item, SessionId, Version, Versioned};

/// A value, and the checksum that it came with and goes with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) value: Bytes,
    pub(super) version: u64,
    pub(super) crc: u32,
    /// Session of an ephemeral item; such an item is in no file.
    pub(super) session: Option<SessionId>,
}

impl Stored {
    /// Size on the device, in bytes; ephemeral items take none.
    pub(super) fn record_bytes(&self, key: &str) -> u64 {
        match self.session {
            Some(_) => 0,
            None => record_bytes(key, &self.value),
        }
    }
}

/// All keys. Changed by the write thread only, after the change is durable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Contents {
    items: BTreeMap<String, Stored>,
    /// The last version given out. Counts changes of the whole store, so that a key's version never comes back.
    pub(super) revision: u64,
    /// The last group that is in it.
    pub(super) number: u64,
    /// Size of all items that are not ephemeral as records, in bytes.
    pub(super) bytes: u64,
}

impl Contents {
    pub(super) fn get(&self, key: &str) -> Option<&Stored> {
        self.items.get(key)
    }

    /// Items of a snapshot.
    pub(super) fn durable(&self) -> impl Iterator<Item = (&str, &Stored)> {
        let durable = self.items.iter().filter(|(_, item)| item.session.is_none());
        durable.map(|(key, item)| (key.as_str(), item))
    }

    /// The keys of a session.
    pub(super) fn keys_of(&self, session: SessionId) -> Vec<String> {
        let keys = self
            .items
            .iter()
            .filter(|(_, item)| item.session == Some(session));
        keys.map(|(key, _)| key.clone()).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    /// Applies a change that is durable.
    pub(super) fn apply(&mut self, record: Record) {
        self.change(record, None);
    }

    /// Applies a change, of a key of `session` if one is given.
    pub(super) fn change(&mut self, record: Record, session: Option<SessionId>) {
        let Record {
            key,
            value,
            version,
            crc,
        } = record;
        let before = match value {
            Some(value) => {
                let stored = Stored {
                    value,
                    version,
                    crc,
                    session,
                };
                self.bytes += stored.record_bytes(&key);
                // The key that is there stays; its length is the same.
                self.items.insert(key.clone(), stored)
            }
            None => self.items.remove(&key),
        };
        self.bytes -= before.map_or(0, |before| before.record_bytes(&key));
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
