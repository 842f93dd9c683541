//! All cases, all rounds, all contestants in turn.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use pharos_bench::load::{
    Machine, command_line, is_clean, monotonic_ns, realtime_ns, sample_process, stop_flag,
};

use crate::args::Args;
use crate::case::{Case, Workload};
use crate::load::Order;
use crate::outcome::LoadResult;
use crate::page::{Attempt, CaseReport, Report, WorkloadReport};
use crate::peer::{Contestant, Installed, Peer, Running};
use crate::spec::Kind;
use crate::tool;

/// Between two looks at the load.
const LOOK: Duration = Duration::from_millis(50);
/// Time without load before and during an idle measurement, in seconds.
const REST_S: f64 = 5.0;

/// Context common to all attempts.
struct Around {
    installed: Installed,
    data: PathBuf,
    stop: std::sync::Arc<AtomicBool>,
}

/// Runs the files; success means that every contestant ran every case, and nothing was lost, doubled or damaged.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    ensure!(
        args.markdown.is_none() || args.unclean || is_clean(),
        "a page is made by a program that was built from a commit and nothing else; commit and build again, or give --unclean \
         for a page that is not kept"
    );
    let mut workloads = Vec::new();
    for file in &args.files {
        workloads.push(Workload::read(file, args.quick)?);
    }
    choose(&mut workloads, args)?;
    let around = around(args)?;
    let version = |peer: Peer| (peer.word(), around.installed.version(peer));
    let mut report = Report {
        machine: Machine::look(&around.data).line(),
        commit: Machine::look(&around.data).commit.unwrap_or("unknown").to_owned(),
        command: command_line().replacen("pharos", "pharos bench peers", 1),
        began_unix_s: realtime_ns() / 1_000_000_000,
        quick: args.quick,
        took_s: 0.0,
        versions: Peer::ALL
            .into_iter()
            .map(version)
            .chain([("java", java_version())])
            .collect(),
        workloads: workloads.iter().map(WorkloadReport::of).collect(),
    };
    let all: usize = workloads.iter().map(|workload| workload.cases.len()).sum();
    let from_ns = monotonic_ns();
    let mut number = 0;
    for (at, workload) in workloads.iter().enumerate() {
        for (case_at, case) in workload.cases.iter().enumerate() {
            number += 1;
            let rounds = case.rounds;
            for round in 1..=rounds {
                for contestant in &case.contestants {
                    say(&format!(
                        "case {number} of {all}, round {round} of {rounds}: {}: {}, {}",
                        workload.name, case.name, contestant.title
                    ));
                    let attempt = attempt(case, *contestant, round, &around);
                    say(&format!("  {}", attempt.line()));
                    report.take(at, case_at, attempt);
                    ensure!(!around.stop.load(Ordering::Relaxed), "stopped");
                }
            }
            report.took_s = (monotonic_ns() - from_ns) as f64 / 1e9;
            write(args, &report)?;
        }
    }
    writeln!(std::io::stdout().lock(), "{}", report.to_markdown())?;
    Ok(if report.is_faulty() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// Returns the version of the Java runtime, which most peers need.
fn java_version() -> String {
    let said = Command::new("java").arg("-version").output();
    let text = said.map(|output| String::from_utf8_lossy(&output.stderr).into_owned());
    let lines: Vec<String> = text.unwrap_or_default().lines().map(str::to_owned).collect();
    lines.into_iter().nth(1).unwrap_or_else(|| "none".to_owned())
}

fn say(text: &str) {
    eprintln!("{text}");
}

/// Leaves out what was not asked for.
fn choose(workloads: &mut Vec<Workload>, args: &Args) -> anyhow::Result<()> {
    let wanted: Vec<Contestant> = args
        .contestants
        .iter()
        .map(|word| Contestant::parse(word))
        .collect::<anyhow::Result<_>>()?;
    for workload in workloads.iter_mut() {
        let name = workload.name.clone();
        workload.cases.retain(|case| {
            let full = format!("{name}: {}", case.name);
            args.only.as_ref().is_none_or(|text| full.contains(text))
        });
        for case in &mut workload.cases {
            let asked = |it: &Contestant| wanted.is_empty() || wanted.contains(it);
            case.contestants.retain(asked);
            case.rounds = args.rounds.unwrap_or(case.rounds);
        }
    }
    workloads.retain(|workload| !workload.cases.is_empty());
    ensure!(!workloads.is_empty(), "no case is left");
    Ok(())
}

fn around(args: &Args) -> anyhow::Result<Around> {
    let pharos = match &args.pharos {
        Some(path) => path.clone(),
        None => std::env::current_exe()?.with_file_name("pharos"),
    };
    ensure!(
        pharos.is_file(),
        "{} is not there; build it with `cargo build --release -p pharos`, or name it with --pharos",
        pharos.display()
    );
    let peers = args.peers.canonicalize();
    let data = args.data_dir.clone().unwrap_or_else(std::env::temp_dir);
    fs::create_dir_all(&data).with_context(|| format!("cannot make {}", data.display()))?;
    Ok(Around {
        installed: Installed {
            peers: peers.with_context(|| format!("{} is not there", args.peers.display()))?,
            pharos: pharos.canonicalize()?,
        },
        data: data.canonicalize()?,
        stop: stop_flag()?,
    })
}

fn write(args: &Args, report: &Report) -> anyhow::Result<()> {
    let pages = [
        (&args.markdown, Report::to_markdown as fn(&Report) -> String),
        (&args.html, Report::to_html),
        (&args.json, Report::to_json),
    ];
    for (path, page) in pages {
        if let Some(path) = path {
            fs::write(path, page(report)).with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    Ok(())
}

/// Runs one contestant, from its start to its end.
fn attempt(case: &Case, contestant: Contestant, round: u32, around: &Around) -> Attempt {
    let mut attempt = Attempt {
        contestant,
        round,
        ..Attempt::of(contestant)
    };
    let from_ns = monotonic_ns();
    attempt.result = measure(case, contestant, around, &mut attempt).map_err(|error| format!("{error:#}"));
    attempt.took_s = (monotonic_ns() - from_ns) as f64 / 1e9;
    attempt
}

fn measure(
    case: &Case,
    contestant: Contestant,
    around: &Around,
    attempt: &mut Attempt,
) -> anyhow::Result<LoadResult> {
    let (installed, stop) = (&around.installed, &*around.stop);
    rest(case.load.rest_s, stop)?;
    let mut running = Running::start(contestant, &case.load, installed, &around.data, stop)?;
    (attempt.command, attempt.settings) = running.told.clone();
    let mut result = match case.load.kind {
        Kind::Idle => idle(&running, stop)?,
        Kind::Tool => tool::run(&case.load, &running, installed, stop)?,
        Kind::Load => match load(case, &running, around) {
            Ok(result) => result,
            Err(error) => match running.last_words() {
                Some(words) => return Err(error.context(format!("{} ended: {words}", contestant.title))),
                None => return Err(error),
            },
        },
    };
    result.start_s = Some(running.start_s);
    result.install_mb = Some(installed.bytes(contestant.peer) as f64 / 1e6);
    Ok(result)
}

/// Waits.
fn rest(seconds: f64, stop: &AtomicBool) -> anyhow::Result<()> {
    let until = monotonic_ns() + (seconds * 1e9) as u64;
    while monotonic_ns() < until {
        ensure!(!stop.load(Ordering::Relaxed), "stopped");
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// Measures a broker without load.
fn idle(running: &Running, stop: &AtomicBool) -> anyhow::Result<LoadResult> {
    let mut samples = Vec::new();
    for _ in 0..2 {
        rest(REST_S, stop)?;
        samples.push(sample_process(running.pid()).context("it has ended")?);
    }
    let cpu_s = samples[1].cpu_seconds - samples[0].cpu_seconds;
    Ok(LoadResult {
        idle_rss_mb: Some(samples[1].rss_bytes as f64 / 1e6),
        idle_cpu_ms_s: Some(cpu_s * 1e3 / REST_S),
        ..LoadResult::default()
    })
}

/// The load's process; dropping it ends it.
struct Loading(Child);

impl Drop for Loading {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn load(case: &Case, running: &Running, around: &Around) -> anyhow::Result<LoadResult> {
    let order = Order {
        load: case.load.clone(),
        door: running.door.clone(),
        pid: running.pid(),
        data: running.home().to_owned(),
    };
    let log = tempfile::NamedTempFile::new_in(&around.data)?;
    let mut child = Loading(
        Command::new(std::env::current_exe()?)
            .args([
                crate::peer::GUARDED,
                &std::env::current_exe()?.to_string_lossy(),
                crate::load::LOAD,
            ])
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(log.path())?)
            .spawn()
            .context("cannot start the load")?,
    );
    let stdin = child.0.stdin.take().context("no pipe to the load")?;
    serde_json::to_writer(stdin, &order)?;
    let mut stdout = child.0.stdout.take().context("no pipe from the load")?;
    let reader: JoinHandle<std::io::Result<Vec<u8>>> = std::thread::spawn(move || {
        let mut text = Vec::new();
        stdout.read_to_end(&mut text)?;
        Ok(text)
    });
    let deadline = monotonic_ns() + (case.load.limit_s * 1e9) as u64;
    let status = loop {
        if let Some(status) = child.0.try_wait()? {
            break status;
        }
        ensure!(!around.stop.load(Ordering::Relaxed), "stopped");
        if monotonic_ns() > deadline {
            bail!(
                "ended after the limit of {} s: {}",
                case.load.limit_s,
                complaint(log.path())
            );
        }
        std::thread::sleep(LOOK);
    };
    ensure!(status.success(), "{}", complaint(log.path()));
    let text = reader
        .join()
        .map_err(|_| anyhow::anyhow!("the reader panicked"))??;
    serde_json::from_slice(&text).context("the load said nothing that can be read")
}

/// Returns the error of the load, or the last line of its output.
fn complaint(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let said = match text.rfind("Error: ") {
        Some(at) => text.get(at + "Error: ".len()..).unwrap_or_default(),
        None => text
            .lines()
            .rev()
            .find(|line| !line.trim().is_empty())
            .unwrap_or_default(),
    };
    match said.trim() {
        "" => "it said nothing".to_owned(),
        said => said.to_owned(),
    }
}

impl CaseReport {
    /// Returns the report of a case that has not run yet.
    fn of(case: &Case) -> Self {
        Self {
            case: case.clone(),
            attempts: Vec::new(),
        }
    }
}

impl WorkloadReport {
    /// Returns the report of a file without any runs yet.
    fn of(workload: &Workload) -> Self {
        Self {
            cases: workload.cases.iter().map(CaseReport::of).collect(),
            workload: workload.clone(),
        }
    }
}
