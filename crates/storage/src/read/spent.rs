//! Share of the read cache for pieces whose entries have all been handed out.
//!
//! ```text
//!  handed out ─► spent ─► not wanted again, dropped: the share shrinks ─► read again: the share grows
//!                   └───► wanted again, dropped later
//! ```
//! A reader of a backlog from front to back wants nothing twice. Then the fewer pieces are spent, the fewer are in
//! use, and memory that is used again soon is what device and processors have in their caches. But another reader may
//! follow at a distance, for example on another subscription, and wants what is spent.

use std::collections::{HashSet, VecDeque};

use super::extents::{EXTENT_BYTES, Key};

/// The share at first, and the least, of what the cache may hold.
const FIRST_PART: u64 = 2;
const LEAST_PART: u64 = 8;
/// Growth of the share for each extent that is read again, relative to its decrease for each one that was not wanted.
const GROWTH: u64 = 8;

/// The share of spent pieces.
#[derive(Debug)]
pub(super) struct Spent {
    /// In bytes: now, at least, at most.
    share: u64,
    least: u64,
    most: u64,
    /// The extents that were dropped last, the oldest first, and those of them that were not read again.
    names: VecDeque<Key>,
    missing: HashSet<Key>,
}

impl Spent {
    /// For a cache of so many bytes.
    pub(super) fn new(cache_bytes: u64) -> Self {
        Self {
            share: cache_bytes / FIRST_PART,
            least: cache_bytes / LEAST_PART,
            most: cache_bytes,
            names: VecDeque::new(),
            missing: HashSet::new(),
        }
    }

    /// The most that spent pieces may take, in bytes.
    pub(super) fn share(&self) -> u64 {
        self.share
    }

    /// A spent piece was dropped: so many extents from the first on. `was_wanted`: it has been read since it was spent.
    pub(super) fn dropped(&mut self, (dir, log, first): Key, extents: u32, was_wanted: bool) {
        if !was_wanted {
            let shrunk = self.share.saturating_sub(u64::from(extents) * EXTENT_BYTES);
            self.share = shrunk.max(self.least);
        }
        let names_max = usize::try_from(self.most / EXTENT_BYTES).unwrap_or(usize::MAX);
        for number in first..first.saturating_add(extents) {
            while self.names.len() >= names_max
                && let Some(oldest) = self.names.pop_front()
            {
                self.missing.remove(&oldest);
            }
            let name = (dir, log, number);
            self.missing.insert(name);
            self.names.push_back(name);
        }
    }

    /// An extent was read.
    pub(super) fn was_read(&mut self, name: Key) {
        if self.missing.remove(&name) {
            self.share = (self.share + GROWTH * EXTENT_BYTES).min(self.most);
        }
    }

    /// A log is gone.
    pub(super) fn forget(&mut self, dir: u16, log: u32) {
        self.missing.retain(|name| (name.0, name.1) != (dir, log));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CACHE: u64 = 64 * EXTENT_BYTES;

    #[test]
    fn the_share_shrinks_without_followers_and_grows_with_them() {
        let mut spent = Spent::new(CACHE);
        assert_eq!(spent.share(), CACHE / FIRST_PART);
        for number in 0..10 {
            spent.dropped((0, 0, number), 1, false);
        }
        assert_eq!(spent.share(), CACHE / FIRST_PART - 10 * EXTENT_BYTES);
        for number in 10..200 {
            spent.dropped((0, 0, number), 1, false);
        }
        assert_eq!((spent.share(), spent.names.len()), (CACHE / LEAST_PART, 64));
        // A reader follows 20 extents behind what is dropped.
        for number in 200..210 {
            spent.dropped((0, 0, number), 1, false);
            spent.was_read((0, 0, number - 20));
        }
        assert_eq!(spent.share(), CACHE);
        // From now on he finds what he wants.
        for number in 210..1000 {
            spent.dropped((0, 0, number), 1, true);
        }
        assert_eq!(spent.share(), CACHE);
    }

    #[test]
    fn what_was_never_here_or_is_long_gone_says_nothing() {
        let mut spent = Spent::new(CACHE);
        spent.dropped((0, 0, 0), 4, true);
        spent.dropped((0, 1, 0), 1, true);
        spent.was_read((1, 0, 0));
        spent.was_read((0, 0, 4));
        spent.forget(0, 1);
        spent.was_read((0, 1, 0));
        assert_eq!(spent.share(), CACHE / FIRST_PART);
        spent.was_read((0, 0, 3));
        spent.was_read((0, 0, 3));
        assert_eq!(spent.share(), CACHE / FIRST_PART + GROWTH * EXTENT_BYTES);
        for number in 100..164 {
            spent.dropped((0, 0, number), 1, true);
        }
        spent.was_read((0, 0, 0));
        assert_eq!(spent.share(), CACHE / FIRST_PART + GROWTH * EXTENT_BYTES);
    }

    #[test]
    fn a_cache_of_nothing_remembers_nothing() {
        let mut spent = Spent::new(0);
        spent.dropped((0, 0, 0), 4, false);
        spent.was_read((0, 0, 3));
        assert_eq!(spent.share(), 0);
    }
}
