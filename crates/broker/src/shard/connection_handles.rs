//! The connections of a shard, and which of them wait for a turn of writing.
//!
//! A message for fifteen thousand connections makes fifteen thousand of them ready and takes each of them up once, so
//! both are an index into a table and nothing else. A number names a place in the table and who has it: a caller
//! that comes too late with the number of a connection that left finds none.
//!
//! Always true: a number is in `ready` exactly once while its place says so, and at most once after its owner left.

use std::collections::VecDeque;
use std::rc::Rc;

use super::ConnectionHandle;

/// Places are numbered from 0; the upper half of a number counts who had the place before.
const PLACE_BITS: u32 = 32;

#[derive(Default)]
struct Place {
    handle: Option<Rc<dyn ConnectionHandle>>,
    /// Owners that the place had before.
    owner: u32,
    is_ready: bool,
}

/// The connections of a shard.
#[derive(Default)]
pub(super) struct ConnectionHandles {
    places: Vec<Place>,
    free: Vec<u32>,
    ready: VecDeque<u64>,
    /// Connections taken in so far, and let go; not those that came from another shard or went to one.
    registered: u64,
    left: u64,
}

impl ConnectionHandles {
    /// Takes a connection in; `make` is told its number.
    pub(super) fn insert(&mut self, make: impl FnOnce(u64) -> Rc<dyn ConnectionHandle>) -> u64 {
        self.registered += 1;
        self.insert_moved(make)
    }

    /// Inserts a connection that another shard has handed over.
    pub(super) fn insert_moved(&mut self, make: impl FnOnce(u64) -> Rc<dyn ConnectionHandle>) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place::default());
            u32::try_from(self.places.len() - 1).unwrap_or(u32::MAX)
        });
        let mut number = u64::from(index);
        if let Some(place) = self.places.get_mut(index as usize) {
            number |= u64::from(place.owner) << PLACE_BITS;
            place.handle = Some(make(number));
        }
        number
    }

    /// Lets a connection go.
    pub(super) fn remove(&mut self, number: u64) {
        self.left += u64::from(self.remove_moved(number));
    }

    /// Lets a connection go that is handed on to another shard. Returns whether it was here.
    pub(super) fn remove_moved(&mut self, number: u64) -> bool {
        let Some(place) = self.place(number) else {
            return false;
        };
        *place = Place {
            owner: place.owner.wrapping_add(1),
            ..Place::default()
        };
        self.free.push(number as u32);
        true
    }

    /// A connection that was on its way from one shard to another is gone.
    pub(super) fn lose_moved(&mut self) {
        self.left += 1;
    }

    /// Counts connections that opened and closed before any shard registered them.
    pub(super) fn pass_by(&mut self, count: u64) {
        self.registered += count;
        self.left += count;
    }

    /// The connection with this number, if it is still here.
    pub(super) fn get(&self, number: u64) -> Option<&Rc<dyn ConnectionHandle>> {
        let place = self.places.get(index_of(number))?;
        let handle = place.handle.as_ref()?;
        (place.owner == owner_of(number)).then_some(handle)
    }

    /// All connections.
    pub(super) fn all(&self) -> impl Iterator<Item = &Rc<dyn ConnectionHandle>> {
        self.places.iter().filter_map(|place| place.handle.as_ref())
    }

    /// Number of connections.
    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Connections taken in so far, and of these let go. Over all shards the difference is those that are open, one that is
    /// on its way between two shards too.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.registered, self.left)
    }

    /// A connection wants a turn of writing. Returns whether it is the first to want one.
    pub(super) fn make_ready(&mut self, number: u64) -> bool {
        let Some(place) = self.place(number) else {
            return false;
        };
        if std::mem::replace(&mut place.is_ready, true) {
            return false;
        }
        self.ready.push_back(number);
        self.ready.len() == 1
    }

    /// The next connection to get a turn of writing, with its number; it may ask for another one from now on.
    pub(super) fn take_ready(&mut self) -> Option<(u64, Rc<dyn ConnectionHandle>)> {
        while let Some(number) = self.ready.pop_front() {
            if let Some(place) = self.place(number) {
                place.is_ready = false;
                if let Some(handle) = &place.handle {
                    return Some((number, handle.clone()));
                }
            }
        }
        None
    }

    /// True if any connection is queued to write.
    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    fn place(&mut self, number: u64) -> Option<&mut Place> {
        self.places
            .get_mut(index_of(number))
            .filter(|place| place.owner == owner_of(number) && place.handle.is_some())
    }
}

fn index_of(number: u64) -> usize {
    number as u32 as usize
}

fn owner_of(number: u64) -> u32 {
    (number >> PLACE_BITS) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::{ConnectionEvent, Pumped, Receipt};
    use pharos_feed::ConsumerHandle;
    use pharos_feed::ids::ConsumerKey;

    struct Absent;

    impl ConnectionHandle for Absent {
        fn flush_turn(&self) -> Pumped {
            Pumped::Rests
        }
        fn on_receipts(&self, _: &[Receipt]) {}
        fn on_event(&self, _: ConnectionEvent) {}
        fn activate(&self, _: u64, _: ConsumerKey, handle: ConsumerHandle) -> Result<(), ConsumerHandle> {
            Err(handle)
        }
        fn deactivate(&self, _: u64, _: ConsumerKey) -> Option<ConsumerHandle> {
            None
        }
        fn probe(&self, _: tokio::sync::oneshot::Sender<bool>) {}
        fn set_aside(&self) {}
        fn close(&self) {}
        fn shut_down(&self) {}
        fn on_tick(&self, _: std::time::Duration) {}
    }

    fn add(connection_handles: &mut ConnectionHandles) -> u64 {
        connection_handles.insert(|_| Rc::new(Absent))
    }

    #[test]
    fn each_gets_one_turn_however_often_it_asked_and_may_ask_again() {
        let mut connection_handles = ConnectionHandles::default();
        let (first, second) = (add(&mut connection_handles), add(&mut connection_handles));
        assert!(connection_handles.make_ready(second));
        assert!(!connection_handles.make_ready(first));
        assert!(!connection_handles.make_ready(second));
        let taken = |connection_handles: &mut ConnectionHandles| {
            connection_handles.take_ready().map(|(number, _)| number)
        };
        assert_eq!(taken(&mut connection_handles), Some(second));
        assert!(!connection_handles.make_ready(second));
        assert_eq!(taken(&mut connection_handles), Some(first));
        assert_eq!(taken(&mut connection_handles), Some(second));
        assert_eq!(taken(&mut connection_handles), None);
        assert!(!connection_handles.has_ready());
    }

    #[test]
    fn who_left_is_not_found_even_when_the_place_is_taken_again() {
        let mut connection_handles = ConnectionHandles::default();
        let first = add(&mut connection_handles);
        connection_handles.make_ready(first);
        connection_handles.remove(first);
        connection_handles.remove(first);
        let second = add(&mut connection_handles);
        assert_ne!(first, second);
        assert!(connection_handles.get(first).is_none() && connection_handles.get(second).is_some());
        assert!(!connection_handles.make_ready(first));
        assert!(connection_handles.take_ready().is_none());
        assert_eq!(
            (connection_handles.len(), connection_handles.counts()),
            (1, (2, 1))
        );
        assert_eq!(connection_handles.all().count(), 1);
        assert!(connection_handles.make_ready(second));
    }
    #[test]
    fn who_is_handed_on_neither_left_nor_came() {
        let (mut one, mut other) = (ConnectionHandles::default(), ConnectionHandles::default());
        let first = add(&mut one);
        assert!(one.remove_moved(first) && !one.remove_moved(first));
        let second = other.insert_moved(|_| Rc::new(Absent));
        assert_eq!((one.counts(), other.counts()), ((1, 0), (0, 0)));
        assert_eq!((one.len(), other.len()), (0, 1));
        other.remove(second);
        assert_eq!(other.counts(), (0, 1));
        one.lose_moved();
        assert_eq!(one.counts(), (1, 1));
    }
}
