//! Plots as inline SVG: no script, no link.

use std::fmt::Write as _;

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 74.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 38.0;
const COLORS: [&str; 7] = [
    "#1f6feb", "#0a9396", "#d1242f", "#9a6700", "#8250df", "#57606a", "#bf3989",
];

/// Scale of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Axis {
    /// From 0.
    Linear,
    /// By powers of ten.
    Powers,
    /// x is 1/(1-quantile); by powers of ten, labelled with percentiles.
    Percentiles,
}

/// Line of a plot.
#[derive(Clone, Debug)]
pub(super) struct Curve {
    /// Chooses the color; the same contestant has the same in all plots.
    pub(super) color: usize,
    /// For the legend.
    pub(super) name: String,
    /// In the order of x.
    pub(super) points: Vec<(f64, f64)>,
}

/// Mapping of values to positions.
struct Scale {
    axis: Axis,
    from: f64,
    to: f64,
}

impl Scale {
    fn of(axis: Axis, values: impl Iterator<Item = f64>) -> Option<Self> {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values {
            (low, high) = (low.min(value), high.max(value));
        }
        if !low.is_finite() || !high.is_finite() {
            return None;
        }
        let (from, to) = match axis {
            Axis::Linear => (0.0, round_up(high)),
            Axis::Powers => (low.log10().floor(), high.log10().ceil()),
            Axis::Percentiles => (0.0, high.log10()),
        };
        Some(Self {
            axis,
            from,
            to: if to > from { to } else { from + 1.0 },
        })
    }

    /// From 0 to 1.
    fn at(&self, value: f64) -> f64 {
        let value = match self.axis {
            Axis::Linear => value,
            Axis::Powers | Axis::Percentiles => value.log10(),
        };
        (value - self.from) / (self.to - self.from)
    }

    fn marks(&self) -> Vec<(f64, String)> {
        match self.axis {
            Axis::Linear => (0..=4)
                .map(|step| self.to * f64::from(step) / 4.0)
                .map(|value| (value, short(value)))
                .collect(),
            Axis::Powers => (self.from as i32..=self.to as i32)
                .map(|power| (10f64.powi(power), short(10f64.powi(power))))
                .collect(),
            Axis::Percentiles => ["0", "90", "99", "99.9", "99.99", "99.999", "99.9999"]
                .into_iter()
                .enumerate()
                .take_while(|(power, _)| *power as f64 <= self.to)
                .map(|(power, label)| (10f64.powi(power as i32), label.to_owned()))
                .collect(),
        }
    }
}

/// Draws one plot; nothing when there are no points. What an axis by powers of ten cannot show is left out.
pub(super) fn plot(out: &mut String, title: &str, x_words: &str, axes: (Axis, Axis), curves: &[Curve]) {
    let shown = |(x, y): &&(f64, f64)| {
        let fits = |axis: Axis, value: f64| value.is_finite() && (axis == Axis::Linear || value > 0.0);
        fits(axes.0, *x) && fits(axes.1, *y)
    };
    let all = || curves.iter().flat_map(|curve| curve.points.iter().filter(shown));
    let (Some(x), Some(y)) = (
        Scale::of(axes.0, all().map(|point| point.0)),
        Scale::of(axes.1, all().map(|point| point.1)),
    ) else {
        return;
    };
    let left = |value: f64| LEFT + x.at(value) * (WIDTH - LEFT - RIGHT);
    let down = |value: f64| HEIGHT - BOTTOM - y.at(value) * (HEIGHT - BOTTOM - TOP);
    let title = escape(title);
    let _ = write!(
        out,
        "<figure><figcaption>{title}</figcaption><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}\">"
    );
    for (value, label) in y.marks() {
        let _ = write!(
            out,
            "<path d=\"M{LEFT} {0:.1}H{1}\" stroke=\"#d0d7de\"/><text x=\"{2}\" y=\"{3:.1}\" text-anchor=\"end\">{label}</text>",
            down(value),
            WIDTH - RIGHT,
            LEFT - 6.0,
            down(value) + 4.0
        );
    }
    for (value, label) in x.marks() {
        let _ = write!(
            out,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{label}</text>",
            left(value),
            HEIGHT - 22.0
        );
    }
    let _ = write!(
        out,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
        (LEFT + WIDTH) / 2.0,
        HEIGHT - 6.0,
        escape(x_words)
    );
    let drawn = curves
        .iter()
        .filter(|curve| curve.points.iter().any(|point| shown(&point)));
    for (number, curve) in drawn.enumerate() {
        let color = COLORS.get(curve.color % COLORS.len()).copied().unwrap_or("#000");
        let points: Vec<(f64, f64)> = curve
            .points
            .iter()
            .filter(shown)
            .map(|(x, y)| (left(*x), down(*y)))
            .collect();
        let line: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = write!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"1.7\"/>",
            line.join(" ")
        );
        for (x, y) in points.iter().filter(|_| points.len() <= 12) {
            let _ = write!(
                out,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{color}\"/>"
            );
        }
        let _ = write!(
            out,
            "<text x=\"{}\" y=\"16\" style=\"fill:{color};font-weight:600\">{}</text>",
            LEFT + number as f64 * 125.0,
            escape(&curve.name)
        );
    }
    out.push_str("</svg></figure>");
}

/// The next round number: 1, 2, 2.5 or 5 times a power of ten.
fn round_up(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let power = 10f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0].map(|step| step * power);
    steps.into_iter().find(|top| *top >= value).unwrap_or(value)
}

fn short(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{}M", trim(v / 1e6)),
        v if v >= 1e4 => format!("{}k", trim(v / 1e3)),
        v => trim(v),
    }
}

fn trim(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Text as HTML shows it.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(points: &[(f64, f64)]) -> Curve {
        Curve {
            color: 0,
            name: "a < b".to_owned(),
            points: points.to_vec(),
        }
    }

    #[test]
    fn a_plot_has_a_line_for_each_curve_with_points() {
        let mut out = String::new();
        let curves = [
            curve(&[(1.0, 0.5), (100.0, 30.0)]),
            curve(&[]),
            curve(&[(1.0, 0.0)]),
        ];
        plot(&mut out, "t", "x", (Axis::Percentiles, Axis::Powers), &curves);
        assert_eq!(out.matches("<polyline").count(), 1);
        assert!(
            out.contains("a &lt; b") && !out.contains("NaN") && !out.contains("inf"),
            "{out}"
        );
        let mut nothing = String::new();
        plot(
            &mut nothing,
            "t",
            "x",
            (Axis::Linear, Axis::Linear),
            &[curve(&[])],
        );
        assert!(nothing.is_empty());
    }

    #[test]
    fn axes_end_at_round_numbers() {
        let scale = Scale::of(Axis::Powers, [0.2, 700.0].into_iter()).expect("values");
        assert_eq!((scale.from, scale.to), (-1.0, 3.0));
        assert_eq!(scale.marks().len(), 5);
        assert_eq!(round_up(23.0), 25.0);
        assert_eq!(short(2_500_000.0), "2.5M");
        assert_eq!(short(0.1), "0.1");
    }
}
