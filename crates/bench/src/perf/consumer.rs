//! Receiving in the Pulsar protocol; the loop is [`super::receive`]'s.

use std::net::SocketAddr;

use pharos_wire::command::Command;
use pharos_wire::proto::CommandSubscribe;
use pharos_wire::proto::command_subscribe::InitialPosition;
use pharos_wire::{frame as wire_frame, request};

use crate::access::Access;
use crate::net::Poller;
use crate::proto::ack::{AckMode, write_ack, write_flow};
use crate::proto::command::{self, SubscriptionType};
use crate::proto::frame::{self, FrameError};
use crate::proto::message::{self, Content, MetadataPeek};

use super::link::Sessions;
use super::receive::{Count, ReceiveProtocol, Seats, receive};
use super::slice::{Control, Teller};

/// Consumer to subscribe.
#[derive(Clone, Debug)]
pub struct ConsumerPlan {
    /// Its topic or partition.
    pub topic: String,
    /// The broker that serves it.
    pub broker: SocketAddr,
    /// Its subscription.
    pub subscription: String,
    /// Its name.
    pub name: String,
}

/// Receive options of all consumers of a thread.
#[derive(Clone, Debug)]
pub struct ReceivePlan {
    /// JSON Web Token.
    pub access: Access,
    /// The consumers.
    pub consumers: Vec<ConsumerPlan>,
    /// Connections to each broker.
    pub connections: u32,
    /// Subscription type.
    pub subscription_type: SubscriptionType,
    /// Acknowledgement mode.
    pub ack: AckMode,
    /// Permits granted at first.
    pub receiver_queue: u32,
    /// True if new subscriptions begin at the oldest message.
    pub earliest: bool,
    /// True if every consumer must receive every producer's first message.
    pub from_first: bool,
    /// True if subscriptions are broadcast: any number of consumers, each with all messages (a Pharos broker).
    pub broadcast: bool,
}

impl ReceivePlan {
    /// The `SUBSCRIBE` of one of its consumers.
    pub(crate) fn subscribe(&self, number: usize, request_id: u64) -> Option<CommandSubscribe> {
        let consumer = self.consumers.get(number)?;
        let wire_type = self.subscription_type.wire();
        let mut subscribe = request::subscribe(
            &consumer.topic,
            &consumer.subscription,
            wire_type,
            number as u64,
            request_id,
        );
        subscribe.consumer_name = Some(consumer.name.clone());
        let position = if self.earliest {
            InitialPosition::Earliest
        } else {
            InitialPosition::Latest
        };
        subscribe.initial_position = Some(position as i32);
        if self.broadcast {
            subscribe.metadata = command::broadcast_properties();
            subscribe.subscription_properties = command::broadcast_properties();
        }
        Some(subscribe)
    }

    /// Subscribes all and leaves again: durable subscriptions stay, and what comes is kept for them.
    ///
    /// # Errors
    /// A broker cannot be reached or refuses a subscription.
    pub fn subscribe_all(&self) -> anyhow::Result<()> {
        self.connect(&mut || {}).map(drop)
    }

    /// Opens the connections and subscribes all; the connection of each consumer. `attached` hears of each consumer.
    pub(crate) fn connect(&self, attached: &mut dyn FnMut()) -> anyhow::Result<(Vec<usize>, Sessions)> {
        let mut sessions = Sessions::new(self.connections);
        let mut link_of = Vec::new();
        for (number, consumer) in self.consumers.iter().enumerate() {
            link_of.push(sessions.to(consumer.broker, number, &self.access)?);
        }
        for (link, session) in sessions.all() {
            let own = link_of.iter().zip(&self.consumers).enumerate();
            let own = own.filter(|(_, (at, _))| **at == link);
            let requests = own.filter_map(|(number, (_, consumer))| {
                let subscribe = self.subscribe(number, 0)?;
                let make = move |id| {
                    let mut subscribe = subscribe.clone();
                    subscribe.request_id = id;
                    subscribe.into()
                };
                let what = format!("subscription {} of {}", consumer.subscription, consumer.topic);
                Some((what, make))
            });
            session.ask_each(requests, attached)?;
        }
        Ok((link_of, sessions))
    }
}

/// Runs until stopped; reports through `teller`.
///
/// # Errors
/// A connection is lost, or a consumer is refused or closed.
pub fn run(plan: &ReceivePlan, control: &Control, mut teller: Teller) -> anyhow::Result<()> {
    let poller = Poller::new()?;
    let (link_of, sessions) = plan.connect(&mut || teller.attached())?;
    let links = sessions.into_links(&poller)?;
    let seats = Seats {
        consumers: plan.consumers.len(),
        ordered: matches!(
            plan.subscription_type,
            SubscriptionType::Exclusive | SubscriptionType::Failover
        ),
        from_first: plan.from_first,
    };
    let mut own = vec![Vec::new(); links.len()];
    for (number, link) in link_of.iter().enumerate() {
        if let Some(own) = own.get_mut(*link) {
            own.push(number as u64);
        }
    }
    let protocol = PulsarReceive {
        plan,
        own,
        taken: vec![0; plan.consumers.len()],
    };
    receive(protocol, (poller, links), seats, control, teller)
}

struct PulsarReceive<'a> {
    plan: &'a ReceivePlan,
    /// Consumers of each connection.
    own: Vec<Vec<u64>>,
    /// Messages since permits were last granted, by consumer.
    taken: Vec<u32>,
}

impl PulsarReceive<'_> {
    fn deliver(
        &mut self,
        whole: &[u8],
        command: &[u8],
        out: &mut Vec<u8>,
        count: &mut Count<'_>,
    ) -> Result<(), FrameError> {
        let part = whole.get(8 + command.len()..).ok_or(FrameError::Malformed)?;
        let delivery = message::parse_command(command).ok_or(FrameError::Malformed)?;
        let content = message::parse_content(part).ok_or(FrameError::Malformed)?;
        let peek = message::peek_metadata(content.metadata).ok_or(FrameError::Malformed)?;
        let messages = take(delivery.consumer_id as usize, &content, &peek, count);
        write_ack(out, &delivery, self.plan.ack);
        let half = self.plan.receiver_queue.div_ceil(2).max(1);
        if let Some(taken) = self.taken.get_mut(delivery.consumer_id as usize) {
            *taken += messages;
            if *taken >= half {
                write_flow(out, delivery.consumer_id, *taken);
                *taken = 0;
            }
        }
        Ok(())
    }
}

/// Counts the messages of one entry.
fn take(consumer: usize, content: &Content<'_>, peek: &MetadataPeek, count: &mut Count<'_>) -> u32 {
    let batch = peek.batch.filter(|_| peek.compression == 0);
    let Some(messages) = batch else {
        count.message(consumer, content.payload, peek.publish_time_ms);
        return peek.batch.unwrap_or(1);
    };
    let mut rest = content.payload;
    for _ in 0..messages {
        let Some(payload) = message::next_in_batch(&mut rest) else {
            break;
        };
        count.message(consumer, payload, peek.publish_time_ms);
    }
    messages
}

impl ReceiveProtocol for PulsarReceive<'_> {
    fn begin(&mut self, link: usize, out: &mut Vec<u8>) {
        for consumer in self.own.get(link).into_iter().flatten() {
            write_flow(out, *consumer, self.plan.receiver_queue);
        }
    }

    fn whole_len(start: &[u8]) -> Result<Option<usize>, FrameError> {
        frame::whole_len(start)
    }

    fn on_frame(
        &mut self,
        _link: usize,
        whole: &[u8],
        out: &mut Vec<u8>,
        count: &mut Count<'_>,
    ) -> Result<(), FrameError> {
        let (command, _) = frame::split(whole).ok_or(FrameError::Malformed)?;
        if frame::command_type(command) == Some(9) {
            return self.deliver(whole, command, out, count);
        }
        match wire_frame::decode_command(command).map_err(|_| FrameError::Malformed)? {
            Command::Error(error) => count.fail(command::refusal(&error)),
            Command::CloseConsumer(_) => count.fail("the broker closed a consumer".to_owned()),
            Command::Ping(_) => command::push(out, &request::pong()),
            _ => {}
        }
        Ok(())
    }
}
