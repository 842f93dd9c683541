//! Run of one case, from an empty directory to its figures: probe the devices, start a broker, store the backlog,
//! drop it from memory, load, measure, and read everything to its end.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use pharos_wire::request;

use crate::access::Access;
use crate::args::TargetArgs;
use crate::broker_process::{BrokerProcess, StartError};
use crate::clock;
use crate::disk::disk_bytes;
use crate::perf::load_threads::{LoadThreads, Look, Watch};
use crate::perf::slice::Side;
use crate::perf::summary::Summary;
use crate::session;
use crate::target::Target;

use super::file::Case;
use super::metric;
use super::outcome::CaseOutcome;
use super::page_cache::drop_cache;
use super::plan::{Plan, Topic};
use super::prepare::{Prepared, last_words, prepare};
use super::probe::{self, Limits};
use super::slices;

/// The broker's count of group commits.
const GROUPS: &str = "pharos_storage_groups_total";
/// Metric with the bytes that its start read from the journals.
const REPLAYED: &str = "pharos_storage_replayed_bytes";

/// Context common to all cases.
pub(super) struct Around<'a> {
    /// The broker to measure, if one runs already.
    pub(super) target: &'a TargetArgs,
    /// Data directories of brokers that the run starts.
    pub(super) data_dirs: &'a [PathBuf],
    /// Set when Ctrl-C was pressed.
    pub(super) stop: &'a AtomicBool,
}

/// Runs a case. Whatever goes wrong is part of its outcome.
///
/// # Errors
/// Only that the run was stopped.
pub(super) fn run(case: &Case, around: &Around<'_>) -> anyhow::Result<CaseOutcome> {
    let mut outcome = CaseOutcome {
        name: case.name.clone(),
        label: case.label.clone(),
        params: case.params.clone(),
        ..CaseOutcome::default()
    };
    let failed = match prepare(case, around, &mut outcome) {
        Ok(prepared) => measure(case, around, prepared, &mut outcome).err(),
        Err(StartError::Refused(said)) => {
            outcome.refused = true;
            let why = last_words(&said);
            Some(anyhow::anyhow!("the broker refused to start: {why}"))
        }
        Err(error) => Some(error.into()),
    };
    if around.stop.load(Ordering::Relaxed) {
        anyhow::bail!("stopped");
    }
    outcome.failure = failed.map(|error| format!("{error:#}"));
    Ok(outcome)
}

fn measure(
    case: &Case,
    around: &Around<'_>,
    prepared: Prepared,
    outcome: &mut CaseOutcome,
) -> anyhow::Result<()> {
    let Prepared {
        mut target,
        limits,
        mut places,
    } = prepared;
    let names = topic_names(case.load.topics);
    let access = &target.access.clone();
    let mut plan = Plan::new(&case.load, &find(&target, &names, access)?, access);
    if plan.backlog_reads() > 0 {
        let from_ns = clock::monotonic_ns();
        store_backlog(&plan, around)?;
        outcome
            .figures
            .insert("backlog_s", (clock::monotonic_ns() - from_ns) as f64 / 1e9);
        if case.load.restart || case.load.kill {
            target = start_again(case, around, target, outcome)?;
            // It listens elsewhere now.
            plan = Plan::new(&case.load, &find(&target, &names, access)?, access);
        } else {
            outcome.notes.push(drop_cache(&target.dirs()));
        }
    }
    let group_bytes = load(case, around, &target, &plan, limits.as_ref(), outcome)?;
    // The device is asked again when the broker has left it: what it does with groups of the size that it was given.
    drop(target);
    if let (Some(bytes), Some(places)) = (group_bytes, &mut places) {
        outcome.figures.insert("group_kb", bytes / 1e3);
        let found = probe::groups(&case.load, &places.journals, bytes)?;
        outcome.figures.insert("device_group_mb_s", found);
        metric::add_relations(&mut outcome.figures);
    }
    Ok(())
}

/// Ends the broker, forgets what the system knows of its files, and starts it on them.
fn start_again(
    case: &Case,
    around: &Around<'_>,
    target: Target,
    outcome: &mut CaseOutcome,
) -> anyhow::Result<Target> {
    if !target.is_own() {
        let note = "the broker is not the run's own, so it was not restarted";
        outcome.notes.extend([note.to_owned(), drop_cache(&[])]);
        return Ok(target);
    }
    let own = target.into_own().context("no broker to restart")?;
    let home = if case.load.kill { own.kill()? } else { own.stop() };
    outcome.notes.push(drop_cache(&home.dirs()));
    let from_ns = clock::monotonic_ns();
    let target = Target::of(BrokerProcess::start_in(home, around.stop)?);
    let start_s = (clock::monotonic_ns() - from_ns) as f64 / 1e9;
    outcome.figures.insert("start_s", start_s);
    if let Some(bytes) = target.metric(REPLAYED) {
        outcome.figures.insert("replayed_mb", bytes / 1e6);
        outcome.figures.insert("replay_mb_s", bytes / 1e6 / start_s);
    }
    Ok(target)
}

fn topic_names(count: u32) -> Vec<String> {
    let base = format!("bench-{:x}", clock::realtime_ns() / 1_000_000);
    (0..count)
        .map(|number| session::full_topic(&format!("{base}-{number:05}")))
        .collect()
}

fn find(target: &Target, names: &[String], access: &Access) -> anyhow::Result<Vec<Topic>> {
    let brokers: Vec<SocketAddr> = if target.is_own() {
        vec![session::resolve(&target.url)?; names.len()]
    } else {
        session::find_brokers(&target.url, names, access)?
    };
    Ok(names.iter().cloned().zip(brokers).collect())
}

/// Makes the cold readers' subscriptions, so that the broker keeps what comes, and then what comes.
fn store_backlog(plan: &Plan, around: &Around<'_>) -> anyhow::Result<()> {
    for readers in &plan.cold {
        let (link_of, mut sessions) = readers.connect(&mut || {})?;
        for (link, session) in sessions.all() {
            let own = (0u64..).zip(&link_of).filter(|(_, at)| **at == link);
            session.ask_all(own.map(|(number, _)| {
                let make = move |id| request::close_consumer(number, id);
                (format!("closing consumer {number}"), make)
            }))?;
        }
    }
    let mut threads = LoadThreads::new(around.stop, 0.0);
    for fillers in &plan.fillers {
        threads.publish(fillers.clone())?;
    }
    threads.await_ready()?;
    threads.begin();
    let producers: usize = plan.fillers.iter().map(|fillers| fillers.producers.len()).sum();
    let total = plan.backlog_messages * producers as u64;
    threads.await_publishers("storing the backlog, messages", total)?;
    threads.finish()
}

/// The load itself. Returns the payload bytes of the average group commit, if the broker counts its groups.
fn load(
    case: &Case,
    around: &Around<'_>,
    target: &Target,
    plan: &Plan,
    limits: Option<&Limits>,
    outcome: &mut CaseOutcome,
) -> anyhow::Result<Option<f64>> {
    let mut threads = LoadThreads::new(around.stop, plan.fanout());
    let from_ns = clock::monotonic_ns();
    start(&mut threads, plan)?;
    let setup_s = (clock::monotonic_ns() - from_ns) as f64 / 1e9;
    // Only of use when the device is asked about groups of that size.
    let groups = || limits.and_then(|_| target.metric(GROUPS));
    let groups_before = groups();
    threads.begin();
    if !plan.publishers.is_empty() {
        threads.watch(quiet("warming up, s", case.load.warmup.0), |_| false)?;
    }
    let mut summary = Summary {
        title: case.label.clone(),
        workload: facts(case),
        ..Summary::default()
    };
    threads.next_part();
    let before = (target.sample(), clock::process_cpu_ns());
    let opened_ns = clock::wall_ns(clock::monotonic_ns());
    threads.open_backlog();
    let stored = plan.backlog_reads();
    let all_read =
        |threads: &LoadThreads<'_>| stored > 0 && threads.all().of(Side::Backlog).backlog_messages >= stored;
    let sliced = !case.load.slice.0.is_zero();
    let dirs = target.dirs();
    let look = || Look {
        rss_bytes: target.sample().map(|sample| sample.rss_bytes),
        disk_bytes: (!dirs.is_empty()).then(|| disk_bytes(&dirs)),
    };
    let watch = Watch {
        rows: Some(&mut summary.rows),
        look: if sliced { &look } else { &Look::default },
        ..quiet("measuring, s", case.load.duration.0)
    };
    summary.seconds = threads.watch(watch, all_read)?;
    let after = (target.sample(), clock::process_cpu_ns());
    threads.next_part();
    summary.take_samples(before, after);
    threads.end_publishing()?;
    let groups = groups().zip(groups_before);
    let (hot, cold) = plan.expected(&threads.sent);
    threads.drain(Side::Receive, hot)?;
    threads.drain(Side::Backlog, cold)?;
    threads.finish()?;
    let part = threads.part(1);
    summary.take_counts(&part);
    let mut figures = metric::figures(&summary, limits);
    figures.insert("setup_s", setup_s);
    if stored > 0 {
        // Nothing was read before the measured part, but a thread may have noticed late that it had begun.
        let mut read = threads.part(0).of(Side::Backlog).clone();
        read.merge(part.of(Side::Backlog));
        let complete = read.backlog_messages >= stored;
        let seconds = if complete {
            read.backlog_at_ns.saturating_sub(opened_ns) as f64 / 1e9
        } else {
            summary.seconds
        };
        figures.extend([
            ("cold_mb_s", read.backlog_bytes as f64 / 1e6 / seconds.max(1e-9)),
            ("cold_msg_s", read.backlog_messages as f64 / seconds.max(1e-9)),
            ("cold_share", read.backlog_messages as f64 / stored as f64),
        ]);
    }
    check(&threads, hot, cold, &mut summary, &mut figures);
    if sliced {
        outcome.slices = slices::slices(&summary, case.load.slice.0);
        figures.extend(slices::figures(&outcome.slices));
    }
    outcome.figures.extend(figures);
    metric::add_relations(&mut outcome.figures);
    outcome.summary = Some(summary);
    let published = threads.all().of(Side::Publish).bytes as f64;
    let groups = groups.map(|(after, before)| after - before);
    let groups = groups.filter(|groups| *groups > 0.0 && published > 0.0);
    Ok(groups.map(|groups| published / groups))
}

fn quiet(what: &str, length: Duration) -> Watch<'_> {
    Watch {
        what,
        length,
        lines: None,
        rows: None,
        look: &Look::default,
    }
}

/// Readers first, so that they are there when the first message is.
fn start(threads: &mut LoadThreads<'_>, plan: &Plan) -> anyhow::Result<()> {
    for (side, readers) in [(Side::Receive, &plan.hot), (Side::Backlog, &plan.cold)] {
        for plan in readers {
            threads.receive(side, plan.clone())?;
        }
    }
    threads.await_ready()?;
    for plan in &plan.publishers {
        threads.publish(plan.clone())?;
    }
    threads.await_ready()
}

/// Checks that every reader got every message once, in order and unchanged, from the first to the last.
fn check(
    threads: &LoadThreads<'_>,
    hot: u64,
    cold: u64,
    summary: &mut Summary,
    figures: &mut metric::Figures,
) {
    let all = threads.all();
    let mut sums = BTreeMap::from([
        ("lost", 0),
        ("duplicates", 0),
        ("out_of_order", 0),
        ("damaged", 0),
    ]);
    for (side, expected) in [(Side::Receive, hot), (Side::Backlog, cold)] {
        let (slice, unique) = (all.of(side), all.unique(side));
        let skipped = u64::try_from(slice.gaps).unwrap_or(0);
        let mut add = |name, count| *sums.entry(name).or_insert(0) += count;
        add("lost", expected.saturating_sub(unique).max(skipped));
        add("duplicates", slice.duplicates + unique.saturating_sub(expected));
        add("out_of_order", slice.out_of_order);
        add("damaged", slice.damaged);
    }
    summary.lost = sums["lost"];
    summary.out_of_order = sums["out_of_order"] + sums["duplicates"];
    summary.damaged = sums["damaged"];
    figures.extend(sums.into_iter().map(|(name, count)| (name, count as f64)));
}

/// The case under the keys that OpenMessaging Benchmark's result files use.
fn facts(case: &Case) -> serde_json::Map<String, serde_json::Value> {
    let load = &case.load;
    let facts = serde_json::json!({
        "driver": "pharos-bench",
        "workload": case.label,
        "topics": load.topics,
        "partitions": 1,
        "messageSize": load.size.0,
        "producersPerTopic": load.producers,
        "targetRate": load.total_rate(),
        "batchingMaxMessages": load.batch_messages,
        "batchingMaxBytes": load.batch_bytes.0,
        "window": load.window,
        "hotReaders": load.hot_readers(),
        "coldReaders": load.cold_readers,
    });
    facts.as_object().cloned().unwrap_or_default()
}
