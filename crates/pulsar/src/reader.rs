//! Reading from a connection: bytes to commands, commands to handlers, with the pauses that back-pressure asks for.
//!
//! An idle connection holds no read buffer: it borrows one when there is something to read. A payload is a slice of the
//! buffer it was read into; a small one is copied out, because keeping it in the cache would keep the whole buffer.

use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::AsyncReadExt as _;
use tokio::net::tcp::OwnedReadHalf;

use pharos_broker::ids::{ProducerKey, TopicId};
use pharos_broker::shard::Publish;
use pharos_wire::frame::{self, FrameError};

use crate::connection::Connection;
use crate::handlers;
use crate::spare;

/// The first read of a burst.
const READ_BYTES_MIN: usize = 16 << 10;
/// In a burst that keeps filling its buffer reads are doubled this often, to 256 KiB.
const DOUBLINGS_MAX: u32 = 4;
/// Payloads below this size are copied out of a buffer that is much larger.
const COPY_BYTES_MAX: usize = 4 << 10;
/// Frames handled before other connections of the shard get their turn.
const FRAMES_PER_TURN: usize = 512;

/// Sends that came one after the other for the same producer.
#[derive(Default)]
pub(crate) struct Batch {
    to: Option<(TopicId, ProducerKey)>,
    entries: Vec<Publish>,
}

impl Batch {
    /// Adds a send; what was for another producer leaves first.
    pub(crate) fn push(&mut self, connection: &Connection, to: (TopicId, ProducerKey), entry: Publish) {
        if self.to != Some(to) {
            self.flush(connection);
            self.to = Some(to);
        }
        self.entries.push(entry);
    }

    /// Sends what has collected to the topic's home.
    pub(crate) fn flush(&mut self, connection: &Connection) {
        if let Some((topic, producer)) = self.to.take() {
            let entries = std::mem::take(&mut self.entries);
            connection.shard.publish(connection.id, topic, producer, entries);
        }
    }
}

/// Reads until the peer or the broker closes.
pub(crate) async fn run(connection: Rc<Connection>, mut stream: OwnedReadHalf) {
    let frame_bytes_max = frame::frame_bytes_max(connection.shard.shared.options.max_message_size as usize);
    {
        let mut closing = pin!(connection.closing.notified());
        // Polled once, to leave a way to wake us; from then on the connection itself says whether it is closed.
        poll_fn(|context| {
            let _ = closing.as_mut().poll(context);
            Poll::Ready(())
        })
        .await;
        let mut input = Input::default();
        while input.read_on(&connection, &mut stream, frame_bytes_max).await {}
    }
    connection.clean_up();
}

/// What was read and not handled yet.
#[derive(Default)]
struct Input {
    buffer: BytesMut,
    /// Full reads one after the other: how often the next one is doubled.
    doubled: u32,
}

impl Input {
    /// Waits for bytes, reads once and handles whole frames. Returns false when the connection is over.
    async fn read_on(
        &mut self,
        connection: &Rc<Connection>,
        stream: &mut OwnedReadHalf,
        frame_bytes_max: usize,
    ) -> bool {
        if !wait_readable(connection, stream).await {
            return false;
        }
        if connection.is_saturated() && !wait_for_room(connection).await {
            return false;
        }
        let want = READ_BYTES_MIN << self.doubled;
        if self.buffer.is_empty() {
            if self.buffer.capacity() == 0 {
                self.buffer = spare::take_input();
            }
            self.buffer.reserve(want);
        } else {
            self.buffer.reserve(frame::reserve_hint(&self.buffer).max(want));
        }
        let room = self.buffer.capacity() - self.buffer.len();
        match read_once(stream, &mut self.buffer).await {
            None => {
                self.rest();
                true
            }
            Some(Ok(0) | Err(_)) => false,
            Some(Ok(bytes)) => {
                connection.heard();
                let goes_on = handle_frames(connection, &mut self.buffer, frame_bytes_max).await;
                if bytes == room {
                    self.doubled = (self.doubled + 1).min(DOUBLINGS_MAX);
                } else {
                    self.rest();
                }
                goes_on
            }
        }
    }

    /// The socket has no more for now.
    fn rest(&mut self) {
        if self.buffer.is_empty() {
            self.doubled = 0;
            spare::give_input(std::mem::take(&mut self.buffer));
        }
    }
}

/// Waits until there is something to read. Returns false when the connection closed or broke meanwhile.
async fn wait_readable(connection: &Connection, stream: &OwnedReadHalf) -> bool {
    poll_fn(|context| {
        if connection.is_closed() {
            return Poll::Ready(false);
        }
        let ready = stream.as_ref().poll_read_ready(context);
        ready.map(|ready| ready.is_ok())
    })
    .await
}

/// Reads what the socket has, without waiting; `None` when that is nothing. Polling the read rather than trying it lets
/// the runtime see that a short read drained the socket, which saves asking it once more.
async fn read_once(stream: &mut OwnedReadHalf, buffer: &mut BytesMut) -> Option<std::io::Result<usize>> {
    let mut read = pin!(stream.read_buf(buffer));
    poll_fn(|context| {
        Poll::Ready(match read.as_mut().poll(context) {
            Poll::Ready(outcome) => Some(outcome),
            Poll::Pending => None,
        })
    })
    .await
}

/// Waits while too much is in flight. Returns false when the connection closed meanwhile.
async fn wait_for_room(connection: &Connection) -> bool {
    while connection.is_saturated() && !connection.is_closed() {
        tokio::select! {
            biased;
            () = connection.resumed.notified() => {}
            // The budget that all connections share has no bell for each of them, and a close rings another one.
            () = tokio::time::sleep(Duration::from_millis(1)) => {}
        }
    }
    !connection.is_closed()
}

/// Handles the whole frames in the buffer. Returns false when the connection is over.
async fn handle_frames(connection: &Rc<Connection>, buffer: &mut BytesMut, frame_bytes_max: usize) -> bool {
    let mut batch = Batch::default();
    let mut handled = 0;
    loop {
        match frame::decode(buffer, frame_bytes_max) {
            Ok(Some(frame)) => {
                if !handlers::handle(connection, frame, &mut batch) || connection.is_closed() {
                    batch.flush(connection);
                    return false;
                }
            }
            Ok(None) => {
                batch.flush(connection);
                return true;
            }
            Err(error) => {
                batch.flush(connection);
                log_violation(connection, &error);
                return false;
            }
        }
        handled += 1;
        if handled % FRAMES_PER_TURN == 0 {
            batch.flush(connection);
            if !wait_for_room(connection).await {
                return false;
            }
            tokio::task::yield_now().await;
        }
    }
}

fn log_violation(connection: &Connection, error: &FrameError) {
    tracing::warn!(peer = %connection.address, %error, "closing a connection that breaks the protocol");
}

/// A payload to keep: its own copy when it is a small part of a large buffer.
pub(crate) fn kept(payload: Bytes) -> Bytes {
    if payload.len() <= COPY_BYTES_MAX {
        Bytes::copy_from_slice(&payload)
    } else {
        payload
    }
}
