//! Limit of what is read from a connection before it is answered: input in flight is counted, and reading pauses
//! while there is too much.

use std::cell::Cell;
use std::rc::Rc;

use tokio::sync::Notify;

use pharos_broker::shard::Shard;

/// Sends without a receipt at which reading stops; it resumes at half.
const SENDS_MAX: u32 = 1000;
/// Their bytes at which reading stops.
const BYTES_MAX: u64 = 32 << 20;

/// Sends of a connection that have no receipt yet, and requests that count like them.
pub(crate) struct ReadAhead {
    sends: Cell<u32>,
    /// Their bytes, which are in the budget of the process as well.
    bytes: Cell<u64>,
    /// Shard that owns the budget.
    shard: Rc<Shard>,
    resumed: Notify,
}

impl ReadAhead {
    pub(crate) fn new(shard: Rc<Shard>) -> Self {
        Self {
            sends: Cell::new(0),
            bytes: Cell::new(0),
            shard,
            resumed: Notify::new(),
        }
    }

    /// True if reading must pause.
    pub(crate) fn is_enough(&self) -> bool {
        self.sends.get() >= SENDS_MAX || self.bytes.get() >= BYTES_MAX
    }

    /// True if paused reading may resume.
    pub(crate) fn may_resume(&self) -> bool {
        self.sends.get() <= SENDS_MAX / 2 && self.bytes.get() <= BYTES_MAX / 2
    }

    /// Counts a send in flight.
    pub(crate) fn began(&self, bytes: usize) {
        self.sends.set(self.sends.get() + 1);
        self.bytes.set(self.bytes.get() + bytes as u64);
        self.shard.shared.publish_budget.take(bytes as u64);
    }

    /// Removes an answered send from the count.
    pub(crate) fn ended(&self, bytes: u32) {
        self.all_ended(1, u64::from(bytes));
    }

    /// Some sends were answered, or will not be.
    pub(crate) fn all_ended(&self, sends: u32, bytes: u64) {
        self.sends.set(self.sends.get().saturating_sub(sends));
        self.bytes.set(self.bytes.get().saturating_sub(bytes));
        self.shard.shared.publish_budget.give(bytes);
        if self.may_resume() {
            self.resume();
        }
    }

    /// The connection is gone, and with it all that is in flight.
    pub(crate) fn clear(&self) {
        self.shard.shared.publish_budget.give(self.bytes.replace(0));
    }

    /// Has reading go on where it may.
    pub(crate) fn resume(&self) {
        self.resumed.notify_one();
    }

    /// Resolves when reading may go on.
    pub(crate) async fn resumed(&self) {
        self.resumed.notified().await;
    }
}
