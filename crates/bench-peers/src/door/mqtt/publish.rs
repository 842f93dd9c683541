//! Publishing over MQTT: messages one by one, each acknowledged.

use std::collections::VecDeque;
use std::net::SocketAddr;

use pharos_bench::load::{
    Bodies, Control, FrameError, Heard, LaneStart, Link, OutgoingBatch, Pace, Poller, PublishProtocol, Stamp,
    Teller, publish, wall_ns,
};

use super::wire::{self, Packet};
use crate::share::PublishShare;
use crate::spec::Load;

/// Messages of a connection without an acknowledgement: their numbers have 16 bits.
const IN_FLIGHT_MAX: usize = 60_000;

/// Runs until stopped; reports through `teller`.
pub(crate) fn run(
    address: SocketAddr,
    load: &Load,
    share: &PublishShare,
    control: &Control,
    teller: Teller,
) -> anyhow::Result<()> {
    let poller = Poller::new()?;
    let mut links = Vec::new();
    let connections = (load.connections as usize).min(share.lanes.len()).max(1);
    for number in 0..connections {
        let stream = super::connect(address, &format!("publish-{}-{number}", share.thread))?;
        links.push(Link::plain(stream, &poller, number as u64)?);
    }
    let lanes: Vec<LaneStart> = share
        .lanes
        .iter()
        .enumerate()
        .map(|(number, lane)| LaneStart {
            link: number % connections,
            source: lane.source,
            offset_ns: lane.offset_ns,
        })
        .collect();
    let protocol = MqttPublish {
        topics: share.lanes.iter().map(|lane| super::topic(lane.slot)).collect(),
        under_way: links.iter().map(|_| UnderWay::default()).collect(),
        size: share.pace.size,
        bodies: Bodies::default(),
    };
    let window = share.pace.window.saturating_mul(load.batch_messages as usize);
    let pace = Pace {
        window: window.min(IN_FLIGHT_MAX / lanes.len().max(1)).max(1),
        ..share.pace.clone()
    };
    publish(protocol, (poller, links), &lanes, &pace, control, teller)
}

/// Messages of a connection without an acknowledgement, in the order in which they were sent and are acknowledged.
#[derive(Default)]
struct UnderWay {
    last: u16,
    messages: VecDeque<(u16, usize, u64)>,
}

struct MqttPublish {
    /// By producer.
    topics: Vec<String>,
    /// By connection: numbers, producers and sequences.
    under_way: Vec<UnderWay>,
    size: usize,
    bodies: Bodies,
}

impl PublishProtocol for MqttPublish {
    fn capacity(&self) -> u32 {
        1
    }

    fn write(&mut self, link: usize, batch: &OutgoingBatch, out: &mut Vec<u8>) {
        let (Some(topic), Some(under_way)) = (self.topics.get(batch.lane), self.under_way.get_mut(link))
        else {
            return;
        };
        // 0 is no number.
        under_way.last = under_way.last.checked_add(1).unwrap_or(1);
        under_way
            .messages
            .push_back((under_way.last, batch.lane, batch.sequence));
        wire::publish_head(out, topic, under_way.last, self.size);
        let at = out.len();
        out.resize(at + self.size, 0);
        let stamp = Stamp {
            sequence: batch.sequence,
            sent_ns: wall_ns(batch.due.at(0)),
            source: batch.source,
        };
        if let Some(payload) = out.get_mut(at..) {
            self.bodies.write(&stamp, payload);
        }
    }

    fn has_room(&self, link: usize, _lane: usize) -> bool {
        let under_way = self.under_way.get(link);
        under_way.is_some_and(|under_way| under_way.messages.len() < IN_FLIGHT_MAX)
    }

    fn whole_len(start: &[u8]) -> Result<Option<usize>, FrameError> {
        wire::whole_len(start)
    }

    fn on_frame(&mut self, link: usize, frame: &[u8], heard: &mut Heard<'_>) -> Result<(), FrameError> {
        if let Packet::Receipt(number) = wire::parse(frame)? {
            let under_way = self.under_way.get_mut(link).ok_or(FrameError::Malformed)?;
            let (expected, lane, sequence) = under_way.messages.pop_front().ok_or(FrameError::Malformed)?;
            if expected != number {
                heard.fail(format!("message {number} was acknowledged before {expected}"));
                return Ok(());
            }
            heard.receipt(lane, sequence);
        }
        Ok(())
    }
}
