//! Circles of imports: files of one crate that import each other, in more than one directory.
//!
//! Files of one directory may know each other: they are one thing in several files. Directories may not, or neither can be
//! read, tested or moved without the other.

use super::Findings;
use crate::modules::{Graph, circles, directory, imports, is_across};
use crate::sizes::by_crate;
use crate::source::SourceFile;

/// Circles of files in more than one directory, each with the imports that cross directories.
pub(super) fn across(files: &[SourceFile]) -> Findings {
    let mut findings = Findings::new();
    for (name, files) in &by_crate(files) {
        let graph = imports(files);
        for circle in circles(&graph).iter().filter(|circle| is_across(circle)) {
            findings.push(format!(
                "crates/{name}: a circle of {}: {}",
                circle.len(),
                crossings(&graph, circle)
            ));
        }
    }
    findings
}

/// The imports of a circle that go from one directory to another.
fn crossings(graph: &Graph<'_>, circle: &[&str]) -> String {
    let mut found = Vec::new();
    for user in circle {
        let used = graph[user].iter().filter(|used| circle.contains(used));
        for used in used.filter(|used| directory(used) != directory(user)) {
            found.push(format!("{user} -> {used}"));
        }
    }
    found.join(", ")
}

#[cfg(test)]
mod tests {
    use super::across;
    use crate::source::SourceFile;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let file = |(path, text): &(&str, &str)| SourceFile {
            path: format!("crates/x/src/{path}"),
            text: (*text).to_owned(),
        };
        across(&files.iter().map(file).collect::<Vec<_>>())
    }

    #[test]
    fn directories_that_import_each_other_are_a_circle() {
        let files = [
            ("a/mod.rs", "mod one;\npub use one::One;\n"),
            (
                "a/one.rs",
                "use crate::b::{self, Two as Other};\npub struct One;\n",
            ),
            ("b.rs", "fn f() -> crate::a::One {}\npub struct Two;\n"),
        ];
        assert_eq!(
            found(&files),
            ["crates/x: a circle of 2: a/one.rs -> b.rs, b.rs -> a/one.rs"]
        );
    }

    #[test]
    fn files_of_one_directory_may_know_each_other() {
        let files = [
            ("a/mod.rs", "mod one;\nuse one::One;\npub struct A;\n"),
            ("a/one.rs", "use super::A;\nuse std::rc::Rc;\n"),
            ("b.rs", "use crate::a::A;\n"),
        ];
        assert!(found(&files).is_empty());
    }

    #[test]
    fn passing_a_name_on_is_no_import() {
        let files = [
            (
                "lib.rs",
                "mod a;\npub mod deep;\npub use deep::Deep;\npub use a::A;\n",
            ),
            ("a.rs", "use crate::Deep;\npub struct A;\n"),
            (
                "deep/mod.rs",
                "//! See crate::a::A.\npub struct Deep;\nconst TEXT: &str = \"use crate::b::B;\";\n",
            ),
        ];
        assert!(found(&files).is_empty());
    }

    #[test]
    fn tests_may_import_what_they_like() {
        let files = [
            (
                "a.rs",
                "pub struct A;\n#[cfg(test)]\nmod tests {\n    use crate::b::one::One;\n}\n",
            ),
            ("b/one.rs", "use crate::a::A;\npub struct One;\n"),
        ];
        assert!(found(&files).is_empty());
    }
}
