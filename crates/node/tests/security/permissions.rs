//! Granting and revoking: on several topics at once, on topics that go, on subscriptions, by administrators of tenants.

use std::path::Path;

use pharos_client::{ConnectOptions, Connection, ConsumerOptions, ProducerOptions};
use pharos_identity::sign::{self, Claims};
use serde_json::{Value, json};

use crate::support::{Node, soon};

const SECRET: [u8; 32] = [7; 32];

fn node(dir: &Path) -> Node {
    std::fs::write(dir.join("secret"), SECRET).unwrap();
    let secret = format!("--authentication-token-secret-key={}/secret", dir.display());
    let settings = [
        "--authentication-enabled=true",
        "--authentication-providers=token",
        "--authorization-enabled=true",
        "--authorization-super-user-roles=root",
        &secret,
    ];
    let node = Node::start(&dir.join("data"), &settings);
    for (tenant, boss) in [("t", "boss"), ("u", "stranger")] {
        let about = json!({ "adminRoles": [boss], "allowedClusters": ["standalone"] });
        done(&node, "root", "PUT", &format!("tenants/{tenant}"), &about);
        done(
            &node,
            boss,
            "PUT",
            &format!("namespaces/{tenant}/n"),
            &Value::Null,
        );
    }
    node
}

fn token(role: &str) -> String {
    sign::with_secret(&SECRET, &Claims::of(role)).unwrap()
}

fn ask(node: &Node, role: &str, method: &str, path: &str, body: &Value) -> (u16, String) {
    let header = format!(
        "Authorization: Bearer {}\nContent-Type: application/json\n",
        token(role)
    );
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    node.call_with(&header, method, &format!("/admin/v2/{path}"), &body)
}

fn done(node: &Node, role: &str, method: &str, path: &str, body: &Value) {
    let (status, answer) = ask(node, role, method, path, body);
    assert!(
        (200..300).contains(&status),
        "{role} {method} {path}: {status} {answer}"
    );
}

fn status(node: &Node, role: &str, method: &str, path: &str, body: &Value) -> u16 {
    ask(node, role, method, path, body).0
}

fn granted(node: &Node, topic: &str) -> Value {
    let (status, answer) = ask(
        node,
        "root",
        "GET",
        &format!("persistent/{topic}/permissions"),
        &Value::Null,
    );
    assert_eq!(status, 200, "{answer}");
    serde_json::from_str(&answer).unwrap()
}

async fn client(node: &Node, role: &str) -> Connection {
    let options = ConnectOptions::default().token(&token(role));
    soon("connecting", Connection::connect(&node.pulsar, options))
        .await
        .unwrap()
}

async fn may_produce(node: &Node, role: &str, topic: &str) -> bool {
    let connection = client(node, role).await;
    let topic = format!("persistent://{topic}");
    connection
        .producer(&topic, ProducerOptions::default())
        .await
        .is_ok()
}

async fn may_consume(node: &Node, role: &str, topic: &str, subscription: &str) -> bool {
    let connection = client(node, role).await;
    let topic = format!("persistent://{topic}");
    connection
        .subscribe(&topic, ConsumerOptions::shared(subscription))
        .await
        .is_ok()
}

const GRANT: &str = "namespaces/grantPermissionsOnTopics";
const REVOKE: &str = "namespaces/revokePermissionsOnTopics";

#[tokio::test]
async fn several_topics_are_granted_at_once_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let node = node(dir.path());
    for topic in ["a", "b"] {
        done(
            &node,
            "boss",
            "PUT",
            &format!("persistent/t/n/{topic}"),
            &Value::Null,
        );
    }
    let grant = |topic: &str, role: &str, actions: &[&str]| json!({ "topic": format!("persistent://{topic}"), "role": role, "actions": actions });
    let both = json!([
        grant("t/n/a", "car", &["produce"]),
        grant("t/n/b", "car", &["produce", "consume"])
    ]);
    assert_eq!(status(&node, "car", "POST", GRANT, &both), 403);
    assert!(!may_produce(&node, "car", "t/n/a").await);
    // One that the caller may not change, an unknown action, no such namespace, no topic: nothing is changed.
    for (wrong, expected) in [
        (grant("u/n/a", "car", &["produce"]), 403),
        (grant("t/n/b", "car", &["fly"]), 400),
        (grant("t/none/b", "car", &["produce"]), 404),
        (grant("t/n/b", "", &["produce"]), 412),
    ] {
        let wanted = json!([grant("t/n/a", "car", &["produce"]), wrong]);
        assert_eq!(
            status(&node, "boss", "POST", GRANT, &wanted),
            expected,
            "{wanted}"
        );
    }
    assert_eq!(granted(&node, "t/n/a"), json!({}));
    assert_eq!(status(&node, "boss", "POST", GRANT, &json!({})), 400);
    assert_eq!(status(&node, "boss", "POST", GRANT, &both), 204);
    assert_eq!(granted(&node, "t/n/a"), json!({ "car": ["produce"] }));
    assert_eq!(granted(&node, "t/n/b"), json!({ "car": ["consume", "produce"] }));
    assert!(may_produce(&node, "car", "t/n/a").await && may_consume(&node, "car", "t/n/b", "s").await);
    assert!(!may_consume(&node, "car", "t/n/a", "s").await);
    let revoke = json!([
        { "topic": "persistent://t/n/a", "role": "car" },
        { "topic": "persistent://t/n/b", "role": "stranger" },
    ]);
    assert_eq!(status(&node, "stranger", "POST", REVOKE, &revoke), 403);
    assert_eq!(status(&node, "boss", "POST", REVOKE, &revoke), 204);
    assert!(!may_produce(&node, "car", "t/n/a").await && may_produce(&node, "car", "t/n/b").await);
    node.stop();
}

#[tokio::test]
async fn what_was_granted_on_a_topic_goes_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let node = node(dir.path());
    let (one, parts) = ("persistent/t/n/one", "persistent/t/n/parts");
    let make = || {
        done(&node, "boss", "PUT", one, &Value::Null);
        done(&node, "boss", "PUT", &format!("{parts}/partitions"), &json!(2));
    };
    make();
    done(&node, "boss", "PUT", "persistent/t/n/stays", &Value::Null);
    let produce = json!(["produce"]);
    for topic in [
        one,
        parts,
        "persistent/t/n/parts-partition-1",
        "persistent/t/n/stays",
    ] {
        done(
            &node,
            "boss",
            "POST",
            &format!("{topic}/permissions/car"),
            &produce,
        );
    }
    assert!(
        may_produce(&node, "car", "t/n/one").await
            && may_produce(&node, "car", "t/n/parts-partition-0").await
    );
    done(
        &node,
        "boss",
        "DELETE",
        &format!("{one}?force=true"),
        &Value::Null,
    );
    done(
        &node,
        "boss",
        "DELETE",
        &format!("{parts}/partitions?force=true"),
        &Value::Null,
    );
    make();
    for topic in ["one", "parts", "parts-partition-1"] {
        assert_eq!(granted(&node, &format!("t/n/{topic}")), json!({}), "{topic}");
    }
    assert!(
        !may_produce(&node, "car", "t/n/one").await
            && !may_produce(&node, "car", "t/n/parts-partition-0").await
    );
    assert!(may_produce(&node, "car", "t/n/stays").await);
    node.stop();
}

#[tokio::test]
async fn a_subscription_is_for_the_roles_that_it_names() {
    let dir = tempfile::tempdir().unwrap();
    let node = node(dir.path());
    done(&node, "boss", "PUT", "persistent/t/n/x", &Value::Null);
    for role in ["car", "truck"] {
        done(
            &node,
            "boss",
            "POST",
            &format!("namespaces/t/n/permissions/{role}"),
            &json!(["consume"]),
        );
    }
    let path = "namespaces/t/n/permissions/subscription";
    done(&node, "boss", "POST", &format!("{path}/s"), &json!(["car"]));
    let listed = ask(&node, "boss", "GET", path, &Value::Null).1;
    assert_eq!(
        serde_json::from_str::<Value>(&listed).unwrap(),
        json!({ "s": ["car"] })
    );
    assert!(
        may_consume(&node, "car", "t/n/x", "s").await && !may_consume(&node, "truck", "t/n/x", "s").await
    );
    assert!(may_consume(&node, "truck", "t/n/x", "other").await);
    // What is not its own it may not move or delete either.
    for (method, path) in [
        ("POST", "persistent/t/n/x/subscription/s/skip_all"),
        ("DELETE", "persistent/t/n/x/subscription/s"),
    ] {
        assert_eq!(status(&node, "truck", method, path, &Value::Null), 403, "{path}");
    }
    assert_eq!(
        status(
            &node,
            "truck",
            "DELETE",
            "namespaces/t/n/permissions/s/car",
            &Value::Null
        ),
        403
    );
    done(
        &node,
        "boss",
        "DELETE",
        "namespaces/t/n/permissions/s/car",
        &Value::Null,
    );
    assert!(may_consume(&node, "truck", "t/n/x", "s").await);
    node.stop();
}

/// Its path is that of a grant on a subscription whose name is the role's.
#[tokio::test]
async fn a_subscription_that_is_called_subscription_lets_go_of_a_role() {
    let dir = tempfile::tempdir().unwrap();
    let node = node(dir.path());
    done(&node, "boss", "PUT", "persistent/t/n/x", &Value::Null);
    let grant = json!(["consume"]);
    done(&node, "boss", "POST", "namespaces/t/n/permissions/truck", &grant);
    let path = "namespaces/t/n/permissions/subscription";
    let named = format!("{path}/subscription");
    done(&node, "boss", "POST", &named, &json!(["car", "van"]));
    assert!(!may_consume(&node, "truck", "t/n/x", "subscription").await);
    let revoked = format!("{path}/car");
    assert_eq!(status(&node, "truck", "DELETE", &revoked, &Value::Null), 403);
    done(&node, "boss", "DELETE", &revoked, &Value::Null);
    let listed = ask(&node, "boss", "GET", path, &Value::Null).1;
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed, json!({ "subscription": ["van"] }));
    done(&node, "boss", "DELETE", &format!("{path}/van"), &Value::Null);
    assert!(may_consume(&node, "truck", "t/n/x", "subscription").await);
    node.stop();
}

#[tokio::test]
async fn administrators_of_a_tenant_are_those_that_it_has_now() {
    let dir = tempfile::tempdir().unwrap();
    let node = node(dir.path());
    let make =
        |role: &str, name: &str| status(&node, role, "PUT", &format!("namespaces/t/{name}"), &Value::Null);
    assert_eq!(
        (make("boss", "b"), make("stranger", "c"), make("heir", "d")),
        (204, 403, 403)
    );
    let about = json!({ "adminRoles": ["heir"], "allowedClusters": ["standalone"] });
    assert_eq!(status(&node, "boss", "POST", "tenants/t", &about), 403);
    done(&node, "root", "POST", "tenants/t", &about);
    assert_eq!((make("boss", "e"), make("heir", "f")), (403, 204));
    assert!(may_produce(&node, "heir", "t/f/x").await && !may_produce(&node, "boss", "t/f/x").await);
    node.stop();
}

/// Scripts grant before authorization is switched on, as they may with Pulsar.
#[tokio::test]
async fn what_was_granted_while_authorization_was_off_holds_once_it_is_on() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("secret"), SECRET).unwrap();
    let secret = format!(
        "--authentication-token-secret-key={}/secret",
        dir.path().display()
    );
    let settings = [
        "--authentication-enabled=true",
        "--authentication-providers=token",
        &secret,
    ];
    let open = Node::start(&dir.path().join("data"), &settings);
    let about = json!({ "adminRoles": ["boss"], "allowedClusters": ["standalone"] });
    done(&open, "boss", "PUT", "tenants/t", &about);
    done(&open, "boss", "PUT", "namespaces/t/n", &Value::Null);
    for topic in ["a", "b"] {
        done(
            &open,
            "boss",
            "PUT",
            &format!("persistent/t/n/{topic}"),
            &Value::Null,
        );
    }
    let consume = json!(["consume"]);
    for role in ["car", "van"] {
        done(
            &open,
            "boss",
            "POST",
            &format!("namespaces/t/n/permissions/{role}"),
            &consume,
        );
    }
    let produce = json!(["produce"]);
    done(
        &open,
        "boss",
        "POST",
        "persistent/t/n/a/permissions/car",
        &produce,
    );
    let both = json!([{ "topic": "persistent://t/n/b", "role": "van", "actions": ["produce"] }]);
    done(&open, "boss", "POST", GRANT, &both);
    let of_subscription = "namespaces/t/n/permissions/subscription/s";
    done(&open, "boss", "POST", of_subscription, &json!(["car"]));
    assert_eq!(
        granted(&open, "t/n/a"),
        json!({ "car": ["consume", "produce"], "van": ["consume"] })
    );
    // Nothing asks them yet.
    assert!(may_produce(&open, "van", "t/n/a").await && may_consume(&open, "van", "t/n/a", "s").await);
    open.stop();

    let mut settings = settings.to_vec();
    settings.extend([
        "--authorization-enabled=true",
        "--authorization-super-user-roles=root",
    ]);
    let closed = Node::start(&dir.path().join("data"), &settings);
    assert!(may_produce(&closed, "car", "t/n/a").await && may_produce(&closed, "van", "t/n/b").await);
    assert!(!may_produce(&closed, "van", "t/n/a").await && !may_produce(&closed, "car", "t/n/b").await);
    assert!(
        may_consume(&closed, "car", "t/n/a", "s").await && may_consume(&closed, "van", "t/n/a", "o").await
    );
    assert!(!may_consume(&closed, "van", "t/n/a", "s").await);
    closed.stop();
}
