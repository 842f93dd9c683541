//! MQTT 3.1.1 at QoS 1, as far as a load needs it.
//!
//! A topic is `bT`, a partition the topic `bT/P` below it; a subscription is a client of its own that asks for `bT/+`. The same client
//! cannot have a message twice, so clients do not share connections. Sessions are clean: what a client misses is not kept for it.
//! Source: the standard of OASIS, sections 2 and 3.

pub(crate) mod publish;
pub(crate) mod receive;
mod wire;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, ensure};

use crate::share::Slot;

/// Longest wait for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

fn topic(slot: Slot) -> String {
    format!("b{}/{}", slot.topic, slot.partition)
}

/// The partition that a topic's name ends with.
fn partition(topic: &str) -> Option<u32> {
    topic.rsplit('/').next()?.parse().ok()
}

/// A connection whose client is known to the server.
fn connect(address: SocketAddr, client: &str) -> anyhow::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, ANSWER_TIMEOUT)
        .with_context(|| format!("cannot connect to {address}"))?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    stream.set_nodelay(true)?;
    let mut hello = Vec::new();
    wire::connect(&mut hello, client);
    let answer = ask(&stream, &hello, wire::CONNECT_ANSWER_BYTES)?;
    ensure!(
        answer.first() == Some(&wire::CONNECT_ANSWER) && answer.last() == Some(&0),
        "connecting was answered with {answer:?}"
    );
    Ok(stream)
}

/// Sends a request and waits for its answer, of which the length is known.
fn ask(mut stream: &TcpStream, request: &[u8], bytes: usize) -> anyhow::Result<Vec<u8>> {
    stream.write_all(request)?;
    let mut answer = vec![0; bytes];
    stream.read_exact(&mut answer).context("no answer")?;
    Ok(answer)
}

/// True if a client can connect.
pub(crate) fn is_ready(address: SocketAddr) -> bool {
    connect(address, "ready").is_ok()
}
