//! Errors of admin operations, and their conversion from errors of the catalog, of topics and of cursors: one
//! exhaustive match per family.

use std::sync::Arc;

use pharos_broker::error::{CursorError, Gone, TopicError as LoadError};
use pharos_catalog::policy::Refusal;
use pharos_catalog::schema::SchemaError;
use pharos_catalog::{
    ClusterError, EnsureTopicError, FailureDomainError, IsolationError, NamespaceError, OtherCluster,
    PartitionedMetadataError, PartitionedTopicError, StoreError, TenantError, TopicError,
};
use pharos_cluster::BrokerAddresses;
use pharos_metadata::{ReadError, WriteError};
use pharos_types::TopicName;

/// Failure of an admin operation. Each carries the sentence that the client shows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdminError {
    /// Something named in the call does not exist (404).
    #[error("{0}")]
    NotFound(String),
    /// The object exists already, is not empty, or is being changed by another request (409).
    #[error("{0}")]
    Conflict(String),
    /// A name or value is wrong, or producers or consumers stand in the way (412).
    #[error("{0}")]
    Precondition(String),
    /// The operation is not possible for this kind of topic (405).
    #[error("{0}")]
    NotAllowed(String),
    /// An argument makes no sense (400).
    #[error("{0}")]
    Invalid(String),
    /// A schema or partition count is not acceptable (422).
    #[error("{0}")]
    Unprocessable(String),
    /// A partition count is out of range (406).
    #[error("{0}")]
    NotAcceptable(String),
    /// Another broker serves the topic: ask it (307).
    #[error("{topic} is served by {}", .addresses.http_url)]
    Elsewhere {
        /// The topic that was asked for, or a partition of it.
        topic: TopicName,
        /// Addresses of its broker.
        addresses: Arc<BrokerAddresses>,
    },
    /// The topic's namespace is not on this cluster: ask a peer that it is on (307), if there is one (412).
    #[error(transparent)]
    OtherCluster(Box<OtherCluster>),
    /// Another broker has a bundle: 307 to it.
    #[error("{} has the bundle {bundle}", .addresses.broker_id())]
    BundleElsewhere {
        /// `<tenant>/<namespace>/<range>`.
        bundle: String,
        /// Addresses of that broker.
        addresses: Arc<BrokerAddresses>,
    },
    /// The broker is starting, stopping or overloaded; try again (503).
    #[error("{0}")]
    Unavailable(String),
    /// The role may not do this (403).
    #[error("{0}")]
    Forbidden(String),
    /// This broker cannot do that yet (501).
    #[error("{0}")]
    NotImplemented(String),
    /// A fault of ours (500).
    #[error("{0}")]
    Internal(String),
}

impl From<StoreError> for AdminError {
    fn from(error: StoreError) -> Self {
        match &error {
            // Another process changed it meanwhile; the caller should look again.
            StoreError::Write(WriteError::Conflict { .. }) => Self::Conflict(error.to_string()),
            // The request named or brought what no store takes.
            StoreError::Write(WriteError::InvalidKey(_) | WriteError::TooLarge { .. })
            | StoreError::Read(ReadError::InvalidKey(_)) => Self::Precondition(error.to_string()),
            // Deletes have room all the same; then there is some for this.
            StoreError::Write(WriteError::NoSpace(_)) => Self::Unavailable(error.to_string()),
            StoreError::Read(_) | StoreError::Write(_) | StoreError::Damaged { .. } => {
                Self::Internal(error.to_string())
            }
        }
    }
}

impl From<ClusterError> for AdminError {
    fn from(error: ClusterError) -> Self {
        let reason = error.to_string();
        match error {
            ClusterError::NotFound => Self::NotFound(reason),
            ClusterError::AlreadyExists => Self::Conflict(reason),
            ClusterError::InvalidName | ClusterError::NotEmpty => Self::Precondition(reason),
            ClusterError::Store(error) => error.into(),
        }
    }
}

impl From<IsolationError> for AdminError {
    fn from(error: IsolationError) -> Self {
        let reason = error.to_string();
        match error {
            IsolationError::NoCluster(_) => Self::Precondition(reason),
            IsolationError::NotFound(_) => Self::NotFound(reason),
            IsolationError::Invalid(_) => Self::Invalid(reason),
            IsolationError::Store(error) => error.into(),
        }
    }
}

impl From<FailureDomainError> for AdminError {
    fn from(error: FailureDomainError) -> Self {
        let reason = error.to_string();
        match error {
            FailureDomainError::NoCluster(_) => Self::Precondition(reason),
            FailureDomainError::NotFound(..) => Self::NotFound(reason),
            FailureDomainError::Taken { .. } => Self::Conflict(reason),
            FailureDomainError::Invalid(_) => Self::Invalid(reason),
            FailureDomainError::Store(error) => error.into(),
        }
    }
}

impl From<TenantError> for AdminError {
    fn from(error: TenantError) -> Self {
        let reason = error.to_string();
        match error {
            TenantError::NotFound => Self::NotFound(reason),
            TenantError::AlreadyExists | TenantError::NotEmpty => Self::Conflict(reason),
            TenantError::InvalidName | TenantError::UnknownCluster(_) => Self::Precondition(reason),
            TenantError::Store(error) => error.into(),
        }
    }
}

impl From<NamespaceError> for AdminError {
    fn from(error: NamespaceError) -> Self {
        let reason = error.to_string();
        match error {
            NamespaceError::NotFound | NamespaceError::TenantNotFound => Self::NotFound(reason),
            NamespaceError::AlreadyExists | NamespaceError::NotEmpty => Self::Conflict(reason),
            NamespaceError::ClusterNotAllowed { .. } | NamespaceError::UnknownCluster(_) => {
                Self::Forbidden(reason)
            }
            NamespaceError::NoCluster
            | NamespaceError::NotHere(_)
            | NamespaceError::NoAddress(_)
            | NamespaceError::NoBundle(_)
            | NamespaceError::BadBorders(_) => Self::Precondition(reason),
            NamespaceError::InvalidBundles => Self::Invalid(reason),
            NamespaceError::Reserved(_) => Self::NotAllowed(reason),
            NamespaceError::Store(error) => error.into(),
        }
    }
}

impl From<TopicError> for AdminError {
    fn from(error: TopicError) -> Self {
        let reason = error.to_string();
        match error {
            TopicError::TopicNotFound(_) | TopicError::NamespaceNotFound | TopicError::TenantNotFound => {
                Self::NotFound(reason)
            }
            TopicError::OtherCluster(other) => Self::OtherCluster(other),
            TopicError::AlreadyExists => Self::Conflict(reason),
            TopicError::NotAPartition(_) | TopicError::NotAllowed(_) => Self::Precondition(reason),
            TopicError::Deleting(_) => Self::Unavailable(reason),
            TopicError::Store(error) => error.into(),
        }
    }
}

impl From<PartitionedTopicError> for AdminError {
    fn from(error: PartitionedTopicError) -> Self {
        let reason = error.to_string();
        match error {
            PartitionedTopicError::NotPartitioned(_)
            | PartitionedTopicError::NamespaceNotFound
            | PartitionedTopicError::TenantNotFound => Self::NotFound(reason),
            PartitionedTopicError::OtherCluster(other) => Self::OtherCluster(other),
            PartitionedTopicError::AlreadyExists => Self::Conflict(reason),
            PartitionedTopicError::OutOfRange { .. } => Self::NotAcceptable(reason),
            PartitionedTopicError::Fewer { .. } => Self::Unprocessable(reason),
            PartitionedTopicError::NotAllowed(_) => Self::Precondition(reason),
            PartitionedTopicError::Deleting(_) => Self::Unavailable(reason),
            PartitionedTopicError::Store(error) => error.into(),
        }
    }
}

impl From<PartitionedMetadataError> for AdminError {
    fn from(error: PartitionedMetadataError) -> Self {
        let reason = error.to_string();
        match error {
            PartitionedMetadataError::TopicNotFound(_)
            | PartitionedMetadataError::NamespaceNotFound
            | PartitionedMetadataError::TenantNotFound => Self::NotFound(reason),
            PartitionedMetadataError::OtherCluster(other) => Self::OtherCluster(other),
            PartitionedMetadataError::NotAllowed(_) => Self::Precondition(reason),
            PartitionedMetadataError::Store(error) => error.into(),
        }
    }
}

impl From<EnsureTopicError> for AdminError {
    fn from(error: EnsureTopicError) -> Self {
        let reason = error.to_string();
        match error {
            EnsureTopicError::TopicNotFound(_)
            | EnsureTopicError::NamespaceNotFound
            | EnsureTopicError::TenantNotFound => Self::NotFound(reason),
            EnsureTopicError::OtherCluster(other) => Self::OtherCluster(other),
            EnsureTopicError::NotAllowed(_) => Self::Precondition(reason),
            EnsureTopicError::Deleting(_) => Self::Unavailable(reason),
            EnsureTopicError::Store(error) => error.into(),
        }
    }
}

impl From<SchemaError> for AdminError {
    fn from(error: SchemaError) -> Self {
        let reason = error.to_string();
        match error {
            SchemaError::Invalid(_) => Self::Unprocessable(reason),
            SchemaError::Incompatible(_) => Self::Conflict(reason),
            SchemaError::Deleting(_) => Self::Unavailable(reason),
            SchemaError::Store(error) => error.into(),
        }
    }
}

impl From<Refusal> for AdminError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Shape(reason) => Self::Invalid(reason),
            Refusal::Value(reason) => Self::Precondition(reason),
            Refusal::NotActedOn(reason) => Self::NotImplemented(reason),
        }
    }
}

impl From<Gone> for AdminError {
    fn from(gone: Gone) -> Self {
        Self::Unavailable(gone.to_string())
    }
}

impl From<LoadError> for AdminError {
    fn from(error: LoadError) -> Self {
        let reason = error.to_string();
        match error {
            LoadError::NotFound(_) | LoadError::NoNamespace(_) => Self::NotFound(reason),
            LoadError::NotAllowed(_) | LoadError::InUse => Self::Precondition(reason),
            LoadError::Closing(_) | LoadError::NotServed(_) | LoadError::Gone(_) => Self::Unavailable(reason),
            LoadError::Metadata(_) | LoadError::Storage(_) => Self::Internal(reason),
        }
    }
}

impl From<CursorError> for AdminError {
    fn from(error: CursorError) -> Self {
        let reason = error.to_string();
        match error {
            CursorError::Topic(error) => error.into(),
            CursorError::NoSubscription(_) | CursorError::NoConsumer => Self::NotFound(reason),
            CursorError::Exists(_) => Self::Conflict(reason),
            CursorError::Busy(_) => Self::Precondition(reason),
            CursorError::NotAllowed(_) => Self::NotAllowed(reason),
            CursorError::Read(_) | CursorError::Storage(_) => Self::Internal(reason),
        }
    }
}
