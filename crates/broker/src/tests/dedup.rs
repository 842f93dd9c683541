//! Deduplication: receipts in order, sends that cannot be judged, logs that refuse an entry.

use pharos_feed::ids::ProducerKey;
use pharos_mesh::Publish;
use pharos_metadata::MetadataLayout;
use pharos_topic::ProducerRequest;
use pharos_types::Position;
use pharos_wire::message::encode_entry;
use pharos_wire::proto::MessageMetadata;
use serde_json::json;

use super::*;

const NOWHERE: (u64, u64) = (u64::MAX, u64::MAX);

/// Entries of producer `p` with these numbers.
fn numbered(numbers: impl IntoIterator<Item = u64>) -> Vec<Publish> {
    let entry = |sequence_id: u64| {
        let metadata = MessageMetadata {
            producer_name: "p".to_owned(),
            sequence_id,
            publish_time: 1,
            ..MessageMetadata::default()
        };
        let mut send = sends(vec![encode_entry(&metadata, b"x")]).remove(0);
        send.sequence_id = sequence_id;
        send
    };
    numbers.into_iter().map(entry).collect()
}

/// A producer called `p` of a connection of its own, and the last number that it is told.
async fn producer(shard: &Rc<Shard>, name: &TopicName) -> (Rc<Client>, TopicId, ProducerKey, i64) {
    let client = Client::new(shard);
    let request = ProducerRequest {
        name: Some("p".to_owned()),
        ..client.wish_to_produce()
    };
    let (topic, grant) = shard.add_producer(name, request).await.unwrap();
    (client, topic, grant.key, grant.last_sequence_id)
}

/// Returns the client's receipts in order: the number, and true for a duplicate.
fn receipts(client: &Client) -> Vec<(u64, bool)> {
    let receipts = client.receipts.borrow();
    let is_nowhere = |at: Position| (at.ledger.0, at.entry.0) == NOWHERE;
    let told = receipts.iter();
    told.map(|receipt| (receipt.sequence_id, is_nowhere(receipt.position)))
        .collect()
}

fn has_failed(client: &Client) -> bool {
    let events = client.events.borrow();
    events
        .iter()
        .any(|event| matches!(event, ConnectionEvent::SendFailed { .. }))
}

fn is_closed(client: &Client) -> bool {
    let events = client.events.borrow();
    events
        .iter()
        .any(|event| matches!(event, ConnectionEvent::ProducerClosed { .. }))
}

/// A topic for which it is on.
async fn bench(engine: MemoryEngine) -> (Bench, TopicName) {
    let bench = Bench::with(engine, |_| {}).await;
    let name = topic("t");
    bench.create_topic(&name).await;
    let set = bench
        .catalog()
        .set_topic_policy(&name, "deduplicationEnabled", json!(true));
    set.await.unwrap();
    for _ in 0..60_000 {
        if bench.figures(&name).await.deduplication == "Enabled" {
            return (bench, name);
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("it is not turned on");
}

#[tokio::test]
async fn a_duplicate_is_answered_in_its_turn_and_not_stored() {
    let engine = MemoryEngine::new();
    let (bench, name) = bench(engine.clone()).await;
    let wanted = name.clone();
    bench
        .on(bench.away(&name), move |shard| async move {
            let (client, topic, key, last) = producer(&shard, &wanted).await;
            assert_eq!(last, -1);
            client.publish(topic, key, numbered([0, 1]));
            until(|| client.receipts.borrow().len() == 2).await;
            engine.hold();
            client.publish(topic, key, numbered([2, 1, 3]));
            client.publish(topic, key, numbered([0]));
            // An answer of the topic's home that comes after all of these.
            let (other, ..) = (Client::new(&shard), ());
            other.produce(&wanted).await;
            assert_eq!(
                client.receipts.borrow().len(),
                2,
                "a duplicate waits for what was sent before it"
            );
            engine.release();
            until(|| client.receipts.borrow().len() == 6).await;
            let expected = [
                (0, false),
                (1, false),
                (2, false),
                (1, true),
                (3, false),
                (0, true),
            ];
            assert_eq!(receipts(&client), expected);
            client.publish(topic, key, numbered([3]));
            until(|| client.receipts.borrow().len() == 7).await;
            assert_eq!(receipts(&client)[6], (3, true));
        })
        .await;
    assert_eq!(bench.figures(&name).await.counters.entries_in, 4);
}

#[tokio::test]
async fn what_is_not_durable_yet_can_not_be_judged() {
    let engine = MemoryEngine::new();
    let (bench, name) = bench(engine.clone()).await;
    let wanted = name.clone();
    bench
        .on(bench.home(&name), move |shard| async move {
            let (client, topic, key, _) = producer(&shard, &wanted).await;
            engine.hold();
            client.publish(topic, key, numbered([0, 0, 1]));
            until(|| has_failed(&client)).await;
            assert!(is_closed(&client), "it comes again, with all that has no receipt");
            assert_eq!(receipts(&client), []);
            // Who comes under the name is told once the number is known.
            let again = shard.clone();
            let name = wanted.clone();
            let (told, mut coming) = tokio::sync::oneshot::channel();
            pharos_runtime::spawn_local(async move {
                let _ = told.send(producer(&again, &name).await);
            });
            tokio::task::yield_now().await;
            assert!(coming.try_recv().is_err());
            engine.release();
            let (client, topic, key, last) = coming.await.unwrap();
            assert_eq!(last, 0);
            client.publish(topic, key, numbered([0, 1]));
            until(|| client.receipts.borrow().len() == 2).await;
            assert_eq!(receipts(&client), [(0, true), (1, false)]);
        })
        .await;
}

#[tokio::test]
async fn what_a_full_device_refused_is_taken_later_and_nothing_goes_before_it() {
    let engine = MemoryEngine::new();
    let (bench, name) = bench(engine.clone()).await;
    let wanted = name.clone();
    bench
        .on(bench.home(&name), move |shard| async move {
            let (client, topic, key, _) = producer(&shard, &wanted).await;
            client.publish(topic, key, numbered([0]));
            until(|| client.receipts.borrow().len() == 1).await;
            engine.fill(true);
            client.publish(topic, key, numbered([1]));
            until(|| has_failed(&client)).await;
            engine.fill(false);
            // On its way before the client heard of it.
            client.publish(topic, key, numbered([2]));
            let mut last = None;
            for _ in 0..5_000 {
                let again = Client::new(&shard);
                let request = ProducerRequest {
                    name: Some("p".to_owned()),
                    ..again.wish_to_produce()
                };
                if let Ok((topic, grant)) = shard.add_producer(&wanted, request).await {
                    last = Some(grant.last_sequence_id);
                    again.publish(topic, grant.key, numbered([1, 2]));
                    until(|| again.receipts.borrow().len() == 2 || has_failed(&again)).await;
                    if again.receipts.borrow().len() == 2 {
                        assert_eq!(receipts(&again), [(1, false), (2, false)]);
                        break;
                    }
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            assert_eq!(last, Some(0));
        })
        .await;
}

#[tokio::test]
async fn the_state_is_there_again_after_an_unload_and_a_start() {
    for (entries_max, layout) in [
        (2, MetadataLayout::Pharos),
        (1_000, MetadataLayout::Pharos),
        (2, MetadataLayout::Pulsar),
        (1_000, MetadataLayout::Pulsar),
    ] {
        let world = World::new();
        let life = Life::new();
        let change = move |options: &mut Options| {
            options.deduplication.entries_max = entries_max;
            options.managed_ledger.layout = layout;
        };
        let bench = world.start_with(&life, change).await;
        let name = topic("t");
        bench.create_topic(&name).await;
        let policy = bench
            .catalog()
            .set_topic_policy(&name, "deduplicationEnabled", json!(true));
        policy.await.unwrap();
        let wanted = name.clone();
        bench
            .on(bench.home(&name), move |shard| async move {
                for (first, last) in [(0, -1), (5, 4)] {
                    let (client, topic, key, told) = producer(&shard, &wanted).await;
                    assert_eq!(told, last);
                    client.publish(topic, key, numbered(first..first + 5));
                    until(|| client.receipts.borrow().len() == 5).await;
                    shard.home.unload(&wanted).await;
                }
            })
            .await;
        drop(bench);
        let bench = world.start_with(&Life::new(), change).await;
        let wanted = name.clone();
        bench
            .on(bench.home(&name), move |shard| async move {
                let (client, topic, key, told) = producer(&shard, &wanted).await;
                assert_eq!(told, 9);
                client.publish(topic, key, numbered([9, 10]));
                until(|| client.receipts.borrow().len() == 2).await;
                assert_eq!(receipts(&client), [(9, true), (10, false)]);
            })
            .await;
        assert!(bench.figures(&name).await.subscriptions.is_empty());
    }
}
