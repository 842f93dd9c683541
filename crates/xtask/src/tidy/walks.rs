//! Files and functions that `ARCHITECTURE.md` names, against the tree.
//!
//! `pulsar/reader.rs` is `crates/pulsar/src/reader.rs`. Names of functions that follow it, each in its own backticks, must be
//! defined there: `Feed::ack` as `fn ack`.

use super::Findings;
use crate::source::SourceFile;

const PAGE: &str = "ARCHITECTURE.md";

/// Files and functions that are named and not there.
pub(super) fn named_places(files: &[SourceFile]) -> Findings {
    let Some(page) = files.iter().find(|file| file.path == PAGE) else {
        return vec![format!("{PAGE}: is missing")];
    };
    let mut findings = Findings::new();
    for (number, line) in (1..).zip(page.text.lines()) {
        for (path, functions) in places(line) {
            let Some((krate, inside)) = path.split_once('/') else {
                continue;
            };
            let path = format!("crates/{krate}/src/{inside}");
            let Some(file) = files.iter().find(|file| file.path == path) else {
                findings.push(format!("{PAGE}:{number}: there is no {path}"));
                continue;
            };
            for function in functions.iter().filter(|function| !defines(&file.text, function)) {
                findings.push(format!("{PAGE}:{number}: {path} has no {function}"));
            }
        }
    }
    findings
}

/// The files that a line names, each with the functions that follow it.
fn places(line: &str) -> Vec<(&str, Vec<&str>)> {
    let mut found: Vec<(&str, Vec<&str>)> = Vec::new();
    // Every second piece stands in backticks; the one before it says whether it goes on.
    let pieces: Vec<&str> = line.split('`').collect();
    let mut goes_on = false;
    for pair in pieces.chunks(2) {
        let (between, code) = (pair[0], pair.get(1).copied());
        goes_on = goes_on && matches!(between, " " | ", ");
        let Some(code) = code else { break };
        if code.ends_with(".rs") && code.contains('/') {
            found.push((code, Vec::new()));
            goes_on = true;
        } else if goes_on && let Some((_, functions)) = found.last_mut() {
            functions.push(code);
        }
    }
    found
}

fn defines(text: &str, function: &str) -> bool {
    let name = function.rsplit("::").next().unwrap_or(function);
    let found = format!("fn {name}");
    let mut places = text.match_indices(&found);
    places.any(|(at, _)| text[at + found.len()..].starts_with(['(', '<']))
}

#[cfg(test)]
mod tests {
    use super::{named_places, places};
    use crate::source::SourceFile;

    fn file(path: &str, text: &str) -> SourceFile {
        SourceFile {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn functions_follow_their_file() {
        assert_eq!(
            places("1. `a/b.rs` `C::d`, `e`: then `f`, and `g/h.rs`, or `i`"),
            [("a/b.rs", vec!["C::d", "e"]), ("g/h.rs", vec![])]
        );
    }

    #[test]
    fn what_is_not_there_is_a_finding() {
        let tree = |page: &str| {
            [
                file("ARCHITECTURE.md", page),
                file("crates/a/src/b.rs", "fn there<T>() {}\n"),
            ]
        };
        assert!(named_places(&tree("`a/b.rs` `B::there`")).is_empty());
        assert_eq!(
            named_places(&tree("`a/b.rs` `ther`\n`a/c.rs`")),
            [
                "ARCHITECTURE.md:1: crates/a/src/b.rs has no ther",
                "ARCHITECTURE.md:2: there is no crates/a/src/c.rs",
            ]
        );
    }
}
