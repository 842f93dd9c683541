//! The connections that live on a shard: told what happens, given turns of writing, asked whether their peers live.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use pharos_feed::ids::{ConnectionId, ShardId};
use pharos_mesh::{ConnectionHandle, Pumped};
use pharos_runtime::clock;
use tokio::sync::{Notify, oneshot};

use super::connection_handles::ConnectionHandles;

/// Minimum time to write to connections before the shard polls its sockets and inbox again, in nanoseconds.
const TURN_NANOS_MIN: u64 = 300_000;
/// Maximum time for the same, in nanoseconds.
const TURN_NANOS_MAX: u64 = 2_000_000;

/// The connections of a shard.
pub struct Connections {
    shard: ShardId,
    handles: RefCell<ConnectionHandles>,
    ready_filled: Notify,
}

impl Connections {
    pub(super) fn new(shard: ShardId) -> Self {
        Self {
            shard,
            handles: RefCell::default(),
            ready_filled: Notify::new(),
        }
    }

    /// Takes a connection in.
    #[must_use]
    pub fn register(&self, make: impl FnOnce(ConnectionId) -> Rc<dyn ConnectionHandle>) -> ConnectionId {
        let shard = self.shard;
        let mut handles = self.handles.borrow_mut();
        let number = handles.insert(|number| make(ConnectionId { shard, number }));
        ConnectionId { shard, number }
    }

    /// Takes a connection in that another shard let go with [`Self::unregister_moved`].
    pub fn register_moved(&self, make: impl FnOnce(ConnectionId) -> Rc<dyn ConnectionHandle>) {
        let shard = self.shard;
        let mut handles = self.handles.borrow_mut();
        let _ = handles.insert_moved(|number| make(ConnectionId { shard, number }));
    }

    /// Lets a connection go.
    pub fn unregister(&self, connection: ConnectionId) {
        self.handles.borrow_mut().remove(connection.number);
    }

    /// Lets a connection go that is handed on to another shard.
    pub fn unregister_moved(&self, connection: ConnectionId) {
        self.handles.borrow_mut().remove_moved(connection.number);
    }

    /// A connection that was let go to be handed on is gone.
    pub fn lose_moved(&self) {
        self.handles.borrow_mut().lose_moved();
    }

    /// Counts connections that opened and closed before any shard registered them.
    pub fn pass_by(&self, count: u64) {
        self.handles.borrow_mut().pass_by(count);
    }

    /// All connections, for the periodic sweep of a front door.
    #[must_use]
    pub fn all(&self) -> Vec<Rc<dyn ConnectionHandle>> {
        self.handles.borrow().all().cloned().collect()
    }

    /// Gives a connection a turn of writing soon.
    pub fn wake(&self, connection: ConnectionId) {
        if self.handles.borrow_mut().make_ready(connection.number) {
            self.ready_filled.notify_one();
        }
    }

    /// Returns the number of connections registered so far, and of those that left.
    pub(crate) fn counts(&self) -> (u64, u64) {
        self.handles.borrow().counts()
    }

    /// Number of open connections on this shard.
    pub(crate) fn living(&self) -> u64 {
        self.handles.borrow().len() as u64
    }

    pub(super) fn get(&self, connection: ConnectionId) -> Option<Rc<dyn ConnectionHandle>> {
        debug_assert_eq!(connection.shard, self.shard);
        self.by_number(connection.number)
    }

    pub(super) fn by_number(&self, number: u64) -> Option<Rc<dyn ConnectionHandle>> {
        self.handles.borrow().get(number).cloned()
    }

    /// True if any connection is queued to write.
    pub(super) fn has_ready(&self) -> bool {
        self.handles.borrow().has_ready()
    }

    /// Gives turns of writing. While there are more to give, all else on this shard has its time in between, and then
    /// writing gets as long again: what comes in must not starve what goes out, nor the other way round.
    pub(super) async fn run_pumps(self: Rc<Self>) {
        let mut turn = TURN_NANOS_MIN;
        loop {
            let began = clock::now();
            while self.pump_next() && clock::now().since(began) < turn {}
            if self.has_ready() {
                let paused = clock::now();
                tokio::task::yield_now().await;
                turn = clock::now().since(paused).clamp(TURN_NANOS_MIN, TURN_NANOS_MAX);
            } else {
                self.ready_filled.notified().await;
                turn = TURN_NANOS_MIN;
            }
        }
    }

    /// Gives one connection its turn; false when none wants one.
    pub(super) fn pump_next(&self) -> bool {
        let next = self.handles.borrow_mut().take_ready();
        let Some((number, handle)) = next else {
            return false;
        };
        if handle.flush_turn() == Pumped::More {
            self.handles.borrow_mut().make_ready(number);
        }
        true
    }

    /// Tells every peer that the broker stops, and closes its connection.
    pub(crate) fn shut_down(&self) {
        for handle in self.all() {
            handle.shut_down();
        }
    }

    /// Asks whether the peer of a connection here still answers within `timeout`; closes the connection when it does not.
    pub(super) async fn probe(&self, connection: ConnectionId, timeout: Duration) -> bool {
        let Some(handle) = self.get(connection) else {
            return false;
        };
        let (sender, receiver) = oneshot::channel();
        handle.probe(sender);
        let alive = matches!(tokio::time::timeout(timeout, receiver).await, Ok(Ok(true)));
        if !alive {
            handle.close();
        }
        alive
    }
}
