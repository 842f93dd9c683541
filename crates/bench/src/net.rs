//! Sockets without a runtime: one thread, one epoll set, many connections.
//!
//! Always true: reads go through one buffer shared by all connections of a thread, so that memory does not grow with
//! their number; a connection keeps bytes of its own only while a frame is torn across two reads. Nothing here blocks.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use socket2::{Domain, Protocol, Type};

use crate::proto::frame::{self, FrameError};

mod socket;

pub(crate) use socket::Socket;

/// Socket that is ready.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready {
    /// The token the socket was added with.
    pub(crate) token: u64,
    /// Bytes, an end of stream or an error can be read.
    pub(crate) readable: bool,
    /// There is room to write, or the connect has ended.
    pub(crate) writable: bool,
    /// The peer has closed its half: reading on comes to an end of stream.
    pub(crate) ended: bool,
}

/// Shorter waits than this are measured in nanoseconds.
const FINE_NS: u64 = 10_000_000;

/// An epoll set.
pub struct Poller {
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
    /// Added to what is watched for.
    mode: EventFlags,
}

impl Poller {
    /// An empty set, level triggered.
    ///
    /// # Errors
    /// The system has no more of them.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            events: Vec::with_capacity(512),
            mode: EventFlags::empty(),
        })
    }

    /// An empty set, edge triggered: a socket is reported once when something changes, and not again before it was
    /// read until [`Received::Drained`] or, once it `ended`, until [`Received::Closed`]. Saves the kernel a second look
    /// at every socket.
    pub(crate) fn edge_triggered() -> io::Result<Self> {
        Ok(Self {
            mode: EventFlags::ET | EventFlags::RDHUP,
            ..Self::new()?
        })
    }

    /// Watches `source` for reading, and for writing too if `write`.
    pub(crate) fn add(&self, source: impl AsFd, token: u64, write: bool) -> io::Result<()> {
        Ok(epoll::add(
            &self.epoll,
            source,
            EventData::new_u64(token),
            self.interest(write),
        )?)
    }

    /// Changes whether `source` is also watched for writing.
    pub(crate) fn set(&self, source: impl AsFd, token: u64, write: bool) -> io::Result<()> {
        Ok(epoll::modify(
            &self.epoll,
            source,
            EventData::new_u64(token),
            self.interest(write),
        )?)
    }

    /// Stops watching `source`.
    pub(crate) fn remove(&self, source: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, source)?)
    }

    /// Waits at most `timeout_ns` and appends what is ready to `ready`, which is cleared first.
    pub(crate) fn wait(&mut self, timeout_ns: u64, ready: &mut Vec<Ready>) -> io::Result<()> {
        ready.clear();
        self.events.clear();
        let timeout = Timespec {
            tv_sec: i64::try_from(timeout_ns / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: (timeout_ns % 1_000_000_000) as _,
        };
        // The system call counts whole milliseconds; pacing needs finer ones.
        let timeout = if (1..FINE_NS).contains(&timeout_ns) {
            let mut readable = [PollFd::new(&self.epoll, PollFlags::IN)];
            match poll(&mut readable, Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => Timespec {
                    tv_sec: 0,
                    tv_nsec: 0,
                },
                Err(error) => return Err(error.into()),
            }
        } else {
            timeout
        };
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events), Some(&timeout)) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        ready.extend(self.events.iter().map(|event| {
            let (data, flags) = (event.data, event.flags);
            Ready {
                token: data.u64(),
                readable: flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR),
                writable: flags.intersects(EventFlags::OUT | EventFlags::HUP | EventFlags::ERR),
                ended: flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR),
            }
        }));
        Ok(())
    }

    fn interest(&self, write: bool) -> EventFlags {
        let what = if write {
            EventFlags::IN | EventFlags::OUT
        } else {
            EventFlags::IN
        };
        what | self.mode
    }
}

/// Begins a TCP connect; the socket becomes writable when it has ended one way or the other.
///
/// `source` chooses the local address: one address offers only as many ports as the system hands out, so a test with
/// more connections needs several. `rcvbuf` of 0 leaves the system's own tuning alone.
pub(crate) fn start_connect(to: SocketAddr, source: Option<IpAddr>, rcvbuf: usize) -> io::Result<TcpStream> {
    let socket = socket2::Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    if rcvbuf > 0 {
        socket.set_recv_buffer_size(rcvbuf)?;
    }
    if let Some(source) = source {
        socket.bind(&SocketAddr::new(source, 0).into())?;
    }
    match socket.connect(&to.into()) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {}
        Err(error) => return Err(error),
    }
    Ok(socket.into())
}

/// Takes the frames of one connection; see [`Inbound::receive`].
pub(crate) trait FrameSink {
    /// Returns the length of the frame that begins with these bytes, once it is known. Default: a frame of the Pulsar
    /// protocol.
    fn whole_len(start: &[u8]) -> Result<Option<usize>, FrameError> {
        frame::whole_len(start)
    }

    /// Handles one whole frame. `out` collects the answer.
    fn on_frame(&mut self, frame: &[u8], out: &mut Vec<u8>) -> Result<(), FrameError>;

    /// The start of a frame whose rest is still on its way. Answer true if all that is needed has been taken from it: the
    /// rest is then dropped as it comes, and [`FrameSink::on_rest`] says when the last byte is there.
    fn on_head(&mut self, _head: &[u8]) -> bool {
        false
    }

    /// The frame taken by [`FrameSink::on_head`] is complete now.
    fn on_rest(&mut self, _out: &mut Vec<u8>) {}
}

/// Result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// The socket held less than was asked for.
    Drained,
    /// There may be more. Answers can wait a little for those to what follows, but not for ever: nothing may follow.
    More,
    /// The peer closed, or the connection broke.
    Closed,
}

/// Read buffers shared by all connections of a thread.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    room: Vec<u8>,
    /// Buffers of frames that were torn, to be used again; all of their bytes are initialised.
    spare: Vec<Vec<u8>>,
}

/// Maximum number of buffers of partial frames kept for reuse, and the maximum size of one, in bytes.
const SPARES_MAX: usize = 16;
const SPARE_BYTES_MAX: usize = 4 << 20;

impl Scratch {
    /// A buffer of at least `bytes` bytes. What is in it is left from earlier uses.
    fn spare(&mut self, bytes: usize) -> Vec<u8> {
        let mut buffer = self.spare.pop().unwrap_or_default();
        if buffer.len() < bytes {
            buffer.resize(bytes, 0);
        }
        buffer
    }

    fn give_back(&mut self, buffer: Vec<u8>) {
        if self.spare.len() < SPARES_MAX && buffer.len() <= SPARE_BYTES_MAX {
            self.spare.push(buffer);
        }
    }
}

/// The receiving half of a connection.
#[derive(Debug, Default)]
pub(crate) struct Inbound {
    /// Its first `kept` bytes are the torn frame at the end of the last read.
    carry: Vec<u8>,
    kept: usize,
    /// Bytes still to come of a frame whose head was enough.
    skip: usize,
}

impl Inbound {
    /// Begins with bytes that were read before.
    pub(crate) fn starting_with(carry: Vec<u8>) -> Self {
        Self {
            kept: carry.len(),
            carry,
            skip: 0,
        }
    }

    /// Forgets a torn frame; for a new connection.
    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }

    /// Reads once, at most `read_bytes` and the rest of a partial frame, and passes every frame to `sink`. A frame
    /// that arrives in one read is not copied; of a partial one, the first part is copied, once.
    ///
    /// # Errors
    /// The peer broke the framing. A lost connection is no error but [`Received::Closed`].
    pub(crate) fn receive<S: FrameSink>(
        &mut self,
        stream: &mut Socket,
        scratch: &mut Scratch,
        read_bytes: usize,
        sink: &mut S,
        out: &mut Vec<u8>,
    ) -> Result<Received, FrameError> {
        let whole = known_len::<S>(&self.carry[..self.kept])?;
        let missing = match self.kept {
            0 => 0,
            kept => whole.saturating_sub(kept),
        };
        if self.carry.len() < self.kept + missing {
            self.carry.resize(self.kept + missing, 0);
        }
        let mut room = std::mem::take(&mut scratch.room);
        if room.len() < read_bytes {
            room.resize(read_bytes, 0);
        }
        let torn = &mut self.carry[self.kept..self.kept + missing];
        let outcome = stream.read(torn, &mut room[..read_bytes]);
        let received = match outcome {
            Ok((0, _)) => Received::Closed,
            Ok((read, is_drained)) => {
                self.kept += read.min(missing);
                let fresh = &room[..read.saturating_sub(missing)];
                self.complete(scratch, fresh, sink, out)?;
                if is_drained {
                    Received::Drained
                } else {
                    Received::More
                }
            }
            Err(error) => broken(&error),
        };
        scratch.room = room;
        Ok(received)
    }

    /// Hands on the torn frame, if it is whole now, and what came behind it.
    fn complete<S: FrameSink>(
        &mut self,
        scratch: &mut Scratch,
        mut fresh: &[u8],
        sink: &mut S,
        out: &mut Vec<u8>,
    ) -> Result<(), FrameError> {
        while self.kept > 0 {
            let whole = known_len::<S>(&self.carry[..self.kept])?;
            if self.kept >= whole {
                // One that began with bytes from before may hold several.
                let carry = std::mem::take(&mut self.carry);
                let kept = std::mem::take(&mut self.kept);
                self.cut(scratch, &carry[..kept], sink, out)?;
                scratch.give_back(carry);
                continue;
            }
            if fresh.is_empty() {
                return Ok(());
            }
            // The length became known with this read.
            let (rest, behind) = fresh.split_at((whole - self.kept).min(fresh.len()));
            if self.carry.len() < whole {
                self.carry.resize(whole, 0);
            }
            self.carry[self.kept..self.kept + rest.len()].copy_from_slice(rest);
            self.kept += rest.len();
            fresh = behind;
        }
        self.cut(scratch, fresh, sink, out)
    }

    fn cut<S: FrameSink>(
        &mut self,
        scratch: &mut Scratch,
        mut bytes: &[u8],
        sink: &mut S,
        out: &mut Vec<u8>,
    ) -> Result<(), FrameError> {
        if self.skip > 0 {
            let now = self.skip.min(bytes.len());
            self.skip -= now;
            bytes = &bytes[now..];
            if self.skip == 0 {
                sink.on_rest(out);
            }
        }
        while let Some(whole) = S::whole_len(bytes)? {
            let Some((frame, rest)) = bytes.split_at_checked(whole) else {
                if sink.on_head(bytes) {
                    self.skip = whole - bytes.len();
                    bytes = &[];
                }
                break;
            };
            sink.on_frame(frame, out)?;
            bytes = rest;
        }
        // Thousands of idle connections hold on to no buffer.
        if !bytes.is_empty() {
            let whole = known_len::<S>(bytes)?;
            self.carry = scratch.spare(whole);
            self.carry[..bytes.len()].copy_from_slice(bytes);
            self.kept = bytes.len();
        }
        Ok(())
    }
}

/// Returns the length of the frame that begins with these bytes; while it is unknown, one byte more than these, at
/// least four.
fn known_len<S: FrameSink>(start: &[u8]) -> Result<usize, FrameError> {
    Ok(S::whole_len(start)?.unwrap_or((start.len() + 1).max(4)))
}

fn broken(error: &io::Error) -> Received {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::Interrupted => Received::Drained,
        _ => Received::Closed,
    }
}

/// The sending half of a connection: what could not be written yet.
#[derive(Debug, Default)]
pub(crate) struct Outbound {
    /// Append frames here, then [`Outbound::flush`].
    pub(crate) buf: Vec<u8>,
    at: usize,
}

impl Outbound {
    /// Bytes waiting.
    pub(crate) fn len(&self) -> usize {
        self.buf.len() - self.at
    }

    /// Forgets what waits; for a new connection.
    pub(crate) fn reset(&mut self) {
        self.buf.clear();
        self.at = 0;
    }

    /// Writes as much as the socket takes; `Ok(true)` when nothing is left.
    ///
    /// # Errors
    /// The connection is lost.
    pub(crate) fn flush(&mut self, stream: &mut Socket) -> io::Result<bool> {
        while self.at < self.buf.len() {
            match stream.write(&self.buf[self.at..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => self.at += written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    // Keep the unsent tail at the front once the sent part outweighs it.
                    if self.at > self.buf.len() / 2 {
                        self.buf.drain(..self.at);
                        self.at = 0;
                    }
                    return Ok(false);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.reset();
        stream.flush()
    }
}

#[cfg(test)]
mod tests;
