//! Who a peer is, and how that was established.

use std::fmt;
use std::sync::Arc;

/// Who a peer is. The variant says how that was established. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Principal {
    /// The peer was not asked who it is.
    Anonymous {
        /// Where it connects from, as statistics show it: `/host:port`.
        address: Arc<str>,
    },
}

impl Principal {
    /// A peer that was not asked who it is, at this address.
    #[must_use]
    pub fn anonymous(address: impl Into<Arc<str>>) -> Self {
        Self::Anonymous {
            address: address.into(),
        }
    }

    /// Where the peer connects from, as statistics show it: `/host:port`.
    #[must_use]
    pub fn address(&self) -> &Arc<str> {
        match self {
            Self::Anonymous { address } => address,
        }
    }

    /// Whether the peer proved who it is.
    #[must_use]
    pub fn is_authenticated(&self) -> bool {
        match self {
            Self::Anonymous { .. } => false,
        }
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Anonymous { address } => write!(f, "anonymous at {address}"),
        }
    }
}
