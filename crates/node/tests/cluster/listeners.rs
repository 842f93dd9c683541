//! Listeners by name, over two brokers of one process: clients hear the addresses of their listener, from whichever broker.

use std::collections::BTreeMap;

use pharos_client::RawConnection;
use pharos_cluster::ListenerUrls;
use pharos_pulsar::{Door, ListenerOptions};
use pharos_wire::command::Command;
use pharos_wire::proto::CommandLookupTopicResponse;
use pharos_wire::request;

use crate::brokers::{Broker, Stores, TOPIC, until};

/// Answer to LOOKUP over this connection.
async fn looked_up(url: &str, listener: Option<&str>) -> CommandLookupTopicResponse {
    let mut connection = RawConnection::connect(url).await.unwrap();
    connection.handshake(request::connect("test")).await.unwrap();
    let mut lookup = request::lookup(TOPIC, 1, false);
    lookup.advertised_listener_name = listener.map(str::to_owned);
    connection.send(Command::Lookup(lookup)).await.unwrap();
    match connection.next_command().await.unwrap() {
        Command::LookupResponse(answer) => answer,
        other => panic!("{other:?}"),
    }
}

/// A broker with an outer listener, and a door of it.
async fn with_outer(stores: &Stores, name: &str) -> Broker {
    let urls = ListenerUrls {
        broker_service_url: Some(format!("pulsar://{name}.example.com:6650")),
        broker_service_url_tls: Some(format!("pulsar+ssl://{name}.example.com:6651")),
        broker_http_url: Some(format!("http://{name}.example.com:8080")),
        broker_https_url: None,
    };
    let named = ListenerOptions {
        urls: BTreeMap::from([("outer".to_owned(), urls)]),
        internal: None,
        doors: vec![Door {
            listener: "outer".to_owned(),
            address: "127.0.0.1:0".parse().unwrap(),
            entrance: None,
        }],
    };
    Broker::start_with(stores, "127.0.0.1", named).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_hear_the_addresses_of_their_listener_from_both_brokers() {
    let stores = Stores::default();
    let (one, two) = (with_outer(&stores, "one").await, with_outer(&stores, "two").await);
    assert_eq!(one.owner().await, one.service_url);
    until("the other knows", async || two.owner().await == one.service_url).await;

    for broker in [&one, &two] {
        // By name, and by the door.
        let door = format!("pulsar://{}", broker.doors[0]);
        for (url, listener) in [
            (&broker.service_url, Some("outer")),
            (&door, None),
            (&door, Some("")),
        ] {
            let found = looked_up(url, listener).await;
            assert_eq!(
                found.broker_service_url(),
                "pulsar://one.example.com:6650",
                "{found:?}"
            );
            assert_eq!(
                found.broker_service_url_tls(),
                "pulsar+ssl://one.example.com:6651"
            );
        }
        let found = looked_up(&broker.service_url, None).await;
        assert_eq!(found.broker_service_url(), one.service_url);
        let refused = looked_up(&broker.service_url, Some("odd")).await;
        assert!(
            refused.message().contains("the broker do not have odd listener"),
            "{refused:?}"
        );

        let path = "/lookup/v2/topic/persistent/public/default/orders";
        let (status, _, found) = broker.get(&format!("{path}?listenerName=outer"));
        assert!(
            status == 200 && found.contains("\"brokerUrl\":\"pulsar://one.example.com:6650\""),
            "{found}"
        );
        assert!(
            found.contains("\"brokerUrlTls\":\"pulsar+ssl://one.example.com:6651\""),
            "{found}"
        );
        assert!(
            found.contains("\"httpUrl\":\"http://one.example.com:8080\"") && !found.contains("httpUrlTls"),
            "{found}"
        );
        let (status, _, found) = broker.get(path);
        assert!(
            status == 200 && found.contains(&one.service_url) && !found.contains("example.com"),
            "{found}"
        );
        let (status, _, _) = broker.get(&format!("{path}?listenerName=odd"));
        assert_eq!(status, 404);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_producer_that_came_by_a_door_hears_that_listeners_address_when_its_bundle_goes() {
    let stores = Stores::default();
    let (one, two) = (with_outer(&stores, "one").await, with_outer(&stores, "two").await);
    assert_eq!(one.owner().await, one.service_url);
    until("the other knows", async || two.owner().await == one.service_url).await;
    let mut told = Vec::new();
    for url in [format!("pulsar://{}", one.doors[0]), one.service_url.clone()] {
        let mut connection = RawConnection::connect(&url).await.unwrap();
        connection.handshake(request::connect("test")).await.unwrap();
        let producer = request::producer(TOPIC, 7, 1, None);
        connection
            .send(Command::Producer(Box::new(producer)))
            .await
            .unwrap();
        let answer = connection.next_command().await.unwrap();
        assert!(matches!(answer, Command::ProducerSuccess(_)), "{answer:?}");
        told.push(connection);
    }
    let bundle = one.catalog.bundle_of(&TOPIC.parse().unwrap()).unwrap();
    let path = format!(
        "/admin/v2/namespaces/public/default/{bundle}/unload?destinationBroker={}",
        two.http
    );
    let (status, _, reason) = one.call("PUT", &path);
    assert_eq!(status, 204, "{reason}");
    let mut heard = Vec::new();
    for connection in &mut told {
        heard.push(loop {
            match connection.next_command().await.unwrap() {
                Command::CloseProducer(closed) => break closed.assigned_broker_service_url,
                Command::Ping(_) => {}
                other => panic!("{other:?}"),
            }
        });
    }
    // Of the second one it is not known which listener it is of: it looks up.
    assert_eq!(heard, [Some("pulsar://two.example.com:6650".to_owned()), None]);
}
