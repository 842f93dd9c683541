//! A socket, with TLS or without.

use std::cell::RefCell;
use std::io::{self, BufRead as _, IoSliceMut, Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};

use bytes::BufMut;
use pharos_client::rustls::ClientConnection;

use crate::access::TlsConnector;

/// The most that TLS asks of the system at once.
const FILL_BYTES: usize = 256 << 10;
/// A record, encrypted: what may have come of one before the rest of it.
const RECORD_BYTES_MAX: usize = (16 << 10) + 512;
/// Encrypted and not yet written, at most.
const PENDING_BYTES_MAX: usize = 256 << 10;

thread_local! {
    /// Buffer for received bytes that are decrypted next.
    static FILL: RefCell<Vec<u8>> = RefCell::new(vec![0; FILL_BYTES]);
}

/// A connection's socket.
#[derive(Debug)]
pub(crate) enum Socket {
    Plain(TcpStream),
    Tls(Box<TlsSocket>),
}

/// Socket with TLS. The handshake proceeds with reads and writes; data written before its end is buffered until then.
#[derive(Debug)]
pub(crate) struct TlsSocket {
    stream: TcpStream,
    tls: ClientConnection,
    /// Read and not decrypted, for there was no room.
    unread: Vec<u8>,
    /// Decrypted and not taken.
    plain_bytes: usize,
    is_ended: bool,
}

impl Socket {
    /// Over a stream that is connected, or about to be.
    pub(crate) fn new(stream: TcpStream, tls: Option<&TlsConnector>) -> io::Result<Self> {
        let Some(connector) = tls else {
            return Ok(Self::Plain(stream));
        };
        let mut tls = connector.begin()?;
        tls.set_buffer_limit(Some(PENDING_BYTES_MAX));
        Ok(Self::Tls(Box::new(TlsSocket {
            stream,
            tls,
            unread: Vec::new(),
            plain_bytes: 0,
            is_ended: false,
        })))
    }

    /// The stream below.
    pub(crate) fn stream(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(socket) => &socket.stream,
        }
    }

    /// Reads into both, the first first. Returns how many bytes came, and whether the socket has no more. If it may have more, the
    /// system says so again, as long as there is room for two records. One that blocks is waited for until something is there.
    ///
    /// # Errors
    /// `WouldBlock`: there is nothing. Any other one: the connection is lost.
    pub(crate) fn read(&mut self, first: &mut [u8], second: &mut [u8]) -> io::Result<(usize, bool)> {
        let room = first.len() + second.len();
        let read = match self {
            // Without a first there is no slice to look at.
            Self::Plain(stream) if first.is_empty() => stream.read(second)?,
            Self::Plain(stream) => {
                stream.read_vectored(&mut [IoSliceMut::new(first), IoSliceMut::new(second)])?
            }
            Self::Tls(socket) => return socket.read(&mut first.chain_mut(second)),
        };
        Ok((read, read < room))
    }

    /// Takes some of these bytes.
    ///
    /// # Errors
    /// `WouldBlock`: it takes none now. Any other one: the connection is lost.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(bytes),
            Self::Tls(socket) => {
                socket.flush()?;
                let taken = socket.tls.writer().write(bytes)?;
                match socket.flush() {
                    Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
                    _ if taken == 0 => Err(io::ErrorKind::WouldBlock.into()),
                    _ => Ok(taken),
                }
            }
        }
    }

    /// Writes what was taken; `false` when the system does not take all of it now.
    ///
    /// # Errors
    /// The connection is lost.
    pub(crate) fn flush(&mut self) -> io::Result<bool> {
        let Self::Tls(socket) = self else {
            return Ok(true);
        };
        match socket.flush() {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream().as_fd()
    }
}

impl TlsSocket {
    fn read(&mut self, room: &mut impl BufMut) -> io::Result<(usize, bool)> {
        let room_before = room.remaining_mut();
        loop {
            let unread = std::mem::take(&mut self.unread);
            self.decrypt(&unread, room)?;
            let copied = room_before - room.remaining_mut();
            // What is decrypted and finds no room is seen by no poller: so there is always room for it, as far as that goes.
            let is_full = room.remaining_mut() < 2 * RECORD_BYTES_MAX;
            if self.is_ended || (copied > 0 && is_full) || !room.has_remaining_mut() {
                return Ok((copied, false));
            }
            let want = room.remaining_mut().saturating_sub(RECORD_BYTES_MAX);
            match self.fill(want.clamp(RECORD_BYTES_MAX, FILL_BYTES), room) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && copied > 0 => {
                    return Ok((copied, true));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                // Nothing more would come of another look, and one that blocks would wait.
                Ok(true) if room.remaining_mut() < room_before => {
                    return Ok((room_before - room.remaining_mut(), true));
                }
                Ok(_) => {}
            }
        }
    }

    /// Reads from the socket once, at most so much. Returns whether that was all it had.
    fn fill(&mut self, want: usize, room: &mut impl BufMut) -> io::Result<bool> {
        FILL.with_borrow_mut(|fill| {
            let read = self.stream.read(&mut fill[..want])?;
            self.is_ended |= read == 0;
            self.decrypt(&fill[..read], room)?;
            Ok(read < want)
        })
    }

    fn decrypt(&mut self, mut bytes: &[u8], room: &mut impl BufMut) -> io::Result<()> {
        self.take(room)?;
        while !bytes.is_empty() {
            if self.plain_bytes > 0 {
                self.unread.extend_from_slice(bytes);
                break;
            }
            if self.tls.read_tls(&mut bytes)? == 0 {
                break;
            }
            let state = self.tls.process_new_packets();
            let state = state.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            self.plain_bytes = state.plaintext_bytes_to_read();
            self.is_ended |= state.peer_has_closed();
            self.take(room)?;
        }
        // The handshake goes on; what the system does not take leaves with the next write.
        match self.flush() {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }

    fn take(&mut self, room: &mut impl BufMut) -> io::Result<()> {
        while self.plain_bytes > 0 && room.has_remaining_mut() {
            let mut reader = self.tls.reader();
            let found = reader.fill_buf()?;
            let bytes = found.len().min(room.remaining_mut());
            room.put_slice(&found[..bytes]);
            reader.consume(bytes);
            self.plain_bytes -= bytes.min(self.plain_bytes);
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        while self.tls.wants_write() {
            self.tls.write_tls(&mut self.stream)?;
        }
        Ok(())
    }
}
