//! Where connections are until it is known who their client is: threads of their own, which stand back behind the shards.
//!
//! ```text
//!   accepted ──► PROXY header, TLS ──► CONNECT, whole and in time ──► who is it? ──► the shard of its place: CONNECTED
//!                                      └─ else closed                 └─ refused: ERROR -1, closed
//! ```
//! A flood of peers that are never let in costs the shards nothing but the processor time that is left over: they see a connection
//! when its client has proved who it is. As many of these threads as shards, since handshakes of TLS are work.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use pharos_broker::Broker;
use pharos_broker::shard::Shard;
use pharos_runtime::{spawn_local, spawn_shard, stand_back};
use pharos_transport::{Incoming, Listener, NoRoom, Place, Stream};
use pharos_wire::answer;
use pharos_wire::encode::encode_command;
use pharos_wire::frame::{self, FrameError};
use pharos_wire::proto::ServerError;
use pharos_wire::{Command, Frame};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{Notify, mpsc};

use crate::connection::Unsettled;
use crate::handover;
use crate::limits::CONNECT_BYTES_MAX;
use crate::proving::{Proved, Stranger, prove, refusal};
use crate::reader::Unhandled;
use crate::shared::Server;

/// Connections that wait for one of these threads; then those that come wait to be accepted.
const WAITING_MAX: usize = 256;
/// Room for the first read: as much as most clients say.
const FIRST_READ_BYTES: usize = 512;
/// How long a peer that is refused may take to read why.
const GOODBYE_MAX: Duration = Duration::from_secs(1);
/// How often shards are told how many were not let in.
const TOLD_EVERY: Duration = Duration::from_millis(100);

/// A connection that was accepted, on its way to its thread.
struct Newcomer {
    incoming: Incoming,
    place: Place,
    /// The listener by whose door it came.
    listener: Option<Arc<str>>,
}

/// Why a connection was not let in.
#[derive(Debug, thiserror::Error)]
enum EntryError {
    #[error("it left")]
    Left,
    #[error(transparent)]
    Stream(#[from] io::Error),
    #[error("it breaks the protocol: {0}")]
    Violation(#[from] FrameError),
    #[error("it did not say CONNECT first but {0}")]
    NotConnect(String),
    #[error("it was not known in time who it is")]
    TooSlow,
    /// Told where it was decided.
    #[error("it is not who may come in")]
    Refused,
}

/// What the threads share.
struct EntryThreads {
    server: Arc<Server>,
    broker: Broker,
    /// How long a client may take to say CONNECT.
    connect_time_max: Duration,
    /// Connections that were not let in and that no shard has heard of.
    turned_away: AtomicU64,
    was_turned_away: Notify,
}

/// Starts to accept, by each listener and the name that its clients know it by.
///
/// # Errors
/// The system refuses a thread.
pub(crate) fn start(
    server: &Arc<Server>,
    broker: &Broker,
    listeners: Vec<(Listener, Option<Arc<str>>)>,
    connect_time_max: Duration,
) -> io::Result<()> {
    let entry = Arc::new(EntryThreads {
        server: server.clone(),
        broker: broker.clone(),
        connect_time_max,
        turned_away: AtomicU64::new(0),
        was_turned_away: Notify::new(),
    });
    let mut threads = Vec::new();
    for index in 0..broker.shard_count() {
        let (thread, newcomers) = mpsc::channel(WAITING_MAX);
        threads.push(thread);
        let entry = entry.clone();
        // It ends when the broker stops, and what is on it is closed then.
        spawn_shard(format!("pharos-entry-{index}"), move || async move {
            stand_back();
            entry.run(newcomers).await;
        })?;
    }
    let threads: Arc<[_]> = threads.into();
    let accept = move || async move {
        stand_back();
        let mut token = entry.broker.shared.shutdown.clone();
        spawn_local(tell_of_turned_away(entry.clone()));
        for (listener, name) in listeners {
            let door = Accepting {
                threads: threads.clone(),
                listener: name,
            };
            let (entry, token) = (entry.clone(), token.clone());
            spawn_local(async move {
                match listener.start() {
                    Ok(acceptor) => entry.server.admission.run(acceptor, &door, token).await,
                    Err(error) => tracing::error!(%error, "cannot accept connections"),
                }
            });
        }
        token.triggered().await;
    };
    spawn_shard("pharos-accept".to_owned(), accept)?;
    Ok(())
}

/// Takes accepted connections to the threads of the entry.
struct Accepting {
    threads: Arc<[mpsc::Sender<Newcomer>]>,
    /// The listener whose door this is.
    listener: Option<Arc<str>>,
}

impl pharos_transport::Protocol for Accepting {
    async fn admit(&self, incoming: Incoming, place: Place) {
        if let Some(thread) = self.threads.get(place.shard()) {
            let listener = self.listener.clone();
            // A closed channel means that the broker stops, and the connection with it.
            let _ = thread
                .send(Newcomer {
                    incoming,
                    place,
                    listener,
                })
                .await;
        }
    }

    /// In the words of Pulsar.
    fn refusal(&self, why: NoRoom) -> bytes::Bytes {
        let reason = match why {
            NoRoom::Full(open) => format!("Reached the maximum number of connections: {open} are open"),
            NoRoom::Address(error) => {
                format!("Reached the maximum number of connections of this address: {error}")
            }
        };
        encode_command(&answer::connection_error(ServerError::NotAllowedError, reason))
    }
}

impl EntryThreads {
    async fn run(self: Arc<Self>, mut newcomers: mpsc::Receiver<Newcomer>) {
        let mut token = self.broker.shared.shutdown.clone();
        loop {
            let newcomer = tokio::select! {
                () = token.triggered() => return,
                newcomer = newcomers.recv() => newcomer,
            };
            let Some(newcomer) = newcomer else { return };
            let entry = self.clone();
            spawn_local(async move {
                let address = newcomer.incoming.address();
                let stream = match newcomer.incoming.establish().await {
                    Ok(stream) => stream,
                    // A listener with an entrance tells it as often as is good for the log.
                    Err(error) => {
                        return tracing::debug!(peer = %address, %error, "cannot take a connection in");
                    }
                };
                if let Err(error) = entry.enter(stream, newcomer.listener, newcomer.place).await {
                    tracing::trace!(peer = %address, %error, "a connection is turned away");
                    entry.turned_away.fetch_add(1, Ordering::Relaxed);
                    entry.was_turned_away.notify_one();
                }
            });
        }
    }

    /// Lets a client in, to the shard of its place.
    async fn enter(
        &self,
        mut stream: Stream,
        listener: Option<Arc<str>>,
        place: Place,
    ) -> Result<(), EntryError> {
        let mut unsettled = Unsettled::new(self.server.clone(), listener, &stream);
        let connecting = tokio::time::timeout(self.connect_time_max, first_frame(&mut stream));
        let connected = connecting.await.unwrap_or(Err(EntryError::TooSlow));
        let (frame, rest) = connected.inspect_err(|error| self.tell(&unsettled.address, error))?;
        if self.server.authentication.is_on() {
            unsettled.proved = Some(self.prove(&mut stream, &unsettled, &frame).await?);
        }
        let (stream, shard) = (stream.detach()?, place.shard());
        let serve = move |shard: &Rc<Shard>| match stream.attach() {
            Ok(stream) => {
                let unhandled = Box::new(Unhandled { frame, rest });
                handover::begin(shard, unsettled, stream, place, unhandled);
            }
            Err(error) => tracing::warn!(peer = %unsettled.address, %error, "cannot take a connection in"),
        };
        self.broker.run_on(shard, serve).await;
        Ok(())
    }

    async fn prove(
        &self,
        stream: &mut Stream,
        unsettled: &Unsettled,
        frame: &Frame,
    ) -> Result<Box<Proved>, EntryError> {
        let Command::Connect(connect) = &frame.command else {
            return Err(EntryError::Refused);
        };
        let stranger = Stranger {
            server: &self.server,
            address: &unsettled.address,
            door: unsettled.door,
            certificate: unsettled.certificate.as_deref(),
        };
        let proving = tokio::time::timeout(self.connect_time_max, prove(stranger, connect));
        let Ok(proved) = proving.await else {
            self.tell(&unsettled.address, &EntryError::TooSlow);
            return Err(EntryError::TooSlow);
        };
        match proved {
            Ok(proved) => Ok(Box::new(proved)),
            Err(refused) => {
                let answer = encode_command(&refusal(stranger, None, &refused));
                let goodbye = async {
                    stream.write_all(&answer).await?;
                    stream.shutdown().await
                };
                // A peer that does not listen hears nothing.
                let _ = tokio::time::timeout(GOODBYE_MAX, goodbye).await;
                Err(EntryError::Refused)
            }
        }
    }

    fn tell(&self, address: &str, error: &EntryError) {
        if matches!(error, EntryError::Left | EntryError::Stream(_)) {
            tracing::debug!(peer = %address, %error, "a connection was not let in");
        } else if let Some(untold) = self.server.peer_log.enter() {
            tracing::warn!(peer = %address, %error, untold, "a connection was not let in");
        }
    }
}

/// The first shard keeps the books of connections that no shard has had.
async fn tell_of_turned_away(entry: Arc<EntryThreads>) {
    loop {
        entry.was_turned_away.notified().await;
        tokio::time::sleep(TOLD_EVERY).await;
        let count = entry.turned_away.swap(0, Ordering::Relaxed);
        let note = move |shard: &Rc<Shard>| {
            shard.tally().handshakes_failed(count);
            shard.connections.pass_by(count);
        };
        entry.broker.run_on(0, note).await;
    }
}

/// The first frame of a client, a CONNECT, and what came behind it.
async fn first_frame(stream: &mut Stream) -> Result<(Frame, BytesMut), EntryError> {
    let mut buffer = BytesMut::with_capacity(FIRST_READ_BYTES);
    loop {
        if stream.read_buf(&mut buffer).await? == 0 {
            return Err(EntryError::Left);
        }
        if let Some(frame) = frame::decode(&mut buffer, CONNECT_BYTES_MAX)? {
            return match &frame.command {
                Command::Connect(_) => Ok((frame, buffer)),
                other => Err(EntryError::NotConnect(format!("{:?}", other.command_type()))),
            };
        }
        buffer.reserve(
            frame::missing_bytes(&buffer)
                .min(buffer.len())
                .max(FIRST_READ_BYTES),
        );
    }
}
