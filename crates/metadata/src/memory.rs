//! A store that forgets everything when it is dropped: the reference for tests, with faults on demand.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::key::{check_read, check_write};
use crate::watch::Watchers;
use crate::{
    BoxFuture, Event, Expect, Fault, Item, MetadataStore, ReadError, Version, Versioned, Watch, WriteError,
};

/// A [`MetadataStore`] in memory. Share it in an `Arc`; a "restart" in a test keeps the `Arc`.
#[derive(Debug)]
pub struct Memory {
    /// The lock is held for one operation and never over an await.
    state: Mutex<State>,
    watchers: Watchers,
}

#[derive(Debug, Default)]
struct State {
    items: BTreeMap<String, Versioned>,
    /// Counts puts of the whole store, so that a key's version never comes back.
    revision: u64,
    /// Why writes fail now.
    write_fault: Option<Arc<Fault>>,
    ended: bool,
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl Memory {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self {
            state: Mutex::default(),
            watchers: Watchers::new(),
        }
    }

    /// From now on writes fail with `cause` and change nothing; `None` heals the store.
    pub fn fail_writes(&self, cause: Option<&str>) {
        self.lock().write_fault = cause.map(|cause| Fault::new("write in memory", cause));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read<T>(&self, read: impl FnOnce(&State) -> T) -> Result<T, ReadError> {
        let state = self.lock();
        if state.ended {
            Err(ReadError::Fault(ended()))
        } else {
            Ok(read(&state))
        }
    }

    /// Puts `value`, or deletes when it is `None`. Says the new version and whether the key was there.
    fn write(&self, key: &str, value: Option<Bytes>, expect: Expect) -> Result<(Version, bool), WriteError> {
        check_write(key, value.as_deref().unwrap_or_default())?;
        let mut state = self.lock();
        if state.ended {
            return Err(WriteError::Fault(ended()));
        }
        if let Some(fault) = &state.write_fault {
            return Err(WriteError::Fault(Arc::clone(fault)));
        }
        let current = state.items.get(key).map(|item| item.version);
        if !expect.holds(current) {
            return Err(WriteError::Conflict {
                key: key.to_owned(),
                current,
            });
        }
        state.revision += 1;
        let version = Version(state.revision);
        // Told under the state's lock: that keeps the events in the order of the changes.
        match value {
            Some(value) => {
                state.items.insert(key.to_owned(), Versioned { value, version });
                self.watchers.tell(Event::Put {
                    key: key.into(),
                    version,
                });
            }
            None if current.is_some() => {
                state.items.remove(key);
                self.watchers.tell(Event::Deleted { key: key.into() });
            }
            None => {}
        }
        Ok((version, current.is_some()))
    }
}

fn ended() -> Arc<Fault> {
    Fault::new("use the metadata store", "it was shut down")
}

impl MetadataStore for Memory {
    fn get(&self, key: &str) -> BoxFuture<'_, Result<Option<Versioned>, ReadError>> {
        let key = key.to_owned();
        Box::pin(async move {
            check_read(&key)?;
            self.read(|state| state.items.get(&key).cloned())
        })
    }

    fn put(&self, key: &str, value: Bytes, expect: Expect) -> BoxFuture<'_, Result<Version, WriteError>> {
        let key = key.to_owned();
        Box::pin(async move { self.write(&key, Some(value), expect).map(|(version, _)| version) })
    }

    fn delete(&self, key: &str, expect: Expect) -> BoxFuture<'_, Result<bool, WriteError>> {
        let key = key.to_owned();
        Box::pin(async move { self.write(&key, None, expect).map(|(_, existed)| existed) })
    }

    fn list(&self, prefix: &str) -> BoxFuture<'_, Result<Vec<String>, ReadError>> {
        let prefix = prefix.to_owned();
        Box::pin(async move {
            self.read(|state| {
                let keys = state.items.range(prefix.clone()..).map(|(key, _)| key);
                keys.take_while(|key| key.starts_with(&prefix)).cloned().collect()
            })
        })
    }

    fn scan(&self, prefix: &str) -> BoxFuture<'_, Result<Vec<Item>, ReadError>> {
        let prefix = prefix.to_owned();
        Box::pin(async move {
            self.read(|state| {
                let items = state.items.range(prefix.clone()..);
                let items = items.take_while(|(key, _)| key.starts_with(&prefix));
                let item = |(key, item): (&String, &Versioned)| Item {
                    key: key.clone(),
                    value: item.value.clone(),
                    version: item.version,
                };
                items.map(item).collect()
            })
        })
    }

    fn watch(&self, prefix: &str) -> Watch {
        self.watchers.watch(prefix)
    }

    fn fault(&self) -> Option<Arc<Fault>> {
        let state = self.lock();
        state.write_fault.clone()
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.lock().ended = true;
            self.watchers.end();
        })
    }
}
