//! `pharos subscriptions …`.

use std::collections::BTreeMap;

use clap::Subcommand;
use pharos_admin_api::{BroadcastDetails, ResetCursorData, paths};

use crate::error::CliError;
use crate::http::{AdminClient, topic_path};
use crate::output;

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum SubscriptionsCommand {
    /// List the subscriptions of a topic
    List {
        /// The topic
        topic: String,
    },
    /// Make a durable subscription
    Create {
        /// The topic
        topic: String,
        /// Name of the subscription
        subscription: String,
        /// Where it begins: earliest, latest or LEDGER:ENTRY
        #[arg(long, default_value = "latest", value_name = "PLACE")]
        at: String,
        /// A property, such as pharos.subscription=broadcast; may be given several times
        #[arg(long = "property", value_name = "KEY=VALUE")]
        properties: Vec<String>,
        /// Make it a broadcast subscription: every consumer gets every message
        #[arg(long)]
        broadcast: bool,
    },
    /// Delete a subscription
    Delete {
        /// The topic
        topic: String,
        /// Name of the subscription
        subscription: String,
        /// Also when consumers are connected
        #[arg(long)]
        force: bool,
    },
    /// Move a subscription to another place
    Reset {
        /// The topic
        topic: String,
        /// Name of the subscription
        subscription: String,
        /// earliest, latest, LEDGER:ENTRY, or time:MILLISECONDS since 1970
        place: String,
    },
    /// Acknowledge messages on behalf of the consumers
    Skip {
        /// The topic
        topic: String,
        /// Name of the subscription
        subscription: String,
        /// How many entries; without it the whole backlog
        #[arg(long)]
        count: Option<u64>,
    },
    /// Show the consumers of a broadcast subscription, slowest first
    #[command(alias = "listeners")]
    Consumers {
        /// The topic
        topic: String,
        /// Name of the subscription
        subscription: String,
        /// How many
        #[arg(long, default_value_t = 10)]
        slowest: usize,
        /// All of them, by name
        #[arg(long)]
        all: bool,
    },
}

pub(crate) fn run(client: &AdminClient, command: SubscriptionsCommand) -> Result<String, CliError> {
    match command {
        SubscriptionsCommand::List { topic } => {
            let names: Vec<String> = client.get(&format!("{}/subscriptions", topic_path(&topic)?))?;
            output::list(client, &names)
        }
        SubscriptionsCommand::Create {
            topic,
            subscription,
            at,
            properties,
            broadcast,
        } => {
            let mut data = place(&at)?;
            let mut all = parse_properties(&properties)?;
            if broadcast {
                all.insert("pharos.subscription".into(), "broadcast".into());
            }
            data.properties = (!all.is_empty()).then_some(all);
            client.put(&address(&topic, &subscription)?, &data)?;
            Ok(String::new())
        }
        SubscriptionsCommand::Delete {
            topic,
            subscription,
            force,
        } => {
            client.delete(&format!("{}?force={force}", address(&topic, &subscription)?))?;
            Ok(String::new())
        }
        SubscriptionsCommand::Reset {
            topic,
            subscription,
            place: text,
        } => {
            let path = format!("{}/resetcursor", address(&topic, &subscription)?);
            match text.strip_prefix("time:") {
                Some(time) => {
                    let time: u64 = time.parse().map_err(|_| odd_place(&text))?;
                    client.post_empty(&format!("{path}/{time}"))?;
                }
                None => drop(client.post(&path, &place(&text)?)?),
            }
            Ok(String::new())
        }
        SubscriptionsCommand::Skip {
            topic,
            subscription,
            count,
        } => {
            let path = address(&topic, &subscription)?;
            match count {
                Some(count) => client.post_empty(&format!("{path}/skip/{count}"))?,
                None => client.post_empty(&format!("{path}/skip_all"))?,
            };
            Ok(String::new())
        }
        SubscriptionsCommand::Consumers {
            topic,
            subscription,
            slowest,
            all,
        } => {
            let path = address(&topic, &subscription)?;
            let details: BroadcastDetails =
                client.get(&format!("{path}/broadcast?slowest={slowest}&consumers={all}"))?;
            if client.is_json() {
                output::json(&details)
            } else {
                Ok(describe(&details))
            }
        }
    }
}

fn address(topic: &str, subscription: &str) -> Result<String, CliError> {
    Ok(paths::subscription(&topic_path(topic)?, subscription))
}

fn odd_place(text: &str) -> CliError {
    CliError::Usage(format!(
        "'{text}' is no place: write earliest, latest or LEDGER:ENTRY"
    ))
}

fn place(text: &str) -> Result<ResetCursorData, CliError> {
    match text {
        "earliest" => Ok(ResetCursorData::earliest()),
        "latest" => Ok(ResetCursorData::latest()),
        _ => {
            let (ledger, entry) = text.split_once(':').ok_or_else(|| odd_place(text))?;
            let number = |text_of: &str| text_of.parse::<u32>().map(i64::from).map_err(|_| odd_place(text));
            Ok(ResetCursorData {
                ledger_id: number(ledger)?,
                entry_id: number(entry)?,
                ..Default::default()
            })
        }
    }
}

fn parse_properties(texts: &[String]) -> Result<BTreeMap<String, String>, CliError> {
    let pair = |text: &String| {
        let (key, value) = text
            .split_once('=')
            .ok_or_else(|| CliError::Usage(format!("'{text}' is no property: write KEY=VALUE")))?;
        Ok((key.to_owned(), value.to_owned()))
    };
    texts.iter().map(pair).collect()
}

fn describe(details: &BroadcastDetails) -> String {
    let summary = &details.summary;
    let mut text = output::pairs(&[
        ("connected", summary.consumers_connected.to_string()),
        ("of them at the tail", summary.consumers_at_tail.to_string()),
        ("absent", summary.consumers_absent.to_string()),
        ("acknowledged by all", details.mark_delete_position.clone()),
    ]);
    let shown = details.consumers.as_ref().unwrap_or(&details.slowest);
    let rows: Vec<[String; 5]> = shown
        .iter()
        .map(|consumer| {
            let state = if consumer.connected { "connected" } else { "absent" };
            [
                consumer.consumer_name.clone(),
                state.to_owned(),
                consumer.mark_delete_position.clone(),
                consumer.backlog.to_string(),
                consumer.unacked_messages.to_string(),
            ]
        })
        .collect();
    text.push('\n');
    text.push_str(&output::table(
        ["CONSUMER", "STATE", "POSITION", "BACKLOG", "UNACKED"],
        &rows,
    ));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read() {
        assert_eq!(place("earliest").unwrap(), ResetCursorData::earliest());
        let at = place("7:3").unwrap();
        assert_eq!((at.ledger_id, at.entry_id, at.partition_index), (7, 3, -1));
        for text in ["", "7", "7:", "a:b", "-1:-1", "first"] {
            assert!(place(text).is_err(), "{text}");
        }
    }

    #[test]
    fn properties_may_hold_equals_signs() {
        let properties = parse_properties(&["a=b=c".to_owned()]).unwrap();
        assert_eq!(properties.get("a").map(String::as_str), Some("b=c"));
        assert!(parse_properties(&["a".to_owned()]).is_err());
    }
}
