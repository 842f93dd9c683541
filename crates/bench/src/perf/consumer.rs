//! A receiving thread: any number of consumers over a few connections.

use std::net::SocketAddr;

use anyhow::bail;
use pharos_wire::command::Command;
use pharos_wire::proto::CommandSubscribe;
use pharos_wire::proto::command_subscribe::InitialPosition;
use pharos_wire::{frame as wire_frame, request};

use crate::access::Access;
use crate::clock;
use crate::net::{FrameSink, Poller, Ready, Scratch};
use crate::proto::ack::{AckMode, write_ack, write_flow};
use crate::proto::command::{self, SubscriptionType};
use crate::proto::frame::{self, FrameError};
use crate::proto::message::{self, Content, MetadataPeek};
use crate::proto::payload::{Bodies, Stamp};

use super::link::{Link, Sessions};
use super::order::OrderOf;
use super::slice::{Control, Event, Side, Slice, Teller};

/// Longest sleep.
const TICK_NS: u64 = 20_000_000;
/// Acknowledgements are written out when this many bytes have gathered, when the socket has been read empty, and on a tick.
const FLUSH_BYTES: usize = 16 << 10;

/// Producers whose number has this bit wrote the backlog.
pub(crate) const BACKLOG_SOURCE: u32 = 1 << 31;

/// One consumer to subscribe.
#[derive(Clone, Debug)]
pub(crate) struct ConsumerPlan {
    /// Its topic or partition.
    pub(crate) topic: String,
    /// The broker that serves it.
    pub(crate) broker: SocketAddr,
    /// Its subscription.
    pub(crate) subscription: String,
    /// Its name.
    pub(crate) name: String,
}

/// How all consumers of a thread receive.
#[derive(Clone, Debug)]
pub(crate) struct ReceivePlan {
    /// JSON Web Token.
    pub(crate) access: Access,
    /// The consumers.
    pub(crate) consumers: Vec<ConsumerPlan>,
    /// Connections to each broker.
    pub(crate) connections: u32,
    /// Subscription type.
    pub(crate) subscription_type: SubscriptionType,
    /// How they acknowledge.
    pub(crate) ack: AckMode,
    /// Permits granted at first.
    pub(crate) receiver_queue: u32,
    /// Whether new subscriptions begin at the oldest message.
    pub(crate) earliest: bool,
    /// Whether every consumer must see every producer's first message.
    pub(crate) from_first: bool,
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
        Some(subscribe)
    }

    /// Opens the connections and subscribes all; the connection of each consumer.
    pub(crate) fn connect(&self) -> anyhow::Result<(Vec<usize>, Sessions)> {
        let mut sessions = Sessions::new(self.connections);
        let mut link_of = Vec::new();
        for (number, consumer) in self.consumers.iter().enumerate() {
            link_of.push(sessions.to(consumer.broker, number, &self.access)?);
        }
        for (link, session) in sessions.all() {
            let own = link_of.iter().zip(&self.consumers).enumerate();
            let own = own.filter(|(_, (at, _))| **at == link);
            session.ask_all(own.filter_map(|(number, (_, consumer))| {
                let subscribe = self.subscribe(number, 0)?;
                let make = move |id| {
                    let mut subscribe = subscribe.clone();
                    subscribe.request_id = id;
                    subscribe.into()
                };
                let what = format!("subscription {} of {}", consumer.subscription, consumer.topic);
                Some((what, make))
            }))?;
        }
        Ok((link_of, sessions))
    }
}

/// One consumer at work.
#[derive(Debug, Default)]
struct LoadConsumer {
    taken: u32,
    order: OrderOf,
}

/// Runs until stopped; reports through `teller`.
///
/// # Errors
/// A connection is lost, or a consumer is refused or closed.
pub(crate) fn run(plan: &ReceivePlan, control: &Control, mut teller: Teller) -> anyhow::Result<()> {
    let mut poller = Poller::new()?;
    let (link_of, sessions) = plan.connect()?;
    let mut links = sessions.into_links(&poller)?;
    let mut flowing = control.may_receive(teller.side());
    if flowing {
        grant(plan, &link_of, &mut links, &poller)?;
    }
    teller.say(Event::Ready);
    let mut seats: Vec<LoadConsumer> = plan.consumers.iter().map(|_| LoadConsumer::default()).collect();
    let bodies = Bodies::default();
    let (mut ready, mut scratch) = (Vec::<Ready>::new(), Scratch::default());
    let mut flushed_ns = 0;
    while !control.stopped(Side::Receive) && !control.aborted() {
        if !flowing && control.may_receive(teller.side()) {
            flowing = true;
            grant(plan, &link_of, &mut links, &poller)?;
        }
        poller.wait(TICK_NS, &mut ready)?;
        for event in &ready {
            let Some(link) = links.get_mut(event.token as usize) else {
                continue;
            };
            let mut drained = true;
            if event.readable {
                drained = receive(plan, link, &mut seats, &bodies, &mut scratch, &mut teller)?;
            }
            if event.writable || drained || link.outbound.len() >= FLUSH_BYTES {
                link.flush(&poller)?;
            }
        }
        let now = clock::monotonic_ns();
        if now - flushed_ns >= TICK_NS {
            flushed_ns = now;
            for link in links.iter_mut().filter(|link| link.outbound.len() > 0) {
                link.flush(&poller)?;
            }
        }
        teller.tick(now, control);
    }
    teller.flush();
    Ok(())
}

/// The first permits of all consumers.
fn grant(plan: &ReceivePlan, link_of: &[usize], links: &mut [Link], poller: &Poller) -> anyhow::Result<()> {
    for (number, link) in link_of.iter().enumerate() {
        if let Some(link) = links.get_mut(*link) {
            write_flow(&mut link.outbound.buf, number as u64, plan.receiver_queue);
        }
    }
    for link in links {
        link.flush(poller)?;
    }
    Ok(())
}

/// One read of one connection; true if its socket is empty now.
fn receive(
    plan: &ReceivePlan,
    link: &mut Link,
    seats: &mut [LoadConsumer],
    bodies: &Bodies,
    scratch: &mut Scratch,
    teller: &mut Teller,
) -> anyhow::Result<bool> {
    let ordered = matches!(
        plan.subscription_type,
        SubscriptionType::Exclusive | SubscriptionType::Failover
    );
    let side = teller.side();
    let mut sink = Deliveries {
        plan,
        seats,
        bodies,
        slice: &mut teller.slice,
        ordered,
        side,
        trouble: None,
        now_ns: 0,
    };
    let drained = link.read(scratch, &mut sink)?;
    match sink.trouble {
        Some(trouble) => bail!(trouble),
        None => Ok(drained),
    }
}

/// Takes deliveries.
struct Deliveries<'a> {
    plan: &'a ReceivePlan,
    seats: &'a mut [LoadConsumer],
    bodies: &'a Bodies,
    slice: &'a mut Slice,
    ordered: bool,
    side: Side,
    trouble: Option<String>,
    /// Wall clock when the read returned; taken once per read.
    now_ns: u64,
}

impl Deliveries<'_> {
    fn deliver(&mut self, whole: &[u8], command: &[u8], out: &mut Vec<u8>) -> Result<(), FrameError> {
        let part = whole.get(8 + command.len()..).ok_or(FrameError::Malformed)?;
        let delivery = message::parse_command(command).ok_or(FrameError::Malformed)?;
        let content = message::parse_content(part).ok_or(FrameError::Malformed)?;
        let peek = message::peek_metadata(content.metadata).ok_or(FrameError::Malformed)?;
        if self.now_ns == 0 {
            self.now_ns = clock::wall_ns(clock::monotonic_ns());
        }
        let count = self.take(delivery.consumer_id, &content, &peek);
        write_ack(out, &delivery, self.plan.ack);
        let half = self.plan.receiver_queue.div_ceil(2).max(1);
        if let Some(seat) = self.seats.get_mut(delivery.consumer_id as usize) {
            seat.taken += count;
            if seat.taken >= half {
                write_flow(out, delivery.consumer_id, seat.taken);
                seat.taken = 0;
            }
        }
        Ok(())
    }

    /// Counts the messages of one entry.
    fn take(&mut self, consumer_id: u64, content: &Content<'_>, peek: &MetadataPeek) -> u32 {
        let batch = peek.batch.filter(|_| peek.compression == 0);
        let Some(count) = batch else {
            self.take_one(consumer_id, content.payload, peek);
            return peek.batch.unwrap_or(1);
        };
        let mut rest = content.payload;
        for _ in 0..count {
            let Some(payload) = message::next_in_batch(&mut rest) else {
                break;
            };
            self.take_one(consumer_id, payload, peek);
        }
        count
    }

    #[inline]
    fn take_one(&mut self, consumer_id: u64, payload: &[u8], peek: &MetadataPeek) {
        self.slice.messages += 1;
        self.slice.bytes += payload.len() as u64;
        let Some(stamp) = Stamp::read(payload) else {
            // A message of another tool: all it says is the millisecond it was published in.
            let latency = self.now_ns.saturating_sub(peek.publish_time_ms * 1_000_000);
            self.slice.latencies.record(latency, 1);
            return;
        };
        self.slice.damaged += u64::from(!self.bodies.is_right(&stamp, payload));
        if self.side != Side::Backlog {
            let latency = self.now_ns.saturating_sub(stamp.sent_ns);
            self.slice.latencies.record(latency, 1);
        } else if stamp.source & BACKLOG_SOURCE != 0 {
            // How long a message of the backlog lay there says nothing.
            self.slice.backlog_messages += 1;
            self.slice.backlog_bytes += payload.len() as u64;
            self.slice.backlog_at_ns = self.now_ns;
        }
        if self.ordered
            && let Some(seat) = self.seats.get_mut(consumer_id as usize)
        {
            seat.order.check(&stamp, self.plan.from_first, self.slice);
        }
    }
}

impl FrameSink for Deliveries<'_> {
    fn on_frame(&mut self, whole: &[u8], out: &mut Vec<u8>) -> Result<(), FrameError> {
        let (command, _) = frame::split(whole).ok_or(FrameError::Malformed)?;
        if frame::command_type(command) == Some(9) {
            return self.deliver(whole, command, out);
        }
        match wire_frame::decode_command(command).map_err(|_| FrameError::Malformed)? {
            Command::Error(error) => self.trouble = Some(command::refusal(&error)),
            Command::CloseConsumer(_) => self.trouble = Some("the broker closed a consumer".to_owned()),
            Command::Ping(_) => command::push(out, &request::pong()),
            _ => {}
        }
        Ok(())
    }
}
