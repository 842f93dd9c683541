//! Load against one contestant: topics, consumers, producers, warm-up, the measured part, and reading everything to
//! its end.
//!
//! Runs in a process of its own, so that the runner can end it and its CPU time is the load's alone.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Context as _;
use pharos_bench::load::{
    BACKLOG_SOURCE, Latencies, LoadThreads, Look, Pace, ProcessSample, Row, Side, Watch, disk_bytes,
    drop_cache, monotonic_ns, process_cpu_ns, sample_process, stop_flag, wall_ns,
};
use serde::{Deserialize, Serialize};

use crate::door::Door;
use crate::outcome::{Distribution, LoadResult, Second, minutes};
use crate::share::{Lane, PublishShare, ReceiveShare, Slot, Unit};
use crate::spec::Load;

/// First argument with which this program starts itself as a load process.
pub(crate) const LOAD: &str = "__load";

/// Instructions for the load process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    /// Load to run.
    pub(crate) load: Load,
    /// Contestant's protocol and address.
    pub(crate) door: Door,
    /// The broker's process.
    pub(crate) pid: u32,
    /// Contestant's data directory.
    pub(crate) data: PathBuf,
}

/// The load's process: an [`Order`] from standard input, a [`LoadResult`] to standard output.
pub(crate) fn run() -> anyhow::Result<ExitCode> {
    let order: Order = serde_json::from_reader(std::io::stdin().lock()).context("no order")?;
    let stop = stop_flag()?;
    let result = measure(&order, &stop)?;
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, &result)?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Seconds as a duration.
fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

fn measure(order: &Order, stop: &AtomicBool) -> anyhow::Result<LoadResult> {
    let (load, door) = (&order.load, &order.door);
    let plan = Plan::new(load);
    door.prepare(load, plan.cold.first())?;
    if load.backlog_bytes > 0 {
        store_backlog(load, door, &plan, stop)?;
        // What is read back comes from the device, or from what the broker itself keeps in memory.
        eprintln!("{}", drop_cache(std::slice::from_ref(&order.data)));
    }
    let mut threads = LoadThreads::new(stop, f64::from(load.subscriptions));
    let from_ns = monotonic_ns();
    // Consumers first, so that they are there when the first message is.
    for share in plan.hot.iter().chain(&plan.cold) {
        threads.spawn(share.side, door.receiver(load, share.clone()))?;
    }
    threads.await_ready()?;
    let attach_s = (monotonic_ns() - from_ns) as f64 / 1e9;
    for share in &plan.publishers {
        threads.spawn(Side::Publish, door.publisher(load, share.clone()))?;
    }
    threads.await_ready()?;
    threads.begin();
    threads.watch(watch("warming up, s", load.warmup_s), |_| false)?;
    let sample = || (sample_process(order.pid), process_cpu_ns());
    // Outside of what is measured: with ten thousand topics it takes seconds to ask a broker.
    let stages_before = door.stages();
    threads.next_part();
    let before = sample();
    let opened_ns = wall_ns(monotonic_ns());
    threads.open_backlog();
    let mut rows = Vec::new();
    let look = || Look {
        rss_bytes: sample_process(order.pid).map(|sample| sample.rss_bytes),
        disk_bytes: Some(disk_bytes(std::slice::from_ref(&order.data))),
    };
    let measured = Watch {
        rows: Some(&mut rows),
        look: &look,
        ..watch("measuring, s", load.duration_s)
    };
    let stored = plan.stored(load);
    let measured_s = threads.watch(measured, |threads| {
        stored > 0 && threads.all().of(Side::Backlog).backlog_messages >= stored
    })?;
    let after = sample();
    threads.next_part();
    let stages_after = door.stages();
    threads.end_publishing()?;
    let sent: u64 = threads.sent.values().sum();
    let expected = sent * u64::from(load.subscriptions);
    threads.drain(Side::Receive, expected)?;
    threads.drain(Side::Backlog, if stored > 0 { stored + sent } else { 0 })?;
    threads.finish()?;
    let mut result = LoadResult {
        seconds: measured_s,
        attach_s,
        ..LoadResult::default()
    };
    if let Some((after, before)) = stages_after.zip(stages_before) {
        result.stages = after.since(&before).into_iter().map(Into::into).collect();
    }
    result.take_counts(&threads, &rows);
    result.take_usage(before, after);
    result.take_checks(&threads, expected, stored, sent);
    if stored > 0 {
        let mut read = threads.part(0).of(Side::Backlog).clone();
        for part in 1..=2 {
            read.merge(threads.part(part).of(Side::Backlog));
        }
        let took_s = read.backlog_at_ns.saturating_sub(opened_ns) as f64 / 1e9;
        result.backlog_mb_s = Some(read.backlog_bytes as f64 / 1e6 / took_s.max(1e-9));
    }
    Ok(result)
}

fn watch(what: &str, length_s: f64) -> Watch<'_> {
    Watch {
        what,
        length: seconds(length_s),
        lines: None,
        rows: None,
        look: &Look::default,
    }
}

/// Stores what is read back later.
fn store_backlog(load: &Load, door: &Door, plan: &Plan, stop: &AtomicBool) -> anyhow::Result<()> {
    let mut threads = LoadThreads::new(stop, 0.0);
    for share in &plan.fillers {
        threads.spawn(Side::Publish, door.publisher(load, share.clone()))?;
    }
    threads.await_ready()?;
    threads.begin();
    threads.await_publishers("storing the backlog, messages", plan.stored(load))?;
    threads.finish()
}

/// Distribution of the work over threads.
struct Plan {
    publishers: Vec<PublishShare>,
    fillers: Vec<PublishShare>,
    hot: Vec<ReceiveShare>,
    cold: Vec<ReceiveShare>,
    /// Messages that each slot has before the load.
    backlog_messages: u64,
}

impl Plan {
    fn new(load: &Load) -> Self {
        let lanes = load.lanes();
        let pace = Pace {
            size: load.size,
            rate: load.rate / f64::from(lanes.max(1)),
            limit: None,
            batch_delay_ns: (load.batch_delay_ms * 1e6) as u64,
            window: load.window,
        };
        let backlog_messages = match load.backlog_bytes {
            0 => 0,
            bytes => (bytes / load.size as u64 / u64::from(lanes)).max(1),
        };
        let filling = Pace {
            rate: 0.0,
            limit: Some(backlog_messages),
            ..pace.clone()
        };
        let has_backlog = backlog_messages > 0;
        Self {
            publishers: publishers(load, &pace, 0),
            fillers: match has_backlog {
                true => publishers(load, &filling, BACKLOG_SOURCE),
                false => Vec::new(),
            },
            hot: receivers(load, Side::Receive, load.subscriptions, load.threads),
            // One reader on one thread: what a backlog is told about is the broker, not the load.
            cold: match has_backlog {
                true => receivers(load, Side::Backlog, 1, 1),
                false => Vec::new(),
            },
            backlog_messages,
        }
    }

    /// Messages stored before the load.
    fn stored(&self, load: &Load) -> u64 {
        self.backlog_messages * u64::from(load.lanes())
    }
}

fn publishers(load: &Load, pace: &Pace, mark: u32) -> Vec<PublishShare> {
    let lanes = (0..load.lanes()).map(|source| Lane {
        slot: Slot {
            topic: source / load.partitions.max(1),
            partition: source % load.partitions.max(1),
        },
        source: source | mark,
        offset_ns: match load.rate > 0.0 {
            true => (f64::from(source) / load.rate * 1e9) as u64,
            false => 0,
        },
    });
    let shares = deal(lanes, load.threads).into_iter().enumerate();
    shares
        .map(|(thread, lanes)| PublishShare {
            thread,
            lanes,
            pace: pace.clone(),
        })
        .collect()
}

fn receivers(load: &Load, side: Side, subscriptions: u32, threads: u32) -> Vec<ReceiveShare> {
    let units = (0..subscriptions)
        .flat_map(|subscription| (0..load.topics).map(move |topic| Unit { subscription, topic }));
    let first = if side == Side::Backlog {
        threads as usize + 100
    } else {
        0
    };
    let shares = deal(units, threads).into_iter().enumerate();
    shares
        .map(|(number, units)| ReceiveShare {
            thread: first + number,
            side,
            units,
        })
        .collect()
}

/// Deals items out to at most `hands` hands, none of them empty.
fn deal<T>(items: impl Iterator<Item = T>, hands: u32) -> Vec<Vec<T>> {
    let mut dealt: Vec<Vec<T>> = (0..hands.max(1)).map(|_| Vec::new()).collect();
    let count = dealt.len();
    for (number, item) in items.enumerate() {
        if let Some(hand) = dealt.get_mut(number % count) {
            hand.push(item);
        }
    }
    dealt.retain(|hand| !hand.is_empty());
    dealt
}

impl LoadResult {
    /// Takes the counts of the measured part.
    fn take_counts(&mut self, threads: &LoadThreads<'_>, rows: &[Row]) {
        let part = threads.part(1);
        let (publish, receive) = (part.of(Side::Publish), part.of(Side::Receive));
        let seconds = self.seconds.max(1e-9);
        self.published = publish.messages;
        self.received = receive.messages;
        self.publish_msg_s = publish.messages as f64 / seconds;
        self.publish_mb_s = publish.bytes as f64 / 1e6 / seconds;
        self.consume_msg_s = receive.messages as f64 / seconds;
        self.publish = Distribution::of(&publish.latencies);
        self.e2e = Distribution::of(&receive.latencies);
        self.late_p99_ms = publish.late.as_ref().map(|late| late.percentile_ms(99.0));
        let mut attached = Latencies::default();
        for side in [Side::Receive, Side::Backlog] {
            if let Some(own) = &threads.all().of(side).attached {
                attached.merge(own);
            }
        }
        self.attach = Distribution::of(&attached);
        self.rows = rows.iter().map(Second::of).collect();
        let last = self.rows.last().and_then(|row| row.disk_bytes);
        self.disk_mb = last.map(|bytes| bytes as f64 / 1e6);
        self.minutes_p99_ms = minutes(rows);
    }

    /// Takes what broker and load used: samples of the broker, and CPU nanoseconds of this process.
    fn take_usage(&mut self, before: (Option<ProcessSample>, u64), after: (Option<ProcessSample>, u64)) {
        self.client_cpu_s = (after.1 - before.1) as f64 / 1e9;
        let both = after.0.zip(before.0);
        self.broker_cpu_s = both.map(|(after, before)| after.cpu_seconds - before.cpu_seconds);
        self.rss_mb = after.0.map(|sample| sample.rss_bytes as f64 / 1e6);
    }

    /// Checks over the whole run that every consumer got every message once, in order and unchanged.
    fn take_checks(&mut self, threads: &LoadThreads<'_>, expected: u64, stored: u64, sent: u64) {
        let cold = if stored > 0 { stored + sent } else { 0 };
        for (side, expected) in [(Side::Receive, expected), (Side::Backlog, cold)] {
            let all = threads.all();
            let (slice, unique) = (all.of(side), all.unique(side));
            let skipped = u64::try_from(slice.gaps).unwrap_or(0);
            self.lost += expected.saturating_sub(unique).max(skipped);
            self.duplicates += slice.duplicates + unique.saturating_sub(expected);
            self.out_of_order += slice.out_of_order;
            self.damaged += slice.damaged;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_has_a_producer_and_every_subscription_a_thread() {
        let load = Load {
            topics: 3,
            partitions: 4,
            subscriptions: 5,
            threads: 2,
            rate: 1200.0,
            ..Load::default()
        };
        let plan = Plan::new(&load);
        let lanes: Vec<&Lane> = plan.publishers.iter().flat_map(|share| &share.lanes).collect();
        assert_eq!((plan.publishers.len(), lanes.len()), (2, 12));
        assert!(plan.publishers.iter().all(|share| share.pace.rate == 100.0));
        for topic in 0..3 {
            for partition in 0..4 {
                let slot = Slot { topic, partition };
                assert_eq!(lanes.iter().filter(|lane| lane.slot == slot).count(), 1);
            }
        }
        let units: usize = plan.hot.iter().map(|share| share.units.len()).sum();
        assert_eq!(units, 15);
        assert!(plan.cold.is_empty() && plan.fillers.is_empty());
    }

    #[test]
    fn a_backlog_is_written_by_producers_of_its_own() {
        let load = Load {
            backlog_bytes: 1 << 20,
            partitions: 4,
            ..Load::default()
        };
        let plan = Plan::new(&load);
        assert_eq!(plan.stored(&load), 1024);
        let share = &plan.fillers[0];
        assert_eq!(share.pace.limit, Some(256));
        assert!(share.lanes.iter().all(|lane| lane.source & BACKLOG_SOURCE != 0));
    }
}
