//! The entry cache: the newest entries of one managed ledger, within its own and a shared byte budget.
//!
//! Owned by its managed ledger. Always true: it holds an unbroken run of entries that ends at the tail, so "is it cached"
//! is one comparison; the budget counts exactly what is held.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use pharos_types::Ordinal;

/// Counted for each entry beside its payload.
const ENTRY_OVERHEAD: usize = 64;

/// The bytes that all entry caches of a process may hold together. Clones share one account.
///
/// Soft by one entry per managed ledger: each evicts its own oldest entries when the whole is over the limit.
#[derive(Clone, Debug)]
pub struct CacheBudget {
    used: Arc<AtomicUsize>,
    bytes_max: usize,
}

impl CacheBudget {
    /// A budget of `bytes_max`; 0 turns caching off.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self {
            used: Arc::default(),
            bytes_max,
        }
    }

    /// Bytes held now.
    #[must_use]
    pub fn bytes_used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// The limit.
    #[must_use]
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }
}

pub(crate) struct EntryCache {
    budget: CacheBudget,
    bytes_max: usize,
    first: u64,
    entries: VecDeque<Bytes>,
    bytes: usize,
    /// Entries below this were there at `marked_ms`; for eviction by age.
    mark: u64,
    marked_ms: u64,
    /// Tail position at the last check but one, and at the last, for [`age`](Self::age).
    looks: [u64; 2],
}

impl EntryCache {
    pub(crate) fn new(budget: CacheBudget, bytes_max: usize, next: Ordinal) -> Self {
        Self {
            budget,
            bytes_max,
            first: next.0,
            entries: VecDeque::new(),
            bytes: 0,
            mark: 0,
            marked_ms: 0,
            looks: [0; 2],
        }
    }

    /// Takes the entry at the tail; `ordinal` follows the last one.
    pub(crate) fn push(&mut self, ordinal: Ordinal, payload: Bytes) {
        if ordinal.0 != self.first + self.entries.len() as u64 {
            self.clear();
            self.first = ordinal.0;
        }
        let bytes = payload.len() + ENTRY_OVERHEAD;
        self.bytes += bytes;
        self.budget.used.fetch_add(bytes, Ordering::Relaxed);
        self.entries.push_back(payload);
        while self.bytes > self.bytes_max || self.budget.bytes_used() > self.budget.bytes_max {
            if !self.evict_first() {
                break;
            }
        }
    }

    /// Entries from `from` on, while they are cached and lie before `end`: at least one, then as fits.
    pub(crate) fn get(
        &self,
        from: Ordinal,
        end: Ordinal,
        entries_max: usize,
        bytes_max: usize,
    ) -> impl Iterator<Item = (Ordinal, &Bytes)> {
        let skip = from
            .0
            .checked_sub(self.first)
            .map_or(usize::MAX, |skip| usize::try_from(skip).unwrap_or(usize::MAX));
        let count = entries_max.min(usize::try_from(from.count_to(end)).unwrap_or(usize::MAX));
        let mut bytes = 0usize;
        let cached = self.entries.iter().skip(skip).take(count).enumerate();
        cached
            .take_while(move |(index, payload)| {
                bytes = bytes.saturating_add(payload.len());
                *index == 0 || bytes <= bytes_max
            })
            .map(move |(index, payload)| (from.plus(index as u64), payload))
    }

    /// True if `ordinal` is held.
    pub(crate) fn holds(&self, ordinal: Ordinal) -> bool {
        ordinal.0 >= self.first && ordinal.0 - self.first < self.entries.len() as u64
    }

    /// Gives back entries older than `age_ms` when more than half of the shared budget is in use, so that busy managed
    /// ledgers are not starved by idle ones. Call it now and then.
    pub(crate) fn on_tick(&mut self, now_ms: u64, age_ms: u64) {
        if now_ms < self.marked_ms.saturating_add(age_ms) {
            return;
        }
        if self.budget.bytes_used() > self.budget.bytes_max / 2 {
            while self.first < self.mark && self.evict_first() {}
        }
        self.mark = self.first + self.entries.len() as u64;
        self.marked_ms = now_ms;
        if self.entries.is_empty() {
            self.entries.shrink_to_fit();
        }
    }

    /// Gives back what was there at the last look but one already, however much room there is: memory that was needed once is not
    /// kept for good.
    pub(crate) fn age(&mut self) {
        while self.first < self.looks[0] && self.evict_first() {}
        self.looks = [self.looks[1], self.first + self.entries.len() as u64];
        if self.entries.is_empty() {
            self.entries = VecDeque::new();
        }
    }

    /// Gives back entries before `end`.
    pub(crate) fn forget_before(&mut self, end: Ordinal) {
        while self.first < end.0 && self.evict_first() {}
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn clear(&mut self) {
        while self.evict_first() {}
    }

    fn evict_first(&mut self) -> bool {
        let Some(payload) = self.entries.pop_front() else {
            return false;
        };
        let bytes = payload.len() + ENTRY_OVERHEAD;
        self.first += 1;
        self.bytes -= bytes;
        self.budget.used.fetch_sub(bytes, Ordering::Relaxed);
        true
    }
}

impl Drop for EntryCache {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cached(cache: &EntryCache, from: u64, end: u64, entries: usize, bytes: usize) -> Vec<u64> {
        cache
            .get(Ordinal(from), Ordinal(end), entries, bytes)
            .map(|(ordinal, _)| ordinal.0)
            .collect()
    }

    #[test]
    fn what_lies_before_an_end_is_forgotten() {
        let budget = CacheBudget::new(10_000);
        let mut cache = EntryCache::new(budget.clone(), usize::MAX, Ordinal(5));
        for ordinal in 5..9 {
            cache.push(Ordinal(ordinal), Bytes::from(vec![0; 100]));
        }
        cache.forget_before(Ordinal(7));
        assert!(!cache.holds(Ordinal(6)) && cache.holds(Ordinal(7)));
        assert_eq!(budget.bytes_used(), 2 * (100 + ENTRY_OVERHEAD));
        cache.forget_before(Ordinal(20));
        assert_eq!((cache.bytes(), budget.bytes_used()), (0, 0));
        cache.push(Ordinal(9), Bytes::from(vec![0; 100]));
        assert!(cache.holds(Ordinal(9)), "the run goes on at the tail");
    }

    #[test]
    fn it_keeps_the_newest_within_its_budget() {
        let budget = CacheBudget::new(10_000);
        let mut cache = EntryCache::new(budget.clone(), 3 * (100 + ENTRY_OVERHEAD), Ordinal(5));
        for ordinal in 5..15 {
            cache.push(Ordinal(ordinal), Bytes::from(vec![0; 100]));
        }
        assert_eq!(cached(&cache, 12, 15, 9, 900), [12, 13, 14]);
        assert_eq!(cached(&cache, 12, 14, 9, 900), [12, 13]);
        assert_eq!(cached(&cache, 12, 15, 1, 900), [12]);
        assert_eq!(cached(&cache, 12, 15, 9, 150), [12]);
        assert_eq!(cached(&cache, 12, 15, 9, 1), [12]);
        assert!(cached(&cache, 11, 15, 9, 900).is_empty());
        assert!(cached(&cache, 15, 15, 9, 900).is_empty());
        assert!(!cache.holds(Ordinal(11)) && cache.holds(Ordinal(12)) && !cache.holds(Ordinal(15)));
        drop(cache);
        assert_eq!(budget.bytes_used(), 0);
    }

    #[test]
    fn what_is_old_goes_although_there_is_room() {
        let budget = CacheBudget::new(10_000);
        let mut cache = EntryCache::new(budget.clone(), usize::MAX, Ordinal(5));
        cache.age();
        cache.push(Ordinal(5), Bytes::from(vec![0; 100]));
        cache.age();
        cache.push(Ordinal(6), Bytes::from(vec![0; 100]));
        cache.age();
        assert!(cache.holds(Ordinal(5)), "not old enough yet");
        cache.age();
        assert!(!cache.holds(Ordinal(5)) && cache.holds(Ordinal(6)));
        cache.age();
        assert_eq!((cache.entries.capacity(), budget.bytes_used()), (0, 0));
        cache.push(Ordinal(7), Bytes::from(vec![0; 100]));
        assert!(cache.holds(Ordinal(7)));
    }

    #[test]
    fn the_shared_budget_bounds_all_and_idle_ones_give_back() {
        let budget = CacheBudget::new(10 * (100 + ENTRY_OVERHEAD));
        let mut idle = EntryCache::new(budget.clone(), usize::MAX, Ordinal(0));
        let mut busy = EntryCache::new(budget.clone(), usize::MAX, Ordinal(0));
        idle.on_tick(0, 1_000);
        for ordinal in 0..8 {
            idle.push(Ordinal(ordinal), Bytes::from(vec![0; 100]));
        }
        for ordinal in 0..8 {
            busy.push(Ordinal(ordinal), Bytes::from(vec![0; 100]));
        }
        assert_eq!((idle.entries.len(), busy.entries.len()), (8, 2));
        idle.on_tick(1_000, 1_000);
        assert_eq!(idle.entries.len(), 8, "not old enough yet");
        idle.on_tick(2_000, 1_000);
        assert_eq!(idle.entries.len(), 0);
        assert_eq!(budget.bytes_used(), 2 * (100 + ENTRY_OVERHEAD));
    }
}
