//! Writing the text format: families with help and type, samples with labels.
//!
//! Always true: the samples of a family stand together below its head, as the format wants.

use std::fmt::Write as _;

use pharos_runtime::Histogram;

/// Label names and values.
pub(super) type Labels = Vec<(&'static str, String)>;

/// Quantiles that every summary shows.
const QUANTILES: [f64; 5] = [0.5, 0.95, 0.99, 0.999, 1.0];

#[derive(Default)]
pub(super) struct Page {
    text: String,
}

impl Page {
    /// The head of a family.
    pub(super) fn family(&mut self, name: &str, help: &str, kind: &str) {
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        let _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    /// One sample.
    pub(super) fn sample(&mut self, name: &str, labels: &[(&'static str, String)], value: f64) {
        self.text.push_str(name);
        self.labels(labels, None);
        let _ = writeln!(self.text, " {value}");
    }

    /// A family of one sample.
    pub(super) fn single(
        &mut self,
        name: &str,
        help: &str,
        kind: &str,
        labels: &[(&'static str, String)],
        value: f64,
    ) {
        self.family(name, help, kind);
        self.sample(name, labels, value);
    }

    /// The samples of a summary. `scale`: what one second is in the unit of the metric.
    pub(super) fn summary(
        &mut self,
        name: &str,
        labels: &[(&'static str, String)],
        histogram: &Histogram,
        scale: f64,
    ) {
        if histogram.count() > 0 {
            for quantile in QUANTILES {
                self.text.push_str(name);
                self.labels(labels, Some(quantile));
                let _ = writeln!(self.text, " {}", histogram.quantile_seconds(quantile) * scale);
            }
        }
        self.text.push_str(name);
        self.text.push_str("_sum");
        self.labels(labels, None);
        let _ = writeln!(self.text, " {}", histogram.sum_seconds() * scale);
        self.text.push_str(name);
        self.text.push_str("_count");
        self.labels(labels, None);
        let _ = writeln!(self.text, " {}", histogram.count());
    }

    fn labels(&mut self, labels: &[(&'static str, String)], quantile: Option<f64>) {
        if labels.is_empty() && quantile.is_none() {
            return;
        }
        self.text.push('{');
        let mut separator = "";
        for (name, value) in labels {
            let _ = write!(self.text, "{separator}{name}=\"");
            self.escaped(value);
            self.text.push('"');
            separator = ",";
        }
        if let Some(quantile) = quantile {
            let _ = write!(self.text, "{separator}quantile=\"{quantile}\"");
        }
        self.text.push('}');
    }

    fn escaped(&mut self, value: &str) {
        for c in value.chars() {
            match c {
                '\\' => self.text.push_str("\\\\"),
                '"' => self.text.push_str("\\\""),
                '\n' => self.text.push_str("\\n"),
                c => self.text.push(c),
            }
        }
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }
}
