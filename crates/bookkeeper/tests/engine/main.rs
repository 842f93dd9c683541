//! Tests of the engine with failing bookies, and with two engines on one ledger.

#![expect(clippy::unwrap_used, reason = "a test")]

#[path = "../cluster/mod.rs"]
mod cluster;
mod deferred_sync;
mod unconfirmed;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pharos_bookkeeper::machine::EnsembleChange;
use pharos_bookkeeper::{LedgerMetadata, LedgerStore, Options, PlacementOptions, Quorum, Spread};
use pharos_ledger::{
    Affinity, AppendError, CreateOptions, Durability, LedgerEngine, LedgerWriter, ReadError, Replication,
    Tail,
};
use pharos_metadata::{Expect, MetadataStore};
use pharos_types::{EntryId, LedgerId};

use cluster::{Bookie, Cluster, Mood, options};

const PATIENCE: Duration = Duration::from_secs(60);

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(test);
}

fn payload(entry: u64) -> Bytes {
    Bytes::from(format!("entry {entry}"))
}

fn append(writer: &dyn LedgerWriter, entries: std::ops::Range<u64>) {
    for entry in entries {
        assert_eq!(writer.append(payload(entry)).unwrap(), EntryId(entry));
    }
}

async fn tail_at(writer: &dyn LedgerWriter, durable: u64) -> Tail {
    let mut tail = writer.tail();
    let reached = tail.wait_for(|tail| tail.durable >= durable || tail.failed.is_some());
    let reached = tokio::time::timeout(PATIENCE, reached).await;
    reached.expect("the tail stands still").unwrap().clone()
}

async fn durable(writer: &dyn LedgerWriter, end: u64) {
    let tail = tail_at(writer, end).await;
    assert!(tail.failed.is_none() && tail.durable == end, "{tail:?}");
}

/// Waits for what comes by itself.
async fn wait_until(is_so: impl Fn() -> bool) {
    let waited = tokio::time::timeout(PATIENCE, async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    waited.await.expect("it does not come");
}

async fn holds(engine: &dyn LedgerEngine, ledger: LedgerId, end: u64) {
    holds_at_least(engine, ledger, end).await;
    assert!(engine.read(ledger, EntryId(end), 1, 1).await.unwrap().is_empty());
}

/// Checks the same for a ledger that may have grown meanwhile.
async fn holds_at_least(engine: &dyn LedgerEngine, ledger: LedgerId, end: u64) {
    let mut next = 0;
    while next < end {
        let found = engine.read(ledger, EntryId(next), 100, 1 << 20).await.unwrap();
        assert!(!found.is_empty(), "entry {next} of {end} is missing");
        for entry in found {
            assert_eq!((entry.id, entry.payload), (EntryId(next), payload(next)));
            next += 1;
        }
    }
}

async fn metadata(cluster: &Cluster, ledger: LedgerId) -> LedgerMetadata {
    let store = LedgerStore::new(Arc::clone(&cluster.store) as Arc<dyn MetadataStore>, "ledgers");
    store.read(ledger).await.unwrap().unwrap().0
}

/// A bookie of the ledger's newest entries.
async fn member(cluster: &Cluster, ledger: LedgerId) -> &Bookie {
    let metadata = metadata(cluster, ledger).await;
    cluster.bookie(&metadata.last_segment().unwrap().ensemble[1])
}

#[test]
fn a_bookie_that_dies_or_falls_silent_or_fills_up_is_exchanged_and_nothing_is_lost() {
    run(async {
        for mood in [Mood::Down, Mood::Silent, Mood::ReadOnly] {
            let cluster = Cluster::start(4).await;
            let engine = cluster.engine(options()).await;
            let writer = engine.create(CreateOptions::default()).await.unwrap();
            append(&*writer, 0..20);
            durable(&*writer, 20).await;
            let bad = member(&cluster, writer.id()).await;
            bad.set(mood);
            append(&*writer, 20..60);
            durable(&*writer, 60).await;
            // The add that fails last may come after the last entry is confirmed: another one makes it count.
            let mut next = 60;
            while metadata(&cluster, writer.id()).await.segments.len() == 1 {
                append(&*writer, next..next + 1);
                next += 1;
                durable(&*writer, next).await;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            writer.close().await.unwrap();
            let closed = metadata(&cluster, writer.id()).await;
            let last = closed.last_segment().unwrap();
            assert!(!last.ensemble.contains(&bad.id()), "{mood:?}: {closed:?}");
            holds(&engine, writer.id(), next).await;
        }
    });
}

#[test]
fn without_another_bookie_an_ack_quorum_is_enough() {
    run(async {
        for change in [
            EnsembleChange::AtOnce,
            EnsembleChange::WhenNeeded,
            EnsembleChange::Never,
        ] {
            let cluster = Cluster::start(3).await;
            let engine = cluster.engine(Options { change, ..options() }).await;
            let writer = engine.create(CreateOptions::default()).await.unwrap();
            append(&*writer, 0..10);
            durable(&*writer, 10).await;
            cluster.bookies[0].set(Mood::Down);
            append(&*writer, 10..50);
            durable(&*writer, 50).await;
            assert_eq!(metadata(&cluster, writer.id()).await.segments.len(), 1);
            holds(&engine, writer.id(), 50).await;
            writer.close().await.unwrap();
        }
    });
}

#[test]
fn too_few_bookies_end_the_writer_and_not_the_engine() {
    run(async {
        let cluster = Cluster::start(3).await;
        let engine = cluster.engine(options()).await;
        let writer = engine.create(CreateOptions::default()).await.unwrap();
        append(&*writer, 0..5);
        durable(&*writer, 5).await;
        cluster.bookies[0].set(Mood::Down);
        cluster.bookies[1].set(Mood::Down);
        append(&*writer, 5..6);
        let tail = tail_at(&*writer, u64::MAX).await;
        assert_eq!(tail.durable, 5);
        let failed = tail.failed.unwrap();
        assert!(failed.is_transient() && !failed.is_fenced(), "{failed}");
        let late = writer.append(payload(6));
        assert!(
            matches!(&late, Err(error @ AppendError::GivenUp { .. }) if error.is_transient()),
            "{late:?}"
        );
        assert!(engine.recover(writer.id()).await.unwrap_err().is_transient());
        cluster.bookies[0].set(Mood::Well);
        cluster.bookies[1].set(Mood::Well);
        // A bookie that could not be reached is left alone for a moment.
        let recovered = loop {
            match engine.recover(writer.id()).await {
                Ok(sealed) => break sealed,
                Err(error) => assert!(error.is_transient(), "{error:?}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        assert!((5..=6).contains(&recovered.entry_count), "{recovered:?}");
        holds(&engine, writer.id(), recovered.entry_count).await;
    });
}

#[test]
fn a_writer_that_another_engine_recovered_confirms_nothing_more() {
    run(async {
        let cluster = Cluster::start(4).await;
        let (old, new) = (cluster.engine(options()).await, cluster.engine(options()).await);
        let writer = old.create(CreateOptions::default()).await.unwrap();
        append(&*writer, 0..10);
        durable(&*writer, 10).await;
        let sealed = new.recover(writer.id()).await.unwrap();
        assert_eq!(sealed.entry_count, 10);
        // It may have heard of it already, when it told how far it got.
        let is_refused = |entry| matches!(writer.append(payload(entry)), Err(AppendError::Fenced { .. }));
        assert!(!is_refused(10) || is_refused(11));
        let tail = tail_at(&*writer, u64::MAX).await;
        let failed = tail.failed.unwrap();
        assert!(failed.is_fenced() && !failed.is_transient(), "{failed}");
        assert_eq!(tail.durable, 10);
        assert!(matches!(
            writer.append(payload(12)),
            Err(AppendError::Fenced { .. })
        ));
        assert!(matches!(writer.close().await, Err(AppendError::Fenced { .. })));
        assert_eq!(new.recover(writer.id()).await.unwrap(), sealed);
        holds(&new, writer.id(), 10).await;
    });
}

#[test]
fn another_engine_reads_an_open_ledger_as_far_as_it_is_confirmed() {
    run(async {
        let cluster = Cluster::start(3).await;
        let (one, two) = (cluster.engine(options()).await, cluster.engine(options()).await);
        let writer = one.create(CreateOptions::default()).await.unwrap();
        assert!(two.read(writer.id(), EntryId(0), 9, 99).await.unwrap().is_empty());
        append(&*writer, 0..5);
        durable(&*writer, 5).await;
        append(&*writer, 5..6);
        durable(&*writer, 6).await;
        // Entry 5 tells that 4 is confirmed; nothing has told of 5 yet.
        holds(&two, writer.id(), 5).await;
        holds(&one, writer.id(), 6).await;
    });
}

#[test]
fn a_writer_that_pauses_tells_how_far_it_got() {
    run(async {
        let cluster = Cluster::start(3).await;
        let telling = Options {
            explicit_lac_interval: Some(Duration::from_millis(20)),
            ..options()
        };
        let (one, two) = (cluster.engine(telling).await, cluster.engine(options()).await);
        let writer = one.create(CreateOptions::default()).await.unwrap();
        let sees_all = async |end: u64| {
            durable(&*writer, end).await;
            let reading = async {
                while two
                    .read(writer.id(), EntryId(end - 1), 1, 1)
                    .await
                    .unwrap()
                    .is_empty()
                {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            };
            tokio::time::timeout(PATIENCE, reading)
                .await
                .expect("the last entry is not seen");
            holds(&two, writer.id(), end).await;
        };
        append(&*writer, 0..6);
        sees_all(6).await;
        // Not in place of entries, and not by a bookie that has gone.
        cluster.bookies[0].set(Mood::Down);
        append(&*writer, 6..9);
        sees_all(9).await;
        writer.close().await.unwrap();
    });
}

#[test]
fn another_engine_follows_a_ledger_to_its_last_entry() {
    run(async {
        let cluster = Cluster::start(3).await;
        // No interval: what is told of the last entry is told because the ledger is followed.
        let (one, two) = (cluster.engine(options()).await, cluster.engine(options()).await);
        let followed = CreateOptions {
            is_followed: true,
            ..CreateOptions::default()
        };
        let writer = one.create(followed).await.unwrap();
        assert_eq!(two.follow(writer.id(), None).await.unwrap().entries, 0);
        let sees_all = async |mut seen: u64, end: u64| {
            let following = async {
                while seen < end {
                    let now = two.follow(writer.id(), Some(seen)).await.unwrap();
                    assert!(
                        !now.is_sealed && now.entries >= seen && now.entries <= end,
                        "{now:?}"
                    );
                    seen = now.entries;
                    holds_at_least(&two, writer.id(), seen).await;
                }
                holds(&two, writer.id(), end).await;
            };
            let followed = tokio::time::timeout(PATIENCE, following).await;
            followed.expect("the last entry is not heard of");
        };
        append(&*writer, 0..1);
        sees_all(0, 1).await;
        append(&*writer, 1..6);
        sees_all(1, 6).await;
        // Other bookies take over for one that has gone, also for those who follow.
        cluster.bookies[0].set(Mood::Down);
        append(&*writer, 6..9);
        sees_all(6, 9).await;
        writer.close().await.unwrap();
        while !two.follow(writer.id(), Some(9)).await.unwrap().is_sealed {}
    });
}

#[test]
fn a_slow_or_damaged_copy_is_made_up_for_by_another() {
    run(async {
        let cluster = Cluster::start(3).await;
        let quorum = Quorum::new(3, 3, 3).unwrap();
        let engine = cluster.engine(Options { quorum, ..options() }).await;
        let writer = engine.create(CreateOptions::default()).await.unwrap();
        append(&*writer, 0..8);
        writer.close().await.unwrap();
        let ledger = writer.id();
        for bookie in &cluster.bookies {
            bookie.set(Mood::Silent);
            holds(&engine, ledger, 8).await;
            bookie.set(Mood::Well);
        }
        cluster.bookies[0].damage(ledger.0, 3);
        cluster.bookies[1].damage(ledger.0, 3);
        holds(&engine, ledger, 8).await;
        cluster.bookies[2].damage(ledger.0, 3);
        let before = engine.read(ledger, EntryId(0), 100, 1 << 20).await.unwrap();
        assert_eq!(before.len(), 3);
        let damaged = engine.read(ledger, EntryId(3), 1, 1).await;
        assert!(
            matches!(
                damaged,
                Err(ReadError::Damaged {
                    entry: EntryId(3),
                    ..
                })
            ),
            "{damaged:?}"
        );
    });
}

#[test]
fn a_slow_bookie_is_asked_last() {
    run(async {
        let cluster = Cluster::start(3).await;
        let quorum = Quorum::new(3, 3, 3).unwrap();
        // Long enough for a bookie that is well on a machine that is not.
        let patient = Options {
            quorum,
            speculative_after: Duration::from_secs(1),
            read_timeout: PATIENCE,
            ..options()
        };
        let engine = cluster.engine(patient).await;
        let writer = engine.create(CreateOptions::default()).await.unwrap();
        append(&*writer, 0..40);
        writer.close().await.unwrap();
        holds(&engine, writer.id(), 40).await;
        // All entries of a ledger are asked of one bookie, the first one.
        let asked: Vec<_> = cluster.bookies.iter().map(Bookie::take_reads).collect();
        assert_eq!(asked.iter().filter(|reads| **reads > 0).count(), 1, "{asked:?}");
        let first = &cluster.bookies[asked.iter().position(|reads| *reads > 0).unwrap()];
        first.set(Mood::Silent);
        holds(&engine, writer.id(), 40).await;
        // The first reads found out; those behind them did not wait.
        let in_vain = first.take_reads();
        assert!((1..40).contains(&in_vain), "{in_vain}");
        holds(&engine, writer.id(), 40).await;
        assert_eq!(first.take_reads(), 0);
    });
}

#[test]
fn bookies_are_chosen_as_operators_want_it() {
    run(async {
        let cluster = Cluster::start(4).await;
        let names: Vec<String> = cluster
            .bookies
            .iter()
            .map(|bookie| bookie.id().to_string())
            .collect();
        let racks = format!(
            r#"{{"near":{{"{}":{{"rack":"/r/1"}},"{}":{{"rack":"/r/1"}},"{}":{{"rack":"/r/2"}}}},"far":{{"{}":{{"rack":"/r/3"}}}}}}"#,
            names[0], names[1], names[2], names[3]
        );
        cluster
            .store
            .put("bookies", racks.into(), Expect::Any)
            .await
            .unwrap();
        let placement = PlacementOptions {
            spread: Spread::Racks,
            apart_min: 2,
            by_free_disk: false,
        };
        let engine = cluster
            .engine(Options {
                placement,
                ..options()
            })
            .await;
        let create = async |ensemble, group: &str| {
            let affinity = Affinity {
                primary: vec![group.to_owned()],
                secondary: Vec::new(),
            };
            let replication = Replication {
                ensemble,
                write_quorum: ensemble,
                ack_quorum: ensemble,
            };
            let options = CreateOptions {
                affinity: Some(affinity),
                replication: Some(replication),
                ..CreateOptions::default()
            };
            engine.create(options).await
        };
        for _ in 0..4 {
            let writer = create(2, "near").await.unwrap();
            let ensemble = metadata(&cluster, writer.id()).await.segments[0].ensemble.clone();
            assert!(
                ensemble.contains(&cluster.bookies[2].id()),
                "one of each rack: {ensemble:?}"
            );
            assert!(
                !ensemble.contains(&cluster.bookies[3].id()),
                "not of another group: {ensemble:?}"
            );
        }
        let refused = create(2, "far").await.err().unwrap();
        assert!(refused.is_transient(), "{refused:?}");
        // A bookie fails: the other one of its rack takes its place, none of another group.
        let writer = create(2, "near").await.unwrap();
        let mut near = cluster.bookies[..2].iter();
        let ensemble = metadata(&cluster, writer.id()).await.segments[0].ensemble.clone();
        let bad = near.find(|bookie| ensemble.contains(&bookie.id())).unwrap();
        bad.set(Mood::Down);
        append(&*writer, 0..20);
        durable(&*writer, 20).await;
        let ensemble = metadata(&cluster, writer.id())
            .await
            .last_segment()
            .unwrap()
            .ensemble
            .clone();
        let near: Vec<_> = cluster.bookies[..3]
            .iter()
            .map(Bookie::id)
            .filter(|id| *id != bad.id())
            .collect();
        assert!(near.iter().all(|id| ensemble.contains(id)), "{ensemble:?}");
        // Quorums that no ledger can have are refused for good.
        let wrong = CreateOptions {
            replication: Some(Replication {
                ensemble: 2,
                write_quorum: 3,
                ack_quorum: 2,
            }),
            ..CreateOptions::default()
        };
        assert!(!engine.create(wrong).await.err().unwrap().is_transient());
    });
}

#[test]
fn bookies_with_more_room_get_more_ledgers() {
    run(async {
        let cluster = Cluster::start(3).await;
        for (bookie, free) in cluster.bookies.iter().zip([50 << 30, 100 << 30, 1_000 << 30]) {
            bookie.has_room(free);
        }
        let placement = PlacementOptions {
            by_free_disk: true,
            ..PlacementOptions::default()
        };
        let quorum = Quorum::new(1, 1, 1).unwrap();
        let engine = cluster
            .engine(Options {
                placement,
                quorum,
                ..options()
            })
            .await;
        let count = async |ledgers: usize| {
            let mut counts = [0; 3];
            for _ in 0..ledgers {
                let writer = engine.create(CreateOptions::default()).await.unwrap();
                let ensemble = metadata(&cluster, writer.id()).await.segments[0].ensemble.clone();
                counts[cluster
                    .bookies
                    .iter()
                    .position(|bookie| bookie.id() == ensemble[0])
                    .unwrap()] += 1;
            }
            counts
        };
        // They are asked once the engine runs, so the first ones may be dealt evenly.
        let asking = async {
            while count(18).await[2] != 12 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, asking)
            .await
            .expect("room makes no difference");
        assert_eq!(count(90).await, [10, 20, 60]);
    });
}

#[test]
fn what_waits_for_bookies_has_an_end() {
    run(async {
        let cluster = Cluster::start(3).await;
        let limited = Options {
            pending_bytes_max: 1_000,
            ..options()
        };
        let engine = cluster.engine(limited).await;
        let writer = engine.create(CreateOptions::default()).await.unwrap();
        for bookie in &cluster.bookies {
            bookie.set(Mood::Silent);
        }
        for _ in 0..10 {
            writer.append(Bytes::from(vec![1; 100])).unwrap();
        }
        let refused = writer.append(Bytes::from_static(b"x"));
        assert!(
            matches!(refused, Err(AppendError::Overloaded { .. })),
            "{refused:?}"
        );
        // What is given up gives its room back.
        assert!(tail_at(&*writer, u64::MAX).await.failed.is_some());
        for bookie in &cluster.bookies {
            bookie.set(Mood::Well);
        }
        let other = engine.create(CreateOptions::default()).await.unwrap();
        other.append(Bytes::from(vec![1; 900])).unwrap();
        durable(&*other, 1).await;
    });
}

#[test]
fn a_cluster_of_too_few_bookies_makes_no_ledger_until_there_are_enough() {
    run(async {
        let cluster = Cluster::start(2).await;
        let engine = cluster.engine(options()).await;
        let refused = engine.create(CreateOptions::default()).await.err().unwrap();
        assert!(refused.is_transient(), "{refused:?}");
        let third = Bookie::start();
        let key = format!("ledgers/available/{}", third.id());
        cluster
            .store
            .put(&key, Bytes::new(), pharos_metadata::Expect::Any)
            .await
            .unwrap();
        let writer = loop {
            if let Ok(writer) = engine.create(CreateOptions::default()).await {
                break writer;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        append(&*writer, 0..3);
        durable(&*writer, 3).await;
        // Two of the three bookies made the entries durable; the third may get its copies later.
        wait_until(|| third.has(writer.id().0, 0)).await;
    });
}
