//! `pharos bench produce`, `consume` and `e2e`: throughput and latency of ordinary topics.
//!
//! Load threads ([`producer`], [`consumer`]) count and tell once a second; the parent prints, adds up and decides when to
//! stop. Latency is taken from when a message was due ([`pacing`]), so a stalled broker cannot hide its stall.

mod batch;
mod consumer;
mod html;
mod link;
mod pacing;
mod producer;
mod slice;
mod summary;
mod workload;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use anyhow::{Context as _, bail};

use crate::args::{ConsumeArgs, E2eArgs, LoadArgs, Output, ProduceArgs, PublishArgs, ReceiveArgs};
use crate::clock;
use crate::progress::Progress;
use crate::target::Target;

use slice::{Control, Event, Side, Slice, Teller};
use summary::{Row, Summary};
use workload::Workload;

/// How long consumers may go without a message before those still missing count as lost.
const DRAIN_NS: u64 = 10_000_000_000;
/// How long setting up may take.
const SETUP_NS: u64 = 120_000_000_000;

/// `pharos bench produce`.
pub(crate) fn produce(args: &ProduceArgs, stop: &Arc<AtomicBool>) -> anyhow::Result<ExitCode> {
    run(&args.load, Some(&args.publish), None, stop)
}

/// `pharos bench consume`.
pub(crate) fn consume(args: &ConsumeArgs, stop: &Arc<AtomicBool>) -> anyhow::Result<ExitCode> {
    run(&args.load, None, Some(&args.receive), stop)
}

/// `pharos bench e2e`.
pub(crate) fn e2e(args: &E2eArgs, stop: &Arc<AtomicBool>) -> anyhow::Result<ExitCode> {
    run(&args.load, Some(&args.publish), Some(&args.receive), stop)
}

fn run(
    load: &LoadArgs,
    publish: Option<&PublishArgs>,
    receive: Option<&ReceiveArgs>,
    stop: &Arc<AtomicBool>,
) -> anyhow::Result<ExitCode> {
    let target = Target::open(&load.target, stop)?;
    let workload = Workload::new(load, publish, receive, &target)?;
    let control = Arc::new(Control::default());
    let summary = {
        // Threads are told to end and waited for on every way out of this block.
        let mut run = Run::start(load, &workload, &target, stop, &control)?;
        run.measure()
    };
    drop(target);
    let summary = summary?;
    write_files(load, &summary)?;
    match load.output {
        Output::Json => crate::print(&serde_json::to_string_pretty(&summary.to_json())?)?,
        Output::Text => crate::print(&summary.to_text())?,
    }
    let failed = summary.lost > 0 || summary.out_of_order > 0;
    Ok(if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn write_files(load: &LoadArgs, summary: &Summary) -> anyhow::Result<()> {
    let create = |path: &std::path::Path| {
        std::fs::File::create(path).with_context(|| format!("cannot write {}", path.display()))
    };
    if let Some(path) = &load.hgrm {
        if summary.publish.messages > 0 {
            crate::hgrm::write(&summary.publish.latencies, &mut create(path)?)?;
        }
        if summary.receive.messages > 0 {
            let mut name = path.clone().into_os_string();
            name.push(".e2e");
            crate::hgrm::write(&summary.receive.latencies, &mut create(name.as_ref())?)?;
        }
    }
    if let Some(path) = &load.html {
        std::io::Write::write_all(&mut create(path)?, html::page(summary).as_bytes())?;
    }
    Ok(())
}

/// A run under way.
struct Run<'a> {
    load: &'a LoadArgs,
    workload: &'a Workload,
    target: &'a Target,
    stop: &'a AtomicBool,
    control: &'a Arc<Control>,
    events: Receiver<Event>,
    threads: Vec<std::thread::JoinHandle<()>>,
    progress: Progress,
    publishing: usize,
    /// Everything since the load began.
    all: (Slice, Slice),
    /// Since the running row began.
    row: (Slice, Slice),
    /// Since the last printed line.
    interval: (Slice, Slice),
}

impl<'a> Run<'a> {
    /// Starts the load threads and waits until all are connected.
    fn start(
        load: &'a LoadArgs,
        workload: &'a Workload,
        target: &'a Target,
        stop: &'a AtomicBool,
        control: &'a Arc<Control>,
    ) -> anyhow::Result<Self> {
        let (sender, events) = sync_channel(1024);
        let mut run = Self {
            load,
            workload,
            target,
            stop,
            control,
            events,
            threads: Vec::new(),
            progress: Progress::new(),
            publishing: workload.publishers.len(),
            all: Default::default(),
            row: Default::default(),
            interval: Default::default(),
        };
        // Consumers first, so that they are there when the first message is.
        for plan in &workload.receivers {
            let plan = plan.clone();
            run.spawn(Side::Receive, &sender, move |control, teller| {
                consumer::run(&plan, control, teller)
            })?;
        }
        run.await_ready(workload.receivers.len())?;
        for plan in &workload.publishers {
            let plan = plan.clone();
            run.spawn(Side::Publish, &sender, move |control, teller| {
                producer::run(&plan, control, teller)
            })?;
        }
        run.await_ready(workload.publishers.len())?;
        Ok(run)
    }

    fn spawn(
        &mut self,
        side: Side,
        sender: &SyncSender<Event>,
        work: impl FnOnce(&Control, Teller) -> anyhow::Result<()> + Send + 'static,
    ) -> anyhow::Result<()> {
        let (control, sender) = (Arc::clone(self.control), sender.clone());
        let thread = std::thread::Builder::new()
            .name(format!("load-{}", self.threads.len()))
            .spawn(move || {
                let teller = Teller::new(side, sender.clone(), clock::monotonic_ns());
                // A parent that no longer listens has its own reason to end.
                let _ = match work(&control, teller) {
                    Ok(()) if side == Side::Publish => sender.send(Event::Ended),
                    Ok(()) => Ok(()),
                    Err(error) => sender.send(Event::Failed(format!("{error:#}"))),
                };
            })?;
        self.threads.push(thread);
        Ok(())
    }

    fn await_ready(&mut self, threads: usize) -> anyhow::Result<()> {
        let deadline = clock::monotonic_ns() + SETUP_NS;
        let mut ready = 0;
        while ready < threads {
            if self.stop.load(Ordering::Relaxed) {
                bail!("stopped");
            }
            if clock::monotonic_ns() > deadline {
                bail!("producers and consumers were not set up in time");
            }
            if let Ok(Event::Ready) = self.hear()? {
                ready += 1;
            }
        }
        Ok(())
    }

    /// One event, if there is one soon; a failure ends the run, counts are added where they belong.
    fn hear(&mut self) -> anyhow::Result<Result<Event, ()>> {
        let Ok(event) = self.events.recv_timeout(Duration::from_millis(50)) else {
            return Ok(Err(()));
        };
        match event {
            Event::Failed(message) => bail!(message),
            Event::Slice(side, slice) => {
                for sums in [&mut self.all, &mut self.row, &mut self.interval] {
                    match side {
                        Side::Publish => sums.0.merge(&slice),
                        Side::Receive => sums.1.merge(&slice),
                    }
                }
                return Ok(Err(()));
            }
            Event::Ended => self.publishing -= 1,
            Event::Ready => {}
        }
        Ok(Ok(event))
    }

    fn measure(&mut self) -> anyhow::Result<Summary> {
        let start_ns = clock::monotonic_ns();
        self.control.start(start_ns);
        self.watch(start_ns, self.load.warmup, None)?;
        let before = (self.target.sample(), clock::process_cpu_ns());
        (self.row, self.interval) = Default::default();
        let mut summary = Summary {
            title: self.workload.title.clone(),
            workload: self.workload.facts.clone(),
            ..Summary::default()
        };
        let measured_ns = clock::monotonic_ns();
        self.watch(measured_ns, self.load.duration, Some(&mut summary))?;
        summary.seconds = (clock::monotonic_ns() - measured_ns) as f64 / 1e9;
        let after = (self.target.sample(), clock::process_cpu_ns());
        summary.client_cpu_seconds = (after.1 - before.1) as f64 / 1e9;
        summary.broker_rss_bytes = after.0.map(|sample| sample.rss_bytes);
        summary.broker_cpu_seconds = after
            .0
            .zip(before.0)
            .map(|(after, before)| after.cpu_seconds - before.cpu_seconds);
        self.drain()?;
        if self.workload.is_e2e() {
            let expected = self.all.0.messages * self.workload.subscriptions;
            summary.lost = expected.saturating_sub(self.all.1.messages);
        }
        summary.out_of_order = self.all.1.out_of_order + self.all.1.gaps;
        self.progress.clear();
        Ok(summary)
    }

    /// Lets the load run for `length`, printing lines; rows and sums go to `summary` if there is one.
    fn watch(
        &mut self,
        from_ns: u64,
        length: Duration,
        mut summary: Option<&mut Summary>,
    ) -> anyhow::Result<()> {
        let end_ns = from_ns + length.as_nanos() as u64;
        let (mut row_ns, mut line_ns) = (from_ns, from_ns);
        while clock::monotonic_ns() < end_ns {
            if self.stop.load(Ordering::Relaxed) {
                bail!("stopped");
            }
            let _ = self.hear()?;
            let now = clock::monotonic_ns();
            if now - row_ns >= slice::SLICE_NS {
                self.end_row(from_ns, now, now - row_ns, summary.as_deref_mut());
                row_ns = now;
                let what = if summary.is_some() {
                    "measuring, s"
                } else {
                    "warming up, s"
                };
                self.progress
                    .bar(what, (now - from_ns) / 1_000_000_000, length.as_secs());
            }
            if now - line_ns >= self.load.interval.as_nanos() as u64 {
                self.print_line((now - line_ns) as f64 / 1e9);
                line_ns = now;
            }
        }
        let now = clock::monotonic_ns();
        // A rest shorter than half a second would only be noise in the plots; its counts are in the sums all the same.
        self.end_row(from_ns, now, now - row_ns, summary);
        Ok(())
    }

    fn end_row(&mut self, from_ns: u64, now: u64, length_ns: u64, summary: Option<&mut Summary>) {
        let (publish, receive) = std::mem::take(&mut self.row);
        let Some(summary) = summary else { return };
        summary.publish.merge(&publish);
        summary.receive.merge(&receive);
        if length_ns < slice::SLICE_NS / 2 {
            return;
        }
        let expected = self.all.0.messages * self.workload.subscriptions;
        let backlog = if self.workload.is_e2e() {
            expected.saturating_sub(self.all.1.messages)
        } else {
            0
        };
        summary.rows.push(Row {
            at_seconds: (now - from_ns) as f64 / 1e9,
            seconds: length_ns as f64 / 1e9,
            publish,
            receive,
            backlog,
        });
    }

    fn print_line(&mut self, seconds: f64) {
        let (publish, receive) = std::mem::take(&mut self.interval);
        for (side, slice, total, present) in [
            (
                Side::Publish,
                publish,
                self.all.0.messages,
                !self.workload.publishers.is_empty(),
            ),
            (
                Side::Receive,
                receive,
                self.all.1.messages,
                !self.workload.receivers.is_empty(),
            ),
        ] {
            if present {
                self.progress.say(&summary::line(side, &slice, seconds, total));
            }
        }
    }

    /// Stops the producers, waits for their receipts, then lets the consumers take what is left.
    fn drain(&mut self) -> anyhow::Result<()> {
        self.control.stop(Side::Publish);
        while self.publishing > 0 {
            let _ = self.hear()?;
        }
        if self.workload.is_e2e() {
            let expected = self.all.0.messages * self.workload.subscriptions;
            let (mut seen, mut moved_ns) = (self.all.1.messages, clock::monotonic_ns());
            while self.all.1.messages < expected && clock::monotonic_ns() - moved_ns < DRAIN_NS {
                if self.stop.load(Ordering::Relaxed) {
                    bail!("stopped");
                }
                let _ = self.hear()?;
                if self.all.1.messages != seen {
                    (seen, moved_ns) = (self.all.1.messages, clock::monotonic_ns());
                }
            }
        }
        self.control.stop(Side::Receive);
        Ok(())
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        self.control.abort();
        self.control.stop(Side::Publish);
        self.control.stop(Side::Receive);
        // Threads must not block on a full line while they are waited for.
        for thread in self.threads.drain(..) {
            while !thread.is_finished() {
                let _ = self.events.recv_timeout(Duration::from_millis(5));
            }
            let _ = thread.join();
        }
    }
}
