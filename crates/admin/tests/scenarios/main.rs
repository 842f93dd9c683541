//! Stories told to the REST API, over real sockets, with the real catalog and a made-up broker behind it.
//!
//! The stories are `scenarios/*.txt`. A line that starts with a method is a request, its body behind the path; the next
//! line is the answer: a status, then nothing, or `=` and the exact JSON, or `~` and JSON that the answer must contain,
//! or `:` and text that it must contain. Lines that start with `#` are for the reader.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use pharos_admin::{Admin, AdminOptions, router, serve};
use pharos_auth::Access;
use pharos_catalog::{Catalog, CatalogOptions};
use pharos_identity::Authentication;
use pharos_metadata::Memory;
use pharos_runtime::Shutdown;
use pharos_transport::Listener;
use serde_json::Value;

mod callers;
mod fake;
mod policies;
mod table;

use fake::FakeBroker;

struct Door {
    address: SocketAddr,
    shutdown: Shutdown,
    served: tokio::task::JoinHandle<()>,
}

async fn open_door() -> Door {
    open_door_that(false).await
}

/// One that deletes by force, or does not.
async fn open_door_that(forced: bool) -> Door {
    open_door_with(forced, Access::everyone()).await.0
}

/// One that asks `access`, and its catalog.
async fn open_door_with(forced: bool, access: Access) -> (Door, Catalog) {
    let catalog = Catalog::open(Arc::new(Memory::new()), CatalogOptions::default())
        .await
        .unwrap();
    let broker = Arc::new(FakeBroker::new(catalog.clone()));
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_address();
    let options = AdminOptions {
        access,
        authentication: Authentication::off(),
        authorization: false,
        allowed_hosts: Vec::new(),
        cluster_name: "standalone".into(),
        broker_url: "pulsar://127.0.0.1:6650".into(),
        broker_url_tls: None,
        http_url: "http://127.0.0.1:8080".into(),
        http_url_tls: None,
        settings: vec![("shards".into(), "2".into())],
        topic_metrics: true,
        force_delete_namespace: forced,
        force_delete_tenant: forced,
    };
    let shutdown = Shutdown::default();
    let router = router(Admin::new(broker.into(), catalog.clone(), options));
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(serve(
        vec![listener.start().unwrap()],
        router,
        1024,
        shutdown.token(),
    ));
    let served = tokio::runtime::Handle::current().spawn(async move { drop(tasks.join_all().await) });
    let door = Door {
        address,
        shutdown,
        served,
    };
    (door, catalog)
}

/// One request on a connection of its own. Status, content type and body.
fn ask(address: SocketAddr, method: &str, path: &str, body: &str) -> (u16, String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let kind = head
        .lines()
        .find_map(|line| line.strip_prefix("content-type: "))
        .unwrap_or_default();
    (status, kind.to_owned(), body.to_owned())
}

/// Whether `found` has everything that `wanted` has; objects may have more.
fn contains(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => wanted
            .iter()
            .all(|(name, value)| found.get(name).is_some_and(|found| contains(found, value))),
        (found, wanted) => found == wanted,
    }
}

fn check(place: &str, wanted: &str, (status, kind, body): &(u16, String, String)) {
    let (code, rest) = wanted.split_once(' ').unwrap_or((wanted, ""));
    let context = format!("{place}\nwanted {wanted}\nfound {status} {body}");
    assert_eq!(code, status.to_string(), "{context}");
    if *status >= 400 {
        assert!(kind.starts_with("application/json"), "{context}");
        let error: Value = serde_json::from_str(body).unwrap();
        assert!(
            error["reason"].as_str().is_some_and(|reason| !reason.is_empty()),
            "{context}"
        );
    }
    let json = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_else(|e| panic!("{e}: {context}"));
    match rest.split_at_checked(1) {
        None => {}
        Some(("=", wanted)) => assert_eq!(json(body), json(wanted), "{context}"),
        Some(("~", wanted)) => assert!(contains(&json(body), &json(wanted)), "{context}"),
        Some((":", wanted)) => assert!(body.contains(wanted.trim()), "{context}"),
        Some(other) => panic!("{other:?} is no way to compare: {place}"),
    }
}

fn tell(address: SocketAddr, name: &str, story: &str) {
    let mut lines = story
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    while let Some((number, request)) = lines.next() {
        let (method, rest) = request.split_once(' ').unwrap();
        let (path, body) = rest.split_once(' ').unwrap_or((rest, ""));
        let (_, wanted) = lines.next().unwrap();
        let answer = ask(address, method, path, body);
        let place = format!("{name}:{}: {request}", number + 1);
        check(&place, wanted, &answer);
        table::check(&place, method, path, answer.0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_story_goes_as_told() {
    let stories = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let mut told = 0;
    for entry in std::fs::read_dir(stories).unwrap() {
        let path = entry.unwrap().path();
        let story = std::fs::read_to_string(&path).unwrap();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        // Each story has a broker of its own, so they can be read alone.
        let door = open_door_that(name.starts_with("forced")).await;
        let address = door.address;
        tokio::task::spawn_blocking(move || tell(address, &name, &story))
            .await
            .unwrap();
        door.shutdown.trigger();
        door.served.await.unwrap();
        told += 1;
    }
    assert!(told >= 8, "{told} stories");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_door_closes_also_while_a_client_is_idle() {
    let door = open_door().await;
    let address = door.address;
    let idle = tokio::task::spawn_blocking(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream
            .write_all(b"GET /status.html HTTP/1.1\r\nhost: localhost\r\n\r\n")
            .unwrap();
        let mut first = [0; 12];
        stream.read_exact(&mut first).unwrap();
        assert_eq!(&first, b"HTTP/1.1 200");
        stream
    })
    .await
    .unwrap();
    door.shutdown.trigger();
    door.served.await.unwrap();
    drop(idle);
    assert!(TcpStream::connect(address).is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_is_too_large_is_refused() {
    let door = open_door().await;
    let address = door.address;
    let answer = tokio::task::spawn_blocking(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        let head =
            "PUT /admin/v2/tenants/big HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99999999\r\n\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        let mut first = [0; 12];
        stream.read_exact(&mut first).unwrap();
        first
    })
    .await
    .unwrap();
    assert_eq!(&answer, b"HTTP/1.1 413");
}

/// Connections that say nothing, and some that begin a request and never end it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_house_lets_the_next_one_in() {
    let door = open_door().await;
    let address = door.address;
    let answers = tokio::task::spawn_blocking(move || {
        let silent: Vec<TcpStream> = (0..1_100)
            .map(|number| {
                let mut stream = TcpStream::connect(address).unwrap();
                if number % 2 == 0 {
                    stream.write_all(b"GET /admin/v2/brokers/rea").unwrap();
                }
                stream
            })
            .collect();
        let answers = [(); 3].map(|()| ask(address, "GET", "/admin/v2/brokers/ready", "").0);
        drop(silent);
        answers
    })
    .await
    .unwrap();
    assert_eq!(answers, [200; 3]);
    door.shutdown.trigger();
    door.served.await.unwrap();
}
