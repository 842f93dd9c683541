//! A publishing thread: any number of producers over a few connections.
//!
//! Ten thousand producers must not cost a look at each per turn of the loop, so every producer is in exactly one place:
//! `ready` (try it now), `timers` (its next batch is due then), or waiting for a receipt or for room in its socket.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::net::SocketAddr;

use anyhow::bail;
use pharos_wire::command::Command;
use pharos_wire::{frame as wire_frame, request};

use crate::access::Access;
use crate::clock;
use crate::net::{FrameSink, Poller, Ready, Scratch};
use crate::proto::command;
use crate::proto::frame::{self, FrameError};

use super::batch::{Author, BatchTemplate, Due};
use super::link::{Link, Sessions};
use super::pacing::{Pacing, Rest, Turn};
use super::slice::{Control, Event, Side, Slice, Teller};

/// A connection with more than this unsent takes no more batches: the socket is the limit then.
const UNSENT_MAX: usize = 1 << 20;
/// Longest sleep.
const TICK_NS: u64 = 20_000_000;
/// How long receipts may take once sending has stopped.
const RECEIPTS_TIMEOUT_NS: u64 = 30_000_000_000;

/// One producer to create.
#[derive(Clone, Debug)]
pub(crate) struct ProducerPlan {
    /// Its topic or partition.
    pub(crate) topic: String,
    /// The broker that serves it.
    pub(crate) broker: SocketAddr,
    /// Its number within the run; goes into every payload.
    pub(crate) source: u32,
    /// Its first message is due this long after the start, so that a thousand producers do not all begin at once.
    pub(crate) offset_ns: u64,
}

/// How all producers of a thread publish.
#[derive(Clone, Debug)]
pub(crate) struct PublishPlan {
    /// JSON Web Token.
    pub(crate) access: Access,
    /// The producers.
    pub(crate) producers: Vec<ProducerPlan>,
    /// Connections to each broker.
    pub(crate) connections: u32,
    /// Payload bytes.
    pub(crate) size: usize,
    /// Messages a second of one producer; 0 for as fast as it goes.
    pub(crate) rate: f64,
    /// Each producer ends after so many messages.
    pub(crate) limit: Option<u64>,
    /// Most messages in a batch.
    pub(crate) batch_messages: u32,
    /// Most bytes in a batch.
    pub(crate) batch_bytes: usize,
    /// Oldest a batch may get.
    pub(crate) batch_delay_ns: u64,
    /// Most sends without a receipt, per producer.
    pub(crate) window: usize,
}

struct PendingBatch {
    sequence: u64,
    count: u32,
    due: Due,
}

/// One producer at work.
struct Lane {
    link: usize,
    author: Author,
    pacing: Pacing,
    next: u64,
    pending: VecDeque<PendingBatch>,
    /// Its window is full: the next receipt makes it ready.
    waits_for_receipt: bool,
}

/// Runs until stopped or until all is sent; reports through `teller`.
///
/// # Errors
/// A connection is lost or a producer is refused or closed.
pub(crate) fn run(plan: &PublishPlan, control: &Control, mut teller: Teller) -> anyhow::Result<()> {
    let poller = Poller::new()?;
    let (lanes, sessions) = create(plan)?;
    let links = sessions.into_links(&poller)?;
    teller.say(Event::Ready);
    let template = BatchTemplate::new(plan.size, plan.batch_messages, plan.batch_bytes);
    let mut publishing = Publishing {
        plan,
        rest: Rest::new(lanes.len(), plan.rate, template.capacity, plan.batch_delay_ns),
        template,
        ready: VecDeque::new(),
        timers: BinaryHeap::new(),
        wait_for_room: links.iter().map(|_| Vec::new()).collect(),
        unfinished: lanes.len(),
        lanes,
        links,
        poller,
    };
    publishing.serve(control, &mut teller)?;
    let lanes = publishing.lanes.iter();
    teller.say(Event::Ended(
        lanes.map(|lane| (lane.author.source, lane.next)).collect(),
    ));
    Ok(())
}

/// Opens the connections and creates the producers.
fn create(plan: &PublishPlan) -> anyhow::Result<(Vec<Lane>, Sessions)> {
    let mut sessions = Sessions::new(plan.connections);
    let mut lanes = Vec::new();
    for (number, producer) in plan.producers.iter().enumerate() {
        lanes.push(Lane {
            link: sessions.to(producer.broker, number, &plan.access)?,
            author: Author {
                producer_id: number as u64,
                source: producer.source,
                name: format!("bench-{}-{}", std::process::id(), producer.source),
            },
            pacing: Pacing::new(0, plan.rate, plan.batch_delay_ns),
            next: 0,
            pending: VecDeque::new(),
            waits_for_receipt: false,
        });
    }
    for (link, session) in sessions.all() {
        let own = lanes.iter().zip(&plan.producers);
        let own = own.filter(|(lane, _)| lane.link == link);
        session.ask_all(own.map(|(lane, producer)| {
            let Author {
                producer_id, name, ..
            } = &lane.author;
            let make = move |id: u64| request::producer(&producer.topic, *producer_id, id, Some(name)).into();
            (format!("producer on {}", producer.topic), make)
        }))?;
    }
    Ok((lanes, sessions))
}

struct Publishing<'a> {
    plan: &'a PublishPlan,
    rest: Rest,
    template: BatchTemplate,
    lanes: Vec<Lane>,
    links: Vec<Link>,
    poller: Poller,
    ready: VecDeque<usize>,
    timers: BinaryHeap<Reverse<(u64, usize)>>,
    /// By connection.
    wait_for_room: Vec<Vec<usize>>,
    /// Producers that have not reached the limit.
    unfinished: usize,
}

impl Publishing<'_> {
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
                if event.readable {
                    self.receipts(event.token as usize, &mut scratch, teller)?;
                }
                if let Some(link) = self.links.get_mut(event.token as usize) {
                    link.flush(&self.poller)?;
                }
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
        let plan = self.plan;
        for (lane, producer) in self.lanes.iter_mut().zip(&plan.producers) {
            lane.pacing = Pacing::new(start_ns + producer.offset_ns, plan.rate, plan.batch_delay_ns);
        }
        self.ready.extend(0..self.lanes.len());
    }

    fn receipts(&mut self, number: usize, scratch: &mut Scratch, teller: &mut Teller) -> anyhow::Result<()> {
        let Some(link) = self.links.get_mut(number) else {
            return Ok(());
        };
        let mut sink = Receipts {
            lanes: &mut self.lanes,
            ready: &mut self.ready,
            slice: &mut teller.slice,
            size: self.plan.size as u64,
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
        for (link, waiting) in self.links.iter_mut().zip(&mut self.wait_for_room) {
            if link.outbound.len() > 0 {
                link.flush(&self.poller)?;
            }
            // Those that still find no room are written to again when the socket says so.
            if link.outbound.len() < UNSENT_MAX {
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
        let (Some(link), Some(waiting)) = (
            self.links.get_mut(lane.link),
            self.wait_for_room.get_mut(lane.link),
        ) else {
            return;
        };
        let left = self.plan.limit.map_or(u64::MAX, |limit| limit - lane.next);
        if left == 0 {
            self.unfinished -= 1;
        } else if lane.pending.len() >= self.plan.window {
            lane.waits_for_receipt = true;
        } else if link.outbound.len() >= UNSENT_MAX {
            waiting.push(number);
        } else {
            match lane.pacing.turn(now, lane.next, self.template.capacity) {
                Turn::WaitUntil(at) => self.timers.push(Reverse((at, number))),
                Turn::Send(count, due) => {
                    let count = u32::try_from(left).map_or(count, |left| count.min(left));
                    let sequence = lane.next;
                    let out = &mut link.outbound.buf;
                    self.template
                        .write(&lane.author, out, sequence, count, due, clock::wall_ns);
                    lane.pending.push_back(PendingBatch { sequence, count, due });
                    lane.next += u64::from(count);
                    self.ready.push_back(number);
                }
            }
        }
    }
}

/// Takes receipts.
struct Receipts<'a> {
    lanes: &'a mut [Lane],
    ready: &'a mut VecDeque<usize>,
    slice: &'a mut Slice,
    size: u64,
    trouble: Option<String>,
    now_ns: u64,
}

impl Receipts<'_> {
    fn receipt(&mut self, producer_id: u64, sequence_id: u64) {
        if self.now_ns == 0 {
            self.now_ns = clock::monotonic_ns();
        }
        let Some(lane) = self.lanes.get_mut(producer_id as usize) else {
            self.trouble = Some(format!(
                "a receipt for producer {producer_id}, which is none of ours"
            ));
            return;
        };
        let expected = lane.pending.pop_front();
        let Some(pending) = expected.filter(|pending| pending.sequence == sequence_id) else {
            self.trouble = Some(format!("receipt for {sequence_id} came out of turn"));
            return;
        };
        if std::mem::take(&mut lane.waits_for_receipt) {
            self.ready.push_back(producer_id as usize);
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

impl FrameSink for Receipts<'_> {
    fn on_frame(&mut self, whole: &[u8], out: &mut Vec<u8>) -> Result<(), FrameError> {
        let (bytes, _) = frame::split(whole).ok_or(FrameError::Malformed)?;
        match wire_frame::decode_command(bytes).map_err(|_| FrameError::Malformed)? {
            Command::SendReceipt(receipt) => self.receipt(receipt.producer_id, receipt.sequence_id),
            Command::SendError(error) => {
                self.slice.errors += 1;
                self.trouble = Some(format!("a message was refused: {}", error.message));
            }
            Command::Error(error) => self.trouble = Some(command::refusal(&error)),
            Command::CloseProducer(_) => self.trouble = Some("the broker closed a producer".to_owned()),
            Command::Ping(_) => command::push(out, &request::pong()),
            _ => {}
        }
        Ok(())
    }
}
