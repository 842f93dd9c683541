//! Deletions of partitioned topics that meet crashes, and partitions in use.

use super::*;

const NAME: &str = "persistent://public/default/t";

fn schema() -> SchemaInfo {
    SchemaInfo::new(SchemaType::String, Bytes::new())
}

#[tokio::test]
async fn a_crash_at_any_step_of_deleting_a_partitioned_topic_leaves_all_or_nothing() {
    let name = topic(NAME);
    let mut seen = [0, 0];
    for death in [CallEffect::Not, CallEffect::Happens] {
        for nth in 0.. {
            let world = World::new();
            let parts = [name.with_partition(0), name.with_partition(1)];
            {
                let bench = Bench::of(world.start(&Life::new()).await);
                let made = bench
                    .admin
                    .topics
                    .create_partitioned(name.clone(), 2, BTreeMap::new(), false);
                made.await.unwrap();
                for part in &parts {
                    fill(&bench, part).await;
                }
                bench.catalog().schemas().add(&name, schema(), "").await.unwrap();
                bench.broker.drain().await;
            }
            let life = Life::new();
            let bench = Bench::of(world.start(&life).await);
            assert!(is_whole(&bench, &parts[0]).await);
            life.dies_after(nth, death);
            let lived = tokio::select! {
                deleted = bench.admin.topics.delete_partitioned(name.clone(), false) => { deleted.unwrap(); true }
                () = life.death() => false,
            };
            drop(bench);
            let bench = Bench::of(world.start(&Life::new()).await);
            settled(&bench).await;
            let catalog = bench.catalog();
            let whole = catalog.partitioned().get(&name).is_some();
            for part in &parts {
                assert_eq!(is_whole(&bench, part).await, whole, "{part} {death:?} {nth}");
            }
            assert_eq!(catalog.schemas().latest(&name).is_some(), whole);
            if !whole {
                assert_eq!(world.keys().await, Vec::<String>::new(), "{death:?} {nth}");
            }
            seen[usize::from(whole)] += 1;
            if lived {
                assert!(!whole);
                break;
            }
        }
    }
    assert!(seen[1] >= 1 && seen[0] > 10, "{seen:?}");
}

#[tokio::test]
async fn a_partition_in_use_leaves_the_others_as_they_were() {
    let bench = Bench::new().await;
    let whole = topic("persistent://public/default/parts");
    let made = bench
        .admin
        .topics
        .create_partitioned(whole.clone(), 3, BTreeMap::new(), false);
    made.await.unwrap();
    for index in 0..3 {
        fill(&bench, &whole.with_partition(index)).await;
        bench.unload(&whole.with_partition(index)).await;
    }
    // Loaded, and left alone.
    assert!(is_whole(&bench, &whole.with_partition(0)).await);
    let used = whole.with_partition(2);
    bench.publish(bench.home(&used), &used, &["4"]).await;
    let busy = bench.admin.topics.delete_partitioned(whole.clone(), false).await;
    assert!(matches!(busy, Err(AdminError::Precondition(_))), "{busy:?}");
    assert!(!bench.catalog().partitioned().get(&whole).unwrap().deleted);
    for index in 0..2 {
        let name = whole.with_partition(index);
        assert!(is_whole(&bench, &name).await);
        bench.publish(bench.home(&name), &name, &["4"]).await;
    }
}
