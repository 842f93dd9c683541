//! Grants to a producer or consumer, revoked if they cannot be kept.

use pharos_dispatch::{FailoverCandidates, HashRange, KeySharedMode};
use pharos_ledger::StorageFault;
use pharos_topic::{SeekTo, Staying, TopicHandle, Wanted};

use super::*;

const NAME: &str = "persistent://public/default/t";

async fn made(bench: &Bench) -> TopicName {
    let name = topic(NAME);
    bench.create_topic(&name).await;
    name
}

fn wish(kind: SubscriptionType) -> Wish {
    Wish {
        subscription: "s",
        name: "c",
        kind,
    }
}

#[tokio::test]
async fn an_epoch_that_was_handed_out_by_turns_survives_a_crash() {
    let (world, life) = (World::new(), Life::new());
    let bench = world.start(&life).await;
    let name = made(&bench).await;
    let (wanted, stores) = (name.clone(), life.clone());
    let epochs = bench.on(bench.home(&name), move |shard| async move {
        let (first, second) = (Client::new(&shard), Client::new(&shard));
        let held = first
            .try_produce_as(&wanted, AccessMode::Exclusive, None)
            .await
            .unwrap();
        let (_, mut waits) = second
            .try_produce_as(&wanted, AccessMode::WaitForExclusive, None)
            .await
            .unwrap();
        let mut turn = waits.turn.take().unwrap();
        stores.hold("managed-ledgers/");
        shard.close_producer(held.0, held.1.key);
        // Its turn has come, and it hears of that when the epoch is stored, not before.
        until(|| stores.is_holding() || turn.try_recv().is_ok()).await;
        assert!(turn.try_recv().is_err());
        stores.release();
        (held.1.topic_epoch, turn.await.unwrap().epoch)
    });
    assert_eq!(epochs.await, (Some(0), 1));
    // A crash: what is in the stores is all there is.
    life.dies_after(0, CallEffect::Not);
    drop(bench);
    let bench = world.start(&Life::new()).await;
    let wanted = name.clone();
    let back = bench.on(bench.home(&name), move |shard| async move {
        let client = Client::new(&shard);
        client
            .try_produce_as(&wanted, AccessMode::Exclusive, Some(0))
            .await
            .err()
    });
    let back = back.await;
    assert!(matches!(back, Some(ProducerError::Fenced(_))), "{back:?}");
}

#[tokio::test]
async fn a_producer_whose_epoch_cannot_be_stored_is_not_there() {
    let (world, life) = (World::new(), Life::new());
    let bench = world.start(&life).await;
    let name = made(&bench).await;
    life.fail(Some(("managed-ledgers/", CallEffect::Not)));
    let (wanted, stores) = (name.clone(), life.clone());
    bench
        .on(bench.home(&name), move |shard| async move {
            let (first, second) = (Client::new(&shard), Client::new(&shard));
            let refused = first.try_produce_as(&wanted, AccessMode::Exclusive, None).await;
            assert!(matches!(refused, Err(ProducerError::Storage(_))), "{refused:?}");
            stores.fail(None);
            let (_, granted) = second
                .try_produce_as(&wanted, AccessMode::Exclusive, None)
                .await
                .unwrap();
            assert_eq!(granted.topic_epoch, Some(1));
        })
        .await;
    drop(bench);
    let bench = world.start(&Life::new()).await;
    let wanted = name.clone();
    let back = bench.on(bench.home(&name), move |shard| async move {
        let client = Client::new(&shard);
        client
            .try_produce_as(&wanted, AccessMode::Exclusive, Some(0))
            .await
            .err()
    });
    let back = back.await;
    assert!(
        matches!(back, Some(ProducerError::Fenced(_))),
        "the second epoch is stored: {back:?}"
    );
}

#[tokio::test]
async fn a_consumer_whose_subscription_cannot_be_stored_is_not_there() {
    for kind in SubscriptionType::ALL {
        let engine = MemoryEngine::new();
        let bench = Bench::over(engine.clone()).await;
        let name = made(&bench).await;
        bench.create_subscription(&name, "other", StartAt::Latest).await;
        engine.poison(&StorageFault::new("write", "poisoned"));
        let wanted = name.clone();
        bench
            .on(bench.home(&name), move |shard| async move {
                let client = Client::new(&shard);
                let refused = client.try_subscribe(&wanted, wish(kind), None).await;
                assert!(
                    matches!(refused, Err(SubscribeError::Storage(_))),
                    "{kind:?} {refused:?}"
                );
                let topic = shard.home.topic(&wanted, Access::Existing).await.unwrap();
                assert!(!Staying(&topic).is_in_use(), "{kind:?}");
                let figures = TopicHandle::new(topic).figures(Wanted::default());
                let left: Vec<_> = figures
                    .subscriptions
                    .iter()
                    .map(|left| left.name.as_str())
                    .collect();
                assert_eq!(left, ["other"], "{kind:?}");
            })
            .await;
    }
}

#[tokio::test]
async fn a_key_shared_consumer_that_is_refused_leaves_its_subscription_as_it_was() {
    let bench = Bench::new().await;
    let name = made(&bench).await;
    let wanted = name.clone();
    bench
        .on(bench.home(&name), move |shard| async move {
            let backwards = KeySharedSpec {
                mode: KeySharedMode::Sticky(vec![HashRange { start: 9, end: 3 }]),
                allow_out_of_order: false,
            };
            let client = Client::new(&shard);
            let kind = wish(SubscriptionType::KeyShared);
            let refused = client.try_subscribe(&wanted, kind, Some(backwards.clone())).await;
            assert!(matches!(refused, Err(SubscribeError::Assign(_))), "{refused:?}");
            let topic = shard.home.topic(&wanted, Access::Existing).await.unwrap();
            assert!(!Staying(&topic).has_subscriptions());
            // One that exists takes a consumer of any kind afterwards.
            client.subscribe(&wanted, wish(SubscriptionType::Exclusive)).await;
            client.leave();
            until(|| !Staying(&topic).is_in_use()).await;
            let refused = client.try_subscribe(&wanted, kind, Some(backwards)).await;
            assert!(matches!(refused, Err(SubscribeError::Assign(_))), "{refused:?}");
            client.subscribe(&wanted, wish(SubscriptionType::Exclusive)).await;
        })
        .await;
}

#[tokio::test]
async fn broadcast_consumers_that_seek_their_own_place_at_once_are_all_served() {
    const CONSUMERS: usize = 1000;
    let bench = Bench::new().await;
    let name = made(&bench).await;
    bench.publish(bench.home(&name), &name, &["one", "two"]).await;
    let wanted = name.clone();
    bench
        .on(bench.home(&name), move |shard| async move {
            let mut running = Vec::new();
            for index in 0..CONSUMERS {
                let (client, wanted) = (Client::new(&shard), wanted.clone());
                let wish = Wish {
                    subscription: "s",
                    name: String::leak(format!("c{index}")),
                    kind: SubscriptionType::Broadcast,
                };
                client.subscribe(&wanted, wish).await;
                client.wait_for(2).await;
                client.ack(0);
                client.ack(1);
                running.push((client, wish));
            }
            let (done, mut outcomes) = tokio::sync::mpsc::channel(CONSUMERS);
            for (client, wish) in running {
                let (shard, wanted, done) = (shard.clone(), wanted.clone(), done.clone());
                pharos_runtime::spawn_local(async move {
                    let (topic, key) = {
                        let consumer = client.consumer.borrow();
                        let consumer = consumer.as_ref().unwrap();
                        (consumer.topic, consumer.key)
                    };
                    let to = SeekTo::Place {
                        at: StartAt::Earliest,
                        remaining: Vec::new(),
                    };
                    client.got.borrow_mut().clear();
                    let who = pharos_auth::Principal::anonymous("test");
                    let caller = shard.caller(&who);
                    let seek = caller.seek(topic, key, to);
                    // It comes back as soon as it is closed, as clients do, and waits for its place.
                    let comes_back = async {
                        until(|| client.consumer.borrow().is_none()).await;
                        client.try_subscribe(&wanted, wish, None).await
                    };
                    let (sought, back) = tokio::join!(seek, comes_back);
                    if sought.is_ok() && back.is_ok() {
                        client.wait_for(2).await;
                    }
                    let _ = done.send((sought, back)).await;
                });
            }
            for _ in 0..CONSUMERS {
                let (sought, back) = outcomes.recv().await.unwrap();
                sought.unwrap();
                back.unwrap();
            }
        })
        .await;
}

#[tokio::test]
async fn a_consumer_is_handed_no_cursor_before_it_is_told_that_it_is_in() {
    for delay in [Duration::ZERO, Duration::from_millis(1)] {
        for names in [["a", "b"], ["b", "a"]] {
            let (world, life) = (World::new(), Life::new());
            let bench = world
                .start_with(&life, |options| options.failover_delay = delay)
                .await;
            let name = made(&bench).await;
            let wanted = name.clone();
            bench
                .on(bench.home(&name), move |shard| async move {
                    life.hold("managed-ledgers/");
                    let clients = names.map(|_| Client::new(&shard));
                    let wishes = names.map(|name| Wish {
                        name,
                        ..wish(SubscriptionType::Failover)
                    });
                    let release = async {
                        until(|| life.is_holding()).await;
                        // Far longer than the delay, and many turns of the shard.
                        tokio::time::sleep(Duration::from_millis(30)).await;
                        let told = clients.iter().map(|client| client.events.borrow().len());
                        assert_eq!(told.sum::<usize>(), 0, "neither is in yet");
                        life.release();
                    };
                    tokio::join!(
                        clients[0].subscribe(&wanted, wishes[0]),
                        clients[1].subscribe(&wanted, wishes[1]),
                        release
                    );
                    let mut candidates = FailoverCandidates::new(NAME, None, false);
                    for (key, name) in (0..).zip(names) {
                        candidates.add(pharos_dispatch::ConsumerKey(key), name.into(), 0);
                    }
                    let chosen = candidates.active().unwrap().0 as usize;
                    until(|| {
                        let consumer = clients[chosen].consumer.borrow();
                        consumer
                            .as_ref()
                            .is_some_and(|consumer| consumer.handle.is_some())
                    })
                    .await;
                })
                .await;
        }
    }
}
