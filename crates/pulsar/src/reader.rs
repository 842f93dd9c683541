//! Reading from a connection: bytes to commands, commands to handlers, with the pauses that back-pressure asks for.
//!
//! What is left of a large frame is read with room from an account of all connections ([`PartialFrames`]).
//!
//! [`PartialFrames`]: pharos_transport::PartialFrames

use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::BytesMut;

use pharos_runtime::clock;
use pharos_transport::{FrameRoom, Place, Read, ReadBuffer, ReadHalf, SMALL_FRAME_BYTES};
use pharos_wire::Frame;
use pharos_wire::frame::{self, FrameError};

use crate::batch::Batch;
use crate::connection::Connection;
use crate::handlers;
use crate::handover;
use crate::requests;

/// Size of a frame's length field, in bytes.
const LENGTH_BYTES: usize = 4;
/// Interval of checks for large frames that take too long.
const FRAME_LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Frames handled before other connections of the shard get their turn.
const FRAMES_PER_TURN: usize = 512;

/// Input that was read on another shard and is to be handled here.
pub(crate) struct Unhandled {
    pub(crate) frame: Option<Frame>,
    /// Bytes after the frame.
    pub(crate) rest: BytesMut,
}

/// Next action after some reading.
enum Next {
    Read,
    /// The connection is over.
    Close,
    /// Moves the connection to another shard, which handles this frame first.
    Move(Place, Box<Frame>),
}

/// Reads until the peer or the broker closes, or the connection is handed on.
pub(crate) async fn run(connection: Rc<Connection>, mut stream: ReadHalf, unhandled: Option<Box<Unhandled>>) {
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
        Next::Move(place, frame) => {
            handover::hand_on(connection, stream, place, *frame, input.buffer.into_rest())
        }
        Next::Read | Next::Close => connection.clean_up(),
    }
}

/// Input that is read and not handled yet.
#[derive(Default)]
struct Input {
    buffer: ReadBuffer,
    /// For the large frame that the buffer begins with.
    frame_room: Option<FrameRoom>,
}

impl Input {
    /// Begins with what was read elsewhere.
    async fn take_up(
        &mut self,
        connection: &Rc<Connection>,
        unhandled: Box<Unhandled>,
        frame_bytes_max: usize,
    ) -> Next {
        if let Some(frame) = unhandled.frame {
            let mut batch = Batch::default();
            let goes_on = handlers::handle(connection, frame, &mut batch);
            batch.flush(connection);
            if !goes_on {
                return Next::Close;
            }
        }
        self.buffer.begin_with(unhandled.rest);
        let next = handle_frames(connection, self.buffer.bytes(), frame_bytes_max).await;
        self.buffer.rest();
        next
    }

    /// Waits for bytes, reads once and handles whole frames.
    async fn read_on(
        &mut self,
        connection: &Rc<Connection>,
        stream: &mut ReadHalf,
        frame_bytes_max: usize,
    ) -> Next {
        if !self.wait_readable(connection, stream).await || !self.reserve(connection).await {
            return Next::Close;
        }
        if connection.is_saturated() && !wait_for_room(connection).await {
            return Next::Close;
        }
        if self.buffer.reads_much() && connection.server.partial_frames.is_short() {
            // What a larger read brings of the next frame has no room yet.
            self.buffer.slow_down();
        }
        let missing = self.missing();
        match self.buffer.read(stream, missing).await {
            Read::Nothing => Next::Read,
            Read::Closed | Read::Broken(_) => Next::Close,
            Read::Some(filled) => {
                connection.heard();
                let is_whole = |room: &FrameRoom| self.buffer.as_slice().len() >= room.frame_bytes;
                if self.frame_room.as_ref().is_some_and(is_whole) {
                    self.frame_room = None;
                }
                let next = handle_frames(connection, self.buffer.bytes(), frame_bytes_max).await;
                self.buffer.handled(filled);
                next
            }
        }
    }

    /// Number of bytes missing from the frame at the start of the buffer; `None` while its length is not known.
    fn missing(&self) -> Option<usize> {
        let bytes = self.buffer.as_slice();
        (bytes.len() >= LENGTH_BYTES).then(|| frame::missing_bytes(bytes))
    }

    /// Waits until there is something to read. Returns false when the connection is over, or its large frame takes too long.
    async fn wait_readable(&self, connection: &Connection, stream: &ReadHalf) -> bool {
        let Some(room) = &self.frame_room else {
            return wait_readable(connection, stream).await;
        };
        loop {
            let readable = wait_readable(connection, stream);
            if let Ok(readable) = tokio::time::timeout(FRAME_LOOK_INTERVAL, readable).await {
                return readable;
            }
            if connection.server.partial_frames.is_overdue(room, clock::now()) {
                if let Some(untold) = connection.server.peer_log.enter() {
                    tracing::warn!(peer = %connection.address, frame_bytes = room.frame_bytes, arrived = self.buffer.as_slice().len(), untold,
                        "closing a connection that keeps room for a frame others wait for");
                }
                return false;
            }
        }
    }

    /// Takes room for the rest of a large frame. Returns false when the connection closed meanwhile.
    async fn reserve(&mut self, connection: &Connection) -> bool {
        let Some(missing) = self.missing() else {
            return true;
        };
        let frame_bytes = self.buffer.as_slice().len() + missing;
        if frame_bytes <= SMALL_FRAME_BYTES || self.frame_room.is_some() {
            return true;
        }
        let mut reserving = pin!(connection.server.partial_frames.reserve(frame_bytes));
        self.frame_room = poll_fn(|context| {
            if connection.is_closed() {
                return Poll::Ready(None);
            }
            reserving.as_mut().poll(context)
        })
        .await;
        self.frame_room.is_some()
    }
}

/// Waits until there is something to read. Returns false when the connection closed or broke meanwhile.
async fn wait_readable(connection: &Connection, stream: &ReadHalf) -> bool {
    poll_fn(|context| {
        if connection.is_closed() {
            return Poll::Ready(false);
        }
        stream.poll_readable(context).map(|ready| ready.is_ok())
    })
    .await
}

/// Waits while too much is in flight. Returns false when the connection closed meanwhile.
async fn wait_for_room(connection: &Connection) -> bool {
    while connection.is_saturated() && !connection.is_closed() {
        tokio::select! {
            biased;
            () = connection.read_ahead.resumed() => {}
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
                if let Some(place) = handover::better_place(connection, &frame.command) {
                    return Next::Move(place, Box::new(frame));
                }
                let turn = requests::turn(connection, &frame.command);
                if !turn.is_zero() {
                    batch.flush(connection);
                    if !requests::wait_for_turn(connection, turn).await {
                        return Next::Close;
                    }
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
    if let Some(untold) = connection.server.peer_log.enter() {
        tracing::warn!(peer = %connection.address, %error, untold, "closing a connection that breaks the protocol");
    }
}
