//! A store that forgets everything when it is dropped: for tests, with faults on demand.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;

use crate::key::{check_read, check_write};
use crate::session::{Clock, Handle, Keeper, Sessions};
use crate::watch::Watchers;
use crate::{
    BoxFuture, Event, Expect, Fault, Item, MetadataStore, ReadError, Session, SessionError, SessionId,
    SessionWriteError, Version, Versioned, Watch, WriteError,
};

/// A [`MetadataStore`] in memory. Share it in an `Arc`; a "restart" in a test keeps the `Arc`.
///
/// Time passes for its sessions only when a test says so ([`pass`](Self::pass)): no slow machine ends one.
#[derive(Debug)]
pub struct Memory {
    /// Sessions keep it as well.
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// The lock is held for one operation and never over an await. Sessions' lock may be taken under it, not the other way.
    state: Mutex<MemoryState>,
    sessions: Sessions,
    watchers: Watchers,
}

#[derive(Debug, Default)]
struct MemoryState {
    items: BTreeMap<String, Stored>,
    /// Counts puts of the whole store, so that a key's version never comes back.
    revision: u64,
    /// Error of every write while set.
    write_fault: Option<Arc<Fault>>,
    ended: bool,
}

#[derive(Clone, Debug)]
struct Stored {
    versioned: Versioned,
    /// Session of the key, if it is ephemeral.
    session: Option<SessionId>,
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
            inner: Arc::new(Inner {
                state: Mutex::default(),
                sessions: Sessions::new(Clock::Told),
                watchers: Watchers::new(),
            }),
        }
    }

    /// From now on writes fail with `cause` and change nothing; `None` heals the store.
    pub fn fail_writes(&self, cause: Option<&str>) {
        self.inner.lock().write_fault = cause.map(|cause| Fault::new("write in memory", cause));
    }

    /// Lets `time` pass for sessions, and ends those that were not renewed.
    pub fn pass(&self, time: Duration) {
        self.inner.sessions.pass(time);
        self.inner.end_due();
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, MemoryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read<T>(&self, read: impl FnOnce(&MemoryState) -> T) -> Result<T, ReadError> {
        let state = self.lock();
        if state.ended {
            Err(ReadError::Fault(shut_down()))
        } else {
            Ok(read(&state))
        }
    }

    /// Puts `value`, or deletes when it is `None`; for a session, when it is given. Says the new version and whether the key was
    /// there.
    fn write(
        &self,
        key: &str,
        value: Option<Bytes>,
        expect: Expect,
        session: Option<SessionId>,
    ) -> Result<(Version, bool), SessionWriteError> {
        check_write(key, value.as_deref().unwrap_or_default())?;
        let mut state = self.lock();
        if state.ended {
            return Err(WriteError::Fault(shut_down()).into());
        }
        if let Some(fault) = &state.write_fault {
            return Err(WriteError::Fault(Arc::clone(fault)).into());
        }
        if let Some(session) = session {
            self.sessions.check(session).map_err(SessionWriteError::Ended)?;
        }
        let current = state.items.get(key);
        let version = current.map(|stored| stored.versioned.version);
        let owner = current.and_then(|stored| stored.session);
        let is_others = current.is_some() && session.is_some() && session != owner;
        if is_others || !expect.holds(version) {
            return Err(SessionWriteError::Write(WriteError::Conflict {
                key: key.to_owned(),
                current: version,
            }));
        }
        let existed = current.is_some();
        state.revision += 1;
        let version = Version(state.revision);
        match value {
            Some(value) => {
                let stored = Stored {
                    versioned: Versioned { value, version },
                    // A key that is there stays whose it is.
                    session: if existed { owner } else { session },
                };
                state.items.insert(key.to_owned(), stored);
                // Told under the state's lock: that keeps the events in the order of the changes.
                self.watchers.tell(Event::Put {
                    key: key.into(),
                    version,
                });
            }
            None if existed => {
                state.items.remove(key);
                self.watchers.tell(Event::Deleted { key: key.into() });
            }
            None => {}
        }
        Ok((version, existed))
    }

    /// Ends the sessions that are due: their keys go, then watches are told, then they are.
    fn end_due(&self) {
        for session in self.sessions.due() {
            let mut state = self.lock();
            let gone = state
                .items
                .iter()
                .filter(|(_, stored)| stored.session == Some(session));
            let gone: Vec<String> = gone.map(|(key, _)| key.clone()).collect();
            for key in gone {
                state.items.remove(&key);
                self.watchers.tell(Event::Deleted { key: key.into() });
            }
            drop(state);
            self.sessions.finish(session);
        }
    }
}

fn shut_down() -> Arc<Fault> {
    Fault::new("use the metadata store", "it was shut down")
}

/// A plain write is of no session, so none can be over.
fn plain<T>(outcome: Result<T, SessionWriteError>) -> Result<T, WriteError> {
    outcome.map_err(|error| match error {
        SessionWriteError::Write(error) => error,
        SessionWriteError::Ended(_) => WriteError::Fault(shut_down()),
    })
}

impl MetadataStore for Memory {
    fn get(&self, key: &str) -> BoxFuture<'_, Result<Option<Versioned>, ReadError>> {
        let key = key.to_owned();
        Box::pin(async move {
            check_read(&key)?;
            self.inner
                .read(|state| state.items.get(&key).map(|stored| stored.versioned.clone()))
        })
    }

    fn put(&self, key: &str, value: Bytes, expect: Expect) -> BoxFuture<'_, Result<Version, WriteError>> {
        let key = key.to_owned();
        Box::pin(async move {
            plain(self.inner.write(&key, Some(value), expect, None)).map(|(version, _)| version)
        })
    }

    fn delete(&self, key: &str, expect: Expect) -> BoxFuture<'_, Result<bool, WriteError>> {
        let key = key.to_owned();
        Box::pin(async move { plain(self.inner.write(&key, None, expect, None)).map(|(_, existed)| existed) })
    }

    fn list(&self, prefix: &str) -> BoxFuture<'_, Result<Vec<String>, ReadError>> {
        let prefix = prefix.to_owned();
        Box::pin(async move {
            self.inner.read(|state| {
                let keys = state.items.range(prefix.clone()..).map(|(key, _)| key);
                keys.take_while(|key| key.starts_with(&prefix)).cloned().collect()
            })
        })
    }

    fn scan(&self, prefix: &str) -> BoxFuture<'_, Result<Vec<Item>, ReadError>> {
        let prefix = prefix.to_owned();
        Box::pin(async move {
            self.inner.read(|state| {
                let items = state.items.range(prefix.clone()..);
                let items = items.take_while(|(key, _)| key.starts_with(&prefix));
                let item = |(key, item): (&String, &Stored)| Item {
                    key: key.clone(),
                    value: item.versioned.value.clone(),
                    version: item.versioned.version,
                };
                items.map(item).collect()
            })
        })
    }

    fn watch(&self, prefix: &str) -> Watch {
        self.inner.watchers.watch(prefix)
    }

    fn open_session(&self, timeout: Duration) -> BoxFuture<'_, Result<Arc<dyn Session>, SessionError>> {
        Box::pin(async move {
            let opened = Handle::open(&self.inner, timeout);
            opened.ok_or_else(|| SessionError::Fault(shut_down()))
        })
    }

    fn fault(&self) -> Option<Arc<Fault>> {
        let state = self.inner.lock();
        state.write_fault.clone()
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.inner.sessions.end_all();
            self.inner.end_due();
            self.inner.lock().ended = true;
            self.inner.watchers.end();
        })
    }
}

impl Keeper for Inner {
    fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    fn put(
        &self,
        id: SessionId,
        key: String,
        value: Bytes,
        expect: Expect,
    ) -> BoxFuture<'_, Result<Version, SessionWriteError>> {
        Box::pin(async move {
            let put = self.write(&key, Some(value), expect, Some(id));
            put.map(|(version, _)| version)
        })
    }

    fn on_due(&self) {
        self.end_due();
    }
}
