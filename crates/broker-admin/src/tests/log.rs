//! Looking into the log.

use super::*;

#[tokio::test]
async fn single_entries_are_found_in_many_ways() {
    let (bench, name) = Bench::with_topic("persistent://public/default/t").await;
    let admin = &bench.admin;
    let now = clock::wall_ms();
    let entries = vec![entry("one", now - 9000), batch(3), entry("last", now + 9000)];
    let positions = bench.publish_entries(ShardId(0), &name, entries.clone()).await;
    bench.make_subscription(&name, "s", Place::Earliest).await;
    admin
        .subscriptions
        .skip(name.clone(), subscription("s"), 1)
        .await
        .unwrap();

    let peeked = admin
        .messages
        .peek(name.clone(), subscription("s"), 1)
        .await
        .unwrap();
    assert_eq!((peeked.position, &peeked.payload), (positions[1], &entries[1]));
    let beyond = admin.messages.peek(name.clone(), subscription("s"), 3).await;
    assert!(matches!(beyond, Err(AdminError::NotFound(_))), "{beyond:?}");

    // Looking makes a subscription, where one may be made.
    let peeked = admin
        .messages
        .peek(name.clone(), subscription("new"), 1)
        .await
        .unwrap();
    assert_eq!(peeked.position, positions[0]);
    let known = admin.subscriptions.subscriptions(name.clone()).await.unwrap();
    assert!(known.contains(&"new".to_owned()), "{known:?}");
    bench
        .broker
        .shared
        .catalog
        .namespaces()
        .set_policy(
            name.namespace(),
            "autoSubscriptionCreationOverride",
            serde_json::json!({"allowAutoSubscriptionCreation": false}),
        )
        .await
        .unwrap();
    let refused = admin.messages.peek(name.clone(), subscription("other"), 1).await;
    assert!(matches!(refused, Err(AdminError::NotFound(_))), "{refused:?}");

    // Messages, not entries, are counted: 1, then 2 to 4 in the batch, then 5.
    for (from, nth, wanted) in [
        (ExamineFrom::Earliest, 1, 0),
        (ExamineFrom::Earliest, 4, 1),
        (ExamineFrom::Earliest, 5, 2),
        (ExamineFrom::Latest, 1, 2),
        (ExamineFrom::Latest, 2, 1),
        (ExamineFrom::Latest, 5, 0),
    ] {
        let found = admin.messages.examine(name.clone(), from, nth).await.unwrap();
        assert_eq!(found.position, positions[wanted], "{from:?} {nth}");
    }
    assert!(
        admin
            .messages
            .examine(name.clone(), ExamineFrom::Latest, 6)
            .await
            .is_err()
    );
    assert_eq!(
        admin
            .messages
            .entry_at(name.clone(), positions[2])
            .await
            .unwrap()
            .payload,
        entries[2]
    );
    assert!(
        admin
            .messages
            .entry_at(name.clone(), Position::new(999, 0))
            .await
            .is_err()
    );
    let by_time = admin
        .stats
        .message_at_time(name.clone(), now + 5000)
        .await
        .unwrap();
    assert_eq!(by_time.position, Some(positions[2]));

    let analyzed = admin
        .subscriptions
        .analyze_backlog(name.clone(), subscription("s"), None)
        .await
        .unwrap();
    assert_eq!(
        (analyzed.entries, analyzed.messages, analyzed.aborted),
        (2, 4, false)
    );
    assert_eq!(analyzed.first_message_id, Some(positions[1].to_string()));
    let all = admin
        .stats
        .backlog_bytes(name.clone(), Place::Earliest)
        .await
        .unwrap();
    assert_eq!(all, entries.iter().map(|entry| entry.len() as u64).sum::<u64>());
    assert_eq!(admin.stats.backlog_bytes(name, Place::Latest).await.unwrap(), 0);
}

#[tokio::test]
async fn a_place_within_a_batch_leaves_the_rest_of_it() {
    let (bench, name) = Bench::with_topic("persistent://public/default/t").await;
    let positions = bench
        .publish_entries(ShardId(0), &name, vec![batch(4), batch(4)])
        .await;
    let sub = subscription("s");
    let admin = &bench.admin;
    bench
        .make_subscription(&name, sub.as_str(), Place::Earliest)
        .await;
    let within = |index, excluded| Place::At {
        position: positions[0],
        batch_index: Some(index),
        excluded,
    };
    for (place, wanted) in [(within(2, false), 2), (within(3, true), 1), (within(0, false), 2)] {
        admin
            .subscriptions
            .reset_to(name.clone(), sub.clone(), place)
            .await
            .unwrap();
        assert_eq!(
            bench.stats(&name).await.subscriptions["s"].msg_backlog,
            wanted,
            "{place:?}"
        );
    }
}

#[tokio::test]
async fn internals_show_ledgers_and_cursors() {
    let (bench, name) = Bench::with_topic("persistent://public/default/t").await;
    let positions = bench.publish(ShardId(0), &name, &["one", "two", "three"]).await;
    let admin = &bench.admin;
    bench.make_subscription(&name, "s", Place::Earliest).await;
    admin
        .subscriptions
        .skip(name.clone(), subscription("s"), 2)
        .await
        .unwrap();
    let internal = admin.stats.internal_stats(name.clone(), false).await.unwrap();
    assert_eq!(
        (internal.number_of_entries, internal.entries_added_counter),
        (3, 3)
    );
    assert_eq!(internal.last_confirmed_entry, positions[2].to_string());
    assert_eq!(internal.state, "LedgerOpened");
    let cursor = &internal.cursors["s"];
    assert_eq!(cursor.mark_delete_position, positions[1].to_string());
    assert_eq!(cursor.read_position, positions[2].to_string());
    assert_eq!(cursor.individually_deleted_messages, "[]");
    let info = admin.stats.internal_info(name).await.unwrap();
    assert_eq!(info.ledgers.last().unwrap().ledger_id, positions[2].ledger.0);
    let mark = info.cursors["s"].mark_delete.unwrap();
    assert_eq!(u64::try_from(mark.entry_id).unwrap(), positions[1].entry.0);
}

#[tokio::test]
async fn internals_name_the_entries_that_cannot_be_read() {
    let engine = MemoryEngine::new();
    let below = harness::Bench::with(engine.clone(), |options| {
        options.managed_ledger.cache_bytes_max = 0
    });
    let bench = Bench::of(below.await);
    let name = topic("persistent://public/default/t");
    bench.create_topic(&name).await;
    let positions = bench.publish(ShardId(0), &name, &["one", "two"]).await;
    engine.damage(positions[1].ledger, positions[1].entry);
    bench.create_subscription(&name, "s", StartAt::Earliest).await;
    let wish = Wish {
        subscription: "s",
        name: "c",
        kind: SubscriptionType::Shared,
    };
    bench.consume(ShardId(0), &name, wish).await;
    loop {
        let internal = bench
            .admin
            .stats
            .internal_stats(name.clone(), false)
            .await
            .unwrap();
        if !internal.unreadable_positions.is_empty() {
            assert_eq!(internal.unreadable_positions, [positions[1].to_string()]);
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
