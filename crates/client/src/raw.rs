//! A connection without manners: bytes out, frames in, nothing answered by itself.
//!
//! For protocol tests of either side. [`crate::Connection`] begins as one of these.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use pharos_wire::command::Command;
use pharos_wire::frame::{self, Frame};
use pharos_wire::proto::{CommandConnect, CommandConnected};
use pharos_wire::{encode, request};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::ClientError;

/// The largest frame taken from a peer, in bytes. Wide enough for brokers with a raised message limit.
const FRAME_BYTES_MAX: usize = 128 * 1024 * 1024;

/// A TCP connection that speaks frames.
#[derive(Debug)]
pub struct RawConnection {
    stream: TcpStream,
    received: Received,
}

/// Bytes that have arrived and are not yet a frame.
#[derive(Debug, Default)]
pub(crate) struct Received {
    buffer: BytesMut,
}

impl RawConnection {
    /// Connects, and says nothing. `address`: `host:port` or `pulsar://host:port`.
    ///
    /// # Errors
    /// `Address`, `Connect`.
    pub async fn connect(address: &str) -> Result<Self, ClientError> {
        let bare = address.strip_prefix("pulsar://").unwrap_or(address);
        let bare = bare.strip_suffix('/').unwrap_or(bare);
        let port = bare.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
        if !matches!(port, Some(Ok(_))) || bare.contains("://") {
            return Err(ClientError::Address(address.to_owned()));
        }
        let stream = TcpStream::connect(bare)
            .await
            .map_err(|cause| ClientError::Connect {
                address: bare.to_owned(),
                cause: Arc::new(cause),
            })?;
        // A request must not wait for the answer to the one before it. Without this it is only slower.
        let _ = stream.set_nodelay(true);
        Ok(Self::from_stream(stream))
    }

    /// Takes over a stream, for instance one that a fake broker accepted.
    #[must_use]
    pub fn from_stream(stream: TcpStream) -> Self {
        Self {
            stream,
            received: Received::default(),
        }
    }

    /// Writes bytes as they are.
    ///
    /// # Errors
    /// `Disconnected`.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        self.stream
            .write_all(bytes)
            .await
            .map_err(ClientError::disconnected)
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
        self.received.next(&mut self.stream).await
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

    pub(crate) fn into_parts(self) -> (TcpStream, Received) {
        (self.stream, self.received)
    }
}

impl Received {
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
