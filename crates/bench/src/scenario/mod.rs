//! `pharos bench scenario FILE`: a workload file with its cases, run one after the other, in one table.
//!
//! [`mod@file`] reads what is asked for, [`mod@run`] does one case with the threads of [`crate::perf`], [`mod@expect`] says whether the
//! figures ([`metric`]) are what the file wants, [`report`] prints. Every case has a broker of its own on fresh
//! directories, so cases do not see each other. A case the broker refuses to start for is reported as refused.

mod expect;
mod file;
mod load;
pub(crate) mod machine;
mod metric;
mod outcome;
pub(crate) mod page_cache;
mod plan;
mod prepare;
mod probe;
pub(crate) mod report;
mod rounds;
mod run;
mod slices;
mod values;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context as _, ensure};

use crate::args::{Output, ScenarioArgs};
use crate::clock;
use crate::progress::Progress;

use file::Scenario;
use machine::Machine;
use outcome::Outcome;
use run::Around;

/// Runs the file; success means that every case ran and nothing was lost, doubled or out of order.
pub(crate) fn run(args: &ScenarioArgs, stop: &Arc<AtomicBool>) -> anyhow::Result<ExitCode> {
    let mut scenario = Scenario::read(&args.file, &args.set)?;
    if let Some(part) = &args.only {
        scenario.cases.retain(|case| case.label.contains(part));
        ensure!(!scenario.cases.is_empty(), "no case has `{part}` in its label");
    }
    ensure!(
        args.target.url.is_none() || args.data_dir.is_empty(),
        "--data-dir is for a broker of the run's own, --url for one that runs"
    );
    ensure!(
        args.markdown.is_none() || args.unclean || machine::is_clean(),
        "a page is made by a program that was built from a commit and nothing else; commit and build again, or give --unclean \
         for a page that is not kept"
    );
    let temporary = std::env::temp_dir();
    let data = args.data_dir.first().unwrap_or(&temporary);
    let machine = Machine::look(data);
    let around = Around {
        target: &args.target,
        data_dirs: &args.data_dir,
        stop,
    };
    let began_unix_s = clock::realtime_ns() / 1_000_000_000;
    let mut progress = Progress::new();
    let count = scenario.cases.len();
    let mut rounds_of = vec![Vec::new(); count];
    for round in 1..=args.rounds {
        let turn = match args.rounds {
            1 => String::new(),
            rounds => format!("round {round} of {rounds}, "),
        };
        for ((number, case), rounds) in (1..).zip(&scenario.cases).zip(&mut rounds_of) {
            progress.say(&format!("{turn}case {number} of {count}: {}", case.label));
            let outcome = run::run(case, &around)?;
            let why = outcome.failure.as_deref().map(|why| format!(": {why}"));
            progress.say(&format!("  {}{}", outcome.checks(), why.unwrap_or_default()));
            rounds.push(outcome);
        }
    }
    let mut told: Vec<&str> = Vec::new();
    for metric in scenario.expect.iter().map(|expect| expect.metric.as_str()) {
        if !told.contains(&metric) {
            told.push(metric);
        }
    }
    let cases: Vec<_> = rounds_of
        .into_iter()
        .map(|rounds| rounds::combine(rounds, &told))
        .collect();
    let judged = scenario
        .expect
        .iter()
        .flat_map(|expect| expect.judge(&cases))
        .collect();
    let outcome = Outcome {
        scenario: &scenario,
        machine,
        command: machine::command_line(),
        began_unix_s,
        rounds: args.rounds,
        cases,
        judged,
    };
    if let Some(path) = &args.markdown {
        write(path, &outcome.to_markdown())?;
    }
    if let Some(path) = &args.html {
        write(path, &outcome.to_html())?;
    }
    match args.output {
        Output::Json => crate::output::print(&serde_json::to_string_pretty(&outcome.to_json())?)?,
        Output::Text => crate::output::print(&outcome.to_text())?,
    }
    let failed = outcome.is_faulty() || (args.strict && !outcome.all_met());
    Ok(if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
