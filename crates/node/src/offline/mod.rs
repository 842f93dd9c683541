//! `pharos storage`: looking at the data directory of a stopped broker, and repairing it.
//!
//! The storage engine knows ledgers only; which topic a ledger is of stands in the metadata next to it, and is put
//! together with what the engine says here (`owners`).

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use clap::ArgMatches;
use pharos_runtime::clock;
use pharos_storage::offline::{Access, Offline, Progress};

use crate::settings::Effective;

mod args;
mod check;
mod inspect;
mod metadata;
mod owners;
mod repair;
mod text;

pub(crate) use args::command;
use metadata::Metadata;
use owners::Owners;

/// Data is damaged or missing, or a repair has something left to do.
const EXIT_DAMAGED: u8 = 1;
/// The store cannot be looked at.
const EXIT_UNCHECKED: u8 = 2;

/// How often progress is told, in nanoseconds.
const TELL_EVERY: u64 = 1_000_000_000;

/// What all three commands have.
struct Asked<'a> {
    matches: &'a ArgMatches,
    effective: &'a Effective,
    json: bool,
}

impl Asked<'_> {
    fn open(&self, access: Access) -> anyhow::Result<Offline> {
        let options = crate::broker::storage_options(&self.effective.settings);
        Ok(Offline::open(
            &self.effective.settings.data_dir,
            &options,
            access,
        )?)
    }

    /// Whose ledgers are whose. Without metadata everything else still works.
    fn owners(&self) -> Owners {
        Owners::of(&self.metadata(None))
    }

    /// The metadata store. With `has_ledgers` it must be the one of the ledgers, as at a start.
    fn metadata(&self, has_ledgers: Option<bool>) -> Metadata {
        Metadata::look(&self.effective.settings, has_ledgers)
    }
}

/// Runs one of the commands, and says how the process ends.
pub(crate) fn run(matches: &ArgMatches, load: impl Fn(&ArgMatches) -> anyhow::Result<Effective>) -> ExitCode {
    let Some((name, matches)) = matches.subcommand() else {
        return ExitCode::from(EXIT_UNCHECKED);
    };
    let outcome = load(matches).and_then(|effective| {
        let asked = Asked {
            matches,
            effective: &effective,
            json: matches
                .get_one::<String>("output")
                .is_some_and(|form| form == "json"),
        };
        match name {
            "check" => check::run(&asked),
            "repair" => repair::run(&asked),
            _ => inspect::run(&asked),
        }
    });
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "pharos: {error:#}");
            ExitCode::from(EXIT_UNCHECKED)
        }
    }
}

/// Tells a person at a terminal how far a long look is, about once a second.
fn progress() -> impl FnMut(Progress) {
    let person = std::io::stderr().is_terminal();
    let mut told = clock::now();
    move |progress| {
        let now = clock::now();
        if !person || now.since(told) < TELL_EVERY {
            return;
        }
        told = now;
        let done = text::size(progress.bytes_done);
        let _ = writeln!(
            std::io::stderr(),
            "read {done} of {}",
            text::size(progress.bytes_total)
        );
    }
}

/// Writes a result to standard output.
fn print(text: &str) -> anyhow::Result<()> {
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}
