//! Sessions: who holds ephemeral keys, and until when.
//!
//! ```text
//!  open ─► live ─ renew ─► live           (each renewal: timeout from now on)
//!            │ not renewed for its timeout, closed, or the store ends
//!            ▼
//!          ending: no renewal and no put succeeds any more
//!            │ the backend deletes its keys, watches are told
//!            ▼
//!          ended: its holder is told why
//! ```
//! [`Sessions`] is the table that both backends of this crate keep. It deletes nothing itself: a backend asks which sessions
//! are [`due`](Sessions::due), deletes their keys in its own order of changes, and says [`finish`](Sessions::finish).
//!
//! What a holder may conclude: while it renewed less than the time-out ago, its keys are there. Later it knows nothing, so what must
//! have one owner is fenced where it is written; a clock alone protects nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;
use std::time::Duration;

use bytes::Bytes;
use pharos_runtime::clock;
use tokio::sync::watch;

use crate::{BoxFuture, Expect, SessionError, SessionWriteError, Version};

/// Names a session while its store is open; never used twice in that time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

impl std::fmt::Display for SessionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

/// Reason why a session is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionEnd {
    /// The session was not renewed in time.
    #[error("it was not renewed in time")]
    Expired,
    /// Its holder closed it.
    #[error("it was closed")]
    Closed,
    /// The store was shut down, and its sessions with it.
    #[error("the store was shut down")]
    StoreEnded,
}

/// A session of a [`MetadataStore`](crate::MetadataStore). Dropping the last handle does not close it: like that of a process that
/// died, it lasts until its time is over.
///
/// Cancel safety, all methods: as for the store.
pub trait Session: Send + Sync + std::fmt::Debug {
    /// Its name.
    fn id(&self) -> SessionId;

    /// Session timeout without a renewal.
    fn timeout(&self) -> Duration;

    /// Puts `value` as an ephemeral key of this session, when `expect` holds. The key must not be there or be of this session. It
    /// stays the session's, also when another writer changes its value, and anyone may delete it.
    ///
    /// # Errors
    /// [`SessionWriteError`].
    fn put(
        &self,
        key: &str,
        value: Bytes,
        expect: Expect,
    ) -> BoxFuture<'_, Result<Version, SessionWriteError>>;

    /// Says that its holder is alive: the time-out begins anew. Call it at least three times in a time-out.
    ///
    /// # Errors
    /// [`SessionError::Ended`]: too late. [`SessionError::Fault`]: try again.
    fn renew(&self) -> BoxFuture<'_, Result<(), SessionError>>;

    /// Ends it now; its keys are gone when the future resolves. A second call does nothing.
    fn close(&self) -> BoxFuture<'_, ()>;

    /// Resolves when it is over, after its keys are gone. At once when it is over already.
    fn ended(&self) -> BoxFuture<'_, SessionEnd>;
}

/// Backend that keeps the session of a [`Handle`].
pub(crate) trait Keeper: Send + Sync + std::fmt::Debug + 'static {
    /// The backend's table.
    fn sessions(&self) -> &Sessions;

    /// Puts a key in the name of `id`, in the backend's order of changes.
    fn put(
        &self,
        id: SessionId,
        key: String,
        value: Bytes,
        expect: Expect,
    ) -> BoxFuture<'_, Result<Version, SessionWriteError>>;

    /// Sessions are due: they are ended now, or by a thread that was told.
    fn on_due(&self) {}
}

/// A session of a backend of this crate.
#[derive(Debug)]
pub(crate) struct Handle<K> {
    keeper: Arc<K>,
    id: SessionId,
    timeout: Duration,
    /// Reason of its end, once it has ended.
    end: watch::Receiver<Option<SessionEnd>>,
}

impl<K: Keeper> Handle<K> {
    /// A new session; `None` once the store has ended.
    pub(crate) fn open(keeper: &Arc<K>, timeout: Duration) -> Option<Arc<dyn Session>> {
        let (id, end) = keeper.sessions().open(timeout)?;
        Some(Arc::new(Self {
            keeper: Arc::clone(keeper),
            id,
            timeout,
            end,
        }))
    }

    /// Reason why it is over: the one its holder was given, or else `found`.
    fn why(&self, found: SessionEnd) -> SessionEnd {
        (*self.end.borrow()).unwrap_or(found)
    }
}

impl<K: Keeper> Session for Handle<K> {
    fn id(&self) -> SessionId {
        self.id
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }

    fn put(
        &self,
        key: &str,
        value: Bytes,
        expect: Expect,
    ) -> BoxFuture<'_, Result<Version, SessionWriteError>> {
        let put = self.keeper.put(self.id, key.to_owned(), value, expect);
        Box::pin(async move {
            put.await.map_err(|error| match error {
                SessionWriteError::Ended(found) => SessionWriteError::Ended(self.why(found)),
                error @ SessionWriteError::Write(_) => error,
            })
        })
    }

    fn renew(&self) -> BoxFuture<'_, Result<(), SessionError>> {
        Box::pin(async move {
            let renewed = self.keeper.sessions().renew(self.id);
            renewed.map_err(|found| SessionError::Ended(self.why(found)))
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.keeper.sessions().close(self.id);
            self.keeper.on_due();
            self.ended().await;
        })
    }

    fn ended(&self) -> BoxFuture<'_, SessionEnd> {
        let mut end = self.end.clone();
        Box::pin(async move {
            match end.wait_for(Option::is_some).await {
                Ok(end) => end.unwrap_or(SessionEnd::StoreEnded),
                // The table is gone, and the store with it.
                Err(_) => SessionEnd::StoreEnded,
            }
        })
    }
}

/// Time source of sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    /// The monotonic clock.
    Runtime,
    /// [`Sessions::pass`] only.
    Told,
}

/// The sessions of a store. The lock is held for one look or change.
#[derive(Debug)]
pub(crate) struct Sessions {
    clock: Clock,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    /// The last id given out.
    last: u64,
    live: BTreeMap<SessionId, Live>,
    /// Time that was told, in nanoseconds.
    passed: u64,
    /// The store ended; nothing is opened any more.
    is_closed: bool,
    /// Thread that ends expired sessions, if there is one.
    reaper: Option<Thread>,
}

#[derive(Debug)]
struct Live {
    timeout: u64,
    /// On the table's clock.
    deadline: u64,
    /// Reason why it is being ended.
    ending: Option<SessionEnd>,
    end: watch::Sender<Option<SessionEnd>>,
}

impl Sessions {
    pub(crate) fn new(clock: Clock) -> Self {
        Self {
            clock,
            table: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self, table: &Table) -> u64 {
        match self.clock {
            Clock::Runtime => clock::now().0.saturating_add(table.passed),
            Clock::Told => table.passed,
        }
    }

    /// The calling thread is woken when a session may be due earlier than it knows.
    pub(crate) fn set_reaper(&self, thread: Thread) {
        self.lock().reaper = Some(thread);
    }

    /// A new session and where its end is told; `None` once the store has ended.
    pub(crate) fn open(&self, timeout: Duration) -> Option<(SessionId, watch::Receiver<Option<SessionEnd>>)> {
        let mut table = self.lock();
        if table.is_closed {
            return None;
        }
        table.last += 1;
        let id = SessionId(table.last);
        let timeout = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        let deadline = self.now(&table).saturating_add(timeout);
        let (end, told) = watch::channel(None);
        table.live.insert(
            id,
            Live {
                timeout,
                deadline,
                ending: None,
                end,
            },
        );
        table.wake();
        Some((id, told))
    }

    /// Checks that keys may be created for the session `id`; otherwise returns the reason.
    pub(crate) fn check(&self, id: SessionId) -> Result<(), SessionEnd> {
        let table = self.lock();
        table.check(id)
    }

    pub(crate) fn renew(&self, id: SessionId) -> Result<(), SessionEnd> {
        let mut table = self.lock();
        let now = self.now(&table);
        table.check(id)?;
        if let Some(session) = table.live.get_mut(&id) {
            // What is due is over, even if it was not ended yet: others may count on it.
            if session.deadline <= now {
                return Err(SessionEnd::Expired);
            }
            session.deadline = now.saturating_add(session.timeout);
        }
        Ok(())
    }

    /// The holder is done with it: it is due from now on.
    pub(crate) fn close(&self, id: SessionId) {
        let mut table = self.lock();
        if let Some(session) = table.live.get_mut(&id) {
            session.ending.get_or_insert(SessionEnd::Closed);
            table.wake();
        }
    }

    /// The sessions to be ended now. They take no put from now on; the caller deletes their keys and says [`finish`](Self::finish).
    pub(crate) fn due(&self) -> Vec<SessionId> {
        let mut table = self.lock();
        let now = self.now(&table);
        let mut due = Vec::new();
        for (id, session) in &mut table.live {
            if session.deadline <= now {
                session.ending.get_or_insert(SessionEnd::Expired);
            }
            if session.ending.is_some() {
                due.push(*id);
            }
        }
        due
    }

    /// Time until the first session expires, if none is renewed; `None` without sessions.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        let table = self.lock();
        let now = self.now(&table);
        let wait = |session: &Live| match session.ending {
            Some(_) => 0,
            None => session.deadline.saturating_sub(now),
        };
        table.live.values().map(wait).min().map(Duration::from_nanos)
    }

    /// Its keys are gone: tells its holder.
    pub(crate) fn finish(&self, id: SessionId) {
        if let Some(session) = self.lock().live.remove(&id) {
            let why = session.ending.unwrap_or(SessionEnd::StoreEnded);
            session.end.send_replace(Some(why));
        }
    }

    /// No session is opened from now on; those that are open are due.
    pub(crate) fn end_all(&self) {
        let mut table = self.lock();
        table.is_closed = true;
        for session in table.live.values_mut() {
            session.ending.get_or_insert(SessionEnd::StoreEnded);
        }
    }

    /// Lets time pass for sessions, at once.
    pub(crate) fn pass(&self, time: Duration) {
        let mut table = self.lock();
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        table.passed = table.passed.saturating_add(nanos);
        table.wake();
    }
}

impl Table {
    fn check(&self, id: SessionId) -> Result<(), SessionEnd> {
        match self.live.get(&id) {
            Some(Live { ending: None, .. }) => Ok(()),
            Some(Live {
                ending: Some(why), ..
            }) => Err(*why),
            None if self.is_closed => Err(SessionEnd::StoreEnded),
            None => Err(SessionEnd::Expired),
        }
    }

    fn wake(&self) {
        if let Some(reaper) = &self.reaper {
            reaper.unpark();
        }
    }
}
