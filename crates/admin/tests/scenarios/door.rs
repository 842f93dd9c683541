//! A broker in memory, its HTTP server and its Pulsar server.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use pharos_admin::{Admin, AdminOptions, router, serve};
use pharos_auth::Access;
use pharos_broker::Threads;
use pharos_broker_admin::Resources;
use pharos_catalog::{Catalog, CatalogOptions};
use pharos_identity::Authentication;
use pharos_ledger::memory::MemoryEngine;
use pharos_metadata::Memory;
use pharos_pulsar::{ClientLimits, PulsarEntries};
use pharos_runtime::Shutdown;
use pharos_transport::{ConnectionsMax, Listener, QuotaLimits};
use tokio::task::JoinHandle;

pub(crate) struct Door {
    /// HTTP address.
    pub(crate) address: SocketAddr,
    /// Pulsar service URL.
    pub(crate) service_url: String,
    pub(crate) catalog: Catalog,
    shutdown: Shutdown,
    served: Option<JoinHandle<()>>,
    threads: Option<Threads>,
}

impl Door {
    pub(crate) async fn open() -> Self {
        Self::open_with(false, Access::everyone()).await
    }

    /// Starts a server that allows forced deletion or not, and uses `access`.
    pub(crate) async fn open_with(forced: bool, access: Access) -> Self {
        let metadata = Arc::new(Memory::new());
        let catalog = Catalog::open(metadata.clone(), CatalogOptions::default());
        let catalog = catalog.await.unwrap();
        let options = pharos_broker::Options {
            shards: 2,
            ..pharos_broker::Options::default()
        };
        let ledgers = Arc::new(MemoryEngine::new());
        let (broker, threads) =
            pharos_broker::start(options, catalog.clone(), ledgers, metadata, &PulsarEntries).unwrap();
        let any = "127.0.0.1:0".parse().unwrap();
        let pulsar = pharos_pulsar::Options {
            transactions: Err("Transactions are not enabled."),
            listen: any,
            entrance: None,
            listen_tls: None,
            listeners: pharos_pulsar::ListenerOptions::default(),
            advertised_address: None,
            server_version: "test".to_owned(),
            keep_alive_interval: Duration::from_secs(30),
            connections_max: ConnectionsMax::none(),
            per_address: QuotaLimits::default(),
            limits: ClientLimits::default(),
            authentication: Authentication::off(),
            credential_check_interval: Duration::from_mins(1),
        };
        let service_url = pharos_pulsar::open(&broker, &pulsar).unwrap().service_url.clone();
        let listener = Listener::bind(any).unwrap();
        let address = listener.local_address();
        let router = router(Admin::new(Resources::of(&broker), about(forced, access)));
        let shutdown = Shutdown::default();
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(serve(
            vec![listener.start().unwrap()],
            router,
            1024,
            shutdown.token(),
        ));
        let served = tokio::runtime::Handle::current().spawn(async move { drop(tasks.join_all().await) });
        Self {
            address,
            service_url,
            catalog,
            shutdown,
            served: Some(served),
            threads: Some(threads),
        }
    }

    /// Stops answering HTTP, and waits until that is so.
    pub(crate) async fn close(mut self) {
        self.shutdown.trigger();
        self.served.take().unwrap().await.unwrap();
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.shutdown.trigger();
        if let Some(threads) = self.threads.take() {
            threads.stop();
        }
    }
}

fn about(forced: bool, access: Access) -> AdminOptions {
    AdminOptions {
        web_socket: None,
        web_socket_origins: Vec::new(),
        transactions: None,
        access,
        authentication: Authentication::off(),
        request_rates: Default::default(),
        broker_client: None,
        allowed_hosts: Vec::new(),
        cluster_name: "standalone".into(),
        broker_url: "pulsar://127.0.0.1:6650".into(),
        broker_url_tls: None,
        listeners: Default::default(),
        http_url: "http://127.0.0.1:8080".into(),
        http_url_tls: None,
        settings: vec![("shards".into(), "2".into())],
        metadata_store_url: "embedded".to_owned(),
        ledgers_root_path: "/ledgers".to_owned(),
        topic_metrics: true,
        force_delete_namespace: forced,
        force_delete_tenant: forced,
        message_bytes_max: 5 << 20,
        bundle_division: pharos_catalog::BundleDivision::default(),
    }
}

/// Sends one request on a connection of its own. Returns status, content type and body.
pub(crate) fn ask(address: SocketAddr, method: &str, path: &str, body: &str) -> (u16, String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let kind = head
        .lines()
        .find_map(|line| line.strip_prefix("content-type: "))
        .unwrap_or_default();
    (status, kind.to_owned(), body.to_owned())
}
