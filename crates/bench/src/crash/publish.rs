//! Publishing until the broker dies, and remembering what it acknowledged.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, bail};
use pharos_wire::command::Command;
use pharos_wire::{frame as wire_frame, request};

use crate::access::Access;
use crate::clock;
use crate::net::{FrameSink, Poller, Scratch};
use crate::perf::batch::{Author, BatchTemplate, Due};
use crate::perf::link::Link;
use crate::proto::command;
use crate::proto::frame::{self, FrameError};
use crate::session::{self, Session};

/// Unsent bytes beyond which nothing is added.
const UNSENT_MAX: usize = 1 << 20;
/// Longest sleep.
const TICK_NS: u64 = 20_000_000;

/// Work of the publisher.
pub(super) struct Plan<'a> {
    /// `pulsar://host:port`.
    pub(super) url: String,
    /// Topics, with one producer each.
    pub(super) topics: &'a [String],
    /// Goes into every message.
    pub(super) round: u32,
    /// Payload bytes.
    pub(super) size: usize,
    /// Messages in a batch.
    pub(super) batch_messages: u32,
    /// Batches without a receipt, per topic.
    pub(super) window: usize,
    /// Set just before the broker is killed: from then on a lost connection is no error.
    pub(super) killed: &'a AtomicBool,
}

/// State of one producer.
struct Lane {
    author: Author,
    sent: u64,
    acknowledged: u64,
    pending: VecDeque<(u64, u32)>,
}

/// Publishes until the connection is lost; messages sent and acknowledged, by topic.
pub(super) fn run(plan: &Plan<'_>) -> anyhow::Result<Vec<(u64, u64)>> {
    let mut lanes: Vec<Lane> = (0..plan.topics.len() as u64)
        .map(|number| Lane {
            author: Author {
                producer_id: number,
                source: plan.round,
                name: format!("crash-{}-{number}", plan.round),
            },
            sent: 0,
            acknowledged: 0,
            pending: VecDeque::new(),
        })
        .collect();
    match publish(plan, &mut lanes) {
        // The broker may have died at any point, also while the producers were being created.
        Err(_) if plan.killed.load(Ordering::Acquire) => {}
        Err(error) => return Err(error.context("the broker failed before it was killed")),
        Ok(()) => {}
    }
    Ok(lanes.iter().map(|lane| (lane.sent, lane.acknowledged)).collect())
}

fn publish(plan: &Plan<'_>, lanes: &mut [Lane]) -> anyhow::Result<()> {
    let mut session = Session::open(session::resolve(&plan.url)?, &Access::default())?;
    session.ask_all(plan.topics.iter().zip(lanes.iter()).map(|(topic, lane)| {
        let author = &lane.author;
        let make = move |id: u64| request::producer(topic, author.producer_id, id, Some(&author.name)).into();
        (format!("producer on {topic}"), make)
    }))?;
    let mut poller = Poller::new()?;
    let mut link = Link::new(session, &poller, 0)?;
    let mut template = BatchTemplate::new(plan.size, plan.batch_messages, 1 << 20);
    let (mut ready, mut scratch) = (Vec::new(), Scratch::default());
    loop {
        for lane in lanes.iter_mut() {
            while lane.pending.len() < plan.window && link.outbound.len() < UNSENT_MAX {
                let due = Due {
                    first_ns: clock::monotonic_ns(),
                    step_ns: 0.0,
                };
                let (sequence, count) = (lane.sent, template.capacity);
                let out = &mut link.outbound.buf;
                template.write(&lane.author, out, sequence, count, due, clock::wall_ns);
                lane.sent += u64::from(count);
                lane.pending.push_back((sequence, count));
            }
        }
        link.flush(&poller)?;
        poller.wait(TICK_NS, &mut ready)?;
        for event in &ready {
            if event.readable {
                let mut receipts = Receipts { lanes, trouble: None };
                link.read(&mut scratch, &mut receipts)?;
                if let Some(trouble) = receipts.trouble {
                    bail!(trouble);
                }
            }
        }
    }
}

struct Receipts<'a> {
    lanes: &'a mut [Lane],
    trouble: Option<String>,
}

impl Receipts<'_> {
    fn receipt(&mut self, producer_id: u64, sequence_id: u64) -> anyhow::Result<()> {
        let lane = self.lanes.get_mut(producer_id as usize);
        let lane = lane.context("a receipt for a producer that is none of ours")?;
        let (sequence, count) = lane.pending.pop_front().context("a receipt too many")?;
        if sequence != sequence_id {
            bail!("receipt for {sequence_id} came where {sequence} was due");
        }
        lane.acknowledged = sequence + u64::from(count);
        Ok(())
    }
}

impl FrameSink for Receipts<'_> {
    fn on_frame(&mut self, whole: &[u8], out: &mut Vec<u8>) -> Result<(), FrameError> {
        let (bytes, _) = frame::split(whole).ok_or(FrameError::Malformed)?;
        match wire_frame::decode_command(bytes).map_err(|_| FrameError::Malformed)? {
            Command::SendReceipt(receipt) => {
                if let Err(error) = self.receipt(receipt.producer_id, receipt.sequence_id) {
                    self.trouble = Some(error.to_string());
                }
            }
            Command::SendError(error) => {
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
