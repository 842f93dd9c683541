//! Offloading over the in-memory engine and a real folder: what is offloaded when, which copy is read, and what is left when the
//! process is killed between any two of its steps.

#![expect(clippy::unwrap_used, reason = "a test that fails panics")]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, StreamExt};
use pharos_ledger::LedgerEngine;
use pharos_ledger::memory::MemoryEngine;
use pharos_ledger::offload::{OffloadPolicy, ReadFirst};
use pharos_managed_ledger::mortal::{CallEffect, Life};
use pharos_managed_ledger::{
    GARBAGE_PREFIX, INFO_PREFIX, Leftovers, MaintenanceEvent, ManagedLedger, ManagedLedgerInfo,
    OffloadStatus, OffloadWork, OpenMode, Options, ReadError, Retention, orphans, sweep,
};
use pharos_metadata::{Expect, MatchesLedgers, Memory, MetadataStore};
use pharos_offload::{Offloader, drivers};
use pharos_types::{EntryId, LedgerId, Ordinal, Position};

mod mortal;

const NAME: &str = "public/default/persistent/t";

/// Devices, which survive a kill.
struct World {
    engine: MemoryEngine,
    metadata: Arc<Memory>,
    folder: tempfile::TempDir,
    offloader: Arc<Offloader>,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = pharos_offload::Options {
            folders_in: Some(folder.path().to_path_buf()),
            ..pharos_offload::Options::default()
        };
        Self {
            engine: MemoryEngine::new(),
            metadata: Arc::new(Memory::new()),
            folder,
            offloader: Arc::new(Offloader::start(options).unwrap()),
        }
    }

    fn policy(&self) -> OffloadPolicy {
        OffloadPolicy {
            target: Some(drivers::folder(self.folder.path())),
            bytes_kept: Some(0),
            deletion_lag_ms: Some(0),
            ..OffloadPolicy::default()
        }
    }

    async fn open(&self, life: &Life) -> ManagedLedger {
        let options = Options {
            ledger_entries_max: 3,
            ledger_age_ms_min: 0,
            cache_bytes_max: 0,
            offloader: Some(mortal::offloader(life, self.offloader.clone())),
            ..Options::default()
        };
        let engine = life.engine(Arc::new(self.engine.clone()));
        let metadata = life.store(self.metadata.clone());
        ManagedLedger::open(NAME, engine, metadata, options, OpenMode::Create, 1_000)
            .await
            .unwrap()
    }

    async fn info(&self) -> Option<ManagedLedgerInfo> {
        let key = format!("{INFO_PREFIX}{NAME}");
        let found = self.metadata.get(&key).await.unwrap()?;
        Some(ManagedLedgerInfo::parse(NAME, &found.value).unwrap())
    }

    fn objects(&self) -> BTreeSet<String> {
        let entries = std::fs::read_dir(self.folder.path()).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    /// Objects expected in the folder according to the info.
    async fn objects_named(&self) -> BTreeSet<String> {
        let info = self.info().await.unwrap_or_default();
        let names = |object| [data_name(&object), object.index_name()];
        info.objects().flat_map(names).collect()
    }
}

fn data_name(object: &pharos_ledger::offload::OffloadedLedger) -> String {
    object.data_name()
}

fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(test);
}

/// Runs every step there is; `now_ms` for ages.
async fn maintain(log: &mut ManagedLedger, now_ms: u64) -> Vec<MaintenanceEvent> {
    let mut steps = FuturesUnordered::new();
    let mut events = Vec::new();
    loop {
        while let Some(step) = log.take_maintenance(now_ms) {
            steps.push(step);
        }
        let Some(done) = steps.next().await else {
            return events;
        };
        events.push(log.on_maintenance(done, now_ms));
    }
}

/// Plans and runs until nothing is left to do.
async fn settle(log: &mut ManagedLedger, policy: &OffloadPolicy, now_ms: u64) {
    for round in 0.. {
        OffloadWork::of(log).plan(policy, now_ms);
        let events = maintain(log, now_ms).await;
        assert!(
            !events
                .iter()
                .any(|event| matches!(event, MaintenanceEvent::Retrying(_) | MaintenanceEvent::Failed(_))),
            "{events:?}"
        );
        if events.is_empty() {
            return;
        }
        assert!(round < 50, "it does not come to an end");
    }
}

async fn fill(log: &mut ManagedLedger, end: u64) {
    while log.end().0 < end {
        let payload = log.end().0.to_string().repeat(10);
        log.append(Bytes::from(payload)).unwrap();
        maintain(log, 1_000).await;
    }
}

async fn check_all(log: &ManagedLedger, end: u64) {
    assert_eq!(log.durable_end(), Ordinal(end));
    let mut at = log.first();
    while at.0 < end {
        let entries = log.read(at, 100, 1 << 20).await.unwrap();
        for entry in entries {
            assert_eq!(entry.ordinal, at);
            assert_eq!(entry.payload, at.0.to_string().repeat(10));
            at = at.next();
        }
    }
}

#[test]
fn closed_ledgers_move_and_everything_is_read_as_before() {
    let world = World::new();
    run(async {
        let mut log = world.open(&Life::new()).await;
        fill(&mut log, 10).await;
        let closed: Vec<LedgerId> = log.ledgers()[..3].iter().map(|row| row.id).collect();
        let reader = log.reader();
        settle(&mut log, &world.policy(), 2_000).await;
        assert_eq!(log.offloads().stats().ledgers, closed.iter().copied().collect());
        assert_eq!(world.objects(), world.objects_named().await);
        assert_eq!(world.objects().len(), 6);
        let left = world.engine.list().await.unwrap();
        assert!(closed.iter().all(|ledger| !left.contains(ledger)), "{left:?}");
        check_all(&log, 10).await;
        // Readers that were given out before know as well.
        let old = reader.read(Ordinal(1), Ordinal(10), 1, 1).await.unwrap();
        assert_eq!(old[0].payload, "1111111111");
        assert_eq!(
            log.find_first(|payload| payload >= "7777777777").await.unwrap(),
            Ordinal(7)
        );
        assert!(orphans(&world.engine, &*world.metadata).await.unwrap().is_empty());
        log.close().await.unwrap();

        let mut log = world.open(&Life::new()).await;
        check_all(&log, 10).await;
        assert_eq!(log.offloads().stats().ledgers.len(), 3);
        // Trimming takes the objects as well.
        log.trim(Ordinal(6), Retention::NONE, 3_000);
        settle(
            &mut log,
            &OffloadPolicy {
                deletion_lag_ms: None,
                ..world.policy()
            },
            3_000,
        )
        .await;
        assert_eq!(log.first(), Ordinal(6));
        assert_eq!(world.objects(), world.objects_named().await);
        check_all(&log, 10).await;
        log.close().await.unwrap();

        let engine = Arc::new(world.engine.clone());
        assert!(
            pharos_managed_ledger::delete(NAME, engine, &*world.metadata)
                .await
                .unwrap()
        );
        assert!(
            !world.objects().is_empty(),
            "deleting a topic does not wait for the object store"
        );
        let swept = sweep(&*world.metadata, &*world.offloader).await.unwrap();
        assert!(swept.deleted >= 1 && swept.left.is_none());
        assert_eq!(world.objects(), BTreeSet::new());
        assert!(
            world.metadata.list("").await.unwrap().is_empty(),
            "no note is left"
        );
    });
}

#[test]
fn thresholds_choose_the_oldest_ledgers_by_size_and_by_age() {
    let world = World::new();
    run(async {
        let mut log = world.open(&Life::new()).await;
        fill(&mut log, 10).await;
        let ids: Vec<LedgerId> = log.ledgers().iter().map(|row| row.id).collect();
        let off = OffloadPolicy {
            bytes_kept: None,
            deletion_lag_ms: None,
            ..world.policy()
        };
        settle(&mut log, &off, 1_500).await;
        assert!(log.offloads().stats().ledgers.is_empty());
        // Closed ledgers have 30 bytes each.
        let by_size = OffloadPolicy {
            bytes_kept: Some(60),
            ..off.clone()
        };
        settle(&mut log, &by_size, 1_500).await;
        assert_eq!(log.offloads().stats().ledgers, [ids[0]].into());
        let kept = OffloadPolicy {
            age_ms_max: Some(5_000),
            ..off.clone()
        };
        settle(&mut log, &kept, 5_999).await;
        assert_eq!(log.offloads().stats().ledgers.len(), 1);
        settle(&mut log, &kept, 6_000).await;
        assert_eq!(log.offloads().stats().ledgers.len(), 3);
        assert_eq!(log.offloads().stats().bytes, 90);
        // The engine's copies go when the lag is over, not before.
        let lag = OffloadPolicy {
            deletion_lag_ms: Some(1_000),
            ..off
        };
        settle(&mut log, &lag, 6_500).await;
        assert!(world.engine.list().await.unwrap().contains(&ids[1]));
        settle(&mut log, &lag, 7_000).await;
        assert!(!world.engine.list().await.unwrap().contains(&ids[1]));
        check_all(&log, 10).await;
    });
}

#[test]
fn an_administrator_may_ask_and_hears_what_came_of_it() {
    let world = World::new();
    run(async {
        let mut log = world.open(&Life::new()).await;
        fill(&mut log, 10).await;
        let ids: Vec<LedgerId> = log.ledgers().iter().map(|row| row.id).collect();
        let manual = OffloadPolicy {
            bytes_kept: None,
            deletion_lag_ms: None,
            ..world.policy()
        };
        let before = |ledger| Position {
            ledger,
            entry: EntryId(0),
        };
        assert_eq!(log.offloads().status(), OffloadStatus::NotRun);
        let nowhere = OffloadPolicy {
            target: None,
            ..manual.clone()
        };
        assert!(
            OffloadWork::of(&mut log)
                .ask(before(ids[2]), &nowhere, 2_000)
                .is_err()
        );
        OffloadWork::of(&mut log)
            .ask(before(ids[2]), &manual, 2_000)
            .unwrap();
        assert_eq!(log.offloads().status(), OffloadStatus::Running);
        assert!(
            OffloadWork::of(&mut log)
                .ask(before(ids[2]), &manual, 2_000)
                .is_err(),
            "one at a time"
        );
        maintain(&mut log, 2_000).await;
        assert_eq!(
            log.offloads().status(),
            OffloadStatus::Success(Some(before(ids[2])))
        );
        assert_eq!(log.offloads().stats().ledgers, [ids[0], ids[1]].into());
        // Nothing left to do is a success at once.
        OffloadWork::of(&mut log)
            .ask(before(ids[1]), &manual, 2_000)
            .unwrap();
        assert_eq!(
            log.offloads().status(),
            OffloadStatus::Success(Some(before(ids[2])))
        );
        // A store that refuses is a failure that says why.
        let elsewhere = drivers::folder(Path::new("/nowhere-near"));
        let refused = OffloadWork::of(&mut log).ask(
            before(ids[3]),
            &OffloadPolicy {
                target: Some(elsewhere),
                ..manual
            },
            2_000,
        );
        assert!(refused.unwrap_err().to_string().contains("cannot offload"));
    });
}

#[test]
fn the_preferred_copy_is_read_and_the_other_one_when_it_is_bad() {
    let world = World::new();
    run(async {
        let mut log = world.open(&Life::new()).await;
        fill(&mut log, 7).await;
        let both = OffloadPolicy {
            deletion_lag_ms: None,
            ..world.policy()
        };
        settle(&mut log, &both, 2_000).await;
        let fetched = || world.offloader.stats().entries_read;
        check_all(&log, 7).await;
        assert!(fetched() > 0, "tiered first");
        let before = fetched();
        let local = OffloadPolicy {
            read_first: ReadFirst::Local,
            ..both.clone()
        };
        settle(&mut log, &local, 2_000).await;
        check_all(&log, 7).await;
        assert_eq!(fetched(), before, "local first");
        world.engine.damage(log.ledgers()[0].id, EntryId(1));
        check_all(&log, 7).await;
        assert!(
            fetched() > before,
            "the other copy is asked when the first is damaged"
        );

        // Without objects there is still the engine's copy of the second ledger, but that one is not deleted any more.
        log.close().await.unwrap();
        for object in world.objects() {
            std::fs::remove_file(world.folder.path().join(object)).unwrap();
        }
        let world = World {
            offloader: World::restarted(&world),
            ..world
        };
        let mut log = world.open(&Life::new()).await;
        OffloadWork::of(&mut log).plan(&both, 3_000);
        let second = log.read(Ordinal(3), 100, 1 << 20).await.unwrap();
        assert_eq!(second[0].payload, "3333333333");
        let lost = log.read(Ordinal(1), 100, 1 << 20).await.unwrap_err();
        let ReadError::Offload(cause) = lost else {
            panic!("{lost}");
        };
        assert!(
            cause.to_string().contains("-ledger-"),
            "names the object: {cause}"
        );
        OffloadWork::of(&mut log).plan(&world.policy(), 3_000);
        let events = maintain(&mut log, 3_000).await;
        assert!(
            matches!(events.as_slice(), [MaintenanceEvent::Retrying(_)]),
            "{events:?}"
        );
        assert!(world.engine.list().await.unwrap().contains(&log.ledgers()[1].id));
    });
}

#[test]
fn closing_does_not_wait_for_a_store_that_does_not_answer() {
    let world = World::new();
    run(async {
        let mut log = world.open(&Life::new()).await;
        fill(&mut log, 7).await;
        let both = OffloadPolicy {
            deletion_lag_ms: None,
            ..world.policy()
        };
        settle(&mut log, &both, 2_000).await;
        log.close().await.unwrap();
        // From its next effect on, this life's stores answer nothing: the upload of one more ledger, then a clean-up.
        for trimmed in [false, true] {
            let mut log = world.open(&Life::new()).await;
            let options = Options {
                ledger_entries_max: 3,
                ledger_age_ms_min: 0,
                offloader: Some(mortal::offloader(
                    &Life::dying(0, CallEffect::Not),
                    world.offloader.clone(),
                )),
                ..Options::default()
            };
            if trimmed {
                log.trim(Ordinal(3), Retention::NONE, 2_000);
                maintain(&mut log, 2_000).await;
            }
            log.close().await.unwrap();
            let (engine, metadata) = (Arc::new(world.engine.clone()), world.metadata.clone());
            let opened = ManagedLedger::open(NAME, engine, metadata, options, OpenMode::Create, 2_000);
            let mut log = opened.await.unwrap();
            OffloadWork::of(&mut log).plan(&both, 2_000);
            let step = log.take_maintenance(2_000).unwrap();
            assert!(log.offloads().is_running());
            OffloadWork::of(&mut log).stop();
            let event = log.on_maintenance(step.await, 2_000);
            assert!(matches!(event, MaintenanceEvent::Nothing), "{event:?}");
            assert!(!log.offloads().is_running() && log.take_maintenance(2_000).is_none());
            log.close().await.unwrap();
        }
        let mut log = world.open(&Life::new()).await;
        settle(&mut log, &both, 3_000).await;
        assert_eq!(world.objects(), world.objects_named().await);
        check_all(&log, 7).await;
    });
}

impl World {
    /// An offloader that remembers nothing.
    fn restarted(world: &Self) -> Arc<Offloader> {
        let options = pharos_offload::Options {
            folders_in: Some(world.folder.path().to_path_buf()),
            ..pharos_offload::Options::default()
        };
        Arc::new(Offloader::start(options).unwrap())
    }
}

/// The whole life of a topic, from wherever it is: filled, offloaded, trimmed, deleted.
async fn live(world: &World, life: &Life) {
    let metadata = life.store(world.metadata.clone());
    let engine = life.engine(Arc::new(world.engine.clone()));
    let is_trimmed = world.info().await.is_some_and(|info| info.first_ordinal > 0);
    if !is_trimmed {
        let mut log = world.open(life).await;
        fill(&mut log, 10).await;
        let mut now_ms = 2_000;
        for _ in 0..20 {
            OffloadWork::of(&mut log).plan(&world.policy(), now_ms);
            maintain(&mut log, now_ms).await;
            // Past every pause, should a step have failed.
            now_ms += 1_000_000;
        }
        check_all(&log, 10).await;
        log.trim(Ordinal(6), Retention::NONE, now_ms);
        for _ in 0..5 {
            maintain(&mut log, now_ms).await;
            OffloadWork::of(&mut log).plan(&world.policy(), now_ms);
            now_ms += 1_000_000;
        }
        check_all(&log, 10).await;
        log.close().await.unwrap();
    }
    pharos_managed_ledger::delete(NAME, engine, &*metadata)
        .await
        .unwrap();
    let offloader = mortal::offloader(life, world.offloader.clone());
    sweep(&*metadata, &*offloader).await.unwrap();
}

/// Kills the process at its `nth` effect on a device; `death` says whether that effect still happens. Then restarts it, checks
/// what is there, and lets it live to the end. Returns whether it was killed at all.
fn kill_at(nth: usize, death: CallEffect) -> bool {
    let world = World::new();
    let mut killed = false;
    run(async {
        let life = Life::dying(nth, death);
        tokio::select! {
            () = live(&world, &life) => return,
            () = life.death() => killed = true,
        }
        let world = World {
            engine: world.engine.crash(),
            offloader: World::restarted(&world),
            ..world
        };
        // As the node does at its start.
        let proof = MatchesLedgers::since(0);
        let left = Leftovers::find(&world.engine, &*world.metadata, proof).await;
        let done = left.unwrap().clean_up(&world.engine, &*world.metadata).await;
        assert_eq!(done.unwrap().unnamed, 0, "kill {nth} {death:?}");
        let unnamed = orphans(&world.engine, &*world.metadata).await.unwrap();
        assert!(unnamed.is_empty(), "kill {nth} {death:?}: {unnamed:?}");
        sweep(&*world.metadata, &*world.offloader).await.unwrap();
        if let Some(info) = world.info().await {
            let mut log = world.open(&Life::new()).await;
            let end = log.end().0;
            assert!(info.first_ordinal == 0 || end == 10);
            check_all(&log, end).await;
            settle(&mut log, &world.policy(), 100_000_000).await;
            check_all(&log, end).await;
            assert_eq!(
                world.objects(),
                world.objects_named().await,
                "kill {nth} {death:?}"
            );
            log.close().await.unwrap();
        }
        live(&world, &Life::new()).await;
        assert_eq!(world.objects(), BTreeSet::new(), "kill {nth} {death:?}");
        assert!(
            world.engine.list().await.unwrap().is_empty(),
            "kill {nth} {death:?}"
        );
        assert!(world.metadata.list("").await.unwrap().is_empty());
    });
    killed
}

/// Deletions of other topics sweep too.
#[test]
fn a_sweep_in_the_midst_of_a_deletion_forgets_nothing() {
    let world = World::new();
    run(async {
        let mut log = world.open(&Life::new()).await;
        fill(&mut log, 10).await;
        settle(&mut log, &world.policy(), 2_000).await;
        log.close().await.unwrap();
        // The deletion stands still after its first step.
        let life = Life::dying(0, CallEffect::Happens);
        let engine = life.engine(Arc::new(world.engine.clone()));
        let metadata = life.store(world.metadata.clone());
        tokio::select! {
            deleted = pharos_managed_ledger::delete(NAME, engine, &*metadata) => panic!("{deleted:?}"),
            () = life.death() => {}
        }
        let swept = sweep(&*world.metadata, &*world.offloader).await.unwrap();
        assert_eq!(swept.deleted, 0, "they are owned");
        // Its last step.
        let key = format!("{INFO_PREFIX}{NAME}");
        world.metadata.delete(&key, Expect::Any).await.unwrap();
        assert!(!world.objects().is_empty());
        sweep(&*world.metadata, &*world.offloader).await.unwrap();
        assert_eq!(world.objects(), BTreeSet::new());
        let notes = world.metadata.list(GARBAGE_PREFIX).await.unwrap();
        assert!(notes.is_empty(), "{notes:?}");
    });
}

#[test]
fn a_kill_between_any_two_steps_loses_nothing_and_leaves_nothing() {
    for death in [CallEffect::Not, CallEffect::Happens, CallEffect::Half] {
        let kills = (0..).take_while(|nth| kill_at(*nth, death)).count();
        assert!(kills > 25, "only {kills} effects were met");
    }
}
