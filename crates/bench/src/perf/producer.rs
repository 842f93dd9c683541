//! A publishing thread: any number of producers over one connection per broker.

use std::collections::VecDeque;
use std::net::SocketAddr;

use anyhow::bail;
use pharos_wire::command::Command;
use pharos_wire::{frame as wire_frame, request};

use crate::clock;
use crate::net::{FrameSink, Poller, Ready};
use crate::proto::command;
use crate::proto::frame::{self, FrameError};

use super::batch::{BatchTemplate, Due};
use super::link::{Link, Sessions};
use super::pacing::{Pacing, Turn};
use super::slice::{Control, Event, Side, Slice, Teller};

/// A connection with more than this unsent takes no more batches: the socket is the limit then.
const UNSENT_MAX: usize = 1 << 20;
/// Longest sleep.
const TICK_NS: u64 = 20_000_000;
/// How long receipts may take once sending has stopped.
const RECEIPTS_TIMEOUT_NS: u64 = 30_000_000_000;

/// One producer to create.
#[derive(Clone, Debug)]
pub(super) struct ProducerPlan {
    /// Its topic or partition.
    pub(super) topic: String,
    /// The broker that serves it.
    pub(super) broker: SocketAddr,
    /// Its number within the run; goes into every payload.
    pub(super) source: u32,
}

/// How all producers of a thread publish.
#[derive(Clone, Debug)]
pub(super) struct PublishPlan {
    /// JSON Web Token.
    pub(super) token: Option<String>,
    /// The producers.
    pub(super) producers: Vec<ProducerPlan>,
    /// Payload bytes.
    pub(super) size: usize,
    /// Messages a second of one producer; 0 for as fast as it goes.
    pub(super) rate: f64,
    /// Most messages in a batch.
    pub(super) batch_messages: u32,
    /// Most bytes in a batch.
    pub(super) batch_bytes: usize,
    /// Oldest a batch may get.
    pub(super) batch_delay_ns: u64,
    /// Most sends without a receipt, per producer.
    pub(super) window: usize,
}

struct Pending {
    sequence: u64,
    count: u32,
    due: Due,
}

/// One producer at work.
struct Lane {
    link: usize,
    template: BatchTemplate,
    pacing: Pacing,
    next: u64,
    pending: VecDeque<Pending>,
}

/// Runs until stopped; reports through `teller`.
///
/// # Errors
/// A connection is lost or a producer is refused or closed.
pub(super) fn run(plan: &PublishPlan, control: &Control, mut teller: Teller) -> anyhow::Result<()> {
    let poller = Poller::new()?;
    let mut sessions = Sessions::default();
    let mut lanes = Vec::new();
    for (number, producer) in plan.producers.iter().enumerate() {
        let link = sessions.to(producer.broker, plan.token.as_deref())?;
        let name = format!("bench-{}-{}", std::process::id(), producer.source);
        let id = number as u64;
        sessions.get(link)?.create_producer(&producer.topic, id, &name)?;
        lanes.push(Lane {
            link,
            template: BatchTemplate::new(
                id,
                producer.source,
                &name,
                plan.size,
                plan.batch_messages,
                plan.batch_bytes,
            ),
            pacing: Pacing::new(0, plan.rate, plan.batch_delay_ns),
            next: 0,
            pending: VecDeque::with_capacity(plan.window),
        });
    }
    let links = sessions.into_links(&poller)?;
    teller.say(Event::Ready);
    Publishing {
        plan,
        lanes,
        links,
        poller,
        size: plan.size as u64,
    }
    .serve(control, &mut teller)
}

struct Publishing<'a> {
    plan: &'a PublishPlan,
    lanes: Vec<Lane>,
    links: Vec<Link>,
    poller: Poller,
    size: u64,
}

impl Publishing<'_> {
    fn serve(&mut self, control: &Control, teller: &mut Teller) -> anyhow::Result<()> {
        let (mut ready, mut scratch) = (Vec::<Ready>::new(), Vec::new());
        let mut started = false;
        let mut stopped_ns = None;
        loop {
            let now = clock::monotonic_ns();
            if let Some(start_ns) = control.started()
                && !started
            {
                started = true;
                for lane in &mut self.lanes {
                    lane.pacing = Pacing::new(start_ns, self.plan.rate, self.plan.batch_delay_ns);
                }
            }
            let mut wait_ns = TICK_NS;
            if control.stopped(Side::Publish) {
                let since = *stopped_ns.get_or_insert(now);
                let missing: usize = self.lanes.iter().map(|lane| lane.pending.len()).sum();
                if missing == 0 || control.aborted() {
                    break;
                }
                if now - since > RECEIPTS_TIMEOUT_NS {
                    bail!("{missing} sends never had a receipt");
                }
            } else if started {
                wait_ns = self.send(now)?.saturating_sub(now).min(TICK_NS);
            }
            self.poller.wait(wait_ns, &mut ready)?;
            for event in &ready {
                let Some(link) = self.links.get_mut(event.token as usize) else {
                    continue;
                };
                if event.readable {
                    let mut sink = Receipts {
                        lanes: &mut self.lanes,
                        slice: &mut teller.slice,
                        size: self.size,
                        trouble: None,
                        now_ns: 0,
                    };
                    link.read(&mut scratch, &mut sink)?;
                    if let Some(trouble) = sink.trouble {
                        bail!(trouble);
                    }
                }
                link.flush(&self.poller)?;
            }
            teller.tick(clock::monotonic_ns());
        }
        teller.flush();
        Ok(())
    }

    /// Sends all that is due and fits; says when the next batch will be due, monotonic nanoseconds.
    fn send(&mut self, now: u64) -> anyhow::Result<u64> {
        let mut next_ns = now + TICK_NS;
        for lane in &mut self.lanes {
            let Some(link) = self.links.get_mut(lane.link) else {
                continue;
            };
            // Full windows and full sockets end in a receipt or in room to write, and both wake the loop.
            while lane.pending.len() < self.plan.window && link.outbound.len() < UNSENT_MAX {
                match lane.pacing.turn(now, lane.next, lane.template.capacity) {
                    Turn::WaitUntil(at) => {
                        next_ns = next_ns.min(at);
                        break;
                    }
                    Turn::Send(count, due) => {
                        let sequence = lane.next;
                        lane.template
                            .write(&mut link.outbound.buf, sequence, count, due, clock::wall_ns);
                        lane.pending.push_back(Pending { sequence, count, due });
                        lane.next += u64::from(count);
                    }
                }
            }
        }
        for link in &mut self.links {
            if link.outbound.len() > 0 {
                link.flush(&self.poller)?;
            }
        }
        Ok(next_ns)
    }
}

/// Takes receipts.
struct Receipts<'a> {
    lanes: &'a mut [Lane],
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
        let lane = self.lanes.get_mut(producer_id as usize);
        let expected = lane.and_then(|lane| lane.pending.pop_front());
        let Some(pending) = expected.filter(|pending| pending.sequence == sequence_id) else {
            self.trouble = Some(format!("receipt for {sequence_id} came out of turn"));
            return;
        };
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
