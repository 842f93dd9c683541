//! Publishing to NATS: messages one by one, each acknowledged by JetStream; without JetStream a PING behind each batch.

use std::collections::VecDeque;
use std::fmt::Write as _;

use pharos_bench::load::{
    Bodies, Control, FrameError, Heard, LaneStart, Link, OutgoingBatch, Pace, Poller, PublishProtocol, Stamp,
    Teller, publish, wall_ns,
};

use super::setup::Session;
use super::wire::{self, Frame};
use super::{NatsDoor, subject};
use crate::share::PublishShare;
use crate::spec::Load;

/// Messages without an acknowledgement, over all producers of a thread, in place of batches: the default of the Go client's
/// asynchronous publishing.
const IN_FLIGHT_MAX: usize = 4_000;
/// The subscription that acknowledgements come for.
const RECEIPTS: u64 = 1;

/// Runs until stopped; reports through `teller`.
pub(crate) fn run(
    door: &NatsDoor,
    load: &Load,
    share: &PublishShare,
    control: &Control,
    teller: Teller,
) -> anyhow::Result<()> {
    let poller = Poller::new()?;
    let inbox = format!("_A{}", share.thread);
    let mut links = Vec::new();
    for number in 0..load.connections {
        let mut session = Session::open(door.address)?;
        let mut lines = Vec::new();
        wire::subscribe(&mut lines, &format!("{inbox}.{number}.>"), RECEIPTS);
        lines.extend_from_slice(b"PING\r\n");
        session.round_trip(&lines)?;
        links.push(Link::plain(session.into_stream(), &poller, u64::from(number))?);
    }
    let lanes: Vec<LaneStart> = share
        .lanes
        .iter()
        .enumerate()
        .map(|(number, lane)| LaneStart {
            link: number % links.len(),
            source: lane.source,
            offset_ns: lane.offset_ns,
        })
        .collect();
    let batched = u32::try_from(load.batch_bytes / share.pace.size).unwrap_or(u32::MAX);
    let capacity = match door.jetstream {
        true => 1,
        false => load.batch_messages.min(batched).max(1),
    };
    let window = match door.jetstream {
        true => share
            .pace
            .window
            .saturating_mul(load.batch_messages.min(batched).max(1) as usize)
            .min(IN_FLIGHT_MAX / share.lanes.len().max(1))
            .max(1),
        false => share.pace.window,
    };
    let protocol = NatsPublish {
        jetstream: door.jetstream,
        subjects: share.lanes.iter().map(|lane| subject(lane.slot)).collect(),
        pinged: links.iter().map(|_| VecDeque::new()).collect(),
        inbox,
        reply: String::new(),
        capacity,
        size: share.pace.size,
        bodies: Bodies::default(),
    };
    let pace = Pace {
        window,
        ..share.pace.clone()
    };
    publish(protocol, (poller, links), &lanes, &pace, control, teller)
}

struct NatsPublish {
    jetstream: bool,
    /// By producer.
    subjects: Vec<String>,
    /// Batches of each connection whose PING is not answered: producer and sequence.
    pinged: Vec<VecDeque<(usize, u64)>>,
    /// Prefix of the acknowledgement subjects; connection, producer and sequence follow it.
    inbox: String,
    /// Kept for its memory.
    reply: String,
    capacity: u32,
    size: usize,
    bodies: Bodies,
}

impl PublishProtocol for NatsPublish {
    fn capacity(&self) -> u32 {
        self.capacity
    }

    fn write(&mut self, link: usize, batch: &OutgoingBatch, out: &mut Vec<u8>) {
        let Some(subject) = self.subjects.get(batch.lane) else {
            return;
        };
        self.reply.clear();
        if self.jetstream {
            // Writing to memory does not fail.
            let _ = write!(
                self.reply,
                "{}.{link}.{}.{}",
                self.inbox, batch.lane, batch.sequence
            );
        }
        for index in 0..batch.count {
            wire::publish_line(out, subject, &self.reply, self.size);
            let at = out.len();
            out.resize(at + self.size, 0);
            let stamp = Stamp {
                sequence: batch.sequence + u64::from(index),
                sent_ns: wall_ns(batch.due.at(index)),
                source: batch.source,
            };
            if let Some(payload) = out.get_mut(at..) {
                self.bodies.write(&stamp, payload);
            }
            out.extend_from_slice(b"\r\n");
        }
        if !self.jetstream
            && let Some(pinged) = self.pinged.get_mut(link)
        {
            out.extend_from_slice(b"PING\r\n");
            pinged.push_back((batch.lane, batch.sequence));
        }
    }

    fn whole_len(start: &[u8]) -> Result<Option<usize>, FrameError> {
        wire::whole_len(start)
    }

    fn on_frame(&mut self, link: usize, frame: &[u8], heard: &mut Heard<'_>) -> Result<(), FrameError> {
        match wire::parse(frame)? {
            Frame::Message {
                subject,
                headers,
                payload,
                ..
            } => {
                if !headers.is_empty() || contains(payload, b"\"error\"") {
                    let said = format!("{} {}", headers.trim(), String::from_utf8_lossy(payload));
                    heard.refused(said.trim());
                    return Ok(());
                }
                let mut words = subject.rsplit('.');
                let sequence = words.next().and_then(|word| word.parse().ok());
                let lane = words.next().and_then(|word| word.parse().ok());
                let (lane, sequence) = lane.zip(sequence).ok_or(FrameError::Malformed)?;
                heard.receipt(lane, sequence);
            }
            Frame::Pong => {
                let pinged = self.pinged.get_mut(link).and_then(VecDeque::pop_front);
                if let Some((lane, sequence)) = pinged {
                    heard.receipt(lane, sequence);
                }
            }
            Frame::Ping => heard.out.extend_from_slice(b"PONG\r\n"),
            Frame::Error(error) => heard.fail(error.to_owned()),
            Frame::Other => {}
        }
        Ok(())
    }
}

fn contains(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|window| window == word)
}
