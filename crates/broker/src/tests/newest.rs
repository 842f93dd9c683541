//! The newest entries in a shard's memory stay within their account, and no consumer misses an evicted entry.

use super::*;

const TOPICS: usize = 20;
/// Three times what consumers have permits for.
const ENTRIES: usize = 300;

#[tokio::test]
async fn many_topics_together_have_no_more_at_hand_than_the_account_allows() {
    let bench = Bench::with(MemoryEngine::new(), |options| {
        options.newest_cache_bytes = 2 << 20
    })
    .await;
    let mut clients = Vec::new();
    let text = "x".repeat(1000);
    for number in 0..TOPICS {
        let name = topic(&format!("persistent://public/default/t{number}"));
        bench.create_topic(&name).await;
        let wish = Wish {
            subscription: "s",
            name: "c",
            kind: SubscriptionType::Exclusive,
        };
        let away = bench.away(&name);
        clients.push((away, bench.consume(away, &name, wish).await));
        bench.publish(away, &name, &vec![text.as_str(); ENTRIES]).await;
    }
    for (shard, number) in &clients {
        let client = (*shard, *number);
        bench
            .with_client(
                client.0,
                client.1,
                |client| async move { client.wait_for(100).await },
            )
            .await;
    }
    for shard in [ShardId(0), ShardId(1)] {
        let used = bench
            .on(shard, |shard| async move { shard.feeds.newest().used() })
            .await;
        // What came in one call may be too much until the next.
        assert!((1..=(1 << 20) + ENTRIES * 2000).contains(&used), "{used}");
    }
    for (shard, number) in clients {
        let got = bench
            .with_client(shard, number, |client| async move {
                client.flow(200);
                // The first that had no permit was begun as well.
                client.wait_for(ENTRIES + 1).await;
                let got = client.got.borrow();
                let mut got: Vec<u64> = got.iter().map(|entry| entry.ordinal.0).collect();
                got.dedup();
                got
            })
            .await;
        assert_eq!(got, (0..ENTRIES as u64).collect::<Vec<u64>>());
    }
}

#[tokio::test]
async fn of_a_topic_without_consumers_nothing_durable_is_kept() {
    let mut kept = None;
    let bench = Bench::with(MemoryEngine::new(), |options| {
        kept = Some(options.managed_ledger.cache_budget.clone());
    })
    .await;
    let kept = kept.expect("options were given");
    let name = topic("persistent://public/default/t");
    bench.create_topic(&name).await;
    let away = bench.away(&name);
    bench.create_subscription(&name, "s", StartAt::Earliest).await;
    bench.publish(away, &name, &["entry"; 50]).await;
    // Receipts leave the topic's home just before: it is asked once more.
    bench.figures(&name).await;
    assert_eq!(kept.bytes_used(), 0);
    let wish = Wish {
        subscription: "s",
        name: "c",
        kind: SubscriptionType::Shared,
    };
    let number = bench.consume(away, &name, wish).await;
    bench.publish(away, &name, &["entry"; 3]).await;
    assert!(kept.bytes_used() > 0);
    let got = bench
        .with_client(away, number, |client| async move {
            client.wait_for(53).await;
            client.got.borrow().len()
        })
        .await;
    assert_eq!(got, 53);
}
