//! Device reads under way in one directory, so that nothing is read twice at the same time.
//!
//! Always true: the extents of two flights do not overlap.

use std::sync::PoisonError;

use pharos_runtime::sync::{Condvar, Mutex, MutexGuard};

/// Extents of one log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    log: u32,
    first: u32,
    end: u32,
}

impl Range {
    fn has(&self, log: u32, number: u32) -> bool {
        self.log == log && (self.first..self.end).contains(&number)
    }
}

/// The reads of a directory.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    under_way: Mutex<Vec<Range>>,
    landed: Condvar,
}

impl Flights {
    /// Begins a read of extents from `first` on: at most `count`, fewer when later ones are being read already. `None`: the
    /// first one was; that is over now, so look into the cache again.
    pub(crate) fn begin(&self, log: u32, first: u32, count: u32) -> Option<Flight<'_>> {
        let mut under_way = self.lock();
        if !under_way.iter().any(|range| range.has(log, first)) {
            return Some(self.take_off(&mut under_way, log, first, count));
        }
        while under_way.iter().any(|range| range.has(log, first)) {
            under_way = self
                .landed
                .wait(under_way)
                .unwrap_or_else(PoisonError::into_inner);
        }
        None
    }

    /// Begins a read without waiting.
    ///
    /// # Errors
    /// The number of the first extent behind the read that is in the way.
    pub(crate) fn try_begin(&self, log: u32, first: u32, count: u32) -> Result<Flight<'_>, u32> {
        let mut under_way = self.lock();
        match under_way.iter().find(|range| range.has(log, first)) {
            Some(range) => Err(range.end),
            None => Ok(self.take_off(&mut under_way, log, first, count)),
        }
    }

    fn take_off(&self, under_way: &mut Vec<Range>, log: u32, first: u32, count: u32) -> Flight<'_> {
        let next = under_way
            .iter()
            .filter(|range| range.log == log && range.first > first)
            .map(|range| range.first)
            .min();
        let end = first.saturating_add(count.max(1)).min(next.unwrap_or(u32::MAX));
        let range = Range { log, first, end };
        under_way.push(range);
        Flight { all: self, range }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Range>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A read under way; it lands when it is dropped, so put what it brought into the cache first.
#[derive(Debug)]
pub(crate) struct Flight<'a> {
    all: &'a Flights,
    range: Range,
}

impl Flight<'_> {
    /// Returns the number of extents that may be read.
    pub(crate) fn count(&self) -> u32 {
        self.range.end - self.range.first
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        self.all.lock().retain(|range| *range != self.range);
        self.all.landed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_read_twice_at_a_time() {
        let flights = Flights::default();
        let one = flights.begin(1, 10, 4).unwrap();
        assert_eq!(one.count(), 4);
        assert_eq!(flights.begin(1, 8, 8).unwrap().count(), 2);
        assert_eq!(flights.begin(2, 10, 4).unwrap().count(), 4);
        assert_eq!(flights.try_begin(1, 13, 1).unwrap_err(), 14);
        assert_eq!(flights.try_begin(1, 14, 0).unwrap().count(), 1);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| flights.begin(1, 12, 1).is_none());
            drop(one);
            // Whether it came before that or after, there is an answer.
            let _ = waits.join().unwrap();
        });
        assert!(flights.lock().is_empty());
    }
}
