//! Chores of the repository that need no outside tool: `cargo run -p pharos-xtask -- <task>`.
//!
//! Nothing that ships depends on this crate.

mod codegen;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};

const USAGE: &str = "usage: pharos-xtask codegen [--check] | tidy
  codegen          write the protocol sources of crates/wire from crates/wire/proto/fields.tsv
  codegen --check  fail when the written sources differ from what the table gives
  tidy             check facts about the repository that no compiler checks";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["codegen"] => codegen::run(codegen::Mode::Write),
        ["codegen", "--check"] => codegen::run(codegen::Mode::Check),
        ["tidy"] => tidy::run(),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pharos-xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

pub(crate) fn repository_root() -> Result<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = here
        .ancestors()
        .nth(2)
        .context("crates/xtask has no grandparent")?;
    Ok(root.to_owned())
}
