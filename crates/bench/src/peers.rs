//! `pharos bench peers`: hands over to the program that measures peers, which is built on its own.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, anyhow};

/// The program; it stands beside this one.
const PROGRAM: &str = "pharos-bench-peers";

/// Becomes the program. Returns only on failure.
pub(crate) fn run(arguments: &[OsString]) -> anyhow::Error {
    match std::env::current_exe().context("own binary") {
        Ok(own) => become_beside(&own, arguments),
        Err(error) => error,
    }
}

fn become_beside(own: &Path, arguments: &[OsString]) -> anyhow::Error {
    let program = own.with_file_name(PROGRAM);
    if !program.is_file() {
        return anyhow!(
            "{} is not there: it is not built with the broker. Build it with `cargo build --release -p {PROGRAM}`",
            program.display()
        );
    }
    let error = Command::new(&program).args(arguments).exec();
    anyhow::Error::new(error).context(format!("cannot start {}", program.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_the_program_the_way_to_build_it_is_said() {
        let dir = tempfile::tempdir().expect("a directory");
        let said = become_beside(&dir.path().join("pharos"), &[]).to_string();
        assert!(
            said.contains("cargo build --release -p pharos-bench-peers"),
            "{said}"
        );
    }
}
