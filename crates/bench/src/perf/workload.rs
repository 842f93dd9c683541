//! Turns the command line of a throughput run into what each load thread has to do.

use std::collections::HashMap;
use std::net::SocketAddr;

use anyhow::{Context as _, ensure};
use serde_json::{Map, Value, json};

use crate::access::Access;
use crate::args::{LoadArgs, PublishArgs, ReceiveArgs};
use crate::clock;
use crate::proto::payload::STAMP_BYTES;
use crate::session::{self, Session};
use crate::target::Target;

use super::consumer::{ConsumerPlan, ReceivePlan};
use super::producer::{ProducerPlan, PublishPlan};

/// Work of all load threads.
pub(super) struct Workload {
    /// For the heading.
    pub(super) title: String,
    /// For the JSON.
    pub(super) facts: Map<String, Value>,
    /// Plans, one per publishing thread.
    pub(super) publishers: Vec<PublishPlan>,
    /// Plans, one per receiving thread.
    pub(super) receivers: Vec<ReceivePlan>,
    /// Expected receives per message.
    pub(super) subscriptions: u64,
}

impl Workload {
    /// Finds topics, partitions and brokers, and deals producers and consumers out to threads.
    pub(super) fn new(
        load: &LoadArgs,
        publish: Option<&PublishArgs>,
        receive: Option<&ReceiveArgs>,
        target: &Target,
    ) -> anyhow::Result<Self> {
        if let Some(publish) = publish {
            ensure!(
                publish.size >= STAMP_BYTES as u64,
                "--size must be at least {STAMP_BYTES} bytes"
            );
            ensure!(
                publish.window > 0 && publish.batch_messages > 0,
                "--window and --batch-messages must be positive"
            );
        }
        ensure!(
            load.topics > 0 && load.threads > 0,
            "--topics and --threads must be positive"
        );
        let topics = find_topics(load, target)?;
        let publishers =
            publish.map_or_else(Vec::new, |args| publishers(load, args, &target.access, &topics));
        let receivers = receive.map_or_else(Vec::new, |args| receivers(load, args, &target.access, &topics));
        let subscriptions = receive.map_or(0, |args| u64::from(args.subscriptions));
        Ok(Self {
            title: title(load, publish, receive, topics.len()),
            facts: facts(load, publish, receive),
            publishers,
            receivers,
            subscriptions,
        })
    }

    /// True if the run both publishes and receives every message.
    pub(super) fn is_e2e(&self) -> bool {
        !self.publishers.is_empty() && !self.receivers.is_empty()
    }
}

/// Topics and partitions, each with its broker.
fn find_topics(load: &LoadArgs, target: &Target) -> anyhow::Result<Vec<(String, SocketAddr)>> {
    let access = &target.access;
    let base = load
        .topic
        .clone()
        .unwrap_or_else(|| format!("bench-{:x}", clock::realtime_ns() / 1_000_000));
    let base = session::full_topic(&base);
    let mut session = Session::open(session::resolve(&target.url)?, access)?;
    let mut found = Vec::new();
    for number in 0..load.topics {
        let topic = if load.topics == 1 {
            base.clone()
        } else {
            format!("{base}-{number}")
        };
        if load.partitions > 0 {
            create_partitions(&topic, load.partitions, target)?;
        }
        let partitions = session.partitions(&topic)?;
        let names: Vec<String> = match partitions {
            0 => vec![topic],
            count => (0..count)
                .map(|partition| format!("{topic}-partition-{partition}"))
                .collect(),
        };
        for name in names {
            let broker = session::find_broker(&target.url, &name, access)?;
            found.push((name, broker));
        }
    }
    Ok(found)
}

/// Creates a partitioned topic; one that exists is taken as it is.
fn create_partitions(topic: &str, partitions: u32, target: &Target) -> anyhow::Result<()> {
    let http = target.http.as_ref().context("--partitions needs --http-url")?;
    let path = format!("/admin/v2/{}/partitions", topic.replacen("://", "/", 1));
    let status = http.put(&path, &partitions.to_string())?;
    ensure!(
        (200..300).contains(&status) || status == 409,
        "creating {topic} answered {status}"
    );
    Ok(())
}

fn publishers(
    load: &LoadArgs,
    args: &PublishArgs,
    access: &Access,
    topics: &[(String, SocketAddr)],
) -> Vec<PublishPlan> {
    let count = topics.len() * args.producers as usize;
    let mut plans = vec![
        PublishPlan {
            access: access.clone(),
            producers: Vec::new(),
            size: args.size as usize,
            connections: 1,
            rate: args.rate / count.max(1) as f64,
            limit: None,
            batch_messages: args.batch_messages,
            batch_bytes: args.batch_bytes as usize,
            batch_delay_ns: args.batch_delay.as_nanos() as u64,
            window: args.window as usize,
        };
        (load.threads as usize).min(count).max(1)
    ];
    let threads = plans.len();
    for source in 0..count {
        if let (Some((topic, broker)), Some(plan)) =
            (topics.get(source % topics.len()), plans.get_mut(source % threads))
        {
            plan.producers.push(ProducerPlan {
                topic: topic.clone(),
                broker: *broker,
                source: source as u32,
                offset_ns: offset_ns(source, args.rate),
            });
        }
    }
    plans.retain(|plan| !plan.producers.is_empty());
    plans
}

/// Producers take turns: the first message of number `source` is due so long after the start.
pub(super) fn offset_ns(source: usize, total_rate: f64) -> u64 {
    if total_rate > 0.0 {
        (source as f64 / total_rate * 1e9) as u64
    } else {
        0
    }
}

fn receivers(
    load: &LoadArgs,
    args: &ReceiveArgs,
    access: &Access,
    topics: &[(String, SocketAddr)],
) -> Vec<ReceivePlan> {
    let mut consumers = Vec::new();
    for subscription in 0..args.subscriptions {
        let name = match args.subscriptions {
            1 => args.subscription.clone(),
            _ => format!("{}-{subscription}", args.subscription),
        };
        for (topic, broker) in topics {
            for number in 0..args.consumers {
                consumers.push(ConsumerPlan {
                    topic: topic.clone(),
                    broker: *broker,
                    subscription: name.clone(),
                    name: format!("c-{number:06}"),
                });
            }
        }
    }
    let mut plans = vec![
        ReceivePlan {
            access: access.clone(),
            consumers: Vec::new(),
            connections: 1,
            from_first: false,
            subscription_type: args.subscription_type,
            ack: args.ack,
            receiver_queue: args.receiver_queue.max(1),
            earliest: args.earliest,
            broadcast: false,
        };
        (load.threads as usize).min(consumers.len()).max(1)
    ];
    let threads = plans.len();
    for (number, consumer) in consumers.into_iter().enumerate() {
        if let Some(plan) = plans.get_mut(number % threads) {
            plan.consumers.push(consumer);
        }
    }
    plans.retain(|plan| !plan.consumers.is_empty());
    plans
}

fn title(
    load: &LoadArgs,
    publish: Option<&PublishArgs>,
    receive: Option<&ReceiveArgs>,
    topics: usize,
) -> String {
    let mut parts = vec![format!("{topics} topics or partitions of {}", load.topics)];
    if let Some(args) = publish {
        let rate = if args.rate > 0.0 {
            format!("{} messages/s", args.rate)
        } else {
            "closed loop".to_owned()
        };
        parts.push(format!(
            "{} producers each, {} B, {rate}",
            args.producers, args.size
        ));
    }
    if let Some(args) = receive {
        parts.push(format!(
            "{} subscriptions with {} consumers",
            args.subscriptions, args.consumers
        ));
    }
    parts.join("; ")
}

fn facts(
    load: &LoadArgs,
    publish: Option<&PublishArgs>,
    receive: Option<&ReceiveArgs>,
) -> Map<String, Value> {
    let mut facts: HashMap<&str, Value> = HashMap::from([
        ("driver", json!("pharos-bench")),
        ("topics", json!(load.topics)),
        ("partitions", json!(load.partitions.max(1))),
    ]);
    if let Some(args) = publish {
        facts.extend([
            ("messageSize", json!(args.size)),
            ("producersPerTopic", json!(args.producers)),
            ("targetRate", json!(args.rate)),
            ("batchingMaxMessages", json!(args.batch_messages)),
            ("batchingMaxBytes", json!(args.batch_bytes)),
            ("window", json!(args.window)),
        ]);
    }
    if let Some(args) = receive {
        facts.extend([
            ("subscriptionsPerTopic", json!(args.subscriptions)),
            ("consumersPerTopic", json!(args.consumers * args.subscriptions)),
        ]);
    }
    facts
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
}
