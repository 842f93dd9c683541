//! The load tool without Pharos in the same binary: `pharos-bench bench broadcast --url pulsar://...`.
//!
//! Where the real binary has its broker under `serve`, this one has a stand-in that keeps nothing and can be told to
//! misbehave: it shows what the tool itself costs, and that the tool notices faults.

mod stand_in;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use pharos_bench::BenchArgs;

/// Load for brokers that speak the Pulsar protocol.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Bench(BenchArgs),
    /// A stand-in for a broker: everything to everyone, nothing kept.
    Serve(stand_in::ServeArgs),
}

fn main() -> anyhow::Result<ExitCode> {
    match Cli::parse().command {
        Command::Bench(args) => pharos_bench::run(args),
        Command::Serve(args) => stand_in::serve(&args),
    }
}
