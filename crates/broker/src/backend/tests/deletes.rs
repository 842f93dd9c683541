//! Deletions that meet newcomers, refusals of the store, and crashes.

use pharos_types::Domain;

use super::mortal::{Effect, Life};
use super::*;
use crate::error::{ProducerError, TopicError};
use pharos_catalog::schema::{SchemaInfo, SchemaType};

const NAME: &str = "persistent://public/default/t";

/// What outlives a broker.
pub(super) struct World {
    pub(super) engine: MemoryEngine,
    store: Arc<Memory>,
}

impl World {
    pub(super) fn new() -> Self {
        Self {
            engine: MemoryEngine::new(),
            store: Arc::new(Memory::new()),
        }
    }

    pub(super) async fn start(&self, life: &Life) -> Bench {
        Bench::on_stores(life.engine(self.engine.clone()), life.store(&self.store), |_| ()).await
    }

    /// Keys of the store that have to do with topic `t` of the default namespace.
    async fn keys(&self) -> Vec<String> {
        let keys = self.store.list("").await.unwrap();
        let is_of_topic = |key: &String| {
            key.split('/')
                .any(|part| part == "t" || part.starts_with("t-partition-"))
        };
        keys.into_iter().filter(is_of_topic).collect()
    }
}

fn schema() -> SchemaInfo {
    SchemaInfo::new(SchemaType::String, Bytes::new())
}

/// Fills a topic: two subscriptions, three messages.
async fn fill(bench: &Bench, name: &TopicName) {
    for name_of_sub in ["a", "b"] {
        let made = bench.backend.create_subscription(
            name.clone(),
            subscription(name_of_sub),
            Place::Earliest,
            BTreeMap::new(),
            false,
        );
        made.await.unwrap();
    }
    bench.publish(bench.home(name), name, &["1", "2", "3"]).await;
}

/// Whether a topic is there with all that [`fill`] gave it; panics when it is there with less.
async fn is_whole(bench: &Bench, name: &TopicName) -> bool {
    if !bench.backend.catalog().topic_exists(name) {
        return false;
    }
    let stats = bench.stats(name).await;
    let backlogs: Vec<_> = stats
        .subscriptions
        .iter()
        .map(|(name, row)| (name.as_str(), row.msg_backlog))
        .collect();
    assert_eq!(backlogs, [("a", 3), ("b", 3)], "{name}");
    true
}

/// Waits until nothing that was begun is left to be finished.
async fn settled(bench: &Bench) {
    let catalog = bench.backend.catalog().clone();
    until(|| catalog.unfinished_deletes().is_empty()).await;
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
    bench
        .backend
        .create_topic(name.clone(), BTreeMap::new())
        .await
        .unwrap();
    fill(&bench, &name).await;
    life.hold("managed-ledgers/");
    let deleting = bench.backend.delete_topic(name.clone(), true);
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
                shard.topics.waiting(&wanted) > 0 || shard.loaded(&wanted).is_some()
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
    assert!(bench.backend.catalog().topic_exists(&name));
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
    let stats = bench.stats(&name).await;
    assert_eq!(stats.subscriptions.keys().collect::<Vec<_>>(), ["s"]);
}

#[tokio::test]
async fn a_crash_at_any_step_of_a_deletion_leaves_all_or_nothing() {
    let name = topic(NAME);
    let mut seen = [0, 0];
    for death in [Effect::Not, Effect::Happens] {
        for nth in 0.. {
            let world = World::new();
            {
                let bench = world.start(&Life::new()).await;
                bench
                    .backend
                    .create_topic(name.clone(), BTreeMap::new())
                    .await
                    .unwrap();
                fill(&bench, &name).await;
                let catalog = bench.backend.catalog();
                catalog.add_schema(&name, schema(), "").await.unwrap();
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
                deleted = bench.backend.delete_topic(name.clone(), true) => { deleted.unwrap(); true }
                () = life.death() => false,
            };
            drop(bench);
            let bench = world.start(&Life::new()).await;
            settled(&bench).await;
            let catalog = bench.backend.catalog();
            let whole = is_whole(&bench, &name).await;
            if whole {
                assert!(catalog.latest_schema(&name).is_some());
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
async fn a_crash_at_any_step_of_deleting_a_partitioned_topic_leaves_all_or_nothing() {
    let name = topic(NAME);
    let mut seen = [0, 0];
    for death in [Effect::Not, Effect::Happens] {
        for nth in 0.. {
            let world = World::new();
            let parts = [name.with_partition(0), name.with_partition(1)];
            {
                let bench = world.start(&Life::new()).await;
                let made = bench
                    .backend
                    .create_partitioned(name.clone(), 2, BTreeMap::new(), false);
                made.await.unwrap();
                for part in &parts {
                    fill(&bench, part).await;
                }
                bench
                    .backend
                    .catalog()
                    .add_schema(&name, schema(), "")
                    .await
                    .unwrap();
                bench.broker.drain().await;
            }
            let life = Life::new();
            let bench = world.start(&life).await;
            assert!(is_whole(&bench, &parts[0]).await);
            life.dies_after(nth, death);
            let lived = tokio::select! {
                deleted = bench.backend.delete_partitioned(name.clone(), false) => { deleted.unwrap(); true }
                () = life.death() => false,
            };
            drop(bench);
            let bench = world.start(&Life::new()).await;
            settled(&bench).await;
            let catalog = bench.backend.catalog();
            let whole = catalog.partitioned_topic(&name).is_some();
            for part in &parts {
                assert_eq!(is_whole(&bench, part).await, whole, "{part} {death:?} {nth}");
            }
            assert_eq!(catalog.latest_schema(&name).is_some(), whole);
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
async fn a_mark_that_the_store_refused_takes_nothing_with_it() {
    for effect in [Effect::Not, Effect::Happens] {
        let (world, life) = (World::new(), Life::new());
        let bench = world.start(&life).await;
        let name = topic(NAME);
        bench
            .backend
            .create_topic(name.clone(), BTreeMap::new())
            .await
            .unwrap();
        fill(&bench, &name).await;
        life.fail(Some(("admin/topics/", effect)));
        let refused = bench.backend.delete_topic(name.clone(), true).await;
        assert!(matches!(refused, Err(AdminError::Internal(_))), "{refused:?}");
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
        let stats = bench.stats(&name).await;
        assert_eq!(stats.subscriptions["a"].msg_backlog, 4, "{effect:?}");
    }
}

#[tokio::test]
async fn a_partition_in_use_leaves_the_others_as_they_were() {
    let bench = Bench::new().await;
    let whole = topic("persistent://public/default/parts");
    let made = bench
        .backend
        .create_partitioned(whole.clone(), 3, BTreeMap::new(), false);
    made.await.unwrap();
    for index in 0..3 {
        fill(&bench, &whole.with_partition(index)).await;
        bench.backend.unload(whole.with_partition(index)).await.unwrap();
    }
    // Loaded, and left alone.
    assert!(is_whole(&bench, &whole.with_partition(0)).await);
    let used = whole.with_partition(2);
    bench.publish(bench.home(&used), &used, &["4"]).await;
    let busy = bench.backend.delete_partitioned(whole.clone(), false).await;
    assert!(matches!(busy, Err(AdminError::Precondition(_))), "{busy:?}");
    assert!(!bench.backend.catalog().partitioned_topic(&whole).unwrap().deleted);
    for index in 0..2 {
        let name = whole.with_partition(index);
        assert!(is_whole(&bench, &name).await);
        bench.publish(bench.home(&name), &name, &["4"]).await;
    }
}

#[tokio::test]
async fn a_deletion_that_was_refused_half_way_is_finished_by_the_broker() {
    let (world, life) = (World::new(), Life::new());
    let bench = world.start(&life).await;
    let name = topic(NAME);
    bench
        .backend
        .create_topic(name.clone(), BTreeMap::new())
        .await
        .unwrap();
    fill(&bench, &name).await;
    life.fail(Some(("managed-ledgers/", Effect::Not)));
    let refused = bench.backend.delete_topic(name.clone(), true).await;
    assert!(matches!(refused, Err(AdminError::Internal(_))), "{refused:?}");
    // It is gone for every client already.
    let catalog = bench.backend.catalog().clone();
    assert!(!catalog.topic_exists(&name));
    let listed = catalog.topics(name.namespace(), pharos_catalog::ListMode::All, false);
    assert!(!listed.contains(&name) && name.domain() == Domain::Persistent);
    life.fail(None);
    settled(&bench).await;
    assert_eq!(world.keys().await, Vec::<String>::new());
    bench
        .backend
        .create_topic(name.clone(), BTreeMap::new())
        .await
        .unwrap();
    assert!(bench.stats(&name).await.subscriptions.is_empty());
}

#[tokio::test]
async fn unloading_an_old_topic_leaves_the_new_one_of_its_name() {
    let engine = MemoryEngine::new();
    let bench = Bench::over(engine.clone()).await;
    let name = topic(NAME);
    bench
        .backend
        .create_topic(name.clone(), BTreeMap::new())
        .await
        .unwrap();
    fill(&bench, &name).await;
    // Two at once, and a client that wants the topic in between.
    let (one, two) = (
        bench.backend.unload(name.clone()),
        bench.backend.unload(name.clone()),
    );
    let (one, two, stats) = tokio::join!(one, two, bench.stats(&name));
    one.unwrap();
    two.unwrap();
    assert_eq!(stats.subscriptions.len(), 2);
    let wanted = name.clone();
    let tables = bench.on(bench.home(&name), move |shard| async move {
        let topic = shard.topic(&wanted, Access::Existing).await.unwrap();
        let same = shard
            .topics
            .by_id(topic.cx.id)
            .is_some_and(|it| Rc::ptr_eq(&it, &topic));
        (same, shard.topics.all().len(), shard.loaded(&wanted).is_some())
    });
    assert_eq!(tables.await, (true, 1, true));
}
