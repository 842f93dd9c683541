//! Names of types that mean something else in every second file.

use std::collections::BTreeMap;

use super::Findings;
use crate::modules::product_part;
use crate::sizes::by_crate;
use crate::source::SourceFile;

/// Maximum number of types with the same name.
const SAME_NAME_MAX: usize = 2;

/// Load programs, simulations and tools: their names meet no other crate's.
const TOOLS: [&str; 4] = ["bench", "bench-peers", "sim", "xtask"];

/// Every crate has its own, and all mean the same.
const ONE_MEANING: [&str; 1] = ["Options"];

/// Names that more types have, and at most how many. The numbers only get smaller.
const MORE: [(&str, usize); 57] = [
    ("Access", 4),
    ("Active", 3),
    ("Answer", 4),
    ("Asked", 5),
    ("Body", 3),
    ("Chunk", 3),
    ("Connection", 3),
    ("Consumer", 4),
    ("Counters", 3),
    ("Current", 4),
    ("Done", 3),
    ("Event", 3),
    ("Facts", 3),
    ("Failure", 4),
    ("Found", 4),
    ("Group", 4),
    ("Handle", 4),
    ("Header", 3),
    ("Held", 4),
    ("Inner", 6),
    ("Item", 4),
    ("Kind", 5),
    ("Limits", 3),
    ("Look", 3),
    ("Members", 3),
    ("Next", 6),
    ("Node", 3),
    ("OpenError", 3),
    ("Opened", 4),
    ("Parts", 4),
    ("Phase", 3),
    ("Piece", 3),
    ("Place", 5),
    ("Producer", 3),
    ("Properties", 3),
    ("Queue", 3),
    ("Read", 3),
    ("ReadError", 3),
    ("Reader", 5),
    ("Record", 3),
    ("Refusal", 3),
    ("Refused", 6),
    ("Replay", 4),
    ("Segment", 5),
    ("Sent", 3),
    ("Shared", 6),
    ("Slot", 4),
    ("State", 5),
    ("Step", 4),
    ("Stored", 5),
    ("Table", 3),
    ("Target", 4),
    ("Value", 3),
    ("Waiting", 4),
    ("Window", 3),
    ("Work", 4),
    ("Writer", 5),
];

/// Names that too many types have.
pub(super) fn shared(files: &[SourceFile]) -> Findings {
    shared_but(files, &MORE)
}

fn shared_but(files: &[SourceFile], listed: &[(&str, usize)]) -> Findings {
    let mut places: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (krate, files) in by_crate(files) {
        if TOOLS.contains(&krate) {
            continue;
        }
        for (path, text) in files
            .iter()
            .filter(|(_, text)| !text.starts_with("// @generated"))
        {
            for name in product_part(path, text).lines().filter_map(defined) {
                places
                    .entry(name)
                    .or_default()
                    .push(format!("{krate}/src/{path}"));
            }
        }
    }
    let mut findings = Findings::new();
    for (name, places) in places.iter().filter(|(name, _)| !ONE_MEANING.contains(name)) {
        let known = listed.iter().find(|(listed, _)| listed == name);
        let most = known.map_or(SAME_NAME_MAX, |(_, most)| *most);
        if places.len() > most {
            findings.push(format!(
                "{name}: {} types have this name, {most} may: {}",
                places.len(),
                places.join(", ")
            ));
        }
    }
    findings
}

/// The name of the type that a line defines. One that is indented is a trait's, or local to a function.
fn defined(line: &str) -> Option<&str> {
    let mut words = line
        .split(|c: char| !(c.is_alphanumeric() || c == '_'))
        .peekable();
    if line.starts_with(char::is_whitespace) {
        return None;
    }
    while words
        .next_if(|word| matches!(*word, "pub" | "crate" | "super" | ""))
        .is_some()
    {}
    let keyword = words.next()?;
    let name = words.next().filter(|name| !name.is_empty())?;
    matches!(keyword, "struct" | "enum" | "union" | "trait" | "type").then_some(name)
}

#[cfg(test)]
mod tests {
    use super::{defined, shared_but};
    use crate::source::SourceFile;

    fn file(krate: &str) -> SourceFile {
        SourceFile {
            path: format!("crates/{krate}/src/one.rs"),
            text: "pub(crate) struct State {\n    type_of: u8,\n}\n".to_owned(),
        }
    }

    #[test]
    fn a_name_is_found_where_it_is_defined() {
        assert_eq!(defined("pub(crate) struct Place(u32);"), Some("Place"));
        assert_eq!(defined("enum Kind<T> {"), Some("Kind"));
        assert_eq!(defined("    type Item = u8;"), None);
        assert_eq!(defined("/// A struct of its own"), None);
        assert_eq!(defined("impl Place {"), None);
    }

    #[test]
    fn a_third_type_of_one_name_is_a_finding_except_in_tools() {
        let two = [file("a"), file("b"), file("sim")];
        assert!(shared_but(&two, &[]).is_empty());
        let three = [file("a"), file("b"), file("c")];
        assert_eq!(
            shared_but(&three, &[]),
            ["State: 3 types have this name, 2 may: a/src/one.rs, b/src/one.rs, c/src/one.rs"]
        );
        assert!(shared_but(&three, &[("State", 3)]).is_empty());
    }
}
