//! The entries of one topic that a shard has at hand: the newest ones, and pages read back for those behind.
//!
//! Always true: `recent` is contiguous and ends at `tail`; both parts stay within their byte budgets, whatever
//! listeners do, because anything here can be read again from the topic's home.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use pharos_types::Ordinal;

use crate::entry::FeedEntry;

/// Bytes of the newest entries kept at hand, per topic and shard.
const RECENT_BYTES_MAX: usize = 16 << 20;
/// Bytes of entries read back, per topic and shard.
const PAGES_BYTES_MAX: usize = 16 << 20;

/// What is known about one place in the topic.
#[derive(Debug)]
pub enum Found {
    /// Here it is.
    Entry(Arc<FeedEntry>),
    /// Nothing there yet: it is the tail.
    AtTail,
    /// It exists but is not at hand; it must be read.
    Elsewhere,
}

/// The entries at hand.
#[derive(Debug)]
pub(crate) struct Window {
    recent: VecDeque<Arc<FeedEntry>>,
    recent_bytes: usize,
    pages: BTreeMap<Ordinal, Arc<FeedEntry>>,
    pages_bytes: usize,
    /// The end of what is durable, exclusive.
    tail: Ordinal,
}

impl Window {
    /// Nothing at hand of a topic that ends at `tail`.
    #[must_use]
    pub(crate) fn new(tail: Ordinal) -> Self {
        Self {
            recent: VecDeque::new(),
            recent_bytes: 0,
            pages: BTreeMap::new(),
            pages_bytes: 0,
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
            self.recent.clear();
            self.recent_bytes = 0;
        }
    }

    /// Takes the next newest entry.
    pub(crate) fn push(&mut self, entry: Arc<FeedEntry>) {
        if entry.ordinal < self.tail {
            return; // Known already: a seed that was newer than this message.
        }
        self.raise_tail(entry.ordinal);
        self.tail = entry.ordinal.next();
        self.recent_bytes += entry.payload.len();
        self.recent.push_back(entry);
        while self.recent_bytes > RECENT_BYTES_MAX && self.recent.len() > 1 {
            if let Some(old) = self.recent.pop_front() {
                self.recent_bytes -= old.payload.len();
            }
        }
    }

    /// Takes entries that were read back. The oldest pages make room.
    pub(crate) fn insert_pages(&mut self, entries: Vec<Arc<FeedEntry>>) {
        let room = entries.iter().map(|entry| entry.payload.len()).sum::<usize>();
        while self.pages_bytes + room > PAGES_BYTES_MAX {
            let Some((_, old)) = self.pages.pop_first() else {
                break;
            };
            self.pages_bytes -= old.payload.len();
        }
        for entry in entries {
            self.pages_bytes += entry.payload.len();
            if let Some(old) = self.pages.insert(entry.ordinal, entry) {
                self.pages_bytes -= old.payload.len();
            }
        }
    }

    /// Forgets what was read back, once nobody is behind any more.
    pub(crate) fn clear_pages(&mut self) {
        self.pages.clear();
        self.pages_bytes = 0;
    }

    /// Looks at one place.
    #[must_use]
    pub(crate) fn find(&self, ordinal: Ordinal) -> Found {
        if ordinal >= self.tail {
            return Found::AtTail;
        }
        let from_tail = ordinal.count_to(self.tail);
        let at_hand = self.recent.len() as u64;
        if from_tail <= at_hand {
            let index = (at_hand - from_tail) as usize;
            if let Some(entry) = self.recent.get(index) {
                return Found::Entry(entry.clone());
            }
        }
        self.pages
            .get(&ordinal)
            .map_or(Found::Elsewhere, |entry| Found::Entry(entry.clone()))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use pharos_runtime::Nanos;
    use pharos_types::Position;

    use super::*;
    use crate::entry::EntryFacts;

    fn entry(ordinal: u64, bytes: usize) -> Arc<FeedEntry> {
        Arc::new(FeedEntry {
            ordinal: Ordinal(ordinal),
            position: Position::new(1, ordinal),
            payload: Bytes::from(vec![0; bytes]),
            facts: EntryFacts::default(),
            durable_at: Nanos(1),
        })
    }

    fn has(window: &Window, ordinal: u64) -> bool {
        matches!(window.find(Ordinal(ordinal)), Found::Entry(e) if e.ordinal == Ordinal(ordinal))
    }

    #[test]
    fn the_newest_are_at_hand_and_the_old_are_elsewhere() {
        let mut window = Window::new(Ordinal(10));
        for ordinal in 10..14 {
            window.push(entry(ordinal, RECENT_BYTES_MAX / 2));
        }
        assert!(has(&window, 13) && has(&window, 12));
        assert!(matches!(window.find(Ordinal(11)), Found::Elsewhere));
        assert!(matches!(window.find(Ordinal(14)), Found::AtTail));
    }

    #[test]
    fn a_gap_heard_of_elsewhere_keeps_the_window_contiguous() {
        let mut window = Window::new(Ordinal(0));
        window.push(entry(0, 10));
        window.push(entry(5, 10));
        assert!(has(&window, 5));
        assert!(matches!(window.find(Ordinal(0)), Found::Elsewhere));
        assert!(matches!(window.find(Ordinal(3)), Found::Elsewhere));
        window.push(entry(4, 10));
        assert_eq!(window.tail(), Ordinal(6));
    }

    #[test]
    fn pages_stay_within_their_budget() {
        let mut window = Window::new(Ordinal(100));
        window.insert_pages((0..4).map(|i| entry(i, PAGES_BYTES_MAX / 4)).collect());
        window.insert_pages(vec![entry(7, PAGES_BYTES_MAX / 4)]);
        assert!(!has(&window, 0));
        assert!(has(&window, 1) && has(&window, 7));
        assert!(window.pages_bytes <= PAGES_BYTES_MAX);
    }
}
