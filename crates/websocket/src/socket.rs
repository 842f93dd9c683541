//! A WebSocket as sessions see it: texts in and out, a caller that is silent for too long, and goodbyes with a reason.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::{Sink as _, SinkExt as _, Stream as _};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Interval, MissedTickBehavior};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message, Utf8Bytes};

use crate::memory::{STALLED_MAX, SessionMemory};

/// Interval at which a session checks for due work.
const TICK: Duration = Duration::from_millis(250);
/// Time limit for a caller to receive a close frame.
const GOODBYE_MAX: Duration = Duration::from_secs(1);
/// Longest reason of a goodbye; a control frame has no room for more.
const REASON_BYTES_MAX: usize = 120;

/// Ticks at which a session checks for due work.
pub(crate) fn ticks() -> Interval {
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Limits and timing of a session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) frame_bytes_max: usize,
    pub(crate) idle_max: Duration,
    pub(crate) ping_interval: Option<Duration>,
}

/// Reason why a session ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SessionEnd {
    /// The caller has gone.
    Gone,
    /// The caller reads nothing, and memory is short (`max_unwritten_size`).
    Stalled,
    /// The caller is told this.
    Goodbye(CloseCode, String),
}

impl SessionEnd {
    pub(crate) fn stopping() -> Self {
        Self::Goodbye(CloseCode::Away, "the broker stops: connect again".to_owned())
    }

    /// The broker has gone, or another has the topic by now.
    pub(crate) fn moved(reason: &str) -> Self {
        Self::Goodbye(CloseCode::Restart, format!("connect again: {reason}"))
    }

    pub(crate) fn malformed(reason: impl Into<String>) -> Self {
        Self::Goodbye(CloseCode::Invalid, reason.into())
    }

    pub(crate) fn policy(reason: impl Into<String>) -> Self {
        Self::Goodbye(CloseCode::Policy, reason.into())
    }

    pub(crate) fn error(reason: impl Into<String>) -> Self {
        Self::Goodbye(CloseCode::Error, reason.into())
    }
}

type CallerStream = WebSocketStream<Counting<TokioIo<Upgraded>>>;

/// A stream that notes the bytes that its socket takes.
struct Counting<S> {
    inner: S,
    memory: SessionMemory,
}

impl<S: AsyncRead + Unpin> AsyncRead for Counting<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counting<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let taken = ready!(Pin::new(&mut self.inner).poll_write(context, bytes))?;
        self.memory.took(taken);
        Poll::Ready(Ok(taken))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

/// The caller's end of a session.
pub(crate) struct Socket {
    stream: CallerStream,
    memory: SessionMemory,
    pace: Pace,
    /// Time when the caller last sent or received something.
    active_at: Instant,
    pinged_at: Instant,
}

impl Socket {
    /// Upgrades the connection of a request, once the upgrade is answered.
    ///
    /// # Errors
    /// The connection ended before.
    pub(crate) async fn upgrade(upgrade: OnUpgrade, pace: Pace, memory: SessionMemory) -> io::Result<Self> {
        let upgraded = upgrade.await.map_err(io::Error::other)?;
        let counting = Counting {
            inner: TokioIo::new(upgraded),
            memory: memory.clone(),
        };
        let config = WebSocketConfig::default()
            .max_message_size(Some(pace.frame_bytes_max))
            .max_frame_size(Some(pace.frame_bytes_max))
            // What is written goes to the socket at once; one message is on its way at a time.
            .write_buffer_size(0)
            .read_buffer_size(16 << 10);
        let stream = WebSocketStream::from_raw_socket(counting, Role::Server, Some(config)).await;
        let now = Instant::now();
        Ok(Self {
            stream,
            memory,
            pace,
            active_at: now,
            pinged_at: now,
        })
    }

    /// The next text of the caller. Pings are answered meanwhile; while an answer is not written nothing more is read, so that a caller
    /// that takes nothing has one pong queued at most.
    ///
    /// # Errors
    /// [`SessionEnd`]: there will be none.
    ///
    /// Cancel safety: nothing is lost when the future is dropped.
    pub(crate) async fn next(&mut self) -> Result<Utf8Bytes, SessionEnd> {
        loop {
            let Some(frame) = next_frame(&mut self.stream).await else {
                return Err(SessionEnd::Gone);
            };
            self.active_at = Instant::now();
            match frame {
                Ok(Message::Text(text)) => return Ok(text),
                Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_)) => {}
                Ok(Message::Binary(_)) => {
                    let reason = "frames are texts with JSON".to_owned();
                    return Err(SessionEnd::Goodbye(CloseCode::Unsupported, reason));
                }
                // The answer to it goes out as the stream is read on.
                Ok(Message::Close(_)) => {}
                Err(Error::Capacity(error)) => {
                    let reason = format!("{error} (web_socket.max_text_frame_size)");
                    return Err(SessionEnd::Goodbye(CloseCode::Size, reason));
                }
                Err(Error::Utf8(_)) => return Err(SessionEnd::malformed("a text is not UTF-8")),
                Err(Error::Protocol(error)) => {
                    return Err(SessionEnd::Goodbye(CloseCode::Protocol, error.to_string()));
                }
                Err(_) => return Err(SessionEnd::Gone),
            }
        }
    }

    /// Sends a value as JSON, as [`Socket::send_text`].
    ///
    /// # Errors
    /// [`SessionEnd`]: the session ends.
    pub(crate) async fn send(&mut self, frame: &impl Serialize) -> Result<(), SessionEnd> {
        let text = serde_json::to_string(frame).map_err(|error| SessionEnd::error(error.to_string()))?;
        self.send_text(text, 0).await
    }

    /// Sends a text. `held_bytes`: bytes that the session holds besides while the caller takes none.
    ///
    /// # Errors
    /// [`SessionEnd`]: the caller took nothing for the idle time, or for [`STALLED_MAX`] while memory is short.
    pub(crate) async fn send_text(&mut self, text: String, held_bytes: usize) -> Result<(), SessionEnd> {
        let _held = self.memory.hold(text.len().saturating_add(held_bytes));
        let mut sending = pin!(self.stream.send(Message::text(text)));
        let (mut taken, mut since) = (self.memory.taken(), Instant::now());
        loop {
            match tokio::time::timeout(TICK, &mut sending).await {
                Ok(Ok(())) => {
                    self.active_at = Instant::now();
                    return Ok(());
                }
                Ok(Err(_)) => return Err(SessionEnd::Gone),
                Err(_) => {}
            }
            if self.memory.taken() != taken {
                (taken, since) = (self.memory.taken(), Instant::now());
            }
            let stalled = since.elapsed();
            if stalled >= self.pace.idle_max {
                return Err(SessionEnd::Gone);
            }
            if stalled >= STALLED_MAX && self.memory.is_short() {
                return Err(SessionEnd::Stalled);
            }
        }
    }

    /// Looks whether the caller was silent for too long, and pings it when that is due.
    ///
    /// # Errors
    /// [`SessionEnd`]: it was, or has gone.
    pub(crate) async fn on_tick(&mut self) -> Result<(), SessionEnd> {
        let now = Instant::now();
        if now.duration_since(self.active_at) >= self.pace.idle_max {
            let reason = "nothing came for web_socket.session_idle_timeout".to_owned();
            return Err(SessionEnd::Goodbye(CloseCode::Away, reason));
        }
        if let Some(interval) = self.pace.ping_interval
            && now.duration_since(self.pinged_at) >= interval
        {
            self.pinged_at = now;
            let pinging = self.stream.send(Message::Ping(Default::default()));
            match tokio::time::timeout(self.pace.idle_max, pinging).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return Err(SessionEnd::Gone),
            }
        }
        Ok(())
    }

    /// Ends it, with a word if there is one to say.
    pub(crate) async fn close(mut self, end: SessionEnd) {
        let SessionEnd::Goodbye(code, mut reason) = end else {
            return;
        };
        while reason.len() > REASON_BYTES_MAX {
            reason.pop();
        }
        let goodbye = CloseFrame {
            code,
            reason: reason.into(),
        };
        let closing = async {
            self.stream.close(Some(goodbye)).await?;
            // What the caller still sends is dropped; a socket that is closed with it unread would lose the goodbye.
            while let Some(Ok(_)) = next_frame(&mut self.stream).await {}
            Ok::<(), Error>(())
        };
        // A caller that does not listen hears none.
        let _ = tokio::time::timeout(GOODBYE_MAX, closing).await;
    }
}

/// The next frame, once everything that is queued for the caller is written: reading is what makes pongs.
///
/// Cancel safety: nothing is lost when the future is dropped.
async fn next_frame<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut WebSocketStream<S>,
) -> Option<Result<Message, Error>> {
    poll_fn(|context| {
        if let Err(error) = ready!(Pin::new(&mut *stream).poll_flush(context)) {
            return Poll::Ready(Some(Err(error)));
        }
        Pin::new(&mut *stream).poll_next(context)
    })
    .await
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    #[tokio::test]
    async fn pings_of_a_caller_that_reads_no_pongs_are_not_read_without_end() {
        let (ours, theirs) = duplex(4 << 10);
        let mut server = WebSocketStream::from_raw_socket(ours, Role::Server, None).await;
        let mut caller = WebSocketStream::from_raw_socket(theirs, Role::Client, None).await;
        let reading = async { while let Some(Ok(_)) = next_frame(&mut server).await {} };
        let pinging = async {
            for _ in 0..10_000 {
                caller.send(Message::Ping(vec![7; 125].into())).await?;
            }
            Ok::<(), Error>(())
        };
        tokio::select! {
            biased;
            () = reading => panic!("the stream ended"),
            sent = pinging => panic!("1.25 MB of pings were read and their pongs kept: {sent:?}"),
            () = idle() => {}
        }
    }

    /// Resolves once neither side could go on for many turns.
    async fn idle() {
        for _ in 0..100_000 {
            tokio::task::yield_now().await;
        }
    }
}
