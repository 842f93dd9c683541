//! Replication between two clusters: what goes, what does not, when it begins and ends, and what is said of it.

use std::time::{Duration, Instant};

use crate::support::certificates::Authority;
use crate::support::clusters::{Cluster, texts};
use crate::support::{self, publish, soon, transactions, until};
use pharos_client::{Connection, OutgoingMessage, Producer, ProducerOptions};
use pharos_identity::sign::{self, Claims};
use pharos_wire::command::Command;
use pharos_wire::proto::schema::Type as SchemaType;
use pharos_wire::proto::{Schema, TxnAction};
use pharos_wire::request;
use serde_json::json;
use tempfile::TempDir;

/// East replicates public/default to west.
fn east_to_west(settings: &[&str]) -> (Cluster, Cluster) {
    let (east, west) = (Cluster::start("east", settings), Cluster::start("west", settings));
    east.knows(&west);
    east.is_on(&["east", "west"]);
    (east, west)
}

async fn producer(client: &Connection, topic: &str) -> Producer {
    let options = ProducerOptions::default().name("p");
    soon("a producer", client.producer(topic, options)).await.unwrap()
}

async fn send(producer: &Producer, message: OutgoingMessage) {
    soon("a receipt", producer.send(message)).await.unwrap();
}

fn numbers(range: std::ops::Range<u32>) -> Vec<String> {
    range.map(|number| number.to_string()).collect()
}

const TOPIC: &str = "/admin/v2/persistent/public/default/t";

#[tokio::test]
async fn messages_go_both_ways_as_they_are_and_none_comes_back() {
    let (east, west) = east_to_west(&[]);
    west.knows(&east);
    west.is_on(&["west", "east"]);
    let (there, here) = (west.node().client().await, east.node().client().await);
    let (from_west, from_east) = (producer(&there, "t").await, producer(&here, "t").await);
    publish(&from_east, 0..200).await;
    publish(&from_west, 200..400).await;
    let full = OutgoingMessage::new("all of it")
        .key("k")
        .ordering_key("o")
        .property("a", "b")
        .event_time(77)
        .sequence_id(5_000);
    send(&from_east, full).await;
    let batch = vec![OutgoingMessage::new("b0"), OutgoingMessage::new("b1")];
    soon("a receipt", from_east.send_batch(batch)).await.unwrap();
    east.has_sent_all("t", "west").await;
    west.has_sent_all("t", "east").await;
    // 200 of each, one, and a batch of two.
    for (cluster, other) in [(&east, "west"), (&west, "east")] {
        let stats = cluster.node().stats("t");
        assert_eq!(stats["msgInCounter"], 403, "{stats}");
        assert_eq!(stats["publishers"].as_array().unwrap().len(), 1, "{stats}");
        let replication = &stats["replication"][other];
        let (own, others) = if other == "west" { (203, 200) } else { (200, 203) };
        assert_eq!(replication["msgOutCount"], own, "{stats}");
        assert_eq!(replication["msgInCount"], others, "{stats}");
        assert!(replication["inboundConnection"].is_string(), "{stats}");
        assert!(replication["outboundConnection"].is_string(), "{stats}");
        assert_eq!(replication["pharosFault"], json!(null), "{stats}");
        let name = format!("pulsar.repl.{other}");
        let cursors = cluster.node().internal_stats("t")["cursors"].clone();
        assert!(cursors[&name]["markDeletePosition"].is_string(), "{cursors}");
        let page = cluster.node().page("/metrics");
        let line = page
            .lines()
            .find(|line| line.starts_with("pulsar_replication_connected_count{"));
        assert!(line.unwrap().ends_with(" 1"), "{line:?}");
    }
    let log = west.log("t").await;
    let of_east: Vec<_> = log
        .iter()
        .filter(|message| message.metadata.replicated_from.is_some())
        .collect();
    let mut expected = numbers(0..200);
    expected.extend(["all of it", "b0", "b1"].map(str::to_owned));
    assert_eq!(
        of_east.iter().map(|message| message.text()).collect::<Vec<_>>(),
        expected
    );
    for message in &of_east {
        assert_eq!(message.metadata.replicated_from.as_deref(), Some("east"));
        assert_eq!(message.metadata.producer_name, "p");
    }
    let full = of_east[200];
    assert_eq!(
        (full.key(), full.metadata.event_time, full.sequence_id()),
        (Some("k"), Some(77), 5_000)
    );
    assert_eq!(full.metadata.ordering_key.as_deref(), Some(&b"o"[..]));
    let properties = full.properties();
    assert_eq!(properties["a"], "b");
    let position = properties["__MSG_PROP_REPL_SOURCE_POSITION"];
    assert!(
        position.split(':').all(|part| part.parse::<u64>().is_ok()),
        "{position}"
    );
}

#[tokio::test]
async fn a_message_says_where_it_goes() {
    let (east, west) = east_to_west(&[]);
    let client = east.node().client().await;
    let producer = producer(&client, "t").await;
    for (text, clusters) in [
        ("everywhere", &[][..]),
        ("here only", &["__local__"]),
        ("there", &["west"]),
        ("elsewhere", &["north"]),
        ("there too", &["north", "west"]),
    ] {
        let mut message = OutgoingMessage::new(text);
        message.metadata.replicate_to = clusters.iter().map(|&name| name.to_owned()).collect();
        send(&producer, message).await;
    }
    east.has_sent_all("t", "west").await;
    assert_eq!(texts(&west.log("t").await), ["everywhere", "there", "there too"]);
}

#[tokio::test]
async fn replication_begins_and_ends_with_the_policy() {
    let (east, west) = (Cluster::start("east", &[]), Cluster::start("west", &[]));
    east.knows(&west);
    let client = east.node().client().await;
    let producer = producer(&client, "t").await;
    publish(&producer, 0..10).await;
    // Of the topic alone.
    let policy = format!("{TOPIC}/replication");
    east.node().order("POST", &policy, r#"["east","west"]"#);
    east.is_connected("t", "west").await;
    publish(&producer, 10..20).await;
    east.has_sent_all("t", "west").await;
    assert_eq!(texts(&west.log("t").await), numbers(10..20));
    east.node().order("DELETE", &policy, "");
    until("an end of the cursor", || {
        let cursors = east.node().internal_stats("t")["cursors"].clone();
        cursors.get("pulsar.repl.west").is_none().then_some(())
    })
    .await;
    assert_eq!(east.node().stats("t")["replication"], json!({}));
    publish(&producer, 20..30).await;
    east.is_on(&["east", "west"]);
    east.is_connected("t", "west").await;
    publish(&producer, 30..40).await;
    east.has_sent_all("t", "west").await;
    let mut expected = numbers(10..20);
    expected.extend(numbers(30..40));
    assert_eq!(
        texts(&west.log("t").await),
        expected,
        "what came in between is not sent"
    );
}

#[tokio::test]
async fn a_new_replicator_may_begin_with_what_is_there() {
    let settings = ["--replication-start-at=earliest"];
    let (east, west) = (Cluster::start("east", &settings), Cluster::start("west", &[]));
    let client = east.node().client().await;
    publish(&producer(&client, "t").await, 0..30).await;
    east.knows(&west);
    east.is_on(&["east", "west"]);
    east.has_sent_all("t", "west").await;
    assert_eq!(texts(&west.log("t").await), numbers(0..30));
}

#[tokio::test]
async fn partitions_go_to_partitions_once_they_are_there() {
    let (east, west) = east_to_west(&[]);
    let partitions = format!("{TOPIC}/partitions");
    east.node().order("PUT", &partitions, "3");
    let client = east.node().client().await;
    for index in 0..3 {
        let topic = format!("t-partition-{index}");
        publish(&producer(&client, &topic).await, index * 10..index * 10 + 10).await;
    }
    until("a reason", || {
        let stats = east.replication("t-partition-2", "west");
        let fault = stats["pharosFault"].as_str()?;
        assert_eq!(stats["connected"], false);
        fault.contains("0 partitions").then_some(())
    })
    .await;
    let log = east.node().logged();
    assert!(log.contains("replication stands still"), "{log}");
    west.node().order("PUT", &partitions, "3");
    for index in 0..3 {
        let topic = format!("t-partition-{index}");
        east.has_sent_all(&topic, "west").await;
        assert_eq!(
            texts(&west.log(&topic).await),
            numbers(index * 10..index * 10 + 10)
        );
    }
    let whole = east.node().ask(&format!("{TOPIC}/partitioned-stats"));
    assert_eq!(whole["replication"]["west"]["msgOutCount"], 30, "{whole}");
    // One that is not partitioned here is not over there either.
    west.node()
        .order("PUT", "/admin/v2/persistent/public/default/other/partitions", "2");
    publish(&producer(&client, "other").await, 0..1).await;
    until("a reason", || {
        let stats = east.replication("other", "west");
        stats["pharosFault"]
            .as_str()?
            .contains("not partitioned here")
            .then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_cluster_that_is_away_gets_all_of_it_when_it_is_back() {
    // Nothing but the replicator keeps what is published.
    let short = [
        "--ledger-default-retention-time",
        "0",
        "--ledger-default-retention-size",
        "0",
        "--ledger-max-entries",
        "50",
        "--ledger-min-rollover-time",
        "0",
    ];
    let (mut east, mut west) = (Cluster::start("east", &short), Cluster::start("west", &[]));
    east.knows(&west);
    east.is_on(&["east", "west"]);
    let client = east.node().client().await;
    let from_east = producer(&client, "t").await;
    publish(&from_east, 0..100).await;
    east.has_sent_all("t", "west").await;
    west.kill();
    publish(&from_east, 100..1_000).await;
    until("a backlog", || {
        let stats = east.replication("t", "west");
        let is_told = stats["connected"] == false && stats["pharosFault"].is_string();
        (is_told && stats["replicationBacklog"] == 900).then_some(())
    })
    .await;
    // It stays over a restart, and goes on without a client.
    drop((from_east, client));
    east.stop();
    east.come_back();
    west.come_back();
    // No client of east asks for the topic; stats would load it.
    let there = west.node().client().await;
    let mut reader = there
        .subscribe(
            "t",
            pharos_client::ConsumerOptions::exclusive("s").from_earliest(),
        )
        .await
        .unwrap();
    for number in 0..1_000 {
        assert_eq!(support::receive(&mut reader).await.text(), number.to_string());
    }
    east.has_sent_all("t", "west").await;
    assert_eq!(west.node().stats("t")["msgInCounter"], 900);
}

#[tokio::test]
async fn an_address_that_changes_is_followed() {
    let (east, west) = east_to_west(&[]);
    let other = Cluster::start("west", &[]);
    let client = east.node().client().await;
    let producer = producer(&client, "t").await;
    publish(&producer, 0..10).await;
    east.has_sent_all("t", "west").await;
    let data = json!({"brokerServiceUrl": other.node().pulsar});
    east.node()
        .order("POST", "/admin/v2/clusters/west", &data.to_string());
    until("the other address", || {
        let stats = east.replication("t", "west");
        (stats["outboundConnection"] == json!(other.node().pulsar)).then_some(())
    })
    .await;
    publish(&producer, 10..20).await;
    east.has_sent_all("t", "west").await;
    assert_eq!(texts(&west.log("t").await), numbers(0..10));
    assert_eq!(texts(&other.log("t").await), numbers(10..20));
}

#[tokio::test]
async fn only_what_is_committed_goes() {
    let (east, west) = east_to_west(&transactions::ON);
    let client = east.node().client().await;
    let topic = "persistent://public/default/t";
    let producer = producer(&client, topic).await;
    let mut open = Vec::new();
    for _ in 0..2 {
        let txn = transactions::begin(&client, 0, 60_000).await.unwrap();
        transactions::add_topic(&client, txn, topic).await.unwrap();
        open.push(txn);
    }
    send(&producer, OutgoingMessage::new("before")).await;
    transactions::send_in(&producer, open[0], &["committed 1", "committed 2"]).await;
    transactions::send_in(&producer, open[1], &["aborted"]).await;
    send(&producer, OutgoingMessage::new("after")).await;
    until("what is before them", || {
        let sent = east.replication("t", "west")["msgOutCount"].as_u64()?;
        assert!(sent <= 1, "what is open was sent");
        (sent == 1).then_some(())
    })
    .await;
    transactions::end(&client, open[1], TxnAction::Abort)
        .await
        .unwrap();
    transactions::end(&client, open[0], TxnAction::Commit)
        .await
        .unwrap();
    until("the rest", || {
        (east.replication("t", "west")["msgOutCount"] == 4).then_some(())
    })
    .await;
    east.has_sent_all("t", "west").await;
    assert_eq!(
        texts(&west.log("t").await),
        ["before", "committed 1", "committed 2", "after"]
    );
}

#[tokio::test]
async fn a_schema_goes_with_its_messages() {
    let (east, west) = east_to_west(&[]);
    let avro = |fields: &str| Schema {
        name: "t".to_owned(),
        schema_data: format!(r#"{{"type":"record","name":"r","fields":[{fields}]}}"#).into(),
        r#type: SchemaType::Avro as i32,
        properties: Vec::new(),
    };
    let other = avro(r#"{"name":"x","type":["null","int"],"default":null}"#);
    let own = avro(
        r#"{"name":"x","type":["null","int"],"default":null},{"name":"y","type":["null","int"],"default":null}"#,
    );
    // Over there it is the second version.
    let there = west.node().client().await;
    west.node().order("PUT", TOPIC, "");
    soon("a schema", there.get_or_create_schema("t", other))
        .await
        .unwrap();
    let client = east.node().client().await;
    let options = ProducerOptions::default().schema(own.clone());
    let producer = soon("a producer", client.producer("t", options)).await.unwrap();
    let version = producer.success().schema_version.clone().unwrap();
    let mut message = OutgoingMessage::new("x");
    message.metadata.schema_version = Some(version.clone());
    send(&producer, message).await;
    east.has_sent_all("t", "west").await;
    let log = west.log("t").await;
    let replicated = log[0].metadata.schema_version.clone().unwrap();
    assert_ne!(replicated, version);
    let (found, _) = soon("the schema", there.schema("t", Some(replicated)))
        .await
        .unwrap();
    assert_eq!(found.schema_data, own.schema_data);
}

#[tokio::test]
async fn a_rate_is_kept() {
    let (east, west) = east_to_west(&[]);
    let rate = json!({"dispatchThrottlingRateInMsg": 20, "dispatchThrottlingRateInByte": -1, "ratePeriodInSecond": 1});
    east.node().order(
        "POST",
        "/admin/v2/namespaces/public/default/replicatorDispatchRate",
        &rate.to_string(),
    );
    let client = east.node().client().await;
    let producer = producer(&client, "t").await;
    east.is_connected("t", "west").await;
    let began = Instant::now();
    publish(&producer, 0..80).await;
    east.has_sent_all("t", "west").await;
    // A second's worth at once, and the rest at the rate.
    assert!(began.elapsed() >= Duration::from_secs(2), "{:?}", began.elapsed());
    east.node().order(
        "DELETE",
        "/admin/v2/namespaces/public/default/replicatorDispatchRate",
        "",
    );
    publish(&producer, 80..2_000).await;
    east.has_sent_all("t", "west").await;
    assert!(began.elapsed() < Duration::from_secs(50), "{:?}", began.elapsed());
    assert_eq!(texts(&west.log("t").await), numbers(0..2_000));
}

#[tokio::test]
async fn a_backlog_can_be_given_up() {
    let (east, mut west) = east_to_west(&[]);
    let client = east.node().client().await;
    let producer = producer(&client, "t").await;
    publish(&producer, 0..10).await;
    east.has_sent_all("t", "west").await;
    west.kill();
    publish(&producer, 10..20).await;
    let cursor = format!("{TOPIC}/subscription/pulsar.repl.west");
    assert_eq!(east.replication("t", "west")["replicationBacklog"], 10);
    east.node().order("POST", &format!("{cursor}/skip_all"), "");
    assert_eq!(east.replication("t", "west")["replicationBacklog"], 0);
    publish(&producer, 20..30).await;
    let (status, _) = east
        .node()
        .call("POST", &format!("{cursor}/expireMessages/3600"), "");
    assert_eq!(status, 204);
    assert_eq!(
        east.replication("t", "west")["replicationBacklog"],
        10,
        "nothing is so old"
    );
    let (status, _) = east.node().call("DELETE", &cursor, "");
    assert_eq!(status, 404, "it is the policy's");
    west.come_back();
    east.has_sent_all("t", "west").await;
    let mut expected = numbers(0..10);
    expected.extend(numbers(20..30));
    assert_eq!(texts(&west.log("t").await), expected);
}

#[tokio::test]
async fn a_replicator_takes_no_producer_s_place() {
    let (east, west) = east_to_west(&[]);
    west.node().order(
        "POST",
        "/admin/v2/namespaces/public/default/maxProducersPerTopic",
        "1",
    );
    let there = west.node().client().await;
    let own = producer(&there, "t").await;
    let client = east.node().client().await;
    publish(&producer(&client, "t").await, 0..10).await;
    east.has_sent_all("t", "west").await;
    drop(own);
    soon("a producer beside the replicator", producer(&there, "t")).await;
    assert_eq!(west.node().stats("t")["publishers"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_refused_message_waits_and_none_overtakes_it() {
    // What was answered when the producer was closed is sent again.
    let (east, west) = east_to_west(&["--policies-deduplication=true"]);
    let limit = format!("{TOPIC}/maxMessageSize");
    west.node().order("PUT", TOPIC, "");
    west.node().order("POST", &limit, "1000");
    let client = east.node().client().await;
    let producer = producer(&client, "t").await;
    send(&producer, OutgoingMessage::new("small")).await;
    send(&producer, OutgoingMessage::new(vec![b'x'; 2_000])).await;
    send(&producer, OutgoingMessage::new("behind it")).await;
    until("a reason", || {
        let stats = east.replication("t", "west");
        let is_refused = stats["pharosFault"].as_str()?.contains("maximum message size");
        (is_refused && stats["replicationBacklog"] == 2).then_some(())
    })
    .await;
    assert_eq!(west.log("t").await.len(), 1);
    west.node().order("DELETE", &limit, "");
    east.has_sent_all("t", "west").await;
    let log = west.log("t").await;
    assert_eq!((log.len(), log[1].payload.len()), (3, 2_000));
    assert_eq!(log[2].text(), "behind it");
}

/// The name of an unresponsive replicator is taken over: a paused previous owner leaves a connection that is open and
/// does not answer.
#[tokio::test]
async fn the_name_of_a_replicator_that_does_not_answer_is_taken_over() {
    let east = Cluster::start("east", &[]);
    let patient = [
        "--keep-alive-interval",
        "1h",
        "--connection-liveness-check-timeout",
        "500ms",
    ];
    let west = Cluster::start("west", &patient);
    let mut paused = west.node().rogue().await;
    let name = Some("pulsar.repl.east-->west");
    paused.send(request::producer("t", 1, 1, name)).await.unwrap();
    let answer = support::next(&mut paused).await;
    assert!(matches!(answer, Command::ProducerSuccess(_)), "{answer:?}");
    east.knows(&west);
    east.is_on(&["east", "west"]);
    let client = east.node().client().await;
    publish(&producer(&client, "t").await, 0..10).await;
    east.has_sent_all("t", "west").await;
    assert_eq!(texts(&west.log("t").await), numbers(0..10));
    support::assert_closed(&mut paused, "who does not answer").await;
}

#[tokio::test]
async fn a_cluster_is_reached_over_tls_with_a_token() {
    const SECRET: [u8; 32] = [7; 32];
    let dir = TempDir::new().unwrap();
    let authority = Authority::new(dir.path(), "authority");
    std::fs::write(dir.path().join("secret"), SECRET).unwrap();
    let secret = format!(
        "--authentication-token-secret-key=file://{}/secret",
        dir.path().display()
    );
    let mut settings = authority.broker("broker").settings();
    settings.extend([
        "--authentication-enabled=true".to_owned(),
        "--authentication-providers=token".to_owned(),
        secret,
    ]);
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let mut west = Cluster::start("west", &settings);
    let url = west.node_mut().announced("pulsar+ssl://");
    let token = sign::with_secret(&SECRET, &Claims::of("east")).unwrap();
    std::fs::write(dir.path().join("token"), &token).unwrap();
    let east = Cluster::start("east", &[]);
    let data = |trust: &str, token: &str| {
        json!({
            "brokerServiceUrl": west.node().pulsar,
            "brokerServiceUrlTls": url,
            "brokerClientTlsEnabled": true,
            "brokerClientTrustCertsFilePath": trust,
            "authenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
            "authenticationParameters": token,
        })
    };
    let stranger = Authority::new(dir.path(), "stranger");
    let path = |authority: &Authority| authority.certificate_file.display().to_string();
    east.knows_as("west", &data(&path(&stranger), "token:nonsense"));
    east.is_on(&["east", "west"]);
    let client = east.node().client().await;
    publish(&producer(&client, "t").await, 0..10).await;
    let fault = async |part: &str| {
        until(part, || {
            let stats = east.replication("t", "west");
            let fault = stats["pharosFault"].as_str()?.to_lowercase();
            assert!(!fault.contains("nonsense"), "{fault}");
            fault.contains(part).then_some(())
        })
        .await;
    };
    fault("certificate").await;
    let update = |data: serde_json::Value| {
        east.node()
            .order("POST", "/admin/v2/clusters/west", &data.to_string());
    };
    update(data(&path(&authority), "token:nonsense"));
    fault("authenticat").await;
    let token_file = format!("file://{}/token", dir.path().display());
    update(data(&path(&authority), &token_file));
    east.has_sent_all("t", "west").await;
    let stats = east.replication("t", "west");
    assert_eq!(stats["outboundConnection"], json!(url), "{stats}");
    assert!(!east.node().logged().contains(&token));
}
