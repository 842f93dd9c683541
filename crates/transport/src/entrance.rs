//! Setup of a connection before its first byte: a PROXY header, a TLS handshake, or nothing.
//!
//! ```text
//!   accepted ──► PROXY header, if any ──► its turn among the handshakes ──► TLS handshake ──► Stream
//!                └─ in time, then        └─ in time, few per address ─┘    └─ in time ─┘
//!                   counted by address
//! ```
//! Each connection is set up independently, so a slow peer delays no other.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pharos_runtime::clock;
use tokio::net::TcpStream;

use crate::handshakes::Handshakes;
use crate::proxy_protocol::{self, ProxyProtocol};
use crate::quota::{Quota, network_of};
use crate::stream::Stream;
use crate::tls::{Session, Tls};

/// Peers that did not get in are told in the log this often, in nanoseconds.
const FAILURES_TOLD_EVERY: u64 = 1_000_000_000;

/// Setup options for connections of a listener.
#[derive(Clone, Debug)]
pub struct EntranceOptions {
    /// TLS, if it is spoken.
    pub tls: Option<Arc<Tls>>,
    /// PROXY header at the start of a connection.
    pub proxy_protocol: ProxyProtocol,
    /// Time limit for a PROXY header and for a TLS handshake, each.
    pub handshake_time_max: Duration,
    /// TLS handshakes at once.
    pub handshakes_max: usize,
    /// Maximum number of concurrent TLS handshakes per address.
    pub handshakes_per_address_max: usize,
}

impl Default for EntranceOptions {
    fn default() -> Self {
        Self {
            tls: None,
            proxy_protocol: ProxyProtocol::Off,
            handshake_time_max: Duration::from_secs(10),
            handshakes_max: 1024,
            handshakes_per_address_max: 128,
        }
    }
}

/// The way into a listener. Shared by all threads.
#[derive(Debug)]
pub struct Entrance {
    options: EntranceOptions,
    handshakes: Handshakes,
    failed: AtomicU64,
    /// Time of the last logged failure; 0 before the first.
    told_at: AtomicU64,
}

impl Entrance {
    /// With these bounds.
    #[must_use]
    pub fn new(options: EntranceOptions) -> Arc<Self> {
        Arc::new(Self {
            handshakes: Handshakes::new(options.handshakes_max, options.handshakes_per_address_max),
            options,
            failed: AtomicU64::new(0),
            told_at: AtomicU64::new(0),
        })
    }

    /// Connections that did not get in: no TLS, no certificate that is trusted, too slow, no PROXY header, and so on.
    #[must_use]
    pub fn failed_count(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// True if a header may name the address of a connection's origin.
    pub(crate) fn says_address(&self) -> bool {
        self.options.proxy_protocol != ProxyProtocol::Off
    }

    /// Makes a stream of an accepted connection. `addresses`: where it counts, if it does not yet.
    ///
    /// # Errors
    /// The peer does not begin as it must, or not in time. It is counted and told in the log, and closed.
    ///
    /// Cancel safety: dropping the future closes the connection.
    pub(crate) async fn pass(
        &self,
        socket: TcpStream,
        from: SocketAddr,
        addresses: Option<Arc<Quota<IpAddr>>>,
    ) -> io::Result<Stream> {
        let mut peer = from;
        let entered = self.enter(socket, &mut peer, addresses).await;
        entered.inspect_err(|error| self.on_failed(peer, error))
    }

    /// `peer` becomes the address that a PROXY header says.
    async fn enter(
        &self,
        socket: TcpStream,
        peer: &mut SocketAddr,
        addresses: Option<Arc<Quota<IpAddr>>>,
    ) -> io::Result<Stream> {
        let options = &self.options;
        if options.proxy_protocol != ProxyProtocol::Off {
            let header = proxy_protocol::read(&socket, options.proxy_protocol);
            let said = in_time(options.handshake_time_max, "a PROXY header", header).await?;
            *peer = said.unwrap_or(*peer);
        }
        let too_many =
            |error| io::Error::new(io::ErrorKind::QuotaExceeded, format!("of its address: {error}"));
        let counted = addresses.map(|addresses| addresses.enter(network_of(peer.ip())).map_err(too_many));
        let counted = counted.transpose()?.map(Arc::new);
        let Some(tls) = &options.tls else {
            return Ok(Stream::of_tcp(socket, *peer).counted(counted));
        };
        let slot = self.handshakes.enter(peer.ip()).await?;
        let prepared = tls.prepared();
        let handshake = Session::accept(socket, &prepared);
        let session = in_time(options.handshake_time_max, "a TLS handshake", handshake).await?;
        drop(slot);
        let certificate = session.peer_certificate(&prepared.clients);
        Ok(Stream::of_tls(session, *peer, certificate.map(Arc::new)).counted(counted))
    }

    fn on_failed(&self, peer: SocketAddr, error: &io::Error) {
        let failed = self.failed.fetch_add(1, Ordering::Relaxed) + 1;
        let (now, told_at) = (clock::now().0, self.told_at.load(Ordering::Relaxed));
        // A peer that fails again and again cannot fill the log, and one that leaves without a word is mostly a balancer that looks
        // whether the port is open.
        let has_left = matches!(
            error.kind(),
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset
        );
        let is_due = !has_left && (told_at == 0 || now.saturating_sub(told_at) >= FAILURES_TOLD_EVERY);
        let swap = |to| {
            self.told_at
                .compare_exchange(told_at, to, Ordering::Relaxed, Ordering::Relaxed)
        };
        if is_due && swap(now.max(1)).is_ok() {
            tracing::warn!(%peer, %error, failed, "a connection did not get in");
        } else {
            tracing::debug!(%peer, %error, failed, "a connection did not get in");
        }
    }
}

async fn in_time<T>(
    time: Duration,
    what: &str,
    future: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    match tokio::time::timeout(time, future).await {
        Ok(outcome) => outcome,
        Err(_) => {
            let reason = format!("{what} took longer than {time:?}");
            Err(io::Error::new(io::ErrorKind::TimedOut, reason))
        }
    }
}
