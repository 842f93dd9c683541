//! Memory account of a shard for entries read back from the log: one account for all its topics and subscriptions.
//!
//! ```text
//!  a stream consumer is behind ───► reserve ──room──► read ─► the reservation becomes pages ─► delivered ─► released
//!  a dispatcher is behind ─►    │          └──► read ─► dealt at once to consumers with room ─► released
//!                               └─none─► wait, first come first served, until something is released
//! ```
//! Always true: reserved and held bytes are at most `bytes_max`, plus the excess of the last entries read over their
//! estimated size (a read always returns one entry, however large). While nothing is held a read may begin whatever
//! the limit is, so that every stream consumer makes progress. Send queues are not in the account, because a peer
//! that reads nothing must not hold up others; they are bounded by the queue of each connection.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use pharos_types::Ordinal;
use tokio::sync::oneshot;

use crate::ids::{IdSet, TopicId};

/// The most that one read brings, in bytes.
const READ_BYTES_MAX: usize = 2 << 20;
/// Size of a read when very many topics are read at once, in bytes: large enough that a device is read in large parts
/// (the contiguous data of one of a hundred topics, at the default sizes) and nothing is left over. There is hardly
/// ever room for all of them then, and they wait here instead of at the device.
const READ_BYTES_MANY: usize = 1536 << 10;
/// And where the account is so small that only a few such reads would have room, in bytes.
const READ_BYTES_MIN: usize = 256 << 10;

/// The pause after a first failed read; it doubles with each further one.
const RETRY_MIN: Duration = Duration::from_millis(100);
/// The longest pause.
const RETRY_MAX: Duration = Duration::from_secs(10);

/// Reader waiting for room.
#[derive(Debug)]
pub enum Waiting {
    /// A feed's read of this place.
    Feed(TopicId, Ordinal),
    /// A dispatcher's read of at most so many bytes; it is told how much room it has.
    Dispatcher(usize, oneshot::Sender<Room>),
}

/// Room that one read of a dispatcher has; released when it is dropped.
#[derive(Debug)]
pub struct Room {
    backlog: Rc<CatchUpReadBudget>,
    bytes: usize,
}

impl Room {
    /// Returns the maximum size of the read, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.backlog.release(self.bytes);
        self.backlog.rooms.set(self.backlog.rooms.get() - 1);
    }
}

/// The account.
#[derive(Debug)]
pub struct CatchUpReadBudget {
    bytes_max: usize,
    used: Cell<usize>,
    peak: Cell<usize>,
    /// Topics with something in `used`.
    holders: RefCell<IdSet<TopicId>>,
    /// Reads of dispatchers with something in `used`.
    rooms: Cell<usize>,
    /// Reads that found no room, the oldest first.
    waiting: RefCell<VecDeque<Waiting>>,
}

impl CatchUpReadBudget {
    /// An account of at most `bytes_max`.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            used: Cell::new(0),
            peak: Cell::new(0),
            holders: RefCell::default(),
            rooms: Cell::new(0),
            waiting: RefCell::default(),
        }
    }

    /// Bytes held and reserved.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used.get()
    }

    /// The most that was ever held and reserved, in bytes.
    #[must_use]
    pub fn peak(&self) -> usize {
        self.peak.get()
    }

    /// Reads that wait for room.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.borrow().len()
    }

    /// True if little room is left.
    pub(super) fn is_short(&self) -> bool {
        self.waiting() > 0 || self.used() > self.bytes_max / 4 * 3
    }

    /// Topics that hold something.
    pub fn holders(&self) -> Vec<TopicId> {
        self.holders.borrow().iter().copied().collect()
    }

    /// Notes whether a topic holds something.
    pub(super) fn set_holder(&self, topic: TopicId, holds: bool) {
        let mut holders = self.holders.borrow_mut();
        if holds {
            holders.insert(topic);
        } else {
            holders.remove(&topic);
        }
    }

    /// Reserves room for one read, in turn; says how many bytes that read may bring. `is_its_turn`: those that wait are
    /// behind it.
    pub(super) fn reserve(&self, is_its_turn: bool) -> Option<usize> {
        self.take_room(is_its_turn, READ_BYTES_MAX)
    }

    /// Reserves room for a dispatcher that can use at most `bytes_max`.
    pub fn reserve_room(self: &Rc<Self>, is_its_turn: bool, bytes_max: usize) -> Option<Room> {
        let bytes = self.take_room(is_its_turn, bytes_max)?;
        self.rooms.set(self.rooms.get() + 1);
        Some(Room {
            backlog: self.clone(),
            bytes,
        })
    }

    fn take_room(&self, is_its_turn: bool, bytes_max: usize) -> Option<usize> {
        if !is_its_turn && self.waiting() > 0 {
            return None;
        }
        let bytes = self.read_bytes(bytes_max).min(bytes_max);
        let fits = self.used() == 0 || self.used() + bytes <= self.bytes_max;
        fits.then(|| self.add(bytes))
    }

    /// Reserves room for a read that no consumer waits for yet: only while half of the room is free.
    pub(super) fn reserve_ahead(&self) -> Option<usize> {
        let bytes = self.read_bytes(READ_BYTES_MAX);
        let fits = self.waiting() == 0 && self.used() + bytes <= self.bytes_max / 2;
        fits.then(|| self.add(bytes))
    }

    /// Returns the size of one read, about `most`, in bytes: an equal share of the room for all readers.
    fn read_bytes(&self, most: usize) -> usize {
        let readers = (self.holders.borrow().len() + self.rooms.get()).max(1);
        let least = (self.bytes_max / 32).clamp(READ_BYTES_MIN, READ_BYTES_MANY);
        (self.bytes_max / 4 * 3 / readers).clamp(least, most.max(least))
    }

    /// Counts bytes as held.
    pub(super) fn add(&self, bytes: usize) -> usize {
        self.used.set(self.used.get() + bytes);
        self.peak.set(self.peak.get().max(self.used.get()));
        bytes
    }

    /// Counts bytes as released.
    pub(super) fn release(&self, bytes: usize) {
        debug_assert!(self.used.get() >= bytes);
        self.used.set(self.used.get().saturating_sub(bytes));
    }

    /// Puts a read at the end of those that wait.
    pub fn wait(&self, read: Waiting) {
        self.waiting.borrow_mut().push_back(read);
    }

    /// The read that waits longest.
    pub fn take_waiting(&self) -> Option<Waiting> {
        self.waiting.borrow_mut().pop_front()
    }

    /// Puts a read back that found no room after all.
    pub fn wait_on(&self, read: Waiting) {
        self.waiting.borrow_mut().push_front(read);
    }
}

/// Returns the pause after the `failures`th failed read of a position, counted from 1: damage is permanent and a
/// device may recover, so retries start soon and become less frequent.
#[must_use]
pub fn retry_delay(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    RETRY_MIN.saturating_mul(1 << doublings).min(RETRY_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ShardId;

    fn topic(number: u64) -> TopicId {
        TopicId {
            home: ShardId(0),
            number,
        }
    }

    /// Reserves until there is no room, `bytes` each time; how often.
    fn reserve_all(backlog: &CatchUpReadBudget, bytes: usize) -> usize {
        std::iter::from_fn(|| backlog.reserve(false))
            .inspect(|reserved| assert_eq!(*reserved, bytes))
            .count()
    }

    #[test]
    fn reads_share_the_room_and_wait_in_order_when_there_is_none() {
        let backlog = CatchUpReadBudget::new(4 * READ_BYTES_MAX);
        assert_eq!(backlog.reserve(false), Some(READ_BYTES_MAX));
        for number in 0..100 {
            backlog.set_holder(topic(number), true);
        }
        let small = reserve_all(&backlog, READ_BYTES_MIN);
        assert_eq!(backlog.used(), 4 * READ_BYTES_MAX);
        assert!(backlog.is_short() && backlog.reserve_ahead().is_none());
        backlog.wait(Waiting::Feed(topic(7), Ordinal(70)));
        backlog.release(READ_BYTES_MIN * small);
        // A later read does not get ahead.
        assert_eq!(backlog.reserve(false), None);
        assert!(matches!(backlog.take_waiting(), Some(Waiting::Feed(of, Ordinal(70))) if of == topic(7)));
        assert!(backlog.reserve(true).is_some());
        assert_eq!(backlog.peak(), 4 * READ_BYTES_MAX);
    }

    #[test]
    fn many_reads_of_a_large_account_are_large_and_wait() {
        let backlog = CatchUpReadBudget::new(64 << 20);
        for number in 0..1000 {
            backlog.set_holder(topic(number), true);
        }
        assert_eq!(reserve_all(&backlog, READ_BYTES_MANY), 42);
    }

    #[test]
    fn without_any_room_one_read_at_a_time_gets_through() {
        let backlog = CatchUpReadBudget::new(0);
        assert_eq!(backlog.reserve(false), Some(READ_BYTES_MIN));
        assert_eq!(backlog.reserve(false), None);
        backlog.release(READ_BYTES_MIN);
        assert_eq!(backlog.reserve(false), Some(READ_BYTES_MIN));
    }

    #[test]
    fn a_dispatcher_has_room_as_a_feed_has_and_gives_it_back() {
        let backlog = Rc::new(CatchUpReadBudget::new(4 * READ_BYTES_MAX));
        let wanted = 3 * READ_BYTES_MAX;
        let first = backlog.reserve_room(false, wanted).unwrap();
        assert_eq!((first.bytes(), backlog.used()), (wanted, wanted));
        assert!(backlog.reserve_room(false, wanted).is_none());
        let small = backlog.reserve_room(false, 1000).unwrap();
        assert_eq!((small.bytes(), backlog.used()), (1000, wanted + 1000));
        backlog.wait(Waiting::Dispatcher(wanted, oneshot::channel().0));
        assert!(backlog.reserve_room(false, 1000).is_none() && backlog.reserve(false).is_none());
        drop((first, small));
        assert_eq!(backlog.used(), 0);
        assert!(matches!(backlog.take_waiting(), Some(Waiting::Dispatcher(..))));
        // A hundred others leave little for each.
        for number in 0..100 {
            backlog.set_holder(topic(number), true);
        }
        let room = backlog.reserve_room(true, wanted).unwrap();
        assert_eq!(room.bytes(), READ_BYTES_MIN);
    }

    #[test]
    fn pauses_after_failures_grow_from_a_tenth_of_a_second_to_ten() {
        let millis: Vec<_> = [1, 2, 3, 7, 8, 100, u32::MAX]
            .map(|failures| retry_delay(failures).as_millis())
            .into();
        assert_eq!(millis, [100, 200, 400, 6400, 10_000, 10_000, 10_000]);
    }
}
