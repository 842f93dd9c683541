//! The page with plots; it needs nothing but itself.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::outcome::LoadResult;
use crate::peer::Contestant;

use super::plot::{Axis, Curve, escape, plot};
use super::{CaseReport, Report, Verdict, WorkloadReport, factor, markdown};

const STYLE: &str = "body{font:14px/1.5 system-ui,sans-serif;max-width:1000px;margin:2em auto;padding:0 1em;color:#1f2328}\
    table{border-collapse:collapse;margin:1em 0;display:block;overflow-x:auto}td,th{border:1px solid #d0d7de;padding:.25em .6em}\
    td.n{text-align:right}pre{background:#f6f8fa;padding:1em;overflow-x:auto}figure{margin:1em 0}figcaption{font-weight:600}\
    svg{width:100%}text{font:11px system-ui,sans-serif;fill:#57606a}";

impl Report {
    /// The page.
    pub(crate) fn to_html(&self) -> String {
        let mut body = format!("<h1>Beside the others</h1><p>{}</p>", escape(&self.machine));
        let versions = self
            .versions
            .iter()
            .map(|(peer, version)| format!("{peer}: {version}"));
        let versions: Vec<String> = versions.collect();
        let _ = write!(
            body,
            "<p>{}</p><p>built from {}; <code>{}</code></p>",
            escape(&versions.join("; ")),
            escape(&self.commit),
            escape(&self.command)
        );
        for workload in &self.workloads {
            workload.html(&mut body);
        }
        let _ = write!(
            body,
            "<h2>Everything in words and numbers</h2><pre>{}</pre>",
            escape(&self.to_markdown())
        );
        format!(
            "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Beside the others</title><style>{STYLE}</style>\
             <body>{body}</body></html>\n"
        )
    }
}

/// By figure and what sets cases apart beside their number of partitions; within, by contestant: that number and the value.
type Comparable<'a> = BTreeMap<(&'a str, String), BTreeMap<Contestant, Vec<(f64, f64)>>>;

impl WorkloadReport {
    fn html(&self, out: &mut String) {
        let workload = &self.workload;
        let _ = write!(
            out,
            "<h2>{}</h2><p>{}</p>",
            escape(&workload.title),
            escape(&workload.about)
        );
        self.over_partitions(out);
        for case in &self.cases {
            let _ = write!(
                out,
                "<h3>{}</h3><p>{}</p>",
                escape(&case.case.name),
                escape(&markdown::load_words(&case.case.load))
            );
            case.table(out);
            case.plots(out);
        }
    }

    /// The figures of cases that differ in the number of partitions or topics, over it.
    fn over_partitions(&self, out: &mut String) {
        let mut all = Comparable::new();
        for case in &self.cases {
            let load = &case.case.load;
            let kind = format!(
                "{:?}, {} subscriptions, {} B",
                load.durability, load.subscriptions, load.size
            );
            for of in &case.case.figures {
                let curves = all.entry((of.words, kind.clone())).or_default();
                for contestant in &case.case.contestants {
                    if let Some(value) = case.median(*contestant, of) {
                        let point = (f64::from(load.lanes()), value);
                        curves.entry(*contestant).or_default().push(point);
                    }
                }
            }
        }
        for ((words, kind), by_contestant) in all {
            let curves: Vec<Curve> = by_contestant
                .into_iter()
                .map(|(contestant, mut points)| {
                    points.sort_by(|one, other| one.0.total_cmp(&other.0));
                    curve(contestant, points)
                })
                .collect();
            let several = |curve: &Curve| curve.points.windows(2).any(|pair| pair[0].0 != pair[1].0);
            if curves.iter().any(several) {
                let title = format!("{words}, over partitions or topics ({})", kind.to_lowercase());
                plot(
                    out,
                    &title,
                    "partitions or topics",
                    (Axis::Powers, Axis::Powers),
                    &curves,
                );
            }
        }
    }
}

fn curve(contestant: Contestant, points: Vec<(f64, f64)>) -> Curve {
    Curve {
        color: contestant.color(),
        name: contestant.title.to_owned(),
        points,
    }
}

impl CaseReport {
    fn table(&self, out: &mut String) {
        out.push_str("<table><tr><th></th>");
        for contestant in &self.case.contestants {
            let _ = write!(out, "<th>{}</th>", escape(contestant.title));
        }
        out.push_str("<th>better</th></tr>");
        for of in &self.case.figures {
            let _ = write!(out, "<tr><td>{}</td>", escape(of.words));
            for contestant in &self.case.contestants {
                let _ = write!(out, "<td class=\"n\">{}</td>", self.cell(*contestant, of));
            }
            let better = match self.verdict(of) {
                Verdict::Ours(by) => format!("Pharos {}", factor(by)),
                Verdict::Theirs(contestant, by) => {
                    format!("<b>{} {}</b>", escape(contestant.title), factor(by))
                }
                Verdict::OnlyHolds(only) => format!("only {} holds the rate", escape(only.title)),
                Verdict::Even => "even".to_owned(),
                Verdict::Open => "–".to_owned(),
            };
            let _ = write!(out, "<td>{better}</td></tr>");
        }
        out.push_str("</table>");
    }

    /// Returns the result of each contestant's first successful round.
    fn first_rounds(&self) -> Vec<(Contestant, &LoadResult)> {
        let first = |contestant: &Contestant| {
            let own = self.attempts.iter().filter(|it| it.contestant == *contestant);
            let result = own.filter_map(|it| it.result.as_ref().ok()).next()?;
            Some((*contestant, result))
        };
        self.case.contestants.iter().filter_map(first).collect()
    }

    fn plots(&self, out: &mut String) {
        let rounds = self.first_rounds();
        let curves = |points: &dyn Fn(&LoadResult) -> Vec<(f64, f64)>| -> Vec<Curve> {
            rounds
                .iter()
                .map(|(contestant, result)| curve(*contestant, points(result)))
                .collect()
        };
        let open = if self.case.load.rate > 0.0 {
            ""
        } else {
            " (closed loop)"
        };
        let by_percentile = (Axis::Percentiles, Axis::Powers);
        let over_time = (Axis::Linear, Axis::Powers);
        let title = |what: &str| format!("{what}{open}, first round");
        plot(
            out,
            &title("Publish latency by percentile, ms"),
            "percentile",
            by_percentile,
            &curves(&|result| result.publish.curve.clone()),
        );
        plot(
            out,
            &title("End-to-end latency by percentile, ms"),
            "percentile",
            by_percentile,
            &curves(&|result| result.e2e.curve.clone()),
        );
        let seconds = |of: fn(&crate::outcome::Second) -> f64| {
            move |result: &LoadResult| result.rows.iter().map(|row| (row.at_s, of(row))).collect()
        };
        plot(
            out,
            &title("Publish p99 second by second, ms"),
            "seconds",
            over_time,
            &curves(&seconds(|row| row.publish_p99_ms)),
        );
        plot(
            out,
            &title("Published, messages a second"),
            "seconds",
            (Axis::Linear, Axis::Linear),
            &curves(&seconds(|row| row.publish_msg_s)),
        );
        plot(
            out,
            &title("Publish p99 minute by minute, ms"),
            "minutes",
            over_time,
            &curves(&|result| {
                (1..)
                    .map(f64::from)
                    .zip(result.minutes_p99_ms.iter().copied())
                    .collect()
            }),
        );
        plot(
            out,
            &title("Memory of the broker, MB"),
            "seconds",
            (Axis::Linear, Axis::Linear),
            &curves(&|result| {
                let rows = result.rows.iter();
                rows.filter_map(|row| Some((row.at_s, row.rss_bytes? as f64 / 1e6)))
                    .collect()
            }),
        );
        plot(
            out,
            &title("Disk in use, MB"),
            "seconds",
            (Axis::Linear, Axis::Linear),
            &curves(&|result| {
                let rows = result.rows.iter();
                rows.filter_map(|row| Some((row.at_s, row.disk_bytes? as f64 / 1e6)))
                    .collect()
            }),
        );
        if self.case.figures.iter().any(|of| of.name.starts_with("attach")) {
            plot(
                out,
                &title("Time until a consumer was attached, ms, by percentile"),
                "percentile",
                by_percentile,
                &curves(&|result| result.attach.curve.clone()),
            );
        }
        for (contestant, result) in &rounds {
            let stages = result.stages.iter().enumerate().map(|(number, stage)| Curve {
                color: number,
                name: stage.name.clone(),
                points: stage.curve.clone(),
            });
            plot(
                out,
                &title(&format!(
                    "{}: stages of a message by percentile, ms",
                    contestant.title
                )),
                "percentile",
                by_percentile,
                &stages.collect::<Vec<_>>(),
            );
        }
    }
}
