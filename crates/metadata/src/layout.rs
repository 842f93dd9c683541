//! Under which names and in which bytes a cluster's shared facts are kept.

/// Layout of names and values in a metadata store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MetadataLayout {
    /// Pharos's own.
    #[default]
    Pharos,
    /// Layout of Apache Pulsar 4.2, which its brokers read too.
    Pulsar,
}
