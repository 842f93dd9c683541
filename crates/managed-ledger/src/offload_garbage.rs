//! Objects of managed ledgers that were deleted: what is to be removed from object stores when no ledger owns it any more.
//!
//! A managed ledger is deleted in one step, whether or not its object store can be reached at that moment. So a note of its
//! objects is stored first, under `offload-garbage/`, and [`sweep`] works it off, at the start of a node and after each deletion.
//!
//! Always true: a note is stored before the info goes. In between it speaks of objects that are still owned; a sweep sees that the info
//! names them, and leaves them and the note alone: the deletion may go on at that moment, or at the next start.

use std::collections::HashSet;

use bytes::Bytes;
use pharos_ledger::offload::{LedgerOffloader, OffloadError, OffloadId, OffloadedLedger};
use pharos_metadata::{Expect, MetadataLayout, MetadataStore, WriteError};
use prost::Message;

use crate::info::{self, InfoError, ManagedLedgerInfo};
use crate::offload_info::{OffloadInfo, OffloadTargetInfo};

/// Key prefix of all notes.
pub const GARBAGE_PREFIX: &str = "offload-garbage/";

/// A note: a managed ledger's name and the rows of its info.
#[derive(Clone, PartialEq, Message)]
struct Garbage {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "2")]
    offloads: Vec<OffloadInfo>,
    #[prost(message, repeated, tag = "3")]
    offload_targets: Vec<OffloadTargetInfo>,
}

/// Result of a sweep.
#[derive(Debug, Default)]
pub struct Swept {
    /// Attempts whose objects were deleted.
    pub deleted: usize,
    /// The first reason why some are left; sweep again later.
    pub left: Option<OffloadError>,
}

/// Notes the objects of a managed ledger that is about to be deleted.
pub(crate) async fn note(
    metadata: &dyn MetadataStore,
    name: &str,
    info: &ManagedLedgerInfo,
) -> Result<(), InfoError> {
    let Some(first) = info.offloads.first() else {
        return Ok(());
    };
    let garbage = Garbage {
        name: name.to_owned(),
        offloads: info.offloads.clone(),
        offload_targets: info.offload_targets.clone(),
    };
    // Attempts are unique, so their first one names the note, also when the deletion is tried again.
    let key = format!("{GARBAGE_PREFIX}{}", first.id());
    let value = Bytes::from(garbage.encode_to_vec());
    let put = metadata.put(&key, value, Expect::Any).await;
    put.map(drop).map_err(InfoError::Write)
}

impl Garbage {
    fn into_rows(self) -> ManagedLedgerInfo {
        ManagedLedgerInfo {
            offloads: self.offloads,
            offload_targets: self.offload_targets,
            ..ManagedLedgerInfo::default()
        }
    }
}

/// The objects that a stored note condemns unless an info names them; none of what is no note.
#[must_use]
pub fn noted_objects(value: &[u8]) -> Vec<OffloadedLedger> {
    Garbage::decode(value).map_or_else(|_| Vec::new(), |garbage| garbage.into_rows().objects().collect())
}

/// Deletes the objects of managed ledgers that were deleted. May run at any time; two at once do no harm.
///
/// # Errors
/// [`InfoError`]: the metadata store failed, or holds a note that is not readable.
pub async fn sweep(
    metadata: &dyn MetadataStore,
    offloader: &dyn LedgerOffloader,
) -> Result<Swept, InfoError> {
    let mut swept = Swept::default();
    for item in metadata.scan(GARBAGE_PREFIX).await? {
        let garbage = Garbage::decode(&*item.value).map_err(|error| InfoError::Malformed {
            name: item.key.clone(),
            cause: error.to_string(),
        })?;
        let owner = info::load(metadata, &garbage.name, MetadataLayout::Pharos).await?;
        let owned: HashSet<OffloadId> = owner
            .iter()
            .flat_map(|(info, _)| info.offloads.iter().map(OffloadInfo::id))
            .collect();
        let rows = garbage.into_rows();
        let mut is_done = true;
        for object in rows.objects() {
            if owned.contains(&object.id) {
                is_done = false;
                continue;
            }
            match offloader.delete(object).await {
                Ok(()) => swept.deleted += 1,
                Err(error) => {
                    is_done = false;
                    swept.left.get_or_insert(error);
                }
            }
        }
        if is_done {
            match metadata.delete(&item.key, Expect::Version(item.version)).await {
                // Another caller was faster, or wrote it anew.
                Ok(_) | Err(WriteError::Conflict { .. }) => {}
                Err(error) => return Err(InfoError::Write(error)),
            }
        }
    }
    Ok(swept)
}
