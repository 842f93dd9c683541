//! `pharos topics …`.

use clap::Subcommand;
use pharos_admin_api::{MessageIdJson, PartitionedTopicMetadata, PartitionedTopicStats, TopicStats};
use serde_json::json;

use crate::error::CliError;
use crate::http::{AdminClient, namespace, topic_name, topic_path};
use crate::output;

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum TopicsCommand {
    /// List the topics of a namespace, partitions one by one
    List {
        /// TENANT/NAMESPACE
        #[arg(default_value = "public/default")]
        namespace: String,
        /// List partitioned topics as a whole instead
        #[arg(long)]
        partitioned: bool,
    },
    /// Make a topic
    Create {
        /// NAME, TENANT/NAMESPACE/NAME or a full topic URL
        topic: String,
        /// Make it a partitioned topic
        #[arg(long, value_name = "COUNT")]
        partitions: Option<u32>,
        /// Make it a shadow of this topic, with as many partitions: it shows what is published there, once set-shadows names it
        #[arg(long, value_name = "SOURCE", conflicts_with = "partitions")]
        shadow_of: Option<String>,
    },
    /// List the shadow topics of a topic
    Shadows {
        /// The topic that is published to
        topic: String,
    },
    /// Say which shadow topics show what is published to a topic, in place of those it had
    SetShadows {
        /// The topic that is published to
        topic: String,
        /// Topics that were made with create --shadow-of; none: it has no shadows any more
        shadows: Vec<String>,
    },
    /// Give a partitioned topic more partitions
    Grow {
        /// The partitioned topic
        topic: String,
        /// How many it shall have
        partitions: u32,
    },
    /// Delete a topic with its data; of a partitioned topic all partitions
    Delete {
        /// The topic
        topic: String,
        /// Also when clients are connected
        #[arg(long)]
        force: bool,
    },
    /// Show what goes on on a topic
    Stats {
        /// The topic; of a partitioned topic the sum over its partitions
        topic: String,
    },
    /// Show the id of the last message
    Last {
        /// The topic
        topic: String,
    },
    /// Disconnect clients and load the topic anew
    Unload {
        /// The topic
        topic: String,
    },
    /// Move closed ledgers to tiered storage
    Offload {
        /// The topic; of a partitioned topic one partition
        topic: String,
        /// Bytes that stay, the newest: 0 moves all closed ledgers. A number, also with K, M, G or T
        #[arg(long, short = 's', value_name = "SIZE", default_value = "0")]
        size_threshold: String,
    },
    /// Show what came of the last offload
    OffloadStatus {
        /// The topic; of a partitioned topic one partition
        topic: String,
        /// Wait until it is done
        #[arg(long, short = 'w')]
        wait: bool,
    },
    /// Keep only the last message of each key, for consumers that read what is compacted
    Compact {
        /// The topic
        topic: String,
    },
    /// Show what came of the last compaction
    CompactionStatus {
        /// The topic
        topic: String,
        /// Wait until it is done
        #[arg(long, short = 'w')]
        wait: bool,
    },
    /// Take no more messages; consumers are told when they have read all
    Terminate {
        /// The topic
        topic: String,
    },
}

pub(crate) fn run(client: &AdminClient, command: TopicsCommand) -> Result<String, CliError> {
    match command {
        TopicsCommand::List {
            namespace: name,
            partitioned,
        } => list(client, &name, partitioned),
        TopicsCommand::Create {
            topic,
            partitions,
            shadow_of,
        } => {
            let path = topic_path(&topic)?;
            match (partitions, shadow_of) {
                (_, Some(source)) => create_shadow(client, &path, &source)?,
                (Some(count), None) => client.put(&format!("{path}/partitions"), &count)?,
                (None, None) => client.put_empty(&path)?,
            };
            Ok(String::new())
        }
        TopicsCommand::Shadows { topic } => {
            let items: Vec<String> = client.get(&format!("{}/shadowTopics", topic_path(&topic)?))?;
            output::list(client, &items)
        }
        TopicsCommand::SetShadows { topic, shadows } => {
            let path = format!("{}/shadowTopics", topic_path(&topic)?);
            let shadows: Vec<String> = shadows
                .iter()
                .map(|name| topic_name(name))
                .collect::<Result<_, _>>()?;
            match shadows.is_empty() {
                true => client.delete(&path)?,
                false => client.put(&path, &shadows)?,
            };
            Ok(String::new())
        }
        TopicsCommand::Grow { topic, partitions } => {
            client.post(&format!("{}/partitions", topic_path(&topic)?), &partitions)?;
            Ok(String::new())
        }
        TopicsCommand::Delete { topic, force } => {
            let path = topic_path(&topic)?;
            let whole = if is_partitioned(client, &path)? {
                "/partitions"
            } else {
                ""
            };
            client.delete(&format!("{path}{whole}?force={force}"))?;
            Ok(String::new())
        }
        TopicsCommand::Stats { topic } => stats(client, &topic_path(&topic)?),
        TopicsCommand::Last { topic } => {
            let last: MessageIdJson = client.get(&format!("{}/lastMessageId", topic_path(&topic)?))?;
            message_id(client, &last)
        }
        TopicsCommand::Unload { topic } => {
            client.put_empty(&format!("{}/unload", topic_path(&topic)?))?;
            Ok(String::new())
        }
        TopicsCommand::Offload {
            topic,
            size_threshold,
        } => crate::offload::begin(client, &topic, &size_threshold),
        TopicsCommand::Compact { topic } => crate::compaction::begin(client, &topic),
        TopicsCommand::CompactionStatus { topic, wait } => crate::compaction::status(client, &topic, wait),
        TopicsCommand::OffloadStatus { topic, wait } => crate::offload::status(client, &topic, wait),
        TopicsCommand::Terminate { topic } => {
            let answer = client.post_empty(&format!("{}/terminate", topic_path(&topic)?))?;
            let last = serde_json::from_str(&answer).map_err(|error| CliError::Answer {
                url: "terminate".into(),
                cause: error.to_string(),
            })?;
            message_id(client, &last)
        }
    }
}

/// Makes a topic the shadow of another, divided as that is.
fn create_shadow(client: &AdminClient, path: &str, source: &str) -> Result<String, CliError> {
    let properties = json!({ "PULSAR.SHADOW_SOURCE": topic_name(source)? });
    let of_source = format!("{}/partitions", topic_path(source)?);
    match client.get::<PartitionedTopicMetadata>(&of_source)?.partitions {
        0 => client.put(path, &properties),
        count => {
            let body = json!({ "partitions": count, "properties": properties });
            client.put(&format!("{path}/partitions"), &body)
        }
    }
}

fn list(client: &AdminClient, name: &str, partitioned: bool) -> Result<String, CliError> {
    let name = namespace(name)?;
    let items: Vec<String> = if partitioned {
        client.get(&format!("/admin/v2/persistent/{name}/partitioned"))?
    } else {
        client.get(&format!("/admin/v2/namespaces/{name}/topics?mode=ALL"))?
    };
    output::list(client, &items)
}

/// A topic that is none and one that does not exist are alike here: the call that follows will tell.
fn is_partitioned(client: &AdminClient, path: &str) -> Result<bool, CliError> {
    match client.get::<PartitionedTopicMetadata>(&format!("{path}/partitions")) {
        Ok(metadata) => Ok(metadata.partitions > 0),
        Err(CliError::Refused { status: 404, .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

fn message_id(client: &AdminClient, id: &MessageIdJson) -> Result<String, CliError> {
    if client.is_json() {
        return output::json(id);
    }
    Ok(format!(
        "{}:{}:{}\n",
        id.ledger_id, id.entry_id, id.partition_index
    ))
}

fn stats(client: &AdminClient, path: &str) -> Result<String, CliError> {
    let (address, partitioned) = if is_partitioned(client, path)? {
        (format!("{path}/partitioned-stats?perPartition=false"), true)
    } else {
        (format!("{path}/stats"), false)
    };
    if client.is_json() {
        return output::json(&client.get::<serde_json::Value>(&address)?);
    }
    let stats = if partitioned {
        let stats: PartitionedTopicStats = client.get(&address)?;
        let mut text = output::pairs(&[("partitions", stats.metadata.partitions.to_string())]);
        text.push_str(&describe(&stats.total));
        return Ok(text);
    } else {
        client.get::<TopicStats>(&address)?
    };
    Ok(describe(&stats))
}

fn describe(stats: &TopicStats) -> String {
    let mut text = output::pairs(&[
        (
            "published",
            format!(
                "{} messages, {} bytes",
                stats.msg_in_counter, stats.bytes_in_counter
            ),
        ),
        (
            "publish rate",
            format!(
                "{:.1} messages/s, {:.0} bytes/s",
                stats.msg_rate_in, stats.msg_throughput_in
            ),
        ),
        (
            "dispatch rate",
            format!(
                "{:.1} messages/s, {:.0} bytes/s",
                stats.msg_rate_out, stats.msg_throughput_out
            ),
        ),
        ("stored", format!("{} bytes", stats.storage_size)),
        ("producers", stats.publishers.len().to_string()),
    ]);
    if stats.subscriptions.is_empty() {
        return text;
    }
    let rows: Vec<[String; 6]> = stats
        .subscriptions
        .iter()
        .map(|(name, subscription)| {
            let broadcast = subscription.broadcast();
            let kind = if broadcast.is_some() {
                "Broadcast"
            } else {
                subscription.kind.as_str()
            };
            let consumers = broadcast.map_or(subscription.consumers.len() as u64, |summary| {
                summary.consumers_connected
            });
            [
                name.clone(),
                kind.to_owned(),
                consumers.to_string(),
                subscription.msg_backlog.to_string(),
                subscription.unacked_messages.to_string(),
                format!("{:.1}", subscription.msg_rate_out),
            ]
        })
        .collect();
    text.push('\n');
    let head = [
        "SUBSCRIPTION",
        "TYPE",
        "CONSUMERS",
        "BACKLOG",
        "UNACKED",
        "RATE OUT",
    ];
    text.push_str(&output::table(head, &rows));
    text
}
