//! Types with so many methods that no reader knows what belongs to them.

use super::Findings;
use crate::methods::methods;
use crate::sizes::by_crate;
use crate::source::SourceFile;

/// Methods that a type may have.
const METHODS_MAX: usize = 55;

/// Types that still have more, by crate and name, and at most how many. The numbers only get smaller.
const LARGER: [(&str, &str, usize); 1] = [
    // Generated: one for each command of the protocol.
    ("wire", "Command", 62),
];

/// Types over the limit, and entries of the list that are due to go.
pub(super) fn large(files: &[SourceFile]) -> Findings {
    larger_than(files, &LARGER)
}

fn larger_than(files: &[SourceFile], listed: &[(&str, &str, usize)]) -> Findings {
    let mut findings = Findings::new();
    for (krate, files) in &by_crate(files) {
        for ((path, name), count) in methods(files) {
            let known = listed.iter().find(|(of, it, _)| of == krate && *it == name);
            let most = known.map_or(METHODS_MAX, |(_, _, most)| *most);
            if count > most {
                findings.push(format!(
                    "crates/{krate}/src/{path}: {name} has {count} methods; {most} is the limit"
                ));
            } else if known.is_some() && count <= METHODS_MAX {
                findings.push(format!(
                    "crates/{krate}/src/{path}: {name} is small again, take it off the list of large types"
                ));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::{METHODS_MAX, larger_than};
    use crate::source::SourceFile;

    fn found(count: usize, listed: &[(&str, &str, usize)]) -> Vec<String> {
        let methods = "    fn f() {}\n".repeat(count);
        let file = SourceFile {
            path: "crates/x/src/one.rs".to_owned(),
            text: format!("struct One;\nimpl One {{\n{methods}}}\n"),
        };
        larger_than(&[file], listed)
    }

    #[test]
    fn a_type_over_the_limit_is_found_and_a_list_that_is_too_long_as_well() {
        assert!(found(METHODS_MAX, &[]).is_empty());
        let over = found(METHODS_MAX + 1, &[]);
        assert_eq!(over, ["crates/x/src/one.rs: One has 56 methods; 55 is the limit"]);
        assert!(found(70, &[("x", "One", 70)]).is_empty());
        assert_eq!(found(71, &[("x", "One", 70)]).len(), 1);
        assert_eq!(found(METHODS_MAX, &[("x", "One", 70)]).len(), 1);
    }
}
