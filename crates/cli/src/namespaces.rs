//! `pharos namespaces …`.

use clap::Subcommand;
use serde_json::{Value, json};

use crate::error::CliError;
use crate::http::{AdminClient, namespace};
use crate::output;

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum NamespacesCommand {
    /// List the namespaces of a tenant
    List {
        /// The tenant
        #[arg(default_value = "public")]
        tenant: String,
    },
    /// Make a namespace
    Create {
        /// TENANT/NAMESPACE
        namespace: String,
    },
    /// Delete a namespace that has no topics
    Delete {
        /// TENANT/NAMESPACE
        namespace: String,
    },
    /// Show all policies of a namespace
    Policies {
        /// TENANT/NAMESPACE
        namespace: String,
    },
    /// Set how long and how much acknowledged data is kept
    SetRetention {
        /// TENANT/NAMESPACE
        namespace: String,
        /// Minutes; -1 without limit, 0 nothing
        #[arg(long, allow_negative_numbers = true)]
        minutes: i32,
        /// Mebibytes; -1 without limit, 0 nothing
        #[arg(long, allow_negative_numbers = true)]
        mebibytes: i64,
    },
    /// Set among how many brokers the consumers of each new broadcast subscription are dealt
    SetBroadcastCarriers {
        /// TENANT/NAMESPACE
        namespace: String,
        /// From 1, which is the topic's owner alone, to 16
        #[arg(value_parser = clap::value_parser!(u32).range(1..=16))]
        brokers: u32,
    },
    /// Set any policy, by the last part of its path in the API
    SetPolicy {
        /// TENANT/NAMESPACE
        namespace: String,
        /// The policy, such as autoTopicCreation
        policy: String,
        /// Its value as JSON
        value: String,
    },
    /// Take a policy back
    RemovePolicy {
        /// TENANT/NAMESPACE
        namespace: String,
        /// The policy, such as retention
        policy: String,
    },
}

pub(crate) fn run(client: &AdminClient, command: NamespacesCommand) -> Result<String, CliError> {
    match command {
        NamespacesCommand::List { tenant } => {
            let names: Vec<String> = client.get(&format!("/admin/v2/namespaces/{tenant}"))?;
            return output::list(client, &names);
        }
        NamespacesCommand::Policies { namespace: name } => {
            return output::json(&client.get::<Value>(&address(&name)?)?);
        }
        NamespacesCommand::Create { namespace: name } => client.put_empty(&address(&name)?)?,
        NamespacesCommand::Delete { namespace: name } => client.delete(&address(&name)?)?,
        NamespacesCommand::SetRetention {
            namespace: name,
            minutes,
            mebibytes,
        } => {
            let body = json!({"retentionTimeInMinutes": minutes, "retentionSizeInMB": mebibytes});
            client.post(&format!("{}/retention", address(&name)?), &body)?
        }
        NamespacesCommand::SetBroadcastCarriers {
            namespace: name,
            brokers,
        } => {
            let property = format!("property/pharos.broadcastCarriers/{brokers}");
            client.put_empty(&format!("{}/{property}", address(&name)?))?
        }
        NamespacesCommand::SetPolicy {
            namespace: name,
            policy,
            value,
        } => set_policy(client, &format!("{}/{policy}", address(&name)?), &value)?,
        NamespacesCommand::RemovePolicy {
            namespace: name,
            policy,
        } => client.delete(&format!("{}/{policy}", address(&name)?))?,
    };
    Ok(String::new())
}

/// Some policies are set with POST and some with PUT; the wrong one is refused with 405.
fn set_policy(client: &AdminClient, path: &str, value: &str) -> Result<String, CliError> {
    let value: Value = serde_json::from_str(value)
        .map_err(|error| CliError::Usage(format!("the value is no JSON: {error}")))?;
    match client.post(path, &value) {
        Err(CliError::Refused { status: 405, .. }) => client.put(path, &value),
        outcome => outcome,
    }
}

fn address(text: &str) -> Result<String, CliError> {
    Ok(format!("/admin/v2/namespaces/{}", namespace(text)?))
}
