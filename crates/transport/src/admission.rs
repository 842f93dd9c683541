//! Admission of connections: the maximum number of open ones, and the assignment of each to its shard.

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use pharos_runtime::{ShutdownToken, clock};

use crate::balance::{Balance, Place};
use crate::listener::Acceptor;
use crate::quota::QuotaError;
use crate::stream::Incoming;

/// Refused connections are told in the log this often, in nanoseconds.
const REFUSALS_TOLD_EVERY: u64 = 10_000_000_000;

/// Says how many connections may be open.
#[derive(Clone)]
pub struct ConnectionsMax(Arc<dyn Fn() -> usize + Send + Sync>);

impl ConnectionsMax {
    /// Limit that `limit` returns; it must not block.
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

/// Counts and limits the connections of one listener, for all threads.
#[derive(Debug)]
pub struct Admission {
    accepted: AtomicU64,
    refused: AtomicU64,
    connections_max: ConnectionsMax,
    balance: Arc<Balance>,
}

/// Reason why a connection is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoom {
    /// Maximum number of open connections of all addresses.
    Full(usize),
    /// Its address has enough, or comes too fast.
    Address(QuotaError),
}

/// Protocol that takes accepted connections.
pub trait Protocol {
    /// Takes a connection on its way to the shard of its place. Waits while too many are before it.
    fn admit(&self, incoming: Incoming, place: Place) -> impl Future<Output = ()>;

    /// Answer to a peer whose connection is refused.
    fn refusal(&self, why: NoRoom) -> Bytes;
}

impl Admission {
    /// To this many shards.
    #[must_use]
    pub fn new(shards: usize, connections_max: ConnectionsMax) -> Self {
        Self {
            accepted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            connections_max,
            balance: Balance::new(shards),
        }
    }

    /// Connections accepted so far.
    #[must_use]
    pub fn accepted_count(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Connections refused so far because too many were open, of all addresses or of their own.
    #[must_use]
    pub fn refused_count(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// A place on the shard with the fewest connections.
    fn enter(&self, incoming: &mut Incoming) -> Result<Place, NoRoom> {
        let open = self.balance.total();
        if open >= (self.connections_max.0)() {
            return Err(NoRoom::Full(open));
        }
        incoming.count().map_err(NoRoom::Address)?;
        self.accepted.fetch_add(1, Ordering::Relaxed);
        Ok(self.balance.place())
    }

    /// A place for a connection that another door of this process opens; `None`: as many are open as may be.
    #[must_use]
    pub fn enter_inside(&self) -> Option<Place> {
        if self.balance.total() >= (self.connections_max.0)() {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        self.accepted.fetch_add(1, Ordering::Relaxed);
        Some(self.balance.place())
    }

    /// Accepts until told to stop. Each connection goes to the shard that has the fewest.
    ///
    /// Cancel safety: a connection that was accepted and not taken to its shard yet is closed.
    pub async fn run(&self, acceptor: Acceptor, protocol: &impl Protocol, mut token: ShutdownToken) {
        let mut told_at = None;
        loop {
            let mut incoming = tokio::select! {
                () = token.triggered() => return,
                incoming = acceptor.accept() => incoming,
            };
            match self.enter(&mut incoming) {
                Ok(place) => protocol.admit(incoming, place).await,
                Err(why) => {
                    self.refused.fetch_add(1, Ordering::Relaxed);
                    let address = incoming.address();
                    incoming.dismiss(&protocol.refusal(why));
                    let now = clock::now();
                    if told_at.is_none_or(|at| now.since(at) >= REFUSALS_TOLD_EVERY) {
                        told_at = Some(now);
                        self.tell(address, why);
                    }
                }
            }
        }
    }

    fn tell(&self, address: SocketAddr, why: NoRoom) {
        let refused = self.refused_count();
        match why {
            NoRoom::Full(open) => {
                tracing::warn!(%address, open, refused, "connections are refused: the files that are left are kept for storage; raise the limit of open files");
            }
            NoRoom::Address(error) => {
                tracing::warn!(%address, %error, refused, "connections of an address are refused: see limits.max_connections_per_address and limits.max_connection_rate_per_address");
            }
        }
    }
}
