//! The few questions asked before a load, over a connection that blocks.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use pharos_bench::load::FrameError;
use serde_json::{Value, json};

use super::stream_name;
use super::wire::{self, Frame};

/// Longest wait for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// The subscription that answers come for; those of a load have numbers from 0 on.
const ANSWERS: u64 = 1 << 32;

/// A connection that has shaken hands.
pub(super) struct Session {
    stream: TcpStream,
    unread: Vec<u8>,
    inbox: Option<String>,
}

impl Session {
    pub(super) fn open(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, ANSWER_TIMEOUT)
            .with_context(|| format!("cannot connect to {address}"))?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        stream.set_nodelay(true)?;
        let mut session = Self {
            stream,
            unread: Vec::new(),
            inbox: None,
        };
        let mut hello = Vec::new();
        wire::connect(&mut hello);
        session.round_trip(&hello)?;
        Ok(session)
    }

    /// Sends lines of which the last is a PING, and waits for its PONG: the server has done what they say.
    pub(super) fn round_trip(&mut self, lines: &[u8]) -> anyhow::Result<()> {
        self.stream.write_all(lines)?;
        while self
            .next(|frame| matches!(frame, Frame::Pong).then_some(()))?
            .is_none()
        {}
        Ok(())
    }

    /// Asks JetStream.
    fn ask(&mut self, subject: &str, body: &Value) -> anyhow::Result<Value> {
        let mut out = Vec::new();
        let local = self.stream.local_addr()?.port();
        let inbox = self.inbox.get_or_insert_with(|| {
            let inbox = format!("_INBOX.ask{local}");
            wire::subscribe(&mut out, &inbox, ANSWERS);
            inbox
        });
        wire::publish(&mut out, subject, inbox, body.to_string().as_bytes());
        self.stream.write_all(&out)?;
        loop {
            let answer = self.next(|frame| match frame {
                Frame::Message { sid, payload, .. } if sid == ANSWERS => Some(payload.to_vec()),
                _ => None,
            })?;
            if let Some(answer) = answer {
                ensure!(!answer.is_empty(), "{subject}: JetStream is not there");
                let answer: Value = serde_json::from_slice(&answer).with_context(|| subject.to_owned())?;
                if let Some(error) = answer.get("error") {
                    bail!("{subject}: {error}");
                }
                return Ok(answer);
            }
        }
    }

    /// Waits for a frame and looks at it.
    fn next<T>(&mut self, look: impl FnOnce(Frame<'_>) -> Option<T>) -> anyhow::Result<Option<T>> {
        loop {
            if let Some(length) = first_len(&self.unread)?
                && let Some(whole) = self.unread.get(..length)
            {
                let frame = wire::parse(whole)?;
                if let Frame::Error(error) = frame {
                    bail!("{error}");
                }
                let found = look(frame);
                self.unread.drain(..length);
                return Ok(found);
            }
            let mut room = [0; 16 << 10];
            let read = self.stream.read(&mut room).context("no answer")?;
            ensure!(read > 0, "the server closed the connection");
            self.unread
                .extend_from_slice(room.get(..read).unwrap_or_default());
        }
    }

    /// The stream, between two answers.
    pub(super) fn into_stream(self) -> TcpStream {
        self.stream
    }

    pub(super) fn create_stream(&mut self, topic: u32) -> anyhow::Result<()> {
        let name = stream_name(topic);
        let config = json!({
            "name": name,
            "subjects": [format!("{name}.*")],
            "storage": "file",
            "retention": "limits",
            "discard": "old",
            "max_consumers": -1,
            "max_msgs": -1,
            "max_bytes": -1,
            "max_age": 0,
            "num_replicas": 1,
        });
        self.ask(&format!("$JS.API.STREAM.CREATE.{name}"), &config)?;
        Ok(())
    }

    /// A consumer named `name` of a topic's stream.
    pub(super) fn create_consumer(&mut self, topic: u32, name: &str, config: &Value) -> anyhow::Result<()> {
        let stream = stream_name(topic);
        let subject = format!("$JS.API.CONSUMER.CREATE.{stream}.{name}");
        self.ask(&subject, &json!({ "stream_name": stream, "config": config }))?;
        Ok(())
    }
}

/// The first line of a connection may be long: it tells of the server.
fn first_len(unread: &[u8]) -> Result<Option<usize>, FrameError> {
    if unread.starts_with(b"INFO") {
        return Ok(unread.iter().position(|byte| *byte == b'\n').map(|end| end + 1));
    }
    wire::whole_len(unread)
}

/// True if the server answers; with JetStream, true if JetStream answers.
pub(crate) fn is_ready(address: SocketAddr, jetstream: bool) -> bool {
    let Ok(mut session) = Session::open(address) else {
        return false;
    };
    !jetstream || session.ask("$JS.API.INFO", &json!({})).is_ok()
}
