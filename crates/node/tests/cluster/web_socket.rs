//! WebSockets at a broker whose topics are at another one, and one whose topic goes there meanwhile.

use crate::brokers::{Broker, Stores, TOPIC, until};
use crate::support::web_socket::{UPGRADE, WebSocket};

const PATH: &str = "persistent/public/default/orders";

async fn open(broker: &Broker, path: &str) -> WebSocket {
    WebSocket::try_open_at(&broker.http.to_string(), path, UPGRADE)
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_websocket_at_any_broker_reaches_the_topic() {
    let stores = Stores::default();
    let (one, two) = (Broker::start(&stores).await, Broker::start(&stores).await);
    assert_eq!(one.owner().await, one.service_url);
    until("the other knows", async || two.owner().await == one.service_url).await;
    let mut consumer = open(&two, &format!("consumer/{PATH}/s?subscriptionType=Shared")).await;
    let mut producer = open(&two, &format!("producer/{PATH}")).await;
    let mut at_owner = open(&one, &format!("producer/{PATH}")).await;
    for (number, producer) in [&mut producer, &mut at_owner].into_iter().enumerate() {
        let text = number.to_string();
        producer.produce(&text).await;
        assert_eq!(consumer.consume().await, text);
    }
    // The topic goes to the other broker: the consumer goes after it, the producers say goodbye.
    at_owner.produce("left").await;
    let (text, _) = consumer.receive().await;
    assert_eq!(text, "left");
    let bundle = one.catalog.bundle_of(&TOPIC.parse().unwrap()).unwrap();
    let path = format!("/admin/v2/namespaces/public/default/{bundle}/unload");
    let (status, _, reason) = one.call("PUT", &format!("{path}?destinationBroker={}", two.http));
    assert_eq!(status, 204, "{reason}");
    assert_eq!(
        (producer.goodbye().await.0, at_owner.goodbye().await.0),
        (1012, 1012)
    );
    let mut again = open(&two, &format!("producer/{PATH}")).await;
    again.produce("new").await;
    let mut heard = vec![consumer.consume().await, consumer.consume().await];
    heard.sort();
    assert_eq!(heard, ["left", "new"], "what was not acknowledged comes again");
}
