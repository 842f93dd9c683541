//! Audit records of requests, over the Pulsar protocol and HTTP.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use pharos_client::{ConnectOptions, Connection, ConsumerOptions, OutgoingMessage, ProducerOptions};
use pharos_identity::sign::{self, Claims};
use serde_json::Value;

use crate::support::{Node, figure, soon, until};

const SECRET: [u8; 32] = [7; 32];

fn node(dir: &Path, more: &[&str]) -> Node {
    std::fs::write(dir.join("secret"), SECRET).unwrap();
    let secret = format!("--authentication-token-secret-key={}/secret", dir.display());
    let mut settings = vec![
        "--authentication-enabled=true",
        "--authentication-providers=token",
        "--authorization-enabled=true",
        "--authorization-super-user-roles=admin",
        "--audit-enabled=true",
        &secret,
    ];
    settings.extend(more);
    Node::start(&dir.join("data"), &settings)
}

fn token(role: &str) -> String {
    sign::with_secret(&SECRET, &Claims::of(role)).unwrap()
}

async fn client(node: &Node, token: &str) -> Result<Connection, pharos_client::ClientError> {
    let options = ConnectOptions::default().token(token);
    soon("an answer to CONNECT", Connection::connect(&node.pulsar, options)).await
}

fn ask(node: &Node, token: &str, method: &str, path: &str) -> u16 {
    let header = format!("Authorization: Bearer {token}\n");
    node.call_with(&header, method, path, "").0
}

fn lines(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Role, door, action, the last name of the resource, and whether it was allowed.
fn told(line: &Value) -> (String, String, String, String, bool) {
    let text = |name: &str| line[name].as_str().unwrap_or("-").to_owned();
    let names = ["consumer", "subscription", "topic", "namespace", "tenant"];
    let resource = names.iter().find(|name| line[**name].is_string());
    (
        text("role"),
        text("door"),
        text("action"),
        resource.map_or_else(|| "-".to_owned(), |name| text(name)),
        line["allowed"].as_bool().unwrap(),
    )
}

#[tokio::test]
async fn decisions_of_both_doors_are_kept_and_messages_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let node = node(dir.path(), &[]);
    let (admin, car) = (token("admin"), token("car"));
    let topic = "persistent://public/default/t";
    let path = "/admin/v2/persistent/public/default/t";
    assert_eq!(ask(&node, &admin, "PUT", path), 204);
    assert_eq!(ask(&node, &car, "DELETE", path), 403);
    assert_eq!(ask(&node, "forged", "DELETE", path), 401);
    assert_eq!(ask(&node, &admin, "GET", "/admin/v2/tenants"), 200);
    let connection = client(&node, &admin).await.unwrap();
    let mut consumer = connection
        .subscribe(topic, ConsumerOptions::shared("s"))
        .await
        .unwrap();
    let producer = connection
        .producer(topic, ProducerOptions::default())
        .await
        .unwrap();
    for _ in 0..20 {
        producer.send(OutgoingMessage::new("m")).await.unwrap();
        let message = soon("a message", consumer.receive()).await.unwrap();
        consumer.ack(&message.id).await.unwrap();
    }
    let stranger = client(&node, &car).await.unwrap();
    assert!(
        stranger
            .producer(topic, ProducerOptions::default())
            .await
            .is_err()
    );
    assert!(client(&node, "forged").await.is_err());
    // A thread of its own writes and counts them.
    until("a record that is counted", || {
        let written = figure(&node.page("/metrics"), "pharos_audit_records_total", None);
        (written > 0).then_some(())
    })
    .await;
    node.stop();
    let file = dir.path().join("data/audit/audit.log");
    assert_eq!(
        std::fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let all = lines(&file);
    let seen: Vec<_> = all.iter().map(told).collect();
    let line = |role: &str, door: &str, action: &str, resource: &str, allowed| {
        (
            role.to_owned(),
            door.to_owned(),
            action.to_owned(),
            resource.to_owned(),
            allowed,
        )
    };
    for wanted in [
        line("admin", "http", "create-topic", topic, true),
        line("car", "http", "delete-topic", topic, false),
        line("-", "http", "authenticate", "-", false),
        line("-", "http", "delete-topic", topic, false),
        line("admin", "pulsar", "produce", topic, true),
        line("car", "pulsar", "lookup", topic, false),
        line("-", "pulsar", "authenticate", "-", false),
    ] {
        let count = seen.iter().filter(|line| **line == wanted).count();
        assert_eq!(count, 1, "{wanted:?} in {seen:?}");
    }
    let consumed = seen.iter().filter(|line| line.2 == "consume").count();
    assert_eq!(consumed, 1, "{seen:?}");
    assert!(seen.iter().all(|line| line.2 != "list-tenants"), "{seen:?}");
    assert!(seen.len() < 20, "sends or acknowledgements in {seen:?}");
    let denied = all
        .iter()
        .find(|line| line["role"] == "car" && line["door"] == "http")
        .unwrap();
    assert_eq!(denied["reason"], "not authorized: needs tenant administrator");
    assert!(denied["address"].as_str().unwrap().starts_with("/127.0.0.1:"));
    let forged = all.iter().find(|line| line["action"] == "authenticate").unwrap();
    assert_eq!(forged["reason"], "token: this is no token");
}

#[tokio::test]
async fn a_log_goes_on_after_a_restart_where_settings_say_and_keeps_what_they_say() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("elsewhere.log");
    std::fs::write(&file, "").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let at = format!("--audit-file={}", file.display());
    let admin = token("admin");
    for level in ["all", "denied"] {
        let level = format!("--audit-level={level}");
        let node = node(dir.path(), &[&at, &level]);
        assert_eq!(ask(&node, &admin, "GET", "/admin/v2/tenants"), 200);
        assert_eq!(ask(&node, &token("car"), "GET", "/admin/v2/tenants"), 403);
        node.stop();
    }
    assert_eq!(
        std::fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let seen: Vec<_> = lines(&file).iter().map(|line| told(line).4).collect();
    assert_eq!(seen, [true, false, false]);
}
