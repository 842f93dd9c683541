//! A peer's stream of bytes, whatever carries it.
//!
//! ```text
//!   Incoming ──establish──► Stream ──split──► ReadHalf + WriteHalf
//!   (accepted, of no         │  ▲                │
//!    runtime)          detach│  │attach          │reunite
//!                            ▼  │                ▼
//!                          Detached            Stream
//! ```
//! A stream belongs to the runtime of one thread. To go to another it is detached, sent there and attached again.
//!
//! The only file that names what carries the bytes: today TCP. What else comes is one more variant here; a preamble or a
//! handshake goes into [`Incoming::establish`], where [`Stream::peer_address`] is found out too.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use bytes::BufMut;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

/// Bytes that the kernel may hold for one connection. Enough to keep a fast reader busy, and little enough that what is queued
/// in the kernel is still in the cache when the peer reads it; it also bounds what a peer that stops reading can pin.
const SEND_BUFFER_BYTES: usize = 1 << 20;

/// A connection that was accepted and not looked at yet. It belongs to no runtime.
#[derive(Debug)]
pub struct Incoming {
    carrier: std::net::TcpStream,
    address: SocketAddr,
}

impl Incoming {
    pub(crate) fn new(carrier: TcpStream, address: SocketAddr) -> io::Result<Self> {
        let carrier = carrier.into_std()?;
        Ok(Self { carrier, address })
    }

    /// Where it comes from: the last hop.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Makes it a stream of the current runtime, after what comes before its first byte. TCP has nothing there and does not wait.
    ///
    /// # Errors
    /// The system refuses, or the peer does not begin as it must. It is closed then.
    ///
    /// Cancel safety: dropping the future closes the connection.
    pub async fn establish(self) -> io::Result<Stream> {
        set_options(&self.carrier);
        let carrier = Carrier::Tcp(TcpStream::from_std(self.carrier)?);
        Ok(Stream {
            carrier,
            peer: self.address,
        })
    }

    /// Sends what fits into the socket at once, and closes.
    pub fn dismiss(self, answer: &[u8]) {
        // Its few bytes find room in a new socket; a peer that is gone needs no answer.
        let _ = io::Write::write(&mut &self.carrier, answer);
    }
}

/// What the kernel should know of a connection.
fn set_options(socket: &std::net::TcpStream) {
    let options = socket2::SockRef::from(socket);
    if let Err(error) = options.set_send_buffer_size(SEND_BUFFER_BYTES) {
        tracing::debug!(%error, "cannot set SO_SNDBUF");
    }
    // Answers leave as they are made; a vectored write already collects what belongs together.
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
}

#[derive(Debug)]
enum Carrier {
    Tcp(TcpStream),
}

/// A stream of the current runtime.
#[derive(Debug)]
pub struct Stream {
    carrier: Carrier,
    peer: SocketAddr,
}

impl Stream {
    /// Where the peer is.
    #[must_use]
    pub fn peer_address(&self) -> SocketAddr {
        self.peer
    }

    /// Its two directions.
    #[must_use]
    pub fn split(self) -> (ReadHalf, WriteHalf) {
        match self.carrier {
            Carrier::Tcp(stream) => {
                let (reading, writing) = stream.into_split();
                let reading = ReadHalf {
                    carrier: ReadCarrier::Tcp(reading),
                    peer: self.peer,
                };
                (reading, WriteHalf(WriteCarrier::Tcp(writing)))
            }
        }
    }

    /// Takes it off its runtime.
    ///
    /// # Errors
    /// As the system says; the stream is closed then.
    pub fn detach(self) -> io::Result<Detached> {
        let carrier = match self.carrier {
            Carrier::Tcp(stream) => DetachedCarrier::Tcp(stream.into_std()?),
        };
        Ok(Detached {
            carrier,
            peer: self.peer,
        })
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.get_mut().carrier {
            Carrier::Tcp(stream) => Pin::new(stream).poll_read(context, room),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().carrier {
            Carrier::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().carrier {
            Carrier::Tcp(stream) => Pin::new(stream).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.carrier {
            Carrier::Tcp(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().carrier {
            Carrier::Tcp(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().carrier {
            Carrier::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

#[derive(Debug)]
enum DetachedCarrier {
    Tcp(std::net::TcpStream),
}

/// A stream on its way to another runtime.
#[derive(Debug)]
pub struct Detached {
    carrier: DetachedCarrier,
    peer: SocketAddr,
}

impl Detached {
    /// Makes it a stream of the current runtime.
    ///
    /// # Errors
    /// As the system says; the stream is closed then.
    pub fn attach(self) -> io::Result<Stream> {
        let carrier = match self.carrier {
            DetachedCarrier::Tcp(stream) => Carrier::Tcp(TcpStream::from_std(stream)?),
        };
        Ok(Stream {
            carrier,
            peer: self.peer,
        })
    }
}

#[derive(Debug)]
enum ReadCarrier {
    Tcp(OwnedReadHalf),
}

/// The direction from the peer.
#[derive(Debug)]
pub struct ReadHalf {
    carrier: ReadCarrier,
    peer: SocketAddr,
}

impl ReadHalf {
    /// Whether there is something to read, or the peer has closed.
    pub fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &self.carrier {
            ReadCarrier::Tcp(stream) => stream.as_ref().poll_read_ready(context).map_ok(drop),
        }
    }

    /// Reads what has come, without waiting; `None` when that is nothing, 0 when the peer has closed.
    ///
    /// Polling the read rather than trying it lets the runtime see that a short read drained the socket, which saves asking it
    /// once more.
    ///
    /// Cancel safety: it never waits.
    pub async fn read_now(&mut self, room: &mut impl BufMut) -> Option<io::Result<usize>> {
        match &mut self.carrier {
            ReadCarrier::Tcp(stream) => {
                let mut read = pin!(stream.read_buf(room));
                poll_fn(|context| {
                    Poll::Ready(match read.as_mut().poll(context) {
                        Poll::Ready(outcome) => Some(outcome),
                        Poll::Pending => None,
                    })
                })
                .await
            }
        }
    }

    /// Both directions in one again.
    ///
    /// # Errors
    /// They are not of one stream; both are closed then.
    pub fn reunite(self, writing: WriteHalf) -> io::Result<Stream> {
        let carrier = match (self.carrier, writing.0) {
            (ReadCarrier::Tcp(reading), WriteCarrier::Tcp(writing)) => {
                Carrier::Tcp(reading.reunite(writing).map_err(io::Error::other)?)
            }
        };
        Ok(Stream {
            carrier,
            peer: self.peer,
        })
    }
}

#[derive(Debug)]
enum WriteCarrier {
    Tcp(OwnedWriteHalf),
}

/// The direction to the peer. Dropped, it tells the peer that nothing more comes.
#[derive(Debug)]
pub struct WriteHalf(WriteCarrier);

impl WriteHalf {
    /// Writes what fits, without waiting.
    ///
    /// # Errors
    /// `WouldBlock`: nothing fits now. Any other one: the stream is finished.
    pub fn write_now(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match &self.0 {
            WriteCarrier::Tcp(stream) => stream.try_write_vectored(slices),
        }
    }

    /// Waits until something fits, or the stream is finished.
    ///
    /// # Errors
    /// As the system says; the next write shows it as well.
    ///
    /// Cancel safety: nothing is lost.
    pub async fn writable(&self) -> io::Result<()> {
        match &self.0 {
            WriteCarrier::Tcp(stream) => stream.writable().await,
        }
    }
}
