//! Subscriptions without consumers: making, moving, deleting.

use super::*;

/// A topic with five messages and the subscription `s` at the first.
async fn five() -> (Bench, TopicName, Vec<Position>) {
    let (bench, name) = Bench::with_topic("persistent://public/default/t").await;
    let positions = bench
        .publish(ShardId(1), &name, &["one", "two", "three", "four", "five"])
        .await;
    create(&bench, &name, "s", Place::Earliest).await;
    (bench, name, positions)
}

async fn create(bench: &Bench, name: &TopicName, sub: &str, place: Place) {
    let made =
        bench
            .backend
            .create_subscription(name.clone(), subscription(sub), place, BTreeMap::new(), false);
    made.await.unwrap();
}

async fn backlog(bench: &Bench, name: &TopicName, sub: &str) -> u64 {
    bench.stats(name).await.subscriptions[sub].msg_backlog
}

fn at(position: Position, excluded: bool) -> Place {
    Place::At {
        position,
        batch_index: None,
        excluded,
    }
}

#[tokio::test]
async fn subscriptions_come_and_go() {
    let (bench, name, positions) = five().await;
    let backend = &bench.backend;
    create(&bench, &name, "end", Place::Latest).await;
    create(&bench, &name, "third", at(positions[2], false)).await;
    create(&bench, &name, "after-third", at(positions[2], true)).await;
    assert_eq!(
        backend.subscriptions(name.clone()).await.unwrap(),
        ["after-third", "end", "s", "third"]
    );
    for (sub, wanted) in [("s", 5), ("end", 0), ("third", 3), ("after-third", 2)] {
        assert_eq!(backlog(&bench, &name, sub).await, wanted, "{sub}");
    }
    let again = backend
        .create_subscription(
            name.clone(),
            subscription("s"),
            Place::Latest,
            BTreeMap::new(),
            false,
        )
        .await;
    assert!(matches!(again, Err(AdminError::Conflict(_))), "{again:?}");
    backend
        .delete_subscription(name.clone(), subscription("end"), false)
        .await
        .unwrap();
    let gone = backend
        .delete_subscription(name.clone(), subscription("end"), false)
        .await;
    assert!(matches!(gone, Err(AdminError::NotFound(_))), "{gone:?}");
}

#[tokio::test]
async fn properties_are_replaced_as_a_whole() {
    let (bench, name, _) = five().await;
    let pairs = |key: &str| BTreeMap::from([(key.to_owned(), "x".to_owned())]);
    let (backend, sub) = (&bench.backend, subscription("p"));
    backend
        .create_subscription(name.clone(), sub.clone(), Place::Latest, pairs("a"), false)
        .await
        .unwrap();
    assert_eq!(
        backend
            .subscription_properties(name.clone(), sub.clone())
            .await
            .unwrap(),
        pairs("a")
    );
    backend
        .set_subscription_properties(name.clone(), sub.clone(), pairs("b"))
        .await
        .unwrap();
    assert_eq!(
        backend.subscription_properties(name.clone(), sub).await.unwrap(),
        pairs("b")
    );
    assert_eq!(
        bench.stats(&name).await.subscriptions["p"].subscription_properties,
        pairs("b")
    );
}

#[tokio::test]
async fn cursors_move_where_they_are_told() {
    let (bench, name, positions) = five().await;
    let (backend, sub) = (&bench.backend, subscription("s"));
    backend.skip(name.clone(), sub.clone(), 2).await.unwrap();
    assert_eq!(backlog(&bench, &name, "s").await, 3);
    backend.skip_all(name.clone(), sub.clone()).await.unwrap();
    assert_eq!(backlog(&bench, &name, "s").await, 0);
    backend
        .reset_to(name.clone(), sub.clone(), at(positions[1], false))
        .await
        .unwrap();
    assert_eq!(backlog(&bench, &name, "s").await, 4);
    backend
        .reset_to(name.clone(), sub.clone(), at(positions[1], true))
        .await
        .unwrap();
    assert_eq!(backlog(&bench, &name, "s").await, 3);
    backend.reset_to_time(name.clone(), sub.clone(), 0).await.unwrap();
    assert_eq!(backlog(&bench, &name, "s").await, 5);
    backend
        .expire_to(name.clone(), sub.clone(), at(positions[3], false))
        .await
        .unwrap();
    assert_eq!(backlog(&bench, &name, "s").await, 1);
    backend
        .reset_to(name.clone(), sub.clone(), Place::Earliest)
        .await
        .unwrap();
    backend
        .expire_older(name.clone(), sub.clone(), 3600)
        .await
        .unwrap();
    assert_eq!(backlog(&bench, &name, "s").await, 5, "nothing is that old");
    let missing = backend.skip(name, subscription("missing"), 1).await;
    assert!(matches!(missing, Err(AdminError::NotFound(_))), "{missing:?}");
}

#[tokio::test]
async fn what_is_old_expires() {
    let (bench, name) = Bench::with_topic("persistent://public/default/t").await;
    let now = clock::wall_ms();
    let entries = vec![
        entry("old", now - 100_000),
        entry("older than a minute", now - 70_000),
        entry("new", now),
    ];
    bench.publish_entries(ShardId(0), &name, entries).await;
    create(&bench, &name, "s", Place::Earliest).await;
    bench
        .backend
        .expire_older(name.clone(), subscription("s"), 60)
        .await
        .unwrap();
    assert_eq!(backlog(&bench, &name, "s").await, 1);
}

#[tokio::test]
async fn truncating_moves_every_cursor_to_the_end() {
    let (bench, name, _) = five().await;
    bench.backend.truncate(name.clone()).await.unwrap();
    assert_eq!(backlog(&bench, &name, "s").await, 0);
    bench.backend.trim(name.clone()).await.unwrap();
    bench.stats_until(&name, |stats| stats.storage_size == 0).await;
}

/// Another store with what this one holds now: what the process that is dying still writes is not in it.
async fn copy_of(store: &Memory) -> Arc<Memory> {
    let copy = Memory::new();
    for item in store.scan("").await.unwrap() {
        copy.put(&item.key, item.value, pharos_metadata::Expect::Any)
            .await
            .unwrap();
    }
    Arc::new(copy)
}

#[tokio::test]
async fn a_crash_before_the_end_of_a_subscription_is_durable_leaves_all_of_it() {
    let (engine, store) = (MemoryEngine::new(), Arc::new(Memory::new()));
    let small = |options: &mut Options| {
        options.managed_ledger.ledger_entries_max = 1;
        options.managed_ledger.ledger_age_ms_min = 0;
    };
    let bench = Bench::on_stores(Arc::new(engine.clone()), store.clone(), small).await;
    let name = topic("persistent://public/default/t");
    let made = bench.backend.create_topic(name.clone(), BTreeMap::new());
    made.await.unwrap();
    create(&bench, &name, "s", Place::Earliest).await;
    for text in ["1", "2", "3", "4"] {
        bench.publish(bench.home(&name), &name, &[text]).await;
    }
    engine.hold();
    let deleting = bench
        .backend
        .delete_subscription(name.clone(), subscription("s"), true);
    let (home, wanted) = (bench.home(&name), name.clone());
    let is_under_way = bench.on(home, move |shard| async move {
        let topic = shard.loaded(&wanted).unwrap();
        until(|| topic.state.borrow().attached.subscriptions.is_empty()).await;
        // What wants to be trimmed is.
        for _ in 0..100 {
            topic.trim_now();
            tokio::task::yield_now().await;
        }
    });
    tokio::select! {
        done = deleting => panic!("it is answered before it is durable: {done:?}"),
        () = is_under_way => {}
    }
    let bench = Bench::on_stores(Arc::new(engine.crash()), copy_of(&store).await, small).await;
    let stats = bench.stats(&name).await;
    assert_eq!(stats.subscriptions["s"].msg_backlog, 4, "all of it is there");
    let deleted = bench
        .backend
        .delete_subscription(name.clone(), subscription("s"), true);
    deleted.await.unwrap();
    // What it held goes once that is durable.
    let wanted = name.clone();
    bench
        .on(bench.home(&name), move |shard| async move {
            let topic = shard.loaded(&wanted).unwrap();
            until(|| topic.state.borrow().stored.log.ledger.first().0 >= 3).await;
        })
        .await;
}
