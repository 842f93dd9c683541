//! Checks facts about the repository that no compiler checks: `cargo run -p pharos-xtask -- tidy`.
//!
//! Facts, not taste: dependency arrows point down, every crate is on the map, no circle of imports, files stay short, types have
//! few methods and names of their own, nothing in the tree names a machine it was made on. Each finding is one line `path: what is wrong`; nothing is changed.

mod circles;
mod claims;
mod layers;
mod names;
mod sources;
mod types;
mod walks;

use anyhow::{Result, bail};

use crate::source::{repository_root, source_files};

/// Findings of one check, one line each.
pub(crate) type Findings = Vec<String>;

/// Runs every check and prints `ok` or `not ok` for each.
///
/// # Errors
/// A check found something, or `git` or `cargo metadata` could not be asked.
pub(crate) fn run() -> Result<()> {
    let root = repository_root()?;
    let files = source_files(&root)?;
    let checks: [(&str, Findings); 14] = [
        ("dependencies point down", layers::arrows(&root)?),
        ("every crate is on the map", layers::map(&root)?),
        ("the map names what is there", walks::named_places(&files)),
        ("claims name tests that are there", claims::named_tests(&files)),
        ("no circle across directories", circles::across(&files)),
        ("files are short", sources::long_files(&files)),
        ("types have few methods", types::large(&files)),
        ("names of types mean one thing", names::shared(&files)),
        ("no forbidden words", sources::forbidden_words(&files)),
        ("sentences have a subject", sources::vague_words(&files)),
        ("no ignored tests", sources::ignored_tests(&files)),
        ("nothing unfinished", sources::unfinished(&files)),
        ("no unsafe code", sources::unsafe_code(&files)),
        ("no way to panic on outside bytes", sources::panics(&files)),
    ];
    let mut failed = 0;
    let mut report = String::new();
    for (name, findings) in &checks {
        failed += usize::from(!findings.is_empty());
        let word = if findings.is_empty() { "ok" } else { "not ok" };
        report.push_str(&format!("{word} tidy {name}\n"));
        for finding in findings {
            report.push_str(&format!("    {finding}\n"));
        }
    }
    eprint!("{report}");
    if failed > 0 {
        bail!("{failed} of {} checks failed", checks.len());
    }
    Ok(())
}
