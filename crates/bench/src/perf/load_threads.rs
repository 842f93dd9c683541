//! The load threads of a run, and the sums of what they tell.
//!
//! Always true: when a [`LoadThreads`] is dropped, its threads have ended.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::bail;

use crate::clock;
use crate::progress::Progress;

use super::consumer::{self, ReceivePlan};
use super::producer::{self, PublishPlan};
use super::slice::{self, Control, Event, SIDES, Side, Slice, Teller};
use super::summary::{self, Row};

/// Time limit for setting up, in nanoseconds.
const SETUP_NS: u64 = 300_000_000_000;
/// Time without a message after which consumers count those still missing as lost, in nanoseconds.
const DRAIN_NS: u64 = 10_000_000_000;

/// Counts of all sides.
#[derive(Clone, Debug, Default)]
pub struct Counts([Slice; 3]);

impl Counts {
    /// The counts of one side.
    pub fn of(&self, side: Side) -> &Slice {
        &self.0[side as usize]
    }

    fn add(&mut self, side: Side, slice: &Slice) {
        self.0[side as usize].merge(slice);
    }

    /// Messages received on that side, doubled ones counted once.
    pub fn unique(&self, side: Side) -> u64 {
        let slice = self.of(side);
        slice.messages - slice.duplicates
    }
}

/// Reporting options of [`LoadThreads::watch`].
pub struct Watch<'a> {
    /// For the progress bar.
    pub what: &'a str,
    /// For how long at most.
    pub length: Duration,
    /// Interval of printed lines.
    pub lines: Option<Duration>,
    /// Destination of one row per second.
    pub rows: Option<&'a mut Vec<Row>>,
    /// Looks at the broker for each row.
    pub look: &'a dyn Fn() -> Look,
}

/// Resource usage of a broker at one moment, as far as it was measured.
#[derive(Clone, Copy, Debug, Default)]
pub struct Look {
    /// Resident memory, bytes.
    pub rss_bytes: Option<u64>,
    /// Disk usage of its directories, in bytes.
    pub disk_bytes: Option<u64>,
}

/// Load threads under way.
pub struct LoadThreads<'a> {
    stop: &'a AtomicBool,
    control: Arc<Control>,
    sender: SyncSender<Event>,
    events: Receiver<Event>,
    threads: Vec<JoinHandle<()>>,
    present: [bool; 3],
    /// Publishing threads that have not ended.
    publishing: usize,
    starting: usize,
    /// Expected receives per published message, for the backlog shown in progress reports.
    fanout: f64,
    /// Progress display.
    pub(crate) progress: Progress,
    /// Messages sent and receipted by each producer; complete after [`LoadThreads::end_publishing`].
    pub sent: BTreeMap<u32, u64>,
    all: Counts,
    parts: Vec<Counts>,
    /// Counts since the start of the current row.
    row: Counts,
    /// Counts since the last printed line.
    interval: Counts,
}

impl<'a> LoadThreads<'a> {
    /// No threads so far. `fanout` is how often each message should be received by [`Side::Receive`].
    pub fn new(stop: &'a AtomicBool, fanout: f64) -> Self {
        let (sender, events) = sync_channel(1024);
        Self {
            stop,
            control: Arc::default(),
            sender,
            events,
            threads: Vec::new(),
            present: [false; 3],
            publishing: 0,
            starting: 0,
            fanout,
            progress: Progress::new(),
            sent: BTreeMap::new(),
            all: Counts::default(),
            parts: vec![Counts::default()],
            row: Counts::default(),
            interval: Counts::default(),
        }
    }

    /// Starts a publishing thread.
    pub fn publish(&mut self, plan: PublishPlan) -> anyhow::Result<()> {
        self.spawn(Side::Publish, move |control, teller| {
            producer::run(&plan, control, teller)
        })
    }

    /// Starts a receiving thread.
    pub fn receive(&mut self, side: Side, plan: ReceivePlan) -> anyhow::Result<()> {
        self.spawn(side, move |control, teller| consumer::run(&plan, control, teller))
    }

    /// Starts a thread of that side that does `work`, which says [`Event::Ready`] and reports through what it is given.
    ///
    /// # Errors
    /// The system starts no thread.
    pub fn spawn(
        &mut self,
        side: Side,
        work: impl FnOnce(&Control, Teller) -> anyhow::Result<()> + Send + 'static,
    ) -> anyhow::Result<()> {
        let (control, sender) = (Arc::clone(&self.control), self.sender.clone());
        self.present[side as usize] = true;
        self.publishing += usize::from(side == Side::Publish);
        self.starting += 1;
        let thread = std::thread::Builder::new()
            .name(format!("load-{}", self.threads.len()))
            .spawn(move || {
                let teller = Teller::new(side, sender.clone(), clock::monotonic_ns());
                if let Err(error) = work(&control, teller) {
                    // A parent that no longer listens has its own reason to end.
                    let _ = sender.send(Event::Failed(format!("{error:#}")));
                }
            })?;
        self.threads.push(thread);
        Ok(())
    }

    /// Waits until all threads started so far are connected.
    pub fn await_ready(&mut self) -> anyhow::Result<()> {
        let deadline = clock::monotonic_ns() + SETUP_NS;
        while self.starting > 0 {
            self.look_for_stop()?;
            if clock::monotonic_ns() > deadline {
                bail!("producers and consumers were not set up in time");
            }
            self.hear()?;
        }
        Ok(())
    }

    fn look_for_stop(&self) -> anyhow::Result<()> {
        if self.stop.load(Ordering::Relaxed) {
            bail!("stopped");
        }
        Ok(())
    }

    /// Waits briefly for one event and handles it.
    fn hear(&mut self) -> anyhow::Result<()> {
        let event = self.events.recv_timeout(Duration::from_millis(50));
        event.map_or(Ok(()), |event| self.take(event))
    }

    /// A failure ends the run, counts are added where they belong.
    fn take(&mut self, event: Event) -> anyhow::Result<()> {
        match event {
            Event::Failed(message) => bail!(message),
            Event::Ready => self.starting -= 1,
            Event::Ended(sent) => {
                self.publishing -= 1;
                self.sent.extend(sent);
            }
            Event::Slice(side, part, slice) => {
                for counts in [&mut self.all, &mut self.row, &mut self.interval] {
                    counts.add(side, &slice);
                }
                if let Some(counts) = self.parts.get_mut(part as usize) {
                    counts.add(side, &slice);
                }
            }
        }
        Ok(())
    }

    /// Begins the load.
    pub fn begin(&self) {
        self.control.start(clock::monotonic_ns());
    }

    /// Begins the next part of the run; the first is part 0.
    pub fn next_part(&mut self) {
        self.parts.push(Counts::default());
        self.control.next_part();
        (self.row, self.interval) = Default::default();
    }

    /// Lets the readers of the backlog begin.
    pub fn open_backlog(&self) {
        self.control.open_backlog();
    }

    /// Everything counted so far.
    pub fn all(&self) -> &Counts {
        &self.all
    }

    /// Returns the counts of one part; complete after [`LoadThreads::finish`].
    pub fn part(&self, number: usize) -> Counts {
        self.parts.get(number).cloned().unwrap_or_default()
    }

    /// Looks on until the time is over or `done`; the seconds it took.
    pub fn watch(&mut self, mut watch: Watch<'_>, done: impl Fn(&Self) -> bool) -> anyhow::Result<f64> {
        let from_ns = clock::monotonic_ns();
        let end_ns = from_ns + watch.length.as_nanos() as u64;
        let (mut row_ns, mut line_ns) = (from_ns, from_ns);
        while clock::monotonic_ns() < end_ns && !done(self) {
            self.look_for_stop()?;
            self.hear()?;
            let now = clock::monotonic_ns();
            if now - row_ns >= slice::SLICE_NS {
                self.end_row(from_ns, now, now - row_ns, watch.rows.as_deref_mut(), watch.look);
                row_ns = now;
                let passed = (now - from_ns) / 1_000_000_000;
                self.progress.bar(watch.what, passed, watch.length.as_secs());
            }
            if let Some(every) = watch.lines
                && now - line_ns >= every.as_nanos() as u64
            {
                self.print_line((now - line_ns) as f64 / 1e9);
                line_ns = now;
            }
        }
        let now = clock::monotonic_ns();
        self.end_row(from_ns, now, now - row_ns, watch.rows, watch.look);
        Ok((now - from_ns) as f64 / 1e9)
    }

    fn end_row(
        &mut self,
        from_ns: u64,
        now: u64,
        length_ns: u64,
        rows: Option<&mut Vec<Row>>,
        look: &dyn Fn() -> Look,
    ) {
        let counts = std::mem::take(&mut self.row);
        // A rest shorter than half a second would only be noise in the plots; its counts are in the sums all the same.
        let Some(rows) = rows.filter(|_| length_ns >= slice::SLICE_NS / 2) else {
            return;
        };
        let [publish, receive, backlog_read] = counts.0;
        let published = self.all.of(Side::Publish).messages as f64 * self.fanout;
        let look = look();
        let backlog = (published as u64).saturating_sub(self.all.of(Side::Receive).messages);
        rows.push(Row {
            at_seconds: (now - from_ns) as f64 / 1e9,
            seconds: length_ns as f64 / 1e9,
            publish,
            receive,
            backlog_read,
            rss_bytes: look.rss_bytes,
            disk_bytes: look.disk_bytes,
            backlog: if self.present[Side::Publish as usize] {
                backlog
            } else {
                0
            },
        });
    }

    fn print_line(&mut self, seconds: f64) {
        let counts = std::mem::take(&mut self.interval);
        for side in SIDES {
            if self.present[side as usize] {
                let total = self.all.of(side).messages;
                let line = summary::line(side, counts.of(side), seconds, total);
                self.progress.say(&line);
            }
        }
    }

    /// Stops the producers, unless they stop by themselves, and waits for their receipts.
    pub fn end_publishing(&mut self) -> anyhow::Result<()> {
        self.control.stop(Side::Publish);
        self.await_publishers("waiting for receipts", 0)
    }

    /// Waits until the producers have sent all they were told to; `total` messages is the whole.
    pub fn await_publishers(&mut self, what: &str, total: u64) -> anyhow::Result<()> {
        while self.publishing > 0 {
            self.look_for_stop()?;
            self.hear()?;
            if total > 0 {
                let done = self.all.of(Side::Publish).messages;
                self.progress.bar(what, done, total);
            }
        }
        Ok(())
    }

    /// Lets the consumers of `side` take what is left of `expected` messages; gives up when nothing comes for long.
    pub fn drain(&mut self, side: Side, expected: u64) -> anyhow::Result<()> {
        let (mut seen, mut moved_ns) = (0, clock::monotonic_ns());
        while self.all.unique(side) < expected && clock::monotonic_ns() - moved_ns < DRAIN_NS {
            self.look_for_stop()?;
            self.hear()?;
            let now = self.all.of(side).messages;
            self.progress.bar("receiving the rest", now, expected);
            if now != seen {
                (seen, moved_ns) = (now, clock::monotonic_ns());
            }
        }
        Ok(())
    }

    /// Ends all threads and takes their last counts.
    pub fn finish(&mut self) -> anyhow::Result<()> {
        self.control.stop(Side::Publish);
        self.control.stop(Side::Receive);
        while !self.threads.iter().all(JoinHandle::is_finished) {
            self.look_for_stop()?;
            if let Ok(event) = self.events.recv_timeout(Duration::from_millis(5)) {
                self.take(event)?;
            }
        }
        while let Ok(event) = self.events.try_recv() {
            self.take(event)?;
        }
        self.progress.clear();
        Ok(())
    }
}

impl Drop for LoadThreads<'_> {
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
