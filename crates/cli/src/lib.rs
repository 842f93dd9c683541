//! The command line for those who use a broker: `pharos topics …`, `pharos subscriptions …`, and so on, over the admin
//! REST API; `pharos produce` and `pharos consume` over the Pulsar protocol; `pharos context` keeps where brokers are.
//!
//! Results go to standard output, as text for people or with `--output json` as the API gave them; everything else goes
//! to standard error. [`Access`] and [`KnownBroker`] are for other programs that connect: the same flags, and the same contexts. Exit codes: 0 done; 1 the broker refused, or it failed; 2 wrong usage; 3 the broker cannot be
//! reached.

#![forbid(unsafe_code)]

mod cluster;
mod comeback;
mod compaction;
mod consume;
mod context;
mod contexts;
mod credentials;
mod error;
mod http;
mod https;
mod isolation;
mod namespaces;
mod oauth2;
mod offload;
mod output;
mod process;
mod produce;
mod service;
mod subscriptions;
mod tenants;
mod token;
mod topics;

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

pub use context::{Access, KnownBroker};
pub use error::CliError;
pub use https::with_tls;

use contexts::ContextCommand;
use http::AdminClient;

/// The subcommands that this crate answers; [`Args::augment_args`] adds them to a command line.
#[derive(Args, Clone, Debug)]
pub struct CliArgs {
    #[command(subcommand)]
    command: CliCommand,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// List, make, look at and delete topics
    Topics(Group<topics::TopicsCommand>),
    /// List, make, move and delete the subscriptions of a topic
    Subscriptions(Group<subscriptions::SubscriptionsCommand>),
    /// List, make and delete namespaces, and set their policies
    Namespaces(Group<namespaces::NamespacesCommand>),
    /// List, make and delete tenants
    Tenants(Group<tenants::TenantsCommand>),
    /// List the brokers, say which one leads, and whether one is well
    Brokers(Group<cluster::BrokersCommand>),
    /// List and show clusters; say to which brokers bundles go, and which brokers fail together
    Clusters(Group<cluster::ClustersCommand>),
    /// List bookies, and write down where they stand
    Bookies(Group<cluster::BookiesCommand>),
    /// Publish messages from the command line or from standard input
    Produce(produce::ProduceArgs),
    /// Receive messages and write them to standard output
    Consume(consume::ConsumeArgs),
    /// Ask a broker to publish a message to itself and read it back
    Health(Common),
    /// Keep addresses and credentials of brokers by name, in a file that only you may read
    #[command(subcommand)]
    Context(ContextCommand),
    /// Make and look at tokens and their keys, as pulsar tokens does
    #[command(subcommand)]
    Token(token::TokenCommand),
}

/// A group of subcommands with what is common to all.
#[derive(Args, Clone, Debug)]
pub(crate) struct Group<C: Subcommand> {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: C,
}

/// Where the broker is, and how results are printed.
#[derive(Args, Clone, Debug)]
pub(crate) struct Common {
    /// Where the admin API is; without it where the context says, else http://127.0.0.1:8080
    #[arg(long, global = true, env = "PHAROS_ADMIN_URL", hide_env_values = true)]
    url: Option<String>,
    /// Form of the result
    #[arg(
        long,
        global = true,
        value_enum,
        default_value = "text",
        value_name = "FORMAT"
    )]
    output: Output,
    /// Seconds that a request may take
    #[arg(long, global = true, default_value_t = 60, value_name = "SECONDS")]
    timeout: u64,
    #[command(flatten)]
    access: Access,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people
    Text,
    /// As the API gave it
    Json,
}

/// Does what was asked and says how the process should end.
pub fn run(args: CliArgs) -> ExitCode {
    let outcome = match args.command {
        CliCommand::Topics(group) => with(&group.common, |client| topics::run(client, group.command)),
        CliCommand::Subscriptions(group) => {
            with(&group.common, |client| subscriptions::run(client, group.command))
        }
        CliCommand::Namespaces(group) => with(&group.common, |client| namespaces::run(client, group.command)),
        CliCommand::Tenants(group) => with(&group.common, |client| tenants::run(client, group.command)),
        CliCommand::Brokers(group) => with(&group.common, |client| cluster::brokers(client, group.command)),
        CliCommand::Clusters(group) => with(&group.common, |client| cluster::clusters(client, group.command)),
        CliCommand::Bookies(group) => with(&group.common, |client| cluster::bookies(client, group.command)),
        CliCommand::Produce(args) => service::block_on(produce::run(args)),
        CliCommand::Consume(args) => service::block_on(consume::run(args)),
        CliCommand::Health(common) => with(&common, |client| {
            client.get_text("/admin/v2/brokers/health")?;
            Ok("healthy\n".into())
        }),
        CliCommand::Context(command) => contexts::run(command),
        CliCommand::Token(command) => token::run(command),
    };
    match outcome {
        Ok(text) => match std::io::stdout().write_all(text.as_bytes()) {
            Ok(()) => ExitCode::SUCCESS,
            // The reader of our output has left; there is none to be told.
            Err(_) => ExitCode::FAILURE,
        },
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "pharos: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn with(
    common: &Common,
    then: impl FnOnce(&AdminClient) -> Result<String, CliError>,
) -> Result<String, CliError> {
    let target = common.access.target(common.url.as_ref(), None)?;
    let client = AdminClient::new(&target, common.output, Duration::from_secs(common.timeout.max(1)))?;
    then(&client)
}
