//! Authorization over the Pulsar protocol and HTTP: nothing that was not granted, and the same over both.

use std::path::Path;

use bytes::Bytes;
use pharos_client::RawConnection;
use pharos_identity::sign::{self, Claims};
use pharos_wire::command::Command;
use pharos_wire::proto::command_get_topics_of_namespace::Mode;
use pharos_wire::proto::command_subscribe::SubType;
use pharos_wire::proto::{CommandConnect, ServerError};
use pharos_wire::request;

use crate::support::{Node, soon};

const SECRET: [u8; 32] = [7; 32];

fn node(dir: &Path) -> Node {
    std::fs::write(dir.join("secret"), SECRET).unwrap();
    let secret = format!(
        "--authentication-token-secret-key=file://{}/secret",
        dir.display()
    );
    let settings = [
        "--authentication-enabled=true",
        "--authentication-providers=org.apache.pulsar.broker.authentication.AuthenticationProviderToken",
        "--authentication-token-audience-claim=aud",
        "--authentication-token-audience=pharos",
        "--authorization-enabled=true",
        "--authorization-super-user-roles=root",
        "--authorization-proxy-roles=proxy",
        &secret,
    ];
    let node = Node::start(&dir.join("data"), &settings);
    for (path, body) in [
        (
            "tenants/t",
            r#"{"adminRoles":["boss"],"allowedClusters":["standalone"]}"#,
        ),
        (
            "tenants/other",
            r#"{"adminRoles":["stranger"],"allowedClusters":["standalone"]}"#,
        ),
        ("namespaces/t/n", ""),
    ] {
        order(&node, "root", "PUT", path, body);
    }
    node
}

fn token(role: &str) -> String {
    sign::with_secret(&SECRET, &Claims::of(role).with("aud", "pharos")).unwrap()
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\n")
}

fn order(node: &Node, role: &str, method: &str, path: &str, body: &str) {
    let path = format!("/admin/v2/{path}");
    let (status, answer) = node.call_with(&bearer(&token(role)), method, &path, body);
    assert!((200..300).contains(&status), "{method} {path}: {status} {answer}");
}

async fn connected(node: &Node, role: &str, original: Option<&str>) -> Result<RawConnection, i32> {
    let mut raw = node.stranger().await;
    let connect = CommandConnect {
        auth_method_name: Some("token".to_owned()),
        auth_data: Some(Bytes::from(token(role))),
        original_principal: original.map(str::to_owned),
        ..request::connect("test")
    };
    raw.send(Command::Connect(Box::new(connect))).await.unwrap();
    match soon("an answer to CONNECT", raw.next_command()).await.unwrap() {
        Command::Connected(_) => Ok(raw),
        Command::Error(error) => Err(error.error),
        other => panic!("{other:?}"),
    }
}

/// The error of the answer to a command; `None`: it was done.
async fn error_of(raw: &mut RawConnection, command: impl Into<Command>) -> Option<i32> {
    raw.send(command).await.unwrap();
    loop {
        return match soon("an answer", raw.next_command()).await.unwrap() {
            Command::ActiveConsumerChange(_) | Command::CloseConsumer(_) => continue,
            Command::Error(answer) => Some(answer.error),
            Command::PartitionedMetadataResponse(answer) => answer.error,
            Command::LookupResponse(answer) => answer.error,
            Command::GetSchemaResponse(answer) => answer.error_code,
            _ => None,
        };
    }
}

const DENIED: Option<i32> = Some(ServerError::AuthorizationError as i32);
const TOPIC: &str = "persistent://t/n/x";

/// Commands that a role may use, in this order: look up, produce, consume, list.
async fn may(node: &Node, role: &str, original: Option<&str>) -> [bool; 4] {
    let mut raw = connected(node, role, original).await.unwrap();
    let commands: [Command; 4] = [
        request::lookup(TOPIC, 1, false).into(),
        request::producer(TOPIC, 1, 2, None).into(),
        request::subscribe(TOPIC, &format!("s-{role}"), SubType::Shared, 1, 3).into(),
        request::topics_of_namespace(4, "t/n", Mode::All).into(),
    ];
    let mut answers = [false; 4];
    for (command, answer) in commands.into_iter().zip(&mut answers) {
        *answer = error_of(&mut raw, command).await != DENIED;
    }
    answers
}

#[tokio::test]
async fn what_was_granted_is_allowed_and_nothing_else_until_it_is_revoked() {
    let dir = tempfile::tempdir().unwrap();
    let node = node(dir.path());
    let none = [false; 4];
    assert_eq!(may(&node, "root", None).await, [true; 4]);
    assert_eq!(may(&node, "boss", None).await, [true; 4]);
    assert_eq!(may(&node, "stranger", None).await, none);
    assert_eq!(may(&node, "car", None).await, none);

    // That a tenant is not there can be told from what is forbidden, by both doors.
    let mut raw = connected(&node, "car", None).await.unwrap();
    let absent = "persistent://absent/n/x";
    let not_found = Some(ServerError::TopicNotFound as i32);
    assert_eq!(
        error_of(&mut raw, request::lookup(absent, 1, false)).await,
        not_found
    );
    assert_eq!(
        error_of(&mut raw, request::partitioned_metadata(absent, 2)).await,
        not_found
    );
    assert_eq!(
        error_of(&mut raw, request::producer(absent, 1, 3, None)).await,
        not_found
    );
    let asked = |path| node.call_with(&bearer(&token("car")), "GET", path, "").0;
    assert_eq!(asked("/admin/v2/namespaces/absent/n/retention"), 404);
    assert_eq!(asked("/admin/v2/namespaces/t/absent/retention"), 403);

    order(
        &node,
        "boss",
        "POST",
        "namespaces/t/n/permissions/car",
        r#"["consume"]"#,
    );
    assert_eq!(may(&node, "car", None).await, [true, false, true, true]);
    order(
        &node,
        "boss",
        "POST",
        "namespaces/t/n/permissions/car",
        r#"["produce"]"#,
    );
    assert_eq!(may(&node, "car", None).await, [true, true, false, true]);
    order(&node, "boss", "DELETE", "namespaces/t/n/permissions/car", "");
    assert_eq!(may(&node, "car", None).await, none);

    order(
        &node,
        "boss",
        "POST",
        "persistent/t/n/x/permissions/car",
        r#"["produce","consume"]"#,
    );
    assert_eq!(may(&node, "car", None).await, [true, true, true, false]);
    let shown = node.call_with(
        &bearer(&token("boss")),
        "GET",
        "/admin/v2/persistent/t/n/x/permissions",
        "",
    );
    assert_eq!(shown, (200, r#"{"car":["consume","produce"]}"#.to_owned()));

    order(
        &node,
        "boss",
        "POST",
        "namespaces/t/n/permissions/subscription/s-car",
        r#"["truck"]"#,
    );
    assert_eq!(may(&node, "car", None).await, [true, true, false, false]);
    order(
        &node,
        "boss",
        "DELETE",
        "namespaces/t/n/permissions/s-car/truck",
        "",
    );
    order(
        &node,
        "boss",
        "POST",
        "namespaces/t/n/subscriptionAuthMode",
        r#""Prefix""#,
    );
    assert_eq!(
        may(&node, "car", None).await,
        [true, true, false, false],
        "s-car is not car…"
    );
    order(&node, "boss", "DELETE", "persistent/t/n/x/permissions/car", "");
    assert_eq!(may(&node, "car", None).await, none);
    let again = node.call_with(
        &bearer(&token("boss")),
        "DELETE",
        "/admin/v2/persistent/t/n/x/permissions/car",
        "",
    );
    assert_eq!(again.0, 412, "{}", again.1);

    // A proxy and the one it asks for.
    let forbidden = ServerError::AuthorizationError as i32;
    for (role, original) in [("proxy", None), ("car", Some("root")), ("proxy", Some("proxy"))] {
        assert_eq!(
            connected(&node, role, original).await.err(),
            Some(forbidden),
            "{role} {original:?}"
        );
    }
    assert_eq!(may(&node, "proxy", Some("root")).await, none);
    order(
        &node,
        "boss",
        "POST",
        "namespaces/t/n/permissions/proxy",
        r#"["produce"]"#,
    );
    assert_eq!(may(&node, "proxy", Some("root")).await, [true, true, false, true]);
    assert_eq!(may(&node, "proxy", Some("car")).await, none);
    node.stop();
}

#[tokio::test]
async fn a_vehicle_cannot_take_the_place_of_another() {
    let dir = tempfile::tempdir().unwrap();
    let node = node(dir.path());
    for car in ["car-1", "car-2"] {
        order(
            &node,
            "boss",
            "POST",
            &format!("namespaces/t/n/permissions/{car}"),
            r#"["consume"]"#,
        );
    }
    order(
        &node,
        "boss",
        "PUT",
        "namespaces/t/n/property/pharos.consumerNames/role",
        "",
    );
    let consumer = |name: &str, id| {
        let mut consumer = request::subscribe(TOPIC, "all", SubType::Exclusive, id, 7);
        consumer.consumer_name = Some(name.to_owned());
        consumer.metadata.push(pharos_wire::proto::KeyValue {
            key: "pharos.subscription".to_owned(),
            value: "broadcast".to_owned(),
        });
        consumer
    };
    let mut first = connected(&node, "car-1", None).await.unwrap();
    let mut second = connected(&node, "car-2", None).await.unwrap();
    assert_eq!(error_of(&mut first, consumer("car-1", 1)).await, None);
    assert_eq!(error_of(&mut second, consumer("car-1", 1)).await, DENIED);
    assert_eq!(error_of(&mut second, consumer("car-2", 2)).await, None);
    // The first one kept its place; neither removes the places of both.
    assert_eq!(error_of(&mut first, request::last_message_id(1, 8)).await, None);
    assert_eq!(
        error_of(&mut second, request::unsubscribe(2, 9, true)).await,
        DENIED
    );
    for (method, path) in [
        ("DELETE", "subscription/all"),
        ("POST", "subscription/all/skip_all"),
    ] {
        let path = format!("/admin/v2/persistent/t/n/x/{path}");
        let (status, answer) = node.call_with(&bearer(&token("car-2")), method, &path, "");
        assert_eq!(status, 403, "{path}: {answer}");
    }
    node.stop();
}

/// There are none of these here; a role that was granted them hears that, and no other does.
#[tokio::test]
async fn functions_sources_sinks_and_packages_are_each_a_permission_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let node = node(dir.path());
    let kinds = ["functions", "sources", "sinks", "packages"];
    for kind in kinds {
        let grant = format!("[\"{kind}\"]");
        order(
            &node,
            "boss",
            "POST",
            &format!("namespaces/t/n/permissions/{kind}"),
            &grant,
        );
    }
    let ask = |role: &str, kind: &str, namespace: &str| {
        let of_type = if kind == "packages" {
            "packages/function"
        } else {
            kind
        };
        let path = format!("/admin/v3/{of_type}/t/{namespace}/x");
        node.call_with(&bearer(&token(role)), "GET", &path, "").0
    };
    for kind in kinds {
        for role in kinds {
            let wanted = if role == kind { 503 } else { 403 };
            assert_eq!(ask(role, kind, "n"), wanted, "{kind} by {role}");
        }
        assert_eq!(ask(kind, kind, "m"), 403, "another namespace");
        assert_eq!(ask("boss", kind, "n"), 503);
        assert_eq!(ask("stranger", kind, "n"), 403);
    }
    node.stop();
}
