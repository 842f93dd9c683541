//! Ledgers whose bookies acknowledge entries before they are on disk.

use super::*;

#[test]
fn what_was_forced_or_sealed_survives_and_the_rest_is_a_prefix() {
    run(async {
        let cluster = Cluster::start(3).await;
        let forcing = Options {
            force_interval: Duration::from_millis(20),
            ..options()
        };
        let engine = cluster.engine(forcing).await;
        let create = async |durability| {
            let options = CreateOptions {
                durability,
                ..CreateOptions::default()
            };
            engine.create(options).await.unwrap()
        };
        let unsynced = |ledger: LedgerId| cluster.bookies.iter().map(|b| b.unsynced(ledger.0)).max();
        let (strict, weak) = (create(Durability::Sync).await, create(Durability::Async).await);
        append(&*strict, 0..20);
        durable(&*strict, 20).await;
        assert_eq!(unsynced(strict.id()), Some(0));
        append(&*weak, 0..20);
        durable(&*weak, 20).await;
        let all_forced = async {
            while unsynced(weak.id()) != Some(0) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, all_forced)
            .await
            .expect("nothing is forced");
        append(&*weak, 20..25);
        durable(&*weak, 25).await;
        let lose_power = || cluster.bookies.iter().for_each(Bookie::lose_power);
        lose_power();
        let other = cluster.engine(options()).await;
        let sealed = other.recover(weak.id()).await.unwrap();
        assert!((20..=25).contains(&sealed.entry_count), "{sealed:?}");
        lose_power();
        holds(&other, weak.id(), sealed.entry_count).await;
        // What is sealed is on disk.
        let closed = create(Durability::Bypass).await;
        append(&*closed, 0..30);
        closed.close().await.unwrap();
        lose_power();
        holds(&other, closed.id(), 30).await;
    });
}

/// A bookie crashes with what it has not synced, and is back before the next force. It has two copies of each entry in the end.
#[test]
fn a_bookie_that_crashed_gets_again_what_it_lost() {
    run(async {
        for is_closed in [false, true] {
            let cluster = Cluster::start(2).await;
            let forcing = Options {
                quorum: Quorum::new(2, 2, 2).unwrap(),
                force_interval: Duration::from_millis(200),
                ..options()
            };
            let engine = cluster.engine(forcing).await;
            let options_of = CreateOptions {
                durability: Durability::Async,
                ..CreateOptions::default()
            };
            let writer = engine.create(options_of).await.unwrap();
            let ledger = writer.id();
            append(&*writer, 0..20);
            durable(&*writer, 20).await;
            let [crashed, other] = &cluster.bookies[..] else {
                panic!("two bookies")
            };
            // Unless the force was faster, which tells nothing.
            let lost = crashed.unsynced(ledger.0);
            crashed.set(Mood::Down);
            crashed.lose_power();
            crashed.set(Mood::Well);
            if is_closed {
                writer.close().await.unwrap();
            } else {
                let all_forced =
                    wait_until(|| crashed.count(ledger.0) == 20 && crashed.unsynced(ledger.0) == 0);
                all_forced.await;
            }
            assert_eq!(
                (crashed.count(ledger.0), crashed.unsynced(ledger.0)),
                (20, 0),
                "{lost} were lost"
            );
            other.set(Mood::Down);
            if is_closed {
                holds(&engine, ledger, 20).await;
            }
        }
    });
}

#[test]
fn a_ledger_is_given_up_rather_than_sealed_half_on_disk() {
    run(async {
        let cluster = Cluster::start(3).await;
        let quorum = Quorum::new(3, 3, 3).unwrap();
        let rarely = Options {
            quorum,
            force_interval: Duration::from_secs(3_600),
            ..options()
        };
        let engine = cluster.engine(rarely).await;
        let weak = CreateOptions {
            durability: Durability::Async,
            ..CreateOptions::default()
        };
        let writer = engine.create(weak).await.unwrap();
        append(&*writer, 0..5);
        durable(&*writer, 5).await;
        cluster.bookies[0].set(Mood::Down);
        let closed = writer.close().await;
        assert!(
            matches!(&closed, Err(error @ AppendError::GivenUp { .. }) if error.is_transient()),
            "{closed:?}"
        );
        assert_eq!(
            metadata(&cluster, writer.id()).await.segments.len(),
            1,
            "its ensemble does not change"
        );
    });
}
