//! A WebSocket as sessions see it: texts in and out, a caller that is silent for too long, and goodbyes with a reason.

use std::io;
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use tokio::time::{Instant, Interval, MissedTickBehavior};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message, Utf8Bytes};

/// How often a session looks whether something is due.
const TICK: Duration = Duration::from_millis(250);
/// How long a caller may take to hear a goodbye.
const GOODBYE_MAX: Duration = Duration::from_secs(1);
/// Longest reason of a goodbye; a control frame has no room for more.
const REASON_BYTES_MAX: usize = 120;

/// When a session looks whether something is due.
pub(crate) fn ticks() -> Interval {
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// How a caller is treated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) frame_bytes_max: usize,
    pub(crate) idle_max: Duration,
    pub(crate) ping_interval: Option<Duration>,
}

/// Why a session ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SessionEnd {
    /// The caller has gone.
    Gone,
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

/// The caller's end of a session.
pub(crate) struct Socket {
    stream: WebSocketStream<TokioIo<Upgraded>>,
    pace: Pace,
    /// When the caller last said or took something.
    active_at: Instant,
    pinged_at: Instant,
}

impl Socket {
    /// What the connection of a request becomes once the upgrade is answered.
    ///
    /// # Errors
    /// The connection ended before.
    pub(crate) async fn upgrade(upgrade: OnUpgrade, pace: Pace) -> io::Result<Self> {
        let upgraded = upgrade.await.map_err(io::Error::other)?;
        let config = WebSocketConfig::default()
            .max_message_size(Some(pace.frame_bytes_max))
            .max_frame_size(Some(pace.frame_bytes_max))
            // What is written goes to the socket at once; one message is on its way at a time.
            .write_buffer_size(0)
            .read_buffer_size(16 << 10);
        let stream =
            WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, Some(config)).await;
        let now = Instant::now();
        Ok(Self {
            stream,
            pace,
            active_at: now,
            pinged_at: now,
        })
    }

    /// The next text of the caller. Pings are answered meanwhile.
    ///
    /// # Errors
    /// [`SessionEnd`]: there will be none.
    ///
    /// Cancel safety: nothing is lost when the future is dropped.
    pub(crate) async fn next(&mut self) -> Result<Utf8Bytes, SessionEnd> {
        loop {
            let Some(frame) = self.stream.next().await else {
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

    /// Sends something as JSON. A caller that takes nothing for as long as it may be silent is given up.
    ///
    /// # Errors
    /// [`SessionEnd`]: it has gone.
    pub(crate) async fn send(&mut self, frame: &impl Serialize) -> Result<(), SessionEnd> {
        let text = serde_json::to_string(frame).map_err(|error| SessionEnd::error(error.to_string()))?;
        let sending = self.stream.send(Message::text(text));
        match tokio::time::timeout(self.pace.idle_max, sending).await {
            Ok(Ok(())) => {
                self.active_at = Instant::now();
                Ok(())
            }
            Ok(Err(_)) | Err(_) => Err(SessionEnd::Gone),
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
            while let Some(Ok(_)) = self.stream.next().await {}
            Ok::<(), Error>(())
        };
        // A caller that does not listen hears none.
        let _ = tokio::time::timeout(GOODBYE_MAX, closing).await;
    }
}
