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
mod disk;
mod fleet;
mod hgrm;
mod histogram;
mod http;
mod metrics;
mod net;
mod order;
mod output;
mod peers;
mod perf;
mod procfs;
mod progress;
mod proto;
mod scenario;
mod session;
mod signals;
mod stage_times;
mod target;
mod units;

/// The load program itself, for drivers that bring another protocol: the clocks, the loops of the threads ([`load::publish`],
/// [`load::receive`]), what they count and what comes of it.
pub mod load {
    pub use crate::access::Access;
    pub use crate::clock::{monotonic_ns, process_cpu_ns, realtime_ns, wall_ns};
    pub use crate::disk::disk_bytes;
    pub use crate::hgrm::curve;
    pub use crate::histogram::Latencies;
    pub use crate::http::{get as http_get, put as http_put};
    pub use crate::net::Poller;
    pub use crate::perf::batch::Due;
    pub use crate::perf::consumer::{ConsumerPlan, ReceivePlan, run as receive_pulsar};
    pub use crate::perf::link::Link;
    pub use crate::perf::load_threads::{Counts, LoadThreads, Look, Watch};
    pub use crate::perf::producer::{ProducerPlan, PublishPlan, run as publish_pulsar};
    pub use crate::perf::publish::{Heard, LaneStart, OutgoingBatch, Pace, PublishProtocol, publish};
    pub use crate::perf::receive::{BACKLOG_SOURCE, Count, ReceiveProtocol, Seats, receive};
    pub use crate::perf::slice::{Control, Event, Side, Slice, Teller};
    pub use crate::perf::summary::{Row, Summary};
    pub use crate::procfs::{ProcessSample, sample as sample_process};
    pub use crate::proto::ack::AckMode;
    pub use crate::proto::command::SubscriptionType;
    pub use crate::proto::frame::FrameError;
    pub use crate::proto::payload::{Bodies, STAMP_BYTES, Stamp, pattern};
    pub use crate::scenario::machine::{Machine, command_line, is_clean};
    pub use crate::scenario::page_cache::drop_cache;
    pub use crate::scenario::report::date;
    pub use crate::session::{find_brokers, full_topic, resolve};
    pub use crate::signals::stop_flag;
    pub use crate::stage_times::{StageBuckets, StageTimes};
    pub use crate::units::{parse_bytes, parse_duration, show_bytes};
}

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
        BenchCommand::Peers { arguments } => Err(peers::run(&arguments)),
        BenchCommand::Scenario(args) => scenario::run(&args, &signals::stop_flag()?),
    }
}
