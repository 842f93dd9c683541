//! Entries of a compacted ledger in Pulsar's form, and where they were in the log.
//!
//! ```text
//!   size of id u32 │ id: ledger, entry, partition │ size u32 │ what was stored: the entry as it came, or a batch with fewer messages
//! ```
//!
//! Sizes are big-endian; the id is protobuf. Ordinals are Pharos's own, and not in there: [`LedgerPlaces`] has them.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use pharos_types::{LedgerId, Ordinal, Position};
use prost::Message as _;

use super::name;
use super::proto::EntryPlace;
use crate::compacted::CompactedEntry;
use crate::table::LedgerTable;

/// First ordinals of ledgers: those in the log, and trimmed ones with entries in a compacted ledger. Sorted by ledger
/// and by ordinal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LedgerPlaces(Arc<[(LedgerId, Ordinal)]>);

/// A compacted ledger that a node names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedLedger {
    pub(crate) ledger: LedgerId,
    /// Ordinal of the first entry that it does not stand for.
    pub(crate) horizon: Ordinal,
    pub(crate) entries: u64,
    pub(crate) bytes: u64,
    pub(crate) places: LedgerPlaces,
}

impl LedgerPlaces {
    /// The first ordinals of a log's ledgers, preceded by those of known earlier ledgers.
    pub(crate) fn along(before: &[(LedgerId, Ordinal)], table: &LedgerTable) -> Self {
        let rows = table.rows();
        let first = rows.first().map(|row| row.id);
        let trimmed = before
            .iter()
            .copied()
            .filter(|(ledger, _)| first.is_none_or(|first| *ledger < first));
        Self(
            trimmed
                .chain(rows.iter().map(|row| (row.id, row.first)))
                .collect(),
        )
    }

    /// Only those of some ledgers.
    pub(crate) fn of(&self, ledgers: &[LedgerId]) -> Self {
        let is_there = |(ledger, _): &&(LedgerId, Ordinal)| ledgers.binary_search(ledger).is_ok();
        Self(self.0.iter().filter(is_there).copied().collect())
    }

    pub(crate) fn rows(&self) -> &[(LedgerId, Ordinal)] {
        &self.0
    }

    /// `None` of an entry of another ledger.
    pub(crate) fn ordinal_of(&self, position: Position) -> Option<Ordinal> {
        let index = self
            .0
            .binary_search_by_key(&position.ledger, |(ledger, _)| *ledger)
            .ok()?;
        let (_, first) = self.0.get(index)?;
        Some(first.plus(position.entry.0))
    }
}

/// Writes an entry. `partition`: of the topic, if it is one of a partitioned topic.
pub(crate) fn encode(entry: &CompactedEntry, partition: Option<i32>) -> Bytes {
    let place = EntryPlace {
        ledger_id: entry.position.ledger.0,
        entry_id: entry.position.entry.0,
        partition,
    };
    let place = place.encode_to_vec();
    let mut out = BytesMut::with_capacity(8 + place.len() + entry.payload.len());
    for part in [&place[..], &entry.payload] {
        // An entry is a few megabytes at most.
        out.put_u32(u32::try_from(part.len()).unwrap_or(u32::MAX));
        out.put_slice(part);
    }
    out.freeze()
}

/// Reads one. `None`: the bytes are no such entry, or it is of a ledger that is not known.
pub(crate) fn decode(bytes: Bytes, places: &LedgerPlaces) -> Option<CompactedEntry> {
    let (position, payload) = split(bytes)?;
    Some(CompactedEntry {
        ordinal: places.ordinal_of(position)?,
        position,
        last_index: None,
        payload,
    })
}

/// The place of an entry, and what was stored.
pub(crate) fn split(mut bytes: Bytes) -> Option<(Position, Bytes)> {
    let place = EntryPlace::decode(take(&mut bytes)?).ok()?;
    let payload = take(&mut bytes)?;
    Some((Position::new(place.ledger_id, place.entry_id), payload))
}

fn take(bytes: &mut Bytes) -> Option<Bytes> {
    if bytes.len() < 4 {
        return None;
    }
    let size = usize::try_from(bytes.get_u32()).ok()?;
    (bytes.len() >= size).then(|| bytes.split_to(size))
}

/// The index of the partition that a managed ledger is the log of.
pub(crate) fn partition_of(managed_ledger: &str) -> Option<i32> {
    let local = name::decode(managed_ledger.rsplit('/').next()?)?;
    local.rsplit_once("-partition-")?.1.parse().ok()
}

/// Custom metadata of a compacted ledger, where Pulsar's tools look for it. `to`: the last entry that it covers.
pub(crate) fn custom(managed_ledger: &str, to: Option<Position>) -> BTreeMap<String, Bytes> {
    let topic = match managed_ledger.rsplit_once('/') {
        Some((home, local)) => {
            let namespace = home.strip_suffix("/persistent").unwrap_or(home);
            let local = name::decode(local).unwrap_or_else(|| local.to_owned());
            format!("persistent://{namespace}/{local}")
        }
        None => managed_ledger.to_owned(),
    };
    let to = to.map(|to| EntryPlace {
        ledger_id: to.ledger.0,
        entry_id: to.entry.0,
        partition: partition_of(managed_ledger),
    });
    let words = [
        ("application", Bytes::from_static(b"pulsar")),
        ("component", Bytes::from_static(b"compacted-ledger")),
        ("pulsar/compactedTopic", Bytes::from(topic)),
        (
            "pulsar/compactedTo",
            Bytes::from(to.unwrap_or_default().encode_to_vec()),
        ),
    ];
    words
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
}
