//! Ledgers that a killed process left behind after a deletion are deleted at the next start, and no others, whatever
//! the metadata is.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
#![allow(dead_code, reason = "the kills of other tests have more to kill")]

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, StreamExt};
use pharos_ledger::LedgerEngine;
use pharos_ledger::memory::MemoryEngine;
use pharos_managed_ledger::cursor_log::{CursorLogOptions, Record, Slot, SubscriptionId};
use pharos_managed_ledger::mortal::{CallEffect, Life};
use pharos_managed_ledger::{
    AckState, CleanedUp, CursorLog, Leftovers, ManagedLedger, ManagedLedgerInfo, OpenMode, Options,
    Retention, delete, delete_as, orphans,
};
use pharos_metadata::{Expect, MatchesLedgers, Memory, MetadataLayout, MetadataStore};
use pharos_types::{LedgerId, Ordinal};
use prost::Message as _;

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap()
        .block_on(future)
}

async fn open(
    name: &str,
    engine: &Arc<dyn LedgerEngine>,
    metadata: &Arc<dyn MetadataStore>,
) -> ManagedLedger {
    let options = Options {
        ledger_entries_max: 1,
        ledger_age_ms_min: 0,
        ..Options::default()
    };
    let (engine, metadata) = (Arc::clone(engine), Arc::clone(metadata));
    ManagedLedger::open(name, engine, metadata, options, OpenMode::Create, 1)
        .await
        .unwrap()
}

/// A topic of `ledgers` ledgers.
async fn filled(
    name: &str,
    ledgers: usize,
    engine: &Arc<dyn LedgerEngine>,
    metadata: &Arc<dyn MetadataStore>,
) -> ManagedLedger {
    let mut log = open(name, engine, metadata).await;
    for _ in 0..ledgers {
        log.append(Bytes::from("entry")).unwrap();
        maintain(&mut log).await;
    }
    log
}

async fn maintain(log: &mut ManagedLedger) {
    let mut steps = FuturesUnordered::new();
    loop {
        while let Some(step) = log.take_maintenance(1) {
            steps.push(step);
        }
        match steps.next().await {
            Some(done) => drop(log.on_maintenance(done, 1)),
            None => return,
        }
    }
}

/// Subscribes, and moves until the cursor log has rolled some times.
async fn roll_cursors(log: &ManagedLedger) {
    let options = CursorLogOptions {
        roll_bytes_min: 20,
        roll_factor: 1,
        ..CursorLogOptions::default()
    };
    let mut cursors = CursorLog::open(log, options, 1).await.unwrap();
    let (subscription, slot) = (SubscriptionId(0), Slot(0));
    let mut records = vec![];
    if cursors.subscriptions().is_empty() {
        records.push(Record::SubscriptionCreated {
            subscription,
            name: "s".to_owned(),
            kind: 0,
            properties: Default::default(),
            facts: Vec::new(),
        });
    }
    if cursors.cursor(slot).is_none() {
        records.push(Record::CursorCreated {
            slot,
            subscription,
            consumer: String::new(),
            facts: Vec::new(),
            acks: AckState::new(Ordinal(0)),
        });
    }
    let moved = |to| Record::CursorMoved {
        slot,
        acks: AckState::new(Ordinal(to)),
    };
    records.extend((0..40).map(|at| moved(at % 5)));
    for record in records {
        cursors.queue(record).unwrap();
        let ticket = cursors.commit();
        while let Some(step) = cursors.take_maintenance(1) {
            let done = step.await;
            cursors.on_maintenance(done, 1);
        }
        ticket.durable().await.unwrap();
    }
}

/// Runs a topic through operations that give ledgers up.
async fn live(engine: Arc<dyn LedgerEngine>, metadata: Arc<dyn MetadataStore>) {
    let mut log = filled("t", 8, &engine, &metadata).await;
    roll_cursors(&log).await;
    log.trim(Ordinal(4), Retention::NONE, 2);
    maintain(&mut log).await;
    log.close().await.unwrap();
    let log = open("t", &engine, &metadata).await;
    drop(log);
    delete("t", engine, &*metadata).await.unwrap();
}

/// Starts after a kill: cleans up, and says what is there that nothing names.
async fn start(engine: &MemoryEngine, metadata: &Memory) -> (CleanedUp, Vec<LedgerId>) {
    let done = clean_up(engine, metadata, MatchesLedgers::since(0)).await;
    (done, orphans(engine, metadata).await.unwrap())
}

async fn clean_up(engine: &MemoryEngine, metadata: &Memory, proof: MatchesLedgers) -> CleanedUp {
    let mut left = Leftovers::find(engine, metadata, proof).await.unwrap();
    left.clean_up(engine, metadata).await.unwrap()
}

async fn there(engine: &MemoryEngine) -> BTreeSet<LedgerId> {
    engine.list().await.unwrap().into_iter().collect()
}

#[test]
fn a_kill_at_any_step_leaves_no_ledger_that_held_something() {
    let (mut kills, mut cleaned) = (0, 0);
    for death in [CallEffect::Not, CallEffect::Happens] {
        for nth in 0.. {
            let (engine, metadata) = (MemoryEngine::new(), Arc::new(Memory::new()));
            let life = Life::dying(nth, death);
            let killed = run(async {
                let stores: (Arc<dyn LedgerEngine>, Arc<dyn MetadataStore>) =
                    (Arc::new(engine.clone()), Arc::<Memory>::clone(&metadata));
                tokio::select! {
                    () = live(life.engine(stores.0), life.store(stores.1)) => false,
                    () = life.death() => true,
                }
            });
            if !killed {
                break;
            }
            kills += 1;
            run(async {
                let engine = engine.crash();
                let (done, unnamed) = start(&engine, &metadata).await;
                cleaned += done.ledgers;
                assert_eq!(done.unnamed, unnamed.len() as u64, "kill {nth} {death:?}");
                // One that was made and not named in time, with a snapshot in it: the next cursor ledger.
                assert!(unnamed.len() <= 1, "kill {nth} {death:?}: {unnamed:?}");
                for ledger in &unnamed {
                    let held = engine.recover(*ledger).await.unwrap().entry_count;
                    assert!(held > 0, "kill {nth} {death:?}: {ledger} is empty and stays");
                }
                let notes = metadata.list("ledger-garbage/").await.unwrap();
                assert!(notes.is_empty(), "kill {nth} {death:?}: {notes:?}");
                if metadata.list("managed-ledgers/").await.unwrap().is_empty() {
                    let left = engine.list().await.unwrap();
                    assert_eq!(left, unnamed, "kill {nth} {death:?}");
                }
                // What is left works to its end.
                live(Arc::new(engine.clone()), Arc::<Memory>::clone(&metadata)).await;
                assert_eq!(engine.list().await.unwrap(), unnamed, "kill {nth} {death:?}");
            });
        }
    }
    assert!(kills > 100, "only {kills} effects were met");
    assert!(cleaned > 20, "only {cleaned} ledgers were left");
}

#[test]
fn a_deletion_that_is_tried_again_deletes_what_the_first_try_left() {
    run(async {
        let engine = MemoryEngine::new();
        let metadata: Arc<dyn MetadataStore> = Arc::new(Memory::new());
        let shared: Arc<dyn LedgerEngine> = Arc::new(engine.clone());
        drop(filled("other", 3, &shared, &metadata).await);
        let others = there(&engine).await;
        drop(filled("t", 6, &shared, &metadata).await);
        let layout = MetadataLayout::Pharos;
        let condemned_from = LedgerId(others.last().unwrap().0 + 5);
        for (deletions, from) in [(2, LedgerId(0)), (0, condemned_from)] {
            let life = Life::dying(deletions, CallEffect::Not);
            tokio::select! {
                it = delete_as(layout, from, "t", life.engine(Arc::clone(&shared)), &*metadata) => panic!("{it:?}"),
                () = life.death() => {}
            }
        }
        let left: BTreeSet<LedgerId> = there(&engine).await.difference(&others).copied().collect();
        assert!(left.len() > 3 && left.iter().any(|ledger| *ledger < condemned_from));
        // Another topic of its name has nothing to do with them.
        drop(filled("t", 1, &shared, &metadata).await);
        assert!(delete("t", Arc::clone(&shared), &*metadata).await.unwrap());
        assert!(left.is_subset(&there(&engine).await));

        // What may be another's under the same number stays, with its note.
        let again = |from| delete_as(layout, from, "t", Arc::clone(&shared), &*metadata);
        assert!(!again(condemned_from).await.unwrap());
        let spared: BTreeSet<LedgerId> = left.into_iter().filter(|it| *it < condemned_from).collect();
        assert_eq!(there(&engine).await, others.union(&spared).copied().collect());
        assert!(!again(LedgerId(0)).await.unwrap());
        assert_eq!(there(&engine).await, others);
        assert!(metadata.list("ledger-garbage/").await.unwrap().is_empty());
    });
}

/// Another store with what this one holds now.
async fn copy_of(metadata: &Memory) -> Memory {
    let copy = Memory::new();
    for item in metadata.scan("").await.unwrap() {
        copy.put(&item.key, item.value, Expect::Any).await.unwrap();
    }
    copy
}

#[test]
fn metadata_that_is_empty_older_or_foreign_condemns_nothing() {
    run(async {
        let (engine, metadata) = (MemoryEngine::new(), Arc::new(Memory::new()));
        let stores: (Arc<dyn LedgerEngine>, Arc<dyn MetadataStore>) =
            (Arc::new(engine.clone()), Arc::<Memory>::clone(&metadata));
        let mut log = filled("one", 6, &stores.0, &stores.1).await;
        roll_cursors(&log).await;
        log.trim(Ordinal(2), Retention::NONE, 2);
        maintain(&mut log).await;
        let older = copy_of(&metadata).await;
        // Life goes on: more ledgers, new cursors, another topic, and one that is deleted.
        for _ in 0..6 {
            log.append(Bytes::from("entry")).unwrap();
            maintain(&mut log).await;
        }
        roll_cursors(&log).await;
        drop(filled("two", 6, &stores.0, &stores.1).await);
        drop(filled("three", 6, &stores.0, &stores.1).await);
        delete("three", Arc::clone(&stores.0), &*metadata).await.unwrap();
        drop(log);
        let foreign = Arc::new(Memory::new());
        let other: (Arc<dyn LedgerEngine>, Arc<dyn MetadataStore>) =
            (Arc::new(MemoryEngine::new()), Arc::<Memory>::clone(&foreign));
        drop(filled("one", 3, &other.0, &other.1).await);

        // What was given up there has the numbers of what is alive here.
        let condemning = Arc::new(Memory::new());
        let numbers = MemoryEngine::new();
        let other: (Arc<dyn LedgerEngine>, Arc<dyn MetadataStore>) =
            (Arc::new(numbers.clone()), Arc::<Memory>::clone(&condemning));
        drop(filled("gone", 12, &other.0, &other.1).await);
        let life = Life::dying(1, CallEffect::Happens);
        let killed = life.store(Arc::clone(&other.1));
        tokio::select! {
            gone = delete("gone", Arc::clone(&other.0), &*killed) => panic!("{gone:?}"),
            () = life.death() => {}
        }

        let before = there(&engine).await;
        // A store that is not the one of these ledgers opens only where the caller insists, and covers what is made from then on.
        let insisted = MatchesLedgers::since(before.last().unwrap().0 + 1);
        for (what, store) in [
            ("empty", &Memory::new()),
            ("older", &older),
            ("foreign", &*foreign),
            ("foreign and condemning", &*condemning),
        ] {
            let done = clean_up(&engine, store, insisted).await;
            assert_eq!(done.ledgers, 0, "{what}");
            assert!(done.unnamed > 0, "{what}: it is said");
            assert_eq!(there(&engine).await, before, "{what}");
        }
        // With its own metadata everything is there.
        let log = open("one", &stores.0, &stores.1).await;
        assert_eq!((log.first(), log.end()), (Ordinal(2), Ordinal(12)));
        assert_eq!(log.read(Ordinal(11), 1, 100).await.unwrap().len(), 1);
    });
}

#[test]
fn a_topic_opens_without_deleting_what_others_may_have_under_its_numbers() {
    run(async {
        let engine = MemoryEngine::new();
        let metadata: Arc<dyn MetadataStore> = Arc::new(Memory::new());
        let shared: Arc<dyn LedgerEngine> = Arc::new(engine.clone());
        drop(filled("t", 6, &shared, &metadata).await);
        let key = "managed-ledgers/t";
        let stored = metadata.get(key).await.unwrap().unwrap();
        let mut info = ManagedLedgerInfo::parse(key, &stored.value).unwrap();
        let given_up: Vec<_> = info.ledgers.drain(..3).map(|row| row.ledger_id).collect();
        info.first_ordinal += 3;
        info.deleting.extend(&given_up);
        let value = Bytes::from(info.encode_to_vec());
        metadata
            .put(key, value, Expect::Version(stored.version))
            .await
            .unwrap();
        let next = there(&engine).await.last().unwrap().0 + 1;
        for (condemned_from, are_there) in [(next, true), (0, false)] {
            let options = Options {
                condemned_from: LedgerId(condemned_from),
                ..Options::default()
            };
            let (engine_of, metadata) = (Arc::clone(&shared), Arc::clone(&metadata));
            let opened = ManagedLedger::open("t", engine_of, metadata, options, OpenMode::Existing, 1);
            drop(opened.await.unwrap());
            let left = there(&engine).await;
            let found = given_up.iter().all(|ledger| left.contains(&LedgerId(*ledger)));
            assert_eq!(found, are_there, "{condemned_from}");
        }
    });
}
