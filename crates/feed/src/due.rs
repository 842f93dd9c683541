//! Groups of a connection that may have something to write, so that a write turn checks no other.
//!
//! A connection may have consumers on thousands of topics; a turn must cost what there is to deliver, not how many
//! there are.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

/// The places of groups, each at most once, that are to be asked for messages. Owned by their connection.
#[derive(Debug, Default)]
pub struct DueGroups {
    places: RefCell<VecDeque<u32>>,
}

impl DueGroups {
    /// The next one. The group must then be asked: see [`super::Group::take_turn`].
    #[must_use]
    pub fn next(&self) -> Option<u32> {
        let mut places = self.places.borrow_mut();
        let place = places.pop_front();
        if places.is_empty() && places.capacity() > 64 {
            // Most connections are idle most of the time.
            places.shrink_to_fit();
        }
        place
    }

    /// True if no group has anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.borrow().is_empty()
    }
}

/// A group's side: where it announces itself.
#[derive(Debug, Default)]
pub(super) struct Bell {
    /// The connection's list, and the group's place on the connection.
    list: OnceCell<(Rc<DueGroups>, u32)>,
    rung: Cell<bool>,
}

impl Bell {
    /// Connects it; `false` when it was connected before.
    pub(super) fn connect(&self, list: &Rc<DueGroups>, place: u32) -> bool {
        self.list.set((list.clone(), place)).is_ok()
    }

    pub(super) fn is_connected(&self) -> bool {
        self.list.get().is_some()
    }

    /// Puts the group on its connection's list, once.
    pub(super) fn ring(&self) {
        if let Some((list, place)) = self.list.get()
            && !self.rung.replace(true)
        {
            list.places.borrow_mut().push_back(*place);
        }
    }

    /// The group is off the list and about to be asked.
    pub(super) fn rest(&self) {
        self.rung.set(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_on_the_list_once_until_it_was_asked() {
        let (list, first, second) = (Rc::<DueGroups>::default(), Bell::default(), Bell::default());
        first.ring();
        assert!(list.is_empty(), "it has no place yet");
        assert!(first.connect(&list, 7) && second.connect(&list, 8));
        assert!(!first.connect(&list, 9), "its place stays");
        for _ in 0..3 {
            first.ring();
            second.ring();
        }
        assert_eq!((list.next(), list.next(), list.next()), (Some(7), Some(8), None));
        first.ring();
        assert_eq!(list.next(), None, "it is being asked");
        first.rest();
        first.ring();
        assert_eq!(list.next(), Some(7));
    }
}
