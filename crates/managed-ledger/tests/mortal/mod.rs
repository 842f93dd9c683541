//! An object store that dies with the process, after half of what it was asked for too.

use std::sync::Arc;

use pharos_ledger::offload::{
    LedgerOffloader, OffloadError, OffloadId, OffloadSource, OffloadTarget, OffloadedLedger,
};
use pharos_ledger::{BoxFuture, ReadEntry};
use pharos_managed_ledger::mortal::Life;
use pharos_offload::Offloader;
use pharos_types::EntryId;

pub(crate) fn offloader(life: &Life, offloader: Arc<Offloader>) -> Arc<dyn LedgerOffloader> {
    Arc::new(MortalOffloader(offloader, life.clone()))
}

#[derive(Debug)]
struct MortalOffloader(Arc<Offloader>, Life);

impl LedgerOffloader for MortalOffloader {
    fn new_id(&self) -> OffloadId {
        self.0.new_id()
    }

    fn check_target(&self, target: &OffloadTarget) -> Result<(), OffloadError> {
        self.0.check_target(target)
    }

    fn offload(
        &self,
        object: OffloadedLedger,
        source: OffloadSource,
    ) -> BoxFuture<'static, Result<(), OffloadError>> {
        let (life, inner) = (self.1.clone(), self.0.clone());
        Box::pin(async move {
            let half = async {
                let _ = inner.offload(object.clone(), source.clone()).await;
                std::fs::remove_file(path_of(&object, &object.index_name())).expect("it was just written");
                let staged = path_of(&object, &format!("{}#1", object.data_name()));
                std::fs::write(staged, b"part of an upload").expect("the folder can be written");
            };
            // An upload begins when it is asked for, not when it is waited for.
            let whole = async { inner.offload(object.clone(), source.clone()).await };
            life.effect_in_two(whole, Some(half)).await
        })
    }

    fn check(&self, object: OffloadedLedger, entries: u64) -> BoxFuture<'static, Result<(), OffloadError>> {
        self.0.check(object, entries)
    }

    fn read(
        &self,
        object: OffloadedLedger,
        first: EntryId,
        entries_max: usize,
        bytes_max: usize,
    ) -> BoxFuture<'static, Result<Vec<ReadEntry>, OffloadError>> {
        self.0.read(object, first, entries_max, bytes_max)
    }

    fn delete(&self, object: OffloadedLedger) -> BoxFuture<'static, Result<(), OffloadError>> {
        let (life, inner) = (self.1.clone(), self.0.clone());
        Box::pin(async move {
            let half = async {
                // Gone already is fine: the attempt may have left half only.
                let _ = std::fs::remove_file(path_of(&object, &object.index_name()));
            };
            let whole = async { inner.delete(object.clone()).await };
            life.effect_in_two(whole, Some(half)).await
        })
    }
}

/// Path of an object in a folder.
fn path_of(object: &OffloadedLedger, name: &str) -> std::path::PathBuf {
    let uri = object.target.facts.get("uri").expect("it is a folder");
    std::path::Path::new(uri.trim_start_matches("file://")).join(name)
}
