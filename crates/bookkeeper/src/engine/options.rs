//! Settings of an engine.

use pharos_types::Login;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::digest::DigestType;
use crate::machine::EnsembleChange;
use crate::placement::PlacementOptions;
use crate::quorum::Quorum;

/// Upper bound for the part of a frame beside its payload, in bytes.
const FRAME_HEAD_MAX: usize = 1 << 10;

/// The largest entry where bookies take frames of so many bytes.
#[must_use]
pub fn entry_bytes_max(frame_bytes_max: usize) -> usize {
    frame_bytes_max.saturating_sub(FRAME_HEAD_MAX)
}

/// Settings for writing and reading.
#[derive(Clone, Debug)]
pub struct Options {
    /// Quorum of new ledgers that are not created with another.
    pub quorum: Quorum,
    /// Digest type of new ledgers.
    pub digest: DigestType,
    /// Password of new ledgers; Pulsar's is empty.
    pub password: Bytes,
    /// Stands in the metadata of new ledgers, beside what each is created with.
    pub custom: BTreeMap<String, Bytes>,
    /// Policy for the replacement of a bookie that fails.
    pub change: EnsembleChange,
    /// Policy for the choice of bookies.
    pub placement: PlacementOptions,
    /// The key of the metadata store where operators describe racks and groups of bookies; Pulsar's is `bookies`.
    pub racks_key: String,
    /// Interval at which bookies are asked for the free space on their disks, if they are chosen by it.
    pub free_disk_interval: Duration,
    /// Interval at which bookies sync ledgers of the weaker durabilities; see the engine.
    pub force_interval: Duration,
    /// Interval at which an idle writer sends its last-add-confirmed to bookies, so that readers elsewhere see its
    /// last entries. `None`: never; they see them once another entry follows, or the ledger is closed.
    pub explicit_lac_interval: Option<Duration>,
    /// Time limit for a bookie to store an entry.
    pub add_timeout: Duration,
    /// Time limit for a bookie to return an entry.
    pub read_timeout: Duration,
    /// After this time another bookie is asked for the same entry as well.
    pub speculative_after: Duration,
    /// Time for which a bookie that returned an entry late or not at all is asked last.
    pub slow_bookie_time: Duration,
    /// TLS settings and client certificate for connections to bookies. `None`: no encryption. With TLS, a bookie that
    /// does not support it is not used.
    pub tls: Option<Arc<rustls::ClientConfig>>,
    /// Login for bookies that require SASL with DIGEST-MD5, after TLS if there is any. `None`: a bookie that requires
    /// a login is not used.
    pub login: Option<Login>,
    /// Time limit for connecting to a bookie.
    pub connect_timeout: Duration,
    /// Time for which a bookie that failed gets nothing new, if there are others.
    pub quarantine: Duration,
    /// Payload bytes that may wait for their ack quorum, over all ledgers. More are refused as `Overloaded`.
    pub pending_bytes_max: usize,
    /// Bytes that may wait for one bookie; beyond, it counts as failed.
    pub bookie_queue_bytes_max: usize,
    /// Largest entry. Bookies end a connection on a frame above their `nettyMaxFrameSizeBytes`, in which an entry, its header and the
    /// request have to fit; 5 MiB unless they are told otherwise.
    pub entry_bytes_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            quorum: Quorum::THREE_TWO,
            digest: DigestType::Crc32c,
            password: Bytes::new(),
            custom: BTreeMap::new(),
            change: EnsembleChange::AtOnce,
            placement: PlacementOptions::default(),
            racks_key: "bookies".to_owned(),
            free_disk_interval: Duration::from_mins(15),
            force_interval: Duration::from_secs(1),
            explicit_lac_interval: None,
            add_timeout: Duration::from_secs(5),
            read_timeout: Duration::from_secs(5),
            speculative_after: Duration::from_secs(2),
            slow_bookie_time: Duration::from_secs(30),
            tls: None,
            login: None,
            connect_timeout: Duration::from_secs(5),
            quarantine: Duration::from_mins(30),
            pending_bytes_max: 256 << 20,
            bookie_queue_bytes_max: 64 << 20,
            entry_bytes_max: entry_bytes_max(5 << 20),
        }
    }
}
