//! Contexts: brokers by name, with their addresses and credentials, in one file that only its owner may read.
//!
//! ```text
//!   flag  ►  environment  ►  context (--context, PHAROS_CONTEXT, or the one in use)  ►  default
//! ```
//! Always true: the file has mode 0600, and one that others may read is refused; a secret is never printed.

mod file;

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use clap::Args;
use pharos_client::plugin::{PluginCredentials, TokenSource};
use pharos_client::{ConnectOptions, CredentialSource as _, TlsOptions};

use crate::credentials::{Plugin, ShownCredentials};
use crate::error::CliError;

pub(crate) use file::{Context, Contexts};

/// Where the admin API is when nothing says otherwise.
const ADMIN_URL: &str = "http://127.0.0.1:8080";
/// The same of the Pulsar protocol.
const SERVICE_URL: &str = "pulsar://127.0.0.1:6650";

/// How to reach a broker, apart from where it is. A flag is stronger than the context.
#[derive(Args, Clone, Debug, Default)]
pub struct Access {
    /// The context to take addresses and credentials from, instead of the one in use
    #[arg(
        long,
        global = true,
        env = "PHAROS_CONTEXT",
        hide_env_values = true,
        value_name = "NAME"
    )]
    context: Option<String>,
    #[command(flatten)]
    tls: TlsArgs,
}

/// TLS and credentials.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct TlsArgs {
    /// PEM file of the authorities that are trusted, instead of those of the system
    #[arg(long, global = true, value_name = "FILE", help_heading = "Connection")]
    tls_trust_certs: Option<PathBuf>,
    /// PEM file of the certificate to show; needs --tls-key
    #[arg(long, global = true, value_name = "FILE", help_heading = "Connection")]
    tls_cert: Option<PathBuf>,
    /// PEM file of its key
    #[arg(long, global = true, value_name = "FILE", help_heading = "Connection")]
    tls_key: Option<PathBuf>,
    /// Take a broker's certificate whatever name is in it
    #[arg(long, global = true, help_heading = "Connection")]
    tls_insecure_skip_hostname_verify: bool,
    /// Take any certificate: the broker could be anyone
    #[arg(long, global = true, help_heading = "Connection")]
    tls_allow_insecure_connection: bool,
    /// File with the token to show
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        help_heading = "Connection",
        conflicts_with_all = ["token", "auth_plugin"]
    )]
    token_file: Option<PathBuf>,
    /// The token to show: `file:///PATH`, env:NAME, token:TEXT or the token itself, which other users of this machine can then see
    #[arg(
        long,
        global = true,
        value_name = "TOKEN",
        help_heading = "Connection",
        conflicts_with = "auth_plugin"
    )]
    token: Option<String>,
    /// How to say who asks: token, basic, tls, oauth2, or Pulsar's class for it
    #[arg(long, global = true, value_name = "NAME", help_heading = "Connection")]
    auth_plugin: Option<String>,
    /// What that plugin needs, as Pulsar's tools take it, such as `file:///PATH` for token
    #[arg(
        long,
        global = true,
        value_name = "TEXT",
        help_heading = "Connection",
        requires = "auth_plugin"
    )]
    auth_params: Option<String>,
}

impl TlsArgs {
    /// What the flags say of a context, laid over one.
    pub(crate) fn lay_over(&self, context: &mut Context) -> Result<(), CliError> {
        let lay = |over: &Option<PathBuf>, under: &mut Option<PathBuf>| -> Result<(), CliError> {
            if let Some(path) = over {
                *under = Some(std::path::absolute(path)?);
            }
            Ok(())
        };
        lay(&self.tls_trust_certs, &mut context.tls_trust_certs)?;
        lay(&self.tls_cert, &mut context.tls_cert)?;
        lay(&self.tls_key, &mut context.tls_key)?;
        context.tls_skip_hostname_verification |= self.tls_insecure_skip_hostname_verify;
        context.tls_allow_insecure_connection |= self.tls_allow_insecure_connection;
        let token = match (&self.token_file, &self.token) {
            (Some(path), _) => {
                // Its content is of no use yet, but that it is there.
                std::fs::metadata(path)
                    .map_err(|error| CliError::Usage(format!("{}: {error}", path.display())))?;
                Some(format!("file:{}", std::path::absolute(path)?.display()))
            }
            (None, token) => token.clone(),
        };
        if token.is_some() || self.auth_plugin.is_some() {
            // What is said here takes the place of all that was kept.
            context.token = token;
            context.auth_plugin.clone_from(&self.auth_plugin);
            context.auth_params.clone_from(&self.auth_params);
        }
        Ok(())
    }
}

/// A broker and the way to it.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) admin_url: String,
    pub(crate) service_url: String,
    pub(crate) tls: TlsOptions,
    /// What to show, if anything.
    pub(crate) credentials: Option<Arc<ShownCredentials>>,
}

/// What flags, environment and context say of a broker.
#[derive(Clone, Debug)]
pub struct KnownBroker {
    /// Where its admin API is.
    pub admin_url: Option<String>,
    /// Where it takes Pulsar clients.
    pub service_url: Option<String>,
    /// Whom to trust, and the certificate to show.
    pub tls: TlsOptions,
    credentials: Option<Arc<ShownCredentials>>,
}

impl KnownBroker {
    /// The kind of the credentials to show and what they are now; `None`: nothing is shown.
    ///
    /// # Errors
    /// There are none to be had now.
    pub fn shown(&self) -> Result<Option<(String, Bytes)>, CliError> {
        let Some(credentials) = &self.credentials else {
            return Ok(None);
        };
        let data = credentials.current().map_err(CliError::Credentials)?;
        Ok(Some((credentials.method().to_owned(), data)))
    }

    /// What the header `Authorization` of a request says now.
    ///
    /// # Errors
    /// There are no credentials to be had now.
    pub fn authorization(&self) -> Result<Option<String>, CliError> {
        match &self.credentials {
            Some(credentials) => credentials.header(),
            None => Ok(None),
        }
    }
}

impl Access {
    /// Whether a context was named, by flag or environment; one that is in use is not.
    #[must_use]
    pub fn names_context(&self) -> bool {
        self.context.is_some()
    }

    /// What flags, environment and context say together.
    ///
    /// # Errors
    /// There is no such context, its file cannot be read, or its credentials are of no known form.
    pub fn known(
        &self,
        admin_url: Option<&String>,
        service_url: Option<&String>,
    ) -> Result<KnownBroker, CliError> {
        let mut context = Contexts::read()?.chosen(self.context.as_deref())?;
        self.tls.lay_over(&mut context)?;
        let plugin = context.plugin()?;
        if let Some((certificate, key)) = plugin.as_ref().and_then(|plugin| plugin.certificate.clone()) {
            context.tls_cert = Some(certificate);
            context.tls_key = Some(key);
        }
        Ok(KnownBroker {
            admin_url: admin_url.cloned().or(context.admin_url),
            service_url: service_url.cloned().or(context.service_url),
            tls: TlsOptions {
                trust_certs_file: context.tls_trust_certs,
                certificate_file: context.tls_cert,
                key_file: context.tls_key,
                skip_hostname_verification: context.tls_skip_hostname_verification,
                allow_insecure_connection: context.tls_allow_insecure_connection,
            },
            credentials: plugin.map(|plugin| Arc::new(plugin.credentials)),
        })
    }

    /// The broker that flags, environment and context name together, else the one on this machine.
    ///
    /// # Errors
    /// As of [`known`](Self::known).
    pub(crate) fn target(
        &self,
        admin_url: Option<&String>,
        service_url: Option<&String>,
    ) -> Result<Target, CliError> {
        let known = self.known(admin_url, service_url)?;
        Ok(Target {
            admin_url: known.admin_url.unwrap_or_else(|| ADMIN_URL.to_owned()),
            service_url: known.service_url.unwrap_or_else(|| SERVICE_URL.to_owned()),
            tls: known.tls,
            credentials: known.credentials,
        })
    }
}

impl Context {
    /// What is shown to the broker: what was named, else the certificate where there is one.
    fn plugin(&self) -> Result<Option<Plugin>, CliError> {
        if let Some(name) = &self.auth_plugin {
            return Plugin::parse(name, self.auth_params.as_deref().unwrap_or_default()).map(Some);
        }
        let token = self.token.as_deref().map(TokenSource::parse);
        let token = token.map(PluginCredentials::Token);
        let certificate = || self.tls_cert.as_ref().map(|_| PluginCredentials::Tls);
        Ok(token.or_else(certificate).map(|credentials| Plugin {
            credentials: ShownCredentials::AtHand(credentials),
            certificate: None,
        }))
    }
}

impl Target {
    /// How to connect over the Pulsar protocol.
    pub(crate) fn connect_options(&self) -> ConnectOptions {
        let options = ConnectOptions::default().tls(self.tls.clone());
        match &self.credentials {
            Some(credentials) => options.credentials(credentials.clone()),
            None => options,
        }
    }
}
