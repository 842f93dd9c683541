//! Checks that read the files one by one.

use super::Findings;
use crate::source::SourceFile;

const LINES_MAX: usize = 600;

/// Files that are longer for a reason.
const LONG_FOR_A_REASON: [(&str, &str); 0] = [];

/// Crates of the product: what is not a load program, a simulation or a tool.
const PRODUCT_CRATES: [&str; 24] = [
    "types",
    "auth",
    "wire",
    "runtime",
    "ledger",
    "metadata",
    "client",
    "admin-api",
    "storage",
    "storage-format",
    "offload",
    "managed-ledger",
    "catalog",
    "cluster",
    "compaction",
    "dispatch",
    "mesh",
    "topic",
    "broker",
    "transport",
    "pulsar",
    "admin",
    "cli",
    "node",
];

/// Words that say where or with what a file was made, instead of what it is. In two pieces, so that this file has none.
const FORBIDDEN: [&str; 14] = [
    concat!("/wo", "rk"),
    concat!("/ro", "ot"),
    concat!("crates", ".io"),
    concat!("pypi", ".org"),
    concat!("pythonhosted", ".org"),
    concat!("npmjs", ".org"),
    concat!("repo.", "maven.apache.org"),
    concat!("maven", ".org"),
    concat!("proxy.", "golang.org"),
    concat!("clau", "de"),
    concat!("anthro", "pic"),
    concat!("chat", "gpt"),
    concat!("open", "ai"),
    concat!("cop", "ilot"),
];

/// Words of plain sentences' subjects that say less than "the consumer", "the caller" or "no reader" would, and names for
/// Pulsar that only we would understand. In two pieces, so that this file has none.
const VAGUE: [&str; 11] = [
    concat!("who", "ever"),
    concat!("some", "body"),
    concat!("no", "body"),
    concat!("any", "body"),
    concat!("every", "body"),
    concat!("the ", "reference broker"),
    concat!("the ", "reference implementation"),
    concat!("the ", "reference's"),
    concat!("in the ", "field"),
    concat!("of the ", "field's"),
    concat!("as the ", "field"),
];

/// Pages that keep the words of their time.
const KEPT_AS_WRITTEN: &str = "docs/notes/";

/// Files over the limit, and entries of the list that are due to go.
pub(super) fn long_files(files: &[SourceFile]) -> Findings {
    let mut findings = Findings::new();
    for file in files.iter().filter(|file| is_code(file) && !is_generated(file)) {
        let lines = file.text.lines().count();
        let listed = LONG_FOR_A_REASON.iter().any(|(path, _)| *path == file.path);
        if lines > LINES_MAX && !listed {
            findings.push(format!("{}: {lines} lines; {LINES_MAX} is the limit", file.path));
        } else if lines <= LINES_MAX && listed {
            findings.push(format!(
                "{}: short again, take it off the list of long files",
                file.path
            ));
        }
    }
    findings
}

/// Paths of a machine, hosts of a package registry, tools.
pub(super) fn forbidden_words(files: &[SourceFile]) -> Findings {
    // A lock file names where its packages come from; that is its job.
    let files = files.iter().filter(|file| !file.path.ends_with("Cargo.lock"));
    find_lines(files, |line| {
        let line = line.to_lowercase();
        FORBIDDEN.iter().any(|word| contains_word(&line, word))
    })
}

/// Sentences without a subject that says something.
pub(super) fn vague_words(files: &[SourceFile]) -> Findings {
    let files = files
        .iter()
        .filter(|file| !file.path.starts_with(KEPT_AS_WRITTEN));
    find_lines(files, |line| {
        let line = line.to_lowercase();
        VAGUE.iter().any(|words| contains_words(&line, words))
    })
}

/// Tests that never run.
pub(super) fn ignored_tests(files: &[SourceFile]) -> Findings {
    let attribute = concat!("#[", "ignore");
    find_lines(files.iter().filter(|file| is_rust(file)), |line| {
        line.trim_start().starts_with(attribute)
    })
}

/// Code that says of itself that it is not there yet.
pub(super) fn unfinished(files: &[SourceFile]) -> Findings {
    let words = [
        concat!("to", "do!("),
        concat!("unimpl", "emented!("),
        concat!("FIX", "ME"),
        concat!("XX", "X:"),
    ];
    find_lines(files.iter().filter(|file| is_code(file)), |line| {
        words.iter().any(|word| line.contains(word))
    })
}

/// The one library with a module of `unsafe` code; it denies it everywhere else.
const LIBRARY_WITH_UNSAFE: &str = "crates/heap/src/lib.rs";

/// Libraries that do not forbid `unsafe`.
pub(super) fn unsafe_code(files: &[SourceFile]) -> Findings {
    files
        .iter()
        .filter(|file| file.path.starts_with("crates/") && file.path.ends_with("/src/lib.rs"))
        .filter(|file| file.path != LIBRARY_WITH_UNSAFE)
        .filter(|file| !file.text.contains("#![forbid(unsafe_code)]"))
        .map(|file| format!("{}: no #![forbid(unsafe_code)]", file.path))
        .collect()
}

/// `unwrap` and `expect` outside of tests in the crates of the product.
pub(super) fn panics(files: &[SourceFile]) -> Findings {
    let of_product = |file: &&SourceFile| {
        let mut parts = file.path.split('/');
        parts.next() == Some("crates")
            && parts.next().is_some_and(|name| PRODUCT_CRATES.contains(&name))
            && parts.next() == Some("src")
            && !file.path.contains("/tests/")
            && !file.path.ends_with("/tests.rs")
            // Tests that every backend of a contract runs.
            && !file.path.contains("/conformance")
            // What fuzz targets call; a panic there is a finding.
            && !file.path.ends_with("/fuzzing.rs")
    };
    let mut findings = Findings::new();
    for file in files.iter().filter(of_product) {
        for (number, line) in (1..).zip(without_tests(&file.text).lines()) {
            let code = line.split("//").next().unwrap_or_default();
            if code.contains(".unwrap()") || code.contains(".expect(\"") {
                findings.push(format!("{}:{number}: {}", file.path, line.trim()));
            }
        }
    }
    findings
}

/// The text up to the tests at the end of the file.
fn without_tests(text: &str) -> &str {
    let tests = text.find("\n#[cfg(test)]\nmod tests {");
    tests.map_or(text, |at| &text[..=at])
}

fn find_lines<'a>(files: impl Iterator<Item = &'a SourceFile>, is_wrong: impl Fn(&str) -> bool) -> Findings {
    let mut findings = Findings::new();
    for file in files {
        for (number, line) in (1..).zip(file.text.lines()) {
            if is_wrong(line) {
                findings.push(format!("{}:{number}: {}", file.path, line.trim()));
            }
        }
    }
    findings
}

/// True if `word` is in `line` with no letter, digit, dot, dash or underscore right before or after it.
fn contains_word(line: &str, word: &str) -> bool {
    let joins = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_');
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(joins) && !after.is_some_and(|c| c.is_alphanumeric() || matches!(c, '-' | '_'))
    })
}

/// True if `words` are in `line` with no letter right before or after them: parts of a test's name count.
fn contains_words(line: &str, words: &str) -> bool {
    line.match_indices(words).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + words.len()..].chars().next();
        !before.is_some_and(char::is_alphabetic) && !after.is_some_and(char::is_alphabetic)
    })
}

fn is_rust(file: &SourceFile) -> bool {
    file.path.ends_with(".rs")
}

fn is_code(file: &SourceFile) -> bool {
    [".rs", ".sh", ".py", ".go", ".java"]
        .iter()
        .any(|end| file.path.ends_with(end))
}

fn is_generated(file: &SourceFile) -> bool {
    file.text.starts_with("// @generated")
}

#[cfg(test)]
mod tests {
    use super::{contains_word, forbidden_words, long_files, panics, unsafe_code, vague_words};
    use crate::source::SourceFile;

    fn file(path: &str, text: &str) -> SourceFile {
        SourceFile {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn a_word_is_found_only_whole() {
        assert!(contains_word("see /abc/def", "/abc"));
        assert!(contains_word("see /abc.", "/abc"));
        assert!(!contains_word("crates/abc", "/abc"));
        assert!(!contains_word("/abcd", "/abc"));
        assert!(!contains_word("reopened", "open"));
    }

    #[test]
    fn a_machine_path_is_a_finding_with_its_line() {
        let text = format!("one\ncd {}/x\n", concat!("/ro", "ot"));
        assert_eq!(
            forbidden_words(&[file("a.md", &text)]),
            [format!("a.md:2: cd {}/x", concat!("/ro", "ot"))]
        );
    }

    #[test]
    fn a_sentence_without_a_subject_is_a_finding_except_in_notes() {
        let text = format!(
            "a\n// {} waits\nfn stops_{}()\n",
            concat!("Who", "ever"),
            concat!("no", "body")
        );
        assert_eq!(
            vague_words(&[file("a.rs", &text), file("docs/notes/a.md", &text)]),
            [
                format!("a.rs:2: // {} waits", concat!("Who", "ever")),
                format!("a.rs:3: fn stops_{}()", concat!("no", "body")),
            ]
        );
        assert!(vague_words(&[file("a.rs", "// the field of a struct")]).is_empty());
    }

    #[test]
    fn unwrap_is_a_finding_in_code_but_not_in_tests_and_comments() {
        let text = "/// x.unwrap()\nfn a() { b.unwrap(); }\n#[cfg(test)]\nmod tests {\n    fn t() { b.unwrap(); }\n}\n";
        assert_eq!(
            panics(&[
                file("crates/wire/src/a.rs", text),
                file("crates/bench/src/a.rs", text)
            ]),
            ["crates/wire/src/a.rs:2: fn a() { b.unwrap(); }"]
        );
    }

    #[test]
    fn long_files_are_found_unless_generated() {
        let long = "\n".repeat(601);
        let found = long_files(&[
            file("a.rs", &long),
            file("b.rs", &format!("// @generated\n{long}")),
        ]);
        assert_eq!(found, ["a.rs: 601 lines; 600 is the limit"]);
    }

    #[test]
    fn a_library_must_forbid_unsafe() {
        assert_eq!(unsafe_code(&[file("crates/a/src/lib.rs", "")]).len(), 1);
    }
}
