//! Connections that hold dispatched entries and whose sockets take nothing.
//!
//! While [`Unwritten`](pharos_accounts::unwritten::Unwritten) is short, those that have taken nothing for [`STALLED_AFTER`] set their
//! payloads aside, the longest stalled first, and read them again when their sockets take bytes. A slow connection that goes on
//! is left alone; for such the dispatchers wait.
//!
//! Always true: while connections are listed here one task looks every [`LOOK_INTERVAL`] whether memory is short.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use pharos_accounts::unwritten::Held;
use pharos_feed::entry::FeedEntry;
use pharos_feed::ids::{ConnectionId, TopicId};
use pharos_mesh::Shared;
use pharos_requests::error::ReadAgainError;
use pharos_runtime::{Nanos, clock, spawn_local};
use pharos_types::Ordinal;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Shard;
use super::connections::Connections;

/// Interval of the check for memory shortage.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// Time without progress after which a connection releases its payloads, if memory is short.
const STALLED_AFTER: Duration = Duration::from_millis(200);
/// Connections of a shard that read again at a time.
pub(crate) const READS_AGAIN_MAX: usize = 8;

/// The stalled connections of a shard, and the turns of reading again.
pub struct Stalled {
    shared: Arc<Shared>,
    connections: Rc<Connections>,
    /// Itself, for the task that looks.
    me: Weak<Stalled>,
    /// Start of the stall, and number of the connection.
    listed: RefCell<BTreeSet<(Nanos, u64)>>,
    is_looking: Cell<bool>,
    reads: Arc<Semaphore>,
}

/// Entries that were read again.
#[derive(Debug)]
pub struct ReadAgain {
    /// Entries found, in ascending order; not always all of them, but always the first ones.
    pub entries: Vec<(Arc<FeedEntry>, Held)>,
    /// Entries that no longer exist: they were acknowledged by others, or expired.
    pub gone: Vec<Ordinal>,
    /// Others wait for their turn until this is dropped.
    _turn: OwnedSemaphorePermit,
}

impl Stalled {
    pub(super) fn new(shared: Arc<Shared>, connections: Rc<Connections>) -> Rc<Self> {
        Rc::new_cyclic(|me| Self {
            shared,
            connections,
            me: me.clone(),
            listed: RefCell::default(),
            is_looking: Cell::new(false),
            reads: Arc::new(Semaphore::new(READS_AGAIN_MAX)),
        })
    }

    /// A connection of the shard holds dispatched entries, and its socket has taken nothing since then. To be said again after
    /// [`ConnectionHandle::set_aside`](super::ConnectionHandle::set_aside) when it got more.
    pub fn stalls(&self, connection: ConnectionId, since: Nanos) {
        self.listed.borrow_mut().insert((since, connection.number));
        if self.is_looking.replace(true) {
            return;
        }
        let Some(me) = self.me.upgrade() else { return };
        spawn_local(async move {
            while !me.listed.borrow().is_empty() {
                tokio::time::sleep(LOOK_INTERVAL).await;
                me.set_aside();
            }
            me.is_looking.set(false);
        });
    }

    /// The socket of a connection of the shard takes bytes again, or the connection is gone. `since`: as it was said.
    pub fn goes_on(&self, connection: ConnectionId, since: Nanos) {
        self.listed.borrow_mut().remove(&(since, connection.number));
    }

    /// Has those that are stalled longest set aside what they hold, until memory is not short.
    fn set_aside(&self) {
        let limit = u64::try_from(STALLED_AFTER.as_nanos()).unwrap_or(u64::MAX);
        let until = Nanos(clock::now().0.saturating_sub(limit));
        while self.shared.unwritten.is_short() {
            let first = self.listed.borrow().first().copied();
            let Some((since, number)) = first.filter(|(since, _)| *since <= until) else {
                return;
            };
            self.listed.borrow_mut().remove(&(since, number));
            if let Some(handle) = self.connections.by_number(number) {
                handle.set_aside();
            }
        }
    }
}

impl Shard {
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
        let read = self.call(topic.home, move |shard| async move {
            match shard.home.topics.by_id(topic) {
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
