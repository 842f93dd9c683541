//! Tells the program which commit it is built from, so that a result page names the code that made its figures and not
//! whatever is checked out where it runs. Without git or a checkout it knows no commit.

use std::process::Command;

/// Sources of the program, relative to this package.
const SOURCES: [&str; 3] = ["../../crates", "../../Cargo.toml", "../../Cargo.lock"];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for source in SOURCES {
        println!("cargo:rerun-if-changed={source}");
    }
    // Each commit, checkout and rebase writes these two.
    for name in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", name]) {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    if let Some(commit) = commit() {
        println!("cargo:rustc-env=PHAROS_COMMIT={commit}");
    }
}

/// The commit, with `+` when a source differs from it.
fn commit() -> Option<String> {
    let commit = git(&["rev-parse", "--short=10", "HEAD"])?;
    let mut status = vec!["status", "--porcelain", "--"];
    status.extend(SOURCES);
    let changed = git(&status)?;
    Some(if changed.is_empty() {
        commit
    } else {
        format!("{commit}+")
    })
}

/// Returns the output of git, or `None` if git fails.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
