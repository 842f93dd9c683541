//! Receiving from NATS: a pull consumer for each subscription, or with JetStream left out a subscription on the subjects.

use std::collections::BTreeMap;

use pharos_bench::load::{
    Control, Count, FrameError, Link, Poller, ReceiveProtocol, Seats, Side, Teller, receive,
};
use serde_json::{Value, json};

use super::setup::Session;
use super::wire::{self, Frame};
use super::{NatsDoor, slot, stream_name};
use crate::share::ReceiveShare;
use crate::spec::Load;

/// Messages asked for at once; half of it is asked for again each time half has come. The Go client's consumers do it so, with 500.
const PULL_MESSAGES: u64 = 1_000;
/// A pull that is not used up ends after this and is made again.
const PULL_NS: u64 = 30_000_000_000;
/// Messages per acknowledgement; each one covers all earlier messages.
const ACK_EVERY: u64 = 100;
/// Messages that may be without one.
const ACK_PENDING_MAX: u64 = 20_000;
/// A consumer without a client is forgotten after this.
const INACTIVE_NS: u64 = 600_000_000_000;
/// With more subscriptions than this on a topic, consumers are kept in memory and do not acknowledge: readers of a fan-out.
const DURABLE_MAX: u32 = 100;

/// Runs until stopped; reports through `teller`.
pub(crate) fn run(
    door: &NatsDoor,
    load: &Load,
    share: &ReceiveShare,
    control: &Control,
    mut teller: Teller,
) -> anyhow::Result<()> {
    let poller = Poller::new()?;
    let partitions = load.partitions.max(1);
    let connections = (load.connections as usize).min(share.units.len()).max(1);
    let acknowledges = load.subscriptions <= DURABLE_MAX;
    let mut sessions = Vec::new();
    for _ in 0..connections {
        sessions.push(Session::open(door.address)?);
    }
    let mut pulls = Vec::new();
    for (number, unit) in share.units.iter().enumerate() {
        let Some(session) = sessions.get_mut(number % connections) else {
            continue;
        };
        let name = format!("{}-{}-{}", share.prefix(), unit.subscription, unit.topic);
        let mut lines = Vec::new();
        let inbox = format!("_R{}.{number}", share.thread);
        if door.jetstream {
            session.create_consumer(unit.topic, &name, &consumer(&name, share.side, acknowledges))?;
            wire::subscribe(&mut lines, &inbox, number as u64);
        } else {
            let subjects = format!("{}.*", stream_name(unit.topic));
            wire::subscribe(&mut lines, &subjects, number as u64);
        }
        lines.extend_from_slice(b"PING\r\n");
        session.round_trip(&lines)?;
        teller.attached();
        pulls.push(Pull {
            next: format!("$JS.API.CONSUMER.MSG.NEXT.{}.{name}", stream_name(unit.topic)),
            inbox,
            asked: 0,
            unacknowledged: 0,
            first_seat: number * partitions as usize,
        });
    }
    let mut links = Vec::new();
    for session in sessions {
        links.push(Link::plain(session.into_stream(), &poller, links.len() as u64)?);
    }
    let mut own: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for number in 0..pulls.len() {
        own.entry(number % connections).or_default().push(number);
    }
    let seats = Seats {
        consumers: pulls.len() * partitions as usize,
        ordered: true,
        from_first: true,
    };
    let protocol = NatsReceive {
        jetstream: door.jetstream,
        acknowledges,
        pulls,
        own,
    };
    receive(protocol, (poller, links), seats, control, teller)
}

/// Returns the configuration of a consumer.
fn consumer(name: &str, side: Side, acknowledges: bool) -> Value {
    let mut config = json!({
        "name": name,
        "deliver_policy": if side == Side::Backlog { "all" } else { "new" },
        "replay_policy": "instant",
        "inactive_threshold": INACTIVE_NS,
        "ack_policy": if acknowledges { "all" } else { "none" },
    });
    if acknowledges {
        config["durable_name"] = json!(name);
        config["max_ack_pending"] = json!(ACK_PENDING_MAX);
    } else {
        config["mem_storage"] = json!(true);
    }
    config
}

/// A subscription and what was asked for.
struct Pull {
    /// Subject of pull requests,
    next: String,
    /// and where what is asked for goes.
    inbox: String,
    /// Asked for and not come.
    asked: u64,
    unacknowledged: u64,
    first_seat: usize,
}

impl Pull {
    fn ask(&mut self, messages: u64, out: &mut Vec<u8>) {
        self.asked += messages;
        let body = format!("{{\"batch\":{messages},\"expires\":{PULL_NS}}}");
        wire::publish(out, &self.next, &self.inbox, body.as_bytes());
    }

    /// A pull has ended, with so many messages of it that did not come.
    fn ended(&mut self, headers: &str, out: &mut Vec<u8>) -> Result<(), String> {
        let code = headers.split_ascii_whitespace().nth(1).unwrap_or_default();
        // Nothing there, used up, or too old; anything else will not get better.
        if !["404", "408", "409"].contains(&code) {
            return Err(format!("a pull ended: {}", headers.trim()));
        }
        let pending = headers.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            let value = value.trim().parse::<u64>().ok()?;
            name.eq_ignore_ascii_case("Nats-Pending-Messages")
                .then_some(value)
        });
        self.asked = self.asked.saturating_sub(pending.unwrap_or(self.asked));
        if self.asked <= PULL_MESSAGES / 2 {
            self.ask(PULL_MESSAGES / 2, out);
        }
        Ok(())
    }
}

struct NatsReceive {
    jetstream: bool,
    acknowledges: bool,
    /// By number of the subscription.
    pulls: Vec<Pull>,
    /// Units of each connection.
    own: BTreeMap<usize, Vec<usize>>,
}

impl ReceiveProtocol for NatsReceive {
    fn begin(&mut self, link: usize, out: &mut Vec<u8>) {
        if !self.jetstream {
            return;
        }
        for number in self.own.get(&link).into_iter().flatten() {
            if let Some(pull) = self.pulls.get_mut(*number) {
                pull.ask(PULL_MESSAGES, out);
            }
        }
    }

    fn whole_len(start: &[u8]) -> Result<Option<usize>, FrameError> {
        wire::whole_len(start)
    }

    fn on_frame(
        &mut self,
        _link: usize,
        frame: &[u8],
        out: &mut Vec<u8>,
        count: &mut Count<'_>,
    ) -> Result<(), FrameError> {
        match wire::parse(frame)? {
            Frame::Message {
                subject,
                sid,
                reply,
                headers,
                payload,
            } => {
                let Some(pull) = self.pulls.get_mut(sid as usize) else {
                    return Ok(());
                };
                if !headers.is_empty() && payload.is_empty() {
                    if let Err(why) = pull.ended(headers, out) {
                        count.fail(why);
                    }
                    return Ok(());
                }
                let slot = slot(subject).ok_or(FrameError::Malformed)?;
                count.message(pull.first_seat + slot.partition as usize, payload, 0);
                if !self.jetstream {
                    return Ok(());
                }
                pull.asked = pull.asked.saturating_sub(1);
                if pull.asked <= PULL_MESSAGES / 2 {
                    pull.ask(PULL_MESSAGES / 2, out);
                }
                pull.unacknowledged += 1;
                if self.acknowledges && pull.unacknowledged >= ACK_EVERY {
                    pull.unacknowledged = 0;
                    wire::publish(out, reply, "", b"");
                }
            }
            Frame::Ping => out.extend_from_slice(b"PONG\r\n"),
            Frame::Error(error) => count.fail(error.to_owned()),
            Frame::Pong | Frame::Other => {}
        }
        Ok(())
    }
}
