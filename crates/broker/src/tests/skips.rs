//! Cursors that are skipped while they are at home.

use super::*;

#[tokio::test]
async fn a_cursor_that_is_not_stored_is_moved_while_its_consumer_waits_to_be_the_active_one() {
    // A consumer of Failover gets the cursor after this; until then it is at home.
    let bench = Bench::with(MemoryEngine::new(), |options| {
        options.failover_delay = Duration::from_secs(3600);
    })
    .await;
    let name = topic("t");
    bench.create_topic(&name).await;
    let home = bench.home(&name);
    bench.publish(home, &name, &["a", "b", "c"]).await;
    let wanted = name.clone();
    bench
        .on(home, move |shard| async move {
            let wish = Wish {
                subscription: "r",
                name: "c",
                kind: SubscriptionType::Failover,
            };
            Client::new(&shard).read(&wanted, wish).await;
        })
        .await;
    let backlog = async || bench.backlogs(&name).await["r"];
    assert_eq!(backlog().await, 3);
    for (count, left) in [(2, 1), (5, 0)] {
        let skipped = bench.at_home(&name, move |topic| async move {
            topic.skip(&subscription("r"), count).await
        });
        skipped.await.unwrap();
        assert_eq!(backlog().await, left);
    }
    let figures = bench.figures(&name).await;
    assert!(
        figures.subscriptions[0].cursors[0].handed_over_to.is_none(),
        "it was at home"
    );
}
