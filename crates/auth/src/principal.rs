//! Identity of a peer, and the way it was established.

use std::fmt;
use std::sync::Arc;

/// By which door a peer came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Door {
    /// By none: the process itself.
    #[default]
    Inside,
    /// The Pulsar protocol.
    Pulsar,
    /// The HTTP server.
    Http,
    /// A WebSocket, which the HTTP server takes in.
    WebSocket,
}

impl Door {
    /// Its name: for logs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Inside => "inside",
            Self::Pulsar => "pulsar",
            Self::Http => "http",
            Self::WebSocket => "websocket",
        }
    }
}

/// Identity of a peer. Cheap to clone.
///
/// A peer with a role proved it, or has the role that the node gives to unauthenticated peers. A proxy also names its
/// original principal; each action checks that it may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    address: Arc<str>,
    door: Door,
    role: Option<Arc<str>>,
    original: Option<Arc<str>>,
}

impl Principal {
    /// A peer that was not asked who it is, at this address.
    #[must_use]
    pub fn anonymous(address: impl Into<Arc<str>>) -> Self {
        Self {
            address: address.into(),
            door: Door::default(),
            role: None,
            original: None,
        }
    }

    /// Returns the principal with this protocol handler.
    #[must_use]
    pub fn by(self, door: Door) -> Self {
        Self { door, ..self }
    }

    /// Returns the principal with this proven role. An empty role is none.
    #[must_use]
    pub fn with_role(self, role: Arc<str>) -> Self {
        let role = (!role.is_empty()).then_some(role);
        Self { role, ..self }
    }

    /// Returns the principal with this original principal, as a proxy names its client. An empty name is none.
    #[must_use]
    pub fn on_behalf_of(self, original: Option<Arc<str>>) -> Self {
        let original = original.filter(|name| !name.is_empty());
        Self { original, ..self }
    }

    /// Remote address, in the form that statistics show: `/host:port`.
    #[must_use]
    pub fn address(&self) -> &Arc<str> {
        &self.address
    }

    /// By which door it came.
    #[must_use]
    pub fn door(&self) -> Door {
        self.door
    }

    /// Its role; `None` when it was not asked.
    #[must_use]
    pub fn role(&self) -> Option<&Arc<str>> {
        self.role.as_ref()
    }

    /// Original principal named by the peer.
    #[must_use]
    pub fn original(&self) -> Option<&Arc<str>> {
        self.original.as_ref()
    }

    /// True if the peer has a role.
    #[must_use]
    pub fn is_authenticated(&self) -> bool {
        self.role.is_some()
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.role, &self.original) {
            (None, _) => write!(f, "anonymous at {}", self.address),
            (Some(role), None) => write!(f, "role {role} at {}", self.address),
            (Some(role), Some(original)) => write!(f, "role {role} for {original} at {}", self.address),
        }
    }
}
