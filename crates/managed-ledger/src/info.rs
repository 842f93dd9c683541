//! Info of a managed ledger in the metadata store: its ledgers, in order, and its current writer.
//!
//! `docs/formats/managed-ledger-info.md` draws the bytes. The info is one value under one key, changed only by
//! compare-and-set, so every step of a rollover, trim or cursor roll is atomic.
//!
//! Always true:
//! - the ordinals of all entries follow from `first_ordinal` and the entry counts of the rows before;
//! - only the last rows may be open (no `closed_at_ms`), and they hold no entry that an earlier open row lacks;
//! - `writer_epoch` rises with each opening, so an owner that was replaced finds out at its next change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use pharos_ledger::FaultKind;
use pharos_metadata::{Expect, MetadataLayout, MetadataStore, Version, WriteError};
use pharos_types::{LedgerId, Ordinal};
use prost::Message;

use crate::offload_info::{OffloadInfo, OffloadTargetInfo};
use crate::pulsar;
use crate::pulsar::compacted::NamedLedger;

/// Key prefix of all infos.
pub const INFO_PREFIX: &str = "managed-ledgers/";
/// The layout of infos without offloaded ledgers, and of all infos of the first release.
const FORMAT_PLAIN: u32 = 1;
/// The layout of infos with offloaded ledgers: releases that do not know them must not write the value back.
const FORMAT_OFFLOADS: u32 = 2;
/// The layout of infos of shadows: a release that does not know them would give the topic ledgers of its own.
const FORMAT_SHADOW: u32 = 3;
/// The layout of infos that name a compacted ledger, with offloaded ledgers or not: a release that does not know it would lose it.
const FORMAT_COMPACTED: u32 = 4;
/// No topic counts this far, neither entries nor bytes; what is added to a number below it does not overflow.
const COUNT_MAX: u64 = 1 << 56;

/// The info, as stored.
#[derive(Clone, PartialEq, Message)]
pub struct ManagedLedgerInfo {
    /// Layout number; a reader that does not know it must refuse the value.
    #[prost(uint32, tag = "1")]
    pub format: u32,
    /// Raised by each opening.
    #[prost(uint64, tag = "2")]
    pub writer_epoch: u64,
    /// Ordinal of the first entry of the first ledger that is left.
    #[prost(uint64, tag = "3")]
    pub first_ordinal: u64,
    /// The chain, oldest first.
    #[prost(message, repeated, tag = "4")]
    pub ledgers: Vec<LedgerInfo>,
    /// The topic's own facts.
    #[prost(btree_map = "string, string", tag = "5")]
    pub properties: BTreeMap<String, String>,
    /// Once set, no entry is ever appended again.
    #[prost(bool, tag = "6")]
    pub terminated: bool,
    /// The ledger of the cursor log, once there are cursors.
    #[prost(uint64, optional, tag = "7")]
    pub cursor_ledger: Option<u64>,
    /// Creation time, in milliseconds since 1970.
    #[prost(uint64, tag = "8")]
    pub created_ms: u64,
    /// Attempts to offload ledgers whose objects may be there.
    #[prost(message, repeated, tag = "9")]
    pub offloads: Vec<OffloadInfo>,
    /// Targets of the offload attempts.
    #[prost(message, repeated, tag = "10")]
    pub offload_targets: Vec<OffloadTargetInfo>,
    /// Ledgers that were given up and may still be in the engine.
    #[prost(uint64, repeated, tag = "11")]
    pub deleting: Vec<u64>,
    /// Source, if this is a shadow: it shows the entries of another managed ledger and has none of its own.
    #[prost(message, optional, tag = "12")]
    pub shadow: Option<ShadowInfo>,
    /// Ledger fields of Pulsar brokers that Pharos does not read, by ledger; in their layout only.
    #[prost(btree_map = "uint64, bytes", tag = "13")]
    pub carried: BTreeMap<u64, Vec<u8>>,
    /// Result of topic compaction for the entries before some position.
    #[prost(message, optional, tag = "14")]
    pub compaction: Option<CompactionInfo>,
}

/// The compacted ledger of a managed ledger. In Pulsar's layout only the ids are here: its node says the rest.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct CompactionInfo {
    /// Its id; absent while there is none.
    #[prost(uint64, optional, tag = "1")]
    pub ledger: Option<u64>,
    /// Ordinal of the first entry that it does not stand for.
    #[prost(uint64, tag = "2")]
    pub horizon: u64,
    /// Entries in it.
    #[prost(uint64, tag = "3")]
    pub entries: u64,
    /// Payload bytes in it.
    #[prost(uint64, tag = "4")]
    pub bytes: u64,
    /// Completion time, in milliseconds since 1970.
    #[prost(uint64, tag = "5")]
    pub at_ms: u64,
    /// A ledger that is being written, to take its place. The next opening gives it up.
    #[prost(uint64, optional, tag = "6")]
    pub writing: Option<u64>,
}

impl CompactionInfo {
    /// The ledgers that it names.
    pub(crate) fn ledgers(&self) -> impl Iterator<Item = u64> + use<> {
        self.ledger.into_iter().chain(self.writing)
    }
}

/// Source of a shadow.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ShadowInfo {
    /// The name of its source.
    #[prost(string, tag = "1")]
    pub source: String,
    /// Creation time of the source, in milliseconds since 1970; 0 until the source was first found. Cursors count the
    /// entries of this source: another one of the same name has others.
    #[prost(uint64, tag = "2")]
    pub source_created_ms: u64,
    /// The shadow holds entries of its source back for its cursors; the source's owner reads this before it trims.
    #[prost(message, optional, tag = "3")]
    pub held: Option<HeldBack>,
}

/// Report of a shadow to the owner of its source.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct HeldBack {
    /// No cursor stands before this entry; absent: there is no cursor.
    #[prost(uint64, optional, tag = "1")]
    pub from: Option<u64>,
    /// Backlogs of its subscriptions.
    #[prost(message, repeated, tag = "2")]
    pub parts: Vec<HeldBackPart>,
}

/// Backlog of one subscription of a shadow.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct HeldBackPart {
    /// The subscription.
    #[prost(string, tag = "1")]
    pub subscription: String,
    /// Consumers that are connected.
    #[prost(uint64, tag = "2")]
    pub connected: u64,
    /// Consumers that have a place and are not connected.
    #[prost(uint64, tag = "3")]
    pub absent: u64,
    /// Entries that they have not acknowledged, together.
    #[prost(uint64, tag = "4")]
    pub backlog: u64,
    /// The last time that all consumers were moved together, as far as it was done here; 0 for never.
    #[prost(uint64, tag = "5")]
    pub moved: u64,
}

/// Ledger of the chain.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct LedgerInfo {
    /// Its id in the engine.
    #[prost(uint64, tag = "1")]
    pub ledger_id: u64,
    /// Entries; meaningless while it is open.
    #[prost(uint64, tag = "2")]
    pub entries: u64,
    /// Payload bytes; meaningless while it is open.
    #[prost(uint64, tag = "3")]
    pub bytes: u64,
    /// Close time, in milliseconds since 1970; absent while the end is unknown.
    #[prost(uint64, optional, tag = "4")]
    pub closed_at_ms: Option<u64>,
}

/// Reason why an info could not be read or changed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum InfoError {
    /// Another owner opened the managed ledger; this one is finished.
    #[error("managed ledger {0} has another owner")]
    Fenced(String),
    /// The managed ledger was deleted.
    #[error("managed ledger {0} was deleted")]
    Gone(String),
    /// The stored value is not an info, or one of another release.
    #[error("info of managed ledger {name} is not readable: {cause}")]
    Malformed {
        /// The managed ledger.
        name: String,
        /// Defect of the info.
        cause: String,
    },
    /// The metadata store cannot read.
    #[error("metadata store")]
    Read(#[from] pharos_metadata::ReadError),
    /// The metadata store cannot write; whether it did is unknown.
    #[error("metadata store")]
    Write(#[source] WriteError),
}

impl ManagedLedgerInfo {
    /// The info of a new managed ledger.
    pub(crate) fn new(created_ms: u64) -> Self {
        Self {
            format: FORMAT_PLAIN,
            created_ms,
            ..Self::default()
        }
    }

    /// Reads a stored value.
    ///
    /// # Errors
    /// [`InfoError::Malformed`] also for a layout of another release.
    pub fn parse(name: &str, value: &[u8]) -> Result<Self, InfoError> {
        let malformed = |cause: String| InfoError::Malformed {
            name: name.to_owned(),
            cause,
        };
        let info = Self::decode(value).map_err(|error| malformed(error.to_string()))?;
        info.checked(name)
    }

    /// Reads a stored value of either layout.
    ///
    /// # Errors
    /// As for [`parse`](Self::parse); also for what Pulsar may have and Pharos does not read.
    pub fn parse_as(layout: MetadataLayout, name: &str, value: &[u8]) -> Result<Self, InfoError> {
        Ok(read(layout, name, value)?.info)
    }

    /// Refuses what cannot be.
    pub(crate) fn checked(self, name: &str) -> Result<Self, InfoError> {
        let info = self;
        let malformed = |cause: String| InfoError::Malformed {
            name: name.to_owned(),
            cause,
        };
        if !matches!(info.format, FORMAT_PLAIN..=FORMAT_COMPACTED) {
            return Err(malformed(format!(
                "format {} where {FORMAT_PLAIN} to {FORMAT_COMPACTED} are known",
                info.format
            )));
        }
        if info.shadow.is_some() && !info.ledgers.is_empty() {
            return Err(malformed("a shadow with ledgers of its own".to_owned()));
        }
        if !info.has_all_targets() {
            return Err(malformed("an offloaded ledger without a target".to_owned()));
        }
        let is_rising = info
            .ledgers
            .is_sorted_by(|one, two| one.ledger_id < two.ledger_id);
        let entries = info
            .ledgers
            .iter()
            .try_fold(info.first_ordinal, |sum, row| sum.checked_add(row.entries));
        let bytes = info
            .ledgers
            .iter()
            .try_fold(0, |sum: u64, row| sum.checked_add(row.bytes));
        let can_be = |sum: Option<u64>| sum.is_some_and(|sum| sum <= COUNT_MAX);
        if !can_be(Some(info.writer_epoch)) || !is_rising || !can_be(entries) || !can_be(bytes) {
            return Err(malformed(
                "ledgers do not rise or hold more than there can be".to_owned(),
            ));
        }
        Ok(info)
    }

    /// Every ledger it names that should be in the engine, the cursor ledger included.
    pub fn ledger_ids(&self) -> impl Iterator<Item = u64> + '_ {
        let gone: BTreeSet<u64> = self
            .offloads
            .iter()
            .filter(|row| row.local_deleted && row.is_complete())
            .map(|row| row.ledger_id)
            .collect();
        self.ledgers
            .iter()
            .map(|row| row.ledger_id)
            .filter(move |ledger| !gone.contains(ledger))
            .chain(self.cursor_ledger)
            .chain(self.compaction.iter().flat_map(CompactionInfo::ledgers))
    }

    /// Ledgers that may be in the engine and that will never be read there again.
    pub fn dead_ids(&self) -> impl Iterator<Item = u64> + '_ {
        let named: BTreeSet<u64> = self.ledger_ids().collect();
        let offloaded = self.offloads.iter();
        let offloaded = offloaded.filter(|row| row.local_deleted && row.is_complete());
        let all = self.deleting.iter().copied();
        all.chain(offloaded.map(|row| row.ledger_id))
            .filter(move |ledger| !named.contains(ledger))
    }

    /// Notes that a ledger is to be deleted, in the step that takes its name away.
    pub(crate) fn give_up(&mut self, ledger: u64) {
        if !self.deleting.contains(&ledger) {
            self.deleting.push(ledger);
        }
    }

    /// A run of topic compaction that was under way is not any more.
    pub(crate) fn give_up_compaction(&mut self) {
        let Some(compaction) = &mut self.compaction else {
            return;
        };
        let unfinished = compaction.writing.take();
        if compaction.ledger.is_none() {
            self.compaction = None;
        }
        if let Some(ledger) = unfinished {
            self.give_up(ledger);
        }
    }

    /// Writes the layout number that fits the content. To be called before it is stored.
    pub(crate) fn settle_format(&mut self) {
        self.format = match (&self.shadow, &self.compaction, self.offloads.is_empty()) {
            (Some(_), ..) => FORMAT_SHADOW,
            (None, Some(_), _) => FORMAT_COMPACTED,
            (None, None, true) => FORMAT_PLAIN,
            (None, None, false) => FORMAT_OFFLOADS,
        };
    }

    /// The row of a ledger.
    pub(crate) fn row_mut(&mut self, ledger: u64) -> Option<&mut LedgerInfo> {
        self.ledgers.iter_mut().find(|row| row.ledger_id == ledger)
    }
}

/// The key of a managed ledger's info.
pub(crate) fn key_of(name: &str) -> String {
    format!("{INFO_PREFIX}{name}")
}

/// Reads an info and its version; `None` when there is no such managed ledger.
pub(crate) async fn load(
    store: &dyn MetadataStore,
    name: &str,
    layout: MetadataLayout,
) -> Result<Option<(ManagedLedgerInfo, Version)>, InfoError> {
    let Some(found) = store.get(&key_of(name)).await? else {
        return Ok(None);
    };
    let info = ManagedLedgerInfo::parse_as(layout, name, &found.value)?;
    Ok(Some((info, found.version)))
}

fn read(layout: MetadataLayout, name: &str, value: &[u8]) -> Result<pulsar::info::InfoRead, InfoError> {
    match layout {
        MetadataLayout::Pharos => Ok(pulsar::info::InfoRead {
            info: ManagedLedgerInfo::parse(name, value)?,
            is_foreign: false,
        }),
        MetadataLayout::Pulsar => pulsar::info::parse(name, value),
    }
}

/// The value to be stored.
pub(crate) fn encode(info: &ManagedLedgerInfo, layout: MetadataLayout) -> Bytes {
    match layout {
        MetadataLayout::Pharos => Bytes::from(info.encode_to_vec()),
        MetadataLayout::Pulsar => pulsar::info::encode(info),
    }
}

/// The info of an open managed ledger, shared by it and its cursor log.
pub(crate) struct InfoHandle {
    store: Arc<dyn MetadataStore>,
    name: String,
    layout: MetadataLayout,
    /// Ours; another one in the store means that we are no longer the owner.
    writer_epoch: u64,
    /// The newest that was read or written. Locked for a copy only, never over an await.
    seen: Mutex<(ManagedLedgerInfo, Version)>,
    /// Ledgers that are deleted and still noted; the next change takes the notes away. Locked as `seen` is, and before it.
    deleted: Mutex<Vec<u64>>,
    /// In Pulsar's layout, what is compacted, and else where the cursor of what is to be stands. Locked for a copy only.
    compacted: Mutex<(Option<NamedLedger>, Option<Ordinal>)>,
}

impl InfoHandle {
    pub(crate) fn new(
        store: Arc<dyn MetadataStore>,
        name: &str,
        layout: MetadataLayout,
        info: ManagedLedgerInfo,
        version: Version,
    ) -> Self {
        Self {
            store,
            name: name.to_owned(),
            layout,
            writer_epoch: info.writer_epoch,
            seen: Mutex::new((info, version)),
            deleted: Mutex::default(),
            compacted: Mutex::default(),
        }
    }

    /// The compacted ledger, in Pulsar's layout.
    pub(crate) fn compacted(&self) -> Option<NamedLedger> {
        self.compacted_parts().0.clone()
    }

    /// Position of the compaction cursor while nothing was compacted yet, in Pulsar's layout.
    pub(crate) fn held(&self) -> Option<Ordinal> {
        self.compacted_parts().1
    }

    /// Something else is compacted now, or nothing. `place`: where the cursor stands, if there is one.
    pub(crate) fn set_compacted(&self, named: Option<NamedLedger>, place: Option<Ordinal>) {
        let held = place.filter(|_| named.is_none());
        *self.compacted_parts() = (named, held);
    }

    fn compacted_parts(&self) -> MutexGuard<'_, (Option<NamedLedger>, Option<Ordinal>)> {
        self.compacted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a ledger that was given up is gone from the engine. Stored with the next change: deleting it again does no harm.
    pub(crate) fn note_deleted(&self, ledger: LedgerId) {
        let mut deleted = self.deleted.lock().unwrap_or_else(PoisonError::into_inner);
        deleted.push(ledger.0);
    }

    fn forget_deleted(&self, info: &mut ManagedLedgerInfo) {
        let mut deleted = self.deleted.lock().unwrap_or_else(PoisonError::into_inner);
        info.deleting.retain(|ledger| !deleted.contains(ledger));
        // What the stored info no longer lists need not be known either.
        let listed = self.lock().0.deleting.clone();
        deleted.retain(|ledger| listed.contains(ledger));
    }

    /// The newest info that is known to be stored.
    pub(crate) fn seen(&self) -> ManagedLedgerInfo {
        self.lock().0.clone()
    }

    /// Changes the info durably. `change` may run several times and must give the same result for the same input; it
    /// sees every earlier change, also concurrent ones of this owner.
    ///
    /// Cancel safety: the change may or may not be stored.
    pub(crate) async fn update(
        &self,
        mut change: impl FnMut(&mut ManagedLedgerInfo),
    ) -> Result<(), InfoError> {
        loop {
            let (before, version) = self.lock().clone();
            let mut info = before.clone();
            change(&mut info);
            if info == before {
                return Ok(());
            }
            self.forget_deleted(&mut info);
            info.settle_format();
            let value = encode(&info, self.layout);
            match self
                .store
                .put(&key_of(&self.name), value, Expect::Version(version))
                .await
            {
                Ok(version) => {
                    self.learn(info, version);
                    return Ok(());
                }
                // Either our own concurrent change or an outcome we were not told: both are fine to build on.
                Err(WriteError::Conflict { .. }) => self.reload().await?,
                Err(error) => return Err(InfoError::Write(error)),
            }
        }
    }

    /// Reads it again.
    ///
    /// # Errors
    /// [`InfoError`]; `Fenced` and `Gone` when it is not ours any more.
    pub(crate) async fn reload(&self) -> Result<(), InfoError> {
        let Some(found) = self.store.get(&key_of(&self.name)).await? else {
            return Err(InfoError::Gone(self.name.clone()));
        };
        let read = read(self.layout, &self.name, &found.value)?;
        if read.is_foreign || read.info.writer_epoch != self.writer_epoch {
            return Err(InfoError::Fenced(self.name.clone()));
        }
        self.learn(read.info, found.version);
        Ok(())
    }

    pub(crate) fn layout(&self) -> MetadataLayout {
        self.layout
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn store(&self) -> &Arc<dyn MetadataStore> {
        &self.store
    }

    /// Answers of concurrent changes may come in any order; versions rise, so the newest wins.
    fn learn(&self, info: ManagedLedgerInfo, version: Version) {
        let mut seen = self.lock();
        if version > seen.1 {
            *seen = (info, version);
        }
    }

    fn lock(&self) -> MutexGuard<'_, (ManagedLedgerInfo, Version)> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl InfoError {
    /// Severity for the owner: fenced, or transient because the store failed.
    #[must_use]
    pub fn kind(&self) -> FaultKind {
        match self {
            Self::Fenced(_) | Self::Gone(_) => FaultKind::Fenced,
            Self::Malformed { .. } | Self::Read(_) | Self::Write(_) => FaultKind::Transient,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_cannot_be_are_refused() {
        let row = |ledger_id, entries, bytes| LedgerInfo {
            ledger_id,
            entries,
            bytes,
            closed_at_ms: Some(1),
        };
        let parse = |first_ordinal, ledgers: &[LedgerInfo]| {
            let mut info = ManagedLedgerInfo::new(1);
            info.first_ordinal = first_ordinal;
            info.ledgers = ledgers.to_vec();
            ManagedLedgerInfo::parse("t", &info.encode_to_vec()).is_ok()
        };
        assert!(parse(7, &[row(1, 2, 3), row(2, 0, 0)]));
        assert!(!parse(7, &[row(2, 2, 3), row(1, 0, 0)]), "out of order");
        assert!(!parse(u64::MAX, &[]), "no ordinal after it");
        assert!(
            !parse(0, &[row(1, u64::MAX, 0), row(2, 1, 0)]),
            "too many entries"
        );
        assert!(!parse(0, &[row(1, 1, u64::MAX), row(2, 1, 1)]), "too many bytes");
    }
}
