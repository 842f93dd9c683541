//! Publishing to Kafka: `acks=all`, batches of several partitions in one request, requests pipelined.

use std::collections::VecDeque;
use std::net::{SocketAddr, TcpStream};

use pharos_bench::load::{
    Bodies, Control, FrameError, Heard, LaneStart, Link, OutgoingBatch, Poller, PublishProtocol, Teller,
    publish,
};

use super::{topic_name, wire};
use crate::share::PublishShare;
use crate::spec::Load;

/// The Java client's `max.request.size`,
const REQUEST_BYTES_MAX: usize = 1 << 20;
/// and its `max.in.flight.requests.per.connection`: while so many are without an answer, batches grow instead.
const REQUESTS_MAX: usize = 5;
/// Maximum overhead of a record beside its payload, and of a batch beside its records, in bytes.
const RECORD_OVERHEAD: usize = 16;
const BATCH_OVERHEAD: usize = 61;
/// Time limit for the broker, in milliseconds.
const TIMEOUT_MS: i32 = 30_000;

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
    for number in 0..load.connections {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        links.push(Link::plain(stream, &poller, u64::from(number))?);
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
    let size = share.pace.size;
    let fitting = load.batch_bytes.saturating_sub(BATCH_OVERHEAD) / (size + RECORD_OVERHEAD);
    let protocol = KafkaPublish {
        lanes: share
            .lanes
            .iter()
            .map(|lane| Target {
                topic: lane.slot.topic,
                partition: lane.slot.partition as i32,
                request: 0,
            })
            .collect(),
        links: links.iter().map(|_| Requests::default()).collect(),
        capacity: load
            .batch_messages
            .min(u32::try_from(fitting).unwrap_or(u32::MAX))
            .max(1),
        size,
        bodies: Bodies::default(),
        requests: 0,
    };
    publish(protocol, (poller, links), &lanes, &share.pace, control, teller)
}

/// Topic and partition that a producer publishes to.
struct Target {
    topic: u32,
    partition: i32,
    /// The last request that it has a batch in; a request holds one of each partition.
    request: u64,
}

/// The requests of a connection.
#[derive(Default)]
struct Requests {
    /// The one that may still grow.
    open: Option<Open>,
    /// Sent and not answered, each with its batches: producer and sequence.
    under_way: VecDeque<Vec<(usize, u64)>>,
}

struct Open {
    number: u64,
    /// Start in the connection's buffer, and end so far,
    start: usize,
    end: usize,
    /// and where its number of topics stands.
    topics_at: usize,
    topics: i32,
    /// The last topic, where its number of partitions stands, and that number.
    topic: Option<u32>,
    partitions_at: usize,
    partitions: i32,
    batches: Vec<(usize, u64)>,
}

impl Open {
    /// True if a batch of this producer may be added to the request.
    fn takes(&self, lane: &Target) -> bool {
        self.number != lane.request && self.end - self.start < REQUEST_BYTES_MAX
    }

    /// Says where the next batch goes.
    fn enter(&mut self, lane: &Target, out: &mut Vec<u8>) {
        if self.topic != Some(lane.topic) {
            self.topic = Some(lane.topic);
            self.topics += 1;
            wire::patch(out, self.topics_at, self.topics);
            wire::string(out, &topic_name(lane.topic));
            (self.partitions_at, self.partitions) = (out.len(), 0);
            wire::i32(out, 0);
        }
        self.partitions += 1;
        wire::patch(out, self.partitions_at, self.partitions);
        wire::i32(out, lane.partition);
    }
}

struct KafkaPublish {
    lanes: Vec<Target>,
    links: Vec<Requests>,
    capacity: u32,
    size: usize,
    bodies: Bodies,
    /// Begun so far, over all connections.
    requests: u64,
}

impl Requests {
    fn seal(&mut self) {
        if let Some(open) = self.open.take() {
            self.under_way.push_back(open.batches);
        }
    }
}

fn begin(out: &mut Vec<u8>, number: u64) -> Open {
    let start = wire::begin(out, wire::PRODUCE, number as i32);
    wire::i16(out, -1); // no transaction
    wire::i16(out, -1); // acks=all
    wire::i32(out, TIMEOUT_MS);
    let topics_at = out.len();
    wire::i32(out, 0);
    Open {
        number,
        start,
        end: start,
        topics_at,
        topics: 0,
        topic: None,
        partitions_at: 0,
        partitions: 0,
        batches: Vec::new(),
    }
}

impl PublishProtocol for KafkaPublish {
    fn capacity(&self) -> u32 {
        self.capacity
    }

    fn write(&mut self, link: usize, batch: &OutgoingBatch, out: &mut Vec<u8>) {
        let (Some(lane), Some(requests)) = (self.lanes.get_mut(batch.lane), self.links.get_mut(link)) else {
            return;
        };
        if requests.open.as_ref().is_some_and(|open| !open.takes(lane)) {
            requests.seal();
        }
        let open = requests.open.get_or_insert_with(|| {
            self.requests += 1;
            begin(out, self.requests)
        });
        lane.request = open.number;
        open.enter(lane, out);
        let length_at = out.len();
        wire::i32(out, 0);
        wire::record_batch(out, batch, self.size, &self.bodies);
        let length = (out.len() - length_at - 4) as i32;
        wire::patch(out, length_at, length);
        open.batches.push((batch.lane, batch.sequence));
        wire::end(out, open.start);
        open.end = out.len();
    }

    fn has_room(&self, link: usize, lane: usize) -> bool {
        let (Some(lane), Some(requests)) = (self.lanes.get(lane), self.links.get(link)) else {
            return false;
        };
        match &requests.open {
            Some(open) if open.takes(lane) => true,
            open => requests.under_way.len() + usize::from(open.is_some()) < REQUESTS_MAX,
        }
    }

    fn seal(&mut self, link: usize) {
        if let Some(requests) = self.links.get_mut(link) {
            requests.seal();
        }
    }

    fn whole_len(start: &[u8]) -> Result<Option<usize>, FrameError> {
        Ok(super::whole_len(start))
    }

    fn on_frame(&mut self, link: usize, frame: &[u8], heard: &mut Heard<'_>) -> Result<(), FrameError> {
        let mut answer = wire::Answer(frame);
        answer.bytes(8)?;
        for _ in 0..answer.count()? {
            answer.string()?;
            for _ in 0..answer.count()? {
                let (partition, error) = (answer.i32()?, answer.i16()?);
                answer.bytes(24)?;
                if error != 0 {
                    heard.refused(&format!("partition {partition}: error {error}"));
                    return Ok(());
                }
            }
        }
        let batches = self
            .links
            .get_mut(link)
            .and_then(|requests| requests.under_way.pop_front());
        for (lane, sequence) in batches.ok_or(FrameError::Malformed)? {
            heard.receipt(lane, sequence);
        }
        Ok(())
    }
}
