//! Connection to another cluster: the cluster's data, and the settings for values that they do not set.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pharos_admin_api::ClusterData;
use pharos_client::plugin::AuthPlugin;
use pharos_client::{ConnectOptions, TlsOptions};
use serde_json::Value;

use crate::remote_credentials;

/// A peer that is silent for so long is asked for a sign of life.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// Timeout of connecting and of a request.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(30);

/// Defaults for values that a cluster's data do not set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemoteDefaults {
    /// Credentials to present.
    pub credentials: Option<AuthPlugin>,
    /// TLS options, if TLS is used.
    pub tls: Option<TlsOptions>,
}

/// Addresses of another cluster, and the options of connections to it.
#[derive(Clone, Debug)]
pub struct RemoteCluster {
    /// `pulsar://…` or `pulsar+ssl://…`, one address or several.
    pub url: String,
    /// Options of the connection.
    pub options: ConnectOptions,
}

/// Reason why a cluster cannot be replicated to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UnusableCluster(pub String);

fn said(text: Option<&String>) -> Option<&str> {
    text.map(|text| text.trim()).filter(|text| !text.is_empty())
}

/// A path among the members that are only kept.
fn path(data: &ClusterData, name: &str) -> Option<PathBuf> {
    let path = data.other.get(name)?.as_str()?.trim();
    (!path.is_empty()).then(|| PathBuf::from(path))
}

const TRUST: &str = "brokerClientTrustCertsFilePath";
const CERTIFICATE: &str = "brokerClientCertificateFilePath";
const KEY: &str = "brokerClientKeyFilePath";

/// Refuses data of a cluster that would not be acted on.
///
/// # Errors
/// Which member.
pub fn check_cluster_data(data: &ClusterData) -> Result<(), UnusableCluster> {
    let refused = |name: &str| {
        Err(UnusableCluster(format!(
            "{name} of a cluster is not acted on in this release, so it cannot be set"
        )))
    };
    if said(data.proxy_service_url.as_ref()).is_some() {
        return refused("proxyServiceUrl");
    }
    if said(data.listener_name.as_ref()).is_some() {
        return refused("listenerName");
    }
    if data.broker_client_tls_enabled_with_key_store {
        return refused("brokerClientTlsEnabledWithKeyStore");
    }
    for (name, value) in &data.other {
        let is_acted_on = matches!(name.as_str(), TRUST | CERTIFICATE | KEY);
        // What clients of Pulsar send for what is not said.
        let is_unsaid = match value {
            Value::Null | Value::Bool(false) => true,
            Value::String(text) => {
                let is_default = match name.as_str() {
                    "brokerClientSslFactoryPlugin" => text.ends_with(".DefaultPulsarSslFactory"),
                    _ => name.ends_with("StoreType") && text == "JKS",
                };
                text.is_empty() || is_default
            }
            Value::Object(members) => members.values().all(Value::is_null),
            _ => false,
        };
        if !is_acted_on && !is_unsaid {
            return refused(name);
        }
    }
    for (name, url, scheme) in [
        ("brokerServiceUrl", &data.broker_service_url, "pulsar://"),
        (
            "brokerServiceUrlTls",
            &data.broker_service_url_tls,
            "pulsar+ssl://",
        ),
    ] {
        if let Some(url) = said(url.as_ref())
            && !url.starts_with(scheme)
        {
            return Err(UnusableCluster(format!(
                "{name} begins with {scheme}, not as '{url}'"
            )));
        }
    }
    credentials(data, None)?;
    Ok(())
}

fn credentials(
    data: &ClusterData,
    default: Option<&AuthPlugin>,
) -> Result<Option<AuthPlugin>, UnusableCluster> {
    let Some(plugin) = said(data.authentication_plugin.as_ref()) else {
        return Ok(default.cloned());
    };
    let params = said(data.authentication_parameters.as_ref()).unwrap_or_default();
    remote_credentials(plugin, params).map_err(UnusableCluster)
}

impl RemoteCluster {
    /// From what is stored of a cluster; `name`: it.
    ///
    /// # Errors
    /// It has no address of the kind that is asked for, or its credentials cannot be used.
    pub fn of(name: &str, data: &ClusterData, defaults: &RemoteDefaults) -> Result<Self, UnusableCluster> {
        let tls = match data.broker_client_tls_enabled {
            true => Some(TlsOptions {
                trust_certs_file: path(data, TRUST),
                certificate_file: path(data, CERTIFICATE),
                key_file: path(data, KEY),
                skip_hostname_verification: false,
                allow_insecure_connection: data.tls_allow_insecure_connection,
            }),
            false => defaults.tls.clone(),
        };
        let (member, url) = match tls {
            Some(_) => ("brokerServiceUrlTls", &data.broker_service_url_tls),
            None => ("brokerServiceUrl", &data.broker_service_url),
        };
        let url = said(url.as_ref()).ok_or_else(|| {
            UnusableCluster(format!(
                "cluster '{name}' has no {member}: clusters update sets it"
            ))
        })?;
        let plugin = credentials(data, defaults.credentials.as_ref())?;
        let mut options = ConnectOptions::default()
            .keep_alive(KEEP_ALIVE)
            .operation_timeout(OPERATION_TIMEOUT);
        if let Some(mut tls) = tls {
            if let Some((certificate, key)) = plugin.as_ref().and_then(|plugin| plugin.certificate.clone()) {
                (tls.certificate_file, tls.key_file) = (Some(certificate), Some(key));
            }
            options = options.tls(tls);
        }
        let flags = options.command.feature_flags.get_or_insert_default();
        flags.supports_repl_dedup_by_lid_and_eid = Some(true);
        if let Some(plugin) = plugin {
            options = options.credentials(Arc::new(plugin.credentials));
        }
        Ok(Self {
            url: url.to_owned(),
            options,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(json: &str) -> ClusterData {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn what_is_not_acted_on_is_refused() {
        for fine in [
            "{}",
            r#"{"brokerServiceUrl":"pulsar://b:6650","proxyProtocol":null,"brokerClientTlsTrustStoreType":"JKS"}"#,
            r#"{"brokerServiceUrlTls":"pulsar+ssl://b:6651","brokerClientTlsEnabled":true,"brokerClientTrustCertsFilePath":"/ca"}"#,
            r#"{"brokerClientSslFactoryPlugin":"org.apache.pulsar.common.util.DefaultPulsarSslFactory"}"#,
            r#"{"migrated":false,"migratedClusterUrl":{"serviceUrl":null},"brokerClientTlsKeyStorePassword":""}"#,
        ] {
            assert_eq!(check_cluster_data(&data(fine)), Ok(()), "{fine}");
        }
        for (refused, member) in [
            (r#"{"proxyServiceUrl":"pulsar://p:1"}"#, "proxyServiceUrl"),
            (r#"{"listenerName":"l"}"#, "listenerName"),
            (r#"{"brokerClientTlsKeyStore":"/k"}"#, "brokerClientTlsKeyStore"),
            (r#"{"brokerClientTlsEnabledWithKeyStore":true}"#, "KeyStore"),
            (r#"{"brokerServiceUrl":"http://b:8080"}"#, "brokerServiceUrl"),
            (r#"{"authenticationPlugin":"AuthenticationAthenz"}"#, "Athenz"),
        ] {
            let why = check_cluster_data(&data(refused)).unwrap_err();
            assert!(why.0.contains(member), "{why}");
        }
    }

    #[test]
    fn the_address_is_of_the_kind_that_is_asked_for() {
        let both =
            data(r#"{"brokerServiceUrl":"pulsar://b:6650","brokerServiceUrlTls":"pulsar+ssl://b:6651"}"#);
        let plain = RemoteDefaults::default();
        assert_eq!(
            RemoteCluster::of("c", &both, &plain).unwrap().url,
            "pulsar://b:6650"
        );
        let encrypted = RemoteDefaults {
            tls: Some(TlsOptions::default()),
            ..RemoteDefaults::default()
        };
        assert_eq!(
            RemoteCluster::of("c", &both, &encrypted).unwrap().url,
            "pulsar+ssl://b:6651"
        );
        let asked = ClusterData {
            broker_client_tls_enabled: true,
            ..both
        };
        assert_eq!(
            RemoteCluster::of("c", &asked, &plain).unwrap().url,
            "pulsar+ssl://b:6651"
        );
        let none = RemoteCluster::of("c", &data("{}"), &plain).unwrap_err();
        assert!(none.0.contains("brokerServiceUrl"), "{none}");
    }
}
