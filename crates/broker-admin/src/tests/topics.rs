//! Topics and partitioned topics as a whole.

use super::*;

#[tokio::test]
async fn topics_are_made_once_and_deleted_when_no_client_is_on_them() {
    let (bench, name) = Bench::with_topic("persistent://public/default/t").await;
    let again = bench
        .admin
        .topics
        .create_topic(name.clone(), BTreeMap::new())
        .await;
    assert!(matches!(again, Err(AdminError::Conflict(_))), "{again:?}");

    bench.publish(bench.away(&name), &name, &["one"]).await;
    let busy = bench.admin.topics.delete_topic(name.clone(), false).await;
    assert!(matches!(busy, Err(AdminError::Precondition(_))), "{busy:?}");
    bench.admin.topics.delete_topic(name.clone(), true).await.unwrap();
    let gone = bench.admin.stats.stats(name.clone(), StatsFlags::default()).await;
    assert!(matches!(gone, Err(AdminError::NotFound(_))), "{gone:?}");
    let gone = bench.admin.topics.delete_topic(name, true).await;
    assert!(matches!(gone, Err(AdminError::NotFound(_))), "{gone:?}");
}

#[tokio::test]
async fn a_non_persistent_topic_can_do_what_needs_no_storage() {
    let (bench, name) = Bench::with_topic("non-persistent://public/default/t").await;
    assert_eq!(bench.stats(&name).await.storage_size, 0);
    let refused = bench.admin.topics.terminate(name.clone()).await;
    assert!(matches!(refused, Err(AdminError::NotAllowed(_))), "{refused:?}");
    bench
        .admin
        .topics
        .delete_topic(name.clone(), false)
        .await
        .unwrap();
    let gone = bench.admin.stats.stats(name, StatsFlags::default()).await;
    assert!(matches!(gone, Err(AdminError::NotFound(_))), "{gone:?}");
}

#[tokio::test]
async fn an_unloaded_topic_comes_back_with_its_messages_and_subscriptions() {
    let (bench, name) = Bench::with_topic("persistent://public/default/t").await;
    bench.publish(ShardId(0), &name, &["one", "two"]).await;
    bench.make_subscription(&name, "s", Place::Earliest).await;
    bench.admin.topics.unload(name.clone()).await.unwrap();
    let stats = bench.stats(&name).await;
    assert_eq!(stats.subscriptions["s"].msg_backlog, 2);
    assert_eq!(stats.msg_in_counter, 0, "counters are since the topic was loaded");
    assert!(stats.storage_size > 0);
}

#[tokio::test]
async fn a_terminated_topic_says_its_last_message() {
    let (bench, name) = Bench::with_topic("persistent://public/default/t").await;
    let nothing = bench.admin.stats.last_message(name.clone()).await.unwrap();
    assert_eq!(nothing.position, None);
    bench.publish(ShardId(0), &name, &["one"]).await;
    let positions = bench.publish_entries(ShardId(0), &name, vec![batch(5)]).await;
    let last = bench.admin.stats.last_message(name.clone()).await.unwrap();
    let wanted = LastMessage {
        position: Some(positions[0]),
        batch_index: Some(4),
        batch_size: Some(5),
    };
    assert_eq!(last, wanted);
    let last = bench.admin.topics.terminate(name.clone()).await.unwrap();
    assert_eq!(last.position, Some(positions[0]));
    let again = bench.admin.topics.terminate(name.clone()).await.unwrap();
    assert_eq!(again.position, Some(positions[0]));
    let internal = bench.admin.stats.internal_stats(name, false).await.unwrap();
    assert_eq!(internal.state, "Terminated");
}

#[tokio::test]
async fn partitions_that_are_added_have_the_subscriptions_of_the_others() {
    let bench = Bench::new().await;
    let whole = topic("persistent://public/default/parts");
    bench
        .admin
        .topics
        .create_partitioned(whole.clone(), 2, BTreeMap::new(), false)
        .await
        .unwrap();
    let again = bench
        .admin
        .topics
        .create_partitioned(whole.clone(), 2, BTreeMap::new(), false)
        .await;
    assert!(matches!(again, Err(AdminError::Conflict(_))), "{again:?}");
    bench
        .make_subscription(&whole.with_partition(0), "s", Place::Latest)
        .await;
    bench
        .make_subscription(&whole.with_partition(1), "only-here", Place::Latest)
        .await;
    bench
        .admin
        .topics
        .grow_partitioned(whole.clone(), 4)
        .await
        .unwrap();
    for index in 2..4 {
        let found = bench
            .admin
            .subscriptions
            .subscriptions(whole.with_partition(index))
            .await
            .unwrap();
        assert_eq!(found, ["only-here", "s"]);
    }
    // What a crash leaves when it comes before the subscriptions: the same request makes up for it.
    for name_of_sub in ["only-here", "s"] {
        bench
            .admin
            .subscriptions
            .delete_subscription(whole.with_partition(3), subscription(name_of_sub), false)
            .await
            .unwrap();
    }
    bench
        .admin
        .topics
        .grow_partitioned(whole.clone(), 4)
        .await
        .unwrap();
    let found = bench
        .admin
        .subscriptions
        .subscriptions(whole.with_partition(3))
        .await;
    assert_eq!(found.unwrap(), ["only-here", "s"]);
    let fewer = bench.admin.topics.grow_partitioned(whole.clone(), 1).await;
    assert!(matches!(fewer, Err(AdminError::Unprocessable(_))), "{fewer:?}");
    let plain = bench
        .admin
        .topics
        .grow_partitioned(topic("persistent://public/default/none"), 3)
        .await;
    assert!(matches!(plain, Err(AdminError::Conflict(_))), "{plain:?}");

    bench
        .publish(ShardId(0), &whole.with_partition(3), &["one"])
        .await;
    let busy = bench.admin.topics.delete_partitioned(whole.clone(), false).await;
    assert!(matches!(busy, Err(AdminError::Precondition(_))), "{busy:?}");
    bench
        .admin
        .topics
        .delete_partitioned(whole.clone(), true)
        .await
        .unwrap();
    assert!(bench.admin.catalog.partitioned().get(&whole).is_none());
    let gone = bench
        .admin
        .stats
        .stats(whole.with_partition(0), StatsFlags::default())
        .await;
    assert!(matches!(gone, Err(AdminError::NotFound(_))), "{gone:?}");
}

#[tokio::test]
async fn health_is_asked_often_and_leaves_no_backlog() {
    let bench = Bench::new().await;
    assert_eq!(bench.admin.brokers.why_not_ready(), None);
    for _ in 0..3 {
        bench.admin.brokers.health().await.unwrap();
    }
    let stats = bench
        .stats(&topic("persistent://pulsar/system/healthcheck"))
        .await;
    assert_eq!((stats.backlog_size, stats.subscriptions.len()), (0, 0));
}
