//! What a caller may want to do, and to what.

use std::fmt;

use pharos_types::{NamespaceName, SubscriptionName, TopicName};

/// What a caller wants to do. One command or request is one action.
///
/// An action does not say how it came: a seek on the binary protocol and a cursor reset over HTTP are both
/// [`Action::ResetCursor`]. Sends, acknowledgements and permits have none: creating the producer or consumer covers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// See the brokers, their settings, versions and dynamic configuration.
    ReadBroker,
    /// Change a broker's configuration, or have it do its regular work now.
    UpdateBroker,
    /// Ask whether the broker is well.
    ReadHealth,
    /// See the metrics of the broker.
    ReadMetrics,
    /// See the clusters.
    ReadCluster,
    /// Create, change or delete a cluster.
    UpdateCluster,

    /// See which tenants there are.
    ListTenants,
    /// See what is stored of a tenant.
    ReadTenant,
    /// Create a tenant.
    CreateTenant,
    /// Change a tenant.
    UpdateTenant,
    /// Delete a tenant.
    DeleteTenant,

    /// See which namespaces a tenant has.
    ListNamespaces,
    /// See what is stored of a namespace, its bundles and properties.
    ReadNamespace,
    /// Create a namespace.
    CreateNamespace,
    /// Change a namespace's properties.
    UpdateNamespace,
    /// Delete a namespace.
    DeleteNamespace,
    /// Split a bundle of a namespace, or delete what is in one.
    UpdateBundles,
    /// See which topics a namespace has, or watch that list.
    ListTopics,

    /// See a policy of a namespace or topic.
    ReadPolicy,
    /// Set or remove a policy of a namespace or topic.
    UpdatePolicy,
    /// See who may do what in a namespace or on a topic.
    ReadPermissions,
    /// Change who may do what in a namespace or on a topic.
    UpdatePermissions,

    /// Find the broker of a topic, or how many partitions the topic has. Either may create the topic.
    Lookup,
    /// Attach a producer. Creates the topic and stores the producer's schema where that is allowed.
    Produce,
    /// Attach a producer and create this subscription with it.
    ProduceWithSubscription,
    /// Attach a consumer to a subscription. Creates the topic and the subscription where that is allowed.
    Consume,
    /// Create a topic.
    CreateTopic,
    /// See a topic's partitions and properties.
    ReadTopic,
    /// Change a topic's partitions or properties.
    UpdateTopic,
    /// Delete a topic.
    DeleteTopic,
    /// See what a topic has and does: statistics, ledgers, positions.
    ReadStats,
    /// Read messages without consuming them.
    ReadMessages,
    /// End a topic: no more messages.
    Terminate,
    /// Close a topic, or those of a namespace or bundle, to be loaded again when asked for.
    Unload,
    /// Delete messages that every subscription has acknowledged, or all messages.
    Trim,
    /// Compact a topic by key.
    Compact,
    /// Move closed ledgers to the object store.
    Offload,

    /// See the schemas of a topic.
    ReadSchema,
    /// Add a schema to a topic.
    UpdateSchema,
    /// Delete the schemas of a topic.
    DeleteSchema,

    /// See which subscriptions a topic has.
    ListSubscriptions,
    /// See a subscription: its position, its properties, its consumers.
    ReadSubscription,
    /// Create a subscription.
    CreateSubscription,
    /// Change a subscription's properties.
    UpdateSubscription,
    /// Delete a subscription.
    DeleteSubscription,
    /// Move a subscription's cursor: seek.
    ResetCursor,
    /// Acknowledge messages for a subscription without its consumers: skip, expire, clear its backlog.
    SkipMessages,
}

impl Action {
    /// Its name in lower case, words joined by hyphens: for logs and messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadBroker => "read-broker",
            Self::UpdateBroker => "update-broker",
            Self::ReadHealth => "read-health",
            Self::ReadMetrics => "read-metrics",
            Self::ReadCluster => "read-cluster",
            Self::UpdateCluster => "update-cluster",
            Self::ListTenants => "list-tenants",
            Self::ReadTenant => "read-tenant",
            Self::CreateTenant => "create-tenant",
            Self::UpdateTenant => "update-tenant",
            Self::DeleteTenant => "delete-tenant",
            Self::ListNamespaces => "list-namespaces",
            Self::ReadNamespace => "read-namespace",
            Self::CreateNamespace => "create-namespace",
            Self::UpdateNamespace => "update-namespace",
            Self::DeleteNamespace => "delete-namespace",
            Self::UpdateBundles => "update-bundles",
            Self::ListTopics => "list-topics",
            Self::ReadPolicy => "read-policy",
            Self::UpdatePolicy => "update-policy",
            Self::ReadPermissions => "read-permissions",
            Self::UpdatePermissions => "update-permissions",
            Self::Lookup => "lookup",
            Self::Produce => "produce",
            Self::ProduceWithSubscription => "produce-with-subscription",
            Self::Consume => "consume",
            Self::CreateTopic => "create-topic",
            Self::ReadTopic => "read-topic",
            Self::UpdateTopic => "update-topic",
            Self::DeleteTopic => "delete-topic",
            Self::ReadStats => "read-stats",
            Self::ReadMessages => "read-messages",
            Self::Terminate => "terminate",
            Self::Unload => "unload",
            Self::Trim => "trim",
            Self::Compact => "compact",
            Self::Offload => "offload",
            Self::ReadSchema => "read-schema",
            Self::UpdateSchema => "update-schema",
            Self::DeleteSchema => "delete-schema",
            Self::ListSubscriptions => "list-subscriptions",
            Self::ReadSubscription => "read-subscription",
            Self::CreateSubscription => "create-subscription",
            Self::UpdateSubscription => "update-subscription",
            Self::DeleteSubscription => "delete-subscription",
            Self::ResetCursor => "reset-cursor",
            Self::SkipMessages => "skip-messages",
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What an action is about: the narrowest thing that holds all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource<'a> {
    /// The cluster and its brokers.
    Cluster,
    /// A tenant, by name. It need not exist, and neither need any other resource.
    Tenant(&'a str),
    /// A namespace.
    Namespace(&'a NamespaceName),
    /// A topic; of a partitioned one the whole or one partition, as the caller named it.
    Topic(&'a TopicName),
    /// A subscription of a topic.
    Subscription(&'a TopicName, &'a SubscriptionName),
}

impl fmt::Display for Resource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster => f.write_str("the cluster"),
            Self::Tenant(tenant) => write!(f, "tenant {tenant}"),
            Self::Namespace(namespace) => write!(f, "namespace {namespace}"),
            Self::Topic(topic) => write!(f, "topic {topic}"),
            Self::Subscription(topic, name) => write!(f, "subscription {} of topic {topic}", name.as_str()),
        }
    }
}
