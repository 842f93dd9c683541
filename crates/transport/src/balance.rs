//! Number of connections per shard, and the choice of the shard for the next one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The counts, for all threads.
#[derive(Debug)]
pub struct Balance {
    counts: Box<[AtomicUsize]>,
}

/// A connection's place on a shard: it counts there as long as this lives.
#[derive(Debug)]
pub struct Place {
    balance: Arc<Balance>,
    shard: usize,
}

impl Balance {
    /// No connections, on this many shards.
    pub fn new(shards: usize) -> Arc<Self> {
        let counts = (0..shards.max(1)).map(|_| AtomicUsize::new(0)).collect();
        Arc::new(Self { counts })
    }

    /// A place on the shard with the fewest connections, of several on the first.
    pub fn place(self: &Arc<Self>) -> Place {
        let counts = self.counts.iter().enumerate();
        let fewest = counts.min_by_key(|(_, count)| count.load(Ordering::Relaxed));
        let shard = fewest.map_or(0, |(shard, _)| shard);
        if let Some(count) = self.counts.get(shard) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        Place {
            balance: self.clone(),
            shard,
        }
    }

    /// Number of connections on all shards.
    pub fn total(&self) -> usize {
        self.counts
            .iter()
            .map(|count| count.load(Ordering::Relaxed))
            .sum()
    }

    fn count(&self, shard: usize) -> usize {
        let count = self.counts.get(shard);
        count.map_or(usize::MAX, |count| count.load(Ordering::Relaxed))
    }
}

impl Place {
    /// The shard.
    pub fn shard(&self) -> usize {
        self.shard
    }

    /// A place on another shard, unless that has more connections than this one.
    pub fn elsewhere(&self, shard: usize) -> Option<Self> {
        let here = self.balance.count(self.shard);
        let one_more = |there: usize| (shard != self.shard && there <= here).then_some(there + 1);
        let count = self.balance.counts.get(shard)?;
        count
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more)
            .ok()?;
        let balance = self.balance.clone();
        Some(Self { balance, shard })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(count) = self.balance.counts.get(self.shard) {
            count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_one_goes_where_the_fewest_are() {
        let balance = Balance::new(3);
        let mut places: Vec<Place> = (0..6).map(|_| balance.place()).collect();
        let shards: Vec<usize> = places.iter().map(Place::shard).collect();
        assert_eq!(shards, [0, 1, 2, 0, 1, 2]);
        drop(places.remove(4));
        assert_eq!(balance.place().shard(), 1);
    }

    #[test]
    fn a_place_elsewhere_is_to_be_had_while_there_are_no_more_than_here() {
        let balance = Balance::new(2);
        let (one, other) = (balance.place(), balance.place());
        assert!(one.elsewhere(0).is_none() && one.elsewhere(2).is_none());
        let moved = one.elsewhere(1).unwrap();
        drop(one);
        assert_eq!((balance.count(0), balance.count(1)), (0, 2));
        let third = balance.place();
        assert_eq!(third.shard(), 0);
        assert!(third.elsewhere(1).is_none());
        drop((other, moved));
        assert_eq!((balance.count(0), balance.count(1)), (1, 0));
    }
}
