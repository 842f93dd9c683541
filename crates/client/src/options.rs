//! Options of a connection.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pharos_wire::proto::CommandConnect;
use pharos_wire::request;

use crate::credentials::Fixed;
use crate::{CredentialSource, Inside, TlsOptions};

/// Settings of one connection.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// The whole CONNECT command; change what a test needs to be different.
    pub command: CommandConnect,
    /// Source of credentials; `None`: those of the command are presented, whenever the broker asks.
    pub credentials: Option<Arc<dyn CredentialSource>>,
    /// Authorities trusted over TLS, and the client certificate.
    pub tls: TlsOptions,
    /// The way to a broker in this process; `None`, the default: all are reached over the network.
    pub inside: Option<Arc<dyn Inside>>,
    /// Time limit for connecting and for any request. Default 30 s.
    pub operation_timeout: Duration,
    /// After how long a silence the broker is asked for a sign of life; after as long again the connection ends. `None`,
    /// the default: a broker that has gone without a word is not missed.
    pub keep_alive: Option<Duration>,
    /// Frames that may wait to be written before callers have to. Default 1000.
    pub write_queue: usize,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            command: request::connect(concat!("Pharos-client-v", env!("CARGO_PKG_VERSION"))),
            credentials: None,
            tls: TlsOptions::default(),
            inside: None,
            operation_timeout: Duration::from_secs(30),
            keep_alive: None,
            write_queue: 1000,
        }
    }
}

impl ConnectOptions {
    /// With a token (`auth_method_name` "token").
    #[must_use]
    pub fn token(mut self, token: &str) -> Self {
        self.command.auth_method_name = Some("token".to_owned());
        self.command.auth_data = Some(Bytes::copy_from_slice(token.as_bytes()));
        self
    }

    /// With credentials that may change during the connection.
    #[must_use]
    pub fn credentials(mut self, source: Arc<dyn CredentialSource>) -> Self {
        self.credentials = Some(source);
        self
    }

    /// Returns the source of the credentials, presented at first and on each challenge.
    pub(crate) fn source(&self) -> Option<Arc<dyn CredentialSource>> {
        let fixed = || -> Option<Arc<dyn CredentialSource>> {
            Some(Arc::new(Fixed {
                method: self.command.auth_method_name.clone()?,
                data: self.command.auth_data.clone()?,
            }))
        };
        self.credentials.clone().or_else(fixed)
    }

    /// With these options for TLS.
    #[must_use]
    pub fn tls(mut self, tls: TlsOptions) -> Self {
        self.tls = tls;
        self
    }

    /// Asks a broker that is silent for so long for a sign of life.
    #[must_use]
    pub fn keep_alive(mut self, silence: Duration) -> Self {
        self.keep_alive = Some(silence);
        self
    }

    /// With another time limit for connecting and requests.
    #[must_use]
    pub fn operation_timeout(mut self, limit: Duration) -> Self {
        self.operation_timeout = limit;
        self
    }
}
