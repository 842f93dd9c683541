//! The loop of a publishing thread, whatever protocol it speaks: any number of producers over a few connections.
//!
//! Ten thousand producers must not cost a look at each per turn of the loop, so every producer is in exactly one place:
//! `ready` (try it now), `timers` (its next batch is due then), or waiting for a receipt or for room in its socket.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use anyhow::bail;

use crate::clock;
use crate::net::{FrameSink, Poller, Ready, Scratch};
use crate::proto::frame::FrameError;

use super::batch::Due;
use super::link::Link;
use super::pacing::{Pacing, Rest, Turn};
use super::slice::{Control, Event, Side, Slice, Teller};

/// A connection with more than this unsent takes no more batches: the socket is the limit then.
const UNSENT_MAX: usize = 1 << 20;
/// Longest sleep.
const TICK_NS: u64 = 20_000_000;
/// Time limit for outstanding receipts once sending has stopped, in nanoseconds.
const RECEIPTS_TIMEOUT_NS: u64 = 30_000_000_000;

/// Protocol implementation of a publishing thread.
pub trait PublishProtocol {
    /// Most messages in one batch.
    fn capacity(&self) -> u32;

    /// Appends what publishes `batch` over connection `link`.
    fn write(&mut self, link: usize, batch: &OutgoingBatch, out: &mut Vec<u8>);

    /// Seals the data written to connection `link` so far, which is sent now: nothing may be added to it any more.
    fn seal(&mut self, link: usize) {
        let _ = link;
    }

    /// True if connection `link` accepts a batch of producer `lane` now; if not, it does after a flush or a receipt.
    fn has_room(&self, link: usize, lane: usize) -> bool {
        let _ = (link, lane);
        true
    }

    /// Returns the length of the frame that begins with these bytes, once it is known.
    ///
    /// # Errors
    /// The broker broke the framing.
    fn whole_len(start: &[u8]) -> Result<Option<usize>, FrameError>;

    /// Handles one whole frame received on connection `link`.
    ///
    /// # Errors
    /// The frame cannot be read.
    fn on_frame(&mut self, link: usize, frame: &[u8], heard: &mut Heard<'_>) -> Result<(), FrameError>;
}

/// Messages to send as one entry.
#[derive(Clone, Copy, Debug)]
pub struct OutgoingBatch {
    /// The producer's number within the thread.
    pub lane: usize,
    /// Its number within the run.
    pub source: u32,
    /// Sequence id of the first message.
    pub sequence: u64,
    /// Number of messages.
    pub count: u32,
    /// Due times of the messages.
    pub due: Due,
}

/// Results of a frame, and the buffer for answers to it.
#[derive(Debug)]
pub struct Heard<'a> {
    /// Answers are appended here.
    pub out: &'a mut Vec<u8>,
    receipts: &'a mut Vec<(usize, u64)>,
    refused: &'a mut u64,
    trouble: &'a mut Option<String>,
}

impl Heard<'_> {
    /// The batch of producer `lane` that begins with `sequence` is acknowledged.
    pub fn receipt(&mut self, lane: usize, sequence: u64) {
        self.receipts.push((lane, sequence));
    }

    /// A message was refused; the run ends.
    pub fn refused(&mut self, why: &str) {
        *self.refused += 1;
        self.fail(format!("a message was refused: {why}"));
    }

    /// The run cannot go on.
    pub fn fail(&mut self, why: String) {
        self.trouble.get_or_insert(why);
    }
}

/// Publish options of all producers of a thread.
#[derive(Clone, Debug)]
pub struct Pace {
    /// Payload bytes.
    pub size: usize,
    /// Messages a second of one producer; 0 for as fast as it goes.
    pub rate: f64,
    /// Each producer ends after so many messages.
    pub limit: Option<u64>,
    /// Oldest a batch may get.
    pub batch_delay_ns: u64,
    /// Most batches without a receipt, per producer.
    pub window: usize,
}

/// Producer that is ready.
#[derive(Clone, Copy, Debug)]
pub struct LaneStart {
    /// The number of its connection.
    pub link: usize,
    /// Its number within the run; goes into every payload.
    pub source: u32,
    /// Its first message is due this long after the start.
    pub offset_ns: u64,
}

struct PendingBatch {
    sequence: u64,
    count: u32,
    due: Due,
}

/// State of an active producer.
struct Lane {
    start: LaneStart,
    pacing: Pacing,
    next: u64,
    pending: VecDeque<PendingBatch>,
    /// Its window is full: the next receipt makes it ready.
    waits_for_receipt: bool,
}

/// Publishes until stopped or until all is sent; reports through `teller`. The token of a link is its number.
///
/// # Errors
/// A connection is lost or a message is refused.
pub fn publish<P: PublishProtocol>(
    protocol: P,
    (poller, links): (Poller, Vec<Link>),
    lanes: &[LaneStart],
    pace: &Pace,
    control: &Control,
    mut teller: Teller,
) -> anyhow::Result<()> {
    teller.say(Event::Ready);
    let lanes: Vec<Lane> = lanes.iter().map(|start| Lane::new(*start, pace)).collect();
    let mut publishing = Publishing {
        pace,
        rest: Rest::new(lanes.len(), pace.rate, protocol.capacity(), pace.batch_delay_ns),
        protocol,
        ready: VecDeque::new(),
        timers: BinaryHeap::new(),
        wait_for_room: links.iter().map(|_| Vec::new()).collect(),
        unfinished: lanes.len(),
        lanes,
        links,
        poller,
        receipts: Vec::new(),
    };
    publishing.serve(control, &mut teller)?;
    let lanes = publishing.lanes.iter();
    teller.say(Event::Ended(
        lanes.map(|lane| (lane.start.source, lane.next)).collect(),
    ));
    Ok(())
}

impl Lane {
    fn new(start: LaneStart, pace: &Pace) -> Self {
        Self {
            start,
            pacing: Pacing::new(0, pace.rate, pace.batch_delay_ns),
            next: 0,
            pending: VecDeque::new(),
            waits_for_receipt: false,
        }
    }
}

struct Publishing<'a, P> {
    pace: &'a Pace,
    rest: Rest,
    protocol: P,
    lanes: Vec<Lane>,
    links: Vec<Link>,
    poller: Poller,
    ready: VecDeque<usize>,
    timers: BinaryHeap<Reverse<(u64, usize)>>,
    /// By connection.
    wait_for_room: Vec<Vec<usize>>,
    /// Producers that have not reached the limit.
    unfinished: usize,
    /// Receipts of one read; kept to reuse the allocation.
    receipts: Vec<(usize, u64)>,
}

impl<P: PublishProtocol> Publishing<'_, P> {
    fn serve(&mut self, control: &Control, teller: &mut Teller) -> anyhow::Result<()> {
        let (mut ready, mut scratch) = (Vec::<Ready>::new(), Scratch::default());
        let mut started = false;
        let mut stopped_ns = None;
        loop {
            let now = clock::monotonic_ns();
            if let Some(start_ns) = control.started()
                && !started
            {
                started = true;
                self.begin(start_ns);
            }
            let (mut wait_ns, mut due_at) = (TICK_NS, u64::MAX);
            if control.stopped(Side::Publish) || self.unfinished == 0 {
                let since = *stopped_ns.get_or_insert(now);
                let missing: usize = self.lanes.iter().map(|lane| lane.pending.len()).sum();
                if missing == 0 || control.aborted() {
                    break;
                }
                if now - since > RECEIPTS_TIMEOUT_NS {
                    bail!("{missing} sends never had a receipt");
                }
            } else if started {
                let due_ns = self.send(now, &mut teller.slice)?;
                wait_ns = self.rest.sleep_ns(due_ns).min(TICK_NS);
                due_at = now + due_ns;
            }
            self.poller.wait(wait_ns, &mut ready)?;
            for event in &ready {
                let number = event.token as usize;
                if event.readable {
                    self.receipts(number, &mut scratch, teller)?;
                }
                self.flush(number)?;
            }
            // Telling takes tenths of a millisecond, here and where it is heard: what is due next would wait for it.
            let now = clock::monotonic_ns();
            if !self.rest.is_close(due_at.saturating_sub(now)) {
                teller.tick(now, control);
            }
        }
        teller.flush();
        Ok(())
    }

    fn begin(&mut self, start_ns: u64) {
        let pace = self.pace;
        for lane in &mut self.lanes {
            let from_ns = start_ns + lane.start.offset_ns;
            lane.pacing = Pacing::new(from_ns, pace.rate, pace.batch_delay_ns);
        }
        self.ready.extend(0..self.lanes.len());
    }

    fn flush(&mut self, number: usize) -> anyhow::Result<()> {
        self.protocol.seal(number);
        match self.links.get_mut(number) {
            Some(link) => link.flush(&self.poller),
            None => Ok(()),
        }
    }

    fn receipts(&mut self, number: usize, scratch: &mut Scratch, teller: &mut Teller) -> anyhow::Result<()> {
        let Some(link) = self.links.get_mut(number) else {
            return Ok(());
        };
        // An answer to the broker must not come to stand inside a frame that still grows.
        self.protocol.seal(number);
        let mut sink = Receipts {
            link: number,
            protocol: &mut self.protocol,
            lanes: &mut self.lanes,
            ready: &mut self.ready,
            slice: &mut teller.slice,
            size: self.pace.size as u64,
            receipts: &mut self.receipts,
            trouble: None,
            now_ns: 0,
        };
        link.read(scratch, &mut sink)?;
        match sink.trouble {
            Some(trouble) => bail!(trouble),
            None => Ok(()),
        }
    }

    /// Sends all that is due and fits; says how long there is nothing to do unless something comes, nanoseconds.
    fn send(&mut self, now: u64, slice: &mut Slice) -> anyhow::Result<u64> {
        while let Some(Reverse((at, number))) = self.timers.peek().copied() {
            if at > now {
                break;
            }
            self.timers.pop();
            slice.late.get_or_insert_default().record(now - at, 1);
            self.ready.push_back(number);
        }
        while let Some(number) = self.ready.pop_front() {
            self.try_one(number, now);
        }
        for number in 0..self.links.len() {
            if self.links.get(number).is_some_and(|link| link.outbound.len() > 0) {
                self.flush(number)?;
            }
            // Those that still find no room are written to again when the socket says so.
            if let (Some(link), Some(waiting)) = (self.links.get(number), self.wait_for_room.get_mut(number))
                && link.outbound.len() < UNSENT_MAX
                && let Some(first) = waiting.first()
                && self.protocol.has_room(number, *first)
            {
                self.ready.extend(waiting.drain(..));
            }
        }
        if !self.ready.is_empty() {
            return Ok(0);
        }
        let next = self.timers.peek();
        Ok(next.map_or(TICK_NS, |Reverse((at, _))| at.saturating_sub(now)))
    }

    /// At most one batch of one producer, which is in no queue when this begins and in one when it ends.
    fn try_one(&mut self, number: usize, now: u64) {
        let Some(lane) = self.lanes.get_mut(number) else {
            return;
        };
        let at = lane.start.link;
        let (Some(link), Some(waiting)) = (self.links.get_mut(at), self.wait_for_room.get_mut(at)) else {
            return;
        };
        let left = self.pace.limit.map_or(u64::MAX, |limit| limit - lane.next);
        if left == 0 {
            self.unfinished -= 1;
        } else if lane.pending.len() >= self.pace.window {
            lane.waits_for_receipt = true;
        } else if link.outbound.len() >= UNSENT_MAX || !self.protocol.has_room(at, number) {
            waiting.push(number);
        } else {
            match lane.pacing.turn(now, lane.next, self.protocol.capacity()) {
                Turn::WaitUntil(at) => self.timers.push(Reverse((at, number))),
                Turn::Send(count, due) => {
                    let batch = OutgoingBatch {
                        lane: number,
                        source: lane.start.source,
                        sequence: lane.next,
                        count: u32::try_from(left).map_or(count, |left| count.min(left)),
                        due,
                    };
                    self.protocol.write(at, &batch, &mut link.outbound.buf);
                    lane.pending.push_back(PendingBatch {
                        sequence: batch.sequence,
                        count: batch.count,
                        due,
                    });
                    lane.next += u64::from(batch.count);
                    self.ready.push_back(number);
                }
            }
        }
    }
}

/// Takes receipts.
struct Receipts<'a, P> {
    link: usize,
    protocol: &'a mut P,
    lanes: &'a mut [Lane],
    ready: &'a mut VecDeque<usize>,
    slice: &'a mut Slice,
    size: u64,
    receipts: &'a mut Vec<(usize, u64)>,
    trouble: Option<String>,
    now_ns: u64,
}

impl<P> Receipts<'_, P> {
    fn receipt(&mut self, number: usize, sequence: u64) {
        if self.now_ns == 0 {
            self.now_ns = clock::monotonic_ns();
        }
        let Some(lane) = self.lanes.get_mut(number) else {
            self.trouble = Some(format!("a receipt for producer {number}, which is none of ours"));
            return;
        };
        let expected = lane.pending.pop_front();
        let Some(pending) = expected.filter(|pending| pending.sequence == sequence) else {
            self.trouble = Some(format!("receipt for {sequence} came out of turn"));
            return;
        };
        if std::mem::take(&mut lane.waits_for_receipt) {
            self.ready.push_back(number);
        }
        self.slice.messages += u64::from(pending.count);
        self.slice.bytes += u64::from(pending.count) * self.size;
        if pending.due.step_ns == 0.0 {
            let latency = self.now_ns.saturating_sub(pending.due.first_ns);
            self.slice.latencies.record(latency, u64::from(pending.count));
            return;
        }
        for index in 0..pending.count {
            self.slice
                .latencies
                .record(self.now_ns.saturating_sub(pending.due.at(index)), 1);
        }
    }
}

impl<P: PublishProtocol> FrameSink for Receipts<'_, P> {
    fn whole_len(start: &[u8]) -> Result<Option<usize>, FrameError> {
        P::whole_len(start)
    }

    fn on_frame(&mut self, whole: &[u8], out: &mut Vec<u8>) -> Result<(), FrameError> {
        let mut heard = Heard {
            out,
            receipts: self.receipts,
            refused: &mut self.slice.errors,
            trouble: &mut self.trouble,
        };
        self.protocol.on_frame(self.link, whole, &mut heard)?;
        let mut receipts = std::mem::take(self.receipts);
        for (lane, sequence) in receipts.drain(..) {
            self.receipt(lane, sequence);
        }
        *self.receipts = receipts;
        Ok(())
    }
}
