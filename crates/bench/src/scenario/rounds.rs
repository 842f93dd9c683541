//! Several rounds of the same cases, taken together: the machine may stand still in one of them, and one round cannot tell.

use std::collections::BTreeMap;

use super::metric::{self, Figures};
use super::outcome::CaseOutcome;

/// Figures that say what went wrong: one bad round is enough.
const WORST: [&str; 4] = ["lost", "duplicates", "out_of_order", "damaged"];

/// Combines the rounds of one case, with the median of each figure. `told`: figures whose value in each round is
/// noted.
pub(super) fn combine(rounds: Vec<CaseOutcome>, told: &[&str]) -> CaseOutcome {
    let mut all = rounds.last().cloned().unwrap_or_default();
    if rounds.len() < 2 {
        return all;
    }
    let mut values: BTreeMap<&'static str, Vec<f64>> = BTreeMap::new();
    for (name, value) in rounds.iter().flat_map(|round| &round.figures) {
        values.entry(name).or_default().push(*value);
    }
    all.notes = Vec::new();
    for round in &rounds {
        for note in &round.notes {
            if !all.notes.contains(note) {
                all.notes.push(note.clone());
            }
        }
    }
    for name in told {
        if let (Some(metric), Some(values)) = (metric::find(name), values.get(name)) {
            let each: Vec<String> = values.iter().map(|value| metric::show(*value)).collect();
            all.notes
                .push(format!("{}, round by round: {}", metric.brief, each.join("; ")));
        }
    }
    all.figures = values.into_iter().map(together).collect::<Figures>();
    all.refused = rounds.iter().all(|round| round.refused);
    all.failure = rounds.into_iter().find_map(|round| round.failure);
    all
}

fn together((name, mut values): (&'static str, Vec<f64>)) -> (&'static str, f64) {
    values.sort_by(f64::total_cmp);
    let (low, high) = (values.get((values.len() - 1) / 2), values.get(values.len() / 2));
    let median = (low.copied().unwrap_or_default() + high.copied().unwrap_or_default()) / 2.0;
    let worst = values.last().copied().unwrap_or_default();
    (name, if WORST.contains(&name) { worst } else { median })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(p99: f64, lost: f64) -> CaseOutcome {
        CaseOutcome {
            label: "a".to_owned(),
            figures: Figures::from([("publish_p99_ms", p99), ("lost", lost)]),
            notes: vec!["same".to_owned()],
            ..CaseOutcome::default()
        }
    }

    #[test]
    fn the_median_of_each_figure_counts_and_the_worst_of_what_went_wrong() {
        let all = combine(
            vec![round(2.0, 0.0), round(70.0, 1.0), round(1.0, 0.0)],
            &["publish_p99_ms"],
        );
        assert_eq!(all.figures["publish_p99_ms"], 2.0);
        assert_eq!(all.figures["lost"], 1.0);
        assert!(all.is_faulty());
        assert_eq!(all.notes.len(), 2);
        assert!(
            all.notes[1].ends_with("round by round: 2.00; 70.0; 1.00"),
            "{:?}",
            all.notes
        );
        assert_eq!(
            combine(vec![round(1.0, 0.0), round(2.0, 0.0)], &[]).figures["publish_p99_ms"],
            1.5
        );
    }

    #[test]
    fn one_round_is_left_as_it_is_and_a_failure_is_not_lost() {
        let one = combine(vec![round(1.0, 0.0)], &["publish_p99_ms"]);
        assert_eq!((one.figures["publish_p99_ms"], one.notes.len()), (1.0, 1));
        let failed = CaseOutcome {
            failure: Some("no room".to_owned()),
            ..CaseOutcome::default()
        };
        let all = combine(vec![failed, round(3.0, 0.0)], &["publish_p99_ms"]);
        assert_eq!(all.failure.as_deref(), Some("no room"));
        assert_eq!((all.label.as_str(), all.figures["publish_p99_ms"]), ("a", 3.0));
    }
}
