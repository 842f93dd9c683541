//! Two brokers of one process over the same stores in memory: clients find the owner of a topic, and when a broker is dropped the
//! other one takes over what it served.

use pharos_catalog::Policies;
use pharos_client::{
    Brokers, ConnectOptions, Connection, Consumer, OutgoingMessage, ProducerOptions, RawConnection, earliest,
};
use pharos_metadata::MetadataStore as _;
use pharos_wire::command::Command;
use pharos_wire::proto::ServerError;
use pharos_wire::proto::command_ack::AckType;
use pharos_wire::request;

use crate::brokers::{Broker, SESSION_TIMEOUT, Stores, TOPIC, orders, publish, read_all, until};

/// Publishes fifty messages, of which a consumer takes and acknowledges twenty.
async fn twenty_of_fifty(client: &Connection) -> Consumer {
    let mut consumer = client.subscribe(TOPIC, orders()).await.unwrap();
    publish(client, 0..50).await;
    for _ in 0..20 {
        let message = consumer.receive().await.unwrap();
        consumer
            .ack_and_wait(AckType::Individual, message.id)
            .await
            .unwrap();
    }
    consumer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_the_wrong_broker_are_led_to_the_owner() {
    let stores = Stores::default();
    let (one, two) = (Broker::start(&stores).await, Broker::start(&stores).await);
    assert_eq!(
        one.owner().await,
        one.service_url,
        "the one that is asked first takes it"
    );
    until("the other knows", async || two.owner().await == one.service_url).await;

    let wrong = two.client().await;
    let refused = wrong.producer(TOPIC, ProducerOptions::default()).await;
    assert_eq!(refused.err().unwrap().code(), Some(ServerError::ServiceNotReady));
    let refused = wrong.subscribe(TOPIC, orders()).await;
    assert_eq!(refused.err().unwrap().code(), Some(ServerError::ServiceNotReady));
    let refused = wrong.reader(TOPIC, earliest()).await;
    assert_eq!(refused.err().unwrap().code(), Some(ServerError::ServiceNotReady));

    let url = wrong.lookup(TOPIC).await.unwrap().broker_url;
    let right = Connection::connect(&url, ConnectOptions::default())
        .await
        .unwrap();
    let mut consumer = right.subscribe(TOPIC, orders()).await.unwrap();
    publish(&right, 0..20).await;
    for number in 0..20 {
        assert_eq!(consumer.receive().await.unwrap().text(), number.to_string());
    }

    let mut brokers = Brokers::connect(&two.service_url, ConnectOptions::default())
        .await
        .unwrap();
    let found = brokers.serving(TOPIC).await.unwrap();
    publish(&found, 20..21).await;
    assert_eq!(consumer.receive().await.unwrap().text(), "20");

    let path = "/admin/v2/persistent/public/default/orders/stats";
    let (status, location, _) = two.get(path);
    assert_eq!(status, 307);
    assert_eq!(
        location.unwrap(),
        format!("http://{}{path}?authoritative=true", one.http)
    );
    let (status, _, stats) = one.get(&format!("{path}?authoritative=true"));
    assert!(
        status == 200 && stats.contains("\"msgInCounter\":21"),
        "{status} {stats}"
    );
    let (status, _, _) = two.get(&format!("{path}?authoritative=true"));
    assert_eq!(
        status, 503,
        "two brokers that disagree do not send a caller to and fro"
    );
    let (status, _, looked_up) = two.get("/lookup/v2/topic/persistent/public/default/orders");
    assert!(
        status == 200 && looked_up.contains(&one.service_url),
        "{status} {looked_up}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bundle_goes_to_the_broker_that_is_named_and_clients_are_told_where() {
    let stores = Stores::default();
    let (one, two) = (Broker::start(&stores).await, Broker::start(&stores).await);
    assert_eq!(one.owner().await, one.service_url);
    until("the other knows", async || two.owner().await == one.service_url).await;
    let client = one.client().await;
    let _consumer = twenty_of_fifty(&client).await;
    let mut watching = RawConnection::connect(&one.service_url).await.unwrap();
    watching.handshake(request::connect("test")).await.unwrap();
    let options = request::producer(TOPIC, 7, 1, None);
    watching.send(Command::Producer(Box::new(options))).await.unwrap();
    let answer = watching.next_command().await.unwrap();
    assert!(matches!(answer, Command::ProducerSuccess(_)), "{answer:?}");

    let bundle = one.catalog.bundle_of(&TOPIC.parse().unwrap()).unwrap();
    let path = format!("/admin/v2/namespaces/public/default/{bundle}/unload");
    let (status, _, reason) = one.call("PUT", &format!("{path}?destinationBroker=127.0.0.1:1"));
    assert!(
        status == 412 && reason.contains("no broker is registered as 127.0.0.1:1"),
        "{reason}"
    );
    let (status, _, reason) = one.call("PUT", &format!("{path}?destinationBroker={}", one.http));
    assert!(status == 412 && reason.contains("has the bundle"), "{reason}");
    let there = format!("{path}?destinationBroker={}", two.http);
    let (status, location, _) = two.call("PUT", &there);
    let asked = format!("http://{}{there}&authoritative=true", one.http);
    assert_eq!((status, location), (307, Some(asked)));

    let (status, _, reason) = one.call("PUT", &there);
    assert_eq!(status, 204, "{reason}");
    let closed = loop {
        match watching.next_command().await.unwrap() {
            Command::CloseProducer(closed) => break closed,
            Command::Ping(_) => {}
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(closed.producer_id, 7);
    assert_eq!(
        closed.assigned_broker_service_url.as_ref(),
        Some(&two.service_url)
    );
    // It goes there without a lookup, and is served at once. Nothing is lost, nothing that was acknowledged comes again.
    let client = two.client().await;
    publish(&client, 50..60).await;
    assert_eq!(read_all(&client).await, (0..60).collect::<Vec<_>>());
    let mut consumer = client.subscribe(TOPIC, orders()).await.unwrap();
    for number in 20..60 {
        assert_eq!(consumer.receive().await.unwrap().text(), number.to_string());
    }
    assert_eq!(one.owner().await, two.service_url);
    let (status, _, reason) = two.call("PUT", &there);
    assert_eq!(status, 412, "{reason}");
    let (status, _, _) = one.call("PUT", &there);
    assert_eq!(status, 204, "it is there already");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bundle_is_cut_under_its_topics_and_a_part_of_it_goes_to_the_other_broker() {
    let stores = Stores::default();
    let (one, two) = (Broker::start(&stores).await, Broker::start(&stores).await);
    assert_eq!(one.owner().await, one.service_url);
    until("the other knows", async || two.owner().await == one.service_url).await;
    let client = one.client().await;
    let producer = client.producer(TOPIC, ProducerOptions::default()).await.unwrap();
    producer.send(OutgoingMessage::new("0")).await.unwrap();

    let topic = TOPIC.parse().unwrap();
    let whole = one.catalog.bundle_of(&topic).unwrap();
    let path = |bundle: &str| format!("/admin/v2/namespaces/public/default/{bundle}/split");
    let (status, location, _) = two.call("PUT", &path(&whole));
    assert!(status == 307 && location.unwrap().starts_with(&format!("http://{}", one.http)));
    let (status, _, reason) = one.call("PUT", &format!("{}?splitAlgorithmName=odd", path(&whole)));
    assert!(status == 400 && reason.contains("'odd' is none of"), "{reason}");
    let by_topics = "splitAlgorithmName=topic_count_equally_divide";
    let (status, _, reason) = one.call("PUT", &format!("{}?{by_topics}", path(&whole)));
    assert!(
        status == 412 && reason.contains("nothing in"),
        "{status} {reason}"
    );

    let (status, _, reason) = one.call("PUT", &path(&whole));
    assert_eq!(status, 204, "{reason}");
    let part = one.catalog.bundle_of(&topic).unwrap();
    assert_ne!(part, whole);
    until("the other knows the parts", async || {
        two.catalog.bundle_of(&topic).as_ref() == Some(&part)
    })
    .await;
    // The topic stayed open, and both brokers know where.
    producer.send(OutgoingMessage::new("1")).await.unwrap();
    until("the other knows", async || two.owner().await == one.service_url).await;
    let (status, _, reason) = one.call("PUT", &path(&whole));
    assert_eq!(status, 412, "it is none any more: {reason}");

    // Cut again, above the topic or below it; the upper part goes.
    let (status, _, reason) = one.call("PUT", &format!("{}?unload=true", path(&part)));
    assert_eq!(status, 204, "{reason}");
    let part = one.catalog.bundle_of(&topic).unwrap();
    until("both know", async || {
        two.catalog.bundle_of(&topic).as_ref() == Some(&part) && one.owner().await == two.owner().await
    })
    .await;
    let owned = |broker: &Broker| {
        let path = format!("/admin/v2/brokers/standalone/{}/ownedNamespaces", broker.http);
        let (status, _, owned) = broker.get(&path);
        assert_eq!(status, 200, "{owned}");
        owned.matches("public/default/").count()
    };
    assert_eq!((owned(&one), owned(&two)), (2, 1));
    let owner = one.owner().await;
    let serving = if owner == one.service_url { &one } else { &two };
    assert_eq!(read_all(&serving.client().await).await, [0, 1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_broker_leads_and_when_it_is_gone_the_other_does() {
    let stores = Stores::default();
    let (one, two) = (Broker::start(&stores).await, Broker::start(&stores).await);
    let leader = |broker: &Broker| {
        let (status, _, leader) = broker.get("/admin/v2/brokers/leaderBroker");
        (status == 200).then_some(leader)
    };
    until("they agree", async || {
        leader(&one).is_some() && leader(&one) == leader(&two)
    })
    .await;
    let leads = |broker: &Broker, said: &Option<String>| {
        let url = format!("http://{}\"", broker.http);
        said.as_ref().is_some_and(|said| said.contains(&url))
    };
    let first = leader(&one);
    assert!(leads(&one, &first) != leads(&two, &first), "{first:?}");
    let (gone, left) = if leads(&one, &first) {
        (one, two)
    } else {
        (two, one)
    };
    gone.drop_dead();
    stores.metadata.pass(SESSION_TIMEOUT);
    until("the other leads", async || leads(&left, &leader(&left))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_broker_makes_the_other_knows() {
    let stores = Stores::default();
    let (one, two) = (Broker::start(&stores).await, Broker::start(&stores).await);
    let name: pharos_types::NamespaceName = "public/made".parse().unwrap();
    one.catalog
        .namespaces()
        .create(&name, Policies::default())
        .await
        .unwrap();
    until("the namespace is known", async || {
        two.catalog.namespaces().has(&name)
    })
    .await;
    let topic = "persistent://public/made/t";
    let client = two.client().await;
    let producer = client.lookup(topic).await.unwrap();
    assert_eq!(producer.broker_url, two.service_url);
    let _producer = client.producer(topic, ProducerOptions::default()).await.unwrap();
    let listed = async || {
        let (_, _, topics) = one.get("/admin/v2/persistent/public/made");
        topics.contains(topic)
    };
    until("the topic is listed", listed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_topics_of_a_broker_that_dies_go_on_at_the_other_with_every_message() {
    let stores = Stores::default();
    let (one, two) = (Broker::start(&stores).await, Broker::start(&stores).await);
    assert_eq!(one.owner().await, one.service_url);
    let client = one.client().await;
    let _consumer = twenty_of_fifty(&client).await;
    until("the other knows", async || two.owner().await == one.service_url).await;
    let first = one.service_url.clone();
    one.drop_dead();
    assert_eq!(two.owner().await, first, "its session has not ended yet");
    stores.metadata.pass(SESSION_TIMEOUT);
    until("the other takes it", async || {
        two.owner().await == two.service_url
    })
    .await;

    let client = two.client().await;
    publish(&client, 50..60).await;
    assert_eq!(read_all(&client).await, (0..60).collect::<Vec<_>>());
    // What was acknowledged may come again, what was not must.
    let mut consumer = client.subscribe(TOPIC, orders()).await.unwrap();
    let mut number = 0;
    while number < 59 {
        number = consumer.receive().await.unwrap().text().parse().unwrap();
        assert!(number <= 59);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_lost_its_session_and_does_not_know_acknowledges_nothing_more() {
    let stores = Stores::default();
    let (mut one, two) = (Broker::start(&stores).await, Broker::start(&stores).await);
    assert_eq!(one.owner().await, one.service_url);
    let old = one.client().await;
    publish(&old, 0..10).await;
    let producer = old.producer(TOPIC, ProducerOptions::default()).await.unwrap();
    // It hears no more of its session, of the store, of the other broker.
    one.cut_off();
    stores.metadata.pass(SESSION_TIMEOUT);
    until("the other takes it", async || {
        two.owner().await == two.service_url
    })
    .await;
    let new = two.client().await;
    publish(&new, 10..20).await;
    let log = async || {
        let stored = stores
            .metadata
            .get("managed-ledgers/public/default/persistent/orders")
            .await;
        stored.unwrap().unwrap().version
    };
    let taken = log().await;

    // The other one has fenced the log: what the old one still takes, it cannot make durable.
    let late = producer.send(OutgoingMessage::new("999")).await;
    assert!(
        late.is_err(),
        "acknowledged by a broker that does not own the topic: {late:?}"
    );
    assert_eq!(read_all(&new).await, (0..20).collect::<Vec<_>>());
    // Nor does it take the log back, although no word of its loss has reached it: the store is asked first.
    until("it is refused", async || {
        let refused = old.producer(TOPIC, ProducerOptions::default()).await;
        refused.is_err_and(|error| error.code() == Some(ServerError::ServiceNotReady))
    })
    .await;
    assert!(old.subscribe(TOPIC, orders()).await.is_err());
    assert_eq!(
        log().await,
        taken,
        "the log was opened by a broker that does not own it"
    );
    publish(&new, 20..30).await;
    assert_eq!(read_all(&new).await, (0..30).collect::<Vec<_>>());
}
