//! The entries of one topic that a shard has at hand: the newest ones, and pages read back for those behind.
//!
//! Always true: `recent` is contiguous and ends at `tail`; both parts stay within their byte budgets, whatever
//! stream consumers do, because anything here can be read again from the topic's home.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use pharos_runtime::Nanos;
use pharos_types::Ordinal;

use super::Newest;
use super::pages::Pages;
use crate::entry::FeedEntry;

/// Bytes of the newest entries kept at hand, per topic and shard; all topics together are bounded by [`Newest`].
const RECENT_BYTES_MAX: usize = 16 << 20;

/// Memory of a held entry besides its payload, in bytes.
const ENTRY_COST: usize = size_of::<FeedEntry>() + 24;

/// Result of a look-up of one position in the topic.
#[derive(Debug)]
pub enum Found {
    /// Here it is.
    Entry(Arc<FeedEntry>),
    /// Nothing there yet: it is the tail.
    AtTail,
    /// The entry exists but is not in memory; it must be read.
    Elsewhere,
}

/// The entries at hand.
#[derive(Debug)]
pub(crate) struct Window {
    recent: VecDeque<Arc<FeedEntry>>,
    recent_bytes: usize,
    account: Rc<Newest>,
    pages: Pages,
    /// The end of what is durable, exclusive.
    tail: Ordinal,
}

impl Window {
    /// Nothing at hand of a topic that ends at `tail`. `account`: that of all feeds of the shard.
    #[must_use]
    pub(crate) fn new(tail: Ordinal, account: Rc<Newest>) -> Self {
        Self {
            recent: VecDeque::new(),
            recent_bytes: 0,
            account,
            pages: Pages::default(),
            tail,
        }
    }

    /// The end of what is durable, exclusive.
    #[must_use]
    pub(crate) fn tail(&self) -> Ordinal {
        self.tail
    }

    /// The tail is at least here, as heard from the topic's home by another way than [`push`](Self::push).
    pub(crate) fn raise_tail(&mut self, tail: Ordinal) {
        if tail > self.tail {
            self.tail = tail;
            self.forget_recent();
        }
    }

    /// Takes the next newest entry.
    pub(crate) fn push(&mut self, entry: Arc<FeedEntry>) {
        if entry.ordinal < self.tail {
            return; // Known already: a seed that was newer than this message.
        }
        self.raise_tail(entry.ordinal);
        self.tail = entry.ordinal.next();
        let bytes = cost(&entry);
        self.recent_bytes += bytes;
        self.account.add(bytes);
        self.recent.push_back(entry);
        while self.recent_bytes > RECENT_BYTES_MAX && self.recent.len() > 1 {
            self.forget_first();
        }
    }

    /// Lets go of the newest entries that were durable until then.
    pub(crate) fn forget_until(&mut self, until: Nanos) {
        while self.recent.front().is_some_and(|entry| entry.durable_at <= until) {
            self.forget_first();
        }
        if self.recent.is_empty() {
            self.recent = VecDeque::new();
        }
    }

    /// Returns the number of newest entries in memory.
    pub(crate) fn at_hand(&self) -> usize {
        self.recent.len()
    }

    fn forget_first(&mut self) {
        if let Some(old) = self.recent.pop_front() {
            let bytes = cost(&old);
            self.recent_bytes -= bytes;
            self.account.release(bytes);
        }
    }

    fn forget_recent(&mut self) {
        self.recent = VecDeque::new();
        self.account.release(std::mem::take(&mut self.recent_bytes));
    }

    /// Returns the pages read back from the log.
    pub(crate) fn pages(&mut self) -> &mut Pages {
        &mut self.pages
    }

    /// True if an entry exists that is not in memory.
    pub(crate) fn is_elsewhere(&self, ordinal: Ordinal) -> bool {
        ordinal.count_to(self.tail) > self.recent.len() as u64 && self.pages.end_of(ordinal).is_none()
    }

    /// Looks at one place; says also where its page ends, when this is the first look at that.
    #[must_use]
    pub(crate) fn find(&mut self, ordinal: Ordinal) -> (Found, Option<Ordinal>) {
        if ordinal >= self.tail {
            return (Found::AtTail, None);
        }
        let from_tail = ordinal.count_to(self.tail);
        let at_hand = self.recent.len() as u64;
        if from_tail <= at_hand {
            let index = (at_hand - from_tail) as usize;
            if let Some(entry) = self.recent.get(index) {
                return (Found::Entry(entry.clone()), None);
            }
        }
        match self.pages.find(ordinal) {
            Some((entry, entered)) => (Found::Entry(entry), entered),
            None => (Found::Elsewhere, None),
        }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        self.forget_recent();
    }
}

/// Returns the memory that an entry counts for, in bytes.
pub(super) fn cost(entry: &FeedEntry) -> usize {
    entry.payload.len() + ENTRY_COST
}

#[cfg(test)]
pub(super) mod tests {
    use bytes::Bytes;
    use pharos_runtime::Nanos;
    use pharos_types::Position;

    use super::*;
    use crate::entry::EntryFacts;

    pub(crate) fn entry(ordinal: u64, bytes: usize) -> Arc<FeedEntry> {
        Arc::new(FeedEntry {
            ordinal: Ordinal(ordinal),
            position: Position::new(1, ordinal),
            payload: Bytes::from(vec![0; bytes]),
            facts: EntryFacts::default(),
            durable_at: Nanos(1),
        })
    }

    fn account() -> Rc<Newest> {
        Rc::new(Newest::new(usize::MAX))
    }

    fn has(window: &mut Window, ordinal: u64) -> bool {
        matches!(window.find(Ordinal(ordinal)).0, Found::Entry(e) if e.ordinal == Ordinal(ordinal))
    }

    #[test]
    fn what_was_durable_until_then_goes_and_the_account_is_right() {
        let account = account();
        let mut window = Window::new(Ordinal(0), account.clone());
        for ordinal in 0..4 {
            let mut entry = entry(ordinal, 1000);
            if let Some(entry) = Arc::get_mut(&mut entry) {
                entry.durable_at = Nanos(10 * ordinal);
            }
            window.push(entry);
        }
        assert_eq!(account.used(), 4 * (1000 + ENTRY_COST));
        window.forget_until(Nanos(10));
        assert!(!has(&mut window, 1) && window.is_elsewhere(Ordinal(1)));
        assert!(has(&mut window, 2) && has(&mut window, 3));
        assert_eq!(account.used(), 2 * (1000 + ENTRY_COST));
        window.raise_tail(Ordinal(10));
        assert_eq!(account.used(), 0);
        window.push(entry(10, 5));
        drop(window);
        assert_eq!(account.used(), 0);
    }

    #[test]
    fn the_newest_are_at_hand_and_the_old_are_elsewhere() {
        let mut window = Window::new(Ordinal(10), account());
        for ordinal in 10..14 {
            window.push(entry(ordinal, RECENT_BYTES_MAX / 2 - ENTRY_COST));
        }
        assert!(has(&mut window, 13) && has(&mut window, 12));
        assert!(matches!(window.find(Ordinal(11)).0, Found::Elsewhere));
        assert!(matches!(window.find(Ordinal(14)).0, Found::AtTail));
    }

    #[test]
    fn a_gap_heard_of_elsewhere_keeps_the_window_contiguous() {
        let mut window = Window::new(Ordinal(0), account());
        window.push(entry(0, 10));
        window.push(entry(5, 10));
        assert!(has(&mut window, 5));
        assert!(matches!(window.find(Ordinal(0)).0, Found::Elsewhere));
        assert!(matches!(window.find(Ordinal(3)).0, Found::Elsewhere));
        window.push(entry(4, 10));
        assert_eq!(window.tail(), Ordinal(6));
    }
}
