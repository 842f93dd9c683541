//! Load balancing by the brokers' load reports: the broker for a bundle without an owner, and the bundles that a
//! broker busier than the others unloads. Nothing here asks a clock or a store.

use std::collections::HashMap;

use crate::load::{BundleLoad, LoadReport};

/// Options of load balancing.
#[derive(Clone, Copy, Debug)]
pub struct BalanceOptions {
    /// True if load counts; otherwise the broker that is asked first takes a bundle, and keeps it.
    pub enabled: bool,
    /// True if overloaded brokers shed bundles.
    pub shedding: bool,
    /// A broker that uses more than this is given nothing while there are others; percent.
    pub overloaded_percent: f64,
    /// Excess over the average usage of all brokers from which a broker sheds bundles; percentage points.
    pub threshold_points: f64,
    /// Change of load that is reported to other brokers; percent.
    pub change_percent: f64,
}

impl Default for BalanceOptions {
    fn default() -> Self {
        Self {
            enabled: true,
            shedding: true,
            overloaded_percent: 85.0,
            threshold_points: 10.0,
            change_percent: 10.0,
        }
    }
}

/// Margin below the threshold that a shedding broker aims for, and minimum gain of each moved bundle; percentage
/// points.
const MARGIN_POINTS: f64 = 5.0;

/// A broker that may have a bundle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadedBroker<'a> {
    pub(crate) id: &'a str,
    /// Bundles that it has now; newer than its report.
    pub(crate) bundles: usize,
    pub(crate) report: Option<&'a LoadReport>,
}

/// Returns the broker for a bundle: one that is not overloaded, with the smallest share of all messages and all
/// bundles. Among equals `asked`, so that its client need not connect elsewhere, and otherwise the first.
pub(crate) fn least_loaded<'a>(
    candidates: &[LoadedBroker<'a>],
    asked: &str,
    options: &BalanceOptions,
) -> Option<&'a str> {
    let rate = |it: &LoadedBroker<'_>| it.report.map_or(0.0, LoadReport::msg_rate);
    let rates: f64 = candidates.iter().map(rate).sum();
    let bundles: usize = candidates.iter().map(|it| it.bundles).sum();
    let part = |of: f64, all: f64| if all > 0.0 { of / all } else { 0.0 };
    let score = |it: &LoadedBroker<'_>| {
        let usage = it.report.map_or(0.0, LoadReport::usage);
        let overloaded = f64::from(u8::from(usage > options.overloaded_percent));
        overloaded * 10.0 + part(rate(it), rates) + part(it.bundles as f64, bundles as f64)
    };
    let best = candidates
        .iter()
        .min_by(|one, other| score(one).total_cmp(&score(other)))?;
    let asked = candidates.iter().find(|it| it.id == asked);
    let chosen = asked.filter(|asked| score(asked) <= score(best) + 1e-9);
    Some(chosen.unwrap_or(best).id)
}

/// Returns the bundles that a broker busier than the others sheds, and their new brokers. The largest first, and only
/// one whose next broker is less busy with it, by a margin, than this one was before: no bundle moves back and forth.
pub(crate) fn shed(
    us: &str,
    reports: &HashMap<String, LoadReport>,
    may_go: impl Fn(&str) -> bool,
    allowed: impl Fn(&str, &[String]) -> Vec<String>,
    options: &BalanceOptions,
) -> Vec<(String, String)> {
    let Some(ours) = reports.get(us) else {
        return Vec::new();
    };
    let (usage, throughput) = (ours.usage(), ours.throughput());
    let average = reports.values().map(LoadReport::usage).sum::<f64>() / reports.len().max(1) as f64;
    let above = usage - average - options.threshold_points;
    if reports.len() < 2 || above <= 0.0 || throughput <= 0.0 {
        return Vec::new();
    }
    let points_of = |bundle: &BundleLoad| usage * bundle.throughput() / throughput;
    let (mut left, mut remaining) = (above + MARGIN_POINTS, usage);
    let mut others: Vec<(String, f64)> = reports
        .iter()
        .filter(|(id, _)| *id != us)
        .map(|(id, report)| (id.clone(), report.usage()))
        .collect();
    let mut bundles: Vec<_> = ours.last_stats.iter().filter(|(name, _)| may_go(name)).collect();
    bundles.sort_by(|(_, one), (_, other)| other.throughput().total_cmp(&one.throughput()));
    let mut given = Vec::new();
    for (name, load) in bundles {
        let points = points_of(load);
        if left <= 0.0 || points <= 0.0 {
            break;
        }
        others.sort_by(|(one_id, one), (other_id, other)| one.total_cmp(other).then(one_id.cmp(other_id)));
        let ids: Vec<String> = others.iter().map(|(id, _)| id.clone()).collect();
        let fit = allowed(name, &ids);
        let next = others.iter_mut().find(|(id, _)| fit.contains(id));
        let Some((to, its)) = next.filter(|(_, its)| *its + points <= remaining - MARGIN_POINTS) else {
            continue;
        };
        *its += points;
        left -= points;
        remaining -= points;
        given.push((name.clone(), to.clone()));
    }
    given
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::load::ResourceUsage;

    fn report(cpu: f64, bundles: &[f64]) -> LoadReport {
        let mut report = LoadReport {
            cpu: ResourceUsage {
                usage: cpu,
                limit: 100.0,
            },
            ..LoadReport::default()
        };
        let load = |throughput: &f64| BundleLoad {
            msg_rate_in: throughput / 100.0,
            msg_throughput_in: *throughput,
            ..BundleLoad::default()
        };
        let names = (0..).map(|number| format!("t/n/{number}"));
        report.set_bundles(names.zip(bundles.iter().map(load)).collect());
        report
    }

    fn chosen(brokers: &[(&str, usize, Option<&LoadReport>)], asked: &str) -> String {
        let candidates: Vec<_> = brokers
            .iter()
            .map(|(id, bundles, report)| LoadedBroker {
                id,
                bundles: *bundles,
                report: *report,
            })
            .collect();
        let found = least_loaded(&candidates, asked, &BalanceOptions::default());
        found.unwrap_or_default().to_owned()
    }

    #[test]
    fn a_bundle_goes_to_the_broker_with_the_least_and_stays_with_the_asked_one_of_equals() {
        assert_eq!(chosen(&[("a", 0, None), ("b", 0, None)], "b"), "b");
        assert_eq!(chosen(&[("a", 1, None), ("b", 0, None)], "a"), "b");
        assert_eq!(chosen(&[("a", 1, None), ("b", 1, None)], "elsewhere"), "a");
        let (busy, quiet) = (report(50.0, &[5000.0]), report(10.0, &[100.0]));
        assert_eq!(chosen(&[("a", 1, Some(&busy)), ("b", 2, Some(&quiet))], "a"), "b");
        // More messages weigh less than a processor that has nothing left.
        let full = report(90.0, &[1.0]);
        assert_eq!(chosen(&[("a", 1, Some(&busy)), ("b", 0, Some(&full))], "b"), "a");
        assert_eq!(chosen(&[("b", 0, Some(&full))], "b"), "b");
        assert_eq!(chosen(&[], "a"), "");
    }

    fn given(ours: &LoadReport, others: &[(&str, f64)]) -> Vec<(String, String)> {
        let mut reports: HashMap<String, LoadReport> = others
            .iter()
            .map(|(id, cpu)| ((*id).to_owned(), report(*cpu, &[])))
            .collect();
        reports.insert("us".to_owned(), ours.clone());
        shed(
            "us",
            &reports,
            |_| true,
            |_, ids| ids.to_vec(),
            &BalanceOptions::default(),
        )
    }

    #[test]
    fn the_busiest_gives_its_largest_bundles_to_the_least_busy() {
        let ours = report(80.0, &[400.0, 300.0, 200.0, 100.0]);
        let gives = given(&ours, &[("a", 20.0), ("b", 10.0)]);
        // 80 points are 33 above the average and the threshold: so much goes, and a margin. The second would win too little.
        let expected =
            [("t/n/0", "b"), ("t/n/2", "a")].map(|(bundle, to)| (bundle.to_owned(), to.to_owned()));
        assert_eq!(gives, expected);
        let half = [("t/n/0".to_owned(), "a".to_owned())];
        assert_eq!(given(&report(90.0, &[100.0, 100.0]), &[("a", 5.0)]), half);
        assert_eq!(
            given(&report(45.0, &[100.0]), &[("a", 30.0)]),
            [],
            "within the threshold"
        );
        assert_eq!(
            given(&report(90.0, &[100.0]), &[("a", 5.0)]),
            [],
            "it would only change sides"
        );
        assert_eq!(given(&ours, &[]), []);
        assert_eq!(given(&report(90.0, &[]), &[("a", 5.0)]), []);
    }

    #[test]
    fn what_may_not_go_stays_and_policies_hold() {
        let ours = report(80.0, &[400.0, 300.0]);
        let reports: HashMap<_, _> = [
            ("us".to_owned(), ours),
            ("a".to_owned(), report(20.0, &[])),
            ("b".to_owned(), report(0.0, &[])),
        ]
        .into();
        let only_a = |_: &str, _: &[String]| vec!["a".to_owned()];
        let gives = shed(
            "us",
            &reports,
            |name| name != "t/n/0",
            only_a,
            &BalanceOptions::default(),
        );
        assert_eq!(gives, [("t/n/1".to_owned(), "a".to_owned())]);
    }

    proptest! {
        /// Shedding under any load makes no receiving broker busier than the shedding one was, and moves each bundle
        /// once.
        #[test]
        fn shedding_makes_no_other_as_busy(
            cpu in 0.0..100.0,
            bundles in proptest::collection::vec(0.0..1e6, 0..12),
            others in proptest::collection::vec(0.0..100.0, 0..6),
        ) {
            let ours = report(cpu, &bundles);
            let names: Vec<String> = (0..others.len()).map(|number| format!("o{number}")).collect();
            let named: Vec<_> = names.iter().map(String::as_str).zip(others.iter().copied()).collect();
            let gives = given(&ours, &named);
            let mut after: HashMap<&str, f64> = named.iter().copied().collect();
            for (bundle, to) in &gives {
                let points = cpu * ours.last_stats[bundle].throughput() / ours.throughput();
                *after.entry(to).or_default() += points;
                prop_assert!(after[to.as_str()] < cpu);
            }
            let mut once: Vec<_> = gives.iter().map(|(bundle, _)| bundle).collect();
            once.sort_unstable();
            once.dedup();
            prop_assert_eq!(once.len(), gives.len());
        }
    }
}
