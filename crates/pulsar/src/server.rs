//! The listening side of the Pulsar protocol: accepts connections, hands each to a shard, keeps them alive.

use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use pharos_broker::Broker;
use pharos_broker::shard::Shard;
use pharos_coordinators::Transactions;
use pharos_identity::Authentication;
use pharos_runtime::{LogThrottle, spawn_local};
use pharos_transport::{
    Admission, ConnectionsMax, Entrance, Incoming, Listener, PartialFrames, PeerCertificate, Quota,
    QuotaLimits,
};
use pharos_wire::frame::frame_bytes_max;

use crate::entry;
use crate::entry_queue::EntryQueue;
use crate::limits::{ClientLimits, Limiter};
use crate::listeners::ListenerOptions;
use crate::shared::Server;

/// Options of the server.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bind address; port 0 takes any.
    pub listen: SocketAddr,
    /// Entrance (PROXY header, TLS) for connections there before CONNECT; `None`: none.
    pub entrance: Option<Arc<Entrance>>,
    /// Bind address for clients that use TLS, and the entrance for their connections; port 0 takes any.
    pub listen_tls: Option<(SocketAddr, Arc<Entrance>)>,
    /// Listeners by name, and their doors.
    pub listeners: ListenerOptions,
    /// The host name to advertise; `None` for the listening address itself.
    pub advertised_address: Option<String>,
    /// Server version in CONNECTED.
    pub server_version: String,
    /// Interval between keep-alive pings; a peer that stays silent for as long again is dropped.
    pub keep_alive_interval: Duration,
    /// Maximum number of open connections at this moment, evaluated for each new one.
    pub connections_max: ConnectionsMax,
    /// Connections of one address, and new ones a second.
    pub per_address: QuotaLimits,
    /// Transaction coordinators, or the error for clients if there are none.
    pub transactions: Result<Arc<Transactions>, &'static str>,
    /// Limits of a connection, a role and a tenant.
    pub limits: ClientLimits,
    /// Authentication of clients.
    pub authentication: Authentication,
    /// Interval of checks for expired credentials.
    pub credential_check_interval: Duration,
}

/// Starts the server: from the return on, clients can connect.
///
/// # Errors
/// When an address cannot be listened on; the message says which.
pub fn open(broker: &Broker, options: &Options) -> io::Result<Arc<Server>> {
    let mut listener = bind(options.listen)?;
    if let Some(entrance) = &options.entrance {
        listener = listener.through(entrance.clone());
    }
    let local_address = listener.local_address();
    let mut listeners = vec![(listener, None)];
    let mut local_address_tls = None;
    if let Some((address, entrance)) = &options.listen_tls {
        let listener = bind(*address)?.through(entrance.clone());
        local_address_tls = Some(listener.local_address());
        listeners.push((listener, None));
    }
    let mut door_addresses = Vec::new();
    for door in &options.listeners.doors {
        let mut listener = bind(door.address)?;
        if let Some(entrance) = &door.entrance {
            listener = listener.through(entrance.clone());
        }
        door_addresses.push(listener.local_address());
        listeners.push((listener, Some(Arc::from(door.listener.as_str()))));
    }
    let per_address = Quota::new(options.per_address);
    let internal = options.listeners.internal.as_ref();
    let internal = internal.and_then(|name| options.listeners.urls.get(name));
    let internal = internal.cloned().unwrap_or_default();
    let url = |scheme, address: SocketAddr| {
        let host = advertised_host(options, address);
        format!("{scheme}://{host}:{}", address.port())
    };
    let (entry, newcomers) = EntryQueue::new(broker.shard_count());
    let server = Arc::new(Server {
        service_url: internal
            .broker_service_url
            .unwrap_or_else(|| url("pulsar", local_address)),
        service_url_tls: internal
            .broker_service_url_tls
            .or_else(|| local_address_tls.map(|address| url("pulsar+ssl", address))),
        listeners: options.listeners.urls.clone(),
        server_version: options.server_version.clone(),
        local_address,
        local_address_tls,
        door_addresses,
        authentication: options.authentication.clone(),
        credential_check_interval: options.credential_check_interval,
        transactions: options.transactions.clone(),
        access: broker.shared.options.access.clone(),
        admission: Admission::new(broker.shard_count(), options.connections_max.clone()),
        entry,
        limiter: Limiter::new(options.limits.clone()),
        addresses: per_address.clone(),
        partial_frames: PartialFrames::new(frame_bytes_max(broker.shared.options.max_message_size as usize)),
        peer_log: LogThrottle::default(),
    });
    let (interval, check) = (options.keep_alive_interval, options.credential_check_interval);
    broker.on_every_shard(move |shard| spawn_local(keep_alive(shard.clone(), interval, check)));
    let counted = |(listener, name): (Listener, _)| (listener.counted(per_address.clone()), name);
    let listeners = listeners.into_iter().map(counted).collect();
    entry::start(&server, broker, newcomers, listeners, interval)?;
    Ok(server)
}

fn bind(address: SocketAddr) -> io::Result<Listener> {
    Listener::bind(address)
        .map_err(|error| io::Error::new(error.kind(), format!("cannot listen on {address}: {error}")))
}

/// Returns the host name or address that clients use for this machine.
fn advertised_host(options: &Options, address: SocketAddr) -> String {
    match &options.advertised_address {
        Some(host) => host.clone(),
        None if address.ip().is_unspecified() => "127.0.0.1".to_owned(),
        None if address.is_ipv6() => format!("[{}]", address.ip()),
        None => address.ip().to_string(),
    }
}

/// The way in for another door of this process, whose clients speak to the broker through a client of the Pulsar protocol. Cheap to
/// clone.
#[derive(Clone)]
pub struct InnerDoor {
    server: Arc<Server>,
}

impl InnerDoor {
    /// To this server.
    #[must_use]
    pub fn new(server: Arc<Server>) -> Self {
        Self { server }
    }

    /// Opens a connection for a client that is at `from` and has shown `certificate`: it has to say who it is as everyone else, and
    /// counts as theirs do, but for the bounds of its address, where the other door has counted it. The other end is of no
    /// runtime, and does not block.
    ///
    /// # Errors
    /// `QuotaExceeded`: as many connections are open as may be; as the system says.
    ///
    /// Cancel safety: nothing is left open.
    pub async fn open(
        &self,
        from: SocketAddr,
        certificate: Option<Arc<PeerCertificate>>,
    ) -> io::Result<UnixStream> {
        let Some(place) = self.server.admission.enter_inside() else {
            let reason = "as many connections are open as may be";
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, reason));
        };
        let (ours, theirs) = UnixStream::pair()?;
        theirs.set_nonblocking(true)?;
        let incoming = Incoming::inside(ours, from, certificate)?;
        self.server.entry.take(incoming, place, None).await;
        Ok(theirs)
    }
}

/// Asks silent peers whether they live, and drops those that do not answer.
async fn keep_alive(shard: Rc<Shard>, interval: Duration, check: Duration) {
    let mut token = shard.shutdown_token();
    let step = (interval / 8).min(check).max(Duration::from_millis(100));
    loop {
        tokio::select! {
            () = token.triggered() => return,
            () = tokio::time::sleep(step) => {}
        }
        for handle in shard.connections.all() {
            handle.on_tick(interval);
        }
    }
}
