//! The loop of a receiving thread, whatever protocol it speaks, and what it counts of every message.

use anyhow::bail;

use crate::clock;
use crate::net::{FrameSink, Poller, Ready, Scratch};
use crate::proto::frame::FrameError;
use crate::proto::payload::{Bodies, Stamp};

use super::link::Link;
use super::order::OrderOf;
use super::slice::{Control, Event, Side, Slice, Teller};

/// Longest sleep.
const TICK_NS: u64 = 20_000_000;
/// Acknowledgements are written out when this many bytes have gathered, when the socket has been read empty, and on a tick.
const FLUSH_BYTES: usize = 16 << 10;

/// Producers whose number has this bit wrote the backlog.
pub const BACKLOG_SOURCE: u32 = 1 << 31;

/// Protocol implementation of a receiving thread.
pub trait ReceiveProtocol {
    /// Consumers may have messages from now on: appends what asks for the first ones over connection `link`.
    fn begin(&mut self, link: usize, out: &mut Vec<u8>);

    /// Returns the length of the frame that begins with these bytes, once it is known.
    ///
    /// # Errors
    /// The broker broke the framing.
    fn whole_len(start: &[u8]) -> Result<Option<usize>, FrameError>;

    /// Handles one whole frame received on connection `link`; answers go to `out`, messages to `count`.
    ///
    /// # Errors
    /// The frame cannot be read.
    fn on_frame(
        &mut self,
        link: usize,
        frame: &[u8],
        out: &mut Vec<u8>,
        count: &mut Count<'_>,
    ) -> Result<(), FrameError>;
}

/// Consumers of a receiving thread.
#[derive(Clone, Copy, Debug)]
pub struct Seats {
    /// Consumers of the thread, numbered from 0.
    pub consumers: usize,
    /// True if each consumer gets all messages of a producer in order.
    pub ordered: bool,
    /// True if each consumer must receive every producer's first message.
    pub from_first: bool,
}

/// Counts messages, and compares each with what was sent.
#[derive(Debug)]
pub struct Count<'a> {
    seats: Seats,
    orders: &'a mut [OrderOf],
    bodies: &'a Bodies,
    slice: &'a mut Slice,
    side: Side,
    trouble: Option<String>,
    /// Wall clock when the read returned; taken once per read.
    now_ns: u64,
}

impl Count<'_> {
    /// A message reached `consumer`. One without a stamp is of another tool: all it says is `published_ms`, the millisecond it was
    /// published in.
    #[inline]
    pub fn message(&mut self, consumer: usize, payload: &[u8], published_ms: u64) {
        if self.now_ns == 0 {
            self.now_ns = clock::wall_ns(clock::monotonic_ns());
        }
        self.slice.messages += 1;
        self.slice.bytes += payload.len() as u64;
        let Some(stamp) = Stamp::read(payload) else {
            let latency = self.now_ns.saturating_sub(published_ms * 1_000_000);
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
        if self.seats.ordered
            && let Some(order) = self.orders.get_mut(consumer)
        {
            order.check(&stamp, self.seats.from_first, self.slice);
        }
    }

    /// The run cannot go on.
    pub fn fail(&mut self, why: String) {
        self.trouble.get_or_insert(why);
    }
}

/// Receives until stopped; reports through `teller`. The token of a link is its number.
///
/// # Errors
/// A connection is lost, or the protocol said that the run cannot go on.
pub fn receive<P: ReceiveProtocol>(
    mut protocol: P,
    (mut poller, mut links): (Poller, Vec<Link>),
    seats: Seats,
    control: &Control,
    mut teller: Teller,
) -> anyhow::Result<()> {
    let mut flowing = control.may_receive(teller.side());
    if flowing {
        begin(&mut protocol, &mut links, &poller)?;
    }
    teller.say(Event::Ready);
    let mut orders: Vec<OrderOf> = (0..seats.consumers).map(|_| OrderOf::default()).collect();
    let bodies = Bodies::default();
    let (mut ready, mut scratch) = (Vec::<Ready>::new(), Scratch::default());
    let mut flushed_ns = 0;
    while !control.stopped(Side::Receive) && !control.aborted() {
        if !flowing && control.may_receive(teller.side()) {
            flowing = true;
            begin(&mut protocol, &mut links, &poller)?;
        }
        poller.wait(TICK_NS, &mut ready)?;
        for event in &ready {
            let number = event.token as usize;
            let Some(link) = links.get_mut(number) else {
                continue;
            };
            let mut drained = true;
            if event.readable {
                let side = teller.side();
                let mut sink = Deliveries {
                    protocol: &mut protocol,
                    link: number,
                    count: Count {
                        seats,
                        orders: &mut orders,
                        bodies: &bodies,
                        slice: &mut teller.slice,
                        side,
                        trouble: None,
                        now_ns: 0,
                    },
                };
                drained = link.read(&mut scratch, &mut sink)?;
                if let Some(trouble) = sink.count.trouble {
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
        teller.tick(now, control);
    }
    teller.flush();
    Ok(())
}

/// Asks for the first messages of all consumers.
fn begin(protocol: &mut impl ReceiveProtocol, links: &mut [Link], poller: &Poller) -> anyhow::Result<()> {
    for (number, link) in links.iter_mut().enumerate() {
        protocol.begin(number, &mut link.outbound.buf);
        link.flush(poller)?;
    }
    Ok(())
}

struct Deliveries<'a, P> {
    protocol: &'a mut P,
    link: usize,
    count: Count<'a>,
}

impl<P: ReceiveProtocol> FrameSink for Deliveries<'_, P> {
    fn whole_len(start: &[u8]) -> Result<Option<usize>, FrameError> {
        P::whole_len(start)
    }

    fn on_frame(&mut self, whole: &[u8], out: &mut Vec<u8>) -> Result<(), FrameError> {
        self.protocol.on_frame(self.link, whole, out, &mut self.count)
    }
}
