//! A report page that needs nothing but itself: plots as inline SVG, no script, no link.

use std::fmt::Write as _;

use crate::hgrm;

use super::slice::Side;
use super::summary::{Row, Summary};

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 70.0;
const BOTTOM: f64 = 36.0;
const TOP: f64 = 14.0;
const RIGHT: f64 = 14.0;
const COLORS: [&str; 6] = ["#1f6feb", "#d1242f", "#1a7f37", "#9a6700", "#8250df", "#57606a"];

/// Line of a plot.
struct Curve {
    name: String,
    points: Vec<(f64, f64)>,
}

/// The page of one run.
pub(crate) fn page(summary: &Summary) -> String {
    let mut body = String::new();
    let title = escape(&summary.title);
    let _ = write!(
        body,
        "<h1>pharos bench</h1><p>{title}</p><pre>{}</pre>",
        escape(&summary.to_text())
    );
    plots(&mut body, summary);
    whole("pharos bench", &body)
}

/// A page around `body`.
pub(crate) fn whole(title: &str, body: &str) -> String {
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>{}</title><style>\
         body{{font:14px/1.5 system-ui,sans-serif;max-width:900px;margin:2em auto;padding:0 1em;color:#1f2328}}\
         pre{{background:#f6f8fa;padding:1em;overflow-x:auto;white-space:pre-wrap}}h2{{font-size:1.05em;margin-bottom:.2em}}\
         pre.wide{{white-space:pre}}text{{font:11px system-ui,sans-serif;fill:#57606a}}</style><body>{body}</body></html>\n",
        escape(title)
    )
}

/// The plots of one run.
pub(crate) fn plots(body: &mut String, summary: &Summary) {
    let rate = |side: Side, name: &str| Curve {
        name: name.to_owned(),
        points: points(&summary.rows, |row| row.side(side).messages as f64 / row.seconds),
    };
    plot(
        body,
        "Throughput, messages a second",
        "seconds",
        &[
            rate(Side::Publish, "published"),
            rate(Side::Receive, "received"),
            rate(Side::Backlog, "backlog read"),
        ],
        false,
    );
    let sides = [
        (Side::Publish, "Publish latency", &summary.publish),
        (Side::Receive, "End-to-end latency", &summary.receive),
    ];
    for (side, name, total) in sides {
        if total.messages == 0 {
            continue;
        }
        let curves: Vec<Curve> = [
            ("p50", 50.0),
            ("p95", 95.0),
            ("p99", 99.0),
            ("p99.9", 99.9),
            ("max", 100.0),
        ]
        .into_iter()
        .map(|(label, percentile)| Curve {
            name: label.to_owned(),
            points: points(&summary.rows, |row| {
                row.side(side).latencies.percentile_ms(percentile)
            }),
        })
        .collect();
        plot(body, &format!("{name} over time, ms"), "seconds", &curves, false);
        let curve = Curve {
            name: "latency".to_owned(),
            points: hgrm::curve(&total.latencies),
        };
        plot(
            body,
            &format!("{name} by percentile, ms"),
            "percentile",
            &[curve],
            true,
        );
    }
    if summary.rows.iter().any(|row| row.backlog > 0) {
        let backlog = Curve {
            name: "backlog".to_owned(),
            points: points(&summary.rows, |row| row.backlog as f64),
        };
        plot(body, "Backlog, messages", "seconds", &[backlog], false);
    }
}

fn points(rows: &[Row], value: impl Fn(&Row) -> f64) -> Vec<(f64, f64)> {
    rows.iter().map(|row| (row.at_seconds, value(row))).collect()
}

/// Draws one plot. `by_percentile` means that x is 1/(1-q), drawn logarithmically and labelled with percentiles.
fn plot(out: &mut String, title: &str, x_label: &str, curves: &[Curve], by_percentile: bool) {
    let x_of = |x: f64| if by_percentile { x.max(1.0).log10() } else { x };
    let all = || curves.iter().flat_map(|curve| &curve.points);
    let x_max = all().map(|(x, _)| x_of(*x)).fold(1e-9, f64::max);
    let y_max = nice(all().map(|(_, y)| *y).fold(1e-9, f64::max));
    let at = |x: f64, y: f64| {
        (
            LEFT + x_of(x) / x_max * (WIDTH - LEFT - RIGHT),
            HEIGHT - BOTTOM - y / y_max * (HEIGHT - BOTTOM - TOP),
        )
    };
    let _ = write!(
        out,
        "<h2>{}</h2><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"100%\" role=\"img\" aria-label=\"{}\">",
        escape(title),
        escape(title)
    );
    for step in 0..=4 {
        let value = y_max * f64::from(step) / 4.0;
        let (_, y) = at(0.0, value);
        let _ = write!(
            out,
            "<path d=\"M{LEFT} {y:.1}H{}\" stroke=\"#d0d7de\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            y + 4.0,
            short(value)
        );
    }
    for (x, label) in x_marks(x_max, by_percentile) {
        let (x, _) = at(x, 0.0);
        let _ = write!(
            out,
            "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{label}</text>",
            HEIGHT - 20.0
        );
    }
    let middle = (LEFT + WIDTH) / 2.0;
    let _ = write!(
        out,
        "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{x_label}</text>",
        HEIGHT - 5.0
    );
    let shown = curves
        .iter()
        .filter(|curve| curve.points.iter().any(|(_, y)| *y > 0.0));
    for (number, (curve, color)) in shown.zip(COLORS).enumerate() {
        let line: Vec<String> = curve
            .points
            .iter()
            .map(|(x, y)| at(*x, *y))
            .map(|(x, y)| format!("{x:.1},{y:.1}"))
            .collect();
        let x = LEFT + 10.0 + number as f64 * 90.0;
        let _ = write!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"1.6\"/>\
             <text x=\"{x}\" y=\"{}\" style=\"fill:{color};font-weight:600\">{}</text>",
            line.join(" "),
            TOP + 8.0,
            escape(&curve.name)
        );
    }
    out.push_str("</svg>");
}

fn x_marks(x_max: f64, by_percentile: bool) -> Vec<(f64, String)> {
    if by_percentile {
        let labels = ["0", "90", "99", "99.9", "99.99", "99.999", "99.9999"];
        let marks = labels
            .iter()
            .enumerate()
            .map(|(power, label)| (10f64.powi(power as i32), (*label).to_owned()));
        return marks.take_while(|(x, _)| x.log10() <= x_max).collect();
    }
    (0..=6)
        .map(|step| x_max * f64::from(step) / 6.0)
        .map(|x| (x, format!("{x:.0}")))
        .collect()
}

/// The next round number above `value`: 1, 2, 2.5 or 5 times a power of ten.
fn nice(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0];
    steps
        .iter()
        .map(|step| step * power)
        .find(|top| *top >= value)
        .unwrap_or(value)
}

fn short(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{:.2}M", v / 1e6),
        v if v >= 1e4 => format!("{:.0}k", v / 1e3),
        v if v >= 10.0 || v == 0.0 => format!("{v:.0}"),
        v => format!("{v:.2}"),
    }
}

/// Text as HTML shows it.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::super::slice::Slice;
    use super::*;

    #[test]
    fn the_page_stands_alone() {
        let mut publish = Slice {
            messages: 10,
            ..Slice::default()
        };
        publish.latencies.record(3_000_000, 10);
        let row = Row {
            at_seconds: 1.0,
            seconds: 1.0,
            publish: publish.clone(),
            ..Row::default()
        };
        let summary = Summary {
            title: "a < b".to_owned(),
            rows: vec![row],
            publish,
            seconds: 1.0,
            ..Summary::default()
        };
        let page = page(&summary);
        assert!(page.contains("a &lt; b"));
        assert_eq!(page.matches("<svg").count(), 3);
        assert!(!page.contains("http") && !page.contains("<script") && !page.contains("NaN"));
    }

    #[test]
    fn axes_end_at_round_numbers() {
        assert_eq!(nice(0.7), 1.0);
        assert_eq!(nice(1234.0), 2000.0);
        assert_eq!(nice(23.0), 25.0);
        assert_eq!(short(1_250_000.0), "1.25M");
    }
}
