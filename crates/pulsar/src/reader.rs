//! Reading from a connection: bytes to commands, commands to handlers, with the pauses that back-pressure asks for.
//!
//! An idle connection holds no read buffer: it borrows one when there is something to read, and in a burst a large one
//! ([`chunks`]). A payload is a slice of the buffer it was read into; a small one is copied out, because keeping it in the
//! cache would keep the whole buffer. What is left of a large frame is read with room from an account of all connections
//! ([`pharos_transport::partial`]).

use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use tokio::io::AsyncReadExt as _;
use tokio::net::tcp::OwnedReadHalf;

use pharos_broker::ids::{ProducerKey, TopicId};
use pharos_broker::shard::Publish;
use pharos_runtime::clock;
use pharos_transport::balance::Place;
use pharos_transport::chunks;
use pharos_transport::partial::{FrameRoom, SMALL_FRAME_BYTES};
use pharos_wire::Frame;
use pharos_wire::frame::{self, FrameError};

use crate::connection::Connection;
use crate::handlers;
use crate::newcomer;
use crate::spare;

/// The first read of a burst.
const READ_BYTES_MIN: usize = 16 << 10;
/// In a burst that keeps filling its buffer reads are doubled this often, to [`READ_BYTES_MAX`].
const DOUBLINGS_MAX: u32 = 4;
/// The most that one read takes.
const READ_BYTES_MAX: usize = READ_BYTES_MIN << DOUBLINGS_MAX;
/// From this size on reads go to a chunk.
const CHUNK_READ_BYTES_MIN: usize = 64 << 10;
/// A larger frame gets memory of its own.
const CHUNK_FRAME_BYTES_MAX: usize = chunks::CHUNK_BYTES / 2;
/// Payloads below this size are copied out of a buffer that is much larger.
const COPY_BYTES_MAX: usize = 4 << 10;
/// How often it is looked at whether a large frame takes too long.
const FRAME_LOOK_INTERVAL: Duration = Duration::from_secs(1);
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

/// What was read on another shard and is to be handled here.
pub(crate) struct Unhandled {
    pub(crate) frame: Frame,
    /// What came after it.
    pub(crate) rest: BytesMut,
}

/// How it goes on after some reading.
enum Next {
    Read,
    /// The connection is over.
    Close,
    /// It should live elsewhere, where this is handled as the first.
    Move(Place, Box<Frame>),
}

/// Reads until the peer or the broker closes, or the connection is handed on.
pub(crate) async fn run(
    connection: Rc<Connection>,
    mut stream: OwnedReadHalf,
    unhandled: Option<Box<Unhandled>>,
) {
    let frame_bytes_max = frame::frame_bytes_max(connection.shard.shared.options.max_message_size as usize);
    let mut input = Input::default();
    let next = {
        let mut closing = pin!(connection.closing.notified());
        // Polled once, to leave a way to wake us; from then on the connection itself says whether it is closed.
        poll_fn(|context| {
            let _ = closing.as_mut().poll(context);
            Poll::Ready(())
        })
        .await;
        let mut next = match unhandled {
            Some(unhandled) => input.take_up(&connection, unhandled, frame_bytes_max).await,
            None => Next::Read,
        };
        while matches!(next, Next::Read) {
            next = input.read_on(&connection, &mut stream, frame_bytes_max).await;
        }
        next
    };
    match next {
        Next::Move(place, frame) => newcomer::hand_on(connection, stream, place, *frame, input.into_rest()),
        Next::Read | Next::Close => connection.clean_up(),
    }
}

/// What was read and not handled yet.
#[derive(Default)]
struct Input {
    buffer: BytesMut,
    /// The buffer is one of [`chunks`].
    is_chunk: bool,
    /// Full reads one after the other: how often the next one is doubled.
    doubled: u32,
    /// For the large frame that the buffer begins with.
    frame_room: Option<FrameRoom>,
}

impl Drop for Input {
    fn drop(&mut self) {
        if self.is_chunk {
            chunks::forfeit();
        }
    }
}

impl Input {
    /// Begins with what was read elsewhere.
    async fn take_up(
        &mut self,
        connection: &Rc<Connection>,
        unhandled: Box<Unhandled>,
        frame_bytes_max: usize,
    ) -> Next {
        let mut batch = Batch::default();
        let goes_on = handlers::handle(connection, unhandled.frame, &mut batch);
        batch.flush(connection);
        if !goes_on {
            return Next::Close;
        }
        self.buffer = unhandled.rest;
        let next = handle_frames(connection, &mut self.buffer, frame_bytes_max).await;
        self.rest();
        next
    }

    /// What was read and not handled, in memory of its own.
    fn into_rest(self) -> BytesMut {
        BytesMut::from(&self.buffer[..])
    }

    /// Waits for bytes, reads once and handles whole frames.
    async fn read_on(
        &mut self,
        connection: &Rc<Connection>,
        stream: &mut OwnedReadHalf,
        frame_bytes_max: usize,
    ) -> Next {
        if !self.wait_readable(connection, stream).await || !self.reserve(connection).await {
            return Next::Close;
        }
        if connection.is_saturated() && !wait_for_room(connection).await {
            return Next::Close;
        }
        if self.doubled > 0 && connection.door.partial_frames.is_short() {
            // What a read brings of the next frame has no room yet.
            self.doubled = 0;
        }
        self.make_room();
        let room = (self.buffer.capacity() - self.buffer.len()).min(READ_BYTES_MAX);
        match read_once(stream, (&mut self.buffer).limit(room)).await {
            None => {
                self.rest();
                Next::Read
            }
            Some(Ok(0) | Err(_)) => Next::Close,
            Some(Ok(bytes)) => {
                connection.heard();
                let is_whole = |room: &FrameRoom| self.buffer.len() >= room.frame_bytes;
                if self.frame_room.as_ref().is_some_and(is_whole) {
                    self.frame_room = None;
                }
                let next = handle_frames(connection, &mut self.buffer, frame_bytes_max).await;
                if bytes == room {
                    self.doubled = (self.doubled + 1).min(DOUBLINGS_MAX);
                } else {
                    self.rest();
                }
                next
            }
        }
    }

    /// Waits until there is something to read. Returns false when the connection is over, or its large frame takes too long.
    async fn wait_readable(&self, connection: &Connection, stream: &OwnedReadHalf) -> bool {
        let Some(room) = &self.frame_room else {
            return wait_readable(connection, stream).await;
        };
        loop {
            let readable = wait_readable(connection, stream);
            if let Ok(readable) = tokio::time::timeout(FRAME_LOOK_INTERVAL, readable).await {
                return readable;
            }
            if connection.door.partial_frames.is_overdue(room, clock::now()) {
                tracing::warn!(peer = %connection.address, frame_bytes = room.frame_bytes, arrived = self.buffer.len(),
                    "closing a connection that keeps room for a frame others wait for");
                return false;
            }
        }
    }

    /// Takes room for the rest of a large frame. Returns false when the connection closed meanwhile.
    async fn reserve(&mut self, connection: &Connection) -> bool {
        let frame_bytes = self.buffer.len() + frame::missing_bytes(&self.buffer);
        if self.buffer.len() < 4 || frame_bytes <= SMALL_FRAME_BYTES || self.frame_room.is_some() {
            return true;
        }
        let mut reserving = pin!(connection.door.partial_frames.reserve(frame_bytes));
        self.frame_room = poll_fn(|context| {
            if connection.is_closed() {
                return Poll::Ready(None);
            }
            reserving.as_mut().poll(context)
        })
        .await;
        self.frame_room.is_some()
    }

    /// Room for the next read.
    fn make_room(&mut self) {
        let want = READ_BYTES_MIN << self.doubled;
        let missing = frame::missing_bytes(&self.buffer);
        let frame = self.buffer.len() + missing;
        if want < CHUNK_READ_BYTES_MIN || frame > CHUNK_FRAME_BYTES_MAX {
            return self.make_own_room(want);
        }
        let room = self.buffer.capacity() - self.buffer.len();
        // A frame that ends in this chunk is read to its end there, even in a small read; any other one moves.
        let ends_here = self.buffer.len() >= 4 && missing <= room;
        if self.is_chunk && (ends_here || room >= CHUNK_READ_BYTES_MIN) {
            return;
        }
        let Some(mut chunk) = chunks::take(frame.max(CHUNK_READ_BYTES_MIN)) else {
            return self.make_own_room(want);
        };
        chunk.extend_from_slice(&self.buffer);
        let old = std::mem::replace(&mut self.buffer, chunk);
        if std::mem::replace(&mut self.is_chunk, true) {
            chunks::give(old);
        }
    }

    /// Room that no other connection reads into.
    fn make_own_room(&mut self, want: usize) {
        let room = match self.buffer.is_empty() {
            true => want,
            false => frame::reserve_hint(&self.buffer).max(want),
        };
        if std::mem::take(&mut self.is_chunk) {
            let mut own = BytesMut::with_capacity(self.buffer.len() + room);
            own.extend_from_slice(&self.buffer);
            chunks::give(std::mem::replace(&mut self.buffer, own));
        } else {
            if self.buffer.capacity() == 0 {
                self.buffer = spare::take_input();
            }
            self.buffer.reserve(room);
        }
    }

    /// The socket has no more for now.
    fn rest(&mut self) {
        if self.buffer.is_empty() {
            self.doubled = 0;
            let buffer = std::mem::take(&mut self.buffer);
            if std::mem::take(&mut self.is_chunk) {
                chunks::give(buffer);
            } else {
                spare::give_input(buffer);
            }
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
async fn read_once(stream: &mut OwnedReadHalf, mut room: impl BufMut) -> Option<std::io::Result<usize>> {
    let mut read = pin!(stream.read_buf(&mut room));
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

/// Handles the whole frames in the buffer.
async fn handle_frames(connection: &Rc<Connection>, buffer: &mut BytesMut, frame_bytes_max: usize) -> Next {
    let mut batch = Batch::default();
    let mut handled = 0;
    loop {
        match frame::decode(buffer, frame_bytes_max) {
            Ok(Some(frame)) => {
                if let Some(place) = newcomer::better_place(connection, &frame.command) {
                    return Next::Move(place, Box::new(frame));
                }
                if !handlers::handle(connection, frame, &mut batch) || connection.is_closed() {
                    batch.flush(connection);
                    return Next::Close;
                }
            }
            Ok(None) => {
                batch.flush(connection);
                return Next::Read;
            }
            Err(error) => {
                batch.flush(connection);
                log_violation(connection, &error);
                return Next::Close;
            }
        }
        handled += 1;
        if handled % FRAMES_PER_TURN == 0 {
            batch.flush(connection);
            if !wait_for_room(connection).await {
                return Next::Close;
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

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// A SEND of `bytes` bytes that are all the same.
    fn send(bytes: usize, fill: u8) -> Vec<u8> {
        let command = [0x08, 0x06, 0x32, 0x04, 0x08, 0x01, 0x10, 0x05];
        let total = u32::try_from(4 + command.len() + bytes).unwrap();
        let mut frame = total.to_be_bytes().to_vec();
        frame.extend_from_slice(&(command.len() as u32).to_be_bytes());
        frame.extend_from_slice(&command);
        frame.resize(frame.len() + bytes, fill);
        frame
    }

    /// Frames of these sizes, read in pieces of at most `pieces` bytes in turn; the last 4 MB stay in use.
    fn read(sizes: &[usize], pieces: &[usize]) {
        let sends = (0..).zip(sizes).map(|(number, bytes)| send(*bytes, number as u8));
        let stream = sends.collect::<Vec<_>>().concat();
        let (mut input, mut at, mut found) = (Input::default(), 0, 0);
        let (mut held, mut held_bytes) = (VecDeque::<(Bytes, u8)>::new(), 0);
        for piece in pieces.iter().cycle() {
            input.make_room();
            let room = (input.buffer.capacity() - input.buffer.len()).min(READ_BYTES_MAX);
            assert!(room > 0);
            let bytes = room.min(*piece).min(stream.len() - at);
            input.buffer.extend_from_slice(&stream[at..at + bytes]);
            at += bytes;
            while let Some(frame) = frame::decode(&mut input.buffer, 8 << 20).unwrap() {
                let payload = frame.payload.unwrap();
                assert_eq!(payload.len(), sizes[found]);
                held_bytes += payload.len();
                held.push_back((payload, found as u8));
                found += 1;
            }
            while held_bytes > 4_000_000 {
                let (payload, fill) = held.pop_front().unwrap();
                held_bytes -= payload.len();
                assert!(
                    payload.iter().all(|byte| *byte == fill),
                    "nothing was written over it"
                );
            }
            if bytes == room {
                input.doubled = (input.doubled + 1).min(DOUBLINGS_MAX);
            } else {
                input.rest();
            }
            if at == stream.len() {
                break;
            }
        }
        assert_eq!(found, sizes.len());
        assert!(
            held.iter()
                .all(|(payload, fill)| payload.iter().all(|byte| byte == fill))
        );
    }

    #[test]
    fn frames_of_all_sizes_come_out_as_they_went_in_whatever_the_reads_bring() {
        let shard = pharos_runtime::spawn_shard("test".to_owned(), || async {
            let mixed = [
                5, 131_000, 20_000, 700_000, 100, 300_000, 3_000_000, 131_000, 524_000, 525_000, 0, 1,
            ];
            let mixed: Vec<usize> = mixed.iter().cycle().take(60).copied().collect();
            for sizes in [&mixed[..], &[131_072; 80], &[30_000; 300], &[1_048_570; 12]] {
                for pieces in [
                    &[usize::MAX][..],
                    &[usize::MAX, 200_000, 37],
                    &[70_000, 999_999],
                    &[usize::MAX, 3],
                ] {
                    read(sizes, pieces);
                }
            }
        });
        shard.unwrap().join().unwrap();
    }
}
