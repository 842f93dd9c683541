//! The PROXY protocol in front of both doors: who is believed to come from where, and what is no header.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use pharos_client::{ClientError, RawConnection};
use pharos_wire::command::Command;
use pharos_wire::request;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;

use crate::support::{self, Node, soon, until};

const V1: &[u8] = b"PROXY TCP4 192.0.2.7 10.0.0.1 4711 6650\r\n";

/// Version 2, with a member that balancers add.
fn v2() -> Vec<u8> {
    let mut bytes = b"\r\n\r\n\0\r\nQUIT\n\x21\x11".to_vec();
    bytes.extend([0, 16]);
    bytes.extend([192, 0, 2, 8, 10, 0, 0, 1, 0x12, 0x68, 0x19, 0xfa]);
    bytes.extend([4, 0, 1, 9]);
    bytes
}

/// A connection that begins with these bytes, one write for each, and then shakes hands.
async fn connect(node: &Node, pieces: &[&[u8]]) -> Result<RawConnection, ClientError> {
    let address = node.pulsar.trim_start_matches("pulsar://");
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    for piece in pieces {
        // One that is not let in may be closed already.
        let _ = stream.write_all(piece).await;
        tokio::task::yield_now().await;
    }
    let mut raw = RawConnection::from_stream(stream);
    soon("the handshake", raw.handshake(request::connect("test"))).await?;
    Ok(raw)
}

/// Address that the broker reports for the producer of a connection.
async fn address_of(node: &Node, mut raw: RawConnection, topic: &str) -> String {
    raw.send(request::producer(topic, 1, 1, None)).await.unwrap();
    let made = soon("the producer", raw.next_command()).await.unwrap();
    assert!(matches!(made, Command::ProducerSuccess(_)), "{made:?}");
    let address = until("it is in the stats", || {
        let stats = node.stats(topic);
        stats["publishers"][0]["address"].as_str().map(str::to_owned)
    });
    address.await
}

#[tokio::test]
async fn a_header_says_where_a_client_is_and_garbage_is_refused() {
    let data = TempDir::new().unwrap();
    let mut node = Node::start(data.path(), &["--proxy-protocol", "required"]);
    let raw = connect(&node, &[V1]).await.unwrap();
    assert_eq!(address_of(&node, raw, "v1").await, "/192.0.2.7:4711");
    let raw = connect(&node, &[&v2()]).await.unwrap();
    assert_eq!(address_of(&node, raw, "v2").await, "/192.0.2.8:4712");
    let bytes = v2();
    let pieces: Vec<&[u8]> = bytes.chunks(1).collect();
    let raw = connect(&node, &pieces).await.unwrap();
    assert_eq!(address_of(&node, raw, "pieces").await, "/192.0.2.8:4712");
    let raw = connect(&node, &[b"PROXY UNKNOWN\r\n"]).await.unwrap();
    assert!(address_of(&node, raw, "unknown").await.starts_with("/127.0.0.1:"));
    let long = [b'x'; 200];
    for garbage in [
        &b""[..],
        b"PROXY TCP4 x y 1 2\r\n",
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff",
        &[&b"PROXY "[..], &long].concat(),
    ] {
        assert!(connect(&node, &[garbage]).await.is_err(), "{garbage:?}");
    }
    assert!(support::figure(&node.page("/metrics"), "pharos_entrance_failures_total", None) >= 4);
    node.assert_alive();
}

#[tokio::test]
async fn where_a_header_is_optional_clients_come_with_it_and_without() {
    let data = TempDir::new().unwrap();
    let node = Node::start_in(
        data.path(),
        &[],
        &[("PULSAR_PREFIX_haProxyProtocolEnabled", "true")],
    );
    let raw = connect(&node, &[V1]).await.unwrap();
    assert_eq!(address_of(&node, raw, "with").await, "/192.0.2.7:4711");
    let raw = connect(&node, &[]).await.unwrap();
    assert!(address_of(&node, raw, "without").await.starts_with("/127.0.0.1:"));
    assert!(connect(&node, &[b"PROXY TCP4 x y 1 2\r\n"]).await.is_err());
}

#[tokio::test]
async fn the_admin_api_takes_headers_too() {
    let data = TempDir::new().unwrap();
    let node = Node::start(data.path(), &["--http-proxy-protocol", "required"]);
    let url = node.admin_url();
    let ask = |header: &[u8]| {
        let mut stream = TcpStream::connect(url.trim_start_matches("http://")).unwrap();
        stream.set_read_timeout(Some(support::PATIENCE)).unwrap();
        stream.write_all(header).unwrap();
        stream
            .write_all(b"GET /admin/v2/clusters HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .unwrap();
        let mut answer = String::new();
        // Closed or reset, it ends.
        let _ = stream.read_to_string(&mut answer);
        answer
    };
    assert!(ask(V1).starts_with("HTTP/1.1 200"));
    assert!(ask(&v2()).starts_with("HTTP/1.1 200"));
    assert_eq!(ask(b""), "");
}
