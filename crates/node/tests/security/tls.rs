//! TLS at both doors: who gets in, who does not, and what goes on when certificates change.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use pharos_client::{
    ClientError, ConnectOptions, Connection, ConsumerOptions, OutgoingMessage, ProducerOptions,
    RawConnection, TlsOptions,
};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use tempfile::TempDir;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpSocket;

use crate::support::certificates::{Authority, Signed};
use crate::support::{self, Node, soon, until};

/// A broker with a certificate of `broker`, and these settings besides.
fn start(data: &Path, broker: &Signed, more: &[&str]) -> Node {
    let mut settings = broker.settings();
    settings.extend(more.iter().map(|setting| (*setting).to_owned()));
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    Node::start(data, &settings)
}

async fn connect(url: &str, tls: TlsOptions) -> Result<Connection, ClientError> {
    let options = ConnectOptions::default().tls(tls);
    soon("connecting", Connection::connect(url, options)).await
}

/// Sends and receives one message.
async fn round_trip(connection: &Connection, topic: &str) {
    let producer = connection
        .producer(topic, ProducerOptions::default())
        .await
        .unwrap();
    let options = ConsumerOptions::exclusive("s").from_earliest();
    let mut consumer = connection.subscribe(topic, options).await.unwrap();
    soon("sending", producer.send("hello")).await.unwrap();
    assert_eq!(
        soon("receiving", consumer.receive()).await.unwrap().text(),
        "hello"
    );
}

/// Status line and body of the answer to a GET over TLS.
fn get(url: &str, tls: &TlsOptions, path: &str) -> std::io::Result<String> {
    let address = url.trim_start_matches("https://");
    let config = tls.client_config().unwrap();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(support::PATIENCE))?;
    let mut stream = StreamOwned::new(ClientConnection::new(config, name).unwrap(), stream);
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[tokio::test]
async fn messages_of_all_sizes_go_over_tls_and_lookups_say_where_it_is_spoken() {
    let (dir, data) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let authority = Authority::new(dir.path(), "authority");
    let mut node = start(data.path(), &authority.broker("broker"), &[]);
    let url = node.announced("pulsar+ssl://");
    let connection = connect(&url, authority.trusted()).await.unwrap();
    let found = connection.lookup("t").await.unwrap();
    assert_eq!((&found.broker_url, &found.broker_url_tls), (&node.pulsar, &url));

    let producer = connection
        .producer("t", ProducerOptions::default())
        .await
        .unwrap();
    let options = |name: &str| ConsumerOptions::exclusive(name).from_earliest();
    let mut early = connection.subscribe("t", options("early")).await.unwrap();
    let sizes = [0, 1, 100, 16_383, 16_384, 70_000, 1_000_000, 3, 5_000_000];
    let payload = |size: usize| -> Vec<u8> { (0..size).map(|at| (at % 251) as u8).collect() };
    let mut pending = Vec::new();
    for size in sizes.iter().cycle().take(36) {
        pending.push(
            producer
                .begin_send(OutgoingMessage::new(payload(*size)))
                .await
                .unwrap(),
        );
    }
    // One that was not there comes by a connection without TLS, from the same log.
    let plain = node.client().await;
    let mut late = plain.subscribe("t", options("late")).await.unwrap();
    for size in sizes.iter().cycle().take(36) {
        for consumer in [&mut early, &mut late] {
            let message = soon("a message", consumer.receive()).await.unwrap();
            assert!(
                message.payload == payload(*size),
                "{size} bytes came out as they went in"
            );
        }
    }
    for pending in pending {
        soon("a receipt", pending.receipt()).await.unwrap();
    }
}

#[tokio::test]
async fn a_client_takes_only_a_broker_that_it_trusts_and_meant() {
    let (dir, data) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let authority = Authority::new(dir.path(), "authority");
    let other = Authority::new(dir.path(), "other");
    let mut node = start(data.path(), &authority.stranger("stranger"), &[]);
    let url = node.announced("pulsar+ssl://");
    let outcome = connect(&url, other.trusted()).await.unwrap_err();
    assert!(
        matches!(outcome, ClientError::Connect { .. }),
        "another authority: {outcome}"
    );
    let outcome = connect(&url, authority.trusted()).await.unwrap_err();
    assert!(
        matches!(outcome, ClientError::Connect { .. }),
        "another name: {outcome}"
    );
    let any_name = |of: &Authority| TlsOptions {
        skip_hostname_verification: true,
        ..of.trusted()
    };
    let outcome = connect(&url, any_name(&other)).await.unwrap_err();
    assert!(
        matches!(outcome, ClientError::Connect { .. }),
        "another authority, any name: {outcome}"
    );
    round_trip(&connect(&url, any_name(&authority)).await.unwrap(), "named").await;
    let anything = TlsOptions {
        allow_insecure_connection: true,
        ..TlsOptions::default()
    };
    round_trip(&connect(&url, anything).await.unwrap(), "anything").await;
    let log = node.logged();
    assert!(log.contains("a connection did not get in"), "the log tells of it");
    assert!(support::figure(&node.page("/metrics"), "pharos_entrance_failures_total", None) >= 3);
}

/// True if a client with these options is admitted over both the Pulsar protocol and HTTPS.
async fn gets_in(pulsar: &str, https: &str, tls: TlsOptions) -> bool {
    // With TLS 1.3 a client that is not let in learns it when it reads for the first time.
    let pulsar = connect(pulsar, tls.clone()).await.is_ok();
    let https = https.to_owned();
    let asked = move || {
        get(&https, &tls, "/admin/v2/clusters").is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
    };
    let http = tokio::task::spawn_blocking(asked).await.unwrap();
    assert_eq!(pulsar, http, "both doors say the same");
    pulsar
}

#[tokio::test]
async fn a_listener_that_requires_certificates_takes_only_those_that_are_trusted() {
    let (dir, data) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let authority = Authority::new(dir.path(), "authority");
    let vehicles = Authority::new(dir.path(), "vehicles");
    let trust = vehicles.certificate_file.display().to_string();
    let required = [
        "--tls-trust-certs-file",
        &trust,
        "--tls-require-trusted-client-cert-on-connect",
    ];
    let broker = authority.broker("broker");
    let known = authority.trusted_by(&vehicles.client("vehicle-7"));
    let unknown = authority.trusted_by(&authority.client("impostor"));
    let expired = authority.trusted_by(&vehicles.expired_client("old"));
    let asked = &required[..2];
    let lenient = [&required[..2], &["--tls-allow-insecure-connection"]].concat();
    for (settings, without, of_unknown) in [
        (&required[..], false, false),
        (asked, true, false),
        (&lenient, true, true),
    ] {
        let mut node = start(data.path(), &broker, settings);
        let (pulsar, https) = (node.announced("pulsar+ssl://"), node.announced("https://"));
        assert!(gets_in(&pulsar, &https, known.clone()).await, "{settings:?}");
        assert_eq!(
            gets_in(&pulsar, &https, authority.trusted()).await,
            without,
            "{settings:?}"
        );
        assert_eq!(
            gets_in(&pulsar, &https, unknown.clone()).await,
            of_unknown,
            "{settings:?}"
        );
        assert_eq!(
            gets_in(&pulsar, &https, expired.clone()).await,
            of_unknown,
            "{settings:?}"
        );
        node.assert_alive();
    }
}

#[tokio::test]
async fn changed_certificates_come_into_force_and_open_connections_go_on() {
    let (dir, data) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let authority = Authority::new(dir.path(), "authority");
    let served = authority.broker("served");
    let good = Authority::new(dir.path(), "next").broker("good");
    let next = TlsOptions {
        trust_certs_file: Some(dir.path().join("next.pem")),
        ..TlsOptions::default()
    };
    let mut node = start(
        data.path(),
        &served,
        &["--tls-cert-refresh-check-duration", "50ms"],
    );
    let url = node.announced("pulsar+ssl://");
    let open = connect(&url, authority.trusted()).await.unwrap();
    // A key that is not that of the certificate: the former ones stay in force.
    std::fs::copy(&good.key_file, &served.key_file).unwrap();
    until("the fault is told", || {
        node.logged().contains("cannot be used").then_some(())
    })
    .await;
    connect(&url, authority.trusted()).await.unwrap();
    good.replace(&served);
    until("the change is told", || {
        node.logged()
            .contains("are in force for new connections")
            .then_some(())
    })
    .await;
    assert!(
        connect(&url, authority.trusted()).await.is_err(),
        "the former authority"
    );
    round_trip(&connect(&url, next).await.unwrap(), "new").await;
    round_trip(&open, "old").await;
    authority.expired_broker("expired").replace(&served);
    let refused = async || {
        connect(&url, authority.trusted())
            .await
            .err()
            .map(|error| format!("{error:?}"))
    };
    loop {
        let reason = refused().await.unwrap();
        if reason.contains("Expired") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(
        support::figure(
            &node.page("/metrics"),
            "pharos_tls_certificate_reloads_total",
            None
        ) >= 2
    );
}

#[tokio::test]
async fn versions_and_ciphers_are_what_the_settings_say() {
    let (dir, data) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let authority = Authority::new(dir.path(), "authority");
    let broker = authority.broker("broker");
    let only = [
        "--tls-protocols",
        "TLSv1.2",
        "--tls-ciphers",
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    ];
    let mut node = start(data.path(), &broker, &only);
    let url = node.announced("https://");
    let spoken = tokio::task::spawn_blocking(move || {
        let config = authority.trusted().client_config().unwrap();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let stream = TcpStream::connect(url.trim_start_matches("https://")).unwrap();
        let mut stream = StreamOwned::new(ClientConnection::new(config, name).unwrap(), stream);
        stream.conn.complete_io(&mut stream.sock).unwrap();
        let suite = stream.conn.negotiated_cipher_suite().unwrap().suite();
        (stream.conn.protocol_version().unwrap(), suite)
    });
    let expected = (
        rustls::ProtocolVersion::TLSv1_2,
        rustls::CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    );
    assert_eq!(spoken.await.unwrap(), expected);
}

#[tokio::test]
async fn plain_bytes_over_tls_and_tls_where_none_is_spoken_end_soon_and_hurt_no_other() {
    let (dir, data) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let authority = Authority::new(dir.path(), "authority");
    let mut node = start(data.path(), &authority.broker("broker"), &[]);
    let url = node.announced("pulsar+ssl://");
    let address = url.trim_start_matches("pulsar+ssl://").to_owned();
    let mut raw = RawConnection::connect(&address).await.unwrap();
    let shaken = raw.handshake(pharos_wire::request::connect("plain"));
    assert!(soon("the end", shaken).await.is_err(), "CONNECT without TLS");
    for bytes in [
        &[0xff; 100_000][..],
        &[0x16, 3, 1, 0xff, 0xff, 1],
        b"GET / HTTP/1.1\r\n\r\n",
    ] {
        let mut raw = RawConnection::connect(&address).await.unwrap();
        // It may be closed before it has taken all.
        let _ = raw.write(bytes).await;
        if bytes.len() != 6 {
            assert!(!matches!(soon("the end", raw.read()).await, Ok(Some(_))));
        }
    }
    let plain = node.pulsar.replace("pulsar://", "pulsar+ssl://");
    assert!(
        connect(&plain, authority.trusted()).await.is_err(),
        "TLS where none is spoken"
    );
    let http = node.admin_url();
    let asked = move |tls: TlsOptions| get(http.trim_start_matches("http://"), &tls, "/metrics").is_err();
    let trusted = authority.trusted();
    assert!(tokio::task::spawn_blocking(move || asked(trusted)).await.unwrap());
    round_trip(&connect(&url, authority.trusted()).await.unwrap(), "t").await;
    node.assert_alive();
}

/// A connection from another address of this machine, which says nothing.
async fn silent(url: &str) -> tokio::net::TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let address = url.trim_start_matches("pulsar+ssl://").parse().unwrap();
    socket.connect(address).await.unwrap()
}

#[tokio::test]
async fn a_handshake_that_takes_long_is_given_up() {
    let (dir, data) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let authority = Authority::new(dir.path(), "authority");
    let mut node = start(
        data.path(),
        &authority.broker("broker"),
        &["--tls-handshake-timeout", "200ms"],
    );
    let url = node.announced("pulsar+ssl://");
    let mut stream = silent(&url).await;
    let mut answer = Vec::new();
    // Closed or reset, it ends.
    let _ = soon("the end", stream.read_to_end(&mut answer)).await;
    until("it is told", || {
        node.logged()
            .contains("a TLS handshake took longer")
            .then_some(())
    })
    .await;
}

#[tokio::test]
async fn one_address_that_leaves_its_handshakes_half_done_keeps_no_other_out() {
    let (dir, data) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let authority = Authority::new(dir.path(), "authority");
    let few = [
        "--tls-handshake-timeout",
        "1h",
        "--tls-max-handshakes",
        "3",
        "--tls-max-handshakes-per-address",
        "2",
    ];
    let mut node = start(data.path(), &authority.broker("broker"), &few);
    let url = node.announced("pulsar+ssl://");
    let mut idle = Vec::new();
    for _ in 0..20 {
        idle.push(silent(&url).await);
    }
    // Accepted one after the other, so those are all there when this one comes.
    round_trip(&connect(&url, authority.trusted()).await.unwrap(), "t").await;
    drop(idle);
}
