//! How to connect.

use std::time::Duration;

use bytes::Bytes;
use pharos_wire::proto::CommandConnect;
use pharos_wire::request;

use crate::TlsOptions;

/// Settings of one connection.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// The whole CONNECT command; change what a test needs to be different.
    pub command: CommandConnect,
    /// Whom to trust over TLS, and what to show.
    pub tls: TlsOptions,
    /// How long connecting and any request may take. Default 30 s.
    pub operation_timeout: Duration,
    /// Frames that may wait to be written before callers have to. Default 1000.
    pub write_queue: usize,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            command: request::connect(concat!("Pharos-client-v", env!("CARGO_PKG_VERSION"))),
            tls: TlsOptions::default(),
            operation_timeout: Duration::from_secs(30),
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

    /// With these options for TLS.
    #[must_use]
    pub fn tls(mut self, tls: TlsOptions) -> Self {
        self.tls = tls;
        self
    }

    /// With another time limit for connecting and requests.
    #[must_use]
    pub fn operation_timeout(mut self, limit: Duration) -> Self {
        self.operation_timeout = limit;
        self
    }
}
