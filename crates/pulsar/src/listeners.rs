//! Listeners by name: clients of different networks reach a broker at different addresses.
//!
//! A client is of a listener because it came in by one of its doors, or because its lookup names it. What it hears of any broker is
//! the address of that listener there.

use std::net::SocketAddr;
use std::sync::Arc;

use pharos_cluster::{BrokerAddresses, ListenerUrls, Listeners};
use pharos_transport::Entrance;
use pharos_wire::answer::BrokerUrls;

use crate::connection::Connection;

/// Advertised addresses and the bind addresses of the listeners.
#[derive(Clone, Debug, Default)]
pub struct ListenerOptions {
    /// Addresses by name.
    pub urls: Listeners,
    /// The one whose addresses hear other brokers, and clients that are of none. `None`: those of the server itself.
    pub internal: Option<String>,
    /// Further addresses to listen on.
    pub doors: Vec<Door>,
}

/// An address to listen on, whose clients are of a listener.
#[derive(Clone, Debug)]
pub struct Door {
    /// Name of the listener.
    pub listener: String,
    /// Bind address; port 0 takes any.
    pub address: SocketAddr,
    /// Entrance (PROXY header, TLS) for its connections; `None`: none.
    pub entrance: Option<Arc<Entrance>>,
}

/// The addresses of one listener.
pub(crate) fn urls_of(urls: &ListenerUrls) -> BrokerUrls {
    BrokerUrls {
        plain: urls.broker_service_url.clone(),
        tls: urls.broker_service_url_tls.clone(),
    }
}

/// The addresses of another broker for clients of a listener, or of none. `None`: that broker has no such listener.
pub(crate) fn urls_at(other: &BrokerAddresses, listener: Option<&str>) -> Option<BrokerUrls> {
    match listener {
        Some(listener) => other.advertised_listeners.get(listener).map(urls_of),
        None => Some(BrokerUrls {
            plain: Some(other.native_url.clone()).filter(|url| !url.is_empty()),
            tls: other.native_url_tls.clone(),
        }),
    }
}

/// Returns the addresses for the client of `connection` of the broker that serves its topic now. None if named
/// listeners exist and the connection came through none of them: the client looks up, with the name that it has.
pub(crate) fn urls_of_next(connection: &Connection, next: Option<&BrokerAddresses>) -> BrokerUrls {
    let listener = connection.listener.as_deref();
    if listener.is_none() && !connection.server.listeners.is_empty() {
        return BrokerUrls::default();
    }
    next.and_then(|next| urls_at(next, listener)).unwrap_or_default()
}
