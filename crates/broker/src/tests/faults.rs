//! Topics whose log takes no more writes: those that can come back do, by themselves.

use pharos_ledger::StorageFault;
use pharos_topic::{TopicHandle, Wanted};
use pharos_types::Ordinal;

use super::*;

/// Publishes until a receipt comes; the client makes its producer anew each time, as real ones do.
async fn publish_again(shard: &Rc<Shard>, name: &TopicName, text: &str) {
    for _ in 0..5_000 {
        let client = Client::new(shard);
        if let Ok((topic, key)) = client.try_produce(name).await {
            client.publish(topic, key, sends(vec![entry(text, clock::wall_ms())]));
            until(|| !client.receipts.borrow().is_empty() || !client.events.borrow().is_empty()).await;
            if !client.receipts.borrow().is_empty() {
                return;
            }
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the topic does not come back");
}

#[tokio::test]
async fn a_topic_whose_ledger_is_taken_is_given_up_and_comes_back_when_asked_for() {
    let engine = MemoryEngine::new();
    let bench = Bench::over(engine.clone()).await;
    let name = topic("t");
    bench.create_topic(&name).await;
    let home = bench.home(&name);
    let wish = Wish {
        subscription: "s",
        name: "c",
        kind: SubscriptionType::Exclusive,
    };
    bench.consume(home, &name, wish).await;
    bench.publish(home, &name, &["before"]).await;
    // As another owner would: the data's ledger and the cursors'.
    for ledger in engine.list().await.unwrap() {
        engine.recover(ledger).await.unwrap();
    }
    let wanted = name.clone();
    bench
        .on(home, move |shard| async move {
            let before = shard.home.topics.by_name(&wanted).unwrap();
            let client = Client::new(&shard);
            let (id, key) = client.produce(&wanted).await;
            client.publish(id, key, sends(vec![entry("late", clock::wall_ms())]));
            until(|| shard.home.topics.by_id(id).is_none()).await;
            assert!(client.receipts.borrow().is_empty());
            publish_again(&shard, &wanted, "after").await;
            let now = shard.home.topic(&wanted, Access::Existing).await.unwrap();
            assert_ne!(now.id(), before.id(), "it was loaded anew");
            let now = TopicHandle::new(now);
            let figures = now.figures(Wanted::default());
            assert!(!figures.log.has_fault);
            assert_eq!(figures.subscriptions.len(), 1);
            let kept = now.entry_at(Ordinal(0)).await.unwrap().unwrap();
            assert!(kept.payload.ends_with(b"before"));
        })
        .await;
}

#[tokio::test]
async fn a_topic_of_a_poisoned_engine_stays_for_its_readers() {
    let engine = MemoryEngine::new();
    let bench = Bench::over(engine.clone()).await;
    let name = topic("t");
    let home = bench.home(&name);
    bench.create_topic(&name).await;
    bench.publish(home, &name, &["before"]).await;
    engine.poison(&StorageFault::new("sync", "failed"));
    bench
        .on(home, move |shard| async move {
            let loaded = shard.home.topics.by_name(&name).unwrap();
            let client = Client::new(&shard);
            let (topic, key) = client.produce(&name).await;
            client.publish(topic, key, sends(vec![entry("refused", clock::wall_ms())]));
            until(|| !client.events.borrow().is_empty()).await;
            let handle = TopicHandle::new(loaded.clone());
            assert!(handle.figures(Wanted::default()).log.has_fault);
            assert!(client.receipts.borrow().is_empty());
            // It would be loaded anew by now if it were to be.
            tokio::time::sleep(Duration::from_millis(700)).await;
            let same = shard.home.topics.by_name(&name).unwrap();
            assert!(Rc::ptr_eq(&same, &loaded));
            let kept = handle.entry_at(Ordinal(0)).await.unwrap().unwrap();
            assert!(kept.payload.ends_with(b"before"));
        })
        .await;
}
