//! The result for people: a table with a row per case, the expectations, and the same as a page of markdown or HTML.

use std::fmt::Write as _;

use crate::perf::html;

use super::expect::{Judged, Verdict};
use super::metric::{self, Metric};
use super::outcome::{CaseOutcome, Outcome};
use super::slices;

/// A column: heading over several, own heading, a cell per case.
struct Column {
    group: String,
    head: String,
    /// Both in one.
    full_head: String,
    cells: Vec<String>,
}

fn columns(shown: &[&Metric], relative: &[&Metric], cases: &[CaseOutcome]) -> Vec<Column> {
    let text = |head: &str, cells: Vec<String>| Column {
        group: String::new(),
        head: head.to_owned(),
        full_head: head.to_owned(),
        cells,
    };
    let mut columns = vec![text(
        "case",
        cases.iter().map(|case| case.label.clone()).collect(),
    )];
    let present = shown.iter().filter(|metric| is_present(metric, cases));
    columns.extend(present.map(|metric| Column {
        group: metric.group.to_owned(),
        head: metric.head.to_owned(),
        full_head: metric.brief.to_owned(),
        cells: cases.iter().map(|case| cell(metric, case)).collect(),
    }));
    columns.extend(relative.iter().filter_map(|metric| {
        let first = cases
            .first()?
            .figures
            .get(metric.name)
            .filter(|first| **first > 0.0)?;
        let brief = metric.brief.trim_end_matches(", ms");
        let ratio = |case: &CaseOutcome| {
            let value = case.figures.get(metric.name);
            value.map_or_else(|| "-".to_owned(), |value| format!("{:.2}", value / first))
        };
        (cases.len() > 1).then(|| Column {
            group: "times the first".to_owned(),
            head: brief.to_owned(),
            full_head: format!("{brief}, times the first"),
            cells: cases.iter().map(ratio).collect(),
        })
    }));
    columns.push(text("checks", cases.iter().map(CaseOutcome::checks).collect()));
    columns
}

fn is_present(metric: &Metric, cases: &[CaseOutcome]) -> bool {
    cases.iter().any(|case| case.figures.contains_key(metric.name))
}

fn cell(metric: &Metric, case: &CaseOutcome) -> String {
    let Some(value) = case.figures.get(metric.name) else {
        return "-".to_owned();
    };
    if matches!(
        metric.name,
        "cold_share" | "cold_of_device" | "publish_of_device" | "publish_of_group"
    ) {
        return format!("{:.0} %", value * 100.0);
    }
    metric::show(*value)
}

/// The table for a terminal: numbers to the right, words to the left, a heading over neighbours of one group.
fn table(columns: &[Column], rows: usize) -> String {
    let last = columns.len().saturating_sub(1);
    let mut widths: Vec<usize> = columns
        .iter()
        .map(|column| {
            let cells = column.cells.iter().map(|cell| cell.chars().count());
            cells.max().unwrap_or(0).max(column.head.chars().count())
        })
        .collect();
    let mut top = String::new();
    let mut at = 0;
    while at < columns.len() {
        let group = &columns[at].group;
        let mut end = at + 1;
        while !group.is_empty() && columns.get(end).is_some_and(|next| next.group == *group) {
            end += 1;
        }
        let width: usize = widths[at..end].iter().sum::<usize>() + 2 * (end - at - 1);
        // A narrow column under a long heading grows.
        if group.chars().count() > width {
            widths[end - 1] += group.chars().count() - width;
        }
        let width = width.max(group.chars().count());
        let _ = write!(top, "{group:^width$}  ");
        at = end;
    }
    let line = |cell: &dyn Fn(&Column) -> String| {
        let mut line = String::new();
        for (number, column) in columns.iter().enumerate() {
            let (text, width) = (cell(column), widths[number]);
            let _ = match number {
                0 => write!(line, "{text:<width$}"),
                _ if number == last => write!(line, "  {text}"),
                _ => write!(line, "  {text:>width$}"),
            };
        }
        line.trim_end().to_owned()
    };
    let mut lines = vec![top.trim_end().to_owned(), line(&|column| column.head.clone())];
    for row in 0..rows {
        lines.push(line(&|column| column.cells.get(row).cloned().unwrap_or_default()));
    }
    lines.join("\n")
}

/// Returns one line per expectation and case.
fn verdicts(judged: &[Judged]) -> Vec<String> {
    let line = |judged: &Judged| {
        let mut line = format!("{:<12}  {}", judged.verdict.word(), judged.what);
        if !judged.case.is_empty() {
            let _ = write!(line, " [{}]", judged.case);
        }
        if let Some(value) = judged.value {
            let _ = write!(line, ": {} (wanted {})", metric::show(value), judged.limit);
        }
        if !judged.detail.is_empty() {
            let _ = write!(line, "; {}", judged.detail);
        }
        match judged.stretch_met {
            Some(true) => line.push_str("; stretch goal reached"),
            Some(false) => line.push_str("; stretch goal not reached"),
            None => {}
        }
        line
    };
    judged.iter().map(line).collect()
}

impl Outcome<'_> {
    fn columns(&self) -> Vec<Column> {
        columns(&self.scenario.columns, &self.scenario.relative, &self.cases)
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.rounds > 1 {
            notes.push(format!(
                "each figure is the median of {} rounds, in which the cases took turns",
                self.rounds
            ));
        }
        if self.machine.storage.starts_with("tmpfs") {
            let note = "the data was in memory (tmpfs): syncs cost nothing here; give --data-dir on a device";
            notes.push(note.to_owned());
        }
        for case in &self.cases {
            let of_case = case.notes.iter().chain(&case.failure);
            notes.extend(of_case.map(|note| format!("{}: {note}", case.label)));
        }
        notes
    }

    /// For a terminal.
    pub(super) fn to_text(&self) -> String {
        let mut out = format!(
            "{}\n{}\n\n{}\n",
            self.scenario.title,
            self.machine.line(),
            table(&self.columns(), self.cases.len())
        );
        for (heading, lines) in [("Targets", verdicts(&self.judged)), ("Notes", self.notes())] {
            if !lines.is_empty() {
                let _ = write!(out, "\n{heading}\n  {}\n", lines.join("\n  "));
            }
        }
        out.trim_end().to_owned()
    }

    /// A page that stands alone.
    pub(super) fn to_markdown(&self) -> String {
        let mut out = format!("# {}\n\n{}\n\n", self.scenario.title, self.scenario.about);
        let commit = self.machine.commit.unwrap_or("unknown");
        let _ = write!(
            out,
            "| | |\n|---|---|\n| command | `{}` |\n| version | {}, commit {commit} |\n| begun | {} |\n| machine | {} |\n\n",
            self.command,
            self.machine.version,
            date(self.began_unix_s),
            self.machine.line()
        );
        let columns = self.columns();
        let heads: Vec<&str> = columns.iter().map(|column| column.full_head.as_str()).collect();
        let _ = writeln!(out, "| {} |", heads.join(" | "));
        let rule = |at| {
            if at == 0 || at + 1 == columns.len() {
                "---"
            } else {
                "---:"
            }
        };
        let rules: Vec<&str> = (0..columns.len()).map(rule).collect();
        let _ = writeln!(out, "|{}|", rules.join("|"));
        for row in 0..self.cases.len() {
            let cells = columns.iter().filter_map(|column| column.cells.get(row));
            let cells: Vec<String> = cells.map(|cell| cell.replace('|', "\\|")).collect();
            let _ = writeln!(out, "| {} |", cells.join(" | "));
        }
        self.markdown_judged(&mut out);
        for case in self.cases.iter().filter(|case| !case.slices.is_empty()) {
            let _ = write!(
                out,
                "\n## {}, slice by slice\n\n{}",
                case.label,
                slices::markdown(&case.slices)
            );
        }
        let notes = self.notes();
        if !notes.is_empty() {
            let _ = write!(out, "\n## Notes\n\n- {}\n", notes.join("\n- "));
        }
        out.push_str("\n## What the columns mean\n\n");
        let _ = writeln!(
            out,
            "MB and GB are 10^6 and 10^9 bytes of payload. Latency counts from when a message was due."
        );
        let shown = &self.scenario.columns;
        for metric in shown.iter().filter(|metric| is_present(metric, &self.cases)) {
            let _ = writeln!(
                out,
                "- **{}** (`{}`): {}",
                metric.brief, metric.name, metric.about
            );
        }
        out
    }

    fn markdown_judged(&self, out: &mut String) {
        if self.judged.is_empty() {
            return;
        }
        out.push_str("\n## Targets\n\n| target | case | wanted | found | |\n|---|---|---|---:|---|\n");
        for judged in &self.judged {
            let found = judged.value.map_or_else(|| "-".to_owned(), metric::show);
            let mut more = match judged.stretch_met {
                Some(true) => ", stretch goal reached".to_owned(),
                _ => String::new(),
            };
            if !judged.detail.is_empty() {
                let _ = write!(more, "; {}", judged.detail.replace('|', "\\|"));
            }
            let word = match judged.verdict {
                Verdict::NotMet => "**not met**",
                other => other.word(),
            };
            let _ = writeln!(
                out,
                "| {} | {} | {} | {found} | {word}{more} |",
                judged.what, judged.case, judged.limit
            );
        }
    }

    /// A page with plots of every case.
    pub(super) fn to_html(&self) -> String {
        let title = html::escape(&self.scenario.title);
        let mut body = format!(
            "<h1>{title}</h1><p>{}</p><p>{}</p><p><code>{}</code></p><pre class=\"wide\">{}</pre>",
            html::escape(&self.scenario.about),
            html::escape(&self.machine.line()),
            html::escape(&self.command),
            html::escape(&self.to_text())
        );
        for case in &self.cases {
            if let Some(summary) = &case.summary {
                let _ = write!(body, "<h1>{}</h1>", html::escape(&case.label));
                html::plots(&mut body, summary);
            }
        }
        html::whole(&self.scenario.title, &body)
    }
}

/// `2026-11-21 04:49 UTC`. Civil-from-days as in Howard Hinnant's "chrono-Compatible Low-Level Date Algorithms".
pub fn date(unix_s: u64) -> String {
    let days = (unix_s / 86_400) as i64 + 719_468;
    let era = days / 146_097;
    let of_era = days - era * 146_097;
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute) = (unix_s / 3600 % 24, unix_s / 60 % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(label: &str, p99: f64) -> CaseOutcome {
        let mut case = CaseOutcome {
            label: label.to_owned(),
            ..CaseOutcome::default()
        };
        case.figures
            .extend([("publish_msg_s", 1234.5), ("publish_p99_ms", p99)]);
        case
    }

    #[test]
    fn a_table_has_a_row_per_case_and_columns_stand_under_their_heads() {
        let mut refused = case("topics=2", 1.0);
        refused.figures.clear();
        refused.failure = Some("no such setting".to_owned());
        refused.refused = true;
        let cases = [case("topics=1", 2.0), refused, case("topics=30", 3.0)];
        let shown: Vec<&Metric> = metric::METRICS.iter().collect();
        let relative = [metric::find("publish_p99_ms").expect("known")];
        let table = table(&columns(&shown, &relative, &cases), cases.len());
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines.len(), 5, "{table}");
        assert!(lines[0].contains("publish latency, ms") && lines[0].contains("times the first"));
        assert!(lines[1].contains("p99") && !lines[1].contains("p50"), "{table}");
        assert!(lines[3].ends_with("refused"), "{table}");
        let end = |line: &str, word: &str| line.find(word).map(|at| at + word.len());
        assert_eq!(end(lines[1], "p99"), end(lines[2], "2.00"), "{table}");
        assert!(lines[4].contains("1.50") && lines[4].ends_with("ok"), "{table}");
    }

    #[test]
    fn dates_are_right() {
        assert_eq!(date(0), "1970-01-01 00:00 UTC");
        assert_eq!(date(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(date(1_795_236_540), "2026-11-21 04:49 UTC");
    }
}
