//! Isolation policies among brokers of one process: a bundle goes to a broker that may have it, whichever is asked.

use pharos_admin_api::{AutoFailoverPolicyData, NamespaceIsolationData};

use crate::brokers::{Broker, SESSION_TIMEOUT, Stores, TOPIC, publish, read_all, until};

/// `public/default` is for `primary`, and for `secondary` when there is none.
async fn isolate(broker: &Broker, primary: &str, secondary: &str) {
    let parameters = [("min_limit", "1"), ("usage_threshold", "100")];
    let policy = NamespaceIsolationData {
        namespaces: vec!["public/default".to_owned()],
        primary: vec![primary.to_owned()],
        secondary: vec![secondary.to_owned()],
        auto_failover_policy: Some(AutoFailoverPolicyData {
            policy_type: "min_available".to_owned(),
            parameters: parameters
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
        }),
        unload_scope: None,
    };
    broker
        .catalog
        .clusters()
        .isolation()
        .set("standalone", "p", &policy)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_topics_of_a_namespace_are_served_by_the_brokers_of_its_policy() {
    let stores = Stores::default();
    let one = Broker::start_as(&stores, "one.test").await;
    isolate(&one, "two.test", "three.test").await;
    let client = one.client().await;
    assert!(
        client.lookup(TOPIC).await.is_err(),
        "no broker is there that may have it"
    );
    let three = Broker::start_as(&stores, "three.test").await;
    let two = Broker::start_as(&stores, "two.test").await;
    until("all are registered, and know the policy", async || {
        [&one, &two, &three].into_iter().all(|broker| {
            let (_, _, brokers) = broker.get("/admin/v2/brokers");
            brokers.matches(".test").count() == 3
                && broker.catalog.clusters().isolation().of("standalone").is_some()
        })
    })
    .await;
    until("it is led to the primary broker", async || {
        one.owner_if_any(TOPIC).await.as_ref() == Some(&two.service_url)
    })
    .await;
    publish(&two.client().await, 0..10).await;
    // The policy is of one namespace; a broker that is primary for it has no other.
    let elsewhere = "persistent://pulsar/system/t";
    let others = [&one.service_url, &three.service_url];
    until("it is led to one of the others", async || {
        let owner = two.owner_if_any(elsewhere).await;
        owner.is_some_and(|owner| others.contains(&&owner))
    })
    .await;

    two.drop_dead();
    stores.metadata.pass(SESSION_TIMEOUT);
    until("the secondary broker stands in", async || {
        one.owner_if_any(TOPIC).await.as_ref() == Some(&three.service_url)
    })
    .await;
    assert_eq!(read_all(&three.client().await).await, (0..10).collect::<Vec<_>>());
}
