//! TLS with one peer over one socket, driven by hand: nothing here waits, and nothing has a task.
//!
//! ```text
//!   socket ──► scratch of the thread ──► tls ──► room of the reader        what finds no room: `unread`, `plain_bytes`
//!   slices of the writer ──► tls: records of 16 KiB ──► socket             what it does not take waits in `tls`
//! ```
//! A write hands many payloads over at once, so records are full whatever the size of a frame. At most [`BATCH_BYTES`] are
//! encrypted before the socket takes them: that is all that a peer which stops reading holds here, beside what is queued for
//! any stream.

use std::cell::RefCell;
use std::io::{self, BufRead as _, IoSlice, Write as _};
use std::net::Shutdown;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{BufMut, BytesMut};
use rustls::server::ServerConnection;
use tokio::io::{AsyncRead as _, AsyncWrite as _, ReadBuf};
use tokio::net::TcpStream;

use super::verifier::Clients;
use super::{PeerCertificate, Prepared};

/// Encrypted at a time.
const BATCH_BYTES: usize = 128 << 10;
/// The least that is asked of a socket: a whole record.
const FILL_BYTES_MIN: usize = 17 << 10;
/// The most.
const FILL_BYTES_MAX: usize = 128 << 10;

/// Why a client certificate without extensions is refused, and how to make another.
const OF_OLD_VERSION: &str = "client certificate is of X.509 version 1, expected version 3: \
    sign it with extensions, such as openssl x509 -req ... -extfile with a line extendedKeyUsage=clientAuth";

thread_local! {
    /// Buffer for bytes from a socket until they are decrypted, immediately after.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; FILL_BYTES_MAX]);
}

/// A connection that has shaken hands.
#[derive(Debug)]
pub(crate) struct Session {
    socket: TcpStream,
    state: State,
}

/// A connection on its way to another runtime.
#[derive(Debug)]
pub(crate) struct DetachedSession {
    socket: std::net::TcpStream,
    state: State,
}

#[derive(Debug)]
struct State {
    tls: ServerConnection,
    /// Read and not decrypted, because there was no room for what is in it.
    unread: BytesMut,
    /// Decrypted, and waiting in `tls`.
    plain_bytes: usize,
    /// Nothing more comes from the peer.
    is_ended: bool,
    /// True after a close notification was sent to the peer.
    is_closed: bool,
}

impl Session {
    /// Shakes hands.
    ///
    /// # Errors
    /// The peer does not speak TLS, closes, or is not let in. It was told why as far as TLS has words for it.
    ///
    /// Cancel safety: dropping the future closes the connection.
    pub(crate) async fn accept(socket: TcpStream, prepared: &Prepared) -> io::Result<Self> {
        let mut tls = ServerConnection::new(prepared.server.clone()).map_err(io::Error::other)?;
        tls.set_buffer_limit(Some(BATCH_BYTES));
        let state = State {
            tls,
            unread: BytesMut::new(),
            plain_bytes: 0,
            is_ended: false,
            is_closed: false,
        };
        let mut session = Self { socket, state };
        std::future::poll_fn(|context| session.poll_handshake(context)).await?;
        Ok(session)
    }

    /// Certificate presented by the peer, if any.
    pub(crate) fn peer_certificate(&self, clients: &Clients) -> Option<PeerCertificate> {
        let chain = self.state.tls.peer_certificates()?;
        PeerCertificate::read(chain.first()?, clients.is_trusted(chain))
    }

    fn poll_handshake(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.poll_flush(context))?;
            if !self.state.tls.is_handshaking() {
                return Poll::Ready(Ok(()));
            }
            if self.state.is_ended {
                let reason = "the peer has closed during the TLS handshake";
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::UnexpectedEof, reason)));
            }
            let mut no_room: &mut [u8] = &mut [];
            ready!(self.poll_fill(context, &mut no_room))?;
        }
    }

    /// Ready when there is something to read, or the peer has closed.
    pub(crate) fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let state = &self.state;
        if state.plain_bytes > 0 || !state.unread.is_empty() || state.is_ended {
            return Poll::Ready(Ok(()));
        }
        self.socket.poll_read_ready(context)
    }

    /// Reads what has come, as far as there is room; 0 when the peer has closed.
    pub(crate) fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        room: &mut impl BufMut,
    ) -> Poll<io::Result<usize>> {
        let room_before = room.remaining_mut();
        let mut is_drained = false;
        loop {
            self.state.take_plain(room)?;
            let copied = room_before - room.remaining_mut();
            if !room.has_remaining_mut() || self.state.is_ended || (copied > 0 && is_drained) {
                return Poll::Ready(Ok(copied));
            }
            if !self.state.unread.is_empty() {
                let unread = std::mem::take(&mut self.state.unread);
                self.decrypt(&unread, room)?;
                continue;
            }
            match self.poll_fill(context, room)? {
                Poll::Ready(drained) => is_drained = drained,
                Poll::Pending if copied > 0 => return Poll::Ready(Ok(copied)),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Reads from the socket once. Returns whether that was all it had.
    fn poll_fill(&mut self, context: &mut Context<'_>, room: &mut impl BufMut) -> Poll<io::Result<bool>> {
        SCRATCH.with_borrow_mut(|scratch| {
            let want = room.remaining_mut().clamp(FILL_BYTES_MIN, FILL_BYTES_MAX);
            let mut buffer = ReadBuf::new(scratch.get_mut(..want).unwrap_or_default());
            ready!(Pin::new(&mut self.socket).poll_read(context, &mut buffer))?;
            let bytes = buffer.filled();
            self.state.is_ended |= bytes.is_empty();
            self.decrypt(bytes, room)?;
            Poll::Ready(Ok(bytes.len() < want))
        })
    }

    fn decrypt(&mut self, bytes: &[u8], room: &mut impl BufMut) -> io::Result<()> {
        let decrypted = self.state.decrypt(bytes, room);
        // An alert, or new keys that the peer has asked for: what the socket does not take now leaves with the next write.
        match self.flush() {
            Err(error) if decrypted.is_ok() && error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => decrypted,
        }
    }

    /// Takes what is to be written, up to a batch, once the last one has left. Returns how many bytes it took.
    ///
    /// # Errors
    /// `WouldBlock`: the socket has not taken the last ones. Any other one: the connection is finished.
    pub(crate) fn write(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.flush()?;
        let taken = self.state.tls.writer().write_vectored(slices)?;
        match self.flush() {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(taken),
        }
    }

    /// Writes what was encrypted.
    ///
    /// # Errors
    /// `WouldBlock`: the socket does not take all of it now. Any other one: the connection is finished.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        while self.state.tls.wants_write() {
            if self.state.tls.write_tls(&mut Now(&self.socket))? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }

    /// Waits until the socket takes something.
    pub(crate) fn poll_writable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket.poll_write_ready(context)
    }

    /// Writes what was encrypted, all of it.
    pub(crate) fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            match self.flush() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.poll_writable(context))?
                }
                flushed => return Poll::Ready(flushed),
            }
        }
    }

    /// [`Self::write`], as soon as the last batch has left.
    pub(crate) fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_flush(context))?;
        Poll::Ready(self.write(slices))
    }

    /// Tells the peer that nothing more comes.
    pub(crate) fn poll_shutdown(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.state.close();
        ready!(self.poll_flush(context))?;
        Pin::new(&mut self.socket).poll_shutdown(context)
    }

    /// Shuts down as far as possible without waiting.
    pub(crate) fn shut_down_now(&mut self) {
        self.state.close();
        // A peer that is gone, or reads nothing, is not told.
        let _ = self.flush();
        let _ = socket2::SockRef::from(&self.socket).shutdown(Shutdown::Write);
    }

    /// Takes it off its runtime.
    pub(crate) fn detach(self) -> io::Result<DetachedSession> {
        Ok(DetachedSession {
            socket: self.socket.into_std()?,
            state: self.state,
        })
    }
}

impl DetachedSession {
    /// Makes it one of the current runtime.
    pub(crate) fn attach(self) -> io::Result<Session> {
        Ok(Session {
            socket: TcpStream::from_std(self.socket)?,
            state: self.state,
        })
    }
}

impl State {
    /// Decrypts until there is no more room for what comes out; the rest stays.
    fn decrypt(&mut self, mut bytes: &[u8], room: &mut impl BufMut) -> io::Result<()> {
        while !bytes.is_empty() {
            if self.plain_bytes > 0 {
                self.unread.extend_from_slice(bytes);
                return Ok(());
            }
            // After the peer's goodbye nothing counts.
            if self.tls.read_tls(&mut bytes)? == 0 {
                return Ok(());
            }
            let found = self.tls.process_new_packets().map_err(explain)?;
            self.plain_bytes = found.plaintext_bytes_to_read();
            self.is_ended |= found.peer_has_closed();
            self.take_plain(room)?;
        }
        Ok(())
    }

    fn take_plain(&mut self, room: &mut impl BufMut) -> io::Result<()> {
        while self.plain_bytes > 0 && room.has_remaining_mut() {
            let mut reader = self.tls.reader();
            let found = reader.fill_buf()?;
            let found = found.get(..room.remaining_mut()).unwrap_or(found);
            let bytes = found.len();
            room.put_slice(found);
            reader.consume(bytes);
            self.plain_bytes = self.plain_bytes.saturating_sub(bytes.max(1));
        }
        Ok(())
    }

    fn close(&mut self) {
        if !std::mem::replace(&mut self.is_closed, true) {
            self.tls.send_close_notify();
        }
    }
}

/// Explanation for the log of a failure that the peer receives only as an alert.
pub(super) fn explain(error: rustls::Error) -> io::Error {
    use rustls::CertificateError::InvalidPurpose;
    use rustls::InvalidMessage::{InvalidContentType, UnknownProtocolVersion};
    match error {
        rustls::Error::InvalidMessage(InvalidContentType | UnknownProtocolVersion) => {
            io::Error::new(io::ErrorKind::InvalidData, "the peer does not speak TLS")
        }
        // Of `Version3Only`.
        rustls::Error::InvalidCertificate(InvalidPurpose) => {
            io::Error::new(io::ErrorKind::InvalidData, OF_OLD_VERSION)
        }
        error => io::Error::new(io::ErrorKind::InvalidData, error),
    }
}

/// Writes to a socket without waiting.
struct Now<'a>(&'a TcpStream);

impl io::Write for Now<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
