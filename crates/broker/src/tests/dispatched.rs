//! Shared subscriptions that are behind read within the account of their shard.

use super::*;

const TOPICS: usize = 6;
const ENTRIES: usize = 30;
const BYTES_MAX: usize = 1 << 20;

/// A broker that keeps nothing of what is published in memory, with topics of 20 KB entries.
async fn cold() -> (Bench, Vec<TopicName>) {
    let bench = Bench::with(MemoryEngine::new(), |options| {
        options.catch_up_read_cache_bytes = BYTES_MAX * 2;
        options.managed_ledger.cache_bytes_max = 0;
    })
    .await;
    let mut names = Vec::new();
    for number in 0..TOPICS {
        let name = topic(&format!("persistent://public/default/t{number}"));
        bench.create_topic(&name).await;
        let text = "x".repeat(20_000);
        bench
            .publish(bench.away(&name), &name, &vec![text.as_str(); ENTRIES])
            .await;
        names.push(name);
    }
    (bench, names)
}

/// Something of a shard's account, for both shards.
async fn of_accounts<R: Send + 'static>(bench: &Bench, look: fn(&Rc<Shard>) -> R) -> [R; 2] {
    let one = bench
        .on(ShardId(0), move |shard| async move { look(&shard) })
        .await;
    let two = bench
        .on(ShardId(1), move |shard| async move { look(&shard) })
        .await;
    [one, two]
}

thread_local! {
    /// Room that the test holds on a shard.
    static HELD: RefCell<Option<pharos_feed::Room>> = const { RefCell::new(None) };
}

#[tokio::test]
async fn shared_subscriptions_read_when_there_is_room_and_give_it_back() {
    let (bench, names) = cold().await;
    // Others have all of it.
    of_accounts(&bench, |shard| {
        let room = shard.feeds.budget().reserve_room(false, BYTES_MAX);
        HELD.with_borrow_mut(|held| *held = room);
    })
    .await;
    let mut clients = Vec::new();
    for name in &names {
        let wish = Wish {
            subscription: "s",
            name: "c",
            kind: SubscriptionType::Shared,
        };
        let away = bench.away(name);
        clients.push((away, bench.consume(away, name, wish).await));
    }
    // Permits reach the topics behind the consumers: until all of them ask for room.
    let mut waiting = 0;
    while waiting < TOPICS {
        tokio::time::sleep(Duration::from_millis(1)).await;
        waiting = of_accounts(&bench, |shard| shard.feeds.budget().waiting())
            .await
            .iter()
            .sum();
    }
    for (shard, number) in &clients {
        let got = bench
            .with_client(*shard, *number, |client| async move { client.got.borrow().len() })
            .await;
        assert_eq!(got, 0);
    }
    of_accounts(&bench, |_| HELD.with_borrow_mut(|held| *held = None)).await;
    for (shard, number) in clients {
        bench
            .with_client(
                shard,
                number,
                |client| async move { client.wait_for(ENTRIES).await },
            )
            .await;
    }
    assert_eq!(
        of_accounts(&bench, |shard| shard.feeds.budget().used()).await,
        [0, 0]
    );
    let peaks = of_accounts(&bench, |shard| shard.feeds.budget().peak()).await;
    assert!(peaks.iter().all(|peak| *peak <= BYTES_MAX), "{peaks:?}");
}
