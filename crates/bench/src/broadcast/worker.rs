//! A consumer process of a broadcast run: one thread, one epoll set, all of its connections.
//!
//! Order of life: read the plan from standard input; open connections, a bounded number at once; report ready; take
//! deliveries; on the order to finish, wait until everything has come or nothing comes any more; report and leave.
//! Standard input ending means that the parent is gone, and so is this process then.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead as _, ErrorKind, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;

use crate::access::TlsConnector;
use crate::clock;
use crate::net::{Inbound, Outbound, Poller, Ready, Received, Scratch, Socket, start_connect};

use super::burst::Burst;
use super::load_consumer::{LoadConsumer, LoadConsumerSink, Phase, Shared};
use super::plan::{Order, ReadyReport, Report, WorkerPlan};

/// The event token of standard input; connections use their number.
const STDIN: u64 = u64::MAX;
/// The loop looks after timers, progress and the end at least this often.
const TICK_NS: u64 = 20_000_000;
/// Interval of progress reports, in nanoseconds.
const PROGRESS_NS: u64 = 200_000_000;
/// After everything has come, wait this long for what should not come.
const SETTLE_NS: u64 = 300_000_000;
/// A lost or refused connection is tried again after this, doubling up to [`BACKOFF_MAX_NS`].
const BACKOFF_MIN_NS: u64 = 50_000_000;
const BACKOFF_MAX_NS: u64 = 2_000_000_000;
/// Acknowledgements of a connection do not wait any longer when this many bytes have gathered.
const FLUSH_BYTES: usize = 64 << 10;
/// Connections whose acknowledgements are sent before the sockets are looked at again: deliveries go first.
const FLUSH_CONNECTIONS: usize = 64;
/// Between two looks at the sockets while a burst goes on: with the process asleep on its sockets, the broker's every
/// write would wake it.
const REST: Duration = Duration::from_micros(300);

/// Connection with its socket.
struct Conn {
    seat: LoadConsumer,
    stream: Option<Socket>,
    inbound: Inbound,
    outbound: Outbound,
    watched_for_write: bool,
    /// Time since which answers wait to be flushed, for the list of such connections; 0 if none wait.
    unflushed_ns: u64,
    /// True once all consumers of this connection have been subscribed.
    was_complete: bool,
    backoff_ns: u64,
    /// Time of the next connection attempt.
    due_ns: u64,
}

struct Worker {
    conns: Vec<Conn>,
    /// TLS connector; `None` without TLS.
    tls: Option<TlsConnector>,
    shared: Shared,
    poller: Poller,
    scratch: Scratch,
    /// Connections begun but not yet fully subscribed.
    opening: u32,
    /// The next connection never opened so far.
    next_conn: u32,
    /// Closed connections waiting for their time.
    waiting: Vec<u32>,
    /// Connections that may have more to read.
    unread_more: Vec<u32>,
    /// Connections whose answers wait, and since when, in that order. One that was flushed meanwhile stays in the list.
    unflushed: VecDeque<(u32, u64)>,
    /// Connections whose answers do not wait for a burst to end.
    pressing: Vec<u32>,
    burst: Burst,
    /// Deliveries that the burst knows of.
    noted: u64,
    /// Time of the last poll of the sockets.
    looked_ns: u64,
    reconnects: u64,
    ready_told: bool,
    told_ns: u64,
    input: File,
    unread: Vec<u8>,
    total: Option<u32>,
    finish_ns: u64,
    last_delivery_ns: u64,
    last_delivered: u64,
    cpu_ready_ns: u64,
}

/// Runs the process: plan from standard input, reports to standard output.
pub(crate) fn run() -> anyhow::Result<ExitCode> {
    let mut line = String::new();
    let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    // One byte at a time: what a larger buffer read ahead would be hidden from the event loop.
    io::BufReader::with_capacity(1, &input)
        .read_line(&mut line)
        .context("no plan")?;
    let plan: WorkerPlan = serde_json::from_str(&line).context("the plan is damaged")?;
    let slow = plan.slow;
    let mut worker = Worker::new(plan, input)?;
    match worker.serve() {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => {
            // A slow consumer that the broker throws out is part of the test, not a failure of it.
            if !(slow && worker.ready_told) {
                tell(&Report::Failed {
                    message: format!("{error:#}"),
                })?;
            }
            Ok(ExitCode::FAILURE)
        }
    }
}

fn tell(report: &Report) -> anyhow::Result<()> {
    let mut line = serde_json::to_string(report)?;
    line.push('\n');
    let mut out = io::stdout().lock();
    out.write_all(line.as_bytes())?;
    Ok(out.flush()?)
}

impl Worker {
    fn new(plan: WorkerPlan, input: File) -> anyhow::Result<Self> {
        let poller = Poller::edge_triggered()?;
        let tls = plan.access.connector()?;
        rustix::io::ioctl_fionbio(&input, true)?;
        poller.add(&input, STDIN, false)?;
        let (consumers, connections) = (u64::from(plan.consumers), u64::from(plan.connections));
        let first_of = |conn: u64| (consumers * conn / connections.max(1)) as u32;
        let conns = (0..connections)
            .map(|number| Conn {
                seat: LoadConsumer::new(
                    number as u32,
                    first_of(number),
                    first_of(number + 1) - first_of(number),
                ),
                stream: None,
                inbound: Inbound::default(),
                outbound: Outbound::default(),
                watched_for_write: false,
                unflushed_ns: 0,
                was_complete: false,
                backoff_ns: BACKOFF_MIN_NS,
                due_ns: 0,
            })
            .collect();
        Ok(Self {
            conns,
            shared: Shared::new(plan),
            poller,
            tls,
            scratch: Scratch::default(),
            opening: 0,
            next_conn: 0,
            waiting: Vec::new(),
            unread_more: Vec::new(),
            unflushed: VecDeque::new(),
            pressing: Vec::new(),
            burst: Burst::default(),
            noted: 0,
            looked_ns: 0,
            reconnects: 0,
            ready_told: false,
            told_ns: 0,
            input,
            unread: Vec::new(),
            total: None,
            finish_ns: 0,
            last_delivery_ns: 0,
            last_delivered: 0,
            cpu_ready_ns: 0,
        })
    }

    fn serve(&mut self) -> anyhow::Result<()> {
        let mut ready: Vec<Ready> = Vec::new();
        let mut ticked_ns = 0;
        loop {
            self.poller.wait(self.patience_ns(), &mut ready)?;
            self.looked_ns = clock::monotonic_ns();
            for number in std::mem::take(&mut self.unread_more) {
                self.read(number)?;
            }
            for event in &ready {
                if event.token == STDIN {
                    if !self.read_orders()? {
                        return Ok(());
                    }
                } else {
                    self.on_ready(event)?;
                }
            }
            let now = clock::monotonic_ns();
            let delivered = self.shared.tally.delivered;
            self.burst.note(delivered - self.noted, now);
            self.noted = delivered;
            self.flush_due(now);
            if now - ticked_ns >= TICK_NS || self.opening > 0 {
                ticked_ns = now;
                self.on_tick(now)?;
            }
            if let Some(message) = self.shared.fatal.take() {
                anyhow::bail!(message);
            }
        }
    }

    /// Returns the time to wait for events. During a burst this function itself sleeps, without polling.
    fn patience_ns(&self) -> u64 {
        let now = clock::monotonic_ns();
        if !self.unread_more.is_empty() || self.is_flush_due(now) {
            return 0;
        }
        if self.burst.goes_on(now) {
            std::thread::sleep(REST);
            return 0;
        }
        TICK_NS
    }

    /// True if answers have waited long enough: during a burst, the maximum grouping time; otherwise no time at all.
    fn is_flush_due(&self, now: u64) -> bool {
        let group_ns = self.shared.plan.ack_group_ms * 1_000_000;
        self.unflushed
            .front()
            .is_some_and(|(_, since)| now >= since + group_ns || !self.burst.goes_on(now))
    }

    /// Writes answers out: those that press, and some of those that are due. All that a look at the sockets brought is
    /// read before anything is written.
    fn flush_due(&mut self, now: u64) {
        let mut pressing = std::mem::take(&mut self.pressing);
        for number in pressing.drain(..) {
            self.flush(number);
        }
        self.pressing = pressing;
        for _ in 0..FLUSH_CONNECTIONS {
            if !self.is_flush_due(now) {
                return;
            }
            if let Some((number, since)) = self.unflushed.pop_front()
                && self.conns[number as usize].unflushed_ns == since
            {
                self.flush(number);
            }
        }
    }

    /// Takes orders; false when the parent is gone.
    fn read_orders(&mut self) -> anyhow::Result<bool> {
        let mut buf = [0u8; 4096];
        loop {
            match self.input.read(&mut buf) {
                Ok(0) => return Ok(false),
                Ok(read) => self.unread.extend_from_slice(&buf[..read]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        while let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.unread.drain(..=end).collect();
            match serde_json::from_slice(&line).context("an order is damaged")? {
                Order::Finish { total } => {
                    self.total = Some(total);
                    self.finish_ns = clock::monotonic_ns();
                }
            }
        }
        Ok(true)
    }

    fn on_tick(&mut self, now: u64) -> anyhow::Result<()> {
        self.open_more(now);
        self.retry_subscribes(now);
        let delivered = self.shared.tally.delivered;
        if delivered != self.last_delivered {
            self.last_delivered = delivered;
            self.last_delivery_ns = now;
        }
        let plan = &self.shared.plan;
        if !self.ready_told {
            if self.shared.subscribed == plan.consumers {
                self.tell_ready(now)?;
            } else if now.saturating_sub(plan.epoch_ns) > plan.connect_timeout_ms * 1_000_000 {
                anyhow::bail!(
                    "only {} of {} consumers subscribed in time",
                    self.shared.subscribed,
                    plan.consumers
                );
            }
        }
        if now - self.told_ns >= PROGRESS_NS {
            self.told_ns = now;
            tell(&Report::Progress {
                subscribed: self.shared.subscribed,
                delivered,
            })?;
        }
        self.finish_if_done(now)
    }

    fn tell_ready(&mut self, now: u64) -> anyhow::Result<()> {
        self.ready_told = true;
        self.cpu_ready_ns = clock::process_cpu_ns();
        tell(&Report::Ready(ReadyReport {
            per_second: self.shared.per_second.clone(),
            took_ns: now.saturating_sub(self.shared.plan.epoch_ns),
            subscribe: self.shared.subscribe.to_text()?,
        }))?;
        if self.shared.plan.slow {
            for stream in self.conns.iter().filter_map(|conn| conn.stream.as_ref()) {
                self.poller.remove(stream)?;
            }
        }
        Ok(())
    }

    fn finish_if_done(&mut self, now: u64) -> anyhow::Result<()> {
        let Some(total) = self.total else { return Ok(()) };
        let plan = &self.shared.plan;
        let all = u64::from(total) * u64::from(plan.consumers);
        let quiet_ns = now.saturating_sub(self.last_delivery_ns.max(self.finish_ns));
        let complete = self.last_delivered == all && quiet_ns >= SETTLE_NS;
        if !(complete || plan.slow || quiet_ns >= plan.drain_ms * 1_000_000) {
            return Ok(());
        }
        let mut result = self.shared.tally.result(total)?;
        result.reconnects = self.reconnects;
        result.cpu_ns = clock::process_cpu_ns() - self.cpu_ready_ns;
        self.total = None;
        tell(&Report::Done(Box::new(result)))
    }

    /// Opens connections as long as not too many are being opened.
    fn open_more(&mut self, now: u64) {
        while self.opening < self.shared.plan.connect_parallel {
            let conns = &self.conns;
            let due = self
                .waiting
                .iter()
                .position(|number| conns[*number as usize].due_ns <= now);
            let number = if let Some(at) = due {
                self.waiting.swap_remove(at)
            } else if (self.next_conn as usize) < self.conns.len() {
                self.next_conn += 1;
                self.next_conn - 1
            } else {
                return;
            };
            self.opening += 1;
            let plan = &self.shared.plan;
            let conn = &mut self.conns[number as usize];
            let opened = start_connect(plan.broker, plan.source, plan.rcvbuf as usize)
                .and_then(|stream| Socket::new(stream, self.tls.as_ref()))
                .and_then(|stream| self.poller.add(&stream, u64::from(number), true).map(|()| stream));
            match opened {
                Ok(stream) => {
                    conn.stream = Some(stream);
                    conn.watched_for_write = true;
                    conn.seat.phase = Phase::Connecting;
                }
                Err(error) => self.lost(number, &format!("cannot connect: {error}")),
            }
        }
    }

    fn retry_subscribes(&mut self, now: u64) {
        let due: Vec<_> = self
            .shared
            .retries
            .extract_if(.., |(when, ..)| *when <= now)
            .collect();
        for (_, number, consumer_id) in due {
            let conn = &mut self.conns[number as usize];
            conn.seat
                .retry(consumer_id, &mut self.shared, &mut conn.outbound.buf);
            self.flush(number);
        }
    }

    fn on_ready(&mut self, event: &Ready) -> anyhow::Result<()> {
        let number = event.token as u32;
        let Some(conn) = self.conns.get_mut(number as usize) else {
            return Ok(());
        };
        let Some(stream) = &conn.stream else { return Ok(()) };
        if conn.seat.phase == Phase::Connecting {
            if !event.writable {
                return Ok(());
            }
            match stream.stream().take_error() {
                Ok(None) => conn.seat.connected(&self.shared, &mut conn.outbound.buf),
                Ok(Some(error)) | Err(error) => {
                    self.lost(number, &format!("cannot connect: {error}"));
                    return Ok(());
                }
            }
            self.flush(number);
            return Ok(());
        }
        if event.ended {
            // Nothing will say again that the end is near.
            while self.read(number)? {}
            return Ok(());
        }
        if event.readable && !self.read(number)? {
            return Ok(());
        }
        if event.writable {
            self.flush(number);
        }
        Ok(())
    }

    /// Reads once from a connection; false if it turned out to be lost.
    fn read(&mut self, number: u32) -> anyhow::Result<bool> {
        let conn = &mut self.conns[number as usize];
        let Some(stream) = &mut conn.stream else {
            return Ok(false);
        };
        let read_bytes = self.shared.plan.read_bytes as usize;
        let mut sink = LoadConsumerSink::new(&mut conn.seat, &mut self.shared);
        let received = conn
            .inbound
            .receive(
                stream,
                &mut self.scratch,
                read_bytes,
                &mut sink,
                &mut conn.outbound.buf,
            )
            .with_context(|| format!("connection {number}"))?;
        if received == Received::Closed {
            self.lost(number, "the broker closed the connection");
            return Ok(false);
        }
        if !conn.was_complete && conn.seat.subscribed == conn.seat.count {
            conn.was_complete = true;
            conn.backoff_ns = BACKOFF_MIN_NS;
            self.opening = self.opening.saturating_sub(1);
        }
        if received != Received::Drained {
            self.unread_more.push(number);
        }
        let waiting = conn.outbound.len();
        if waiting >= FLUSH_BYTES || (waiting > 0 && !conn.was_complete) {
            self.flush(number);
        } else if waiting > 0 && std::mem::take(&mut conn.seat.presses) {
            self.pressing.push(number);
        } else if waiting > 0 && conn.unflushed_ns == 0 {
            conn.unflushed_ns = self.looked_ns;
            self.unflushed.push_back((number, self.looked_ns));
        }
        Ok(true)
    }

    fn flush(&mut self, number: u32) {
        let conn = &mut self.conns[number as usize];
        conn.unflushed_ns = 0;
        let Some(stream) = &mut conn.stream else { return };
        let written = conn.outbound.flush(stream);
        let want_write = matches!(written, Ok(false));
        let failed = match written {
            Ok(_) if want_write != conn.watched_for_write => {
                conn.watched_for_write = want_write;
                self.poller.set(&*stream, u64::from(number), want_write).err()
            }
            Ok(_) => None,
            Err(error) => Some(error),
        };
        if let Some(error) = failed {
            self.lost(number, &format!("connection lost: {error}"));
        }
    }

    /// A connection is gone: give up, or try again a little later.
    fn lost(&mut self, number: u32, why: &str) {
        let conn = &mut self.conns[number as usize];
        if !self.shared.plan.reconnect {
            self.shared
                .fatal
                .get_or_insert_with(|| format!("connection {number}: {why}"));
            return;
        }
        if conn.was_complete {
            self.reconnects += 1;
        } else {
            self.opening = self.opening.saturating_sub(1);
        }
        // Closing the socket takes it out of the epoll set.
        conn.stream = None;
        conn.was_complete = false;
        conn.inbound.reset();
        conn.outbound.reset();
        conn.seat.closed(&mut self.shared);
        self.shared.retries.retain(|(_, conn, _)| *conn != number);
        conn.due_ns = clock::monotonic_ns() + conn.backoff_ns;
        conn.backoff_ns = (conn.backoff_ns * 2).min(BACKOFF_MAX_NS);
        self.waiting.push(number);
    }
}
