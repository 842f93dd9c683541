//! What an earlier life gave up goes while the next one runs, for ever, and nothing else does.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use pharos_ledger::LedgerEngine;
use pharos_managed_ledger::{
    CleanUpError, CleanedUp, INFO_PREFIX, LEDGER_GARBAGE_PREFIX, Leftovers, ManagedLedgerInfo, noted_ledgers,
    orphans,
};
use pharos_metadata::MetadataStore;
use pharos_sim::tell;
use pharos_types::LedgerId;

use crate::process::{Alive, Died, Process};

/// A clean-up under way.
pub(crate) struct CleaningUp {
    /// What was given up when it began.
    condemned: BTreeSet<LedgerId>,
    /// What nothing named then.
    unnamed: Vec<LedgerId>,
    done: Rc<RefCell<Option<Result<CleanedUp, CleanUpError>>>>,
}

/// Looks at what there is before any topic is opened, and lets the clean-up run beside what follows.
pub(crate) async fn begin(process: &mut Process) -> Alive<CleaningUp> {
    let engine: Arc<dyn LedgerEngine> = process.store.storage.clone();
    let metadata = process.metadata();
    let condemned = condemned(&*metadata).await;
    let unnamed = orphans(&*engine, &*metadata).await.unwrap();
    let proof = process.metadata.store.matches_ledgers();
    let proof = proof.expect("the metadata is that of the ledgers");
    let found = process
        .drive({
            let (engine, metadata) = (engine.clone(), metadata.clone());
            async move { Leftovers::find(&*engine, &*metadata, proof).await }
        })
        .await?;
    let mut left = found.expect("what was left can be told");
    let done = Rc::new(RefCell::default());
    let answer = done.clone();
    process.spawn(async move {
        let outcome = left.clean_up(&*engine, &*metadata).await;
        *answer.borrow_mut() = Some(outcome);
    });
    Ok(CleaningUp {
        condemned,
        unnamed,
        done,
    })
}

/// What is given up: no info names it, and an info or a note condemns it.
async fn condemned(metadata: &dyn MetadataStore) -> BTreeSet<LedgerId> {
    let (mut named, mut dead) = (BTreeSet::new(), BTreeSet::new());
    for item in metadata.scan(INFO_PREFIX).await.unwrap() {
        let info = ManagedLedgerInfo::parse(&item.key, &item.value).unwrap();
        named.extend(info.ledger_ids().map(LedgerId));
        dead.extend(info.dead_ids().map(LedgerId));
    }
    for item in metadata.scan(LEDGER_GARBAGE_PREFIX).await.unwrap() {
        dead.extend(noted_ledgers(&item.value).into_iter().map(LedgerId));
    }
    dead.difference(&named).copied().collect()
}

/// Waits for the clean-up of this life. `all`: what was condemned at the beginning of any life, none of which is there any more.
/// Returns how many ledgers this clean-up deleted.
pub(crate) async fn look(process: &mut Process, all: &mut BTreeSet<LedgerId>) -> Alive<u64> {
    let Some(CleaningUp {
        condemned,
        unnamed,
        done,
    }) = process.cleaning_up.take()
    else {
        return Ok(0);
    };
    all.extend(condemned);
    process
        .drive({
            let done = done.clone();
            async move {
                while done.borrow().is_none() {
                    tokio::task::yield_now().await;
                }
            }
        })
        .await?;
    let outcome = done.take().expect("it is done");
    if process.is_dead() {
        return Err(Died);
    }
    let outcome = outcome.expect("a clean-up that nothing keeps from its end");
    tell(|| format!("cleaned up: {outcome:?}"));
    let there: BTreeSet<LedgerId> = process.store.storage.list().await.unwrap().into_iter().collect();
    let left: Vec<_> = all.intersection(&there).collect();
    assert!(left.is_empty(), "ledgers that were given up are there: {left:?}");
    for ledger in unnamed.into_iter().filter(|ledger| there.contains(ledger)) {
        let engine = process.store.storage.clone();
        let held = process.drive(async move { engine.recover(ledger).await }).await?;
        if process.is_dead() {
            return Err(Died);
        }
        assert!(
            held.unwrap().entry_count > 0,
            "ledger {ledger} is empty and unowned, and stays"
        );
    }
    Ok(outcome.ledgers)
}
