//! The publisher of a broadcast run: one producer on one connection, on a thread of its own.
//!
//! Open loop: message `n` is due at `start + n / rate` and carries that time's reading of the clock when it is handed to the
//! socket; nothing the broker does delays the next one. With reconnecting on, unacknowledged messages are sent again
//! after a lost connection, unchanged, under the same producer name and sequence ids.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use anyhow::{Context as _, bail};
use bytes::BytesMut;
use pharos_wire::command::Command;
use pharos_wire::message::encode_entry;
use pharos_wire::proto::{MessageMetadata, command_lookup_topic_response::LookupType};
use pharos_wire::{encode, frame as wire_frame, request};

use crate::access::{Access, TlsConnector};
use crate::clock;
use crate::histogram::Latencies;
use crate::net::{FrameSink, Inbound, Outbound, Poller, Ready, Received, Scratch, Socket, start_connect};
use crate::proto::command;
use crate::proto::frame::{self, FrameError};
use crate::proto::payload::{Bodies, Stamp, pattern};

/// The only producer of the connection.
const PRODUCER_ID: u64 = 0;
/// Longest wait between looks at the clock.
const TICK_NS: u64 = 20_000_000;
/// Between attempts to come back.
const BACKOFF_NS: u64 = 100_000_000;

/// Work of the publisher.
#[derive(Clone, Debug)]
pub(crate) struct PublisherPlan {
    /// The topic's broker.
    pub(crate) broker: SocketAddr,
    /// Access settings for the broker.
    pub(crate) access: Access,
    /// Full topic name.
    pub(crate) topic: String,
    /// Payload bytes.
    pub(crate) size: usize,
    /// Messages, warm-up included.
    pub(crate) total: u32,
    /// Messages a second.
    pub(crate) rate: f64,
    /// True if a lost connection is opened again.
    pub(crate) reconnect: bool,
    /// Without a receipt for this long after the last message, give up; nanoseconds.
    pub(crate) patience_ns: u64,
}

/// Result of publishing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Published {
    /// Time at which each message was first written to the socket, in monotonic nanoseconds.
    pub(crate) sent_ns: Vec<u64>,
    /// From there to the receipt.
    pub(crate) receipts: Latencies,
    /// Receipts that came.
    pub(crate) receipt_count: u32,
    /// Messages sent a second time.
    pub(crate) resent: u64,
    /// Bytes of one `SEND` frame.
    pub(crate) frame_bytes: usize,
}

struct PendingSend {
    sequence: u64,
    sent_ns: u64,
    frame: Vec<u8>,
    /// Given to a socket at least once.
    handed: bool,
}

struct Publisher<'a> {
    plan: &'a PublisherPlan,
    name: String,
    payload: Vec<u8>,
    bodies: Bodies,
    /// TLS connector; `None` without TLS.
    tls: Option<TlsConnector>,
    stream: Option<Socket>,
    connecting: bool,
    /// The producer exists on the present connection.
    open: bool,
    poller: Poller,
    outbound: Outbound,
    pending: VecDeque<PendingSend>,
    published: Published,
    epoch: u64,
    retry_ns: u64,
    /// Reason to give up the connection; true if a reconnect can help.
    trouble: Option<(String, bool)>,
}

/// Publishes until everything has its receipt. `sent` counts messages for a progress line; `stop` ends the run early.
///
/// # Errors
/// The connection is lost and reconnecting is off, the broker refuses for good, or receipts do not come.
pub(crate) fn publish(
    plan: &PublisherPlan,
    sent: &AtomicU32,
    stop: &AtomicBool,
) -> anyhow::Result<Published> {
    let mut publisher = Publisher {
        plan,
        name: format!("bench-publisher-{}", std::process::id()),
        payload: pattern(plan.size),
        bodies: Bodies::default(),
        tls: plan.access.connector()?,
        stream: None,
        connecting: false,
        open: false,
        poller: Poller::new()?,
        outbound: Outbound::default(),
        pending: VecDeque::new(),
        published: Published::default(),
        epoch: 0,
        retry_ns: 0,
        trouble: None,
    };
    publisher.run(sent, stop)?;
    Ok(publisher.published)
}

impl Publisher<'_> {
    fn run(&mut self, sent: &AtomicU32, stop: &AtomicBool) -> anyhow::Result<()> {
        let (mut inbound, mut scratch, mut ready) =
            (Inbound::default(), Scratch::default(), Vec::<Ready>::new());
        let mut start_ns = 0;
        let mut heard_ns = clock::monotonic_ns();
        loop {
            let now = clock::monotonic_ns();
            if self.stream.is_none() && now >= self.retry_ns {
                inbound.reset();
                self.connect();
            }
            if self.open && start_ns == 0 {
                start_ns = now;
            }
            let mut wait_ns = TICK_NS;
            if start_ns != 0 {
                wait_ns = self.send_due(start_ns, now)?.min(TICK_NS);
                sent.store(self.published.sent_ns.len() as u32, Ordering::Relaxed);
                if self.published.receipt_count == self.plan.total {
                    return Ok(());
                }
            }
            self.poller.wait(wait_ns, &mut ready)?;
            for event in &ready {
                if self.on_ready(event, &mut inbound, &mut scratch)? {
                    heard_ns = clock::monotonic_ns();
                }
            }
            self.mend()?;
            if stop.load(Ordering::Relaxed) {
                bail!("stopped");
            }
            let all_sent = self.published.sent_ns.len() == self.plan.total as usize;
            let waits = !self.open || all_sent;
            let last = self.published.sent_ns.last().copied().unwrap_or(0).max(heard_ns);
            if waits && clock::monotonic_ns().saturating_sub(last) > self.plan.patience_ns {
                bail!(
                    "{} of {} messages have a receipt; no more came",
                    self.published.receipt_count,
                    self.plan.total
                );
            }
        }
    }

    fn connect(&mut self) {
        let opened = start_connect(self.plan.broker, None, 0)
            .and_then(|stream| Socket::new(stream, self.tls.as_ref()))
            .and_then(|stream| self.poller.add(&stream, 0, true).map(|()| stream));
        match opened {
            Ok(stream) => {
                self.stream = Some(stream);
                self.connecting = true;
            }
            Err(error) => self.trouble = Some((format!("cannot connect: {error}"), true)),
        }
    }

    /// Sends what is due and says how long nothing will be, in nanoseconds.
    fn send_due(&mut self, start_ns: u64, now: u64) -> anyhow::Result<u64> {
        loop {
            let next = self.published.sent_ns.len() as u64;
            if next >= u64::from(self.plan.total) {
                return Ok(TICK_NS);
            }
            let due_ns = start_ns + (next as f64 * 1e9 / self.plan.rate) as u64;
            if due_ns > now {
                return Ok(due_ns - now);
            }
            let sent_ns = clock::monotonic_ns();
            let frame = self.build(next, sent_ns)?;
            if self.open {
                self.outbound.buf.extend_from_slice(&frame);
                self.flush();
            }
            self.published.frame_bytes = frame.len();
            self.published.sent_ns.push(sent_ns);
            self.pending.push_back(PendingSend {
                sequence: next,
                sent_ns,
                frame,
                handed: self.open,
            });
        }
    }

    fn build(&mut self, sequence: u64, sent_ns: u64) -> anyhow::Result<Vec<u8>> {
        let stamp = Stamp {
            sequence,
            sent_ns,
            source: 0,
        };
        self.bodies.write(&stamp, &mut self.payload);
        let metadata = MessageMetadata {
            producer_name: self.name.clone(),
            sequence_id: sequence,
            publish_time: clock::realtime_ns() / 1_000_000,
            ..MessageMetadata::default()
        };
        let entry = encode_entry(&metadata, &self.payload);
        let mut head = BytesMut::new();
        encode::send_header_into(PRODUCER_ID, sequence, None, 1, entry.len(), &mut head);
        let mut frame = Vec::with_capacity(head.len() + entry.len());
        frame.extend_from_slice(&head);
        frame.extend_from_slice(&entry);
        Ok(frame)
    }

    fn flush(&mut self) {
        let Some(stream) = &mut self.stream else { return };
        let outcome = self
            .outbound
            .flush(stream)
            .and_then(|all| self.poller.set(&*stream, 0, !all));
        if let Err(error) = outcome {
            self.trouble
                .get_or_insert((format!("connection lost: {error}"), true));
        }
    }

    /// Handles one event; true if the broker said something.
    fn on_ready(
        &mut self,
        event: &Ready,
        inbound: &mut Inbound,
        scratch: &mut Scratch,
    ) -> anyhow::Result<bool> {
        let Some(mut stream) = self.stream.take() else {
            return Ok(false);
        };
        if self.connecting {
            match stream.stream().take_error() {
                Ok(None) if event.writable => {
                    self.connecting = false;
                    command::push_connect(&mut self.outbound.buf, self.plan.access.shown.as_ref());
                }
                Ok(None) => {}
                Ok(Some(error)) | Err(error) => {
                    self.trouble
                        .get_or_insert((format!("cannot connect: {error}"), true));
                }
            }
            self.stream = Some(stream);
            self.flush();
            return Ok(false);
        }
        let mut heard = false;
        if event.readable {
            // The answers collect apart, because the sink borrows the publisher.
            let mut answers = Vec::new();
            let received = inbound.receive(&mut stream, scratch, 64 << 10, self, &mut answers)?;
            self.outbound.buf.extend_from_slice(&answers);
            if received == Received::Closed {
                self.trouble
                    .get_or_insert(("the broker closed the connection".to_owned(), true));
            }
            heard = received != Received::Closed;
        }
        self.stream = Some(stream);
        self.flush();
        Ok(heard)
    }

    /// After trouble: gives up, or drops the connection to open it again later.
    fn mend(&mut self) -> anyhow::Result<()> {
        let Some((why, may_help)) = self.trouble.take() else {
            return Ok(());
        };
        if !(self.plan.reconnect && may_help) {
            bail!("the publisher failed: {why}");
        }
        self.stream = None;
        self.connecting = false;
        self.open = false;
        self.outbound.reset();
        self.retry_ns = clock::monotonic_ns() + BACKOFF_NS;
        Ok(())
    }

    fn create_producer(&mut self, out: &mut Vec<u8>) {
        let mut producer = request::producer(&self.plan.topic, PRODUCER_ID, self.epoch, Some(&self.name));
        producer.epoch = Some(self.epoch);
        self.epoch += 1;
        command::push(out, &Command::from(producer));
    }

    fn opened(&mut self, out: &mut Vec<u8>) {
        self.open = true;
        for pending in &mut self.pending {
            out.extend_from_slice(&pending.frame);
            self.published.resent += u64::from(pending.handed);
            pending.handed = true;
        }
    }

    fn receipt(&mut self, sequence: u64) {
        // A receipt repeats after a resend; only the first one finds its message at the front.
        if self
            .pending
            .front()
            .is_some_and(|pending| pending.sequence == sequence)
            && let Some(pending) = self.pending.pop_front()
        {
            self.published
                .receipts
                .record(clock::monotonic_ns() - pending.sent_ns, 1);
            self.published.receipt_count += 1;
        }
    }
}

impl FrameSink for Publisher<'_> {
    fn on_frame(&mut self, whole: &[u8], out: &mut Vec<u8>) -> Result<(), FrameError> {
        let (bytes, _) = frame::split(whole).ok_or(FrameError::Malformed)?;
        match wire_frame::decode_command(bytes).map_err(|_| FrameError::Malformed)? {
            // A broker that comes back may have to take the topic first, and does so when it is looked up.
            Command::Connected(_) if self.plan.reconnect => {
                command::push(out, &request::lookup(&self.plan.topic, u64::MAX, false).into());
            }
            Command::Connected(_) => self.create_producer(out),
            Command::LookupResponse(answer) if answer.response() == LookupType::Failed => {
                self.trouble
                    .get_or_insert((format!("lookup failed: {}", answer.message()), true));
            }
            Command::LookupResponse(_) => self.create_producer(out),
            Command::ProducerSuccess(_) => self.opened(out),
            Command::SendReceipt(receipt) => self.receipt(receipt.sequence_id),
            Command::SendError(error) => {
                self.trouble
                    .get_or_insert((format!("a message was refused: {}", error.message), true));
            }
            Command::Error(error) => {
                let may_help = command::is_transient(error.error);
                self.trouble.get_or_insert((command::refusal(&error), may_help));
            }
            Command::CloseProducer(_) => {
                self.trouble
                    .get_or_insert(("the broker closed the producer".to_owned(), true));
            }
            Command::Ping(_) => command::push(out, &request::pong()),
            _ => {}
        }
        Ok(())
    }
}

/// Publishes on a thread of its own.
pub(crate) fn spawn(
    plan: PublisherPlan,
    sent: std::sync::Arc<AtomicU32>,
    stop: std::sync::Arc<AtomicBool>,
) -> anyhow::Result<std::thread::JoinHandle<anyhow::Result<Published>>> {
    std::thread::Builder::new()
        .name("publisher".to_owned())
        .spawn(move || publish(&plan, &sent, &stop))
        .context("cannot start the publisher's thread")
}
