//! Session counters of the WebSocket server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::target::SessionKind;

/// Sessions that are open, and what went through all that there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WebSocketCounts {
    /// Open sessions that publish.
    pub producers: u64,
    /// Open sessions that consume.
    pub consumers: u64,
    /// Open sessions that read.
    pub readers: u64,
    /// Messages of callers that were answered as stored.
    pub messages_in: u64,
    /// Messages that were written to callers, those that came again too.
    pub messages_out: u64,
    /// Dead letters that were stored.
    pub dead_letters: u64,
    /// Sessions closed because their caller read nothing while memory was short.
    pub stalled: u64,
}

/// The counters behind it.
#[derive(Debug, Default)]
pub(crate) struct DoorCounters {
    producers: AtomicU64,
    consumers: AtomicU64,
    readers: AtomicU64,
    pub(crate) messages_in: Counter,
    pub(crate) messages_out: Counter,
    pub(crate) dead_letters: Counter,
    pub(crate) stalled: Counter,
}

/// A number that grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add_one(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl DoorCounters {
    pub(crate) fn read(&self) -> WebSocketCounts {
        WebSocketCounts {
            producers: self.producers.load(Ordering::Relaxed),
            consumers: self.consumers.load(Ordering::Relaxed),
            readers: self.readers.load(Ordering::Relaxed),
            messages_in: self.messages_in.get(),
            messages_out: self.messages_out.get(),
            dead_letters: self.dead_letters.get(),
            stalled: self.stalled.get(),
        }
    }

    fn open(&self, kind: &SessionKind) -> &AtomicU64 {
        match kind {
            SessionKind::Producer => &self.producers,
            SessionKind::Consumer(_) => &self.consumers,
            SessionKind::Reader => &self.readers,
        }
    }
}

/// Counts a session as open until it is dropped.
pub(crate) struct CountedSession {
    counters: Arc<DoorCounters>,
    kind: SessionKind,
}

impl CountedSession {
    pub(crate) fn new(counters: Arc<DoorCounters>, kind: SessionKind) -> Self {
        counters.open(&kind).fetch_add(1, Ordering::Relaxed);
        Self { counters, kind }
    }
}

impl Drop for CountedSession {
    fn drop(&mut self) {
        self.counters.open(&self.kind).fetch_sub(1, Ordering::Relaxed);
    }
}
