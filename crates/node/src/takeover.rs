//! `pharos cluster check`: what Pharos would take over from Pulsar's own brokers, said beforehand. Changes nothing.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgMatches, Command};
use pharos_catalog::{Finding, PulsarFacts, Takeover};

use crate::cluster::Cluster;
use crate::settings::{Effective, MetadataUrl, Settings};

/// Something cannot be taken over.
const EXIT_REFUSED: u8 = 1;
/// Things that are named where only some can be.
const NAMED: usize = 3;
/// The metadata cannot be looked at.
const EXIT_UNCHECKED: u8 = 2;

const AFTER_HELP: &str = "\
Exit codes: 0 everything would be taken over; 1 something cannot be, or brokers still run;
2 the metadata cannot be looked at.";

/// The subcommand and its subcommands.
pub(crate) fn command() -> Command {
    let check = Command::new("check")
        .about("Say what would be taken over from Pulsar's own brokers, and what cannot be")
        .long_about(
            "Look at the metadata of Pulsar's own brokers and say what Pharos would take over with metadata_layout = pulsar: \
             tenants, namespaces, topics, subscriptions and schemas; what cannot be taken over, by name and why; and which \
             brokers still run. Changes nothing, and may be asked while they run.",
        )
        .after_help(AFTER_HELP)
        .arg(
            Arg::new("config")
                .long("config")
                .value_name("FILE")
                .help("The settings file (TOML) that the broker would have [env: PHAROS_CONFIG]"),
        )
        .arg(
            Arg::new("metadata")
                .long("metadata")
                .value_name("zk:HOST:PORT/PATH")
                .help("Where the metadata is [env: PHAROS_METADATA]"),
        )
        .arg(
            Arg::new("cluster_name")
                .long("cluster-name")
                .value_name("NAME")
                .help("The cluster that the brokers are of [env: PHAROS_CLUSTER_NAME]"),
        )
        .arg(
            Arg::new("output")
                .long("output")
                .value_name("FORMAT")
                .value_parser(PossibleValuesParser::new(["text", "json"]))
                .default_value("text")
                .help("Form of the result"),
        );
    Command::new("cluster")
        .about("Look at a cluster before its brokers are replaced")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .subcommand(check)
}

/// Runs the command, and says how the process ends.
pub(crate) fn run(matches: &ArgMatches, load: impl Fn(&ArgMatches) -> anyhow::Result<Effective>) -> ExitCode {
    let Some((_, matches)) = matches.subcommand() else {
        return ExitCode::from(EXIT_UNCHECKED);
    };
    let json = matches
        .get_one::<String>("output")
        .is_some_and(|form| form == "json");
    let found = load(matches).and_then(|effective| look(&effective.settings));
    let said = found.and_then(|found| {
        let text = match json {
            true => serde_json::to_string_pretty(&found)? + "\n",
            false => text(&found),
        };
        std::io::stdout().write_all(text.as_bytes())?;
        Ok(found.is_possible())
    });
    match said {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(EXIT_REFUSED),
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "pharos: {error:#}");
            ExitCode::from(EXIT_UNCHECKED)
        }
    }
}

fn look(settings: &Settings) -> anyhow::Result<Takeover> {
    let MetadataUrl::ZooKeeper(address) = &settings.cluster.metadata else {
        bail!("say where the metadata is: --metadata zk:host:port/path");
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let cluster = Cluster::look(&settings.cluster, address).await?;
        let facts = PulsarFacts::new(cluster.metadata.clone(), cluster.ledgers.clone());
        let broker = crate::broker::policies(settings);
        let found = facts.examine(&settings.cluster_name, &broker).await;
        cluster.shutdown().await;
        found.context("cannot read the metadata")
    })
}

/// Makes sure that what is to be served can be: a broker that starts serves nothing otherwise than it was promised.
///
/// # Errors
/// Something cannot be taken over; the first few of it are named.
pub(crate) async fn check(facts: &PulsarFacts, settings: &Settings) -> anyhow::Result<()> {
    let broker = crate::broker::policies(settings);
    let found = facts.examine(&settings.cluster_name, &broker).await;
    let found = found.context("cannot read the metadata of Pulsar's brokers")?;
    for Finding { what, why } in &found.notes {
        tracing::warn!(what, why, "something is otherwise than before");
    }
    if found.refused.is_empty() {
        return Ok(());
    }
    let named: Vec<String> = found
        .refused
        .iter()
        .take(NAMED)
        .map(|finding| format!("{}: {}", finding.what, finding.why))
        .collect();
    bail!(
        "{} things cannot be taken over from Pulsar's brokers, among them: {}. `pharos cluster check` names them all",
        found.refused.len(),
        named.join("; ")
    )
}

fn text(found: &Takeover) -> String {
    let mut out = String::new();
    let subscriptions: usize = found.topics.values().map(Vec::len).sum();
    let versions: usize = found.schemas.values().map(Vec::len).sum();
    let counts = [
        ("clusters", found.clusters.join(", ")),
        ("tenants", found.tenants.len().to_string()),
        ("namespaces", found.namespaces.len().to_string()),
        ("partitioned topics", found.partitioned.len().to_string()),
        ("topics", found.topics.len().to_string()),
        ("subscriptions", subscriptions.to_string()),
        ("topics with schemas", found.schemas.len().to_string()),
        ("versions of schemas", versions.to_string()),
        ("topics with policies", found.topic_policies.len().to_string()),
    ];
    for (name, count) in counts {
        let _ = writeln!(out, "{name:<20} {count}");
    }
    let mut list = |title: &str, findings: &[Finding]| {
        if !findings.is_empty() {
            let _ = writeln!(out, "\n{title}:");
        }
        for Finding { what, why } in findings {
            let _ = writeln!(out, "  {what}: {why}");
        }
    };
    list("Cannot be taken over", &found.refused);
    list("Otherwise than before", &found.notes);
    if !found.brokers.is_empty() {
        let _ = writeln!(out, "\nBrokers that still run: {}", found.brokers.join(", "));
    }
    let verdict = match (found.refused.is_empty(), found.brokers.is_empty()) {
        (true, true) => "Everything would be taken over.",
        (true, false) => "Everything would be taken over once no broker runs any more.",
        (false, _) => "Not everything can be taken over.",
    };
    let _ = writeln!(out, "\n{verdict}");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verdict_is_last() {
        let mut found = Takeover::default();
        assert!(text(&found).ends_with("\nEverything would be taken over.\n"));
        found.brokers.push("b:8080".into());
        assert!(text(&found).contains("still run: b:8080"));
        found.refused.push(Finding {
            what: "topic t".into(),
            why: "it is compacted".into(),
        });
        let text = text(&found);
        assert!(text.contains("  topic t: it is compacted\n"));
        assert!(text.ends_with("\nNot everything can be taken over.\n"));
    }
}
