//! Connection of a consumer process, with its consumers: handshake, subscribing, deliveries.
//!
//! Consumer ids on the wire are dense from 0 on every connection, so a delivery finds its consumer by adding. The
//! request id of a `SUBSCRIBE` is the consumer's id as well.

use pharos_wire::NO_REQUEST_ID;
use pharos_wire::command::Command;
use pharos_wire::message::split_ref;
use pharos_wire::proto::{
    self, MessageIdData, command_lookup_topic_response::LookupType, command_subscribe::InitialPosition,
};
use pharos_wire::{frame as wire_frame, request};

use crate::clock;
use crate::histogram::Latencies;
use crate::net::FrameSink;
use crate::proto::frame::{self, FrameError};
use crate::proto::message::{self, Delivery};
use crate::proto::payload::Stamp;
use crate::proto::{ack, command};

use super::plan::{Mode, WorkerPlan, name_in};
use super::tally::Tally;

/// State of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Closed; opened in turn.
    Waiting,
    /// TCP connect under way.
    Connecting,
    /// `CONNECT` sent.
    Handshake,
    /// Commands may flow.
    Open,
}

/// State shared by all connections of a process.
pub(crate) struct Shared {
    /// The plan.
    pub(crate) plan: WorkerPlan,
    /// Message counters.
    pub(crate) tally: Tally,
    /// Messages taken since permits were last granted, by consumer.
    since_flow: Vec<u32>,
    /// Last entry seen, by consumer; only kept where a reader must resume.
    last_id: Vec<(u64, u64)>,
    /// Time of each `SUBSCRIBE`, in microseconds after the epoch.
    asked_us: Vec<u32>,
    /// Consumers subscribed at this moment.
    pub(crate) subscribed: u32,
    /// Subscribes answered in each second since the epoch.
    pub(crate) per_second: Vec<u64>,
    /// Time from `SUBSCRIBE` to its answer.
    pub(crate) subscribe: Latencies,
    /// Subscribes to be tried again: (when, connection, consumer id).
    pub(crate) retries: Vec<(u64, u32, u32)>,
    /// Reason why the run cannot continue.
    pub(crate) fatal: Option<String>,
}

/// In place of a consumer id: the retry is about looking the topic up.
const LOOKUP: u32 = u32::MAX;

/// A refused subscribe is tried again after this long.
const RETRY_NS: u64 = 200_000_000;

impl Shared {
    /// Counters for `plan`, all zero.
    pub(crate) fn new(plan: WorkerPlan) -> Self {
        let consumers = plan.consumers as usize;
        let resumes = plan.reconnect && plan.mode == Mode::Reader;
        Self {
            tally: Tally::new(plan.consumers, plan.warmup_messages, plan.messages),
            since_flow: vec![0; consumers],
            last_id: vec![(u64::MAX, u64::MAX); if resumes { consumers } else { 0 }],
            asked_us: vec![0; consumers],
            subscribed: 0,
            per_second: Vec::new(),
            subscribe: Latencies::default(),
            retries: Vec::new(),
            fatal: None,
            plan,
        }
    }

    fn subscribe_command(&self, consumer: u32, consumer_id: u32) -> Command {
        let plan = &self.plan;
        let number = plan.first_consumer + consumer;
        let subscription = match plan.mode {
            Mode::Broadcast => plan.subscription.clone(),
            Mode::Exclusive | Mode::Reader => format!("{}-{number:06}", plan.subscription),
        };
        let id = u64::from(consumer_id);
        let mut subscribe =
            request::subscribe(&plan.topic, &subscription, plan.subscription_type.wire(), id, id);
        subscribe.consumer_name = Some(name_in(number, plan.slot));
        subscribe.initial_position = Some(InitialPosition::Latest as i32);
        subscribe.durable = Some(plan.mode != Mode::Reader);
        match plan.mode {
            Mode::Broadcast => {
                subscribe.metadata = command::broadcast_properties();
                subscribe.subscription_properties = command::broadcast_properties();
            }
            Mode::Reader => subscribe.start_message_id = Some(self.reader_start(consumer)),
            Mode::Exclusive => {}
        }
        Command::from(subscribe)
    }

    /// Readers begin at the end; one that comes back begins at the last entry it saw.
    fn reader_start(&self, consumer: u32) -> MessageIdData {
        let latest = (i64::MAX as u64, i64::MAX as u64);
        let (ledger_id, entry_id) = match self.last_id.get(consumer as usize) {
            Some(&id) if id.0 != u64::MAX => id,
            _ => latest,
        };
        MessageIdData {
            ledger_id,
            entry_id,
            ..MessageIdData::default()
        }
    }

    fn fail(&mut self, message: String) {
        self.fatal.get_or_insert(message);
    }
}

/// Protocol state of one connection.
#[derive(Debug)]
pub(crate) struct LoadConsumer {
    /// Its number within the process.
    pub(crate) number: u32,
    /// Its first consumer within the process.
    pub(crate) first: u32,
    /// Its consumers.
    pub(crate) count: u32,
    /// State of the connection.
    pub(crate) phase: Phase,
    /// Consumers subscribed on the present connection.
    pub(crate) subscribed: u32,
    /// The next consumer id to subscribe.
    next: u32,
    in_flight: u32,
    again: Vec<u32>,
    pending: Option<(Delivery, Stamp, usize)>,
    /// Among the answers not yet sent are others than acknowledgements: the broker waits for permits, or for a reply.
    pub(crate) presses: bool,
}

impl LoadConsumer {
    /// A closed connection for `count` consumers from `first` on.
    pub(crate) fn new(number: u32, first: u32, count: u32) -> Self {
        Self {
            number,
            first,
            count,
            phase: Phase::Waiting,
            subscribed: 0,
            next: 0,
            in_flight: 0,
            again: Vec::new(),
            pending: None,
            presses: false,
        }
    }

    /// The connection is gone; all its consumers must subscribe again.
    pub(crate) fn closed(&mut self, shared: &mut Shared) {
        shared.subscribed -= self.subscribed;
        *self = Self::new(self.number, self.first, self.count);
    }

    /// TCP is up: say hello.
    pub(crate) fn connected(&mut self, shared: &Shared, out: &mut Vec<u8>) {
        self.phase = Phase::Handshake;
        command::push_connect(out, shared.plan.access.shown.as_ref());
    }

    /// A retry has come due.
    pub(crate) fn retry(&mut self, consumer_id: u32, shared: &mut Shared, out: &mut Vec<u8>) {
        if consumer_id == LOOKUP {
            self.begin(shared, out);
        } else if self.phase == Phase::Open && consumer_id < self.next {
            self.again.push(consumer_id);
            self.flush_turn(shared, out);
        }
    }

    /// The handshake is done. A broker that comes back may have to take the topic first, and does so when it is looked up;
    /// on a first connection the parent has done that for all processes.
    fn begin(&mut self, shared: &mut Shared, out: &mut Vec<u8>) {
        if shared.plan.reconnect {
            command::push(
                out,
                &request::lookup(&shared.plan.topic, u64::from(LOOKUP), false).into(),
            );
        } else {
            self.phase = Phase::Open;
            self.flush_turn(shared, out);
        }
    }

    fn looked_up(&mut self, found: bool, shared: &mut Shared, out: &mut Vec<u8>) {
        if found {
            self.phase = Phase::Open;
            self.flush_turn(shared, out);
        } else {
            shared
                .retries
                .push((clock::monotonic_ns() + RETRY_NS, self.number, LOOKUP));
        }
    }

    /// Sends as many subscribes as may be unanswered at once.
    fn flush_turn(&mut self, shared: &mut Shared, out: &mut Vec<u8>) {
        while self.in_flight < shared.plan.subscribe_in_flight {
            let consumer_id = if let Some(again) = self.again.pop() {
                again
            } else if self.next < self.count {
                self.next += 1;
                self.next - 1
            } else {
                return;
            };
            let consumer = self.first + consumer_id;
            command::push(out, &shared.subscribe_command(consumer, consumer_id));
            self.in_flight += 1;
            let asked = clock::monotonic_ns().saturating_sub(shared.plan.epoch_ns) / 1000;
            if let Some(slot) = shared.asked_us.get_mut(consumer as usize) {
                *slot = u32::try_from(asked).unwrap_or(u32::MAX);
            }
        }
    }

    fn subscribe_answered(&mut self, request_id: u64, shared: &mut Shared, out: &mut Vec<u8>) {
        if request_id >= u64::from(self.count) {
            return;
        }
        let consumer = self.first as usize + request_id as usize;
        let Some(asked) = shared.asked_us.get(consumer).copied() else {
            return;
        };
        let since_epoch = clock::monotonic_ns().saturating_sub(shared.plan.epoch_ns);
        shared
            .subscribe
            .record(since_epoch.saturating_sub(u64::from(asked) * 1000), 1);
        let second = (since_epoch / 1_000_000_000) as usize;
        if shared.per_second.len() <= second {
            shared.per_second.resize(second + 1, 0);
        }
        shared.per_second[second] += 1;
        shared.since_flow[consumer] = 0;
        shared.subscribed += 1;
        self.subscribed += 1;
        self.in_flight = self.in_flight.saturating_sub(1);
        ack::write_flow(out, request_id, shared.plan.receiver_queue);
        self.flush_turn(shared, out);
    }

    fn refused(&mut self, error: &proto::CommandError, shared: &mut Shared, out: &mut Vec<u8>) {
        let text = command::refusal(error);
        if error.request_id == NO_REQUEST_ID || error.request_id >= u64::from(self.count) {
            // The broker ends the connection after this; with --reconnect that is what brings us back.
            if !shared.plan.reconnect {
                shared.fail(format!("the broker refused the connection: {text}"));
            }
            return;
        }
        self.in_flight = self.in_flight.saturating_sub(1);
        if !command::is_transient(error.error) {
            shared.fail(format!(
                "consumer {} was refused: {text}",
                self.first + error.request_id as u32
            ));
            return;
        }
        let due = clock::monotonic_ns() + RETRY_NS;
        shared.retries.push((due, self.number, error.request_id as u32));
        self.flush_turn(shared, out);
    }

    fn closed_by_broker(&mut self, consumer_id: u64, shared: &mut Shared) {
        if consumer_id >= u64::from(self.count) {
            return;
        }
        if !shared.plan.reconnect {
            shared.fail(format!(
                "the broker closed consumer {consumer_id} of connection {}",
                self.number
            ));
            return;
        }
        self.subscribed = self.subscribed.saturating_sub(1);
        shared.subscribed = shared.subscribed.saturating_sub(1);
        shared
            .retries
            .push((clock::monotonic_ns() + RETRY_NS, self.number, consumer_id as u32));
    }

    fn on_command(
        &mut self,
        command: &[u8],
        shared: &mut Shared,
        out: &mut Vec<u8>,
    ) -> Result<(), FrameError> {
        match wire_frame::decode_command(command).map_err(|_| FrameError::Malformed)? {
            Command::Connected(_) => self.begin(shared, out),
            Command::LookupResponse(answer) => {
                self.looked_up(answer.response() != LookupType::Failed, shared, out);
            }
            Command::Success(success) => self.subscribe_answered(success.request_id, shared, out),
            Command::Error(error) => self.refused(&error, shared, out),
            Command::CloseConsumer(close) => self.closed_by_broker(close.consumer_id, shared),
            Command::Ping(_) => command::push(out, &request::pong()),
            _ => {}
        }
        Ok(())
    }
}

/// A [`LoadConsumer`] while one read's frames are worked through.
pub(crate) struct LoadConsumerSink<'a> {
    seat: &'a mut LoadConsumer,
    shared: &'a mut Shared,
    /// Time of the read's return; taken once per read, so that the parsing of a delivery is not counted.
    now_ns: u64,
}

impl<'a> LoadConsumerSink<'a> {
    /// For one read.
    pub(crate) fn new(seat: &'a mut LoadConsumer, shared: &'a mut Shared) -> Self {
        Self {
            seat,
            shared,
            now_ns: 0,
        }
    }

    #[inline]
    fn now(&mut self) -> u64 {
        if self.now_ns == 0 {
            self.now_ns = clock::monotonic_ns();
        }
        self.now_ns
    }

    #[inline]
    fn deliver(&mut self, delivery: &Delivery, stamp: &Stamp, frame_bytes: usize, out: &mut Vec<u8>) {
        if delivery.consumer_id >= u64::from(self.seat.count) {
            self.shared.tally.foreign += 1;
            return;
        }
        let now_ns = self.now();
        let consumer = self.seat.first + delivery.consumer_id as u32;
        let shared = &mut *self.shared;
        shared.tally.message_bytes += frame_bytes as u64;
        shared.tally.delivered(consumer, stamp, now_ns);
        ack::write_ack(out, delivery, shared.plan.ack);
        if let Some(last) = shared.last_id.get_mut(consumer as usize) {
            *last = (delivery.ledger_id, delivery.entry_id);
        }
        if let Some(taken) = shared.since_flow.get_mut(consumer as usize) {
            *taken += 1;
            let half = shared.plan.receiver_queue.div_ceil(2);
            if *taken >= half {
                *taken = 0;
                ack::write_flow(out, delivery.consumer_id, half);
                self.seat.presses = true;
            }
        }
    }
}

impl FrameSink for LoadConsumerSink<'_> {
    #[inline]
    fn on_frame(&mut self, whole: &[u8], out: &mut Vec<u8>) -> Result<(), FrameError> {
        let (command, part) = frame::split(whole).ok_or(FrameError::Malformed)?;
        if frame::command_type(command) != Some(9) {
            self.seat.presses = true;
            return self.seat.on_command(command, self.shared, out);
        }
        let delivery = message::parse_command(command).ok_or(FrameError::Malformed)?;
        let content = message::parse_content(part).ok_or(FrameError::Malformed)?;
        if self.shared.plan.verify_checksum && !split_ref(part).is_ok_and(|parts| parts.verify_checksum()) {
            self.shared.tally.bad_checksums += 1;
        }
        match Stamp::read(content.payload) {
            Some(stamp) => self.deliver(&delivery, &stamp, whole.len(), out),
            None => self.shared.tally.foreign += 1,
        }
        Ok(())
    }

    fn on_head(&mut self, head: &[u8]) -> bool {
        if self.shared.plan.verify_checksum {
            return false;
        }
        self.seat.pending = (|| {
            let (command, part) = frame::split(head)?;
            if frame::command_type(command) != Some(9) {
                return None;
            }
            let stamp = Stamp::read(message::parse_content(part)?.payload)?;
            let whole = frame::whole_len(head).ok().flatten()?;
            Some((message::parse_command(command)?, stamp, whole))
        })();
        self.seat.pending.is_some()
    }

    fn on_rest(&mut self, out: &mut Vec<u8>) {
        if let Some((delivery, stamp, whole)) = self.seat.pending.take() {
            self.deliver(&delivery, &stamp, whole, out);
        }
    }
}
