//! Peers that mean harm, at every listener: others go on, memory stays bounded, nothing is made.
//!
//! They come from other addresses of loopback than the clients with manners, as they would from other machines.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use pharos_identity::sign::{self, Claims};
use pharos_wire::command::Command;
use pharos_wire::proto::{CommandConnect, CommandPing, ServerError};
use pharos_wire::{encode, frame, request};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use crate::support::certificates::Authority;
use crate::support::{Bystander, Node, SECRET, assert_closed, credentials_in, figure, soon, until};

/// A machine of an attacker.
const ATTACKER: &str = "127.0.0.66";

fn address_of(url: &str) -> SocketAddr {
    let authority = url.split_once("://").map_or(url, |(_, rest)| rest);
    authority.parse().unwrap()
}

/// A connection from this address.
async fn from(source: &str, url: &str) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::new(source.parse().unwrap(), 0))?;
    socket.connect(address_of(url)).await
}

/// Everything that comes until the peer closes.
async fn read_all(stream: &mut TcpStream) -> Vec<u8> {
    let mut answer = Vec::new();
    // A reset is an end as well.
    let _ = soon("the end of the connection", stream.read_to_end(&mut answer)).await;
    answer
}

/// Status of the answer to a request from this address; 0 for none.
async fn status_from(source: &str, node: &Node, request: &str) -> u16 {
    let mut stream = from(source, &node.admin_url()).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let answer = String::from_utf8(read_all(&mut stream).await).unwrap();
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    status.unwrap_or(0)
}

fn get(path: &str, headers: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n")
}

/// Sends a byte now and then, until the connection is closed.
async fn trickle(mut stream: TcpStream, bytes: Vec<u8>) {
    let sending = async {
        for byte in bytes {
            if stream.write_all(&[byte]).await.is_err() {
                return;
            }
            // The peer's pace, not a wait for something.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("it was never closed");
    };
    soon("the end of one that trickles", sending).await;
}

#[tokio::test]
async fn a_flood_of_peers_is_no_flood_of_lines() {
    const PEERS: usize = 2000;
    let data = tempfile::tempdir().unwrap();
    let mut node = Node::start(data.path(), &[]);
    let begun = std::time::Instant::now();
    for _ in 0..PEERS {
        let mut peer = from(ATTACKER, &node.pulsar).await.unwrap();
        peer.write_all(&[0xff; 8]).await.unwrap();
        read_all(&mut peer).await;
    }
    let seconds = begun.elapsed().as_secs() as usize;
    let logged = node.logged();
    let lines = logged
        .lines()
        .filter(|line| line.contains("breaks the protocol"))
        .count();
    assert!(
        lines > 0 && lines <= (seconds + 2) * 10,
        "{lines} lines in {seconds} s"
    );
    node.assert_alive();
}

#[tokio::test]
async fn slow_and_half_open_peers_are_let_go_and_hold_up_no_other() {
    let (dir, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut settings = Authority::new(dir.path(), "authority")
        .broker("broker")
        .settings();
    settings.extend(
        [
            "--tls-handshake-timeout=1s",
            "--tls-max-handshakes-per-address=4",
            "--keep-alive-interval=2s",
        ]
        .map(str::to_owned),
    );
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let mut node = Node::start(data.path(), &settings);
    let (tls, https) = (node.announced("pulsar+ssl://"), node.announced("https://"));
    let mut bystander = Bystander::new(&node).await;

    let mut silent = Vec::new();
    for url in [&node.pulsar, &tls, &https] {
        for _ in 0..12 {
            silent.push(from(ATTACKER, url).await.unwrap());
        }
    }
    // A CONNECT of which a byte comes now and then, longer than it may take.
    let mut connect = request::connect("x");
    connect.auth_data = Some(Bytes::from(vec![b'x'; 4000]));
    let slow = encode::encode_command(&Command::Connect(Box::new(connect))).to_vec();
    trickle(from(ATTACKER, &node.pulsar).await.unwrap(), slow).await;
    // The beginning of a TLS handshake, that never ends: a record of 16 KiB.
    let mut hello = vec![0x16, 3, 1, 0x40, 0];
    hello.extend(vec![0; 4000]);
    for url in [&tls, &https] {
        trickle(from(ATTACKER, url).await.unwrap(), hello.clone()).await;
    }
    bystander.is_served().await;
    assert_eq!(
        status_from("127.0.0.1", &node, &get("/status.html", "")).await,
        200
    );
    for mut stream in silent {
        assert!(read_all(&mut stream).await.is_empty());
    }

    // What is no TLS, a record that is too large, and another protocol.
    for bytes in [
        &b"\x16\x03\x01\xff\xff\x01"[..],
        b"GET / HTTP/1.1\r\n\r\n",
        &[0xff; 20_000],
        &encode::encode_command(&request::ping()),
    ] {
        for url in [&tls, &https] {
            let mut stream = from(ATTACKER, url).await.unwrap();
            // It may be closed before it has said all.
            let _ = stream.write_all(bytes).await;
            read_all(&mut stream).await;
        }
    }
    bystander.is_served().await;
    node.assert_alive();
    node.stop();
}

#[tokio::test]
async fn a_large_frame_before_connect_is_refused_as_soon_as_it_says_its_size() {
    let dir = tempfile::tempdir().unwrap();
    // Nothing else closes it while this test waits.
    let node = Node::start(dir.path(), &["--keep-alive-interval=1h"]);
    let mut raw = node.stranger().await;
    raw.write(&(1_u32 << 20).to_be_bytes()).await.unwrap();
    raw.write(&[0; 8]).await.unwrap();
    assert_closed(&mut raw, "a large frame before CONNECT").await;
    node.stop();
}

#[tokio::test]
async fn an_address_that_floods_keeps_out_itself_alone() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = Node::start(dir.path(), &["--limits-max-connections-per-address=20"]);
    let mut bystander = Bystander::new(&node).await;
    let mut open = Vec::new();
    let mut refused = 0;
    for _ in 0..100 {
        let mut stream = from(ATTACKER, &node.pulsar).await.unwrap();
        let connect = Command::Connect(Box::new(request::connect("x")));
        // One that is refused may be closed by now.
        let _ = stream.write_all(&encode::encode_command(&connect)).await;
        let mut answer = vec![0; 4096];
        let read = soon("an answer", stream.read(&mut answer)).await.unwrap_or(0);
        match String::from_utf8_lossy(&answer[..read]).contains("Reached the maximum number") || read == 0 {
            true => refused += 1,
            false => open.push(stream),
        }
    }
    assert_eq!((open.len(), refused), (20, 80));
    bystander.is_served().await;
    let counted = figure(
        &node.page("/metrics"),
        "pharos_connections_refused_of_address_total",
        None,
    );
    assert_eq!(counted, 80);

    // The same at the other door, with requests that never end.
    let mut slow = Vec::new();
    for _ in 0..20 {
        let mut stream = from(ATTACKER, &node.admin_url()).await.unwrap();
        stream
            .write_all(b"POST /admin/v2/clusters HTTP/1.1\r\nHost: ")
            .await
            .unwrap();
        slow.push(stream);
    }
    let status = status_from(ATTACKER, &node, &get("/status.html", "")).await;
    assert!(matches!(status, 429 | 0), "{status}");
    assert_eq!(
        status_from("127.0.0.1", &node, &get("/status.html", "")).await,
        200
    );

    // Once they are gone it gets in again.
    drop((open, slow));
    loop {
        if status_from(ATTACKER, &node, &get("/status.html", "")).await == 200 {
            break;
        }
        tokio::task::yield_now().await;
    }
    bystander.is_served().await;
    node.assert_alive();
    node.stop();
}

#[tokio::test]
async fn connections_that_come_too_fast_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    // Twenty a second, and four hundred at once.
    let node = Node::start(dir.path(), &["--limits-max-connection-rate-per-address=20"]);
    for _ in 0..1000 {
        drop(from(ATTACKER, &node.pulsar).await.unwrap());
    }
    let refused = || {
        let page = node.page("/metrics");
        let refused = figure(&page, "pharos_connections_refused_of_address_total", None);
        (refused >= 100).then_some(refused)
    };
    until("many are refused", refused).await;
    let mut bystander = Bystander::new(&node).await;
    bystander.is_served().await;
    node.stop();
}

#[tokio::test]
async fn lookups_of_what_is_not_there_make_nothing_and_take_no_memory() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &["--limits-max-requests-per-connection=50"]);
    let mut bystander = Bystander::new(&node).await;
    let topics = node.topics();
    let before = node.resident_bytes();
    let mut raw = node.rogue().await;
    const ROUND: u64 = 1000;
    for round in 0..20 {
        for number in round * ROUND..(round + 1) * ROUND {
            let topic = format!("persistent://absent/nothing/{number}");
            let other = format!("persistent://public/default/none-{number}");
            let command: Command = match number % 4 {
                0 => request::lookup(&topic, number, false).into(),
                1 => request::partitioned_metadata(&topic, number).into(),
                2 => request::lookup(&other, number, false).into(),
                _ => request::schema(number, &other, None),
            };
            raw.send(command).await.unwrap();
        }
        for _ in 0..ROUND {
            soon("an answer", raw.next_command()).await.unwrap();
        }
        bystander.is_served().await;
    }
    assert_eq!(node.topics(), topics);
    let grown = node.resident_bytes().saturating_sub(before);
    assert!(grown < 100 << 20, "{grown} bytes more");
    node.stop();
}

#[tokio::test]
async fn shards_see_no_connection_before_its_client_is_known() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &[]);
    let connect = encode::encode_command(&Command::Connect(Box::new(request::connect("x"))));
    let (half, other_half) = connect.split_at(connect.len() / 2);
    let mut strangers = Vec::new();
    for _ in 0..50 {
        let mut stranger = from(ATTACKER, &node.pulsar).await.unwrap();
        stranger.write_all(half).await.unwrap();
        strangers.push(stranger);
    }
    // Connections are accepted in turn, so those before it are in.
    let known = node.rogue().await;
    let open = || figure(&node.page("/metrics"), "pulsar_active_connections", None);
    assert_eq!(open(), 1);
    // Half a CONNECT is no mistake, and what is said behind the rest of it is heard.
    let mut late = strangers.pop().unwrap();
    let ping = encode::encode_command(&Command::Ping(CommandPing {}));
    late.write_all(&[other_half, &ping[..]].concat()).await.unwrap();
    let mut heard = BytesMut::new();
    for expected in ["Connected", "Pong"] {
        let frame = loop {
            if let Some(frame) = frame::decode(&mut heard, 1 << 20).unwrap() {
                break frame;
            }
            soon("a frame", late.read_buf(&mut heard)).await.unwrap();
        };
        assert_eq!(format!("{:?}", frame.command.command_type()), expected);
    }
    assert_eq!(open(), 2);
    drop((strangers, known));
    let failed = || {
        figure(
            &node.page("/metrics"),
            "pulsar_connection_create_fail_count",
            None,
        )
    };
    until("the others are told of", || (failed() == 49).then_some(())).await;
    node.stop();
}

/// A broker that asks for tokens and passwords.
fn asking(dir: &Path, more: &[&str]) -> Node {
    let asking = credentials_in(dir);
    let settings: Vec<&str> = asking
        .iter()
        .map(String::as_str)
        .chain(more.iter().copied())
        .collect();
    Node::start(&dir.join("data"), &settings)
}

/// Answer to CONNECT with these credentials.
async fn shown(node: &Node, method: &str, data: &str) -> (Command, pharos_client::RawConnection) {
    let mut raw = node.stranger().await;
    let connect = CommandConnect {
        auth_method_name: Some(method.to_owned()),
        auth_data: Some(Bytes::copy_from_slice(data.as_bytes())),
        ..request::connect("test")
    };
    raw.send(Command::Connect(Box::new(connect))).await.unwrap();
    let answer = soon("an answer to CONNECT", raw.next_command()).await.unwrap();
    (answer, raw)
}

async fn is_let_in(node: &Node, method: &str, data: &str) -> bool {
    matches!(shown(node, method, data).await.0, Command::Connected(_))
}

#[tokio::test]
async fn who_guesses_passwords_is_made_to_wait_and_others_behind_the_same_address_get_in() {
    let dir = tempfile::tempdir().unwrap();
    let settings = [
        "--authentication-max-password-failures=5",
        "--authentication-password-failure-period=1h",
    ];
    let node = asking(dir.path(), &settings);
    assert!(is_let_in(&node, "basic", "ann:Hello world!").await);
    for number in 0..5 {
        assert!(!is_let_in(&node, "basic", &format!("bob:{number}")).await);
    }
    // Also with the right password: who guesses cannot tell.
    assert!(!is_let_in(&node, "basic", "bob:Hello world!").await);
    assert!(node.logged().contains("it has to wait"));
    // By either door. bob:Hello world!
    let basic = "Authorization: Basic Ym9iOkhlbGxvIHdvcmxkIQ==\r\n";
    let ask = get("/admin/v2/clusters", basic);
    assert_eq!(status_from("127.0.0.1", &node, &ask).await, 401);
    assert_eq!(status_from(ATTACKER, &node, &ask).await, 200, "another address");
    // Behind the same address: a name that is known there, and tokens.
    assert!(is_let_in(&node, "basic", "ann:Hello world!").await);
    let token = sign::with_secret(&SECRET, &Claims::of("car")).unwrap();
    assert!(is_let_in(&node, "token", &token).await);
    assert!(!is_let_in(&node, "token", "x").await);
    node.stop();
}

#[tokio::test]
async fn a_role_has_so_many_connections_and_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let node = asking(dir.path(), &["--limits-max-connections-per-role=2"]);
    let token = |role: &str| sign::with_secret(&SECRET, &Claims::of(role)).unwrap();
    let first = shown(&node, "token", &token("car")).await;
    let _second = shown(&node, "token", &token("car")).await;
    match shown(&node, "token", &token("car")).await.0 {
        Command::Error(error) => {
            assert_eq!(error.error, ServerError::NotAllowedError as i32);
            assert!(
                error.message.contains("limits.max_connections_per_role"),
                "{}",
                error.message
            );
        }
        other => panic!("{other:?}"),
    }
    assert!(is_let_in(&node, "token", &token("van")).await);
    drop(first);
    while !is_let_in(&node, "token", &token("car")).await {
        tokio::task::yield_now().await;
    }
    node.stop();
}

#[tokio::test]
async fn a_role_that_comes_too_fast_is_told_and_no_other_waits_for_it() {
    let dir = tempfile::tempdir().unwrap();
    // One a second, and twenty at once.
    let node = asking(dir.path(), &["--limits-max-connection-rate-per-role=1"]);
    let token = |role: &str| sign::with_secret(&SECRET, &Claims::of(role)).unwrap();
    let car = token("car");
    let mut let_in = 0;
    let refused = loop {
        match shown(&node, "token", &car).await.0 {
            Command::Connected(_) => let_in += 1,
            Command::Error(error) => break error,
            other => panic!("{other:?}"),
        }
        assert!(let_in < 10_000);
    };
    assert_eq!(refused.error, ServerError::NotAllowedError as i32);
    let why =
        "more than 1 came in a second (limits.max_connections_per_role, limits.max_connection_rate_per_role)";
    assert!(refused.message.contains(why), "{}", refused.message);
    assert!(let_in >= 20, "{let_in}");
    assert!(is_let_in(&node, "token", &token("van")).await);
    node.stop();
}

/// A page in the browser of a user of the machine, and a name that was made to point here.
#[tokio::test]
async fn a_web_page_cannot_use_the_admin_port() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &[]);
    let tenants = node.ask("/admin/v2/tenants");
    let body = r#"{"adminRoles":[],"allowedClusters":["standalone"]}"#;
    for head in [
        "Host: 127.0.0.1:8080\r\nOrigin: http://evil.example",
        "Host: localhost\r\nOrigin: null",
        "Host: evil.example",
        "Host: evil.example\r\nOrigin: http://evil.example",
    ] {
        for method in ["PUT", "POST", "OPTIONS", "GET"] {
            let length = body.len();
            let request = format!(
                "{method} /admin/v2/tenants/evil HTTP/1.1\r\n{head}\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
            );
            assert_eq!(
                status_from("127.0.0.1", &node, &request).await,
                403,
                "{method} {head}"
            );
        }
    }
    assert_eq!(node.ask("/admin/v2/tenants"), tenants);
    node.stop();
}

/// Unfinished requests: about three times what the HTTP server holds.
const UNFINISHED: usize = 3000;

#[tokio::test]
async fn unfinished_http_requests_hold_up_no_admin_call_of_the_same_address() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &[]);
    let mut held = Vec::new();
    for number in 0..UNFINISHED {
        let Ok(mut stream) = from(ATTACKER, &node.admin_url()).await else {
            // As many as this process may have.
            break;
        };
        let head = "PUT /admin/v2/persistent/public/default/none HTTP/1.1\r\nHost: localhost\r\n";
        let rest = ["Content-Length: 1000\r\n\r\n{", "X-", ""][number % 3];
        // Those that made room are closed already.
        let _ = stream.write_all(format!("{head}{rest}").as_bytes()).await;
        held.push(stream);
    }
    assert!(held.len() > 1500, "too few files for this test: {}", held.len());
    let began = std::time::Instant::now();
    let status = status_from(ATTACKER, &node, &get("/admin/v2/brokers/health", "")).await;
    assert_eq!(status, 200);
    let took = began.elapsed();
    // Each that had to go took a second before, with room for 128 that go at a time.
    assert!(took < Duration::from_secs(5), "{took:?}");
    drop(held);
    node.stop();
}

#[tokio::test]
async fn refused_requests_write_no_warnings() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &[]);
    for _ in 0..20 {
        for path in [
            "/admin/v3/transactions/coordinatorStats",
            "/admin/v3/functions/public/default",
            "/admin/v2/persistent/public/none/t/stats",
            "/admin/v2/namespaces/none/none",
        ] {
            let (status, _) = node.call("GET", path, "");
            assert!(status >= 400, "{path}: {status}");
        }
    }
    let log = node.logged();
    assert!(!log.contains("admin request"), "{log}");
    node.stop();
}
