//! Reading back for stream consumers that are behind: asking, reading ahead, and letting go of what all have passed.
//!
//! One read for all who wait at the same place. While a consumer goes through pages from front to back, the next two are
//! asked for before they are needed, both at once, so that the device works while a page is delivered; with many topics behind
//! at once there is no room for that, and no need: they keep the device busy together.
//!
//! ```text
//!   delivered      on their way, each asked for so many entries         if the first brings fewer, who comes to
//!  [ page  ][ n entries ? ][ n entries ? ]                              the gap asks for what is missing
//! ```
//! How many entries a page will hold is guessed from the last one, because the second read must say where it begins.
//!
//! Always true: what the pages weigh and what `asked` has reserved is in the shard's [`CatchUpReadBudget`](super::CatchUpReadBudget) account.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use pharos_runtime::Nanos;
use pharos_types::Ordinal;

use super::catch_up::{Waiting, retry_delay};
use super::pages::Pages;
use super::{Feed, Found};
use crate::entry::FeedEntry;
use crate::ids::ConnectionId;

/// Entries that one read brings back at most: few enough that looking at each of them holds up the shard for a moment only.
pub const READ_ENTRIES_MAX: usize = 1000;
/// Pages that are asked for ahead of the one that is delivered.
const AHEAD: usize = 2;
/// Pages ahead of a stream consumer that are kept for it, when others were faster.
const KEPT_AHEAD: usize = 8;
/// Number of consumers from which their positions are not scanned; pages are then evicted by age.
const CONSUMERS_SCANNED: usize = 1024;

/// A place that was asked for.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// Connections that wait; empty for a read-ahead.
    connections: Vec<ConnectionId>,
    /// In the account; 0 while the read has not begun.
    reserved: usize,
    failures: u32,
    /// Maximum number of entries of the read.
    entries_max: usize,
}

impl Asked {
    /// Returns the end of the page, if it begins here and has its maximum length.
    fn end(&self, place: Ordinal) -> Ordinal {
        place.plus(self.entries_max as u64)
    }
}

/// Pending read work of the feed, done when no group is in use.
#[derive(Debug, Default)]
pub(super) struct Due {
    /// Places asked for whose read has not begun.
    places: Vec<Ordinal>,
    /// Ends of pages that were visited for the first time.
    entered: Vec<Ordinal>,
}

impl Feed {
    /// Finds the entry at a position.
    pub(super) fn find(&self, ordinal: Ordinal) -> Found {
        let (found, entered) = self.window.borrow_mut().find(ordinal);
        if let Some(end) = entered {
            self.due.borrow_mut().entered.push(end);
        }
        found
    }

    /// Asks for a read, once for all who wait for the same place. It begins with [`begin_due`](Self::begin_due).
    pub(super) fn ask(&self, place: Ordinal, connection: ConnectionId) {
        let mut asked = self.asked.borrow_mut();
        if let Some(asked) = asked.get_mut(&place) {
            asked.connections.push(connection);
            return;
        }
        let read = Asked {
            connections: vec![connection],
            entries_max: self.entries_to_next(&asked, place),
            ..Asked::default()
        };
        asked.insert(place, read);
        self.due.borrow_mut().places.push(place);
    }

    /// Begins the reads that are due. Not to be called while a group is borrowed.
    pub(super) fn begin_due(&self) {
        let due = self.due.take();
        if !due.places.is_empty() {
            self.drop_passed();
        }
        for place in due.places {
            self.begin_read(place, false);
        }
        for end in due.entered {
            self.read_ahead(end);
        }
    }

    /// True if [`begin_due`](Self::begin_due) has something to do.
    pub(super) fn has_due(&self) -> bool {
        let due = self.due.borrow();
        !due.places.is_empty() || !due.entered.is_empty()
    }

    /// Begins a read that was asked for, if there is room for what it brings, else it waits for that. `is_its_turn`: it has
    /// waited; the answer is then whether others may have their turn as well.
    pub fn begin_read(&self, place: Ordinal, is_its_turn: bool) -> bool {
        let mut all = self.asked.borrow_mut();
        let Some(asked) = all.get_mut(&place).filter(|asked| asked.reserved == 0) else {
            return true;
        };
        let Some(bytes) = self.backlog.reserve(is_its_turn) else {
            let read = Waiting::Feed(self.topic, place);
            if is_its_turn {
                self.backlog.wait_on(read);
            } else {
                self.backlog.wait(read);
            }
            self.host.read_waits();
            return false;
        };
        asked.reserved = bytes;
        let entries_max = asked.entries_max;
        drop(all);
        self.backlog.set_holder(self.topic, true);
        self.host.read(self.topic, place, entries_max, bytes);
        true
    }

    /// Returns the number of entries between a position and the next page, here or being read.
    fn entries_to_next(&self, asked: &BTreeMap<Ordinal, Asked>, place: Ordinal) -> usize {
        let behind = (Bound::Excluded(place), Bound::Unbounded);
        let on_its_way = asked.range(behind).next().map(|(first, _)| *first);
        let here = self.window.borrow_mut().pages().first_behind(place);
        let next = [on_its_way, here].into_iter().flatten().min();
        next.map_or(usize::MAX, |next| {
            usize::try_from(place.count_to(next)).unwrap_or(usize::MAX)
        })
    }

    /// Sees to it that the pages after one that ends here are on their way.
    fn read_ahead(&self, end: Ordinal) {
        let mut next = end;
        // Where a page of a compacted view will end cannot be guessed.
        let ahead = if self.is_compacted() { 1 } else { AHEAD };
        for _ in 0..ahead {
            let here = self.window.borrow_mut().pages().end_of(next);
            if here.is_none() && !self.read_one_ahead(next) {
                return;
            }
            let on_its_way = || self.asked.borrow().get(&next).map(|asked| asked.end(next));
            let Some(end) = here.or_else(on_its_way) else {
                return;
            };
            next = end;
        }
    }

    /// Asks for a page that no consumer waits for yet, unless it is on its way. `false`: nothing is to be read there, or there is
    /// no room.
    fn read_one_ahead(&self, place: Ordinal) -> bool {
        let mut all = self.asked.borrow_mut();
        if all.contains_key(&place) {
            return true;
        }
        // At the tail there is nothing to read.
        if !self.window.borrow().is_elsewhere(place) {
            return false;
        }
        let Some(bytes) = self.backlog.reserve_ahead() else {
            return false;
        };
        let likely = self.window.borrow_mut().pages().likely_entries(bytes);
        let entries_max = self
            .entries_to_next(&all, place)
            .min(likely)
            .min(READ_ENTRIES_MAX);
        let ahead = Asked {
            reserved: bytes,
            entries_max,
            ..Asked::default()
        };
        all.insert(place, ahead);
        drop(all);
        self.backlog.set_holder(self.topic, true);
        self.host.read(self.topic, place, entries_max, bytes);
        true
    }

    /// A read that was asked for is answered. `resume`: the first entry that still exists at or after `from`.
    pub fn on_read(&self, from: Ordinal, resume: Ordinal, entries: Vec<Arc<FeedEntry>>) {
        if !self.asked.borrow().contains_key(&from) {
            // It was not asked for, or it was asked by a feed that is gone.
            return;
        }
        // As long as this page counts as on its way, those behind it stay.
        self.drop_passed();
        let asked = self.asked.borrow_mut().remove(&from).unwrap_or_default();
        self.backlog.release(asked.reserved);
        let end = entries.last().map(|entry| entry.ordinal.next());
        self.remember_ledgers(&entries);
        self.with_pages(|pages| match self.is_compacted() {
            true => pages.insert_at(from, entries),
            false => pages.insert(entries),
        });
        for connection in &asked.connections {
            let group = self.groups.borrow().get(connection).cloned();
            if let Some(group) = group {
                group.on_read(from, resume);
                self.host.wake(*connection);
            }
        }
        if self.groups.borrow().is_empty() {
            self.with_pages(Pages::clear);
        } else if let Some(end) = end {
            if !asked.connections.is_empty() {
                self.read_ahead(end);
            } else if self.window.borrow_mut().pages().is_visited_before(from) {
                self.read_ahead(from);
            }
        }
    }

    /// A read that was asked for failed. Who waits goes on waiting: it is tried again after a while.
    pub fn on_read_failed(&self, from: Ordinal) {
        let mut all = self.asked.borrow_mut();
        let Some(asked) = all.get_mut(&from) else {
            return;
        };
        self.backlog.release(std::mem::take(&mut asked.reserved));
        asked.failures = asked.failures.saturating_add(1);
        let delay = retry_delay(asked.failures);
        // What was read ahead is asked for again when it is needed.
        let is_wanted = !asked.connections.is_empty() && !self.groups.borrow().is_empty();
        if !is_wanted {
            all.remove(&from);
        }
        drop(all);
        self.with_pages(|_| ());
        if is_wanted {
            self.host.read_later(self.topic, from, delay);
        }
    }

    /// Lets go of the pages that were not used since `since`.
    pub fn drop_unused(&self, since: Nanos) {
        let is_unused = self.window.borrow_mut().pages().used_at() < since;
        if is_unused {
            self.with_pages(Pages::clear);
        }
    }

    /// Lets go of the pages that all stream consumers have passed.
    pub(super) fn drop_passed(&self) {
        if self.window.borrow_mut().pages().is_empty() {
            return;
        }
        let groups = self.groups.borrow();
        let mut places = Vec::new();
        let mut left = CONSUMERS_SCANNED;
        for group in groups.values() {
            let Some(rest) = left.checked_sub(group.len()) else {
                return;
            };
            left = rest;
            group.for_each(|consumer| places.push(consumer.next));
        }
        drop(groups);
        places.sort_unstable();
        let reach = if self.backlog.is_short() {
            AHEAD
        } else {
            KEPT_AHEAD
        };
        let asked = self.asked.borrow();
        self.with_pages(|pages| {
            pages.retain(&places, reach, |place| {
                asked.get(&place).map(|asked| asked.end(place))
            });
        });
    }

    /// Changes the pages and keeps the account right.
    pub(super) fn with_pages(&self, change: impl FnOnce(&mut Pages)) {
        let (before, after) = {
            let mut window = self.window.borrow_mut();
            let pages = window.pages();
            let before = pages.bytes();
            change(pages);
            (before, pages.bytes())
        };
        self.backlog.release(before);
        self.backlog.add(after);
        let is_reading = || self.asked.borrow().values().any(|asked| asked.reserved > 0);
        self.backlog.set_holder(self.topic, after > 0 || is_reading());
        if self.backlog.waiting() > 0 {
            self.host.read_room();
        }
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        let reserved: usize = self.asked.get_mut().values().map(|asked| asked.reserved).sum();
        self.backlog
            .release(reserved + self.window.get_mut().pages().bytes());
        self.backlog.set_holder(self.topic, false);
    }
}
