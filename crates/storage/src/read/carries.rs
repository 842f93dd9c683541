//! Starts of records that a read left behind, for the read that goes on there.
//!
//! ```text
//!  pieces     [ … entries … | start of a record ][ its rest | entries … ]
//!                                  └─ kept here, so that all of the first piece is spent
//! ```
//! A read of a backlog ends where what it read from the device ends, and there a record mostly goes on in a piece that was not
//! read yet. With its start kept here, next to nothing of a piece waits for its reader, and its memory is used again at once.
//! A reader that finds nothing here reads the start once more.

use std::collections::{HashMap, VecDeque};

/// Location of the start of a record: directory, log, byte.
pub(super) type CarryKey = (u16, u32, u64);

/// The starts, of a bounded size.
#[derive(Debug)]
pub(super) struct Carries {
    by_place: HashMap<CarryKey, Vec<u8>>,
    /// The order in which they came; some are gone.
    order: VecDeque<CarryKey>,
    bytes: u64,
    bytes_max: u64,
}

impl Carries {
    /// Keeps at most so many bytes.
    pub(super) fn new(bytes_max: u64) -> Self {
        Self {
            by_place: HashMap::new(),
            order: VecDeque::new(),
            bytes: 0,
            bytes_max,
        }
    }

    /// Returns the size of the kept starts, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Keeps the start of the record at a place. The oldest make room.
    pub(super) fn put(&mut self, place: CarryKey, start: Vec<u8>) {
        self.take(place);
        self.bytes += start.capacity() as u64;
        self.by_place.insert(place, start);
        self.order.push_back(place);
        while self.bytes > self.bytes_max
            && let Some(oldest) = self.order.pop_front()
        {
            self.take(oldest);
        }
        // Those that were taken leave their names, which must not become many.
        if self.order.len() > 2 * self.by_place.len() + 16 {
            let Self { by_place, order, .. } = self;
            order.retain(|place| by_place.contains_key(place));
        }
    }

    /// Takes the start of the record at a place.
    pub(super) fn take(&mut self, place: CarryKey) -> Option<Vec<u8>> {
        let start = self.by_place.remove(&place)?;
        self.bytes -= start.capacity() as u64;
        Some(start)
    }

    /// Drops them all.
    pub(super) fn clear(&mut self) {
        *self = Self::new(self.bytes_max);
    }

    /// Drops what is of a log that is gone.
    pub(super) fn forget(&mut self, dir: u16, log: u32) {
        self.by_place.retain(|place, _| (place.0, place.1) != (dir, log));
        self.bytes = self.by_place.values().map(|start| start.capacity() as u64).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_is_taken_once_and_the_oldest_make_room() {
        let mut carries = Carries::new(300);
        for at in 0..4 {
            carries.put((0, 7, at), vec![at as u8; 100]);
        }
        assert!(carries.take((0, 7, 0)).is_none() && carries.take((0, 8, 1)).is_none());
        assert_eq!(carries.take((0, 7, 2)), Some(vec![2; 100]));
        assert!(carries.take((0, 7, 2)).is_none());
        carries.put((1, 7, 9), vec![9; 100]);
        carries.put((1, 7, 9), vec![8; 90]);
        assert_eq!(carries.bytes(), 290);
        carries.forget(0, 7);
        assert_eq!(carries.bytes(), 90);
        assert_eq!(carries.by_place.len(), 1);
        carries.put((0, 0, 0), vec![0; 301]);
        assert_eq!(carries.bytes(), 0);
    }

    #[test]
    fn names_of_what_was_taken_do_not_pile_up() {
        let mut carries = Carries::new(1000);
        for at in 0..1000 {
            carries.put((0, 0, at), vec![0; 10]);
            assert!(carries.take((0, 0, at)).is_some());
        }
        let names = carries.order.len();
        assert!(names <= 18, "{names}");
    }
}
