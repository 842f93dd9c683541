//! The read thread: answers gets, lists and scans from one snapshot per group.

use std::sync::Arc;

use bytes::Bytes;
use redb::{Database, ReadOnlyTable, ReadableDatabase, StorageError};
use tokio::sync::{mpsc, oneshot};

use super::ITEMS;
use crate::{Fault, Item, ReadError, Version, Versioned};

/// Most reads answered from one snapshot.
const GROUP_MAX: usize = 256;

type Answer<T> = oneshot::Sender<Result<T, ReadError>>;

/// One queued read.
pub(super) enum Read {
    Get {
        key: String,
        answer: Answer<Option<Versioned>>,
    },
    List {
        prefix: String,
        answer: Answer<Vec<String>>,
    },
    Scan {
        prefix: String,
        answer: Answer<Vec<Item>>,
    },
}

pub(super) struct Reader {
    database: Arc<Database>,
    queue: mpsc::Receiver<Read>,
}

pub(super) type Items = ReadOnlyTable<&'static str, &'static [u8]>;

impl Reader {
    pub(super) fn new(database: Arc<Database>, queue: mpsc::Receiver<Read>) -> Self {
        Self { database, queue }
    }

    /// Runs until the queue is closed and empty.
    pub(super) fn run(mut self) {
        let mut group = Vec::new();
        while let Some(first) = self.queue.blocking_recv() {
            group.push(first);
            while group.len() < GROUP_MAX
                && let Ok(next) = self.queue.try_recv()
            {
                group.push(next);
            }
            // Taken after the group was: every write answered before a read was asked is in the snapshot.
            let items = self.snapshot();
            for read in group.drain(..) {
                answer(&items, read);
            }
        }
    }

    fn snapshot(&self) -> Result<Items, redb::Error> {
        Ok(self.database.begin_read()?.open_table(ITEMS)?)
    }
}

/// Answers one read. An asker that has gone is no error.
fn answer(items: &Result<Items, redb::Error>, read: Read) {
    match read {
        Read::Get { key, answer } => drop(answer.send(with(items, |items| get(items, &key)))),
        Read::List { prefix, answer } => {
            let list = |items: &Items| walk(items, &prefix, |key, _| Ok(key.to_owned()));
            drop(answer.send(with(items, list)));
        }
        Read::Scan { prefix, answer } => {
            let scan = |items: &Items| scan(items, &prefix);
            drop(answer.send(with(items, scan)));
        }
    }
}

fn with<T>(
    items: &Result<Items, redb::Error>,
    read: impl FnOnce(&Items) -> Result<T, redb::Error>,
) -> Result<T, ReadError> {
    let fault = |error: &dyn std::fmt::Display| ReadError::Fault(Fault::new("read metadata", error));
    match items {
        Ok(items) => read(items).map_err(|error| fault(&error)),
        Err(error) => Err(fault(error)),
    }
}

fn get(items: &Items, key: &str) -> Result<Option<Versioned>, redb::Error> {
    items.get(key)?.map(|item| versioned(item.value())).transpose()
}

/// The items whose keys begin with `prefix`.
pub(super) fn scan(items: &Items, prefix: &str) -> Result<Vec<Item>, redb::Error> {
    walk(items, prefix, |key, item| {
        let Versioned { value, version } = versioned(item)?;
        Ok(Item {
            key: key.to_owned(),
            value,
            version,
        })
    })
}

fn walk<T>(
    items: &Items,
    prefix: &str,
    mut take: impl FnMut(&str, &[u8]) -> Result<T, redb::Error>,
) -> Result<Vec<T>, redb::Error> {
    let mut found = Vec::new();
    for item in items.range(prefix..)? {
        let (key, value) = item?;
        if !key.value().starts_with(prefix) {
            break;
        }
        found.push(take(key.value(), value.value())?);
    }
    Ok(found)
}

fn versioned(item: &[u8]) -> Result<Versioned, redb::Error> {
    let version = version_of(item)?;
    Ok(Versioned {
        value: Bytes::copy_from_slice(item.get(8..).unwrap_or_default()),
        version,
    })
}

/// The version in front of a stored value.
pub(super) fn version_of(item: &[u8]) -> Result<Version, redb::Error> {
    let Some((version, _)) = item.split_first_chunk::<8>() else {
        return Err(StorageError::Corrupted("item without a version".to_owned()).into());
    };
    Ok(Version(u64::from_be_bytes(*version)))
}
