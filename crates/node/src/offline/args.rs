//! The command line of `pharos storage`.

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, Command, value_parser};

const AFTER_HELP: &str = "\
The broker must be stopped; while one has the data directory open, all of these refuse.
Exit codes: 0 nothing is lost; 1 data is damaged or missing, or a repair has something left to do;
2 the store cannot be looked at.";

/// The subcommand and its subcommands.
pub(crate) fn command() -> Command {
    Command::new("storage")
        .about("Check, inspect and repair the data directory of a stopped broker")
        .after_help(AFTER_HELP)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .subcommand(check())
        .subcommand(inspect())
        .subcommand(repair())
}

fn check() -> Command {
    let command = Command::new("check")
        .about("Read everything once and say what is damaged or missing")
        .long_about(
            "Read every journal group, index and record once, and say what is damaged or missing: which file and \
             place, which ledger and entries, and which topic. Changes nothing.",
        );
    common(command).after_help(AFTER_HELP)
}

fn inspect() -> Command {
    let command = Command::new("inspect")
        .about("Show what is in the store and where, or decode one file")
        .long_about(
            "Show what is in the store and where: all of it, one ledger, one topic, or one file. Changes nothing.",
        )
        .arg(
            Arg::new("file")
                .value_name("FILE")
                .value_parser(value_parser!(std::path::PathBuf))
                .conflicts_with_all(["ledger", "topic"])
                .help("Decode this file: VERSION, CHECKPOINT, METADATA, *.seg, *.log, *.idx, copy-1 or copy-2"),
        )
        .arg(flag("records", "With FILE: also every record of a journal segment or of the metadata").requires("file"))
        .arg(
            Arg::new("ledger")
                .long("ledger")
                .value_name("ID")
                .value_parser(value_parser!(u64))
                .help("Show this ledger and where its entries are"),
        )
        .arg(
            Arg::new("entries")
                .long("entries")
                .value_name("A..B")
                .requires("ledger")
                .help("Also its entries from A up to, not including, B"),
        )
        .arg(flag("hex", "With --entries: also their bytes").requires("entries"))
        .arg(
            Arg::new("topic")
                .long("topic")
                .value_name("TOPIC")
                .conflicts_with("ledger")
                .help("Show the ledgers of this topic and where they are"),
        );
    common(command).after_help(AFTER_HELP)
}

fn repair() -> Command {
    let command = Command::new("repair")
        .about("Put right what can be put right without losing anything")
        .long_about(
            "Put right what can be put right without losing anything: write damaged VERSION and CHECKPOINT files \
             again from their copies, make indexes again from their logs, put aside files that nothing names. \
             Whatever is changed is kept as *.before-repair. Without --yes it only says what it would do. Damaged \
             entries are left alone: they answer that they are damaged, the others can be read.",
        )
        .arg(flag("yes", "Do it"))
        .arg(
            Arg::new("forget-cursors")
                .long("forget-cursors")
                .value_name("TOPIC")
                .help("Only give up the subscriptions of this topic, whose cursor ledger is damaged; its messages stay"),
        );
    common(command).after_help(AFTER_HELP)
}

fn flag(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
}

fn common(command: Command) -> Command {
    let config = Arg::new("config")
        .long("config")
        .value_name("FILE")
        .help("The broker's settings file (TOML), for its directories [env: PHAROS_CONFIG]");
    let data_dir = Arg::new("data_dir")
        .long("data-dir")
        .value_name("DIR")
        .help("The broker's data directory [env: PHAROS_DATA_DIR]");
    let output = Arg::new("output")
        .long("output")
        .value_name("FORMAT")
        .value_parser(PossibleValuesParser::new(["text", "json"]))
        .default_value("text")
        .help("Form of the result");
    command.arg(config).arg(data_dir).arg(output)
}
