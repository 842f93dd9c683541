//! The files of the repository.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

/// A file of the repository: its path from the root, with slashes, and its text.
pub(crate) struct SourceFile {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// The directory that holds `Cargo.lock`.
pub(crate) fn repository_root() -> Result<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = here
        .ancestors()
        .nth(2)
        .context("crates/xtask has no grandparent")?;
    Ok(root.to_owned())
}

/// Every text file that is, or is about to be, part of the repository.
pub(crate) fn source_files(root: &Path) -> Result<Vec<SourceFile>> {
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
