//! The load tool alone, without a broker in the same binary: `pharos-bench bench broadcast --url pulsar://...`.

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
}

fn main() -> anyhow::Result<ExitCode> {
    let Command::Bench(args) = Cli::parse().command;
    pharos_bench::run(args)
}
