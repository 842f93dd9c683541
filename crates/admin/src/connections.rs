//! Which connections are open, and which of them is closed to make room.
//!
//! A full house must not keep out the one that asks whether the broker is well. So a newcomer always gets in, and in its stead goes the
//! connection that has been without a request for longest; when all have one, the one whose request takes longest, unless none has
//! taken [`BUSY_MIN`] yet. Then one of the address that has most goes, if that is far more than the newcomer's has: a client that
//! keeps all places busy keeps out itself alone.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pharos_runtime::{Nanos, clock};
use pharos_transport::network_of;
use tokio::sync::Notify;

/// A request may take so many nanoseconds before its connection is closed to make room.
const BUSY_MIN: u64 = 30_000_000_000;
/// An address has far more connections than another when it has so many times as many.
const FAR_MORE: usize = 8;

/// All open connections. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Connections {
    table: Arc<Mutex<Table>>,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    open: HashMap<u64, Open>,
}

#[derive(Debug)]
struct Open {
    /// Of which address it is.
    of: IpAddr,
    /// Since when it is as it is.
    since: Nanos,
    /// Requests under way; more than one only where a client sends the next before it has read the answer.
    requests: usize,
    /// It was told to go, and counts no more.
    leaving: bool,
    leave: Arc<Notify>,
}

/// One open connection; it is no longer counted when this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    connections: Connections,
    number: u64,
    leave: Arc<Notify>,
}

/// Counts the requests of one connection.
#[derive(Debug)]
pub(crate) struct Requests {
    connections: Connections,
    number: u64,
}

/// A request under way.
#[derive(Debug)]
pub(crate) struct Busy {
    connections: Connections,
    number: u64,
}

impl Connections {
    fn lock(&self) -> MutexGuard<'_, Table> {
        // A table is never left half changed.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a connection in. Where `most` are open already, tells another to go.
    ///
    /// `None` when all are busy with requests that have not taken long; the newcomer is to be closed then.
    pub(crate) fn enter(&self, most: usize, peer: IpAddr, now: Nanos) -> Option<Place> {
        let of = network_of(peer);
        let mut table = self.lock();
        if table.staying().count() >= most {
            let number = table.longest(now).or_else(|| table.of_the_greedy(of))?;
            let victim = table.open.get_mut(&number)?;
            victim.leaving = true;
            victim.leave.notify_one();
        }
        let number = table.next;
        table.next += 1;
        let leave = Arc::new(Notify::new());
        let open = Open {
            of,
            since: now,
            requests: 0,
            leaving: false,
            leave: Arc::clone(&leave),
        };
        table.open.insert(number, open);
        Some(Place {
            connections: self.clone(),
            number,
            leave,
        })
    }

    fn turn(&self, number: u64, change: impl FnOnce(usize) -> usize) {
        if let Some(open) = self.lock().open.get_mut(&number) {
            open.requests = change(open.requests);
            open.since = clock::now();
        }
    }
}

impl Table {
    fn staying(&self) -> impl Iterator<Item = (u64, &Open)> {
        let all = self.open.iter().filter(|(_, open)| !open.leaving);
        all.map(|(number, open)| (*number, open))
    }

    /// The one without a request for longest, or the one whose request takes longest if that is long.
    fn longest(&self, now: Nanos) -> Option<u64> {
        self.staying()
            .filter(|(_, open)| open.requests == 0 || now.since(open.since) >= BUSY_MIN)
            .min_by_key(|(_, open)| (open.requests > 0, open.since))
            .map(|(number, _)| number)
    }

    /// The oldest of the address that has most, if it has far more than another one.
    fn of_the_greedy(&self, other: IpAddr) -> Option<u64> {
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for (_, open) in self.staying() {
            *counts.entry(open.of).or_default() += 1;
        }
        let (greedy, most) = counts.iter().max_by_key(|(_, count)| **count)?;
        let others = counts.get(&other).copied().unwrap_or(0);
        if *most < FAR_MORE * (others + 1) {
            return None;
        }
        let all = self.staying().filter(|(_, open)| open.of == *greedy);
        all.min_by_key(|(_, open)| open.since).map(|(number, _)| number)
    }
}

impl Place {
    /// Resolves when the connection should go.
    ///
    /// Cancel safety: none is lost.
    pub(crate) async fn asked_to_leave(&self) {
        self.leave.notified().await;
    }

    /// Where its requests are counted.
    pub(crate) fn requests(&self) -> Requests {
        Requests {
            connections: self.connections.clone(),
            number: self.number,
        }
    }
}

impl Requests {
    /// A request begins; it ends when the value is dropped.
    pub(crate) fn begin(&self) -> Busy {
        self.connections.turn(self.number, |requests| requests + 1);
        Busy {
            connections: self.connections.clone(),
            number: self.number,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connections.lock().open.remove(&self.number);
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.connections
            .turn(self.number, |requests| requests.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn leaving(connections: &Connections) -> Vec<u64> {
        let table = connections.lock();
        let mut numbers: Vec<u64> = table
            .open
            .iter()
            .filter(|(_, open)| open.leaving)
            .map(|(number, _)| *number)
            .collect();
        numbers.sort_unstable();
        numbers
    }

    fn peer(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    #[test]
    fn an_address_that_keeps_all_places_busy_makes_room_for_others() {
        let connections = Connections::default();
        let now = clock::now();
        let places: Vec<Place> = (0..16)
            .map(|_| connections.enter(16, peer(1), now).unwrap())
            .collect();
        let _busy: Vec<Busy> = places.iter().map(|place| place.requests().begin()).collect();
        assert!(connections.enter(16, peer(1), now).is_none(), "not for its own");
        let first = connections.enter(16, peer(2), now).unwrap();
        assert_eq!(leaving(&connections).len(), 1);
        let _busy_too = first.requests().begin();
        // Of fifteen one is far more than of one, and not than of two.
        assert!(connections.enter(16, peer(2), now).is_none());
        assert!(connections.enter(16, peer(3), now).is_some());
    }

    #[test]
    fn the_one_without_a_request_for_longest_goes() {
        let connections = Connections::default();
        let start = clock::now();
        let at = |seconds: u64| Nanos(start.0 + seconds * SECOND);
        let places: Vec<Place> = (0..3)
            .map(|n| connections.enter(3, peer(1), at(n)).unwrap())
            .collect();
        assert!(leaving(&connections).is_empty());
        // The oldest is busy, so the next one goes, and then the third.
        let busy = places[0].requests().begin();
        let _fourth = connections.enter(3, peer(1), at(3)).unwrap();
        assert_eq!(leaving(&connections), [1]);
        let _fifth = connections.enter(3, peer(1), at(4)).unwrap();
        assert_eq!(leaving(&connections), [1, 2]);
        drop(busy);
        drop(places);
        assert!(leaving(&connections).is_empty());
    }

    #[test]
    fn of_busy_ones_only_those_that_take_long_go() {
        let connections = Connections::default();
        let start = clock::now();
        let place = connections.enter(1, peer(1), start).unwrap();
        let _busy = place.requests().begin();
        let now = clock::now();
        assert!(connections.enter(1, peer(1), now).is_none());
        let later = Nanos(now.0 + 31 * SECOND);
        assert!(connections.enter(1, peer(1), later).is_some());
        assert_eq!(leaving(&connections), [0]);
    }
}
