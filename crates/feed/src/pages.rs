//! Entries of one topic that were read back from the log for stream consumers that are behind: one page for each read.
//!
//! Always true: `bytes` is the weight of what the pages hold; the entries of a page are dense, but in a compacted view: there the
//! place of an entry that is gone is that of the next one of its page.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use pharos_runtime::{Nanos, clock};
use pharos_types::Ordinal;

use crate::entry::FeedEntry;

/// The most that is held of one topic on one shard, in bytes.
const BYTES_MAX: usize = 16 << 20;
/// Approximate memory of an entry besides its payload, in bytes.
const ENTRY_BYTES: usize = 160;

#[derive(Debug)]
struct Page {
    entries: Vec<Arc<FeedEntry>>,
    bytes: usize,
    /// Some stream consumer was given an entry of it.
    is_visited: bool,
}

impl Page {
    fn end(&self) -> Ordinal {
        self.entries
            .last()
            .map_or(Ordinal(0), |entry| entry.ordinal.next())
    }
}

/// The pages of a topic.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    /// By the first ordinal.
    pages: BTreeMap<Ordinal, Page>,
    bytes: usize,
    /// Average weight of an entry of the last page, in bytes.
    entry_bytes: usize,
    /// Time of the last insertion or access.
    used_at: Nanos,
}

/// Returns the weight of an entry, in bytes.
pub(crate) fn weight(entry: &FeedEntry) -> usize {
    entry.payload.len() + ENTRY_BYTES
}

impl Pages {
    /// Returns the size of the pages, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// True if there is no page.
    pub(crate) fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Returns the time of the last insertion or access.
    pub(crate) fn used_at(&self) -> Nanos {
        self.used_at
    }

    /// Takes what one read brought. The lowest pages make room.
    pub(crate) fn insert(&mut self, entries: Vec<Arc<FeedEntry>>) {
        if let Some(first) = entries.first().map(|entry| entry.ordinal) {
            self.insert_at(first, entries);
        }
    }

    /// Inserts the result of a read at `first`, if there is nothing between that position and the first entry.
    pub(crate) fn insert_at(&mut self, first: Ordinal, entries: Vec<Arc<FeedEntry>>) {
        if entries.is_empty() {
            return;
        }
        self.used_at = clock::now();
        let bytes: usize = entries.iter().map(|entry| weight(entry)).sum();
        self.entry_bytes = bytes / entries.len();
        self.remove(first);
        while self.bytes + bytes > BYTES_MAX
            && let Some((_, old)) = self.pages.pop_first()
        {
            self.bytes -= old.bytes;
        }
        self.bytes += bytes;
        let page = Page {
            entries,
            bytes,
            is_visited: false,
        };
        self.pages.insert(first, page);
    }

    /// The entry at a place; and where its page ends, when this is the first look at that.
    pub(crate) fn find(&mut self, ordinal: Ordinal) -> Option<(Arc<FeedEntry>, Option<Ordinal>)> {
        let (first, page) = self.pages.range_mut(..=ordinal).next_back()?;
        let index = usize::try_from(first.count_to(ordinal)).ok()?;
        let dense = page.entries.get(index).filter(|entry| entry.ordinal == ordinal);
        let entry = match dense {
            Some(entry) => entry.clone(),
            None => {
                let index = page.entries.partition_point(|entry| entry.ordinal < ordinal);
                page.entries.get(index)?.clone()
            }
        };
        self.used_at = clock::now();
        let is_first = !std::mem::replace(&mut page.is_visited, true);
        Some((entry, is_first.then(|| page.end())))
    }

    /// Returns the end of the page that begins here.
    pub(crate) fn end_of(&self, first: Ordinal) -> Option<Ordinal> {
        self.pages.get(&first).map(Page::end)
    }

    /// Returns the start of the first page that begins behind a position.
    pub(crate) fn first_behind(&self, place: Ordinal) -> Option<Ordinal> {
        let behind = (Bound::Excluded(place), Bound::Unbounded);
        self.pages.range(behind).next().map(|(first, _)| *first)
    }

    /// Returns the number of entries that a read of at most `bytes_max` can probably return, a little less so that it
    /// does.
    pub(crate) fn likely_entries(&self, bytes_max: usize) -> usize {
        match self.entry_bytes {
            0 => usize::MAX,
            bytes => (bytes_max / 8 * 7 / bytes).max(1),
        }
    }

    /// True if the page that ends here was visited.
    pub(crate) fn is_visited_before(&self, end: Ordinal) -> bool {
        let before = self.pages.range(..end).next_back();
        before.is_some_and(|(_, page)| page.is_visited && page.end() == end)
    }

    /// Drops the pages in which no stream consumer stands and that none will reach within `reach` further pages. `places`: where
    /// stream consumers stand, rising. `on_its_way`: where the page ends that begins at a place and is being read.
    pub(crate) fn retain(
        &mut self,
        places: &[Ordinal],
        reach: usize,
        on_its_way: impl Fn(Ordinal) -> Option<Ordinal>,
    ) {
        let mut dropped = 0;
        // Where the unbroken row of pages begins that ends with the one looked at, as far as it matters.
        let mut row: VecDeque<Ordinal> = VecDeque::new();
        let mut row_end = Ordinal(0);
        self.pages.retain(|first, page| {
            while row_end < *first
                && let Some(end) = on_its_way(row_end)
            {
                row.push_back(row_end);
                row_end = end;
            }
            if *first != row_end {
                row.clear();
            }
            row.push_back(*first);
            while row.len() > reach + 1 {
                row.pop_front();
            }
            row_end = page.end();
            let from = row.front().copied().unwrap_or(*first);
            let at = places.partition_point(|place| *place < from);
            let is_wanted = places.get(at).is_some_and(|place| *place < row_end);
            if !is_wanted {
                dropped += page.bytes;
            }
            is_wanted
        });
        self.bytes -= dropped;
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.pages.clear();
        self.bytes = 0;
    }

    fn remove(&mut self, first: Ordinal) {
        if let Some(old) = self.pages.remove(&first) {
            self.bytes -= old.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::window::tests::entry;
    use super::*;

    fn page(first: u64, count: u64, bytes: usize) -> Vec<Arc<FeedEntry>> {
        (first..first + count)
            .map(|ordinal| entry(ordinal, bytes))
            .collect()
    }

    fn has(pages: &mut Pages, ordinal: u64) -> bool {
        matches!(pages.find(Ordinal(ordinal)), Some((entry, _)) if entry.ordinal == Ordinal(ordinal))
    }

    #[test]
    fn pages_of_a_topic_stay_within_their_limit() {
        let mut pages = Pages::default();
        for first in 0..5 {
            pages.insert(page(first * 10, 10, BYTES_MAX / 40 - ENTRY_BYTES));
        }
        assert_eq!(pages.bytes(), BYTES_MAX / 40 * 40);
        assert!(!has(&mut pages, 9) && has(&mut pages, 10) && has(&mut pages, 49));
        assert!(!has(&mut pages, 50));
        pages.insert(page(10, 1, 100));
        assert!(has(&mut pages, 10) && !has(&mut pages, 11));
        pages.clear();
        assert_eq!(pages.bytes(), 0);
    }

    #[test]
    fn a_place_without_an_entry_is_that_of_the_next_one_of_its_page() {
        let mut pages = Pages::default();
        pages.insert_at(Ordinal(3), [5, 6, 9].map(|ordinal| entry(ordinal, 1)).into());
        let mut at = |place| pages.find(Ordinal(place)).map(|(entry, _)| entry.ordinal.0);
        assert_eq!(
            [2, 3, 5, 6, 7, 9, 10].map(&mut at),
            [None, Some(5), Some(5), Some(6), Some(9), Some(9), None]
        );
    }

    #[test]
    fn the_first_look_at_a_page_is_noticed() {
        let mut pages = Pages::default();
        pages.insert(page(5, 5, 1));
        assert!(!pages.is_visited_before(Ordinal(10)));
        assert_eq!(pages.find(Ordinal(7)).unwrap().1, Some(Ordinal(10)));
        assert_eq!(pages.find(Ordinal(8)).unwrap().1, None);
        assert!(pages.is_visited_before(Ordinal(10)) && !pages.is_visited_before(Ordinal(9)));
        assert_eq!(pages.end_of(Ordinal(5)), Some(Ordinal(10)));
        assert_eq!(pages.end_of(Ordinal(6)), None);
    }

    #[test]
    fn what_all_have_passed_goes_and_what_comes_next_stays() {
        let mut pages = Pages::default();
        for first in [0, 10, 20, 30, 60] {
            pages.insert(page(first, 10, 100));
        }
        pages.retain(&[Ordinal(12), Ordinal(61)], 1, |_| None);
        let left: Vec<u64> = pages.pages.keys().map(|first| first.0).collect();
        assert_eq!(left, [10, 20, 60]);
        assert_eq!(pages.bytes(), 30 * (100 + ENTRY_BYTES));
        pages.retain(&[Ordinal(30)], 8, |_| None);
        assert!(pages.is_empty() && pages.bytes() == 0);
    }

    #[test]
    fn what_comes_behind_a_page_on_its_way_stays() {
        let mut pages = Pages::default();
        for first in [0, 20, 40] {
            pages.insert(page(first, 10, 100));
        }
        let on_its_way = |place: Ordinal| [10, 30].contains(&place.0).then(|| place.plus(10));
        pages.retain(&[Ordinal(3)], 8, on_its_way);
        assert_eq!(pages.pages.len(), 3);
        pages.retain(&[Ordinal(3)], 3, on_its_way);
        let left: Vec<u64> = pages.pages.keys().map(|first| first.0).collect();
        assert_eq!(left, [0, 20]);
        assert_eq!(pages.first_behind(Ordinal(0)), Some(Ordinal(20)));
        assert_eq!(pages.first_behind(Ordinal(20)), None);
        pages.retain(&[Ordinal(3)], 8, |_| None);
        assert!(has(&mut pages, 9) && !has(&mut pages, 20));
    }

    #[test]
    fn the_last_page_says_how_many_entries_a_read_will_bring() {
        let mut pages = Pages::default();
        assert_eq!(pages.likely_entries(8000), usize::MAX);
        pages.insert(page(0, 10, 1000 - ENTRY_BYTES));
        assert_eq!(pages.likely_entries(8000), 7);
        assert_eq!(pages.likely_entries(10), 1);
    }
}
