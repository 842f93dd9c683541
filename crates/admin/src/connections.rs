//! Which connections are open, and which of them is closed to make room.
//!
//! A full house must not keep out the one that asks whether the broker is well. So a newcomer always gets in where any other connection
//! waits for its peer: for the head of a request, or for the rest of a body. Of these goes the one that has waited for longest, first of the
//! address that has most connections, so that a client which opens many makes room for others and for itself. When all are busy, the one
//! whose request takes longest goes, unless none has taken [`BUSY_MIN`] yet. Then one of the address that has most goes, if that is far
//! more than the newcomer's has: a client that keeps all places busy keeps out itself alone.
//!
//! One that goes is cut off at once, unless its last answer may still be on its way: then it has a moment to finish, as long as few do.

use std::collections::HashMap;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::body::HttpBody;
use hyper::body::{Frame, SizeHint};
use pharos_runtime::{Nanos, clock};
use pharos_transport::network_of;
use tokio::sync::Notify;

/// A request may take so many nanoseconds before its connection is closed to make room.
const BUSY_MIN: u64 = 30_000_000_000;
/// Time that an answer may be on its way after its handler has ended, in nanoseconds.
const ANSWER_GRACE: u64 = 1_000_000_000;
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
    /// Connections that are not about to close, of each address that has any.
    staying: HashMap<IpAddr, usize>,
    staying_total: usize,
    /// Connections that were closed to make room.
    evicted: u64,
}

#[derive(Debug)]
struct Open {
    /// Its address.
    of: IpAddr,
    /// When its last request began, or ended if none is under way; when it was opened if there was none.
    since: Nanos,
    /// When its last answer was handed over to be written.
    answered_at: Option<Nanos>,
    /// Requests under way; more than one only where a client sends the next before it has read the answer.
    requests: usize,
    /// Of these, requests whose handlers wait for the rest of the body.
    starved: usize,
    /// Set when it was told to go; from then on it counts no more.
    leaving: Option<Nanos>,
    /// It has no moment left to finish.
    is_cut: bool,
    leave: Arc<Notify>,
}

/// Open connection; the count drops with this value.
#[derive(Debug)]
pub(crate) struct Place {
    connections: Connections,
    number: u64,
    leave: Arc<Notify>,
}

/// Counts the requests of one connection.
#[derive(Clone, Debug)]
pub(crate) struct Requests {
    connections: Connections,
    number: u64,
}

/// A request under way.
#[derive(Debug)]
pub(crate) struct Busy {
    requests: Requests,
    /// Its handler waits for the rest of the body. Shared with the body.
    is_starved: Arc<AtomicBool>,
}

/// The body of a request, which says when its handler waits for the peer.
#[derive(Debug)]
pub(crate) struct CountedBody<B> {
    body: B,
    requests: Requests,
    is_starved: Arc<AtomicBool>,
}

impl Connections {
    fn lock(&self) -> MutexGuard<'_, Table> {
        // A table is never left half changed.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a connection in. Where `most` are open already, tells another to go; of those that go, at most `leaving_max` have time to finish.
    ///
    /// `None` when all are busy with requests that have not taken long; the newcomer is to be closed then.
    pub(crate) fn enter(&self, most: usize, leaving_max: usize, peer: IpAddr, now: Nanos) -> Option<Place> {
        let of = network_of(peer);
        let mut table = self.lock();
        if table.staying_total >= most {
            let number = table.victim(of, now)?;
            table.evict(number, now);
            table.cut_beyond(leaving_max);
        }
        let number = table.next;
        table.next += 1;
        let leave = Arc::new(Notify::new());
        let open = Open {
            of,
            since: now,
            answered_at: None,
            requests: 0,
            starved: 0,
            leaving: None,
            is_cut: false,
            leave: Arc::clone(&leave),
        };
        table.open.insert(number, open);
        table.staying_total += 1;
        *table.staying.entry(of).or_default() += 1;
        Some(Place {
            connections: self.clone(),
            number,
            leave,
        })
    }

    /// Connections that were closed to make room, since the start.
    #[cfg(test)]
    pub(crate) fn evicted_count(&self) -> u64 {
        self.lock().evicted
    }

    fn change(&self, number: u64, change: impl FnOnce(&mut Open)) {
        if let Some(open) = self.lock().open.get_mut(&number) {
            change(open);
        }
    }
}

impl Open {
    /// True if nothing is done for it: its next request, or the rest of one, has not come.
    fn waits_for_peer(&self) -> bool {
        self.requests == self.starved
    }

    /// True if an answer to it may be on its way.
    fn is_answered(&self, now: Nanos) -> bool {
        !self.waits_for_peer() || self.answered_at.is_some_and(|at| now.since(at) < ANSWER_GRACE)
    }
}

impl Table {
    /// The connection that makes room for a newcomer of an address.
    fn victim(&self, newcomer: IpAddr, now: Nanos) -> Option<u64> {
        let greedy = self.staying.iter().max_by_key(|(_, count)| **count);
        let greedy = greedy.map(|(address, count)| (*address, *count));
        let of_greedy = |open: &Open| greedy.is_some_and(|(address, _)| open.of == address);
        self.oldest(|open| open.waits_for_peer() && of_greedy(open))
            .or_else(|| self.oldest(Open::waits_for_peer))
            .or_else(|| self.oldest(|open| now.since(open.since) >= BUSY_MIN))
            .or_else(|| {
                let others = self.staying.get(&newcomer).copied().unwrap_or(0);
                let (_, most) = greedy?;
                (most >= FAR_MORE * (others + 1))
                    .then(|| self.oldest(of_greedy))
                    .flatten()
            })
    }

    /// The one of those that stay that is as it is for longest.
    fn oldest(&self, is_meant: impl Fn(&Open) -> bool) -> Option<u64> {
        let open = self.open.iter();
        open.filter(|(_, open)| open.leaving.is_none() && is_meant(open))
            .min_by_key(|(number, open)| (open.since, **number))
            .map(|(number, _)| *number)
    }

    fn evict(&mut self, number: u64, now: Nanos) {
        let Some(open) = self.open.get_mut(&number) else {
            return;
        };
        open.leaving = Some(now);
        open.is_cut = !open.is_answered(now);
        open.leave.notify_one();
        let of = open.of;
        self.forget(of);
        self.evicted += 1;
    }

    /// Leaves no more than so many of those that go the time to finish.
    fn cut_beyond(&mut self, leaving_max: usize) {
        let finishing = self.open.iter_mut().filter(|(_, open)| !open.is_cut);
        let mut finishing: Vec<_> = finishing
            .filter_map(|(number, open)| open.leaving.map(|since| ((since, *number), open)))
            .collect();
        if finishing.len() <= leaving_max {
            return;
        }
        finishing.sort_unstable_by_key(|(since, _)| *since);
        if let Some((_, open)) = finishing.first_mut() {
            open.is_cut = true;
            open.leave.notify_one();
        }
    }

    /// One of an address stays no more.
    fn forget(&mut self, of: IpAddr) {
        self.staying_total -= 1;
        if let Some(count) = self.staying.get_mut(&of) {
            *count -= 1;
            if *count == 0 {
                self.staying.remove(&of);
            }
        }
    }
}

impl Place {
    /// Resolves when the connection should go, and again when it has no time to finish any more.
    ///
    /// Cancel safety: none is lost.
    pub(crate) async fn asked_to_leave(&self) {
        self.leave.notified().await;
    }

    /// True if it should go without finishing anything.
    pub(crate) fn is_cut(&self) -> bool {
        let table = self.connections.lock();
        table.open.get(&self.number).is_none_or(|open| open.is_cut)
    }

    /// Counter of its requests.
    pub(crate) fn requests(&self) -> Requests {
        Requests {
            connections: self.connections.clone(),
            number: self.number,
        }
    }
}

impl Requests {
    /// A request begins; it ends when the value is dropped. Its body counts too.
    pub(crate) fn begin<B>(&self, body: B) -> (Busy, CountedBody<B>) {
        self.connections.change(self.number, |open| {
            open.requests += 1;
            open.since = clock::now();
        });
        let is_starved = Arc::new(AtomicBool::new(false));
        let busy = Busy {
            requests: self.clone(),
            is_starved: is_starved.clone(),
        };
        let body = CountedBody {
            body,
            requests: self.clone(),
            is_starved,
        };
        (busy, body)
    }

    /// Says whether the handler of one request waits for the rest of its body.
    fn starve(&self, known: &AtomicBool, is_starved: bool) {
        if known.swap(is_starved, Ordering::Relaxed) == is_starved {
            return;
        }
        // Bytes that come one by one make nothing of it younger.
        self.connections.change(self.number, |open| {
            open.starved = if is_starved {
                open.starved + 1
            } else {
                open.starved.saturating_sub(1)
            };
        });
    }
}

impl<B: HttpBody + Unpin> HttpBody for CountedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        self.requests.starve(&self.is_starved, polled.is_pending());
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B> Drop for CountedBody<B> {
    fn drop(&mut self) {
        self.requests.starve(&self.is_starved, false);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut table = self.connections.lock();
        if let Some(open) = table.open.remove(&self.number)
            && open.leaving.is_none()
        {
            table.forget(open.of);
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.requests.starve(&self.is_starved, false);
        self.requests.connections.change(self.requests.number, |open| {
            let now = clock::now();
            open.requests = open.requests.saturating_sub(1);
            open.since = now;
            open.answered_at = Some(now);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    /// Number of connections that may take time to finish.
    const LEAVING_MAX: usize = 2;

    impl Connections {
        fn take(&self, most: usize, peer: IpAddr, now: Nanos) -> Option<Place> {
            self.enter(most, LEAVING_MAX, peer, now)
        }
    }

    fn leaving(connections: &Connections) -> Vec<u64> {
        let table = connections.lock();
        let leaving = table.open.iter().filter(|(_, open)| open.leaving.is_some());
        let mut numbers: Vec<u64> = leaving.map(|(number, _)| *number).collect();
        numbers.sort_unstable();
        numbers
    }

    fn peer(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    fn begin(place: &Place) -> Busy {
        place.requests().begin(axum::body::Body::empty()).0
    }

    #[test]
    fn an_address_that_keeps_all_places_busy_makes_room_for_others() {
        let connections = Connections::default();
        let now = clock::now();
        let places: Vec<Place> = (0..16)
            .map(|_| connections.take(16, peer(1), now).unwrap())
            .collect();
        let _busy: Vec<Busy> = places.iter().map(begin).collect();
        assert!(connections.take(16, peer(1), now).is_none(), "not for its own");
        let first = connections.take(16, peer(2), now).unwrap();
        assert_eq!(leaving(&connections).len(), 1);
        let _busy_too = begin(&first);
        // Of fifteen one is far more than of one, and not than of two.
        assert!(connections.take(16, peer(2), now).is_none());
        assert!(connections.take(16, peer(3), now).is_some());
    }

    #[test]
    fn the_one_without_a_request_for_longest_goes() {
        let connections = Connections::default();
        let start = clock::now();
        let at = |seconds: u64| Nanos(start.0 + seconds * SECOND);
        let places: Vec<Place> = (0..3)
            .map(|n| connections.take(3, peer(1), at(n)).unwrap())
            .collect();
        assert!(leaving(&connections).is_empty());
        // The oldest is busy, so the next one goes, and then the third.
        let busy = begin(&places[0]);
        let _fourth = connections.take(3, peer(1), at(3)).unwrap();
        assert_eq!(leaving(&connections), [1]);
        let _fifth = connections.take(3, peer(1), at(4)).unwrap();
        assert_eq!(leaving(&connections), [1, 2]);
        drop(busy);
        drop(places);
        assert!(leaving(&connections).is_empty());
    }

    #[test]
    fn of_busy_ones_only_those_that_take_long_go() {
        let connections = Connections::default();
        let start = clock::now();
        let place = connections.take(1, peer(1), start).unwrap();
        let _busy = begin(&place);
        let now = clock::now();
        assert!(connections.take(1, peer(1), now).is_none());
        let later = Nanos(now.0 + 31 * SECOND);
        assert!(connections.take(1, peer(1), later).is_some());
        assert_eq!(leaving(&connections), [0]);
    }

    #[test]
    fn the_address_that_has_most_makes_room_first() {
        let connections = Connections::default();
        let start = clock::now();
        let at = |seconds: u64| Nanos(start.0 + seconds * SECOND);
        let _patient = connections.take(4, peer(2), at(0)).unwrap();
        let _many: Vec<Place> = (1..4)
            .map(|n| connections.take(4, peer(1), at(n)).unwrap())
            .collect();
        let _newcomer = connections.take(4, peer(1), at(4)).unwrap();
        assert_eq!(leaving(&connections), [1], "the oldest is of another address");
        assert_eq!(connections.evicted_count(), 1);
    }

    #[tokio::test]
    async fn a_request_whose_body_does_not_come_makes_room() {
        let connections = Connections::default();
        let now = clock::now();
        let place = connections.take(1, peer(1), now).unwrap();
        let stream = futures_util::stream::pending::<Result<bytes::Bytes, std::io::Error>>();
        let (_busy, mut body) = place.requests().begin(axum::body::Body::from_stream(stream));
        assert!(
            connections.take(1, peer(1), now).is_none(),
            "its handler is at work"
        );
        let next =
            std::future::poll_fn(|context| Poll::Ready(Pin::new(&mut body).poll_frame(context).is_pending()));
        assert!(next.await);
        let _newcomer = connections.take(1, peer(1), now).unwrap();
        assert_eq!(leaving(&connections), [0]);
        assert!(place.is_cut());
    }

    #[test]
    fn only_an_answer_that_may_be_on_its_way_is_waited_for_and_few_are() {
        let connections = Connections::default();
        let now = clock::now();
        let silent = connections.take(1, peer(1), now).unwrap();
        let answered: Vec<Place> = (0..4)
            .map(|_| {
                let place = connections.take(1, peer(1), now).unwrap();
                drop(begin(&place));
                place
            })
            .collect();
        assert!(silent.is_cut(), "nothing was asked");
        let _last = connections.take(1, peer(1), clock::now()).unwrap();
        let cut: Vec<bool> = answered.iter().map(Place::is_cut).collect();
        assert_eq!(cut.iter().filter(|cut| !**cut).count(), LEAVING_MAX, "{cut:?}");
        assert!(cut[0] && !cut[3], "the first to go has no time left: {cut:?}");
    }
}
