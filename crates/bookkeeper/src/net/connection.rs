//! Connection to one bookie: requests out, answers in, in any order.
//!
//! ```text
//!  send ─► queue (bounded in bytes) ─► socket ─► bookie
//!            └ waiting: number → deadline, reply ◄──── answers
//! ```
//! Every request gets one reply: the answer, or the reason why there is none. Replies are never given while a lock is
//! held nor inside `send`, so the caller may hold a lock that its reply takes. After a bookie could not be reached,
//! requests to it fail at once for a while, instead of waiting for their timeout.

use std::collections::{HashMap, VecDeque};
use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use pharos_runtime::{Nanos, clock};
use pharos_types::Login;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::sasl;
use crate::call::CallError;
use crate::wire::{Answer, Frame, LENGTH_BYTES, Request, Response, Status, next_frame};

/// Bytes taken out of the queue for one write.
const WRITE_BYTES: usize = 256 << 10;
/// Interval of the deadline check.
const TICK: Duration = Duration::from_millis(50);
/// An answer before there is a conversation is no larger.
const FIRST_ANSWER_BYTES_MAX: usize = 64 << 10;

/// Callback with the result of a request.
pub(crate) type Reply = Box<dyn FnOnce(Result<Response, CallError>) + Send>;

/// Bounds of a connection, its encryption, and who is at this end.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    /// Time limit for connecting.
    pub(crate) connect: Duration,
    /// Pause before a bookie that could not be reached is tried again.
    pub(crate) pause: Duration,
    /// Bytes that may wait to be written.
    pub(crate) queue_bytes_max: usize,
    /// Largest answer.
    pub(crate) frame_bytes_max: usize,
    /// Nothing is asked without it, if it is there.
    pub(crate) tls: Option<Arc<rustls::ClientConfig>>,
    /// Login for bookies that require one.
    pub(crate) login: Option<Login>,
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// Queue of requests to one bookie. Cheap to clone; [`Connection::run`] is its task.
#[derive(Clone)]
pub(crate) struct Connection {
    shared: Arc<Shared>,
}

struct Shared {
    limits: Limits,
    /// Number of connections made so far.
    number: AtomicU64,
    /// Held for one look or change; never while a reply is given.
    state: Mutex<State>,
    /// Something is to be written, to be refused, or the connection is to end.
    wake: Notify,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Frame>,
    queue_bytes: usize,
    waiting: HashMap<u64, Waiting>,
    /// Requests that are not sent, and why.
    refused: Vec<(Reply, &'static str)>,
    txn_next: u64,
    /// Earliest time of the next attempt.
    pause_until: Option<Nanos>,
    /// The last attempt failed; it was told.
    is_out_of_reach: bool,
    is_ended: bool,
}

struct Waiting {
    deadline: Nanos,
    reply: Reply,
}

impl Connection {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            shared: Arc::new(Shared {
                limits,
                number: AtomicU64::new(0),
                state: Mutex::default(),
                wake: Notify::new(),
            }),
        }
    }

    /// Returns the number of connections made so far. Inside a reply with an answer, that is the number of the
    /// connection that it came on.
    pub(crate) fn number(&self) -> u64 {
        self.shared.number.load(Ordering::Relaxed)
    }

    /// Queues a request. Never waits, and never gives the reply itself.
    pub(crate) fn send(&self, request: &Request, timeout: Duration, reply: Reply) {
        let now = clock::now();
        let mut state = self.shared.lock();
        let why = if state.is_ended {
            Some("the engine was shut down")
        } else if state.pause_until.is_some_and(|until| now < until) {
            Some("the bookie cannot be reached")
        } else if state.queue_bytes > self.shared.limits.queue_bytes_max {
            Some("too much waits for the bookie")
        } else {
            None
        };
        if let Some(why) = why {
            state.refused.push((reply, why));
        } else {
            let txn = state.txn_next;
            state.txn_next += 1;
            let frame = request.encode(txn);
            state.queue_bytes += frame.bytes();
            state.queue.push_back(frame);
            let deadline = Nanos(now.0.saturating_add(nanos(timeout)));
            state.waiting.insert(txn, Waiting { deadline, reply });
        }
        drop(state);
        self.shared.wake.notify_one();
    }

    /// Ends the task; what waits is refused.
    pub(crate) fn end(&self) {
        self.shared.lock().is_ended = true;
        self.shared.wake.notify_one();
    }

    /// Connects when there is something to send, until [`end`](Self::end).
    pub(crate) async fn run(self, address: impl Fn() -> Option<String>) {
        loop {
            self.shared.refuse();
            let (is_ended, is_idle) = {
                let state = self.shared.lock();
                (state.is_ended, state.queue.is_empty())
            };
            if is_ended {
                self.shared.give_up("the engine was shut down");
                return;
            }
            if is_idle {
                self.shared.wake.notified().await;
                continue;
            }
            match self.connect(address()).await {
                Ok(stream) => {
                    match stream {
                        Stream::Plain(stream) => {
                            let (from, to) = stream.into_split();
                            self.shared.converse(from, to).await;
                        }
                        Stream::Tls(stream) => {
                            let (from, to) = tokio::io::split(stream);
                            self.shared.converse(from, to).await;
                        }
                    }
                    self.shared.give_up("the connection ended");
                }
                Err(error) => {
                    let until = clock::now().0.saturating_add(nanos(self.shared.limits.pause));
                    let is_new = {
                        let mut state = self.shared.lock();
                        state.pause_until = Some(Nanos(until));
                        !std::mem::replace(&mut state.is_out_of_reach, true)
                    };
                    if is_new {
                        tracing::warn!(%error, bookie = address().unwrap_or_default(), "cannot connect to a bookie");
                    } else {
                        tracing::debug!(%error, "cannot connect to a bookie");
                    }
                    self.shared.give_up("the bookie cannot be reached");
                }
            }
        }
    }

    /// The time for connecting is for looking the host up as well, which happens beside this thread; a login has as much again.
    async fn connect(&self, address: Option<String>) -> io::Result<Stream> {
        let limits = &self.shared.limits;
        let connecting = async {
            let address = address.ok_or(io::ErrorKind::NotFound)?;
            let stream = TcpStream::connect(&address).await?;
            stream.set_nodelay(true)?;
            match &limits.tls {
                Some(tls) => start_tls(stream, &address, tls).await,
                None => Ok(Stream::Plain(stream)),
            }
        };
        let mut stream = tokio::time::timeout(limits.connect, connecting).await??;
        if let Some(login) = &limits.login {
            let login = async {
                match &mut stream {
                    Stream::Plain(stream) => sasl::log_in(stream, login).await,
                    Stream::Tls(stream) => sasl::log_in(stream, login).await,
                }
            };
            // Apache's bookies say nothing at all to a wrong password.
            let login = tokio::time::timeout(limits.connect, login).await;
            login.map_err(|_| refused("no login by sasl: the bookie says nothing to our password"))??;
        }
        {
            let mut state = self.shared.lock();
            state.pause_until = None;
            state.is_out_of_reach = false;
        }
        self.shared.number.fetch_add(1, Ordering::Relaxed);
        Ok(stream)
    }
}

/// Asks the bookie for TLS, and goes on with it.
async fn start_tls(
    mut stream: TcpStream,
    address: &str,
    tls: &Arc<rustls::ClientConfig>,
) -> io::Result<Stream> {
    let answer = ask(&mut stream, &Request::StartTls).await?;
    if answer.status != Status::Ok {
        return Err(refused(format_args!("no TLS: {}", answer.status)));
    }
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let name = ServerName::try_from(host.to_owned()).map_err(refused)?;
    let stream = TlsConnector::from(Arc::clone(tls)).connect(name, stream).await?;
    Ok(Stream::Tls(Box::new(stream)))
}

/// Asks before there is a conversation. Not a byte more than the answer is read: what follows may be a handshake.
pub(super) async fn ask(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    request: &Request,
) -> io::Result<Answer> {
    stream.write_all(&request.encode(0).head).await?;
    // TLS may keep what it was given until it is told.
    stream.flush().await?;
    let mut length = [0; LENGTH_BYTES];
    stream.read_exact(&mut length).await?;
    let bytes = u32::from_be_bytes(length) as usize;
    if bytes > FIRST_ANSWER_BYTES_MAX {
        return Err(refused("the first answer is too large"));
    }
    let mut body = vec![0; bytes];
    stream.read_exact(&mut body).await?;
    Answer::decode(body.into()).map_err(refused)
}

pub(super) fn refused(why: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionRefused, why.to_string())
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells those that were refused inside `send`.
    fn refuse(&self) {
        let refused = std::mem::take(&mut self.lock().refused);
        for (reply, why) in refused {
            reply(Err(CallError::NotSent(why)));
        }
    }

    /// Nothing that was sent will be answered, and nothing that waits is sent.
    fn give_up(&self, why: &'static str) {
        let waiting = {
            let mut state = self.lock();
            state.queue.clear();
            state.queue_bytes = 0;
            std::mem::take(&mut state.waiting)
        };
        for (_, waiting) in waiting {
            (waiting.reply)(Err(CallError::NoAnswer(why)));
        }
        self.refuse();
    }

    /// Sends and receives until either side ends the connection.
    async fn converse(&self, from: impl AsyncRead + Unpin, to: impl AsyncWrite + Unpin) {
        tokio::select! {
            () = self.listen(from) => {}
            () = self.speak(to) => {}
            () = self.watch_deadlines() => {}
        }
    }

    async fn listen(&self, mut from: impl AsyncRead + Unpin) {
        let mut received = BytesMut::with_capacity(64 << 10);
        loop {
            match from.read_buf(&mut received).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            loop {
                let answer = match next_frame(&mut received, self.limits.frame_bytes_max) {
                    Ok(None) => break,
                    Ok(Some(body)) => Answer::decode(body),
                    Err(error) => Err(error),
                };
                match answer {
                    Ok(answer) => self.on_answer(answer),
                    Err(error) => {
                        tracing::warn!(%error, "a bookie does not speak the protocol");
                        return;
                    }
                }
            }
        }
    }

    fn on_answer(&self, answer: Answer) {
        let waiting = self.lock().waiting.remove(&answer.txn);
        // Otherwise its time was over.
        if let Some(waiting) = waiting {
            (waiting.reply)(match answer.status {
                Status::Ok => Ok(answer.response),
                refused => Err(CallError::Refused(refused)),
            });
        }
    }

    async fn speak(&self, mut to: impl AsyncWrite + Unpin) {
        loop {
            let mut frames = Vec::new();
            {
                let mut state = self.lock();
                if state.is_ended {
                    return;
                }
                let mut bytes = 0;
                while bytes < WRITE_BYTES
                    && let Some(frame) = state.queue.pop_front()
                {
                    bytes += frame.bytes();
                    frames.extend([frame.head, frame.tail]);
                }
            }
            self.refuse();
            if frames.is_empty() {
                self.wake.notified().await;
                continue;
            }
            let bytes: usize = frames.iter().map(|part| part.len()).sum();
            // TLS may keep what it was given until it is told.
            if write_all(&mut to, &mut frames).await.is_err() || to.flush().await.is_err() {
                return;
            }
            // Counted until the socket has it: a bookie that takes nothing fills its queue.
            let mut state = self.lock();
            state.queue_bytes = state.queue_bytes.saturating_sub(bytes);
        }
    }

    async fn watch_deadlines(&self) {
        loop {
            tokio::time::sleep(TICK).await;
            let now = clock::now();
            let late: Vec<Waiting> = {
                let mut state = self.lock();
                let late = state.waiting.extract_if(|_, waiting| waiting.deadline <= now);
                late.map(|(_, waiting)| waiting).collect()
            };
            for waiting in late {
                (waiting.reply)(Err(CallError::NoAnswer("its time was over")));
            }
        }
    }
}

/// Several parts in as few writes as the socket takes.
async fn write_all(to: &mut (impl AsyncWrite + Unpin), parts: &mut [bytes::Bytes]) -> io::Result<()> {
    let mut first = 0;
    while first < parts.len() {
        let slices: Vec<IoSlice<'_>> = parts.iter().skip(first).map(|part| IoSlice::new(part)).collect();
        let mut written = to.write_vectored(&slices).await?;
        if written == 0 && slices.iter().any(|slice| !slice.is_empty()) {
            return Err(io::ErrorKind::WriteZero.into());
        }
        for part in parts.iter_mut().skip(first) {
            let taken = written.min(part.len());
            part.advance(taken);
            written -= taken;
            if !part.is_empty() {
                break;
            }
            first += 1;
        }
    }
    Ok(())
}
