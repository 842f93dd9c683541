//! Stops and crashes in the middle of something.

use pharos_metadata::MetadataStore as _;
use pharos_topic::{Staying, TopicHandle};

use super::*;

#[tokio::test]
async fn a_stop_closes_many_topics_at_a_time() {
    let engine = MemoryEngine::new();
    let bench = Bench::over(engine.clone()).await;
    let names: Vec<_> = (0..40)
        .map(|n| topic(&format!("persistent://public/default/t{n}")))
        .collect();
    for name in &names {
        bench.create_topic(name).await;
        bench.publish(bench.home(name), name, &["stored"]).await;
    }
    // From now on each topic has something to wait for.
    engine.hold();
    for name in &names {
        let wanted = name.clone();
        bench
            .on(bench.home(name), move |shard| async move {
                let client = Client::new(&shard);
                let (topic, key) = client.produce(&wanted).await;
                client.publish(topic, key, sends(vec![entry("on its way", 1)]));
            })
            .await;
    }
    let all_are_closing = async {
        for name in &names {
            let wanted = name.clone();
            bench
                .on(bench.home(name), move |shard| async move {
                    let topic = shard.home.topics.by_name(&wanted).unwrap();
                    until(|| Staying(&topic).is_closing()).await;
                })
                .await;
        }
        engine.release();
    };
    tokio::join!(bench.broker.drain(), all_are_closing);
    for name in names {
        let wanted = name.clone();
        let loaded = bench.on(bench.home(&name), move |shard| async move {
            shard.home.topics.by_name(&wanted).is_some()
        });
        assert!(!loaded.await, "{name}");
    }
}

/// Another store with what this one holds now: what the process that is dying still writes is not in it.
async fn copy_of(store: &Memory) -> Arc<Memory> {
    let copy = Memory::new();
    for item in store.scan("").await.unwrap() {
        copy.put(&item.key, item.value, pharos_metadata::Expect::Any)
            .await
            .unwrap();
    }
    Arc::new(copy)
}

#[tokio::test]
async fn a_crash_before_the_end_of_a_subscription_is_durable_leaves_all_of_it() {
    let (engine, store) = (MemoryEngine::new(), Arc::new(Memory::new()));
    let small = |options: &mut Options| {
        options.managed_ledger.ledger_entries_max = 1;
        options.managed_ledger.ledger_age_ms_min = 0;
    };
    let bench = Bench::on_stores(Arc::new(engine.clone()), store.clone(), small).await;
    let name = topic("persistent://public/default/t");
    bench.create_topic(&name).await;
    bench.create_subscription(&name, "s", StartAt::Earliest).await;
    for text in ["1", "2", "3", "4"] {
        bench.publish(bench.home(&name), &name, &[text]).await;
    }
    engine.hold();
    let delete =
        |topic: TopicHandle| async move { topic.delete_subscription(&subscription("s"), true).await };
    let deleting = bench.at_home(&name, delete);
    let (home, wanted) = (bench.home(&name), name.clone());
    let is_under_way = bench.on(home, move |shard| async move {
        let topic = shard.home.topics.by_name(&wanted).unwrap();
        until(|| !Staying(&topic).has_subscriptions()).await;
        // What wants to be trimmed is.
        for _ in 0..100 {
            TopicHandle::new(topic.clone()).trim();
            tokio::task::yield_now().await;
        }
    });
    tokio::select! {
        done = deleting => panic!("it is answered before it is durable: {done:?}"),
        () = is_under_way => {}
    }
    let bench = Bench::on_stores(Arc::new(engine.crash()), copy_of(&store).await, small).await;
    assert_eq!(bench.backlogs(&name).await["s"], 4, "all of it is there");
    bench.at_home(&name, delete).await.unwrap();
    // What it held goes once that is durable.
    bench
        .at_home(&name, |topic| async move { until(|| topic.first().0 >= 3).await })
        .await;
}

#[tokio::test]
async fn a_client_that_waits_for_a_topic_is_served_also_when_that_is_let_go_just_then() {
    let (world, life) = (World::new(), Life::new());
    let bench = world.start(&life).await;
    let name = topic("persistent://public/default/t");
    bench.create_topic(&name).await;
    fill(&bench, &name).await;
    bench.unload(&name).await;
    bench
        .on(bench.home(&name), move |shard| async move {
            life.hold("managed-ledgers/");
            let look = async {
                shard.home.topic(&name, Access::Existing).await.unwrap();
                // In the same turn, as a look at a topic that is not used does.
                shard.home.unload(&name).await;
            };
            let comes = async {
                until(|| life.is_holding()).await;
                let client = Client::new(&shard);
                let wish = Wish {
                    subscription: "a",
                    name: "c",
                    kind: SubscriptionType::Exclusive,
                };
                client.try_subscribe(&name, wish, None).await
            };
            let release = async {
                until(|| shard.home.topics.waiting(&name) == 1).await;
                life.release();
            };
            let ((), came, ()) = tokio::join!(look, comes, release);
            came.unwrap();
        })
        .await;
}

#[tokio::test]
async fn a_consumer_whose_topic_is_let_go_while_it_comes_waits_until_that_is_loaded_again() {
    let (bench, name) = Bench::with_topic("persistent://public/default/t").await;
    let wish = |name| Wish {
        subscription: "a",
        name,
        kind: SubscriptionType::Exclusive,
    };
    bench
        .on(bench.home(&name), move |shard| async move {
            let (holder, other) = (Client::new(&shard), Client::new(&shard));
            holder.subscribe(&name, wish("first")).await;
            *holder.unanswered.borrow_mut() = Some(Vec::new());
            let is_asked = || {
                holder
                    .unanswered
                    .borrow()
                    .as_ref()
                    .is_some_and(|asked| !asked.is_empty())
            };
            let lets_go = async {
                until(is_asked).await;
                shard.home.unload(&name).await;
                holder.unanswered.take();
            };
            let ((), came) = tokio::join!(lets_go, other.try_subscribe(&name, wish("second"), None));
            came.unwrap();
        })
        .await;
}
