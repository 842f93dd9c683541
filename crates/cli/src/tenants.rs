//! `pharos tenants …`.

use clap::Subcommand;
use pharos_admin_api::TenantInfo;

use crate::error::CliError;
use crate::http::AdminClient;
use crate::output;

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum TenantsCommand {
    /// List all tenants
    List,
    /// Make a tenant
    Create {
        /// Its name
        tenant: String,
        /// A cluster its namespaces may live on; may be given several times. Without it: all clusters
        #[arg(long = "cluster", value_name = "CLUSTER")]
        clusters: Vec<String>,
        /// A role that may administer it; may be given several times
        #[arg(long = "admin-role", value_name = "ROLE")]
        admin_roles: Vec<String>,
    },
    /// Replace the clusters and the administrators of a tenant
    Update {
        /// Its name
        tenant: String,
        /// A cluster its namespaces may live on; may be given several times
        #[arg(long = "cluster", value_name = "CLUSTER", required = true)]
        clusters: Vec<String>,
        /// A role that may administer it; may be given several times
        #[arg(long = "admin-role", value_name = "ROLE")]
        admin_roles: Vec<String>,
    },
    /// Delete a tenant that has no namespaces
    Delete {
        /// Its name
        tenant: String,
    },
    /// Show a tenant
    Get {
        /// Its name
        tenant: String,
    },
}

pub(crate) fn run(client: &AdminClient, command: TenantsCommand) -> Result<String, CliError> {
    let path = |tenant: &str| format!("/admin/v2/tenants/{tenant}");
    match command {
        TenantsCommand::List => {
            let names: Vec<String> = client.get("/admin/v2/tenants")?;
            output::list(client, &names)
        }
        TenantsCommand::Create {
            tenant,
            clusters,
            admin_roles,
        } => {
            let allowed_clusters = if clusters.is_empty() {
                client.get("/admin/v2/clusters")?
            } else {
                clusters
            };
            client.put(
                &path(&tenant),
                &TenantInfo {
                    admin_roles,
                    allowed_clusters,
                },
            )?;
            Ok(String::new())
        }
        TenantsCommand::Update {
            tenant,
            clusters: allowed_clusters,
            admin_roles,
        } => {
            let info = TenantInfo {
                admin_roles,
                allowed_clusters,
            };
            client.post(&path(&tenant), &info)?;
            Ok(String::new())
        }
        TenantsCommand::Delete { tenant } => {
            client.delete(&path(&tenant))?;
            Ok(String::new())
        }
        TenantsCommand::Get { tenant } => {
            let info: TenantInfo = client.get(&path(&tenant))?;
            if client.is_json() {
                return output::json(&info);
            }
            Ok(output::pairs(&[
                ("clusters", info.allowed_clusters.join(", ")),
                ("admin roles", info.admin_roles.join(", ")),
            ]))
        }
    }
}
