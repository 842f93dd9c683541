//! State shared by all connections of a server.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use pharos_auth::Access;
use pharos_cluster::Listeners;
use pharos_coordinators::Transactions;
use pharos_identity::Authentication;
use pharos_runtime::LogThrottle;
use pharos_transport::{Admission, PartialFrames, Quota};

use crate::entry_queue::EntryQueue;
use crate::limits::Limiter;

/// The server of the Pulsar protocol: where it listens, and what its connections share.
pub struct Server {
    /// `pulsar://host:port`, as lookups answer.
    pub service_url: String,
    /// `pulsar+ssl://host:port`, if it speaks TLS.
    pub service_url_tls: Option<String>,
    /// Addresses by the name of a listener.
    pub listeners: Listeners,
    pub(crate) server_version: String,
    /// Local address of the listener.
    pub local_address: SocketAddr,
    /// Local address of the TLS listener.
    pub local_address_tls: Option<SocketAddr>,
    /// Local addresses of the named listeners, in the order of the options.
    pub door_addresses: Vec<SocketAddr>,
    pub(crate) admission: Admission,
    pub(crate) entry: EntryQueue,
    pub(crate) authentication: Authentication,
    pub(crate) credential_check_interval: Duration,
    /// Authorization of clients.
    pub(crate) access: Access,
    /// Transaction coordinators, or the error for clients if there are none.
    pub(crate) transactions: Result<Arc<Transactions>, &'static str>,
    /// Limits of a connection, a role and a tenant.
    pub(crate) limiter: Limiter,
    /// Limits of one address.
    pub(crate) addresses: Arc<Quota<IpAddr>>,
    /// Room for large frames that have not arrived whole.
    pub(crate) partial_frames: PartialFrames,
    /// Throttle of log lines about refused peers.
    pub(crate) peer_log: LogThrottle,
}

impl Server {
    /// Connections accepted so far.
    #[must_use]
    pub fn accepted_count(&self) -> u64 {
        self.admission.accepted_count()
    }

    /// Connections refused so far because their address had enough, or came too fast.
    #[must_use]
    pub fn refused_of_addresses(&self) -> u64 {
        self.addresses.refused_count()
    }

    /// Requests for lists of topics that waited so far because their connections asked too fast.
    #[must_use]
    pub fn topic_lists_delayed(&self) -> u64 {
        self.limiter.lists_delayed_count()
    }

    /// Connections refused so far because too many were open, of all addresses or of their own.
    #[must_use]
    pub fn refused_count(&self) -> u64 {
        self.admission.refused_count()
    }
}
