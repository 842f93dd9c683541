//! Counts of a load thread, and their reports.
//!
//! A run has *parts* (warm-up, the measured part, and the rest), numbered from 0. A thread ends its current slice as
//! soon as it notices that a new part has begun, so that every count belongs to one part.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;

use crate::clock;
use crate::histogram::Latencies;

/// Report interval of a thread, in nanoseconds.
pub(crate) const SLICE_NS: u64 = 1_000_000_000;
/// Report interval of a thread whose progress decides when the run ends, in nanoseconds.
const SHORT_SLICE_NS: u64 = 100_000_000;

/// Side of the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Publishing.
    Publish,
    /// Receiving as it comes.
    Receive,
    /// Reading what was stored before.
    Backlog,
}

/// All sides, in the order of their numbers.
pub(crate) const SIDES: [Side; 3] = [Side::Publish, Side::Receive, Side::Backlog];

/// Counts since the thread told last.
#[derive(Clone, Debug, Default)]
pub struct Slice {
    /// Messages with a receipt, or received.
    pub messages: u64,
    /// Their payload bytes.
    pub bytes: u64,
    /// Sends the broker refused.
    pub errors: u64,
    /// Messages that came after a later one of the same producer.
    pub out_of_order: u64,
    /// Messages that came again.
    pub duplicates: u64,
    /// Messages whose bytes are not what was sent.
    pub damaged: u64,
    /// Messages that were skipped: a later one of the same producer came, and they have not followed so far. Less than zero
    /// where they followed in a later slice.
    pub gaps: i64,
    /// Backlog messages among them.
    pub backlog_messages: u64,
    /// Their payload bytes.
    pub backlog_bytes: u64,
    /// Arrival time of the last of them, wall clock, in nanoseconds.
    pub backlog_at_ns: u64,
    /// From the due time to the receipt, or to the consumer.
    pub latencies: Latencies,
    /// Delays of the load thread itself: the part of `latencies` that the broker did not cause.
    pub late: Option<Box<Latencies>>,
    /// Time from the start of the thread until each consumer or reader was attached.
    pub attached: Option<Box<Latencies>>,
}

impl Slice {
    /// Adds another slice.
    pub fn merge(&mut self, other: &Self) {
        self.messages += other.messages;
        self.bytes += other.bytes;
        self.errors += other.errors;
        self.out_of_order += other.out_of_order;
        self.duplicates += other.duplicates;
        self.damaged += other.damaged;
        self.gaps += other.gaps;
        self.backlog_messages += other.backlog_messages;
        self.backlog_bytes += other.backlog_bytes;
        self.backlog_at_ns = self.backlog_at_ns.max(other.backlog_at_ns);
        self.latencies.merge(&other.latencies);
        if let Some(late) = &other.late {
            self.late.get_or_insert_default().merge(late);
        }
        if let Some(attached) = &other.attached {
            self.attached.get_or_insert_default().merge(attached);
        }
    }

    /// Back to zero, keeping the memory.
    pub fn clear(&mut self) {
        let mut latencies = std::mem::take(&mut self.latencies);
        latencies.clear();
        *self = Self {
            latencies,
            ..Self::default()
        };
    }
}

/// From a load thread to the parent.
#[derive(Debug)]
pub enum Event {
    /// Connected; all producers or consumers exist.
    Ready,
    /// Counts of one part of the run.
    Slice(Side, u64, Box<Slice>),
    /// A publisher has sent all it should and has all receipts: messages by source.
    Ended(Vec<(u32, u64)>),
    /// The thread cannot continue.
    Failed(String),
}

/// From the parent to its load threads.
#[derive(Debug, Default)]
pub struct Control {
    /// Start of the load, in monotonic nanoseconds; 0 while unknown.
    start_ns: AtomicU64,
    /// The part of the run that is under way.
    part: AtomicU64,
    /// Readers of the backlog may begin.
    backlog_open: AtomicBool,
    /// Producers: send nothing new and end when all receipts are there.
    publish_stop: AtomicBool,
    /// Consumers: end.
    receive_stop: AtomicBool,
    /// Producers and consumers: end at once.
    abort: AtomicBool,
}

impl Control {
    /// Begins the load now.
    pub fn start(&self, at_ns: u64) {
        self.start_ns.store(at_ns, Ordering::Release);
    }

    /// Returns the start of the load; `None` before it.
    pub fn started(&self) -> Option<u64> {
        let at = self.start_ns.load(Ordering::Acquire);
        (at != 0).then_some(at)
    }

    /// Begins the next part.
    pub fn next_part(&self) {
        self.part.fetch_add(1, Ordering::AcqRel);
    }

    /// The number of the running part.
    pub fn part(&self) -> u64 {
        self.part.load(Ordering::Acquire)
    }

    /// Lets the readers of the backlog begin.
    pub fn open_backlog(&self) {
        self.backlog_open.store(true, Ordering::Release);
    }

    /// True if consumers of that side may request messages.
    pub fn may_receive(&self, side: Side) -> bool {
        side != Side::Backlog || self.backlog_open.load(Ordering::Acquire)
    }

    /// Ends the publishers, or all consumers.
    pub fn stop(&self, side: Side) {
        match side {
            Side::Publish => self.publish_stop.store(true, Ordering::Release),
            Side::Receive | Side::Backlog => self.receive_stop.store(true, Ordering::Release),
        }
    }

    /// True if that side should end.
    pub fn stopped(&self, side: Side) -> bool {
        match side {
            Side::Publish => self.publish_stop.load(Ordering::Acquire),
            Side::Receive | Side::Backlog => self.receive_stop.load(Ordering::Acquire),
        }
    }

    /// Ends everything at once.
    pub fn abort(&self) {
        self.abort.store(true, Ordering::Release);
    }

    /// True if everything should end at once.
    pub fn aborted(&self) -> bool {
        self.abort.load(Ordering::Acquire)
    }
}

/// A thread's running slice and its line to the parent.
pub struct Teller {
    side: Side,
    part: u64,
    events: SyncSender<Event>,
    /// The running slice.
    pub slice: Slice,
    told_ns: u64,
    begun_ns: u64,
}

impl Teller {
    /// For one thread.
    pub fn new(side: Side, events: SyncSender<Event>, now_ns: u64) -> Self {
        Self {
            side,
            part: 0,
            events,
            slice: Slice::default(),
            told_ns: now_ns,
            begun_ns: now_ns,
        }
    }

    /// Counts a consumer that is attached now.
    pub fn attached(&mut self) {
        let took = clock::monotonic_ns().saturating_sub(self.begun_ns);
        self.slice.attached.get_or_insert_default().record(took, 1);
    }

    /// Returns the side of the thread.
    pub fn side(&self) -> Side {
        self.side
    }

    /// Tells if it is time, or if a new part has begun.
    pub fn tick(&mut self, now_ns: u64, control: &Control) {
        let every = if self.side == Side::Backlog {
            SHORT_SLICE_NS
        } else {
            SLICE_NS
        };
        let part = control.part();
        if part != self.part || now_ns - self.told_ns >= every {
            self.told_ns = now_ns;
            self.flush();
            self.part = part;
        }
    }

    /// Tells now.
    pub fn flush(&mut self) {
        // The parent is gone only when it has given up on the run.
        let slice = Box::new(self.slice.clone());
        let _ = self.events.send(Event::Slice(self.side, self.part, slice));
        self.slice.clear();
    }

    /// Says something else.
    pub fn say(&self, event: Event) {
        let _ = self.events.send(event);
    }
}
