//! Listener for peers.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;

use crate::entrance::Entrance;
use crate::quota::Quota;
use crate::stream::Incoming;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 8192;
/// Pause after a connection could not be accepted.
const PAUSE: Duration = Duration::from_millis(50);

/// An address that is listened on: from now on peers can connect. It belongs to no runtime yet.
#[derive(Debug)]
pub struct Listener {
    socket: std::net::TcpListener,
    address: SocketAddr,
    /// Setup of connections; `None` for no setup.
    entrance: Option<Arc<Entrance>>,
    /// Limits per address; `None` for no limit.
    addresses: Option<Arc<Quota<IpAddr>>>,
}

impl Listener {
    /// Listens; port 0 takes any.
    ///
    /// # Errors
    /// The address cannot be listened on.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let domain = socket2::Domain::for_address(address);
        let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        let socket = std::net::TcpListener::from(socket);
        let address = socket.local_addr()?;
        Ok(Self {
            socket,
            address,
            entrance: None,
            addresses: None,
        })
    }

    /// Its connections go through this before their first byte.
    #[must_use]
    pub fn through(mut self, entrance: Arc<Entrance>) -> Self {
        self.entrance = Some(entrance);
        self
    }

    /// Its connections count here, by address.
    #[must_use]
    pub fn counted(mut self, addresses: Arc<Quota<IpAddr>>) -> Self {
        self.addresses = Some(addresses);
        self
    }

    /// Address of the listener, with the actual port.
    #[must_use]
    pub fn local_address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts on the current runtime.
    ///
    /// # Errors
    /// As the system says.
    pub fn start(self) -> io::Result<Acceptor> {
        let socket = TcpListener::from_std(self.socket)?;
        Ok(Acceptor {
            socket,
            entrance: self.entrance,
            addresses: self.addresses,
        })
    }
}

/// Accepts connections. Peers are refused by the system once it is dropped.
#[derive(Debug)]
pub struct Acceptor {
    socket: TcpListener,
    entrance: Option<Arc<Entrance>>,
    addresses: Option<Arc<Quota<IpAddr>>>,
}

impl Acceptor {
    /// The next connection. One that cannot be accepted is told in the log.
    ///
    /// Cancel safety: no connection is lost.
    pub async fn accept(&self) -> Incoming {
        loop {
            let accepted = self.socket.accept().await;
            let incoming = |(stream, address)| {
                Incoming::new(stream, address, self.entrance.clone(), self.addresses.clone())
            };
            match accepted.and_then(incoming) {
                Ok(incoming) => return incoming,
                Err(error) => {
                    // Mostly out of file descriptors: wait for some to come free rather than spin.
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }
}
