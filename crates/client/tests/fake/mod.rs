//! The listening half of a broker that a test plays by hand.

use pharos_client::RawConnection;
use pharos_wire::command::Command;
use pharos_wire::proto;
use tokio::net::TcpListener;

/// A listener, and its address for a client.
pub(crate) async fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("pulsar://{}", listener.local_addr().unwrap());
    (listener, address)
}

/// The broker's end of the next connection, and what the client said on connecting.
pub(crate) async fn accept(listener: &TcpListener) -> (RawConnection, proto::CommandConnect) {
    let (stream, _) = listener.accept().await.unwrap();
    let mut raw = RawConnection::from_stream(stream);
    let Command::Connect(connect) = raw.read().await.unwrap().unwrap().command else {
        panic!("expected CONNECT");
    };
    raw.send(proto::CommandConnected {
        server_version: "fake".into(),
        protocol_version: Some(21),
        max_message_size: Some(1000),
        feature_flags: None,
    })
    .await
    .unwrap();
    (raw, *connect)
}
