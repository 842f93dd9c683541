//! Compacted ledger of a topic: named by the node of the cursor `__compaction`, as with Pulsar's brokers. The ledger
//! is its property `CompactedTopicLedger`, which covers everything up to its mark-delete position.
//!
//! A run names its ledger in this order:
//! 1. the ledger is created, and the info notes it as one that is being written (`pharos.compacting`);
//! 2. it is filled and closed;
//! 3. the node is read, then the info, which proves that the topic is ours, and then the node is put if it still has the version that was
//!    read ([`set_name`]);
//! 4. the info notes it as the named ledger, and gives up the previous one;
//! 5. the previous one is deleted.
//!
//! An opening ([`settle`]) follows the change of the info by which it became the owner. It reads the node and puts it
//! back unchanged, which gives it another version; its content then holds: ledgers that the info notes and the node
//! does not name are given up.
//!
//! **A broker that lost the topic in the middle of a run never overwrites its successor's name.** If the successor became the owner before
//! the proof in 3, the proof fails: each opening, by Pharos or by a broker of Pulsar, changes the info first. If it
//! did so after the proof, it reads the node later than 3 did. A Pharos successor puts the node back before it serves
//! anything of the topic: either its put comes first, and that of 3 is refused, or that of 3 comes first, and the
//! successor finds the new name, of a ledger that is closed and complete and covers only entries in the log that the
//! successor recovered. A broker of Pulsar puts the node when it names a ledger of its own or moves the cursor, and
//! the same holds for that put; until then the node may come to name the ledger of the run while that broker reads
//! the previous one. That ledger still exists, because step 4, which gives it up, is refused to a broker that is not
//! the owner.
//!
//! A crash between 1 and 3 leaves a ledger that nothing names and the info notes; one between 3 and 5 leaves the
//! previous ledger, noted as well. The next opening by Pharos deletes them.

use bytes::Bytes;
use pharos_ledger::LedgerEngine;
use pharos_metadata::{Expect, Item, MetadataLayout, MetadataStore, WriteError};
use pharos_types::{EntryId, LedgerId, Ordinal, Position};
use prost::Message as _;

use super::compacted::{self, LedgerPlaces, NamedLedger};
use super::cursor::CursorState;
use super::nodes::{self, COMPACTION as CURSOR, TakenCursor};
use super::proto::{LongProperty, ManagedCursorInfo};
use crate::error::OpenError;
use crate::info::{CompactionInfo, InfoError, InfoHandle, ManagedLedgerInfo};
use crate::table::LedgerTable;

/// The property of the cursor that names the ledger.
const LEDGER: &str = "CompactedTopicLedger";
/// Times that a node changed in between, before that is given up.
const TRIES: usize = 5;
/// Entries and bytes of a reading that looks for places only.
const IDS: usize = 256;
const IDS_BYTES: usize = 64 << 10;
/// First ordinal of a compacted topic that Pharos opens for the first time: below it there is room for the entries
/// trimmed from the log.
const FIRST_OF_COMPACTED: u64 = 1 << 40;

/// The ordinal with which the log of a topic begins that Pharos opens the first time: what was compacted lies before it.
///
/// # Errors
/// [`InfoError`]: the store cannot be read.
pub(crate) async fn first_ordinal(store: &dyn MetadataStore, managed_ledger: &str) -> Result<u64, InfoError> {
    let found = store.get(&nodes::key(managed_ledger, CURSOR)).await?;
    Ok(if found.is_some() { FIRST_OF_COMPACTED } else { 0 })
}

fn ledger_in(properties: &[LongProperty]) -> Option<u64> {
    let named = properties.iter().find(|property| property.name == LEDGER)?;
    u64::try_from(named.value).ok()
}

/// The ledgers that a cursor's node names: that of the cursor, and a compacted one. None of what cannot be read.
pub(crate) fn ledgers_in(node: &[u8]) -> Vec<u64> {
    let Ok(node) = ManagedCursorInfo::decode(node) else {
        return Vec::new();
    };
    let of_cursor = u64::try_from(node.cursors_ledger_id).ok();
    of_cursor.into_iter().chain(ledger_in(&node.properties)).collect()
}

/// Finds out what was compacted of a managed ledger that was just opened, and deletes what a run left that was cut short.
///
/// # Errors
/// [`OpenError`]; also when the ledger that is named is gone or no compacted ledger of this topic.
pub(crate) async fn settle(
    engine: &dyn LedgerEngine,
    info: &InfoHandle,
    table: &LedgerTable,
    end: Ordinal,
) -> Result<(), OpenError> {
    if info.layout() == MetadataLayout::Pharos || info.seen().shadow.is_some() {
        return Ok(());
    }
    let cursor = hold(engine, info).await?;
    let place = cursor
        .as_ref()
        .map(|cursor| cursor.state.acks(table, end).acked_to());
    let named = cursor
        .as_ref()
        .and_then(|cursor| ledger_in(&cursor.facts.properties));
    let found = match (named, place) {
        (Some(named), Some(place)) => {
            let reader = PlacesReader {
                engine,
                managed_ledger: info.name(),
                ledger: LedgerId(named),
                first: 0,
                some: Vec::new(),
            };
            Some(reader.at_all(place, table, end).await?)
        }
        _ => None,
    };
    let noted = info.seen().compaction;
    let noted = noted.iter().flat_map(CompactionInfo::ledgers);
    let of_cursor = cursor.and_then(|cursor| cursor.facts.ledger);
    let gone: Vec<u64> = noted
        .filter(|ledger| Some(*ledger) != named)
        .chain(of_cursor)
        .collect();
    let note = |info: &mut ManagedLedgerInfo| {
        info.compaction = named.map(|ledger| CompactionInfo {
            ledger: Some(ledger),
            ..CompactionInfo::default()
        });
        gone.iter().for_each(|ledger| info.give_up(*ledger));
    };
    info.update(note).await?;
    for ledger in gone.into_iter().map(LedgerId) {
        // What cannot be deleted now the next opening does.
        if engine.delete(ledger).await.is_ok() {
            info.note_deleted(ledger);
        }
    }
    info.set_compacted(found, place);
    Ok(())
}

/// Reads the node and puts it back with another version: who had the topic before changes it no more. A ledger of the cursor is fenced, and
/// what it says goes to the node.
async fn hold(engine: &dyn LedgerEngine, info: &InfoHandle) -> Result<Option<TakenCursor>, OpenError> {
    let key = nodes::key(info.name(), CURSOR);
    for _ in 0..TRIES {
        let Some(found) = info.store().get(&key).await.map_err(InfoError::from)? else {
            return Ok(None);
        };
        let item = Item {
            key: key.clone(),
            value: found.value,
            version: found.version,
        };
        let cursor = nodes::read(engine, &item, CURSOR, None).await?;
        let before = ManagedCursorInfo::decode(&*item.value).unwrap_or_default();
        let mut node = cursor.state.node(None);
        node.last_active = before.last_active;
        node.cursor_properties = before.cursor_properties;
        node.properties.clone_from(&cursor.facts.properties);
        let value = Bytes::from(node.encode_to_vec());
        match info.store().put(&key, value, Expect::Version(item.version)).await {
            Ok(_) => return Ok(Some(cursor)),
            Err(WriteError::Conflict { .. }) => {}
            Err(error) => return Err(InfoError::Write(error).into()),
        }
    }
    Err(OpenError::Contended(info.name().to_owned()))
}

/// Reads where the entries of a compacted ledger were.
struct PlacesReader<'a> {
    engine: &'a dyn LedgerEngine,
    managed_ledger: &'a str,
    ledger: LedgerId,
    /// First entry and positions of the last read.
    first: u64,
    some: Vec<Position>,
}

impl PlacesReader<'_> {
    /// Looks at all of it. `place`: where the cursor stands in the log.
    ///
    /// A compaction by Pulsar sets its cursor back while it runs. So what the ledger has counts as well as where the cursor stands.
    async fn at_all(
        mut self,
        place: Ordinal,
        table: &LedgerTable,
        end: Ordinal,
    ) -> Result<NamedLedger, OpenError> {
        let sealed = match self.engine.recover(self.ledger).await {
            Ok(sealed) => sealed,
            Err(pharos_ledger::OpenError::NoSuchLedger(_)) => {
                let key = nodes::key(self.managed_ledger, CURSOR);
                return Err(self.malformed(&format!(
                    "it is gone; without the node {key} the topic is not compacted"
                )));
            }
            Err(error) => return Err(error.into()),
        };
        let places = self.places(sealed.entry_count, table).await?;
        let behind_last = match sealed.entry_count.checked_sub(1) {
            Some(last) => {
                let position = self.at(last).await?;
                let ordinal = places.ordinal_of(position).filter(|ordinal| *ordinal < end);
                let ordinal = ordinal.ok_or_else(|| self.malformed("its last entry is none of the topic"))?;
                ordinal.next()
            }
            None => Ordinal(0),
        };
        Ok(NamedLedger {
            ledger: self.ledger,
            horizon: place.max(behind_last),
            entries: sealed.entry_count,
            bytes: sealed.bytes,
            places,
        })
    }

    /// First ordinals of its entries. Ordinals of trimmed ledgers are unknown: they are the highest that leave room
    /// for the later ones, so none is lower than before, and a consumer that reconnects in there may receive entries
    /// twice and misses none.
    async fn places(&mut self, entries: u64, table: &LedgerTable) -> Result<LedgerPlaces, OpenError> {
        let first_in_log = table.rows().first().map(|row| row.id);
        // Of each trimmed ledger how many entries it had, as far as is known.
        let mut trimmed: Vec<(LedgerId, u64)> = Vec::new();
        let mut index = 0;
        while index < entries {
            let ledger = self.at(index).await?.ledger;
            if first_in_log.is_some_and(|first| ledger >= first) {
                break;
            }
            let (last, next) = self.run_from(index, ledger, entries).await?;
            if trimmed.last().is_some_and(|(before, _)| *before >= ledger) {
                return Err(self.malformed("its entries are out of order"));
            }
            trimmed.push((ledger, last.entry.0.saturating_add(1)));
            index = next;
        }
        let mut first = table.first().0;
        let mut rows = Vec::with_capacity(trimmed.len());
        for (ledger, count) in trimmed.into_iter().rev() {
            first = first
                .checked_sub(count)
                .ok_or_else(|| self.malformed("it has more entries than the topic had"))?;
            rows.push((ledger, Ordinal(first)));
        }
        rows.reverse();
        Ok(LedgerPlaces::along(&rows, table))
    }

    /// Returns the last entry of the run of `ledger` that begins at `from`, and the index after it.
    async fn run_from(
        &mut self,
        from: u64,
        ledger: LedgerId,
        entries: u64,
    ) -> Result<(Position, u64), OpenError> {
        let (mut low, mut high, mut step) = (from, entries, 1);
        while low + step < high {
            match self.at(low + step).await?.ledger == ledger {
                true => (low, step) = (low + step, step * 2),
                false => high = low + step,
            }
        }
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            match self.at(middle).await?.ledger == ledger {
                true => low = middle,
                false => high = middle,
            }
        }
        Ok((self.at(low).await?, high))
    }

    /// The place of an entry.
    async fn at(&mut self, index: u64) -> Result<Position, OpenError> {
        let known = |reader: &Self| {
            let offset = usize::try_from(index.checked_sub(reader.first)?).ok()?;
            reader.some.get(offset).copied()
        };
        if let Some(known) = known(self) {
            return Ok(known);
        }
        let read = self.engine.read(self.ledger, EntryId(index), IDS, IDS_BYTES);
        let read = read.await.map_err(|cause| OpenError::Compacted {
            ledger: self.ledger,
            cause,
        })?;
        let places = read
            .into_iter()
            .map(|entry| compacted::split(entry.payload).map(|(place, _)| place));
        let places: Option<Vec<Position>> = places.collect();
        (self.first, self.some) = (
            index,
            places.ok_or_else(|| self.malformed("an entry is not readable"))?,
        );
        known(self).ok_or_else(|| self.malformed("an entry is missing"))
    }

    fn malformed(&self, cause: &str) -> OpenError {
        let error = InfoError::Malformed {
            name: self.managed_ledger.to_owned(),
            cause: format!("compacted ledger {}: {cause}", self.ledger),
        };
        error.into()
    }
}

/// Reason why a ledger was not named.
pub(crate) struct NotNamed {
    pub(crate) error: InfoError,
    /// True if the ledger is certainly not named.
    pub(crate) is_certain: bool,
}

/// Names a compacted ledger that is closed. `mark`: where its horizon is.
///
/// # Errors
/// [`NotNamed`]: the topic is another's, or the store failed.
pub(crate) async fn set_name(
    info: &InfoHandle,
    ledger: u64,
    mark: &CursorState,
    now_ms: u64,
) -> Result<(), NotNamed> {
    let key = nodes::key(info.name(), CURSOR);
    let mut is_certain = true;
    let mut last = InfoError::Fenced(info.name().to_owned());
    for _ in 0..TRIES {
        let put = async {
            let found = info.store().get(&key).await?;
            // After the node was read: see the module.
            info.reload().await?;
            let before = found
                .as_ref()
                .map(|found| ManagedCursorInfo::decode(&*found.value));
            let before = before.and_then(Result::ok).unwrap_or_default();
            if ledger_in(&before.properties) == Some(ledger) {
                return Ok(Ok(()));
            }
            let mut node = mark.node(None);
            node.last_active = i64::try_from(now_ms).ok();
            node.cursor_properties = before.cursor_properties;
            node.properties = vec![LongProperty {
                name: LEDGER.to_owned(),
                value: i64::try_from(ledger).unwrap_or(i64::MAX),
            }];
            let value = Bytes::from(node.encode_to_vec());
            let expect = found.map_or(Expect::Absent, |found| Expect::Version(found.version));
            Ok::<_, InfoError>(info.store().put(&key, value, expect).await.map(drop))
        };
        match put.await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(WriteError::Conflict { .. })) => {}
            // It may be there.
            Ok(Err(error @ WriteError::Fault(_))) => {
                (is_certain, last) = (false, InfoError::Write(error));
            }
            Ok(Err(error)) => {
                let error = InfoError::Write(error);
                return Err(NotNamed { error, is_certain });
            }
            Err(error) => return Err(NotNamed { error, is_certain }),
        }
    }
    Err(NotNamed {
        error: last,
        is_certain,
    })
}

/// The ledger that the node names now.
///
/// # Errors
/// [`InfoError`]: the store cannot be read.
pub(crate) async fn named(info: &InfoHandle) -> Result<Option<u64>, InfoError> {
    let found = info.store().get(&nodes::key(info.name(), CURSOR)).await?;
    let node = found.and_then(|found| ManagedCursorInfo::decode(&*found.value).ok());
    Ok(node.and_then(|node| ledger_in(&node.properties)))
}

/// Takes the name away, and the place of the cursor.
///
/// # Errors
/// [`InfoError`].
pub(crate) async fn forget(info: &InfoHandle) -> Result<(), InfoError> {
    nodes::remove(info, &nodes::key(info.name(), CURSOR)).await
}
