//! Cleanup of what an earlier life gave up: it is removed for good while the next life runs, and nothing else is.

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
    /// Ledgers that were given up when it began.
    condemned: BTreeSet<LedgerId>,
    /// Ledgers that nothing named then.
    unnamed: Vec<LedgerId>,
    done: Rc<RefCell<Option<Result<CleanedUp, CleanUpError>>>>,
}

/// Looks at what there is before any topic is opened, and lets the clean-up run beside what follows.
///
/// `once_named`: every ledger that an info named at an earlier look. One of these that is there and not named any more is condemned:
/// else it would stay for ever.
pub(crate) async fn begin(process: &mut Process, once_named: &mut BTreeSet<LedgerId>) -> Alive<CleaningUp> {
    let engine: Arc<dyn LedgerEngine> = process.store.storage.clone();
    let metadata = process.metadata();
    let condemned = condemned(&*metadata).await;
    let there: BTreeSet<LedgerId> = engine.list().await.unwrap().into_iter().collect();
    let Named { all, closed } = named(&*metadata).await;
    let leaked: Vec<_> = once_named
        .intersection(&there)
        .filter(|ledger| !all.contains(ledger) && !condemned.contains(ledger))
        .collect();
    assert!(
        leaked.is_empty(),
        "ledgers that infos forgot are there for ever: {leaked:?}"
    );
    let missing: Vec<_> = closed.difference(&there).collect();
    assert!(
        missing.is_empty(),
        "infos name ledgers that are gone: {missing:?}"
    );
    once_named.extend(all);
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

/// Ledgers that infos name as in the engine.
struct Named {
    all: BTreeSet<LedgerId>,
    /// The ledgers among them that get no more entries: these are durable, however durable the topic is.
    closed: BTreeSet<LedgerId>,
}

async fn named(metadata: &dyn MetadataStore) -> Named {
    let (mut all, mut closed) = (BTreeSet::new(), BTreeSet::new());
    for item in metadata.scan(INFO_PREFIX).await.unwrap() {
        let info = ManagedLedgerInfo::parse(&item.key, &item.value).unwrap();
        all.extend(info.ledger_ids().map(LedgerId));
        let rows = info.ledgers.iter().filter(|row| row.closed_at_ms.is_some());
        closed.extend(rows.map(|row| LedgerId(row.ledger_id)));
    }
    closed.retain(|ledger| all.contains(ledger));
    Named { all, closed }
}

/// Remembers what infos name now.
pub(crate) async fn note_named(process: &Process, once_named: &mut BTreeSet<LedgerId>) {
    let metadata = process.metadata();
    once_named.extend(named(&*metadata).await.all);
}

/// Returns the ledgers that are given up: no info names them, and an info or a note condemns them.
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
