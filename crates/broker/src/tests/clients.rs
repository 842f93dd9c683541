//! Sends that are answered, and what travels between shards.

use pharos_topic::TopicHandle;

use super::*;

#[tokio::test]
async fn every_send_is_answered_also_when_no_consumer_takes_it() {
    let (bench, name) = Bench::with_topic("persistent://public/default/t").await;
    let here = bench.away(&name);
    let topic_name = name.clone();
    let (sends_of, bytes_of) = bench
        .on(here, move |shard| async move {
            let client = Client::new(&shard);
            let (topic, key) = client.produce(&topic_name).await;
            shard.close_producer(topic, key);
            let entries = || vec![entry("one", 1), entry("two", 1)];
            client.publish(topic, key, sends(entries()));
            // Nor is a topic that is not loaded a reason to say nothing.
            let gone = TopicId {
                number: u64::MAX,
                ..topic
            };
            client.publish(gone, key, sends(entries()));
            until(|| client.events.borrow().len() == 2).await;
            let events = client.events.borrow();
            let dropped = events.iter().map(|event| match event {
                ConnectionEvent::SendsDropped { sends, bytes } => (*sends, *bytes),
                other => panic!("{other:?}"),
            });
            dropped.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
        })
        .await;
    assert_eq!(sends_of, 4);
    assert_eq!(bytes_of, 4 * entry("one", 1).len() as u64);
}

#[tokio::test]
async fn a_producer_is_closed_before_its_send_fails_because_the_topic_ends() {
    let (bench, name) = Bench::with_topic("persistent://public/default/t").await;
    bench
        .on(bench.home(&name), move |shard| async move {
            let client = Client::new(&shard);
            let (id, key) = client.produce(&name).await;
            let topic = TopicHandle::new(shard.home.topics.by_id(id).unwrap());
            let sending = async {
                client.publish(id, key, sends(vec![entry("late", 1)]));
                until(|| client.events.borrow().len() == 2).await;
            };
            let (ended, ()) = tokio::join!(topic.terminate(), sending);
            ended.unwrap();
            let events = client.events.borrow();
            assert!(
                matches!(
                    events[..],
                    [
                        ConnectionEvent::ProducerClosed { .. },
                        ConnectionEvent::SendFailed { .. } | ConnectionEvent::SendsDropped { .. }
                    ]
                ),
                "{events:?}"
            );
        })
        .await;
}

#[tokio::test]
async fn what_travels_between_shards_is_weighed_until_it_is_handled() {
    let (bench, name) = Bench::with_topic("persistent://public/default/t").await;
    let (home, away) = (bench.home(&name), bench.away(&name));
    let wish = Wish {
        subscription: "s",
        name: "c",
        kind: SubscriptionType::Shared,
    };
    let number = bench.consume(away, &name, wish).await;
    let position = bench.publish(home, &name, &["one"]).await[0];
    let budget = |bench: &Bench| bench.broker.shared.mesh_budget.is_exhausted();
    assert!(!budget(&bench));
    // The home stands still while a peer acknowledges on and on.
    let (go, stop) = std::sync::mpsc::sync_channel::<()>(1);
    bench
        .broker
        .run_on(home.index(), move |_| {
            let _ = stop.recv();
        })
        .await;
    let sent = bench
        .with_client(away, number, move |client| async move {
            let consumer = client.consumer.borrow();
            let consumer = consumer.as_ref().unwrap();
            let acks = || {
                let ack = OwnedAck {
                    position,
                    remaining: vec![-1; 1000].into(),
                };
                vec![ack; 100]
            };
            let mut sent: u64 = 0;
            while !client.shard.shared.mesh_budget.is_exhausted() {
                client.shard.ack(consumer.topic, consumer.key, acks(), false);
                sent += 1;
            }
            sent
        })
        .await;
    // About as many as weigh what the budget allows.
    assert!((50..=90).contains(&sent), "{sent} messages of some 800 KB");
    drop(go);
    for _ in 0..20_000 {
        if !budget(&bench) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("what was handled still counts");
}
