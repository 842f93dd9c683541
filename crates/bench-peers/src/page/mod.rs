//! Report: a page of markdown, one with plots, and every figure as JSON.

mod html;
mod markdown;
mod plot;

use serde_json::{Value, json};

use crate::case::{Case, Workload};
use crate::figure::Figure;
use crate::outcome::LoadResult;
use crate::peer::Contestant;
use crate::spec::Kind;

/// A whole run.
pub(crate) struct Report {
    /// Machine, in one line.
    pub(crate) machine: String,
    /// Commit that this program was built from.
    pub(crate) commit: String,
    /// As one would type it.
    pub(crate) command: String,
    /// Start time, in seconds since 1970.
    pub(crate) began_unix_s: u64,
    /// True for the short form.
    pub(crate) quick: bool,
    /// Duration so far, in seconds.
    pub(crate) took_s: f64,
    /// Version of each peer.
    pub(crate) versions: Vec<(&'static str, String)>,
    /// In the order in which they ran.
    pub(crate) workloads: Vec<WorkloadReport>,
}

/// Results of the cases of a workload file.
pub(crate) struct WorkloadReport {
    /// The file.
    pub(crate) workload: Workload,
    /// Its cases.
    pub(crate) cases: Vec<CaseReport>,
}

/// Results of the contestants of a case.
pub(crate) struct CaseReport {
    /// The case.
    pub(crate) case: Case,
    /// In the order in which they ran.
    pub(crate) attempts: Vec<Attempt>,
}

/// Run of one contestant in one round.
#[derive(Debug)]
pub(crate) struct Attempt {
    /// It.
    pub(crate) contestant: Contestant,
    /// From 1.
    pub(crate) round: u32,
    /// Command line of the contestant.
    pub(crate) command: String,
    /// Content of its settings file.
    pub(crate) settings: String,
    /// From its start to its end.
    pub(crate) took_s: f64,
    /// Result, or the reason why there is none.
    pub(crate) result: Result<LoadResult, String>,
}

impl Attempt {
    /// Returns an attempt that has not begun.
    pub(crate) fn of(contestant: Contestant) -> Self {
        Self {
            contestant,
            round: 1,
            command: String::new(),
            settings: String::new(),
            took_s: 0.0,
            result: Err("it did not run".to_owned()),
        }
    }

    /// Returns the failure or the message faults, if any.
    fn trouble(&self) -> Option<String> {
        match &self.result {
            Ok(result) => result.faults(),
            Err(why) => Some(why.clone()),
        }
    }

    /// A line while the run goes on.
    pub(crate) fn line(&self) -> String {
        let what = match &self.result {
            Err(why) => format!("failed: {}", why.lines().next().unwrap_or_default()),
            Ok(result) => format!(
                "{} messages/s, publish p99 {} ms, end-to-end p99 {} ms{}",
                count(result.publish_msg_s),
                figure(result.publish.at(99.0)),
                figure(result.e2e.at(99.0)),
                result
                    .faults()
                    .map(|faults| format!(", {faults}"))
                    .unwrap_or_default(),
            ),
        };
        format!("{:.0} s: {what}", self.took_s)
    }
}

impl CaseReport {
    /// A contestant's rounds in which every message came as it should.
    fn sound(&self, contestant: Contestant) -> impl Iterator<Item = &LoadResult> {
        let own = self.attempts.iter().filter(move |it| it.contestant == contestant);
        own.filter_map(|it| it.result.as_ref().ok().filter(|it| it.faults().is_none()))
    }

    /// The figures of its sound rounds, the least first.
    fn values(&self, contestant: Contestant, figure: &Figure) -> Vec<f64> {
        let mut values: Vec<f64> = self.sound(contestant).filter_map(figure.of).collect();
        values.sort_by(f64::total_cmp);
        values
    }

    /// The least and the most of several rounds.
    fn spread(&self, contestant: Contestant, figure: &Figure) -> Option<(f64, f64)> {
        let values = self.values(contestant, figure);
        match values.as_slice() {
            [least, .., most] => Some((*least, *most)),
            _ => None,
        }
    }

    /// The rates of publishing and receiving in the first round in which a contestant did not hold the rate of the load.
    fn unheld(&self, contestant: Contestant) -> Option<(f64, f64)> {
        let load = &self.case.load;
        let subscriptions = match load.kind {
            Kind::Load => load.subscriptions,
            // The peers' own tools publish only.
            Kind::Tool => 0,
            Kind::Idle => return None,
        };
        let unheld = |result: &&LoadResult| load.rate > 0.0 && !result.held(load.rate, subscriptions);
        let round = self.sound(contestant).find(unheld)?;
        Some((round.publish_msg_s, round.consume_msg_s))
    }

    /// The median of a contestant's sound rounds; none without such a round.
    pub(crate) fn median(&self, contestant: Contestant, figure: &Figure) -> Option<f64> {
        let values = self.values(contestant, figure);
        let middle = values.len().checked_sub(1)? / 2;
        let low = *values.get(middle)?;
        let high = *values.get(values.len() / 2)?;
        Some(f64::midpoint(low, high))
    }

    /// Compares this broker with the best equally durable peer at a figure: the better one, and the factor.
    fn verdict(&self, figure: &Figure) -> Verdict {
        let best = |wanted: &dyn Fn(&Contestant) -> bool| {
            let own = self.case.contestants.iter().filter(|it| wanted(it));
            // At a given rate more than that is no merit: it is what was late before.
            let cap = match (figure.name, self.case.load.rate) {
                ("publish_msg_s", rate) if rate > 0.0 => rate,
                ("consume_msg_s", rate) if rate > 0.0 => rate * f64::from(self.case.load.subscriptions),
                _ => f64::INFINITY,
            };
            let values = own.filter_map(|it| Some((*it, self.median(*it, figure)?.min(cap))));
            values.reduce(|best, next| {
                let is_better = if figure.more_is_better {
                    next.1 > best.1
                } else {
                    next.1 < best.1
                };
                if is_better { next } else { best }
            })
        };
        let ours = |it: &Contestant| it.is_ours();
        let peer = |it: &Contestant| !it.is_ours() && it.durable;
        // One that does not hold the rate has done less: its latency is the length of the run, and what it cost says nothing either.
        let is_rate = matches!(figure.name, "publish_msg_s" | "consume_msg_s");
        let counts = |it: &Contestant| is_rate || self.unheld(*it).is_none();
        let best_ours = best(&|it| ours(it) && counts(it));
        let best_peer = best(&|it| peer(it) && counts(it));
        let (ours, contestant, theirs) = match (best_ours, best_peer) {
            (Some((_, ours)), Some((contestant, theirs))) => (ours, contestant, theirs),
            (Some((only, _)), None) if best(&peer).is_some() => return Verdict::OnlyHolds(only),
            (None, Some((only, _))) if best(&ours).is_some() => return Verdict::OnlyHolds(only),
            _ => return Verdict::Open,
        };
        let factor = if figure.more_is_better {
            ours / theirs
        } else {
            theirs / ours
        };
        match factor {
            factor if !factor.is_finite() => Verdict::Open,
            factor if (1.0 / EVEN..EVEN).contains(&factor) => Verdict::Even,
            factor if factor >= 1.0 => Verdict::Ours(factor),
            factor => Verdict::Theirs(contestant, 1.0 / factor),
        }
    }
}

/// A factor below this says nothing.
const EVEN: f64 = 1.05;

/// Result of a comparison.
enum Verdict {
    /// This broker, by that factor.
    Ours(f64),
    /// A peer.
    Theirs(Contestant, f64),
    /// The one side that holds the rate of the load.
    OnlyHolds(Contestant),
    /// Neither side, by more than [`EVEN`].
    Even,
    /// A side without a value.
    Open,
}

impl Report {
    /// Takes what a contestant found.
    pub(crate) fn take(&mut self, workload: usize, case: usize, attempt: Attempt) {
        let workload = self.workloads.get_mut(workload);
        if let Some(case) = workload.and_then(|workload| workload.cases.get_mut(case)) {
            case.attempts.push(attempt);
        }
    }

    /// All cases with the file they are of.
    fn cases(&self) -> impl Iterator<Item = (&WorkloadReport, &CaseReport)> {
        self.workloads
            .iter()
            .flat_map(|workload| workload.cases.iter().map(move |case| (workload, case)))
    }

    fn attempts(&self) -> impl Iterator<Item = &Attempt> {
        self.cases().flat_map(|(_, case)| &case.attempts)
    }

    /// True if a run failed, or messages were lost, repeated, reordered or changed.
    pub(crate) fn is_faulty(&self) -> bool {
        self.attempts().any(|attempt| attempt.trouble().is_some())
    }

    /// Every figure of every round.
    pub(crate) fn to_json(&self) -> String {
        let attempt = |attempt: &Attempt| {
            let (result, failure) = match &attempt.result {
                Ok(result) => (json!(result), Value::Null),
                Err(why) => (Value::Null, json!(why)),
            };
            json!({
                "contestant": attempt.contestant.word,
                "round": attempt.round,
                "tookSeconds": attempt.took_s,
                "command": attempt.command,
                "settings": attempt.settings,
                "failure": failure,
                "result": result,
            })
        };
        let case = |(workload, case): (&WorkloadReport, &CaseReport)| {
            json!({
                "workload": workload.workload.name,
                "case": case.case.name,
                "load": case.case.load,
                "rounds": case.case.rounds,
                "attempts": case.attempts.iter().map(attempt).collect::<Vec<_>>(),
            })
        };
        let all = json!({
            "machine": self.machine,
            "commit": self.commit,
            "command": self.command,
            "beganUnixSeconds": self.began_unix_s,
            "quick": self.quick,
            "tookSeconds": self.took_s,
            "versions": self.versions.iter().cloned().collect::<std::collections::BTreeMap<_, _>>(),
            "cases": self.cases().map(case).collect::<Vec<_>>(),
        });
        format!("{all:#}\n")
    }
}

/// A number with commas: `1,234,567`.
pub(crate) fn count(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut out = String::new();
    for (number, digit) in digits.chars().enumerate() {
        if number > 0 && (digits.len() - number).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if value < 0.0 { format!("-{out}") } else { out }
}

/// A figure with as many digits as mean something; a dash where there is none.
fn figure(value: Option<f64>) -> String {
    match value {
        None => "–".to_owned(),
        Some(value) if value.abs() >= 100.0 => count(value),
        Some(value) if value.abs() >= 10.0 => format!("{value:.1}"),
        Some(value) if value.abs() >= 1.0 || value == 0.0 => format!("{value:.2}"),
        Some(value) => format!("{value:.3}"),
    }
}

/// A factor, as `3.4x`.
fn factor(value: f64) -> String {
    if value >= 10.0 {
        format!("{}x", count(value))
    } else {
        format!("{value:.1}x")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::find;
    use crate::outcome::Distribution;
    use crate::spec::Load;

    fn case(values: &[(&str, f64, u64)]) -> CaseReport {
        let contestants = |word: &&str| Contestant::parse(word).expect("known");
        let words = ["pharos", "pharos-broadcast", "kafka", "nats-core"];
        let attempts = values.iter().map(|(word, publish_msg_s, lost)| Attempt {
            result: Ok(LoadResult {
                publish_msg_s: *publish_msg_s,
                lost: *lost,
                ..LoadResult::default()
            }),
            ..Attempt::of(Contestant::parse(word).expect("known"))
        });
        CaseReport {
            attempts: attempts.collect(),
            case: Case {
                name: "x".to_owned(),
                contestants: words.iter().map(contestants).collect(),
                figures: vec![find("publish_msg_s").expect("known")],
                left_out: Vec::new(),
                rounds: 1,
                load: Load::default(),
            },
        }
    }

    #[test]
    fn a_peer_that_is_better_is_named_and_one_that_keeps_nothing_is_not_compared() {
        let figure = find("publish_msg_s").expect("known");
        let report = case(&[
            ("pharos", 100.0, 0),
            ("kafka", 400.0, 0),
            ("nats-core", 9000.0, 0),
        ]);
        let Verdict::Theirs(kafka, by) = report.verdict(figure) else {
            panic!("Kafka is better")
        };
        assert_eq!((kafka.word, by), ("kafka", 4.0));
        let report = case(&[
            ("pharos", 100.0, 0),
            ("pharos-broadcast", 800.0, 0),
            ("kafka", 400.0, 0),
        ]);
        assert!(matches!(report.verdict(figure), Verdict::Ours(2.0)));
        assert!(matches!(
            case(&[("pharos", 1.0, 0)]).verdict(figure),
            Verdict::Open
        ));
    }

    #[test]
    fn at_a_given_rate_more_than_it_is_no_merit_and_less_is_told() {
        let figure = find("publish_msg_s").expect("known");
        let mut report = case(&[
            ("pharos", 1000.0, 0),
            ("kafka", 1400.0, 0),
            ("nats-core", 300.0, 0),
        ]);
        report.case.load.rate = 1000.0;
        assert!(matches!(report.verdict(figure), Verdict::Even));
        for attempt in &mut report.attempts {
            let result = attempt.result.as_mut().expect("a result");
            result.seconds = 10.0;
            result.published = (result.publish_msg_s * 10.0) as u64;
            result.received = result.published;
        }
        let unheld = |word| report.unheld(Contestant::parse(word).expect("known"));
        assert_eq!((unheld("pharos"), unheld("kafka")), (None, None));
        assert_eq!(unheld("nats-core"), Some((300.0, 0.0)));
        let latency = find("publish_p99_ms").expect("known");
        for attempt in &mut report.attempts {
            let result = attempt.result.as_mut().expect("a result");
            result.publish = Distribution::told(1, vec![(99.0, 5.0)]);
        }
        assert!(matches!(report.verdict(latency), Verdict::Even));
        let kafka = report.attempts[1].result.as_mut().expect("a result");
        (kafka.published, kafka.received) = (3000, 3000);
        let Verdict::OnlyHolds(only) = report.verdict(latency) else {
            panic!("Kafka does not hold the rate")
        };
        assert!(only.is_ours());
        let cost = find("broker_cpu_us").expect("known");
        for attempt in &mut report.attempts {
            attempt.result.as_mut().expect("a result").broker_cpu_s = Some(1.0);
        }
        assert!(matches!(report.verdict(cost), Verdict::OnlyHolds(_)));
        assert!(!matches!(report.verdict(figure), Verdict::OnlyHolds(_)));
        // A tool receives nothing, and may hold a rate or not all the same.
        report.case.load.kind = Kind::Tool;
        for attempt in &mut report.attempts {
            attempt.result.as_mut().expect("a result").received = 0;
        }
        let unheld = |word| report.unheld(Contestant::parse(word).expect("known"));
        assert_eq!(unheld("pharos"), None);
        assert!(unheld("kafka").is_some());
    }

    #[test]
    fn the_spread_is_that_of_the_sound_rounds() {
        let figure = find("publish_msg_s").expect("known");
        let kafka = Contestant::parse("kafka").expect("known");
        let report = case(&[("kafka", 5.0, 0), ("kafka", 3.0, 0), ("kafka", 90.0, 5)]);
        assert_eq!(report.spread(kafka, figure), Some((3.0, 5.0)));
        assert_eq!(case(&[("kafka", 5.0, 0)]).spread(kafka, figure), None);
    }

    #[test]
    fn a_round_that_lost_messages_has_no_figures() {
        let figure = find("publish_msg_s").expect("known");
        let kafka = Contestant::parse("kafka").expect("known");
        let report = case(&[
            ("kafka", 1.0, 0),
            ("kafka", 3.0, 0),
            ("kafka", 90.0, 5),
            ("kafka", 8.0, 0),
        ]);
        assert_eq!(report.median(kafka, figure), Some(3.0));
        assert_eq!(case(&[("kafka", 90.0, 5)]).median(kafka, figure), None);
        let even = case(&[("kafka", 1.0, 0), ("kafka", 3.0, 0)]);
        assert_eq!(even.median(kafka, figure), Some(2.0));
    }

    #[test]
    fn numbers_are_readable() {
        assert_eq!(count(1_234_567.0), "1,234,567");
        assert_eq!(count(999.0), "999");
        assert_eq!(figure(Some(0.1234)), "0.123");
        assert_eq!(figure(Some(12.34)), "12.3");
        assert_eq!(figure(None), "–");
        assert_eq!(factor(3.44), "3.4x");
    }
}
