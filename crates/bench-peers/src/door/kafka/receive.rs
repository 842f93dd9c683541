//! Receiving from Kafka: a connection for each subscription, one fetch under way on it over all of its partitions.
//!
//! Kafka answers the requests of a connection one after the other, and a fetch waits at the broker until there is something: that
//! is why consumers cannot share one. No offsets are committed.

use std::net::SocketAddr;

use pharos_bench::load::{
    Control, Count, FrameError, Link, Poller, ReceiveProtocol, Seats, Side, Teller, receive,
};

use super::setup::Session;
use super::{topic_name, wire};
use crate::share::{ReceiveShare, slots_of};
use crate::spec::Load;

/// Defaults of the Java client: `fetch.max.wait.ms`, `fetch.min.bytes`, `fetch.max.bytes` and
/// `max.partition.fetch.bytes`.
const WAIT_MS: i32 = 500;
const BYTES_MIN: i32 = 1;
const BYTES_MAX: i32 = 50 << 20;
const PARTITION_BYTES_MAX: i32 = 1 << 20;
/// The broker has forgotten the session, or expects another step of it.
const SESSION_ERRORS: [i16; 2] = [70, 71];

/// Runs until stopped; reports through `teller`.
pub(crate) fn run(
    address: SocketAddr,
    load: &Load,
    share: &ReceiveShare,
    control: &Control,
    mut teller: Teller,
) -> anyhow::Result<()> {
    let poller = Poller::new()?;
    let mut subscriptions: Vec<u32> = share.units.iter().map(|unit| unit.subscription).collect();
    subscriptions.sort_unstable();
    subscriptions.dedup();
    let (mut links, mut fetchers) = (Vec::new(), Vec::new());
    let mut seats = 0;
    for subscription in subscriptions {
        let mut session = Session::open(address)?;
        let mut parts = Vec::new();
        let own = share
            .units
            .iter()
            .filter(|unit| unit.subscription == subscription);
        for unit in own {
            let latest = session.latest(unit.topic, load.partitions.max(1))?;
            for (slot, latest) in slots_of(load, unit.topic).zip(latest) {
                parts.push(Part {
                    topic: slot.topic,
                    partition: slot.partition as i32,
                    offset: if share.side == Side::Backlog { 0 } else { latest },
                    seat: seats,
                });
                seats += 1;
            }
        }
        teller.attached();
        links.push(Link::plain(session.into_stream(), &poller, links.len() as u64)?);
        fetchers.push(Fetcher::new(parts));
    }
    let seats = Seats {
        consumers: seats,
        ordered: true,
        from_first: true,
    };
    receive(
        KafkaReceive {
            fetchers,
            correlation: 0,
        },
        (poller, links),
        seats,
        control,
        teller,
    )
}

/// A partition that is read.
struct Part {
    topic: u32,
    partition: i32,
    /// The next one wanted.
    offset: i64,
    seat: usize,
}

/// The fetches of a connection: a session at the broker, which knows the offsets that have not changed.
struct Fetcher {
    parts: Vec<Part>,
    session: i32,
    epoch: i32,
    /// Parts to name in the next fetch, in the order of `parts`.
    changed: Vec<usize>,
}

impl Fetcher {
    fn new(mut parts: Vec<Part>) -> Self {
        parts.sort_unstable_by_key(|part| (part.topic, part.partition));
        Self {
            changed: (0..parts.len()).collect(),
            parts,
            session: 0,
            epoch: 0,
        }
    }

    /// The next fetch begins a new session.
    fn begin_again(&mut self) {
        (self.session, self.epoch) = (0, 0);
        self.changed = (0..self.parts.len()).collect();
    }

    fn write(&mut self, correlation: i32, out: &mut Vec<u8>) {
        let start = wire::begin(out, wire::FETCH, correlation);
        wire::i32(out, -1);
        wire::i32(out, WAIT_MS);
        wire::i32(out, BYTES_MIN);
        wire::i32(out, BYTES_MAX);
        wire::i8(out, 0);
        wire::i32(out, self.session);
        wire::i32(out, self.epoch);
        let topics_at = out.len();
        wire::i32(out, 0);
        let (mut topics, mut parts) = (0, 0);
        let mut topic = None;
        let mut parts_at = 0;
        for part in self.changed.iter().filter_map(|at| self.parts.get(*at)) {
            if topic != Some(part.topic) {
                topic = Some(part.topic);
                (topics, parts) = (topics + 1, 0);
                wire::string(out, &topic_name(part.topic));
                parts_at = out.len();
                wire::i32(out, 0);
            }
            parts += 1;
            wire::patch(out, parts_at, parts);
            wire::i32(out, part.partition);
            wire::i32(out, -1);
            wire::i64(out, part.offset);
            wire::i64(out, -1);
            wire::i32(out, PARTITION_BYTES_MAX);
        }
        wire::patch(out, topics_at, topics);
        wire::i32(out, 0);
        wire::string(out, "");
        wire::end(out, start);
        self.changed.clear();
    }

    /// The place of a partition: by topic and partition, as they were put in.
    fn find(&self, topic: &str, partition: i32) -> Option<usize> {
        let topic: u32 = topic.strip_prefix('b')?.parse().ok()?;
        self.parts
            .binary_search_by_key(&(topic, partition), |part| (part.topic, part.partition))
            .ok()
    }

    fn take(&mut self, frame: &[u8], count: &mut Count<'_>) -> Result<(), FrameError> {
        let mut answer = wire::Answer(frame);
        answer.bytes(4 + 4 + 4)?;
        let error = answer.i16()?;
        if SESSION_ERRORS.contains(&error) {
            self.begin_again();
            return Ok(());
        }
        if error != 0 {
            count.fail(format!("a fetch was answered with error {error}"));
            return Ok(());
        }
        self.session = answer.i32()?;
        // Behind the last step comes the first, which is 1: 0 would begin a session.
        self.epoch = self.epoch.checked_add(1).unwrap_or(1);
        for _ in 0..answer.count()? {
            let topic = answer.string()?;
            for _ in 0..answer.count()? {
                let (partition, error) = (answer.i32()?, answer.i16()?);
                answer.bytes(24)?;
                let aborted = answer.count()?;
                answer.bytes(16 * aborted)?;
                answer.i32()?;
                let length = answer.count()?;
                let bytes = answer.bytes(length)?;
                if error != 0 {
                    count.fail(format!("partition {partition} of {topic}: error {error}"));
                    return Ok(());
                }
                let at = self.find(topic, partition).ok_or(FrameError::Malformed)?;
                let Some(part) = self.parts.get_mut(at) else {
                    continue;
                };
                let seat = part.seat;
                let next = wire::records(bytes, part.offset, |payload, published_ms| {
                    count.message(seat, payload, published_ms);
                })?;
                if next != part.offset {
                    part.offset = next;
                    self.changed.push(at);
                }
            }
        }
        self.changed.sort_unstable();
        // A broker that keeps enough sessions gives no number, and wants to be told everything each time.
        if self.session == 0 {
            self.begin_again();
        }
        Ok(())
    }
}

struct KafkaReceive {
    /// By connection.
    fetchers: Vec<Fetcher>,
    correlation: i32,
}

impl KafkaReceive {
    fn fetch(&mut self, link: usize, out: &mut Vec<u8>) {
        self.correlation = self.correlation.wrapping_add(1);
        if let Some(fetcher) = self.fetchers.get_mut(link) {
            fetcher.write(self.correlation, out);
        }
    }
}

impl ReceiveProtocol for KafkaReceive {
    fn begin(&mut self, link: usize, out: &mut Vec<u8>) {
        self.fetch(link, out);
    }

    fn whole_len(start: &[u8]) -> Result<Option<usize>, FrameError> {
        Ok(super::whole_len(start))
    }

    fn on_frame(
        &mut self,
        link: usize,
        frame: &[u8],
        out: &mut Vec<u8>,
        count: &mut Count<'_>,
    ) -> Result<(), FrameError> {
        let fetcher = self.fetchers.get_mut(link).ok_or(FrameError::Malformed)?;
        fetcher.take(frame, count)?;
        self.fetch(link, out);
        Ok(())
    }
}
