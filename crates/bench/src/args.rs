//! The command line of `pharos bench`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use crate::broadcast::Mode;
use crate::proto::ack::AckMode;
use crate::proto::command::SubscriptionType;
use crate::units::{parse_bytes, parse_duration};

/// Measure a broker: this one, or any other that speaks the Pulsar protocol.
#[derive(Args, Debug, Clone)]
pub struct BenchArgs {
    #[command(subcommand)]
    pub(crate) command: BenchCommand,
}

/// What to measure.
#[derive(Subcommand, Debug, Clone)]
pub(crate) enum BenchCommand {
    /// One topic, N consumers, and every one of them must get every message.
    Broadcast(Box<BroadcastArgs>),
    /// Publish as fast as asked, or as fast as it goes.
    Produce(Box<ProduceArgs>),
    /// Receive and acknowledge.
    Consume(Box<ConsumeArgs>),
    /// Publish and receive at once; end-to-end latency.
    E2e(Box<E2eArgs>),
    /// Run the cases of a workload file and compare them.
    Scenario(Box<ScenarioArgs>),
    /// Kill the broker under load, again and again, and check that it kept what it acknowledged.
    Crash(Box<CrashArgs>),
    /// Run workload files against this broker and its peers (Pulsar, Kafka, NATS), in turn and on the same machine.
    #[command(disable_help_flag = true)]
    Peers {
        /// Arguments of the program that does it; --help shows them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// A consumer process of a broadcast run.
    #[command(name = "__worker", hide = true)]
    Worker,
    /// The broker of a run, tied to the life of its parent.
    #[command(name = "__serve", hide = true)]
    Serve {
        /// Arguments for `pharos serve`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people.
    Text,
    /// One object.
    Json,
}

/// Where the broker is.
#[derive(Args, Debug, Clone)]
pub(crate) struct TargetArgs {
    /// Broker to measure, `pulsar://host:port` or `pulsar+ssl://host:port`; --context names one as well. Without either a broker of this binary is started on a throw-away directory.
    #[arg(long)]
    pub(crate) url: Option<String>,
    /// The broker's HTTP door, for its own measurements: `http://host:port` or `https://host:port`.
    #[arg(long)]
    pub(crate) http_url: Option<String>,
    /// How to get in: as of every command that connects.
    #[command(flatten)]
    pub(crate) access: pharos_cli::Access,
    /// Process id of the broker, to read its CPU time and memory.
    #[arg(long)]
    pub(crate) broker_pid: Option<u32>,
}

/// `pharos bench broadcast`.
#[derive(Args, Debug, Clone)]
pub(crate) struct BroadcastArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// Consumers on the topic.
    #[arg(long, default_value_t = 10_000)]
    pub(crate) consumers: u32,
    /// TCP connections they share.
    #[arg(long, default_value_t = 8)]
    pub(crate) connections: u32,
    /// Bytes of a message.
    #[arg(long, default_value = "10KB", value_parser = parse_bytes)]
    pub(crate) size: u64,
    /// Messages a second.
    #[arg(long, default_value_t = 1.0)]
    pub(crate) rate: f64,
    /// Messages measured.
    #[arg(long, default_value_t = 30)]
    pub(crate) messages: u32,
    /// Messages sent first that are not measured (they are checked for loss and order all the same).
    #[arg(long, default_value_t = 3)]
    pub(crate) warmup_messages: u32,
    /// How consumers hang on the topic.
    #[arg(long, value_enum, default_value_t = Mode::Broadcast)]
    pub(crate) mode: Mode,
    /// Subscription type asked for.
    #[arg(long, value_enum, default_value_t = SubscriptionType::Exclusive)]
    pub(crate) subscription_type: SubscriptionType,
    /// Subscription name, or the beginning of the names where each consumer has its own.
    #[arg(long, default_value = "bench")]
    pub(crate) subscription: String,
    /// How deliveries are acknowledged.
    #[arg(long, value_enum, default_value_t = AckMode::Individual)]
    pub(crate) ack: AckMode,
    /// How long acknowledgements are gathered at most while deliveries come thick and fast, in milliseconds; 0 sends
    /// them as soon as what a wake-up brought has been read. They are sent at once when nothing more comes. The official
    /// Java, Go and C++ clients gather for 100 whatever comes.
    #[arg(long, default_value_t = 100)]
    pub(crate) ack_group_ms: u64,
    /// Topic; a fresh one unless given.
    #[arg(long)]
    pub(crate) topic: Option<String>,
    /// Consumer processes; chosen from the number of connections unless given.
    #[arg(long)]
    pub(crate) processes: Option<u32>,
    /// A further broker, which carries its share of the consumers; once for each, in the order of their slots. The namespace has
    /// the property pharos.broadcastCarriers with one more than their number.
    #[arg(long = "carrier", requires = "url")]
    pub(crate) carriers: Vec<String>,
    /// Messages a consumer is ready to take.
    #[arg(long, default_value_t = 1000)]
    pub(crate) receiver_queue: u32,
    /// Of the consumers, this many stop reading once subscribed; they are left out of latency and loss.
    #[arg(long, default_value_t = 0)]
    pub(crate) slow_consumers: u32,
    /// Leave out computing and comparing the checksum of every delivery: what came is then only counted.
    #[arg(long)]
    pub(crate) skip_checksums: bool,
    /// Come back after a lost connection; duplicates are then allowed and reported.
    #[arg(long)]
    pub(crate) reconnect: bool,
    /// Connections being opened at once, over all processes.
    #[arg(long, default_value_t = 512)]
    pub(crate) connect_parallel: u32,
    /// Subscribes unanswered at once on one connection.
    #[arg(long, default_value_t = 256)]
    pub(crate) subscribe_in_flight: u32,
    /// Connecting and subscribing may take this long.
    #[arg(long, default_value = "480s", value_parser = parse_duration)]
    pub(crate) connect_timeout: Duration,
    /// Pause between the last subscribe and the first message.
    #[arg(long, default_value = "1s", value_parser = parse_duration)]
    pub(crate) settle: Duration,
    /// After the last message, this long without a delivery ends the run.
    #[arg(long, default_value = "30s", value_parser = parse_duration)]
    pub(crate) drain: Duration,
    /// Link speed for the wire time, gigabits a second.
    #[arg(long, default_value_t = 10.0)]
    pub(crate) link_gbps: f64,
    /// Bytes asked for per read of a consumer connection.
    #[arg(long, default_value = "256KB", value_parser = parse_bytes)]
    pub(crate) read_bytes: u64,
    /// Socket receive buffer of the consumers; 0 leaves it to the system.
    #[arg(long, default_value = "0", value_parser = parse_bytes)]
    pub(crate) rcvbuf: u64,
    /// Write the end-to-end latency distribution to this file, as HdrHistogram percentile text.
    #[arg(long)]
    pub(crate) hgrm: Option<PathBuf>,
    /// How results are printed.
    #[arg(long, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,
}

/// Compression asked for; only `none` so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CompressionArg {
    /// Payloads travel as they are.
    None,
}

/// Topics of a load and its length.
#[derive(Args, Debug, Clone)]
pub(crate) struct LoadArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// Topic. With several topics, `-0`, `-1`, ... are appended. A fresh name unless given.
    #[arg(long)]
    pub(crate) topic: Option<String>,
    /// How many topics.
    #[arg(long, default_value_t = 1)]
    pub(crate) topics: u32,
    /// Partitions of each topic, created first over the HTTP door; 0 uses the topics as they are.
    #[arg(long, default_value_t = 0)]
    pub(crate) partitions: u32,
    /// Not measured.
    #[arg(long, default_value = "5s", value_parser = parse_duration)]
    pub(crate) warmup: Duration,
    /// Measured.
    #[arg(long, default_value = "30s", value_parser = parse_duration)]
    pub(crate) duration: Duration,
    /// A line is printed this often.
    #[arg(long, default_value = "10s", value_parser = parse_duration)]
    pub(crate) interval: Duration,
    /// Threads for each side of the load.
    #[arg(long, default_value_t = 1)]
    pub(crate) threads: u32,
    /// Write latency distributions to FILE, as HdrHistogram percentile text; end-to-end ones to FILE.e2e.
    #[arg(long)]
    pub(crate) hgrm: Option<PathBuf>,
    /// Write a report with plots to this file.
    #[arg(long)]
    pub(crate) html: Option<PathBuf>,
    /// How results are printed.
    #[arg(long, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,
}

/// The publishing side.
#[derive(Args, Debug, Clone)]
pub(crate) struct PublishArgs {
    /// Producers per topic (or partition).
    #[arg(long, default_value_t = 1)]
    pub(crate) producers: u32,
    /// Bytes of a message.
    #[arg(long, default_value = "1KB", value_parser = parse_bytes)]
    pub(crate) size: u64,
    /// Messages a second over all producers; 0 is as fast as it goes.
    #[arg(long, default_value_t = 0.0)]
    pub(crate) rate: f64,
    /// A batch is sent once it holds this many messages; 1 sends each alone.
    #[arg(long, default_value_t = 1000)]
    pub(crate) batch_messages: u32,
    /// ... or this many bytes.
    #[arg(long, default_value = "128KB", value_parser = parse_bytes)]
    pub(crate) batch_bytes: u64,
    /// ... or is this old.
    #[arg(long, default_value = "1ms", value_parser = parse_duration)]
    pub(crate) batch_delay: Duration,
    /// Compression of payloads.
    #[arg(long, value_enum, default_value_t = CompressionArg::None)]
    pub(crate) compression: CompressionArg,
    /// Sends (batches) without a receipt, per producer, before it waits.
    #[arg(long, default_value_t = 64)]
    pub(crate) window: u32,
}

/// The receiving side.
#[derive(Args, Debug, Clone)]
pub(crate) struct ReceiveArgs {
    /// Subscriptions per topic.
    #[arg(long, default_value_t = 1)]
    pub(crate) subscriptions: u32,
    /// Consumers per subscription and topic (or partition).
    #[arg(long, default_value_t = 1)]
    pub(crate) consumers: u32,
    /// Subscription name; with several subscriptions, `-0`, `-1`, ... are appended.
    #[arg(long, default_value = "bench")]
    pub(crate) subscription: String,
    /// Subscription type.
    #[arg(long, value_enum, default_value_t = SubscriptionType::Exclusive)]
    pub(crate) subscription_type: SubscriptionType,
    /// How deliveries are acknowledged.
    #[arg(long, value_enum, default_value_t = AckMode::Individual)]
    pub(crate) ack: AckMode,
    /// Messages a consumer is ready to take.
    #[arg(long, default_value_t = 10_000)]
    pub(crate) receiver_queue: u32,
    /// Begin at the oldest message instead of the newest when the subscription is new.
    #[arg(long)]
    pub(crate) earliest: bool,
}

/// `pharos bench produce`.
#[derive(Args, Debug, Clone)]
pub(crate) struct ProduceArgs {
    #[command(flatten)]
    pub(crate) load: LoadArgs,
    #[command(flatten)]
    pub(crate) publish: PublishArgs,
}

/// `pharos bench consume`.
#[derive(Args, Debug, Clone)]
pub(crate) struct ConsumeArgs {
    #[command(flatten)]
    pub(crate) load: LoadArgs,
    #[command(flatten)]
    pub(crate) receive: ReceiveArgs,
}

/// `pharos bench e2e`.
#[derive(Args, Debug, Clone)]
pub(crate) struct E2eArgs {
    #[command(flatten)]
    pub(crate) load: LoadArgs,
    #[command(flatten)]
    pub(crate) publish: PublishArgs,
    #[command(flatten)]
    pub(crate) receive: ReceiveArgs,
}

/// `pharos bench scenario`.
#[derive(Args, Debug, Clone)]
pub(crate) struct ScenarioArgs {
    /// Workload file (TOML); `workloads/` has some.
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// Change a key of the file for all cases: `duration=2s`, `topics=[10,100]`, `broker.storage.sync=async`.
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Only the cases whose label contains this text.
    #[arg(long, value_name = "TEXT")]
    pub(crate) only: Option<String>,
    /// Run all cases so often, in turn, and take the median of each figure.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) rounds: u32,
    /// Where brokers of the run's own keep their data, each in a fresh directory that is removed; the system's temporary
    /// directory unless given. Give it again for further devices: several journals are dealt out over all of them.
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Vec<PathBuf>,
    /// Fail when an expectation of the file is not met or could not be measured.
    #[arg(long)]
    pub(crate) strict: bool,
    /// Write the result as a page of markdown to this file. Refused when this program was not built from a commit alone.
    #[arg(long, value_name = "FILE")]
    pub(crate) markdown: Option<PathBuf>,
    /// Write the page all the same; its commit then ends with `+`.
    #[arg(long, requires = "markdown")]
    pub(crate) unclean: bool,
    /// Write a report with plots of every case to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// How results are printed.
    #[arg(long, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,
}

/// What a receipt means; the broker's `storage.sync`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Durability {
    /// On the device.
    Sync,
    /// With the operating system: a kill of the process loses nothing.
    Async,
    /// In the broker's memory: a kill may lose what was not flushed.
    Bypass,
}

impl Durability {
    /// As the setting spells it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Sync => "sync",
            Self::Async => "async",
            Self::Bypass => "bypass",
        }
    }
}

/// `pharos bench crash`.
#[derive(Args, Debug, Clone)]
pub(crate) struct CrashArgs {
    /// How often the broker is killed.
    #[arg(long, default_value_t = 5)]
    pub(crate) kills: u32,
    /// Load between two kills, on average.
    #[arg(long, default_value = "2s", value_parser = parse_duration)]
    pub(crate) interval: Duration,
    /// What a receipt means.
    #[arg(long, value_enum, default_value_t = Durability::Sync)]
    pub(crate) durability: Durability,
    /// Topics, with one producer each.
    #[arg(long, default_value_t = 4)]
    pub(crate) topics: u32,
    /// Bytes of a message.
    #[arg(long, default_value = "1KB", value_parser = parse_bytes)]
    pub(crate) size: u64,
    /// Messages in a batch; 1 sends each alone.
    #[arg(long, default_value_t = 10)]
    pub(crate) batch_messages: u32,
    /// Sends (batches) without a receipt, per producer; the rate follows from it.
    #[arg(long, default_value_t = 16)]
    pub(crate) window: u32,
    /// Where the broker keeps its data, in a fresh directory that is removed; the system's temporary directory unless given.
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// How results are printed.
    #[arg(long, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,
}
