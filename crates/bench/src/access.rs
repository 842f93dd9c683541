//! What a broker wants to see before it takes a connection: a token, TLS, a certificate.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use clap::Args;
use pharos_client::TlsOptions;
use pharos_client::rustls::pki_types::ServerName;
use pharos_client::rustls::{ClientConfig, ClientConnection};
use serde::{Deserialize, Serialize};

/// What TLS is announced by.
pub(crate) const TLS_SCHEME: &str = "pulsar+ssl://";

/// Files and checks of TLS, as the flags have them.
#[derive(Args, Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct TlsArgs {
    /// PEM file of the authorities that are trusted, instead of those of the system
    #[arg(long, value_name = "FILE")]
    tls_trust_certs: Option<PathBuf>,
    /// PEM file of the certificate to show; needs --tls-key
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// PEM file of its key
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// Take a broker's certificate whatever name is in it
    #[arg(long)]
    tls_insecure_skip_hostname_verify: bool,
    /// Take any certificate: the broker could be anyone
    #[arg(long)]
    tls_allow_insecure_connection: bool,
}

/// How a run gets in. Handed to the processes of the run as well.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Access {
    /// JSON Web Token, if the broker asks for one.
    pub(crate) token: Option<String>,
    /// TLS, and the name that the broker's certificate must have.
    tls: Option<(TlsArgs, String)>,
}

/// Begins TLS on connections.
#[derive(Clone, Debug)]
pub(crate) struct TlsConnector {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl TlsArgs {
    /// Those that take any certificate.
    #[cfg(test)]
    pub(crate) fn any_certificate() -> Self {
        Self {
            tls_allow_insecure_connection: true,
            ..Self::default()
        }
    }
}

impl Access {
    /// To the broker at `url`: with TLS if that says so.
    pub(crate) fn to(url: &str, token: Option<String>, tls: &TlsArgs) -> Self {
        let host = url.strip_prefix(TLS_SCHEME).map(|rest| {
            let authority = rest.split(['/', ',']).next().unwrap_or(rest);
            let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
            host.trim_matches(['[', ']']).to_owned()
        });
        Self {
            token,
            tls: host.map(|host| (tls.clone(), host)),
        }
    }

    /// What begins TLS, if it is spoken.
    pub(crate) fn connector(&self) -> anyhow::Result<Option<TlsConnector>> {
        let Some((args, host)) = &self.tls else {
            return Ok(None);
        };
        let options = TlsOptions {
            trust_certs_file: args.tls_trust_certs.clone(),
            certificate_file: args.tls_cert.clone(),
            key_file: args.tls_key.clone(),
            skip_hostname_verification: args.tls_insecure_skip_hostname_verify,
            allow_insecure_connection: args.tls_allow_insecure_connection,
        };
        let name = ServerName::try_from(host.clone()).with_context(|| format!("`{host}` is no host name"))?;
        let config = options.client_config()?;
        Ok(Some(TlsConnector { config, name }))
    }
}

impl TlsConnector {
    /// The client's side of a connection.
    pub(crate) fn begin(&self) -> std::io::Result<ClientConnection> {
        ClientConnection::new(self.config.clone(), self.name.clone()).map_err(std::io::Error::other)
    }
}
