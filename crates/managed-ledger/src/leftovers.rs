//! Ledgers that were given up and may still be in the engine: noted before they are, deleted, and forgotten.
//!
//! What names a ledger goes first and the ledger second; the other order would leave names of ledgers that are gone. A crash in
//! between leaves ledgers that nothing names. To delete whatever is not named would trust the metadata store too far: one that
//! is empty, of yesterday or of another broker names nothing of what is there. So a ledger is condemned by name, in the step
//! that gives it up: in `deleting` of the info, or, when the info itself goes, in a note under `ledger-garbage/`. An old copy of
//! the metadata condemns only what was dead when it was made. One of another broker condemns by the same numbers what is alive here,
//! so nothing is deleted without [`MatchesLedgers`]: the proof that metadata and engine belong together, ledger by ledger.
//!
//! Always true: a ledger that was condemned is never named again; a new name never has an old id.
//!
//! A ledger that was made and not named before a crash is not condemned. It holds no entry, and is deleted for that; or it is
//! the snapshot of a cursor log that was not named, and stays. [`orphans`](crate::orphans()) finds those, for people.

use std::collections::BTreeSet;

use bytes::Bytes;
use pharos_ledger::{DeleteError, LedgerEngine};
use pharos_metadata::{Expect, MatchesLedgers, MetadataLayout, MetadataStore, Version, WriteError};
use pharos_types::LedgerId;
use prost::Message;

use crate::error::DeleteError as NotDeleted;
use crate::info::{self, INFO_PREFIX, InfoError, ManagedLedgerInfo};
use crate::orphans::OrphanError;

/// Key prefix of all notes.
pub const LEDGER_GARBAGE_PREFIX: &str = "ledger-garbage/";

/// A note: a managed ledger that is being deleted, and the ledgers that were its.
#[derive(Clone, PartialEq, Message)]
struct Garbage {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(uint64, repeated, tag = "2")]
    ledgers: Vec<u64>,
}

/// Notes the ledgers of a managed ledger that is about to be deleted. Returns the note's key; `None` when there is nothing to note.
pub(crate) async fn note(
    metadata: &dyn MetadataStore,
    name: &str,
    info: &ManagedLedgerInfo,
) -> Result<Option<String>, InfoError> {
    let ledgers: Vec<u64> = info.ledger_ids().chain(info.deleting.iter().copied()).collect();
    let Some(first) = ledgers.first() else {
        return Ok(None);
    };
    // Ids are given out once, so the first names the note, also when the deletion is tried again.
    let key = format!("{LEDGER_GARBAGE_PREFIX}{first}");
    let garbage = Garbage {
        name: name.to_owned(),
        ledgers,
    };
    let value = Bytes::from(garbage.encode_to_vec());
    let put = metadata.put(&key, value, Expect::Any).await;
    put.map_err(InfoError::Write)?;
    Ok(Some(key))
}

/// Deletes the ledgers of a managed ledger whose deletion ended after its info was gone. The caller has found none of that name: what
/// the notes of that name condemn, no info names any more. Those before `condemned_from` stay, with their note, for who has proof.
pub(crate) async fn work_off(
    engine: &dyn LedgerEngine,
    metadata: &dyn MetadataStore,
    name: &str,
    condemned_from: LedgerId,
) -> Result<(), NotDeleted> {
    let notes = metadata.scan(LEDGER_GARBAGE_PREFIX).await;
    for item in notes.map_err(InfoError::from)? {
        // One that cannot be read is told by the clean-up at start.
        let garbage = Garbage::decode(&*item.value).ok();
        let Some(garbage) = garbage.filter(|garbage| garbage.name == name) else {
            continue;
        };
        let (condemned, spared): (Vec<_>, Vec<_>) = garbage
            .ledgers
            .into_iter()
            .map(LedgerId)
            .partition(|ledger| *ledger >= condemned_from);
        for ledger in condemned {
            engine.delete(ledger).await?;
        }
        if !spared.is_empty() {
            continue;
        }
        match metadata.delete(&item.key, Expect::Version(item.version)).await {
            Ok(_) | Err(WriteError::Conflict { .. }) => {}
            Err(error) => return Err(InfoError::Write(error).into()),
        }
    }
    Ok(())
}

/// Ledgers left by an ended process, as its successor found them at start.
pub struct Leftovers {
    /// Every ledger there was.
    existing: BTreeSet<LedgerId>,
    notes: Vec<(String, Version, Garbage)>,
    /// Ledgers that the metadata may declare unowned.
    proof: MatchesLedgers,
    /// Ledgers that were deleted so far.
    deleted: u64,
}

/// Result of a clean-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CleanedUp {
    /// Ledgers that were still there and are deleted, also by earlier tries.
    pub ledgers: u64,
    /// Ledgers that nothing names and that stay: they hold something and were not condemned, or are not known to be this
    /// metadata's.
    pub unnamed: u64,
}

/// Reason why a clean-up is unfinished; start it again later.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CleanUpError {
    /// The ledgers cannot be listed.
    #[error("cannot tell what was left")]
    Look(#[from] OrphanError),
    /// A note cannot be read or removed.
    #[error("cannot work off a note of deleted ledgers")]
    Note(#[from] InfoError),
    /// A ledger cannot be deleted now.
    #[error("cannot delete a ledger")]
    Delete(#[from] DeleteError),
}

impl Leftovers {
    /// Finds what there is: before the first managed ledger is opened, so that what this process makes is its own affair. Reads
    /// as much metadata as there are notes, mostly none. What `proof` does not cover is never deleted.
    ///
    /// # Errors
    /// [`CleanUpError`]: the engine or the store failed, or a note cannot be read.
    pub async fn find(
        engine: &dyn LedgerEngine,
        metadata: &dyn MetadataStore,
        proof: MatchesLedgers,
    ) -> Result<Self, CleanUpError> {
        let listed = engine.list().await.map_err(OrphanError::from)?;
        let mut notes = Vec::new();
        for item in metadata
            .scan(LEDGER_GARBAGE_PREFIX)
            .await
            .map_err(InfoError::from)?
        {
            let garbage = Garbage::decode(&*item.value).map_err(|error| InfoError::Malformed {
                name: item.key.clone(),
                cause: error.to_string(),
            })?;
            notes.push((item.key, item.version, garbage));
        }
        Ok(Self {
            existing: listed.into_iter().collect(),
            notes,
            proof,
            deleted: 0,
        })
    }

    /// Deletes what was given up and is still there, and what nothing names and holds nothing, one ledger after the other, while
    /// topics live. Only for an engine that this metadata store has to itself, such as the embedded one. May be run again.
    ///
    /// # Errors
    /// [`CleanUpError`]; what is left is found again.
    ///
    /// Cancel safety: dropping the future is fine.
    pub async fn clean_up(
        &mut self,
        engine: &dyn LedgerEngine,
        metadata: &dyn MetadataStore,
    ) -> Result<CleanedUp, CleanUpError> {
        while let Some((key, version, garbage)) = self.notes.last().cloned() {
            // A crash before the info went leaves a note of ledgers that are in use.
            let owner = info::load(metadata, &garbage.name, MetadataLayout::Pharos).await?;
            let owned: BTreeSet<u64> = owner.iter().flat_map(|(info, _)| info.ledger_ids()).collect();
            let dead = garbage.ledgers.iter().filter(|ledger| !owned.contains(ledger));
            for ledger in dead.map(|ledger| LedgerId(*ledger)) {
                self.delete(engine, ledger).await?;
            }
            match metadata.delete(&key, Expect::Version(version)).await {
                // Written anew by a deletion that was tried again: it is that one's affair.
                Ok(_) | Err(WriteError::Conflict { .. }) => {}
                Err(error) => return Err(InfoError::Write(error).into()),
            }
            self.notes.pop();
        }
        let mut unnamed = self.existing.clone();
        let mut dead = Vec::new();
        for item in metadata.scan(INFO_PREFIX).await.map_err(InfoError::from)? {
            let info = ManagedLedgerInfo::parse(&item.key, &item.value)?;
            for ledger in info.ledger_ids() {
                unnamed.remove(&LedgerId(ledger));
            }
            dead.extend(info.dead_ids());
        }
        for ledger in dead.into_iter().map(LedgerId) {
            self.delete(engine, ledger).await?;
        }
        for ledger in unnamed.iter().copied() {
            if self.proof.covers(ledger.0) && is_empty(engine, ledger).await {
                self.delete(engine, ledger).await?;
            }
        }
        // What was trimmed meanwhile is gone, or will be.
        let left: BTreeSet<LedgerId> = engine
            .list()
            .await
            .map_err(OrphanError::from)?
            .into_iter()
            .collect();
        Ok(CleanedUp {
            ledgers: self.deleted,
            unnamed: unnamed.intersection(&left).count() as u64,
        })
    }

    async fn delete(&mut self, engine: &dyn LedgerEngine, ledger: LedgerId) -> Result<(), DeleteError> {
        if self.proof.covers(ledger.0) && self.existing.contains(&ledger) {
            engine.delete(ledger).await?;
            self.existing.remove(&ledger);
            self.deleted += 1;
        }
        Ok(())
    }
}

/// True if a ledger that nothing names is certain to be empty. Closes it for good.
async fn is_empty(engine: &dyn LedgerEngine, ledger: LedgerId) -> bool {
    match engine.recover(ledger).await {
        Ok(sealed) => sealed.entry_count == 0,
        // It is gone, or holds what cannot be read.
        Err(_) => false,
    }
}

/// The ledgers that a stored note condemns unless an info names them; none of what is no note.
#[must_use]
pub fn noted_ledgers(value: &[u8]) -> Vec<u64> {
    Garbage::decode(value).map_or_else(|_| Vec::new(), |garbage| garbage.ledgers)
}
