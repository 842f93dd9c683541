//! A receiving thread: any number of consumers over one connection per broker.

use std::net::SocketAddr;

use anyhow::bail;
use pharos_wire::command::Command;
use pharos_wire::proto::command_subscribe::InitialPosition;
use pharos_wire::{frame as wire_frame, request};

use crate::clock;
use crate::net::{FrameSink, Poller, Ready};
use crate::proto::ack::{AckMode, write_ack, write_flow};
use crate::proto::command::{self, SubscriptionType};
use crate::proto::frame::{self, FrameError};
use crate::proto::message::{self, Content, MetadataPeek};
use crate::proto::payload::Stamp;

use super::link::Sessions;
use super::slice::{Control, Event, Side, Slice, Teller};

/// Longest sleep.
const TICK_NS: u64 = 20_000_000;
/// Acknowledgements are written out when this many bytes have gathered, when the socket has been read empty, and on a tick.
const FLUSH_BYTES: usize = 16 << 10;

/// One consumer to subscribe.
#[derive(Clone, Debug)]
pub(super) struct ConsumerPlan {
    /// Its topic or partition.
    pub(super) topic: String,
    /// The broker that serves it.
    pub(super) broker: SocketAddr,
    /// Its subscription.
    pub(super) subscription: String,
    /// Its name.
    pub(super) name: String,
}

/// How all consumers of a thread receive.
#[derive(Clone, Debug)]
pub(super) struct ReceivePlan {
    /// JSON Web Token.
    pub(super) token: Option<String>,
    /// The consumers.
    pub(super) consumers: Vec<ConsumerPlan>,
    /// Subscription type.
    pub(super) subscription_type: SubscriptionType,
    /// How they acknowledge.
    pub(super) ack: AckMode,
    /// Permits granted at first.
    pub(super) receiver_queue: u32,
    /// Whether new subscriptions begin at the oldest message.
    pub(super) earliest: bool,
}

/// One consumer at work.
#[derive(Debug, Default)]
struct Seat {
    taken: u32,
    /// The next sequence expected of each producer seen, by source.
    expected: Vec<(u32, u64)>,
}

/// Runs until stopped; reports through `teller`.
///
/// # Errors
/// A connection is lost, or a consumer is refused or closed.
pub(super) fn run(plan: &ReceivePlan, control: &Control, mut teller: Teller) -> anyhow::Result<()> {
    let mut poller = Poller::new()?;
    let mut sessions = Sessions::default();
    let mut link_of = Vec::new();
    for (number, consumer) in plan.consumers.iter().enumerate() {
        let link = sessions.to(consumer.broker, plan.token.as_deref())?;
        let wire_type = plan.subscription_type.wire();
        let mut subscribe = request::subscribe(
            &consumer.topic,
            &consumer.subscription,
            wire_type,
            number as u64,
            0,
        );
        subscribe.consumer_name = Some(consumer.name.clone());
        let position = if plan.earliest {
            InitialPosition::Earliest
        } else {
            InitialPosition::Latest
        };
        subscribe.initial_position = Some(position as i32);
        sessions.get(link)?.subscribe(subscribe)?;
        link_of.push(link);
    }
    let mut links = sessions.into_links(&poller)?;
    for (number, link) in link_of.into_iter().enumerate() {
        if let Some(link) = links.get_mut(link) {
            write_flow(&mut link.outbound.buf, number as u64, plan.receiver_queue);
        }
    }
    for link in &mut links {
        link.flush(&poller)?;
    }
    teller.say(Event::Ready);
    let ordered = matches!(
        plan.subscription_type,
        SubscriptionType::Exclusive | SubscriptionType::Failover
    );
    let mut seats: Vec<Seat> = plan.consumers.iter().map(|_| Seat::default()).collect();
    let (mut ready, mut scratch) = (Vec::<Ready>::new(), Vec::new());
    let mut flushed_ns = 0;
    while !control.stopped(Side::Receive) && !control.aborted() {
        poller.wait(TICK_NS, &mut ready)?;
        for event in &ready {
            let Some(link) = links.get_mut(event.token as usize) else {
                continue;
            };
            let mut drained = true;
            if event.readable {
                let slice = &mut teller.slice;
                let mut sink = Deliveries {
                    plan,
                    seats: &mut seats,
                    slice,
                    ordered,
                    trouble: None,
                    now_ns: 0,
                };
                drained = link.read(&mut scratch, &mut sink)?;
                if let Some(trouble) = sink.trouble {
                    bail!(trouble);
                }
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
        teller.tick(now);
    }
    teller.flush();
    Ok(())
}

/// Takes deliveries.
struct Deliveries<'a> {
    plan: &'a ReceivePlan,
    seats: &'a mut [Seat],
    slice: &'a mut Slice,
    ordered: bool,
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
            // Somebody else's message: all it says is the millisecond it was published in.
            let latency = self.now_ns.saturating_sub(peek.publish_time_ms * 1_000_000);
            self.slice.latencies.record(latency, 1);
            return;
        };
        self.slice
            .latencies
            .record(self.now_ns.saturating_sub(stamp.sent_ns), 1);
        if self.ordered
            && let Some(seat) = self.seats.get_mut(consumer_id as usize)
        {
            seat.check(&stamp, self.slice);
        }
    }
}

impl Seat {
    #[inline]
    fn check(&mut self, stamp: &Stamp, slice: &mut Slice) {
        match self
            .expected
            .iter_mut()
            .find(|(source, _)| *source == stamp.source)
        {
            Some((_, expected)) => {
                if stamp.sequence == *expected {
                    *expected += 1;
                } else if stamp.sequence > *expected {
                    slice.gaps += stamp.sequence - *expected;
                    *expected = stamp.sequence + 1;
                } else {
                    slice.out_of_order += 1;
                }
            }
            // Where a subscription begins is its own choice.
            None => self.expected.push((stamp.source, stamp.sequence + 1)),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_kept_per_producer() {
        let (mut seat, mut slice) = (Seat::default(), Slice::default());
        let mut check = |source, sequence| {
            seat.check(
                &Stamp {
                    sequence,
                    sent_ns: 0,
                    source,
                },
                &mut slice,
            );
        };
        for (source, sequence) in [(1, 5), (2, 0), (1, 6), (2, 1), (2, 4), (1, 6)] {
            check(source, sequence);
        }
        assert_eq!((slice.gaps, slice.out_of_order), (2, 1));
    }
}
