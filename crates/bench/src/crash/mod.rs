//! `pharos bench crash`: the broker is killed under load again and again, and must keep what it acknowledged.
//!
//! A round: start the broker on the data of the last one, read every topic from its first message to a mark sent just now
//! ([`verify`]), publish as fast as it goes ([`publish`]), SIGKILL. Messages carry round and number, so it is known of each
//! whether it was sent and whether it was acknowledged. What must hold afterwards:
//!
//! - every acknowledged message is there, once, in order;
//! - of those sent but not acknowledged there may be any number, but without a hole;
//! - what was there once stays as it was.
//!
//! A kill is not a power cut: what the operating system has survives it. So `async` must lose nothing either; `bypass` may.

mod ledger;
mod publish;
mod verify;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use serde::Serialize;

use crate::args::{CrashArgs, Durability, Output};
use crate::broker_process::{BrokerHome, BrokerProcess};
use crate::clock;
use crate::progress::Progress;
use crate::proto::payload::STAMP_BYTES;
use crate::session;

use ledger::Account;

/// Result of one start of the broker.
#[derive(Clone, Debug, Default, Serialize)]
struct Round {
    /// Duration of the start, from the command to open listeners, in milliseconds.
    start_ms: f64,
    /// Messages read back.
    read: u64,
    /// Messages sent until the kill.
    sent: u64,
    /// Acknowledged messages among them.
    acknowledged: u64,
}

/// Result of all rounds.
#[derive(Debug, Serialize)]
struct Outcome {
    durability: Durability,
    kills: u32,
    topics: u32,
    rounds: Vec<Round>,
    /// Acknowledged messages that were gone.
    lost: u64,
    /// Everything else that should not be, in words; at most a few.
    faults: Vec<String>,
    passed: bool,
}

/// Runs all rounds; success means that nothing acknowledged was lost.
pub(crate) fn run(args: &CrashArgs, stop: &Arc<AtomicBool>) -> anyhow::Result<ExitCode> {
    ensure!(
        args.kills > 0 && args.topics > 0 && args.window > 0 && args.batch_messages > 0,
        "--kills, --topics, --window and --batch-messages must be positive"
    );
    ensure!(
        args.size >= STAMP_BYTES as u64,
        "--size must be at least {STAMP_BYTES} bytes"
    );
    let mut progress = Progress::new();
    let outcome = rounds(args, stop, &mut progress);
    progress.clear();
    let outcome = outcome?;
    match args.output {
        Output::Json => crate::output::print(&serde_json::to_string_pretty(&outcome)?)?,
        Output::Text => crate::output::print(&outcome.to_text())?,
    }
    Ok(if outcome.passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn rounds(args: &CrashArgs, stop: &AtomicBool, progress: &mut Progress) -> anyhow::Result<Outcome> {
    let parents: Vec<_> = args.data_dir.iter().cloned().collect();
    let settings = format!("[storage]\nsync = \"{}\"\n", args.durability.word());
    let mut home = Arc::new(BrokerHome::new(&parents)?.with_settings(&settings)?);
    let base = format!("bench-crash-{:x}", clock::realtime_ns() / 1_000_000);
    let topics: Vec<String> = (0..args.topics)
        .map(|number| session::full_topic(&format!("{base}-{number}")))
        .collect();
    let mut accounts: Vec<Account> = topics.iter().map(|_| Account::default()).collect();
    let may_lose = args.durability == Durability::Bypass;
    let mut outcome = Outcome {
        durability: args.durability,
        kills: args.kills,
        topics: args.topics,
        rounds: Vec::new(),
        lost: 0,
        faults: Vec::new(),
        passed: false,
    };
    for number in 0..=args.kills {
        let from_ns = clock::monotonic_ns();
        let broker = BrokerProcess::start_in(Arc::clone(&home), stop)?;
        let mut round = Round {
            start_ms: (clock::monotonic_ns() - from_ns) as f64 / 1e6,
            ..Round::default()
        };
        for (topic, account) in topics.iter().zip(&mut accounts) {
            verify::mark_and_read(&broker.pulsar_url, topic, number, account, args.size as usize)
                .with_context(|| format!("reading {topic} back after {number} kills"))?;
            round.read += account.end_of_reading(may_lose, &mut outcome.lost, &mut outcome.faults);
        }
        if number < args.kills {
            progress.bar("kills", u64::from(number), u64::from(args.kills));
            home = publish_and_kill(args, broker, number, &topics, &mut accounts, stop, &mut round)?;
        }
        outcome.rounds.push(round);
    }
    outcome.passed = outcome.faults.is_empty() && (outcome.lost == 0 || may_lose);
    Ok(outcome)
}

fn publish_and_kill(
    args: &CrashArgs,
    broker: BrokerProcess,
    number: u32,
    topics: &[String],
    accounts: &mut [Account],
    stop: &AtomicBool,
    round: &mut Round,
) -> anyhow::Result<Arc<BrokerHome>> {
    let killed = AtomicBool::new(false);
    let plan = publish::Plan {
        url: broker.pulsar_url.clone(),
        topics,
        round: number,
        size: args.size as usize,
        batch_messages: args.batch_messages,
        window: args.window as usize,
        killed: &killed,
    };
    let length = jittered(args.interval);
    let (home, published) = std::thread::scope(|scope| {
        let publisher = scope.spawn(|| publish::run(&plan));
        let deadline = clock::monotonic_ns() + length.as_nanos() as u64;
        while clock::monotonic_ns() < deadline && !stop.load(Ordering::Relaxed) && !publisher.is_finished() {
            std::thread::sleep(Duration::from_millis(1));
        }
        killed.store(true, Ordering::Release);
        let home = broker.kill();
        (home, publisher.join())
    });
    let published = published.map_err(|_| anyhow::anyhow!("the publisher ended badly"))??;
    if stop.load(Ordering::Relaxed) {
        bail!("stopped");
    }
    for (account, (sent, acknowledged)) in accounts.iter_mut().zip(published) {
        account.published(number, sent, acknowledged);
        round.sent += sent;
        round.acknowledged += acknowledged;
    }
    home
}

/// Between half of `interval` and one and a half, so that kills do not always meet the broker at the same work.
fn jittered(interval: Duration) -> Duration {
    let share = (clock::monotonic_ns() / 1000 % 1000) as f64 / 1000.0;
    interval.mul_f64(0.5 + share)
}

impl Outcome {
    fn to_text(&self) -> String {
        let mut lines = vec![format!(
            "{} kills under load, {} topics, durability {}",
            self.kills,
            self.topics,
            self.durability.word()
        )];
        lines.push(format!(
            "{:>6}  {:>9}  {:>10}  {:>10}  {:>12}",
            "start", "took ms", "read back", "then sent", "acknowledged"
        ));
        for (number, round) in (1..).zip(&self.rounds) {
            lines.push(format!(
                "{number:>6}  {:>9.0}  {:>10}  {:>10}  {:>12}",
                round.start_ms, round.read, round.sent, round.acknowledged
            ));
        }
        lines.push(match self.durability {
            Durability::Bypass => format!("acknowledged messages gone, as bypass may: {}", self.lost),
            _ => format!("acknowledged messages lost: {}", self.lost),
        });
        lines.extend(self.faults.iter().map(|fault| format!("FAULT: {fault}")));
        lines.push(if self.passed { "passed" } else { "FAILED" }.to_owned());
        lines.join("\n")
    }
}
