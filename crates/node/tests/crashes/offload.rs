//! Tiered storage on the running broker: by setting, by policy and by hand, to a folder and to S3, over kills.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command as Process;

use crate::s3_server::{BUCKET, Fault, KEY_ID, S3Server, SECRET};
use crate::support::{self, LEDGERS_OF_TEN, Node, broadcast, expect_numbers, publish, soon, until};
use axum::http::Method;
use pharos_client::{Connection, ConsumerOptions, Producer, ProducerOptions, earliest};
use serde_json::json;

const TOPIC: &str = "/admin/v2/persistent/public/default/t";
const NAMESPACE: &str = "/admin/v2/namespaces/public/default";

/// Settings under which every closed ledger goes at once, with its local copy.
const AT_ONCE: [&str; 4] = ["--offload-threshold-size", "0", "--offload-deletion-lag", "0"];

fn folder_settings(folder: &Path) -> Vec<String> {
    let uri = format!("file://{}", folder.display());
    ["--offload-driver", "filesystem", "--offload-filesystem-uri", &uri]
        .map(str::to_owned)
        .to_vec()
}

fn s3_settings(server: &S3Server) -> Vec<String> {
    [
        "--offload-driver",
        "S3",
        "--offload-s3-bucket",
        BUCKET,
        "--offload-s3-region",
        "eu-north-1",
        "--offload-s3-endpoint",
        &server.endpoint(),
    ]
    .map(str::to_owned)
    .to_vec()
}

fn start(data: &Path, more: &[String]) -> Node {
    let settings = LEDGERS_OF_TEN
        .into_iter()
        .chain(AT_ONCE)
        .chain(more.iter().map(String::as_str));
    let settings: Vec<&str> = settings.collect();
    let environment = [("AWS_ACCESS_KEY_ID", KEY_ID), ("AWS_SECRET_ACCESS_KEY", SECRET)];
    Node::start_in(data, &settings, &environment)
}

async fn producer(client: &Connection, topic: &str) -> Producer {
    client.producer(topic, ProducerOptions::default()).await.unwrap()
}

/// Publishes until the topic has `count` ledgers; how many messages it has then.
async fn fill(node: &Node, producer: &Producer, from: u32, count: usize) -> u32 {
    let mut end = from;
    while node.ledgers("t").len() < count {
        publish(producer, end..end + 5).await;
        end += 5;
    }
    end
}

/// Waits until all ledgers but the current one are offloaded; the names of their objects.
async fn all_offloaded(node: &Node) -> BTreeSet<String> {
    until("all closed ledgers are offloaded", || {
        let stats = node.internal_stats("t");
        let (_, closed) = stats["ledgers"].as_array()?.split_last()?;
        (!closed.is_empty() && closed.iter().all(|ledger| ledger["offloaded"] == true)).then_some(())
    })
    .await;
    let info = node.ask(&format!("{TOPIC}/internal-info"));
    let mut names = BTreeSet::new();
    for ledger in info["ledgers"].as_array().unwrap() {
        if let (true, Some(uuid)) = (
            ledger["isOffloaded"] == true,
            ledger["offloadedContextUuid"].as_str(),
        ) {
            let data = format!("{uuid}-ledger-{}", ledger["ledgerId"]);
            names.insert(format!("{data}-index"));
            names.insert(data);
        }
    }
    names
}

fn objects(folder: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

fn metric(node: &Node, name: &str) -> f64 {
    let page = node.page("/metrics");
    let line = page
        .lines()
        .find(|line| line.starts_with(name) && !line.starts_with('#'));
    line.unwrap().rsplit(' ').next().unwrap().parse().unwrap()
}

/// Waits until the engine holds no more than the current ledger and that of the cursors.
async fn local_copies_go(node: &Node) {
    until("the broker's own copies go", || {
        (metric(node, "pharos_storage_ledgers") <= 3.0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn everything_is_read_from_a_folder_as_it_was_from_the_log() {
    let (data, cold) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let settings = folder_settings(cold.path());
    let node = start(data.path(), &settings);
    let client = node.client().await;
    for options in [
        ConsumerOptions::exclusive("keeps"),
        ConsumerOptions::shared("shares"),
    ] {
        client
            .subscribe("t", options)
            .await
            .unwrap()
            .close()
            .await
            .unwrap();
    }
    client
        .subscribe("t", broadcast("all").name("car"))
        .await
        .unwrap()
        .close()
        .await
        .unwrap();
    let writer = producer(&client, "t").await;
    let end = fill(&node, &writer, 0, 5).await;
    let named = all_offloaded(&node).await;
    local_copies_go(&node).await;
    assert_eq!(objects(cold.path()), named);
    assert!(node.stats("t")["offloadedStorageSize"].as_u64().unwrap() > 0);

    // Consumers, readers, searches and administrators, all over offloaded ledgers.
    let options = ConsumerOptions::exclusive("reads").non_durable(earliest());
    let mut reader = client.subscribe("t", options).await.unwrap();
    expect_numbers(&mut reader, 0..end).await;
    let mut shared = client
        .subscribe("t", ConsumerOptions::shared("shares"))
        .await
        .unwrap();
    expect_numbers(&mut shared, 0..end).await;
    let mut car = client.subscribe("t", broadcast("all").name("car")).await.unwrap();
    expect_numbers(&mut car, 0..end).await;
    let peeked = node.page(&format!("{TOPIC}/subscription/keeps/position/7"));
    assert!(peeked.ends_with('6'), "{peeked}");
    assert_eq!(node.ask(&format!("{TOPIC}/messageid/1"))["entryId"], 0);
    assert!(metric(&node, "brk_ledgeroffloader_offload_bytes") > 0.0);

    // A kill, and all is there.
    node.kill();
    let node = start(data.path(), &settings);
    let client = node.client().await;
    let mut keeps = client
        .subscribe("t", ConsumerOptions::exclusive("keeps"))
        .await
        .unwrap();
    let messages = expect_numbers(&mut keeps, 0..end).await;
    soon("a seek", keeps.seek(messages[3].id.clone())).await.unwrap();
    expect_numbers(&mut keeps, 3..end).await;

    // Not from memory this time.
    assert!(metric(&node, "pharos_offload_read_entries_total") >= 40.0);

    // Deleting the topic deletes its objects.
    node.delete(&format!("{TOPIC}?force=true"));
    until("an empty folder", || {
        objects(cold.path()).is_empty().then_some(())
    })
    .await;
}

#[tokio::test]
async fn policies_and_administrators_offload_by_hand() {
    let (data, cold) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let uri = format!("file://{}", cold.path().display());
    let node = Node::start(
        data.path(),
        &[&LEDGERS_OF_TEN[..], &["--offload-filesystem-uri", &uri]].concat(),
    );
    let client = node.client().await;
    client
        .subscribe("t", ConsumerOptions::exclusive("keeps"))
        .await
        .unwrap();
    let writer = producer(&client, "t").await;
    let end = fill(&node, &writer, 0, 4).await;
    let ledgers = node.ledgers("t");
    let offload = format!("{TOPIC}/offload");
    let before = |ledger: u64| json!({"ledgerId": ledger, "entryId": 0, "partitionIndex": -1});
    assert_eq!(node.ask(&offload)["status"], "NOT_RUN");
    let refused = node.send("PUT", &offload, &before(ledgers[2]), 412);
    assert!(refused.contains("offload.driver"), "{refused}");

    // What cannot be acted on is refused, and says why.
    let policies = format!("{TOPIC}/offloadPolicies");
    for (wrong, why) in [
        (
            json!({"managedLedgerOffloadDriver": "azureblob", "managedLedgerOffloadBucket": "b"}),
            "azureblob",
        ),
        (json!({"managedLedgerOffloadDriver": "aws-s3"}), "bucket"),
        (
            json!({"managedLedgerOffloadDriver": "filesystem", "fileSystemURI": "file:///etc"}),
            "or below it",
        ),
        (
            json!({"s3ManagedLedgerOffloadCredentialSecret": "s"}),
            "environment",
        ),
    ] {
        let refused = node.send("POST", &policies, &wrong, 412);
        assert!(refused.contains(why), "{refused}");
        node.send("POST", &format!("{NAMESPACE}/offloadPolicies"), &wrong, 412);
    }

    // The topic says where, its namespace says when.
    let below = json!({"managedLedgerOffloadDriver": "filesystem", "fileSystemURI": format!("{uri}/t")});
    node.send("POST", &policies, &below, 204);
    assert_eq!(node.ask(&policies), below);
    node.send("PUT", &offload, &before(ledgers[2]), 204);
    let status = until("the offload ends", || {
        Some(node.ask(&offload)).filter(|status| status["status"] != "RUNNING")
    })
    .await;
    assert_eq!(status["status"], "SUCCESS", "{status}");
    assert_eq!(status["firstUnoffloadedMessage"]["ledgerId"], ledgers[2]);
    assert_eq!(objects(&cold.path().join("t")).len(), 4);
    assert_eq!(node.ask(&format!("{NAMESPACE}/offloadThreshold")), json!(-1));
    node.send(
        "PUT",
        &format!("{NAMESPACE}/offloadThresholdInSeconds"),
        &json!(-60),
        412,
    );
    node.send("PUT", &format!("{NAMESPACE}/offloadThreshold"), &json!(0), 204);
    all_offloaded(&node).await;
    node.send(
        "PUT",
        &format!("{NAMESPACE}/offloadDeletionLagMs"),
        &json!(0),
        204,
    );
    local_copies_go(&node).await;
    let options = ConsumerOptions::exclusive("reads").non_durable(earliest());
    let mut reader = client.subscribe("t", options).await.unwrap();
    expect_numbers(&mut reader, 0..end).await;

    // The same by command line, on what was written since; and on a topic of partitions only one by one.
    node.http(
        "DELETE",
        &format!("{NAMESPACE}/removeOffloadPolicies"),
        "HTTP/1.1 204",
    );
    assert_eq!(node.ask(&format!("{NAMESPACE}/offloadThreshold")), json!(-1));
    fill(&node, &writer, end, 6).await;
    let pharos = |arguments: &[&str]| {
        let mut process = Process::new(env!("CARGO_BIN_EXE_pharos"));
        let output = process
            .arg("topics")
            .args(["--url", &node.admin_url()])
            .args(arguments)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let begun = pharos(&["offload", "--size-threshold", "0", "t"]);
    assert!(begun.contains("has begun"), "{begun}");
    let done = pharos(&["offload-status", "--wait", "t"]);
    assert!(done.contains("is done"), "{done}");
    all_offloaded(&node).await;
    node.send(
        "PUT",
        "/admin/v2/persistent/public/default/p/partitions",
        &json!(2),
        204,
    );
    node.send(
        "PUT",
        "/admin/v2/persistent/public/default/p/offload",
        &before(1),
        405,
    );
    node.send(
        "PUT",
        "/admin/v2/persistent/public/default/p-partition-0/offload",
        &before(1),
        412,
    );
}

#[tokio::test]
async fn s3_may_fail_and_the_broker_may_be_killed_meanwhile() {
    let data = tempfile::tempdir().unwrap();
    let server = S3Server::start();
    let settings = s3_settings(&server);
    // One life ends while the data is sent, one while the index is, one while a stale attempt is cleaned up.
    let mut end = 0;
    for (life, (method, suffix)) in [(Method::PUT, ""), (Method::PUT, "-index"), (Method::DELETE, "")]
        .into_iter()
        .enumerate()
    {
        server.fail(method, suffix, Fault::Hang);
        let node = start(data.path(), &settings);
        let client = node.client().await;
        client
            .subscribe("t", ConsumerOptions::exclusive("keeps"))
            .await
            .unwrap();
        let writer = producer(&client, "t").await;
        end = fill(&node, &writer, end, life + 2).await;
        until("the fault is met", || (server.faults_left() == 0).then_some(())).await;
        node.kill();
    }
    for (method, suffix) in [
        (Method::PUT, ""),
        (Method::PUT, "-index"),
        (Method::DELETE, ""),
        (Method::HEAD, ""),
    ] {
        server.fail(method, suffix, Fault::Status(500));
    }
    let node = start(data.path(), &settings);
    let client = node.client().await;
    let writer = producer(&client, "t").await;
    end = fill(&node, &writer, end, 8).await;
    all_offloaded(&node).await;
    local_copies_go(&node).await;
    let named = all_offloaded(&node).await;
    until("nothing is left of other attempts", || {
        let stored: BTreeSet<String> = server.objects().into_keys().collect();
        (stored == named).then_some(())
    })
    .await;

    // Damage on the way is met and passed.
    for fault in [Fault::Truncated, Fault::Status(503), Fault::Flipped] {
        server.fail(Method::GET, "", fault);
    }
    let mut keeps = client
        .subscribe("t", ConsumerOptions::exclusive("keeps"))
        .await
        .unwrap();
    expect_numbers(&mut keeps, 0..end).await;
    let signed: Vec<String> = server.requests();
    assert!(!signed.is_empty());
    node.delete(&format!("{TOPIC}?force=true"));
    until("an empty bucket", || server.objects().is_empty().then_some(())).await;
}

#[tokio::test]
async fn a_node_with_a_driver_that_is_not_there_does_not_start() {
    let data = tempfile::tempdir().unwrap();
    for (settings, why) in [
        (
            vec!["--offload-driver", "google-cloud-storage"],
            "not available in this release",
        ),
        (vec!["--offload-driver", "aws-s3"], "a bucket is needed"),
        (vec!["--offload-driver", "filesystem"], "offload.filesystem_uri"),
        (vec!["--offload-filesystem-uri", "hdfs://n/x"], "file:///"),
    ] {
        let output = support::serve(data.path(), &settings)
            .stderr(std::process::Stdio::piped())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && said.contains(why),
            "{settings:?}: {said}"
        );
    }
}
