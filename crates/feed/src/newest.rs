//! Newest entries that the feeds of a shard hold in memory: one account for all its topics.
//!
//! ```text
//!   open     [ topics with a new entry ]                   for a tenth of a second
//!   closed   [ … ][ … ][ … ][ … ]  ─► the oldest is due    after some seconds, or when all feeds together hold too much
//! ```
//! Entries are held for stream consumers that are a little behind. Nearly all of them are never used again once all
//! consumers have had them, and any can be read again from its topic's home. So they are evicted by age, over all
//! topics: entries that arrived together, and mostly share memory, are evicted together.
//!
//! Always true: `used` is the size of the windows; an entry in a window arrived while its topic was in one of the
//! lists here, or is newer than any of them.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use pharos_runtime::Nanos;

use crate::ids::TopicId;

/// Time for which entries are held in memory, when there is room, in nanoseconds.
const AGE_NANOS: u64 = 5_000_000_000;
/// Time for which topics are noted in one list, in nanoseconds.
const LIST_NANOS: u64 = 100_000_000;
/// A list is closed early when entries came that are this part of the room.
const LIST_PART: usize = 16;

/// The account.
#[derive(Debug)]
pub struct Newest {
    bytes_max: usize,
    used: Cell<usize>,
    lists: RefCell<Lists>,
}

#[derive(Debug, Default)]
struct Lists {
    /// Topics with an entry since `since`, and how many bytes came.
    open: Vec<TopicId>,
    since: Nanos,
    bytes: usize,
    /// The open list's number; feeds remember in which one they are.
    number: u64,
    closed: VecDeque<Closed>,
}

#[derive(Debug)]
struct Closed {
    topics: Vec<TopicId>,
    /// Time at which it was closed.
    at: Nanos,
}

impl Lists {
    fn close(&mut self, now: Nanos) {
        if !self.open.is_empty() {
            let topics = std::mem::take(&mut self.open);
            self.closed.push_back(Closed { topics, at: now });
        }
        (self.since, self.bytes) = (now, 0);
        self.number += 1;
    }
}

impl Newest {
    /// An account of at most `bytes_max`, which the entries of one call may exceed until the next
    /// [`take_due`](Self::take_due).
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            used: Cell::new(0),
            lists: RefCell::new(Lists {
                number: 1,
                ..Lists::default()
            }),
        }
    }

    /// Bytes held.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used.get()
    }

    /// A window holds more.
    pub(super) fn add(&self, bytes: usize) {
        self.used.set(self.used.get() + bytes);
    }

    /// A window has let go of some.
    pub(super) fn release(&self, bytes: usize) {
        self.used.set(self.used.get().saturating_sub(bytes));
    }

    /// New entries of a topic came, so many bytes; `list` is what this said for the topic the last time, 0 at first.
    #[must_use]
    pub(super) fn note(&self, topic: TopicId, list: u64, bytes: usize, now: Nanos) -> u64 {
        let mut lists = self.lists.borrow_mut();
        if now.since(lists.since) >= LIST_NANOS || lists.bytes >= self.bytes_max / LIST_PART {
            lists.close(now);
        }
        lists.bytes += bytes;
        if list != lists.number {
            lists.open.push(topic);
        }
        lists.number
    }

    /// Topics that are to let go of what was durable until then. Asked again until there are none.
    pub fn take_due(&self, now: Nanos) -> Option<(Nanos, Vec<TopicId>)> {
        let mut lists = self.lists.borrow_mut();
        let is_full = self.used.get() > self.bytes_max;
        if is_full && lists.closed.is_empty() || now.since(lists.since) >= LIST_NANOS {
            lists.close(now);
        }
        let oldest = lists.closed.front()?;
        if !is_full && now.since(oldest.at) < AGE_NANOS {
            return None;
        }
        lists.closed.pop_front().map(|closed| (closed.at, closed.topics))
    }
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

    #[test]
    fn topics_are_due_when_they_are_old_and_once_for_each_list() {
        let newest = Newest::new(1000);
        let at = |ms: u64| Nanos(1_000_000_000 + ms * 1_000_000);
        let list = newest.note(topic(1), 0, 10, at(0));
        let list = newest.note(topic(1), list, 10, at(10));
        assert_eq!(newest.note(topic(2), 0, 10, at(20)), list);
        assert!(newest.take_due(at(50)).is_none());
        let next = newest.note(topic(1), list, 10, at(120));
        assert_ne!(next, list);
        assert!(newest.take_due(at(5000)).is_none());
        assert_eq!(
            newest.take_due(at(5200)),
            Some((at(120), vec![topic(1), topic(2)]))
        );
        assert!(newest.take_due(at(5200)).is_none());
        let (until, topics) = newest.take_due(at(10_100)).unwrap();
        assert!(until >= at(120) && topics == [topic(1)]);
        assert!(newest.take_due(at(20_000)).is_none());
    }

    #[test]
    fn the_oldest_are_due_at_once_while_too_much_is_held() {
        let newest = Newest::new(1000);
        let mut list = 0;
        for ms in 0..3 {
            newest.add(600);
            list = newest.note(topic(ms), list, 600, Nanos(1_000_000 * (ms + 1)));
        }
        let now = Nanos(5_000_000);
        let mut found = Vec::new();
        while let Some((_, topics)) = newest.take_due(now) {
            newest.release(topics.len() * 600);
            found.extend(topics);
        }
        assert_eq!(found, [topic(0), topic(1)]);
        assert_eq!(newest.used(), 600);
    }
}
