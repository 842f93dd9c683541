//! Errors of the catalog as errors of admin verbs: one exhaustive match per family.

use pharos_metadata::{ReadError, WriteError};

use super::AdminError;
use pharos_catalog::policy::Refusal;
use pharos_catalog::schema::SchemaError;
use pharos_catalog::{
    ClusterError, EnsureTopicError, NamespaceError, PartitionedMetadataError, PartitionedTopicError,
    StoreError, TenantError, TopicError,
};

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
            NamespaceError::NoCluster => Self::Precondition(reason),
            NamespaceError::Replication(_) => Self::NotImplemented(reason),
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
