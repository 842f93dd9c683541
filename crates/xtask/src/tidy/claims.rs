//! Tests that `docs/durability.md` names, against the tree: a claim whose test is not there is shown by none.
//!
//! `node/tests/crashes/crash_kill.rs` is `crates/node/tests/crashes/crash_kill.rs`; directories count as all that is in them. Names of tests beside
//! such places must be functions in one of them.

use super::Findings;
use crate::source::SourceFile;

const PAGE: &str = "docs/durability.md";

/// Files and tests that the page's table names and that are not there.
pub(super) fn named_tests(files: &[SourceFile]) -> Findings {
    let Some(page) = files.iter().find(|file| file.path == PAGE) else {
        return vec![format!("{PAGE}: is missing")];
    };
    let mut findings = Findings::new();
    for (number, line) in (1..).zip(page.text.lines()) {
        let names = names_of_tests(line);
        let (places, tests): (Vec<&str>, Vec<&str>) = names.iter().partition(|name| name.contains('/'));
        let mut searched = Vec::new();
        for place in &places {
            let found: Vec<_> = files.iter().filter(|file| is_at(&file.path, place)).collect();
            if found.is_empty() {
                findings.push(format!("{PAGE}:{number}: there is no {place}"));
            }
            searched.extend(found);
        }
        if places.is_empty() {
            searched.extend(files);
        }
        for test in tests {
            let function = format!("fn {test}(");
            if !searched.iter().any(|file| file.text.contains(&function)) {
                findings.push(format!("{PAGE}:{number}: there is no test {test}"));
            }
        }
    }
    findings
}

/// Names in backticks in the second cell of a row that may be a path or a test.
fn names_of_tests(line: &str) -> Vec<&str> {
    let cells: Vec<&str> = line.split(" | ").collect();
    let [_, shown_by] = cells[..] else {
        return Vec::new();
    };
    let is_name = |name: &&str| {
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-/.".contains(c);
        !name.starts_with('.')
            && name.chars().all(is_plain)
            && (name.contains('/') || name.matches('_').count() >= 2)
    };
    // Every second piece stands in backticks.
    shown_by.split('`').skip(1).step_by(2).filter(is_name).collect()
}

fn is_at(path: &str, place: &str) -> bool {
    let path = path.strip_prefix("crates/").unwrap_or(path);
    let rest = path.strip_prefix(place);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::named_tests;
    use crate::source::SourceFile;

    fn found(row: &str) -> Vec<String> {
        let file = |path: &str, text: &str| SourceFile {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        named_tests(&[
            file("docs/durability.md", row),
            file("crates/a/tests/b.rs", "async fn it_stays_whole() {}\n"),
            file("crates/a/tests/c/main.rs", "fn it_comes_back() {}\n"),
        ])
    }

    #[test]
    fn what_is_there_is_no_finding() {
        assert!(found("| `not_a_test_here` stays | `a/tests/b.rs`: `it_stays_whole` |").is_empty());
        assert!(found("| claim | `a/tests/c`, `it_comes_back`; `SEEDS=9 cargo test` |").is_empty());
        assert!(found("| claim | law `it_comes_back` |").is_empty());
        assert!(found("By construction: `a_thing_without_test`").is_empty());
    }

    #[test]
    fn what_is_not_there_is_a_finding() {
        assert_eq!(
            found("| claim | `a/tests/b.rs`: `it_comes_back`; `a/tests/d.rs` |"),
            [
                "docs/durability.md:1: there is no a/tests/d.rs",
                "docs/durability.md:1: there is no test it_comes_back",
            ]
        );
    }
}
