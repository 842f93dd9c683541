//! Authorization of callers, and its order: every command passes the single authorization call before anything is
//! created, and a command that a topic would refuse leaves nothing behind.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pharos_auth::{Access, Action, Authorizer, Denied, Principal, Resource};
use pharos_broker::broker::start;
use pharos_broker::{Broker, Options, Threads};
use pharos_broker_admin::Resources;
use pharos_catalog::schema::SchemaVersion;
use pharos_catalog::{Catalog, CatalogOptions, ListMode};
use pharos_client::RawConnection;
use pharos_identity::Authentication;
use pharos_ledger::memory::MemoryEngine;
use pharos_metadata::Memory;
use pharos_pulsar::{ClientLimits, Decision, decision};
use pharos_runtime::clock;
use pharos_transport::ConnectionsMax;
use pharos_types::TopicName;
use pharos_wire::command::{Command, CommandType};
use pharos_wire::proto::command_get_topics_of_namespace::Mode;
use pharos_wire::proto::command_subscribe::SubType;
use pharos_wire::proto::{self, ServerError, schema};
use pharos_wire::request;

/// Writes down what it is asked, with how many topics and schemas there were at that moment.
#[derive(Default)]
struct Recorder {
    asked: Mutex<Vec<(Action, String)>>,
    who: Mutex<Vec<Principal>>,
    denies: AtomicBool,
    catalog: Mutex<Option<Catalog>>,
    topics: Mutex<Vec<usize>>,
}

impl Authorizer for Recorder {
    fn authorize(&self, who: &Principal, action: Action, resource: Resource<'_>) -> Result<(), Denied> {
        self.asked.lock().unwrap().push((action, resource.to_string()));
        self.who.lock().unwrap().push(who.clone());
        let topics = self.catalog.lock().unwrap().as_ref().map(topics_of);
        self.topics.lock().unwrap().push(topics.unwrap().len());
        match self.denies.load(Ordering::Relaxed) {
            true => Err(Denied::to(who, action, resource)),
            false => Ok(()),
        }
    }
}

fn topics_of(catalog: &Catalog) -> Vec<String> {
    let namespace = "public/default".parse().unwrap();
    catalog
        .topic_lists()
        .answer(&namespace, ListMode::All, None, None)
        .topics
}

struct House {
    recorder: Arc<Recorder>,
    broker: Broker,
    catalog: Catalog,
    threads: Option<Threads>,
    raw: RawConnection,
}

impl House {
    async fn new() -> Self {
        Self::with(ClientLimits::default()).await
    }

    async fn with(limits: ClientLimits) -> Self {
        let recorder = Arc::new(Recorder::default());
        let metadata = Arc::new(Memory::new());
        let catalog = Catalog::open(metadata.clone(), CatalogOptions::default())
            .await
            .unwrap();
        *recorder.catalog.lock().unwrap() = Some(catalog.clone());
        let options = Options {
            shards: 2,
            access: Access::by(recorder.clone()),
            ..Options::default()
        };
        let engine = Arc::new(MemoryEngine::new());
        let (broker, threads) = start(
            options,
            catalog.clone(),
            engine,
            metadata,
            &pharos_pulsar::PulsarEntries,
        )
        .unwrap();
        let server = pharos_pulsar::open(
            &broker,
            &pharos_pulsar::Options {
                transactions: Err("Transactions are not enabled."),
                listen: "127.0.0.1:0".parse().unwrap(),
                entrance: None,
                listen_tls: None,
                listeners: pharos_pulsar::ListenerOptions::default(),
                advertised_address: None,
                server_version: "test".to_owned(),
                keep_alive_interval: Duration::from_secs(60),
                connections_max: ConnectionsMax::none(),
                per_address: pharos_transport::QuotaLimits::default(),
                limits,
                authentication: Authentication::off(),
                credential_check_interval: Duration::from_secs(60),
            },
        );
        let mut raw = RawConnection::connect(&server.unwrap().service_url)
            .await
            .unwrap();
        raw.handshake(request::connect("test")).await.unwrap();
        Self {
            recorder,
            broker,
            catalog,
            threads: Some(threads),
            raw,
        }
    }

    /// Sends a command and returns the answer to it.
    async fn ask(&mut self, command: impl Into<Command>) -> Command {
        self.raw.send(command).await.unwrap();
        loop {
            let answer = tokio::time::timeout(Duration::from_secs(20), self.raw.next_command());
            match answer.await.unwrap().unwrap() {
                // These come when they come.
                Command::ActiveConsumerChange(_)
                | Command::WatchTopicUpdate(_)
                | Command::CloseConsumer(_) => {}
                answer => return answer,
            }
        }
    }

    fn asked(&self) -> Vec<(Action, String)> {
        std::mem::take(&mut self.recorder.asked.lock().unwrap())
    }

    async fn set_policy(&self, name: &str, value: serde_json::Value) {
        let namespace = "public/default".parse().unwrap();
        self.catalog
            .namespaces()
            .set_policy(&namespace, name, value)
            .await
            .unwrap();
    }

    async fn subscriptions(&self, topic: &str) -> Vec<String> {
        let topic = topic.parse().unwrap();
        let admin = Resources::of(&self.broker).subscriptions;
        admin.subscriptions(topic).await.unwrap()
    }

    async fn stop(mut self) {
        drop(self.raw);
        self.broker.drain().await;
        let threads = self.threads.take().unwrap();
        tokio::task::spawn_blocking(move || threads.stop()).await.unwrap();
    }
}

fn schema() -> proto::Schema {
    proto::Schema {
        name: "s".to_owned(),
        schema_data: "".into(),
        r#type: schema::Type::String as i32,
        ..Default::default()
    }
}

fn producer(topic: &str, id: u64, subscription: Option<&str>) -> Command {
    let mut producer = request::producer(topic, id, 7, None);
    producer.schema = Some(schema());
    producer.initial_subscription_name = subscription.map(str::to_owned);
    producer.into()
}

fn consumer(topic: &str, subscription: &str, id: u64) -> Command {
    let mut consumer = request::subscribe(topic, subscription, SubType::Shared, id, 7);
    consumer.schema = Some(schema());
    consumer.into()
}

const NAMESPACE: &str = "namespace public/default";

fn topic(name: &str) -> String {
    format!("topic persistent://public/default/{name}")
}

fn subscription(name: &str, of: &str) -> String {
    format!("subscription {name} of {}", topic(of))
}

/// Commands that need no consumer, with what is asked about each. None of the topics exists.
fn commands(names: [&str; 4]) -> Vec<(Command, Action, String)> {
    let [first, second, third, fourth] = names;
    vec![
        (
            request::partitioned_metadata(first, 7).into(),
            Action::Lookup,
            topic(first),
        ),
        (
            request::lookup(first, 7, true).into(),
            Action::Lookup,
            topic(first),
        ),
        (producer(second, 1, None), Action::Produce, topic(second)),
        (
            producer(third, 2, Some("with")),
            Action::ProduceWithSubscription,
            subscription("with", third),
        ),
        (
            consumer(fourth, "s", 1),
            Action::Consume,
            subscription("s", fourth),
        ),
        (
            request::topics_of_namespace(7, "public/default", Mode::All).into(),
            Action::ListTopics,
            NAMESPACE.to_owned(),
        ),
        (
            request::watch_topic_list(7, 1, "public/default", ".*").into(),
            Action::ListTopics,
            NAMESPACE.to_owned(),
        ),
        (
            request::schema(7, second, None),
            Action::ReadSchema,
            topic(second),
        ),
        (
            request::get_or_create_schema(7, second, schema()),
            Action::UpdateSchema,
            topic(second),
        ),
    ]
}

/// Commands of consumer 1, the last of which ends it.
fn consumer_commands(of: &str) -> Vec<(Command, Action, String)> {
    let latest = proto::MessageIdData {
        ledger_id: i64::MAX as u64,
        entry_id: i64::MAX as u64,
        ..Default::default()
    };
    let about = |command: Command, action| (command, action, subscription("s", of));
    vec![
        about(request::last_message_id(1, 7), Action::ReadSubscription),
        about(request::consumer_stats(1, 7), Action::ReadSubscription),
        about(request::unsubscribe(1, 7, false), Action::DeleteSubscription),
        about(request::seek(1, 7, latest), Action::Seek),
    ]
}

/// The error of an answer; `None`: it is a good one.
fn error_of(answer: &Command) -> Option<i32> {
    match answer {
        Command::Error(answer) => Some(answer.error),
        Command::PartitionedMetadataResponse(answer) => answer.error,
        Command::LookupResponse(answer) => answer.error,
        Command::GetSchemaResponse(answer) => answer.error_code,
        Command::GetOrCreateSchemaResponse(answer) => answer.error_code,
        Command::ConsumerStatsResponse(answer) => answer.error_code,
        _ => None,
    }
}

fn is_decided(decided: Decision, action: Action) -> bool {
    match decided {
        Decision::Asks(actions) | Decision::AsksOfConsumer(actions) => actions.contains(&action),
        _ => false,
    }
}

/// No command that asks is left out of the tests here.
#[test]
fn every_command_that_asks_is_tried() {
    let all = commands(["a", "b", "c", "d"])
        .into_iter()
        .chain(consumer_commands("d"));
    let tried: Vec<_> = all
        .map(|(command, action, _)| (command.command_type(), action))
        .collect();
    for number in 0..200 {
        let Ok(command) = CommandType::try_from(number) else {
            continue;
        };
        let (Decision::Asks(actions) | Decision::AsksOfConsumer(actions)) = decision(command) else {
            continue;
        };
        for action in actions {
            assert!(tried.contains(&(command, *action)), "{command:?} as {action}");
        }
    }
}

#[tokio::test]
async fn every_command_is_asked_about_once_before_it_does_anything() {
    let mut house = House::new().await;
    let mut topics_before = 0;
    let all = commands(["a", "b", "c", "d"]);
    for (command, action, resource) in all {
        let (what, decided) = (format!("{command:?}"), decision(command.command_type()));
        let answer = house.ask(command).await;
        assert_eq!(error_of(&answer), None, "{what}: {answer:?}");
        assert!(is_decided(decided, action), "{what}: the table says {decided:?}");
        assert_eq!(house.asked(), [(action, resource)], "{what}");
        let seen = std::mem::take(&mut *house.recorder.topics.lock().unwrap());
        assert_eq!(seen, [topics_before], "asked before anything was made: {what}");
        topics_before = topics_of(&house.catalog).len();
    }
    assert_eq!(topics_before, 3, "the producers and the consumer made theirs");
    let mut of_consumer = consumer_commands("d");
    of_consumer.swap(2, 3);
    for (command, action, resource) in of_consumer {
        let (what, decided) = (format!("{command:?}"), decision(command.command_type()));
        assert!(is_decided(decided, action), "{what}: the table says {decided:?}");
        let mut command = command;
        if action == Action::DeleteSubscription {
            // The seek closed the consumer, and the same id may not be known to be closed yet.
            let answer = house.ask(consumer("d", "s", 2)).await;
            assert_eq!(error_of(&answer), None, "{answer:?}");
            house.asked();
            command = request::unsubscribe(2, 7, false);
        }
        let answer = house.ask(command).await;
        assert_eq!(error_of(&answer), None, "{what}: {answer:?}");
        assert_eq!(house.asked(), [(action, resource)], "{what}");
    }
    let peers = std::mem::take(&mut *house.recorder.who.lock().unwrap());
    assert!(peers.iter().all(|who| who.address().starts_with("/127.0.0.1:")));
    house.stop().await;
}

#[tokio::test]
async fn what_belongs_to_a_producer_or_consumer_is_not_asked_about_again() {
    let mut house = House::new().await;
    house.ask(producer("t", 1, None)).await;
    house.ask(consumer("t", "s", 1)).await;
    house.asked();
    house.raw.send(request::flow(1, 10)).await.unwrap();
    let entry = pharos_wire::message::encode_entry(&proto::MessageMetadata::default(), b"x");
    house
        .raw
        .send_with_payload(request::send(1, 0, 1), &entry)
        .await
        .unwrap();
    let (mut receipt, mut message) = (false, None);
    while !receipt || message.is_none() {
        match house.raw.next_command().await.unwrap() {
            Command::SendReceipt(_) => receipt = true,
            Command::Message(delivered) => message = Some(delivered.message_id),
            _ => {}
        }
    }
    house.raw.send(request::ack(1, message.unwrap())).await.unwrap();
    house.raw.send(request::redeliver(1, Vec::new())).await.unwrap();
    house.ask(request::close_consumer(1, 7)).await;
    house.ask(request::close_producer(1, 7)).await;
    assert_eq!(house.asked(), []);
    house.stop().await;
}

#[tokio::test]
async fn who_is_denied_leaves_no_trace() {
    let mut house = House::new().await;
    house.ask(consumer("kept", "s", 1)).await;
    house.asked();
    house.recorder.denies.store(true, Ordering::Relaxed);
    let denied = Some(ServerError::AuthorizationError as i32);
    let mut all = commands(["a", "b", "c", "d"]);
    // The id of the consumer that is there would be answered as known.
    all[4].0 = consumer("d", "s", 2);
    for (command, action, resource) in all.into_iter().chain(consumer_commands("kept")) {
        let what = format!("{command:?}");
        let answer = house.ask(command).await;
        assert_eq!(error_of(&answer), denied, "{what}: {answer:?}");
        assert_eq!(house.asked(), [(action, resource)], "{what}");
    }
    assert_eq!(topics_of(&house.catalog), ["persistent://public/default/kept"]);
    for name in ["b", "c", "d"] {
        let name: TopicName = name.parse().unwrap();
        assert!(house.catalog.schemas().get(&name, SchemaVersion(0)).is_none());
    }
    // The consumer is still there, and so is its subscription.
    house.recorder.denies.store(false, Ordering::Relaxed);
    assert_eq!(house.subscriptions("kept").await, ["s"]);
    let answer = house.ask(request::consumer_stats(1, 7)).await;
    assert_eq!(error_of(&answer), None, "{answer:?}");
    house.stop().await;
}

/// At a rate of one a second and a burst of twenty, requests after the twenty-first wait.
#[tokio::test]
async fn every_request_counts_for_its_tenant_but_those_of_clients_that_may_not() {
    let mut house = House::with(ClientLimits {
        request_rate_per_tenant: 1,
        ..ClientLimits::default()
    })
    .await;
    house.recorder.denies.store(true, Ordering::Relaxed);
    let denied = async {
        for _ in 0..100 {
            let answer = house.ask(request::lookup("a", 7, true)).await;
            assert_eq!(error_of(&answer), Some(ServerError::AuthorizationError as i32));
        }
    };
    // If they counted, they would take eighty seconds.
    let answered = tokio::time::timeout(Duration::from_secs(20), denied).await;
    assert!(answered.is_ok(), "requests that are denied wait for their turn");
    house.recorder.denies.store(false, Ordering::Relaxed);
    let began = clock::now();
    let mut of_consumer = consumer_commands("d");
    // The seek closes the consumer. One of another id comes: the same id may not be known to be closed yet.
    of_consumer[2].0 = consumer("d", "s", 2);
    let unsubscribe = request::unsubscribe(2, 7, false);
    of_consumer.swap(2, 3);
    let asked = commands(["a", "b", "c", "d"]).into_iter().chain(of_consumer);
    let all: Vec<Command> = asked.map(|(command, ..)| command).chain([unsubscribe]).collect();
    let count = all.len();
    for command in all {
        let what = format!("{command:?}");
        let answer = house.ask(command).await;
        assert_eq!(error_of(&answer), None, "{what}: {answer:?}");
    }
    for _ in count..24 {
        house.ask(request::lookup("a", 7, true)).await;
    }
    // The twenty-fourth comes two seconds after the first; if one did not count, it would come after one.
    let took = clock::now().since(began);
    assert!(took >= 2_000_000_000, "{took}");
    house.stop().await;
}

/// The producer or consumer that finds no room brings a schema and a subscription.
#[tokio::test]
async fn what_a_limit_refuses_leaves_no_schema_and_no_subscription() {
    let mut house = House::new().await;
    house.set_policy("max_producers_per_topic", 1.into()).await;
    house.ask(request::producer("t", 1, 7, None)).await;
    let answer = house.ask(producer("t", 2, Some("with"))).await;
    assert_eq!(error_of(&answer), Some(ServerError::ProducerBusy as i32));
    leaves_nothing(&house).await;
    house.stop().await;

    let mut house = House::new().await;
    let types = serde_json::json!(["Exclusive"]);
    house.set_policy("subscription_types_enabled", types).await;
    let answer = house.ask(consumer("t", "s", 1)).await;
    assert_eq!(error_of(&answer), Some(ServerError::NotAllowedError as i32));
    leaves_nothing(&house).await;
    house.stop().await;
}

#[tokio::test]
async fn what_encryption_refuses_leaves_no_schema_and_no_subscription() {
    let mut house = House::new().await;
    house.set_policy("encryption_required", true.into()).await;
    let answer = house.ask(producer("t", 1, Some("with"))).await;
    assert_eq!(error_of(&answer), Some(ServerError::MetadataError as i32));
    leaves_nothing(&house).await;
    house.stop().await;
}

#[tokio::test]
async fn what_a_quota_refuses_leaves_no_schema_and_no_subscription() {
    let mut house = House::new().await;
    house
        .ask(request::subscribe("t", "behind", SubType::Exclusive, 1, 7))
        .await;
    house.ask(request::producer("t", 1, 7, None)).await;
    let entry = pharos_wire::message::encode_entry(&proto::MessageMetadata::default(), &[7; 100]);
    let send = house.raw.send_with_payload(request::send(1, 0, 1), &entry);
    send.await.unwrap();
    assert!(matches!(
        house.raw.next_command().await.unwrap(),
        Command::SendReceipt(_)
    ));
    let quota = serde_json::json!({"destination_storage": {"limitSize": 10, "policy": "producer_exception"}});
    house.set_policy("backlog_quota_map", quota).await;
    let answer = house.ask(producer("t", 2, Some("with"))).await;
    let wanted = ServerError::ProducerBlockedQuotaExceededException as i32;
    assert_eq!(error_of(&answer), Some(wanted), "{answer:?}");
    has_only(&house, &["behind"]).await;
    house.stop().await;
}

async fn leaves_nothing(house: &House) {
    has_only(house, &[]).await;
}

async fn has_only(house: &House, subscriptions: &[&str]) {
    let name: TopicName = "t".parse().unwrap();
    assert!(house.catalog.schemas().latest(&name).is_none());
    assert_eq!(house.subscriptions("t").await, subscriptions);
}
