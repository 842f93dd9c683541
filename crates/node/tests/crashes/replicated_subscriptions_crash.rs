//! Replicated subscriptions while both brokers are killed again and again: consumers that change clusters at the end miss nothing.

use std::collections::BTreeSet;
use std::time::Duration;

use pharos_client::{Connection, Consumer, ConsumerOptions, OutgoingMessage, ProducerOptions};

use crate::support::clusters::Cluster;
use crate::support::soon;

/// Nothing more comes within this.
const QUIET: Duration = Duration::from_secs(3);

async fn publish(cluster: &Cluster, round: usize, sent: &mut BTreeSet<String>) {
    let client = cluster.node().client().await;
    let options = ProducerOptions::default();
    let producer = soon("a producer", client.producer("t", options)).await.unwrap();
    for number in 0..100 {
        let text = format!("{}-{round}-{number}", cluster.name);
        soon("a receipt", producer.send(OutgoingMessage::new(text.clone())))
            .await
            .unwrap();
        sent.insert(text);
    }
}

async fn consumer(client: &Connection) -> Consumer {
    let mut options = ConsumerOptions::shared("s").from_earliest();
    options.command.replicate_subscription_state = Some(true);
    soon("a consumer", client.subscribe("t", options)).await.unwrap()
}

/// Takes and acknowledges up to so many messages.
async fn take(consumer: &mut Consumer, count: usize, taken: &mut BTreeSet<String>) -> usize {
    for number in 0..count {
        let message = consumer.receive_within(QUIET).await.unwrap();
        let Some(message) = message else { return number };
        soon("a send", consumer.ack(&message.id)).await.unwrap();
        taken.insert(message.text().to_owned());
    }
    count
}

#[tokio::test]
async fn consumers_that_change_clusters_miss_nothing_when_both_are_killed() {
    let settings = ["--replication-subscriptions-snapshot-interval=20ms"];
    let [mut east, mut west] = ["east", "west"].map(|name| Cluster::start(name, &settings));
    for (one, other) in [(&east, &west), (&west, &east)] {
        one.knows(other);
        one.is_on(&["east", "west"]);
    }
    let (mut sent, mut taken) = (BTreeSet::new(), BTreeSet::new());
    for round in 0..6 {
        let client = east.node().client().await;
        let mut from_east = consumer(&client).await;
        publish(&east, round, &mut sent).await;
        publish(&west, round, &mut sent).await;
        // Some stay for the next round.
        take(&mut from_east, 150, &mut taken).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        let killed = if round % 2 == 0 { &mut east } else { &mut west };
        killed.kill();
        killed.come_back();
    }
    // What each has goes to the other, and east is gone for good.
    for (one, other) in [(&east, "west"), (&west, "east")] {
        one.is_connected("t", other).await;
        one.has_sent_all("t", other).await;
    }
    east.kill();
    let client = west.node().client().await;
    let mut from_west = consumer(&client).await;
    let mut rest = BTreeSet::new();
    let came = take(&mut from_west, usize::MAX, &mut rest).await;
    let missed: Vec<_> = sent
        .iter()
        .filter(|text| !taken.contains(*text) && !rest.contains(*text))
        .collect();
    assert!(missed.is_empty(), "{} missed: {missed:?}", missed.len());
    assert!(
        came < sent.len(),
        "the subscription did not follow: {came} of {}",
        sent.len()
    );
}
