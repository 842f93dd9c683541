//! Access to a broker: credentials, TLS and a client certificate.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use pharos_cli::KnownBroker;
use pharos_client::TlsOptions;
use pharos_client::rustls::pki_types::ServerName;
use pharos_client::rustls::{ClientConfig, ClientConnection};
use serde::{Deserialize, Serialize};

/// Scheme of a TLS address.
pub(crate) const TLS_SCHEME: &str = "pulsar+ssl://";

/// Access settings of a run. Also passed to its processes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Access {
    /// Credentials, if any are shown. They are those of the start: a run that lasts longer than they are good ends with them.
    pub(crate) shown: Option<Shown>,
    /// TLS, and the name that the broker's certificate must have.
    tls: Option<(TlsFiles, String)>,
}

/// Credentials as CONNECT has them.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Shown {
    /// Pulsar's name of the authentication method.
    pub(crate) method: String,
    /// A secret.
    pub(crate) data: Vec<u8>,
}

/// File options of a [`TlsOptions`].
#[derive(Clone, Debug, Serialize, Deserialize)]
struct TlsFiles {
    trust_certs: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    skip_hostname_verification: bool,
    allow_insecure_connection: bool,
}

/// Begins TLS on connections.
#[derive(Clone, Debug)]
pub(crate) struct TlsConnector {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl std::fmt::Debug for Shown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Shown({})", self.method)
    }
}

impl Access {
    /// To the broker at `url`: with TLS if that says so.
    ///
    /// # Errors
    /// There are no credentials to be had now.
    pub(crate) fn to(url: &str, known: &KnownBroker) -> anyhow::Result<Self> {
        let shown = known.shown()?.map(|(method, data)| Shown {
            method,
            data: data.to_vec(),
        });
        Ok(Self {
            shown,
            ..Self::by_tls(url, &known.tls)
        })
    }

    /// Returns the TLS settings without credentials.
    pub(crate) fn by_tls(url: &str, tls: &TlsOptions) -> Self {
        let host = url.strip_prefix(TLS_SCHEME).map(|rest| {
            let authority = rest.split(['/', ',']).next().unwrap_or(rest);
            let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
            host.trim_matches(['[', ']']).to_owned()
        });
        let files = || TlsFiles {
            trust_certs: tls.trust_certs_file.clone(),
            certificate: tls.certificate_file.clone(),
            key: tls.key_file.clone(),
            skip_hostname_verification: tls.skip_hostname_verification,
            allow_insecure_connection: tls.allow_insecure_connection,
        };
        Self {
            shown: None,
            tls: host.map(|host| (files(), host)),
        }
    }

    /// Returns the TLS connector; `None` without TLS.
    pub(crate) fn connector(&self) -> anyhow::Result<Option<TlsConnector>> {
        let Some((files, host)) = &self.tls else {
            return Ok(None);
        };
        let options = TlsOptions {
            trust_certs_file: files.trust_certs.clone(),
            certificate_file: files.certificate.clone(),
            key_file: files.key.clone(),
            skip_hostname_verification: files.skip_hostname_verification,
            allow_insecure_connection: files.allow_insecure_connection,
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
