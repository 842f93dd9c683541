//! Settings of a managed ledger.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use pharos_ledger::offload::LedgerOffloader;
use pharos_ledger::{Affinity, CreateOptions, Durability, Replication};
use pharos_metadata::MetadataLayout;
use pharos_types::{Domain, LedgerId};

use crate::cache::CacheBudget;

/// Rollover, cache and durability of a managed ledger. Names as in Pulsar's configuration.
#[derive(Clone, Debug)]
pub struct Options {
    /// Entries of a ledger after which the next one is begun (`managedLedgerMaxEntriesPerLedger`). Default 50,000.
    pub ledger_entries_max: u64,
    /// Payload bytes of a ledger after which the next one is begun (`managedLedgerMaxSizePerLedgerMbytes`). Default
    /// 256 MiB: trimming frees space in these steps.
    pub ledger_bytes_max: u64,
    /// Age after which a ledger that is not empty is followed by the next one (`managedLedgerMaxLedgerRolloverTimeMinutes`),
    /// in milliseconds. Default 240 minutes.
    pub ledger_age_ms_max: u64,
    /// Age before which no ledger is rolled over (`managedLedgerMinLedgerRolloverTimeMinutes`), in milliseconds. Default 10 minutes.
    pub ledger_age_ms_min: u64,
    /// Time without an append after which a ledger that is not empty is followed by the next one whatever its age
    /// (`managedLedgerInactiveLedgerRolloverTimeSeconds`), in milliseconds; `None` never. Default `None`.
    pub ledger_idle_ms_max: Option<u64>,
    /// Largest entry, in bytes; at most what the engine takes. Default 16 MiB.
    pub entry_bytes_max: usize,
    /// Cache limit of this managed ledger, in bytes. Default 32 MiB.
    pub cache_bytes_max: usize,
    /// Age after which cached entries give way to other managed ledgers when the budget is more than half used. Default 10 s.
    pub cache_age_ms: u64,
    /// The bytes that all managed ledgers may cache together. Default 256 MiB, of its own.
    pub cache_budget: CacheBudget,
    /// Copies closed ledgers to object stores and reads them there; `None`: ledgers stay in the engine. Default none.
    pub offloader: Option<Arc<dyn LedgerOffloader>>,
    /// Durability of appends.
    pub durability: Durability,
    /// On how many machines entries are kept, those of the cursors too; `None`: as the engine's settings say. Default `None`.
    pub replication: Option<Replication>,
    /// Machines that keep entries, those of the cursors too; `None`: any. Default `None`.
    pub affinity: Option<Arc<Affinity>>,
    /// Shadows of this managed ledger follow its ledgers, maybe from other processes. Default false.
    pub is_followed: bool,
    /// Metadata layout of infos and cursors. Default: Pharos's own.
    pub layout: MetadataLayout,
    /// Ledgers with lower ids are not deleted because an info that is opened says that they were given up: it is not known
    /// that its numbers are of this engine. Default 0.
    pub condemned_from: LedgerId,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            ledger_entries_max: 50_000,
            ledger_bytes_max: 256 << 20,
            ledger_age_ms_max: 240 * 60_000,
            ledger_age_ms_min: 10 * 60_000,
            ledger_idle_ms_max: None,
            entry_bytes_max: 16 << 20,
            cache_bytes_max: 32 << 20,
            cache_age_ms: 10_000,
            cache_budget: CacheBudget::new(256 << 20),
            offloader: None,
            durability: Durability::Sync,
            replication: None,
            affinity: None,
            is_followed: false,
            layout: MetadataLayout::Pharos,
            condemned_from: LedgerId(0),
        }
    }
}

/// Durability and placement of a ledger. When they change, the next ledger is begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Keeping {
    pub(crate) durability: Durability,
    pub(crate) replication: Option<Replication>,
    pub(crate) affinity: Option<Arc<Affinity>>,
    pub(crate) is_followed: bool,
}

impl Options {
    /// The options for topics of a domain. Non-persistent topics have a metadata store of their own, without Pulsar's
    /// layout.
    #[must_use]
    pub fn of(&self, domain: Domain) -> Self {
        let mut options = self.clone();
        if domain == Domain::NonPersistent {
            options.layout = MetadataLayout::Pharos;
        }
        options
    }

    pub(crate) fn keeping(&self) -> Keeping {
        Keeping {
            durability: self.durability,
            replication: self.replication,
            affinity: self.affinity.clone(),
            is_followed: self.is_followed,
        }
    }

    /// Creation options of a topic's ledger.
    pub(crate) fn create_options(&self, name: &str) -> CreateOptions {
        CreateOptions {
            durability: self.durability,
            replication: self.replication,
            affinity: self.affinity.as_deref().cloned(),
            is_followed: self.is_followed,
            custom: custom(self.layout, name, None),
            ..CreateOptions::default()
        }
    }
}

/// Custom metadata of a ledger, where Pulsar's tools look for it: its managed ledger and its cursor.
pub(crate) fn custom(layout: MetadataLayout, name: &str, cursor: Option<&str>) -> BTreeMap<String, Bytes> {
    if layout == MetadataLayout::Pharos {
        return BTreeMap::new();
    }
    let words = [
        ("component", Some("managed-ledger")),
        ("pulsar/managed-ledger", Some(name)),
        ("pulsar/cursor", cursor),
    ];
    let words = words.into_iter().filter_map(|(key, value)| Some((key, value?)));
    words
        .map(|(key, value)| (key.to_owned(), Bytes::copy_from_slice(value.as_bytes())))
        .collect()
}

/// Retention of acknowledged data. A ledger may be deleted when *either* limit is exceeded (semantics as in Pulsar).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Milliseconds since a ledger was closed; 0 keeps nothing, `None` (-1 on the wire) never expires.
    pub time_ms: Option<u64>,
    /// Bytes of the topic that are kept; 0 keeps nothing, `None` (-1 on the wire) is unlimited.
    pub bytes: Option<u64>,
}

impl Retention {
    /// Delete as soon as acknowledged.
    pub const NONE: Self = Self {
        time_ms: Some(0),
        bytes: Some(0),
    };
}
