//! Stats while clients are connected.

use super::*;

#[tokio::test]
async fn what_a_listener_has_acknowledged_shows_at_once() {
    let (bench, name) = Bench::with_topic("persistent://public/default/t").await;
    let away = bench.away(&name);
    let wish = Wish {
        subscription: "s",
        name: "c",
        kind: SubscriptionType::Exclusive,
    };
    let number = bench.consume(away, &name, wish).await;
    bench.publish(away, &name, &["one", "two", "three"]).await;
    bench
        .with_client(away, number, |client| async move {
            client.wait_for(3).await;
            client.ack(0);
            client.ack(2);
        })
        .await;
    let stats = bench.stats(&name).await;
    assert_eq!((stats.msg_in_counter, stats.msg_out_counter), (3, 3));
    assert!(stats.bytes_in_counter > 0 && stats.bytes_in_counter == stats.bytes_out_counter);
    assert!(stats.msg_rate_in > 0.0 && stats.msg_rate_out > 0.0 && stats.average_msg_size > 0.0);
    assert_eq!(stats.publishers.len(), 1);
    assert_eq!(stats.publishers[0].address.as_deref(), Some("/10.0.0.1:1"));
    let shown = &stats.subscriptions["s"];
    assert_eq!((shown.msg_backlog, shown.kind.as_str()), (1, "Exclusive"));
    let flow = shown.consumers[0].last_consumed_flow_timestamp;
    assert!(flow > 0 && shown.last_consumed_flow_timestamp == flow);
    assert_eq!(shown.non_contiguous_deleted_messages_ranges, 1);
    assert_eq!(shown.consumers.len(), 1);
    let row = &shown.consumers[0];
    assert_eq!(
        (
            row.consumer_name.as_str(),
            row.available_permits,
            row.msg_out_counter
        ),
        ("c", 97, 3)
    );
    let internal = bench
        .admin
        .stats
        .internal_stats(name.clone(), false)
        .await
        .unwrap();
    let cursor = &internal.cursors["s"];
    assert!(
        cursor.individually_deleted_messages.starts_with("[("),
        "{cursor:?}"
    );
    assert!(cursor.waiting_read_op);

    // Skipping reaches the stream consumer before the answer comes.
    bench
        .admin
        .subscriptions
        .skip(name.clone(), subscription("s"), 1)
        .await
        .unwrap();
    assert_eq!(bench.stats(&name).await.subscriptions["s"].msg_backlog, 0);
    let busy = bench
        .admin
        .subscriptions
        .delete_subscription(name.clone(), subscription("s"), false)
        .await;
    assert!(matches!(busy, Err(AdminError::Precondition(_))), "{busy:?}");

    // What it got still counts when it has left: a reset closes it.
    bench
        .admin
        .subscriptions
        .reset_to(name.clone(), subscription("s"), Place::Earliest)
        .await
        .unwrap();
    let stats = bench.stats(&name).await;
    let shown = &stats.subscriptions["s"];
    assert_eq!(
        (shown.msg_backlog, shown.kind.as_str(), shown.consumers.len()),
        (3, "None", 0)
    );
    assert_eq!((shown.msg_out_counter, stats.msg_out_counter), (3, 3));
}

#[tokio::test]
async fn dispatched_subscriptions_show_their_consumers() {
    let (bench, name) = Bench::with_topic("persistent://public/default/t").await;
    let wish = Wish {
        subscription: "s",
        name: "c",
        kind: SubscriptionType::KeyShared,
    };
    let number = bench.consume(ShardId(0), &name, wish).await;
    bench.publish(ShardId(1), &name, &["one", "two"]).await;
    bench
        .with_client(ShardId(0), number, |client| async move {
            client.wait_for(2).await;
            client.ack(0);
        })
        .await;
    // The acknowledgement is on its way home.
    let stats = bench
        .stats_until(&name, |stats| stats.subscriptions["s"].msg_backlog == 1)
        .await;
    let shown = &stats.subscriptions["s"];
    assert_eq!(
        (shown.kind.as_str(), shown.key_shared_mode.as_deref()),
        ("Key_Shared", Some("AUTO_SPLIT"))
    );
    assert_eq!((shown.unacked_messages, shown.msg_out_counter), (1, 2));
    let row = &shown.consumers[0];
    assert_eq!(
        (row.unacked_messages, row.msg_out_counter, row.available_permits),
        (1, 2, 98)
    );
    assert!(row.last_consumed_flow_timestamp > 0 && shown.last_consumed_flow_timestamp > 0);
    assert!(!row.key_hash_ranges.as_ref().unwrap().is_empty());
}

#[tokio::test]
async fn the_active_consumer_of_a_failover_subscription_has_a_name() {
    let (bench, name) = Bench::with_topic("persistent://public/default/t").await;
    for (shard, consumer) in [(0, "a"), (1, "b")] {
        let wish = Wish {
            subscription: "s",
            name: consumer,
            kind: SubscriptionType::Failover,
        };
        bench.consume(ShardId(shard), &name, wish).await;
    }
    let has_active = |stats: &TopicStats| stats.subscriptions["s"].active_consumer_name.is_some();
    let stats = bench.stats_until(&name, has_active).await;
    let shown = &stats.subscriptions["s"];
    assert_eq!((shown.kind.as_str(), shown.consumers.len()), ("Failover", 2));
    let active = &shown.active_consumer_name;
    assert!(matches!(active.as_deref(), Some("a" | "b")), "{active:?}");
}

#[tokio::test]
async fn broadcast_consumers_are_counted_and_the_slowest_are_named() {
    let (bench, name) = Bench::with_topic("persistent://public/default/t").await;
    let mut numbers = Vec::new();
    for (shard, consumer) in [(0, "x"), (1, "y"), (1, "z")] {
        let wish = Wish {
            subscription: "all",
            name: consumer,
            kind: SubscriptionType::Broadcast,
        };
        numbers.push((ShardId(shard), bench.consume(ShardId(shard), &name, wish).await));
    }
    bench.publish(ShardId(0), &name, &["one", "two", "three"]).await;
    for (acks, (shard, number)) in numbers.iter().enumerate() {
        bench
            .with_client(*shard, *number, move |client| async move {
                client.wait_for(3).await;
                (0..acks).for_each(|index| client.ack(index));
                if acks == 2 {
                    client.leave();
                }
            })
            .await;
    }
    // Leaving takes a message home.
    let stats = bench
        .stats_until(&name, |stats| stats.subscriptions["all"].consumer_count == 2)
        .await;
    let shown = &stats.subscriptions["all"];
    assert_eq!(
        (shown.kind.as_str(), shown.msg_backlog, shown.msg_out_counter),
        ("Exclusive", 3, 9)
    );
    let summary = shown.broadcast().unwrap();
    assert_eq!(
        (
            summary.consumers_connected,
            summary.consumers_absent,
            summary.consumers_at_tail
        ),
        (2, 1, 2)
    );
    assert_eq!(shown.consumers[0].consumer_name, "x");

    let query = BroadcastQuery {
        slowest: 2,
        consumers: true,
    };
    let asked = bench
        .admin
        .subscriptions
        .broadcast_details(name.clone(), subscription("all"), query)
        .await
        .unwrap();
    let rows: Vec<_> = asked
        .slowest
        .iter()
        .map(|row| (row.consumer_name.as_str(), row.backlog))
        .collect();
    assert_eq!(rows, [("x", 3), ("y", 2)]);
    let all = asked.consumers.unwrap();
    assert_eq!(all.len(), 3);
    assert_eq!(
        (all[1].increment, all[1].connected, all[1].unacked_messages),
        (1, true, 2)
    );
    assert_eq!(
        (all[2].connected, all[2].absent_seconds.is_some(), all[2].durable),
        (false, true, true)
    );

    bench.make_subscription(&name, "plain", Place::Latest).await;
    let other = bench
        .admin
        .subscriptions
        .broadcast_details(name.clone(), subscription("plain"), query)
        .await;
    assert!(matches!(other, Err(AdminError::Precondition(_))), "{other:?}");
}

#[tokio::test]
async fn metrics_come_from_all_shards_and_only_grow() {
    let (bench, name) = Bench::with_topic("persistent://public/default/t").await;
    let away = bench.away(&name);
    let wish = Wish {
        subscription: "s",
        name: "c",
        kind: SubscriptionType::Exclusive,
    };
    let number = bench.consume(away, &name, wish).await;
    bench.publish(bench.home(&name), &name, &["one", "two"]).await;
    bench
        .with_client(away, number, |client| async move {
            client.wait_for(2).await;
            client.ack(0);
        })
        .await;
    let of = |snapshot: &MetricsSnapshot, wanted| {
        let found = snapshot.stages.iter().find(|(stage, _)| *stage == wanted);
        found.map_or(0, |(_, histogram)| histogram.count())
    };
    for _ in 0..2 {
        let snapshot = bench.admin.brokers.metrics().await.unwrap();
        assert_eq!(
            (
                of(&snapshot, Stage::Persistence),
                of(&snapshot, Stage::Notification)
            ),
            (2, 2)
        );
        assert_eq!(of(&snapshot, Stage::Acknowledgement), 1);
        assert_eq!(
            (snapshot.publish_latency.count(), snapshot.connections.active),
            (2, 2)
        );
        assert_eq!(snapshot.topics.len(), 1);
        let sizes = snapshot.topics[0].entry_sizes;
        assert_eq!(
            (sizes.count(), snapshot.topics[0].storage_write_latency.count()),
            (2, 2)
        );
        assert_eq!(
            (snapshot.topic_load.count(), snapshot.topic_load_failed_total),
            (1, 0)
        );
        let shown = &snapshot.topics[0].stats;
        assert_eq!((shown.msg_in_counter, shown.publisher_count), (2, 1));
        assert_eq!(shown.subscriptions["s"].consumer_count, 1);
        assert_eq!(
            snapshot.topics[0].stages.len(),
            6,
            "all but broadcasting, which real sockets record"
        );
    }
    bench
        .with_client(away, number, |client| async move { client.leave() })
        .await;
    bench
        .stats_until(&name, |stats| stats.subscriptions["s"].consumer_count == 0)
        .await;
    // The feed is gone by now or will be; what it counted stays.
    let snapshot = bench.admin.brokers.metrics().await.unwrap();
    assert_eq!(
        (
            of(&snapshot, Stage::Notification),
            of(&snapshot, Stage::Acknowledgement)
        ),
        (2, 1)
    );
}
