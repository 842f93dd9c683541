//! Credentials of a peer, and the identity they prove.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use crate::TokenMark;

/// Credentials of a peer. Its debug form hides the secret.
#[derive(Clone, Default)]
pub struct Credentials {
    /// The kind, as Pulsar names it: `token`, `basic`, `tls`; empty or `none` for none.
    pub method: String,
    /// A token, or `user:password`.
    pub data: Vec<u8>,
    /// The role of the client certificate that the transport checked.
    pub certificate_role: Option<Arc<str>>,
    /// Remote address: what counts as one address. Wrong passwords are counted by it; `None`: they are not counted.
    pub from: Option<IpAddr>,
}

impl Credentials {
    /// A token.
    #[must_use]
    pub fn token(token: impl Into<Vec<u8>>) -> Self {
        Self {
            method: "token".to_owned(),
            data: token.into(),
            ..Self::default()
        }
    }

    /// `user:password`.
    #[must_use]
    pub fn basic(pair: impl Into<Vec<u8>>) -> Self {
        Self {
            method: "basic".to_owned(),
            data: pair.into(),
            ..Self::default()
        }
    }

    /// Sets the remote address.
    #[must_use]
    pub fn from(self, from: Option<IpAddr>) -> Self {
        Self { from, ..self }
    }

    /// Adds the role of the client certificate of the connection.
    #[must_use]
    pub fn with_certificate(self, role: Option<Arc<str>>) -> Self {
        Self {
            certificate_role: role,
            ..self
        }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("method", &self.method)
            .field("certificate_role", &self.certificate_role)
            .finish_non_exhaustive()
    }
}

/// Authenticated identity of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its role; never empty.
    pub role: Arc<str>,
    /// Expiry time of the credentials, in milliseconds since 1970; `None`: never.
    pub expires_at_ms: Option<u64>,
    /// The token that proved it, if one did.
    pub token: Option<Arc<TokenMark>>,
}

impl Identity {
    /// A role that does not expire.
    pub(crate) fn lasting(role: &str) -> Self {
        Self {
            role: role.into(),
            expires_at_ms: None,
            token: None,
        }
    }
}
