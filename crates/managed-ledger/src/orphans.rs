//! Ledgers that exist but that no managed ledger names: what crashes between two steps leave behind.

use std::collections::BTreeSet;

use pharos_ledger::LedgerEngine;
use pharos_metadata::MetadataStore;
use pharos_types::LedgerId;

use crate::info::{INFO_PREFIX, InfoError, ManagedLedgerInfo};

/// Reason why orphans cannot be determined. Delete nothing then.
#[derive(Debug, Clone, thiserror::Error)]
pub enum OrphanError {
    /// The engine cannot list its ledgers.
    #[error("cannot list ledgers")]
    List(#[from] pharos_ledger::ReadError),
    /// An info cannot be read, so its ledgers cannot be told from orphans.
    #[error("cannot read the infos of all managed ledgers")]
    Info(#[from] InfoError),
}

/// The ledgers of `engine` that neither a managed ledger nor its cursor log names. That alone is no reason to delete one: see
/// [`Leftovers`](crate::Leftovers).
///
/// Only right while no managed ledger is open: otherwise a ledger may be created and not yet named. Only
/// for an engine that has no other user, such as the embedded one. Schemas or other facts that get ledgers of their own must be
/// added here first.
///
/// # Errors
/// [`OrphanError`].
pub async fn orphans(
    engine: &dyn LedgerEngine,
    metadata: &dyn MetadataStore,
) -> Result<Vec<LedgerId>, OrphanError> {
    let existing = engine.list().await?;
    let mut named = BTreeSet::new();
    for item in metadata.scan(INFO_PREFIX).await.map_err(InfoError::from)? {
        let info = ManagedLedgerInfo::parse(&item.key, &item.value)?;
        named.extend(info.ledger_ids());
    }
    Ok(existing
        .into_iter()
        .filter(|ledger| !named.contains(&ledger.0))
        .collect())
}
