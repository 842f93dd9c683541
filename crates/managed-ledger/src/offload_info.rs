//! Offload rows of the info: one row for each attempt, kept until its objects are gone.
//!
//! ```text
//!   uploading ──► complete ──► complete, local copy deleted
//!       └──► abandoned            (either: ledger trimmed)
//!                └───────────────────────┴──► objects deleted ──► no row
//! ```
//!
//! A row is in the info before the first byte is sent and stays until its objects are deleted, so a crash at any
//! point leaves no unknown objects. An attempt's objects may be deleted only once the info says, durably, that no
//! reader will read them: it is abandoned, or its ledger is not in the chain. An abandoned attempt never becomes
//! complete again.

use std::collections::{BTreeMap, BTreeSet};

use pharos_ledger::offload::{OffloadId, OffloadTarget, OffloadedLedger};
use pharos_types::LedgerId;
use prost::{Enumeration, Message};

use crate::info::ManagedLedgerInfo;

/// Offload target, as stored. Rows name it by its index in the list.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct OffloadTargetInfo {
    /// Name of the driver.
    #[prost(string, tag = "1")]
    pub driver: String,
    /// Settings needed to find the target again; no secrets.
    #[prost(btree_map = "string, string", tag = "2")]
    pub facts: BTreeMap<String, String>,
}

/// Attempt to offload one ledger.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct OffloadInfo {
    /// The ledger.
    #[prost(uint64, tag = "1")]
    pub ledger_id: u64,
    /// First half of the attempt's id.
    #[prost(fixed64, tag = "2")]
    pub id_most: u64,
    /// Second half.
    #[prost(fixed64, tag = "3")]
    pub id_least: u64,
    /// State of the attempt.
    #[prost(enumeration = "OffloadState", tag = "4")]
    pub state: i32,
    /// True if the engine's copy is deleted, or about to be.
    #[prost(bool, tag = "5")]
    pub local_deleted: bool,
    /// Completion time, in milliseconds since 1970; while incomplete, the start time.
    #[prost(uint64, tag = "6")]
    pub at_ms: u64,
    /// Place of its target in the info's list.
    #[prost(uint32, tag = "7")]
    pub target: u32,
}

/// State of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum OffloadState {
    /// Objects may be there, whole or in part.
    Uploading = 0,
    /// Both objects are there; reads may use them.
    Complete = 1,
    /// No reader will read the objects; they are to be deleted.
    Abandoned = 2,
}

impl OffloadInfo {
    /// The attempt's id.
    #[must_use]
    pub fn id(&self) -> OffloadId {
        OffloadId::from_halves(self.id_most, self.id_least)
    }

    /// True if its objects can be read.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.state == OffloadState::Complete as i32
    }
}

impl ManagedLedgerInfo {
    /// True if the engine's copy of a ledger is deleted, or about to be, because there is one in an object store.
    #[must_use]
    pub fn is_local_deleted(&self, ledger: u64) -> bool {
        self.offloads
            .iter()
            .any(|row| row.ledger_id == ledger && row.local_deleted && row.is_complete())
    }

    /// The attempt whose objects hold a ledger.
    #[must_use]
    pub fn offloaded(&self, ledger: u64) -> Option<&OffloadInfo> {
        self.offloads
            .iter()
            .find(|row| row.ledger_id == ledger && row.is_complete())
    }

    /// The whole of what an offloader must know of an attempt.
    #[must_use]
    pub fn object(&self, row: &OffloadInfo) -> OffloadedLedger {
        let target = self
            .offload_targets
            .get(usize::try_from(row.target).unwrap_or(usize::MAX));
        OffloadedLedger {
            id: row.id(),
            ledger: LedgerId(row.ledger_id),
            target: target.map_or_else(OffloadTarget::default, |target| OffloadTarget {
                driver: target.driver.clone(),
                facts: target.facts.clone(),
            }),
        }
    }

    /// Every attempt there is a row of.
    pub fn objects(&self) -> impl Iterator<Item = OffloadedLedger> + '_ {
        self.offloads.iter().map(|row| self.object(row))
    }

    /// True if every row names an existing target.
    pub(crate) fn has_all_targets(&self) -> bool {
        let count = self.offload_targets.len();
        let is_there = |row: &OffloadInfo| usize::try_from(row.target).is_ok_and(|target| target < count);
        self.offloads.iter().all(is_there)
    }

    /// An attempt begins.
    pub(crate) fn begin_offload(&mut self, object: &OffloadedLedger, now_ms: u64) {
        if self.offload_row(object.id).is_some() {
            return;
        }
        let wanted = OffloadTargetInfo {
            driver: object.target.driver.clone(),
            facts: object.target.facts.clone(),
        };
        let known = self.offload_targets.iter().position(|target| *target == wanted);
        let target = known.unwrap_or_else(|| {
            self.offload_targets.push(wanted);
            self.offload_targets.len() - 1
        });
        let (id_most, id_least) = object.id.halves();
        self.offloads.push(OffloadInfo {
            ledger_id: object.ledger.0,
            id_most,
            id_least,
            state: OffloadState::Uploading as i32,
            local_deleted: false,
            at_ms: now_ms,
            target: u32::try_from(target).unwrap_or(u32::MAX),
        });
    }

    /// Both objects of an attempt are there. Nothing happens when it was abandoned meanwhile.
    pub(crate) fn complete_offload(&mut self, id: OffloadId, now_ms: u64) {
        if let Some(row) = self.offload_row(id)
            && row.state == OffloadState::Uploading as i32
        {
            row.state = OffloadState::Complete as i32;
            row.at_ms = now_ms;
        }
    }

    /// Says that an attempt will not be completed. Returns whether its objects may be deleted.
    pub(crate) fn abandon_offload(&mut self, id: OffloadId) -> bool {
        if let Some(row) = self.offload_row(id)
            && row.state == OffloadState::Uploading as i32
        {
            row.state = OffloadState::Abandoned as i32;
        }
        let row = self.offloads.iter().find(|row| row.id() == id);
        row.is_some_and(|row| self.is_garbage(row))
    }

    /// True if a row's objects will not be read any more.
    pub(crate) fn is_garbage(&self, row: &OffloadInfo) -> bool {
        row.state == OffloadState::Abandoned as i32
            || !self
                .ledgers
                .iter()
                .any(|ledger| ledger.ledger_id == row.ledger_id)
    }

    /// The engine's copy of a ledger is about to be deleted. Returns whether it may be.
    ///
    /// Not while the ledger's end is not recorded: the next opening would have to recover it from the engine.
    pub(crate) fn delete_local(&mut self, id: OffloadId) -> bool {
        let closed: BTreeSet<u64> = self
            .ledgers
            .iter()
            .filter(|ledger| ledger.closed_at_ms.is_some())
            .map(|ledger| ledger.ledger_id)
            .collect();
        let row = self.offload_row(id);
        let row = row.filter(|row| row.is_complete() && closed.contains(&row.ledger_id));
        row.map(|row| row.local_deleted = true).is_some()
    }

    /// The objects of an attempt are deleted.
    pub(crate) fn forget_offload(&mut self, id: OffloadId) {
        self.offloads.retain(|row| row.id() != id);
        if self.offloads.is_empty() {
            self.offload_targets.clear();
        }
    }

    fn offload_row(&mut self, id: OffloadId) -> Option<&mut OffloadInfo> {
        self.offloads.iter_mut().find(|row| row.id() == id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::info::LedgerInfo;

    fn attempt(id: u128, ledger: u64) -> OffloadedLedger {
        OffloadedLedger {
            id: OffloadId(id),
            ledger: LedgerId(ledger),
            target: OffloadTarget {
                driver: "filesystem".to_owned(),
                facts: [("uri".to_owned(), "file:///cold".to_owned())].into(),
            },
        }
    }

    fn info() -> ManagedLedgerInfo {
        let ledger = |ledger_id| LedgerInfo {
            ledger_id,
            entries: 1,
            bytes: 1,
            closed_at_ms: Some(1),
        };
        ManagedLedgerInfo {
            ledgers: vec![ledger(1), ledger(2)],
            ..ManagedLedgerInfo::new(0)
        }
    }

    #[test]
    fn an_info_without_offloads_is_what_older_releases_read() {
        let mut info = info();
        info.settle_format();
        assert_eq!(info.format, 1);
        info.begin_offload(&attempt(1, 1), 5);
        info.settle_format();
        assert_eq!(info.format, 2, "an older release would lose the rows");
        let value = info.encode_to_vec();
        assert_eq!(ManagedLedgerInfo::parse("t", &value).unwrap(), info);
        info.offloads[0].target = 7;
        assert!(ManagedLedgerInfo::parse("t", &info.encode_to_vec()).is_err());
    }

    #[test]
    fn a_row_goes_its_way_and_no_other() {
        let mut info = info();
        for (id, ledger) in [(1, 1), (2, 2)] {
            info.begin_offload(&attempt(id, ledger), 5);
            info.begin_offload(&attempt(id, ledger), 6);
        }
        assert_eq!((info.offloads.len(), info.offload_targets.len()), (2, 1));
        assert_eq!(info.objects().collect::<Vec<_>>(), [attempt(1, 1), attempt(2, 2)]);
        assert!(!info.delete_local(OffloadId(1)), "not complete");
        info.complete_offload(OffloadId(1), 9);
        assert!(!info.abandon_offload(OffloadId(1)), "complete stays complete");
        assert!(info.offloaded(1).is_some() && !info.is_local_deleted(1));
        assert!(info.delete_local(OffloadId(1)) && info.is_local_deleted(1));
        assert_eq!(
            info.ledger_ids().collect::<Vec<_>>(),
            [2],
            "it is not needed in the engine"
        );

        assert!(info.abandon_offload(OffloadId(2)));
        info.complete_offload(OffloadId(2), 9);
        assert!(info.offloaded(2).is_none(), "abandoned stays abandoned");

        info.ledgers.remove(0);
        assert!(info.abandon_offload(OffloadId(1)), "trimmed");
        info.forget_offload(OffloadId(1));
        info.forget_offload(OffloadId(2));
        assert!(info.offload_targets.is_empty() && info.offloads.is_empty());
    }
}
