//! The few questions asked before a load, over a connection that blocks.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use pharos_bench::load::monotonic_ns;

use super::{topic_name, wire};
use crate::spec::Load;

/// Longest wait for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Time limit for partitions to elect leaders.
const LEADERS_TIMEOUT_NS: u64 = 60_000_000_000;
/// Between two looks.
const LOOK: Duration = Duration::from_millis(50);

/// A connection.
pub(super) struct Session {
    stream: TcpStream,
    correlation: i32,
}

impl Session {
    pub(super) fn open(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, ANSWER_TIMEOUT)
            .with_context(|| format!("cannot connect to {address}"))?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            correlation: 0,
        })
    }

    /// Asks, and returns the answer behind its correlation id.
    fn ask(&mut self, request: (i16, i16), body: impl FnOnce(&mut Vec<u8>)) -> anyhow::Result<Vec<u8>> {
        let mut out = Vec::new();
        self.correlation += 1;
        let start = wire::begin(&mut out, request, self.correlation);
        body(&mut out);
        wire::end(&mut out, start);
        self.stream.write_all(&out)?;
        let mut length = [0; 4];
        self.stream.read_exact(&mut length).context("no answer")?;
        let mut answer = vec![0; u32::from_be_bytes(length) as usize];
        self.stream.read_exact(&mut answer).context("no whole answer")?;
        let mut head = wire::Answer(&answer);
        ensure!(head.i32()? == self.correlation, "an answer to another request");
        Ok(answer.split_off(4))
    }

    /// The stream, between two answers.
    pub(super) fn into_stream(self) -> TcpStream {
        self.stream
    }

    /// The offset behind the newest message of each partition of a topic.
    pub(super) fn latest(&mut self, topic: u32, partitions: u32) -> anyhow::Result<Vec<i64>> {
        let answer = self.ask(wire::LIST_OFFSETS, |out| {
            wire::i32(out, -1);
            wire::i8(out, 0);
            wire::i32(out, 1);
            wire::string(out, &topic_name(topic));
            wire::i32(out, partitions as i32);
            for partition in 0..partitions {
                wire::i32(out, partition as i32);
                wire::i32(out, -1);
                wire::i64(out, -1);
            }
        })?;
        let mut answer = wire::Answer(&answer);
        answer.i32()?;
        let mut offsets = vec![0; partitions as usize];
        for _ in 0..answer.count()? {
            answer.string()?;
            for _ in 0..answer.count()? {
                let (partition, error) = (answer.i32()?, answer.i16()?);
                answer.i64()?;
                let offset = answer.i64()?;
                answer.i32()?;
                ensure!(
                    error == 0,
                    "partition {partition} of topic {topic}: error {error}"
                );
                if let Some(place) = offsets.get_mut(partition as usize) {
                    *place = offset;
                }
            }
        }
        Ok(offsets)
    }

    /// Returns the number of known brokers, and the number of partitions of the topics that have a leader.
    fn leaders(&mut self, topics: &[String]) -> anyhow::Result<(usize, usize)> {
        let answer = self.ask(wire::METADATA, |out| {
            wire::i32(out, topics.len() as i32);
            for topic in topics {
                wire::string(out, topic);
            }
            wire::i8(out, 0);
        })?;
        let mut answer = wire::Answer(&answer);
        answer.i32()?;
        let brokers = answer.count()?;
        for _ in 0..brokers {
            answer.i32()?;
            answer.string()?;
            answer.i32()?;
            answer.string()?;
        }
        answer.string()?;
        answer.i32()?;
        let mut leaders = 0;
        for _ in 0..answer.count()? {
            answer.i16()?;
            answer.string()?;
            answer.i8()?;
            for _ in 0..answer.count()? {
                let error = answer.i16()?;
                answer.i32()?;
                let leader = answer.i32()?;
                for _ in 0..2 {
                    let replicas = answer.count()?;
                    answer.bytes(4 * replicas)?;
                }
                leaders += usize::from(error == 0 && leader >= 0);
            }
        }
        Ok((brokers, leaders))
    }
}

/// True if the broker answers and lists itself in its metadata.
pub(crate) fn is_ready(address: SocketAddr) -> bool {
    let leaders = Session::open(address).and_then(|mut session| session.leaders(&[]));
    leaders.is_ok_and(|(brokers, _)| brokers > 0)
}

/// Makes the topics and waits until all partitions have leaders.
pub(crate) fn prepare(address: SocketAddr, load: &Load) -> anyhow::Result<()> {
    let mut session = Session::open(address)?;
    let topics: Vec<String> = (0..load.topics).map(topic_name).collect();
    let answer = session.ask(wire::CREATE_TOPICS, |out| {
        wire::i32(out, topics.len() as i32);
        for topic in &topics {
            wire::string(out, topic);
            wire::i32(out, load.partitions.max(1) as i32);
            wire::i16(out, 1);
            wire::i32(out, 0);
            wire::i32(out, 0);
        }
        wire::i32(out, ANSWER_TIMEOUT.as_millis() as i32);
        wire::i8(out, 0);
    })?;
    let mut answer = wire::Answer(&answer);
    answer.i32()?;
    for _ in 0..answer.count()? {
        let (topic, error) = (answer.string()?, answer.i16()?);
        let why = answer.string()?;
        ensure!(error == 0, "creating {topic}: error {error} {why}");
    }
    let deadline = monotonic_ns() + LEADERS_TIMEOUT_NS;
    let is_led = |session: &mut Session| {
        // A leader may be named a moment before it knows.
        let answers = |session: &mut Session, topic| session.latest(topic, load.partitions.max(1)).is_ok();
        let leaders = session.leaders(&topics)?.1;
        let all = leaders >= load.lanes() as usize;
        anyhow::Ok(all && (0..load.topics).all(|topic| answers(session, topic)))
    };
    while !is_led(&mut session)? {
        if monotonic_ns() > deadline {
            bail!("partitions without a leader");
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}
