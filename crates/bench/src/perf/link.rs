//! Connection of a throughput run, after the handshake, inside an event loop.

use std::net::{SocketAddr, TcpStream};

use anyhow::{Context as _, bail};

use crate::access::Access;
use crate::net::{FrameSink, Inbound, Outbound, Poller, Received, Scratch, Socket};
use crate::session::Session;

/// A connection and its buffers.
#[derive(Debug)]
pub struct Link {
    stream: Socket,
    inbound: Inbound,
    /// Frames to send.
    pub(crate) outbound: Outbound,
    token: u64,
    watched_for_write: bool,
}

/// Bytes asked for per read.
const READ_BYTES: usize = 256 << 10;

impl Link {
    /// Takes over a session's socket and adds it to `poller` under `token`.
    pub(crate) fn new(session: Session, poller: &Poller, token: u64) -> anyhow::Result<Self> {
        let (stream, carry) = session.into_parts();
        Self::over(stream, carry, poller, token)
    }

    /// Takes over a connected stream, read up to the end of a frame, and adds it to `poller` under `token`.
    ///
    /// # Errors
    /// The system does not want to watch it.
    pub fn plain(stream: TcpStream, poller: &Poller, token: u64) -> anyhow::Result<Self> {
        Self::over(Socket::new(stream, None)?, Vec::new(), poller, token)
    }

    fn over(stream: Socket, carry: Vec<u8>, poller: &Poller, token: u64) -> anyhow::Result<Self> {
        stream.stream().set_nonblocking(true)?;
        poller.add(&stream, token, false)?;
        Ok(Self {
            stream,
            inbound: Inbound::starting_with(carry),
            outbound: Outbound::default(),
            token,
            watched_for_write: false,
        })
    }

    /// Reads once and passes the frames to `sink`; answers are collected in [`Link::outbound`]. True if the socket is
    /// read empty, as far as is known.
    ///
    /// # Errors
    /// The connection is lost or the framing broken.
    pub(crate) fn read(&mut self, scratch: &mut Scratch, sink: &mut impl FrameSink) -> anyhow::Result<bool> {
        let received = self.inbound.receive(
            &mut self.stream,
            scratch,
            READ_BYTES,
            sink,
            &mut self.outbound.buf,
        )?;
        if received == Received::Closed {
            bail!("the broker closed the connection");
        }
        Ok(received != Received::More)
    }

    /// Writes what the socket takes and has the rest waited for.
    pub(crate) fn flush(&mut self, poller: &Poller) -> anyhow::Result<()> {
        let done = self.outbound.flush(&mut self.stream).context("connection lost")?;
        if done == self.watched_for_write {
            self.watched_for_write = !done;
            poller.set(&self.stream, self.token, !done)?;
        }
        Ok(())
    }
}

/// Sessions by broker, opened as they are needed.
pub(crate) struct Sessions {
    /// Connections to one broker, used in turn.
    per_broker: usize,
    open: Vec<(SocketAddr, usize, Session)>,
}

impl Sessions {
    /// None so far; at most `per_broker` (at least one) to each broker.
    pub(crate) fn new(per_broker: u32) -> Self {
        Self {
            per_broker: per_broker.max(1) as usize,
            open: Vec::new(),
        }
    }

    /// The number of the connection to `broker` for producer or consumer `number`, opened now if there is none yet.
    pub(crate) fn to(&mut self, broker: SocketAddr, number: usize, access: &Access) -> anyhow::Result<usize> {
        let slot = number % self.per_broker;
        let known = |(address, at, _): &(SocketAddr, usize, Session)| *address == broker && *at == slot;
        if let Some(at) = self.open.iter().position(known) {
            return Ok(at);
        }
        self.open.push((broker, slot, Session::open(broker, access)?));
        Ok(self.open.len() - 1)
    }

    /// All of them with their numbers.
    pub(crate) fn all(&mut self) -> impl Iterator<Item = (usize, &mut Session)> {
        self.open
            .iter_mut()
            .enumerate()
            .map(|(at, (_, _, session))| (at, session))
    }

    /// Turns all into links of `poller`; a link's token is its number.
    pub(crate) fn into_links(self, poller: &Poller) -> anyhow::Result<Vec<Link>> {
        let sessions = self.open.into_iter().enumerate();
        sessions
            .map(|(number, (_, _, session))| Link::new(session, poller, number as u64))
            .collect()
    }
}
