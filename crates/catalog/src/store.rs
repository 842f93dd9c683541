//! Facts to bytes and back.

use std::sync::Arc;

use bytes::Bytes;
use pharos_metadata::{Expect, Item, MetadataStore, ReadError, WriteError};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::known::Record;
use super::names::NameLocks;
pub use super::store_error::StoreError;
use super::store_error::damaged;

/// Maximum number of attempts of a change after another broker changed the same fact.
pub(super) const TRIES: usize = 16;

pub(super) fn decode<T: DeserializeOwned>(key: &str, value: &[u8]) -> Result<T, StoreError> {
    serde_json::from_slice(value).map_err(|error| damaged(key, &error))
}

/// The facts under a prefix. A key without a value is none: with ZooKeeper what held others stays as such a key when the last of them went.
pub(super) async fn facts_under(store: &dyn MetadataStore, prefix: &str) -> Result<Vec<Item>, ReadError> {
    let mut items = store.scan(prefix).await?;
    items.retain(|item| !item.value.is_empty());
    Ok(items)
}

/// The durable facts, and who may write which.
pub(super) struct FactStore {
    pub(super) store: Arc<dyn MetadataStore>,
    /// Locks of names that are being written.
    pub(super) names: NameLocks,
}

impl FactStore {
    pub(super) fn new(store: Arc<dyn MetadataStore>) -> Self {
        Self {
            store,
            names: NameLocks::default(),
        }
    }

    /// Writes a fact; the record to put into the copy comes back.
    pub(super) async fn put<T: Serialize>(
        &self,
        key: &str,
        value: T,
        expect: Expect,
    ) -> Result<Record<T>, StoreError> {
        let bytes = serde_json::to_vec(&value).map_err(|error| damaged(key, &error))?;
        let version = self.store.put(key, Bytes::from(bytes), expect).await?;
        Ok(Record {
            value: Arc::new(value),
            version,
        })
    }

    /// Reads a fact past the copy: after a conflict, or after a write whose outcome was not waited for.
    pub(super) async fn get<T: DeserializeOwned>(&self, key: &str) -> Result<Option<Record<T>>, StoreError> {
        match self.store.get(key).await? {
            None => Ok(None),
            Some(found) => Ok(Some(Record {
                value: Arc::new(decode(key, &found.value)?),
                version: found.version,
            })),
        }
    }

    pub(super) async fn delete(&self, key: &str) -> Result<(), StoreError> {
        self.store.delete(key, Expect::Any).await?;
        Ok(())
    }
}

/// The outcome of creating a key that should not exist yet.
pub(super) enum Created<T> {
    /// The record is new.
    New(Record<T>),
    /// The record was in the store although not in the copy: a creation whose caller went away, or another process.
    Found(Record<T>),
}

impl FactStore {
    /// Writes a new fact, or adopts the one that is there.
    pub(super) async fn create<T: Serialize + DeserializeOwned>(
        &self,
        key: &str,
        value: T,
    ) -> Result<Created<T>, StoreError> {
        match self.put(key, value, Expect::Absent).await {
            Ok(record) => Ok(Created::New(record)),
            Err(StoreError::Write(error @ WriteError::Conflict { .. })) => match self.get(key).await? {
                Some(found) => Ok(Created::Found(found)),
                None => Err(error.into()),
            },
            Err(error) => Err(error),
        }
    }

    /// Rewrites a fact from what the copy has of it. On a conflict the copy was behind: `change` is asked again with
    /// what the store has, as often as other brokers are faster, up to [`TRIES`].
    ///
    /// `change` answers the new value, or an error that ends the attempt.
    pub(super) async fn update<T, E>(
        &self,
        key: &str,
        known: Record<T>,
        missing: impl FnOnce() -> E,
        change: impl Fn(&T) -> Result<T, E>,
    ) -> Result<Record<T>, E>
    where
        T: Serialize + DeserializeOwned,
        E: From<StoreError>,
    {
        let mut known = known;
        for _ in 1..TRIES {
            let value = change(&known.value)?;
            match self.put(key, value, Expect::Version(known.version)).await {
                Err(StoreError::Write(WriteError::Conflict { .. })) => {}
                outcome => return Ok(outcome?),
            }
            known = match self.get::<T>(key).await? {
                Some(found) => found,
                None => return Err(missing()),
            };
        }
        let value = change(&known.value)?;
        Ok(self.put(key, value, Expect::Version(known.version)).await?)
    }

    /// Writes a new fact unless there is one; what there is then.
    pub(super) async fn create_or_find<T>(&self, key: &str, value: T) -> Result<Record<T>, StoreError>
    where
        T: serde::Serialize + DeserializeOwned,
    {
        Ok(match self.create(key, value).await? {
            Created::New(record) | Created::Found(record) => record,
        })
    }
}
