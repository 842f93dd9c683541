//! Limits of one connection and one tenant: requests beyond them are refused by name, and create nothing.

use pharos_client::{ConsumerOptions, ProducerOptions};
use pharos_runtime::clock;
use pharos_wire::command::Command;
use pharos_wire::proto::command_get_topics_of_namespace::Mode;
use pharos_wire::proto::command_subscribe::SubType;
use pharos_wire::proto::{KeyValue, ServerError};
use pharos_wire::{encode, request};

use crate::support::{self, Node, expect_error, expect_numbers, expect_success, next, publish};

#[tokio::test]
async fn what_a_connection_may_not_have_is_refused_by_name_and_makes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let settings = [
        "--limits-max-consumers-per-connection=2",
        "--limits-max-producers-per-connection=1",
        "--limits-max-watchers-per-connection=1",
        "--limits-max-consumers-per-tenant=3",
        "--limits-max-topics-per-tenant=4",
    ];
    let node = Node::start(dir.path(), &settings);
    let (mut raw, mut other) = (node.rogue().await, node.rogue().await);
    for id in 1..=2 {
        raw.send(request::subscribe(
            "t",
            &format!("s{id}"),
            SubType::Shared,
            id,
            id,
        ))
        .await
        .unwrap();
        expect_success(&mut raw, id).await;
    }
    raw.send(request::subscribe("t", "s3", SubType::Shared, 3, 3))
        .await
        .unwrap();
    let why = expect_error(&mut raw, 3, ServerError::NotAllowedError).await;
    assert!(why.contains("limits.max_consumers_per_connection"), "{why}");
    other
        .send(request::subscribe("t", "s1", SubType::Shared, 1, 1))
        .await
        .unwrap();
    expect_success(&mut other, 1).await;
    other
        .send(request::subscribe("t", "s4", SubType::Shared, 2, 2))
        .await
        .unwrap();
    let why = expect_error(&mut other, 2, ServerError::NotAllowedError).await;
    assert!(why.contains("limits.max_consumers_per_tenant"), "{why}");
    // One that left makes room.
    raw.send(request::close_consumer(2, 4)).await.unwrap();
    expect_success(&mut raw, 4).await;
    other
        .send(request::subscribe("t", "s1", SubType::Shared, 2, 5))
        .await
        .unwrap();
    expect_success(&mut other, 5).await;

    support::produce_on(&mut raw, "p", 1).await;
    raw.send(request::producer("q", 2, 6, None)).await.unwrap();
    let why = expect_error(&mut raw, 6, ServerError::NotAllowedError).await;
    assert!(why.contains("limits.max_producers_per_connection"), "{why}");
    raw.send(request::watch_topic_list(7, 1, "public/default", ".*"))
        .await
        .unwrap();
    assert!(matches!(next(&mut raw).await, Command::WatchTopicListSuccess(_)));
    raw.send(request::watch_topic_list(8, 2, "public/default", ".*"))
        .await
        .unwrap();
    let why = expect_error(&mut raw, 8, ServerError::NotAllowedError).await;
    assert!(why.contains("limits.max_watchers_per_connection"), "{why}");

    let default = "persistent://public/default";
    assert_eq!(node.topics(), [format!("{default}/p"), format!("{default}/t")]);
    let subscriptions = node.ask("/admin/v2/persistent/public/default/t/subscriptions");
    assert_eq!(subscriptions.as_array().unwrap().len(), 2, "{subscriptions}");
    let path = |name: &str| format!("/admin/v2/persistent/public/default/{name}");
    for name in ["u", "v"] {
        node.order("PUT", &path(name), "");
    }
    let (status, answer) = node.call("PUT", &path("w"), "");
    assert!(
        answer.contains("limits.max_topics_per_tenant"),
        "{status} {answer}"
    );
    node.stop();
}

#[tokio::test]
async fn a_tenant_has_so_many_producers_and_one_that_leaves_makes_room() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &["--limits-max-producers-per-tenant=2"]);
    let (mut raw, mut other) = (node.rogue().await, node.rogue().await);
    support::produce_on(&mut raw, "p", 1).await;
    support::produce_on(&mut other, "q", 1).await;
    other.send(request::producer("r", 2, 2, None)).await.unwrap();
    let why = expect_error(&mut other, 2, ServerError::NotAllowedError).await;
    assert!(why.contains("limits.max_producers_per_tenant"), "{why}");
    let default = "persistent://public/default";
    assert_eq!(node.topics(), [format!("{default}/p"), format!("{default}/q")]);
    raw.send(request::close_producer(1, 3)).await.unwrap();
    expect_success(&mut raw, 3).await;
    support::produce_on(&mut other, "r", 2).await;
    node.stop();
}

#[tokio::test]
async fn a_tenant_has_so_many_subscriptions_those_of_a_restart_count_and_one_that_goes_makes_room() {
    let dir = tempfile::tempdir().unwrap();
    let settings = ["--limits-max-subscriptions-per-tenant=2"];
    let path = |topic: &str, subscription: &str| {
        format!("/admin/v2/persistent/public/default/{topic}/subscription/{subscription}")
    };
    let node = Node::start(dir.path(), &settings);
    let mut raw = node.rogue().await;
    for (id, topic) in [(1, "t"), (2, "u")] {
        raw.send(request::subscribe(topic, "s", SubType::Shared, id, id))
            .await
            .unwrap();
        expect_success(&mut raw, id).await;
    }
    node.stop();

    let node = Node::start(dir.path(), &settings);
    let mut raw = node.rogue().await;
    // One that is there is no new one, and loads its topic; the other is loaded by being looked at.
    raw.send(request::subscribe("t", "s", SubType::Shared, 1, 1))
        .await
        .unwrap();
    expect_success(&mut raw, 1).await;
    node.ask("/admin/v2/persistent/public/default/u/stats");
    raw.send(request::subscribe("t", "s2", SubType::Shared, 2, 2))
        .await
        .unwrap();
    let why = expect_error(&mut raw, 2, ServerError::NotAllowedError).await;
    assert!(why.contains("limits.max_subscriptions_per_tenant"), "{why}");
    let (status, answer) = node.call("PUT", &path("t", "s3"), "");
    assert!(
        answer.contains("limits.max_subscriptions_per_tenant"),
        "{status} {answer}"
    );
    assert_eq!(
        node.ask("/admin/v2/persistent/public/default/t/subscriptions"),
        serde_json::json!(["s"])
    );
    node.order("DELETE", &path("u", "s"), "");
    node.order("PUT", &path("t", "s3"), "");
    node.stop();
}

#[tokio::test]
async fn a_consumer_that_says_too_much_of_itself_is_refused_and_makes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &["--max-consumer-metadata-size=100B"]);
    let mut raw = node.rogue().await;
    for (id, bytes) in [(1, 101), (2, 100)] {
        let mut subscribe = request::subscribe("t", "s", SubType::Shared, id, id);
        let value = "x".repeat(bytes - 1);
        let key = "k".to_owned();
        subscribe.metadata.push(KeyValue { key, value });
        raw.send(subscribe).await.unwrap();
        if bytes > 100 {
            let why = expect_error(&mut raw, id, ServerError::MetadataError).await;
            assert!(why.contains("larger than 100"), "{why}");
            assert!(node.topics().is_empty());
        } else {
            expect_success(&mut raw, id).await;
        }
    }
    node.stop();
}

/// More properties than the log of cursors reads would make the topic impossible to open.
#[tokio::test]
async fn a_subscription_has_so_many_properties_and_its_topic_opens_again() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &[]);
    let mut raw = node.rogue().await;
    for (id, count) in [(1, 10_001), (2, 1_001), (3, 1_000)] {
        let mut subscribe = request::subscribe("t", "s", SubType::Shared, id, id);
        subscribe.subscription_properties = (0..count)
            .map(|number| KeyValue {
                key: format!("{number:x}"),
                value: String::new(),
            })
            .collect();
        raw.send(subscribe).await.unwrap();
        if count > 1_000 {
            let why = expect_error(&mut raw, id, ServerError::MetadataError).await;
            assert!(why.contains("more than 1000"), "{why}");
        } else {
            expect_success(&mut raw, id).await;
        }
    }
    let many: std::collections::BTreeMap<String, String> = (0..1_001)
        .map(|number| (format!("{number:x}"), String::new()))
        .collect();
    let path = "/admin/v2/persistent/public/default/t/subscription/s/properties";
    let (status, why) = node.call("PUT", path, &serde_json::to_string(&many).unwrap());
    assert_eq!(status, 412, "{why}");
    node.kill();

    let node = Node::start(dir.path(), &[]);
    let (status, kept) = node.call("GET", path, "");
    assert_eq!(status, 200, "{kept}");
    let kept: serde_json::Value = serde_json::from_str(&kept).unwrap();
    assert_eq!(kept.as_object().map(|kept| kept.len()), Some(1_000));
    node.stop();
}

#[tokio::test]
async fn a_connection_whose_requests_wait_is_not_read_until_they_are_answered() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &["--limits-max-requests-per-connection=1"]);
    let mut raw = node.rogue().await;
    // Subscriptions that have to be made durable, and what is answered on the spot; more of it than is handled at one go.
    const SUBSCRIBES: u64 = 10;
    const LAST: u64 = 1500;
    let mut said = Vec::new();
    for id in 1..=SUBSCRIBES {
        let topic = format!("t-{id}");
        let subscribe = request::subscribe(&topic, "s", SubType::Shared, id, id);
        said.extend_from_slice(&encode::encode_command(&subscribe.into()));
    }
    for id in SUBSCRIBES + 1..=LAST {
        let lookup = request::lookup("nothing://", id, false);
        said.extend_from_slice(&encode::encode_command(&lookup.into()));
    }
    raw.write(&said).await.unwrap();
    let mut subscribed = 0;
    loop {
        match next(&mut raw).await {
            Command::Success(_) => subscribed += 1,
            Command::LookupResponse(answer) if answer.request_id == LAST => break,
            Command::LookupResponse(_) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(subscribed, SUBSCRIBES);
    node.stop();
}

#[tokio::test]
async fn what_is_published_to_a_tenant_has_a_rate_and_what_is_beyond_waits() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &["--limits-max-publish-rate-messages-per-tenant=20"]);
    node.order(
        "PUT",
        "/admin/v2/tenants/other",
        r#"{"adminRoles":[],"allowedClusters":["standalone"]}"#,
    );
    node.order("PUT", "/admin/v2/namespaces/other/n", "");
    let client = node.client().await;
    // What arrives together may go through together, and the next ones make up for it, whichever topic they are for.
    let began = clock::now();
    for topic in ["a", "b"] {
        let mut consumer = client
            .subscribe(topic, ConsumerOptions::exclusive("s"))
            .await
            .unwrap();
        let producer = client.producer(topic, ProducerOptions::default()).await.unwrap();
        publish(&producer, 0..40).await;
        publish(&producer, 40..41).await;
        expect_numbers(&mut consumer, 0..41).await;
    }
    // 82 in all: 20 at once, and the last one only when all before it are made up for.
    let took = clock::now().since(began);
    assert!(took >= 3_000_000_000, "{took}");
    let theirs = "persistent://other/n/t";
    let producer = client.producer(theirs, ProducerOptions::default()).await.unwrap();
    publish(&producer, 0..10).await;
    let stats = node.ask("/admin/v2/persistent/other/n/t/stats");
    assert_eq!(
        stats["publishRateLimitedTimes"].as_u64(),
        Some(0),
        "another tenant has its own"
    );
    node.stop();
}

#[tokio::test]
async fn requests_of_an_address_beyond_its_rate_wait_for_their_turn_and_are_answered() {
    let dir = tempfile::tempdir().unwrap();
    // Four hundred at once, then twenty a second.
    let node = Node::start(dir.path(), &["--limits-max-request-rate-per-role=20"]);
    let (mut raw, mut other) = (node.rogue().await, node.rogue().await);
    const LAST: u64 = 430;
    let mut said = Vec::new();
    for id in 1..=LAST {
        let lookup = request::lookup("nothing://", id, false);
        said.extend_from_slice(&encode::encode_command(&lookup.into()));
    }
    let began = clock::now();
    raw.write(&said).await.unwrap();
    for id in 1..=LAST {
        match next(&mut raw).await {
            Command::LookupResponse(answer) => assert_eq!(answer.request_id, id),
            other => panic!("{other:?}"),
        }
    }
    let took = clock::now().since(began);
    assert!(took >= 1_000_000_000, "{took}");
    // All connections of the address share it.
    let began = clock::now();
    for id in 1..=20 {
        other
            .send(request::lookup("nothing://", id, false))
            .await
            .unwrap();
        assert!(matches!(next(&mut other).await, Command::LookupResponse(_)));
    }
    let took = clock::now().since(began);
    assert!(took >= 500_000_000, "{took}");
    node.stop();
}

#[tokio::test]
async fn one_that_asks_the_http_door_too_fast_is_told_so() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &["--limits-max-http-request-rate-per-role=1"]);
    let path = "/admin/v2/tenants/fast";
    let mut refused = None;
    for _ in 0..1000 {
        let (status, answer) = node.call("PUT", path, "{}");
        if status == 429 {
            refused = Some(answer);
            break;
        }
    }
    let why = refused.expect("a thousand requests were let in");
    assert!(why.contains("limits.max_http_request_rate_per_role"), "{why}");
    // Clients of the other door are not touched.
    support::produce_on(&mut node.rogue().await, "p", 1).await;
    node.stop();
}

#[tokio::test]
async fn a_tenant_that_is_asked_about_too_fast_keeps_others_from_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &["--limits-max-http-request-rate-per-tenant=1"]);
    let mut refused = None;
    for _ in 0..1000 {
        let (status, answer) = node.call("GET", "/admin/v2/namespaces/fast", "");
        if status == 429 {
            refused = Some(answer);
            break;
        }
    }
    let why = refused.expect("a thousand requests were let in");
    assert!(why.contains("limits.max_http_request_rate_per_tenant"), "{why}");
    let (status, answer) = node.call("GET", "/admin/v2/namespaces/public", "");
    assert_eq!(status, 200, "{answer}");
    node.stop();
}

#[tokio::test]
async fn a_tenant_has_so_many_connections_as_long_as_they_have_something_there() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &["--limits-max-connections-per-tenant=1"]);
    let (mut raw, mut other) = (node.rogue().await, node.rogue().await);
    support::produce_on(&mut raw, "p", 1).await;
    raw.send(request::subscribe("p", "s", SubType::Shared, 1, 2))
        .await
        .unwrap();
    expect_success(&mut raw, 2).await;
    other.send(request::producer("q", 1, 1, None)).await.unwrap();
    let why = expect_error(&mut other, 1, ServerError::NotAllowedError).await;
    assert!(why.contains("limits.max_connections_per_tenant"), "{why}");
    other
        .send(request::subscribe("p", "s", SubType::Shared, 1, 2))
        .await
        .unwrap();
    let why = expect_error(&mut other, 2, ServerError::NotAllowedError).await;
    assert!(why.contains("limits.max_connections_per_tenant"), "{why}");
    assert_eq!(node.topics(), ["persistent://public/default/p"]);
    // Without its producer it still has its consumer.
    raw.send(request::close_producer(1, 3)).await.unwrap();
    expect_success(&mut raw, 3).await;
    other.send(request::producer("q", 1, 3, None)).await.unwrap();
    expect_error(&mut other, 3, ServerError::NotAllowedError).await;
    raw.send(request::close_consumer(1, 4)).await.unwrap();
    expect_success(&mut raw, 4).await;
    support::produce_on(&mut other, "q", 1).await;
    node.stop();
}

/// Compiles to megabytes.
const COSTLY: &str = r"[\s\S]{1,65535}";

#[tokio::test]
async fn a_costly_topic_pattern_is_refused_by_name_and_compiled_once() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &["--limits-max-topic-list-rate-per-connection=10"]);
    let mut raw = node.rogue().await;
    raw.send(request::watch_topic_list(1, 1, "public/default", COSTLY))
        .await
        .unwrap();
    let why = expect_error(&mut raw, 1, ServerError::NotAllowedError).await;
    assert!(why.contains("subscription_pattern_max_compiled_size"), "{why}");
    raw.send(request::watch_topic_list(2, 1, "public/default", &"x".repeat(51)))
        .await
        .unwrap();
    let why = expect_error(&mut raw, 2, ServerError::NotAllowedError).await;
    assert!(why.contains("subscription_pattern_max_length"), "{why}");
    // Left to the client, whole. More than the burst of a connection waits.
    let burst = 220;
    for id in 3..=burst {
        let mut list = request::topics_of_namespace(id, "public/default", Mode::All);
        list.topics_pattern = Some(COSTLY.to_owned());
        raw.send(list).await.unwrap();
    }
    for _ in 3..=burst {
        match next(&mut raw).await {
            Command::GetTopicsOfNamespaceResponse(answer) => assert_eq!(answer.filtered, Some(false)),
            other => panic!("{other:?}"),
        }
    }
    let page = node.page("/metrics");
    let of = |name| support::figure(&page, name, None);
    assert_eq!(of("pharos_topic_patterns_compiled_total"), 1);
    assert!(of("pharos_topic_lists_delayed_total") > 0);
    node.stop();
}

#[tokio::test]
async fn a_watch_that_is_closed_before_it_is_answered_says_nothing_more() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &[]);
    let mut raw = node.rogue().await;
    for watcher in 1..=2 {
        raw.send(request::watch_topic_list(
            watcher,
            watcher,
            "public/default",
            "public/default/.*",
        ))
        .await
        .unwrap();
    }
    let close = pharos_wire::proto::CommandWatchTopicListClose {
        request_id: 3,
        watcher_id: 1,
    };
    raw.send(close).await.unwrap();
    let mut answered = 0;
    while answered < 3 {
        match next(&mut raw).await {
            Command::WatchTopicListSuccess(_) | Command::Success(_) => answered += 1,
            other => panic!("{other:?}"),
        }
    }
    node.order("PUT", "/admin/v2/persistent/public/default/new", "");
    match next(&mut raw).await {
        Command::WatchTopicUpdate(update) => {
            assert_eq!(update.watcher_id, 2);
            assert_eq!(update.new_topics, ["persistent://public/default/new"]);
        }
        other => panic!("{other:?}"),
    }
    node.stop();
}
