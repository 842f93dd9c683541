//! Assignment of producers and readers to topics, from the load of a case.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::access::Access;
use crate::perf::consumer::{ConsumerPlan, ReceivePlan};
use crate::perf::producer::{ProducerPlan, PublishPlan};
use crate::perf::receive::BACKLOG_SOURCE;

use super::load::Load;

/// Prefixes of subscription and consumer names.
const HOT: &str = "hot";
const COLD: &str = "cold";

/// A topic and the broker that serves it.
pub(super) type Topic = (String, SocketAddr);

/// The plans of all threads.
pub(super) struct Plan {
    /// Publishers of the measured load.
    pub(super) publishers: Vec<PublishPlan>,
    /// Publishers that store the backlog first.
    pub(super) fillers: Vec<PublishPlan>,
    /// Readers at the tail.
    pub(super) hot: Vec<ReceivePlan>,
    /// Readers of the backlog.
    pub(super) cold: Vec<ReceivePlan>,
    /// Messages each filler's producer stores.
    pub(super) backlog_messages: u64,
    hot_by_topic: BTreeMap<usize, u64>,
    cold_by_topic: BTreeMap<usize, u64>,
    publish_topics: usize,
}

impl Plan {
    /// For these topics.
    pub(super) fn new(load: &Load, topics: &[Topic], access: &Access) -> Self {
        let hot_readers = load.hot_readers() as usize;
        let cold_readers = load.cold_readers as usize;
        let hot_by_topic = dealt(0, hot_readers, topics.len());
        let cold_by_topic = dealt(hot_readers, cold_readers, topics.len());
        let messages = load.backlog.0 / load.size.0 / (cold_by_topic.len() as u64).max(1);
        let backlog_messages = if cold_by_topic.is_empty() {
            0
        } else {
            messages.max(1)
        };
        let publish_topics = load.publish_topics() as usize;
        let producers = producers(load, topics);
        let fillers = cold_by_topic.keys().filter_map(|at| {
            let (topic, broker) = topics.get(*at)?;
            Some(ProducerPlan {
                topic: topic.clone(),
                broker: *broker,
                source: BACKLOG_SOURCE | *at as u32,
                offset_ns: 0,
            })
        });
        let fillers: Vec<ProducerPlan> = fillers.collect();
        let publishing = |producers, rate, limit| publish_plans(load, producers, access, rate, limit);
        let rate = load.total_rate() / f64::from(load.all_producers().max(1));
        let reading = |by_topic, name| receive_plans(load, topics, by_topic, name, access);
        Self {
            publishers: publishing(producers, rate, None),
            fillers: publishing(fillers, 0.0, Some(backlog_messages)),
            hot: reading(&hot_by_topic, HOT),
            cold: reading(&cold_by_topic, COLD),
            backlog_messages,
            hot_by_topic,
            cold_by_topic,
            publish_topics,
        }
    }

    /// Returns the average number of hot readers of a published message.
    pub(super) fn fanout(&self) -> f64 {
        let read: u64 = self
            .hot_by_topic
            .range(..self.publish_topics)
            .map(|(_, n)| n)
            .sum();
        read as f64 / self.publish_topics.max(1) as f64
    }

    /// Messages stored for the cold readers, counted once per reader.
    pub(super) fn backlog_reads(&self) -> u64 {
        self.cold_by_topic.values().sum::<u64>() * self.backlog_messages
    }

    /// Messages that hot and cold readers must have got altogether, given what each source sent.
    pub(super) fn expected(&self, sent: &BTreeMap<u32, u64>) -> (u64, u64) {
        let readers = |by_topic: &BTreeMap<usize, u64>, source: u32| {
            let topic = source as usize % self.publish_topics.max(1);
            by_topic.get(&topic).copied().unwrap_or(0)
        };
        let sum = |by_topic| {
            sent.iter()
                .map(|(source, count)| readers(by_topic, *source) * count)
                .sum::<u64>()
        };
        (
            sum(&self.hot_by_topic),
            sum(&self.cold_by_topic) + self.backlog_reads(),
        )
    }
}

/// Returns the number of readers per topic, with `count` readers distributed round-robin from topic number `first`
/// on.
fn dealt(first: usize, count: usize, topics: usize) -> BTreeMap<usize, u64> {
    let mut by_topic = BTreeMap::new();
    for number in first..first + count {
        *by_topic.entry(number % topics.max(1)).or_insert(0) += 1;
    }
    by_topic
}

fn producers(load: &Load, topics: &[Topic]) -> Vec<ProducerPlan> {
    let count = load.all_producers() as usize;
    let publish_topics = load.publish_topics().max(1) as usize;
    let rate = load.total_rate();
    (0..count)
        .filter_map(|source| {
            let (topic, broker) = topics.get(source % publish_topics)?;
            Some(ProducerPlan {
                topic: topic.clone(),
                broker: *broker,
                source: source as u32,
                offset_ns: if rate > 0.0 {
                    (source as f64 / rate * 1e9) as u64
                } else {
                    0
                },
            })
        })
        .collect()
}

fn publish_plans(
    load: &Load,
    producers: Vec<ProducerPlan>,
    access: &Access,
    rate: f64,
    limit: Option<u64>,
) -> Vec<PublishPlan> {
    deal(producers, load.threads)
        .into_iter()
        .map(|producers| PublishPlan {
            access: access.clone(),
            producers,
            connections: load.connections,
            size: load.size.0 as usize,
            rate,
            limit,
            batch_messages: load.batch_messages,
            batch_bytes: load.batch_bytes.0 as usize,
            batch_delay_ns: load.batch_delay.0.as_nanos() as u64,
            window: load.window as usize,
        })
        .collect()
}

fn receive_plans(
    load: &Load,
    topics: &[Topic],
    by_topic: &BTreeMap<usize, u64>,
    name: &str,
    access: &Access,
) -> Vec<ReceivePlan> {
    let mut consumers = Vec::new();
    for (at, readers) in by_topic {
        let Some((topic, broker)) = topics.get(*at) else {
            continue;
        };
        for number in 0..*readers {
            consumers.push(ConsumerPlan {
                topic: topic.clone(),
                broker: *broker,
                subscription: format!("{name}-{number}"),
                name: format!("{name}-{number}"),
            });
        }
    }
    deal(consumers, load.threads)
        .into_iter()
        .map(|consumers| ReceivePlan {
            access: access.clone(),
            consumers,
            connections: load.connections,
            subscription_type: load.subscription_type,
            ack: load.ack,
            receiver_queue: load.receiver_queue,
            // A hot reader comes before the first message it must see; what was stored before is not for it.
            earliest: name == COLD,
            from_first: true,
            broadcast: false,
        })
        .collect()
}

/// Deals `items` out to at most `hands` hands, none of them empty.
fn deal<T>(items: Vec<T>, hands: u32) -> Vec<Vec<T>> {
    let hands = (hands as usize).min(items.len());
    let mut dealt: Vec<Vec<T>> = (0..hands).map(|_| Vec::new()).collect();
    for (number, item) in items.into_iter().enumerate() {
        if let Some(hand) = dealt.get_mut(number % hands.max(1)) {
            hand.push(item);
        }
    }
    dealt
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::values::Size;

    fn plan(load: &Load) -> Plan {
        let address = "127.0.0.1:1".parse().expect("an address");
        let topics: Vec<Topic> = (0..load.topics).map(|n| (format!("t{n}"), address)).collect();
        Plan::new(load, &topics, &Access::default())
    }

    #[test]
    fn tenants_are_hot_or_cold_and_each_message_is_accounted_for() {
        let load = Load {
            topics: 150,
            hot_readers: Some(100),
            cold_readers: 50,
            backlog: Size(50 * 10 * 1024),
            threads: 2,
            ..Load::default()
        };
        let plan = plan(&load);
        assert_eq!((plan.hot.len(), plan.cold.len(), plan.fillers.len()), (2, 2, 2));
        assert_eq!((plan.backlog_messages, plan.backlog_reads()), (10, 500));
        assert!((plan.fanout() - 100.0 / 150.0).abs() < 1e-9);
        let sent: BTreeMap<u32, u64> = (0..150).map(|source| (source, 3)).collect();
        assert_eq!(plan.expected(&sent), (300, 650));
    }

    #[test]
    fn readers_share_a_topic_when_there_are_more_of_them() {
        let load = Load {
            topics: 1,
            hot_readers: Some(2),
            cold_readers: 1,
            backlog: Size(4096),
            producers: 2,
            ..Load::default()
        };
        let plan = plan(&load);
        let names: Vec<&str> = plan.hot[0]
            .consumers
            .iter()
            .map(|c| c.subscription.as_str())
            .collect();
        assert_eq!(names, ["hot-0", "hot-1"]);
        assert_eq!(plan.expected(&BTreeMap::from([(0, 5), (1, 5)])), (20, 14));
    }

    #[test]
    fn reading_alone_needs_no_producers() {
        let load = Load {
            topics: 3,
            producers: 0,
            cold_readers: 3,
            backlog: Size(30 * 1024),
            ..Load::default()
        };
        let plan = plan(&load);
        assert!(plan.publishers.is_empty() && plan.hot.is_empty());
        assert_eq!(plan.expected(&BTreeMap::new()), (0, 30));
    }
}
