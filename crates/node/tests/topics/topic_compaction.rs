//! Topic compaction on the running broker: what is left for consumers that read it, over kills, trimming and further runs.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use crate::support::{LEDGERS_OF_TEN, Node, receive, soon, until};
use pharos_client::{
    Connection, ConsumerOptions, Message, OutgoingMessage, Producer, ProducerOptions, earliest,
};
use pharos_wire::proto::command_ack::AckType;

const COMPACTION: &str = "/admin/v2/persistent/public/default/t/compaction";
const THRESHOLD: &str = "/admin/v2/namespaces/public/default/compactionThreshold";

/// Runs are due soon.
const AT_ONCE: [&str; 4] = [
    "--cursor-flush-interval",
    "100ms",
    "--policies-compaction-check-interval",
    "100ms",
];

/// Ledger, entry and batch index.
type Place = (u64, u64, i32);

/// Expected content of a topic: the last value of each key, by position.
#[derive(Default)]
struct Expected {
    by_key: BTreeMap<String, (Place, String)>,
    number: u32,
    /// Ledger of the first message.
    first_ledger: Option<u64>,
}

impl Expected {
    /// In the order of the log.
    fn all(&self) -> Vec<(Place, String)> {
        let mut all: Vec<_> = self.by_key.values().cloned().collect();
        all.sort_unstable();
        all
    }

    /// Publishes one message of each key, and now and then an empty one, which deletes its key.
    async fn publish(&mut self, producer: &Producer, keys: std::ops::Range<u32>) {
        for key in keys {
            self.number += 1;
            let (name, is_deleted) = (format!("key {key}"), self.number.is_multiple_of(17));
            let text = if is_deleted {
                String::new()
            } else {
                format!("value {}", self.number)
            };
            let receipt = producer
                .send(OutgoingMessage::new(text.clone()).key(&name))
                .await
                .unwrap();
            self.first_ledger.get_or_insert(receipt.message_id.ledger_id);
            match is_deleted {
                true => drop(self.by_key.remove(&name)),
                false => drop(self.by_key.insert(
                    name,
                    (
                        (receipt.message_id.ledger_id, receipt.message_id.entry_id, -1),
                        text,
                    ),
                )),
            }
        }
    }

    /// Publishes a batch of these keys.
    async fn publish_batch(&mut self, producer: &Producer, keys: &[u32]) {
        let mut batch = Vec::new();
        let mut news = Vec::new();
        for key in keys {
            self.number += 1;
            let (name, text) = (format!("key {key}"), format!("value {}", self.number));
            batch.push(OutgoingMessage::new(text.clone()).key(&name));
            news.push((name, text));
        }
        let receipt = producer.send_batch(batch).await.unwrap();
        for (index, (name, text)) in (0..).zip(news) {
            let place = (receipt.message_id.ledger_id, receipt.message_id.entry_id, index);
            self.by_key.insert(name, (place, text));
        }
    }
}

fn start(data: &Path) -> Node {
    Node::start(data, &[&LEDGERS_OF_TEN[..], &AT_ONCE].concat())
}

async fn producer(client: &Connection) -> Producer {
    client.producer("t", ProducerOptions::default()).await.unwrap()
}

fn shown(message: &Message) -> Option<(Place, String)> {
    let is_gone = message
        .single
        .as_ref()
        .is_some_and(|single| single.compacted_out.unwrap_or(false));
    let id = &message.id;
    (!is_gone).then(|| {
        (
            (id.ledger_id, id.entry_id, id.batch_index.unwrap_or(-1)),
            message.text(),
        )
    })
}

/// Everything that a reader gets which reads what is compacted, from the first message on.
async fn view(node: &Node) -> Vec<(Place, String)> {
    let client = node.client().await;
    let options = ConsumerOptions::exclusive("views")
        .read_compacted()
        .non_durable(earliest());
    let mut reader = client.subscribe("t", options).await.unwrap();
    let last = reader.last_message_id().await.unwrap().last_message_id;
    let mut all = Vec::new();
    if last.ledger_id == u64::MAX {
        return all;
    }
    loop {
        let message = receive(&mut reader).await;
        all.extend(shown(&message));
        let (id, index) = (&message.id, message.id.batch_index.unwrap_or(-1));
        if (id.ledger_id, id.entry_id) == (last.ledger_id, last.entry_id)
            && index == last.batch_index.unwrap_or(-1)
        {
            return all;
        }
    }
}

/// Checks that the compacted topic has every expected value. Without later messages, keys whose last message was
/// superseded later may have more than one value from the log.
fn last_of_keys(all: Vec<(Place, String)>, expected: &Expected) {
    let mut values: Vec<_> = all.into_iter().collect();
    values.sort_unstable();
    for one in expected.all() {
        assert!(values.contains(&one), "{one:?} is missing");
    }
}

/// Compacts all that is there, once a run that began by itself has ended.
async fn compact(node: &Node) {
    until("a run begins", || match node.call("PUT", COMPACTION, "") {
        (204, _) => Some(()),
        (409, _) => None,
        (status, answer) => panic!("{status} {answer}"),
    })
    .await;
    is_compacted(node).await;
}

async fn is_compacted(node: &Node) {
    until("the topic is compacted", || {
        let status = node.ask(COMPACTION);
        assert_ne!(status["status"], "ERROR", "{status}");
        (status["status"] == "SUCCESS").then_some(())
    })
    .await;
}

/// Waits until the log begins behind this ledger.
async fn is_trimmed(node: &Node, ledger: u64) {
    until("the log is trimmed", || {
        node.ledgers("t")
            .first()
            .is_some_and(|first| *first > ledger)
            .then_some(())
    })
    .await;
}

#[tokio::test]
async fn what_was_compacted_is_whole_after_kills_though_its_originals_are_trimmed() {
    let data = tempfile::tempdir().unwrap();
    let mut expected = Expected::default();
    let node = start(data.path());
    // Far away; but from now on what is to be compacted is kept.
    node.order("PUT", THRESHOLD, "1000000000000");
    let client = node.client().await;
    let sender = producer(&client).await;
    for _ in 0..8 {
        expected.publish(&sender, 0..7).await;
        expected.publish_batch(&sender, &[1, 2, 2, 9]).await;
    }
    let (first, last) = (node.ledgers("t")[0], *node.ledgers("t").last().unwrap());
    assert!(first < last, "short ledgers");
    compact(&node).await;
    // Those whose first message is superseded are gone from the log.
    is_trimmed(&node, first).await;
    assert_eq!(view(&node).await, expected.all());
    let stats = node.stats("t");
    assert!(
        stats["compaction"]["lastCompactionRemovedEventCount"]
            .as_u64()
            .unwrap()
            > 0,
        "{stats}"
    );
    let internals = node.internal_stats("t");
    assert_eq!(
        internals["compactedLedger"]["ledgerId"],
        internals["cursors"]["__compaction"]["properties"]["CompactedTopicLedger"]
    );
    node.kill();

    let node = start(data.path());
    assert_eq!(view(&node).await, expected.all());
    // No subscription holds anything back, and nothing is retained: what comes after the horizon is kept all the same.
    let client = node.client().await;
    let sender = producer(&client).await;
    for _ in 0..5 {
        expected.publish(&sender, 3..12).await;
    }
    let end = *node.ledgers("t").last().unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    last_of_keys(view(&node).await, &expected);
    node.kill();

    let node = start(data.path());
    last_of_keys(view(&node).await, &expected);
    compact(&node).await;
    is_trimmed(&node, end - 1).await;
    assert_eq!(view(&node).await, expected.all());
    assert_eq!(node.call("PUT", COMPACTION, "").0, 204);
    is_compacted(&node).await;
    assert_eq!(view(&node).await, expected.all());
    node.kill();
    let node = start(data.path());
    assert_eq!(view(&node).await, expected.all());
    // Only the ledgers that are named are left: those of the log, of the cursors and what was compacted.
    until("ledgers that were given up go", || {
        let page = node.page("/metrics");
        let line = page
            .lines()
            .find(|line| line.starts_with("pharos_storage_ledgers"))?;
        let ledgers: f64 = line.rsplit(' ').next()?.parse().ok()?;
        (ledgers <= node.ledgers("t").len() as f64 + 3.0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_run_that_is_killed_loses_nothing() {
    let data = tempfile::tempdir().unwrap();
    let mut expected = Expected::default();
    let mut node = start(data.path());
    node.order("PUT", THRESHOLD, "1000000000000");
    for round in 0..6_u64 {
        let client = node.client().await;
        let sender = producer(&client).await;
        for _ in 0..4 {
            expected.publish(&sender, 0..20).await;
            expected.publish_batch(&sender, &[3, 30, 31]).await;
        }
        node.order("PUT", COMPACTION, "");
        // Anywhere in the run, also after it.
        tokio::time::sleep(Duration::from_millis(round * round * 3)).await;
        node.kill();
        node = start(data.path());
        last_of_keys(view(&node).await, &expected);
    }
    compact(&node).await;
    assert_eq!(view(&node).await, expected.all());
}

#[tokio::test]
async fn a_durable_subscription_goes_on_where_it_was_in_what_was_compacted() {
    let data = tempfile::tempdir().unwrap();
    let mut expected = Expected::default();
    let node = start(data.path());
    // Compacted by itself.
    node.order("PUT", THRESHOLD, "1000");
    let client = node.client().await;
    let sender = producer(&client).await;
    for _ in 0..10 {
        expected.publish(&sender, 0..10).await;
    }
    is_compacted(&node).await;
    node.order("PUT", THRESHOLD, "1000000000000");
    compact(&node).await;
    // The log may have been trimmed by now as far as it can be: only the ledger that takes messages is left then.
    is_trimmed(&node, expected.first_ledger.unwrap()).await;
    let all = expected.all();
    let options = || {
        ConsumerOptions::failover("goes on")
            .read_compacted()
            .from_earliest()
    };
    let mut consumer = client.subscribe("t", options()).await.unwrap();
    let half = all.len() / 2;
    for one in &all[..half] {
        let message = receive(&mut consumer).await;
        assert_eq!(shown(&message).as_ref(), Some(one));
        // What is answered is stored.
        let acked = consumer.ack_and_wait(AckType::Individual, vec![message.id]);
        soon("an answer to ACK", acked).await.unwrap();
    }
    let at_half = all[half - 1].0;
    drop(client);
    node.kill();
    let node = start(data.path());
    let client = node.client().await;
    let mut consumer = client.subscribe("t", options()).await.unwrap();
    for one in &all[half..] {
        let message = receive(&mut consumer).await;
        assert_eq!(shown(&message).as_ref(), Some(one), "after {at_half:?}");
        consumer.ack(&message.id).await.unwrap();
    }
    // The first again, as far as it is left.
    soon("a seek", consumer.seek(earliest())).await.unwrap();
    consumer.resubscribe().await.unwrap();
    let message = receive(&mut consumer).await;
    assert_eq!(shown(&message).as_ref(), all.first());
    // What was compacted is given up by the name that its cursor has in Pulsar.
    consumer.close().await.unwrap();
    node.order(
        "DELETE",
        "/admin/v2/persistent/public/default/t/subscription/__compaction",
        "",
    );
    assert_eq!(node.internal_stats("t")["compactedLedger"]["ledgerId"], -1);
    node.order("DELETE", "/admin/v2/persistent/public/default/t?force=true", "");
}
