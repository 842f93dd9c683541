//! Broadcast consumers of one topic that are dealt among brokers.

use std::time::Duration;

use pharos_catalog::{Carriers, SHADOW_SOURCE, carrier_name, carrier_of};
use pharos_client::{
    ClientError, ConnectOptions, Connection, Consumer, ConsumerOptions, OutgoingMessage, ProducerOptions,
};
use pharos_cluster::{Owner, Ownership as _};
use pharos_managed_ledger::{held_by, storage_name};
use pharos_metadata::{Expect, MetadataStore as _};
use pharos_types::{SubscriptionName, TopicName};
use pharos_wire::proto::ServerError;
use pharos_wire::proto::command_ack::AckType;
use serde_json::Value;

use crate::brokers::{self, Broker, SESSION_TIMEOUT, Stores, TOPIC, publish, until};

const SUBSCRIPTION: &str = "everyone";

fn topic() -> TopicName {
    TOPIC.parse().unwrap()
}

fn carrier() -> TopicName {
    carrier_name(&topic(), 1).unwrap()
}

fn wish(name: &str) -> ConsumerOptions {
    ConsumerOptions::exclusive(SUBSCRIPTION)
        .from_earliest()
        .name(name)
        .property("pharos.subscription", "broadcast")
}

/// Consumer options without a lookup first.
fn unasked(name: &str) -> ConsumerOptions {
    ConsumerOptions {
        lookup: false,
        ..wish(name)
    }
}

/// Brokers of which the first owns the topic, and whose broadcast consumers are dealt among two.
async fn two_brokers(stores: &Stores) -> (Broker, Broker) {
    let (one, two) = (Broker::start(stores).await, Broker::start(stores).await);
    until("both know of one another", async || {
        [&one, &two]
            .iter()
            .all(|broker| broker.ownership.brokers().is_some_and(|all| all.len() == 2))
    })
    .await;
    take(&one).await;
    deal(&one, "2");
    until("the policy is known", async || {
        [&one, &two]
            .iter()
            .all(|broker| Carriers::of(&broker.catalog).wanted(&topic()) == 2)
    })
    .await;
    (one, two)
}

fn deal(broker: &Broker, carriers: &str) {
    let path = format!("/admin/v2/namespaces/public/default/property/pharos.broadcastCarriers/{carriers}");
    assert_eq!(broker.call("PUT", &path).0, 204);
}

/// Makes a broker the owner of the topic, whatever the load says.
async fn take(broker: &Broker) {
    let bundle = broker.catalog.bundle_of(&topic()).unwrap();
    let key = format!("public/default/{bundle}");
    if broker.owner().await != broker.service_url {
        let owner = broker.ownership.owner_of_bundle(&key);
        panic!("it went to {owner:?}");
    }
}

/// Subscribes as clients do: through the owner, and to the broker that it names. Says whether it was sent there.
async fn join(broker: &Broker, name: &str) -> (Consumer, Option<String>) {
    let consumer = broker.client().await.subscribe(TOPIC, wish(name)).await.unwrap();
    follow(consumer, name).await
}

/// Bounded in time, so that a test that fails ends.
async fn follow(mut consumer: Consumer, name: &str) -> (Consumer, Option<String>) {
    for _ in 0..100 {
        match consumer.receive_within(Duration::from_millis(300)).await {
            // It is not to be lost: what is not acknowledged comes again to the next life of it.
            Ok(_) => return (consumer, None),
            Err(ClientError::ClosedByBroker) => {
                let assigned = consumer.assigned_broker().cloned().unwrap();
                let there = connect(assigned.url.as_ref().unwrap()).await;
                match there.subscribe(TOPIC, unasked(name)).await {
                    Ok(consumer) => return (consumer, assigned.url),
                    Err(error) if error.code() == Some(ServerError::ServiceNotReady) => {
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            Err(error) => panic!("{error}"),
        }
    }
    panic!("{name} finds no broker");
}

async fn connect(url: &str) -> Connection {
    Connection::connect(url, ConnectOptions::default()).await.unwrap()
}

/// A name whose consumers are in this slot of two.
fn name_in(broker: &Broker, slot: u32, nth: usize) -> String {
    let subscription = SubscriptionName::new(SUBSCRIPTION).unwrap();
    let carried = Carriers::of(&broker.catalog).of_subscription(&topic(), &subscription);
    let carried = carried.unwrap_or(pharos_catalog::CarrierSlots { slots: 2, id: 0 });
    let mut names = (0..).map(|number| format!("car-{number}"));
    let name = names
        .by_ref()
        .filter(|name| carried.slot_of(name) == slot)
        .nth(nth);
    name.unwrap()
}

async fn expect(consumer: &mut Consumer, numbers: std::ops::Range<u32>, acknowledge: bool) {
    for number in numbers {
        let message = tokio::time::timeout(brokers::PATIENCE, consumer.receive())
            .await
            .unwrap()
            .unwrap();
        assert_eq!(message.text(), number.to_string());
        if acknowledge {
            consumer
                .ack_and_wait(AckType::Individual, message.id)
                .await
                .unwrap();
        }
    }
}

/// Releases a topic as the end of its owner's session does.
async fn forget_owner(stores: &Stores, broker: &Broker, topic: &TopicName) {
    let bundle = broker.catalog.bundle_of(topic).unwrap();
    let key = format!("namespace/public/default/{bundle}");
    assert!(
        stores.metadata.delete(&key, Expect::Any).await.unwrap(),
        "no {key}"
    );
}

fn summary(broker: &Broker) -> Value {
    let path = format!("/admin/v2/persistent/public/default/orders/subscription/{SUBSCRIPTION}/broadcast");
    let (status, _, body) = broker.call("GET", &path);
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consumers_are_at_two_brokers_and_each_has_every_message_while_both_are_lost() {
    let stores = Stores::default();
    let (one, two) = two_brokers(&stores).await;
    let (here, there) = (name_in(&one, 0, 0), name_in(&one, 1, 0));
    let producing = one.client().await;

    let (mut near, sent) = join(&one, &here).await;
    assert_eq!(sent, None);
    let (mut far, sent) = join(&one, &there).await;
    assert_eq!(
        sent.as_ref(),
        Some(&two.service_url),
        "it is carried by the other broker"
    );
    // The other broker lets in none but those of its slot.
    let refused = two.client().await.subscribe(TOPIC, unasked(&here)).await;
    assert_eq!(refused.err().unwrap().code(), Some(ServerError::ServiceNotReady));
    let own = carrier().to_string();
    let refused = two.client().await.subscribe(&own, unasked(&there)).await;
    assert!(refused.is_err(), "a carrier has no consumers of its own");

    publish(&producing, 0..20).await;
    expect(&mut near, 0..20, true).await;
    expect(&mut far, 0..15, true).await;
    until("both are counted", async || {
        let summary = summary(&one);
        summary["consumersConnected"] == 2 && summary["carriers"][0]["connected"] == 1
    })
    .await;

    // Whose consumers are there, the carrier itself says.
    let path = format!(
        "/admin/v2/persistent/public/default/{}/subscription/{SUBSCRIPTION}/broadcast?consumers=true",
        carrier().local()
    );
    let (status, _, body) = two.call("GET", &path);
    assert!(status == 200 && body.contains(&there), "{status} {body}");

    // The carrier's broker is lost: the owner takes the carrier, for there is no other. The place is where it was.
    let registration = format!("loadbalance/brokers/{}", two.http);
    two.drop_dead();
    forget_owner(&stores, &one, &carrier()).await;
    assert!(stores.metadata.delete(&registration, Expect::Any).await.unwrap());
    publish(&producing, 20..30).await;
    expect(&mut near, 20..30, true).await;
    let mut far = loop {
        // It may be named once more while that is not known.
        let consumer = one.client().await.subscribe(TOPIC, wish(&there)).await;
        match consumer {
            Ok(consumer) => break consumer,
            Err(error) => assert_eq!(error.code(), Some(ServerError::ServiceNotReady)),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    expect(&mut far, 15..30, true).await;

    // The owner is lost with all that it has; another broker takes up both.
    let three = Broker::start(&stores).await;
    one.drop_dead();
    stores.metadata.pass(SESSION_TIMEOUT);
    until("another takes the topic", async || {
        three.owner_if_any(TOPIC).await.as_ref() == Some(&three.service_url)
    })
    .await;
    publish(&three.client().await, 30..40).await;
    for name in [&here, &there] {
        let (mut consumer, _) = {
            let consumer = loop {
                match three.client().await.subscribe(TOPIC, wish(name)).await {
                    Ok(consumer) => break consumer,
                    Err(error) => assert_eq!(error.code(), Some(ServerError::ServiceNotReady)),
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            };
            (consumer, ())
        };
        expect(&mut consumer, 30..40, true).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_carrier_holds_is_kept_until_its_consumer_has_it_and_no_longer() {
    let stores = Stores::default();
    let (one, two) = two_brokers(&stores).await;
    let there = name_in(&one, 1, 0);
    let here = name_in(&one, 0, 0);
    let producing = one.client().await;
    let (mut near, _) = join(&one, &here).await;
    let (mut far, sent) = join(&one, &there).await;
    assert_eq!(sent.as_ref(), Some(&two.service_url));
    let said = held_by(
        &storage_name(&carrier(), pharos_metadata::MetadataLayout::Pharos),
        &*stores.metadata,
    )
    .await
    .unwrap();
    assert_eq!(
        said.unwrap().from,
        Some(0),
        "it is said before the consumer is answered"
    );
    publish(&producing, 0..5).await;
    expect(&mut near, 0..5, true).await;
    expect(&mut far, 0..5, false).await;

    let ledgers = async || {
        // Each round closes a ledger, so that it could be trimmed.
        let path = "/admin/v2/persistent/public/default/orders";
        assert_eq!(one.call("PUT", &format!("{path}/unload")).0, 204);
        let (_, _, body) = one.call("GET", &format!("{path}/internalStats"));
        let stats: Value = serde_json::from_str(&body).unwrap();
        let ledgers = stats["ledgers"].as_array().unwrap().clone();
        ledgers
            .iter()
            .map(|row| row["entries"].as_u64().unwrap_or(0))
            .sum::<u64>()
    };
    drop(near);
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(1500)).await;
        let kept = ledgers().await;
        let trimmed = one
            .call("POST", "/admin/v2/persistent/public/default/orders/trim")
            .0;
        assert_eq!(trimmed, 204);
        assert!(
            kept >= 5,
            "{kept} entries are left, and the consumer at the carrier has acknowledged none"
        );
    }
    drop(far);
    let (mut far, _) = join(&one, &there).await;
    expect(&mut far, 0..5, true).await;
    until("nothing is held any more", async || {
        one.call("POST", "/admin/v2/persistent/public/default/orders/trim");
        ledgers().await == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_that_turns_producers_away_counts_what_carriers_hold() {
    let stores = Stores::default();
    let (one, two) = two_brokers(&stores).await;
    let (here, there) = (name_in(&one, 0, 0), name_in(&one, 1, 0));
    let client = one.client().await;
    let (mut near, _) = join(&one, &here).await;
    let (mut far, sent) = join(&one, &there).await;
    assert_eq!(sent.as_ref(), Some(&two.service_url));
    let refused = async || client.producer(TOPIC, ProducerOptions::default()).await.err();
    let quota = async |kind: &str, quota: &str| {
        let path = format!("/admin/v2/persistent/public/default/orders/backlogQuota?backlogQuotaType={kind}");
        let (status, _, reason) = one.call_with("POST", &path, quota);
        assert_eq!(status, 204, "{reason}");
    };
    let turned_away = async |code| {
        until("a producer is turned away", async || {
            let refused = refused().await;
            refused.is_some_and(|error| error.code() == Some(code))
        })
        .await;
    };

    // A byte is too much.
    let policy = r#"{"limitSize": 1, "policy": "producer_exception"}"#;
    publish(&client, 0..5).await;
    expect(&mut near, 0..5, true).await;
    expect(&mut far, 0..5, false).await;
    quota("destination_storage", policy).await;
    turned_away(ServerError::ProducerBlockedQuotaExceededException).await;
    drop(far);
    let (mut far, _) = join(&one, &there).await;
    expect(&mut far, 0..5, true).await;
    until("a producer is let in", async || refused().await.is_none()).await;

    // A carrier that has caught up holds nothing, whatever the owner heard of it last.
    for number in 5..15 {
        let publisher = client.producer(TOPIC, ProducerOptions::default()).await.unwrap();
        publisher
            .send(OutgoingMessage::new(number.to_string()))
            .await
            .unwrap();
        expect(&mut near, number..number + 1, true).await;
        expect(&mut far, number..number + 1, true).await;
    }

    // A quota of what consumers' places may cost moves those of the owner, and turns nothing away.
    publish(&client, 15..16).await;
    expect(&mut near, 15..16, true).await;
    expect(&mut far, 15..16, false).await;
    quota(
        "destination_storage",
        r#"{"limitSize": 1, "policy": "consumer_backlog_eviction"}"#,
    )
    .await;
    quota(
        "message_age",
        r#"{"limitTime": 1, "policy": "producer_request_hold"}"#,
    )
    .await;
    turned_away(ServerError::ProducerBlockedQuotaExceededError).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_done_to_the_whole_is_done_to_all_of_it_or_refused() {
    let stores = Stores::default();
    let (one, two) = two_brokers(&stores).await;
    let there = name_in(&one, 1, 0);
    let producing = one.client().await;
    let (mut far, sent) = join(&one, &there).await;
    assert_eq!(sent.as_ref(), Some(&two.service_url));
    publish(&producing, 0..5).await;
    expect(&mut far, 0..5, true).await;

    let path = "/admin/v2/persistent/public/default/orders/subscription/everyone";
    let (status, _, reason) = one.call("POST", &format!("{path}/skip/2"));
    assert!(
        status == 405 && reason.contains("several brokers"),
        "{status} {reason}"
    );
    // A client at a carrier would end only what is there.
    let refused = far.unsubscribe(false).await.err().unwrap();
    assert_eq!(refused.code(), Some(ServerError::NotAllowedError), "{refused}");
    until("its consumer is known", async || {
        summary(&one)["consumersConnected"] == 1
    })
    .await;
    let (status, _, reason) = one.call("DELETE", path);
    assert!(
        status == 412 && reason.contains("other brokers"),
        "{status} {reason}"
    );
    let (status, _, reason) = one.call("DELETE", &format!("{path}?force=true"));
    assert_eq!(status, 204, "{reason}");
    until("the carrier closes its consumer", async || {
        matches!(
            far.receive_within(Duration::from_millis(100)).await,
            Err(ClientError::ClosedByBroker)
        )
    })
    .await;
    // A new one of the same name has no places of the old one: it begins at the first message that is kept.
    publish(&producing, 5..8).await;
    deal(&one, "1");
    until("the policy is known", async || {
        Carriers::of(&one.catalog).wanted(&topic()) == 1
    })
    .await;
    let mut again = one.client().await.subscribe(TOPIC, wish(&there)).await.unwrap();
    let first: u32 = again.receive().await.unwrap().text().parse().unwrap();
    assert!(first <= 5, "{first}");
    assert_eq!(
        again.assigned_broker(),
        None,
        "the policy is for new subscriptions"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consumers_of_all_slots_are_moved_together() {
    let stores = Stores::default();
    let (one, two) = two_brokers(&stores).await;
    let (here, there) = (name_in(&one, 0, 0), name_in(&one, 1, 0));
    let producing = one.client().await;
    let (mut near, _) = join(&one, &here).await;
    let (mut far, sent) = join(&one, &there).await;
    assert_eq!(sent.as_ref(), Some(&two.service_url));
    publish(&producing, 0..5).await;
    for consumer in [&mut near, &mut far] {
        expect(consumer, 0..5, true).await;
    }
    let path = "/admin/v2/persistent/public/default/orders/subscription/everyone";
    // What the carrier did last, as it says itself.
    let moved = async || {
        let name = storage_name(&carrier(), pharos_metadata::MetadataLayout::Pharos);
        let held = held_by(&name, &*stores.metadata).await.unwrap();
        held.iter()
            .flat_map(|held| &held.parts)
            .map(|part| part.moved)
            .sum::<u64>()
    };
    let closed = async |consumer: &mut Consumer| {
        until("the consumer is closed", async || {
            let next = consumer.receive_within(Duration::from_millis(100)).await;
            matches!(next, Err(ClientError::ClosedByBroker))
        })
        .await;
    };

    let (status, _, reason) = one.call("POST", &format!("{path}/resetcursor/0"));
    assert_eq!(status, 204, "{reason}");
    until("the carrier has moved it", async || moved().await == 1).await;
    for consumer in [&mut near, &mut far] {
        closed(consumer).await;
    }
    // Without a look for a message, which would be gone.
    let near_again = async || one.client().await.subscribe(TOPIC, wish(&here)).await.unwrap();
    let mut near = near_again().await;
    let (mut far, sent) = join(&one, &there).await;
    assert_eq!(sent.as_ref(), Some(&two.service_url));
    for consumer in [&mut near, &mut far] {
        expect(consumer, 0..5, false).await;
    }

    near.close().await.unwrap();
    far.close().await.unwrap();
    publish(&producing, 5..8).await;
    let (status, _, reason) = one.call("POST", &format!("{path}/skip_all"));
    assert_eq!(status, 204, "{reason}");
    until("the carrier has moved it", async || moved().await == 2).await;
    publish(&producing, 8..10).await;
    let mut near = near_again().await;
    let (mut far, _) = join(&one, &there).await;
    for consumer in [&mut near, &mut far] {
        expect(consumer, 8..10, true).await;
    }
    // Who comes after a move is not moved for it.
    let (mut late, sent) = join(&one, &name_in(&one, 1, 1)).await;
    assert_eq!(sent.as_ref(), Some(&two.service_url));
    expect(&mut late, 0..10, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_its_topic_a_carrier_is_gone() {
    let stores = Stores::default();
    let (one, two) = two_brokers(&stores).await;
    let there = name_in(&one, 1, 0);
    let (far, sent) = join(&one, &there).await;
    assert_eq!(sent.as_ref(), Some(&two.service_url));
    drop(far);
    assert_eq!(carrier_logs(&stores).await, 1);
    assert_eq!(carrier_keys(&stores).await, 1);
    let (status, _, reason) = one.call("DELETE", "/admin/v2/persistent/public/default/orders?force=true");
    assert_eq!(status, 204, "{reason}");
    assert_eq!(carrier_logs(&stores).await, 0);
    assert!(carrier_of(&carrier()).is_some());
    let (_, _, listed) = one.call("GET", "/admin/v2/persistent/public/default");
    assert!(!listed.contains("carrier"), "{listed}");
    // The broker that had it lives on, and has it no more.
    until("no broker has the carrier", async || {
        carrier_keys(&stores).await == 0 && two.ownership.owner_of(&carrier()) == Owner::Unowned
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_its_last_subscription_a_carrier_has_no_owner_and_with_its_topic_no_log() {
    let stores = Stores::default();
    let (one, two) = two_brokers(&stores).await;
    let there = name_in(&one, 1, 0);
    let (far, sent) = join(&one, &there).await;
    assert_eq!(sent.as_ref(), Some(&two.service_url));
    let path = "/admin/v2/persistent/public/default/orders";
    let (status, _, reason) = one.call(
        "DELETE",
        &format!("{path}/subscription/{SUBSCRIPTION}?force=true"),
    );
    assert_eq!(status, 204, "{reason}");
    drop(far);
    until("no broker has the carrier", async || {
        carrier_keys(&stores).await == 0
    })
    .await;
    assert_eq!(carrier_logs(&stores).await, 1);
    // A new subscription of that name gets it back.
    let (far, sent) = join(&one, &there).await;
    assert_eq!(sent.as_ref(), Some(&two.service_url));
    let (status, _, reason) = one.call(
        "DELETE",
        &format!("{path}/subscription/{SUBSCRIPTION}?force=true"),
    );
    assert_eq!(status, 204, "{reason}");
    drop(far);
    let (status, _, reason) = one.call("DELETE", &format!("{path}?force=true"));
    assert_eq!(status, 204, "{reason}");
    assert_eq!(carrier_logs(&stores).await, 0);
}

/// Number of logs of carriers.
async fn carrier_logs(stores: &Stores) -> usize {
    let keys = stores.metadata.list("managed-ledgers/").await.unwrap();
    keys.iter().filter(|key| key.contains("__carrier__")).count()
}

/// Number of carriers with an owner.
async fn carrier_keys(stores: &Stores) -> usize {
    let keys = stores.metadata.list("namespace/").await.unwrap();
    keys.iter().filter(|key| key.contains("/carrier_")).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shadow_has_no_carriers() {
    let stores = Stores::default();
    let (one, two) = two_brokers(&stores).await;
    let (near, _) = join(&one, &name_in(&one, 0, 0)).await;
    drop(near);
    let shadow: TopicName = "persistent://public/default/mirror".parse().unwrap();
    let properties = [(SHADOW_SOURCE.to_owned(), TOPIC.to_owned())].into();
    one.catalog.create_topic(&shadow, properties).await.unwrap();
    until("both know it", async || {
        [&one, &two]
            .iter()
            .all(|broker| pharos_catalog::Shadows::of(&broker.catalog).source_of(&shadow) == Some(topic()))
    })
    .await;
    let name = shadow.to_string();
    let owner = one.owner_if_any(&name).await.unwrap();
    let client = connect(&owner).await;
    let mut consumer = client.subscribe(&name, wish("car")).await.unwrap();
    let nothing = consumer.receive_within(Duration::from_millis(200)).await.unwrap();
    assert!(nothing.is_none());
    assert_eq!(Carriers::of(&one.catalog).of_topic(&shadow), Default::default());
}
