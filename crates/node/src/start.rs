//! From the command line to the subcommand.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{ArgMatches, FromArgMatches as _};

use crate::command::{command, setting_flags};
use crate::settings::{self, Effective, Engine, Sources};

/// Wrong usage or settings.
const EXIT_USAGE: u8 = 2;

/// Runs one command line, the program's name first, and says how the process should end.
///
/// Blocks until the command is done; `serve` until it is told to stop.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let matches = match command().try_get_matches_from(arguments) {
        Ok(matches) => matches,
        Err(error) => {
            // Help and version come this way as well; clap knows which stream each belongs to.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(EXIT_USAGE));
        }
    };
    match matches.subcommand() {
        Some(("serve", matches)) => with_settings(matches, crate::serve::serve),
        Some(("config", matches)) if matches.get_flag("reference") => print(&settings::markdown_reference()),
        Some(("config", matches)) => with_settings(matches, |effective| {
            let json = matches
                .get_one::<String>("output")
                .is_some_and(|form| form == "json");
            let listing = if json {
                settings::json_listing(effective)
            } else {
                settings::text_listing(effective)
            };
            print(&listing);
            Ok(())
        }),
        Some(("storage", matches)) => crate::offline::run(matches, |matches| {
            let effective = Effective::load(&sources(matches)?)?;
            anyhow::ensure!(
                effective.settings.cluster.engine == Engine::Embedded,
                "engine = bookkeeper keeps nothing on this machine: look at its ledgers with the tools of BookKeeper"
            );
            Ok(effective)
        }),
        Some(("cluster", matches)) => crate::takeover::run(matches, |matches| {
            let mut sources = sources(matches)?;
            // Which broker would be started is no question here, and nothing is written to bookies.
            let own = [("engine", "bookkeeper"), ("bookkeeper.max_frame_size", "64MiB")];
            let own = own.map(|(key, value)| (key.to_owned(), value.to_owned()));
            sources.flags.extend(own);
            Ok(Effective::load(&sources)?)
        }),
        Some(("bench", matches)) => bench(matches),
        _ => match pharos_cli::CliArgs::from_arg_matches(&matches) {
            Ok(args) => pharos_cli::run(args),
            Err(error) => error.exit(),
        },
    }
}

fn bench(matches: &ArgMatches) -> ExitCode {
    match pharos_bench::BenchArgs::from_arg_matches(matches) {
        Ok(args) => pharos_bench::run(args).unwrap_or_else(|error| complain(&error, 1)),
        Err(error) => error.exit(),
    }
}

fn with_settings(matches: &ArgMatches, then: impl FnOnce(&Effective) -> anyhow::Result<()>) -> ExitCode {
    let effective = match sources(matches).and_then(|sources| Ok(Effective::load(&sources)?)) {
        Ok(effective) => effective,
        Err(error) => return complain(&error, EXIT_USAGE),
    };
    match then(&effective) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => complain(&error, 1),
    }
}

fn sources(matches: &ArgMatches) -> anyhow::Result<Sources> {
    let named = matches.get_one::<String>("config").map(PathBuf::from);
    let named = named.or_else(|| std::env::var_os("PHAROS_CONFIG").map(PathBuf::from));
    let file = match named {
        Some(path) => {
            let text = std::fs::read_to_string(&path)
                .with_context(|| format!("cannot read the settings file {}", path.display()))?;
            Some((path, text))
        }
        None => None,
    };
    // A variable that is not Unicode cannot be one of ours: names and values of settings are plain text.
    let environment = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    Ok(Sources {
        file,
        environment,
        flags: setting_flags(matches),
    })
}

fn complain(error: &anyhow::Error, code: u8) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "pharos: {error:#}");
    ExitCode::from(code)
}

fn print(text: &str) -> ExitCode {
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
