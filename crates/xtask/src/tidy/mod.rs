//! Checks facts about the repository that no compiler checks: `cargo run -p pharos-xtask -- tidy`.
//!
//! Facts, not taste: dependency arrows point down, every crate is on the map, files stay short, nothing in the tree names
//! a machine it was made on. Each finding is one line `path: what is wrong`; nothing is changed.

mod layers;
mod sources;

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

/// What one check found wrong, one line each.
pub(crate) type Findings = Vec<String>;

/// A file of the repository: its path from the root, with slashes, and its text.
pub(crate) struct SourceFile {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// Runs every check and prints `ok` or `not ok` for each.
///
/// # Errors
/// A check found something, or `git` or `cargo metadata` could not be asked.
pub(crate) fn run() -> Result<()> {
    let root = crate::repository_root()?;
    let files = source_files(&root)?;
    let checks: [(&str, Findings); 8] = [
        ("dependencies point down", layers::arrows(&root)?),
        ("every crate is on the map", layers::map(&root)?),
        ("files are short", sources::long_files(&files)),
        ("no forbidden words", sources::forbidden_words(&files)),
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

/// Every text file that is, or is about to be, part of the repository.
fn source_files(root: &Path) -> Result<Vec<SourceFile>> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("running git")?;
    if !output.status.success() {
        bail!("git ls-files: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let names = String::from_utf8(output.stdout).context("a file name that is not UTF-8")?;
    let mut files = Vec::new();
    for path in names.split('\0').filter(|name| !name.is_empty()) {
        // A file that was just deleted is still listed; one that is not UTF-8 is no text.
        if let Ok(text) = std::fs::read_to_string(root.join(path)) {
            files.push(SourceFile {
                path: path.to_owned(),
                text,
            });
        }
    }
    Ok(files)
}
