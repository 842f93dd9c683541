//! Connections that hold dispatched entries and whose sockets take nothing.
//!
//! While [`Unwritten`](crate::unwritten::Unwritten) is short, those that have taken nothing for [`STALLED_AFTER`] set their
//! payloads aside, the longest stalled first, and read them again when their sockets take bytes. A slow connection that goes on
//! is left alone; for such the dispatchers wait.
//!
//! Always true: while connections are listed here one task looks every [`LOOK_INTERVAL`] whether memory is short.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use pharos_runtime::{Nanos, clock, spawn_local};
use pharos_types::Ordinal;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Shard;
use crate::entry::FeedEntry;
use crate::ids::{ConnectionId, TopicId};
use crate::unwritten::Held;

/// How often it is looked whether memory is short.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// Who has taken nothing for so long sets aside what it holds, if memory is short.
const STALLED_AFTER: Duration = Duration::from_millis(200);
/// Connections of a shard that read again at a time.
pub(crate) const READS_AGAIN_MAX: usize = 8;

/// The list, and the turns of reading again.
pub(super) struct Stalled {
    /// Since when, and which.
    connections: RefCell<BTreeSet<(Nanos, u64)>>,
    is_looking: Cell<bool>,
    reads: Arc<Semaphore>,
}

impl Default for Stalled {
    fn default() -> Self {
        Self {
            connections: RefCell::default(),
            is_looking: Cell::new(false),
            reads: Arc::new(Semaphore::new(READS_AGAIN_MAX)),
        }
    }
}

/// Entries that were read again.
#[derive(Debug)]
pub struct ReadAgain {
    /// Those that were found, rising; not always all, but the first.
    pub entries: Vec<(Arc<FeedEntry>, Held)>,
    /// Those that no longer exist: they were acknowledged by others, or expired.
    pub gone: Vec<Ordinal>,
    /// Others wait for their turn until this is dropped.
    _turn: OwnedSemaphorePermit,
}

/// Why nothing was read again.
#[derive(Debug, thiserror::Error)]
pub enum ReadAgainError {
    /// The topic was closed, or the entry is damaged: it does not come back.
    #[error("the topic was closed, or the entry is damaged")]
    Closed,
    /// It may be read later.
    #[error("{0}")]
    Failed(String),
}

impl Shard {
    /// A connection here holds dispatched entries, and its socket has taken nothing since then. To be said again after
    /// [`ConnectionHandle::set_aside`](super::ConnectionHandle::set_aside) when it got more.
    pub fn stalls(&self, connection: ConnectionId, since: Nanos) {
        let place = (since, connection.number);
        self.stalled.connections.borrow_mut().insert(place);
        if self.stalled.is_looking.replace(true) {
            return;
        }
        let Some(me) = self.me.upgrade() else { return };
        spawn_local(async move {
            while !me.stalled.connections.borrow().is_empty() {
                tokio::time::sleep(LOOK_INTERVAL).await;
                me.set_aside();
            }
            me.stalled.is_looking.set(false);
        });
    }

    /// The socket of a connection here takes bytes again, or the connection is gone. `since`: as it was said.
    pub fn goes_on(&self, connection: ConnectionId, since: Nanos) {
        let place = (since, connection.number);
        self.stalled.connections.borrow_mut().remove(&place);
    }

    /// Has those that are stalled longest set aside what they hold, until memory is not short.
    fn set_aside(&self) {
        let limit = u64::try_from(STALLED_AFTER.as_nanos()).unwrap_or(u64::MAX);
        let until = Nanos(clock::now().0.saturating_sub(limit));
        while self.shared.unwritten.is_short() {
            let first = self.stalled.connections.borrow().first().copied();
            let Some((since, number)) = first.filter(|(since, _)| *since <= until) else {
                return;
            };
            self.stalled.connections.borrow_mut().remove(&(since, number));
            let handle = self.connection_handles.borrow().get(number).cloned();
            if let Some(handle) = handle {
                handle.set_aside();
            }
        }
    }

    /// Reads entries again that a connection here has set aside, in turn, once there is room. `ordinals`: rising, at least one.
    /// `bytes`: what they come to, about.
    ///
    /// # Errors
    /// [`ReadAgainError`].
    ///
    /// Cancel safety: dropping the future gives up the turn.
    pub async fn read_again(
        self: &Rc<Self>,
        topic: TopicId,
        ordinals: Vec<Ordinal>,
        bytes: usize,
    ) -> Result<ReadAgain, ReadAgainError> {
        let turn = self.stalled.reads.clone().acquire_owned().await;
        let turn = turn.map_err(|_| ReadAgainError::Closed)?;
        let reserved = self.shared.unwritten.room_to_read_again(bytes).await;
        let read = self.call(topic.home, move |home| async move {
            match home.topics.by_id(topic) {
                Some(topic) => topic.read_again(&ordinals, bytes).await,
                None => Err(ReadAgainError::Closed),
            }
        });
        let (entries, gone) = read.await.map_err(|_| ReadAgainError::Closed)??;
        drop(reserved);
        let unwritten = &self.shared.unwritten;
        let hold = |entry: Arc<FeedEntry>| {
            let held = unwritten.hold(entry.payload.len(), true);
            (entry, held)
        };
        Ok(ReadAgain {
            entries: entries.into_iter().map(hold).collect(),
            gone,
            _turn: turn,
        })
    }
}
