//! Admission to WebSockets: by the same credentials, rules and audit log as the Pulsar protocol; and by web page
//! origin.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;

use pharos_identity::sign::{self, Claims};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use serde_json::Value;

use crate::support::certificates::Authority;
use crate::support::web_socket::{UPGRADE, WEB_SOCKETS, WebSocket};
use crate::support::{Node, PATIENCE, credentials_in, soon, until};

const SECRET: [u8; 32] = [7; 32];
const TOPIC: &str = "persistent/public/default/t";

fn node(dir: &Path, more: &[&str]) -> Node {
    let mut settings = credentials_in(dir);
    settings.extend(
        [
            "--authorization-enabled=true",
            "--authorization-super-user-roles=ann",
            "--audit-enabled=true",
            "--authentication-refresh-check-interval=200ms",
            WEB_SOCKETS,
            "--log-level=debug",
        ]
        .map(str::to_owned),
    );
    settings.extend(more.iter().map(|it| (*it).to_owned()));
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    Node::start(&dir.join("data"), &settings)
}

fn token(claims: &Claims) -> String {
    sign::with_secret(&SECRET, claims).unwrap()
}

fn bearer(token: &str) -> String {
    format!("{UPGRADE}Authorization: Bearer {token}\n")
}

async fn status(node: &Node, path: &str, headers: &str) -> u16 {
    match WebSocket::try_open(node, path, headers).await {
        Ok(_) => 101,
        Err((status, body)) => {
            assert!(!body.contains("eyJ"), "a token comes back: {body}");
            status
        }
    }
}

#[tokio::test]
async fn a_websocket_needs_what_a_client_needs() {
    let dir = tempfile::tempdir().unwrap();
    let node = node(dir.path(), &[]);
    let (ann, car) = (token(&Claims::of("ann")), token(&Claims::of("car")));
    let forged = sign::with_secret(&[8; 32], &Claims::of("ann")).unwrap();
    let (produce, consume) = (format!("producer/{TOPIC}"), format!("consumer/{TOPIC}/s"));
    let with = |path: &str, token: &str| format!("{path}?token={token}");
    for (path, headers, wanted) in [
        (produce.clone(), UPGRADE.to_owned(), 401),
        (produce.clone(), bearer(&forged), 401),
        (produce.clone(), bearer(&car), 403),
        (consume.clone(), bearer(&car), 403),
        (format!("reader/{TOPIC}"), bearer(&car), 403),
        (with(&produce, &forged), UPGRADE.to_owned(), 401),
        (with(&produce, &car), UPGRADE.to_owned(), 403),
        // What stands in the header counts.
        (with(&produce, &ann), bearer(&forged), 401),
        (
            produce.clone(),
            format!("{UPGRADE}Authorization: Digest x\n"),
            401,
        ),
    ] {
        assert_eq!(status(&node, &path, &headers).await, wanted, "{headers} {path}");
    }
    let (code, _) = node.call_with(
        &format!("Authorization: Bearer {ann}\n"),
        "GET",
        "/admin/v2/persistent/public/default",
        "",
    );
    assert_eq!(code, 200);
    let topics = node
        .call_with(
            &format!("Authorization: Bearer {ann}\n"),
            "GET",
            "/admin/v2/persistent/public/default",
            "",
        )
        .1;
    assert_eq!(topics, "[]", "who was refused has made nothing");
    // ann:Hello world!
    let basic = format!("{UPGRADE}Authorization: Basic YW5uOkhlbGxvIHdvcmxkIQ==\n");
    let mut producer = WebSocket::try_open(&node, &produce, &basic).await.unwrap();
    let mut consumer = WebSocket::try_open(&node, &with(&consume, &ann), UPGRADE)
        .await
        .unwrap();
    producer.produce("x").await;
    assert_eq!(consumer.consume().await, "x");
    producer.close().await;
    consumer.close().await;

    // Nothing secret is told to anyone.
    let secrets = [&ann, &car, &forged].map(|token| token.rsplit('.').next().unwrap().to_owned());
    let log = node.logged();
    node.stop();
    let audit = std::fs::read_to_string(dir.path().join("data/audit/audit.log")).unwrap();
    for secret in &secrets {
        assert!(
            !log.contains(secret) && !audit.contains(secret),
            "a token is in a log"
        );
    }
    assert!(!log.contains("token="), "{log}");
    let lines: Vec<Value> = audit
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let has = |role: &str, action: &str, allowed: bool| {
        lines.iter().any(|line| {
            line["door"] == "websocket"
                && line["role"] == role
                && line["action"] == action
                && line["allowed"] == allowed
        })
    };
    assert!(
        has("ann", "produce", true) && has("ann", "consume", true),
        "{audit}"
    );
    assert!(
        lines
            .iter()
            .any(|line| line["door"] == "websocket" && line["role"] == "car" && line["allowed"] == false),
        "{audit}"
    );
    assert!(
        lines.iter().any(|line| line["door"] == "websocket"
            && line["action"] == "authenticate"
            && line["allowed"] == false),
        "{audit}"
    );
}

/// Dead letters are published with the rights of who consumes, and stay where they are without them.
#[tokio::test]
async fn dead_letters_need_the_right_to_produce() {
    let dir = tempfile::tempdir().unwrap();
    let node = node(dir.path(), &[]);
    let (ann, car) = (token(&Claims::of("ann")), token(&Claims::of("car")));
    let as_ann = format!("Authorization: Bearer {ann}\n");
    let letters = "persistent/public/default/letters";
    let grant = |topic: &str, action: &str| {
        let path = format!("/admin/v2/{topic}/permissions/car");
        let (status, body) = node.call_with(&as_ann, "POST", &path, &format!("[\"{action}\"]"));
        assert_eq!(status, 204, "{body}");
    };
    let of = |topic: &str, what: &str| {
        let path = format!("/admin/v2/{topic}/stats");
        let (_, body) = node.call_with(&as_ann, "GET", &path, "");
        let stats: Value = serde_json::from_str(&body).unwrap_or_default();
        stats.pointer(what).and_then(Value::as_u64)
    };
    grant(TOPIC, "consume");
    let mut producer = WebSocket::try_open(&node, &format!("producer/{TOPIC}"), &bearer(&ann))
        .await
        .unwrap();
    let path = format!(
        "consumer/{TOPIC}/s?subscriptionType=Shared&maxRedeliverCount=1&deadLetterTopic=letters&negativeAckRedeliveryDelay=1"
    );
    let mut consumer = WebSocket::try_open(&node, &path, &bearer(&car)).await.unwrap();
    producer.produce("poison").await;
    for _ in 0..2 {
        let (_, id) = consumer.receive().await;
        consumer
            .say(&serde_json::json!({"type": "negativeAcknowledge", "messageId": id}))
            .await;
    }
    until("it is refused", || {
        node.logged()
            .contains("a dead letter is not stored")
            .then_some(())
    })
    .await;
    assert_eq!(of(TOPIC, "/subscriptions/s/msgBacklog"), Some(1));
    grant(letters, "produce");
    until("the letter is stored, and its message acknowledged", || {
        (of(letters, "/msgInCounter") == Some(1) && of(TOPIC, "/subscriptions/s/msgBacklog") == Some(0))
            .then_some(())
    })
    .await;
    node.stop();
    let audit = std::fs::read_to_string(dir.path().join("data/audit/audit.log")).unwrap();
    let lines: Vec<Value> = audit
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    for allowed in [false, true] {
        assert!(
            lines.iter().any(|line| line["door"] == "websocket"
                && line["role"] == "car"
                && line["topic"] == "persistent://public/default/letters"
                && line["allowed"] == allowed),
            "{audit}"
        );
    }
}

#[tokio::test]
async fn a_websocket_ends_with_its_token() {
    let dir = tempfile::tempdir().unwrap();
    let node = node(dir.path(), &[]);
    let until_ms = pharos_runtime::clock::wall_ms() + 2000;
    let short = token(&Claims::of("ann").until(until_ms / 1000 + 1));
    let mut producer = WebSocket::try_open(&node, &format!("producer/{TOPIC}"), &bearer(&short))
        .await
        .unwrap();
    let mut consumer = WebSocket::try_open(&node, &format!("consumer/{TOPIC}/s"), &bearer(&short))
        .await
        .unwrap();
    producer.produce("x").await;
    assert_eq!(consumer.receive().await.0, "x");
    assert_eq!(
        (producer.goodbye().await.0, consumer.goodbye().await.0),
        (1012, 1012)
    );
    assert_eq!(
        status(&node, &format!("producer/{TOPIC}"), &bearer(&short)).await,
        401
    );
}

#[tokio::test]
async fn pages_of_other_origins_open_none_unless_they_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(
        dir.path(),
        &[WEB_SOCKETS, "--web-socket-allowed-origins=https://app.test"],
    );
    let path = format!("producer/{TOPIC}");
    for (headers, wanted) in [
        ("Origin: https://evil.test\n", 403),
        ("Origin: null\n", 403),
        ("Host: evil.test\n", 403),
        ("Host: evil.test\nOrigin: https://app.test\n", 403),
        ("Origin: https://app.test\n", 101),
        ("Origin: http://localhost\n", 101),
        ("", 101),
    ] {
        assert_eq!(
            status(&node, &path, &format!("{UPGRADE}{headers}")).await,
            wanted,
            "{headers}"
        );
    }
    // The page may do nothing else.
    let (code, _) = node.call_with("Origin: https://app.test\n", "GET", "/admin/v2/clusters", "");
    assert_eq!(code, 403);
}

#[tokio::test]
async fn connections_of_an_address_are_bounded_with_websockets_among_them() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(
        dir.path(),
        &[WEB_SOCKETS, "--limits-max-connections-per-address=3"],
    );
    let path = format!("producer/{TOPIC}");
    let mut open = Vec::new();
    for _ in 0..3 {
        open.push(WebSocket::open(&node, &path).await);
    }
    assert_eq!(status(&node, &path, UPGRADE).await, 429);
    open.pop().unwrap().close().await;
    let opened = async {
        while status(&node, &path, UPGRADE).await != 101 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    soon("room for one more", opened).await;
    assert_eq!(open.len(), 2);
}

/// A frame with a text of a client, masked as it must be.
fn frame(text: &str) -> Vec<u8> {
    let mut bytes = vec![0x81, 0x80 | u8::try_from(text.len()).unwrap(), 0, 0, 0, 0];
    bytes.extend(text.as_bytes());
    bytes
}

#[test]
fn over_tls_a_certificate_says_who_opens_one() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new(dir.path(), "authority");
    let mut settings = authority.broker("broker").settings();
    let trust = format!("--tls-trust-certs-file={}", authority.certificate_file.display());
    settings.extend(
        [
            WEB_SOCKETS,
            &trust,
            "--authentication-enabled=true",
            "--authentication-providers=tls",
            "--authorization-enabled=true",
            "--authorization-super-user-roles=ann",
        ]
        .map(str::to_owned),
    );
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let mut node = Node::start(&dir.path().join("data"), &settings);
    let url = node.announced("https://");
    for (name, wanted) in [
        ("ann", "HTTP/1.1 101"),
        ("car", "HTTP/1.1 403"),
        ("", "HTTP/1.1 401"),
    ] {
        let tls = match name {
            "" => authority.trusted(),
            name => authority.trusted_by(&authority.client(name)),
        };
        let host = ServerName::try_from("127.0.0.1").unwrap();
        let socket = TcpStream::connect(url.trim_start_matches("https://")).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let client = ClientConnection::new(tls.client_config().unwrap(), host).unwrap();
        let mut stream = StreamOwned::new(client, socket);
        let headers = UPGRADE.replace('\n', "\r\n");
        write!(
            stream,
            "GET /ws/v2/producer/{TOPIC} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n"
        )
        .unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap();
        assert!(head.starts_with(wanted), "{name}: {head}");
        if name == "ann" {
            stream.write_all(&frame(r#"{"payload":"aGk="}"#)).unwrap();
            let mut start = [0; 2];
            stream.read_exact(&mut start).unwrap();
            let mut answer = vec![0; usize::from(start[1])];
            stream.read_exact(&mut answer).unwrap();
            let answer = String::from_utf8(answer).unwrap();
            assert!(
                start[0] == 0x81 && answer.starts_with(r#"{"result":"ok""#),
                "{answer}"
            );
        }
    }
}
