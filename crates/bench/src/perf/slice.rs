//! What a load thread counted in one second, and how it tells.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;

use crate::histogram::Latencies;

/// How often a thread tells.
pub(super) const SLICE_NS: u64 = 1_000_000_000;

/// Which side of the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// Publishing.
    Publish,
    /// Receiving.
    Receive,
}

/// Counts since the thread told last.
#[derive(Clone, Debug, Default)]
pub(super) struct Slice {
    /// Messages with a receipt, or received.
    pub(super) messages: u64,
    /// Their payload bytes.
    pub(super) bytes: u64,
    /// Sends the broker refused.
    pub(super) errors: u64,
    /// Messages that came after a later one of the same producer, or again.
    pub(super) out_of_order: u64,
    /// Messages that were skipped: a later one of the same producer came.
    pub(super) gaps: u64,
    /// From the due time to the receipt, or to the consumer.
    pub(super) latencies: Latencies,
}

impl Slice {
    /// Adds another slice.
    pub(super) fn merge(&mut self, other: &Self) {
        self.messages += other.messages;
        self.bytes += other.bytes;
        self.errors += other.errors;
        self.out_of_order += other.out_of_order;
        self.gaps += other.gaps;
        self.latencies.merge(&other.latencies);
    }

    /// Back to zero, keeping the memory.
    pub(super) fn clear(&mut self) {
        self.latencies.clear();
        (
            self.messages,
            self.bytes,
            self.errors,
            self.out_of_order,
            self.gaps,
        ) = (0, 0, 0, 0, 0);
    }
}

/// From a load thread to the parent.
#[derive(Debug)]
pub(super) enum Event {
    /// Connected; all producers or consumers exist.
    Ready,
    /// A second has passed.
    Slice(Side, Box<Slice>),
    /// All is sent and receipted, or the order to stop was obeyed.
    Ended,
    /// It cannot go on.
    Failed(String),
}

/// From the parent to its load threads.
#[derive(Debug, Default)]
pub(super) struct Control {
    /// When the load begins, monotonic nanoseconds; 0 while that is not known.
    start_ns: AtomicU64,
    /// Producers: send nothing new and end when all receipts are there.
    publish_stop: AtomicBool,
    /// Consumers: end.
    receive_stop: AtomicBool,
    /// Everybody: end at once.
    abort: AtomicBool,
}

impl Control {
    /// Begins the load now.
    pub(super) fn start(&self, at_ns: u64) {
        self.start_ns.store(at_ns, Ordering::Release);
    }

    /// When the load began, if it has.
    pub(super) fn started(&self) -> Option<u64> {
        let at = self.start_ns.load(Ordering::Acquire);
        (at != 0).then_some(at)
    }

    /// Ends one side.
    pub(super) fn stop(&self, side: Side) {
        match side {
            Side::Publish => self.publish_stop.store(true, Ordering::Release),
            Side::Receive => self.receive_stop.store(true, Ordering::Release),
        }
    }

    /// Whether that side should end.
    pub(super) fn stopped(&self, side: Side) -> bool {
        match side {
            Side::Publish => self.publish_stop.load(Ordering::Acquire),
            Side::Receive => self.receive_stop.load(Ordering::Acquire),
        }
    }

    /// Ends everything at once.
    pub(super) fn abort(&self) {
        self.abort.store(true, Ordering::Release);
    }

    /// Whether everything should end at once.
    pub(super) fn aborted(&self) -> bool {
        self.abort.load(Ordering::Acquire)
    }
}

/// A thread's running slice and its line to the parent.
pub(super) struct Teller {
    side: Side,
    events: SyncSender<Event>,
    /// The running slice.
    pub(super) slice: Slice,
    told_ns: u64,
}

impl Teller {
    /// For one thread.
    pub(super) fn new(side: Side, events: SyncSender<Event>, now_ns: u64) -> Self {
        Self {
            side,
            events,
            slice: Slice::default(),
            told_ns: now_ns,
        }
    }

    /// Tells if a second has passed.
    pub(super) fn tick(&mut self, now_ns: u64) {
        if now_ns - self.told_ns >= SLICE_NS {
            self.told_ns = now_ns;
            self.flush();
        }
    }

    /// Tells now.
    pub(super) fn flush(&mut self) {
        // The parent is gone only when it has given up on the run.
        let _ = self
            .events
            .send(Event::Slice(self.side, Box::new(self.slice.clone())));
        self.slice.clear();
    }

    /// Says something else.
    pub(super) fn say(&self, event: Event) {
        let _ = self.events.send(event);
    }
}
