//! The page of markdown.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use pharos_bench::load::date;

use crate::figure::Figure;
use crate::peer::{Contestant, Peer};
use crate::spec::{Durability, Kind, Load};

use super::{Attempt, CaseReport, Report, Verdict, WorkloadReport, count, factor, figure};

/// Method of measurement, the same for all cases.
const HOW: &str = "\
Contestants run one after the other, each on a fresh directory, alone with the load on the same machine; with several rounds all of
them run once before any runs again. One load program for all: the same threads, clock, pacing, batches and bodies, with the
protocol put in. A message's latency counts from when it was **due** by the load's clock, so an *open loop* (a rate) shows every stall;
in a *closed loop* (no rate) a producer has a fixed number of batches without a receipt, so its latencies are the length of that queue
and are not comparable with those of an open loop. Bodies differ from message to message; each one received is compared byte for byte
with what was sent, and its place with the order of its producer, from the first message to the last, warm-up included. A round in
which a message was lost, doubled, out of order or damaged has no figures in the tables and is named below.

- **Batches** are those of the load for Pharos, Pulsar and Kafka: one send holds up to the given messages or bytes, or what comes in the
  given time. Kafka's requests hold the batches of all partitions that are due, up to 1 MB, and up to five requests of a connection are
  without an answer, as the Java client has it; meanwhile its batches grow. JetStream takes messages one by
  one, of which up to 4,000 are without an acknowledgement, over all producers, as the Go client has it; the batched publishing of its
  newest versions is not used. NATS core acknowledges nothing; a PING behind each batch says when
  the server has seen it, and that is given as its publish latency.
- **Consumers**: Pharos and Pulsar one exclusive consumer for each subscription and partition, every entry acknowledged individually,
  10,000 permits; *broadcast* is Pharos's own kind of subscription, on which every consumer gets everything. Kafka: one connection and
  incremental fetch for each subscription over all of its partitions, the Java client's fetch sizes, no offsets committed. JetStream:
  durable pull consumers of 1,000 messages, acknowledged every 100 with `all`; with more than 100 subscriptions they are kept in memory
  and acknowledge nothing. mosquitto: a client with a connection for each subscription, QoS 1 on both sides.
- **Durability**: *synced* means that a receipt comes when the message is on the device; *system*, that the operating system has it.
- **Warm-up** counts in nothing but the checks. That of the quick form is a few seconds, in which a Java runtime has not compiled
  everything yet: its figures favour what starts fast.
- **Held**: a contestant holds the rate of an open loop when it takes and gives out 98% of it in the measured part. One that does not is
  marked with `*`: its latencies are those of a queue that grows, and depend on how long the run is.
- **Memory** is what the process has in memory; a Java peer takes its heap as its settings say, Pulsar all of it at the start.
- **CPU per message** is that of the broker, or of the load, divided by messages in plus messages out.";

impl Report {
    /// The page.
    pub(crate) fn to_markdown(&self) -> String {
        let mut out = String::from("# Beside the others\n\n");
        let form = if self.quick {
            "the quick form"
        } else {
            "the long form"
        };
        let _ = writeln!(
            out,
            "Pharos and its peers in one run of {form}, on one machine, with one load program. Written by `pharos bench peers`, not by \
             hand; the settings of each peer and where they are from stand at the end.\n"
        );
        let _ = writeln!(out, "- machine: {}", self.machine);
        for (peer, version) in &self.versions {
            let _ = writeln!(out, "- {peer}: {version}");
        }
        let _ = writeln!(out, "- built from: {}", self.commit);
        let (began, minutes) = (date(self.began_unix_s), self.took_s / 60.0);
        let _ = writeln!(out, "- began: {began}, took {minutes:.0} minutes");
        let _ = writeln!(out, "- command: `{}`\n", self.command);
        self.first_table(&mut out);
        self.not_reached(&mut out);
        self.not_run(&mut out);
        let _ = writeln!(out, "## How it was measured\n\n{HOW}\n");
        for workload in &self.workloads {
            workload.section(&mut out);
        }
        self.settings(&mut out);
        out
    }

    /// Writes the table of the better contestant by figure.
    fn first_table(&self, out: &mut String) {
        out.push_str("## Who is better\n\n");
        out.push_str(
            "The last column sets Pharos against the best peer that is as durable, and names the peer in bold where that is better; \
             *even* is less than 5%. ",
        );
        out.push_str(
            "Where a case ran several times, a figure is the median of the rounds, with the least and the most of any round behind it; where it \
             ran once there is no spread, and a figure may be off by what a second run would show. ",
        );
        out.push_str(
            "Brackets: it acknowledges nothing that outlives it and is not compared. `*`: it did not hold the rate of the load. Empty: \
             it did not run in this case.\n\n",
        );
        let contestants = self.contestants();
        let _ = write!(out, "| case | figure |");
        for contestant in &contestants {
            let _ = write!(out, " {} |", contestant.title);
        }
        let columns = contestants.len();
        let _ = writeln!(out, " better |\n|---|---|{}---|", "---:|".repeat(columns));
        for (workload, case) in self.cases() {
            for figure in &case.case.figures {
                let _ = write!(
                    out,
                    "| {}: {} | {} |",
                    workload.workload.name, case.case.name, figure.words
                );
                for contestant in &contestants {
                    let _ = write!(out, " {} |", case.cell(*contestant, figure));
                }
                let _ = writeln!(out, " {} |", verdict(&case.verdict(figure)));
            }
        }
        out.push('\n');
    }

    /// Returns the contestants that ran in any case, in their own order.
    fn contestants(&self) -> Vec<Contestant> {
        let mut all: Vec<Contestant> = self
            .cases()
            .flat_map(|(_, case)| case.case.contestants.iter().copied())
            .collect();
        all.sort();
        all.dedup();
        all
    }

    /// Writes the failures, and the contestants that did not hold a rate.
    fn not_reached(&self, out: &mut String) {
        let mut lines = Vec::new();
        for (workload, case) in self.cases() {
            for contestant in &case.case.contestants {
                if let Some((published, received)) = case.unheld(*contestant) {
                    let load = &case.case.load;
                    lines.push(format!(
                        "- {}: {}, {}: took {} and gave out {} of {} messages/s to {} subscriptions",
                        workload.workload.name,
                        case.case.name,
                        contestant.title,
                        count(published),
                        count(received),
                        count(load.rate),
                        count(f64::from(load.subscriptions)),
                    ));
                }
            }
            for attempt in &case.attempts {
                if let Some(trouble) = attempt.trouble() {
                    lines.push(format!(
                        "- {}: {}, {}, round {}: {}",
                        workload.workload.name,
                        case.case.name,
                        attempt.contestant.title,
                        attempt.round,
                        one_line(&trouble)
                    ));
                }
            }
        }
        if lines.is_empty() {
            lines.push("Nothing: everything that was begun ended, and every rate was held.".to_owned());
        }
        let _ = writeln!(out, "## What was not reached\n\n{}\n", lines.join("\n"));
    }

    /// Writes the cases that this run left out, with the reason.
    fn not_run(&self, out: &mut String) {
        let mut lines = Vec::new();
        for workload in &self.workloads {
            let name = &workload.workload.name;
            for case in &workload.cases {
                for (contestant, why) in &case.case.left_out {
                    lines.push(format!(
                        "- {name}: {}, {}: {why}",
                        case.case.name, contestant.title
                    ));
                }
            }
            let only_long = workload.workload.only_long.iter();
            lines.extend(only_long.map(|case| format!("- {name}: {case}: in the long form only")));
        }
        if !lines.is_empty() {
            let _ = writeln!(out, "## What was not run\n\n{}\n", lines.join("\n"));
        }
    }

    /// Writes the settings of every contestant.
    fn settings(&self, out: &mut String) {
        out.push_str("## Settings\n\nEach contestant's command and settings file; `DATA` is its directory, `PEERS` where peers are installed, `PORT` one that was free.\n\n");
        let mut told: BTreeMap<(Peer, &str), &Attempt> = BTreeMap::new();
        for (_, case) in self.cases() {
            for attempt in case.attempts.iter().filter(|it| !it.command.is_empty()) {
                let level = durability(case.case.load.durability);
                told.entry((attempt.contestant.peer, level)).or_insert(attempt);
            }
        }
        let mut last = None;
        for ((peer, level), attempt) in told {
            let settings = &attempt.settings;
            let command = &attempt.command;
            if last.replace(peer) != Some(peer) {
                let _ = writeln!(out, "### {}\n\n{}\n", peer.word(), peer.source());
            }
            let _ = writeln!(
                out,
                "With receipts that are *{level}*:\n\n```sh\n{command}\n```\n\n```\n{}\n```\n",
                settings.trim_end()
            );
        }
    }
}

impl WorkloadReport {
    /// Writes the question of a case, its load and every round.
    fn section(&self, out: &mut String) {
        let _ = writeln!(
            out,
            "## {}: {}\n\n{}\n",
            self.workload.name, self.workload.title, self.workload.about
        );
        for case in &self.cases {
            let words = load_words(&case.case.load);
            let rounds = rounds(case.case.rounds);
            let _ = writeln!(out, "### {}\n\n{words} {rounds}.\n", case.case.name);
            let _ = writeln!(
                out,
                "| contestant | round | published/s | received/s | publish p50, p99, p99.9, max ms | end-to-end p50, p99, p99.9, max ms | \
                 broker CPU µs | load CPU µs | load late p99 ms | memory MB | attach s | start s |\n|---|---:|---:|---:|---|---|---:|---:|---:|---:|---:|---:|"
            );
            for attempt in &case.attempts {
                let _ = writeln!(out, "{}", attempt.row());
            }
            out.push('\n');
            case.stages(out);
        }
    }
}

impl Attempt {
    fn row(&self) -> String {
        let head = format!("| {} | {} |", self.contestant.title, self.round);
        let result = match &self.result {
            Ok(result) => result,
            Err(_) => return format!("{head} failed |{}", " |".repeat(9)),
        };
        let percentiles = |of: &crate::outcome::Distribution| {
            let values = [50.0, 99.0, 99.9, 100.0].map(|percentile| figure(of.at(percentile)));
            values.join(", ")
        };
        let memory = result.rss_mb.or(result.idle_rss_mb);
        format!(
            "{head} {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            count(result.publish_msg_s),
            count(result.consume_msg_s),
            percentiles(&result.publish),
            percentiles(&result.e2e),
            figure(result.broker_cpu_us()),
            figure(result.client_cpu_us()),
            figure(result.late_p99_ms),
            figure(memory),
            figure(Some(result.attach_s).filter(|seconds| *seconds > 0.0)),
            figure(result.start_s),
        )
    }
}

impl CaseReport {
    /// The stages of a message in each round, of those who time them.
    fn stages(&self, out: &mut String) {
        let timed = |attempt: &&Attempt| {
            attempt
                .result
                .as_ref()
                .is_ok_and(|result| !result.stages.is_empty())
        };
        let mut attempts = self.attempts.iter().filter(timed).peekable();
        if attempts.peek().is_none() {
            return;
        }
        out.push_str("Stages of a message as the broker timed them, p50 and p99 in ms; producing and acknowledgement contain the way to and from it.\n\n");
        for attempt in attempts {
            let stages = attempt.result.iter().flat_map(|result| &result.stages);
            let words = stages.map(|stage| {
                let [p50, p99] = [stage.p50_ms, stage.p99_ms].map(|ms| figure(Some(ms)));
                format!("{} {p50}, {p99}", stage.name)
            });
            let words: Vec<String> = words.collect();
            let _ = writeln!(
                out,
                "- {}, round {}: {}",
                attempt.contestant.title,
                attempt.round,
                words.join("; ")
            );
        }
        out.push('\n');
    }

    pub(super) fn cell(&self, contestant: Contestant, of: &Figure) -> String {
        if !self.case.contestants.contains(&contestant) {
            return String::new();
        }
        match self.median(contestant, of) {
            Some(value) => {
                let mut text = figure(Some(value));
                if self.unheld(contestant).is_some() {
                    text.push('*');
                }
                if let Some((least, most)) = self.spread(contestant, of) {
                    let _ = write!(text, " [{}–{}]", figure(Some(least)), figure(Some(most)));
                }
                match contestant.durable {
                    true => text,
                    false => format!("({text})"),
                }
            }
            None if self
                .attempts
                .iter()
                .any(|it| it.contestant == contestant && it.trouble().is_some()) =>
            {
                "failed".to_owned()
            }
            None => "–".to_owned(),
        }
    }
}

fn verdict(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Ours(by) => format!("Pharos {}", factor(*by)),
        Verdict::Theirs(contestant, by) => format!("**{} {}**", contestant.title, factor(*by)),
        Verdict::OnlyHolds(only) if only.is_ours() => "only Pharos holds the rate".to_owned(),
        Verdict::OnlyHolds(only) => format!("**only {} holds the rate**", only.title),
        Verdict::Even => "even".to_owned(),
        Verdict::Open => "–".to_owned(),
    }
}

fn rounds(rounds: u32) -> String {
    match rounds {
        1 => "One round".to_owned(),
        rounds => format!("{rounds} rounds"),
    }
}

fn durability(durability: Durability) -> &'static str {
    match durability {
        Durability::Synced => "synced",
        Durability::System => "system",
    }
}

/// The load of a case in words.
pub(super) fn load_words(load: &Load) -> String {
    match load.kind {
        Kind::Idle => return "Started, and left alone.".to_owned(),
        Kind::Tool => return tool_words(load),
        Kind::Load => {}
    }
    let topics = match (load.topics, load.partitions) {
        (1, 0) => "1 topic".to_owned(),
        (topics, 0) => format!("{} topics", count(f64::from(topics))),
        (1, partitions) => format!("1 topic of {} partitions", count(f64::from(partitions))),
        (topics, partitions) => format!("{topics} topics of {partitions} partitions"),
    };
    let backlog = match load.backlog_bytes {
        0 => String::new(),
        bytes => format!(
            " {} MB are stored first and read back during the load.",
            count(bytes as f64 / 1e6)
        ),
    };
    format!(
        "{topics}, one producer for each partition, {} subscriptions, {} B messages; {}; batches of up to {} messages, {} bytes or {} ms; \
         {} receipts; {} threads for each side with {} connections each; {} s of rest before, {} s warm-up, {} s measured, ended after {} s.{backlog}",
        count(f64::from(load.subscriptions)),
        count(load.size as f64),
        loop_words(load),
        count(f64::from(load.batch_messages)),
        count(load.batch_bytes as f64),
        load.batch_delay_ms,
        durability(load.durability),
        load.threads,
        count(f64::from(load.connections)),
        load.rest_s,
        load.warmup_s,
        load.duration_s,
        load.limit_s,
    )
}

fn tool_words(load: &Load) -> String {
    let length = match load.rate > 0.0 {
        true => format!("{} messages/s for {} s", count(load.rate), load.duration_s),
        false => format!("{} messages as fast as they go", count(load.messages as f64)),
    };
    format!(
        "The peer's own tool: 1 topic, one producer, {} B messages; {length}; batches of up to {} bytes or {} ms; {} receipts; no warm-up.",
        count(load.size as f64),
        count(load.batch_bytes as f64),
        load.batch_delay_ms,
        durability(load.durability),
    )
}

/// Open or closed loop.
fn loop_words(load: &Load) -> String {
    if load.rate > 0.0 {
        format!("open loop, {} messages/s", count(load.rate))
    } else {
        format!(
            "closed loop, {} batches without a receipt per producer",
            load.window
        )
    }
}

fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let line = words.join(" ");
    match line.char_indices().nth(600) {
        Some((at, _)) => format!("{} …", line.get(..at).unwrap_or_default()),
        None => line,
    }
}
