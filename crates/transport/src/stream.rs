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
//! The only file that names what carries the bytes: TCP, TLS over it, or a pair of sockets where the peer is a door of this process
//! itself. What comes before the first byte is the business of the listener's [`Entrance`], which [`Incoming::establish`] goes through.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::BufMut;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpStream, UnixStream, unix};

use crate::entrance::Entrance;
use crate::quota::{Quota, QuotaError, QuotaHold, network_of};
use crate::tls::{DetachedSession, PeerCertificate, Session};

/// Bytes that the kernel may hold for one connection. Enough to keep a fast reader busy, and little enough that what is queued
/// in the kernel is still in the cache when the peer reads it; it also bounds what a peer that stops reading can pin.
const SEND_BUFFER_BYTES: usize = 1 << 20;

/// A connection that was accepted and not looked at yet. It belongs to no runtime.
#[derive(Debug)]
pub struct Incoming {
    carrier: Accepted,
    address: SocketAddr,
    entrance: Option<Arc<Entrance>>,
    /// Quota to count the connection in; `None` if it is counted already or need not be.
    addresses: Option<Arc<Quota<IpAddr>>>,
    counted: Option<AddressHold>,
}

#[derive(Debug)]
enum Accepted {
    Tcp(std::net::TcpStream),
    /// From another door of this process, with the certificate that its client has shown there.
    Inside(std::os::unix::net::UnixStream, Option<Arc<PeerCertificate>>),
}

/// A connection that counts at its address as long as any part of it lives.
pub(crate) type AddressHold = Arc<QuotaHold<IpAddr>>;

impl Incoming {
    pub(crate) fn new(
        carrier: TcpStream,
        address: SocketAddr,
        entrance: Option<Arc<Entrance>>,
        addresses: Option<Arc<Quota<IpAddr>>>,
    ) -> io::Result<Self> {
        let carrier = Accepted::Tcp(carrier.into_std()?);
        Ok(Self {
            carrier,
            address,
            entrance,
            addresses,
            counted: None,
        })
    }

    /// Connection opened by another protocol handler of this process for its client, which is at `address`, has
    /// presented `certificate` and is counted there.
    ///
    /// # Errors
    /// Those of the system.
    pub fn inside(
        carrier: std::os::unix::net::UnixStream,
        address: SocketAddr,
        certificate: Option<Arc<PeerCertificate>>,
    ) -> io::Result<Self> {
        carrier.set_nonblocking(true)?;
        Ok(Self {
            carrier: Accepted::Inside(carrier, certificate),
            address,
            entrance: None,
            addresses: None,
            counted: None,
        })
    }

    /// Counts it at its address. One whose address a PROXY header will say is counted once that is read.
    ///
    /// # Errors
    /// [`QuotaError`]: there is no room for it; it is to be dismissed.
    pub fn count(&mut self) -> Result<(), QuotaError> {
        if self
            .entrance
            .as_ref()
            .is_some_and(|entrance| entrance.says_address())
        {
            return Ok(());
        }
        if let Some(addresses) = self.addresses.take() {
            let held = addresses.enter(network_of(self.address.ip()))?;
            self.counted = Some(Arc::new(held));
        }
        Ok(())
    }

    /// Address of the last hop.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Makes it a stream of the current runtime, after what comes before its first byte. Where nothing does, it does not wait.
    ///
    /// # Errors
    /// The system refuses, or the peer does not begin as it must, which the listener's entrance tells in the log. It is closed
    /// then.
    ///
    /// Cancel safety: dropping the future closes the connection.
    pub async fn establish(self) -> io::Result<Stream> {
        let socket = match self.carrier {
            Accepted::Tcp(socket) => socket,
            Accepted::Inside(socket, certificate) => {
                let socket = UnixStream::from_std(socket)?;
                return Ok(Stream::of_inside(socket, self.address, certificate));
            }
        };
        set_options(&socket);
        let socket = TcpStream::from_std(socket)?;
        let mut stream = match &self.entrance {
            // On the heap: a connection must not carry the room that its handshake took.
            Some(entrance) => Box::pin(entrance.pass(socket, self.address, self.addresses)).await?,
            None => Stream::of_tcp(socket, self.address),
        };
        stream.peer.counted = stream.peer.counted.or(self.counted);
        Ok(stream)
    }

    /// Sends what fits into the socket at once, and closes. Who expects a handshake is only closed.
    pub fn dismiss(self, answer: &[u8]) {
        if let (Accepted::Tcp(socket), None) = (&self.carrier, &self.entrance) {
            // Its few bytes find room in a new socket; a peer that is gone needs no answer.
            let _ = io::Write::write(&mut &*socket, answer);
        }
    }
}

/// Sets the socket options of a connection.
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
    Tls(Box<Session>),
    Inside(UnixStream),
}

/// A stream of the current runtime.
#[derive(Debug)]
pub struct Stream {
    carrier: Carrier,
    peer: Peer,
}

/// Peer, as far as the stream knows it.
#[derive(Clone, Debug)]
struct Peer {
    address: SocketAddr,
    certificate: Option<Arc<PeerCertificate>>,
    /// Unit held in the quota of its address.
    counted: Option<AddressHold>,
}

impl Stream {
    pub(crate) fn of_tcp(socket: TcpStream, address: SocketAddr) -> Self {
        Self {
            carrier: Carrier::Tcp(socket),
            peer: Peer {
                address,
                certificate: None,
                counted: None,
            },
        }
    }

    pub(crate) fn of_tls(
        session: Session,
        address: SocketAddr,
        certificate: Option<Arc<PeerCertificate>>,
    ) -> Self {
        Self {
            carrier: Carrier::Tls(Box::new(session)),
            peer: Peer {
                address,
                certificate,
                counted: None,
            },
        }
    }

    fn of_inside(socket: UnixStream, address: SocketAddr, certificate: Option<Arc<PeerCertificate>>) -> Self {
        Self {
            carrier: Carrier::Inside(socket),
            peer: Peer {
                address,
                certificate,
                counted: None,
            },
        }
    }

    /// Sets the unit held in the quota of its address.
    pub(crate) fn counted(mut self, counted: Option<AddressHold>) -> Self {
        self.peer.counted = counted;
        self
    }

    /// Address of the peer; behind a balancer with PROXY headers, the address in the header.
    #[must_use]
    pub fn peer_address(&self) -> SocketAddr {
        self.peer.address
    }

    /// The certificate that the peer has shown.
    #[must_use]
    pub fn peer_certificate(&self) -> Option<&Arc<PeerCertificate>> {
        self.peer.certificate.as_ref()
    }

    /// True if it comes from another protocol handler of this process.
    #[must_use]
    pub fn is_inside(&self) -> bool {
        matches!(self.carrier, Carrier::Inside(_))
    }

    /// True if it uses TLS.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        matches!(self.carrier, Carrier::Tls(_))
    }

    /// Its two directions.
    #[must_use]
    pub fn split(self) -> (ReadHalf, WriteHalf) {
        let (reading, writing) = match self.carrier {
            Carrier::Tcp(stream) => {
                let (reading, writing) = stream.into_split();
                (ReadCarrier::Tcp(reading), WriteCarrier::Tcp(writing))
            }
            Carrier::Tls(session) => {
                let shared = Rc::new(RefCell::new(*session));
                let writing = TlsWriting(Some(shared.clone()));
                (ReadCarrier::Tls(shared), WriteCarrier::Tls(writing))
            }
            Carrier::Inside(stream) => {
                let (reading, writing) = stream.into_split();
                (ReadCarrier::Inside(reading), WriteCarrier::Inside(writing))
            }
        };
        let reading = ReadHalf {
            carrier: reading,
            peer: self.peer,
        };
        (reading, WriteHalf(writing))
    }

    /// Takes it off its runtime.
    ///
    /// # Errors
    /// As the system says; the stream is closed then.
    pub fn detach(self) -> io::Result<Detached> {
        let carrier = match self.carrier {
            Carrier::Tcp(stream) => DetachedCarrier::Tcp(stream.into_std()?),
            Carrier::Tls(session) => DetachedCarrier::Tls(Box::new(session.detach()?)),
            Carrier::Inside(stream) => DetachedCarrier::Inside(stream.into_std()?),
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
            Carrier::Tls(session) => session.poll_read(context, room).map_ok(drop),
            Carrier::Inside(stream) => Pin::new(stream).poll_read(context, room),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().carrier {
            Carrier::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Carrier::Tls(session) => session.poll_write(context, &[IoSlice::new(bytes)]),
            Carrier::Inside(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().carrier {
            Carrier::Tcp(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Carrier::Tls(session) => session.poll_write(context, slices),
            Carrier::Inside(stream) => Pin::new(stream).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.carrier {
            Carrier::Tcp(stream) => stream.is_write_vectored(),
            Carrier::Tls(_) => true,
            Carrier::Inside(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().carrier {
            Carrier::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Carrier::Tls(session) => session.poll_flush(context),
            Carrier::Inside(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().carrier {
            Carrier::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Carrier::Tls(session) => session.poll_shutdown(context),
            Carrier::Inside(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

#[derive(Debug)]
enum DetachedCarrier {
    Tcp(std::net::TcpStream),
    Tls(Box<DetachedSession>),
    Inside(std::os::unix::net::UnixStream),
}

/// A stream on its way to another runtime.
#[derive(Debug)]
pub struct Detached {
    carrier: DetachedCarrier,
    peer: Peer,
}

impl Detached {
    /// Makes it a stream of the current runtime.
    ///
    /// # Errors
    /// As the system says; the stream is closed then.
    pub fn attach(self) -> io::Result<Stream> {
        let carrier = match self.carrier {
            DetachedCarrier::Tcp(stream) => Carrier::Tcp(TcpStream::from_std(stream)?),
            DetachedCarrier::Tls(session) => Carrier::Tls(Box::new(session.attach()?)),
            DetachedCarrier::Inside(stream) => Carrier::Inside(UnixStream::from_std(stream)?),
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
    Tls(Rc<RefCell<Session>>),
    Inside(unix::OwnedReadHalf),
}

/// The direction from the peer.
#[derive(Debug)]
pub struct ReadHalf {
    carrier: ReadCarrier,
    peer: Peer,
}

impl ReadHalf {
    /// Ready when there is something to read, or the peer has closed.
    pub fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &self.carrier {
            ReadCarrier::Tcp(stream) => stream.as_ref().poll_read_ready(context).map_ok(drop),
            ReadCarrier::Tls(session) => session.borrow().poll_readable(context),
            ReadCarrier::Inside(stream) => stream.as_ref().poll_read_ready(context).map_ok(drop),
        }
    }

    /// Reads what has come, without waiting; `None` when that is nothing, 0 when the peer has closed.
    ///
    /// Polling the read rather than trying it lets the runtime see that a short read drained the socket, which saves asking it
    /// once more.
    ///
    /// Cancel safety: it never waits.
    pub async fn read_now(&mut self, room: &mut impl BufMut) -> Option<io::Result<usize>> {
        let now = |polled: Poll<io::Result<usize>>| {
            Poll::Ready(match polled {
                Poll::Ready(outcome) => Some(outcome),
                Poll::Pending => None,
            })
        };
        match &mut self.carrier {
            ReadCarrier::Tcp(stream) => {
                let mut read = pin!(stream.read_buf(room));
                poll_fn(|context| now(read.as_mut().poll(context))).await
            }
            ReadCarrier::Tls(session) => {
                poll_fn(|context| now(session.borrow_mut().poll_read(context, room))).await
            }
            ReadCarrier::Inside(stream) => {
                let mut read = pin!(stream.read_buf(room));
                poll_fn(|context| now(read.as_mut().poll(context))).await
            }
        }
    }

    /// Both directions in one again.
    ///
    /// # Errors
    /// They are not of one stream; both are closed then.
    pub fn reunite(self, writing: WriteHalf) -> io::Result<Stream> {
        let of_two = || io::Error::other("the two directions are not of one stream");
        let carrier = match (self.carrier, writing.0) {
            (ReadCarrier::Tcp(reading), WriteCarrier::Tcp(writing)) => {
                Carrier::Tcp(reading.reunite(writing).map_err(io::Error::other)?)
            }
            (ReadCarrier::Tls(reading), WriteCarrier::Tls(mut writing)) => {
                // Taken out, it does not say goodbye. Two that are of one stream are all who know of it.
                drop(writing.0.take_if(|writing| Rc::ptr_eq(writing, &reading)));
                let session = Rc::try_unwrap(reading).map_err(|_| of_two())?;
                Carrier::Tls(Box::new(session.into_inner()))
            }
            (ReadCarrier::Inside(reading), WriteCarrier::Inside(writing)) => {
                Carrier::Inside(reading.reunite(writing).map_err(io::Error::other)?)
            }
            _ => return Err(of_two()),
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
    Tls(TlsWriting),
    Inside(unix::OwnedWriteHalf),
}

/// Says goodbye when it is dropped, unless it was taken out.
#[derive(Debug)]
struct TlsWriting(Option<Rc<RefCell<Session>>>);

impl TlsWriting {
    fn with<T>(&self, act: impl FnOnce(&mut Session) -> io::Result<T>) -> io::Result<T> {
        match &self.0 {
            Some(session) => act(&mut session.borrow_mut()),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

impl Drop for TlsWriting {
    fn drop(&mut self) {
        if let Some(session) = &self.0 {
            session.borrow_mut().shut_down_now();
        }
    }
}

/// The direction to the peer. Dropped, it tells the peer that nothing more comes.
#[derive(Debug)]
pub struct WriteHalf(WriteCarrier);

impl WriteHalf {
    /// Takes what can be written, without waiting, and writes what fits. What it took and the socket did not is for
    /// [`Self::flush_now`].
    ///
    /// # Errors
    /// `WouldBlock`: nothing fits now. Any other one: the stream is finished.
    pub fn write_now(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match &self.0 {
            WriteCarrier::Tcp(stream) => stream.try_write_vectored(slices),
            WriteCarrier::Tls(writing) => writing.with(|session| session.write(slices)),
            WriteCarrier::Inside(stream) => stream.try_write_vectored(slices),
        }
    }

    /// Writes what was taken. Without TLS nothing ever is left.
    ///
    /// # Errors
    /// `WouldBlock`: not all of it fits now. Any other one: the stream is finished.
    pub fn flush_now(&self) -> io::Result<()> {
        match &self.0 {
            WriteCarrier::Tcp(_) | WriteCarrier::Inside(_) => Ok(()),
            WriteCarrier::Tls(writing) => writing.with(Session::flush),
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
            WriteCarrier::Inside(stream) => stream.writable().await,
            WriteCarrier::Tls(writing) => {
                poll_fn(
                    |context| match writing.with(|session| Ok(session.poll_writable(context))) {
                        Ok(polled) => polled,
                        Err(error) => Poll::Ready(Err(error)),
                    },
                )
                .await
            }
        }
    }
}
