//! The listening side of the Pulsar protocol: accepts connections, hands each to a shard, keeps them alive.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pharos_broker::Broker;
use pharos_broker::shard::Shard;
use pharos_runtime::{ShutdownToken, clock, spawn_local};
use pharos_transport::balance::Balance;
use pharos_transport::partial::PartialFrames;
use pharos_wire::frame::frame_bytes_max;
use tokio::net::{TcpListener, TcpStream};

use pharos_wire::answer;
use pharos_wire::encode::encode_command;
use pharos_wire::proto::ServerError;

use crate::newcomer::Newcomer;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 8192;

/// Refused connections are told in the log this often, in nanoseconds.
const REFUSALS_TOLD_EVERY: u64 = 10_000_000_000;

/// Bytes that the kernel may hold for one connection.
const SEND_BUFFER_BYTES: usize = 1 << 20;

/// What the door needs to know.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where to listen; port 0 takes any.
    pub listen: SocketAddr,
    /// The host name to advertise; `None` for the listening address itself.
    pub advertised_address: Option<String>,
    /// What CONNECTED says.
    pub server_version: String,
    /// How often a peer is asked whether it lives; silent for as long again, it is dropped.
    pub keep_alive_interval: Duration,
    /// How many connections may be open at this moment, asked at each that comes.
    pub connections_max: ConnectionsMax,
}

/// Says how many connections may be open.
#[derive(Clone)]
pub struct ConnectionsMax(Arc<dyn Fn() -> usize + Send + Sync>);

impl ConnectionsMax {
    /// What `limit` says; it must not wait.
    pub fn new(limit: impl Fn() -> usize + Send + Sync + 'static) -> Self {
        Self(Arc::new(limit))
    }

    /// Any number.
    #[must_use]
    pub fn none() -> Self {
        Self::new(|| usize::MAX)
    }
}

impl fmt::Debug for ConnectionsMax {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConnectionsMax")
    }
}

/// The open door.
pub struct Door {
    /// `pulsar://host:port`, as lookups answer.
    pub service_url: String,
    pub(crate) server_version: String,
    /// Where it listens.
    pub local_address: SocketAddr,
    accepted: AtomicU64,
    refused: AtomicU64,
    connections_max: ConnectionsMax,
    /// How many connections each shard has.
    pub(crate) balance: Arc<Balance>,
    /// Room for large frames that have not arrived whole.
    pub(crate) partial_frames: PartialFrames,
}

impl Door {
    /// Connections accepted so far.
    #[must_use]
    pub fn accepted_count(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Connections refused so far because too many were open.
    #[must_use]
    pub fn refused_count(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Tells a peer that there is no room for it, in the words of Pulsar, and lets it go.
    fn refuse(&self, stream: &TcpStream, open: usize) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        let reason = format!("Reached the maximum number of connections: {open} are open");
        let answer = answer::connection_error(ServerError::NotAllowedError, reason);
        // Its few bytes find room in a new socket; a peer that is gone needs no answer.
        let _ = stream.try_write(&encode_command(&answer));
    }
}

/// Opens the door: from the return on, clients can connect.
///
/// # Errors
/// When the address cannot be listened on.
pub fn open(broker: &Broker, options: &Options) -> io::Result<Arc<Door>> {
    let listener = listen(options.listen)?;
    let local_address = listener.local_addr()?;
    let host = match &options.advertised_address {
        Some(host) => host.clone(),
        None if local_address.ip().is_unspecified() => "127.0.0.1".to_owned(),
        None if local_address.is_ipv6() => format!("[{}]", local_address.ip()),
        None => local_address.ip().to_string(),
    };
    let door = Arc::new(Door {
        service_url: format!("pulsar://{host}:{}", local_address.port()),
        server_version: options.server_version.clone(),
        local_address,
        accepted: AtomicU64::new(0),
        refused: AtomicU64::new(0),
        connections_max: options.connections_max.clone(),
        balance: Balance::new(broker.shard_count()),
        partial_frames: PartialFrames::new(frame_bytes_max(broker.shared.options.max_message_size as usize)),
    });
    let interval = options.keep_alive_interval;
    broker.on_every_shard(move |shard| spawn_local(keep_alive(shard.clone(), interval)));
    let accepting = door.clone();
    let handle = broker.clone();
    broker.on_first_shard(move |shard| {
        let token = shard.shutdown_token();
        spawn_local(accept(listener, accepting, handle, token));
    });
    Ok(door)
}

fn listen(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let domain = socket2::Domain::for_address(address);
    let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Accepts until told to stop. Each connection goes to the shard that has the fewest.
async fn accept(listener: std::net::TcpListener, door: Arc<Door>, broker: Broker, mut token: ShutdownToken) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "cannot accept connections");
            return;
        }
    };
    let mut told_at = None;
    loop {
        let accepted = tokio::select! {
            () = token.triggered() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, address)) if door.balance.total() >= (door.connections_max.0)() => {
                let open = door.balance.total();
                door.refuse(&stream, open);
                let now = clock::now();
                if told_at.is_none_or(|at| now.since(at) >= REFUSALS_TOLD_EVERY) {
                    told_at = Some(now);
                    let refused = door.refused_count();
                    tracing::warn!(%address, open, refused, "connections are refused: the files that are left are kept for storage; raise the limit of open files");
                }
            }
            Ok((stream, address)) => {
                door.accepted.fetch_add(1, Ordering::Relaxed);
                set_options(&stream, address);
                if let Ok(stream) = stream.into_std() {
                    let (newcomer, place) = (Newcomer::new(&door, address), door.balance.place());
                    broker
                        .run_on(place.shard(), move |shard| newcomer.settle(shard, stream, place))
                        .await;
                }
            }
            Err(error) => {
                // Mostly out of file descriptors: wait for some to come free rather than spin.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// What the kernel should know of a connection.
fn set_options(stream: &TcpStream, address: SocketAddr) {
    // Enough to keep a fast reader busy, and little enough that what is queued in the kernel is still in the cache when
    // the peer reads it; it also bounds what a peer that stops reading can pin.
    if let Err(error) = socket2::SockRef::from(stream).set_send_buffer_size(SEND_BUFFER_BYTES) {
        tracing::debug!(%error, "cannot set SO_SNDBUF");
    }
    // On this machine there is no path whose bandwidth could be found out: what paces or probes only adds timers.
    if address.ip().to_canonical().is_loopback()
        && let Err(error) = socket2::SockRef::from(stream).set_tcp_congestion(b"reno")
    {
        tracing::debug!(%error, "cannot set TCP_CONGESTION");
    }
    // Answers leave as they are made; a vectored write already collects what belongs together.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
}

/// Asks silent peers whether they live, and drops those that do not answer.
async fn keep_alive(shard: Rc<Shard>, interval: Duration) {
    let mut token = shard.shutdown_token();
    let step = (interval / 8).max(Duration::from_millis(100));
    loop {
        tokio::select! {
            () = token.triggered() => return,
            () = tokio::time::sleep(step) => {}
        }
        for outlet in shard.outlets() {
            outlet.on_tick(interval);
        }
    }
}
