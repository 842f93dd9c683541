//! A connection without manners: bytes out, frames in, nothing answered by itself.
//!
//! For protocol tests of either side. [`crate::Connection`] begins as one of these.

use std::fmt;

use bytes::{Bytes, BytesMut};
use pharos_wire::command::Command;
use pharos_wire::frame::{self, Frame};
use pharos_wire::proto::{CommandConnect, CommandConnected};
use pharos_wire::{encode, request};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};

use crate::stream::{self, Incoming, Outgoing};
use crate::{ClientError, TlsOptions};

/// The largest frame taken from a peer, in bytes. Wide enough for brokers with a raised message limit.
const FRAME_BYTES_MAX: usize = 128 * 1024 * 1024;

/// A connection that speaks frames.
pub struct RawConnection {
    incoming: Incoming,
    outgoing: Outgoing,
    received: Received,
}

impl fmt::Debug for RawConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawConnection")
            .field("received", &self.received)
            .finish_non_exhaustive()
    }
}

/// Bytes that have arrived and are not yet a frame.
#[derive(Debug, Default)]
pub(crate) struct Received {
    buffer: BytesMut,
}

impl RawConnection {
    /// Connects, and says nothing. `address`: `host:port`, `pulsar://host:port` or `pulsar+ssl://host:port`.
    ///
    /// # Errors
    /// `Address`, `Connect`, `Tls`.
    pub async fn connect(address: &str) -> Result<Self, ClientError> {
        Self::connect_with(address, &TlsOptions::default()).await
    }

    /// Connects with these options for TLS.
    ///
    /// # Errors
    /// `Address`, `Connect`, `Tls`.
    pub async fn connect_with(address: &str, tls: &TlsOptions) -> Result<Self, ClientError> {
        let halves = stream::connect(address, tls).await?;
        Ok(Self::from_halves(halves))
    }

    /// Takes over a stream, for instance one that a fake broker accepted.
    #[must_use]
    pub fn from_stream(stream: TcpStream) -> Self {
        Self::from_halves(stream::halves(stream))
    }

    pub(crate) fn inside(stream: UnixStream) -> Self {
        Self::from_halves(stream::halves_inside(stream))
    }

    fn from_halves((incoming, outgoing): (Incoming, Outgoing)) -> Self {
        Self {
            incoming,
            outgoing,
            received: Received::default(),
        }
    }

    /// Writes bytes as they are.
    ///
    /// # Errors
    /// `Disconnected`.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        let write = async {
            self.outgoing.write_all(bytes).await?;
            // TLS may have taken what the socket has not.
            self.outgoing.flush().await
        };
        write.await.map_err(ClientError::disconnected)
    }

    /// Writes one command as a frame.
    ///
    /// # Errors
    /// `Disconnected`.
    pub async fn send(&mut self, command: impl Into<Command>) -> Result<(), ClientError> {
        self.write(&encode::encode_command(&command.into())).await
    }

    /// Writes one command with the bytes that follow it; for SEND and MESSAGE.
    ///
    /// # Errors
    /// `Disconnected`.
    pub async fn send_with_payload(
        &mut self,
        command: impl Into<Command>,
        payload: &[u8],
    ) -> Result<(), ClientError> {
        self.write(&encode::encode_frame(&command.into(), payload)).await
    }

    /// The next frame, PINGs included; `None` when the peer has closed.
    ///
    /// # Errors
    /// `Disconnected`, also when the bytes are no frame.
    ///
    /// Cancel safety: nothing is lost when the future is dropped.
    pub async fn read(&mut self) -> Result<Option<Frame>, ClientError> {
        self.received.next(&mut self.incoming).await
    }

    /// The next command other than PING and PONG.
    ///
    /// # Errors
    /// `Disconnected`, also when the peer has closed.
    pub async fn next_command(&mut self) -> Result<Command, ClientError> {
        loop {
            match self.read().await? {
                None => return Err(ClientError::disconnected("closed by the peer")),
                Some(frame) if matches!(frame.command, Command::Ping(_) | Command::Pong(_)) => {}
                Some(frame) => return Ok(frame.command),
            }
        }
    }

    /// Sends CONNECT and waits for CONNECTED; an AUTH_CHALLENGE is answered with the data of CONNECT.
    ///
    /// # Errors
    /// `Refused`, `Unexpected`, `Disconnected`.
    pub async fn handshake(&mut self, connect: CommandConnect) -> Result<CommandConnected, ClientError> {
        let method = connect.auth_method_name.clone().unwrap_or_default();
        let data = connect.auth_data.clone().unwrap_or_default();
        self.send(connect).await?;
        loop {
            match self.next_command().await? {
                Command::Connected(connected) => return Ok(connected),
                Command::AuthChallenge(_) => {
                    self.send(request::auth_response(&method, Bytes::clone(&data)))
                        .await?;
                }
                Command::Error(error) => {
                    return Err(ClientError::refused(Some(error.error), Some(error.message)));
                }
                other => {
                    return Err(ClientError::Unexpected {
                        what: "CONNECT",
                        got: other.command_type(),
                    });
                }
            }
        }
    }

    pub(crate) fn into_parts(self) -> (Incoming, Outgoing, Received) {
        (self.incoming, self.outgoing, self.received)
    }
}

impl Received {
    /// Bytes that have arrived.
    pub(crate) fn len(&self) -> usize {
        self.buffer.len()
    }

    /// The next frame of `stream`; `None` at its end.
    ///
    /// Cancel safety: bytes are kept in `self` as soon as they are read.
    pub(crate) async fn next(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
    ) -> Result<Option<Frame>, ClientError> {
        loop {
            if let Some(frame) =
                frame::decode(&mut self.buffer, FRAME_BYTES_MAX).map_err(ClientError::disconnected)?
            {
                return Ok(Some(frame));
            }
            self.buffer.reserve(frame::reserve_hint(&self.buffer));
            let bytes = stream
                .read_buf(&mut self.buffer)
                .await
                .map_err(ClientError::disconnected)?;
            if bytes == 0 && self.buffer.is_empty() {
                return Ok(None);
            }
            if bytes == 0 {
                return Err(ClientError::disconnected("closed by the peer within a frame"));
            }
        }
    }
}
