//! State of a running replicator for observers, and the signal that restarts it.

use std::cell::{Cell, RefCell};

use pharos_runtime::{Nanos, clock};
use pharos_types::Ordinal;
use tokio::sync::Notify;

/// Counters of a replicator since its topic was loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicatorCounts {
    /// Messages that arrived over there.
    pub messages: u64,
    /// Their bytes, as they were sent.
    pub bytes: u64,
    /// Messages that were too old to be sent.
    pub expired: u64,
}

/// A replicator, to those who look at it.
#[derive(Debug)]
pub struct ReplicatorMeter {
    remote: Box<str>,
    place: Cell<Ordinal>,
    counts: Cell<ReplicatorCounts>,
    oldest_sent: Cell<Option<Nanos>>,
    connected: RefCell<Option<(String, u64)>>,
    fault: RefCell<Option<String>>,
    /// Fault that was last logged, since something arrived.
    logged: RefCell<Option<String>>,
    again: Notify,
    moved: Notify,
}

impl ReplicatorMeter {
    /// Returns the meter of a replicator that is at `place` and has not begun.
    #[must_use]
    pub fn new(remote: &str, place: Ordinal) -> Self {
        Self {
            remote: remote.into(),
            place: Cell::new(place),
            counts: Cell::default(),
            oldest_sent: Cell::default(),
            connected: RefCell::default(),
            fault: RefCell::default(),
            logged: RefCell::default(),
            again: Notify::new(),
            moved: Notify::new(),
        }
    }

    /// The cluster that it goes to.
    #[must_use]
    pub fn remote(&self) -> &str {
        &self.remote
    }

    /// Everything before this is over there, or not for there.
    #[must_use]
    pub fn place(&self) -> Ordinal {
        self.place.get()
    }

    /// Returns the counters.
    #[must_use]
    pub fn counts(&self) -> ReplicatorCounts {
        self.counts.get()
    }

    /// For how long the oldest send has no answer, in seconds; 0 without one.
    #[must_use]
    pub fn delay_s(&self) -> u64 {
        let oldest = self.oldest_sent.get();
        oldest.map_or(0, |since| clock::now().since(since) / 1_000_000_000)
    }

    /// The broker over there that it sends to, and since when, in milliseconds since 1970; `None`: to none now.
    #[must_use]
    pub fn connected(&self) -> Option<(String, u64)> {
        self.connected.borrow().clone()
    }

    /// Returns the reason why it sends nothing now; `None` while it sends, and before its first try.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        self.fault.borrow().clone()
    }

    /// Leaves everything before `to` alone from now on. Returns whether that is news.
    pub fn skip_to(&self, to: Ordinal) -> bool {
        let is_news = to > self.place.get();
        if is_news {
            self.set_place(to);
            self.begin_again();
        }
        is_news
    }

    /// Breaks the connection and begins again, from the first entry without an answer.
    pub fn begin_again(&self) {
        self.again.notify_one();
    }

    /// Resolves when the place has moved since the last call.
    pub async fn moved(&self) {
        self.moved.notified().await;
    }

    pub(crate) async fn told_to_begin_again(&self) {
        self.again.notified().await;
    }

    pub(crate) fn set_place(&self, place: Ordinal) {
        if self.place.replace(place) != place {
            self.moved.notify_one();
        }
    }

    pub(crate) fn count(&self, change: impl FnOnce(&mut ReplicatorCounts)) {
        let mut counts = self.counts.get();
        change(&mut counts);
        self.counts.set(counts);
    }

    pub(crate) fn set_oldest_sent(&self, since: Option<Nanos>) {
        self.oldest_sent.set(since);
    }

    pub(crate) fn on_connected(&self, address: &str) {
        *self.connected.borrow_mut() = Some((address.to_owned(), clock::wall_ms()));
        *self.fault.borrow_mut() = None;
    }

    /// Something arrived. Returns whether that ends a fault that was logged.
    pub(crate) fn on_arrived(&self) -> bool {
        self.logged.borrow_mut().take().is_some()
    }

    /// Returns whether the reason is to be logged: it is another one than before, or something arrived since.
    pub(crate) fn on_disconnected(&self, reason: Option<String>) -> bool {
        *self.connected.borrow_mut() = None;
        self.oldest_sent.set(None);
        (*self.fault.borrow_mut()).clone_from(&reason);
        let mut logged = self.logged.borrow_mut();
        let is_news = reason.is_some() && *logged != reason;
        if is_news {
            *logged = reason;
        }
        is_news
    }
}
