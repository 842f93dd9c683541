//! One case from an empty directory to its figures: probe the devices, start a broker, store the backlog, forget it, load,
//! measure, and read everything to its end.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use pharos_wire::request;
use toml::{Table, Value};

use crate::args::TargetArgs;
use crate::broker_process::{BrokerHome, BrokerProcess, SETTINGS_FILE, StartError};
use crate::clock;
use crate::perf::crew::{Crew, Watch};
use crate::perf::slice::Side;
use crate::perf::summary::Summary;
use crate::session;
use crate::target::Target;

use super::file::{BROKER, Case, Params};
use super::metric;
use super::outcome::CaseOutcome;
use super::page_cache::drop_cache;
use super::plan::{Plan, Topic};
use super::probe::{self, Limits};

/// The broker's setting that names its journal directories, separated by commas.
const JOURNAL_DIRS: &str = "storage.journal_dirs";

/// What all cases have in common.
pub(super) struct Around<'a> {
    /// The broker to measure, if one runs already.
    pub(super) target: &'a TargetArgs,
    /// Where brokers of the run's own keep their data.
    pub(super) data_dirs: &'a [PathBuf],
    /// Set when somebody pressed Ctrl-C.
    pub(super) stop: &'a AtomicBool,
}

/// Runs a case. Whatever goes wrong is part of its outcome.
///
/// # Errors
/// Only that somebody stopped the run.
pub(super) fn run(case: &Case, around: &Around<'_>) -> anyhow::Result<CaseOutcome> {
    let mut outcome = CaseOutcome {
        name: case.name.clone(),
        label: case.label.clone(),
        params: case.params.clone(),
        ..CaseOutcome::default()
    };
    let failed = match prepare(case, around, &mut outcome) {
        Ok((target, limits)) => measure(case, around, target, limits.as_ref(), &mut outcome).err(),
        Err(StartError::Refused(said)) => {
            outcome.refused = true;
            Some(anyhow::anyhow!(
                "the broker refused to start: {}",
                last_words(&said)
            ))
        }
        Err(error) => Some(error.into()),
    };
    if around.stop.load(Ordering::Relaxed) {
        anyhow::bail!("stopped");
    }
    outcome.failure = failed.map(|error| format!("{error:#}"));
    Ok(outcome)
}

/// What a broker says last, without the name of a settings file that is gone by the time somebody reads it.
fn last_words(said: &str) -> &str {
    let last = said.lines().rev().find(|line| !line.trim().is_empty());
    let last = last.unwrap_or("it said nothing").trim();
    last.rsplit_once(&format!("{SETTINGS_FILE}: "))
        .map_or(last, |(_, why)| why)
}

/// The broker of the case, and what its devices can do.
fn prepare(
    case: &Case,
    around: &Around<'_>,
    outcome: &mut CaseOutcome,
) -> Result<(Target, Option<Limits>), StartError> {
    if around.target.url.is_some() {
        let ignored: Vec<String> = settings_of(&case.params)
            .map(|(key, value)| format!("{key} = {value}"))
            .collect();
        if !ignored.is_empty() || case.load.journals > 1 {
            let note = "the broker was running already; what the file says of its settings was not applied";
            outcome.notes.push(format!("{note}: {}", ignored.join(", ")));
        }
        return Ok((Target::open(around.target, around.stop)?, None));
    }
    let home = BrokerHome::new(around.data_dirs)?;
    let dirs = home.dirs();
    let journals = journal_dirs(&dirs, case.load.journals)?;
    let text = settings_text(&case.params, &journals)?;
    let mut limits = None;
    if !case.load.probe.0.is_zero() {
        let data = dirs.first().map_or(Path::new("."), PathBuf::as_path);
        let own = [data.to_owned()];
        let journals = if journals.is_empty() { &own[..] } else { &journals };
        let found = probe::measure(&case.load, data, journals)?;
        if !found.direct {
            let note = "this file system has no direct I/O: the device's limits are those of the page cache";
            outcome.notes.push(note.to_owned());
        }
        limits = Some(found);
    }
    let home = Arc::new(home.with_settings(&text)?);
    let broker = BrokerProcess::start_in(home, around.stop)?;
    Ok((Target::of(broker), limits))
}

/// Directories for `count` journals, one after the other on each device; none when the broker's default will do.
fn journal_dirs(dirs: &[PathBuf], count: u32) -> anyhow::Result<Vec<PathBuf>> {
    if count < 2 {
        return Ok(Vec::new());
    }
    let mut journals = Vec::new();
    for (number, dir) in (0..count).zip(dirs.iter().cycle()) {
        let path = dir.join(format!("journal-{number}"));
        std::fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        journals.push(path);
    }
    Ok(journals)
}

fn settings_of(params: &Params) -> impl Iterator<Item = (&str, &Value)> {
    params
        .iter()
        .filter_map(|(key, value)| Some((key.strip_prefix(BROKER)?, value)))
}

/// The broker's settings file.
fn settings_text(params: &Params, journals: &[PathBuf]) -> anyhow::Result<String> {
    let mut table = Table::new();
    for (key, value) in settings_of(params) {
        put(&mut table, key, value.clone())?;
    }
    if !journals.is_empty() {
        let all: Vec<String> = journals.iter().map(|dir| dir.display().to_string()).collect();
        put(&mut table, JOURNAL_DIRS, Value::String(all.join(",")))?;
    }
    Ok(toml::to_string(&table)?)
}

/// Puts `a.b.c` into tables within tables.
fn put(table: &mut Table, key: &str, value: Value) -> anyhow::Result<()> {
    match key.split_once('.') {
        None => drop(table.insert(key.to_owned(), value)),
        Some((section, rest)) => {
            let inner = table.entry(section).or_insert_with(|| Value::Table(Table::new()));
            let inner = inner
                .as_table_mut()
                .with_context(|| format!("broker.{section} is a value and a section"))?;
            put(inner, rest, value)?;
        }
    }
    Ok(())
}

fn measure(
    case: &Case,
    around: &Around<'_>,
    mut target: Target,
    limits: Option<&Limits>,
    outcome: &mut CaseOutcome,
) -> anyhow::Result<()> {
    let names = topic_names(case.load.topics);
    let token = around.target.token.as_deref();
    let mut plan = Plan::new(&case.load, &find(&target, &names, token)?, token);
    if plan.backlog_reads() > 0 {
        let from_ns = clock::monotonic_ns();
        store_backlog(&plan, around)?;
        outcome
            .figures
            .insert("backlog_s", (clock::monotonic_ns() - from_ns) as f64 / 1e9);
        if case.load.restart {
            if !target.is_own() {
                let note = "the broker is not the run's own, so it was not restarted";
                outcome.notes.push(note.to_owned());
            }
            target = target.restart(around.stop)?;
            // It listens elsewhere now.
            plan = Plan::new(&case.load, &find(&target, &names, token)?, token);
        }
        outcome.notes.push(drop_cache(&target.dirs()));
    }
    load(case, around, &target, &plan, limits, outcome)
}

fn topic_names(count: u32) -> Vec<String> {
    let base = format!("bench-{:x}", clock::realtime_ns() / 1_000_000);
    (0..count)
        .map(|number| session::full_topic(&format!("{base}-{number:05}")))
        .collect()
}

fn find(target: &Target, names: &[String], token: Option<&str>) -> anyhow::Result<Vec<Topic>> {
    let brokers: Vec<SocketAddr> = if target.is_own() {
        vec![session::resolve(&target.url)?; names.len()]
    } else {
        session::find_brokers(&target.url, names, token)?
    };
    Ok(names.iter().cloned().zip(brokers).collect())
}

/// Makes the cold readers' subscriptions, so that the broker keeps what comes, and then what comes.
fn store_backlog(plan: &Plan, around: &Around<'_>) -> anyhow::Result<()> {
    for readers in &plan.cold {
        let (link_of, mut sessions) = readers.connect()?;
        for (link, session) in sessions.all() {
            let own = (0u64..).zip(&link_of).filter(|(_, at)| **at == link);
            session.ask_all(own.map(|(number, _)| {
                let make = move |id| request::close_consumer(number, id);
                (format!("closing consumer {number}"), make)
            }))?;
        }
    }
    let mut crew = Crew::new(around.stop, 0.0);
    for fillers in &plan.fillers {
        crew.publish(fillers.clone())?;
    }
    crew.await_ready()?;
    crew.begin();
    let producers: usize = plan.fillers.iter().map(|fillers| fillers.producers.len()).sum();
    let total = plan.backlog_messages * producers as u64;
    crew.await_publishers("storing the backlog, messages", total)?;
    crew.finish()
}

fn load(
    case: &Case,
    around: &Around<'_>,
    target: &Target,
    plan: &Plan,
    limits: Option<&Limits>,
    outcome: &mut CaseOutcome,
) -> anyhow::Result<()> {
    let mut crew = Crew::new(around.stop, plan.fanout());
    let from_ns = clock::monotonic_ns();
    start(&mut crew, plan)?;
    let setup_s = (clock::monotonic_ns() - from_ns) as f64 / 1e9;
    crew.begin();
    if !plan.publishers.is_empty() {
        crew.watch(quiet("warming up, s", case.load.warmup.0), |_| false)?;
    }
    let mut summary = Summary {
        title: case.label.clone(),
        workload: facts(case),
        ..Summary::default()
    };
    crew.next_part();
    let before = (target.sample(), clock::process_cpu_ns());
    let opened_ns = clock::wall_ns(clock::monotonic_ns());
    crew.open_backlog();
    let stored = plan.backlog_reads();
    let all_read = |crew: &Crew<'_>| stored > 0 && crew.all().of(Side::Backlog).backlog_messages >= stored;
    let watch = Watch {
        rows: Some(&mut summary.rows),
        ..quiet("measuring, s", case.load.duration.0)
    };
    summary.seconds = crew.watch(watch, all_read)?;
    let after = (target.sample(), clock::process_cpu_ns());
    crew.next_part();
    summary.take_samples(before, after);
    crew.end_publishing()?;
    let (hot, cold) = plan.expected(&crew.sent);
    crew.drain(Side::Receive, hot)?;
    crew.drain(Side::Backlog, cold)?;
    crew.finish()?;
    let part = crew.part(1);
    summary.take_counts(&part);
    let mut figures = metric::figures(&summary, limits);
    figures.insert("setup_s", setup_s);
    if stored > 0 {
        // Nothing was read before the measured part, but a thread may have noticed late that it had begun.
        let mut read = crew.part(0).of(Side::Backlog).clone();
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
    metric::add_relations(&mut figures);
    check(&crew, hot, cold, &mut summary, &mut figures);
    outcome.figures.extend(figures);
    outcome.summary = Some(summary);
    Ok(())
}

fn quiet(what: &str, length: Duration) -> Watch<'_> {
    Watch {
        what,
        length,
        lines: None,
        rows: None,
    }
}

/// Readers first, so that they are there when the first message is.
fn start(crew: &mut Crew<'_>, plan: &Plan) -> anyhow::Result<()> {
    for (side, readers) in [(Side::Receive, &plan.hot), (Side::Backlog, &plan.cold)] {
        for plan in readers {
            crew.receive(side, plan.clone())?;
        }
    }
    crew.await_ready()?;
    for plan in &plan.publishers {
        crew.publish(plan.clone())?;
    }
    crew.await_ready()
}

/// Whether every reader got every message once and in order, from the first to the last.
fn check(crew: &Crew<'_>, hot: u64, cold: u64, summary: &mut Summary, figures: &mut metric::Figures) {
    let all = crew.all();
    let mut sums = BTreeMap::from([("lost", 0), ("duplicates", 0), ("out_of_order", 0)]);
    for (side, expected) in [(Side::Receive, hot), (Side::Backlog, cold)] {
        let (slice, unique) = (all.of(side), all.unique(side));
        let skipped = u64::try_from(slice.gaps).unwrap_or(0);
        let mut add = |name, count| *sums.entry(name).or_insert(0) += count;
        add("lost", expected.saturating_sub(unique).max(skipped));
        add("duplicates", slice.duplicates + unique.saturating_sub(expected));
        add("out_of_order", slice.out_of_order);
    }
    summary.lost = sums["lost"];
    summary.out_of_order = sums["out_of_order"] + sums["duplicates"];
    figures.extend(sums.into_iter().map(|(name, count)| (name, count as f64)));
}

/// The case under the keys that result files of the field use.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_written_as_the_broker_reads_them() {
        let params = Params::from([
            ("size".to_owned(), Value::Integer(3)),
            ("broker.storage.sync".to_owned(), Value::String("async".into())),
            ("broker.shards".to_owned(), Value::Integer(2)),
        ]);
        let text = settings_text(&params, &["/a/b".into(), "/c".into()]).expect("writes");
        let table: Table = toml::from_str(&text).expect("reads");
        assert_eq!(table["shards"].as_integer(), Some(2));
        assert_eq!(table["storage"]["sync"].as_str(), Some("async"));
        assert_eq!(table["storage"]["journal_dirs"].as_str(), Some("/a/b,/c"));
        assert!(!table.contains_key("size"));
    }

    #[test]
    fn the_reason_of_a_refusal_stands_alone() {
        let said = format!("INFO begins\npharos: /tmp/x/{SETTINGS_FILE}: unknown setting 'a'\n\n");
        assert_eq!(last_words(&said), "unknown setting 'a'");
        assert_eq!(last_words("panic"), "panic");
    }

    #[test]
    fn journals_are_dealt_out_over_devices() {
        let dirs = [
            tempfile::tempdir().expect("a directory"),
            tempfile::tempdir().expect("a directory"),
        ];
        let paths = [dirs[0].path().to_owned(), dirs[1].path().to_owned()];
        let journals = journal_dirs(&paths, 3).expect("made");
        assert!(journals[0].starts_with(&paths[0]) && journals[1].starts_with(&paths[1]));
        assert!(journals[2].starts_with(&paths[0]) && journals[2].is_dir());
        assert!(journal_dirs(&paths, 1).expect("made").is_empty());
    }
}
