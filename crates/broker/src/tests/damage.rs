//! Entries that cannot be read any more: consumers stop in front of them, and nothing else does.

use std::ops::Range;

use pharos_topic::{Maintenance, SeekTo, TopicHandle, Wanted};
use pharos_types::Ordinal;
use serde_json::json;

use super::*;

const OLD_MS: u64 = 1_000;

/// A broker that keeps nothing in memory, with a topic of ten entries, half of them old, and `damaged` of them.
async fn damaged(range: Range<usize>) -> (Bench, TopicName) {
    damaged_with(range, false, false).await
}

/// With the policy that skips such entries, and a subscription that is broadcast.
async fn damaged_with(damaged: Range<usize>, skips: bool, broadcast: bool) -> (Bench, TopicName) {
    let engine = MemoryEngine::new();
    let bench = Bench::with(engine.clone(), |options| {
        options.managed_ledger.cache_bytes_max = 0;
        options.skip_lost_entries = skips;
    })
    .await;
    let name = topic("t");
    bench.create_topic(&name).await;
    let made = bench.at_home(&name, move |topic| async move {
        let name = subscription("s");
        topic
            .create_subscription(name, StartAt::Earliest, broadcast, &[], false)
            .await
    });
    made.await.unwrap();
    let entries = (0..10).map(|number| match number < 5 {
        true => entry(&number.to_string(), OLD_MS),
        false => entry(&number.to_string(), clock::wall_ms()),
    });
    let positions = bench
        .publish_entries(bench.home(&name), &name, entries.collect())
        .await;
    for position in &positions[damaged] {
        engine.damage(position.ledger, position.entry);
    }
    (bench, name)
}

/// Waits until so many entries were found to be unreadable.
async fn until_unreadable(bench: &Bench, count: u64) {
    for _ in 0..5_000 {
        if unreadable(bench).await >= count {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("no read met the damage");
}

async fn unreadable(bench: &Bench) -> u64 {
    bench.counts().await.entries_unreadable
}

/// Returns the position of the only cursor.
fn place(topic: &TopicHandle) -> Ordinal {
    topic.figures(Wanted::default()).lowest.unwrap()
}

/// Sets a policy of the topic, looks at something, and says where the only cursor stands then.
async fn place_after(
    bench: &Bench,
    name: &TopicName,
    policy: (&str, serde_json::Value),
    looked_at: Maintenance,
) -> Ordinal {
    let set = bench.catalog().set_topic_policy(name, policy.0, policy.1);
    set.await.unwrap();
    let wanted = name.clone();
    bench
        .on(bench.home(name), move |shard| async move {
            let topic = shard.home.topic(&wanted, Access::Existing).await.unwrap();
            topic.on_policies_changed();
            for _ in 0..3 {
                topic.maintain_part(looked_at).await;
            }
            place(&TopicHandle::new(topic))
        })
        .await
}

#[tokio::test]
async fn what_is_old_expires_around_damage_and_with_it() {
    for (range, expected) in [(0..1, 5), (0..3, 5), (2..3, 5), (2..7, 2), (4..5, 4), (9..10, 5)] {
        let (bench, name) = damaged(range.clone()).await;
        let hour = ("messageTTL", json!(3600));
        let found = place_after(&bench, &name, hour, Maintenance::Messages).await;
        assert_eq!(found, Ordinal(expected), "{range:?}");
        assert!(
            unreadable(&bench).await <= range.len() as u64,
            "each is told once"
        );
    }
}

#[tokio::test]
async fn a_backlog_that_begins_with_damage_has_an_age_and_is_evicted() {
    let (bench, name) = damaged(0..3).await;
    let quota = json!({ "message_age": { "limitTime": 3600, "policy": "consumer_backlog_eviction" } });
    let found = place_after(&bench, &name, ("backlogQuota", quota), Maintenance::Quotas).await;
    assert_eq!(found, Ordinal(5));
    assert!(unreadable(&bench).await >= 1);
}

#[tokio::test]
async fn a_reset_by_time_goes_on_around_damage() {
    let (bench, name) = damaged(2..4).await;
    let found = bench.at_home(&name, |topic| async move {
        let name = subscription("s");
        topic.reset(&name, SeekTo::Time(OLD_MS + 1)).await.unwrap();
        place(&topic)
    });
    let found = found.await;
    assert_eq!(found, Ordinal(5));
}

/// A consumer gets what lies before the damage, and the rest once it was skipped, while it stays.
async fn waits_until_it_is_skipped(kind: SubscriptionType) {
    let (bench, name) = damaged(3..4).await;
    let wish = Wish {
        subscription: "s",
        name: "c",
        kind,
    };
    let away = bench.away(&name);
    let client = bench.consume(away, &name, wish).await;
    bench
        .with_client(away, client, |client| async move {
            client.wait_for(3).await;
            (0..3).for_each(|index| client.ack(index));
        })
        .await;
    until_unreadable(&bench, 1).await;
    assert_eq!(bench.figures(&name).await.log.unreadable, [Ordinal(3)]);
    bench
        .at_home(&name, move |topic| async move {
            // What the client acknowledged arrives in its order, but not at once.
            until(|| topic.figures(Wanted::default()).lowest.is_some()).await;
            for _ in 0..5_000 {
                let acks = topic.acks_of(&subscription("s")).await.unwrap();
                if acks.acked_to() == Ordinal(3) {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            topic.skip(&subscription("s"), 1).await.unwrap();
        })
        .await;
    let got = bench
        .with_client(away, client, |client| async move {
            client.wait_for(9).await;
            let got = client.got.borrow();
            got.iter().map(|entry| entry.ordinal.0).collect::<Vec<_>>()
        })
        .await;
    assert_eq!(got, [0, 1, 2, 4, 5, 6, 7, 8, 9], "{kind:?}");
    assert_eq!(
        unreadable(&bench).await,
        1,
        "told once, however often it was tried"
    );
}

#[tokio::test]
async fn a_stream_consumer_waits_before_damage_until_it_is_skipped() {
    waits_until_it_is_skipped(SubscriptionType::Exclusive).await;
}

#[tokio::test]
async fn a_dispatcher_waits_before_damage_until_it_is_skipped() {
    waits_until_it_is_skipped(SubscriptionType::Shared).await;
}

/// A consumer gets all that can be read, and when it acknowledged that nothing is left, so the topic can be trimmed.
async fn is_moved_past(range: Range<usize>, kind: SubscriptionType, broadcast: bool) {
    let (bench, name) = damaged_with(range.clone(), true, broadcast).await;
    let wish = Wish {
        subscription: "s",
        name: "c",
        kind,
    };
    let away = bench.away(&name);
    let client = bench.consume(away, &name, wish).await;
    let count = 10 - range.len();
    let got = bench
        .with_client(away, client, move |client| async move {
            client.wait_for(count).await;
            (0..count).for_each(|index| client.ack(index));
            let got = client.got.borrow();
            got.iter().map(|entry| entry.ordinal.0).collect::<Vec<_>>()
        })
        .await;
    let readable = (0..10).filter(|place| !range.contains(place));
    assert_eq!(
        got,
        readable.map(|place| place as u64).collect::<Vec<_>>(),
        "{kind:?}"
    );
    bench
        .at_home(&name, move |topic| async move {
            for _ in 0..5_000 {
                let acks = topic.acks_of(&subscription("s")).await.unwrap();
                if acks.acked_to() == Ordinal(10) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            panic!("what was skipped is not acknowledged");
        })
        .await;
    let counts = bench.counts().await;
    assert_eq!(counts.entries_unreadable, range.len() as u64);
    assert!(counts.lost_skipped >= range.len() as u64);
}

#[tokio::test]
async fn the_policy_moves_a_stream_consumer_past_damage() {
    for range in [0..1, 3..6, 9..10] {
        is_moved_past(range, SubscriptionType::Exclusive, false).await;
    }
}

#[tokio::test]
async fn the_policy_moves_broadcast_consumers_past_damage() {
    is_moved_past(3..5, SubscriptionType::Exclusive, true).await;
}

#[tokio::test]
async fn the_policy_moves_a_dispatcher_past_damage() {
    for range in [0..1, 3..6, 9..10] {
        is_moved_past(range, SubscriptionType::Shared, false).await;
    }
}

#[tokio::test]
async fn the_policy_moves_the_active_consumer_of_a_failover_subscription_past_damage() {
    is_moved_past(3..5, SubscriptionType::Failover, false).await;
}

#[tokio::test]
async fn the_policy_moves_a_dispatcher_by_key_past_damage() {
    is_moved_past(3..6, SubscriptionType::KeyShared, false).await;
}

#[tokio::test]
async fn the_policy_moves_a_reader_past_damage() {
    for range in [0..1, 3..6] {
        let (bench, name) = damaged_with(range.clone(), true, false).await;
        let away = bench.away(&name);
        let wanted = name.clone();
        let reader = bench
            .on(away, move |shard| async move {
                let client = Client::new(&shard);
                let wish = Wish {
                    subscription: "r",
                    name: "c",
                    kind: SubscriptionType::Exclusive,
                };
                client.read(&wanted, wish).await;
                client.connection.borrow().unwrap().number
            })
            .await;
        let count = 10 - range.len();
        let got = bench
            .with_client(away, reader, move |client| async move {
                client.wait_for(count).await;
                let got = client.got.borrow();
                got.iter().map(|entry| entry.ordinal.0).collect::<Vec<_>>()
            })
            .await;
        let readable = (0..10).filter(|place| !range.contains(place));
        assert_eq!(got, readable.map(|place| place as u64).collect::<Vec<_>>());
    }
}

/// The place and the batch of the last message, as a client asks for it.
async fn last_of(bench: &Bench, name: &TopicName) -> Option<u64> {
    let wanted = name.clone();
    bench
        .on(bench.home(name), move |shard| async move {
            let topic = shard.home.topic(&wanted, Access::Existing).await.unwrap();
            let last = topic.last_message(None, None).await.unwrap();
            last.position.map(|position| position.entry.0)
        })
        .await
}

#[tokio::test]
async fn a_topic_that_ends_with_damage_has_a_last_message() {
    for (range, skips, expected) in [
        (9..10, false, Some(9)),
        (9..10, true, Some(8)),
        (7..10, true, Some(6)),
        (0..10, true, None),
    ] {
        let (bench, name) = damaged_with(range.clone(), skips, false).await;
        assert_eq!(last_of(&bench, &name).await, expected, "{range:?}, {skips}");
    }
}

/// Entries that were out come again when their consumer leaves; one of them was lost meanwhile. The others do not wait for it.
async fn others_are_replayed(kind: SubscriptionType, skips: bool) {
    let engine = MemoryEngine::new();
    let bench = Bench::with(engine.clone(), |options| {
        options.managed_ledger.cache_bytes_max = 0;
        options.skip_lost_entries = skips;
    })
    .await;
    let name = topic("t");
    bench.create_topic(&name).await;
    let away = bench.away(&name);
    let wish = |name| Wish {
        subscription: "s",
        name,
        kind,
    };
    let first = bench.consume(away, &name, wish("a")).await;
    let entries = (0..5).map(|number| entry(&number.to_string(), OLD_MS));
    let positions = bench
        .publish_entries(bench.home(&name), &name, entries.collect())
        .await;
    let wait = |client: Rc<Client>| async move { client.wait_for(5).await };
    bench.with_client(away, first, wait).await;
    let second = bench.consume(away, &name, wish("b")).await;
    engine.damage(positions[2].ledger, positions[2].entry);
    let leave = |client: Rc<Client>| async move { client.leave() };
    bench.with_client(away, first, leave).await;
    let got = bench
        .with_client(away, second, |client| async move {
            client.wait_for(4).await;
            (0..4).for_each(|index| client.ack(index));
            let mut got: Vec<u64> = client.got.borrow().iter().map(|entry| entry.ordinal.0).collect();
            got.sort_unstable();
            got
        })
        .await;
    assert_eq!(got, [0, 1, 3, 4], "{kind:?}");
    assert_eq!(unreadable(&bench).await, 1);
    let expected = Ordinal(if skips { 5 } else { 2 });
    bench
        .at_home(&name, move |topic| async move {
            for _ in 0..5_000 {
                let acks = topic.acks_of(&subscription("s")).await.unwrap();
                if acks.acked_to() == expected {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            panic!("what was lost is not where it should be");
        })
        .await;
}

#[tokio::test]
async fn a_replay_goes_on_around_an_entry_that_was_lost_meanwhile() {
    for kind in [SubscriptionType::Shared, SubscriptionType::KeyShared] {
        for skips in [false, true] {
            others_are_replayed(kind, skips).await;
        }
    }
}
