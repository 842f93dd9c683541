//! Results of one case, and of a workload file.

use serde_json::{Map, Value, json};

use crate::perf::summary::Summary;

use super::expect::{Judged, Verdict};
use super::file::{Params, Scenario};
use super::machine::Machine;
use super::metric::Figures;
use super::slices::SliceRow;

/// Result of one case.
#[derive(Clone, Debug, Default)]
pub(super) struct CaseOutcome {
    /// The name of its `[[case]]`; empty without.
    pub(super) name: String,
    /// Parameters that distinguish it from the other cases.
    pub(super) label: String,
    /// Parameters of the run.
    pub(super) params: Params,
    /// The figures; none when it was not run to its end.
    pub(super) figures: Figures,
    /// Reason why it was not run to its end.
    pub(super) failure: Option<String>,
    /// The broker would not start with these settings: no fault of the run.
    pub(super) refused: bool,
    /// Notes for readers of the figures.
    pub(super) notes: Vec<String>,
    /// Slice by slice, where the case asks for that; of the last round.
    pub(super) slices: Vec<SliceRow>,
    /// Counts second by second.
    pub(super) summary: Option<Summary>,
}

impl CaseOutcome {
    /// True if messages were lost, duplicated, damaged or out of order, or the case failed for another reason than
    /// refused settings.
    pub(super) fn is_faulty(&self) -> bool {
        let counts = ["lost", "duplicates", "out_of_order", "damaged"];
        let wrong = |name: &&str| self.figures.get(*name).is_some_and(|count| *count > 0.0);
        (self.failure.is_some() && !self.refused) || counts.iter().any(wrong)
    }

    /// The checks in a word or two; why a case was refused or failed is in `failure`.
    pub(super) fn checks(&self) -> String {
        if self.failure.is_some() {
            return if self.refused { "refused" } else { "FAILED" }.to_owned();
        }
        let counts = [
            ("lost", "lost"),
            ("duplicates", "double"),
            ("out_of_order", "out of order"),
            ("damaged", "damaged"),
        ];
        let wrong: Vec<String> = counts
            .iter()
            .filter_map(|(name, word)| {
                let count = self.figures.get(name).filter(|count| **count > 0.0)?;
                Some(format!("{count:.0} {word}"))
            })
            .collect();
        if wrong.is_empty() {
            "ok".to_owned()
        } else {
            wrong.join(", ").to_uppercase()
        }
    }

    fn to_json(&self) -> Value {
        let params: Map<String, Value> = self
            .params
            .iter()
            .map(|(key, value)| (key.clone(), serde_json::to_value(value).unwrap_or_default()))
            .collect();
        json!({
            "case": self.label,
            "params": params,
            "figures": self.figures,
            "failure": self.failure,
            "refused": self.refused,
            "notes": self.notes,
            "slices": self.slices,
            "openMessaging": self.summary.as_ref().map(Summary::to_json),
        })
    }
}

/// Result of a workload file.
pub(super) struct Outcome<'a> {
    /// Scenario that was run.
    pub(super) scenario: &'a Scenario,
    /// Machine that it was run on.
    pub(super) machine: Machine,
    /// Command line of the run.
    pub(super) command: String,
    /// Start time, in seconds since the Unix epoch.
    pub(super) began_unix_s: u64,
    /// Number of runs of each case.
    pub(super) rounds: u32,
    /// All cases run.
    pub(super) cases: Vec<CaseOutcome>,
    /// All expectations.
    pub(super) judged: Vec<Judged>,
}

impl Outcome<'_> {
    /// True if a case failed or its messages were not delivered correctly.
    pub(super) fn is_faulty(&self) -> bool {
        self.cases.iter().any(CaseOutcome::is_faulty)
    }

    /// True if all expectations were met.
    pub(super) fn all_met(&self) -> bool {
        self.judged.iter().all(|judged| judged.verdict == Verdict::Met)
    }

    /// Everything, for machines.
    pub(super) fn to_json(&self) -> Value {
        json!({
            "scenario": self.scenario.name,
            "title": self.scenario.title,
            "about": self.scenario.about,
            "command": self.command,
            "beganUnixSeconds": self.began_unix_s,
            "machine": self.machine,
            "rounds": self.rounds,
            "cases": self.cases.iter().map(CaseOutcome::to_json).collect::<Vec<_>>(),
            "expectations": self.judged,
            "faulty": self.is_faulty(),
        })
    }
}
