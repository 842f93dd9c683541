//! `pharos bench`: load and measurement over real sockets, for this broker and any other that speaks the Pulsar protocol.
//!
//! [`run`] does what the [`BenchArgs`] ask for. Reading order: [`args`] is the command line; [`broadcast`] the fan-out
//! benchmark with its consumer processes; [`perf`] the throughput benchmarks; [`scenario`] runs whole workload files with the
//! latter's threads; [`crash`] kills its broker; below them [`net`] (sockets and frames),
//! [`proto`] (the little of the protocol that is hot), [`order`] and [`histogram`] (what is counted).
//!
//! Always true: the tool is frugal, because it shares the machine with what it measures; it never leaves a process or a
//! directory behind; and a run in which a message was lost, doubled or out of order fails.
//!
//! The tool starts itself again for its consumer processes, as `<executable> bench <hidden subcommand>`; a binary that
//! links this crate must therefore offer [`BenchArgs`] under the name `bench`.

#![forbid(unsafe_code)]

mod access;
mod args;
mod broadcast;
mod broker_process;
mod clock;
mod crash;
mod fleet;
mod hgrm;
mod histogram;
mod http;
mod metrics;
mod net;
mod order;
mod output;
mod perf;
mod procfs;
mod progress;
mod proto;
mod scenario;
mod session;
mod signals;
mod target;
mod units;

use std::process::ExitCode;

pub use args::BenchArgs;

use args::BenchCommand;

/// Runs the benchmark that was asked for. Exit code 1 means that it ran and found a fault.
///
/// # Errors
/// The benchmark could not be carried out.
pub fn run(args: BenchArgs) -> anyhow::Result<ExitCode> {
    match args.command {
        BenchCommand::Worker => broadcast::worker::run(),
        BenchCommand::Serve { arguments } => Err(broker_process::run_guarded(&arguments)),
        BenchCommand::Broadcast(args) => broadcast::run(&args, &signals::stop_flag()?),
        BenchCommand::Produce(args) => perf::produce(&args, &signals::stop_flag()?),
        BenchCommand::Consume(args) => perf::consume(&args, &signals::stop_flag()?),
        BenchCommand::E2e(args) => perf::e2e(&args, &signals::stop_flag()?),
        BenchCommand::Crash(args) => crash::run(&args, &signals::stop_flag()?),
        BenchCommand::Scenario(args) => scenario::run(&args, &signals::stop_flag()?),
    }
}
