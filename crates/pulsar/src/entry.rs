//! Threads for connections that are not authenticated yet, at a lower priority than the shards.
//!
//! ```text
//!   accepted ──► PROXY header, TLS ──► CONNECT, whole and in time ──► who is it? ──► the shard of its place: CONNECTED
//!                                      └─ else closed                 └─ refused: ERROR -1, closed
//! ```
//! A flood of unauthenticated peers costs the shards nothing but the processor time that is left over: they receive a
//! connection when its client is authenticated. As many of these threads as shards, since TLS handshakes are
//! expensive.

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
use pharos_wire::proto::{CommandConnect, ServerError};
use pharos_wire::{Command, CommandType};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{Notify, mpsc};

use crate::connection::{Peer, Unsettled};
use crate::entry_queue::{EntryQueue, Newcomer, Newcomers};
use crate::handover;
use crate::limits::CONNECT_BYTES_MAX;
use crate::proving::Stranger;
use crate::shared::Server;

/// Room for the first read: as much as most clients say.
const FIRST_READ_BYTES: usize = 512;
/// Maximum time for a refused peer to read the reason.
const GOODBYE_MAX: Duration = Duration::from_secs(1);
/// Interval at which shards are told the number of refused connections.
const TOLD_EVERY: Duration = Duration::from_millis(100);

/// Reason why a connection was not admitted.
#[derive(Debug, thiserror::Error)]
enum EntryError {
    #[error("it left")]
    Left,
    #[error(transparent)]
    Stream(#[from] io::Error),
    #[error("it breaks the protocol: {0}")]
    Violation(#[from] FrameError),
    #[error("it did not say CONNECT first but {0:?}")]
    NotConnect(CommandType),
    #[error("it was not known in time who it is")]
    TooSlow,
    /// Told where it was decided.
    #[error("it is not who may come in")]
    Refused,
}

/// State shared by the entry threads.
struct EntryThreads {
    server: Arc<Server>,
    broker: Broker,
    /// Maximum time for a client to send CONNECT.
    connect_time_max: Duration,
    /// Connections that were not let in and that no shard has heard of.
    turned_away: AtomicU64,
    was_turned_away: Notify,
}

/// Starts the threads, and to accept by each listener, with the name that its clients know it by.
///
/// # Errors
/// The system refuses a thread.
pub(crate) fn start(
    server: &Arc<Server>,
    broker: &Broker,
    newcomers: Newcomers,
    listeners: Vec<(Listener, Option<Arc<str>>)>,
    connect_time_max: Duration,
) -> io::Result<()> {
    let threads = Arc::new(EntryThreads {
        server: server.clone(),
        broker: broker.clone(),
        connect_time_max,
        turned_away: AtomicU64::new(0),
        was_turned_away: Notify::new(),
    });
    // They end when the broker stops, and what is on them is closed then.
    for (index, newcomers) in newcomers.0.into_iter().enumerate() {
        let threads = threads.clone();
        spawn_shard(format!("pharos-entry-{index}"), move || async move {
            stand_back();
            threads.run(newcomers).await;
        })?;
    }
    spawn_shard("pharos-accept".to_owned(), move || async move {
        stand_back();
        threads.accept(listeners).await;
    })?;
    Ok(())
}

/// Takes accepted connections to the threads of the entry.
struct Accepting {
    entry: EntryQueue,
    /// The listener whose door this is.
    listener: Option<Arc<str>>,
}

impl pharos_transport::Protocol for Accepting {
    async fn admit(&self, incoming: Incoming, place: Place) {
        self.entry.take(incoming, place, self.listener.clone()).await;
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
    async fn accept(self: Arc<Self>, listeners: Vec<(Listener, Option<Arc<str>>)>) {
        let mut token = self.broker.shared.shutdown.clone();
        spawn_local(self.clone().tell_of_turned_away());
        for (listener, name) in listeners {
            let accepting = Accepting {
                entry: self.server.entry.clone(),
                listener: name,
            };
            let (server, token) = (self.server.clone(), token.clone());
            spawn_local(async move {
                match listener.start() {
                    Ok(acceptor) => server.admission.run(acceptor, &accepting, token).await,
                    Err(error) => tracing::error!(%error, "cannot accept connections"),
                }
            });
        }
        token.triggered().await;
    }

    /// The first shard keeps the books of connections that no shard has had.
    async fn tell_of_turned_away(self: Arc<Self>) {
        loop {
            self.was_turned_away.notified().await;
            tokio::time::sleep(TOLD_EVERY).await;
            let count = self.turned_away.swap(0, Ordering::Relaxed);
            let note = move |shard: &Rc<Shard>| {
                shard.tally().handshakes_failed(count);
                shard.connections.pass_by(count);
            };
            self.broker.run_on(0, note).await;
        }
    }

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
        let stranger = Stranger::new(self.server.clone(), listener, &stream);
        let known = self.know(&stranger, &mut stream).await;
        let (peer, rest) = known.inspect_err(|error| self.tell(&stranger.address, error))?;
        let unsettled = Unsettled {
            server: stranger.server,
            address: stranger.address,
            connected_since_ms: stranger.connected_since_ms,
            listener: stranger.listener,
            certificate: stranger.certificate,
            peer,
        };
        let (stream, shard) = (stream.detach()?, place.shard());
        let serve = move |shard: &Rc<Shard>| match stream.attach() {
            Ok(stream) => handover::begin(shard, unsettled, stream, place, &rest),
            Err(error) => tracing::warn!(peer = %unsettled.address, %error, "cannot take a connection in"),
        };
        self.broker.run_on(shard, serve).await;
        Ok(())
    }

    /// Finds out who a client is; gives back what it said after CONNECT, too. One that is not let in is told so.
    async fn know(&self, stranger: &Stranger, stream: &mut Stream) -> Result<(Peer, BytesMut), EntryError> {
        let knowing = async {
            let (connect, rest) = read_connect(stream).await?;
            Ok::<_, EntryError>((stranger.prove(&connect).await, rest))
        };
        // Even if it sends something meanwhile: one byte now and then does not keep it open.
        let known = tokio::time::timeout(self.connect_time_max, knowing).await;
        let (proved, rest) = known.map_err(|_| EntryError::TooSlow)??;
        match proved {
            Ok(peer) => Ok((peer, rest)),
            Err(refused) => {
                let answer = encode_command(&stranger.refusal(&refused));
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
        if matches!(
            error,
            EntryError::Left | EntryError::Stream(_) | EntryError::Refused
        ) {
            tracing::debug!(peer = %address, %error, "a connection was not let in");
        } else if let Some(untold) = self.server.peer_log.enter() {
            tracing::warn!(peer = %address, %error, untold, "a connection was not let in");
        }
    }
}

/// The first frame of a client, and what came behind it.
async fn read_connect(stream: &mut Stream) -> Result<(Box<CommandConnect>, BytesMut), EntryError> {
    let mut buffer = BytesMut::with_capacity(FIRST_READ_BYTES);
    loop {
        if stream.read_buf(&mut buffer).await? == 0 {
            return Err(EntryError::Left);
        }
        // Who is not let in yet has nothing large to say.
        if let Some(frame) = frame::decode(&mut buffer, CONNECT_BYTES_MAX)? {
            return match frame.command {
                Command::Connect(connect) => Ok((connect, buffer)),
                other => Err(EntryError::NotConnect(other.command_type())),
            };
        }
        let missing = frame::missing_bytes(&buffer).min(buffer.len());
        buffer.reserve(missing.max(FIRST_READ_BYTES));
    }
}
