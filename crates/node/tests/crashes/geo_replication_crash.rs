//! Replication while brokers are killed under load: the other cluster has every message that was acknowledged, in the order of the log,
//! and each once where it deduplicates.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::support::clusters::Cluster;
use crate::support::{self, publish, soon, until};
use pharos_client::{ClientError, ConnectOptions, Connection, OutgoingMessage, Producer, ProducerOptions};
use tokio::sync::watch;

/// Short ledgers, so that a crash also meets their changing.
const SHORT_LEDGERS: [&str; 4] = ["--ledger-max-entries", "200", "--ledger-min-rollover-time", "0"];
const DEDUPLICATION: &str = "--policies-deduplication=true";
/// Sends of a producer without a receipt.
const AHEAD: usize = 64;
/// Messages that arrive over there between two kills.
const BETWEEN: u64 = 400;

async fn producer(url: &str, name: &str) -> Result<Producer, ClientError> {
    let connection = Connection::connect(url, ConnectOptions::default()).await?;
    connection
        .producer("t", ProducerOptions::default().name(name))
        .await
}

/// Publishes under one name until it is told to stop, through whatever happens to its broker. Returns how many have a receipt: all from
/// the first on.
async fn produce(url: String, name: &'static str, stop: watch::Receiver<bool>) -> u64 {
    let mut answered = 0;
    while !*stop.borrow() {
        let Ok(producer) = producer(&url, name).await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        // The broker deduplicates: it knows what it has.
        let last = producer.success().last_sequence_id.unwrap();
        let mut next = u64::try_from(last + 1).unwrap();
        assert!(
            next >= answered,
            "{next} messages of {answered} that have a receipt"
        );
        answered = next;
        let mut on_their_way = std::collections::VecDeque::new();
        loop {
            while on_their_way.len() < AHEAD && !*stop.borrow() {
                let message = OutgoingMessage::new(format!("{name} {next}"));
                match producer.begin_send_as(next, message).await {
                    Ok(send) => on_their_way.push_back(send),
                    Err(_) => break,
                }
                next += 1;
            }
            let Some(send) = on_their_way.pop_front() else {
                break;
            };
            if send.receipt().await.is_err() {
                break;
            }
            answered += 1;
            if answered.is_multiple_of(32) {
                // Not as fast as it goes: the test is about the moment, not about the amount.
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }
    answered
}

/// Kills a cluster's broker and starts it again, while the test's own clients go on.
async fn kill_and_start(mut cluster: Cluster) -> Cluster {
    let restarting = tokio::task::spawn_blocking(move || {
        cluster.kill();
        cluster.come_back();
        cluster
    });
    restarting.await.unwrap()
}

/// Waits until more messages arrived at west, as east counts them since its start.
async fn more_arrives(east: &Cluster) {
    let count = || east.replication("t", "west")["msgOutCount"].as_u64();
    let before = count().unwrap_or(0);
    until("messages over there", || {
        (count()? >= before + BETWEEN).then_some(())
    })
    .await;
}

/// The log of t: each message by its producer, its number and its text.
async fn log_of(cluster: &Cluster) -> Vec<(String, u64, String)> {
    let log = cluster.log("t").await;
    let known_by = log.iter().map(|message| {
        (
            message.metadata.producer_name.clone(),
            message.sequence_id(),
            message.text(),
        )
    });
    known_by.collect()
}

/// Kills one broker or the other while two producers send. Returns both logs.
async fn logs_after_kills(of_west: &[&str]) -> [Vec<(String, u64, String)>; 2] {
    let mut settings = SHORT_LEDGERS.to_vec();
    settings.push(DEDUPLICATION);
    let mut east = Cluster::start("east", &settings);
    settings.pop();
    settings.extend(of_west);
    let mut west = Cluster::start("west", &settings);
    east.knows(&west);
    east.is_on(&["east", "west"]);
    let (stop, stopped) = watch::channel(false);
    let url = east.node().pulsar.clone();
    let producing = ["p", "q"].map(|name| tokio::spawn(produce(url.clone(), name, stopped.clone())));
    until("the topic", || {
        let topics = east.node().topics();
        topics.iter().any(|topic| topic.ends_with("/t")).then_some(())
    })
    .await;
    for _ in 0..2 {
        more_arrives(&east).await;
        west = kill_and_start(west).await;
        more_arrives(&east).await;
        east = kill_and_start(east).await;
    }
    more_arrives(&east).await;
    stop.send(true).unwrap();
    let mut answered = Vec::new();
    for task in producing {
        answered.push(soon("the end of producing", task).await.unwrap());
    }
    east.has_sent_all("t", "west").await;
    let (here, there) = (log_of(&east).await, log_of(&west).await);
    for (name, count) in ["p", "q"].into_iter().zip(answered) {
        let numbers: Vec<u64> = here
            .iter()
            .filter(|sent| sent.0 == name)
            .map(|sent| sent.1)
            .collect();
        assert!(
            numbers.len() as u64 >= count,
            "{count} receipts, {} messages",
            numbers.len()
        );
        assert!(
            numbers.iter().copied().eq(0..numbers.len() as u64),
            "{name} is not in order"
        );
    }
    [here, there]
}

#[tokio::test]
async fn everything_arrives_in_order_and_once_where_it_is_deduplicated() {
    let [here, there] = logs_after_kills(&[DEDUPLICATION]).await;
    assert_eq!(here.len(), there.len());
    for (sent, arrived) in here.iter().zip(&there) {
        assert_eq!(sent, arrived);
    }
}

#[tokio::test]
async fn everything_arrives_in_order_and_some_again_where_it_is_not() {
    let [here, there] = logs_after_kills(&[]).await;
    let mut seen = BTreeSet::new();
    let first: Vec<_> = there
        .iter()
        .filter(|message| seen.insert((*message).clone()))
        .collect();
    assert_eq!(here.len(), first.len());
    for (sent, arrived) in here.iter().zip(first) {
        assert_eq!(sent, arrived);
    }
}

/// The sequence ids of another cluster's producer in the log do not apply to the local producer of that name, also
/// after a crash.
#[tokio::test]
async fn a_name_of_both_clusters_keeps_its_own_numbers_over_a_crash() {
    let east = Cluster::start("east", &[DEDUPLICATION]);
    let mut west = Cluster::start("west", &[DEDUPLICATION]);
    east.knows(&west);
    east.is_on(&["east", "west"]);
    publish(&producer(&west.node().pulsar, "p").await.unwrap(), 0..10).await;
    publish(&producer(&east.node().pulsar, "p").await.unwrap(), 10..110).await;
    east.has_sent_all("t", "west").await;
    west.kill();
    west.come_back();
    let again = producer(&west.node().pulsar, "p").await.unwrap();
    assert_eq!(again.success().last_sequence_id, Some(9));
    publish(&again, 110..120).await;
    let numbers: Vec<String> = (0..120).map(|number: u32| number.to_string()).collect();
    assert_eq!(support::clusters::texts(&west.log("t").await), numbers);
}

/// A broker that dies as soon as the first message of a topic is acknowledged has the topic's cursor.
#[tokio::test]
async fn the_first_message_of_a_topic_is_sent_after_a_crash() {
    const TOPICS: u32 = 20;
    let (mut east, mut west) = (Cluster::start("east", &[]), Cluster::start("west", &[]));
    east.knows(&west);
    east.is_on(&["east", "west"]);
    west.kill();
    let client = east.node().client().await;
    let mut sending = Vec::new();
    for topic in 0..TOPICS {
        let client = client.clone();
        sending.push(tokio::spawn(async move {
            let options = ProducerOptions::default();
            let producer = client.producer(&format!("first-{topic}"), options).await.unwrap();
            publish(&producer, topic..topic + 1).await;
        }));
    }
    for task in sending {
        soon("a receipt", task).await.unwrap();
    }
    east.kill();
    east.come_back();
    west.come_back();
    for topic in 0..TOPICS {
        let name = format!("first-{topic}");
        east.has_sent_all(&name, "west").await;
        let log = west.log(&name).await;
        assert_eq!(support::clusters::texts(&log), [topic.to_string()], "{name}");
    }
}
