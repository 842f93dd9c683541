//! Admin requests over a partitioned topic whose partitions are at two brokers: any of them answers for all.

use std::collections::BTreeMap;
use std::net::TcpStream;
use std::sync::Arc;

use pharos_admin::BrokerClient;
use pharos_auth::{Access, Facts, RuleOptions, Rules, StoredPolicies};
use pharos_catalog::Policies;
use pharos_client::{OutgoingMessage, ProducerOptions};
use pharos_cluster::{BalanceOptions, Ownership as _};
use pharos_identity::{Authentication, Chain, Provider};
use pharos_transport::{ClientCertificates, Tls, TlsOptions};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

#[allow(dead_code, reason = "each test binary uses its part")]
use crate::brokers::{Broker, PATIENCE, Stores, call_over, until};
use crate::support::certificates::Authority;

const PARTITIONS: u32 = 6;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partitioned_topic_of_several_brokers_is_asked_about_at_any() {
    let stores = Stores::default();
    let (one, two) = (Broker::start(&stores).await, Broker::start(&stores).await);
    let path = spread(&one, &two).await;
    for broker in [&one, &two] {
        let (status, _, stats) = broker.get(&format!("{path}/partitioned-stats?perPartition=true"));
        assert_eq!(status, 200, "{stats}");
        assert!(
            stats.contains(&format!("\"msgInCounter\":{PARTITIONS},")),
            "{stats}"
        );
        assert!(
            (0..PARTITIONS).all(|index| stats.contains(&format!("t-partition-{index}\":"))),
            "{stats}"
        );
        let (status, _, stats) = broker.get(&format!("{path}/partitioned-internalStats"));
        assert!(
            status == 200 && stats.contains("t-partition-5\":"),
            "{status} {stats}"
        );
        let (status, _, info) = broker.get(&format!("{path}/internal-info"));
        assert!(
            status == 200 && info.contains("t-partition-5\":"),
            "{status} {info}"
        );
    }
    let (status, _, reason) = one.call("PUT", &format!("{path}/subscription/s"));
    assert_eq!(status, 204, "{reason}");
    for broker in [&one, &two] {
        let (status, _, names) = broker.get(&format!("{path}/subscriptions"));
        assert_eq!((status, names.as_str()), (200, "[\"s\"]"));
        let (status, _, reason) = broker.call("PUT", &format!("{path}/subscription/s"));
        assert_eq!(status, 409, "{reason}");
        let (status, _, reason) = broker.call("POST", &format!("{path}/subscription/s/skip_all"));
        assert_eq!(status, 204, "{reason}");
        let (status, _, reason) = broker.call("POST", &format!("{path}/all_subscription/expireMessages/1"));
        assert_eq!(status, 204, "{reason}");
        let (status, _, reason) = broker.call("PUT", &format!("{path}/unload"));
        assert_eq!(status, 204, "{reason}");
    }
    let properties = r#"{"team":"a"}"#;
    let (status, _, reason) = two.call_with("PUT", &format!("{path}/subscription/s/properties"), properties);
    assert_eq!(status, 204, "{reason}");
    for broker in [&one, &two] {
        let (status, _, found) = broker.get(&format!("{path}/subscription/s/properties"));
        assert_eq!((status, found.as_str()), (200, properties));
    }
    let (status, _, reason) = two.call("DELETE", &format!("{path}/subscription/s"));
    assert_eq!(status, 204, "{reason}");
    for broker in [&one, &two] {
        assert_eq!(broker.get(&format!("{path}/subscriptions")).2, "[]");
        let (status, _, reason) = broker.call("DELETE", &format!("{path}/subscription/s"));
        assert_eq!(status, 404, "{reason}");
    }
}

/// A topic with half of its partitions at each: the path of its administration.
async fn spread(one: &Broker, two: &Broker) -> String {
    let name: pharos_types::NamespaceName = "public/spread".parse().unwrap();
    let policies = Policies::first(&["standalone"], 8);
    one.catalog.namespaces().create(&name, policies).await.unwrap();
    until("the other knows the namespace", async || {
        two.catalog.namespaces().has(&name)
    })
    .await;
    let topic: pharos_types::TopicName = format!("persistent://{name}/t").parse().unwrap();
    let partitioned = one.catalog.partitioned();
    partitioned
        .create(&topic, PARTITIONS, BTreeMap::new(), true)
        .await
        .unwrap();
    until("the other knows the topic", async || {
        two.catalog.partitioned().get(&topic).is_some()
    })
    .await;
    // Every other bundle that has a partition goes to each.
    let mut bundles: Vec<String> = (0..PARTITIONS)
        .map(|index| one.catalog.bundle_of(&topic.with_partition(index)).unwrap())
        .collect();
    bundles.sort_unstable();
    bundles.dedup();
    assert!(
        bundles.len() > 1,
        "all partitions are in one bundle: take another name"
    );
    for (number, bundle) in bundles.iter().enumerate() {
        let broker = if number % 2 == 0 { one } else { two };
        broker.balancer().set_options(BalanceOptions {
            enabled: false,
            ..BalanceOptions::default()
        });
        broker
            .ownership
            .take_bundle(&format!("{name}/{bundle}"))
            .await
            .unwrap();
    }
    for index in 0..PARTITIONS {
        let partition = topic.with_partition(index).to_string();
        until("a partition takes messages", async || {
            let Some(url) = one.owner_if_any(&partition).await else {
                return false;
            };
            let broker = if url == one.service_url { one } else { two };
            let client = broker.client().await;
            match client.producer(&partition, ProducerOptions::default()).await {
                Ok(producer) => producer.send(OutgoingMessage::new("m")).await.is_ok(),
                Err(_) => false,
            }
        })
        .await;
    }
    format!("/admin/v2/persistent/{name}/t")
}

/// Facts of which super-users need none.
struct NoFacts;

impl Facts for NoFacts {
    fn has_tenant(&self, _: &str) -> bool {
        true
    }

    fn is_tenant_admin(&self, _: &str, _: &str) -> bool {
        false
    }

    fn policies(&self, _: &pharos_types::NamespaceName) -> Option<StoredPolicies> {
        None
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_over_tls_and_with_certificates_are_answered_for_all_partitions_too() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new(dir.path(), "authority");
    let door = authority.broker("door");
    let tls = TlsOptions {
        certificate_file: door.certificate_file,
        key_file: door.key_file,
        trust_certs_file: authority.trusted().trust_certs_file,
        clients: ClientCertificates::Asked,
        ..TlsOptions::default()
    };
    let (broker, ann) = (authority.client("broker"), authority.client("ann"));
    let asks = authority.trusted_by(&broker);
    let client = BrokerClient::new(move || asks.client_config().map_err(std::io::Error::other), true);
    let rules = RuleOptions {
        authorization: true,
        super_users: ["broker", "ann"].map(str::to_owned).into(),
        proxies: ["broker".to_owned()].into(),
        ..RuleOptions::default()
    };
    let authentication = Authentication::by(Chain {
        providers: vec![Provider::Tls],
        ..Chain::default()
    });
    let mut stores = Stores {
        tls: Some(Tls::load(tls).unwrap()),
        client: Some(client),
        rules: Some((
            Access::by(Arc::new(Rules::new(rules, Arc::new(NoFacts)))),
            authentication,
        )),
        ..Stores::default()
    };
    let one = Broker::start(&stores).await;
    // One that has nothing to ask others with.
    stores.client = None;
    let two = Broker::start(&stores).await;
    let path = spread(&one, &two).await;
    let config = authority.trusted_by(&ann).client_config().unwrap();
    let ask = |broker: &Broker, method: &str, path: &str| {
        let stream = TcpStream::connect(broker.https.unwrap()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let session = ClientConnection::new(config.clone(), name).unwrap();
        call_over(StreamOwned::new(session, stream), method, path)
    };
    let stats = format!("{path}/partitioned-stats?perPartition=true");
    let (status, _, found) = ask(&one, "GET", &stats);
    let all = (0..PARTITIONS).all(|index| found.contains(&format!("t-partition-{index}\":")));
    assert!(status == 200 && all, "{status} {found}");
    let (status, _, reason) = ask(&two, "GET", &stats);
    assert_eq!(status, 503, "{reason}");
    let (status, _, reason) = ask(&one, "PUT", &format!("{path}/subscription/s"));
    assert_eq!(status, 204, "{reason}");
    let (status, _, names) = ask(&one, "GET", &format!("{path}/subscriptions"));
    assert_eq!((status, names.as_str()), (200, "[\"s\"]"));
    assert_eq!(one.get(&stats).0, 401, "the plain door knows no caller");
}
