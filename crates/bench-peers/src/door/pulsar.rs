//! The Pulsar protocol: Pharos and Pulsar, through the load program's own threads.

use std::net::SocketAddr;

use anyhow::ensure;
use pharos_bench::load::{
    Access, AckMode, ConsumerPlan, Control, ProducerPlan, PublishPlan, ReceivePlan, Side, SubscriptionType,
    Teller, find_brokers, full_topic, http_put, publish_pulsar, receive_pulsar,
};
use serde::{Deserialize, Serialize};

use crate::share::{PublishShare, ReceiveShare, Slot, slots_of};
use crate::spec::Load;

/// Messages a consumer is ready to take.
const RECEIVER_QUEUE: u32 = 10_000;

/// Address of a Pulsar broker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PulsarDoor {
    /// `pulsar://host:port`.
    pub(crate) url: String,
    /// `http://host:port`.
    pub(crate) http_url: String,
    /// All consumers of a topic on one broadcast subscription (a Pharos broker).
    pub(crate) broadcast: bool,
    /// Its metrics page has the stages of messages (a Pharos broker).
    pub(crate) times_stages: bool,
}

/// The name of a topic.
fn topic_name(topic: u32) -> String {
    full_topic(&format!("b{topic}"))
}

impl PulsarDoor {
    fn name(load: &Load, slot: Slot) -> String {
        let topic = topic_name(slot.topic);
        match load.partitions {
            0 => topic,
            _ => format!("{topic}-partition-{}", slot.partition),
        }
    }

    /// Makes partitioned topics; others are made by their first client.
    pub(super) fn prepare(&self, load: &Load, kept: Option<&ReceiveShare>) -> anyhow::Result<()> {
        if load.partitions > 0 {
            for topic in 0..load.topics {
                let path = format!(
                    "/admin/v2/{}/partitions",
                    topic_name(topic).replacen("://", "/", 1)
                );
                let status = http_put(&self.http_url, &path, &load.partitions.to_string())?;
                ensure!(
                    (200..300).contains(&status),
                    "creating topic {topic} answered {status}"
                );
            }
        }
        if let Some(share) = kept {
            // A durable subscription stays when its consumer goes.
            self.receive_plan(load, share)?.subscribe_all()?;
        }
        Ok(())
    }

    fn brokers(&self, names: &[String]) -> anyhow::Result<Vec<SocketAddr>> {
        find_brokers(&self.url, names, &Access::default())
    }

    pub(super) fn publish(
        &self,
        load: &Load,
        share: &PublishShare,
        control: &Control,
        teller: Teller,
    ) -> anyhow::Result<()> {
        let names: Vec<String> = share
            .lanes
            .iter()
            .map(|lane| Self::name(load, lane.slot))
            .collect();
        let brokers = self.brokers(&names)?;
        let producers = share.lanes.iter().zip(names).zip(brokers);
        let plan = PublishPlan {
            access: Access::default(),
            producers: producers
                .map(|((lane, topic), broker)| ProducerPlan {
                    topic,
                    broker,
                    source: lane.source,
                    offset_ns: lane.offset_ns,
                })
                .collect(),
            connections: load.connections,
            size: share.pace.size,
            rate: share.pace.rate,
            limit: share.pace.limit,
            batch_messages: load.batch_messages,
            batch_bytes: load.batch_bytes,
            batch_delay_ns: share.pace.batch_delay_ns,
            window: share.pace.window,
        };
        publish_pulsar(&plan, control, teller)
    }

    fn receive_plan(&self, load: &Load, share: &ReceiveShare) -> anyhow::Result<ReceivePlan> {
        let mut consumers = Vec::new();
        let mut topics: Vec<u32> = share.units.iter().map(|unit| unit.topic).collect();
        topics.sort_unstable();
        topics.dedup();
        let slots: Vec<Slot> = topics.iter().flat_map(|topic| slots_of(load, *topic)).collect();
        let names: Vec<String> = slots.iter().map(|slot| Self::name(load, *slot)).collect();
        let brokers = self.brokers(&names)?;
        for unit in &share.units {
            let own = slots.iter().zip(&names).zip(&brokers);
            for ((_, name), broker) in own.filter(|((slot, _), _)| slot.topic == unit.topic) {
                let number = unit.subscription;
                let subscription = match self.broadcast {
                    true => share.prefix().to_owned(),
                    false => format!("{}-{number}", share.prefix()),
                };
                consumers.push(ConsumerPlan {
                    topic: name.clone(),
                    broker: *broker,
                    subscription,
                    name: format!("c-{number:06}"),
                });
            }
        }
        Ok(ReceivePlan {
            access: Access::default(),
            consumers,
            connections: load.connections,
            subscription_type: SubscriptionType::Exclusive,
            ack: AckMode::Individual,
            receiver_queue: RECEIVER_QUEUE,
            earliest: share.side == Side::Backlog,
            from_first: true,
            broadcast: self.broadcast,
        })
    }

    pub(super) fn receive(
        &self,
        load: &Load,
        share: &ReceiveShare,
        control: &Control,
        teller: Teller,
    ) -> anyhow::Result<()> {
        receive_pulsar(&self.receive_plan(load, share)?, control, teller)
    }
}
