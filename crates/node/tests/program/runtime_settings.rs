//! Settings that are changed while the broker runs: in force at once, kept over a restart, taken back.

use crate::support::Node;
use pharos_client::ProducerOptions;
use pharos_wire::proto::ServerError;
use serde_json::json;

const CONFIGURATION: &str = "/admin/v2/brokers/configuration";
const TOPIC: &str = "/admin/v2/persistent/public/default/t";

fn time_to_live(node: &Node) -> serde_json::Value {
    node.ask(&format!("{TOPIC}/messageTTL?applied=true"))
}

#[tokio::test]
async fn a_setting_that_is_changed_holds_at_once_and_after_a_restart_until_it_is_taken_back() {
    let dir = tempfile::tempdir().unwrap();
    let flags = ["--policies-max-producers-per-topic=5"];
    let node = Node::start(dir.path(), &flags);
    node.order("PUT", TOPIC, "");
    assert_eq!(node.ask(&format!("{CONFIGURATION}/values")), json!({}));
    let names = node.ask(CONFIGURATION);
    assert!(names.as_array().unwrap().contains(&json!("maxProducersPerTopic")));

    let client = node.client().await;
    let _first = client.producer("t", ProducerOptions::default()).await.unwrap();
    node.order("POST", &format!("{CONFIGURATION}/maxProducersPerTopic/1"), "");
    let refused = client.producer("t", ProducerOptions::default()).await;
    assert_eq!(refused.err().unwrap().code(), Some(ServerError::ProducerBusy));
    node.order(
        "POST",
        &format!("{CONFIGURATION}/ttlDurationDefaultInSeconds/60"),
        "",
    );
    assert_eq!(time_to_live(&node), 60);
    // By our own name, and so in our own words.
    node.order("POST", &format!("{CONFIGURATION}/policies.message_ttl/2m"), "");
    let values = node.ask(&format!("{CONFIGURATION}/values"));
    assert_eq!(
        values,
        json!({"maxProducersPerTopic": "1", "policies.message_ttl": "2m", "ttlDurationDefaultInSeconds": "60"})
    );
    node.order(
        "DELETE",
        &format!("{CONFIGURATION}/ttlDurationDefaultInSeconds"),
        "",
    );
    assert_eq!(time_to_live(&node), 120);
    node.stop();

    let node = Node::start(dir.path(), &flags);
    assert_eq!(time_to_live(&node), 120);
    let client = node.client().await;
    let _first = client.producer("t", ProducerOptions::default()).await.unwrap();
    assert!(client.producer("t", ProducerOptions::default()).await.is_err());
    node.order("DELETE", &format!("{CONFIGURATION}/maxProducersPerTopic"), "");
    let _second = client.producer("t", ProducerOptions::default()).await.unwrap();
    node.stop();
}

#[tokio::test]
async fn what_cannot_be_changed_is_refused_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &[]);
    for (method, path, why) in [
        ("POST", "data_dir/elsewhere", "non-dynamic"),
        ("POST", "nothing/1", "non-dynamic"),
        ("DELETE", "nothing", "non-dynamic"),
        ("POST", "maxProducersPerTopic/many", "dynamic-config value"),
        ("POST", "defaultNumPartitions/0", "default_num_partitions"),
    ] {
        let (status, answer) = node.call(method, &format!("{CONFIGURATION}/{path}"), "");
        assert!(status == 412 && answer.contains(why), "{path}: {status} {answer}");
    }
    assert_eq!(node.ask(&format!("{CONFIGURATION}/values")), json!({}));
    node.stop();
}
