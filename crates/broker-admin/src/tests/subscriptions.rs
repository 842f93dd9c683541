//! Subscriptions without consumers: making, moving, deleting.

use super::*;

/// A topic with five messages and the subscription `s` at the first.
async fn five() -> (Bench, TopicName, Vec<Position>) {
    let (bench, name) = Bench::with_topic("persistent://public/default/t").await;
    let positions = bench
        .publish(ShardId(1), &name, &["one", "two", "three", "four", "five"])
        .await;
    bench.make_subscription(&name, "s", Place::Earliest).await;
    (bench, name, positions)
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
    let admin = &bench.admin;
    bench.make_subscription(&name, "end", Place::Latest).await;
    bench
        .make_subscription(&name, "third", at(positions[2], false))
        .await;
    bench
        .make_subscription(&name, "after-third", at(positions[2], true))
        .await;
    assert_eq!(
        admin.subscriptions.subscriptions(name.clone()).await.unwrap(),
        ["after-third", "end", "s", "third"]
    );
    for (sub, wanted) in [("s", 5), ("end", 0), ("third", 3), ("after-third", 2)] {
        assert_eq!(backlog(&bench, &name, sub).await, wanted, "{sub}");
    }
    let again = admin
        .subscriptions
        .create_subscription(
            name.clone(),
            subscription("s"),
            Place::Latest,
            BTreeMap::new(),
            false,
        )
        .await;
    assert!(matches!(again, Err(AdminError::Conflict(_))), "{again:?}");
    admin
        .subscriptions
        .delete_subscription(name.clone(), subscription("end"), false)
        .await
        .unwrap();
    let gone = admin
        .subscriptions
        .delete_subscription(name.clone(), subscription("end"), false)
        .await;
    assert!(matches!(gone, Err(AdminError::NotFound(_))), "{gone:?}");
}

#[tokio::test]
async fn properties_are_replaced_as_a_whole() {
    let (bench, name, _) = five().await;
    let pairs = |key: &str| BTreeMap::from([(key.to_owned(), "x".to_owned())]);
    let (admin, sub) = (&bench.admin, subscription("p"));
    admin
        .subscriptions
        .create_subscription(name.clone(), sub.clone(), Place::Latest, pairs("a"), false)
        .await
        .unwrap();
    assert_eq!(
        admin
            .subscriptions
            .subscription_properties(name.clone(), sub.clone())
            .await
            .unwrap(),
        pairs("a")
    );
    admin
        .subscriptions
        .set_subscription_properties(name.clone(), sub.clone(), pairs("b"))
        .await
        .unwrap();
    assert_eq!(
        admin
            .subscriptions
            .subscription_properties(name.clone(), sub)
            .await
            .unwrap(),
        pairs("b")
    );
    assert_eq!(
        bench.stats(&name).await.subscriptions["p"].subscription_properties,
        pairs("b")
    );
}

#[tokio::test]
async fn properties_of_a_subscription_that_are_the_brokers_own_are_not_shown_and_stay() {
    let (bench, name, _) = five().await;
    let pairs = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        let pairs = pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        pairs.collect()
    };
    let (admin, sub) = (&bench.admin.subscriptions, subscription("p"));
    let own = ("pharos.carriers.moved", "7");
    let made = pairs(&[("a", "x"), own]);
    admin
        .create_subscription(name.clone(), sub.clone(), Place::Latest, made, false)
        .await
        .unwrap();
    for given in [&[("b", "x")][..], &[(own.0, "8")], &[]] {
        admin
            .set_subscription_properties(name.clone(), sub.clone(), pairs(given))
            .await
            .unwrap();
        let given: Vec<_> = given.iter().copied().filter(|(key, _)| *key != own.0).collect();
        let shown = admin.subscription_properties(name.clone(), sub.clone()).await;
        assert_eq!(shown.unwrap(), pairs(&given));
        let stats = bench.stats(&name).await;
        assert_eq!(stats.subscriptions["p"].subscription_properties, pairs(&given));
        let stored =
            admin.homes.at_any_home(
                name.clone(),
                |topic| async move { Ok(topic.durable_subscriptions()) },
            );
        let stored = stored.await.unwrap().into_iter().find(|found| found.name == sub);
        let stored: BTreeMap<_, _> = stored.unwrap().properties.into_iter().collect();
        assert_eq!(stored, pairs(&[&given[..], &[own]].concat()));
    }
}

#[tokio::test]
async fn cursors_move_where_they_are_told() {
    let (bench, name, positions) = five().await;
    let (admin, sub) = (&bench.admin, subscription("s"));
    admin
        .subscriptions
        .skip(name.clone(), sub.clone(), 2)
        .await
        .unwrap();
    assert_eq!(backlog(&bench, &name, "s").await, 3);
    admin
        .subscriptions
        .skip_all(name.clone(), sub.clone())
        .await
        .unwrap();
    assert_eq!(backlog(&bench, &name, "s").await, 0);
    admin
        .subscriptions
        .reset_to(name.clone(), sub.clone(), at(positions[1], false))
        .await
        .unwrap();
    assert_eq!(backlog(&bench, &name, "s").await, 4);
    admin
        .subscriptions
        .reset_to(name.clone(), sub.clone(), at(positions[1], true))
        .await
        .unwrap();
    assert_eq!(backlog(&bench, &name, "s").await, 3);
    admin
        .subscriptions
        .reset_to_time(name.clone(), sub.clone(), 0)
        .await
        .unwrap();
    assert_eq!(backlog(&bench, &name, "s").await, 5);
    admin
        .subscriptions
        .expire_to(name.clone(), sub.clone(), at(positions[3], false))
        .await
        .unwrap();
    assert_eq!(backlog(&bench, &name, "s").await, 1);
    admin
        .subscriptions
        .reset_to(name.clone(), sub.clone(), Place::Earliest)
        .await
        .unwrap();
    admin
        .subscriptions
        .expire_older(name.clone(), sub.clone(), 3600)
        .await
        .unwrap();
    assert_eq!(backlog(&bench, &name, "s").await, 5, "nothing is that old");
    let missing = admin.subscriptions.skip(name, subscription("missing"), 1).await;
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
    bench.make_subscription(&name, "s", Place::Earliest).await;
    bench
        .admin
        .subscriptions
        .expire_older(name.clone(), subscription("s"), 60)
        .await
        .unwrap();
    assert_eq!(backlog(&bench, &name, "s").await, 1);
}

#[tokio::test]
async fn truncating_moves_every_cursor_to_the_end() {
    let (bench, name, _) = five().await;
    bench.admin.topics.truncate(name.clone()).await.unwrap();
    assert_eq!(backlog(&bench, &name, "s").await, 0);
    bench.admin.topics.trim(name.clone()).await.unwrap();
    bench.stats_until(&name, |stats| stats.storage_size == 0).await;
}
