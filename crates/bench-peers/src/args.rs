//! The command line.

use std::path::PathBuf;

use clap::Parser;

/// Measure Pharos and its peers in turn, with one load program.
///
/// The peers are installed by crates/bench-peers/install.sh DIR.
#[derive(Parser, Debug)]
#[command(name = "pharos bench peers", version)]
pub(crate) struct Args {
    /// Workload files (TOML); `workloads/peers/` has some.
    #[arg(required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Where the peers are installed.
    #[arg(long, value_name = "DIR", env = "PHAROS_BENCH_PEERS")]
    pub(crate) peers: PathBuf,
    /// The broker's binary; the one beside this program unless given.
    #[arg(long, value_name = "FILE")]
    pub(crate) pharos: Option<PathBuf>,
    /// The short form of every case.
    #[arg(long)]
    pub(crate) quick: bool,
    /// How often each case runs with all contestants in turn; as its file says, or 1 with --quick, unless given.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=20))]
    pub(crate) rounds: Option<u32>,
    /// Only the cases whose name, behind that of the file and a colon, contains this text.
    #[arg(long, value_name = "TEXT")]
    pub(crate) only: Option<String>,
    /// Only these contestants.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) contestants: Vec<String>,
    /// Where the brokers keep their data, each in a fresh directory that is removed; the system's temporary directory unless given.
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Write the result as a page of markdown to this file, anew after each case. Refused when this program was not built from a
    /// commit alone.
    #[arg(long, value_name = "FILE")]
    pub(crate) markdown: Option<PathBuf>,
    /// Write the page all the same; its commit then ends with `+`.
    #[arg(long, requires = "markdown")]
    pub(crate) unclean: bool,
    /// Write a page with plots, which needs nothing but itself, to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Write every figure of every round as JSON to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}
