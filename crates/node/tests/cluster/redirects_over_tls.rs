//! Redirects over TLS: a client that asks over TLS is sent to the TLS address of the other broker.

use std::net::TcpStream;

use pharos_transport::{Tls, TlsOptions};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

#[allow(dead_code, reason = "each test binary uses its part")]
use crate::brokers::{Broker, PATIENCE, Stores, call_over, until};
use crate::support::certificates::Authority;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_is_redirected_over_what_it_came_over() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new(dir.path(), "authority");
    let broker = authority.broker("broker");
    let tls = TlsOptions {
        certificate_file: broker.certificate_file,
        key_file: broker.key_file,
        ..TlsOptions::default()
    };
    let stores = Stores {
        tls: Some(Tls::load(tls).unwrap()),
        ..Stores::default()
    };
    let (one, two) = (Broker::start(&stores).await, Broker::start(&stores).await);
    assert_eq!(one.owner().await, one.service_url);
    until("the other knows", async || two.owner().await == one.service_url).await;

    let path = "/admin/v2/persistent/public/default/orders/stats";
    let (status, location, _) = two.get(path);
    let there = format!("http://{}{path}?authoritative=true", one.http);
    assert_eq!((status, location), (307, Some(there)));

    let config = authority.trusted().client_config().unwrap();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let stream = TcpStream::connect(two.https.unwrap()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let stream = StreamOwned::new(ClientConnection::new(config, name).unwrap(), stream);
    let (status, location, _) = call_over(stream, "GET", path);
    let there = format!("https://{}{path}?authoritative=true", one.https.unwrap());
    assert_eq!((status, location), (307, Some(there)));
}
