//! Under which names and in which bytes a cluster's shared facts are kept.

/// Whose names and bytes a metadata store holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MetadataLayout {
    /// Pharos's own.
    #[default]
    Pharos,
    /// Those of Apache Pulsar 4.2, which its brokers read too.
    Pulsar,
}
