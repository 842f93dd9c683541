//! How an engine is set up.

use pharos_types::Login;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::digest::DigestType;
use crate::machine::EnsembleChange;
use crate::placement::PlacementOptions;
use crate::quorum::Quorum;

/// What a frame has beside its payload, and some.
const FRAME_HEAD_MAX: usize = 1 << 10;

/// The largest entry where bookies take frames of so many bytes.
#[must_use]
pub fn entry_bytes_max(frame_bytes_max: usize) -> usize {
    frame_bytes_max.saturating_sub(FRAME_HEAD_MAX)
}

/// How an engine writes and reads.
#[derive(Clone, Debug)]
pub struct Options {
    /// Of new ledgers that are not created with another.
    pub quorum: Quorum,
    /// Of new ledgers.
    pub digest: DigestType,
    /// Of new ledgers; Pulsar's is empty.
    pub password: Bytes,
    /// Stands in the metadata of new ledgers, beside what each is created with.
    pub custom: BTreeMap<String, Bytes>,
    /// When a bookie that fails is exchanged.
    pub change: EnsembleChange,
    /// How bookies are chosen.
    pub placement: PlacementOptions,
    /// The key of the metadata store where operators describe racks and groups of bookies; Pulsar's is `bookies`.
    pub racks_key: String,
    /// How often bookies are asked for the room on their disks, where they are chosen by it.
    pub free_disk_interval: Duration,
    /// How often bookies sync ledgers of the weaker durabilities; see the engine.
    pub force_interval: Duration,
    /// How often a writer that appends nothing tells bookies how far its ledger is confirmed, so that readers elsewhere see its last
    /// entries. `None`: never; they see them once another entry follows, or the ledger is closed.
    pub explicit_lac_interval: Option<Duration>,
    /// How long a bookie may take to store an entry.
    pub add_timeout: Duration,
    /// How long a bookie may take to give one.
    pub read_timeout: Duration,
    /// After this time another bookie is asked for the same entry as well.
    pub speculative_after: Duration,
    /// How long a bookie that gave an entry late or not at all is asked last.
    pub slow_bookie_time: Duration,
    /// How connections to bookies are encrypted, and with which certificate we show who we are. `None`: not at all. A bookie that does
    /// not speak TLS is not talked to otherwise.
    pub tls: Option<Arc<rustls::ClientConfig>>,
    /// Who we are to bookies that ask for it by SASL with DIGEST-MD5, after TLS if there is any. `None`: a bookie that asks is not
    /// talked to.
    pub login: Option<Login>,
    /// How long connecting to a bookie may take.
    pub connect_timeout: Duration,
    /// How long a bookie that failed gets nothing new, if there are others.
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
