//! Brokers of one process over the same stores in memory.

#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use pharos_admin::{Admin, AdminOptions, BrokerClient};
use pharos_auth::Access;
use pharos_broker::Threads;
use pharos_broker_admin::Resources;
use pharos_catalog::{Carriers, Catalog, CatalogOptions};
use pharos_client::{
    ConnectOptions, Connection, ConsumerOptions, OutgoingMessage, ProducerOptions, earliest,
};
use pharos_cluster::{Balancer, BrokerAddresses, BundleOwnership, SessionOptions};
use pharos_identity::Authentication;
use pharos_ledger::memory::MemoryEngine;
use pharos_metadata::{Memory, MetadataLayout};
use pharos_pulsar::{InnerDoor, ListenerOptions};
use pharos_runtime::Shutdown;
use pharos_transport::{ConnectionsMax, Entrance, EntranceOptions, Listener, Tls};
use pharos_websocket::{DoorOptions, WebSocketDoor};
use pharos_wire::message::PulsarEntries;
use tokio::task::JoinSet;

/// Time limit of anything in a test. Long, because the machine may be busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// After so much of the store's time without a word a broker is taken for dead. Only the test lets it pass.
pub(crate) const SESSION_TIMEOUT: Duration = Duration::from_mins(5);
pub(crate) const SESSION: SessionOptions = SessionOptions {
    timeout: SESSION_TIMEOUT,
    outage_max: None,
};
pub(crate) const TOPIC: &str = "persistent://public/default/orders";

/// Stores that brokers share.
#[derive(Default)]
pub(crate) struct Stores {
    pub(crate) metadata: Arc<Memory>,
    pub(crate) ledgers: MemoryEngine,
    /// Layout of topics and cursors in the metadata.
    pub(crate) layout: MetadataLayout,
    /// TLS of all HTTPS listeners.
    pub(crate) tls: Option<Arc<Tls>>,
    /// Client of the brokers for each other over TLS.
    pub(crate) client: Option<BrokerClient>,
    /// Authorization and authentication of the HTTP listeners; `None`: everyone may do everything.
    pub(crate) rules: Option<(Access, Authentication)>,
}

pub(crate) struct Broker {
    pub(crate) catalog: Catalog,
    pub(crate) admin: Resources,
    pub(crate) service_url: String,
    pub(crate) ownership: Arc<BundleOwnership>,
    pub(crate) http: SocketAddr,
    pub(crate) https: Option<SocketAddr>,
    /// Addresses of the named listeners.
    pub(crate) doors: Vec<SocketAddr>,
    threads: Option<Threads>,
    stop: Shutdown,
    /// Tasks that renew its session and answer HTTP.
    tasks: JoinSet<()>,
}

impl Broker {
    pub(crate) async fn start(stores: &Stores) -> Self {
        Self::start_as(stores, "127.0.0.1").await
    }

    /// Starts a broker that advertises this host.
    pub(crate) async fn start_as(stores: &Stores, host: &str) -> Self {
        Self::start_with(stores, host, ListenerOptions::default()).await
    }

    /// Starts a broker with listeners of these names.
    pub(crate) async fn start_with(stores: &Stores, host: &str, named: ListenerOptions) -> Self {
        let metadata = stores.metadata.clone();
        let catalog = Catalog::open(metadata.clone(), CatalogOptions::default())
            .await
            .unwrap();
        let bundles = catalog.clone();
        let bundle_of = Box::new(move |topic: &_| bundles.bundle_of(topic));
        let ownership = BundleOwnership::new(metadata.clone(), SESSION, bundle_of);
        let policies = catalog.clone();
        ownership.restrict(Box::new(move |namespace, brokers| {
            policies.clusters().isolation().candidates(namespace, brokers)
        }));
        let carried = catalog.clone();
        ownership.keep_apart(Box::new(move |bundle| Carriers::of(&carried).apart_from(bundle)));
        let mut options = pharos_broker::Options {
            shards: 2,
            ..pharos_broker::Options::default()
        };
        options.managed_ledger.layout = stores.layout;
        let ledgers = Arc::new(stores.ledgers.clone());
        let (broker, threads) = pharos_broker::start_among(
            options,
            catalog.clone(),
            ledgers,
            metadata,
            &PulsarEntries,
            ownership.clone(),
        )
        .unwrap();
        let any = "127.0.0.1:0".parse().unwrap();
        let door = pharos_pulsar::Options {
            transactions: Err("Transactions are not enabled."),
            listen: any,
            entrance: None,
            listen_tls: None,
            listeners: named.clone(),
            advertised_address: None,
            server_version: "test".to_owned(),
            keep_alive_interval: Duration::from_secs(30),
            connections_max: ConnectionsMax::none(),
            per_address: pharos_transport::QuotaLimits::default(),
            limits: pharos_pulsar::ClientLimits::default(),
            authentication: Authentication::off(),
            credential_check_interval: Duration::from_secs(60),
        };
        let server = pharos_pulsar::open(&broker, &door).unwrap();
        let service_url = server.service_url.clone();
        let listener = Listener::bind(any).unwrap();
        let http = listener.local_address();
        let encrypted = stores.tls.clone().map(|tls| {
            let entrance = Entrance::new(EntranceOptions {
                tls: Some(tls),
                ..EntranceOptions::default()
            });
            Listener::bind(any).unwrap().through(entrance)
        });
        let https = encrypted.as_ref().map(Listener::local_address);
        let open = || (Access::everyone(), Authentication::off());
        let (access, authentication) = stores.rules.clone().unwrap_or_else(open);
        let stop = Shutdown::default();
        let mut tasks = JoinSet::new();
        let inner = InnerDoor::new(server.clone());
        let (web_socket, sessions) = WebSocketDoor::new(
            DoorOptions {
                service_url: service_url.clone(),
                service_url_tls: None,
                tls: None,
                enter: Arc::new(move |from, certificate| {
                    let inner = inner.clone();
                    Box::pin(async move { inner.open(from, certificate).await })
                }),
                unwritten: broker.shared.unwritten.clone(),
                sessions_max: 100,
                frame_bytes_max: 1 << 20,
                payload_bytes_max: 5 << 20,
                idle_max: PATIENCE,
                ping_interval: None,
            },
            stop.token(),
        );
        tasks.spawn(sessions.run());
        let about = AdminOptions {
            web_socket: Some(web_socket),
            web_socket_origins: Vec::new(),
            transactions: None,
            access,
            authentication,
            request_rates: Default::default(),
            broker_client: stores.client.clone(),
            allowed_hosts: Vec::new(),
            cluster_name: "standalone".to_owned(),
            broker_url: service_url.clone(),
            broker_url_tls: None,
            listeners: named.urls.clone(),
            http_url: format!("http://{host}:{}", http.port()),
            http_url_tls: https.map(|https| format!("https://{https}")),
            settings: Vec::new(),
            metadata_store_url: "embedded".to_owned(),
            ledgers_root_path: "/ledgers".to_owned(),
            topic_metrics: false,
            force_delete_namespace: false,
            force_delete_tenant: false,
            message_bytes_max: 5 << 20,
            bundle_division: pharos_catalog::BundleDivision::default(),
        };
        ownership.serve(&BrokerAddresses {
            native_url: service_url.clone(),
            http_url: about.http_url.clone(),
            http_url_tls: about.http_url_tls.clone(),
            advertised_listeners: named.urls.clone(),
            ..BrokerAddresses::default()
        });
        let admin = Resources::of(&broker);
        let router = pharos_admin::router(Admin::new(admin.clone(), about));
        tasks.spawn(ownership.clone().run());
        let listeners = [listener].into_iter().chain(encrypted);
        tasks.spawn(pharos_admin::serve(
            listeners.map(|listener| listener.start().unwrap()).collect(),
            router,
            64,
            stop.token(),
        ));
        Self {
            catalog,
            admin,
            service_url,
            ownership,
            http,
            https,
            doors: server.door_addresses.clone(),
            threads: Some(threads),
            stop,
            tasks,
        }
    }

    pub(crate) fn balancer(&self) -> Balancer {
        Balancer::of(self.ownership.clone())
    }

    pub(crate) async fn client(&self) -> Connection {
        Connection::connect(&self.service_url, ConnectOptions::default())
            .await
            .unwrap()
    }

    /// Owner of the topic, according to this broker.
    pub(crate) async fn owner(&self) -> String {
        let looked_up = self.client().await.lookup(TOPIC).await;
        looked_up.unwrap().broker_url
    }

    /// Owner of a topic, if there is one, according to this broker.
    pub(crate) async fn owner_if_any(&self, topic: &str) -> Option<String> {
        let looked_up = self.client().await.lookup(topic).await;
        looked_up.ok().map(|found| found.broker_url)
    }

    /// Its session is not renewed any more; otherwise it goes on.
    pub(crate) fn cut_off(&mut self) {
        self.tasks.abort_all();
    }

    /// Drops the broker without notice: nothing is closed, no session ended.
    pub(crate) fn drop_dead(mut self) {
        self.cut_off();
        self.stop.trigger();
        self.threads.take().unwrap().stop();
    }

    /// Status, `Location` and body of a GET.
    pub(crate) fn get(&self, path: &str) -> (u16, Option<String>, String) {
        self.call("GET", path)
    }

    pub(crate) fn call(&self, method: &str, path: &str) -> (u16, Option<String>, String) {
        self.call_with(method, path, "")
    }

    /// With a JSON body.
    pub(crate) fn call_with(&self, method: &str, path: &str, body: &str) -> (u16, Option<String>, String) {
        let stream = TcpStream::connect(self.http).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        send_over(stream, method, path, body)
    }
}

/// Status, `Location` and body of the answer.
pub(crate) fn call_over(
    stream: impl Read + Write,
    method: &str,
    path: &str,
) -> (u16, Option<String>, String) {
    send_over(stream, method, path, "")
}

fn send_over(
    mut stream: impl Read + Write,
    method: &str,
    path: &str,
    body: &str,
) -> (u16, Option<String>, String) {
    let kind = if body.is_empty() {
        ""
    } else {
        "content-type: application/json\r\n"
    };
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{kind}content-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let location = head.lines().find_map(|line| line.strip_prefix("location: "));
    (status, location.map(str::to_owned), body.to_owned())
}

impl Drop for Broker {
    fn drop(&mut self) {
        if let Some(threads) = self.threads.take() {
            self.tasks.abort_all();
            threads.stop();
        }
    }
}

pub(crate) async fn until(what: &str, mut is: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !is().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let came = tokio::time::timeout(PATIENCE, waiting).await;
    assert!(came.is_ok(), "never: {what}");
}

/// Publishes numbers and waits for the receipts.
pub(crate) async fn publish(client: &Connection, numbers: std::ops::Range<u32>) {
    let producer = client.producer(TOPIC, ProducerOptions::default()).await.unwrap();
    for number in numbers {
        let message = OutgoingMessage::new(number.to_string());
        producer.send(message).await.unwrap();
    }
}

/// Everything in the topic, as numbers.
pub(crate) async fn read_all(client: &Connection) -> Vec<u32> {
    let mut reader = client.reader(TOPIC, earliest()).await.unwrap();
    let mut numbers = Vec::new();
    while reader.has_next().await.unwrap() {
        numbers.push(reader.next().await.unwrap().text().parse().unwrap());
    }
    numbers
}

pub(crate) fn orders() -> ConsumerOptions {
    ConsumerOptions::exclusive("s").from_earliest()
}
