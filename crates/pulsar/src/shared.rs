//! What all connections of a server share.

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
    /// Where it listens.
    pub local_address: SocketAddr,
    /// Where it listens for clients that speak TLS.
    pub local_address_tls: Option<SocketAddr>,
    /// Where it listens for listeners by name, in the order of their doors.
    pub door_addresses: Vec<SocketAddr>,
    pub(crate) admission: Admission,
    pub(crate) entry: EntryQueue,
    pub(crate) authentication: Authentication,
    pub(crate) credential_check_interval: Duration,
    /// What says who may do what.
    pub(crate) access: Access,
    /// Who coordinates transactions, or what clients hear instead.
    pub(crate) transactions: Result<Arc<Transactions>, &'static str>,
    /// What a connection, a role and a tenant may have.
    pub(crate) limiter: Limiter,
    /// What one address may have.
    pub(crate) addresses: Arc<Quota<IpAddr>>,
    /// Room for large frames that have not arrived whole.
    pub(crate) partial_frames: PartialFrames,
    /// What the log is told of peers that are turned away.
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
