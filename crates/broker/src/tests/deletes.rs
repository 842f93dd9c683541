//! Deletions that meet newcomers, refusals of the store, and crashes.

use pharos_types::Domain;

use super::*;
use pharos_catalog::schema::{SchemaInfo, SchemaType};

const NAME: &str = "persistent://public/default/t";

fn schema() -> SchemaInfo {
    SchemaInfo::new(SchemaType::String, Bytes::new())
}

/// Asks as a client does: makes sure of the topic, then attaches a producer; again when it is told to try again.
async fn come_back(shard: &Rc<Shard>, client: &Rc<Client>, name: &TopicName) -> (TopicId, ProducerKey) {
    loop {
        let again = match shard.ensure_topic(name, true).await {
            Ok(()) => client.try_produce(name).await,
            Err(error) => Err(error.into()),
        };
        match again {
            Ok(granted) => return granted,
            Err(ProducerError::Topic(TopicError::Closing(_))) => {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test]
async fn who_comes_while_a_topic_is_deleted_gets_a_new_one() {
    let (world, life) = (World::new(), Life::new());
    let bench = world.start(&life).await;
    let name = topic(NAME);
    bench.create_topic(&name).await;
    fill(&bench, &name).await;
    life.hold("managed-ledgers/");
    let deleting = bench.delete_topic(&name, true);
    let comes = async {
        until(|| life.is_holding()).await;
        let wanted = name.clone();
        let comes = bench.on(bench.home(&name), move |shard| async move {
            let client = Client::new(&shard);
            let (topic, key) = come_back(&shard, &client, &wanted).await;
            client.publish(topic, key, sends(vec![entry("new", 1)]));
            until(|| client.receipts.borrow().len() == 1).await;
        });
        let released = async {
            let wanted = name.clone();
            let home = bench.home(&name);
            // It waits; or it was let in, as it must not be.
            let waits = move |shard: Rc<Shard>| async move {
                shard.home.topics.waiting(&wanted) > 0 || shard.home.topics.by_name(&wanted).is_some()
            };
            while !bench.on(home, waits.clone()).await {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            life.release();
        };
        tokio::join!(comes, released);
    };
    let (deleted, ()) = tokio::join!(deleting, comes);
    deleted.unwrap();
    // The new one is on record, and what was acknowledged is in it, alone.
    assert!(bench.catalog().topic_exists(&name));
    let wish = Wish {
        subscription: "s",
        name: "c",
        kind: SubscriptionType::Exclusive,
    };
    let number = bench.consume(bench.home(&name), &name, wish).await;
    let got = bench.with_client(bench.home(&name), number, |client| async move {
        client.wait_for(1).await;
        client.got.borrow().len()
    });
    assert_eq!(got.await, 1);
    let backlogs = bench.backlogs(&name).await;
    assert_eq!(backlogs.keys().collect::<Vec<_>>(), ["s"]);
}

#[tokio::test]
async fn a_crash_at_any_step_of_a_deletion_leaves_all_or_nothing() {
    let name = topic(NAME);
    let mut seen = [0, 0];
    for death in [CallEffect::Not, CallEffect::Happens] {
        for nth in 0.. {
            let world = World::new();
            {
                let bench = world.start(&Life::new()).await;
                bench.create_topic(&name).await;
                fill(&bench, &name).await;
                let catalog = bench.catalog();
                catalog.schemas().add(&name, schema(), "").await.unwrap();
                let policy = serde_json::json!(7);
                catalog
                    .set_topic_policy(&name, "maxConsumers", policy)
                    .await
                    .unwrap();
                bench.broker.drain().await;
            }
            let life = Life::new();
            let bench = world.start(&life).await;
            // It is loaded, so that the deletion has something to close.
            assert!(is_whole(&bench, &name).await);
            life.dies_after(nth, death);
            let lived = tokio::select! {
                deleted = bench.delete_topic(&name, true) => { deleted.unwrap(); true }
                () = life.death() => false,
            };
            drop(bench);
            let bench = world.start(&Life::new()).await;
            settled(&bench).await;
            let catalog = bench.catalog();
            let whole = is_whole(&bench, &name).await;
            if whole {
                assert!(catalog.schemas().latest(&name).is_some());
                assert_eq!(catalog.topic_policies(&name).0.len(), 1);
            } else {
                assert_eq!(world.keys().await, Vec::<String>::new(), "{death:?} {nth}");
            }
            seen[usize::from(whole)] += 1;
            if lived {
                assert!(!whole);
                break;
            }
        }
    }
    // Before the mark everything is there; each of the steps after it was a crash point.
    assert!(seen[1] >= 1 && seen[0] > 10, "{seen:?}");
}

#[tokio::test]
async fn a_mark_that_the_store_refused_takes_nothing_with_it() {
    for effect in [CallEffect::Not, CallEffect::Happens] {
        let (world, life) = (World::new(), Life::new());
        let bench = world.start(&life).await;
        let name = topic(NAME);
        bench.create_topic(&name).await;
        fill(&bench, &name).await;
        life.fail(Some(("admin/topics/", effect)));
        let refused = bench.delete_topic(&name, true).await;
        assert!(
            matches!(refused, Err(TopicError::Metadata(_) | TopicError::Storage(_))),
            "{refused:?}"
        );
        // It is not known whether the mark is stored, so nothing may be acknowledged.
        let wanted = name.clone();
        let closed = bench.on(bench.home(&name), move |shard| async move {
            Client::new(&shard).try_produce(&wanted).await.err()
        });
        let closed = closed.await;
        assert!(
            matches!(closed, Some(ProducerError::Topic(TopicError::Closing(_)))),
            "{closed:?}"
        );
        life.fail(None);
        settled(&bench).await;
        bench.publish(bench.home(&name), &name, &["4"]).await;
        drop(bench);
        let bench = world.start(&Life::new()).await;
        settled(&bench).await;
        assert_eq!(bench.backlogs(&name).await["a"], 4, "{effect:?}");
    }
}

#[tokio::test]
async fn a_deletion_that_was_refused_half_way_is_finished_by_the_broker() {
    let (world, life) = (World::new(), Life::new());
    let bench = world.start(&life).await;
    let name = topic(NAME);
    bench.create_topic(&name).await;
    fill(&bench, &name).await;
    life.fail(Some(("managed-ledgers/", CallEffect::Not)));
    let refused = bench.delete_topic(&name, true).await;
    assert!(
        matches!(refused, Err(TopicError::Metadata(_) | TopicError::Storage(_))),
        "{refused:?}"
    );
    // It is gone for every client already.
    let catalog = bench.catalog().clone();
    assert!(!catalog.topic_exists(&name));
    let listed = catalog.topics(name.namespace(), pharos_catalog::ListMode::All, false);
    assert!(!listed.contains(&name) && name.domain() == Domain::Persistent);
    life.fail(None);
    settled(&bench).await;
    assert_eq!(world.keys().await, Vec::<String>::new());
    bench.create_topic(&name).await;
    assert!(bench.backlogs(&name).await.is_empty());
}

#[tokio::test]
async fn unloading_an_old_topic_leaves_the_new_one_of_its_name() {
    let engine = MemoryEngine::new();
    let bench = Bench::over(engine.clone()).await;
    let name = topic(NAME);
    bench.create_topic(&name).await;
    fill(&bench, &name).await;
    // Two at once, and a client that wants the topic in between.
    let (one, two) = (bench.unload(&name), bench.unload(&name));
    let ((), (), backlogs) = tokio::join!(one, two, bench.backlogs(&name));
    assert_eq!(backlogs.len(), 2);
    let wanted = name.clone();
    let tables = bench.on(bench.home(&name), move |shard| async move {
        let topic = shard.home.topic(&wanted, Access::Existing).await.unwrap();
        let same = shard
            .home
            .topics
            .by_id(topic.id())
            .is_some_and(|it| Rc::ptr_eq(&it, &topic));
        (
            same,
            shard.home.topics.all().len(),
            shard.home.topics.by_name(&wanted).is_some(),
        )
    });
    assert_eq!(tables.await, (true, 1, true));
}
