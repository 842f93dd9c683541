//! The command line. Flags of settings are made from the table, so a new setting is a flag at once.

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Args as _, Command};

use crate::settings::table::SETTINGS;

const AFTER_HELP: &str = "\
Exit codes: 0 all went well; 1 the operation failed or was refused; 2 wrong usage or settings; 3 the broker
cannot be reached.
Results go to standard output, everything else to standard error.";

/// The whole command line.
#[must_use]
pub fn command() -> Command {
    let command = Command::new("pharos")
        .subcommand(serve())
        .subcommand(config())
        .subcommand(crate::offline::command())
        .subcommand(crate::takeover::command());
    // Sets a description of its own, so ours comes after.
    let command = pharos_cli::CliArgs::augment_args(command);
    let bench = Command::new("bench");
    command
        .about("A message broker for one topic and a hundred thousand consumers")
        .version(env!("CARGO_PKG_VERSION"))
        .after_help(AFTER_HELP)
        .disable_help_subcommand(true)
        .subcommand(pharos_bench::BenchArgs::augment_args(bench).about("Measure a broker"))
        .subcommand_required(true)
        .arg_required_else_help(true)
}

fn serve() -> Command {
    let command = Command::new("serve").about("Run a broker").long_about(
        "Run a broker until SIGTERM, SIGINT or SIGHUP. Writes one line per front door to standard output when it takes \
         clients, and its log to standard error. A second SIGTERM or SIGINT ends it at once. SIGHUP stops it because a \
         terminal that hangs up sends it, unless it was ignored from the start, as by nohup; settings are read at the \
         start only.",
    );
    with_settings(command)
}

fn config() -> Command {
    let command = Command::new("config")
        .about("Show the settings that would be in force, and where each came from")
        .arg(
            Arg::new("output")
                .long("output")
                .value_name("FORMAT")
                .value_parser(PossibleValuesParser::new(["text", "json"]))
                .default_value("text")
                .help("Form of the result"),
        )
        .arg(
            Arg::new("reference")
                .long("reference")
                .action(ArgAction::SetTrue)
                .hide(true)
                .help("Print the reference page of all settings"),
        );
    with_settings(command)
}

/// Adds `--config` and a flag per setting.
fn with_settings(command: Command) -> Command {
    let file = Arg::new("config")
        .long("config")
        .value_name("FILE")
        .help("Settings file (TOML) [env: PHAROS_CONFIG]");
    let flags = SETTINGS.iter().map(|setting| {
        let default = setting.default();
        let default = if default.is_empty() {
            "empty".to_owned()
        } else {
            default
        };
        let help = format!("{} [default: {default}] [env: {}]", setting.help, setting.env());
        let flag = Arg::new(setting.key)
            .long(setting.flag())
            .value_name(value_name(setting.kind))
            .help(help)
            .help_heading(setting.group);
        match setting.kind {
            // The flag alone says yes.
            "true or false" => flag.num_args(0..=1).default_missing_value("true"),
            _ => flag.allow_hyphen_values(true),
        }
    });
    command.arg(file).args(flags)
}

fn value_name(kind: &'static str) -> &'static str {
    match kind {
        "size" | "size or unlimited" => "SIZE",
        "duration" | "duration or unlimited" => "DURATION",
        "address" | "address or empty" => "IP:PORT",
        "path" | "path or empty" => "PATH",
        "number" => "NUMBER",
        "true or false" => "BOOL",
        "text" => "TEXT",
        _ => "WORD",
    }
}

/// The settings among parsed flags: key and value.
pub(crate) fn setting_flags(matches: &ArgMatches) -> Vec<(String, String)> {
    let given = SETTINGS.iter().filter_map(|setting| {
        // Not every command has a flag for every setting.
        let value = matches.try_get_one::<String>(setting.key).ok()??;
        Some((setting.key.to_owned(), value.clone()))
    });
    given.collect()
}
