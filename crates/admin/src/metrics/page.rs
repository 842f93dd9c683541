//! Writing the text format: families with help and type, samples with labels.
//!
//! Always true: the samples of a family stand together below its head, as the format wants.

use std::fmt::Write as _;
use std::io::{self, Write as _};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use pharos_runtime::Histogram;

/// Label names and values.
pub(super) type Labels = Vec<(&'static str, String)>;

/// Quantiles that every summary shows.
const QUANTILES: [f64; 5] = [0.5, 0.95, 0.99, 0.999, 1.0];

/// Upper bounds of the buckets of a histogram, in microseconds. The same everywhere, so that brokers can be added up.
const BOUNDS_US: [u64; 17] = [
    50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000,
    2_000_000, 5_000_000, 10_000_000,
];

/// Bucket bounds of a topic's histograms: fewer, because there may be many topics.
const TOPIC_BOUNDS_US: [u64; 7] = [500, 1_000, 5_000, 10_000, 50_000, 200_000, 1_000_000];

/// Upper bounds of what Pulsar has in milliseconds.
const BOUNDS_MS: [u64; 10] = [1, 3, 5, 10, 20, 50, 100, 200, 500, 1_000];

/// Size of the text to compress at a time, so that a page of very many topics is never in memory as text.
const PIECE_BYTES: usize = 64 << 10;

#[derive(Default)]
pub(super) struct Page {
    /// Text not compressed yet; the whole page without compression.
    text: String,
    gzip: Option<GzEncoder<Vec<u8>>>,
}

impl Page {
    /// A page that is compressed as it is written. Little is gained by trying hard: labels are the same over and over.
    pub(super) fn compressed() -> Self {
        Self {
            text: String::new(),
            gzip: Some(GzEncoder::new(Vec::new(), Compression::fast())),
        }
    }

    /// The head of a family.
    pub(super) fn family(&mut self, name: &str, help: &str, kind: &str) {
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        let _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    /// Adds one sample.
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

    /// The samples of a summary, for metrics that Pulsar has as such. `scale`: what one second is in the unit of the metric.
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
                self.labels(labels, Some(("quantile", &quantile.to_string())));
                let _ = writeln!(self.text, " {}", histogram.quantile_seconds(quantile) * scale);
            }
        }
        self.sum_and_count(name, labels, histogram, scale);
    }

    /// The samples of a histogram in seconds, which can be added up over brokers and subtracted over time. Some durations count
    /// into a bucket although they are up to 6.25 % longer than its bound.
    pub(super) fn histogram(&mut self, name: &str, labels: &[(&'static str, String)], histogram: &Histogram) {
        let bounds = BOUNDS_US.map(|bound_us| (bound_us, bound_us as f64 / 1e6));
        self.buckets(name, labels, histogram, &bounds, 1.0);
    }

    /// Histogram of one topic, with fewer buckets.
    pub(super) fn topic_histogram(
        &mut self,
        name: &str,
        labels: &[(&'static str, String)],
        histogram: &Histogram,
    ) {
        let bounds = TOPIC_BOUNDS_US.map(|bound_us| (bound_us, bound_us as f64 / 1e6));
        self.buckets(name, labels, histogram, &bounds, 1.0);
    }

    /// Histogram in milliseconds, for metrics that Pulsar exposes in that unit.
    pub(super) fn millisecond_histogram(
        &mut self,
        name: &str,
        labels: &[(&'static str, String)],
        histogram: &Histogram,
    ) {
        let bounds = BOUNDS_MS.map(|bound_ms| (bound_ms * 1_000, bound_ms as f64));
        self.buckets(name, labels, histogram, &bounds, 1000.0);
    }

    /// `bounds`: in microseconds, and in the unit of the metric, of which one second is `scale`.
    fn buckets(
        &mut self,
        name: &str,
        labels: &[(&'static str, String)],
        histogram: &Histogram,
        bounds: &[(u64, f64)],
        scale: f64,
    ) {
        let bounds = bounds
            .iter()
            .map(|(bound_us, shown)| (shown.to_string(), histogram.count_up_to(bound_us * 1_000)));
        for (bound, count) in bounds.chain([("+Inf".to_owned(), histogram.count())]) {
            self.text.push_str(name);
            self.text.push_str("_bucket");
            self.labels(labels, Some(("le", &bound)));
            let _ = writeln!(self.text, " {count}");
        }
        self.sum_and_count(name, labels, histogram, scale);
    }

    fn sum_and_count(
        &mut self,
        name: &str,
        labels: &[(&'static str, String)],
        histogram: &Histogram,
        scale: f64,
    ) {
        self.text.push_str(name);
        self.text.push_str("_sum");
        self.labels(labels, None);
        let _ = writeln!(self.text, " {}", histogram.sum_seconds() * scale);
        self.text.push_str(name);
        self.text.push_str("_count");
        self.labels(labels, None);
        let _ = writeln!(self.text, " {}", histogram.count());
    }

    /// `last`: one more label, which needs no escaping.
    fn labels(&mut self, labels: &[(&'static str, String)], last: Option<(&str, &str)>) {
        self.compress(PIECE_BYTES);
        if labels.is_empty() && last.is_none() {
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
        if let Some((name, value)) = last {
            let _ = write!(self.text, "{separator}{name}=\"{value}\"");
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

    /// Compresses the text when there is so much of it.
    fn compress(&mut self, least: usize) {
        if self.text.len() < least {
            return;
        }
        if let Some(gzip) = &mut self.gzip {
            // Into memory: it cannot fail here, and what could is found at the end.
            let _ = gzip.write_all(self.text.as_bytes());
            self.text.clear();
        }
    }

    /// The whole page.
    ///
    /// # Errors
    /// It could not be compressed.
    pub(super) fn into_bytes(mut self) -> io::Result<Bytes> {
        self.compress(0);
        match self.gzip {
            Some(gzip) => gzip.finish().map(Bytes::from),
            None => Ok(Bytes::from(self.text)),
        }
    }
}
