//! Who a peer is, and how that was established.

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

/// Who a peer is. Cheap to clone.
///
/// A peer with a role proved it, or has the role that the node gives to those who prove nothing. A proxy says besides for
/// whom it asks; whether it may is decided with each action.
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

    /// The same, come by this door.
    #[must_use]
    pub fn by(self, door: Door) -> Self {
        Self { door, ..self }
    }

    /// The same, having proved that it has this role. A role without a name is none.
    #[must_use]
    pub fn with_role(self, role: Arc<str>) -> Self {
        let role = (!role.is_empty()).then_some(role);
        Self { role, ..self }
    }

    /// The same, asking for another one: what a proxy says of its client. An empty name is none.
    #[must_use]
    pub fn on_behalf_of(self, original: Option<Arc<str>>) -> Self {
        let original = original.filter(|name| !name.is_empty());
        Self { original, ..self }
    }

    /// Where the peer connects from, as statistics show it: `/host:port`.
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

    /// For whom it says that it asks.
    #[must_use]
    pub fn original(&self) -> Option<&Arc<str>> {
        self.original.as_ref()
    }

    /// Whether the peer proved who it is.
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
