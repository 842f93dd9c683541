//! Expected results of a workload file, and their evaluation.

use anyhow::{bail, ensure};
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use super::file::Params;
use super::metric::{self, Figures};
use super::outcome::CaseOutcome;

/// Expectation. It applies to every case that `case` selects; with `of`, to the ratio to that.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Expect {
    /// In words.
    pub(super) what: String,
    /// The figure.
    pub(super) metric: String,
    /// Cases with these values (`name` is the name of a `[[case]]`); all unless given.
    #[serde(default)]
    pub(super) case: Table,
    /// Another figure of the same case (a text), or the same figure in the case that differs only in these values (a table).
    pub(super) of: Option<Value>,
    /// At most.
    pub(super) max: Option<f64>,
    /// At least.
    pub(super) min: Option<f64>,
    /// Stretch goal; only reported.
    pub(super) stretch: Option<f64>,
}

/// Result of an expectation in one case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    /// The expectation was met.
    Met,
    /// The expectation was not met.
    NotMet,
    /// The case, or the one to compare with, was not run or was refused.
    NotMeasured,
}

impl Verdict {
    /// For people.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::NotMet => "NOT MET",
            Self::NotMeasured => "not measured",
        }
    }
}

/// An expectation applied to one case.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Judged {
    /// In words.
    pub(super) what: String,
    /// The case it was looked at in; empty when no case was selected.
    pub(super) case: String,
    /// The verdict.
    pub(super) verdict: Verdict,
    /// The figure, or the ratio.
    pub(super) value: Option<f64>,
    /// The limit as text: `<= 1.5`.
    pub(super) limit: String,
    /// True if the stretch goal was reached too; `None` without one, or if the verdict is not met.
    pub(super) stretch_met: Option<bool>,
    /// Calculation of the value, if it is a ratio, or the reason why there is none.
    pub(super) detail: String,
}

impl Expect {
    /// Refuses what makes no sense.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        ensure!(
            metric::find(&self.metric).is_some(),
            "no metric `{}`",
            self.metric
        );
        ensure!(
            self.max.is_some() != self.min.is_some(),
            "either max or min must be given"
        );
        match &self.of {
            None | Some(Value::Table(_)) => Ok(()),
            Some(Value::String(name)) if metric::find(name).is_some() => Ok(()),
            Some(other) => bail!("of = {other} is neither a metric nor a table of values"),
        }
    }

    /// Looks at every case selected.
    pub(super) fn judge(&self, cases: &[CaseOutcome]) -> Vec<Judged> {
        let selected = cases.iter().filter(|case| matches(&self.case, case));
        let judged: Vec<Judged> = selected.map(|case| self.judge_one(case, cases)).collect();
        if judged.is_empty() {
            return vec![self.judged(String::new(), None, "no such case was run".to_owned())];
        }
        judged
    }

    fn judge_one(&self, case: &CaseOutcome, cases: &[CaseOutcome]) -> Judged {
        let label = case.label.clone();
        let Some(value) = self.figure(case) else {
            let why = match (case.refused, &case.failure) {
                (true, _) => "the case was refused, see notes",
                (_, Some(_)) => "the case failed, see notes",
                _ => "the case has no such figure",
            };
            let why = why.to_owned();
            return self.judged(label, None, why);
        };
        let shown = metric::show(value);
        match &self.of {
            None => self.judged(label, Some(value), String::new()),
            Some(Value::String(other)) => {
                let Some(whole) = case.figures.get(other.as_str()).filter(|whole| **whole > 0.0) else {
                    return self.judged(label, None, format!("no {other}"));
                };
                let detail = format!("{} {shown}, {other} {}", self.metric, metric::show(*whole));
                self.judged(label, Some(value / whole), detail)
            }
            Some(of) => {
                let other = of.as_table().and_then(|of| sibling(case, of, cases));
                let Some((base, name)) = other.and_then(|other| Some((self.figure(other)?, &other.label)))
                else {
                    return self.judged(label, None, "the case to compare with has no figure".to_owned());
                };
                let detail = format!("{} {shown}, in {name} {}", self.metric, metric::show(base));
                self.judged(label, Some(value / base.max(1e-9)), detail)
            }
        }
    }

    fn figure(&self, case: &CaseOutcome) -> Option<f64> {
        let figures: &Figures = &case.figures;
        figures.get(self.metric.as_str()).copied()
    }

    fn judged(&self, case: String, value: Option<f64>, detail: String) -> Judged {
        let holds = |limit: Option<f64>, value: f64| {
            limit.map(|limit| {
                if self.max.is_some() {
                    value <= limit
                } else {
                    value >= limit
                }
            })
        };
        let verdict = match value.map(|value| holds(self.max.or(self.min), value)) {
            None => Verdict::NotMeasured,
            Some(Some(true)) => Verdict::Met,
            Some(_) => Verdict::NotMet,
        };
        let (sign, limit) = match (self.max, self.min) {
            (Some(max), _) => ("<=", max),
            (None, min) => (">=", min.unwrap_or(0.0)),
        };
        Judged {
            what: self.what.clone(),
            case,
            verdict,
            value,
            limit: format!("{sign} {}", metric::show(limit)),
            stretch_met: value
                .filter(|_| verdict == Verdict::Met)
                .and_then(|value| holds(self.stretch, value)),
            detail,
        }
    }
}

/// True if a case has all these values.
fn matches(wanted: &Table, case: &CaseOutcome) -> bool {
    wanted.iter().all(|(key, value)| {
        if key == "name" {
            return value.as_str() == Some(&case.name);
        }
        case.params.get(key).is_some_and(|own| same(own, value))
    })
}

/// The case whose values are those of `case` but for `changed`.
fn sibling<'a>(case: &CaseOutcome, changed: &Table, cases: &'a [CaseOutcome]) -> Option<&'a CaseOutcome> {
    if let Some(name) = changed.get("name").and_then(Value::as_str) {
        return cases.iter().find(|other| other.name == name);
    }
    let mut wanted: Params = case.params.clone();
    wanted.extend(changed.iter().map(|(key, value)| (key.clone(), value.clone())));
    cases.iter().find(|other| {
        other.name == case.name
            && other.params.len() == wanted.len()
            && wanted
                .iter()
                .all(|(key, value)| other.params.get(key).is_some_and(|own| same(own, value)))
    })
}

fn same(a: &Value, b: &Value) -> bool {
    super::file::show(a) == super::file::show(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(label: &str, topics: i64, p99: Option<f64>) -> CaseOutcome {
        let mut case = CaseOutcome {
            label: label.to_owned(),
            ..CaseOutcome::default()
        };
        case.params.insert("topics".to_owned(), Value::Integer(topics));
        case.params
            .insert("broker.storage.sync".to_owned(), Value::String("sync".into()));
        if let Some(p99) = p99 {
            case.figures.insert("publish_p99_ms", p99);
            case.figures.insert("e2e_p99_ms", p99 * 2.0);
        }
        case
    }

    fn judge(text: &str, cases: &[CaseOutcome]) -> Vec<(Verdict, Option<f64>)> {
        let expect: Expect = toml::from_str(text).expect("reads");
        expect.check().expect("makes sense");
        let judged = expect.judge(cases);
        judged.iter().map(|one| (one.verdict, one.value)).collect()
    }

    #[test]
    fn ratios_are_taken_between_cases_and_between_figures() {
        let cases = [
            case("a", 1, Some(2.0)),
            case("b", 10, Some(3.0)),
            case("c", 100, None),
        ];
        let head = "what = 'x'\nmetric = 'publish_p99_ms'\n";
        let text = format!("{head}case = {{topics = 10}}\nof = {{topics = 1}}\nmax = 1.5");
        assert_eq!(judge(&text, &cases), [(Verdict::Met, Some(1.5))]);
        let text = format!("{head}of = 'e2e_p99_ms'\nmin = 0.6");
        assert_eq!(
            judge(&text, &cases),
            [
                (Verdict::NotMet, Some(0.5)),
                (Verdict::NotMet, Some(0.5)),
                (Verdict::NotMeasured, None)
            ]
        );
        let text = format!("{head}case = {{topics = 7}}\nmax = 1.5");
        assert_eq!(judge(&text, &cases), [(Verdict::NotMeasured, None)]);
        let text = format!("{head}case = {{topics = 1, 'broker.storage.sync' = 'sync'}}\nmax = 1.5");
        assert_eq!(judge(&text, &cases), [(Verdict::NotMet, Some(2.0))]);
    }
}
