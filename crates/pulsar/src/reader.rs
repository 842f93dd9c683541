//! Reading from a connection: bytes to commands, commands to handlers, with the pauses that back-pressure asks for.
//!
//! An idle connection holds no read buffer. A payload is a slice of the buffer it was read into; a small one is
//! copied out, because keeping it in the cache would keep the whole buffer.

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

/// The first read of a burst.
const READ_BYTES_MIN: usize = 16 << 10;
/// A read in a burst that keeps filling its buffer.
const READ_BYTES_MAX: usize = 256 << 10;
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
    let mut buffer = BytesMut::new();
    let mut read_bytes = READ_BYTES_MIN;
    let frame_bytes_max = frame::frame_bytes_max(connection.shard.shared.options.max_message_size as usize);
    while !connection.is_closed() {
        tokio::select! {
            biased;
            () = connection.closing.notified() => break,
            ready = stream.readable() => if ready.is_err() { break },
        }
        match read_burst(
            &connection,
            &mut stream,
            &mut buffer,
            &mut read_bytes,
            frame_bytes_max,
        )
        .await
        {
            Burst::Drained => {}
            Burst::Ended => break,
        }
        if buffer.is_empty() {
            buffer = BytesMut::new();
            read_bytes = READ_BYTES_MIN;
        }
    }
    connection.clean_up();
}

enum Burst {
    /// The socket has no more for now.
    Drained,
    /// The connection is over.
    Ended,
}

/// Reads and handles what the socket has.
async fn read_burst(
    connection: &Rc<Connection>,
    stream: &mut OwnedReadHalf,
    buffer: &mut BytesMut,
    read_bytes: &mut usize,
    frame_bytes_max: usize,
) -> Burst {
    loop {
        if !wait_for_room(connection).await {
            return Burst::Ended;
        }
        let want = if buffer.is_empty() {
            *read_bytes
        } else {
            frame::reserve_hint(buffer).max(*read_bytes)
        };
        buffer.reserve(want);
        let room = buffer.capacity() - buffer.len();
        match read_once(stream, buffer).await {
            None => return Burst::Drained,
            Some(Ok(0) | Err(_)) => return Burst::Ended,
            Some(Ok(bytes)) => {
                connection.heard();
                *read_bytes = if bytes >= room {
                    (*read_bytes * 2).min(READ_BYTES_MAX)
                } else {
                    *read_bytes
                };
                if !handle_frames(connection, buffer, frame_bytes_max).await {
                    return Burst::Ended;
                }
                if bytes < room {
                    return Burst::Drained;
                }
            }
        }
    }
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
    while connection.is_saturated() {
        tokio::select! {
            biased;
            () = connection.closing.notified() => return false,
            () = connection.resumed.notified() => {}
            // The budget that all connections share has no bell for each of them.
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
