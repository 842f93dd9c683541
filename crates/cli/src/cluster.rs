//! `pharos brokers …`, `pharos clusters …` and `pharos bookies …`: what a cluster consists of.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use pharos_admin_api::paths;
use pharos_admin_api::{
    BookieInfo, BookiesClusterInfo, BrokerInfo, ClusterData, InternalConfigurationData,
    NamespaceOwnershipStatus,
};

use crate::error::CliError;
use crate::http::AdminClient;
use crate::{isolation, output};

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum BrokersCommand {
    /// List the brokers, as host:port of their admin API
    List,
    /// Say which broker leads
    Leader,
    /// List the bundles that the broker at --url has
    Bundles {
        /// Its name, as it is listed
        broker: String,
    },
    /// Ask the broker at --url to publish a message to itself and read it back
    Healthcheck,
    /// Say whether the broker at --url takes work now
    Ready,
    /// Say the release of the broker at --url
    Version,
    /// Show the settings that are in force at the broker at --url
    RuntimeConfig,
    /// Show where the broker at --url keeps metadata and ledgers
    InternalConfig,
    /// List the settings that can be changed while brokers run
    DynamicConfig,
    /// Show those that were changed, for all brokers
    DynamicValues,
    /// Change a setting of all brokers while they run
    UpdateDynamicConfig {
        /// Its name, ours or Pulsar's
        name: String,
        /// Its value, as a file with that name would have it
        value: String,
    },
    /// Take such a change back
    DeleteDynamicConfig {
        /// Its name, as it was changed
        name: String,
    },
    /// Show what the broker at --url tells others of its load
    LoadReport,
    /// Have the broker at --url measure all backlogs now, and do what their quotas say
    CheckBacklogQuotas,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ClustersCommand {
    /// List all clusters that are known
    List,
    /// Show the addresses of a cluster
    Show {
        /// Its name
        cluster: String,
    },
    /// Make another cluster known, so that namespaces and topics can be replicated to it
    Create {
        /// Its name: what it calls itself
        cluster: String,
        #[command(flatten)]
        data: ClusterArgs,
    },
    /// Replace all that is known about a cluster
    Update {
        /// Its name
        cluster: String,
        #[command(flatten)]
        data: ClusterArgs,
    },
    /// Forget a cluster to which nothing is replicated
    Delete {
        /// Its name
        cluster: String,
    },
    #[command(flatten)]
    Isolation(isolation::IsolationCommand),
}

/// What is known about a cluster.
#[derive(Clone, Debug, Args)]
pub(crate) struct ClusterArgs {
    /// Its brokers, as pulsar://host:port; several with commas between
    #[arg(long, value_name = "URL")]
    broker_url: Option<String>,
    /// Its brokers over TLS, as pulsar+ssl://host:port; with it TLS is spoken
    #[arg(long, value_name = "URL")]
    broker_url_tls: Option<String>,
    /// Its admin API, for tools
    #[arg(long, value_name = "URL")]
    admin_url: Option<String>,
    /// Certificates in PEM that vouch for its brokers, on the machine of this cluster's broker
    #[arg(long, value_name = "PATH", requires = "broker_url_tls")]
    trust_certs: Option<PathBuf>,
    /// How this cluster authenticates to it: AuthenticationToken, AuthenticationBasic or AuthenticationTls
    #[arg(long, value_name = "PLUGIN")]
    remote_auth_plugin: Option<String>,
    /// With what; a token as file:///PATH, on the machine of this cluster's broker
    #[arg(long, value_name = "PARAMETERS", requires = "remote_auth_plugin")]
    remote_auth_params: Option<String>,
}

impl ClusterArgs {
    fn data(self) -> ClusterData {
        let mut data = ClusterData {
            service_url: self.admin_url,
            broker_service_url: self.broker_url,
            broker_client_tls_enabled: self.broker_url_tls.is_some(),
            broker_service_url_tls: self.broker_url_tls,
            authentication_plugin: self.remote_auth_plugin,
            authentication_parameters: self.remote_auth_params,
            ..ClusterData::default()
        };
        if let Some(path) = self.trust_certs {
            let path = path.display().to_string().into();
            data.other
                .insert("brokerClientTrustCertsFilePath".to_owned(), path);
        }
        data
    }
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum BookiesCommand {
    /// List the bookies that take writes
    List,
    /// List where bookies stand, as it was written down
    Racks,
    /// Say where one bookie stands
    Rack {
        /// Its name, as it is listed
        bookie: String,
    },
    /// Write down where a bookie stands
    SetRack {
        /// Its name, as it is listed
        bookie: String,
        /// /region/rack or /rack
        #[arg(long)]
        rack: String,
        /// The group that it is in
        #[arg(long, default_value = "default")]
        group: String,
        /// The name of its machine
        #[arg(long)]
        hostname: Option<String>,
    },
    /// Forget where a bookie stands
    DeleteRack {
        /// Its name
        bookie: String,
    },
}

pub(crate) fn brokers(client: &AdminClient, command: BrokersCommand) -> Result<String, CliError> {
    match command {
        BrokersCommand::List => {
            let brokers: Vec<String> = client.get("/admin/v2/brokers")?;
            output::list(client, &brokers)
        }
        BrokersCommand::Leader => {
            let leader: BrokerInfo = client.get("/admin/v2/brokers/leaderBroker")?;
            if client.is_json() {
                return output::json(&leader);
            }
            Ok(output::pairs(&[
                ("broker", leader.broker_id),
                ("url", leader.service_url),
            ]))
        }
        BrokersCommand::Bundles { broker } => {
            // Of the cluster nothing is asked.
            let broker = paths::encode_part(&broker);
            let path = format!("/admin/v2/brokers/any/{broker}/ownedNamespaces");
            let owned: BTreeMap<String, NamespaceOwnershipStatus> = client.get(&path)?;
            let names: Vec<String> = owned.into_keys().collect();
            output::list(client, &names)
        }
        BrokersCommand::Healthcheck => {
            client.get_text("/admin/v2/brokers/health")?;
            Ok("healthy\n".into())
        }
        BrokersCommand::Ready => {
            client.get_text("/admin/v2/brokers/ready")?;
            Ok("ready\n".into())
        }
        BrokersCommand::Version => {
            let version = client.get_text("/admin/v2/brokers/version")?;
            match client.is_json() {
                true => output::json(&version.trim()),
                false => Ok(format!("{}\n", version.trim())),
            }
        }
        BrokersCommand::RuntimeConfig => {
            let settings: BTreeMap<String, String> = client.get("/admin/v2/brokers/configuration/runtime")?;
            if client.is_json() {
                return output::json(&settings);
            }
            let rows: Vec<[String; 2]> = settings.into_iter().map(|(key, value)| [key, value]).collect();
            Ok(output::table(["SETTING", "VALUE"], &rows))
        }
        BrokersCommand::InternalConfig => {
            let found: InternalConfigurationData = client.get("/admin/v2/brokers/internal-configuration")?;
            output::json(&found)
        }
        BrokersCommand::DynamicConfig => {
            let names: Vec<String> = client.get("/admin/v2/brokers/configuration")?;
            output::list(client, &names)
        }
        BrokersCommand::DynamicValues => {
            let values: BTreeMap<String, String> = client.get("/admin/v2/brokers/configuration/values")?;
            if client.is_json() {
                return output::json(&values);
            }
            let rows: Vec<[String; 2]> = values.into_iter().map(|(key, value)| [key, value]).collect();
            Ok(output::table(["SETTING", "VALUE"], &rows))
        }
        BrokersCommand::UpdateDynamicConfig { name, value } => {
            let (name, value) = (paths::encode_part(&name), paths::encode_part(&value));
            client.post_empty(&format!("/admin/v2/brokers/configuration/{name}/{value}"))?;
            Ok(String::new())
        }
        BrokersCommand::DeleteDynamicConfig { name } => {
            client.delete(&format!(
                "/admin/v2/brokers/configuration/{}",
                paths::encode_part(&name)
            ))?;
            Ok(String::new())
        }
        BrokersCommand::LoadReport => {
            let report: serde_json::Value = client.get("/admin/v2/broker-stats/load-report")?;
            output::json(&report)
        }
        BrokersCommand::CheckBacklogQuotas => {
            client.get_text("/admin/v2/brokers/backlog-quota-check")?;
            Ok(String::new())
        }
    }
}

pub(crate) fn clusters(client: &AdminClient, command: ClustersCommand) -> Result<String, CliError> {
    let path = |cluster: &str| format!("/admin/v2/clusters/{}", paths::encode_part(cluster));
    match command {
        ClustersCommand::List => {
            let clusters: Vec<String> = client.get("/admin/v2/clusters")?;
            output::list(client, &clusters)
        }
        ClustersCommand::Show { cluster } => {
            let data: ClusterData = client.get(&path(&cluster))?;
            output::json(&data)
        }
        ClustersCommand::Create { cluster, data } => {
            client.put(&path(&cluster), &data.data())?;
            Ok(String::new())
        }
        ClustersCommand::Update { cluster, data } => {
            client.post(&path(&cluster), &data.data())?;
            Ok(String::new())
        }
        ClustersCommand::Delete { cluster } => {
            client.delete(&path(&cluster))?;
            Ok(String::new())
        }
        ClustersCommand::Isolation(command) => isolation::run(client, command),
    }
}

pub(crate) fn bookies(client: &AdminClient, command: BookiesCommand) -> Result<String, CliError> {
    let path = |bookie: &str| format!("/admin/v2/bookies/racks-info/{}", paths::encode_part(bookie));
    match command {
        BookiesCommand::List => {
            let found: BookiesClusterInfo = client.get("/admin/v2/bookies/all")?;
            let names: Vec<String> = found.bookies.into_iter().map(|bookie| bookie.bookie_id).collect();
            output::list(client, &names)
        }
        BookiesCommand::Racks => {
            let groups: BTreeMap<String, BTreeMap<String, BookieInfo>> =
                client.get("/admin/v2/bookies/racks-info")?;
            if client.is_json() {
                return output::json(&groups);
            }
            let mut rows = Vec::new();
            for (group, bookies) in groups {
                for (bookie, info) in bookies {
                    rows.push([
                        bookie,
                        group.clone(),
                        info.rack,
                        info.hostname.unwrap_or_default(),
                    ]);
                }
            }
            Ok(output::table(["BOOKIE", "GROUP", "RACK", "HOST"], &rows))
        }
        BookiesCommand::Rack { bookie } => {
            let info: BookieInfo = client.get(&path(&bookie))?;
            if client.is_json() {
                return output::json(&info);
            }
            let hostname = info.hostname.unwrap_or_default();
            Ok(output::pairs(&[("rack", info.rack), ("host", hostname)]))
        }
        BookiesCommand::SetRack {
            bookie,
            rack,
            group,
            hostname,
        } => {
            let at = format!("{}?group={}", path(&bookie), paths::encode_part(&group));
            client.post(&at, &BookieInfo { rack, hostname })?;
            Ok(String::new())
        }
        BookiesCommand::DeleteRack { bookie } => {
            client.delete(&path(&bookie))?;
            Ok(String::new())
        }
    }
}
