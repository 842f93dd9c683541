//! `pharos clusters …-isolation-policy` and `…-failure-domain`: to which brokers bundles go, and which brokers fail together.

use std::collections::BTreeMap;

use clap::Subcommand;
use pharos_admin_api::paths::encode_part;
use pharos_admin_api::{
    AutoFailoverPolicyData, BrokerNamespaceIsolationData, FailureDomain, NamespaceIsolationData,
};

use crate::error::CliError;
use crate::http::AdminClient;
use crate::output;

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum IsolationCommand {
    /// List the isolation policies: to which brokers the bundles of which namespaces go
    IsolationPolicies {
        /// Name of the cluster
        cluster: String,
    },
    /// Set an isolation policy; names are regular expressions for a whole name, that of a broker is the host of its admin API
    SetIsolationPolicy {
        /// Name of the cluster
        cluster: String,
        /// Name of the policy
        policy: String,
        /// Namespaces, as tenant/namespace; may be given several times
        #[arg(long = "namespace", value_name = "REGEX", required = true)]
        namespaces: Vec<String>,
        /// Brokers that have them and no others; may be given several times
        #[arg(long, value_name = "REGEX", required = true)]
        primary: Vec<String>,
        /// Brokers that stand in; may be given several times
        #[arg(long, value_name = "REGEX")]
        secondary: Vec<String>,
        /// With fewer primary brokers the secondary ones have bundles too
        #[arg(long, value_name = "COUNT", default_value_t = 1)]
        min_available: u32,
    },
    /// Remove an isolation policy
    DeleteIsolationPolicy {
        /// Name of the cluster
        cluster: String,
        /// Name of the policy
        policy: String,
    },
    /// List what the isolation policies say of each broker
    IsolatedBrokers {
        /// Name of the cluster
        cluster: String,
    },
    /// List the failure domains: which brokers fail together
    FailureDomains {
        /// Name of the cluster
        cluster: String,
    },
    /// Set a failure domain
    SetFailureDomain {
        /// Name of the cluster
        cluster: String,
        /// Name of the domain
        domain: String,
        /// A broker as it is listed, host:port; may be given several times
        #[arg(long = "broker", value_name = "BROKER", required = true)]
        brokers: Vec<String>,
    },
    /// Remove a failure domain
    DeleteFailureDomain {
        /// Name of the cluster
        cluster: String,
        /// Name of the domain
        domain: String,
    },
}

pub(crate) fn run(client: &AdminClient, command: IsolationCommand) -> Result<String, CliError> {
    match command {
        IsolationCommand::IsolationPolicies { cluster } => {
            let found: BTreeMap<String, NamespaceIsolationData> = client.get(&policies(&cluster))?;
            if client.is_json() {
                return output::json(&found);
            }
            let head = ["POLICY", "NAMESPACES", "PRIMARY", "SECONDARY", "MIN AVAILABLE"];
            let rows: Vec<[String; 5]> = found.into_iter().map(row).collect();
            Ok(output::table(head, &rows))
        }
        IsolationCommand::SetIsolationPolicy {
            cluster,
            policy,
            namespaces,
            primary,
            secondary,
            min_available,
        } => {
            let parameters = [
                ("min_limit".to_owned(), min_available.to_string()),
                ("usage_threshold".to_owned(), "100".to_owned()),
            ];
            let data = NamespaceIsolationData {
                namespaces,
                primary,
                secondary,
                auto_failover_policy: Some(AutoFailoverPolicyData {
                    policy_type: "min_available".to_owned(),
                    parameters: parameters.into(),
                }),
                unload_scope: None,
            };
            client.post(&format!("{}/{}", policies(&cluster), encode_part(&policy)), &data)?;
            Ok(String::new())
        }
        IsolationCommand::DeleteIsolationPolicy { cluster, policy } => {
            client.delete(&format!("{}/{}", policies(&cluster), encode_part(&policy)))?;
            Ok(String::new())
        }
        IsolationCommand::IsolatedBrokers { cluster } => {
            let found: Vec<BrokerNamespaceIsolationData> =
                client.get(&format!("{}/brokers", policies(&cluster)))?;
            if client.is_json() {
                return output::json(&found);
            }
            let row = |broker: BrokerNamespaceIsolationData| {
                let role = match (&broker.policy_name, broker.primary) {
                    (None, _) => "",
                    (Some(_), true) => "primary",
                    (Some(_), false) => "secondary",
                };
                let policy = broker.policy_name.unwrap_or_default();
                let namespaces = broker.namespace_regex.join(" ");
                [broker.broker_name, policy, role.to_owned(), namespaces]
            };
            let rows: Vec<[String; 4]> = found.into_iter().map(row).collect();
            Ok(output::table(["BROKER", "POLICY", "ROLE", "NAMESPACES"], &rows))
        }
        IsolationCommand::FailureDomains { cluster } => {
            let found: BTreeMap<String, FailureDomain> = client.get(&domains(&cluster))?;
            if client.is_json() {
                return output::json(&found);
            }
            let joined = |domain: FailureDomain| domain.brokers.into_iter().collect::<Vec<_>>().join(" ");
            let rows: Vec<[String; 2]> = found
                .into_iter()
                .map(|(name, domain)| [name, joined(domain)])
                .collect();
            Ok(output::table(["DOMAIN", "BROKERS"], &rows))
        }
        IsolationCommand::SetFailureDomain {
            cluster,
            domain,
            brokers,
        } => {
            let data = FailureDomain {
                brokers: brokers.into_iter().collect(),
            };
            client.post(&format!("{}/{}", domains(&cluster), encode_part(&domain)), &data)?;
            Ok(String::new())
        }
        IsolationCommand::DeleteFailureDomain { cluster, domain } => {
            client.delete(&format!("{}/{}", domains(&cluster), encode_part(&domain)))?;
            Ok(String::new())
        }
    }
}

fn policies(cluster: &str) -> String {
    format!(
        "/admin/v2/clusters/{}/namespaceIsolationPolicies",
        encode_part(cluster)
    )
}

fn domains(cluster: &str) -> String {
    format!("/admin/v2/clusters/{}/failureDomains", encode_part(cluster))
}

fn row((name, policy): (String, NamespaceIsolationData)) -> [String; 5] {
    let failover = policy.auto_failover_policy.unwrap_or_default();
    let min_available = failover.parameters.get("min_limit").cloned();
    [
        name,
        policy.namespaces.join(" "),
        policy.primary.join(" "),
        policy.secondary.join(" "),
        min_available.unwrap_or_default(),
    ]
}
